"""Where trials run: in this process, in several side by side, or on the machines of a Ray cluster.

Each gives a future for a trial, and can ask all that run to end with a checkpoint. Ray is imported where it is used.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from hmmlib import backend
from hmmlib.validation import number, of_type

GRACE = 20.0
"""Seconds that trials in other processes have to write their checkpoints, once they are asked to end."""


class TimeUp(Exception):
    """A trial was asked to end. It keeps a checkpoint."""


def reason_of(error: Exception) -> str:
    """Why a trial failed, in one line."""
    if isinstance(error, BrokenProcessPool):
        return "its process died: run it again"
    error = getattr(error, "cause", None) or error  # an error of Ray's holds the trial's own
    return " ".join(str(error).split()) or type(error).__name__


class InThisProcess:
    """One trial at a time, in this process."""

    errors: tuple = (ArithmeticError, ValueError, RuntimeError, MemoryError)
    """What ends one trial, and not all of them."""
    workers = 1
    """How many trials can run at once."""

    def submit(self, trial: Callable, *arguments) -> Future:
        """Begin a trial, `trial(*arguments)`; the future raises TimeUp where it was to end."""
        future = Future()
        try:
            future.set_result(trial(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self, running: Iterable[Future]) -> None:
        """Ask these to end, with a checkpoint."""

    def close(self) -> None:
        """End all processes that were begun."""


def _run_in_worker(on_interrupt: Callable | signal.Handlers, threads: int, trial: Callable, *arguments):
    """`trial(*arguments)` in another process, which may be asked to end."""
    before = signal.signal(signal.SIGINT, on_interrupt)
    torch.set_num_threads(threads)
    try:
        with backend.warnings_in_one_line():
            return trial(*arguments)
    except KeyboardInterrupt:
        raise TimeUp from None
    finally:
        signal.signal(signal.SIGINT, before)
        backend.Interrupts.asked = False


def _end_with(pipe: Connection) -> None:
    """Have this process end when the other end of the pipe is closed, be it by the death of who began this process."""

    def wait_and_end() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()
        backend.ask_to_stop()
        time.sleep(GRACE)
        os._exit(1)

    atexit.register(os._exit, 0)  # at once: torch takes a second to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes: it is for the first
    signal.signal(signal.SIGTERM, backend.ask_to_stop)  # a scheduler sends this one to all
    threading.Thread(target=wait_and_end, daemon=True).start()


class SideBySide(InThisProcess):
    """Trials in so many processes of this machine, each with its share of the cores."""

    def __init__(self, workers: int):
        self.workers, self.threads = workers, max(1, (os.cpu_count() or 1) // workers)
        self.context = multiprocessing.get_context("spawn")
        self.theirs, self.ours = self.context.Pipe(duplex=False)
        self.last: dict[ProcessPoolExecutor, Future] = {}  # a pool for each process, as a death breaks all of a pool

    def submit(self, *trial) -> Future:
        done = ((pool, last.exception()) for pool, last in self.last.items() if last.done())
        idle = (pool for pool, error in done if not isinstance(error, BrokenProcessPool))
        pool = next(idle, None) or ProcessPoolExecutor(1, self.context, _end_with, (self.theirs,))
        self.last[pool] = pool.submit(_run_in_worker, signal.SIG_IGN, self.threads, *trial)
        return self.last[pool]

    def stop(self, running: Iterable[Future]) -> None:
        self.ours.close()

    def close(self) -> None:
        self.ours.close()
        for pool in self.last:
            pool.shutdown(wait=False, cancel_futures=True)


class RayCluster(InThisProcess):
    """The nodes of a Ray cluster, or this machine with a Ray that is started on it when the first trial is to run.

    Args:
        address: of an existing cluster, HOST:PORT or auto; None starts Ray on this machine.
        cpus: cores of a trial.
        gpus: GPUs of a trial, a fraction to let several share one; None takes a whole one where there are any, unless
            the device is the CPU.

    Raises:
        OSError: nothing answers at the address.
        ValueError: it is no address, or cpus or gpus is negative.
    """

    def __init__(self, address: str | None = None, cpus: float = 1.0, gpus: float | None = None):
        if not number("cpus", cpus, 0):
            raise ValueError("cpus must be more than 0")
        number("gpus", 0 if gpus is None else gpus, 0)
        self.address, self.cpus, self.gpus = address, cpus, gpus
        if address is None or of_type("address", address, str) == "auto":  # Ray finds this machine's own cluster
            return
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except (ValueError, OverflowError):
            raise ValueError(f"address must be HOST:PORT or auto, not {address!r}") from None
        except OSError as error:
            raise OSError(f"no Ray cluster answers at {address}: {error}") from None

    def connect(self, device: str) -> None:
        """Join the cluster, or start Ray on this machine, where it listens on 127.0.0.1 alone.

        OSError where Ray, imported before, would listen on all addresses of this machine; ValueError where a trial fits
        on no node.
        """
        settings = {"RAY_USAGE_STATS_ENABLED": "0"}
        if self.address is None:
            # No clusters: Ray reads this when it is imported. Its own argument for it, _node_ip_address="127.0.0.1", is
            # replaced by the machine's address in the network.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        else:  # give up after some 20 seconds, not a quarter of an hour, where what answers is no Ray
            settings |= {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_py_gcs_connect_timeout_s": "10"}
        os.environ.update(settings | os.environ)
        import ray

        if self.address is None and (here := ray.util.get_node_ip_address()) not in ("127.0.0.1", "::1"):
            raise OSError(f"Ray was imported before and would listen beyond this machine, as {here}: use a new process")
        where = {"address": self.address} if self.address else {"address": "local", "include_dashboard": False}
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        self.ray, self.errors = ray, (*InThisProcess.errors, ray.exceptions.RayError)
        if self.gpus is None:
            self.gpus = float(device != "cpu" and "GPU" in ray.cluster_resources())
        if not self.workers:
            self.close()
            raise ValueError(f"no trial fits: no node has the {self.cpus:g} cores and {self.gpus:g} GPUs that it needs")
        remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=3)  # where its worker or node has died
        self.task = remote(_run_in_worker)

    @property
    def workers(self) -> int:
        """How many trials fit on the nodes that are there now; none is spread over two."""
        asked = {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(int(min(node.get(kind, 0) / n for kind, n in asked.items()) + 1e-9) for node in nodes)

    def submit(self, *trial) -> Future:
        task = self.task.remote(backend.ask_to_stop, max(1, int(self.cpus)), *trial)
        future = task.future()
        future.task = task
        return future

    def stop(self, running: Iterable[Future]) -> None:
        for future in running:
            self.ray.cancel(future.task)  # as Ctrl-C in the worker

    def close(self) -> None:
        self.ray.shutdown()
