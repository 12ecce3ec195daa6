"""What the page on memory and vanilla models says, from the stored trials and the models."""

from itertools import combinations

import pytest
from lessons import run
from pandas import DataFrame
from panels import ATTENTION, LINEAR, RIGHT_SIZES, memory_lead

from hmmbook import TrialSpec, draw_model, draw_trial_task, load_result, mean_ci, result_path
from hmmbook.experiments.intervals import difference_ci
from hmmbook.experiments.presets import PRESETS, TRIALS
from hmmbook.experiments.results import published
from hmmbook.experiments.store import STORE
from hmmbook.figures.memory_lead import published_lead
from hmmlib import assumption_4_2, random_hmm, random_memory_hmm
from hmmlib.theory.assumptions import exact_rank


@pytest.fixture(scope="module")
def page() -> dict:
    return run("5-3-memory-vs-vanilla", trials=1, minutes=1e-9)


# The trials


def test_there_are_twenty_chains_of_each_kind_and_size_and_five_in_the_paper(memory, vanilla):
    assert memory.groupby("size").size().to_dict() == dict.fromkeys(RIGHT_SIZES, 20)
    assert vanilla.groupby("size").size().to_dict() == dict.fromkeys(RIGHT_SIZES, 20)
    assert TRIALS["right"] == 5


def test_memory_models_have_4_states_and_2_to_7_values_and_vanilla_models_as_many_states_as_pairs(memory, vanilla):
    assert set(memory.n_states) == {4}
    assert sorted(set(memory.n_memory)) == [2, 3, 5, 7]
    assert sorted(set(vanilla.n_states)) == [8, 12, 20, 28]


def test_the_experiment_has_the_sizes_that_the_text_gives():
    quick = PRESETS["quick"]
    paper = PRESETS["paper"]

    assert [quick[name] for name in ("layers", "width", "task_length")] == [2, 64, 33]
    assert [paper[name] for name in ("layers", "width", "task_length")] == [6, 768, 129]


# What one sees


def test_with_a_memory_and_an_attention_head_the_mean_is_96_percent_or_more_at_every_size(memory):
    means = memory.groupby("size")[ATTENTION].mean()

    assert f"{means.min():.0%}" == "96%"


def test_vanilla_models_with_linear_heads_fall_to_77_percent_at_28_states(vanilla):
    means = vanilla.groupby("size")[LINEAR].mean()

    assert f"{means[28]:.0%}" == "77%"
    assert means.idxmin() == 28
    assert means[20] < means[8] - 0.05


def test_memory_models_lead_by_16_points_over_all_sizes_and_in_the_paper_by_26():
    assert round(memory_lead(ATTENTION, LINEAR).mean) == 16
    assert round(published_lead(RIGHT_SIZES)) == 26


def test_the_published_lead_is_larger_mostly_because_vanilla_models_are_lower_at_20_and_28_states(memory, vanilla):
    paper = published("right").map(lambda point: point.mean)
    below = vanilla.groupby("size")[LINEAR].mean() - paper["vanilla HMM + linear head"].dropna()
    above = paper["memory HMM + attention head"].dropna() - memory.groupby("size")[ATTENTION].mean()

    assert (below > 0).all()
    assert (above > 0).all()
    assert below[[20, 28]].sum() > (below + above).sum() / 2


def test_the_published_vanilla_heads_are_close_to_the_more_frequent_label_at_20_and_28_states(vanilla):
    paper = published("right").map(lambda point: point.mean)["vanilla HMM + linear head"]
    apart = paper - vanilla.groupby("size").majority_rate.mean()

    assert apart[[20, 28]].abs().max() < 0.04


# Which part has the memory, and which the attention


def test_with_attention_heads_on_both_the_lead_is_7_points_and_with_linear_heads_on_both_4():
    of_attention = memory_lead(ATTENTION, ATTENTION)
    of_linear = memory_lead(LINEAR, LINEAR)

    assert [round(of_attention.mean), round(of_linear.mean)] == [7, 4]
    assert of_attention.low > 0
    assert of_linear.low > 0


def test_more_than_half_of_the_lead_belongs_to_the_head():
    whole = memory_lead(ATTENTION, LINEAR).mean

    assert memory_lead(ATTENTION, ATTENTION).mean < whole / 2
    assert memory_lead(LINEAR, LINEAR).mean < whole / 2


def test_vanilla_models_gain_from_an_attention_head(vanilla):
    gains = 100 * (vanilla[ATTENTION] - vanilla[LINEAR]).groupby(vanilla.seed).mean()

    assert mean_ci(gains, share=False).low > 0


def test_the_table_has_the_mean_of_each_kind_of_model_with_each_head(page, memory, vanilla):
    expected = []
    for column in (LINEAR, ATTENTION):
        expected.append([f"{models[column].mean():.0%}" for models in (memory, vanilla)])

    assert [shares for _, *shares in page["means"]] == expected


def test_the_leads_of_the_book_are_those_of_plain_pandas(page):
    together = page["memory_lead"].all_sizes(page["pairs"])
    shown = page["memory_lead"].lead(together, "as in the paper")

    assert list(page["pairs"]) == RIGHT_SIZES
    assert f"{shown:.6f}" == f"{memory_lead(ATTENTION, LINEAR):.6f}"


def test_where_fewer_than_two_chains_are_stored_those_of_quick_are_shown_and_that_is_said(page, capsys):
    specs = [TrialSpec("laptop", 4, 0, 2), TrialSpec("laptop", 8, 0)]
    pairs = page["memory_lead"].chains_to_compare(specs)

    assert set(pairs[8].memory.preset) == {"quick"}
    assert "Fewer than two chains of each kind are stored at laptop." in capsys.readouterr().out


# How much a text tells


def test_from_4_to_32_tokens_the_entropy_of_the_memory_goes_on_falling_and_that_of_the_state_much_less(page):
    falls = []
    for rows in (page["of_memory"], page["of_state"]):
        table = DataFrame(rows, columns=[1, 2, 4, 8, 16, 32])
        falls.append(mean_ci(100 * (table[4] - table[32]), share=False))

    assert falls[0].mean > 3 * falls[1].mean
    assert falls[0].low > falls[1].high
    assert falls[1].low > 0


def test_the_gap_between_the_ends_of_the_curves_may_be_chance(page):
    memory, state = page["curves"].values()
    apart = difference_ci(memory[32], state[32])

    assert apart.low < 0 < apart.high


# Theorem 4.3


def test_with_two_values_the_eight_columns_of_w_are_independent_in_all_models():
    for seed in range(20):
        columns = random_memory_hmm(2, 4, 10, seed).emission.flatten(1)

        assert exact_rank(columns) == columns.shape[1] == 8


@pytest.mark.parametrize("n_values", [3, 5, 7])
def test_with_three_values_or_more_w_has_more_columns_than_tokens_and_no_set_of_states_satisfies_the_assumption(
    n_values,
):
    for seed in range(20):
        model = random_memory_hmm(n_values, 4, 10, seed)
        assert model.emission.flatten(1).shape[1] > 10
        for size in range(1, 5):
            for states in combinations(range(4), size):
                assert not assumption_4_2(model, 0, states)


def test_attention_heads_reach_96_percent_or_more_where_the_theorem_does_not_apply(memory):
    larger = memory[memory["size"] > 8]

    assert f"{larger.groupby('size')[ATTENTION].mean().min():.0%}" == "96%"


# The live trial


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


def test_in_exercise_2_most_of_the_states_entropy_is_left_less_than_half_with_a_memory_and_none_of_the_memorys(page):
    assert entropies_left(page, "state_posterior", memory=False)[3] > 0.7
    assert entropies_left(page, "state_posterior", memory=True)[3] < 0.5
    assert entropies_left(page, "memory_posterior", memory=True)[3] < 0.005


def test_the_chains_of_the_entropies_have_the_largest_size(page):
    assert page["memory_models"][0].emission.flatten(1).shape[1] == page["vanilla_models"][0].n_states == 28
    assert random_hmm(28, 10, 0).n_states == 28
