"""The command line refuses what it cannot do, fails in one line, says where it is, and hands on what it is given."""

import sys
import warnings
from dataclasses import replace
from functools import partial
from io import BytesIO
from types import SimpleNamespace

import pytest
import torch
from commands import one_line, usage_error
from record import tried
from rich.console import Console
from runs import CHANGES, TINY, numbers, stored
from safetensors.torch import save_file

import hmmlib
from hmmlib import backend, terminal
from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.provenance import environment
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import Claim, checkpoint_path, load_result, result_path, save_result
from hmmlib.experiments.sweeps import Outcome, describe
from hmmlib.experiments.trials import run_trial

SMALL = {name: value for name, value in TINY.items() if name != "n_states"}
SMOKE = ["--preset", "smoke", *CHANGES, "--store"]
MISSING = ["trial", "--missing", "--trials", 1, "--panel"]

REFUSED = [
    ("trial --preset huge", "'--preset'", "'huge' is not one of 'smoke', 'quick', 'laptop', 'gpu', 'paper', 'rel"),
    ("trial --device quantum", "device must be one of auto, cpu, cuda, mps, or cuda:N, not 'quantum'"),
    ("trial --device cuda:99", "'cuda:99' is not on this machine"),
    ("trial --set step=7", "field must be one of preset, n_states", "not 'step'"),
    ("trial --set steps", "--set takes NAME=VALUE, not 'steps'"),
    ("trial --set steps=few", "steps: Input should be a valid integer", "not 'few'"),
    ("trial --set n_states=5", "n_states has its own option"),
    ("trial --set steps=5 --set steps=6", "--set takes each field once"),
    ("info --device quantum", "device must be one of", "'quantum'"),
    ("trial --max-minutes nan", "max-minutes"),
    ("trial --store=", "'--store': it must name a folder, not ''"),
    ("trial --missing", "--missing and --panel left|right go together"),
    ("trial --panel left --missing --size 7", "sizes of panel left are 4, 8, 10, 15, 25, 30, not 7"),
    ("trial --panel left --missing --n-states 4", "a panel has its own --n-states and --n-memory"),
    ("trial --also rain", "--also must be one of all, exact_prompt_accuracy"),
    ("sweep --panel left --device quantum --address 127.0.0.1:9", "device must be one of", "'quantum'"),
    ("sweep --panel left --address nowhere", "address must be HOST:PORT or auto, not 'nowhere'"),
    ("ledger --out .", ". is no regular file; name a file"),
    ("ledger --out /dev/null", "/dev/null is no regular file; name a file"),
]
LEAST = {"trial --n-states": 1, "trial --n-memory": 1, "trial --seed": 0, "trial --max-minutes": 0}
LEAST |= {"trial --workers": 1, "ledger --instances": 1, "ledger --seed": 0}
LEAST |= {"sweep --panel left --trials": 1, "sweep --panel left --cpus": 0.01, "sweep --panel left --gpus": 0}
REFUSED += [("trial --size 3", "--size is for --missing"), ("trial --set steps=1,two", "steps: Input should be")]
REFUSED += [
    (f"{words} {least - 1}", f"'{words.split()[-1]}'", f"greater than or equal to {least}")
    for words, least in LEAST.items()
]


@tried("command lines")
@pytest.mark.parametrize(("words", "said"), [(words, said) for words, *said in REFUSED])
def test_bad_calls_are_refused_with_exit_code_2(words, said, call, tmp_path, monkeypatch):
    monkeypatch.setattr("hmmlib.experiments.store.PROJECT", (tmp_path / "mine", tmp_path / "store"))
    monkeypatch.setattr("companion.evidence.ledger.run_all", lambda *_, **__: pytest.fail("the work was begun"))
    usage_error(call(*words.split()), *said)
    assert not any(tmp_path.iterdir())


def test_the_version_and_what_a_result_depends_on(call):
    assert call("--version") == (0, f"hmmlib {hmmlib.__version__}\n", "")
    code, out, _ = call("info", "--device", "cpu")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, [*environment(backend.pick("cpu"), "single")])


def test_what_cannot_be_run_is_one_line_and_exit_code_1_before_the_work(call, tmp_path, monkeypatch):
    claim = Claim.take(spec := TrialSpec("smoke", 10, 0, 1, **SMALL), tmp_path)
    one_line(call("trial", *SMOKE, tmp_path), f"{describe(spec)} is being run by another process")
    claim.release()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        one_line(call("sweep", "--panel", "left", *SMOKE, tmp_path), "pip install 'hmmlib[sweep]'")
    monkeypatch.setattr("companion.evidence.ledger.run_all", lambda *_, **__: pytest.fail("the work was begun"))
    monkeypatch.setattr(RayCluster, "connect", lambda *_: pytest.fail("Ray was started"))
    path = result_path(spec, tmp_path)
    path.write_text("mine")
    one_line(call("ledger", "--out", path / "ledger.json"), path.name)
    for words in (["trial"], [*MISSING, "left"], ["sweep", "--panel", "left"]):
        one_line(call(*words, *SMOKE, tmp_path), f"{path} is no readable result")
    assert (path.read_text(), [*path.parent.glob("*.json")]) == ("mine", [path])


@pytest.mark.parametrize(
    ("words", "failed", "said"),
    [
        (["trial", "--n-states", 10_000_000], 1, "memory"),
        ([*MISSING, "right", "--set", "learning_rate=1e30"], 8, "pretraining diverged: the loss at step 1 is nan"),
    ],
)
def test_each_failed_trial_is_one_line_and_leaves_nothing_and_the_exit_code_is_1(words, failed, said, call, tmp_path):
    code, out, err = call(*words, *SMOKE, tmp_path)
    assert (code, err.count("\n")) == (1, failed)
    assert f"{failed} failed" in out.splitlines()[-1]
    assert all(said in line for line in err.splitlines())
    assert stored(tmp_path) == {}


def test_a_damaged_checkpoint_is_put_aside_in_one_line_and_anothers_is_refused(call, tmp_path, monkeypatch):
    monkeypatch.setattr(  # as Python does, where no test catches them
        warnings, "showwarning", lambda *warning: sys.stderr.write(warnings.formatwarning(*warning[:4]))
    )
    run = partial(call, "trial", "--n-states", 4, *SMOKE, tmp_path)
    path = checkpoint_path(TrialSpec("smoke", n_states=4, **SMALL), tmp_path)
    path.parent.mkdir(parents=True)
    save_file({"w": torch.ones(2)}, path)
    content = path.read_bytes()
    code, _, err = run()
    assert (code, path.read_bytes()) == (1, content)
    assert f"{path} is no checkpoint that hmmlib has written" in err
    path.write_bytes(content[:-1])
    code, _, err = run()
    assert (code, err.count("\n")) == (0, 1), err
    assert err.startswith(f"hmmlib: {path} is no whole checkpoint and is passed over: ")
    assert err.endswith(f"; until the run is over it is kept as {path.name}.broken\n")


def test_one_trial_is_run_once_and_again_on_request_where_another_state_of_the_library_stored_it(call, tmp_path):
    words = ["trial", "--n-states", 3, "--n-memory", 2, "--seed", 5, *SMOKE, tmp_path]
    spec = TrialSpec("smoke", 3, 5, 2, **SMALL)
    expected, path = numbers(run_trial(spec)), result_path(spec, tmp_path)
    code, first, err = call(*words)
    line, how, where = first.splitlines()
    assert line.startswith(f"{describe(spec)}: head ")
    assert (code, how, where, err) == (0, "run now, and stored:", str(path), "")
    result = load_result(path)
    assert numbers(result) == expected
    old = {**result.environment, "library": "0123456789abcdef", "date": "2020-01-02", "commit": "0123456789ab"}
    for origin, more in (result.environment, ""), (old, " (--rerun runs it again)"):
        save_result(replace(result, environment=origin), tmp_path)
        said = f"not run now, but stored on {origin['date']} by {origin['commit'] or 'an unknown commit'}{more}:"
        assert call(*words) == (0, f"{line}\n{said}\n{where}\n", "")
        assert load_result(path).environment == origin
    code, again, err = call(*words, "--rerun")
    again, first = (out.replace(out.splitlines()[0].rpartition(", ")[2], "") for out in (again, first))  # the seconds
    assert (code, again, err) == (0, first, "")
    assert (load_result(path).environment, numbers(load_result(path))) == (result.environment, expected)


def test_the_missing_trials_of_a_panel_and_a_time_box_that_is_over(call, tmp_path):
    boxed = call("trial", "--max-minutes", 0, *SMOKE, tmp_path)
    assert boxed == (0, "the time is over; run the same command again to go on\n", "")
    specs = panel_specs("smoke", "right", 1, **SMALL)
    code, out, err = call(*MISSING, "right", *SMOKE, tmp_path)
    assert (code, err) == (0, "")
    assert [line.split(": head")[0] for line in out.splitlines()[:-1]] == [describe(spec) for spec in specs]
    assert out.splitlines()[-1].startswith("8 run, 0 were stored")
    assert set(stored(tmp_path)) == {f"{spec.hash}.json" for spec in specs}
    assert call(*MISSING, "right", *SMOKE, tmp_path)[1].startswith("0 run, 8 were stored")


def test_what_is_handed_on(call, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: BytesIO())
    monkeypatch.setattr("hmmlib.experiments.sweeps.deadline", lambda minutes: minutes)
    monkeypatch.setattr(
        "hmmlib.experiments.sweeps.run_missing", lambda specs, **how: given.append((specs, how)) or Outcome()
    )
    words = ["--panel", "right", "--preset", "smoke", "--max-minutes", 1.5, "--store", tmp_path, "--set", "steps=7"]
    asked = ["--size", 20, "--also", "votes", "--networks", tmp_path / "networks", "--rerun"]
    more = ["--trials", 2, "--address", "head:6379", "--cpus", 2, "--gpus", 0.25, "--device", "cuda", "--seed", 3]
    local = ["trial", "--missing", "--workers", 3]
    for before, after in ((["sweep"], []), (["sweep"], [*more, *asked]), (local, []), (local, asked)):
        assert call(*before, *words, *after)[0] == 0
    specs, hows = zip(*given, strict=True)
    assert specs[0] == specs[2] == panel_specs("smoke", "right", 5, steps=7), "as many as in the paper"
    assert specs[1] == panel_specs("smoke", "right", 2, sizes=[20], first_seed=3, steps=7)
    assert vars(hows[0]["cluster"]) == {"address": None, "cpus": 1.0, "gpus": None}
    assert vars(hows[1]["cluster"]) == {"address": "head:6379", "cpus": 2.0, "gpus": 0.25}
    none = {"store": tmp_path, "until": 1.5, "device": "auto", "rerun": False, "also": [], "networks": None}
    every = none | {"rerun": True, "also": ["votes"], "networks": tmp_path / "networks"}
    workers = {"workers": 3, "on_progress": terminal.trial_once_a_minute}
    for how, expected in zip(hows, (none, every | {"device": "cuda"}, none | workers, every | workers), strict=True):
        assert how.items() >= expected.items()


def test_a_line_once_a_minute_and_none_before_the_first(monkeypatch, capsys):
    times = [1000.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: times[0]))
    monkeypatch.setattr(terminal, "_last", times[0])
    for seconds, heard in ((0, False), (59, False), (1, True), (59, False), (2, True), (600, True)):
        times[0] += seconds
        terminal.once_a_minute(f"after {seconds}")
        assert capsys.readouterr() == ("", f"after {seconds}\n" if heard else "")


@pytest.mark.parametrize("words", [["trial", "--n-states", 3], [*MISSING, "left", "--size", 4]])
def test_a_trial_says_where_it_is_and_on_a_terminal_leaves_no_line_behind(words, call, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "MINUTE", 0.0)
    code, _, err = call(*words, *SMOKE, tmp_path / "elsewhere")
    assert code == 0
    assert "seed 0: pretraining 100%" in err
    assert all(line.startswith("smoke |H| = ") and line.endswith("%") for line in err.splitlines())
    monkeypatch.setattr(terminal, "console", Console(force_terminal=True, width=200))
    code, out, err = call(*words, *SMOKE, tmp_path / "terminal")
    assert (code, err) == (0, "")
    assert "\x1b[2K" in out, "a line was shown and taken back"
