"""What a notebook is told of results that it did not compute itself."""

import math
from dataclasses import replace
from functools import partial

import pytest
from companion.figures import live
from companion.figures.live import gather, measured, run_live
from runs import TINY, numbers

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import checkpoint_path, load_result, result_path, save_result
from hmmlib.experiments.sweeps import describe
from hmmlib.experiments.trials import run_trial

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(3)]


@pytest.fixture(scope="module")
def results():
    return [run_trial(spec) for spec in SPECS]


def test_stored_results_are_told_with_their_origin_and_what_is_missing_is_computed(results, tmp_path, capsys):
    store, lines = (tmp_path / "mine", tmp_path / "theirs"), []
    for k, result in enumerate(results[:2]):
        origin = {"library": "0123456789abcdef", "commit": "b123456789ab", "date": f"2020-01-0{k + 1}"}
        save_result(replace(result, environment=result.environment | origin), tmp_path / "theirs")
    assert list(map(numbers, gather(SPECS, math.inf, "cpu", store, lines.append))) == list(map(numbers, results))
    said = "stored from 2020-01-01 to 2020-01-02 by b123456789ab"
    assert f"2 of 3 trials were not run now, but {said}." in capsys.readouterr().err
    assert lines[0].startswith("smoke |H| = 3, seed 2: head ")
    assert [result_path(spec, store).is_relative_to(tmp_path / "mine") for spec in SPECS] == [False, False, True]


def test_what_is_not_there_when_the_time_is_over_is_told(results, tmp_path):
    lines = []
    assert gather(SPECS, 0, "cpu", tmp_path, lines.append) == []
    for result in results:
        save_result(result, tmp_path)
    assert [result.solvable for result in gather(SPECS, 0, "cpu", tmp_path, lines.append, ["solvable"])] == [None] * 3
    assert lines == [
        "0 of 3 trials are there; the time was over before 3 of the others.",
        "3 of 3 trials lack what is asked for: the time was over, or others are running them.",
    ]


def test_without_any_store_one_is_begun_here_with_one_trial_of_each_point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = []
    (result,) = gather(SPECS, math.inf, "cpu", tmp_path / "nowhere", lines.append)
    run_live(SPECS[2], "cpu", tmp_path / "nowhere")
    assert (result.spec, lines[0][:31]) == (SPECS[0], "There is no result store here: ")
    assert [result_path(spec, tmp_path / "results").exists() for spec in SPECS] == [True, False, True]


def test_a_live_trial_is_run_and_kept_where_the_store_lacks_it(results, tmp_path):
    store = (tmp_path / "mine", tmp_path / "theirs")
    save_result(results[0], tmp_path / "theirs")
    for spec, expected in zip(SPECS[:2], results, strict=False):
        assert numbers(run_live(spec, "cpu", store)) == numbers(expected)
        assert not checkpoint_path(spec, store).exists()
    assert [result_path(spec, tmp_path / "mine").exists() for spec in SPECS[:2]] == [False, True], "one was stored"
    lacking = run_live(SPECS[0], "cpu", store, also=["solvable"])
    assert lacking.solvable == load_result(result_path(SPECS[0], store)).solvable is not None


def test_a_live_trial_that_is_broken_off_goes_on(tmp_path, monkeypatch):
    real, steps = live.run_trial, []

    def broken_off(phase, share):
        if phase == "pretraining" and share >= 0.5:
            raise KeyboardInterrupt

    monkeypatch.setattr(live, "run_trial", partial(real, on_progress=broken_off))
    with pytest.raises(KeyboardInterrupt) as interrupt:
        run_live(SPECS[0], "cpu", tmp_path)
    said = f"{describe(SPECS[0])} was broken off, and its network after 2 of 4 steps is kept: run it again to go on"
    assert interrupt.value.__notes__ == [said]
    monkeypatch.setattr(live, "run_trial", partial(real, on_progress=lambda *told: steps.append(told)))
    run_live(SPECS[0], "cpu", tmp_path)
    assert min(share for phase, share in steps if phase == "pretraining") > 0.5, "it went on, and did not begin anew"
    assert result_path(SPECS[0], tmp_path).exists()


def test_what_is_measured_of_the_left_panel_is_read_from_the_store():
    found = measured("quick", 1, 1e-9, "cpu", ["probes", "votes"])
    assert sorted(result.spec.n_states for result in found if result.probes and result.votes) == [4, 8, 10, 15, 25, 30]
