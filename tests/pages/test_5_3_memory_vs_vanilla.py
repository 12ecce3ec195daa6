"""What the page on memory and vanilla models says, from the stored trials and the models."""

import pytest
import torch
from lessons import run
from pandas import DataFrame

from hmmbook import TrialSpec, draw_mu, draw_task, load_result, mean_ci, result_path, results
from hmmbook.experiments.intervals import Interval, difference_ci
from hmmbook.experiments.parts import draw_model, draw_trial_task
from hmmbook.experiments.presets import PRESETS, TRIALS
from hmmbook.experiments.results import published
from hmmbook.experiments.store import BEYOND, STORE
from hmmbook.figures.memory_lead import published_lead
from hmmlib import random_hmm, random_memory_hmm
from hmmlib.theory.assumptions import exact_rank

SIZES = [8, 12, 20, 28]
ATTENTION = "attention_accuracy"
LINEAR = "head_accuracy"


@pytest.fixture(scope="module")
def stored() -> DataFrame:
    """All stored trials of both kinds of models, the quick ones beyond the paper's."""
    table = results("quick", BEYOND).query("own == '' and size in @SIZES")
    return table[(table.n_memory == 1) | (table.n_states == 4)]


@pytest.fixture(scope="module")
def memory(stored) -> DataFrame:
    return stored[(stored.changes == "") & (stored.n_memory > 1) & (stored.seed < 20)]


@pytest.fixture(scope="module")
def vanilla(stored) -> DataFrame:
    return stored[(stored.changes == "") & (stored.n_memory == 1) & (stored.seed < 20)]


@pytest.fixture(scope="module")
def early_memory(stored) -> DataFrame:
    return stored[(stored.changes == "steps=100") & (stored.n_memory > 1)]


@pytest.fixture(scope="module")
def early_vanilla(stored) -> DataFrame:
    return stored[(stored.changes == "steps=100") & (stored.n_memory == 1)]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("5-3-memory-vs-vanilla", trials=1, minutes=1e-9)


def in_points(rows: DataFrame, column: str) -> Interval:
    """A mean in points. The chains of one seed share their mixing weights, so they count as one."""
    return mean_ci(100 * rows[column].groupby(rows.seed).mean(), share=False)


def lead(memory: DataFrame, column: str, vanilla: DataFrame, other_column: str) -> Interval:
    return difference_ci(in_points(memory, column), in_points(vanilla, other_column))


def lead_at(size: int, memory: DataFrame, vanilla: DataFrame, column: str) -> Interval:
    return lead(memory[memory["size"] == size], column, vanilla[vanilla["size"] == size], column)


def percents(shares) -> list[str]:
    return [f"{share:.0%}" for share in shares]


def ends(shares) -> list[str]:
    return percents([min(shares), max(shares)])


# The leads


def test_there_are_twenty_chains_of_each_kind_and_size(memory, vanilla):
    assert memory.groupby("size").size().to_dict() == dict.fromkeys(SIZES, 20)
    assert vanilla.groupby("size").size().to_dict() == dict.fromkeys(SIZES, 20)
    assert TRIALS["right"] == 5


def test_with_the_papers_heads_memory_models_lead_by_16_points_and_on_exact_predictions_by_15(memory, vanilla):
    assert f"{lead(memory, ATTENTION, vanilla, LINEAR):.0f}" == "16 [14, 18]"
    assert f"{lead(memory, f'exact_{ATTENTION}', vanilla, f'exact_{LINEAR}'):.0f}" == "15 [13, 16]"


def test_with_attention_heads_on_both_the_lead_is_7_points_and_on_exact_predictions_5(memory, vanilla):
    assert f"{lead(memory, ATTENTION, vanilla, ATTENTION):.0f}" == "7 [5, 10]"
    assert f"{lead(memory, f'exact_{ATTENTION}', vanilla, f'exact_{ATTENTION}'):.0f}" == "5 [3, 8]"


def test_with_linear_heads_on_both_the_lead_is_4_points_and_on_exact_predictions_2(memory, vanilla):
    assert f"{lead(memory, LINEAR, vanilla, LINEAR):.0f}" == "4 [1, 7]"
    assert f"{lead(memory, f'exact_{LINEAR}', vanilla, f'exact_{LINEAR}'):.0f}" == "2 [-1, 5]"


def test_equal_attention_heads_close_9_of_the_16_points_and_equal_linear_heads_12(memory, vanilla):
    whole = round(lead(memory, ATTENTION, vanilla, LINEAR).mean)

    assert whole - round(lead(memory, ATTENTION, vanilla, ATTENTION).mean) == 9
    assert whole - round(lead(memory, LINEAR, vanilla, LINEAR).mean) == 12


def test_by_size_the_lead_is_11_to_21_points(memory, vanilla):
    leads = memory.groupby("size")[ATTENTION].mean() - vanilla.groupby("size")[LINEAR].mean()

    assert round(100 * leads.min()) == 11
    assert round(100 * leads.max()) == 21


def test_the_published_lead_is_17_to_36_points_and_26_on_average():
    paper = published("right").map(lambda point: point.mean)
    leads = 100 * (paper["memory HMM + attention head"] - paper["vanilla HMM + linear head"]).dropna()

    assert (round(leads.min()), round(leads.max()), round(leads.mean())) == (17, 36, 26)
    assert round(published_lead(SIZES)) == 26


def test_vanilla_models_have_as_many_states_as_memory_models_have_pairs(memory):
    assert set(memory.n_states) == {4}
    assert sorted(set(memory.n_memory)) == [2, 3, 5, 7]


# The accuracies


def test_memory_models_are_near_100_percent_with_attention_heads(memory):
    assert ends(memory.groupby("size")[ATTENTION].mean()) == ["96%", "99%"]


def test_vanilla_models_with_linear_heads_fall_from_size_to_size_on_the_five_chains_of_the_papers_panel():
    of_the_panel = results("quick", STORE).query("changes == '' and n_memory == 1 and seed < 5 and size in @SIZES")
    assert of_the_panel.groupby("size")[LINEAR].mean().is_monotonic_decreasing


def test_the_other_means_lie_below_those_of_memory_models_with_attention_heads_and_fall(memory, vanilla):
    best = memory.groupby("size")[ATTENTION].mean()
    others = [
        memory.groupby("size")[LINEAR].mean(),
        vanilla.groupby("size")[ATTENTION].mean(),
        vanilla.groupby("size")[LINEAR].mean(),
    ]
    for means in others:
        assert (means < best).all()
        assert means[28] < means[8] - 0.05


def test_with_linear_heads_on_both_vanilla_is_the_lower_at_8_20_and_28_states(memory, vanilla):
    apart = memory.groupby("size")[LINEAR].mean() - vanilla.groupby("size")[LINEAR].mean()

    assert apart.index[apart > 0].tolist() == [8, 20, 28]


def test_the_published_means_are_above_ours_for_memory_models_and_below_for_vanilla_ones(memory, vanilla):
    paper = published("right").map(lambda point: point.mean)

    assert (paper["memory HMM + attention head"].dropna() > memory.groupby("size")[ATTENTION].mean()).all()
    assert (paper["vanilla HMM + linear head"].dropna() < vanilla.groupby("size")[LINEAR].mean()).all()


def test_the_published_vanilla_heads_are_within_four_points_of_the_more_frequent_label_at_20_and_28(vanilla):
    paper = published("right").map(lambda point: point.mean)["vanilla HMM + linear head"]
    apart = paper - vanilla.groupby("size").majority_rate.mean()

    assert apart[[20, 28]].abs().max() < 0.04


def test_the_experiment_has_the_sizes_that_the_text_gives():
    quick = PRESETS["quick"]
    paper = PRESETS["paper"]

    assert [quick[name] for name in ("layers", "width", "task_length")] == [2, 64, 33]
    assert [paper[name] for name in ("layers", "width", "task_length")] == [6, 768, 129]


# The head, and the rest


def test_an_attention_head_adds_12_1_points_on_memory_models_and_8_6_on_vanilla_ones(memory, vanilla):
    expected = {"12.1 [9.4, 14.8]": memory, "8.6 [5.8, 11.4]": vanilla}
    for text, rows in expected.items():
        gains = rows.assign(gain_of_attention=rows[ATTENTION] - rows[LINEAR])
        assert f"{in_points(gains, 'gain_of_attention'):.1f}" == text


def test_at_8_states_linear_heads_are_right_on_88_and_91_percent_of_exact_predictions(memory, vanilla):
    of_vanilla = vanilla[vanilla["size"] == 8]
    of_memory = memory[memory["size"] == 8]

    assert percents([of_vanilla.exact_head_accuracy.mean(), of_memory.exact_head_accuracy.mean()]) == ["88%", "91%"]


def test_at_8_states_the_columns_of_vanilla_chains_are_independent():
    for seed in range(20):
        assert exact_rank(draw_model(TrialSpec("quick", 8, seed)).emission) == 8


def test_with_attention_heads_on_both_memory_models_lead_at_every_size(memory, vanilla):
    assert all(lead_at(size, memory, vanilla, ATTENTION).low > 0 for size in SIZES)


def test_with_linear_heads_on_both_the_interval_excludes_zero_at_28_states_only_and_on_exact_ones_nowhere(
    memory, vanilla
):
    on_networks = {size: lead_at(size, memory, vanilla, LINEAR) for size in SIZES}
    on_exact = {size: lead_at(size, memory, vanilla, f"exact_{LINEAR}") for size in SIZES}

    assert [size for size in SIZES if on_networks[size].low > 0 or on_networks[size].high < 0] == [28]
    assert [size for size in SIZES if on_exact[size].low > 0 or on_exact[size].high < 0] == []


def test_at_28_states_vanilla_networks_have_learned_78_percent_and_memory_networks_97(memory, vanilla):
    learned = [rows[rows["size"] == 28].learned.mean() for rows in (vanilla, memory)]

    assert percents(learned) == ["78%", "97%"]


# Theorem 4.3


def test_assumption_4_2_holds_in_all_models_with_two_values_and_in_none_with_more(page):
    assert page["counts"] == {2: 20, 3: 0, 5: 0, 7: 0}


def test_with_two_values_w_has_eight_columns_and_with_more_it_has_more_columns_than_tokens():
    columns = [random_memory_hmm(m, 4, 10, 0).emission.flatten(1).shape for m in (2, 3, 5, 7)]

    assert columns == [(10, 8), (10, 12), (10, 20), (10, 28)]


def test_in_two_models_with_two_values_double_precision_cannot_tell():
    ranks = []
    for seed in range(20):
        columns = random_memory_hmm(2, 4, 10, seed).emission.flatten(1)
        assert exact_rank(columns) == 8
        ranks.append(torch.linalg.matrix_rank(columns).item())

    assert sorted(ranks) == 2 * [7] + 18 * [8]


def test_attention_heads_are_right_on_96_to_98_percent_where_the_theorem_does_not_apply(memory):
    larger = memory[memory["size"] > 8]

    assert ends(larger.groupby("size")[ATTENTION].mean()) == ["96%", "98%"]


# What was predicted, and networks after 100 steps


def test_of_three_predictions_two_came_true(memory, vanilla, early_memory, page):
    leads = [lead_at(size, memory, vanilla, ATTENTION) for size in SIZES]
    gain = mean_ci(100 * (vanilla[ATTENTION] - vanilla[LINEAR]).groupby(vanilla.seed).mean(), share=False)

    first = all(interval.mean > 0 for interval in leads) and all(interval.low > 0 for interval in leads[1:])
    second = gain.mean >= 5 and gain.low > 0
    third = early_memory[ATTENTION].mean() >= 0.95 and early_memory.learned.mean() < 0.5

    shown = page["memory_lead"].predictions(page["pairs"], page["early"])
    assert [came_true for *_, came_true in shown] == [first, second, third] == [True, True, False]


def test_after_100_steps_memory_networks_have_learned_six_tenths_and_their_heads_are_right_on_98_to_100_percent(
    early_memory,
):
    assert early_memory.groupby("size").size().to_dict() == dict.fromkeys(SIZES, 5)
    assert 0.55 < early_memory.learned.mean() < 0.65
    assert ends(early_memory.groupby("size")[ATTENTION].mean()) == ["98%", "100%"]


def test_after_100_steps_vanilla_networks_have_learned_a_sixth_and_their_heads_are_3_or_4_points_above_the_label(
    early_vanilla,
):
    above = 100 * (early_vanilla[LINEAR] - early_vanilla.majority_rate).groupby(early_vanilla["size"]).mean()

    assert early_vanilla.groupby("size").size().to_dict() == dict.fromkeys(SIZES, 5)
    assert 0.13 < early_vanilla.learned.mean() < 0.2
    assert set(above.round()) <= {3, 4}


def test_published_vanilla_models_fall_from_81_percent_to_64_and_66():
    paper = published("right").map(lambda point: point.mean)["vanilla HMM + linear head"]

    assert percents(paper[[12, 20, 28]]) == ["81%", "64%", "66%"]


# How much a text determines


def test_from_4_to_32_tokens_the_entropy_of_the_memory_falls_by_6_points_and_that_of_the_state_by_one(page):
    falls = []
    for rows in (page["of_memory"], page["of_state"]):
        table = DataFrame(rows, columns=[1, 2, 4, 8, 16, 32])
        falls.append(f"{mean_ci(100 * (table[4] - table[32]), share=False):.1f}")

    assert falls == ["6.1 [3.5, 8.8]", "0.8 [0.5, 1.2]"]


def test_at_32_tokens_9_percent_of_the_memorys_entropy_is_left_and_16_of_the_states_which_may_be_chance(page):
    memory, state = page["curves"].values()
    apart = difference_ci(memory[32], state[32])

    assert percents([memory[32].mean, state[32].mean]) == ["9%", "16%"]
    assert apart.low < 0 < apart.high
    assert f"{state[4].mean:.2f}" == "0.17"


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


def test_the_stored_trial_that_runs_live_has_the_numbers_of_its_task():
    spec = TrialSpec("quick", 4, seed=0, n_memory=7)
    stored = load_result(result_path(spec, STORE))
    task = draw_trial_task(spec, draw_model(spec))
    ones = task.test.labels.double().mean().item()

    assert task.redraws == stored.redraws
    assert max(ones, 1 - ones) == pytest.approx(stored.majority_rate)


# The exercises


def entropies_left(page: dict, belief: str, memory: bool) -> list[float]:
    """The mean remaining entropy after 1, 4, 24 and 96 tokens in the five models of exercise 1."""
    models = page["memory_models"] if memory else page["vanilla_models"]
    rows = [page["entropy_left"](model, page[belief], [1, 4, 24, 96]) for model in models]
    return DataFrame(rows).mean().tolist()


def test_in_exercise_1_both_curves_start_higher_and_only_the_memorys_falls_to_nothing(page):
    of_memory = entropies_left(page, "memory_posterior", memory=True)
    of_state = entropies_left(page, "state_posterior", memory=False)
    cold_memory, cold_state = page["curves"].values()

    assert of_memory[0] > cold_memory[1].mean
    assert of_state[0] > cold_state[1].mean
    assert of_memory[3] < 0.05
    assert of_state[3] > 0.7
    assert of_state[2] - of_state[3] < 0.03


def test_in_exercise_2_082_and_043_of_the_states_entropy_is_left_and_none_of_the_memorys(page):
    assert f"{entropies_left(page, 'state_posterior', memory=False)[3]:.2f}" == "0.82"
    assert f"{entropies_left(page, 'state_posterior', memory=True)[3]:.2f}" == "0.43"
    assert entropies_left(page, "memory_posterior", memory=True)[3] < 0.005


# What the book computes for the page


def test_the_leads_of_the_book_are_those_of_plain_pandas(memory, vanilla, page):
    together = page["memory_lead"].all_sizes(page["pairs"])
    shown = page["memory_lead"].lead(together, "as in the paper")

    assert list(page["pairs"]) == SIZES
    assert f"{shown:.6f}" == f"{lead(memory, ATTENTION, vanilla, LINEAR):.6f}"
    assert f"{page['memory_lead'].gain_of_attention(together.vanilla):.1f}" == "8.6 [5.8, 11.4]"


def test_where_fewer_than_two_chains_are_stored_those_of_quick_are_shown_and_that_is_said(page, capsys):
    specs = [TrialSpec("laptop", 4, 0, 2), TrialSpec("laptop", 8, 0)]
    pairs = page["memory_lead"].chains_to_compare(specs)

    assert set(pairs[8].memory.preset) == {"quick"}
    assert "Fewer than two chains of each kind are stored at laptop." in capsys.readouterr().out


def test_the_chains_of_the_entropies_have_the_largest_size(page):
    assert page["memory_models"][0].emission.flatten(1).shape[1] == page["vanilla_models"][0].n_states == 28
    assert random_hmm(28, 10, 0).n_states == 28
