"""What the page *The paper in pictures* says of trained networks, from the stored trials."""

import pytest
import torch
from pandas import DataFrame
from shares import percent

from hmmbook import draw_model, mean_ci, results
from hmmbook.experiments.results import published, spec_of
from hmmbook.experiments.store import BEYOND, STORE
from hmmbook.figures import stored_panels
from hmmbook.studies.fake_tokens import TOGETHER
from hmmbook.studies.look_alikes.chains import LIMIT, look_alike_chain
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.heads_by_size import ALONE

SIZES = [4, 8, 10, 15, 25, 30]


@pytest.fixture(scope="module")
def left() -> DataFrame:
    return results("quick", STORE).query("changes == '' and n_memory == 1 and seed < 20 and n_states in @SIZES")


@pytest.fixture(scope="module")
def right() -> DataFrame:
    trials = tables.stored(BEYOND).query("changes == '' and size in [8, 12, 20, 28] and seed < 20")
    return trials[(trials.n_memory == 1) | (trials.n_states == 4)]


@pytest.fixture(scope="module")
def look_alikes() -> DataFrame:
    return tables.stored(BEYOND).query("own in ['look-alikes-a', 'look-alikes-d']")


# Trained networks


def test_there_are_20_chains_for_each_number_with_networks_of_2_layers_of_64_and_tasks_of_33_tokens(
    left, right, look_alikes
):
    assert left.groupby("size").size().to_dict() == dict.fromkeys(SIZES, 20)
    assert set(right.groupby(["size", "n_memory"]).size()) == {20}
    for trials in (left, right, look_alikes):
        assert (trials[["layers", "width", "task_length"]] == [2, 64, 33]).all(axis=None)


def test_the_page_draws_these_trials(left, right):
    for name, trials in (("left", left), ("right", right)):
        drawn = stored_panels.panel_results(name, "quick")

        columns = ["n_states", "n_memory", "seed", "prompt_accuracy", "head_accuracy", "attention_accuracy"]
        in_order = drawn[columns].sort_values(columns).reset_index(drop=True)
        assert in_order.equals(trials[columns].sort_values(columns).reset_index(drop=True))


def test_a_preset_of_which_nothing_is_stored_gives_the_largest_one_and_the_command_that_makes_it(capsys):
    trials = stored_panels.panel_results("left", "released-code")

    assert set(trials.preset) == {"quick"}
    printed = capsys.readouterr().out
    assert "No trial of the left panel is stored at the preset released-code." in printed
    assert "hmmbook trial --panel left --missing --preset released-code --trials 20" in printed
    assert "this page shows trials of `quick`" in printed


def test_from_8_states_on_a_prompt_beats_a_head_tuned_alike_and_at_4_this_may_be_chance(left):
    gains = left.groupby("size").gain.agg(mean_ci)

    assert all(gains[n].low > 0 for n in SIZES[1:])
    assert gains[4].low < 0 < gains[4].high


def test_with_30_states_prompts_are_right_on_94_percent_and_heads_on_74(left):
    at_30 = left[left["size"] == 30]

    assert percent(at_30.prompt_accuracy) == "94%"
    assert percent(at_30.head_accuracy) == "74%"


def test_over_a_head_fully_fitted_to_exact_predictions_a_lead_shows_only_at_25_and_30_states():
    for n_states in SIZES:
        trials = tables.left_panel(n_states)
        fitted = tables.of_heads(trials, "exact", "accuracy")["none"]
        lead = mean_ci(trials.prompt_accuracy - fitted, share=False)

        assert len(trials) == 20
        assert (lead.low > 0) == (n_states in (25, 30))


def test_our_prompts_gain_most_with_25_and_30_states(left):
    gains = left.groupby("size").gain.mean()

    assert set(gains.nlargest(2).index) == {25, 30}


def test_none_of_the_40_chains_of_25_or_30_states_has_a_state_with_at_most_ten_successors(left):
    many = left[left.n_states >= 25]
    fewest_successors = []
    for _, row in many.iterrows():
        successors = (draw_model(spec_of(row)).transition > 0).sum(0)
        fewest_successors.append(successors.min().item())

    assert len(many) == 40
    assert min(fewest_successors) > 10
    assert many.built_prompt_accuracy.isna().all()
    assert left[left.n_states == 4].built_prompt_accuracy.notna().all()


def test_without_rare_steps_half_of_the_chains_of_30_states_have_a_prompt_right_on_91_percent_as_a_tuned_one():
    accuracies = tables.theorem(30)

    assert len(accuracies) == 10
    assert percent(accuracies["theorem's prompt, fitted head"]) == "91%"
    assert percent(accuracies["tuned prompt, tuned head"]) == "91%"


def test_with_25_states_the_theorems_prompt_is_not_shown_to_beat_a_head_alone():
    accuracies = tables.theorem(25)
    lead = mean_ci(accuracies["theorem's prompt, fitted head"] - accuracies["fitted head alone"], share=False)

    assert lead.low < 0


def test_our_prompts_stay_high_and_our_heads_fall(left):
    means = left.groupby("size")[["head_accuracy", "prompt_accuracy"]].mean()

    assert means.prompt_accuracy.min() > 0.94
    assert means.head_accuracy[4] > 0.95
    assert means.head_accuracy[30] < 0.75


def test_the_published_means_are_near_ours_at_4_and_8_states_and_lower_from_10_on(left):
    columns = {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}
    for series, column in columns.items():
        theirs = published("left")[series].map(lambda point: point.mean)
        gap = left.groupby("size")[column].mean() - theirs

        assert (gap[[4, 8]].abs() < 0.03).all()
        assert (gap[[10, 15, 25, 30]] > 0.05).all()


def test_the_published_lead_over_heads_is_13_points_at_10_states_and_9_at_30():
    paper = published("left").map(lambda point: point.mean)
    leads = 100 * (paper["prompt tuning"] - paper["head tuning"])

    assert round(leads[10]) == 13
    assert round(leads[30]) == 9


# A memory


def test_for_a_task_about_a_memory_attention_heads_are_right_on_96_percent_or_more_at_every_size(right):
    memory = right[right.n_memory > 1]
    means = memory.groupby("size").attention_accuracy.mean()

    assert means.min().round(2) >= 0.96


def test_for_a_task_about_one_state_linear_heads_are_right_on_between_77_and_87_percent(right):
    vanilla = right[right.n_memory == 1]
    means = vanilla.groupby("size").head_accuracy.mean()

    assert f"{means.min():.0%}" == "77%"
    assert f"{means.max():.0%}" == "87%"


def test_with_an_attention_head_on_both_the_lead_is_7_points(right):
    means = right.groupby(["size", "n_memory"]).attention_accuracy.mean().unstack(0)
    memory = means[means.index > 1].mean()

    assert round(100 * (memory - means.loc[1]).mean()) == 7


# Fake tokens


@pytest.fixture(scope="module")
def task_d(look_alikes) -> dict[int, DataFrame]:
    """The trials of the second task by the number of vectors, each by the seed of its chain."""
    of_task = look_alikes[look_alikes.own == "look-alikes-d"]
    return {n: of_task[of_task.prompt_length == n].set_index("seed").sort_index() for n in (1, 20)}


def test_of_766_chains_20_were_kept(task_d):
    kept = task_d[20].index

    assert len(kept) == len(task_d[1]) == 20
    assert kept.max() - 5000 + 1 == 766  # The search began with the chain of seed 5000.


def test_their_states_look_alike_in_three_pairs(task_d):
    for seed in task_d[20].index:
        emission = look_alike_chain(seed, three=True).emission

        assert torch.equal(emission[:, 0::2], emission[:, 1::2])
        assert len(emission.unique(dim=1).T) == 3


def test_any_fake_token_is_wrong_on_13_or_more_of_100_texts():
    assert TOGETHER == 100
    assert round((1 - LIMIT) * TOGETHER) == 13


def test_on_the_first_task_a_fake_token_and_a_head_are_right_on_all_texts(look_alikes):
    first = look_alikes[look_alikes.own == "look-alikes-a"]

    assert (first[first.prompt_length == 20].built_prompt_accuracy == 1).all()


def test_on_the_first_task_tuning_reaches_97_percent_with_20_vectors_and_92_with_one(look_alikes):
    first = look_alikes[look_alikes.own == "look-alikes-a"]
    means = first.groupby("prompt_length").prompt_accuracy.mean()

    assert f"{means[20]:.0%}" == "97%"
    assert f"{means[1]:.0%}" == "92%"
    assert first.head_accuracy.mean() < means[1] < means[20] < 1


def test_on_the_second_task_20_vectors_are_right_on_94_percent_above_the_bound_of_87(task_d):
    assert percent(task_d[20].prompt_accuracy) == "94%"
    assert percent(task_d[20].fake_token_bound) == "87%"


def test_one_vector_is_right_on_75_percent_and_above_the_bound_on_2_of_the_20_chains(task_d):
    assert percent(task_d[1].prompt_accuracy) == "75%"
    assert (task_d[1].prompt_accuracy > task_d[20].fake_token_bound).sum() == 2


def test_a_tuned_head_alone_is_right_on_56_percent_and_the_best_on_exact_predictions_on_80(task_d):
    assert percent(task_d[20].head_accuracy) == "56%"
    assert percent(task_d[20].best_head_accuracy) == "80%"


def test_a_head_with_huge_weights_reads_the_label_off_the_network_on_87_percent_and_with_the_prompt_a_small_one(task_d):
    accuracies = tables.of_heads(task_d[20], ALONE, "accuracy")["none"]
    norms = tables.of_heads(task_d[20], ALONE, "norm")["none"]

    assert percent(accuracies) == "87%"
    assert norms.median() > 1000
    assert task_d[20].tuned_head_norm.max() < 20
