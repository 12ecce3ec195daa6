"""Running what a store lacks: claims, the time box, failures, in one process and side by side."""

import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import metadata
from types import SimpleNamespace

import pytest
import sweep_hooks
import torch
from packaging.requirements import Requirement
from runs import CHANGES, ENVIRONMENT, TINY, numbers, stored

from hmmlib import backend
from hmmlib.experiments import executors, sweeps
from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Claim, as_store, checkpoint_path, load_result, result_path
from hmmlib.experiments.sweeps import Outcome, deadline, describe, pace, run_missing, store_safely, summary
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(4)]


@pytest.fixture(scope="module")
def results():
    torch.set_num_threads(1)
    return [run_trial(spec) for spec in SPECS]


def test_only_what_is_missing_is_run_and_nothing_twice(results, tmp_path):
    file, lines = store_safely(results[1], tmp_path), []
    before = file.read_bytes(), file.stat().st_mtime_ns
    outcome = run_missing([*SPECS, *SPECS], tmp_path, log=lines.append)
    assert outcome == Outcome(stored=[SPECS[1].hash], ran=[SPECS[k].hash for k in (0, 2, 3)])
    assert stored(tmp_path) == {f"{r.spec.hash}.json": numbers(r) for r in results}
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [line.split(":")[0] for line in lines] == [describe(SPECS[k]) for k in (0, 2, 3)]
    assert re.search(r"\[2 of 4 stored, about \d+ min left\]$", lines[0])
    assert lines[-1].endswith("[4 of 4 stored]")
    assert run_missing(SPECS, tmp_path, log=lines.append) == Outcome(stored=[spec.hash for spec in SPECS])
    assert len(lines) == 3


def test_what_another_holds_is_left_to_it_and_what_it_has_just_finished_is_stored(results, tmp_path, monkeypatch):
    claim = Claim.take(SPECS[0], tmp_path)
    assert run_missing(SPECS[:2], tmp_path, log=str) == Outcome(ran=[SPECS[1].hash], taken=[SPECS[0].hash])
    claim.release()
    monkeypatch.setattr(sweeps.Claim, "take", lambda spec, store, *_: store_safely(results[0], store) and None)
    assert run_missing(SPECS[:1], tmp_path, log=str) == Outcome(stored=[SPECS[0].hash])


class FakeTime:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self):
        return self.now


def run_until(specs, store, phase, share, monkeypatch) -> tuple[Outcome, list]:
    """Run until a trial reaches a share of a phase; then the time box is over. Also what was reported on the way."""
    clock, reports = FakeTime(), []
    monkeypatch.setattr(sweeps, "time", clock)

    def watch(spec, *where):
        reports.append((spec, *where))
        clock.now = 100.0 if where == (phase, share) else clock.now

    return run_missing(specs, store, until=50.0, log=str, on_progress=watch), reports


@pytest.mark.parametrize(
    ("fields", "step"),
    [({}, 1), ({}, 11), (dict(dropout=0.1, documents=3, document_length=60), 7), (dict(n_memory=2), 7)],
    ids=str,
)
def test_a_trial_cut_by_the_time_box_goes_on_and_ends_as_if_undisturbed(fields, step, tmp_path, monkeypatch):
    spec = TrialSpec("smoke", **{**TINY, "steps": 12, **fields})
    specs = [SPECS[0], spec, SPECS[1]]
    cut, reports = run_until(specs, tmp_path, "pretraining", step / 12, monkeypatch)
    assert cut == Outcome(ran=[SPECS[0].hash], left=[spec.hash, SPECS[1].hash])
    assert reports[-1] == (spec, "pretraining", step / 12)
    rest, reports = run_until(specs, tmp_path, "", 0, monkeypatch)
    assert rest == Outcome(stored=[SPECS[0].hash], ran=[spec.hash, SPECS[1].hash])
    assert next(share for s, _, share in reports if s == spec) == (step + 1) / 12  # not begun anew
    assert numbers(load_result(result_path(spec, tmp_path))) == numbers(run_trial(spec))
    assert not any((tmp_path / "smoke" / ".unfinished").iterdir())


@pytest.mark.parametrize("phase", ["pretraining", "head tuning", "prompt tuning"])
def test_a_trial_cut_after_pretraining_is_not_pretrained_again(phase, results, tmp_path, monkeypatch):
    cut, reports = run_until(SPECS[:1], tmp_path, phase, 1.0, monkeypatch)
    assert cut == Outcome(left=[SPECS[0].hash])
    assert reports[-1][1:] == (phase, 1.0)
    rest, reports = run_until(SPECS[:1], tmp_path, "", 0, monkeypatch)
    assert rest == Outcome(ran=[SPECS[0].hash])
    assert min(share for _, _, share in reports) == 1
    assert numbers(load_result(result_path(SPECS[0], tmp_path))) == numbers(results[0])


def test_a_time_box_that_is_over_runs_nothing(results, tmp_path, monkeypatch):
    store_safely(results[0], tmp_path)
    assert run_missing(SPECS, tmp_path, until=0.0, log=str) == Outcome(
        left=[s.hash for s in SPECS[1:]], stored=[SPECS[0].hash]
    )
    monkeypatch.setattr(sweeps, "time", FakeTime())
    assert (deadline(None), deadline(2), deadline(0)) == (float("inf"), 120, 0)
    for minutes in (-1, float("nan"), True):
        with pytest.raises(ValueError, match=f"max-minutes must be a number of 0 or more, not {minutes}"):
            deadline(minutes)


FAILURES = [
    (dict(learning_rate=1e30), "pretraining diverged: the loss at step 1 is nan"),
    (dict(learning_rate=1e3), "a result that cannot be stored: divergence: Input should be a finite number, not inf"),
]


@pytest.mark.parametrize(("fields", "reason"), FAILURES)
def test_a_failing_trial_is_reported_and_the_rest_goes_on(fields, reason, tmp_path):
    bad, lines = TrialSpec("smoke", **{**TINY, **fields}), []
    outcome = run_missing([bad, SPECS[0]], tmp_path, log=lines.append)
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

    monkeypatch.setattr(sweeps, "run_trial", run)
    outcome = run_missing(SPECS[:2], tmp_path, log=str)
    assert outcome == Outcome(ran=[SPECS[1].hash], failed={SPECS[0].hash: str(error)})


def test_another_runs_checkpoint_fails_by_name_and_the_rest_goes_on(tmp_path, monkeypatch):
    run_until([replace(SPECS[0], steps=12)], tmp_path, "pretraining", 7 / 12, monkeypatch)
    path = checkpoint_path(SPECS[0], tmp_path)
    checkpoint_path(replace(SPECS[0], steps=12), tmp_path).rename(path)
    content = path.read_bytes()
    outcome = run_missing(SPECS[:2], tmp_path, log=str)
    assert (outcome.ran, list(outcome.failed)) == ([SPECS[1].hash], [SPECS[0].hash])
    assert f"{path} is the checkpoint of another run" in outcome.failed[SPECS[0].hash]
    assert path.read_bytes() == content


def test_a_damaged_result_stops_all_before_any_work_and_stays_as_it_is(results, tmp_path, monkeypatch):
    damaged = store_safely(results[1], tmp_path)
    damaged.write_bytes(content := damaged.read_bytes()[:-40])
    monkeypatch.setattr(RayCluster, "connect", lambda *_: pytest.fail("Ray was started"))
    for cluster in (None, RayCluster()):
        with pytest.raises(ValueError, match=f"{damaged} is no readable result"):
            run_missing(SPECS, tmp_path, cluster=cluster)
    assert [path.name for path in damaged.parent.iterdir()] == [damaged.name]
    assert damaged.read_bytes() == content


BAD = [
    (dict(device="quantum"), "device must be one of"),
    (dict(workers=0), "workers must be an integer of 1 or more, not 0"),
    (dict(also=["rain"]), "each of also must be one of .*, not 'rain'"),
    (dict(device="quantum", cluster=RayCluster()), "device must be one of"),
    (dict(cpus=0), "cpus must be more than 0"),
    (dict(cpus=float("nan")), "cpus must be a number of 0 or more, not nan"),
    (dict(gpus=-0.5), "gpus must be a number of 0 or more, not -0.5"),
    (dict(address="nowhere"), "address must be HOST:PORT or auto, not 'nowhere'"),
    (dict(address="host:port"), "address must be HOST:PORT or auto, not 'host:port'"),
    (dict(address="127.0.0.1:9"), "no Ray cluster answers at 127.0.0.1:9"),
]


@pytest.mark.parametrize(("arguments", "error"), BAD, ids=[f"{'-'.join(one)} {k}" for k, (one, _) in enumerate(BAD)])
def test_bad_arguments_are_refused_before_any_work(arguments, error, tmp_path):
    call = RayCluster if arguments.keys() & {"cpus", "gpus", "address"} else partial(run_missing, SPECS, tmp_path)
    with pytest.raises((ValueError, OSError), match=error):
        call(**arguments)
    assert not any(tmp_path.iterdir())


def test_a_result_that_cannot_be_stored_is_rescued(results, tmp_path, monkeypatch):
    save, store = sweeps.save_result, tmp_path / "store"

    def full(result, where):
        if where == as_store(store):
            raise OSError("no space left")
        return save(result, where)

    monkeypatch.setattr(sweeps, "save_result", full)
    monkeypatch.setattr(sweeps.tempfile, "gettempdir", lambda: str(tmp_path / "elsewhere"))
    with pytest.raises(OSError, match="no space left; the finished result is kept in ") as caught:
        run_missing(SPECS, store, log=str)
    rescued = result_path(SPECS[0], tmp_path / "elsewhere" / "hmmlib-rescued")
    assert str(rescued) in str(caught.value)
    assert numbers(load_result(rescued)) == numbers(results[0])
    assert stored(store) == {}
    assert Claim.take(SPECS[0], store) is not None


def test_a_summary_has_what_there_is(results):
    assert summary(results[0]).startswith(
        f"head {results[0].head_accuracy:.1%}, prompt {results[0].prompt_accuracy:.1%}"
    )
    assert "prompt" not in summary(replace(results[0], prompt_accuracy=None))
    assert describe(replace(SPECS[0], n_memory=2)) == "smoke |M| = 2, |H| = 3, seed 0"


def test_the_time_left_at_the_pace_so_far(results, tmp_path):
    store_safely(results[0], tmp_path)
    assert pace(SPECS, tmp_path, [], 1) == "[1 of 4 stored]", "no estimate before a trial has ended"
    assert pace(SPECS, tmp_path, [60, 120], 1) == "[1 of 4 stored, about 4 min left]"  # three trials of 90 seconds
    assert pace(SPECS, tmp_path, [60, 120], 3) == "[1 of 4 stored, about 2 min left]"
    assert pace(SPECS[:1], tmp_path, [60], 1) == "[1 of 1 stored]"


# Several processes.


def test_a_killed_worker_costs_its_trial_alone_which_can_be_run_again(results, tmp_path, monkeypatch):
    monkeypatch.setattr(executors.os, "cpu_count", lambda: 2)  # one core for each, as in the test's process
    outcome = run_missing(SPECS, tmp_path, workers=2, log=str, on_progress=sweep_hooks.die)
    assert sorted(outcome.ran) == sorted(SPECS[k].hash for k in (0, 2, 3))
    assert outcome.failed == {SPECS[1].hash: "its process died: run it again"}
    assert run_missing(SPECS, tmp_path, log=str).ran == [SPECS[1].hash]
    assert stored(tmp_path) == {f"{result.spec.hash}.json": numbers(result) for result in results}


def test_workers_end_with_the_command_and_keep_their_work(results, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(executors.os, "cpu_count", lambda: 2)
    before, lines = signal.signal(signal.SIGINT, signal.default_int_handler), []
    try:
        with pytest.raises(KeyboardInterrupt):
            run_missing(SPECS[:2], tmp_path, workers=2, log=lines.append, on_progress=sweep_hooks.interrupt_the_command)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not backend.Interrupts.asked
    assert capfd.readouterr().err == "stopping after this step\n"
    assert checkpoints.facts_at(checkpoint_path(SPECS[1], tmp_path))["done"] == "3"
    assert any(line.startswith(f"{describe(SPECS[1])} was broken off, and its network after 3 of 4") for line in lines)
    assert Claim.take(SPECS[1], tmp_path) is not None
    rest = run_missing(SPECS[:2], tmp_path, log=str)
    assert SPECS[1].hash in rest.ran
    assert numbers(load_result(result_path(SPECS[1], tmp_path))) == numbers(results[1])


@pytest.mark.parametrize(
    ("nodes", "cpus", "gpus", "expected"),
    [
        ([{"CPU": 2.0}, {"CPU": 2.0}], 1.5, 0, 2),
        ([{"CPU": 2.0}, {"CPU": 2.0}], 3, 0, 0),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}], 1, 1, 2),
        ([{"CPU": 16.0, "GPU": 1.0}], 1, 0.1, 10),
        ([{"GPU": 3.0}], 1, 1, 0),
        ([], 1, 0, 0),
    ],
)
def test_how_many_trials_fit_on_the_nodes_of_a_cluster(nodes, cpus, gpus, expected):
    cluster = RayCluster(None, cpus, gpus)
    cluster.ray = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes])
    assert cluster.workers == expected


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
        return None if name.split(".")[0] in REFUSED else PathFinder.find_spec(name, path, target)

for name in REFUSED & sys.modules.keys():
    del sys.modules[name]
sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
sys.argv[1:] = ["trial", "--preset", "smoke", "--n-states", "3", "--store", sys.argv[1], *CHANGES]
try:
    runpy.run_module("hmmlib", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
assert not REFUSED & sys.modules.keys()
"""


def test_torch_transformers_numpy_scipy_safetensors_pydantic_and_filelock_are_enough(results, tmp_path):
    """Typer, and what it needs, come with transformers."""
    allowed = needed("torch", "transformers", "numpy", "scipy", "safetensors", "pydantic", "filelock")
    modules = metadata.packages_distributions()
    refused = {
        name for name, owners in modules.items() if not {owner.lower().replace("_", "-") for owner in owners} & allowed
    } - {"hmmlib"}
    assert refused >= {"pandas", "matplotlib", "pytest", "hypothesis"}
    code = f"REFUSED, CHANGES = {refused!r}, {CHANGES!r}\n{BARE}"
    call = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    (found,), expected = stored(tmp_path).values(), numbers(results[0])
    for name in ("best_loss", "divergence"):  # exact ones are summed in another order
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=1e-12)
    assert found == expected
