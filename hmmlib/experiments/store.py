"""The result store: one small JSON file a trial, `STORE/PRESET/HASH.json`, where HASH is that of the spec.

Files are written under a temporary name and renamed, so that no half-written one is ever read as a result. Figures read
these files and never train.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import reprlib
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import TrialResult, trial_seeds
from hmmlib.files import write_whole
from hmmlib.validation import FINITE, of_type, one_of

FORMAT = 2
ROUNDING = 1e-5
STORE = Path(__file__).resolve().parents[2] / "results"
"""Where results lie in a checkout of the project."""
KINDS = {"int": int, "str": str, "dict": dict}
"""Types of the fields of a result that are neither a spec nor a float."""


def result_path(spec: TrialSpec, store: Path = STORE) -> Path:
    """Where the result of a spec lies."""
    return _folder(spec, store) / f"{spec.hash}.json"


def _folder(spec: TrialSpec, store: Path) -> Path:
    """Where the results of a spec's preset lie. TypeError where the spec or the store is none."""
    return as_store(store) / of_type("spec", spec, TrialSpec).preset


def as_store(store: str | Path) -> Path:
    """The store's folder, be it there or not. TypeError for what is no path, ValueError for an empty one."""
    if store == "":  # Path("") would be the folder that one happens to be in
        raise ValueError("store must name a folder, not ''")
    return Path(of_type("store", store, str, os.PathLike))


def as_folder(store: str | Path) -> Path:
    """The store's folder before any work: NotADirectoryError where something else lies there, or a link that leads nowhere."""
    store = as_store(store)
    if os.path.lexists(store) and not store.is_dir():
        raise NotADirectoryError(f"store must be a folder, or not yet there; {store} is something else")
    return store


def save_result(result: TrialResult, store: Path = STORE) -> Path:
    """Write a result, whole or not at all: OSError, which names the file, where it cannot be written.

    FloatingPointError where a number of it is none, as it would be refused when read.
    """
    path = result_path(of_type("result", result, TrialResult).spec, store)
    wild = [f"{name} is {value}" for name, value in asdict(result).items() if _infinite(value)]
    if wild:
        raise FloatingPointError(f"a result that cannot be stored: {', '.join(wild)}")
    return write_whole(path, json.dumps({"format": FORMAT, **asdict(result)}, indent=1) + "\n")


def _infinite(value) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _check_number(name: str, value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    if name.endswith(("accuracy", "rate")) and not 0 <= value <= 1:
        raise ValueError(f"{name} must be a share, 0 to 1, not {value!r}")
    if not -ROUNDING <= value <= FINITE:  # a divergence of zero may be rounded to less
        raise ValueError(f"{name} must be a number of 0 or more, finite, not {reprlib.repr(value)}")


def _check_together(result: TrialResult) -> None:
    """What the fields of a result say of each other, and of what only a trial could have written."""
    if result.majority_rate < 0.5:
        raise ValueError(f"majority_rate must be 0.5 to 1, not {result.majority_rate}")
    if (result.prompt_accuracy is None) != (result.spec.n_memory > 1):
        raise ValueError(
            f"prompt_accuracy must be there for a vanilla model, and only then, not {result.prompt_accuracy}"
        )
    if result.seeds != trial_seeds(result.spec.seed):
        raise ValueError(f"seeds must be those that seed {result.spec.seed} gives, not {reprlib.repr(result.seeds)}")
    for name, value in result.environment.items():
        if not isinstance(value, str | int | None):
            raise ValueError(f"{name} of the environment must be a word or an integer, not {reprlib.repr(value)}")


def _once(pairs: list[tuple[str, object]]) -> dict:
    """An object of JSON. ValueError where a name stands twice in it."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} stands in it twice")
    return found


def load_result(path: Path) -> TrialResult:
    """Read one result. ValueError that names the file where it is no JSON, of another format, incomplete, or misnamed."""
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe, say, would never end
        raise ValueError(f"{path} is no readable result: it is no regular file")
    try:
        content = json.loads(path.read_text(), object_pairs_hook=_once)
        if not isinstance(content, dict):
            raise ValueError(
                f"it must be an object with a format, a spec and what was measured, not {type(content).__name__}"
            )
        version = content.pop("format", None)
        if version != FORMAT:
            raise ValueError(f"its format is {version}, and this version of hmmlib reads {FORMAT}")
        given = content.pop("spec", None)
        if not isinstance(given, dict):
            raise ValueError(f"its spec must be an object with the fields of a TrialSpec, not {given!r}")
        spec = TrialSpec(**given)
        if given != asdict(spec):
            open_ = [name for name, value in asdict(spec).items() if given.get(name) != value]
            raise ValueError(f"its spec lacks {', '.join(sorted(open_))}")
        result = TrialResult(spec=spec, **content)
        for field in dataclasses.fields(result):
            value = getattr(result, field.name)
            if field.type.startswith("float") and not (value is None and field.type.endswith("None")):
                _check_number(field.name, value)
            kind = KINDS.get(field.type.split("[")[0])
            if kind and (not isinstance(value, kind) or isinstance(value, bool)):
                raise ValueError(f"{field.name} must be {field.type}, not {value!r}")
        for name, value in result.seconds.items():
            _check_number(f"seconds of {name}", value)
        _check_number("redraws", result.redraws)
        _check_together(result)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no readable result: {error}") from error
    if path.absolute().parent.name != spec.preset:
        raise ValueError(f"{path} is no readable result: its preset is {spec.preset}, not that of its folder")
    if spec.hash != path.stem:
        raise ValueError(f"{path} is no readable result: its spec hashes to {spec.hash}, so it was edited or renamed")
    return result


def load_results(preset: str, store: Path = STORE) -> list[TrialResult]:
    """All stored results of a preset, ordered by memory values, hidden states, then seed."""
    folder = as_folder(as_folder(store) / one_of("preset", preset, PRESETS))
    results = (load_result(path) for path in sorted(folder.glob("*.json")))
    return sorted(results, key=lambda result: (result.spec.n_memory, result.spec.n_states, result.spec.seed))


def is_stored(spec: TrialSpec, store: Path = STORE) -> bool:
    """Whether the result of a spec is there. ValueError, naming the file, where what is there is no result."""
    path = result_path(spec, store)
    return path.exists() and load_result(path).spec == spec


def checkpoint_path(spec: TrialSpec, store: Path = STORE) -> Path:
    """Where an unfinished trial keeps its network."""
    return _folder(spec, store) / ".unfinished" / f"{spec.hash}.safetensors"


class Claim:
    """The right to run a spec, held by one process at a time, on any machine that shares the store; a death gives it up.

    Use as `if (claim := Claim.take(spec, store)): …; claim.release()`.
    """

    def __init__(self, lock: FileLock):
        self._lock = lock

    @classmethod
    def take(cls, spec: TrialSpec, store: Path = STORE) -> Claim | None:
        """The claim, or None where another process holds it, or has finished the spec meanwhile."""
        folder = _folder(spec, store) / ".claims"
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{spec.hash}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        free = False
        try:
            free = not is_stored(spec, store)
        finally:
            if not free:
                lock.release()
        return cls(lock) if free else None

    def release(self) -> None:
        """Let others take it."""
        self._lock.release()
