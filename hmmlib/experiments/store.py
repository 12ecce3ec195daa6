"""The result store: one small JSON file a trial, `STORE/PRESET/HASH.json`, where HASH is that of the spec.

Files are written under a temporary name and renamed, so that no half-written one is ever read as a result. Figures read
these files and never train.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal, NotRequired, get_type_hints

from filelock import FileLock, Timeout
from pydantic import Field

from hmmlib.experiments.labels import REDRAWS
from hmmlib.experiments.measurements import MEASUREMENTS
from hmmlib.experiments.movement import ON_REQUEST
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.provenance import added_elsewhere, has_changed
from hmmlib.experiments.specs import Anything, Day, Hexadecimal, Line, Size, Text, TrialSpec, as_type, checked
from hmmlib.experiments.trials import ORIGINAL, TrialResult, trial_seeds
from hmmlib.files import parse_json, write_whole
from hmmlib.validation import of_type, one_of

FORMAT = 2
ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "results"
"""Where the committed results lie in a checkout of the project."""
PACKAGED = "hmmlib/results"
"""Where they lie beside what is installed, of which they are part."""
TYPES = get_type_hints(TrialResult, include_extras=True)
del TYPES["spec"], TYPES["added"]
"""The type of each field that every result's file has under its name."""
TABLES = dict.fromkeys(("spec", "seeds", "seconds", "environment"), dict)
FILE = as_type({"format": Literal[FORMAT]} | dict.fromkeys(TYPES, object) | TABLES, extra="allow")
"""What is checked of a file that is read. Of its numbers no more: `save_result` has done it."""
NOTED = dict.fromkeys(("device", "python", "torch", "transformers"), Text) | {
    "precision": Literal["float32", "float16", "bfloat16"],
    "machine": Line,
    "threads": Size,
    "commit": Text | None,
    "hmmlib": NotRequired[Text],
    "library": NotRequired[Hexadecimal],
    "date": NotRequired[Day],
}
ENVIRONMENT = as_type(NOTED, extra="allow")
"""What results have in their environment, and the type of each; the oldest results lack the last three."""
ADDED_BY = tuple[Day, Annotated[str, Field(pattern=r"^commit \S+, library [0-9a-f]{16}$")]]
"""The parts of what an environment has of each measurement that was added later."""
CHANCE = 20
"""Nats: a network is better than the best by that much, summed over the sequences that both are judged by, with a
probability below e^-20. For on each, the mean of log q/p over what is masked has an exponential of mean 1 at most."""
SUMS = 1e-9
"""How far rounding may take a sum of shares from what it should be."""


Store = str | Path | tuple[Path, ...]
"""A folder that results are written to; of several, the first, and results are looked for in all, in their order."""


def _of_project() -> tuple[Path, ...]:
    """The user's own folder, which HMMLIB_MINE may name, then the project's.

    In a checkout those are mine/results, which git ignores, and the committed results. What is installed may be
    replaced, so there it is the system's place for a user's data, then the results that came with it. Beside a copied
    folder `hmmlib` it is `results`.
    """
    named = os.environ.get("HMMLIB_MINE")
    if any(ROOT.glob("hmmlib-*.dist-info")):
        from platformdirs import user_data_path  # what is installed has it

        return Path(named or user_data_path("hmmlib", appauthor=False) / "results"), ROOT / PACKAGED
    if named or (ROOT / "pyproject.toml").is_file():
        return Path(named or ROOT / "mine" / "results"), STORE
    return (STORE,)


PROJECT = _of_project()
"""Where results are written and looked for when no store is named."""
BEYOND, CHOICES, REFITS = (tuple(folder / name for folder in PROJECT) for name in ("beyond", "choices", "refits"))
"""The same for trials of networks from another machine, for those by which settings were chosen, on other seeds, and
for the paper's chains with later fits."""


def as_store(store: Store) -> tuple[Path, ...]:
    """The folders of a store, whether they exist or not, with absolute paths, which no change of the folder moves.

    TypeError for what is no path, ValueError for an empty one, NotADirectoryError where a folder is something else.
    """
    folders = store if isinstance(store, tuple) else (store,)
    for folder in folders:
        if of_type("store", folder, str, os.PathLike) == "":  # Path("") would be the folder that one happens to be in
            raise ValueError("store must name a folder, not ''")
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise NotADirectoryError(f"store must be a folder, or not yet there; {folder} is something else")
    return tuple(Path(folder).absolute() for folder in folders)


def _folder(spec: TrialSpec, store: Store) -> Path:
    """Where results of a spec's preset are written."""
    return as_store(store)[0] / of_type("spec", spec, TrialSpec).preset


def result_path(spec: TrialSpec, store: Store = PROJECT) -> Path:
    """Where the result of a spec lies, or would be written."""
    name = f"{of_type('spec', spec, TrialSpec).preset}/{spec.hash}.json"
    paths = [folder / name for folder in as_store(store)]
    return next(filter(os.path.lexists, paths), paths[0])


def checkpoint_path(spec: TrialSpec, store: Store = PROJECT) -> Path:
    """Where an unfinished trial keeps its network."""
    return _folder(spec, store) / ".unfinished" / f"{spec.hash}.safetensors"


def save_result(result: TrialResult, store: Store = PROJECT) -> Path:
    """Write a result, whole or not at all: OSError, which names the file, where it cannot be written.

    ValueError where it has what no trial gives, such as an infinite loss.
    """
    spec = of_type("result", result, TrialResult).spec
    try:
        check_result(result)
    except ValueError as error:
        raise ValueError(f"a result that cannot be stored: {error}") from error
    content = {"format": FORMAT, **vars(result), "spec": spec.content()}
    content |= content.pop("added")
    return write_whole(_folder(spec, store) / f"{spec.hash}.json", json.dumps(content, indent=1) + "\n")


def check_result(result: TrialResult) -> None:
    """ValueError where no trial could give such a result; it names the field, what was found and what is accepted."""
    for name, field_type in TYPES.items():
        checked(name, field_type, getattr(result, name))
    measured, phases = {name: one for one in MEASUREMENTS for name in one.names}, {"pretraining"}
    for name, value in ({name: getattr(result, name) for name in ORIGINAL} | result.added).items():
        one = measured.get(name)
        if one is None:
            checked(name, Anything, value)
        elif not one.has(result.spec):
            checked(name, None, value)
        else:
            phases.add(one.phase)
            if name in result.added:
                checked(name, one.kinds[name], value)
            elif value is None and not name.startswith(("built_", "ladder_prompt")):
                raise ValueError(f"{name} must be there for such a trial, not None")
    checked("environment", dict[Line, Line | int | None], result.environment)
    checked("environment", ENVIRONMENT, result.environment)
    for name, value in result.environment.items():
        if name.endswith(" measured"):
            checked(f"environment.{name}", ADDED_BY, tuple(str(value).split(", ", 1)))
    for true, otherwise in _what_must_hold(result, phases):
        if not true:
            raise ValueError(otherwise)


def _what_must_hold(result: TrialResult, phases: set[str]) -> Iterator[tuple[bool, str]]:
    """What numbers of a result have to do with each other: whether it is so, and what is wrong otherwise.

    Of losses on the same text, nothing is better than the best, nor the best worse than a guess, but by luck.
    """
    spec, best, found = result.spec, result.best_loss, result.seconds.keys()
    yield phases <= found, f"seconds lacks {', '.join(sorted(phases - found))}"
    later = {name.removesuffix(" measured") for name in result.environment if name.endswith(" measured")}
    yield later <= result.added.keys(), f"environment has {', '.join(later)} measured, which are not there"
    for name in () if spec.own else ("majority_rate", *(name for name in ORIGINAL if name.endswith("_accuracy"))):
        n = spec.validation if name.startswith("validation_") else spec.test
        share = getattr(result, name) or 0.0
        yield abs(share - round(share * n) / n) <= SUMS, f"{name} must be a multiple of one of {n}, not {share}"
    yield result.majority_rate >= 0.5, f"majority_rate must be 0.5 to 1, not {result.majority_rate}"
    yield result.redraws <= REDRAWS or spec.own, f"redraws must be at most {REDRAWS}, not {result.redraws}"
    seeds = trial_seeds(spec.seed)
    yield result.seeds == seeds, f"seeds must be {seeds}, as seed {spec.seed} gives them, not {result.seeds}"
    most = min(result.network_loss, math.inf if spec.own else math.log(spec.n_tokens)) + CHANCE / spec.evaluation
    yield best <= most, f"best_loss must be at most network_loss and log n_tokens, or by chance {most}, not {best}"
    if kinds := result.text_kinds:
        for one, other in (("near tie", "clear"), ("weighed", "not weighed"), ("certain", "spread")):
            share, least = kinds[one] + kinds[other], 0 if one == "certain" else 1
            fits = least - SUMS <= share <= 1 + SUMS
            yield fits, f"text_kinds: {one} and {other} must be {least} to 1 together, not {share}"
    if rows := result.accuracies_by_kind:  # up to two examples: the head is tuned again, rounded otherwise
        for who, accuracy in (("head", result.head_accuracy), ("prompt", result.prompt_accuracy)):
            fits = abs(rows[who]["all"] - accuracy) <= 2 / spec.test + SUMS
            yield fits, f"accuracies_by_kind.{who}.all must be {accuracy}, as {who}_accuracy, not {rows[who]['all']}"
    for name, row in (result.certified or {}).items():
        wrong, most = row["certified but wrong"], min(row["certified"], 1 - row["right"])
        yield wrong <= most + SUMS, f"certified.{name}: certified but wrong must be at most {most}, not {wrong}"
    if votes := result.votes:
        yield votes["weighed"] > 0, "votes: weighed must be 1 or more, as μ is not zero"
        for name in (name for name in votes if f"{name}, right" in votes):
            yield votes[f"{name}, right"] <= votes[name], f"votes: {name}, right must be at most {votes[name]}"


def load_result(path: Path) -> TrialResult:
    """Read one result. ValueError, naming the file, where it is no JSON, of another format, incomplete or misnamed."""
    path = Path(path)
    try:
        if os.path.lexists(path) and not path.is_file():  # a pipe, say, would never end
            raise ValueError("it is no regular file")
        content = checked("file", FILE, parse_json(path.read_bytes()))
        given = content.pop("spec")
        spec = TrialSpec(**given)
        if lacks := dict(spec.content().items() - given.items()):
            raise ValueError(f"its spec lacks {lacks}")
        if (folder := path.absolute().parent.name) != spec.preset:
            raise ValueError(f"its preset is {spec.preset}, not that of its folder, {folder}")
        if spec.hash != path.stem:
            raise ValueError(f"its spec hashes to {spec.hash}, so it was edited or renamed")
    except (ValueError, TypeError) as error:  # TypeError for a field that TrialSpec does not have
        raise ValueError(f"{path} is no readable result: {error}") from error
    added = {name: value for name, value in content.items() if name not in ("format", *TYPES)}
    return TrialResult(spec=spec, **{name: content[name] for name in TYPES}, added=added)


def load_results(preset: str, store: Store = PROJECT) -> list[TrialResult]:
    """All stored results of a preset, ordered by memory values, hidden states, then seed; `results` has their table.

    Of several folders the first one's file counts. ValueError for an unknown preset, or a file that is no result;
    FileNotFoundError for a single folder that is not there.
    """
    one_of("preset", preset, PRESETS)
    if not isinstance(store, tuple) and not as_store(store)[0].exists():
        raise FileNotFoundError(f"store must be a folder with results, and there is no {store}")
    folders = as_store(tuple(folder / preset for folder in as_store(store)))
    files = {path.name: path for folder in reversed(folders) for path in sorted(folder.glob("[0-9a-f]*.json"))}
    return sorted(map(load_result, files.values()), key=attrgetter("spec.n_memory", "spec.n_states", "spec.seed"))


def stored_and_lacking(
    spec: TrialSpec, store: Store = PROJECT, rerun: bool = False, also: Collection[str] = ()
) -> tuple[TrialResult | None, list[str]]:
    """The stored result of a spec, and which of the measurements that are `also` asked for it lacks.

    With `rerun` a result counts only if the library is known not to have changed since, and a measurement that another
    state of the library has added counts as lacking; what a result had that no longer counts is asked for again.

    ValueError, naming the file, where what is there is no result.
    """
    path = result_path(spec, store)
    if not os.path.lexists(path):
        return None, list(also)
    result = load_result(path)
    if rerun and has_changed(result) is not False:
        return None, list(dict.fromkeys([*also, *(name for name in result.added if name in ON_REQUEST)]))
    return result, [name for name in also if name not in result.added or (rerun and added_elsewhere(result, name))]


def is_stored(spec: TrialSpec, store: Store = PROJECT, rerun: bool = False, also: Collection[str] = ()) -> bool:
    """Whether the result of a spec is there and lacks nothing, as `stored_and_lacking` has it."""
    result, lacking = stored_and_lacking(spec, store, rerun, also)
    return result is not None and not lacking


class Claim(FileLock):
    """The right to run a spec, held by one process at a time on all machines that share the store; a death gives it up.

    Use as `if (claim := Claim.take(spec, store)): …; claim.release()`.
    """

    @classmethod
    def take(
        cls, spec: TrialSpec, store: Store = PROJECT, rerun: bool = False, also: Collection[str] = ()
    ) -> Claim | None:
        """The claim, or None where another process holds it or has finished the spec meanwhile, as `is_stored` says."""
        folder = _folder(spec, store) / ".claims"
        folder.mkdir(parents=True, exist_ok=True)
        claim = cls(folder / f"{spec.hash}.lock")
        with suppress(Timeout), ExitStack() as given_back:
            given_back.enter_context(claim.acquire(timeout=0))
            if not is_stored(spec, store, rerun, also):
                given_back.pop_all()
                return claim
        return None
