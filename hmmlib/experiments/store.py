"""The result store: one small JSON file a trial, `STORE/PRESET/HASH.json`, where HASH is that of the spec.

Files are written under a temporary name and renamed, so that no half-written one is ever read as a result. Figures read
these files and never train.
"""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_type_hints

from filelock import FileLock, Timeout

from hmmlib.experiments.beyond import ON_REQUEST
from hmmlib.experiments.fields import Anything, Day, Hexadecimal, Line, Size, Text, as_type, checked
from hmmlib.experiments.labels import REDRAWS
from hmmlib.experiments.measurements import measured_names, measurements_of
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.provenance import added_elsewhere, has_changed
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import ORIGINAL, TrialResult, trial_seeds
from hmmlib.files import parse_json, write_whole
from hmmlib.validation import of_type, one_of

FORMAT = 2
ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "results"
"""Where the committed results lie in a checkout of the project."""
MINE = "HMMLIB_MINE"
"""The environment variable that names the user's own store."""
TYPES = {
    name: field_type
    for name, field_type in get_type_hints(TrialResult, include_extras=True).items()
    if name not in ("spec", "added")
}
"""The type of each field that every result's file has under its name."""
ENVIRONMENT = {
    "device": Text,
    "precision": Literal["float32", "float16", "bfloat16"],
    "machine": Line,
    "threads": Size,
    "python": Text,
    "torch": Text,
    "transformers": Text,
    "commit": Text | None,
}
"""What every result has in its environment, and the type of each: `trials.environment` gives it."""
ENVIRONMENT_LATER = {"hmmlib": Text, "library": Hexadecimal, "date": Day}
"""What the oldest results lack there."""
CHANCE = 20
"""Nats of luck: a network is by that much better than the best, summed over the sequences that both are judged by, with a
probability below e^-20. For on each, the mean of log q/p over what is masked has an exponential whose mean is at most 1."""
SUMS = 1e-9
"""How far rounding may take a sum of shares from what it should be."""


@dataclass(frozen=True)
class Store:
    """A folder that results are written to; they are looked for there first, then in other folders."""

    folder: Path
    others: tuple[Path, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where results are looked for, in order."""
        return self.folder, *self.others

    def resolve(self) -> Store:
        """The same store with absolute paths, so that it stays where it is when a process changes its folder."""
        return Store(self.folder.resolve(), tuple(other.resolve() for other in self.others))


def _of_project() -> Store:
    """The user's own folder, then the project's.

    In a checkout those are mine/results, which git ignores, and the committed results; beside a copied folder `hmmlib` there
    is one, results. What is installed may be replaced at any time, so there it is the system's place for a user's data. The
    variable MINE names another folder of the user's.
    """
    named = os.environ.get(MINE)
    if any(ROOT.glob("hmmlib-*.dist-info")):
        from platformdirs import user_data_path  # what is installed has it

        return Store(Path(named or user_data_path("hmmlib", appauthor=False) / "results"))
    if (ROOT / "pyproject.toml").is_file():
        return Store(Path(named or ROOT / "mine" / "results"), (STORE,))
    return Store(Path(named), (STORE,)) if named else Store(STORE)


PROJECT = _of_project()
"""Where results are written and looked for when no store is named."""
BEYOND, CHOICES = (
    Store(PROJECT.folder / name, tuple(folder / name for folder in PROJECT.others)) for name in ("beyond", "choices")
)
"""The same for trials whose networks were pretrained on another machine, and for those by which settings were chosen, on
seeds of their own."""


def as_store(store: Store | str | Path) -> Store:
    """The store, whether its folder exists or not. TypeError for what is no path, ValueError for an empty one."""
    if isinstance(store, Store):
        return store
    if store == "":  # Path("") would be the folder that one happens to be in
        raise ValueError("store must name a folder, not ''")
    return Store(Path(of_type("store", store, str, os.PathLike)))


def as_folders(store: Store | str | Path) -> Store:
    """The store, as it is checked before any work: NotADirectoryError where one of its folders is something else, or a link
    that leads nowhere."""
    store = as_store(store)
    for folder in store.folders:
        _unless_another(folder)
    return store


def _unless_another(folder: Path) -> Path:
    if os.path.lexists(folder) and not folder.is_dir():
        raise NotADirectoryError(f"store must be a folder, or not yet there; {folder} is something else")
    return folder


def result_path(spec: TrialSpec, store: Store | str | Path = PROJECT) -> Path:
    """Where the result of a spec lies, or would be written."""
    written, *others = (
        folder / of_type("spec", spec, TrialSpec).preset / f"{spec.hash}.json" for folder in as_store(store).folders
    )
    return next((path for path in (written, *others) if os.path.lexists(path)), written)


def _folder(spec: TrialSpec, store: Store | str | Path) -> Path:
    """Where results of a spec's preset are written. TypeError where the spec or the store is none."""
    return as_store(store).folder / of_type("spec", spec, TrialSpec).preset


def save_result(result: TrialResult, store: Store | str | Path = PROJECT) -> Path:
    """Write a result, whole or not at all: OSError, which names the file, where it cannot be written.

    FloatingPointError where a number of it is none, and ValueError where it has what no trial gives.
    """
    spec = of_type("result", result, TrialResult).spec
    path = _folder(spec, store) / f"{spec.hash}.json"
    values = asdict(result) | {"spec": spec.content()}
    values |= values.pop("added")
    wild = [f"{name} is {value}" for name, value in values.items() if _infinite(value)]
    if wild:
        raise FloatingPointError(f"a result that cannot be stored: {', '.join(wild)}")
    try:
        check_result(result)
    except ValueError as error:
        raise ValueError(f"a result that cannot be stored: {error}") from error
    return write_whole(path, json.dumps({"format": FORMAT, **values}, indent=1) + "\n")


def _infinite(value) -> bool:
    if isinstance(value, dict):
        return any(map(_infinite, value.values()))
    return isinstance(value, float) and not math.isfinite(value)


def check_result(result: TrialResult) -> None:
    """ValueError where no trial could give such a result; it names the field, what was found and what is accepted.

    Of a trial with parts of one's own, which may be of other sizes than the spec's, nothing is asked that hangs on sizes.
    """
    spec, added = result.spec, result.added
    sizes = None if spec.own else spec
    for name, field_type in TYPES.items():
        checked(name, field_type, getattr(result, name), sizes)
    for name, value in ({name: getattr(result, name) for name in ORIGINAL} | added).items():
        if name not in measured_names():
            checked(name, Anything, value)
        elif not measurements_of([name])[0].has(spec):
            _insist(value is None, f"{name} must be null for such a trial, not {reprlib.repr(value)}")
        elif name in added:
            checked(name, _type_of(name), value, sizes)
        else:
            _insist(value is not None or name.startswith("built_"), f"{name} must be there for such a trial, not None")
    phases = {
        one.phase for one in measurements_of([name for name in added if name in measured_names()]) if one.has(spec)
    }
    lacks = sorted({"pretraining", "exact model", "head tuning", *phases} - result.seconds.keys())
    _insist(not lacks, f"seconds lacks {', '.join(lacks)}")
    _insist(result.majority_rate >= 0.5, f"majority_rate must be 0.5 to 1, not {result.majority_rate}")
    _insist(result.redraws <= REDRAWS or spec.own, f"redraws must be at most {REDRAWS}, not {result.redraws}")
    _insist(
        result.seeds == trial_seeds(spec.seed), f"seeds must be those that seed {spec.seed} gives, not {result.seeds}"
    )
    _check_losses(result)
    _check_tables(result)
    _check_environment(result)


def _insist(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)


@cache
def _type_of(name: str):
    return as_type(measurements_of([name])[0].kinds[name])


def _check_losses(result: TrialResult) -> None:
    """Of losses on the same text, nothing is better than the best, nor the best worse than a guess, but by luck."""
    n, best, bounds = result.spec.evaluation, result.best_loss, {"network_loss": result.network_loss}
    if not result.spec.own:
        bounds[f"log {result.spec.n_tokens}"] = math.log(result.spec.n_tokens)
    for name, loss in bounds.items():
        luck = f"{CHANCE}/{n} more, for luck on {n} sequences"
        _insist(best <= loss + CHANCE / n, f"best_loss must be at most {name}, {loss}, and {luck}, not {best}")


def _check_tables(result: TrialResult) -> None:
    """What the numbers of a table say of each other, and of the result's other numbers."""
    kinds, rows = result.text_kinds, result.accuracies_by_kind
    if kinds:
        sums = {"near tie and clear": 1.0, "weighed and not weighed": 1.0, "certain and spread": None}
        for words, whole in sums.items():
            found = sum(kinds[kind] for kind in words.split(" and "))
            fits = found <= 1 + SUMS if whole is None else abs(found - whole) <= SUMS
            _insist(fits, f"text_kinds: {words} must be {'at most ' * (whole is None)}1 together, not {found}")
    for who, accuracy in (("head", result.head_accuracy), ("prompt", result.prompt_accuracy)) if rows else ():
        found, room = rows[who]["all"], 2 / result.spec.test  # two examples: the head is tuned again, rounded otherwise
        words = f"accuracies_by_kind.{who}.all must be {accuracy}, as {who}_accuracy, not {found}"
        _insist(abs(found - accuracy) <= room + SUMS, words)
    for name, row in (result.certified or {}).items():
        wrong = row["certified but wrong"]
        most = min(row["certified"], 1 - row["right"])
        _insist(wrong <= most + SUMS, f"certified.{name}: certified but wrong must be at most {most}, not {wrong}")
    if votes := result.votes:
        _insist(votes["weighed"] > 0, "votes: weighed must be 1 or more, as μ is not zero")
        for name in (name for name in votes if f"{name}, right" in votes):
            _insist(votes[f"{name}, right"] <= votes[name], f"votes: {name}, right must be at most {votes[name]}")


def _check_environment(result: TrialResult) -> None:
    """What an environment must have, and of which kind; what later versions note there as well may be there."""
    environment = checked("environment", dict[Line, object], result.environment)
    lacks = [name for name in ENVIRONMENT if name not in environment]
    _insist(not lacks, f"environment lacks {', '.join(lacks)}")
    for name, value in environment.items():
        checked(f"environment.{name}", (ENVIRONMENT | ENVIRONMENT_LATER).get(name, Line | int | None), value)
        if name.endswith(" measured"):
            there = name.removesuffix(" measured") in result.added
            _insist(there, f"environment.{name} is there, but {name.removesuffix(' measured')} is not")
            day, *rest = str(value).split(", ", 1)
            checked(f"environment.{name}", Day, day)
            fits = rest and re.fullmatch(r"commit \S+, library [0-9a-f]{16}", rest[0])
            _insist(fits, f"environment.{name} must be a day, a commit and a library, not {reprlib.repr(value)}")


def load_result(path: Path) -> TrialResult:
    """Read one result. ValueError that names the file where it is no JSON, of another format, incomplete, or misnamed.

    Of its numbers no more is checked: `save_result` has done it.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe, say, would never end
        raise ValueError(f"{path} is no readable result: it is no regular file")
    if path.is_symlink() and not path.exists():
        raise ValueError(
            f"{path} is no readable result: it is a link to {os.readlink(path)}, where nothing can be read"
        )
    try:
        result = _from_content(parse_json(path.read_bytes()))
        spec = result.spec
        here = path.absolute().parent.name
        _insist(here == spec.preset, f"its preset is {spec.preset}, not that of its folder")
        _insist(spec.hash == path.stem, f"its spec hashes to {spec.hash}, so it was edited or renamed")
    except ValueError as error:
        raise ValueError(f"{path} is no readable result: {error}") from error
    return result


def _from_content(content) -> TrialResult:
    """The result that a file's JSON stands for. ValueError where it has another format, no spec, or lacks a field."""
    if not isinstance(content, dict):
        raise ValueError(
            f"it must be an object with a format, a spec and what was measured, not {type(content).__name__}"
        )
    version, given = content.get("format"), content.get("spec")
    if type(version) is not int or version != FORMAT:
        raise ValueError(f"its format is {reprlib.repr(version)}, and this version of hmmlib reads {FORMAT}")
    if not isinstance(given, dict):
        raise ValueError(f"its spec must be an object with the fields of a TrialSpec, not {reprlib.repr(given)}")
    try:
        spec = TrialSpec(**given)
    except TypeError as error:  # a field that there is not
        raise ValueError(f"its spec is none of a TrialSpec: {error}") from None
    if lacks := [name for name in {**spec.content(), **given} if given.get(name) != getattr(spec, name)]:
        raise ValueError(f"its spec lacks {', '.join(sorted(lacks))}")
    if lacks := [name for name in TYPES if name not in content]:
        raise ValueError(f"it lacks {', '.join(lacks)}")
    if other := [name for name in ("seeds", "seconds", "environment") if not isinstance(content[name], dict)]:
        raise ValueError(f"{other[0]} must be an object, not {reprlib.repr(content[other[0]])}")
    added = {name: value for name, value in content.items() if name not in ("format", "spec", *TYPES)}
    return TrialResult(spec=spec, **{name: content[name] for name in TYPES}, added=added)


def result_files(preset: str, store: Store | str | Path = PROJECT) -> list[Path]:
    """The files of all stored results of a preset; of several folders the first one's count.

    ValueError for an unknown preset, NotADirectoryError where a folder of the store is something else.
    """
    one_of("preset", preset, PRESETS)
    folders = [_unless_another(folder / preset) for folder in reversed(as_folders(store).folders)]
    return list({path.name: path for folder in folders for path in sorted(folder.glob("*.json"))}.values())


def load_results(preset: str, store: Store | str | Path = PROJECT) -> list[TrialResult]:
    """All stored results of a preset, ordered by memory values, hidden states, then seed; `results` has them as a table."""
    loaded = map(load_result, result_files(preset, store))
    return sorted(loaded, key=lambda result: (result.spec.n_memory, result.spec.n_states, result.spec.seed))


def kept(
    spec: TrialSpec, store: Store | str | Path = PROJECT, rerun: bool = False, also: Collection[str] = ()
) -> tuple[TrialResult | None, list[str]]:
    """The stored result of a spec, and which of the measurements that are `also` asked for it lacks.

    With `rerun` a result counts only if the library is known not to have changed since, and a measurement that another state
    of the library has added counts as lacking; what a result had that no longer counts is asked for again.

    ValueError, naming the file, where what is there is no result.
    """
    path = result_path(spec, store)
    if not os.path.lexists(path) or (result := load_result(path)).spec != spec:
        return None, list(also)
    if rerun and has_changed(result) is not False:
        return None, list(dict.fromkeys([*also, *(name for name in result.added if name in ON_REQUEST)]))
    return result, [name for name in also if name not in result.added or (rerun and added_elsewhere(result, name))]


def is_stored(
    spec: TrialSpec, store: Store | str | Path = PROJECT, rerun: bool = False, also: Collection[str] = ()
) -> bool:
    """Whether the result of a spec is there, as `kept` says, and lacks nothing. ValueError where it is no result."""
    result, lacking = kept(spec, store, rerun, also)
    return result is not None and not lacking


def checkpoint_path(spec: TrialSpec, store: Store | str | Path = PROJECT) -> Path:
    """Where an unfinished trial keeps its network."""
    return _folder(spec, store) / ".unfinished" / f"{spec.hash}.safetensors"


class Claim:
    """The right to run a spec, held by one process at a time, on any machine that shares the store; a death gives it up.

    Use as `if (claim := Claim.take(spec, store)): …; claim.release()`.
    """

    def __init__(self, lock: FileLock):
        self._lock = lock

    @classmethod
    def take(
        cls,
        spec: TrialSpec,
        store: Store | str | Path = PROJECT,
        rerun: bool = False,
        also: Collection[str] = (),
    ) -> Claim | None:
        """The claim, or None where another process holds it, or has finished the spec meanwhile, as `is_stored` says."""
        folder = _folder(spec, store) / ".claims"
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{spec.hash}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        free = False
        try:
            free = not is_stored(spec, store, rerun, also)
        finally:
            if not free:
                lock.release()
        return cls(lock) if free else None

    def release(self) -> None:
        """Let others take it."""
        self._lock.release()
