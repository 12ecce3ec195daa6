"""What the page *The paper in pictures* says of trained networks, from the stored trials."""

from itertools import combinations

import pandas as pd
import pytest
from pandas import DataFrame
from shares import percent

from hmmbook import draw_model, mean_ci, results
from hmmbook.experiments.results import published, spec_of
from hmmbook.experiments.specs import panel_specs
from hmmbook.experiments.store import BEYOND, STORE
from hmmbook.figures import stored_panels
from hmmbook.studies.mechanism import tables
from hmmbook.studies.memory_lead import chains_to_compare
from hmmlib import MemoryHMM, assumption_4_2
from hmmlib.theory.assumptions import exact_rank

SIZES = [4, 8, 10, 15, 25, 30]


@pytest.fixture(scope="module")
def left() -> DataFrame:
    return results("quick", STORE).query("changes == '' and n_memory == 1 and seed < 20 and n_states in @SIZES")


@pytest.fixture(scope="module")
def right() -> DataFrame:
    trials = tables.stored(BEYOND).query("changes == '' and size in [8, 12, 20, 28] and seed < 20")
    return trials[(trials.n_memory == 1) | (trials.n_states == 4)]


# Prompts on trained networks


def test_there_are_20_chains_for_each_number_with_networks_of_2_layers_of_64_and_tasks_of_33_tokens(left, right):
    assert left.groupby("size").size().to_dict() == dict.fromkeys(SIZES, 20)
    assert set(right.groupby(["size", "n_memory"]).size()) == {20}
    for trials in (left, right):
        assert (trials[["layers", "width", "task_length"]] == [2, 64, 33]).all(axis=None)


def in_order(trials: DataFrame) -> DataFrame:
    columns = ["n_states", "n_memory", "seed", "prompt_accuracy", "head_accuracy", "attention_accuracy"]
    return trials[columns].sort_values(columns).reset_index(drop=True)


def test_the_page_draws_these_trials(left, right):
    pairs = chains_to_compare(panel_specs("quick", "right", 1))
    drawn_right = pd.concat([rows for pair in pairs.values() for rows in pair])

    assert in_order(stored_panels.panel_results("left", "quick")).equals(in_order(left))
    assert in_order(drawn_right).equals(in_order(right))


def test_a_preset_of_which_nothing_is_stored_gives_the_largest_one_and_the_command_that_makes_it(capsys):
    trials = stored_panels.panel_results("left", "released-code")

    assert set(trials.preset) == {"quick"}
    printed = capsys.readouterr().out
    assert "No trial of the left panel is stored at the preset released-code." in printed
    assert "hmmbook trial --panel left --missing --preset released-code --trials 20" in printed
    assert "this page shows trials of `quick`" in printed


def test_with_4_states_the_lead_of_the_prompt_is_small_and_may_be_chance(left):
    gain = mean_ci(left[left["size"] == 4].gain)

    assert gain.mean < 0.05
    assert gain.low < 0 < gain.high


def test_with_30_states_prompt_tuning_is_right_on_94_percent_and_head_tuning_on_74(left):
    at_30 = left[left["size"] == 30]

    assert percent(at_30.prompt_accuracy) == "94%"
    assert percent(at_30.head_accuracy) == "74%"


def test_only_at_25_and_30_states_prompts_beat_a_head_fully_fitted_to_exact_predictions():
    for n_states in SIZES:
        trials = tables.left_panel(n_states)
        fitted = tables.of_heads(trials, "exact", "accuracy")["none"]
        lead = mean_ci(trials.prompt_accuracy - fitted, share=False)

        assert len(trials) == 20
        assert (lead.low > 0) == (n_states in (25, 30))


def test_our_prompts_help_most_at_25_and_30_states(left):
    gains = left.groupby("size").gain.mean()

    assert set(gains.nlargest(2).index) == {25, 30}


def test_at_25_and_30_states_too_many_states_follow_each_state_for_theorem_3_6(left):
    many = left[left.n_states >= 25]
    fewest_successors = []
    for _, row in many.iterrows():
        successors = (draw_model(spec_of(row)).transition > 0).sum(0)
        fewest_successors.append(successors.min().item())

    assert len(many) == 40
    assert min(fewest_successors) > 10
    assert many.built_prompt_accuracy.isna().all()
    assert left[left.n_states == 4].built_prompt_accuracy.notna().all()


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


def test_the_published_prompts_lead_but_their_lead_does_not_grow_as_ours_does(left):
    paper = published("left").map(lambda point: point.mean)
    their_lead = paper["prompt tuning"] - paper["head tuning"]
    our_lead = left.groupby("size").gain.mean()

    assert their_lead.min() > 0
    assert their_lead[30] < their_lead[10]
    assert our_lead[30] > our_lead[10] + 0.05


def test_a_tuned_prompt_can_do_more_than_a_fake_token_because_it_passes_the_bound_on_a_task_that_we_built():
    built = tables.stored(BEYOND).query("own == 'look-alikes-d' and prompt_length == 20")

    assert len(built) == 20
    assert mean_ci(built.prompt_accuracy - built.fake_token_bound, share=False).low > 0


# Memory on trained networks


def test_the_size_is_the_number_of_states_or_of_pairs_of_a_memory_value_and_a_state(right):
    assert (right["size"] == right.n_states * right.n_memory).all()
    assert (right[right.n_memory == 1]["size"].unique() == right[right.n_memory > 1]["size"].unique()).all()


def test_with_a_memory_the_mean_accuracy_is_at_least_96_percent_at_every_size(right):
    memory = right[right.n_memory > 1]
    means = memory.groupby("size").attention_accuracy.mean()

    assert means.min() >= 0.96


def test_without_it_the_highest_mean_is_87_percent(right):
    means = right[right.n_memory == 1].groupby("size").head_accuracy.mean()

    assert f"{means.max():.0%}" == "87%"


def test_over_all_sizes_the_models_with_a_memory_lead_by_16_points(right):
    memory = right[right.n_memory > 1].groupby("size").attention_accuracy.mean()
    vanilla = right[right.n_memory == 1].groupby("size").head_accuracy.mean()

    assert round(100 * (memory - vanilla).mean()) == 16


def test_with_an_attention_head_on_both_7_points_of_this_lead_are_left(right):
    means = right.groupby(["size", "n_memory"]).attention_accuracy.mean().unstack(0)
    memory = means[means.index > 1].mean()

    assert round(100 * (memory - means.loc[1]).mean()) == 7


def test_theorem_4_3_covers_only_the_smallest_memory_models(right):
    memory = right[right.n_memory > 1]
    for _, row in memory.iterrows():
        model = draw_model(spec_of(row))

        assert is_covered(model) == (row["size"] == 8)


def is_covered(model: MemoryHMM) -> bool:
    """Whether Assumption 4.2 holds for some S*. If all columns of W are independent, it does."""
    if exact_rank(model.emission.flatten(1)) == model.n_memory * model.n_states:
        return True
    some_states = [states for n in (1, 2, 3, 4) for states in combinations(range(4), n)]
    return any(assumption_4_2(model, 0, states).holds for states in some_states)
