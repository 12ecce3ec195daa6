"""Run the trials whose result a store lacks, one after another in this process.

To use a cluster, or all GPUs of a machine, see `ray_sweep`. A result is written whole under its name, so several
processes may work on one store. At worst a trial is run twice.
"""

from __future__ import annotations

import math
import re
import reprlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hmmbook.experiments.measurements import names_on_request
from hmmbook.experiments.parts import Parts
from hmmbook.experiments.specs import FIELD_TYPES, MODEL_FIELDS, TrialSpec, warn_of_large_presets
from hmmbook.experiments.store import (
    PROJECT,
    Store,
    as_store,
    checkpoint_path,
    is_stored,
    lacking_measurements,
    load_result,
    result_path,
    store_safely,
    unmeasured,
)
from hmmbook.experiments.trials import TrialResult, check_requested, measure, run_trial
from hmmbook.files import writable_folder
from hmmlib.device import as_name, interrupts_between_steps, pick
from hmmlib.training import checkpoints
from hmmlib.validation import number, of_type

ERRORS_IN_SENTENCES = (ArithmeticError, ValueError, RuntimeError, MemoryError, OSError)
"""Classes of errors whose messages say enough, so that the name of the class is left out."""


class TimeUp(Exception):
    """The time of a trial is over. The trial keeps a checkpoint, from which it can go on."""


@dataclass
class Outcome:
    """What became of the specs of a sweep. Each list names them by their hashes."""

    stored: list[str] = field(default_factory=list)
    """The specs whose results were stored before."""
    ran: list[str] = field(default_factory=list)
    """The specs that were run and stored now."""
    failed: dict[str, str] = field(default_factory=dict)
    """The specs that failed, each with the reason."""
    left: list[str] = field(default_factory=list)
    """The specs for which there was no time."""


@dataclass
class Sweep:
    """The specs whose results a store is to have, and how to run one of them."""

    specs: Sequence[TrialSpec]
    """The specs, in the order in which they are run."""
    store: Store = PROJECT
    """Where results are looked for and written."""
    device: str = "auto"
    """Where networks are."""
    rerun: bool = False
    """Whether trials that are stored already are run again."""
    also: Sequence[str] = ()
    """Names of further measurements that each result is to have."""
    networks: Path | None = None
    """A folder in which pretrained networks are kept for other trials."""
    parts: Parts | None = None
    """Functions that make parts of the trials in the place of the library's own."""
    log: Callable[[str], None] = print
    """Called with a line for each trial."""

    def __post_init__(self) -> None:
        as_name(self.device)
        if isinstance(self.specs, TrialSpec):
            raise TypeError("specs must be a list of TrialSpec, not a single one")
        self.specs = list(dict.fromkeys(of_type("each of specs", spec, TrialSpec) for spec in self.specs))
        self.store = as_store(self.store)
        self.also = check_requested(self.also)
        of_type("parts", self.parts or Parts(), Parts)
        if self.networks:
            self.networks = writable_folder("networks", self.networks)
        self.outcome = Outcome()
        self.began = time.monotonic()

    def missing(self) -> list[TrialSpec]:
        """Return the specs that are to be run, and note the others as stored before."""
        missing = []
        lacking = Counter()
        for spec in self.specs:
            if self.is_done(spec):
                self.outcome.stored.append(spec.hash)
                lacking.update(unmeasured(load_result(result_path(spec, self.store))))
            else:
                missing.append(spec)
        for name, count in lacking.items():
            self.log(f"{count} of {len(self.specs)} results were stored without {name}. Use also=[{name!r}] to add it.")
        if missing:
            writable_folder("store", self.store[0])  # so that an error comes before the work
        return missing

    def is_done(self, spec: TrialSpec) -> bool:
        """Tell whether a trial need not be run, because its result is stored and lacks nothing.

        Raises:
            ValueError: the file that is there is no result.
        """
        return is_stored(spec, self.store, self.also) and not self.rerun

    def run(self, spec: TrialSpec, on_progress: Callable[[str, float], None] | None = None) -> TrialResult:
        """Run a trial, or measure what its stored result lacks."""
        options = {
            "on_progress": on_progress,
            "device": self.device,
            "networks": self.networks,
            "parts": self.parts,
        }
        if self.store[0].is_dir():  # a worker on another machine may not see the folder
            options["checkpoint"] = checkpoint_path(spec, self.store)
        path = result_path(spec, self.store)
        if not path.exists():
            return run_trial(spec, also=self.also, **options)
        result = load_result(path)
        if self.rerun:
            added = [name for name in names_on_request() if name in result.added]
            return run_trial(spec, also=[*self.also, *added], **options)
        return measure(result, lacking_measurements(result, self.also), **options)

    def keep(self, result: TrialResult) -> None:
        """Store a result and log it. If a number of it cannot be stored anywhere, the trial has failed.

        Raises:
            OSError: the file cannot be written. The log and the message say where the result is kept.
        """
        try:
            store_safely(result, self.store)
        except OSError as error:
            self.fail(result.spec, error)
            raise
        except ValueError as error:
            self.fail(result.spec, error)
            return
        self.outcome.ran.append(result.spec.hash)
        self._log(result.spec, summary(result))

    def fail(self, spec: TrialSpec, error: Exception) -> None:
        """Note why a trial failed."""
        reason = reason_of(error)
        self.outcome.failed[spec.hash] = reason
        self._log(spec, f"failed: {reason}")

    def leave(self, spec: TrialSpec) -> None:
        """Note that there was no time for a trial. If it had begun, log what is kept of it."""
        self.outcome.left.append(spec.hash)
        if checkpoint_path(spec, self.store).exists():
            self.log(what_is_kept(spec, self.store))

    def _log(self, spec: TrialSpec, text: str) -> None:
        line = f"{describe(spec, differing_fields(self.specs))}: {text}"
        if len(self.specs) > 1:
            line += f" {self.pace()}"
        self.log(line)

    def pace(self) -> str:
        """Say how many results are stored, and how long the others will take at the pace so far."""
        ran = len(self.outcome.ran)
        stored = len(self.outcome.stored) + ran
        remaining = len(self.specs) - stored - len(self.outcome.failed)
        if not remaining or not ran:
            return f"[{stored} of {len(self.specs)} stored]"
        minutes = remaining * (time.monotonic() - self.began) / ran / 60
        duration = f"about {minutes:.0f}" if minutes >= 1 else "less than 1"
        return f"[{stored} of {len(self.specs)} stored, {duration} min left]"


@interrupts_between_steps()
def run_missing(
    specs: Sequence[TrialSpec],
    store: Store = PROJECT,
    device: str = "auto",
    until: float = math.inf,
    log: Callable[[str], None] = print,
    on_progress: Callable[[TrialSpec, str, float], None] | None = None,
    rerun: bool = False,
    also: Sequence[str] = (),
    networks: Path | None = None,
    parts: Parts | None = None,
) -> Outcome:
    """Run the trials whose result a store lacks, one after another.

    Args:
        specs: what fixes the trials, in the order in which they are run.
        store: where results are looked for and written.
        device: where the networks are, which is auto, cpu, cuda, cuda:N or mps.
        until: when to stop, as time.monotonic() counts. A trial that is running then keeps a checkpoint for the next
            call. With math.inf there is no limit.
        log: called with a line for each trial.
        on_progress: called as on_progress(spec, phase, share done) while a trial runs.
        rerun: whether to run trials again that are stored already.
        also: names of further measurements. If a stored result lacks one, it is measured, and all else stays.
        networks: a folder in which pretrained networks are kept for other trials that differ only in their task.
        parts: functions of your own that make parts of each trial. The store knows them only by the spec's `own`. So if
            you change such a function, a stored trial is not run again.

    Returns:
        What became of each spec. An error in one trial ends only this trial.

    Raises:
        OSError: a result or checkpoint cannot be written. The message says where a finished result is kept.
        ValueError: there is no such device or measurement, `until` is no time, or a file in the store is no result.
        KeyboardInterrupt: it was interrupted. Notes on it say what is kept of the trial that was running.

    Example:
        >>> import tempfile
        >>> specs = [TrialSpec("smoke", n_states=4, seed=seed) for seed in (0, 1)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     outcome = run_missing(specs, folder, log=lambda line: None)
        >>> len(outcome.ran)
        2
    """
    until = as_time("until", until)
    on_cpu = pick(device).type == "cpu"
    sweep = Sweep(specs, store, device, rerun, also, networks, parts, log)
    missing = sweep.missing()
    if on_cpu:
        warn_of_large_presets(missing, log)
    for spec in missing:
        if time.monotonic() >= until:
            sweep.leave(spec)
            continue
        if sweep.is_done(spec):  # another process may have run it meanwhile
            sweep.outcome.stored.append(spec.hash)
            continue

        def progress(phase: str, share: float, spec: TrialSpec = spec) -> None:
            if on_progress:
                on_progress(spec, phase, share)
            if time.monotonic() >= until:
                raise TimeUp

        try:
            result = sweep.run(spec, progress)
        except TimeUp:
            sweep.leave(spec)
        except checkpoints.CheckpointError:
            raise  # The disk is full, for example, and so it would be for the other trials.
        except Exception as error:  # A measurement of the user's may raise anything.
            sweep.fail(spec, error)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(what_is_kept(spec, sweep.store))
            raise
        else:
            sweep.keep(result)
    return sweep.outcome


def reason_of(error: Exception) -> str:
    """Return in one line why a trial failed."""
    reason = " ".join(str(error).split())
    notes = getattr(error, "__notes__", [])
    if notes or not reason or not isinstance(error, ERRORS_IN_SENTENCES):
        reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
    lines = [" ".join(note.split()) for note in notes]
    if lines:
        reason = reason.removesuffix(".")
    return ", ".join([reason, *lines])


def shard_of(specs: Sequence[TrialSpec], shard: str) -> list[TrialSpec]:
    """Return the part of the specs that one job of a job array is to run.

    Args:
        specs: the specs of the whole sweep.
        shard: "I/N" for the I-th of N parts, where I counts from 1.

    Raises:
        ValueError: the text is not of this form.

    Example:
        >>> [spec.seed for spec in shard_of([TrialSpec("smoke", seed=seed) for seed in range(5)], "2/2")]
        [1, 3]
    """
    numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})", of_type("shard", shard, str))
    index, count = map(int, numbers.groups()) if numbers else (0, 0)
    if not 1 <= index <= count:
        raise ValueError(f"shard must be I/N with I from 1 to N, such as 1/4, not {reprlib.repr(shard)}")
    return list(specs[index - 1 :: count])


def as_time(name: str, value: float) -> float:
    """Check a time, which is to count as time.monotonic() does, and return it.

    Raises:
        ValueError: it is no number.
    """
    try:
        return number(name, value, -math.inf)
    except ValueError:
        raise ValueError(
            f"{name} must be a time as time.monotonic() counts, or math.inf for no limit, not {value!r}"
        ) from None


def deadline(minutes: float | None) -> float:
    """Return the time at which so many minutes are over, as time.monotonic() counts. With None they never are.

    Raises:
        ValueError: the minutes are negative.
    """
    if minutes is None:
        return math.inf
    return time.monotonic() + 60 * number("max-minutes", minutes, 0)


def differing_fields(specs: Sequence[TrialSpec]) -> list[str]:
    """Return the names of the fields in which specs differ. Fields of the model are left out."""
    names = []
    for name in FIELD_TYPES:
        values = {getattr(spec, name) for spec in specs}
        if len(values) > 1 and name not in MODEL_FIELDS:
            names.append(name)
    return names


def describe(spec: TrialSpec, fields: Iterable[str] = ()) -> str:
    """Describe a spec in a few words, together with the fields that are named."""
    words = [f"{spec.preset} |H| = {spec.n_states}", f"seed {spec.seed}"]
    if spec.n_memory > 1:
        words[0] = f"{spec.preset} |M| = {spec.n_memory}, |H| = {spec.n_states}"
    for name in fields:
        words.append(f"{name} {getattr(spec, name)}")
    return ", ".join(words)


def summary(result: TrialResult) -> str:
    """Describe a result in one line."""
    accuracies = {"head": result.head_accuracy, "attention": result.attention_accuracy}
    if result.prompt_accuracy is not None:
        accuracies = {"head": result.head_accuracy, "prompt": result.prompt_accuracy} | accuracies
    texts = [f"{name} {accuracy:.1%}" for name, accuracy in accuracies.items()]
    majority = f"majority {result.majority_rate:.1%}"
    if max(accuracies.values()) <= result.majority_rate:
        majority += ", which nothing exceeds"
    seconds = sum(result.seconds.values())
    return f"{', '.join(texts)}; {majority}, excess loss {result.excess_loss:.3f} nats, {seconds:.0f} s"


def stored_by(*results: TrialResult) -> str:
    """Say when results were stored, and by which commit most of them."""
    days = []
    commits = Counter()
    for result in results:
        if result.environment.get("date"):
            days.append(result.environment["date"])
        commits[str(result.environment.get("commit"))] += 1

    days.sort()
    if not days:
        when = ""
    elif days[0] == days[-1]:
        when = f" on {days[0]}"
    else:
        when = f" from {days[0]} to {days[-1]}"

    commit, _ = commits.most_common(1)[0]
    if not re.fullmatch(r"[0-9a-f]+\+?", commit):
        commit = "an unknown commit"
    if len(commits) == 1:
        return f"stored{when} by {commit}"
    if len(commits) == 2:
        return f"stored{when} by {commit} and 1 other commit"
    return f"stored{when} by {commit} and {len(commits) - 1} other commits"


def what_is_kept(spec: TrialSpec, store: Store) -> str:
    """Say what is kept of a trial that was broken off."""
    steps = None
    with suppress(OSError, ValueError):
        content = checkpoints.load(checkpoint_path(spec, store))
        steps = content and content.get("done")
    if steps is None:
        return f"{describe(spec)} was broken off, and nothing of it is kept."
    return (
        f"{describe(spec)} was broken off, but its network after {steps} of {spec.steps} steps is kept. "
        "Run it again to go on."
    )
