"""What the page on how a tuned prompt helps says. More of its numbers are in tests/studies/test_claims.py."""

import math

import numpy as np
import pytest
import torch
from lessons import code_of, run, run_cells
from record import slow
from shares import percent

from hmmbook import TrialSpec, draw_model, mean_ci
from hmmbook.studies.certificates import alternate, separating_head
from hmmbook.studies.fake_tokens import fewest_errors, good_fake_token
from hmmbook.studies.look_alikes import chains
from hmmbook.studies.mechanism import constants, tables
from hmmbook.studies.mechanism.gate import BOTH, FIXED, FROZEN, UNSEEN
from hmmbook.studies.mechanism.rare_steps import THRESHOLDS
from hmmlib import Impossible
from hmmlib.theory.heads import share_right

CODE = code_of("tuned-prompts")


def cell_with(marker: str) -> int:
    """Return the number of the page's first code cell that has the marker."""
    return next(number for number, cell in enumerate(CODE) if marker in cell)


@pytest.fixture(scope="module")
def small():
    """The chain of three tokens, its texts and its exact predictions, as the page makes them before it trains."""
    names = {}
    cells = CODE[: cell_with("bert.build")]
    run_cells([cell for cell in cells if not cell.startswith("prompts.")], names)
    return names


# What the theorem's prompt explains


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


# A task that no fake token solves


def test_the_six_states_are_three_pairs_of_look_alikes_with_opposite_weights(small):
    emission = small["chain"].emission
    for first, second in ((0, 1), (2, 3), (4, 5)):
        assert torch.equal(emission[:, first], emission[:, second])
        assert small["mu"][first] == -small["mu"][second]
    assert [name for name, weight in zip("abcdef", small["mu"], strict=True) if weight == 1] == ["a", "d", "e"]


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


def test_no_line_and_no_fake_token_is_right_on_more_than_88_of_the_100_texts(small):
    shown = small["shown"]
    assert fewest_errors(small["chain"].emission, small["p"][shown], small["labels"][shown]) == 12


def test_the_drawn_line_is_right_on_87_of_the_exact_predictions(small):
    points = small["exact"][small["shown"]]
    labels = small["labels"][small["shown"]]
    line = good_fake_token(torch.eye(3), points, labels)
    assert ((points @ line >= 0) == labels).sum() == 87


def test_around_the_triangle_the_label_changes_four_times(small):
    likeliest = small["p"].argmax(1)
    corners = np.array([[0, 0], [1, 0], [0.5, 0.866]])
    angles = []
    for state in range(6):
        x, y = small["exact"][likeliest == state].mean(0).numpy() @ corners - corners.mean(0)
        angles.append(math.atan2(y, x))
    positive = (small["mu"] > 0).numpy()[np.argsort(angles)]
    assert (positive != np.roll(positive, 1)).sum() == 4


# What the prompt adds


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


def test_a_small_head_loses_two_thirds_of_what_the_prompt_gained_once_it_adds_the_same_to_every_text(of_task):
    trials = of_task("d")
    after = tables.of_changes(trials)
    gained = after["none"] - tables.best_of_size(trials, "without the prompt")
    lost = after["none"] - after[BOTH]
    assert lost.mean() / gained.mean() == pytest.approx(2 / 3, abs=0.05)


def test_a_gate_that_the_text_opens_is_always_right_and_one_that_is_stuck_is_not(small, capsys):
    run_cells([CODE[cell_with("gate = (1 + p @ mu) / 2")]], small)
    assert share_right(small["q"] @ small["b"] >= 0, small["labels"]) == 1
    stuck = small["q_stuck"][small["test"]] @ small["b_stuck"] >= 0
    assert share_right(stuck, small["labels"][small["test"]]) < 0.9
    assert "where the text decides, the head is right on 100.0%" in capsys.readouterr().out


def test_a_constant_gate_and_vector_are_a_head_on_the_prediction_without_them(small):
    g, v, b = 0.3, torch.tensor([0.2, 0.5, 0.3]).double(), torch.tensor([1.0, -2.0, 0.5]).double()
    mixture = (1 - g) * small["exact"] + g * v
    other_head = (1 - g) * b + g * (b @ v)
    assert torch.allclose(mixture @ b, small["exact"] @ other_head, atol=1e-14)


def test_constants_were_tuned_at_two_rates_and_two_places_with_four_times_as_many_passes():
    assert len(constants.CONSTANTS) == 2
    assert len(constants.RATES) == 2
    passes_of_a_prompt = TrialSpec("quick").epochs
    assert constants.PASSES / passes_of_a_prompt == 4


@pytest.fixture(scope="module")
def page():
    """The page at its defaults, whose network is trained."""
    return run("tuned-prompts", preset="quick")


@slow
def test_with_the_tuned_prompt_one_line_separates_all_texts(page):
    points = page["behind"][page["shown"]]
    labels = page["labels"][page["shown"]]
    assert ((points @ page["best_heads"][1] >= 0) == labels).all()
    of_tuned_head = page["head"].label(page["prompted"].changed("none")[page["test"]])
    assert percent((of_tuned_head == page["labels"][page["test"]]).double()) == "100%"


@slow
def test_label_0_opens_the_gate(page):
    attention = page["attention"][:, page["vector"]]
    likeliest = page["likeliest"][page["test"]]
    means = [attention[likeliest == state].mean().item() for state in range(6)]
    assert max(means[state] for state in (0, 3, 4)) < 0.25
    assert min(means[state] for state in (1, 2, 5)) > 0.4


@slow
def test_in_the_small_network_the_attention_does_it_alone(page):
    labels = page["labels"][page["shown"]]
    frames = page["frames"]
    same = {"attention": frames[0][4], "values": frames[4][0], "both": frames[0][0]}
    right = {}
    for name, frame in same.items():
        points = torch.tensor(frame, dtype=torch.float64)
        line = good_fake_token(torch.eye(3), points, labels)
        right[name] = int(((points @ line >= 0) == labels).sum())
    assert right == {"attention": 88, "values": 100, "both": 88}


@slow
@pytest.mark.parametrize("parameters", [{"preset": "smoke"}, {"seed": 3}, {"preset": "gpu"}, {"trials": 2, "seed": 11}])
def test_no_parameters_stop_the_page(parameters):
    run("tuned-prompts", minutes=0.1, **parameters)


# The two tasks


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


# The exercise


def test_on_exact_predictions_no_fake_token_separates_look_alikes(small):
    asked = [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    assert isinstance(separating_head(small["chain"], asked), Impossible)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        start = torch.rand(6, generator=generator).double()
        _, _, certificate = alternate(small["chain"], asked, start)
        assert certificate.error > 1 - 1e-9
