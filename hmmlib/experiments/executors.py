"""Where trials run: in this process, in several side by side, or with Ray on the machines of a cluster.

Each of the three starts a trial that the sweep has claimed, gives its answer, and can ask what runs to end with a
checkpoint. Ray is imported only where it is asked for.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path

import torch

from hmmlib import backend
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Store, as_store, checkpoint_path
from hmmlib.experiments.trials import TrialResult, measure, run_trial
from hmmlib.validation import of_type

GRACE = 20.0
"""Seconds that trials in other processes have to write their checkpoints, once they are asked to end."""
RETRIES = 3
"""How often Ray begins a trial again when its worker or node has died."""
GIVING_UP = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_py_gcs_connect_timeout_s": "10"}
"""With these, Ray gives up after some 20 seconds where what answers is no Ray; by itself it tries for a quarter of an hour."""
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""This tells Ray, before it is imported, that there are no clusters. Then all that it starts listens on 127.0.0.1 alone, and
otherwise on all addresses.

Ray has an argument for this, `_node_ip_address="127.0.0.1"`, but replaces it by the machine's address in the network.
"""


class TimeUp(Exception):
    """The time box is over. What was running keeps a checkpoint."""


Answer = tuple[str, TrialResult | str | None]
"""What became of a trial: ("ran", its result), ("left", None) where it was to end, or ("failed", the reason)."""


def attempt(
    spec: TrialSpec,
    stored: TrialResult | None,
    lacking: Sequence[str],
    store: Store,
    device: str,
    networks: Path | None,
    report: Callable[[str, float], None] | None = None,
) -> Answer:
    """Run a trial, or measure what its stored result lacks, with a checkpoint where the store's folder is seen.

    What ends this trial alone is no error.
    """
    checkpoint = checkpoint_path(spec, store) if as_store(store)[0].is_dir() else None
    try:
        how = dict(report=report, device=device, checkpoint=checkpoint, networks=networks)
        return "ran", measure(stored, lacking, **how) if stored else run_trial(spec, also=lacking, **how)
    except TimeUp:
        return "left", None
    except (ArithmeticError, ValueError, RuntimeError, MemoryError) as error:
        return "failed", " ".join(str(error).split()) or type(error).__name__


def _attempt_in_a_worker(asked_by: signal.Signals, threads: int, *job, **how) -> Answer:
    """The same in another process, which is asked by a signal to end with a checkpoint."""
    before = signal.signal(asked_by, backend.ask_to_stop)
    torch.set_num_threads(threads)
    try:
        with backend.warnings_in_one_line():
            return attempt(*job, **how)
    except KeyboardInterrupt:
        return "left", None
    finally:
        signal.signal(asked_by, before)
        backend.Interrupts.asked = False


class Here:
    """One trial at a time, in this process."""

    def __init__(self, until: float, on_progress: Callable[[TrialSpec, str, float], None] | None, how: dict):
        self.until, self.on_progress, self.how = until, on_progress, how

    def room(self) -> int:
        return 1

    def start(self, *job) -> str:
        self.job = job
        return job[0].hash

    def answers(self, running: Iterable) -> list[tuple[str, Answer]]:
        spec = self.job[0]

        def report(phase: str, share: float) -> None:
            if self.on_progress:
                self.on_progress(spec, phase, share)
            if time.monotonic() >= self.until:
                raise TimeUp

        return [(spec.hash, attempt(*self.job, report=report, **self.how))]

    def stop(self, running: Iterable) -> list:
        return []

    def close(self) -> None:
        pass


def _serve(pipe: connection.Connection, threads: int, on_progress: Callable | None, how: dict) -> None:
    """What each of several processes does: one trial after another, as long as the process that began it wants more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all, and who began this one sends SIGTERM

    def end_with_parent() -> None:
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError):
        while True:
            spec, *job = pipe.recv()
            report = on_progress and (lambda phase, share, spec=spec: on_progress(spec, phase, share))
            try:
                answer = _attempt_in_a_worker(signal.SIGTERM, threads, spec, *job, report=report, **how)
            except Exception as error:
                answer = error
            pipe.send(answer)


class SideBySide:
    """Trials in so many processes of this machine, each with its share of the cores."""

    def __init__(self, workers: int, on_progress: Callable | None, how: dict):
        self.workers, self.processes, self.idle = workers, {}, []
        self.arguments = max(1, (os.cpu_count() or 1) // workers), on_progress, how

    def room(self) -> int:
        return self.workers

    def start(self, *job) -> connection.Connection:
        if self.idle:
            pipe = self.idle.pop()
        else:
            context = multiprocessing.get_context("spawn")
            pipe, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, *self.arguments), daemon=True)
            process.start()
            theirs.close()  # so that the pipe ends with the process
            self.processes[pipe] = process
        pipe.send(job)
        return pipe

    def answers(self, running: Iterable) -> list[tuple[connection.Connection, Answer]]:
        return [(pipe, self._answer(pipe)) for pipe in connection.wait(list(running), 1.0)]

    def _answer(self, pipe: connection.Connection, stopped: bool = False) -> Answer:
        try:
            answer = pipe.recv()
        except (EOFError, OSError):
            process = self.processes.pop(pipe)
            process.join()
            died = f"its process died (exit code {process.exitcode}): run it again"
            return ("left", None) if stopped else ("failed", died)
        self.idle.append(pipe)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self, running: Iterable) -> list[tuple[connection.Connection, Answer]]:
        end = time.monotonic() + GRACE
        for pipe in running:
            self.processes[pipe].terminate()
        ended = [pipe for pipe in running if pipe.poll(max(0.0, end - time.monotonic()))]
        return [(pipe, self._answer(pipe, stopped=True)) for pipe in ended]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


def reachable(address: str) -> None:
    """Raise OSError unless something listens at HOST:PORT; to find "auto", this machine's own cluster, is left to Ray."""
    if of_type("address", address, str) == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or "/" in host:
        raise ValueError(f"address must be HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise OSError(f"no Ray cluster answers at {address}: {error}") from None


def connect(address: str | None):
    """Start Ray on this machine, on loopback only, or join the cluster at `address`.

    OSError where there is none, or where Ray, imported before, would listen on all of this machine's addresses.
    """
    if address is not None:
        reachable(address)
    os.environ.update(ON_LOOPBACK if address is None else {})
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", **(GIVING_UP if address else {})}.items():
        os.environ.setdefault(name, value)
    import ray

    if address is None and (here := ray.util.get_node_ip_address()) not in ("127.0.0.1", "::1"):
        raise OSError(f"Ray was imported before and would listen beyond this machine, as {here}: use a new process")
    quiet = dict(log_to_driver=False, logging_level=logging.ERROR)
    if address is None:
        ray.init(address="local", include_dashboard=False, **quiet)
        return ray
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise OSError(f"no Ray cluster answers at {address}: {error}") from None
    return ray


def slots(nodes: Sequence[dict[str, float]], cpus: float, gpus: float) -> int:
    """How many trials fit on nodes with these resources; none is spread over two."""
    shares = [[node.get("CPU", 0) / cpus, *([node.get("GPU", 0) / gpus] if gpus else [])] for node in nodes]
    return sum(int(min(share) + 1e-9) for share in shares)


class OnRay:
    """Trials on the nodes of a Ray cluster, or on this machine with the Ray that is started there."""

    def __init__(self, address: str | None, cpus: float, gpus: float | None, how: dict):
        self.ray, self.how = connect(address), how
        if gpus is None:
            gpus = 1.0 if how["device"] != "cpu" and any(node.get("GPU") for node in self._nodes()) else 0.0
        self.share = cpus, gpus
        if not self.room():
            sizes = {f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in self._nodes()}
            self.close()
            asked = f"{cpus:g} cores and {gpus:g} GPUs"
            raise ValueError(f"no trial fits: it asks for {asked}, and a node has {' or '.join(sorted(sizes))}")
        remote = self.ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
        self.task = remote(_attempt_in_a_worker)

    def _nodes(self) -> list[dict[str, float]]:
        """The resources of each node of the cluster as it is now."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def room(self) -> int:
        return slots(self._nodes(), *self.share)

    def start(self, *job):
        return self.task.remote(signal.SIGINT, max(1, int(self.share[0])), *job, **self.how)

    def answers(self, running: Iterable) -> list[tuple[object, Answer]]:
        return [(task, self._answer(task)) for task in self.ray.wait(list(running), timeout=1.0)[0]]

    def _answer(self, task) -> Answer:
        errors = self.ray.exceptions
        try:
            return self.ray.get(task)
        except errors.TaskCancelledError:
            return "left", None
        except errors.RayTaskError as error:
            return "failed", f"{type(error.cause).__name__}: {error.cause}"
        except errors.RayError as error:
            reason = str(error).splitlines()[0]
            return "failed", f"its worker died {RETRIES + 1} times, or cannot run it: {reason}"

    def stop(self, running: Iterable) -> list[tuple[object, Answer]]:
        tasks = list(running)
        for task in tasks:
            self.ray.cancel(task)  # as Ctrl-C in the worker
        done = self.ray.wait(tasks, num_returns=len(tasks), timeout=GRACE)[0] if tasks else []
        return [(task, self._answer(task)) for task in done]

    def close(self) -> None:
        self.ray.shutdown()
