"""What the details of Figure 3 say of memory and attention, from the stored trials and the models."""

import pytest
import torch
from lessons import run
from pandas import DataFrame
from panels import ATTENTION, LINEAR, RIGHT_SIZES, ends, in_points, memory_lead, memory_lead_at, percent, right_panel

from hmmbook import TrialSpec, draw_model, draw_mu, draw_task, mean_ci
from hmmbook.experiments.results import published
from hmmlib import random_memory_hmm
from hmmlib.theory.assumptions import exact_rank

EXACT_ATTENTION = f"exact_{ATTENTION}"
EXACT_LINEAR = f"exact_{LINEAR}"


@pytest.fixture(scope="module")
def early_memory() -> DataFrame:
    return right_panel(steps=100)[0]


@pytest.fixture(scope="module")
def early_vanilla() -> DataFrame:
    return right_panel(steps=100)[1]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("figure-3-in-detail", trials=1, hidden_sizes=[10])


# The lead with equal heads


def test_by_size_the_lead_is_11_to_21_points(memory, vanilla):
    leads = memory.groupby("size")[ATTENTION].mean() - vanilla.groupby("size")[LINEAR].mean()

    assert [round(100 * leads.min()), round(100 * leads.max())] == [11, 21]


def test_the_published_lead_is_17_to_36_points():
    paper = published("right").map(lambda point: point.mean)
    leads = 100 * (paper["memory HMM + attention head"] - paper["vanilla HMM + linear head"]).dropna()

    assert [round(leads.min()), round(leads.max())] == [17, 36]


def test_vanilla_models_with_linear_heads_fall_from_12_states_on(vanilla):
    means = vanilla.groupby("size")[LINEAR].mean()

    assert means[[12, 20, 28]].is_monotonic_decreasing


def test_with_linear_heads_on_both_both_fall_and_vanilla_is_the_lower_at_8_20_and_28_states(memory, vanilla):
    of_memory = memory.groupby("size")[LINEAR].mean()
    of_vanilla = vanilla.groupby("size")[LINEAR].mean()
    apart = of_memory - of_vanilla

    assert of_memory[28] < of_memory[8] - 0.05
    assert of_vanilla[28] < of_vanilla[8] - 0.05
    assert apart.index[apart > 0].tolist() == [8, 20, 28]


def test_with_attention_heads_on_both_memory_models_lead_clearly_at_every_size():
    assert all(memory_lead_at(size, ATTENTION).low > 0 for size in RIGHT_SIZES)


def test_with_linear_heads_on_both_they_lead_clearly_at_28_states_only():
    assert [size for size in RIGHT_SIZES if memory_lead_at(size, LINEAR).low > 0] == [28]


def test_an_attention_head_adds_12_1_points_on_memory_models_and_8_6_on_vanilla_ones(memory, vanilla):
    for text, rows in {"12.1 [9.4, 14.8]": memory, "8.6 [5.8, 11.4]": vanilla}.items():
        gains = rows.assign(gain_of_attention=rows[ATTENTION] - rows[LINEAR])
        assert f"{in_points(gains, 'gain_of_attention'):.1f}" == text


def test_at_8_states_the_columns_of_vanilla_chains_are_independent():
    for seed in range(20):
        assert exact_rank(draw_model(TrialSpec("quick", 8, seed)).emission) == 8


def test_at_8_states_tuned_linear_heads_on_exact_predictions_are_right_on_88_percent(vanilla):
    assert percent(vanilla[vanilla["size"] == 8].exact_head_accuracy) == "88%"


# The networks


def test_at_28_states_vanilla_networks_have_learned_78_percent_and_memory_networks_97(memory, vanilla):
    assert percent(vanilla[vanilla["size"] == 28].learned) == "78%"
    assert percent(memory[memory["size"] == 28].learned) == "97%"


@pytest.mark.parametrize(
    ("of_memory", "of_vanilla", "on_networks", "on_exact_predictions"),
    [(ATTENTION, LINEAR, 16, 15), (ATTENTION, ATTENTION, 7, 5), (LINEAR, LINEAR, 4, 2)],
)
def test_the_leads_on_networks_and_on_exact_predictions(of_memory, of_vanilla, on_networks, on_exact_predictions):
    assert round(memory_lead(of_memory, of_vanilla).mean) == on_networks
    assert round(memory_lead(f"exact_{of_memory}", f"exact_{of_vanilla}").mean) == on_exact_predictions


def test_with_attention_heads_on_both_a_lead_of_5_points_remains_on_exact_predictions():
    assert f"{memory_lead(EXACT_ATTENTION, EXACT_ATTENTION):.0f}" == "5 [3, 8]"


def test_with_linear_heads_on_both_the_lead_on_exact_predictions_may_be_chance_over_all_sizes_and_at_each():
    whole = memory_lead(EXACT_LINEAR, EXACT_LINEAR)
    by_size = [memory_lead_at(size, EXACT_LINEAR) for size in RIGHT_SIZES]

    assert all(interval.low < 0 < interval.high for interval in (whole, *by_size))


# What was predicted, and networks after 100 steps


def test_of_three_predictions_two_came_true(vanilla, early_memory, page):
    leads = [memory_lead_at(size, ATTENTION) for size in RIGHT_SIZES]
    gain = mean_ci(100 * (vanilla[ATTENTION] - vanilla[LINEAR]).groupby(vanilla.seed).mean(), share=False)

    first = all(interval.mean > 0 for interval in leads) and all(interval.low > 0 for interval in leads[1:])
    second = gain.mean >= 5 and gain.low > 0
    third = early_memory[ATTENTION].mean() >= 0.95 and early_memory.learned.mean() < 0.5

    shown = page["memory_lead"].predictions(page["pairs"], page["early"])
    assert [came_true for *_, came_true in shown] == [first, second, third] == [True, True, False]
    assert f"{page['memory_lead'].gain_of_attention(page['together'].vanilla):.1f}" == "8.6 [5.8, 11.4]"


def test_after_100_steps_memory_networks_have_learned_six_tenths_and_their_heads_are_right_on_98_percent_or_more(
    early_memory,
):
    assert early_memory.groupby("size").size().to_dict() == dict.fromkeys(RIGHT_SIZES, 5)
    assert 0.55 < early_memory.learned.mean() < 0.65
    assert ends(early_memory.groupby("size")[ATTENTION].mean()) == ["98%", "100%"]


def test_after_100_steps_vanilla_networks_have_learned_a_sixth_and_their_heads_are_3_or_4_points_above_the_label(
    early_vanilla,
):
    above = 100 * (early_vanilla[LINEAR] - early_vanilla.majority_rate).groupby(early_vanilla["size"]).mean()

    assert early_vanilla.groupby("size").size().to_dict() == dict.fromkeys(RIGHT_SIZES, 5)
    assert 0.13 < early_vanilla.learned.mean() < 0.2
    assert set(above.round()) <= {3, 4}


def test_published_vanilla_models_fall_from_81_percent_at_12_states_to_64_at_20():
    paper = published("right").map(lambda point: point.mean)["vanilla HMM + linear head"]

    assert [f"{paper[size]:.0%}" for size in (12, 20)] == ["81%", "64%"]


# Assumption 4.2


def test_assumption_4_2_holds_in_all_models_with_two_values_and_in_none_with_more(page):
    assert page["counts"] == {2: 20, 3: 0, 5: 0, 7: 0}


def test_in_two_models_with_two_values_double_precision_cannot_tell():
    ranks = []
    for seed in range(20):
        columns = random_memory_hmm(2, 4, 10, seed).emission.flatten(1)
        assert exact_rank(columns) == 8
        ranks.append(torch.linalg.matrix_rank(columns).item())

    assert sorted(ranks) == 2 * [7] + 18 * [8]


# The more frequent label


def test_the_more_frequent_label_is_on_52_to_67_percent_of_memory_tasks_and_61_to_69_of_vanilla_ones(memory, vanilla):
    assert ends(memory.groupby("size").majority_rate.mean()) == ["52%", "67%"]
    assert ends(vanilla.groupby("size").majority_rate.mean()) == ["61%", "69%"]


def test_with_two_values_about_half_of_the_draws_of_mu_give_all_texts_one_label():
    n_alike = 0
    for seed in range(20):
        beliefs = draw_task(random_memory_hmm(2, 4, 10, seed), 129, (300, 0, 0), seed).posteriors
        generator = torch.Generator().manual_seed(seed)
        for _ in range(100):
            labels = beliefs @ draw_mu(2, generator).to(beliefs) >= 0
            n_alike += bool(labels.all() or not labels.any())

    assert 0.45 < n_alike / 2000 < 0.55
