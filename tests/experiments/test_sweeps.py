"""Running what a store lacks: claims, the time box, failures, in one process and side by side."""

import re
import signal
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from runs import TINY, die_or_interrupt, numbers, stored

from hmmlib import TrialSpec, backend, load_result, result_path, run_trial
from hmmlib.experiments import executors, sweeps
from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.store import Claim, checkpoint_path
from hmmlib.experiments.sweeps import Outcome, deadline, describe, pace, run_missing, store_safely, summary
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(4)]
HASHES = [spec.hash for spec in SPECS]


@pytest.fixture(scope="module")
def results():
    return [run_trial(spec) for spec in SPECS]


def test_only_what_is_missing_is_run_and_nothing_twice(results, tmp_path, monkeypatch):
    file, lines = store_safely(results[1], tmp_path), []
    before = file.read_bytes(), file.stat().st_mtime_ns
    outcome = run_missing([*SPECS, *SPECS], tmp_path, log=lines.append)
    assert outcome == Outcome(stored=[HASHES[1]], ran=[HASHES[k] for k in (0, 2, 3)])
    assert stored(tmp_path) == {f"{r.spec.hash}.json": numbers(r) for r in results}
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [line.split(":")[0] for line in lines] == [describe(SPECS[k]) for k in (0, 2, 3)]
    assert re.search(r"\[2 of 4 stored, less than 1 min left\]$", lines[0])
    assert lines[-1].endswith("[4 of 4 stored]")
    monkeypatch.setattr(RayCluster, "connect", lambda *_: pytest.fail("Ray was started"))
    for cluster in (None, RayCluster()):
        assert run_missing(SPECS, tmp_path, log=pytest.fail, cluster=cluster) == Outcome(stored=HASHES)


def test_what_another_holds_is_left_to_it_and_what_it_has_just_finished_is_stored(results, tmp_path, monkeypatch):
    claim = Claim.take(SPECS[0], tmp_path)
    assert run_missing(SPECS[:2], tmp_path, log=str) == Outcome(ran=[HASHES[1]], taken=[HASHES[0]])
    claim.release()
    monkeypatch.setattr(sweeps.Claim, "take", lambda spec, store, *_: store_safely(results[0], store) and None)
    assert run_missing(SPECS[:1], tmp_path, log=str) == Outcome(stored=[HASHES[0]])


def test_a_trial_cut_by_the_time_box_goes_on_where_it_was_and_ends_as_if_undisturbed(tmp_path, monkeypatch):
    spec = TrialSpec("smoke", **TINY | dict(steps=12, dropout=0.1, documents=3, document_length=60))
    specs = [SPECS[0], spec, SPECS[1]]

    def run_until(*end) -> tuple[Outcome, list]:
        """The time is over where the second trial reaches a share of a phase. Also what was reported of that trial."""
        reports = []
        monkeypatch.setattr(sweeps, "time", SimpleNamespace(monotonic=lambda: 100.0 if (spec, *end) in reports else 0))
        outcome = run_missing(specs, tmp_path, until=50.0, log=str, on_progress=lambda *where: reports.append(where))
        return outcome, [where for of, *where in reports if of == spec]

    before, least = dict(ran=HASHES[:1]), []
    for end in (("pretraining", 7 / 12), ("pretraining", 1.0), ("head tuning", 1.0), ("prompt tuning", 1.0)):
        cut, reports = run_until(*end)
        assert cut == Outcome(**before, left=[spec.hash, HASHES[1]])
        assert reports[-1] == [*end]
        least.append(min(share for _, share in reports))
        before = dict(stored=HASHES[:1])
    rest, reports = run_until()
    assert rest == Outcome(**before, ran=[spec.hash, HASHES[1]])
    assert [*least, reports[0][1]] == [1 / 12, 8 / 12, 1, 1, 1], "nothing is pretrained twice"
    assert numbers(load_result(result_path(spec, tmp_path))) == numbers(run_trial(spec))
    assert not any((tmp_path / "smoke" / ".unfinished").iterdir())


def test_failing_trials_are_reported_and_the_rest_goes_on(tmp_path):
    """Also where the loss stays a number and what is measured of the network does not."""
    specs, lines = [*(replace(SPECS[1], learning_rate=rate) for rate in (1e30, 1e3)), SPECS[1]], []
    outcome = run_missing(specs, tmp_path, log=lines.append)
    reasons = [
        "pretraining diverged: the loss at step 1 is nan",
        "a result that cannot be stored: divergence: Input should be a finite number, not inf",
    ]
    assert outcome == Outcome(ran=[HASHES[1]], failed=dict(zip((spec.hash for spec in specs), reasons, strict=False)))
    both = zip(specs[:2], reasons, strict=True)
    assert lines[:2] == [f"{describe(spec, ['learning_rate'])} failed: {why}" for spec, why in both]
    assert set(stored(tmp_path)) == {f"{HASHES[1]}.json"}
    assert all(Claim.take(spec, tmp_path) for spec in specs[:2])


def test_bad_arguments_are_refused_before_any_work(tmp_path):
    run = partial(run_missing, SPECS, tmp_path)
    for call, arguments, error in (
        (run, dict(device="quantum", cluster=RayCluster()), "device must be one of"),
        (run, dict(workers=0), "workers must be an integer of 1 or more, not 0"),
        (run, dict(networks=__file__), f"networks must be a folder where files can be written, not {__file__}: "),
        (RayCluster, dict(cpus=0), "cpus must be more than 0"),
        (RayCluster, dict(gpus=-0.5), "gpus must be a number of 0 or more, not -0.5"),
        (RayCluster, dict(address="127.0.0.1:9"), "no Ray cluster answers at 127.0.0.1:9"),
        (deadline, dict(minutes=-1), "max-minutes must be a number of 0 or more, not -1"),
    ):
        with pytest.raises((ValueError, OSError), match=error):
            call(**arguments)
    assert not any(tmp_path.iterdir())


def test_what_is_said_of_trials_and_of_the_time_left_at_their_pace(results, tmp_path, monkeypatch):
    head, prompt = results[0].head_accuracy, results[0].prompt_accuracy
    assert summary(results[0]).startswith(f"head {head:.1%}, prompt {prompt:.1%}")
    assert "prompt" not in summary(replace(results[0], prompt_accuracy=None))
    assert describe(replace(SPECS[0], n_memory=2)) == "smoke |M| = 2, |H| = 3, seed 0"
    store_safely(results[0], tmp_path)
    assert pace(SPECS, tmp_path, [], 1) == "[1 of 4 stored]", "no estimate before a trial has ended"
    assert pace(SPECS, tmp_path, [60, 120], 1) == "[1 of 4 stored, about 4 min left]"  # three trials of 90 seconds
    assert pace(SPECS, tmp_path, [60, 120], 3) == "[1 of 4 stored, about 2 min left]"
    assert pace(SPECS[:1], tmp_path, [60], 1) == "[1 of 1 stored]"
    monkeypatch.setattr(sweeps, "time", SimpleNamespace(monotonic=lambda: 10.0))
    assert (deadline(None), deadline(2), deadline(0)) == (float("inf"), 130, 10)


def test_a_killed_worker_costs_its_trial_alone_and_an_interrupt_leaves_checkpoints(
    results, tmp_path, monkeypatch, capfd
):
    """Two at a time: seed 1 is killed, so that seed 0 runs in a process of its own; then seed 3 asks all to end."""
    monkeypatch.setattr(executors.os, "cpu_count", lambda: 2)  # one core for each, as in the test's process
    before, lines = signal.signal(signal.SIGINT, signal.default_int_handler), []
    specs, hook = [SPECS[1], SPECS[3], SPECS[0]], partial(die_or_interrupt, tmp_path)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_missing(specs, tmp_path, workers=2, log=lines.append, on_progress=hook)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not backend.Interrupts.asked
    assert capfd.readouterr().err == "stopping after this step\n"
    assert lines[0] == f"{describe(SPECS[1])} failed: its process died: run it again"
    assert lines[1].startswith(f"{describe(SPECS[0])}: head")
    assert lines[2].startswith(f"{describe(SPECS[3])} was broken off, and its network after 3 of 4")
    assert checkpoints.facts_at(checkpoint_path(SPECS[3], tmp_path))["done"] == "3"
    assert run_missing(specs, tmp_path, log=str) == Outcome(HASHES[:1], [HASHES[1], HASHES[3]])
    assert stored(tmp_path) == {f"{results[k].spec.hash}.json": numbers(results[k]) for k in (0, 1, 3)}
