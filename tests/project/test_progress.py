"""Where a command is: on a terminal a line that changes, elsewhere a line a minute; and where the ledger goes."""

from functools import partial
from types import SimpleNamespace

import pytest
from companion.evidence import ledger
from companion.evidence.statements import find
from rich.console import Console
from runs import CHANGES

import hmmlib
from hmmlib import terminal
from hmmlib.experiments.sweeps import Outcome

TRIAL = ["trial", "--preset", "smoke", "--n-states", 3, *CHANGES]
PANEL = ["trial", "--panel", "left", "--missing", "--preset", "smoke", "--trials", 1, "--size", 4, *CHANGES]


def test_the_version(call):
    assert call("--version") == (0, f"hmmlib {hmmlib.__version__}\n", "")


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only where it is told to."""
    times = [1000.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: times[0]))
    monkeypatch.setattr(terminal, "_last", times[0])
    return times


def test_a_line_once_a_minute_and_none_before_the_first(clock, capsys):
    for seconds, heard in ((0, False), (59, False), (1, True), (59, False), (2, True), (600, True)):
        clock[0] += seconds
        terminal.once_a_minute(f"after {seconds}")
        assert capsys.readouterr() == ("", f"after {seconds}\n" if heard else "")


@pytest.mark.parametrize("words", [TRIAL, PANEL])
def test_without_a_terminal_a_trial_says_where_it_is(words, call, tmp_path, monkeypatch):
    code, out, err = call(*words, "--store", tmp_path / "quiet")
    assert (code, err) == (0, "")
    monkeypatch.setattr(terminal, "MINUTE", 0.0)
    code, again, err = call(*words, "--store", tmp_path / "slow")
    assert code == 0
    assert len(again.splitlines()) == len(out.splitlines())
    assert "seed 0: pretraining 100%" in err
    assert all(line.startswith("smoke |H| = ") and line.endswith("%") for line in err.splitlines())


def test_side_by_side_each_process_says_where_it_is(call, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("hmmlib.experiments.sweeps.run_missing", lambda *_, **how: given.append(how) or Outcome())
    assert call(*PANEL, "--workers", 2, "--store", tmp_path)[0] == 0
    assert given[0]["on_progress"] is terminal.trial_once_a_minute


def test_on_a_terminal_no_line_is_left_behind(call, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "MINUTE", 0.0)
    monkeypatch.setattr(terminal, "console", Console(force_terminal=True, width=200))
    code, out, err = call(*TRIAL, "--store", tmp_path)
    assert (code, err) == (0, "")
    assert "\x1b[2K" in out, "a line was shown and taken back"


@pytest.fixture
def few(monkeypatch):
    """A ledger of one statement."""
    statement = find("Proposition 3.4")
    made = partial(ledger.run, statement)
    monkeypatch.setattr(ledger, "run_all", lambda instances, seed, *_, **__: [made(instances, seed)])


@pytest.mark.parametrize("there", [[], ["mine"], ["mine", "deeper"]])
def test_the_ledger_goes_where_the_user_stands(there, few, call, tmp_path, monkeypatch):
    """Into the folder mine where there is one, as in a checkout; no other folder is made, none further up is used."""
    for name in there[:1]:
        (tmp_path / name).mkdir()
    if "deeper" in there:
        (tmp_path / "deeper").mkdir()
    stands = tmp_path / "deeper" if "deeper" in there else tmp_path
    monkeypatch.chdir(stands)
    code, out, _ = call("ledger", "--instances", 5)
    expected = "mine/ledger.json" if there == ["mine"] else "ledger.json"
    assert code == 0
    assert out.splitlines()[-1] == expected
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [stands / expected]
