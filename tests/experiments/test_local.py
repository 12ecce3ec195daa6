"""Running what a store lacks: claims, the time box, failures, several processes at once, and processes that are killed."""

import multiprocessing
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib import metadata

import pytest
import torch
from packaging.requirements import Requirement
from record import slow
from runs import ENVIRONMENT, TINY, numbers, stored

from hmmlib.experiments import local
from hmmlib.experiments.local import (
    Outcome,
    deadline,
    describe,
    merge,
    pace,
    run_missing,
    run_side_by_side,
    store_safely,
    summary,
)
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Claim, as_store, checkpoint_path, load_result, result_path
from hmmlib.experiments.trials import run_trial

pytestmark = pytest.mark.outside

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(4)]


@pytest.fixture(scope="module")
def results():
    torch.set_num_threads(1)
    return [run_trial(spec) for spec in SPECS]


def test_only_what_is_missing_is_run(results, tmp_path):
    store_safely(results[1], tmp_path)
    file = result_path(SPECS[1], tmp_path)
    before, lines = (file.read_bytes(), file.stat().st_mtime_ns), []
    outcome = run_missing(SPECS, tmp_path, say=lines.append)
    assert outcome == Outcome(stored=[SPECS[1].hash], ran=[SPECS[k].hash for k in (0, 2, 3)])
    assert stored(tmp_path) == {f"{r.spec.hash}.json": numbers(r) for r in results}
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [line.split(":")[0] for line in lines] == [describe(SPECS[k]) for k in (0, 2, 3)]
    assert re.search(r"\[2 of 4 stored, about \d+ min left\]$", lines[0])
    assert lines[-1].endswith("[4 of 4 stored]")
    assert run_missing(SPECS, tmp_path, say=lines.append) == Outcome(stored=[spec.hash for spec in SPECS])
    assert len(lines) == 3


def test_what_another_holds_is_left_to_it(tmp_path):
    claim = Claim.take(SPECS[0], tmp_path)
    outcome = run_missing(SPECS[:2], tmp_path, say=str)
    assert outcome == Outcome(ran=[SPECS[1].hash], taken=[SPECS[0].hash])
    claim.release()
    assert run_missing(SPECS[:2], tmp_path, say=str) == Outcome(stored=[SPECS[1].hash], ran=[SPECS[0].hash])


def test_what_another_has_just_finished_is_stored_not_taken(results, tmp_path, monkeypatch):
    def finished_meanwhile(spec, store, rerun, also):
        store_safely(results[0], store)

    monkeypatch.setattr(local.Claim, "take", finished_meanwhile)
    assert run_missing(SPECS[:1], tmp_path, say=str) == Outcome(stored=[SPECS[0].hash])


class FakeTime:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self):
        return self.now


def run_until(specs, store, phase, share, monkeypatch) -> tuple[Outcome, list]:
    """Run until a trial reaches a share of a phase; then the time box is over. Also what was told on the way."""
    clock, told = FakeTime(), []
    monkeypatch.setattr(local, "time", clock)

    def watch(spec, *where):
        told.append((spec, *where))
        clock.now = 100.0 if where == (phase, share) else clock.now

    return run_missing(specs, store, until=50.0, say=str, on_progress=watch), told


@pytest.mark.parametrize("fields", [{}, dict(dropout=0.1, documents=3, document_length=60), dict(n_memory=2)], ids=str)
@pytest.mark.parametrize("stop", [1, 7, 11])
def test_a_trial_cut_by_the_time_box_goes_on_and_ends_as_if_undisturbed(fields, stop, tmp_path, monkeypatch):
    spec = TrialSpec("smoke", **{**TINY, "steps": 12, **fields})
    specs = [SPECS[0], spec, SPECS[1]]
    cut, told = run_until(specs, tmp_path, "pretraining", stop / 12, monkeypatch)
    assert cut == Outcome(ran=[SPECS[0].hash], left=[spec.hash, SPECS[1].hash])
    assert told[-1] == (spec, "pretraining", stop / 12)
    assert checkpoint_path(spec, tmp_path).exists()
    rest, told = run_until(specs, tmp_path, "", 0, monkeypatch)
    assert rest == Outcome(stored=[SPECS[0].hash], ran=[spec.hash, SPECS[1].hash])
    assert next(share for s, _, share in told if s == spec) == (stop + 1) / 12  # not begun anew
    assert numbers(load_result(result_path(spec, tmp_path))) == numbers(run_trial(spec))
    assert not any((tmp_path / "smoke" / ".unfinished").iterdir())


@pytest.mark.parametrize("phase", ["pretraining", "exact model", "head tuning", "exact ladder", "prompt tuning"])
def test_a_trial_cut_after_pretraining_is_not_pretrained_again(phase, results, tmp_path, monkeypatch):
    cut, told = run_until(SPECS[:1], tmp_path, phase, 1.0, monkeypatch)
    assert cut == Outcome(left=[SPECS[0].hash])
    assert told[-1][1:] == (phase, 1.0)
    rest, told = run_until(SPECS[:1], tmp_path, "", 0, monkeypatch)
    assert rest == Outcome(ran=[SPECS[0].hash])
    assert min(share for _, _, share in told) == 1
    assert numbers(load_result(result_path(SPECS[0], tmp_path))) == numbers(results[0])


def test_a_time_box_that_is_over_runs_nothing(results, tmp_path):
    store_safely(results[0], tmp_path)
    outcome = run_missing(SPECS, tmp_path, until=time.monotonic() - 1, say=str)
    assert outcome == Outcome(left=[spec.hash for spec in SPECS[1:]])
    assert deadline(None) == float("inf")
    assert deadline(2) == pytest.approx(time.monotonic() + 120, abs=1)
    for minutes in (0, -1, float("nan")):
        with pytest.raises(ValueError, match=f"max-minutes must be positive, not {minutes}"):
            deadline(minutes)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (dict(learning_rate=1e30), "pretraining diverged: the loss at step 1 is nan"),
        (dict(learning_rate=1e3), "a result that cannot be stored: divergence is inf"),
    ],
)
def test_a_failing_trial_is_reported_and_the_rest_goes_on(fields, reason, tmp_path):
    bad, lines = TrialSpec("smoke", **{**TINY, **fields}), []
    outcome = run_missing([bad, SPECS[0]], tmp_path, say=lines.append)
    assert outcome == Outcome(ran=[SPECS[0].hash], failed={bad.hash: reason})
    assert lines[0] == f"{describe(bad)} failed: {reason}"
    assert set(stored(tmp_path)) == {f"{SPECS[0].hash}.json"}
    assert Claim.take(bad, tmp_path) is not None


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), OverflowError("too large"), MemoryError("too many")])
def test_a_trial_that_its_machine_cannot_hold_is_reported_and_the_rest_goes_on(error, results, tmp_path, monkeypatch):
    def run(spec, **how):
        if spec == SPECS[1]:
            return results[1]
        raise error

    monkeypatch.setattr(local, "run_trial", run)
    outcome = run_missing(SPECS[:2], tmp_path, say=str)
    assert outcome == Outcome(ran=[SPECS[1].hash], failed={SPECS[0].hash: str(error)})


def test_no_more_processes_are_begun_than_there_are_specs(results, tmp_path, monkeypatch):
    store_safely(results[0], tmp_path)
    begun, start = [], multiprocessing.context.SpawnProcess.start
    monkeypatch.setattr(
        multiprocessing.context.SpawnProcess, "start", lambda self: (begun.append(self), start(self))[1]
    )
    outcome = run_side_by_side(SPECS[:1], 3, tmp_path)
    assert outcome == Outcome(stored=[SPECS[0].hash])
    assert len(begun) == 1


def test_another_runs_checkpoint_fails_by_name_and_the_rest_goes_on(tmp_path, monkeypatch):
    run_until([replace(SPECS[0], steps=12)], tmp_path, "pretraining", 7 / 12, monkeypatch)
    path = checkpoint_path(SPECS[0], tmp_path)
    checkpoint_path(replace(SPECS[0], steps=12), tmp_path).rename(path)
    content = path.read_bytes()
    outcome = run_missing(SPECS[:2], tmp_path, say=str)
    assert (outcome.ran, list(outcome.failed)) == ([SPECS[1].hash], [SPECS[0].hash])
    assert f"{path} is the checkpoint of another run" in outcome.failed[SPECS[0].hash]
    assert path.read_bytes() == content


def test_a_device_that_is_not_there_stops_at_once(tmp_path):
    with pytest.raises(ValueError, match="device must be one of"):
        run_missing(SPECS, tmp_path, "quantum")
    assert not any(tmp_path.iterdir())


def test_a_damaged_result_stops_the_run_and_stays_as_it_is(results, tmp_path):
    damaged = store_safely(results[1], tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    content = damaged.read_bytes()
    with pytest.raises(ValueError, match=f"{damaged} is no readable result"):
        run_missing(SPECS, tmp_path, say=str)
    assert damaged.read_bytes() == content
    damaged.unlink()
    assert run_missing(SPECS, tmp_path, say=str).stored == [SPECS[0].hash]  # what came before it is kept


def test_a_result_that_cannot_be_stored_is_rescued(results, tmp_path, monkeypatch):
    save, store = local.save_result, tmp_path / "store"

    def full(result, where):
        if where == as_store(store):
            raise OSError("no space left")
        return save(result, where)

    monkeypatch.setattr(local, "save_result", full)
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(tmp_path / "elsewhere"))
    with pytest.raises(OSError, match="no space left; the finished result is kept in ") as caught:
        run_missing(SPECS, store, say=str)
    rescued = result_path(SPECS[0], tmp_path / "elsewhere" / "hmmlib-rescued")
    assert str(rescued) in str(caught.value)
    assert numbers(load_result(rescued)) == numbers(results[0])
    assert stored(store) == {}
    monkeypatch.undo()
    assert Claim.take(SPECS[0], store) is not None


def test_a_summary_has_what_there_is(results):
    assert summary(results[0]).startswith(
        f"head {results[0].head_accuracy:.1%}, prompt {results[0].prompt_accuracy:.1%}"
    )
    assert "prompt" not in summary(replace(results[0], prompt_accuracy=None))
    assert describe(replace(SPECS[0], n_memory=2)) == "smoke |M| = 2, |H| = 3, seed 0"


def test_the_time_left_at_the_pace_so_far(results, tmp_path):
    store_safely(results[0], tmp_path)
    assert pace(SPECS, tmp_path, [60, 120], 1) == "[1 of 4 stored, about 4 min left]"  # three trials of 90 seconds
    assert pace(SPECS, tmp_path, [60, 120], 3) == "[1 of 4 stored, about 2 min left]"
    assert pace(SPECS[:1], tmp_path, [60], 1) == "[1 of 1 stored]"


def test_outcomes_of_several_processes_as_one():
    first = Outcome(stored=["a"], ran=["b"], taken=["c", "d", "e"], failed={"f": "why"}, left=["g"])
    second = Outcome(stored=["a", "b"], ran=["c"], taken=["b", "e", "f"], left=["d", "g"])
    assert merge([first, second]) == Outcome(["a"], ["b", "c"], ["e"], {"f": "why"}, ["g", "d"])
    assert merge([]) == Outcome()


# Several processes.


def test_two_workers_share_the_work(results, tmp_path, capfd):
    outcome = run_side_by_side(SPECS, 2, tmp_path)
    assert (sorted(outcome.ran), outcome.taken, outcome.left) == (sorted(spec.hash for spec in SPECS), [], [])
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line.split(":")[0] for line in lines) == [describe(spec) for spec in SPECS]
    found = stored(tmp_path)
    assert set(found) == {f"{spec.hash}.json" for spec in SPECS}
    for result in results:  # the network's numbers may differ: a worker has its share of the cores
        assert found[f"{result.spec.hash}.json"]["seeds"] == result.seeds
        assert found[f"{result.spec.hash}.json"]["best_loss"] == pytest.approx(result.best_loss, rel=1e-9)


@slow  # tests/faults/test_worker_faults.py kills one at work
def test_a_worker_killed_as_it_starts_is_reported_and_the_other_does_it_all(tmp_path):
    def kill_one():
        while len(multiprocessing.active_children()) < 2:
            time.sleep(0.05)
        multiprocessing.active_children()[0].kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(RuntimeError, match="1 of 2 processes died; the rest is kept"):
        run_side_by_side(SPECS, 2, tmp_path)
    killer.join()
    assert set(stored(tmp_path)) == {f"{spec.hash}.json" for spec in SPECS}


def test_a_worker_that_meets_a_damaged_file_says_so(results, tmp_path):
    damaged = store_safely(results[1], tmp_path)
    damaged.write_text("{")
    with pytest.raises(ValueError, match=f"{damaged} is no readable result"):
        run_side_by_side(SPECS, 1, tmp_path)
    assert damaged.read_text() == "{"
    assert f"{SPECS[0].hash}.json" in {path.name for path in damaged.parent.iterdir()}


def test_a_worker_with_much_to_say_ends(tmp_path):
    """What the worker reports is more than a pipe holds."""
    specs = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(4000)]
    outcome = run_side_by_side(specs, 1, tmp_path, until=time.monotonic() - 1)
    assert outcome == Outcome(left=[spec.hash for spec in specs])


# A machine with little more than torch and transformers.


def needed(*names: str) -> set[str]:
    """The distributions that these need, themselves included."""
    found, queue = set(), list(names)
    while queue:
        name = queue.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        requirements = map(Requirement, metadata.distribution(name).requires or [])
        queue += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


BARE = """
import runpy, sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in refused else PathFinder.find_spec(name, path, target)

refused = REFUSED | {"typer", "rich"}
for name in refused & sys.modules.keys():
    del sys.modules[name]
sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]

from pathlib import Path
from hmmlib.experiments.local import run_missing
from hmmlib.experiments.specs import TrialSpec

specs = [TrialSpec("smoke", n_memory=m, **TINY) for m in (1, 2)]
assert run_missing(specs, Path(sys.argv[1])).ran == [spec.hash for spec in specs]
assert not refused & sys.modules.keys()
refused = REFUSED  # typer, and what it needs, come with transformers: the command line runs too
changes = [part for name, value in TINY.items() if name != "n_states" for part in ("--set", f"{name}={value}")]
sys.argv[1:] = ["trial", "--preset", "smoke", "--n-states", "3", "--seed", "1", "--store", sys.argv[1], *changes]
try:
    runpy.run_module("hmmlib", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
assert not REFUSED & sys.modules.keys()
"""


def test_torch_transformers_numpy_safetensors_pydantic_and_filelock_are_enough(results, tmp_path):
    allowed = needed("torch", "transformers", "numpy", "safetensors", "pydantic", "filelock")
    modules = metadata.packages_distributions()
    refused = {
        name for name, owners in modules.items() if not {owner.lower().replace("_", "-") for owner in owners} & allowed
    } - {"hmmlib"}
    others = {"scipy", "matplotlib", "ray", "jupytext", "papermill", "myst_nb", "hmmlearn", "jax", "dynamax"}
    assert refused >= (others & modules.keys()) | {"scipy", "matplotlib", "pytest", "hypothesis"}
    code = f"REFUSED, TINY = {refused!r}, {TINY!r}\n{BARE}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(stored(tmp_path)) == 3
    for result in results[:2]:  # with and without the others, the same numbers; exact ones in another order of sums
        expected, found = numbers(result), stored(tmp_path)[f"{result.spec.hash}.json"]
        assert found.pop("best_loss") == pytest.approx(expected.pop("best_loss"), rel=1e-12)
        assert found.pop("divergence") == pytest.approx(expected.pop("divergence"), rel=1e-12)
        assert found == expected
