"""Running the trials that a store lacks: in one process, or in several side by side, within a time limit.

Needs no more than torch, transformers, NumPy, safetensors, pydantic and filelock. A spec is claimed before it is run, so
any number of processes may work on one store.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from numbers import Real
from pathlib import Path

import torch

from hmmlib import backend
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import (
    PROJECT,
    Claim,
    Store,
    as_folders,
    checkpoint_path,
    is_stored,
    kept,
    result_path,
    save_result,
)
from hmmlib.experiments.trials import TrialResult, measure, on_request, run_trial
from hmmlib.files import writable_folder
from hmmlib.training import checkpoints
from hmmlib.validation import all_of_type, at_least, between, of_type


class TimeUp(Exception):
    """The time box is over. What was running keeps a checkpoint."""


def what_is_kept(spec: TrialSpec, store: Store | str | Path) -> str:
    """What is kept of a trial that was broken off, in words."""
    done = checkpoints.kept(checkpoint_path(spec, store)).get("done")
    kept_now = (
        f"its network after {done} of {spec.steps} steps is kept: run it again to go on" if done else "nothing is kept"
    )
    return f"{describe(spec)} was broken off, and {kept_now}"


@dataclass
class Outcome:
    """What became of the specs that were asked for, by their hashes; `failed` gives the reason."""

    stored: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def deadline(minutes: float | None) -> float:
    """When a time box ends, as time.monotonic() gives it: no change of the clock moves it. ValueError unless it is positive."""
    if minutes is None:
        return float("inf")
    if isinstance(minutes, bool) or not isinstance(minutes, Real) or not minutes > 0:
        raise ValueError(f"max-minutes must be positive, not {minutes!r}")
    return time.monotonic() + 60 * minutes


def describe(spec: TrialSpec) -> str:
    """A spec in a few words."""
    memory = f"|M| = {spec.n_memory}, " if of_type("spec", spec, TrialSpec).n_memory > 1 else ""
    return f"{spec.preset} {memory}|H| = {spec.n_states}, seed {spec.seed}"


def summary(result: TrialResult) -> str:
    """A result in one line."""
    of_type("result", result, TrialResult)
    prompt = "" if result.prompt_accuracy is None else f"prompt {result.prompt_accuracy:.1%}, "
    return (
        f"head {result.head_accuracy:.1%}, {prompt}attention {result.attention_accuracy:.1%}; "
        f"majority {result.majority_rate:.1%}, excess loss {result.excess_loss:.3f} nats, "
        f"{sum(result.seconds.values()):.0f} s"
    )


def pace(specs: Sequence[TrialSpec], store: Store | Path, seconds: Sequence[float], workers: int) -> str:
    """How many results there are, and about how long the others will take at the pace of the trials so far."""
    stored = sum(result_path(spec, store).exists() for spec in specs)
    left = (len(specs) - stored) * sum(seconds) / max(1, len(seconds)) / workers / 60
    return f"[{stored} of {len(specs)} stored" + (f", about {left:.0f} min left]" if stored < len(specs) else "]")


def store_safely(result: TrialResult, store: Store | str | Path) -> Path:
    """Store a result, and only then delete its checkpoint: where it cannot be stored, its network must not be lost with it.

    Where storing fails, the result is kept in the system's temporary folder; the OSError says where, or why it is not there.
    """
    checkpoint = checkpoint_path(result.spec, store)
    try:
        path = save_result(result, store)
    except OSError as error:
        try:
            rescued = save_result(result, Path(tempfile.gettempdir()) / "hmmlib-rescued")
        except OSError as again:
            raise OSError(f"{error}; nor could the result be kept elsewhere: {again}") from error
        with suppress(OSError):  # where its checkpoint was, there may be room for it
            checkpoints.remove(checkpoint)
            path = save_result(result, store)
            rescued.unlink()
            return path
        raise OSError(f"{error}; the finished result is kept in {rescued}") from error
    with suppress(OSError):  # a result that is stored must not fail for it
        checkpoints.remove(checkpoint)
    return path


def _reporter(spec, until: float, on_progress: Callable | None) -> Callable[[str, float], None]:
    """Tells how far a trial is, and ends it when its time is over or it is to be interrupted."""

    def report(phase: str, share: float) -> None:
        backend.heed_a_lost_interrupt()
        if on_progress:
            on_progress(spec, phase, share)
        if time.monotonic() >= until:
            raise TimeUp

    return report


def whole(spec: TrialSpec, stored: TrialResult | None, lacking: Sequence[str], **how) -> TrialResult:
    """The stored result, with what it lacks measured; where nothing is stored, that of a new trial, with what is asked for."""
    if stored is None:
        return run_trial(spec, also=lacking, **how)
    return measure(stored, lacking, **how)


def _attempt(
    spec: TrialSpec, wanted: tuple, outcome: Outcome, say: Callable[[str], None], how: dict
) -> TrialResult | None:
    """Run one trial and store its result, or note in `outcome` what became of it: the others may do better."""
    store = wanted[0]
    try:
        result = whole(spec, *kept(spec, *wanted), checkpoint=checkpoint_path(spec, store), **how)
        store_safely(result, store)
    except TimeUp:
        outcome.left.append(spec.hash)
        say(what_is_kept(spec, store))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(what_is_kept(spec, store))
        raise
    except (ArithmeticError, ValueError, RuntimeError, MemoryError) as error:
        backend.heed_a_lost_interrupt()  # an import may have made another error of it
        outcome.failed[spec.hash] = " ".join(str(error).split()) or type(error).__name__
    else:
        outcome.ran.append(spec.hash)
        return result
    return None


def run_missing(
    specs: Sequence[TrialSpec],
    store: Store | str | Path = PROJECT,
    device: str = "auto",
    until: float = float("inf"),
    say: Callable[[str], None] = print,
    on_progress: Callable[[TrialSpec, str, float], None] | None = None,
    workers: int = 1,
    rerun: bool = False,
    also: Sequence[str] = (),
    networks: Path | None = None,
) -> Outcome:
    """Run, one after another, the specs whose result file is missing and that no other process is running.

    Args:
        until: when to stop, as time.monotonic() gives it. What then runs keeps a checkpoint and goes on at the next call.
        on_progress: called as on_progress(spec, phase, share) while a trial runs.
        workers: how many processes like this one work on these specs, for the estimate of the time left.
        rerun: whether to run again what is stored by a library that is not known to be as it is now.
        also: measurements on request; a stored result that lacks one is measured again, and keeps all else.
        networks: a folder where pretrained networks are kept, as `run_trial` has it.

    Raises:
        OSError: a result cannot be written; everything finished is kept, the message says where.
        ValueError: there is no such device, or a file in the store is no result.
        KeyboardInterrupt: it was interrupted; a note says what is kept of the trial that was running.
    """
    backend.pick(device)
    store, until = as_folders(store), between("until", until, 0)
    specs = all_of_type("specs", specs, TrialSpec)
    wanted, outcome, seconds = (store, rerun, on_request(also)), Outcome(), []
    networks = networks and writable_folder("networks", networks)
    for k, spec in enumerate(specs):
        if time.monotonic() >= until:
            outcome.left += [s.hash for s in specs[k:] if not is_stored(s, *wanted)]
            break
        if is_stored(spec, *wanted):
            outcome.stored.append(spec.hash)
            continue
        claim = Claim.take(spec, *wanted)
        if claim is None:  # it may have been finished a moment ago
            (outcome.stored if is_stored(spec, *wanted) else outcome.taken).append(spec.hash)
            continue
        start, how = (
            time.monotonic(),
            dict(report=_reporter(spec, until, on_progress), device=device, networks=networks),
        )
        try:
            result = _attempt(spec, wanted, outcome, say, how)
        finally:
            claim.release()
        if result:
            seconds.append(time.monotonic() - start)
            among = f" {pace(specs, store, seconds, workers)}" if len(specs) > 1 else ""
            say(f"{describe(spec)}: {summary(result)}{among}")
        elif reason := outcome.failed.get(spec.hash) if len(specs) > 1 else None:
            say(f"{describe(spec)} failed: {reason}")
    return outcome


def _work(told, workers: int, specs: Sequence[TrialSpec], store: Store, device: str, until: float, **options) -> None:
    """One of several processes. An interrupt, or the end of the process that began it, breaks off its trial in good order."""
    asked = backend.heed_one_interrupt()  # a second one would cut the checkpoint's writing short

    def watch():
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        with backend.warnings_in_one_line():
            told.send(run_missing(specs, store, device, until, workers=workers, **options))
    except BaseException as error:
        if asked:  # in the midst of an import the interrupt may have become another error
            raise SystemExit("\n".join(getattr(error, "__notes__", ["interrupted"]))) from None
        if not isinstance(error, ValueError | OSError | RuntimeError):
            raise
        told.send(error)


def run_side_by_side(
    specs: Sequence[TrialSpec],
    workers: int,
    store: Store | str | Path = PROJECT,
    device: str = "auto",
    until: float = float("inf"),
    rerun: bool = False,
    also: Sequence[str] = (),
    networks: Path | None = None,
    on_progress: Callable[[TrialSpec, str, float], None] | None = None,
) -> Outcome:
    """`run_missing` in several processes at once, each with its share of the cores. Claims keep them apart.

    Each process calls a copy of `on_progress`, which must be picklable.

    RuntimeError where a process dies, which says what is now missing, and what `run_missing` raises in one; what is finished
    is kept.
    """
    workers, specs, store = at_least("workers", workers, 1), all_of_type("specs", specs, TrialSpec), as_folders(store)
    also, networks = on_request(also), networks and writable_folder("networks", networks)
    backend.pick(device)
    workers = max(1, min(workers, len(specs)))
    context, running, outcomes, died = multiprocessing.get_context("spawn"), {}, [], 0
    try:
        for _ in range(workers):
            # One for each: what a process was saying when it died blocks no other.
            hears, told = context.Pipe(duplex=False)
            options = {"rerun": rerun, "also": also, "networks": networks, "on_progress": on_progress}
            process = context.Process(target=_work, args=(told, workers, specs, store, device, until), kwargs=options)
            process.start()
            running[hears] = process
            told.close()
        while running:
            for hears in connection.wait(list(running)):
                try:
                    outcomes.append(hears.recv())
                except (EOFError, OSError):
                    died += 1
                running.pop(hears).join()
    finally:
        for process in running.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        for process in running.values():
            process.join()
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    merged = merge(outcomes)
    if died:
        known = {*merged.failed, *merged.left}
        lost = [describe(spec) for spec in specs if spec.hash not in known and not is_stored(spec, store, rerun, also)]
        named = "; ".join(lost[:3]) + (f"; and {len(lost) - 3} more" if len(lost) > 3 else "")
        again = f". Run again what is missing: {named}" if lost else ", and nothing is missing"
        raise RuntimeError(f"{died} of {workers} processes died; the rest is kept{again}")
    return merged


def merge(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of several processes that worked on the same specs."""
    merged = Outcome()
    for outcome in outcomes:
        merged.ran += outcome.ran
        merged.failed |= outcome.failed
    settled = {*merged.ran, *merged.failed}
    for name in ("stored", "left", "taken"):
        hashes = dict.fromkeys(h for outcome in outcomes for h in getattr(outcome, name) if h not in settled)
        setattr(merged, name, list(hashes))
        settled |= hashes.keys()
    return merged
