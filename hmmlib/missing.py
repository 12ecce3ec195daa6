"""Running the trials that a store lacks: in one process, or in several side by side, within a time limit.

Needs no more than torch, transformers, NumPy and safetensors. A spec is claimed before it is run, so any number of
processes may work on one store.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path

import torch

from hmmlib import devices
from hmmlib.specs import TrialSpec
from hmmlib.store import STORE, Claim, checkpoint_path, is_stored, load_result, result_path, save_result
from hmmlib.trials import TrialResult, run_trial


class TimeUp(Exception):
    """The time box is over. What was running keeps a checkpoint."""


@dataclass
class Outcome:
    """What became of the specs that were asked for, by their hashes; `failed` gives the reason."""

    stored: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def deadline(minutes: float | None) -> float:
    """The time, as time.time() gives it, at which a time box ends. ValueError unless it is positive."""
    if minutes is None:
        return float("inf")
    if not minutes > 0:
        raise ValueError(f"max-minutes must be positive, not {minutes}")
    return time.time() + 60 * minutes


def describe(spec: TrialSpec) -> str:
    """A spec in a few words."""
    memory = f"|M| = {spec.n_memory}, " if spec.n_memory > 1 else ""
    return f"{spec.preset} {memory}|H| = {spec.n_states}, seed {spec.seed}"


def summary(result: TrialResult) -> str:
    """A result in one line."""
    parts = [f"head {result.head_accuracy:.1%}", f"attention {result.attention_accuracy:.1%}"]
    if result.prompt_accuracy is not None:
        parts.insert(1, f"prompt {result.prompt_accuracy:.1%}")
    return (
        f"{', '.join(parts)}; majority {result.majority_rate:.1%}, excess loss {result.excess_loss:.3f} nats, "
        f"{sum(result.seconds.values()):.0f} s"
    )


def pace(specs: Sequence[TrialSpec], store: Path, seconds: Sequence[float], workers: int) -> str:
    """How many results there are, and about how long the others take at the pace of the trials so far."""
    stored = sum(result_path(spec, store).exists() for spec in specs)
    left = (len(specs) - stored) * sum(seconds) / max(1, len(seconds)) / workers / 60
    return f"[{stored} of {len(specs)} stored" + (f", about {left:.0f} min left]" if stored < len(specs) else "]")


def store_safely(result: TrialResult, store: Path) -> Path:
    """Store a result. Where that fails, keep it in the system's temporary folder: OSError says where."""
    try:
        return save_result(result, store)
    except OSError as error:
        rescued = save_result(result, Path(tempfile.gettempdir()) / "hmmlib-rescued")
        raise OSError(f"{store}: {error}; the finished result is kept in {rescued}") from error


def run_missing(
    specs: Sequence[TrialSpec],
    store: Path = STORE,
    device: str = "auto",
    until: float = float("inf"),
    say: Callable[[str], None] = print,
    on_progress: Callable[[TrialSpec, str, float], None] | None = None,
    workers: int = 1,
) -> Outcome:
    """Run, one after another, the specs whose result file is missing and that no other process is running.

    Args:
        until: when to stop, as time.time() gives it. What then runs keeps a checkpoint and goes on at the next call.
        on_progress: called as on_progress(spec, phase, share) while a trial runs.
        workers: how many processes like this one work on these specs, for the estimate of the time left.

    Raises:
        OSError: a result cannot be written; everything finished is kept, the message says where.
        ValueError: there is no such device, or a file in the store is no result.
    """
    devices.pick(device)
    outcome, seconds = Outcome(), []
    for k, spec in enumerate(specs):
        if time.time() >= until:
            outcome.left += [s.hash for s in specs[k:] if not is_stored(s, store)]
            break
        if is_stored(spec, store):
            outcome.stored.append(spec.hash)
            continue
        claim = Claim.take(spec, store)
        if claim is None:  # it may have been finished a moment ago
            (outcome.stored if is_stored(spec, store) else outcome.taken).append(spec.hash)
            continue

        def report(phase: str, share: float) -> None:
            if on_progress:
                on_progress(spec, phase, share)
            if time.time() >= until:
                raise TimeUp

        start = time.time()
        try:
            result = run_trial(spec, report, device, checkpoint_path(spec, store))
            store_safely(result, store)
            outcome.ran.append(spec.hash)
            seconds.append(time.time() - start)
            say(f"{describe(spec)}: {summary(result)} {pace(specs, store, seconds, workers)}")
        except TimeUp:
            outcome.left.append(spec.hash)
        except (FloatingPointError, ValueError) as error:
            outcome.failed[spec.hash] = str(error)
            say(f"{describe(spec)} failed: {error}")
        finally:
            claim.release()
    return outcome


def _work(specs: Sequence[TrialSpec], store: Path, device: str, until: float, workers: int, results) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        results.put(run_missing(specs, store, device, until, workers=workers))
    except (ValueError, OSError, RuntimeError) as error:
        results.put(error)


def run_side_by_side(
    specs: Sequence[TrialSpec], workers: int, store: Path = STORE, device: str = "auto", until: float = float("inf")
) -> Outcome:
    """`run_missing` in several processes at once, each with its share of the cores. Claims keep them apart.

    RuntimeError where a process dies, and what `run_missing` raises in one; what the others finished is kept.
    """
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    arguments = (list(specs), store, device, until, workers, results)
    processes = [context.Process(target=_work, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    outcomes = []
    while any(process.is_alive() for process in processes) or not results.empty():
        while not results.empty():  # a process cannot end before what it says is read
            outcomes.append(results.get())
        connection.wait([process.sentinel for process in processes if process.is_alive()], timeout=0.2)
    for process in processes:
        process.join()
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"{sum(bool(p.exitcode) for p in processes)} of {workers} processes died; the rest is kept")
    return merge(outcomes)


def merge(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of several processes that worked on the same specs."""
    whole = Outcome()
    for outcome in outcomes:
        whole.ran += outcome.ran
        whole.failed |= outcome.failed
    settled = {*whole.ran, *whole.failed}
    for name in ("stored", "left", "taken"):
        found = dict.fromkeys(h for outcome in outcomes for h in getattr(outcome, name) if h not in settled)
        setattr(whole, name, list(found))
        settled |= found.keys()
    return whole


def gather(
    specs: Sequence[TrialSpec],
    until: float,
    device: str = "auto",
    store: Path = STORE,
    say: Callable[[str], None] = print,
) -> list[TrialResult]:
    """For a notebook: the stored results of the specs, and what can be computed of the missing ones until that time.

    Where there is no store, as in Colab, a folder `results` is begun here, with one trial of each point. Says what is missing.
    """
    if not store.is_dir():
        say("There is no result store here: one trial of each point is computed now, and kept in ./results.")
        say("The project's own trials come with a clone of its repository: run the notebook from there.")
        store, first = Path("results"), min((spec.seed for spec in specs), default=0)
        specs = [spec for spec in specs if spec.seed == first]
    outcome = run_missing(specs, store, device, until, say)
    found = [load_result(path) for path in (result_path(spec, store) for spec in specs) if path.exists()]
    if len(found) < len(specs):
        say(
            f"{len(found)} of {len(specs)} trials are there; the time was over before {len(outcome.left)} of the others."
        )
    for reason in outcome.failed.values():
        say(f"A trial failed: {reason}")
    return found
