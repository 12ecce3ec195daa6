"""What the page with details on tuned prompts says, but for fits and predictions: see test_tuned_prompts_fits.py.

More of its numbers are in tests/studies/test_claims.py.
"""

import pytest
from lessons import run
from record import slow
from shares import percent

from hmmbook import TrialSpec, draw_model, mean_ci
from hmmbook.figures import prompts
from hmmbook.studies.look_alikes import chains
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.entries import Entry
from hmmbook.studies.mechanism.gate import BOTH, FIXED, FROZEN, UNSEEN
from hmmbook.studies.mechanism.outcomes import Outcome
from hmmbook.studies.mechanism.rare_steps import THRESHOLDS

# The lead on exact predictions


@pytest.mark.parametrize("n_states", [25, 30])
def test_no_state_has_ten_successors_or_fewer_if_every_step_counts_but_most_steps_are_rare(n_states):
    for seed in range(20):
        chain = draw_model(TrialSpec("quick", n_states, seed))
        successors = (chain.transition > 0).sum(0)
        assert successors.min() > 10
        assert (chain.transition < 0.001).double().mean() > 0.5
    assert "0.001" in map(str, THRESHOLDS)


def test_at_25_states_the_theorems_prompt_cannot_be_told_from_the_head_alone_and_the_tuned_one_is_four_points_ahead():
    table = tables.theorem(25)
    theorem = table["theorem's prompt, fitted head"]
    over_head = mean_ci(100 * (theorem - table["fitted head alone"]), share=False)
    assert over_head.low < 0 < over_head.high
    assert round(100 * (table["tuned prompt, tuned head"] - theorem).mean()) == 4


def test_the_best_of_30_random_prompts_is_at_least_as_good_as_the_tuned_one_and_at_25_states_beats_the_theorems():
    for n_states in (25, 30):
        table = tables.theorem(n_states)
        ahead = table["best random prompt, fitted head"] - table["tuned prompt, tuned head"]
        assert ahead.mean() > 0
    at_25 = tables.theorem(25)
    over_theorem = at_25["best random prompt, fitted head"] - at_25["theorem's prompt, fitted head"]
    assert mean_ci(over_theorem, share=False).low > 0


def test_random_prompts_help_little_or_not_at_all_in_the_mean():
    helped = []
    for n_states in (25, 30):
        table = tables.theorem(n_states)
        helped.append((table["random prompts, fitted heads"] - table["fitted head alone"]).mean())
    assert helped[0] < 0 < helped[1] < 0.04


# Two tasks with look-alikes


def test_766_chains_were_built_to_keep_20(of_task):
    seeds = of_task("d").index
    assert (len(seeds), max(seeds) - 5000 + 1) == (20, 766)  # The first seed that was tried is 5000.


def test_a_chain_was_kept_if_two_proofs_leave_13_errors_and_few_texts_are_near_ties(of_task):
    assert round((1 - chains.LIMIT) * chains.TOGETHER) == 13
    assert (chains.TOGETHER, chains.NEAR_TIE, chains.FEW) == (100, 0.05, 0.1)
    assert len(chains.WEIGHTS_OF_D) == 4
    assert (of_task("d").test == 10 * chains.TOGETHER).all()


def test_fake_tokens_reach_87_percent_at_most_and_heads_alone_80(of_task):
    trials = of_task("d")
    assert (percent(trials.fake_token_bound), percent(trials.best_head_accuracy)) == ("87%", "80%")
    assert percent(trials.majority_rate) == "55%"


def test_prompts_of_20_vectors_are_above_the_bound_of_task_d_and_prompts_of_one_below(of_task):
    trials = of_task("d")
    ahead = 100 * (trials.prompt_accuracy - trials.fake_token_bound)
    behind = 100 * (trials.fake_token_bound - of_task("d", 1).prompt_accuracy)
    assert f"{mean_ci(ahead, share=False):.1f}" == "7.1 [4.1, 10.1]"
    assert f"{mean_ci(behind, share=False):.1f}" == "11.9 [7.4, 16.4]"
    assert ((ahead > 0).sum(), (behind < 0).sum()) == (17, 2)
    assert (round(ahead.min()), round(ahead.max())) == (-12, 15)


def test_tuned_heads_alone_are_like_the_more_frequent_label_on_task_d(of_task):
    trials = of_task("d")
    assert [percent(trials[name]) for name in ("prompt_accuracy", "head_accuracy")] == ["94%", "56%"]
    assert (percent(trials.exact_head_accuracy), percent(trials.majority_rate)) == ("56%", "55%")


def test_on_the_task_that_a_fake_token_solves_prompts_are_a_little_below_100_percent_and_heads_farther(of_task):
    trials = of_task("a")
    assert 0.95 < trials.prompt_accuracy.mean() < 1
    assert trials.head_accuracy.mean() < of_task("a", 1).prompt_accuracy.mean() < trials.prompt_accuracy.mean()


# Every change to the prompt


def test_on_one_chain_the_values_do_the_work(of_task):
    trials = of_task("d")
    after = tables.of_changes(trials)
    bound = trials.fake_token_bound
    by_values = (after["none"] > bound) & (after[FROZEN] > bound) & (after[FIXED] < bound)
    assert by_values.sum() == 1


def test_with_both_the_same_the_prompt_is_no_better_than_hidden_from_the_mask(of_task):
    after = tables.of_changes(of_task("d"))
    difference = mean_ci(after[BOTH] - after[UNSEEN], share=False)
    assert difference.low < 0 < difference.high
    assert percent(after[UNSEEN]) == "71%"


# What was predicted, and what came


OUTCOMES = [
    Outcome("It rains.", "90%", True),
    Outcome("It snows.", "nan", False),
    Outcome("It hails.", "no hail fell", None),
    Outcome("Added: it is wet.", "80%", True),
    Outcome("Against it: the sun.", "10%", False),
]


def test_the_overview_counts_predictions_that_were_made_beforehand_and_tested():
    entry = Entry("1", "What falls?", OUTCOMES)
    overview = prompts.overview_of_predictions([entry], [entry])
    assert overview.rows == [["1", "What falls?", "1 of 1"]] * 2


def test_the_table_has_every_prediction():
    table = prompts.table_of_predictions([Entry("1", "What falls?", OUTCOMES)])
    verdicts = [row[-1] for row in table.rows]
    assert verdicts == ["came true", "–", "not tested", "came true", "did not"]
    assert table.rows[0] == ["1", "It rains.", "90%", "came true"]


@slow
@pytest.mark.parametrize("parameters", [{"preset": "smoke"}, {"seed": 3}, {"preset": "gpu"}, {"trials": 2, "seed": 11}])
def test_no_parameters_stop_the_page(parameters):
    run("tuned-prompts-in-detail", minutes=0.1, **parameters)
