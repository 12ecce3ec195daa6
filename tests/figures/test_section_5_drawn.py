"""The figures of Section 5 show the means of the trials that they are given."""

import numpy as np
import pytest

from hmmbook.experiments.results import published, results
from hmmbook.experiments.specs import panel_specs
from hmmbook.experiments.store import STORE
from hmmbook.figures import exact_model, figure_3, memory_lead
from hmmbook.studies.memory_lead import HEADS, all_sizes, chains_to_compare, lead


@pytest.fixture(scope="module")
def left():
    trials = results("quick", STORE).query("changes == '' and n_memory == 1 and n_states in [4, 30]")
    return trials.assign(**{"likeliest states": 0.9, "fully fitted head": trials.head_accuracy / 2})


@pytest.fixture(scope="module")
def pairs():
    return chains_to_compare(panel_specs("quick", "right", 1))


def lines_of(axes) -> dict:
    return {line.get_label(): np.array(line.get_ydata(), float) for line in axes.lines}


def test_heads_and_prompts_stand_beside_what_is_fitted_to_the_exact_model(left):
    (axes,) = figure_3.beside_exact_rules(left).axes
    drawn = lines_of(axes)
    means = left.groupby("n_states").mean(numeric_only=True)

    np.testing.assert_allclose(drawn["head tuning"], means.head_accuracy)
    np.testing.assert_allclose(drawn["prompt tuning"], means.prompt_accuracy)
    np.testing.assert_allclose(drawn["likeliest states"], [0.9, 0.9])
    np.testing.assert_allclose(drawn["fully fitted head"], means.head_accuracy / 2)


def test_accuracies_on_the_exact_model_are_drawn_by_the_number_of_states(left):
    (axes,) = exact_model.by_states(left).axes
    drawn = lines_of(axes)
    means = left.groupby("n_states").mean(numeric_only=True)

    np.testing.assert_allclose(drawn["tuned prompt and head"], means.ladder_prompt_accuracy)
    np.testing.assert_allclose(drawn["tuned head"], means.ladder_head_accuracy)
    np.testing.assert_allclose(drawn["more frequent label"], means.majority_rate)


def test_the_leads_of_memory_models_are_drawn_with_the_published_one(pairs):
    (axes,) = memory_lead.leads(pairs).axes
    marks = {line.get_label(): np.array(line.get_xdata(), float) for line in axes.lines}
    expected = [lead(all_sizes(pairs), heads).mean for heads in HEADS]

    np.testing.assert_allclose(marks["on networks"], expected)
    assert "on exact predictions" not in marks
    assert marks["published"].round().tolist() == [26]


def test_the_leads_on_exact_predictions_are_drawn_if_they_are_asked_for(pairs):
    (axes,) = memory_lead.leads(pairs, exact=True).axes
    marks = {line.get_label(): np.array(line.get_xdata(), float) for line in axes.lines}
    expected = [lead(all_sizes(pairs), heads, exact=True).mean for heads in HEADS]

    np.testing.assert_allclose(marks["on exact predictions"], expected)


def test_each_panel_has_the_accuracies_of_its_heads(pairs):
    first, second, third = memory_lead.accuracies(pairs).axes
    of_28 = pairs[28]
    ends = [[line.get_ydata()[-1] for line in axes.lines if line.get_label() == "_"] for axes in (first, second, third)]

    np.testing.assert_allclose(ends[0], [of_28.memory.attention_accuracy.mean(), of_28.vanilla.head_accuracy.mean()])
    np.testing.assert_allclose(ends[1], [side.attention_accuracy.mean() for side in of_28])
    np.testing.assert_allclose(ends[2], [side.head_accuracy.mean() for side in of_28])


def test_heads_and_prompts_stand_beside_the_published_means_and_the_more_frequent_label(left):
    (axes,) = figure_3.head_against_prompt(left).axes
    drawn = lines_of(axes)
    means = left.groupby("n_states").mean(numeric_only=True)

    np.testing.assert_allclose(drawn["head tuning"], means.head_accuracy)
    np.testing.assert_allclose(drawn["prompt tuning"], means.prompt_accuracy)
    np.testing.assert_allclose(drawn["fully fitted head"], means.head_accuracy / 2)
    np.testing.assert_allclose(drawn["frequent label"], means.majority_rate)
    np.testing.assert_allclose(drawn["prompt tuning, paper"][-1], published("left")["prompt tuning"][30].mean)


def test_memory_and_vanilla_models_stand_beside_the_published_means(pairs):
    (axes,) = memory_lead.memory_against_vanilla(pairs).axes
    drawn = lines_of(axes)

    np.testing.assert_allclose(drawn["memory"][-1], pairs[28].memory.attention_accuracy.mean())
    np.testing.assert_allclose(drawn["vanilla"][-1], pairs[28].vanilla.head_accuracy.mean())
    np.testing.assert_allclose(drawn["frequent label"][-1], pairs[28].vanilla.majority_rate.mean())
    assert drawn["memory, paper"][-1] == published("right")["memory HMM + attention head"][28].mean


def test_without_prompts_only_heads_are_drawn(left):
    (axes,) = figure_3.head_against_prompt(left.assign(prompt_accuracy=np.nan)).axes

    assert "head tuning" in lines_of(axes)
    assert "prompt tuning" not in lines_of(axes)
