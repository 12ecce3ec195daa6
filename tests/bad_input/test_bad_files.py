"""Bad files, parameters and calls of the command line: a clear error each time, the right exit code, and nothing is lost.

test_store.py, test_checkpoints.py, test_parameters.py and test_command_line.py have more of each.
"""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_origin

import pytest
import torch
from companion import pages, parameters
from companion.evidence import ledger
from good_calls import result
from record import tried
from safetensors.torch import save_file

from hmmlib.experiments import store
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
SPEC = TrialSpec("smoke")
NAME = f"{SPEC.hash}.json"


class FileCase(NamedTuple):
    """A call on what `make` leaves in an empty folder; what it answers are the arguments. `words` are in the message."""

    of: Callable
    what: str
    make: Callable[[Path], tuple]
    words: tuple[str, ...]
    error: type[Exception] = ValueError

    def __str__(self) -> str:
        return f"{self.of.__qualname__}: {self.what}"


def file(content: bytes | str, name: str = NAME) -> Callable[[Path], Path]:
    """A file in the folder of the preset."""

    def make(tmp: Path) -> Path:
        path = tmp / "smoke" / name
        path.parent.mkdir()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def folder(name: str = NAME) -> Callable[[Path], Path]:
    """A folder with something in it, in place of a file."""

    def make(tmp: Path) -> Path:
        path = tmp / "smoke" / name
        path.mkdir(parents=True)
        (path / "kept").write_text("mine")
        return path

    return make


def link_to_itself(tmp: Path) -> Path:
    """What nobody can read, not even root."""
    path = tmp / "smoke" / NAME
    path.parent.mkdir()
    path.symlink_to(path)
    return path


def link_to_nowhere(tmp: Path) -> Path:
    """Such as one to a disk that is not there now."""
    path = tmp / "smoke" / NAME
    path.parent.mkdir()
    path.symlink_to(tmp / "elsewhere" / NAME)
    return path


def below_a_file(tmp: Path) -> Path:
    (tmp / "store").write_text("mine")
    return tmp / "store" / "smoke" / NAME


def edited(**changes) -> Callable[[Path], Path]:
    """A stored result whose spec says something else."""

    def make(tmp: Path) -> Path:
        content = json.loads(store.result_path(SPEC_OF_RESULT).read_text())
        return file(json.dumps({**content, "spec": {**content["spec"], **changes}}))(tmp)

    return make


SPEC_OF_RESULT = store.load_results("smoke")[0].spec
UNREADABLE = "is no readable result"
IN_PLACE_OF_A_RESULT = [
    ("a folder", folder(), (NAME, "Is a directory"), IsADirectoryError),
    ("a link to nowhere", link_to_nowhere, (NAME, UNREADABLE, "it is a link to", "elsewhere", "nothing can be read")),
    ("bytes", file(b"\x80\x02}q\x00."), (NAME, UNREADABLE, "no UTF-8")),
    ("zeros", file(b"\0" * 4096), (NAME, UNREADABLE, "Expecting value")),
    ("UTF-16", file("{}".encode("utf-16")), (NAME, UNREADABLE, "no UTF-8")),
    ("a pickle", file(b"cos\nsystem\n(S'touch here'\ntR."), (NAME, UNREADABLE, "Expecting value")),
    ("many brackets", file("[" * 100_000), (NAME, UNREADABLE, "nested too deeply")),
    ("null", file("null"), (NAME, UNREADABLE, "NoneType")),
    ("a word", file('"format"'), (NAME, UNREADABLE, "str")),
    ("a format in words", file('{"format": "2"}'), (NAME, UNREADABLE, "its format is '2'", "reads 2")),
    ("an infinite format", file('{"format": 1e999}'), (NAME, UNREADABLE, "its format is inf", "reads 2")),
    ("a preset that is none", edited(preset="huge"), (NAME, UNREADABLE, "'huge'", ", ".join(PRESETS))),
    ("a preset in a list", edited(preset=["smoke"]), (NAME, UNREADABLE, "['smoke']", ", ".join(PRESETS))),
    (
        "a rate that no float holds",
        edited(head_rate=10**400),
        (NAME, UNREADABLE, "head_rate must be positive and at most 1e+30"),
    ),
    ("a field of a later version", edited(rounds=3), (NAME, UNREADABLE, "rounds")),
]


def with_store(make: Callable[[Path], Path], *before) -> Callable[[Path], tuple]:
    """For calls that take the store, not the file."""
    return lambda tmp: (make(tmp), (*before, tmp))[1]


def at(make: Callable[[Path], Path], *after) -> Callable[[Path], tuple]:
    """For calls that take the file itself."""
    return lambda tmp: (make(tmp), *after)


NOTES = file("mine", "notes.txt")
NO_CHECKPOINT = [
    ("another kind of file", NOTES, ("checkpoint must be a file *.safetensors", "notes.txt")),
    (
        "a folder",
        folder("run.safetensors"),
        ("checkpoint must be a file *.safetensors", "the folder", "run.safetensors"),
    ),
    (
        "below a file",
        lambda tmp: file("mine", "notes")(tmp) / "run.safetensors",
        ("checkpoint must lie in a folder", "notes"),
    ),
]
TENSORS = {"w": torch.ones(2)}


def weights_of_another(tmp: Path) -> Path:
    """A whole safetensors file that another program has written."""
    save_file(TENSORS, tmp / "run.safetensors", {"format": "pt"})
    return tmp / "run.safetensors"


FILE_CASES = [
    *(FileCase(store.load_result, what, at(make), *rest) for what, make, *rest in IN_PLACE_OF_A_RESULT),
    *(
        FileCase(store.load_results, what, with_store(make, "smoke"), *rest)
        for what, make, *rest in IN_PLACE_OF_A_RESULT
    ),
    *(FileCase(store.is_stored, what, with_store(make, SPEC), *rest) for what, make, *rest in IN_PLACE_OF_A_RESULT),
    FileCase(store.load_result, "a link to itself", at(link_to_itself), (NAME, UNREADABLE, "it is a link to")),
    FileCase(store.load_result, "nothing", lambda tmp: (tmp / NAME,), (NAME, "No such file"), FileNotFoundError),
    FileCase(store.load_result, "below a file", at(below_a_file), (NAME, "Not a directory"), NotADirectoryError),
    FileCase(
        store.save_result, "below a file", lambda tmp: (result(), below_a_file(tmp).parents[1]), ("store",), OSError
    ),
    FileCase(
        store.save_result, "no result", lambda tmp: ({}, tmp), ("result must be", "TrialResult", "dict"), TypeError
    ),
    FileCase(store.load_results, "no name", lambda tmp: ("smoke", ""), ("store must name a folder", "''")),
    FileCase(store.Claim.take, "bytes", with_store(file(b"\xff"), SPEC), (NAME, UNREADABLE)),
    FileCase(store.Claim.take, "no spec", lambda tmp: ("smoke", tmp), ("spec must be", "TrialSpec", "str"), TypeError),
    FileCase(pages.write_ledger, "a folder", at(folder(), [], 1, 0), (NAME, "Is a directory"), OSError),
    FileCase(ledger.run_all, "no instances", lambda tmp: (0, 0), ("instances must be", "1 or more", "0")),
    FileCase(ledger.run_all, "no workers", lambda tmp: (1, 0, 0), ("workers must be", "1 or more", "0")),
    FileCase(run_trial, "no spec", lambda tmp: ("smoke", None, "cpu"), ("spec must be", "TrialSpec", "str"), TypeError),
    FileCase(
        run_trial, "no such device", lambda tmp: (SPEC, None, "cuda:99"), ("'cuda:99' is not on this machine", "cpu")
    ),
    *(FileCase(checkpoints.load, what, at(make, {}), words) for what, make, words in NO_CHECKPOINT),
    FileCase(
        checkpoints.load,
        "weights of another network",
        at(weights_of_another, {}),
        ("run.safetensors is no checkpoint that hmmlib has written, and is left as it is", "move it away"),
    ),
    *(FileCase(checkpoints.save, what, at(make, TENSORS, {}), words) for what, make, words in NO_CHECKPOINT),
    *(FileCase(checkpoints.remove, what, at(make), words) for what, make, words in NO_CHECKPOINT),
    *(
        FileCase(run_trial, what, lambda tmp, make=make: (SPEC, None, "cpu", make(tmp)), words)
        for what, make, words in NO_CHECKPOINT
    ),
    FileCase(checkpoints.load, "no path", lambda tmp: (3, {}), ("checkpoint must be", "*.safetensors", "3"), TypeError),
]


def contents(tmp: Path) -> dict:
    """Everything in a folder, hidden files of claims aside."""
    found = (path for path in tmp.rglob("*") if ".claims" not in path.parts)
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else path.is_dir()
        for path in found
    }


@tried("files and folders")
@pytest.mark.parametrize("case", FILE_CASES, ids=map(str, FILE_CASES))
def test_a_bad_file_is_named_and_left_as_it_is(case, tmp_path):
    arguments = case.make(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(case.error) as caught:
        case.of(*arguments)
    assert isinstance(caught.value, (ValueError, TypeError, OSError))
    assert all(word in str(caught.value) for word in case.words), caught.value
    assert contents(tmp_path) == before


# Parameters of notebooks


class ParameterCase(NamedTuple):
    """A value that a parameter of a kind does not take; what is accepted and what was found, as the message says it."""

    kind: str
    value: object
    accepted: str
    found: str = ""  # the value itself if left out
    of: Callable = parameters.check


NAN, INF = math.nan, math.inf
PARAMETER_CASES = [
    *(ParameterCase("Seed", bad, "valid integer") for bad in (None, "", "7.5", [7], {}, 0.5, "seven")),
    *(ParameterCase(kind, True, "must be a number") for kind in ("Seed", "Count", "Size", "Positive", "Length")),
    ParameterCase("Seed", 2**63, f"less than {2**63}"),
    ParameterCase("Count", -1, "greater than or equal to 0"),
    ParameterCase("Count", NAN, "finite number"),
    ParameterCase("Size", 0, "greater than or equal to 1"),
    ParameterCase("Sizes", "4, 30", "valid list"),
    ParameterCase("Sizes", "[" * 100_000, "valid list"),
    ParameterCase("Sizes", "{}", "valid list", "{}"),
    ParameterCase("Sizes", [[4]], "valid integer", "[4]"),
    ParameterCase("Sizes", "[4, null]", "valid integer", "None"),
    ParameterCase("Positive", 0, "greater than 0"),
    ParameterCase("Positive", INF, "finite number"),
    ParameterCase("Positive", "nan", "finite number"),
    ParameterCase("Positive", "fast", "valid number"),
    ParameterCase("PositiveOrZero", -1e-9, "greater than or equal to 0"),
    ParameterCase("PositiveOrZero", NAN, "finite number"),
    ParameterCase("Length", -2, "greater than or equal to -1"),
    ParameterCase("Length", 51, "less than or equal to 50"),
    *(
        ParameterCase("Device", bad, "(auto|cpu|mps|cuda")
        for bad in ("quantum", "cuda:", "cuda:x", "cpu\n", "CUDA", "")
    ),
    *(ParameterCase("Device", bad, "valid string") for bad in (None, 0, ["cpu"])),
    *(ParameterCase("Preset", bad, "'smoke', 'quick', 'laptop'") for bad in ("huge", "Smoke", "", None, 3, ["smoke"])),
    ParameterCase("Seed", "__import__('os').mkdir('made')", "valid integer"),
    ParameterCase("Sizes", "[__import__('os').mkdir('made')]", "valid list"),
]


@tried("parameters of notebooks")
@pytest.mark.parametrize("case", PARAMETER_CASES, ids=lambda case: f"{case.kind}-{str(case.value)[:20]!r}")
def test_a_bad_parameter_is_named_with_what_is_accepted_and_changes_nothing(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"In": ["", "# Parameters: change them here\nmine = 0\nother = 1"], "mine": case.value, "other": "7"}
    before = dict(namespace)
    with pytest.raises(parameters.ParameterError) as caught:
        parameters.check(namespace, mine=getattr(parameters, case.kind), other=parameters.Seed)
    message = str(caught.value)
    assert "parameter 'mine" in message
    assert case.accepted in message
    assert f"not {case.found or repr(case.value)[:20]}" in message
    assert namespace.items() >= before.items(), "not even the good one is converted"
    assert list(tmp_path.iterdir()) == []


def test_each_kind_of_parameter_has_a_case():
    kinds = {name for name, kind in vars(parameters).items() if get_origin(kind) in (Annotated, Literal)}
    assert kinds == {case.kind for case in PARAMETER_CASES}


BAD_YAML = {
    "an object of Python": ("seed: !!python/object/apply:os.mkdir [made]", "could not determine a constructor"),
    "cut short": ("seed: [1, 2", "expected ',' or ']'"),
    "bytes": (b"\x80\x04\x95", "can't decode byte 0x80"),
    "tabs": ("seed:\n\t- 1", "cannot start any token"),
}


def run_papermill(tmp_path: Path, *arguments: str, notebook: str = "5-0-exact-ladder") -> subprocess.CompletedProcess:
    pytest.importorskip("papermill")
    call = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        str(ROOT / "notebooks" / f"{notebook}.ipynb"),
        "out.ipynb",
    ]
    return subprocess.run([*call, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)


@tried("files and folders")
@pytest.mark.parametrize("how", BAD_YAML)
def test_a_parameter_file_that_is_none_runs_nothing(how, tmp_path):
    content, message = BAD_YAML[how]
    path = tmp_path / "mine.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run_papermill(tmp_path, "-f", "mine.yaml")
    assert done.returncode != 0
    assert re.search("(?s)" + message, done.stderr)
    assert list(tmp_path.iterdir()) == [path]


@tried("parameters of notebooks")
def test_a_parameter_file_with_unknown_and_impossible_values_names_them_all(tmp_path):
    notebook = ROOT / "notebooks" / "5-0-exact-ladder.ipynb"
    before = notebook.read_bytes()
    (tmp_path / "mine.yaml").write_text("presett: smoke\nseed: -1\npreset: [smoke]\n")
    done = run_papermill(tmp_path, "-f", "mine.yaml")
    assert done.returncode == 1
    for said in ("unknown parameter 'presett': did you mean 'preset'", "parameter 'seed'", "-1", "'smoke', 'quick'"):
        assert said in done.stderr
    assert notebook.read_bytes() == before
