"""What the pages of Section 5 get of trials where there is time, and where there is none."""

import pytest
from runs import TINY

from hmmbook.experiments.specs import TrialSpec
from hmmbook.figures.live import page_trials, panel_trials

# No test or store has these seeds.
SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in (1001, 1002)]
COLUMNS = {"head": "head_accuracy", "attention head": "attention_accuracy"}


@pytest.fixture(scope="module")
def in_time():
    return page_trials("left", SPECS, SPECS[0], "cpu", minutes=5)


def test_where_there_is_time_the_page_has_its_own_trials_and_the_live_one(in_time):
    assert in_time.results.seed.tolist() == [1001, 1002]
    assert in_time.live.spec == SPECS[0]
    assert in_time.stored is None


def test_the_comparison_has_what_is_stored_and_what_came_now(in_time):
    again = page_trials("left", SPECS, SPECS[0], "cpu", minutes=5)
    now = f"{in_time.live.head_accuracy:.1%}"

    assert in_time.comparison(COLUMNS).rows[0] == ["head", "–", now]
    assert again.comparison(COLUMNS).rows[0] == ["head", now, now]


def test_where_there_is_no_time_the_page_has_the_panels_own_trials_and_says_so(capsys):
    specs = [TrialSpec("laptop", seed=seed, **TINY) for seed in (1001, 1002)]
    trials = page_trials("left", specs, specs[0], "cpu", minutes=1e-9)

    printed = capsys.readouterr().out
    assert trials.live is None
    assert trials.comparison(COLUMNS).rows == []
    assert len(trials.results) > 0
    assert "The live trial is missing: there was no time for the live trial" in printed
    assert "None of these trials is stored, and none was done in time." in printed


def test_the_trials_of_a_panel_are_those_of_a_page_without_the_live_one(in_time):
    trials = panel_trials("left", SPECS, "cpu", minutes=5)

    assert trials.seed.tolist() == [1001, 1002]
    assert trials.head_accuracy.tolist() == in_time.results.head_accuracy.tolist()


def test_a_preset_for_gpus_is_not_begun_on_a_cpu(capsys):
    spec = TrialSpec("gpu", n_states=4, seed=1001)
    trials = page_trials("left", [spec], SPECS[0], "cpu", minutes=5)

    assert trials.live.spec == SPECS[0]
    assert set(trials.results.preset) == {"quick"}
    assert "python -m hmmbook trial --panel left --missing --preset gpu" in capsys.readouterr().out
