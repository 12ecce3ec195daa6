"""What a notebook is told of results that it did not compute itself."""

import math
from dataclasses import replace
from operator import attrgetter

import pytest
from runs import TINY, numbers

import hmmbook.studies  # noqa: F401 (registers the measurements)
from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.store import checkpoint_path, load_result, result_path, save_result
from hmmbook.experiments.sweeps import describe
from hmmbook.experiments.trials import run_trial
from hmmbook.figures import live
from hmmbook.figures.live import gather, measured, run_live

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(3)]


@pytest.fixture(scope="module")
def results():
    return list(map(run_trial, SPECS))


@pytest.fixture
def store(tmp_path):
    """A reader's own folder, and the project's."""
    return (tmp_path / "reader", tmp_path / "project")


def test_stored_results_are_told_with_their_origin_and_what_is_missing_is_computed(results, store, capsys):
    reader, project = store
    origin = {"library": "0123456789abcdef", "commit": "b123456789ab"}
    for result, date in zip(results[:2], ("2020-01-01", "2020-01-02"), strict=True):
        save_result(replace(result, environment=result.environment | origin | {"date": date}), project)
    lines = []
    gathered = gather(SPECS, math.inf, "cpu", store, lines.append)
    assert list(map(numbers, gathered)) == list(map(numbers, results))
    note = "2 of 3 trials were not run now, but stored from 2020-01-01 to 2020-01-02 by b123456789ab."
    assert note in capsys.readouterr().err
    assert lines[0].startswith("smoke |H| = 3, seed 2: head ")
    assert result_path(SPECS[2], store).is_relative_to(reader)
    assert result_path(SPECS[1], store).is_relative_to(project)


def test_what_is_not_there_when_the_time_is_over_is_told(tmp_path):
    lines = []
    assert gather(SPECS, 0, "cpu", tmp_path, lines.append) == []
    assert lines == ["There are results of 0 of 3 trials. There was no time for 3 of the others."]


def test_a_result_that_lacks_a_measurement_when_the_time_is_over_is_told(results, tmp_path):
    for result in results:
        save_result(result, tmp_path)
    lines = []
    gathered = gather(SPECS, 0, "cpu", tmp_path, lines.append, ["solvable"])
    assert len(gathered) == 3
    assert not any(map(attrgetter("solvable"), gathered))
    assert lines == ["There was no time to measure what 3 of 3 trials lack."]


def test_without_any_store_one_is_begun_here_with_one_trial_of_each_point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = []
    (result,) = gather(SPECS, math.inf, "cpu", tmp_path / "nowhere", lines.append)
    assert result.spec == SPECS[0]
    assert lines[0].startswith("There are no stored results here. ")
    run_live(SPECS[2], "cpu", tmp_path / "nowhere")
    stored = tmp_path / "results"
    assert result_path(SPECS[0], stored).exists()
    assert not result_path(SPECS[1], stored).exists()
    assert result_path(SPECS[2], stored).exists()


def test_a_live_trial_is_run_and_kept_where_the_store_lacks_it(results, store):
    reader, project = store
    save_result(results[0], project)
    for spec, result in zip(SPECS[:2], results[:2], strict=True):
        assert numbers(run_live(spec, "cpu", store)) == numbers(result)
        assert not checkpoint_path(spec, store).exists()
    assert not result_path(SPECS[0], reader).exists()
    assert result_path(SPECS[1], reader).exists()


def test_a_live_trial_is_kept_where_the_stored_one_lacks_a_measurement(results, store):
    save_result(results[0], store[0])
    result = run_live(SPECS[0], "cpu", store, also=["solvable"])
    assert result.solvable is not None
    assert load_result(result_path(SPECS[0], store)).solvable == result.solvable


def test_a_live_trial_that_was_run_now_does_not_count_as_stored_before(tmp_path, capsys):
    run_live(SPECS[1], "cpu", tmp_path)
    gather(SPECS[1:2], math.inf, "cpu", tmp_path)
    assert "not run now" not in capsys.readouterr().err


def test_a_live_trial_that_is_neither_finished_in_time_nor_stored_is_an_error(tmp_path):
    with pytest.raises(TimeoutError, match=r"no time for the live trial\. Give it more minutes\. .* was broken off"):
        run_live(SPECS[0], "cpu", tmp_path, until=0.0)


def test_the_stored_trial_is_shown_where_there_is_no_time_for_the_live_one(results, tmp_path, capsys):
    save_result(results[0], tmp_path)
    assert run_live(SPECS[0], "cpu", tmp_path, until=0.0) == results[0]
    assert "There was no time for the live trial, so the stored one is shown." in capsys.readouterr().out


def test_a_live_trial_of_a_large_preset_on_a_cpu_is_warned_of_before_it_starts(tmp_path, monkeypatch, capsys):
    def begin(*arguments):
        raise live.TimeUp

    monkeypatch.setattr(live, "run_trial", begin)
    with pytest.raises(TimeoutError):
        run_live(TrialSpec("paper"), "cpu", tmp_path)
    assert capsys.readouterr().out.startswith("paper is for a GPU, but this runs on a CPU, where a trial takes hours")


def test_a_live_trial_that_is_broken_off_goes_on(tmp_path, monkeypatch):
    run = live.run_trial

    def break_off(phase, share):
        if phase == "pretraining" and share >= 0.5:
            raise KeyboardInterrupt

    def run_until_broken_off(spec, on_progress, *arguments):
        return run(spec, break_off, *arguments)

    monkeypatch.setattr(live, "run_trial", run_until_broken_off)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        run_live(SPECS[0], "cpu", tmp_path)
    note = f"{describe(SPECS[0])} was broken off, but its network after 2 of 4 steps is kept. Run it again to go on."
    assert interrupt.value.__notes__ == [note]

    shares = []

    def note(phase, share):
        if phase == "pretraining":
            shares.append(share)

    def run_and_note(spec, on_progress, *arguments):
        return run(spec, note, *arguments)

    monkeypatch.setattr(live, "run_trial", run_and_note)
    run_live(SPECS[0], "cpu", tmp_path)
    assert min(shares) > 0.5, "it went on, and did not begin anew"
    assert result_path(SPECS[0], tmp_path).exists()


def test_what_is_measured_of_the_left_panel_is_read_from_the_store():
    results = measured("quick", 1, 1e-9, "cpu", ["probes", "votes"])
    sizes = set()
    for result in results:
        assert result.probes
        assert result.votes
        sizes.add(result.spec.n_states)
    assert sizes == {4, 8, 10, 15, 25, 30}
    assert len(results) == 6
