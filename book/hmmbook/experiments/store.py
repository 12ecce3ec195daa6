"""Store results: one small JSON file for each trial, `STORE/PRESET/HASH.json`, where HASH is that of the spec.

A file is written under a temporary name and then renamed, so that nobody ever reads a half-written file as a result.
Two processes may work on one store. Figures read these files and never train.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

from pydantic import AfterValidator, Field
from pydantic_core import from_json

from hmmbook.experiments.fields import Size, Text, as_type, checked, storable
from hmmbook.experiments.measurements import MEASUREMENTS, check_name, measured_names, names_on_request
from hmmbook.experiments.presets import PRESETS
from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.trials import ORIGINAL, TrialResult
from hmmbook.files import absolute, write_whole
from hmmlib.training import checkpoints
from hmmlib.validation import of_type, one_of

FORMAT = 2
"""The number of the file format."""
PACKAGES = Path(__file__).resolve().parents[2]
"""The folder in which `hmmbook` lies, which is `book` in a checkout, and else that of installed packages."""
ROOT = PACKAGES.parent
"""The project's folder in a checkout."""
STORE = ROOT / "results"
"""Where the committed results lie in a checkout."""

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
"""The type of a result's environment. The oldest results have no `hmmlib` and no `date`."""
TYPES: dict[str, Any] = get_type_hints(TrialResult, include_extras=True)
"""The type of each entry that every result's file has under its name."""
TYPES.pop("spec")
TYPES.pop("added")
TYPES["environment"] = ENVIRONMENT
FILE = as_type({"format": Literal[FORMAT], "spec": dict} | TYPES, extra="allow")
"""The type of a file's content."""

Store = str | Path | tuple[Path, ...]
"""A folder of results, or several. Results are written to the first folder, and looked for in all, in their order."""


def _project_store() -> tuple[Path, ...]:
    """Return the folder for the user's own results, and the folder of the project's results.

    The variable HMMBOOK_MINE of the environment can name the user's folder, relative to the working directory. Without
    it, a checkout uses mine/results, which git ignores. An installed package uses the system's place for a user's data,
    because its own folder may be replaced at any time.
    """
    named = os.environ.get("HMMBOOK_MINE", "").strip()
    installed = any(PACKAGES.glob("hmmlib-*.dist-info"))
    if installed:
        from platformdirs import user_data_path  # only the installed package needs it

        mine = named or user_data_path("hmmlib", appauthor=False) / "results"
        return absolute(mine), PACKAGES / "hmmbook" / "results"
    return absolute(named or ROOT / "mine" / "results"), STORE


PROJECT = _project_store()
"""Where results are written and looked for when no store is named."""


def _part_of_project(name: str) -> tuple[Path, ...]:
    return tuple(folder / name for folder in PROJECT)


BEYOND = _part_of_project("beyond")
"""The same folders for trials beyond the paper, with other networks or other tasks."""
CHOICES = _part_of_project("choices")
"""The same folders for the trials by which settings were chosen. They have other seeds."""
REFITS = _part_of_project("refits")
"""The same folders for trials on the paper's chains with fits that were made later."""


def as_store(store: Store) -> tuple[Path, ...]:
    """Return the folders of a store, whether they exist or not, as absolute paths.

    Raises:
        TypeError: a folder is not given as a path.
        ValueError: a folder is "", or no folder is given.
        NotADirectoryError: the path of a folder leads to something else, for example a file.
    """
    if store == ():
        raise ValueError("store must name at least one folder, not ()")
    folders = []
    for named in store if isinstance(store, tuple) else (store,):
        if of_type("store", named, str, os.PathLike) == "":
            raise ValueError("store must name a folder, not ''")  # Path("") would be the working directory
        folder = absolute(named)
        if os.path.lexists(folder) and not folder.is_dir():
            raise NotADirectoryError(f"store must be a folder, or not yet there, but {folder} is something else")
        folders.append(folder)
    return tuple(folders)


def result_path(spec: TrialSpec, store: Store = PROJECT) -> Path:
    """Return where the result of a spec lies, or where it would be written if it is not stored.

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
    content = file_content(result)
    spec = result.spec
    path = as_store(store)[0] / spec.preset / f"{spec.hash}.json"
    return write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def file_content(result: TrialResult) -> dict[str, Any]:
    """Return what the file of a result holds.

    Raises:
        ValueError: a number of the result has the wrong type or range, or a JSON file cannot hold it. The message names
            it.
    """
    of_type("result", result, TrialResult)
    content = {"format": FORMAT, "spec": result.spec.content()}
    try:
        for name, field_type in TYPES.items():
            content[name] = storable(name, field_type, getattr(result, name))
        content |= further_numbers(result.spec, result.added)
    except ValueError as error:
        raise ValueError(f"this result cannot be stored: {error}") from error
    return content


def further_numbers(spec: TrialSpec, added: dict[str, Any]) -> dict[str, Any]:
    """Return the further numbers of a result as its file has them.

    If a measurement is registered in this process, its numbers must have the types that it declares. Other numbers are
    accepted too, because another process may have registered a measurement of a reader's own.

    Args:
        spec: the spec of the result.
        added: the further numbers by name.

    Raises:
        ValueError: a number has the wrong type, or a name that no measurement can have. The message names it.
    """
    kinds = {}
    for measurement in MEASUREMENTS:
        if measurement.exists_for(spec):
            kinds |= measurement.kinds
        else:
            kinds |= dict.fromkeys(measurement.names, None)
    numbers = {}
    for name, value in added.items():
        check_name(name)
        numbers[name] = storable(name, kinds.get(name, Any), value)
    return numbers


def store_safely(result: TrialResult, store: Store) -> Path:
    """Store a result, and then delete its checkpoint.

    Another process may meanwhile have stored a result of the same network with other further measurements. Those stay.

    Returns:
        The path of the file.

    Raises:
        OSError: the result cannot be stored here. It is then kept in a temporary folder, and the message says where.
        ValueError: a number of the result cannot be stored anywhere. The message names it.
    """
    file_content(result)
    try:
        path = save_result(with_stored_measurements(result, store), store)
    except (OSError, ValueError) as error:
        raise OSError(f"{error}. {rescue(result)}") from error
    with suppress(OSError):  # the result is stored, so the sweep must not fail for a file that stays
        checkpoints.remove(checkpoint_path(result.spec, store))
    return path


def rescue(result: TrialResult) -> str:
    """Keep a result that its store cannot take, and return a sentence that says where it is."""
    try:
        folder = tempfile.mkdtemp(prefix="hmmbook-rescued-")  # A folder of a known name might be another user's.
        path = save_result(result, folder)
    except OSError as error:
        return f"The finished result could not be kept elsewhere either: {error}"
    return f"The finished result is kept in {path}"


def with_stored_measurements(result: TrialResult, store: Store) -> TrialResult:
    """Return a result together with the further numbers that its file has by now.

    If the file is of another network, its numbers are left out.
    """
    path = result_path(result.spec, store)
    if not path.exists():
        return result
    stored = load_result(path)
    if stored.backbone != result.backbone:
        return result
    return dataclasses.replace(
        result,
        added=stored.added | result.added,
        seconds=stored.seconds | result.seconds,
        environment=stored.environment | result.environment,
    )


def load_result(path: Path) -> TrialResult:
    """Read one result.

    Args:
        path: the file.

    Raises:
        ValueError: the file holds no JSON, is incomplete or of another format, has the name of another spec, or has a
            number that `save_result` would not write. The message names the file.
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
    """Return the result that a file's content stands for."""
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
    numbers = {name: storable(name, field_type, content.pop(name)) for name, field_type in TYPES.items()}
    return TrialResult(spec=spec, **numbers, added=further_numbers(spec, content))


def load_results(preset: str, store: Store = PROJECT) -> list[TrialResult]:
    """Read all stored results of a preset, ordered by memory values, hidden states, then seed.

    If several folders of the store have a result of the same spec, that in the first of them counts.

    Raises:
        ValueError: the preset is unknown, or a file is no result.
        FileNotFoundError: the store is a single folder, which is not there.
    """
    one_of("preset", preset, PRESETS)
    folders = as_store(store)
    if len(folders) == 1 and not folders[0].exists():
        raise FileNotFoundError(f"store must be a folder with results, but there is no {folders[0]}")
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted((folder / preset).glob("[0-9a-f]*.json")):
            paths.setdefault(path.name, path)
    results = [load_result(path) for path in paths.values()]
    return sorted(results, key=attrgetter("spec.n_memory", "spec.n_states", "spec.seed"))


def lacking_measurements(result: TrialResult, names: Iterable[str]) -> list[str]:
    """Return which of these names of further measurements a result lacks."""
    return [name for name in names if name not in result.added]


def unmeasured(result: TrialResult) -> list[str]:
    """Return the further measurements that a result lacks, although every trial makes them by now."""
    names = measured_names().difference(ORIGINAL, names_on_request())
    return lacking_measurements(result, sorted(names))


def is_stored(spec: TrialSpec, store: Store = PROJECT, also: Iterable[str] = ()) -> bool:
    """Tell whether the result of a spec is stored and has certain further measurements.

    Args:
        spec: what fixes the trial.
        store: where the result is looked for.
        also: the names of the further measurements.

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
