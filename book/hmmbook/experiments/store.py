"""The result store: one small JSON file for each trial, `STORE/PRESET/HASH.json`, where HASH is that of the spec.

A file is written under a temporary name and renamed, so that no half-written one is ever read as a result. Two
processes may work on one store. Figures read these files and never train.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import date
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

from pydantic import AfterValidator, Field
from pydantic_core import from_json

from hmmbook.experiments.fields import Anything, Size, Text, as_type, checked
from hmmbook.experiments.measurements import MEASUREMENTS, check_name, measured_names, names_on_request
from hmmbook.experiments.presets import PRESETS
from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.trials import ORIGINAL, TrialResult
from hmmbook.files import absolute, write_whole
from hmmlib.validation import of_type, one_of

FORMAT = 2
"""The number of the file format."""
ROOT = Path(__file__).resolve().parents[3]
"""The project's folder in a checkout, or the folder of installed packages."""
STORE = ROOT / "results"
"""Where the committed results lie in a checkout of the project."""
PACKAGED = "hmmbook/results"
"""Where they lie among installed packages."""

Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(date.fromisoformat)]
ENVIRONMENT = as_type(
    {
        "device": Text,
        "precision": Literal["float32", "float16", "bfloat16"],
        "machine": Text,
        "threads": Size,
        "python": Text,
        "torch": Text,
        "transformers": Text,
        "commit": Text | None,
        "hmmlib": NotRequired[Text],
        "date": NotRequired[Day],
    },
    extra="allow",
)
"""What a result's environment holds. The oldest results have no `hmmlib` and no `date`."""
TYPES: dict[str, Any] = get_type_hints(TrialResult, include_extras=True)
"""The type of each entry that every result's file has under its name."""
TYPES.pop("spec")
TYPES.pop("added")
TYPES["environment"] = ENVIRONMENT
FILE = as_type({"format": Literal[FORMAT], "spec": dict} | TYPES, extra="allow")
"""The type of a file's content."""

Store = str | Path | tuple[Path, ...]
"""A folder of results, or several. Results are written to the first, and looked for in all of them in their order."""


def _project_store() -> tuple[Path, ...]:
    """The user's own folder, which HMMBOOK_MINE may name from the working directory, then the project's results.

    In a checkout these are mine/results, which git ignores, and the committed results. Installed files may be replaced
    at any time, so an installed package writes to the system's place for a user's data.
    """
    named = os.environ.get("HMMBOOK_MINE", "").strip()
    installed = any(ROOT.glob("hmmlib-*.dist-info"))
    if installed:
        from platformdirs import user_data_path  # only the installed package needs it

        mine = named or user_data_path("hmmlib", appauthor=False) / "results"
        return absolute(mine), ROOT / PACKAGED
    return absolute(named or ROOT / "mine" / "results"), STORE


PROJECT = _project_store()
"""Where results are written and looked for when no store is named."""


def _part_of_project(name: str) -> tuple[Path, ...]:
    return tuple(folder / name for folder in PROJECT)


BEYOND = _part_of_project("beyond")
"""The same for trials beyond the paper: other networks, other tasks."""
CHOICES = _part_of_project("choices")
"""The same for trials by which settings were chosen, on other seeds."""
REFITS = _part_of_project("refits")
"""The same for the paper's chains with fits that were made later."""


def as_store(store: Store) -> tuple[Path, ...]:
    """Return the folders of a store, whether they exist or not, as absolute paths.

    Raises:
        TypeError: a folder is no path.
        ValueError: a folder is "".
        NotADirectoryError: a folder is something else, for example a file.
    """
    folders = []
    for named in store if isinstance(store, tuple) else (store,):
        if of_type("store", named, str, os.PathLike) == "":
            raise ValueError("store must name a folder, not ''")  # Path("") would be the working directory
        folder = absolute(named)
        if os.path.lexists(folder) and not folder.is_dir():
            raise NotADirectoryError(f"store must be a folder, or not yet there; {folder} is something else")
        folders.append(folder)
    return tuple(folders)


def result_path(spec: TrialSpec, store: Store = PROJECT) -> Path:
    """Return where the result of a spec lies, or would be written.

    Example:
        >>> result_path(TrialSpec("smoke", n_states=4), "results").name
        'ca9994af93a74c44.json'
    """
    of_type("spec", spec, TrialSpec)
    folders = as_store(store)
    name = f"{spec.preset}/{spec.hash}.json"
    for folder in folders:
        if os.path.lexists(folder / name):
            return folder / name
    return folders[0] / name


def checkpoint_path(spec: TrialSpec, store: Store = PROJECT) -> Path:
    """Return where an unfinished trial keeps its checkpoint."""
    of_type("spec", spec, TrialSpec)
    return as_store(store)[0] / spec.preset / ".unfinished" / f"{spec.hash}.pt"


def save_result(result: TrialResult, store: Store = PROJECT) -> Path:
    """Write a result, whole or not at all, and return its path.

    Raises:
        OSError: the file cannot be written. The message names it.
        ValueError: the result holds a value of the wrong type or range.
    """
    of_type("result", result, TrialResult)
    try:
        check_result(result)
    except ValueError as error:
        raise ValueError(f"a result that cannot be stored: {error}") from error
    spec = result.spec
    content = {"format": FORMAT, "spec": spec.content()}
    for name in TYPES:
        content[name] = getattr(result, name)
    content |= result.added
    path = as_store(store)[0] / spec.preset / f"{spec.hash}.json"
    return write_whole(path, json.dumps(content, indent=1) + "\n")


def check_result(result: TrialResult) -> None:
    """Raise ValueError if a number of a result has the wrong type or range. The message names it."""
    for name, field_type in TYPES.items():
        checked(name, field_type, getattr(result, name))
    kinds = {}
    for measurement in MEASUREMENTS:
        if measurement.exists_for(result.spec):
            kinds |= measurement.kinds
        else:
            kinds |= dict.fromkeys(measurement.names, None)
    for name, value in result.added.items():
        check_name(name)
        checked(name, kinds.get(name, Anything), value)


def load_result(path: Path) -> TrialResult:
    """Read one result.

    Raises:
        ValueError: the file is no JSON, of another format, incomplete, or named for another spec. The message names
            the file.
    """
    path = absolute(path)
    try:
        if os.path.lexists(path) and not path.is_file():
            raise ValueError("it is no regular file")  # reading a pipe, for example, would never end
        content = from_json(path.read_bytes(), allow_inf_nan=False)
        return _result_of(content, path)
    except (ValueError, TypeError) as error:  # TypeError for a field that TrialSpec does not have
        raise ValueError(f"{path} is no readable result: {error}") from error


def _result_of(content: object, path: Path) -> TrialResult:
    """The result that a file's content stands for."""
    checked("file", FILE, content)
    stored_spec = content.pop("spec")
    spec = TrialSpec(**stored_spec)
    lacking = spec.content().keys() - stored_spec.keys()
    if lacking:
        raise ValueError(f"its spec lacks {', '.join(sorted(lacking))}")
    folder = path.parent.name
    if folder != spec.preset:
        raise ValueError(f"its preset is {spec.preset}, not that of its folder, {folder}")
    if spec.hash != path.stem:
        raise ValueError(f"its spec hashes to {spec.hash}, so it was edited or renamed")
    content.pop("format")
    numbers = {name: content.pop(name) for name in TYPES}
    return TrialResult(spec=spec, **numbers, added=content)


def load_results(preset: str, store: Store = PROJECT) -> list[TrialResult]:
    """Read all stored results of a preset, ordered by memory values, hidden states, then seed.

    Where several folders have a result, the first one's counts.

    Raises:
        ValueError: the preset is unknown, or a file is no result.
        FileNotFoundError: a single folder was named, and it is not there.
    """
    one_of("preset", preset, PRESETS)
    folders = as_store(store)
    if len(folders) == 1 and not folders[0].exists():
        raise FileNotFoundError(f"store must be a folder with results, and there is no {folders[0]}")
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted((folder / preset).glob("[0-9a-f]*.json")):
            paths.setdefault(path.name, path)
    results = [load_result(path) for path in paths.values()]
    return sorted(results, key=attrgetter("spec.n_memory", "spec.n_states", "spec.seed"))


def lacking_measurements(result: TrialResult, names: Iterable[str]) -> list[str]:
    """Return those of the names of further measurements that a result lacks."""
    return [name for name in names if name not in result.added]


def unmeasured(result: TrialResult) -> list[str]:
    """Return the names of further measurements that every trial makes by now, and that a result lacks."""
    names = measured_names().difference(ORIGINAL, names_on_request())
    return lacking_measurements(result, sorted(names))


def is_stored(spec: TrialSpec, store: Store = PROJECT, also: Iterable[str] = ()) -> bool:
    """Whether the result of a spec is stored and has these further measurements.

    Raises:
        ValueError: the file that is there is no result.

    Example:
        >>> is_stored(TrialSpec("smoke", n_states=4, seed=10**9))
        False
    """
    path = result_path(spec, store)
    if not os.path.lexists(path):
        return False
    return not lacking_measurements(load_result(path), also)
