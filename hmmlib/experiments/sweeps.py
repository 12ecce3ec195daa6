"""Running the trials that a store lacks: in this process, in several side by side, or with Ray on a cluster.

Whoever begins a trial claims it before it runs and stores its result, so that any number of processes may work on one
store, and a worker elsewhere need not see it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hmmlib import backend
from hmmlib.experiments.executors import GRACE, InThisProcess, RayCluster, SideBySide, TimeUp, reason_of
from hmmlib.experiments.specs import MODEL_FIELDS, TYPES, TrialSpec
from hmmlib.experiments.store import (
    PROJECT,
    Claim,
    Store,
    as_store,
    checkpoint_path,
    is_stored,
    result_path,
    save_result,
    stored_and_lacking,
)
from hmmlib.experiments.trials import Parts, TrialResult, measure, on_request, run_trial
from hmmlib.files import writable_folder
from hmmlib.training import checkpoints
from hmmlib.validation import integer, number, of_type

FOR_GPUS = {"gpu", "paper", "released-code"}
"""Presets whose trials take hours or days on a CPU."""


@dataclass
class Outcome:
    """What became of the specs that were asked for, by their hashes; `failed` gives the reason.

    `taken` are those that another process was running, `left` those for which there was no time.
    """

    stored: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def deadline(minutes: float | None) -> float:
    """When a time box ends, as time.monotonic() gives it. ValueError for less than 0."""
    return float("inf") if minutes is None else time.monotonic() + 60 * number("max-minutes", minutes, 0)


def describe(spec: TrialSpec, also: Iterable[str] = ()) -> str:
    """A spec in a few words, with `also` these fields."""
    memory = f"|M| = {spec.n_memory}, " if spec.n_memory > 1 else ""
    more = "".join(f", {name} {getattr(spec, name)}" for name in also)
    return f"{spec.preset} {memory}|H| = {spec.n_states}, seed {spec.seed}{more}"


def summary(result: TrialResult) -> str:
    """A result in one line."""
    prompt = "" if result.prompt_accuracy is None else f"prompt {result.prompt_accuracy:.1%}, "
    return (
        f"head {result.head_accuracy:.1%}, {prompt}attention {result.attention_accuracy:.1%}; "
        f"majority {result.majority_rate:.1%}, excess loss {result.excess_loss:.3f} nats, "
        f"{sum(result.seconds.values()):.0f} s"
    )


def what_is_kept(spec: TrialSpec, store: Store | str | Path) -> str:
    """What is kept of a trial that was broken off, in words."""
    done = checkpoints.facts_at(checkpoint_path(spec, store)).get("done")
    network = f"its network after {done} of {spec.steps} steps is kept: run it again to go on"
    return f"{describe(spec)} was broken off, and {network if done else 'nothing is kept'}"


def pace(specs: Sequence[TrialSpec], store: Store | Path, seconds: Sequence[float], workers: int) -> str:
    """How many results there are, and how long the others will take at the pace of the trials so far, if any."""
    stored = sum(result_path(spec, store).exists() for spec in specs)
    if stored == len(specs) or not seconds:
        return f"[{stored} of {len(specs)} stored]"
    minutes = (len(specs) - stored) * sum(seconds) / len(seconds) / max(1, workers) / 60
    return f"[{stored} of {len(specs)} stored, {f'about {minutes:.0f}' if minutes >= 1 else 'less than 1'} min left]"


def store_safely(result: TrialResult, store: Store | str | Path) -> Path:
    """Store a result, and then delete its checkpoint, where there may be room for it.

    Where it cannot be stored, it is kept in the system's temporary folder: the OSError says where, or why it is not.
    """
    checkpoint = checkpoint_path(result.spec, store)
    try:
        path = save_result(result, store)
    except OSError as error:
        try:
            rescued = save_result(result, Path(tempfile.gettempdir()) / "hmmlib-rescued")
        except OSError as again:
            raise OSError(f"{error}; nor could the result be kept elsewhere: {again}") from error
        try:
            checkpoints.remove(checkpoint)
            path = save_result(result, store)
            rescued.unlink()
        except OSError:
            raise OSError(f"{error}; the finished result is kept in {rescued}") from error
    with suppress(OSError):  # a result that is stored must not fail for it
        checkpoints.remove(checkpoint)
    return path


def run_or_measure(
    spec: TrialSpec,
    stored: TrialResult | None,
    lacking: Sequence[str],
    store: Store,
    on_progress: Callable[[TrialSpec, str, float], None] | None = None,
    until: float = float("inf"),
    **how,
) -> TrialResult:
    """Run a trial, or measure what its stored result lacks; with a checkpoint where the store's folder can be seen."""

    def progress(phase: str, share: float) -> None:
        if on_progress:
            on_progress(spec, phase, share)
        if time.monotonic() >= until:
            raise TimeUp

    checkpoint = checkpoint_path(spec, store) if store[0].is_dir() else None
    how |= dict(on_progress=progress, checkpoint=checkpoint)
    return measure(stored, lacking, **how) if stored else run_trial(spec, also=lacking, **how)


class _Sweep:
    """Trials that wait, trials that run, each with its claim, and what became of the others."""

    def __init__(self, specs: Sequence[TrialSpec], required: tuple[Store, bool, list[str]], log: Callable[[str], None]):
        """`required` is what `is_stored` takes: a store, whether to run again, and what a result must have."""
        self.specs, self.required, self.store, self.log = specs, required, required[0], log
        self.outcome, self.queue, self.seconds = Outcome(), deque(), []
        self.claims: dict[TrialSpec, tuple[Claim, float]] = {}
        self.futures: dict[Future, TrialSpec] = {}
        values = {name: {getattr(spec, name) for spec in specs} for name in TYPES}
        self.differ = [name for name in TYPES if name not in MODEL_FIELDS and len(values[name]) > 1]
        for spec in specs:
            if is_stored(spec, *required):
                self.outcome.stored.append(spec.hash)
            else:
                self.queue.append(spec)

    @backend.interrupts_between_steps()
    def run(
        self, executor: InThisProcess, trial: Callable, until: float, on_status: Callable[[str], None] | None
    ) -> None:
        """Keep the executor busy with calls of `trial`, until nothing is left, or the time is over."""
        self.executor, self.trial = executor, trial
        try:
            while (self.queue or self.claims) and time.monotonic() < until:
                while self.queue and len(self.claims) < executor.workers:
                    self.start(self.queue.popleft())
                if self.claims:
                    self.settle(wait(self.futures, 1.0, FIRST_COMPLETED).done)
                elif self.queue:
                    time.sleep(1)  # a node has died; another may come
                backend.stop_if_interrupted()
                if on_status:
                    running = len(self.claims)
                    on_status(f"{running} running {pace(self.specs, self.store, self.seconds, running)}")
            self.stop()
            self.outcome.left += [spec.hash for spec in (*self.claims, *self.queue)]
        except KeyboardInterrupt as interrupt:
            self.stop()
            for spec in self.claims:
                interrupt.add_note(what_is_kept(spec, self.store))
            raise
        finally:
            executor.close()
            for claim, _ in self.claims.values():
                claim.release()

    def start(self, spec: TrialSpec) -> None:
        if claim := Claim.take(spec, *self.required):
            self.claims[spec] = claim, time.monotonic()
            self.futures[self.executor.submit(self.trial, spec, *stored_and_lacking(spec, *self.required))] = spec
        else:  # it may have been finished a moment ago
            stored = is_stored(spec, *self.required)
            (self.outcome.stored if stored else self.outcome.taken).append(spec.hash)

    def stop(self) -> None:
        """Ask all that run to end, and give them the time to do so."""
        self.executor.stop(self.futures)
        self.settle(wait(self.futures, GRACE).done, stopping=True)

    def settle(self, done: Iterable[Future], stopping: bool = False) -> None:
        """Store what trials brought, or note why they brought nothing."""
        for future in done:
            spec = self.futures.pop(future)
            claim, start = self.claims[spec]
            try:
                store_safely(result := future.result(), self.store)
            except TimeUp:
                self.outcome.left.append(spec.hash)
                self.log(what_is_kept(spec, self.store))
            except self.executor.errors as error:
                if stopping:  # it was cancelled, or ended without an answer
                    continue
                self.outcome.failed[spec.hash] = reason_of(error)
                if len(self.specs) > 1:
                    self.log(f"{describe(spec, self.differ)} failed: {reason_of(error)}")
            else:
                self.outcome.ran.append(spec.hash)
                self.seconds.append(time.monotonic() - start)
                among = pace(self.specs, self.store, self.seconds, len(self.claims)) if len(self.specs) > 1 else ""
                self.log(f"{describe(spec, self.differ)}: {summary(result)} {among}".rstrip())
            del self.claims[spec]
            claim.release()


def run_missing(
    specs: Sequence[TrialSpec],
    store: Store | str | Path = PROJECT,
    device: str = "auto",
    until: float = float("inf"),
    log: Callable[[str], None] = print,
    on_progress: Callable[[TrialSpec, str, float], None] | None = None,
    workers: int = 1,
    rerun: bool = False,
    also: Sequence[str] = (),
    networks: Path | None = None,
    cluster: RayCluster | None = None,
    on_status: Callable[[str], None] | None = None,
    parts: Parts | None = None,
) -> Outcome:
    """Run, in the order given, the specs whose result file is missing and that no other process is running.

    Args:
        until: when to stop, as time.monotonic() gives it. What then runs keeps a checkpoint for the next call.
        log: called with a line for each trial.
        on_progress: called as on_progress(spec, phase, share) while a trial runs on this machine, by whoever runs it.
        workers: 1 runs trials in this process; more, in so many processes, each with its share of the cores.
        rerun: whether to run again what is stored by a library that is not known to be as it is now.
        also: measurements on request; a stored result that lacks one is measured again, and keeps all else.
        networks: a folder for pretrained networks, as `run_trial` has it; each node of a cluster has its own.
        cluster: where to run, as many trials at once as it has room for, in place of this machine.
        on_status: called about once a second with the state of the sweep; in this process after each trial.
        parts: what of each trial is one's own, as `run_trial` has it. With several workers its functions must stand in
            a module. The store knows them by the spec's `own` alone: what is stored is not run again for a changed one.

    Raises:
        OSError: a result cannot be written, or no cluster answers; everything finished is kept, the message says where.
        ValueError: there is no such device, a trial fits on no node, or a file in the store is no result.
        KeyboardInterrupt: it was interrupted; notes say what is kept of the trials that were running.
    """
    on_cpu = not cluster and backend.pick(device).type == "cpu"
    backend.as_name(device)
    integer("workers", workers, 1)
    specs = list(dict.fromkeys(of_type("each of specs", spec, TrialSpec) for spec in specs))
    sweep = _Sweep(specs, (as_store(store), rerun, on_request(also)), log)
    networks = networks and writable_folder("networks", networks)
    trial = partial(run_or_measure, store=sweep.store, device=device, networks=networks, parts=parts)
    if on_cpu and (large := sorted({spec.preset for spec in sweep.queue} & FOR_GPUS)):
        log(f"{', '.join(large)} is for a GPU, and this runs on a CPU: a trial takes hours or days there")
    workers = min(workers, len(sweep.queue))
    if sweep.queue and cluster:
        cluster.connect(device)
        sweep.run(cluster, trial, until, on_status)
    elif sweep.queue:
        if workers > 1 and parts:
            _check_importable(parts)
        executor = SideBySide(workers) if workers > 1 else InThisProcess()
        sweep.run(executor, partial(trial, on_progress=on_progress, until=until), until, on_status)
    return sweep.outcome


def _check_importable(parts: Parts) -> None:
    """ValueError for a function that another process could not import."""
    interactive = not hasattr(sys.modules["__main__"], "__file__")
    for name, part in vars(parts).items():
        if "<" in getattr(part, "__qualname__", "") or (interactive and getattr(part, "__module__", "") == "__main__"):
            raise ValueError(
                f"with several workers, parts.{name} must stand in a module, not in a notebook or function"
            )
