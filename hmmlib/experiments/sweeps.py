"""Running the trials that a store lacks: in this process, in several side by side, or with Ray on a cluster.

Whoever begins them claims each trial before it runs and stores its result, so that any number of processes may work on one
store, and a worker elsewhere need not see it.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hmmlib import backend
from hmmlib.experiments.executors import Answer, Here, OnRay, SideBySide
from hmmlib.experiments.specs import TrialSpec
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
from hmmlib.experiments.trials import TrialResult, on_request
from hmmlib.files import writable_folder
from hmmlib.training import checkpoints
from hmmlib.validation import integer, number, of_type


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
    """When a time box ends, as time.monotonic() gives it: no change of the clock moves it. ValueError for less than 0."""
    return float("inf") if minutes is None else time.monotonic() + 60 * number("max-minutes", minutes, 0)


def describe(spec: TrialSpec) -> str:
    """A spec in a few words."""
    memory = f"|M| = {spec.n_memory}, " if spec.n_memory > 1 else ""
    return f"{spec.preset} {memory}|H| = {spec.n_states}, seed {spec.seed}"


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
    """How many results there are, and about how long the others will take at the pace of the trials so far, if any."""
    stored = sum(result_path(spec, store).exists() for spec in specs)
    if stored == len(specs) or not seconds:
        return f"[{stored} of {len(specs)} stored]"
    minutes = (len(specs) - stored) * sum(seconds) / len(seconds) / workers / 60
    return f"[{stored} of {len(specs)} stored, about {minutes:.0f} min left]"


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


class _Sweep:
    """The trials that are asked for: those that wait, those that run, each with its claim, and what became of the others."""

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        store: Store | str | Path,
        rerun: bool,
        also: Sequence[str],
        networks: Path | None,
        say: Callable[[str], None],
    ):
        self.specs = list(dict.fromkeys(of_type("each of specs", spec, TrialSpec) for spec in specs))
        self.store, self.say = as_store(store), say
        self.wanted = self.store, rerun, on_request(also)  # what a result must have to count as stored
        self.networks = networks and writable_folder("networks", networks)
        self.outcome, self.queue, self.running, self.seconds = Outcome(), deque(), {}, []
        for spec in self.specs:
            if is_stored(spec, *self.wanted):
                self.outcome.stored.append(spec.hash)
            else:
                self.queue.append(spec)

    @backend.interrupts_between_steps()
    def run(self, executor: Here | SideBySide | OnRay, until: float, show: Callable[[str], None] | None) -> None:
        """Keep the executor busy until nothing is left, or the time is over."""
        try:
            while (self.queue or self.running) and time.monotonic() < until:
                while self.queue and len(self.running) < executor.room():
                    self.start(self.queue.popleft(), executor)
                if self.running:
                    self.settle(executor.answers(self.running))
                elif self.queue:
                    time.sleep(1)  # a node has died; another may come
                backend.stop_if_interrupted()
                if show:
                    workers = max(1, len(self.running))
                    show(f"{len(self.running)} running {pace(self.specs, self.store, self.seconds, workers)}")
            self.settle(executor.stop(self.running))
            self.outcome.left += [spec.hash for spec in (*(spec for spec, *_ in self.running.values()), *self.queue)]
        except KeyboardInterrupt as interrupt:
            self.settle(executor.stop(self.running))
            for spec, *_ in self.running.values():
                interrupt.add_note(what_is_kept(spec, self.store))
            raise
        finally:
            executor.close()
            for _, claim, _ in self.running.values():
                claim.release()

    def start(self, spec: TrialSpec, executor: Here | SideBySide | OnRay) -> None:
        claim = Claim.take(spec, *self.wanted)
        if claim is None:  # it may have been finished a moment ago
            stored = is_stored(spec, *self.wanted)
            (self.outcome.stored if stored else self.outcome.taken).append(spec.hash)
        else:
            trial = executor.start(spec, *stored_and_lacking(spec, *self.wanted))
            self.running[trial] = spec, claim, time.monotonic()

    def settle(self, answers: Iterable[tuple[object, Answer]]) -> None:
        """Store what trials brought, or note why they brought nothing."""
        for trial, (how, what) in answers:
            spec, claim, start = self.running.pop(trial)
            try:
                if how == "ran":
                    store_safely(what, self.store)
            except (ArithmeticError, ValueError) as error:
                how, what = "failed", str(error)
            finally:
                claim.release()
            several = len(self.specs) > 1
            if how == "ran":
                self.outcome.ran.append(spec.hash)
                self.seconds.append(time.monotonic() - start)
                workers = 1 + len(self.running)
                among = f" {pace(self.specs, self.store, self.seconds, workers)}" if several else ""
                self.say(f"{describe(spec)}: {summary(what)}{among}")
            elif how == "left":
                self.outcome.left.append(spec.hash)
                self.say(what_is_kept(spec, self.store))
            else:
                self.outcome.failed[spec.hash] = what
                if several:
                    self.say(f"{describe(spec)} failed: {what}")


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
    """Run, in the order given, the specs whose result file is missing and that no other process is running.

    Args:
        until: when to stop, as time.monotonic() gives it. What then runs keeps a checkpoint and goes on at the next call.
        say: called with a line for each trial.
        on_progress: called as on_progress(spec, phase, share) while a trial runs; by several workers, as a pickled copy.
        workers: 1 runs trials in this process; more, in so many processes side by side, each with its share of the cores.
        rerun: whether to run again what is stored by a library that is not known to be as it is now.
        also: measurements on request; a stored result that lacks one is measured again, and keeps all else.
        networks: a folder where pretrained networks are kept, as `run_trial` has it.

    Raises:
        OSError: a result cannot be written; everything finished is kept, the message says where.
        ValueError: there is no such device, or a file in the store is no result.
        KeyboardInterrupt: it was interrupted; notes say what is kept of the trials that were running.
    """
    backend.pick(device)
    integer("workers", workers, 1)
    sweep = _Sweep(specs, store, rerun, also, networks, say)
    workers, how = min(workers, len(sweep.queue)), dict(store=sweep.store, device=device, networks=sweep.networks)
    sweep.run(Here(until, on_progress, how) if workers < 2 else SideBySide(workers, on_progress, how), until, None)
    return sweep.outcome


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
    """Run with Ray what the store lacks, in the order given, as many trials at once as the cluster has room for.

    Args:
        address: of an existing cluster; None starts Ray on this executor.
        cpus: cores of a trial. gpus: GPUs of a trial, a fraction to let several share one; None takes a whole one where the
            cluster has any, unless the device is the CPU.
        show: called about once a second with the state of the sweep.
        until, say, rerun, also, networks: as `run_missing` has them; each node keeps its networks in a folder of its own.

    Raises:
        OSError: the address does not answer, or a result cannot be written; what is finished is kept.
        ValueError: cpus or gpus is negative, or more than the cluster has.
    """
    if not number("cpus", cpus, 0):
        raise ValueError("cpus must be more than 0")
    number("gpus", 0 if gpus is None else gpus, 0)
    backend.as_name(device)
    sweep = _Sweep(specs, store, rerun, also, networks, say)
    if sweep.queue:
        how = dict(store=sweep.store, device=device, networks=sweep.networks)
        sweep.run(OnRay(address, cpus, gpus, how), until, show)
    return sweep.outcome
