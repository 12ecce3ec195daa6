"""Bad files, and outputs that cannot be written: an error that names the file, and everything is left as it was."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import one_line, usage_error
from record import tried
from safetensors.torch import save_file

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import load_result, load_results, result_path, save_result
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

ROOT = Path(__file__).resolve().parents[2]
STORED = load_results("smoke")[0]
NAME = f"{STORED.spec.hash}.json"


def file(content: bytes | str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def with_spec(**changes) -> Callable[[Path], None]:
    """A stored result whose spec says something else."""

    def make(path: Path) -> None:
        content = json.loads(result_path(STORED.spec).read_text())
        path.write_text(json.dumps({**content, "spec": {**content["spec"], **changes}}))

    return make


IN_PLACE_OF_A_RESULT = {
    "a folder": (Path.mkdir, "regular file"),
    "a link to nowhere": (lambda path: path.symlink_to(path.parent / "elsewhere"), "regular file"),
    "a link to itself": (lambda path: path.symlink_to(path), "regular file"),
    "a pipe": (os.mkfifo, "regular file"),
    "nothing in it": (file(""), "Expecting value"),
    "bytes": (file(b"\x80\x02}q\x00."), "utf-8"),
    "UTF-16": (file("{}".encode("utf-16")), "utf-8"),
    "a byte order mark": (file(b"\xef\xbb\xbf{}"), "BOM"),
    "a pickle": (file(b"cos\nsystem\n(S'touch here'\ntR."), "Expecting value"),
    "many brackets": (file("[" * 100_000), "nested"),
    "a name twice": (file('{"format": 2, "format": 2}'), "twice"),
    "NaN": (file('{"format": NaN}'), "NaN"),
    "null": (file("null"), "valid dictionary, not None"),
    "another format": (file('{"format": 1e999}'), "file.format"),
    "a preset that is none": (with_spec(preset="huge"), "'huge'"),
    "a rate that no float holds": (with_spec(head_rate=10**400), "head_rate"),
    "a field of a later version": (with_spec(rounds=3), "rounds"),
    "another number of steps": (with_spec(steps=77), "edited or renamed"),
}


def contents(folder: Path) -> dict:
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*") if not path.is_fifo()}


@tried("files and folders")
@pytest.mark.parametrize("what", IN_PLACE_OF_A_RESULT)
def test_what_lies_in_place_of_a_result_is_named_and_left_as_it_is(what, tmp_path):
    make, word = IN_PLACE_OF_A_RESULT[what]
    path = tmp_path / "smoke" / NAME
    path.parent.mkdir()
    make(path)
    before = contents(tmp_path)
    for read in (lambda: load_result(path), lambda: load_results("smoke", tmp_path)):
        with pytest.raises((ValueError, OSError)) as caught:
            read()
        assert NAME in str(caught.value)
        assert word in str(caught.value)
    assert contents(tmp_path) == before


@tried("files and folders")
def test_a_store_that_is_no_folder_is_named_and_stays(tmp_path):
    (tmp_path / "store").write_text("mine")
    for use in (lambda: save_result(STORED, tmp_path / "store"), lambda: load_results("smoke", tmp_path / "store")):
        with pytest.raises(OSError, match="store"):
            use()
    with pytest.raises(ValueError, match="store must name a folder"):
        load_results("smoke", "")
    assert (tmp_path / "store").read_text() == "mine"


def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path / "notes.txt"


def a_folder(tmp_path: Path) -> Path:
    (tmp_path / "run.safetensors").mkdir()
    return tmp_path / "run.safetensors"


def weights_of_another_program(tmp_path: Path) -> Path:
    save_file({"w": torch.ones(2)}, tmp_path / "run.safetensors", {"format": "pt"})
    return tmp_path / "run.safetensors"


@tried("files and folders")
@pytest.mark.parametrize(
    "make", [notes, a_folder, weights_of_another_program, lambda tmp: notes(tmp) / "run.safetensors"]
)
def test_a_checkpoint_in_the_place_of_something_else_is_refused_before_the_work(make, tmp_path):
    path = make(tmp_path)
    before = contents(tmp_path)
    for use in (lambda: run_trial(TrialSpec("smoke"), None, "cpu", path), lambda: checkpoints.load(path, {})):
        with pytest.raises((ValueError, OSError), match=r"run\.safetensors|notes\.txt"):
            use()
    assert contents(tmp_path) == before


# The ledger's file


@tried("command lines")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--seed -1", "seed"),
        ("--instances all", "--instances"),
        ("--out .", ". is no regular file; name a file"),
        ("--out /dev/null", "/dev/null is no regular file; name a file"),
    ],
)
def test_a_ledger_that_cannot_be_made_is_a_usage_error(words, expected, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usage_error(call("ledger", *words.split()), expected)
    assert not any(tmp_path.iterdir())


def test_a_ledger_that_cannot_be_written_is_one_line_before_the_work(call, tmp_path, monkeypatch):
    monkeypatch.setattr("companion.evidence.ledger.run_all", lambda *_, **__: pytest.fail("the work was begun"))
    one_line(call("ledger", "--instances", 1, "--out", notes(tmp_path) / "ledger.json"), "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


# Parameters from files


BAD_YAML = {
    "an object of Python": ("seed: !!python/object/apply:os.mkdir [made]", "could not determine a constructor"),
    "cut short": ("seed: [1, 2", "expected ',' or ']'"),
    "unknown and impossible values": ("presett: smoke\nseed: -1\n", "(?s)'presett'.*'preset'.*seed"),
}


@pytest.mark.outside
@tried("files and folders")
@pytest.mark.parametrize("how", BAD_YAML)
def test_a_parameter_file_that_is_none_runs_nothing(how, tmp_path):
    content, message = BAD_YAML[how]
    (tmp_path / "mine.yaml").write_text(content)
    notebook = ROOT / "notebooks" / "5-1-pretraining.ipynb"
    call = [sys.executable, "-m", "papermill", "--no-progress-bar", str(notebook), str(tmp_path / "out.ipynb")]
    done = subprocess.run([*call, "-f", "mine.yaml"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert re.search(message, done.stderr)
    assert not (tmp_path / "made").exists()
