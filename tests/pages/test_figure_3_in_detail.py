"""What the details of Figure 3 say of heads and prompts, from the stored trials and their models."""

import pytest
from lessons import run
from pandas import DataFrame, Series
from panels import LEFT_SIZES, lead, left_panel, over_all_sizes, percent

from hmmbook import mean_ci, results
from hmmbook.experiments.intervals import difference_ci
from hmmbook.experiments.presets import LADDER_NUMBERS, PRESETS
from hmmbook.experiments.results import published
from hmmbook.experiments.store import BEYOND, STORE
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.heads_by_size import ALONE
from hmmlib import random_hmm


@pytest.fixture(scope="module")
def trials() -> DataFrame:
    return left_panel()


@pytest.fixture(scope="module")
def means(trials) -> DataFrame:
    return trials.groupby("n_states").mean(numeric_only=True)


def fitted_to_networks(n_states: int) -> tuple[Series, DataFrame]:
    """The accuracy of heads that are fully fitted to the networks' own predictions, and the trials they belong to."""
    stored = tables.left_panel(n_states)
    return tables.of_heads(stored, ALONE, "accuracy")["none"], stored


# Fully fitted heads


def test_up_to_10_states_fully_fitted_heads_are_ahead_in_the_mean_and_at_15_the_lead_of_prompts_may_be_chance(trials):
    leads = lead(trials, "prompt_accuracy", "fitted")

    assert all(leads[n].mean < 0 for n in (4, 8, 10))
    assert f"{leads[15].mean:.1f}" == "1.3"
    assert leads[15].low < 0 < leads[15].high


def test_at_25_and_30_states_prompts_lead_fully_fitted_heads_by_7_points_and_18(trials):
    leads = lead(trials, "prompt_accuracy", "fitted")

    assert f"{leads[25]:.0f}" == "7 [3, 11]"
    assert f"{leads[30]:.0f}" == "18 [13, 23]"


def test_a_fully_fitted_head_is_about_as_high_as_the_likeliest_states_up_to_15_then_falls_to_76_percent(means):
    assert (means.fitted - means.states)[[4, 8, 10, 15]].abs().max() < 0.02
    assert (means.states > means.fitted - 0.02).all()
    assert means.fitted[25] < means.fitted[15]
    assert f"{means.fitted[30]:.0%}" == "76%"


@pytest.mark.parametrize(("n_states", "points"), [(15, 6), (30, 18)])
def test_prompts_lead_heads_fitted_to_the_networks_own_predictions_by_6_points_at_15_states_and_18_at_30(
    n_states, points
):
    fitted, stored = fitted_to_networks(n_states)

    assert round(100 * (stored.prompt_accuracy - fitted).mean()) == points


@pytest.mark.parametrize("n_states", [15, 25, 30])
def test_heads_fitted_to_the_networks_predictions_are_not_shown_to_do_better_than_those_on_exact_ones(trials, n_states):
    fitted, _ = fitted_to_networks(n_states)
    exact = trials[trials.n_states == n_states].set_index("seed").fitted

    assert mean_ci(fitted - exact, share=False).low < 0


# Other heads and prompts on exact predictions


def test_heads_on_the_network_are_1_5_points_below_heads_on_the_exact_model(trials):
    assert over_all_sizes(trials, "exact_head_accuracy", "head_accuracy") == "1.5 [0.7, 2.3]"


def test_a_head_tuned_longer_has_four_times_the_passes_and_three_times_the_rate():
    quick = PRESETS["quick"]
    longer = LADDER_NUMBERS["quick"]

    assert longer["epochs"] == 4 * quick["epochs"]
    assert longer["head_rate"] == pytest.approx(3 * quick["head_rate"])


def test_from_10_states_on_prompts_are_clearly_ahead_of_heads_tuned_longer_and_at_8_this_may_be_chance(trials):
    leads = lead(trials, "prompt_accuracy", "ladder_head_accuracy")

    assert all(leads[n].low > 0 for n in (10, 15, 25, 30))
    assert leads[8].low < 0 < leads[8].high


def test_at_30_states_prompts_are_8_points_ahead_of_one_vector_and_of_one_tuned_longer_by_2_9(trials):
    tuned_alike = lead(trials, "prompt_accuracy", "exact_prompt_accuracy")
    tuned_longer = lead(trials, "prompt_accuracy", "ladder_prompt_accuracy")

    assert f"{tuned_alike[30]:.1f}" == "8.0 [3.5, 12.4]"
    assert f"{tuned_longer[30]:.1f}" == "2.9 [-1.0, 6.7]"


# The likeliest state and the likeliest token


def test_at_no_size_is_the_mean_of_the_rule_of_likeliest_states_below_that_of_prompts(means):
    assert (means.states > means.prompt_accuracy).all()


def test_with_30_states_the_rule_is_right_on_96_percent_1_7_points_more_than_the_prompt(trials):
    assert percent(trials[trials.n_states == 30].states) == "96%"
    assert f"{lead(trials, 'states', 'prompt_accuracy')[30]:.1f}" == "1.7 [-0.2, 3.6]"


def test_the_likeliest_state_has_095_of_the_belief_up_to_10_states_and_080_with_30(means):
    belief = means["belief in the likeliest"]

    assert belief[[4, 8, 10]].min() > 0.945
    assert f"{belief[30]:.2f}" == "0.80"


def test_heads_are_ahead_of_the_rule_of_likeliest_tokens_by_1_point_which_may_be_chance(trials):
    many = trials[trials.n_states >= 25]
    over = many.head_accuracy - many.tokens

    assert over_all_sizes(many, "head_accuracy", "tokens") == "1.0 [-0.8, 2.7]"
    assert over.min() < 0 < over.max()
    assert (over.abs() < 0.05).mean() > 0.7


# Opposite weights


def test_with_30_states_nearly_every_state_shares_its_likeliest_token():
    shares = []
    for seed in range(20):
        likeliest = random_hmm(30, 10, seed).emission.argmax(0)
        shares.append((likeliest.bincount()[likeliest] > 1).double().mean().item())

    assert sum(shares) / 20 > 0.9


def test_prompts_gain_20_points_where_opposite_weights_share_a_token_and_16_where_none_do(trials):
    many = trials[trials.n_states >= 25]
    opposed = many[many.opposed]
    others = many[~many.opposed]

    assert (len(opposed), len(others)) == (21, 19)
    assert percent(opposed.gain) == "20%"
    assert f"{mean_ci(100 * others.gain, share=False):.0f}" == "16 [12, 20]"


# The share learned


def test_prompts_are_right_less_often_on_the_six_networks_that_have_learned_least(trials):
    large = trials[trials.n_states > 10]
    little = large[large.learned <= 0.7]
    most = large[large.learned > 0.7]

    assert (len(large), len(most), len(little)) == (60, 54, 6)
    assert (percent(most.prompt_accuracy), percent(most.head_accuracy)) == ("97%", "80%")
    assert (percent(little.prompt_accuracy), percent(little.head_accuracy)) == ("86%", "75%")
    assert (f"{little.prompt_accuracy.min():.0%}", f"{little.prompt_accuracy.max():.0%}") == ("77%", "94%")
    assert set(little.n_states) == {25, 30}


def test_these_six_prompts_are_behind_by_11_points_and_the_difference_of_the_heads_may_be_chance(trials):
    large = trials[trials.n_states > 10]
    little = large[large.learned <= 0.7]
    most = large[large.learned > 0.7]
    behind = {}
    for column in ("prompt_accuracy", "head_accuracy"):
        means = [mean_ci(100 * group[column], share=False) for group in (most, little)]
        behind[column] = difference_ci(*means)

    assert f"{behind['prompt_accuracy']:.0f}" == "11 [5, 18]"
    assert behind["head_accuracy"].low < 0 < behind["head_accuracy"].high


# Beside the published means


def test_our_gain_grows_from_10_points_at_8_states_to_20_at_30_and_the_published_is_13_and_9(trials):
    paper = published("left").map(lambda point: point.mean)
    published_gains = (100 * (paper["prompt tuning"] - paper["head tuning"])).round()
    gains = [interval.mean for interval in lead(trials, "prompt_accuracy", "head_accuracy")[LEFT_SIZES[1:]]]

    assert gains == sorted(gains)
    assert [round(gains[0]), round(gains[-1])] == [10, 20]
    assert [published_gains[8], published_gains[30]] == [13, 9]
    assert published_gains[LEFT_SIZES[1:]].idxmax() in (8, 10)


def test_from_10_states_on_both_our_means_are_higher_than_the_published(trials):
    by_size = trials.groupby("n_states")
    for series, column in {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}.items():
        ours = by_size[column].agg(mean_ci)
        above = {n: difference_ci(ours[n], published("left")[series][n]) for n in LEFT_SIZES}

        assert all(above[n].low > 0 for n in (10, 15, 25, 30))


def test_at_30_states_our_prompts_are_right_on_94_percent_and_the_published_on_75(trials):
    assert percent(trials[trials.n_states == 30].prompt_accuracy) == "94%"
    assert f"{published('left')['prompt tuning'][30].mean:.0%}" == "75%"


def test_with_more_steps_at_twice_muons_rate_prompts_tuned_as_in_appendix_e_are_at_88_percent_in_place_of_96():
    tuned = "tuning_batch=8 head_rate=0.01 prompt_rate=0.01"
    stored = results("quick", (*BEYOND, STORE)).query("n_states == 30 and n_memory == 1 and own == ''")
    changed = stored[stored.changes == f"steps=1100 muon_rate=0.04 {tuned}"]
    unchanged = stored[(stored.changes == tuned) & stored.seed.isin(changed.seed)]

    assert len(changed) == len(unchanged) == 10
    assert percent(changed.prompt_accuracy) == "88%"
    assert percent(unchanged.prompt_accuracy) == "96%"
    assert (PRESETS["quick"]["muon_rate"], PRESETS["quick"]["steps"]) == (0.02, 400)


def test_the_page_runs_where_the_stored_trials_lack_some_readers():
    page = run("figure-3-in-detail", preset="paper", minutes=0.01)

    assert "exact_prompt_accuracy" not in page["results"]
    assert set(page["results"].n_states) == {30}
