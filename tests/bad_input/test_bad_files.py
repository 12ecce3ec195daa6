"""Bad files, and outputs that cannot be written: an error that names the file, and everything is left as it was."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import one_line, usage_error
from record import tried
from safetensors.torch import save_file

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import load_results, save_result
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

STORED = load_results("smoke")[0]


def contents(folder: Path) -> dict:
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*") if not path.is_fifo()}


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


@pytest.mark.outside
@tried("files and folders")
def test_a_parameter_file_with_an_object_of_python_runs_nothing(tmp_path):
    (tmp_path / "mine.yaml").write_text("seed: !!python/object/apply:os.mkdir [made]")
    notebook = Path(__file__).resolve().parents[2] / "notebooks" / "5-1-pretraining.ipynb"
    call = [sys.executable, "-m", "papermill", "--no-progress-bar", str(notebook), str(tmp_path / "out.ipynb")]
    done = subprocess.run([*call, "-f", "mine.yaml"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert "could not determine a constructor" in done.stderr
    assert not (tmp_path / "made").exists()
