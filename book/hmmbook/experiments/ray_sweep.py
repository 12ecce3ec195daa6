"""Run trials on the nodes of a Ray cluster, or on all cores and GPUs of this machine.

Ray hands each trial to a free node. If the worker or the node dies, it runs the trial again. This process stores the
results, so the nodes need not see the store. Ray is an optional dependency, so it is imported only where it is used.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import torch

from hmmbook.cores import usable_cores
from hmmbook.experiments.measurements import MEASUREMENTS
from hmmbook.experiments.specs import TrialSpec, warn_of_large_presets
from hmmbook.experiments.store import checkpoint_path
from hmmbook.experiments.sweeps import Outcome, Sweep, TimeUp, as_time, what_is_kept
from hmmbook.experiments.trials import TrialResult
from hmmlib.device import interrupts_between_steps, stop_if_interrupted, warnings_in_one_line
from hmmlib.validation import number, of_type

GRACE_SECONDS = 20.0
"""How long trials may take to write their checkpoints once they are asked to end."""


@dataclass
class RayCluster:
    """A Ray cluster, and what a trial needs of it.

    Raises:
        OSError: nothing answers at the address.
        ValueError: the address is neither HOST:PORT nor auto, cpus is not above 0, or gpus is negative.
    """

    address: str | None = None
    """The address of an existing cluster, HOST:PORT or auto. None starts Ray on this machine."""
    cpus: float = 1.0
    """How many cores a trial gets."""
    gpus: float | None = None
    """How many GPUs a trial gets. A fraction lets several trials share one. None stands for one, if there is any."""

    def __post_init__(self) -> None:
        if number("cpus", self.cpus, 0) == 0:
            raise ValueError("cpus must be more than 0, not 0")
        if self.gpus is not None:
            number("gpus", self.gpus, 0)
        if self.address is not None and of_type("address", self.address, str) != "auto":
            check_that_something_answers(self.address)

    def connect(self, device: str) -> ModuleType:
        """Join the cluster, or start Ray on this machine, and return the module ray.

        A Ray that is started here listens on 127.0.0.1 alone, because whoever reaches its ports can run programs.

        Args:
            device: where networks are to be. On a CPU a trial gets no GPU unless `gpus` says so.

        Raises:
            OSError: Ray was imported before and would listen beyond this machine.
            ValueError: no node is large enough for a trial.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self.address is None:
            # Ray reads this when it is imported. Its argument _node_ip_address would be replaced by the machine's
            # address in the network.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        else:
            # Give up after some 20 seconds, not a quarter of an hour, where what answers is no Ray.
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
            os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "10")
        import ray

        options = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address is None:
            host = ray.util.get_node_ip_address()
            if host not in ("127.0.0.1", "::1"):
                raise OSError(
                    f"Ray was imported before and would listen beyond this machine, as {host}. Start a new process."
                )
            if usable_cores() < os.cpu_count():
                options["num_cpus"] = usable_cores()  # Ray would count those of the machine.
            ray.init(address="local", include_dashboard=False, **options)
        else:
            ray.init(address=self.address, **options)
        if self.gpus is None:
            has_gpus = device != "cpu" and "GPU" in ray.cluster_resources()
            self.gpus = 1.0 if has_gpus else 0.0
        if not any(self._fits(node["Resources"]) for node in ray.nodes() if node["Alive"]):
            ray.shutdown()
            raise ValueError(f"no node has the {self.cpus:g} cores and {self.gpus:g} GPUs that a trial is to get")
        return ray

    def _fits(self, resources: dict[str, float]) -> bool:
        return resources.get("CPU", 0) >= self.cpus and resources.get("GPU", 0) >= self.gpus


def check_that_something_answers(address: str) -> None:
    """Check that something answers at an address.

    Raises:
        OSError: nothing answers there.
        ValueError: it is not of the form HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (ValueError, OverflowError):
        raise ValueError(f"address must be HOST:PORT or auto, not {address!r}") from None
    except OSError as error:
        raise OSError(f"no Ray cluster answers at {address}: {error}") from None


def run_in_worker(sweep: Sweep, spec: TrialSpec, threads: int, modules: Sequence[str]) -> TrialResult:
    """Run a trial in a worker process of Ray.

    When Ray cancels a task, it interrupts it as Ctrl-C would. The trial then ends after a step, with a checkpoint.

    Args:
        sweep: how a trial is run.
        spec: what fixes the trial.
        threads: how many threads the trial uses.
        modules: the modules to import, because they register measurements.

    Returns:
        The result, which the process that began the sweep stores.

    Raises:
        TimeUp: the trial was cancelled.
    """
    torch.set_num_threads(threads)
    for module in modules:
        import_module(module)
    try:
        with warnings_in_one_line():
            return sweep.run(spec)
    except KeyboardInterrupt:
        raise TimeUp from None


@interrupts_between_steps()
def run_with_ray(
    sweep: Sweep,
    cluster: RayCluster,
    until: float = math.inf,
    on_status: Callable[[str], None] | None = None,
) -> Outcome:
    """Run the trials of a sweep whose result the store lacks, with Ray.

    Args:
        sweep: the specs, the store, and how a trial is run.
        cluster: where to run.
        until: when to stop, as time.monotonic() counts. Trials that still run then keep checkpoints for the next call.
        on_status: called about once a second with a line on the state of the sweep.

    Returns:
        What became of each spec.

    Raises:
        OSError: a result cannot be written, or no cluster answers.
        ValueError: no node is large enough for a trial, `until` is no time, or a file in the store is no result.
        KeyboardInterrupt: it was interrupted. Notes on it say what is kept of the trials that were running.
    """
    until = as_time("until", until)
    missing = sweep.missing()
    if not missing:
        return sweep.outcome
    ray = cluster.connect(sweep.device)
    if cluster.gpus == 0:
        warn_of_large_presets(missing, sweep.log)
    # Ray starts a task again, up to three times, if its worker or node has died.
    remote = ray.remote(num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=3)(run_in_worker)
    sent = dataclasses.replace(sweep, specs=[], log=print)  # the log of a terminal cannot be sent to another process
    threads = max(1, int(cluster.cpus))
    modules = modules_of_measurements()
    pending = {remote.remote(sent, spec, threads, modules): spec for spec in missing}
    try:
        while pending and time.monotonic() < until:
            done, _ = ray.wait(list(pending), timeout=1.0)
            settle(ray, sweep, pending, done)
            stop_if_interrupted()
            if on_status:
                on_status(f"{len(pending)} trials wait or run {sweep.pace()}")
        stop(ray, sweep, pending)
    except OSError:  # A result could not be written. What other trials have done is kept nevertheless.
        stop(ray, sweep, pending)
        raise
    except KeyboardInterrupt as interrupt:
        stop(ray, sweep, pending)
        for spec in missing:
            if spec.hash in sweep.outcome.left and checkpoint_path(spec, sweep.store).exists():
                interrupt.add_note(what_is_kept(spec, sweep.store))
        raise
    finally:
        ray.shutdown()
    return sweep.outcome


def modules_of_measurements() -> list[str]:
    """Return the modules that have registered measurements here, so that a worker can import them.

    A notebook or a script is left out, because a worker cannot import it.
    """
    modules = {measurement.function.__module__ for measurement in MEASUREMENTS}
    return sorted(modules - {"__main__"})


def settle(ray: ModuleType, sweep: Sweep, pending: dict[object, TrialSpec], done: list) -> None:
    """Store the results of finished tasks, or note why there are none.

    Args:
        ray: the module ray.
        sweep: the sweep, whose outcome and store are changed.
        pending: the tasks that are not settled yet. The finished ones are taken out.
        done: the finished tasks.

    Raises:
        OSError: a result cannot be written. It is raised once all finished tasks are settled.
    """
    unwritten = None
    for task in done:
        spec = pending.pop(task)
        try:
            result = ray.get(task)
        except (TimeUp, ray.exceptions.TaskCancelledError):
            sweep.leave(spec)
            continue
        except Exception as error:
            # An error of Ray's holds the trial's own error, which may be of any class.
            sweep.fail(spec, getattr(error, "cause", None) or error)
            continue
        try:
            sweep.keep(result)
        except OSError as error:
            unwritten = error
    if unwritten:
        raise unwritten


def stop(ray: ModuleType, sweep: Sweep, pending: dict[object, TrialSpec]) -> None:
    """Ask all tasks to end, and give those that are running time to write their checkpoints."""
    if not pending:
        return
    for task in pending:
        ray.cancel(task)
    done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=GRACE_SECONDS)
    settle(ray, sweep, pending, done)
    for spec in pending.values():
        sweep.leave(spec)
