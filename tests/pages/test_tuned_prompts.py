"""What the page on how a tuned prompt helps says. More of its numbers are in tests/studies/test_claims.py."""

import math

import numpy as np
import pytest
import torch
from lessons import code_of, run, run_cells
from record import slow
from shares import percent

from hmmbook import TrialSpec, mean_ci
from hmmbook.figures import prompts
from hmmbook.studies.certificates import alternate, separating_head
from hmmbook.studies.fake_tokens import fewest_errors, good_fake_token
from hmmbook.studies.mechanism import constants, outcomes, tables
from hmmbook.studies.mechanism.gate import BOTH, FIXED, FROZEN
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


# Why no fake token solves the task


def test_the_six_states_are_three_pairs_of_look_alikes_with_opposite_weights(small):
    emission = small["chain"].emission
    for first, second in ((0, 1), (2, 3), (4, 5)):
        assert torch.equal(emission[:, first], emission[:, second])
        assert small["mu"][first] == -small["mu"][second]
    assert [name for name, weight in zip("abcdef", small["mu"], strict=True) if weight == 1] == ["a", "d", "e"]


def test_look_alikes_are_followed_by_different_states(small):
    transition = small["chain"].transition
    for first, second in ((0, 1), (2, 3), (4, 5)):
        assert (transition[:, first] - transition[:, second]).abs().sum() > 0.5


def test_no_fake_token_and_head_give_look_alikes_opposite_signs(small):
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        c = torch.rand(6, generator=generator, dtype=torch.float64)
        b = torch.randn(3, generator=generator, dtype=torch.float64)
        nu = c * (small["W"].T @ b)
        assert (nu[0::2] * nu[1::2] >= 0).all()
    assert (small["mu"][0::2] * small["mu"][1::2] < 0).all()


def test_a_fake_token_multiplies_the_belief_and_a_head_behind_it_scores_by_nu(small):
    c = torch.tensor([0.2, 1, 1, 0.1, 0.7, 0], dtype=torch.float64)
    b = torch.tensor([1.0, -2, 0.5], dtype=torch.float64)
    weighed = small["p"] * c
    behind = weighed @ small["W"].T / weighed.sum(1, keepdim=True)
    scores = small["p"] @ (c * (small["W"].T @ b))
    assert torch.equal(behind @ b >= 0, scores >= 0)


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


def test_where_a_is_likeliest_more_of_the_rest_is_on_e_and_f_and_where_b_is_on_c_and_d(small):
    of_a, of_b = (small["p"][small["p"].argmax(1) == state].mean(0) for state in (0, 1))
    assert of_a[4:].sum() > of_a[2:4].sum() + 0.1
    assert of_b[2:4].sum() > of_b[4:].sum() + 0.1


# What a tuned prompt reaches


def test_the_tuned_prompt_is_right_on_94_percent_fake_tokens_on_87_at_most_and_a_small_head_alone_on_60(of_task):
    trials = of_task("d")
    alone = tables.best_of_size(trials, "without the prompt")
    assert percent(trials.prompt_accuracy) == "94%"
    assert percent(trials.fake_token_bound) == "87%"
    assert tables.MODERATE == 100
    assert percent(alone) == "60%"
    assert alone.mean() - trials.majority_rate.mean() < 0.06


def test_without_a_prompt_a_head_with_huge_weights_passes_the_bound_on_more_than_half_of_the_chains(of_task):
    trials = of_task("d")
    full = tables.of_heads(trials, "without the prompt", "accuracy")["none"]
    assert (full > trials.fake_token_bound).sum() > 10
    noisy = tables.with_noise(trials, "without the prompt", "0.01")["fully fitted"]
    assert noisy.mean() < trials.majority_rate.mean()


def test_the_figures_of_the_twenty_chains_show_these_means(of_task):
    trials = of_task("d")
    (axes,) = prompts.prompt_against_fake_tokens(trials).axes
    assert [text.get_text() for text in axes.texts] == ["60%", "87%", "94%"]
    (axes,) = prompts.changed_prompts(trials).axes
    assert [text.get_text() for text in axes.texts][:5] == ["95%", "91%", "78%", "71%", "94%"]


def test_these_networks_have_two_layers_of_width_64_and_texts_of_33_tokens(of_task):
    trials = of_task("d")
    assert {*trials.layers} == {2}
    assert {*trials.width} == {64}
    assert {*trials.task_length} == {33}


# The gate


def test_a_gate_that_the_text_opens_is_always_right_and_one_that_is_stuck_is_not(small, capsys):
    run_cells([CODE[cell_with("gate = (1 + p @ mu) / 2")]], small)
    assert share_right(small["q"] @ small["b"] >= 0, small["labels"]) == 1
    stuck = small["q_stuck"][small["test"]] @ small["b_stuck"] >= 0
    assert share_right(stuck, small["labels"][small["test"]]) < 0.9
    assert "where the text moves the gate, the head is right on 100.0%" in capsys.readouterr().out


def test_a_head_that_is_mended_is_right_behind_a_gate_that_opens_half_as_far(small):
    gate = (1 + small["p"] @ small["mu"]) / 4
    with_v = torch.cat([small["exact"], torch.zeros(len(gate), 1)], 1)
    v = torch.tensor([0, 0, 0, 1.0], dtype=torch.float64)
    q = (1 - gate)[:, None] * with_v + gate[:, None] * v
    assert share_right(q @ (2 * v - 1) >= 0, small["labels"]) < 0.6
    assert share_right(q @ (4 * v - 1) >= 0, small["labels"]) == 1


def test_a_constant_gate_and_vector_are_a_head_on_the_prediction_without_them(small):
    g, v, b = 0.3, torch.tensor([0.2, 0.5, 0.3]).double(), torch.tensor([1.0, -2.0, 0.5]).double()
    mixture = (1 - g) * small["exact"] + g * v
    other_head = (1 - g) * b + g * (b @ v)
    assert torch.allclose(mixture @ b, small["exact"] @ other_head, atol=1e-14)


def test_on_most_chains_the_attention_counts_for_more_than_the_values(of_task):
    trials = of_task("d")
    after = tables.of_changes(trials)
    assert (after[FROZEN] < after[FIXED]).sum() == 17
    bound = trials.fake_token_bound.mean()
    assert after[FROZEN].mean() < bound < after[FIXED].mean()


def test_a_small_head_loses_two_thirds_of_what_the_prompt_gained_once_it_adds_the_same_to_every_text(of_task):
    trials = of_task("d")
    after = tables.of_changes(trials)
    gained = after["none"] - tables.best_of_size(trials, "without the prompt")
    lost = after["none"] - after[BOTH]
    assert lost.mean() / gained.mean() == pytest.approx(2 / 3, abs=0.05)


# Where the story stops


def test_on_the_papers_chains_half_of_the_gain_is_lost_and_most_predictions_did_not_come_true():
    trials = tables.left_panel(30)
    after = tables.of_changes(trials)
    alone = tables.of_heads(trials, "without the prompt", "accuracy")["none"]
    gained = (trials.prompt_accuracy - alone).mean()
    assert (after["none"] - after[BOTH]).mean() / gained == pytest.approx(0.5, abs=0.05)
    *predictions, _ = outcomes.entry_37()
    assert sum(bool(prediction.came_true) for prediction in predictions) == 1


def test_the_theorems_prompt_exists_on_half_of_the_chains_with_30_states_and_is_as_good_as_the_tuned_one():
    table = tables.theorem(30)
    assert len(table) == 10
    ahead = table["tuned prompt, tuned head"] - table["theorem's prompt, fitted head"]
    interval = mean_ci(ahead, share=False)
    assert interval.low < 0 < interval.high


def test_constants_were_tuned_at_two_rates_and_two_places_with_four_times_as_many_passes():
    assert len(constants.CONSTANTS) == 2
    assert len(constants.RATES) == 2
    passes_of_a_prompt = TrialSpec("quick").epochs
    assert constants.PASSES / passes_of_a_prompt == 4


# The small network


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
@pytest.mark.parametrize("parameters", [{"preset": "smoke"}, {"preset": "gpu", "seed": 3}])
def test_no_parameters_stop_the_page(parameters):
    run("tuned-prompts", **parameters)


# The exercise


def test_on_exact_predictions_no_fake_token_separates_look_alikes(small):
    asked = [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    assert isinstance(separating_head(small["chain"], asked), Impossible)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        start = torch.rand(6, generator=generator).double()
        _, _, certificate = alternate(small["chain"], asked, start)
        assert certificate.error > 1 - 1e-9
