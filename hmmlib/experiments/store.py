"""The result store: one small JSON file a trial, `STORE/PRESET/HASH.json`, where HASH is that of the spec.

Files are written under a temporary name and renamed, so that no half-written one is ever read as a result. Figures read
these files and never train.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from hmmlib.experiments.beyond import ON_REQUEST
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.provenance import added_elsewhere, has_changed
from hmmlib.experiments.results import check_result, from_content
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import TrialResult
from hmmlib.files import parse_json, write_whole
from hmmlib.validation import of_type, one_of

FORMAT = 2
ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "results"
"""Where the committed results lie in a checkout of the project."""
MINE = "HMMLIB_MINE"
"""The environment variable that names the user's own store."""


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

    FloatingPointError where a number of it is none, and ValueError where another field is what no trial gives: it would be
    refused when read.
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


def load_result(path: Path) -> TrialResult:
    """Read one result. ValueError that names the file where it is no JSON, of another format, incomplete, or misnamed."""
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe, say, would never end
        raise ValueError(f"{path} is no readable result: it is no regular file")
    if path.is_symlink() and not path.exists():
        raise ValueError(
            f"{path} is no readable result: it is a link to {os.readlink(path)}, where nothing can be read"
        )
    try:
        content = parse_json(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError(
                f"it must be an object with a format, a spec and what was measured, not {type(content).__name__}"
            )
        version = content.pop("format", None)
        if type(version) is not int or version != FORMAT:
            raise ValueError(f"its format is {reprlib.repr(version)}, and this version of hmmlib reads {FORMAT}")
        result = from_content(content)
        check_result(result)
    except ValueError as error:
        raise ValueError(f"{path} is no readable result: {error}") from error
    spec = result.spec
    if path.absolute().parent.name != spec.preset:
        raise ValueError(f"{path} is no readable result: its preset is {spec.preset}, not that of its folder")
    if spec.hash != path.stem:
        raise ValueError(f"{path} is no readable result: its spec hashes to {spec.hash}, so it was edited or renamed")
    return result


def load_results(preset: str, store: Store | str | Path = PROJECT) -> list[TrialResult]:
    """All stored results of a preset, ordered by memory values, hidden states, then seed."""
    one_of("preset", preset, PRESETS)
    folders = [_unless_another(folder / preset) for folder in reversed(as_folders(store).folders)]
    paths = {
        path.name: path for folder in folders for path in sorted(folder.glob("*.json"))
    }  # the first folder's count
    results = (load_result(path) for path in paths.values())
    return sorted(results, key=lambda result: (result.spec.n_memory, result.spec.n_states, result.spec.seed))


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
