"""What the page on head and prompt tuning says, from the stored trials and their models."""

import math
from collections.abc import Iterator

import pytest
import torch
from lessons import run
from pandas import DataFrame
from panels import LEFT_SIZES, lead, left_panel, percent

from hmmbook import TrialSpec, draw_model, draw_task, draw_trial_task, load_result, result_path
from hmmbook.experiments.intervals import difference_ci, mean_ci
from hmmbook.experiments.labels import LABEL_RULES
from hmmbook.experiments.presets import PRESETS
from hmmbook.experiments.results import published
from hmmbook.experiments.section_5 import entropy_of_frequencies
from hmmbook.experiments.store import STORE
from hmmbook.parameters import MINUTES
from hmmlib import accuracy, masked_token_probs, random_hmm, tune_head
from hmmlib.theory.assumptions import exact_rank


@pytest.fixture(scope="module")
def trials() -> DataFrame:
    return left_panel()


@pytest.fixture(scope="module")
def page() -> dict:
    return run("5-2-head-vs-prompt", hidden_sizes=[10], trials=1)


# The trials


def test_there_are_twenty_chains_of_each_size(trials):
    assert trials.groupby("n_states").size().to_dict() == dict.fromkeys(LEFT_SIZES, 20)


def test_the_experiment_has_the_sizes_that_the_text_gives(trials):
    quick = PRESETS["quick"]
    paper = PRESETS["paper"]

    assert [quick[name] for name in ("layers", "width", "masked", "task_length")] == [2, 64, 0.15, 33]
    assert [paper[name] for name in ("layers", "width", "masked", "task_length")] == [6, 768, 0.05, 129]
    assert (quick["prompt_length"], quick["train"]) == (20, 4000)
    assert trials["nonzero weights"].max() == 6
    assert MINUTES["quick"] == 3


# What one sees


def test_with_30_states_the_prompt_is_right_on_94_percent_and_the_head_on_74(trials):
    at_30 = trials[trials.n_states == 30]

    assert percent(at_30.prompt_accuracy) == "94%"
    assert percent(at_30.head_accuracy) == "74%"


def test_with_30_states_a_head_is_nine_points_above_the_more_frequent_label(trials):
    at_30 = trials[trials.n_states == 30]

    assert round(100 * (at_30.head_accuracy - at_30.majority_rate).mean()) == 9


def test_prompts_stay_high_and_heads_fall(trials):
    means = trials.groupby("n_states").mean(numeric_only=True)

    assert means.prompt_accuracy.min() > 0.9
    assert means.head_accuracy.idxmin() == 30
    assert means.head_accuracy[30] < means.head_accuracy[4] - 0.2
    assert (means.majority_rate < means.head_accuracy).all()


def test_from_8_to_30_states_the_lead_grows_from_10_points_to_20_and_at_4_it_may_be_chance(trials):
    gains = lead(trials, "prompt_accuracy", "head_accuracy")
    means = [gains[n].mean for n in LEFT_SIZES[1:]]

    assert all(gains[n].low > 0 for n in LEFT_SIZES[1:])
    assert gains[4].low < 0 < gains[4].high
    assert means == sorted(means)
    assert [round(means[0]), round(means[-1])] == [10, 20]


def test_published_prompts_are_above_heads_at_every_size_and_by_less_at_30_states_than_at_8():
    paper = published("left").map(lambda point: point.mean)
    leads = paper["prompt tuning"] - paper["head tuning"]

    assert (leads > 0).all()
    assert leads[30] < leads[8]


def test_from_10_states_on_both_published_means_are_lower_than_ours(trials):
    by_size = trials.groupby("n_states")
    paper = published("left")
    columns = {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}
    for series, column in columns.items():
        ours = by_size[column].agg(mean_ci)
        above = {n: difference_ci(ours[n], paper[series][n]) for n in LEFT_SIZES}

        assert all(above[n].low > 0 for n in (10, 15, 25, 30))


# What the theorems explain


def test_up_to_ten_states_the_columns_of_w_are_independent():
    for n_states in (4, 8, 10):
        for seed in range(20):
            chain = draw_model(TrialSpec("quick", n_states, seed))
            assert exact_rank(chain.emission) == n_states


def test_up_to_10_states_fully_fitted_heads_are_ahead_of_prompts_in_the_mean(trials):
    leads = lead(trials, "prompt_accuracy", "fitted")

    assert all(leads[n].mean < 0 for n in (4, 8, 10))


def test_at_8_and_10_states_prompts_lead_heads_tuned_on_exact_predictions_by_more_than_half_of_their_lead(trials):
    over_exact = lead(trials, "prompt_accuracy", "exact_head_accuracy")
    over_heads = lead(trials, "prompt_accuracy", "head_accuracy")

    for n_states in (8, 10):
        assert over_exact[n_states].low > 0
        assert over_exact[n_states].mean > over_heads[n_states].mean / 2


def test_prompts_clearly_lead_fully_fitted_heads_only_at_25_and_30_states_there_by_almost_as_much_as_tuned_ones(trials):
    leads = lead(trials, "prompt_accuracy", "fitted")
    of_tuned_heads = lead(trials, "prompt_accuracy", "head_accuracy")

    assert [n for n in LEFT_SIZES if leads[n].low > 0] == [25, 30]
    assert 0.85 < leads[30].mean / of_tuned_heads[30].mean < 1
    assert leads[15].mean > 0


def test_fully_fitted_heads_are_near_100_percent_up_to_ten_states_and_then_fall(trials):
    means = trials.groupby("n_states").fitted.mean()

    assert means[[4, 8, 10]].min() > 0.98
    assert means[10] > means[15] > means[25] > means[30]


def test_the_dashed_line_of_the_page_shows_the_fully_fitted_heads(page, trials):
    shown = page["results"]

    assert list(shown["fully fitted head"]) == pytest.approx(page["fitted"])
    assert len(shown) == 1


def test_with_25_and_30_states_every_state_has_more_than_ten_successors(trials):
    many = trials[trials.n_states >= 25]

    assert (many["fewest successors"] > 10).all()
    assert trials.built_prompt_accuracy[many.index].isna().all()


def test_with_30_states_the_rule_of_the_likeliest_states_is_right_on_96_percent_no_less_than_the_prompt(trials):
    at_30 = trials[trials.n_states == 30]

    assert percent(at_30.states) == "96%"
    assert at_30.states.mean() >= at_30.prompt_accuracy.mean()


# The control


def test_behind_a_prompt_as_it_was_drawn_a_head_does_about_as_well_as_alone(trials):
    large = trials[trials.n_states >= 10]
    alone = large.head_accuracy.mean()

    assert abs(large.untrained_prompt_accuracy.mean() - alone) < 0.005
    assert large.prompt_accuracy.mean() - alone > 0.1


# The live trial


def test_the_stored_trial_that_runs_live_has_the_numbers_of_its_model_and_task():
    spec = TrialSpec("quick", 30, seed=0)
    stored = load_result(result_path(spec, STORE))
    chain = draw_model(spec)
    task = draw_trial_task(spec, chain)
    ones = task.test.labels.double().mean().item()

    assert task.redraws == stored.redraws
    assert max(ones, 1 - ones) == pytest.approx(stored.majority_rate)
    assert entropy_of_frequencies(chain, spec.length) == pytest.approx(stored.frequency_loss)

    train, _, test = task.split(task.posteriors @ chain.emission.T)
    head = tune_head(train.float(), task.train.labels, spec.tuning(), stored.seeds["tuning"])
    assert accuracy(head, test.float(), task.test.labels) == pytest.approx(stored.exact_head_accuracy, abs=0.02)


def test_the_page_compares_its_live_trial_with_the_stored_one(page):
    table = page["panel"].comparison(page["shown"])

    assert table.head == ["smoke |H| = 10, seed 0", "stored", "live"]
    assert table.rows[1][0] == "head alone"
    assert table.rows[1][2] == f"{page['panel'].live.head_accuracy:.1%}"


# The exercises


def needs_of_exercise_1() -> Iterator[tuple[float, float]]:
    """For each chain of exercise 1, how large weights must be, and the accuracy of the best head there is."""
    for k in range(14):
        chain = random_hmm(5, 10, k)
        assert torch.linalg.matrix_rank(chain.emission) == 5
        task = draw_task(chain, 33, (1000, 0, 500), k)
        needed = 0.0
        for i in range(5):
            for j in range(5):
                if task.mu[i] * task.mu[j] < 0:
                    distance = (chain.emission[:, i] - chain.emission[:, j]).abs().sum()
                    needed = max(needed, ((task.mu[i] - task.mu[j]).abs() / distance).item())
        best_head = LABEL_RULES["masked"].head(chain, task.mu)
        probs = masked_token_probs(chain, task.test.tokens)[:, 0]
        yield needed, accuracy(best_head, probs, task.test.labels)


def test_in_exercise_1_every_task_has_a_perfect_head_and_tuned_ones_fall_short_where_large_weights_are_needed(page):
    in_the_solution = list(page["shares"])
    for k, (needed, best) in enumerate(needs_of_exercise_1()):
        share = page["shares"][in_the_solution[k]]

        assert in_the_solution[k] == pytest.approx(needed)
        assert best == 1
        if needed < 10:
            assert share > 0.95
        if needed > 500:
            assert share < 0.9


def test_in_exercise_2_pairs_are_worth_more_trials_without_pairs(trials):
    worth = []
    for _, group in trials.groupby("n_states"):
        apart = group.head_accuracy.var() + group.prompt_accuracy.var()
        worth.append(len(group) * apart / (group.prompt_accuracy - group.head_accuracy).var())

    assert min(worth) > 20


def test_tuning_moves_a_weight_by_about_eight_in_80_steps_of_exercise_1():
    passes, batch, rate = 5, 64, 0.2
    n_steps = passes * math.ceil(1000 / batch)
    rates = [rate * (1 - step / n_steps) for step in range(n_steps)]

    assert n_steps == 80
    assert round(sum(rates)) == 8  # AdamW moves a weight by about the rate in each step.
