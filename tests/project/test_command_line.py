"""The command line: what it refuses, how it fails, what it says, and what it hands on."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from commands import one_line, usage_error
from record import tried
from rich.console import Console
from runs import CHANGES, TINY, numbers, stored

import hmmlib
from hmmbook import TrialSpec, load_result, panel_specs, result_path, run_trial, save_result, terminal
from hmmbook import __main__ as command_line
from hmmbook.experiments.environment import environment
from hmmbook.experiments.ray_sweep import RayCluster
from hmmbook.experiments.store import checkpoint_path
from hmmbook.experiments.sweeps import Outcome, describe
from hmmlib.device import pick

SMALL = {name: value for name, value in TINY.items() if name != "n_states"}
SMOKE = ["--preset", "smoke", *CHANGES, "--store"]
MISSING = ["trial", "--missing", "--trials", 1, "--panel"]

REFUSED = [
    ("trial --preset huge", ["'--preset'", "'huge' is not one of 'smoke', 'quick', 'laptop', 'gpu', 'paper', 'rel"]),
    ("trial --device quantum", ["device must be one of auto, cpu, cuda, mps, or cuda:N, not 'quantum'"]),
    ("trial --device cuda:99", ["'cuda:99' is not on this machine"]),
    ("trial --set step=7", ["field must be one of preset, n_states", "not 'step'"]),
    ("trial --set steps", ["--set takes NAME=VALUE, not 'steps'"]),
    ("trial --set steps=few", ["steps: Input should be a valid integer", "not 'few'"]),
    ("trial --set steps=1,two", ["steps: Input should be"]),
    ("trial --set n_states=5", ["--set does not take n_states"]),
    ("trial --set steps=5 --set steps=6", ["--set takes each field once"]),
    ("trial --max-minutes nan", ["max-minutes"]),
    ("trial --store=", ["'--store': it must name a folder, not ''"]),
    ("trial --missing", ["--missing needs --panel left or --panel right"]),
    ("trial --size 3", ["--size chooses points of a panel, so it needs --missing"]),
    ("trial --panel left --missing --size 7", ["sizes of panel left are 4, 8, 10, 15, 25, 30, not 7"]),
    ("trial --panel left --missing --n-states 4", ["a panel sets --n-states and --n-memory itself"]),
    ("trial --shard 5/4", ["shard must be I/N with I from 1 to N, such as 1/4, not '5/4'"]),
    ("trial --shard=", ["shard must be I/N with I from 1 to N, such as 1/4, not ''"]),
    ("trial --also rain", ["--also must be one of all, exact_prompt_accuracy"]),
    ("trial --workers 2", ["No such option", "--workers"]),
    ("trial --n-states 0", ["'--n-states'", "greater than or equal to 1"]),
    ("trial --n-memory 0", ["'--n-memory'", "greater than or equal to 1"]),
    ("trial --seed -1", ["'--seed'", "greater than or equal to 0"]),
    ("trial --max-minutes -1", ["'--max-minutes'", "greater than or equal to 0"]),
    ("sweep --panel left --trials 0", ["'--trials'", "greater than or equal to 1"]),
    ("sweep --panel left --cpus 0", ["'--cpus'", "greater than or equal to 0.01"]),
    ("sweep --panel left --gpus -1", ["'--gpus'", "greater than or equal to 0"]),
    ("sweep --panel left --device quantum", ["device must be one of", "'quantum'"]),
    ("sweep --panel left --address nowhere", ["address must be HOST:PORT or auto, not 'nowhere'"]),
    ("info --device quantum", ["device must be one of", "'quantum'"]),
    ("export all.txt", ["FILE must end in .csv or .parquet, not 'all.txt'"]),
    ("ledger --out .", [" is no regular file; name a file"]),
    ("ledger --out /dev/null", ["/dev/null is no regular file; name a file"]),
    ("ledger --instances 0", ["'--instances'", "greater than or equal to 1"]),
    ("ledger --seed -1", ["'--seed'", "greater than or equal to 0"]),
]


@tried("command lines")
@pytest.mark.parametrize(("words", "parts"), REFUSED, ids=[words for words, _ in REFUSED])
def test_bad_calls_are_refused_with_exit_code_2(words, parts, call, tmp_path, monkeypatch):
    monkeypatch.setattr("hmmbook.experiments.store.PROJECT", (tmp_path / "mine", tmp_path / "store"))
    monkeypatch.setattr("hmmbook.evidence.ledger.run_all", begun)
    usage_error(call(*words.split()), *parts)
    assert not any(tmp_path.iterdir())


def begun(*arguments, **options):
    pytest.fail("the work was begun")


def test_the_version_and_what_a_result_depends_on(call):
    assert call("--version") == (0, f"hmmbook {hmmlib.__version__}\n", "")
    code, out, _ = call("info", "--device", "cpu")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(environment(pick("cpu"), "single"))


def test_a_sweep_without_ray_says_what_to_install(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    one_line(call("sweep", "--panel", "left", *SMOKE, tmp_path), "pip install 'hmmlib[sweep]'")


@pytest.mark.parametrize("words", [["trial"], [*MISSING, "left"], ["sweep", "--panel", "left"]], ids=str)
def test_a_file_in_the_store_that_is_no_result_is_named_before_any_work(words, call, tmp_path, monkeypatch):
    monkeypatch.setattr(RayCluster, "connect", begun)
    path = result_path(TrialSpec("smoke", 10, **SMALL), tmp_path)
    path.parent.mkdir()
    path.write_text("mine")
    one_line(call(*words, *SMOKE, tmp_path), f"{path} is no readable result")
    assert path.read_text() == "mine"


def test_a_ledger_that_cannot_be_written_is_named_before_any_work(call, tmp_path, monkeypatch):
    monkeypatch.setattr("hmmbook.evidence.ledger.run_all", begun)
    (tmp_path / "file").write_text("mine")
    one_line(call("ledger", "--out", tmp_path / "file" / "ledger.json"), "file")


@pytest.mark.parametrize(
    ("words", "failed", "reason"),
    [
        (["trial", "--n-states", 10_000_000], 1, "memory"),
        ([*MISSING, "right", "--set", "learning_rate=1e30"], 8, "pretraining diverged: the loss at step 1 is nan"),
    ],
    ids=str,
)
def test_each_failed_trial_is_one_line_and_the_exit_code_is_1(words, failed, reason, call, tmp_path):
    code, out, err = call(*words, *SMOKE, tmp_path)
    assert (code, err.count("\n")) == (1, failed)
    assert f" {failed} failed. " in out.splitlines()[-1]
    for line in err.splitlines():
        assert reason in line
    assert stored(tmp_path) == {}


def test_a_file_in_the_place_of_a_checkpoint_is_refused_and_left_as_it_is(call, tmp_path):
    path = checkpoint_path(TrialSpec("smoke", n_states=4, **SMALL), tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    code, _, err = call("trial", "--n-states", 4, *SMOKE, tmp_path)
    assert code == 1
    assert str(path) in err
    assert path.read_bytes() == b"mine"


@pytest.fixture
def one_trial(tmp_path):
    """The words of a call that runs one trial, and the trial's spec."""
    words = ["trial", "--n-states", 3, "--n-memory", 2, "--seed", 5, *SMOKE, tmp_path]
    return words, TrialSpec("smoke", 3, 5, 2, **SMALL)


def test_one_trial_is_run_and_stored(one_trial, call, tmp_path):
    words, spec = one_trial
    code, out, err = call(*words)
    summary, run_now, where = out.splitlines()
    path = result_path(spec, tmp_path)
    assert (code, err) == (0, "")
    assert summary.startswith(f"{describe(spec)}: head ")
    assert (run_now, where) == ("This trial was run now. Its result is in", str(path))
    assert numbers(load_result(path)) == numbers(run_trial(spec))


def test_a_stored_trial_is_not_run_again_unless_it_is_asked_for(one_trial, call, tmp_path):
    words, spec = one_trial
    old = run_trial(spec)
    old = replace(old, environment=old.environment | {"date": "2020-01-02", "commit": "0123456789ab"})
    path = save_result(old, tmp_path)

    code, out, err = call(*words)

    assert (code, err) == (0, "")
    assert "not run now, but stored on 2020-01-02 by 0123456789ab. Use --rerun to run it again." in out
    assert load_result(path) == old

    code, out, err = call(*words, "--rerun")

    assert (code, err) == (0, "")
    assert "This trial was run now. Its result is in" in out
    again = load_result(path)
    assert numbers(again) == numbers(old)
    assert again.environment["date"] != "2020-01-02"


def test_a_time_box_that_is_over(call, tmp_path):
    result = call("trial", "--max-minutes", 0, *SMOKE, tmp_path)
    assert result == (0, "The time is over. Run the same command again to go on.\n", "")


def test_the_missing_trials_of_a_panel_are_run_once(call, tmp_path):
    specs = panel_specs("smoke", "right", 1, **SMALL)
    code, out, err = call(*MISSING, "right", *SMOKE, tmp_path)
    *lines, last = out.splitlines()
    assert (code, err) == (0, "")
    assert [line.partition(": head")[0] for line in lines] == [describe(spec) for spec in specs]
    assert last == f"8 were run now, 0 were stored before, 0 are left, 0 failed. Results are in {tmp_path}"
    assert set(stored(tmp_path)) == {f"{spec.hash}.json" for spec in specs}
    assert call(*MISSING, "right", *SMOKE, tmp_path)[1].startswith("0 were run now, 8 were stored before")


def test_several_stored_trials_are_shown_with_what_tells_them_apart(call, tmp_path):
    words = ["trial", "--n-states", 3, *SMOKE, tmp_path, "--set", "head_rate=0.1,0.2"]
    call(*words)
    code, out, err = call(*words)
    first, second, last = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("smoke |H| = 3, seed 0, head_rate 0.1: head ")
    assert second.startswith("smoke |H| = 3, seed 0, head_rate 0.2: head ")
    assert "; stored on " in second
    assert last == f"0 were run now, 2 were stored before, 0 are left, 0 failed. Results are in {tmp_path}"


def test_a_value_that_is_given_twice_is_one_trial(call, tmp_path):
    code, out, _ = call("trial", "--n-states", 3, "--n-states", 3, *SMOKE, tmp_path)
    assert code == 0
    assert out.splitlines()[1] == "This trial was run now. Its result is in"
    code, out, _ = call("trial", "--n-states", 3, "--n-states", 4, "--n-states", 3, *SMOKE, tmp_path)
    assert out.splitlines()[-1].startswith("1 were run now, 1 were stored before, ")
    assert out.count("|H| = 3") == 1


def test_an_interrupt_before_there_is_work_is_no_traceback(call, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("hmmlib.device.pick", interrupt)
    assert call("info") == (130, "", "")


def test_two_shards_run_a_whole_panel(call, tmp_path):
    for shard in ("1/2", "2/2"):
        code, out, _ = call(*MISSING, "right", "--shard", shard, *SMOKE, tmp_path)
        assert code == 0
        assert out.splitlines()[-1].startswith("4 were run now, 0 were stored before")
    assert len(stored(tmp_path)) == 8


@pytest.fixture
def calls(monkeypatch):
    """Note how the two kinds of sweep are called, in their place."""
    noted = SimpleNamespace(plain=[], ray=[])

    def run_missing(specs, store, device, until, log, on_progress, **options):
        noted.plain.append((specs, {"store": store, "device": device, "until": until} | options))
        return Outcome()

    def run_with_ray(sweep, cluster, until, on_status):
        noted.ray.append((sweep, cluster, until))
        return Outcome()

    monkeypatch.setattr("socket.create_connection", lambda *arguments, **options: SimpleNamespace(close=str))
    monkeypatch.setattr("hmmbook.experiments.sweeps.deadline", lambda minutes: minutes)
    monkeypatch.setattr("hmmbook.experiments.sweeps.run_missing", run_missing)
    monkeypatch.setattr("hmmbook.experiments.ray_sweep.run_with_ray", run_with_ray)
    return noted


def test_what_trial_hands_on(call, calls, tmp_path):
    words = ["trial", "--missing", "--panel", "right", "--preset", "smoke", "--set", "steps=7", "--seed", 3]
    options = ["--store", tmp_path, "--max-minutes", 1.5, "--also", "votes", "--networks", tmp_path / "nets", "--rerun"]
    assert call(*words, *options, "--trials", 2, "--size", 20)[0] == 0
    (specs, handed_on), *_ = calls.plain
    assert specs == panel_specs("smoke", "right", 2, sizes=[20], first_seed=3, steps=7)
    assert handed_on == {
        "store": tmp_path,
        "device": "auto",
        "until": 1.5,
        "rerun": True,
        "also": ["votes"],
        "networks": tmp_path / "nets",
    }


def test_what_sweep_hands_on(call, calls, tmp_path):
    words = ["sweep", "--panel", "right", "--preset", "smoke", "--store", tmp_path, "--max-minutes", 1.5]
    options = ["--address", "head:6379", "--cpus", 2, "--gpus", 0.25, "--device", "cuda", "--also", "votes", "--rerun"]
    assert call(*words, *options)[0] == 0
    (sweep, cluster, until), *_ = calls.ray
    assert sweep.specs == panel_specs("smoke", "right", 5), "as many trials as in the paper"
    assert sweep.store == (tmp_path,)
    assert (sweep.device, sweep.rerun, sweep.also, until) == ("cuda", True, ["votes"], 1.5)
    assert cluster == RayCluster("head:6379", 2.0, 0.25)


def test_all_stands_for_every_measurement_that_suits_any_chain(call, calls, tmp_path):
    words = ["trial", "--trials", 2, "--preset", "smoke", "--store", tmp_path]
    assert call(*words, "--also", "all", "--also", "votes")[0] == 0
    also = calls.plain[0][1]["also"]
    assert "votes" in also
    assert "probes" in also
    assert "heads_by_size" not in also, "a study of chains of its own"
    assert len(also) == len(set(also))


def test_a_log_has_a_line_a_minute_and_none_before_the_first(monkeypatch, capsys):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with terminal.progress("starting") as update:
        for seconds, text in ((0, ""), (59, ""), (1, "after 1\n"), (59, ""), (2, "after 2\n"), (600, "after 600\n")):
            clock.now += seconds
            update(f"after {seconds}")
            assert capsys.readouterr() == ("", text)


def test_on_a_terminal_the_progress_leaves_no_line_behind(call, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(force_terminal=True, width=200))
    code, out, err = call("trial", "--n-states", 3, *SMOKE, tmp_path)
    assert (code, err) == (0, "")
    assert "\x1b[2K" in out, "a line was shown and taken back"


def test_debug_shows_where_an_error_comes_from(call, tmp_path, monkeypatch):
    monkeypatch.setattr(command_line.Options, "debug", False)
    path = result_path(TrialSpec("smoke", 10, **SMALL), tmp_path)
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(ValueError, match="is no readable result"):
        call("--debug", "trial", *SMOKE, tmp_path)
