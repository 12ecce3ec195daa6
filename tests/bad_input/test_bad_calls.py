"""Bad calls of the command line: exit code 2 for usage and 1 for failure, errors on stderr, tracebacks with --debug only.

test_command_line.py has more.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import one_line, usage_error
from companion.evidence import ledger
from companion.evidence.statements import FAILS, find
from record import slow, tried
from runs import TINY

from hmmlib import __main__ as command_line
from hmmlib.experiments import local
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Store, result_path

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
CHANGES = [part for name, value in TINY.items() if name != "n_states" for part in ("--set", f"{name}={value}")]

USAGE = [
    ("--debugg trial", "No such option", "--debugg"),
    ("--debug", "Missing command"),
    ("trial --debug", "No such option", "--debug"),
    ("trial extra", "unexpected extra argument", "extra"),
    ("trial --n-states", "--n-states", "requires an argument"),
    ("trial --n-states 4.5", "n-states must be an integer of 1 or more", "'4.5'"),
    ("trial --n-states nan", "n-states must be an integer of 1 or more", "'nan'"),
    ("trial --n-memory -3", "n-memory must be an integer of 1 or more", "'-3'"),
    ("trial --seed 1e3", "seed must be an integer of 0 or more", "'1e3'"),
    ("trial --preset Smoke", "preset must be one of smoke, quick", "'Smoke'"),
    ("trial --set =3", "unknown field ''", "steps"),
    ("trial --set zz=3", "unknown field 'zz'", "steps, batch"),
    ("trial --set steps=", "steps must be an integer", "''"),
    ("trial --set steps=7.0", "steps must be an integer", "'7.0'"),
    ("trial --set masked=inf", "masked must be positive and at most 1e+30", "inf"),
    ("trial --set masked=2", "masked must be at most 1", "2"),
    ("trial --set dropout=-1", "dropout must be 0 or more", "-1"),
    ("trial --set dropout=1", "dropout must be below 1", "1.0"),
    ("trial --set task_length=1", "task_length must be 2 or more"),
    ("trial --set length=2", "length must be at least task_length + prompt_length", "2"),
    ("trial --set preset=gpu", "preset has its own option"),
    ("trial --device cpu:7x", "device must be one of auto, cpu, cuda, mps, or cuda:N", "'cpu:7x'"),
    ("trial --max-minutes soon", "max-minutes must be a number", "'soon'"),
    ("trial --max-minutes -inf", "max-minutes must be positive", "-inf"),
    ("trial --panel right --missing --n-memory 2", "a panel has its own --n-states and --n-memory"),
    ("trial --panel right --missing --trials many", "trials must be an integer of 1 or more", "'many'"),
    ("sweep --panel left --cpus nan", "cpus must be a number of 0.01 or more", "'nan'"),
    ("sweep --panel left --cpus all", "cpus must be a number of 0.01 or more", "'all'"),
    ("sweep --panel left --gpus -0.5", "gpus must be a number of 0 or more", "'-0.5'"),
    ("sweep --panel left --address 127.0.0.1", "address must be HOST:PORT or auto", "127.0.0.1"),
    ("sweep --panel left --address http://a:1", "address must be HOST:PORT or auto", "http://a:1"),
    ("info --device cuda:99", "'cuda:99' is not on this machine", "cpu"),
    ("ledger --seed -1", "seed must be an integer of 0 or more", "'-1'"),
    ("ledger --instances all", "instances must be an integer of 1 or more", "'all'"),
    ("ledger --out .", ". is a folder; name a file"),
    ("ledger --out /dev/null", "/dev/null is no regular file; name a file"),
    ("trial --set steps=9 --set steps=4", "--set takes each field once, but steps is there twice"),
    ("trial --set train=100000000000000000000", "train must be at most 2147483647", "100000000000000000000"),
    ("trial --set head_rate=1e300", "head_rate must be positive and at most 1e+30", "1e+300"),
    (f"trial --seed {2**63}", "seed must be at most 2**63 - 1", str(2**63)),
    ("trial --panel left --missing --trials 10001", "trials must be 1 or more, and at most 10000", "10001"),
]


@tried("command lines")
@pytest.mark.parametrize("case", USAGE, ids=lambda case: case[0])
def test_a_call_that_is_none_ends_with_exit_code_2_and_says_why_on_stderr(case, call, tmp_path, monkeypatch):
    words, *said = case
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hmmlib.experiments.store.PROJECT", Store(tmp_path / "mine", (tmp_path / "store",)))
    usage_error(call(*words.split()), *said)
    assert not any(tmp_path.iterdir())


def a_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.write_text("mine")
    return path


def a_link_to_nothing(tmp_path: Path) -> Path:
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "nothing")
    return path


def a_folder_as_result(tmp_path: Path) -> Path:
    path = result_path(TrialSpec("smoke", 3, **{k: v for k, v in TINY.items() if k != "n_states"}), tmp_path)
    path.mkdir(parents=True)
    (path / "mine").write_text("mine")
    return tmp_path


def a_binary_result(tmp_path: Path) -> Path:
    path = result_path(TrialSpec("smoke", 3, **{k: v for k, v in TINY.items() if k != "n_states"}), tmp_path)
    path.parent.mkdir()
    path.write_bytes(b"\x80\x04\x95")
    return tmp_path


FAILURES = [
    (["trial", "--preset", "smoke", "--n-states", 3, *CHANGES, "--store"], a_file, "store must be a folder"),
    (["trial", "--preset", "smoke", "--n-states", 3, *CHANGES, "--store"], a_link_to_nothing, "store must be a folder"),
    (["trial", "--preset", "smoke", "--n-states", 3, *CHANGES, "--store"], a_folder_as_result, "Is a directory"),
    (["trial", "--preset", "smoke", "--n-states", 3, *CHANGES, "--store"], a_binary_result, "is no readable result"),
    (
        ["sweep", "--preset", "smoke", "--panel", "left", "--address", "127.0.0.1:9", "--store"],
        a_file,
        "no Ray cluster",
    ),
    (["ledger", "--instances", 1, "--out"], lambda tmp: a_file(tmp) / "ledger.json", "mine"),
]


@tried("command lines")
@pytest.mark.parametrize(("words", "make", "said"), FAILURES, ids=lambda part: getattr(part, "__name__", ""))
def test_a_failure_is_one_line_on_stderr_with_exit_code_1_and_nothing_is_touched(words, make, said, call, tmp_path):
    place = make(tmp_path)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    one_line(call(*words, place), said)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*") if path in before} == before


def test_debug_shows_the_traceback_of_a_failure(call, tmp_path, monkeypatch):
    words = ["trial", "--preset", "smoke", "--n-states", 3, *CHANGES, "--store", a_binary_result(tmp_path)]
    with pytest.raises(ValueError, match="is no readable result"):
        call("--debug", *words)
    assert call(*words)[0] == 1, "and the next call does not"


def test_an_error_that_nobody_thought_of_is_one_line_too(call, tmp_path, monkeypatch):
    def fail(*arguments):
        raise KeyError("two\nlines")

    monkeypatch.setattr("hmmlib.experiments.trials.environment", fail)
    code, out, err = call("info")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("hmmlib: KeyError: ")
    assert "--debug" in err


@pytest.mark.parametrize("debug", [False, True])
def test_a_process_of_its_own_shows_a_traceback_with_debug_only(debug, tmp_path):
    path = a_file(tmp_path)
    words = ["--debug"] * debug + ["ledger", "--instances", "1", "--out", str(path / "ledger.json")]
    done = subprocess.run(
        [sys.executable, "-m", "hmmlib", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert ("Traceback" in done.stderr) == debug
    assert str(path) in done.stderr.splitlines()[-1]
    assert path.read_text() == "mine"


def test_the_ledger_is_written_before_anything_is_said(call, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("No space left on device")

    entry = ledger.run(find("Proposition 3.4"), 1, 0)
    monkeypatch.setattr(ledger, "run_all", lambda *arguments, **options: [entry])
    monkeypatch.setattr(command_line.console, "print", fail)
    one_line(call("ledger", "--instances", 1, "--out", tmp_path / "ledger.json"), "No space left")
    assert (tmp_path / "ledger.json").is_file()


@pytest.mark.parametrize("name", ["a[bold]b é ü", pytest.param("q[/x]z", marks=slow)])
def test_any_folder_may_be_a_store_in_any_terminal(name, tmp_path):
    words = ["trial", "--preset", "smoke", "--n-states", "3", *CHANGES, "--store", tmp_path / name]
    done = subprocess.run(
        [sys.executable, "-m", "hmmlib", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (stored,) = (tmp_path / name).glob("smoke/*.json")
    assert done.stdout.splitlines()[-1] == str(stored).encode("ascii", "backslashreplace").decode()


def test_a_changed_verdict_leaves_the_ledger_that_was_there(call, tmp_path, monkeypatch):
    entry = replace(ledger.run(find("Proposition 3.4"), 1, 0), printed=FAILS)
    monkeypatch.setattr(ledger, "run_all", lambda *arguments, **options: [entry])
    out = tmp_path / "ledger.json"
    out.write_text("the one before")
    code, _, err = call("ledger", "--instances", 1, "--out", out)
    assert code == 1
    assert "Proposition 3.4: holds, as printed fails" in err
    assert out.read_text() == "the one before"
    assert (tmp_path / "ledger.changed.json").is_file()


def test_a_store_that_cannot_be_written_loses_no_finished_result(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "rescue"))
    from good_calls import result

    with pytest.raises(OSError, match="the finished result is kept in") as caught:
        local.store_safely(result(), a_file(tmp_path))
    assert str(tmp_path / "rescue") in str(caught.value)
    assert len(list((tmp_path / "rescue").rglob("*.json"))) == 1
