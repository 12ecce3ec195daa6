"""Sweeps with Ray: the trials that a store lacks, on all cores and GPUs of one machine, or of a cluster.

The driver claims specs, hands them to workers and writes the results that come back; so only its machine needs the store.
A worker or node that dies costs its running trials, which Ray gives to another.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path

import torch

from hmmlib import backend
from hmmlib.experiments.local import Outcome, TimeUp, describe, pace, store_safely, summary, what_is_kept, whole
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import PROJECT, Claim, Store, as_folders, as_store, checkpoint_path, is_stored, kept
from hmmlib.experiments.trials import TrialResult, on_request
from hmmlib.files import writable_folder
from hmmlib.validation import all_of_type, between, of_type

GRACE = 20.0
"""Seconds that trials have, once the time box is over, to notice and to write their checkpoints."""
RETRIES = 3
"""How often a trial is begun again when its worker or node has died."""
BRIEFLY = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_py_gcs_connect_timeout_s": "10"}
"""With these, Ray gives up after some 20 seconds where what answers is no Ray; by itself it tries for a quarter of an hour."""
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""This tells Ray, before it is imported, that there are no clusters. Then all that it starts listens on 127.0.0.1 alone, and
otherwise on all addresses.

Ray has an argument for this, `_node_ip_address="127.0.0.1"`, but replaces it by the machine's address in the network.
"""


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
        for name, value in BRIEFLY.items():
            os.environ.setdefault(name, value)
    else:
        os.environ.update(ON_LOOPBACK)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if address is None:
        if (here := ray.util.get_node_ip_address()) not in ("127.0.0.1", "::1"):
            raise OSError(f"Ray was imported before and would listen beyond this machine, as {here}: use a new process")
        ray.init(address="local", log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        return ray
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise OSError(f"no Ray cluster answers at {address}: {error}") from None
    return ray


def work(
    spec: TrialSpec,
    stored: TrialResult | None,
    store: Store | Path,
    device: str,
    seconds: float,
    sent: float,
    threads: int,
    lacking: Sequence[str],
    networks: Path | None,
) -> tuple[str, TrialResult | str | None]:
    """What a worker does. It returns ("ran", result), ("left", None) when the time is over, or ("failed", the reason).

    A stored result is given what it lacks. The worker has `seconds`, counted from when time.time() was `sent`. That clock
    may be another machine's, so the way here is taken to have lasted no longer than GRACE.
    """
    until = time.monotonic() + seconds - min(max(0.0, time.time() - sent), GRACE)
    torch.set_num_threads(threads)
    checkpoint = (
        checkpoint_path(spec, store) if as_store(store).folder.is_dir() else None
    )  # none where this node has no such store

    def report(phase: str, share: float) -> None:
        if time.monotonic() >= until:
            raise TimeUp

    try:
        how = dict(report=report, device=device, checkpoint=checkpoint, networks=networks)
        with backend.warnings_in_one_line():
            return "ran", whole(spec, stored, lacking, **how)
    except TimeUp:
        return "left", None
    except (FloatingPointError, ValueError, OSError) as error:
        return "failed", str(error)


def slots(nodes: Sequence[dict[str, float]], cpus: float, gpus: float) -> int:
    """How many trials fit on nodes with these resources; none is spread over two."""

    def fit(resources: dict[str, float]) -> int:
        shares = [resources.get("CPU", 0) / cpus]
        shares += [resources.get("GPU", 0) / gpus] if gpus else []
        return int(min(shares) + 1e-9)

    return sum(map(fit, nodes))


def _alive(ray) -> list[dict[str, float]]:
    """The resources of each node of the cluster as it is now."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def sweep(
    specs: Sequence[TrialSpec],
    store: Store | str | Path = PROJECT,
    until: float = float("inf"),
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float | None = None,
    device: str = "auto",
    say: Callable[[str], None] = print,
    show: Callable[[str], None] | None = None,
    rerun: bool = False,
    also: Sequence[str] = (),
    networks: Path | None = None,
) -> Outcome:
    """Run what the store lacks, in the order given, as many at once as the cluster has room for.

    Args:
        until: when to stop, as time.monotonic() gives it on this machine.
        address: of an existing cluster; None starts Ray on this machine.
        cpus: cores of a trial. gpus: GPUs of a trial, a fraction to let several share one; None takes a whole one where the
            cluster has any, unless the device is the CPU.
        say: called with a line for each trial. show: called about once a second with the state of the sweep.
        rerun, also, networks: as `run_missing` has them; each node keeps its networks in a folder of its own.

    Raises:
        OSError: the address does not answer, or a result cannot be written; what is finished is kept.
        ValueError: cpus or gpus is not positive, or more than the cluster has.
    """
    shares = (cpus, 0 if gpus is None else gpus)
    if not all(isinstance(share, Real) and share is not True for share in shares) or not cpus > 0 or not shares[1] >= 0:
        raise ValueError(f"cpus must be positive and gpus not negative, not {cpus!r} and {gpus!r}")
    backend.as_name(device)
    between("until", until, 0)
    store, queue, outcome = as_folders(store).resolve(), deque(), Outcome()
    wanted, networks = (store, rerun, on_request(also)), networks and writable_folder("networks", networks)
    specs = list(dict.fromkeys(all_of_type("specs", specs, TrialSpec)))
    for spec in specs:
        if is_stored(spec, *wanted):
            outcome.stored.append(spec.hash)
        else:
            queue.append(spec)
    if not queue:
        return outcome
    ray = connect(address)
    try:
        _drive(ray, specs, queue, outcome, wanted, networks, until, cpus, gpus, device, say, show)
    finally:
        ray.shutdown()
    return outcome


def _drive(ray, specs, queue, outcome, wanted, networks, until, cpus, gpus, device, say, show) -> None:
    """Keep the cluster busy until nothing is left or the time is over; the claims of what runs are given up in the end."""
    if gpus is None:
        gpus = 1.0 if device != "cpu" and any(node.get("GPU") for node in _alive(ray)) else 0.0
    if not slots(_alive(ray), cpus, gpus):
        raise ValueError(f"no trial fits: it asks for {cpus:g} cores and {gpus:g} GPUs, and a node has {_sizes(ray)}")
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(work)
    (store, *_), running, seconds = wanted, {}, []
    try:
        while (queue or running) and time.monotonic() < until + GRACE:
            while queue and time.monotonic() < until and len(running) < slots(_alive(ray), cpus, gpus):
                spec = queue.popleft()
                claim = Claim.take(spec, *wanted)
                if claim is None:  # it may have been finished a moment ago
                    (outcome.stored if is_stored(spec, *wanted) else outcome.taken).append(spec.hash)
                    continue
                now, (stored, lacking) = time.monotonic(), kept(spec, *wanted)
                time_box = until - now, time.time()
                reference = remote.remote(spec, stored, store, device, *time_box, max(1, int(cpus)), lacking, networks)
                running[reference] = spec, claim, now
            if not running:
                if queue and time.monotonic() < until:
                    time.sleep(1)  # a node has died; another may come
                    continue
                break
            for reference in ray.wait(list(running), timeout=1.0)[0]:
                spec, claim, start = running.pop(reference)
                try:
                    _settle(ray, reference, spec, outcome, store, say)
                finally:
                    claim.release()
                seconds.append(time.monotonic() - start)
            if show:
                show(f"{len(running)} running {pace(specs, store, seconds, max(1, len(running)))}")
    except KeyboardInterrupt as interrupt:
        for reference in running:
            ray.cancel(reference)  # as Ctrl-C in the worker: it keeps a checkpoint
        ray.wait(list(running), num_returns=len(running), timeout=GRACE)
        for spec, _, _ in running.values():
            interrupt.add_note(what_is_kept(spec, store))
        raise
    finally:
        for _, claim, _ in running.values():
            claim.release()
    outcome.left += [spec.hash for spec in (*(s for s, _, _ in running.values()), *queue)]


def _settle(ray, reference, spec, outcome, store, say) -> None:
    """Store what a finished task brought, or note why it brought nothing."""
    try:
        how, what = ray.get(reference)
        if how == "ran":
            store_safely(what, store)
    except ray.exceptions.RayTaskError as error:
        how, what = "failed", f"{type(error.cause).__name__}: {error.cause}"
    except ray.exceptions.RayError as error:
        how, what = "failed", f"its worker died {RETRIES + 1} times, or cannot run it: {str(error).splitlines()[0]}"
    except FloatingPointError as error:
        how, what = "failed", str(error)
    if how == "ran":
        outcome.ran.append(spec.hash)
        say(f"{describe(spec)}: {summary(what)}")
    elif how == "left":
        outcome.left.append(spec.hash)
        say(what_is_kept(spec, store))
    else:
        outcome.failed[spec.hash] = what
        say(f"{describe(spec)} failed: {what}")


def _sizes(ray) -> str:
    sizes = {f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in _alive(ray)}
    return " or ".join(sorted(sizes))
