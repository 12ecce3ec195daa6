"""Comparisons with the published means, on trials that are made up so that the answer is known, and on stored ones."""

import numpy as np
import pandas as pd
import pytest

from hmmbook import results
from hmmbook.experiments.results import published
from hmmbook.experiments.store import BEYOND
from hmmbook.studies.published_curve import comparisons, groups, predictions
from hmmbook.studies.published_curve.groups import APPENDIX_E, SIZES

PAPER = published("left")


@pytest.fixture(scope="module")
def stored():
    return results("quick", BEYOND)


def made_up(shift: float, spread: float = 0.02) -> pd.DataFrame:
    """Ten trials of each size whose means are the published ones, shifted."""
    rows = []
    for n_states in SIZES:
        for seed in range(10):
            sign = 1 if seed % 2 else -1
            head = PAPER["head tuning"][n_states].mean + shift + sign * spread
            prompt = PAPER["prompt tuning"][n_states].mean + shift + (1 if seed < 5 else -1) * spread
            rows.append([n_states, seed, head, prompt, 0.5])
    return pd.DataFrame(rows, columns=["n_states", "seed", "head_accuracy", "prompt_accuracy", "majority_rate"])


def test_gaps_are_our_means_minus_the_published():
    gaps = comparisons.gaps(made_up(-0.1))

    assert len(gaps) == 12
    assert [gap.mean for gap in gaps.values()] == pytest.approx([-0.1] * 12)


def test_means_outside_are_counted():
    assert comparisons.n_outside(made_up(0.0, spread=0.002)) == 0
    assert comparisons.n_outside(made_up(-0.1)) == 12


def test_the_nearest_steps_are_found_between_those_that_were_run():
    by_steps = {100: made_up(-0.3), 200: made_up(-0.1), 300: made_up(-0.2)}
    crossing = {100: made_up(-0.3), 200: made_up(-0.1)}

    assert comparisons.nearest_steps(by_steps, range(100, 301, 25)) == 200
    assert comparisons.nearest_steps(crossing, [100, 125, 150]) == 150


def test_points_above_the_more_frequent_label_are_of_each_trial():
    group = made_up(0.0)

    points = comparisons.points_above(group, "head_accuracy")

    assert points.tolist() == pytest.approx((100 * group.head_accuracy - 50).tolist())


def test_differences_are_of_the_same_chains():
    unchanged = pd.DataFrame({"prompt_accuracy": [0.9, 0.8], "head_accuracy": 0.7, "learned": 0.5}, index=[0, 1])
    changed = pd.DataFrame({"prompt_accuracy": [0.7, 0.8], "head_accuracy": 0.6, "learned": 0.9}, index=[1, 0])

    difference = comparisons.differences({groups.UNCHANGED: unchanged, "a change": changed})["a change"]

    assert difference["prompt_accuracy"].mean == pytest.approx(-0.1)
    assert difference["prompt_accuracy"].high == pytest.approx(-0.1)  # It is -0.1 on both chains.
    assert difference["learned"].mean == pytest.approx(0.4)


def test_the_joint_test_of_uncorrelated_means_is_a_sum_of_squares_and_their_rise_is_weighted():
    trials = made_up(-0.05)
    trials.loc[trials.n_states >= 25, ["head_accuracy", "prompt_accuracy"]] += 0.1

    together = comparisons.joint_test(trials, correlated=False)

    expected = 0.0
    variance = 0.0
    for n_states in SIZES:
        sample = trials[trials.n_states == n_states]
        assert sample.head_accuracy.corr(sample.prompt_accuracy) == pytest.approx(-0.2)
        ours = sample[["head_accuracy", "prompt_accuracy"]]
        theirs = [PAPER[series][n_states].deviation ** 2 / 20 for series in ("head tuning", "prompt tuning")]
        covariance = ours.cov().to_numpy() / 10 + np.diag(theirs)
        difference = np.full(2, 0.05 if n_states >= 25 else -0.05)
        expected += difference @ np.linalg.inv(covariance) @ difference
        if n_states in (4, 8, 25, 30):
            variance += covariance.sum() / 16
    assert together.statistic == pytest.approx(expected)
    assert together.rise == pytest.approx(0.1)  # from -0.05 to 0.05
    assert together.error == pytest.approx(variance**0.5)
    assert comparisons.joint_test(trials).statistic != pytest.approx(expected)


def test_a_mixture_has_the_mean_and_the_spread_of_many_draws():
    early = pd.Series([0.5, 0.6, 0.7])
    late = pd.Series([0.9, 1.0])

    mean, spread = comparisons.mixture(early, late, 0.25)

    many = [*early] * 6 + [*late] * 3  # 18 early ones to 6 late ones
    assert (mean, spread) == pytest.approx((np.mean(many), np.std(many)))


def test_explanations_have_the_published_mean_of_prompts_where_a_share_can_reach_it():
    early = made_up(-0.3)
    late = made_up(0.1)

    mixed = comparisons.explanations(early, late)

    assert mixed.share.tolist() == pytest.approx([0.75] * 6)
    assert mixed.heads[8] == pytest.approx(PAPER["head tuning"][8].mean)
    assert mixed["spread if alike"][8] == pytest.approx(late[late.n_states == 8].prompt_accuracy.std())
    assert comparisons.explanations(early, made_up(-0.1)).share.tolist() == [1] * 6


# Stored trials


def test_groups_have_the_trials_that_their_names_say(stored):
    by_change = groups.by_change(stored)

    assert len(by_change) == 13
    for name, group in by_change.items():
        assert sorted(group.index) == list(range(10)), name
        assert {*group.n_states} == {30}
        assert {*group.tuning_batch} == {8}
    assert {*by_change["5% masked"].masked} == {0.05}
    assert {*by_change["AdamW, 1,600 steps"].muon_rate} == {0}
    assert {*by_change["129 tokens"].task_length} == {129}
    for steps, group in groups.by_steps(stored).items():
        assert {*group.steps} == {steps}
        assert group.groupby("n_states").size().tolist() == [20] * 6
    assert groups.on_fresh_chains(stored, 175).seed.min() == 20


def test_trials_with_changes_have_no_others(stored):
    trials = groups.with_changes(stored, "dropout=0.1")

    assert {*trials.changes} == {f"dropout=0.1 {APPENDIX_E}"}
    assert {*trials.dropout} == {0.1}
    assert len(groups.with_changes(stored, "dropout=0.3")) == 0


def test_networks_that_learned_little_are_between_a_twentieth_and_a_quarter(stored):
    for fresh in (False, True):
        for group in groups.that_learned_little(stored, fresh).values():
            assert group.learned.between(0.05, 0.25).all()
            assert ((group.seed >= 20) == fresh).all()


def test_predictions_are_judged_and_two_could_not_be_tested(stored):
    judged = predictions.all_predictions(stored)
    outcomes = [prediction.came_true for prediction in judged]

    assert len(judged) == 35
    assert outcomes.count(None) == 2
    assert len([outcome for outcome in outcomes if outcome is not None and not outcome]) == 10


def test_a_prediction_says_what_was_found(stored):
    steps_30 = stored.query("n_states == 30 and seed < 20")
    prompts = steps_30[steps_30.changes == f"steps=300 {APPENDIX_E}"].prompt_accuracy

    found = {prediction.predicted: prediction for prediction in predictions.all_predictions(stored)}
    after_300 = found["After 300 steps prompts at 30 states are above 85%, with a standard deviation below 10 points."]

    assert after_300.found == f"{prompts.mean():.1%} ± {prompts.std():.1%}"
    assert after_300.came_true
