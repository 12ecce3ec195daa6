"""What the page on solvable tasks says."""

import re

import pytest
import torch
from lessons import run
from record import ROOT, slow

from hmmbook import TrialSpec, draw_model, draw_trial_task, results
from hmmbook.evidence import ledger
from hmmbook.experiments.labels import draw_mu
from hmmbook.experiments.parts import trial_seeds
from hmmbook.experiments.store import BEYOND
from hmmbook.figures.tables import one_digit
from hmmbook.studies import kinds_of_text
from hmmbook.studies.certificates import outcomes, refuting_belief
from hmmlib import random_hmm

MU = torch.tensor([1, -1, 0.5], dtype=torch.float64)
DRAWN = [[2, -2, 1], [2, -1, 1], [1, -1, -0.5]]
"""The three ν of the triangles."""


@pytest.fixture(scope="module")
def page():
    return run("solvable", minutes=1e-9, instances=1)


@pytest.fixture(scope="module")
def trials():
    """The 120 trials of the left panel with the measurements of the page."""
    stored = results("quick", BEYOND).query("changes == '' and n_memory == 1 and seed < 20")
    stored = stored[stored["solvable.head.error"].notna()]
    assert stored.groupby("n_states").size().to_dict() == dict.fromkeys([4, 8, 10, 15, 25, 30], 20)
    return stored


def at_sizes(trials, column):
    return trials[column].groupby(trials.n_states)


# Exactness


def test_only_the_first_of_the_three_triangles_has_no_wrong_belief():
    refuted = [refuting_belief(MU, torch.tensor(nu).double()) is not None for nu in DRAWN]
    assert refuted == [False, True, True]


def test_only_the_third_has_a_wrong_sign_and_it_is_at_the_state_of_weight_one_half():
    wrong = [[(entry > 0) != (weight > 0) for entry, weight in zip(nu, MU, strict=True)] for nu in DRAWN]
    assert [list(map(bool, signs)) for signs in wrong] == [[False] * 3, [False] * 3, [False, False, True]]


def test_halving_the_first_and_the_last_entry_makes_the_second_the_task():
    assert (torch.tensor(DRAWN[1]) * torch.tensor([0.5, 1, 0.5])).tolist() == MU.tolist()


def test_the_heads_of_the_theorems_are_exact_and_without_the_prompt_none_is(page):
    assert max(page["error_of_head"], page["error_with_prompt"]) < 1e-10
    assert page["without_prompt"].error > 0.01
    assert f"{page['without_prompt'].error:.2f}" == page["rows"][2][-1]


def test_behind_a_permutation_the_prompt_of_the_proof_is_exact_and_no_head_alone(page):
    transition = page["ring"].transition
    assert ((transition == 0) | (transition == 1)).all()
    assert page["error_in_ring"] < 1e-9
    assert page["head_alone"].error > 0.01


def test_exactly_the_certain_labels_survive_the_worst_change_of_a_prediction(page):
    assert torch.equal(page["certain"], page["survives"])
    assert 0 < page["certain"].sum() < len(page["certain"])


def test_the_smaller_the_change_is_the_more_labels_are_certain(page):
    p, mu, d = page["beliefs"], page["mu"], page["d"]
    counts = []
    for epsilon in (0.1, 0.03, 0.001):
        counts.append(((p @ mu).abs() > page["delta"] + epsilon * page["kappa"] * (p @ d)).sum().item())
    assert counts == sorted(set(counts))


def test_a_chain_that_is_periodic_and_far_from_stationary_has_an_exact_head(page):
    flip = page["flip"]
    assert torch.equal(flip.transition @ flip.transition, torch.eye(2, dtype=torch.float64))
    assert (flip.initial - 0.5).abs().max() > 0.3
    assert (int(page["n_right"]), len(page["labels"])) == (64, 64)


def test_with_the_signal_the_units_predict_the_relabelling_and_without_it_what_they_did(page):
    W, p, R = page["W"], page["p"], page["R"]
    columns = torch.zeros(3, 4, dtype=torch.float64)
    columns[[1, 2, 1, 2], range(4)] = 1
    assert torch.equal(R, columns)
    assert torch.allclose(page["with_signal"], p @ columns.T, atol=1e-12)
    assert torch.allclose(page["without_signal"], p @ W.T, atol=1e-12)
    assert not torch.allclose(page["without_signal"], p @ columns.T, atol=0.1)


def test_each_statement_of_the_page_is_in_the_ledger_and_came_out_as_recorded(page):
    ours = {statement.name for statement in ledger.STATEMENTS if statement.page == "notebooks/solvable"}
    assert page["entries"].keys() == ours
    for entry in page["entries"].values():
        assert entry.as_recorded


# How exactly the paper's tasks can be solved


def test_of_40_tasks_with_25_and_30_states_two_have_an_exact_prompt_and_head_and_none_a_head(trials):
    large = trials[trials.n_states >= 25]
    exact = [(large[f"solvable.{way}.error"] <= 1e-6).sum() for way in ("prompt", "head")]
    assert (len(large), *exact) == (40, 2, 0)


def test_the_theorems_heads_could_be_computed_for_39_and_40_of_the_tasks_with_4_and_8_states(trials):
    small = trials[trials.n_states <= 8]
    assert (len(small), small.built_head_accuracy.count(), small.built_prompt_accuracy.count()) == (40, 39, 40)


def test_of_60_tasks_with_15_states_and_more_the_theorem_covers_12_and_the_search_solves_4_more(trials):
    large = trials[trials.n_states >= 15]
    covered = large.built_prompt_accuracy.notna()
    solved = large["solvable.prompt.error"] <= 1e-6
    assert (len(large), covered.sum(), (solved & ~covered).sum()) == (60, 12, 4)
    assert (large["solvable.head.error"] > 1e-6).all()
    assert large.built_head_accuracy.isna().all()


def test_rounding_leaves_the_programs_a_larger_error_on_some_tasks_that_a_theorem_covers(trials):
    for way in ("head", "prompt"):
        covered = trials[f"built_{way}_accuracy"].notna()
        assert (covered & (trials[f"solvable.{way}.error"] > 1e-6)).any()


@pytest.mark.parametrize("way", ["head", "prompt"])
def test_in_the_table_no_task_leaves_from_row_to_row(trials, way):
    counts = outcomes.tasks_solved(trials, way)
    assert (counts.diff().iloc[1:] >= 0).all(axis=None)


def test_the_table_has_these_counts_from_15_states_on(trials):
    counts = outcomes.tasks_solved(trials, "prompt")
    assert counts.loc["δ ≤ 10⁻⁶", [15, 25, 30]].tolist() == [14, 1, 1]
    assert counts.loc["Theorem 3.6, computed", [15, 25, 30]].sum() == 12


def test_the_least_error_of_a_head_is_zero_up_to_8_states_and_then_rises_to_a_half(trials):
    head = at_sizes(trials, "solvable.head.error").mean()
    both = at_sizes(trials, "solvable.prompt.error").mean()
    assert head[[4, 8]].max() < 1e-3
    assert 0.05 < head[10] < 0.1
    assert 0.4 < head.loc[15:].min() <= head.loc[15:].max() < 0.6
    assert both[[4, 8, 10]].max() < 1e-3
    assert (both.loc[15:] < 0.4 * head.loc[15:]).all()


def test_the_head_of_least_error_costs_20000_at_8_states_and_ten_million_at_10(trials):
    medians = outcomes.medians(trials)
    assert [one_digit(medians["κ, head"][n_states]) for n_states in (8, 10)] == ["2·10⁴", "1·10⁷"]
    assert one_digit(medians["κ, both"][15]) == "6·10⁶"
    assert [one_digit(medians["δ, head"][10]), one_digit(medians["δ, both"][15])] == ["3·10⁻⁵", "0.001"]
    assert medians["κ, head"][8] * 1e-4 == pytest.approx(2, abs=0.5)


def test_the_medians_are_over_tasks_and_of_values_that_occur(trials):
    errors = trials[trials.n_states == 15]["solvable.prompt.error"].sort_values()
    assert outcomes.medians(trials)["δ, both"][15] == errors.iloc[10]


def test_columns_of_w_are_nearly_dependent_in_most_chains_with_8_and_10_states():
    ill_conditioned = 0
    for n_states in (8, 10):
        for seed in range(20):
            emission = random_hmm(n_states, 10, trial_seeds(seed)["model"]).emission
            ill_conditioned += torch.linalg.cond(emission).item() > 1e3
    assert ill_conditioned > 20


def test_at_25_and_30_states_one_task_in_four_comes_within_a_hundredth_and_one_in_twenty_within_a_millionth(trials):
    error = trials["solvable.prompt.error"]
    near = (error <= 0.01).groupby(trials.n_states).sum()[[25, 30]].sum() / 40
    exact = (error <= 1e-6).groupby(trials.n_states).sum()
    assert near == pytest.approx(1 / 4, abs=0.03)
    assert exact.tolist() == [20, 19, 17, 7, 1, 1]
    assert exact[[25, 30]].sum() / 40 == 1 / 20


def test_at_these_sizes_more_than_half_of_the_texts_are_near_ties_and_at_30_states_nearly_two_thirds(trials):
    near_ties = at_sizes(trials, "text_kinds.near tie").mean()
    assert kinds_of_text.NEAR_TIE == 0.01
    assert near_ties[[25, 30]].min() > 0.5
    assert 0.6 < near_ties[30] < 2 / 3


def test_a_near_tie_is_a_text_on_which_the_weighed_belief_is_at_most_a_hundredth(trials):
    spec = TrialSpec("quick", n_states=30, seed=1)
    task = draw_trial_task(spec, draw_model(spec))
    scores = (task.posteriors[-spec.test :].to(task.mu) @ task.mu).abs() / task.mu.abs().max()
    stored = trials.query("n_states == 30 and seed == 1")["text_kinds.near tie"].item()
    assert (scores <= 0.01).double().mean().item() == pytest.approx(stored, abs=0.002)


def test_in_all_120_tasks_some_head_has_the_right_signs(trials):
    assert len(trials) == 120
    assert (trials["solvable.votes apart"] == 1).all()


@pytest.mark.parametrize("n_states", [4, 8, 10, 15, 25, 30])
def test_a_task_weighs_at_most_six_states_and_there_are_ten_tokens(n_states):
    spec = TrialSpec("quick", n_states)
    generator = torch.Generator().manual_seed(n_states)
    counts = [(draw_mu(n_states, generator, spec.places) != 0).sum().item() for _ in range(50)]
    assert max(counts) <= 6
    assert draw_model(spec).n_tokens == 10


# What is certain on a network


def test_the_best_way_certifies_74_24_18_and_4_percent_of_the_labels(trials):
    shares = outcomes.shares_certified(trials).groupby(trials.n_states).mean()
    best = shares.max(axis=1)
    first = shares.idxmax(axis=1)
    assert [f"{best[n_states]:.0%}" for n_states in (4, 8, 10, 30)] == ["74%", "24%", "18%", "4%"]
    assert first[4] == "linear programs' head"
    assert first[[8, 10, 30]].tolist() == ["nearest relabelling"] * 3


def test_the_four_ways_are_ordered_as_in_the_figure(trials):
    shares = outcomes.shares_certified(trials).groupby(trials.n_states).mean()
    program = shares["linear programs' head"]
    assert 0.7 < program[4] < 0.8
    assert 0.1 < program[8] < 0.13
    assert 0.45 < shares["tuned head"][4] < shares["nearest relabelling"][4] < 0.6
    assert shares.loc[[25, 30]].max(axis=None) < 0.1
    assert (shares.idxmin(axis=1) == "nearest reweighting").all()


def test_no_certified_label_is_wrong(trials):
    assert outcomes.certified_but_wrong(trials) == 0
    one_wrong = trials.assign(**{"certified.tuned head.certified but wrong": 0.001})
    assert outcomes.certified_but_wrong(one_wrong) == 0.001


def test_tuned_prompts_are_right_on_94_percent_at_30_states_and_networks_off_by_0_46(trials):
    at_30 = trials[trials.n_states == 30]
    assert f"{at_30.prompt_accuracy.mean():.0%}" == "94%"
    assert f"{at_30['certified.nearest head.distance'].mean():.2f}" == "0.46"


def test_all_seven_predictions_came_true_and_the_sixth_only_just(trials):
    entries = outcomes.entry_4(trials)
    assert len(entries) == 7
    assert [bool(came_true) for _, _, came_true in entries] == [True] * 7
    large = trials[trials.n_states >= 15]
    certain = outcomes.shares_certified(large).groupby(large.n_states).mean().max(axis=None)
    assert 0.09 < certain < 0.1
    assert entries[5][1] == f"at most {certain:.1%} of the texts"


# The exercises


def test_a_prediction_that_moves_from_the_largest_weight_to_the_smallest_makes_the_inequality_tight(page):
    assert page["moved"].sum() == pytest.approx(1, abs=1e-12)
    assert (page["moved"] - page["flat"]).abs().sum() == pytest.approx(page["distance"], abs=1e-12)
    assert page["fall"] == pytest.approx(page["bound"], abs=1e-12)


def test_some_heads_are_right_on_all_texts_of_one_token_and_wrong_for_a_belief(page):
    assert page["count"] > 0
    belief = page["belief"]
    label_of_task = bool(page["question"] @ belief >= 0)
    label_of_head = bool(page["nu"] @ belief >= 0)
    assert label_of_task != label_of_head


def test_the_page_counts_our_statements_rightly_in_three_places(page):
    text = (ROOT / "notebooks" / "solvable.md").read_text(encoding="utf8")
    numbers = [int(number) for number in re.findall(r":label: ours-\w+-O-(\d+)", text)]
    last = max(numbers)
    word = ["five", "six", "seven", "eight"][last - 5]
    assert f"Our own statements are numbered O.1 to O.{last}" in text
    assert f"Each of the {word} statements is a row of the" in text
    assert len(page["names"]) == last


@slow
@pytest.mark.parametrize(
    "parameters",
    [{"seed": 5}, {"seed": 12, "trials": 2}, {"preset": "quick", "seed": 1}, {"preset": "gpu", "minutes": 0.1}],
)
def test_no_parameters_stop_the_page(parameters):
    run("solvable", **{"minutes": 0.05, "instances": 10} | parameters)
