"""The command line: what it refuses, how it fails in one line, what it hands on; nothing is lost or overwritten."""

import re
import subprocess
import sys
import warnings
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from commands import one_line, usage_error
from record import slow, tried
from runs import TINY, numbers, stored
from safetensors.torch import save_file

from hmmlib import backend
from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import Claim, checkpoint_path, load_result, result_path, save_result
from hmmlib.experiments.sweeps import Outcome, describe, run_missing
from hmmlib.experiments.trials import environment, run_trial
from hmmlib.training import checkpoints

ROOT = Path(__file__).resolve().parents[2]
SMALL = {name: value for name, value in TINY.items() if name != "n_states"}
CHANGES = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


REFUSED = [
    ("ledgr", "ledgr"),
    ("trial --n_states 4", "--n_states"),
    ("trial --n-states 0", "'--n-states'", "greater than or equal to 1"),
    ("trial --n-states many", "'--n-states'", "valid integer"),
    ("trial --n-memory 0", "'--n-memory'", "greater than or equal to 1"),
    ("trial --seed -1", "'--seed'", "greater than or equal to 0"),
    ("trial --preset huge", "'--preset'", "'huge' is not one of 'smoke', 'quick', 'laptop', 'gpu', 'paper', 'rel"),
    ("trial --device quantum", "device must be one of auto, cpu, cuda, mps, or cuda:N, not 'quantum'"),
    ("trial --device cuda:99", "'cuda:99' is not on this machine"),
    ("trial --set step=7", "field must be one of preset, n_states", "not 'step'"),
    ("trial --set steps", "--set takes NAME=VALUE, not 'steps'"),
    ("trial --set steps=few", "steps: Input should be a valid integer", "not 'few'"),
    ("trial --set steps=0", "steps", "0"),
    ("trial --set labels=mine", "labels", "'mine'"),
    ("trial --set heads=3", "width must be a multiple of heads, but 64 is none of 3"),
    ("trial --set n_states=5", "n_states has its own option"),
    ("trial --set steps=5 --set steps=6", "--set takes each field once"),
    ("trial --max-minutes -1", "'--max-minutes'", "greater than or equal to 0"),
    ("trial --max-minutes nan", "max-minutes"),
    ("trial --store=", "'--store': it must name a folder, not ''"),
    ("trial --missing", "--missing and --panel left|right go together"),
    ("trial --panel left", "--missing and --panel left|right go together"),
    *((f"trial {words}", "--trials, --size and --workers are for --missing")
      for words in ("--trials 3", "--size 4", "--workers 3")),
    ("trial --panel left --missing --size 7", "sizes of panel left are 4, 8, 10, 15, 25, 30, not 7"),
    ("trial --also rain", "--also must be one of all, exact_prompt_accuracy"),
    ("trial --panel left --missing --n-states 4", "a panel has its own --n-states and --n-memory"),
    ("trial --panel middle --missing", "'--panel'", "'middle' is not one of 'left', 'right'"),
    ("trial --panel left --missing --workers 0", "'--workers'", "greater than or equal to 1"),
    ("sweep", "--panel"),
    ("sweep --panel middle", "'--panel'", "'middle' is not one of 'left', 'right'"),
    ("sweep --panel left --trials 0", "'--trials'", "greater than or equal to 1"),
    ("sweep --panel left --device quantum --address 127.0.0.1:9", "device must be one of", "'quantum'"),
    ("sweep --panel left --cpus 0", "'--cpus'", "greater than or equal to 0.01"),
    ("sweep --panel left --gpus -1", "'--gpus'", "greater than or equal to 0"),
    ("sweep --panel left --address nowhere", "address must be HOST:PORT or auto, not 'nowhere'"),
    ("sweep --panel left --networks=", "'--networks': it must name a folder, not ''"),
    ("info --device quantum", "device must be one of", "'quantum'"),
    ("ledger --instances 0", "'--instances'", "greater than or equal to 1"),
]  # fmt: skip


@tried("command lines")
@pytest.mark.parametrize(
    ("words", "said"), [(words, said) for words, *said in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_bad_calls_are_refused_with_exit_code_2(words, said, call, tmp_path, monkeypatch):
    monkeypatch.setattr("hmmlib.experiments.store.PROJECT", (tmp_path / "mine", tmp_path / "store"))
    usage_error(call(*words.split()), *said)
    assert not any(tmp_path.iterdir())


@tried("command lines")
@pytest.mark.parametrize("how", ["cut short", "edited by hand"])
@pytest.mark.parametrize("words", ["trial --n-states 4", "trial --panel left --missing", "sweep --panel left"])
def test_a_damaged_result_is_one_line_and_exit_code_1(words, how, call, tmp_path, monkeypatch):
    spec = TrialSpec("smoke", n_states=4, **SMALL)
    run_missing([spec], tmp_path, log=str)
    path = result_path(spec, tmp_path)
    text = path.read_text()
    damaged = text[:200] if how == "cut short" else text.replace('"n_states": 4', '"n_states": 5')
    assert damaged != text
    path.write_text(damaged)
    monkeypatch.setattr(RayCluster, "connect", lambda *_: pytest.fail("Ray was started"))
    one_line(call(*words.split(), "--preset", "smoke", "--store", tmp_path, *CHANGES), f"{path} is no readable result")
    assert path.read_text() == damaged
    assert [file.name for file in path.parent.glob("*.json")] == [path.name]


def test_a_store_that_is_a_file_is_one_line_and_stays(call, tmp_path):
    file = tmp_path / "store"
    file.write_text("mine")
    one_line(call("trial", "--preset", "smoke", "--store", file, *CHANGES), str(file))
    assert file.read_text() == "mine"


def test_a_model_too_large_for_the_machine_is_one_line(call, tmp_path):
    for size in (["--n-states", "10000000"], ["--set", "width=2000000"]):
        code, out, err = call("trial", "--preset", "smoke", "--store", tmp_path, *CHANGES, *size)
        assert (code, out.count("\n"), err.count("\n")) == (1, 1, 1)
        assert "1 failed" in out
        assert "memory" in err


def test_without_ray_a_sweep_names_the_extra(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    one_line(call("sweep", "--panel", "left", "--preset", "smoke", "--store", tmp_path), "pip install 'hmmlib[sweep]'")


def test_one_trial_is_run_once(call, tmp_path):
    torch.set_num_threads(1)
    words = ["trial", "--preset", "smoke", "--n-states", 3, "--n-memory", 2, "--seed", 5, "--store", tmp_path, *CHANGES]
    spec = TrialSpec("smoke", 3, 5, 2, **SMALL)
    code, first, err = call(*words)
    path = result_path(spec, tmp_path)
    content = path.read_bytes()
    assert (code, err) == (0, "")
    assert first.splitlines()[0].startswith(f"{describe(spec)}: head ")
    assert numbers(load_result(path)) == numbers(run_trial(spec))
    line, how, where = first.splitlines()
    assert (how, where) == ("run now, and stored:", str(path))
    commit = load_result(path).environment["commit"]
    origin = f"not run now, but stored on {load_result(path).environment['date']} by {commit}:"
    code, again, err = call(*words)
    assert (code, again.splitlines(), err) == (0, [line, origin, where], "")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "words",
    [["--n-states", "4"], pytest.param(["--panel", "left", "--missing", "--workers", "2"], marks=slow)],
    ids=len,
)
def test_a_damaged_checkpoint_is_put_aside_with_one_line_and_another_programs_file_is_refused(words, tmp_path):
    words = [*words, *(["--trials", "1", "--size", "4"] if "--panel" in words else [])]
    call = [sys.executable, "-m", "hmmlib", "trial", *words, "--preset", "smoke", "--store", str(tmp_path), *CHANGES]
    path = checkpoint_path(TrialSpec("smoke", n_states=4, **SMALL), tmp_path)
    path.parent.mkdir(parents=True)
    save_file({"w": torch.ones(2)}, path)
    content = path.read_bytes()
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert f"{path} is no checkpoint that hmmlib has written" in done.stderr
    assert path.read_bytes() == content
    path.write_bytes(content[:-1])
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hmmlib: {path} is no whole checkpoint and is passed over: ")
    assert line.endswith(f"; until the run is over it is kept as {path.name}.broken")


def test_only_this_librarys_warnings_lose_their_line_of_source():
    ours, others = (checkpoints.__file__, 104), (__file__, 1)
    before = [warnings.formatwarning("a\nb", UserWarning, *where) for where in (ours, others)]
    assert f"{Path(ours[0]).name}:104: UserWarning: a" in before[0]
    with backend.warnings_in_one_line():
        assert warnings.formatwarning("a\nb", UserWarning, *ours) == "hmmlib: a b\n"
        assert warnings.formatwarning("a\nb", UserWarning, *others) == before[1]
    assert warnings.formatwarning("a\nb", UserWarning, *ours) == before[0]


def test_what_another_state_of_the_library_has_stored_is_called_so_and_run_again_on_request(call, tmp_path):
    torch.set_num_threads(1)
    words = ["trial", "--preset", "smoke", "--n-states", 3, "--store", tmp_path, *CHANGES]
    spec = TrialSpec("smoke", n_states=3, **SMALL)
    result = run_trial(spec)
    old = {**result.environment, "library": "0123456789abcdef", "date": "2020-01-02", "commit": "0123456789ab"}
    save_result(replace(result, environment=old), tmp_path)
    said = "stored on 2020-01-02 by 0123456789ab"
    code, out, _ = call(*words)
    assert (code, out.splitlines()[1]) == (0, f"not run now, but {said} (--rerun runs it again):")
    assert load_result(result_path(spec, tmp_path)).environment == old
    code, out, _ = call(*words, "--rerun")
    assert (code, out.splitlines()[1]) == (0, "run now, and stored:")
    assert load_result(result_path(spec, tmp_path)).environment == result.environment
    assert numbers(load_result(result_path(spec, tmp_path))) == numbers(result)


def test_what_is_left_out_of_a_trial(call, tmp_path):
    assert call("trial", "--preset", "smoke", "--store", tmp_path, *CHANGES)[0] == 0
    assert list(stored(tmp_path)) == [f"{TrialSpec('smoke', **SMALL).hash}.json"]
    assert TrialSpec("smoke", **SMALL) == TrialSpec("smoke", 10, 0, 1, **SMALL)


def test_a_trial_that_another_runs_is_not_run(call, tmp_path):
    spec = TrialSpec("smoke", **SMALL)
    claim = Claim.take(spec, tmp_path)
    result = call("trial", "--preset", "smoke", "--store", tmp_path, *CHANGES)
    one_line(result, f"{describe(spec)} is being run by another process")
    claim.release()


def test_a_time_box_that_is_over_is_no_failure(call, tmp_path):
    words = ["trial", "--preset", "smoke", "--max-minutes", 0, "--store", tmp_path, *CHANGES]
    assert call(*words) == (0, "the time is over; run the same command again to go on\n", "")


def test_failures_end_in_exit_code_1_and_leave_nothing(call, tmp_path):
    bad = ["--preset", "smoke", "--store", tmp_path, *CHANGES, "--set", "learning_rate=1e30"]
    for words in (["trial"], ["trial", "--panel", "right", "--missing", "--trials", 1]):
        code, out, err = call(*words, *bad)
        assert code == 1
        assert "pretraining diverged: the loss at step 1 is nan" in err
        assert f"{8 if '--missing' in words else 1} failed" in out
    assert stored(tmp_path) == {}


def test_the_missing_trials_of_a_panel(call, tmp_path):
    how = ["--preset", "smoke", "--trials", 1, "--store", tmp_path, *CHANGES]
    words = ["trial", "--panel", "right", "--missing", *how]
    code, out, err = call(*words)
    specs = panel_specs("smoke", "right", 1, **SMALL)
    assert (code, err) == (0, "")
    assert [line.split(": head")[0] for line in out.splitlines()[:-1]] == [describe(spec) for spec in specs]
    assert out.splitlines()[-1].startswith("8 run, 0 were stored")
    assert set(stored(tmp_path)) == {f"{spec.hash}.json" for spec in specs}
    assert call(*words)[1].startswith("0 run, 8 were stored")


def test_what_is_handed_on(call, tmp_path, monkeypatch):
    given = []

    def record(specs, **named):
        given.append((specs, named))
        return Outcome()

    monkeypatch.setattr("socket.create_connection", lambda *_, **__: BytesIO())
    monkeypatch.setattr("hmmlib.experiments.sweeps.run_missing", record)
    monkeypatch.setattr("hmmlib.experiments.sweeps.deadline", lambda minutes: minutes)
    words = ["--panel", "right", "--preset", "smoke", "--max-minutes", 1.5, "--store", tmp_path, "--set", "steps=7"]
    asked = ["--size", 20, "--also", "votes", "--networks", tmp_path / "networks", "--rerun"]
    assert call("sweep", *words)[0] == 0
    more = ["--trials", 2, "--address", "head:6379", "--cpus", 2, "--gpus", 0.25, "--device", "cuda", "--seed", 3]
    assert call("sweep", *words, *more, *asked)[0] == 0
    assert call("trial", "--missing", "--workers", 3, *words)[0] == 0
    assert call("trial", "--missing", "--workers", 3, *words, *asked)[0] == 0
    (plain, first), (few, second), (here, how), (_, also) = given
    assert plain == here == panel_specs("smoke", "right", 5, steps=7), "as many as in the paper"
    assert few == panel_specs("smoke", "right", 2, sizes=[20], first_seed=3, steps=7)
    clusters = [vars(named["cluster"]) for named in (first, second)]
    assert clusters[0] == {"address": None, "cpus": 1.0, "gpus": None}
    assert clusters[1] == {"address": "head:6379", "cpus": 2.0, "gpus": 0.25}
    none = {"store": tmp_path, "until": 1.5, "device": "auto", "rerun": False, "also": [], "networks": None}
    all_asked = none | {"rerun": True, "also": ["votes"], "networks": tmp_path / "networks"}
    assert first.items() >= none.items()
    assert second.items() >= (all_asked | {"device": "cuda"}).items()
    assert how.items() >= (none | {"workers": 3}).items()
    assert also.items() >= (all_asked | {"workers": 3}).items()


def test_info_names_what_a_result_depends_on(call):
    code, out, _ = call("info", "--device", "cpu")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, [*environment()])


def test_a_process_of_its_own_ends_in_the_same_way(tmp_path):
    spec = TrialSpec("smoke", n_states=4, seed=1)
    path = result_path(spec, tmp_path)
    path.parent.mkdir()
    path.write_text('{"format": 2,')
    words = ["trial", "--preset", "smoke", "--n-states", "4", "--seed", "1", "--store", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "hmmlib", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert re.match(f"hmmlib: {path} is no readable result", done.stderr)
    assert path.read_text() == '{"format": 2,'
