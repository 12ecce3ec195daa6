"""What the page on head and prompt tuning says, from the stored trials and their models."""

import math
from collections.abc import Iterator

import pytest
import torch
from lessons import run
from pandas import DataFrame, Series

from hmmbook import TrialSpec, draw_model, draw_task, draw_trial_task, load_result, mean_ci, result_path, results
from hmmbook.experiments.intervals import difference_ci
from hmmbook.experiments.labels import LABEL_RULES
from hmmbook.experiments.presets import LADDER_NUMBERS, PRESETS
from hmmbook.experiments.results import published, spec_of
from hmmbook.experiments.section_5 import entropy_of_frequencies
from hmmbook.experiments.store import BEYOND, STORE
from hmmbook.parameters import MINUTES
from hmmbook.studies.least_loss import least_loss_accuracy
from hmmbook.studies.likeliest import opposite_weights_share_a_token, table_accuracy
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.heads_by_size import ALONE
from hmmlib import accuracy, masked_token_probs, random_hmm, tune_head

SIZES = [4, 8, 10, 15, 25, 30]


@pytest.fixture(scope="module")
def trials() -> DataFrame:
    """The left panel's 120 trials, with what simple rules reach on their exact models."""
    table = results("quick", STORE).query("changes == '' and n_memory == 1 and seed < 20 and n_states in @SIZES")
    rules = []
    for index, row in table.iterrows():
        spec = spec_of(row)
        chain = draw_model(spec)
        task = draw_trial_task(spec, chain)
        exact = task.posteriors @ chain.emission.T
        rules.append(
            {
                "index": index,
                "states": table_accuracy(task, task.posteriors),
                "tokens": table_accuracy(task, exact),
                "fitted": least_loss_accuracy(task, exact),
                "opposed": opposite_weights_share_a_token(chain, task.mu),
                "belief in the likeliest": task.posteriors.amax(1).mean().item(),
                "fewest successors": (chain.transition > 0).sum(0).min().item(),
                "nonzero weights": (task.mu != 0).sum().item(),
            }
        )
    return table.join(DataFrame(rules).set_index("index"))


@pytest.fixture(scope="module")
def means(trials) -> DataFrame:
    return trials.groupby("n_states").mean(numeric_only=True)


@pytest.fixture(scope="module")
def page() -> dict:
    return run("5-2-head-vs-prompt", hidden_sizes=[10], trials=1)


def lead(trials: DataFrame, first: str, second: str) -> Series:
    """The mean of one column minus another, in points, with its interval, by the number of states."""
    points = 100 * (trials[first] - trials[second])
    return points.groupby(trials.n_states).agg(mean_ci, share=False)


def over_all_sizes(trials: DataFrame, first: str, second: str) -> str:
    """The same over all sizes. The chains of one seed share their mixing weights, so they count as one."""
    points = 100 * (trials[first] - trials[second])
    return f"{mean_ci(points.groupby(trials.seed).mean(), share=False):.1f}"


def percent(shares: Series) -> str:
    return f"{shares.mean():.0%}"


# Heads and prompts


def test_there_are_twenty_chains_of_each_size(trials):
    assert trials.groupby("n_states").size().to_dict() == dict.fromkeys(SIZES, 20)


def test_from_8_states_on_the_prompt_is_right_on_more_texts_and_at_4_this_may_be_chance(trials):
    gains = lead(trials, "prompt_accuracy", "head_accuracy")

    assert all(gains[n].low > 0 for n in SIZES[1:])
    assert round(gains[4].mean) == 4
    assert gains[4].low < 0 < gains[4].high


def test_with_30_states_the_prompt_is_right_on_94_percent_the_head_on_74_and_the_more_frequent_label_on_65(trials):
    at_30 = trials[trials.n_states == 30]

    assert percent(at_30.prompt_accuracy) == "94%"
    assert percent(at_30.head_accuracy) == "74%"
    assert percent(at_30.majority_rate) == "65%"


def test_prompt_tuning_stays_high_and_head_tuning_falls(means):
    assert means.prompt_accuracy.min() > 0.9
    assert means.head_accuracy.idxmin() == 30
    assert means.head_accuracy[30] < means.head_accuracy[4] - 0.2


def test_from_8_to_30_states_our_lead_grows_from_10_points_to_20(trials):
    gains = lead(trials, "prompt_accuracy", "head_accuracy")
    means = [gains[n].mean for n in SIZES[1:]]

    assert means == sorted(means)
    assert round(means[0]) == 10
    assert round(means[-1]) == 20


def test_the_experiment_has_the_sizes_that_the_text_gives(trials):
    quick = PRESETS["quick"]
    paper = PRESETS["paper"]

    assert [quick[name] for name in ("layers", "width", "masked", "task_length")] == [2, 64, 0.15, 33]
    assert [paper[name] for name in ("layers", "width", "masked", "task_length")] == [6, 768, 0.05, 129]
    assert (quick["prompt_length"], quick["train"]) == (20, 4000)
    assert trials["nonzero weights"].max() == 6
    assert MINUTES["quick"] == 3


# Fully fitted heads


def test_up_to_15_states_prompts_are_not_shown_to_beat_fully_fitted_heads(trials):
    leads = lead(trials, "prompt_accuracy", "fitted")

    assert all(leads[n].mean < 0 for n in (4, 8, 10))
    assert f"{leads[15].mean:.1f}" == "1.3"
    assert all(leads[n].low < 0 for n in (4, 8, 10, 15))


def test_at_25_and_30_states_prompts_lead_fully_fitted_heads_by_7_points_and_18(trials):
    leads = lead(trials, "prompt_accuracy", "fitted")

    assert f"{leads[25]:.0f}" == "7 [3, 11]"
    assert f"{leads[30]:.0f}" == "18 [13, 23]"


def test_a_fully_fitted_head_is_about_as_high_as_a_table_up_to_15_states_then_falls_to_76_percent(means):
    assert (means.fitted - means.states)[[4, 8, 10, 15]].abs().max() < 0.02
    assert means.fitted[25] < means.fitted[15]
    assert f"{means.fitted[30]:.0%}" == "76%"


def test_with_25_and_30_states_every_state_has_more_successors_than_there_are_tokens(trials):
    many = trials[trials.n_states >= 25]

    assert (many["fewest successors"] > 10).all()
    assert trials.built_prompt_accuracy[many.index].isna().all()


def test_heads_fitted_to_the_networks_predictions_are_not_shown_to_be_better_and_prompts_lead_them(trials):
    for n_states, points in ((15, 6), (25, 13), (30, 18)):
        stored = tables.left_panel(n_states)
        fitted = tables.of_heads(stored, ALONE, "accuracy")["none"]
        exact = trials[trials.n_states == n_states].set_index("seed").fitted

        assert round(100 * (stored.prompt_accuracy - fitted).mean()) == points
        assert mean_ci(fitted - exact, share=False).low < 0


# The likeliest state


def test_at_no_size_is_the_mean_of_the_table_of_likeliest_states_below_that_of_the_prompt(means):
    assert (means.states > means.prompt_accuracy).all()
    assert (means.states > means.fitted - 0.02).all()


def test_with_30_states_the_table_is_right_on_96_percent_1_7_points_more_than_the_prompt(trials):
    assert percent(trials[trials.n_states == 30].states) == "96%"
    assert f"{lead(trials, 'states', 'prompt_accuracy')[30]:.1f}" == "1.7 [-0.2, 3.6]"


def test_the_likeliest_state_has_095_of_the_belief_with_4_to_10_states_and_080_with_30(means):
    belief = means["belief in the likeliest"]

    assert belief[[4, 8, 10]].min() > 0.945
    assert f"{belief[30]:.2f}" == "0.80"


def test_heads_are_ahead_of_the_table_of_likeliest_tokens_by_1_point_which_may_be_chance(trials):
    many = trials[trials.n_states >= 25]
    over = many.head_accuracy - many.tokens

    assert over_all_sizes(many, "head_accuracy", "tokens") == "1.0 [-0.8, 2.7]"
    assert over.min() < 0 < over.max()
    assert (over.abs() < 0.05).mean() > 0.7


# Beside the paper


def test_published_prompts_are_above_heads_at_every_size_but_their_lead_does_not_grow_from_8_states_on():
    paper = published("left").map(lambda point: point.mean)
    leads = (100 * (paper["prompt tuning"] - paper["head tuning"])).round()

    assert (leads > 0).all()
    assert leads[8] == 13
    assert leads[30] == 9
    assert leads[SIZES[1:]].idxmax() in (8, 10)


def test_from_10_states_on_both_our_means_are_higher_than_the_published(trials):
    by_size = trials.groupby("n_states")
    paper = published("left")
    columns = {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}
    for series, column in columns.items():
        ours = by_size[column].agg(mean_ci)
        above = {n: difference_ci(ours[n], paper[series][n]) for n in SIZES}

        assert all(above[n].low > 0 for n in (10, 15, 25, 30))
        assert all(above[n].low < 0 < above[n].high for n in (4, 8))


def test_published_prompts_are_right_on_75_percent_at_30_states():
    assert f"{published('left')['prompt tuning'][30].mean:.0%}" == "75%"


def test_with_more_steps_at_twice_muons_rate_prompts_tuned_as_in_appendix_e_are_at_88_percent_in_place_of_96():
    tuned = "tuning_batch=8 head_rate=0.01 prompt_rate=0.01"
    stored = results("quick", (*BEYOND, STORE)).query("n_states == 30 and n_memory == 1 and own == ''")
    changed = stored[stored.changes == f"steps=1100 muon_rate=0.04 {tuned}"]
    unchanged = stored[(stored.changes == tuned) & stored.seed.isin(changed.seed)]

    assert len(changed) == len(unchanged) == 10
    assert percent(changed.prompt_accuracy) == "88%"
    assert percent(unchanged.prompt_accuracy) == "96%"
    assert PRESETS["quick"]["muon_rate"] == 0.02


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


# Checks and exercises


def test_behind_a_prompt_as_it_was_drawn_a_head_is_within_half_a_point_of_a_head_alone(trials):
    large = trials[trials.n_states >= 10]
    alone = large.head_accuracy.mean()

    assert abs(large.untrained_prompt_accuracy.mean() - alone) < 0.005
    assert large.prompt_accuracy.mean() - alone > 0.1


def test_a_head_tuned_longer_has_four_times_the_passes_and_three_times_the_rate():
    quick = PRESETS["quick"]
    longer = LADDER_NUMBERS["quick"]

    assert longer["epochs"] == 4 * quick["epochs"]
    assert longer["head_rate"] == pytest.approx(3 * quick["head_rate"])


def test_prompts_are_ahead_of_heads_tuned_longer_at_30_and_10_states_and_at_8_this_may_be_chance(trials):
    leads = lead(trials, "prompt_accuracy", "ladder_head_accuracy")

    assert f"{leads[30]:.1f}" == "18.8 [14.3, 23.2]"
    assert f"{leads[10]:.1f}" == "5.2 [2.2, 8.3]"
    assert f"{leads[8]:.1f}" == "4.6 [-0.9, 10.2]"


def test_heads_on_the_network_are_1_5_points_below_heads_on_the_exact_model(trials):
    assert over_all_sizes(trials, "exact_head_accuracy", "head_accuracy") == "1.5 [0.7, 2.3]"


def test_prompts_on_networks_are_ahead_of_one_vector_on_the_exact_model(trials):
    tuned_alike = lead(trials, "prompt_accuracy", "exact_prompt_accuracy")
    tuned_longer = lead(trials, "prompt_accuracy", "ladder_prompt_accuracy")

    assert f"{tuned_alike[30]:.1f}" == "8.0 [3.5, 12.4]"
    assert f"{tuned_longer[30]:.1f}" == "2.9 [-1.0, 6.7]"


def test_prompts_are_right_less_often_on_the_six_networks_that_have_learned_least(trials):
    large = trials[trials.n_states > 10]
    little = large[large.learned <= 0.7]
    most = large[large.learned > 0.7]

    assert (len(large), len(most), len(little)) == (60, 54, 6)
    assert (percent(most.prompt_accuracy), percent(most.head_accuracy)) == ("97%", "80%")
    assert (percent(little.prompt_accuracy), percent(little.head_accuracy)) == ("86%", "75%")
    assert (f"{little.prompt_accuracy.min():.0%}", f"{little.prompt_accuracy.max():.0%}") == ("77%", "94%")
    assert set(little.n_states) == {25, 30}
    assert percent(most[most.n_states >= 25].head_accuracy) == "78%"


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
    table = page["panel"].comparison({"head": "head_accuracy"})

    assert table.head == ["smoke |H| = 10, seed 0", "stored", "live"]
    assert table.rows[0][0] == "head"
    assert table.rows[0][2] == f"{page['panel'].live.head_accuracy:.1%}"


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


def test_tuning_moves_a_weight_by_about_ten_in_exercise_1():
    passes, batch, rate = 5, 64, 0.2
    n_steps = passes * math.ceil(1000 / batch)
    rates = [rate * (1 - step / n_steps) for step in range(n_steps)]

    assert 5 < sum(rates) < 15  # AdamW moves a weight by about the rate in each step.
