"""What the page of open questions says, from the stored trials and from the chains that they were run on.

The page is run once, at a preset of which too few trials are stored. So it shows those of `quick`.
"""

import pandas as pd
import pytest
from lessons import run

from hmmbook import TrialSpec, draw_model, mean_ci, results
from hmmbook.experiments.results import published
from hmmbook.experiments.store import BEYOND
from hmmbook.studies.mechanism import tables
from hmmbook.studies.published_curve import groups

PUBLISHED = published("left").map(lambda point: point.mean)["prompt tuning"]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("open-questions", preset="smoke")


@pytest.fixture(scope="module")
def left() -> pd.DataFrame:
    return groups.left_panel("quick")


@pytest.fixture(scope="module")
def ours(left) -> pd.Series:
    """The mean accuracy of our prompts by the number of states."""
    return left.groupby("n_states").prompt_accuracy.mean()


# Why do the published prompts fall?


def test_with_30_states_the_published_prompts_are_right_on_75_per_cent_and_ours_on_94(ours):
    assert f"{PUBLISHED[30]:.0%}" == "75%"
    assert f"{ours[30]:.0%}" == "94%"


def test_with_few_states_both_are_right_on_almost_every_text(ours):
    for n_states in (4, 8):
        assert min(PUBLISHED[n_states], ours[n_states]) > 0.95


def test_ours_stay_above_90_per_cent(ours):
    assert ours.min() > 0.9


def test_our_networks_have_two_layers_of_width_64_and_tasks_of_33_tokens(left):
    assert {*left.layers} == {2}
    assert {*left.width} == {64}
    assert {*left.task_length} == {33}


def test_after_many_changes_six_of_ten_networks_learn_next_to_nothing_and_prompts_are_near_the_published():
    nine = groups.by_change(results("quick", BEYOND))["nine changes"]

    assert len(nine) == 10
    assert (nine.learned < 0.05).sum() == 6
    assert abs(nine.prompt_accuracy.mean() - PUBLISHED[30]) < 0.03


def test_a_network_with_the_numbers_of_appendix_e_learned_little_and_its_prompt_is_about_as_good_as_ours(ours):
    trial = results("paper").query("changes == '' and n_states == 30 and seed == 0").iloc[0]

    assert 0.1 < trial.learned < 0.25
    assert abs(trial.prompt_accuracy - ours[30]) < 0.03


# What can a fake token do?


def test_every_state_of_a_chain_with_30_states_leads_to_more_states_than_there_are_tokens():
    for k in range(20):
        chain = draw_model(TrialSpec("quick", 30, k))
        n_successors = (chain.transition > 0).sum(0)

        assert n_successors.min() > chain.n_tokens


def test_most_of_their_steps_are_rare():
    for k in range(20):
        chain = draw_model(TrialSpec("quick", 30, k))
        possible = chain.transition[chain.transition > 0]

        assert (possible < 0.001).double().mean() > 0.5


def test_if_they_are_ignored_the_theorem_has_a_prompt_for_half_of_the_chains(page):
    assert page["n_chains"] == 20
    assert page["n_prompts"] == 10


def test_on_these_it_does_about_as_well_as_a_tuned_one():
    accuracies = tables.theorem(30).mean()
    with_fitted_head = accuracies["theorem's prompt, fitted head"]

    assert len(tables.theorem(30)) == 10
    assert abs(with_fitted_head - accuracies["tuned prompt, tuned head"]) < 0.02
    assert abs(with_fitted_head - accuracies["tuned prompt, fitted head"]) < 0.02


def test_our_prompts_gain_most_on_chains_that_the_theorem_reaches_only_then(left):
    by_size = left.groupby("n_states")
    covered = by_size.built_prompt_accuracy.count()

    assert {*by_size.gain.mean().nlargest(2).index} == {25, 30}
    assert covered[[25, 30]].tolist() == [0, 0]


def test_at_25_states_the_best_of_thirty_random_tokens_is_right_on_more_texts_than_the_theorems():
    trials = tables.theorem(25)
    lead = trials["best random prompt, fitted head"] - trials["theorem's prompt, fitted head"]

    assert mean_ci(lead, share=False).low > 0


def test_one_vector_solves_two_of_forty_tasks_that_the_theorem_does_not_cover():
    stored = results("quick", BEYOND).query("changes == '' and n_memory == 1 and seed < 20")
    large = stored[stored.n_states.isin([25, 30]) & stored["solvable.prompt.error"].notna()]

    assert len(large) == 40
    assert large.built_prompt_accuracy.isna().all()
    assert (large["solvable.prompt.error"] <= 1e-6).sum() == 2


# What do networks do with a prompt?


def test_no_prompt_is_tuned_on_a_memory_model_and_attention_heads_are_right_on_almost_every_text():
    for trials in (results("quick"), results("quick", BEYOND), results("laptop")):
        assert trials[trials.n_memory > 1].prompt_accuracy.isna().all()

    with_memory = results("quick").query("n_memory > 1")
    assert with_memory.groupby("n_memory").attention_accuracy.mean().min() > 0.95


def test_an_attention_head_does_better_than_a_linear_head_without_memory():
    trials = results("quick", BEYOND).query("changes == '' and n_memory == 1 and n_states in [8, 12, 20, 28]")

    assert mean_ci(trials.attention_accuracy - trials.head_accuracy, share=False).low > 0


def test_it_also_does_better_on_exact_predictions():
    trials = results("quick", BEYOND).query("changes == '' and n_memory == 1 and n_states in [8, 12, 20, 28]")

    assert mean_ci(trials.exact_attention_accuracy - trials.exact_head_accuracy, share=False).low > 0


# What lies beyond these experiments?


@pytest.mark.parametrize("preset", ["quick", "laptop", "paper"])
def test_all_trials_tune_on_thousands_of_labelled_texts(preset):
    assert results(preset).train.min() >= 4000


def test_so_do_the_reruns():
    assert results("quick", BEYOND).train.min() >= 4000


# A reader's parameters


def test_a_preset_with_few_trials_shows_those_of_quick_and_says_which_command_makes_others(capsys):
    assert groups.preset_with_left_panel("laptop") == "quick"

    printed = capsys.readouterr().out
    assert "Too few trials of the left panel are stored for `laptop`, so those of `quick` are shown." in printed
    assert "python -m hmmbook trial --panel left --missing --trials 20 --preset laptop" in printed
