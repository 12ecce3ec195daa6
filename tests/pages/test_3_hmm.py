"""What the page on linear heads says, from its models."""

import itertools

import numpy as np
import pytest
import torch
from lessons import run

from hmmbook.evidence import ledger
from hmmbook.evidence.random_models.section_3 import balanced
from hmmbook.studies import noisy_predictions
from hmmlib import (
    HMM,
    AssumptionError,
    Impossible,
    LinearHead,
    Undecided,
    assumption_3_1,
    assumption_3_2,
    claim_b_1,
    fit_or_refute,
    ground_truth,
    log_likelihood,
    posterior,
    regular_hmm,
    theorem_3_3,
)

ALPHA, BETA, GAMMA, DELTA = range(4)
SIZES = [2, 3, 4, 5, 6, 8]


@pytest.fixture(scope="module")
def page() -> dict:
    return run("3-hmm", instances=1)


@pytest.fixture(scope="module")
def three(page) -> HMM:
    return page["three"]


@pytest.fixture(scope="module")
def twins(page) -> HMM:
    return page["twins"]


def texts(length: int) -> torch.Tensor:
    """All texts of three tokens of a length."""
    return torch.tensor(list(itertools.product(range(3), repeat=length)))


# The line


def test_the_line_separates_the_labels_of_all_81_inputs_and_the_blue_point_beside_it_has_a_score_of_0007(page):
    scores = page["head"](page["points"])
    nearest = scores.abs().argmin()

    assert len(page["inputs"]) == 81
    assert torch.equal(scores >= 0, page["labels"])
    assert page["labels"][nearest]
    assert round(scores[nearest].item(), 3) == 0.007


def test_each_point_is_a_mixture_of_the_crosses_weighted_by_the_belief_at_the_gap(page, three):
    belief = page["h1"]

    assert torch.linalg.matrix_rank(three.emission) == 3
    assert belief.min() > 0
    assert torch.allclose(belief @ three.emission.T, page["points"], atol=1e-14)


@pytest.mark.parametrize("mu", [[1.0, 2.0, -5.0], [-1.0, -1.0, 3.0], [0.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
def test_for_other_weights_too_the_line_makes_no_error(page, three, mu):
    labels = posterior(three, page["inputs"]) @ torch.tensor(mu, dtype=torch.float64) >= 0

    assert torch.equal(theorem_3_3(three, mu).label(page["points"]), labels)


# The derivation


def test_the_left_inverse_gives_the_belief_at_the_gap(page):
    assert torch.allclose(page["points"] @ page["left_inverse"].T, page["h1"], atol=1e-13)


def test_with_dependent_columns_the_left_inverse_gives_another_belief(page, twins):
    pair = page["pair"]
    belief = posterior(twins, page["shifted"](pair, 1), at=1)
    recovered = page["at_the_gap"](twins, pair) @ torch.linalg.pinv(twins.emission).T

    assert (recovered - belief).abs().max() > 0.1


def test_the_belief_at_the_gap_is_that_before_the_text_reweighted(page):
    assert (page["r"] > 0).all()
    assert torch.allclose(page["r"][:, None] * page["D"] * page["h0"], page["h1"], atol=1e-14)


def test_the_head_of_step_3_is_that_of_the_theorem(page):
    b = page["left_inverse"].T @ (page["mu"] / page["D"])

    assert torch.allclose(b, page["head"].weights, rtol=1e-12)


def test_one_head_is_right_on_all_inputs_of_one_to_seven_tokens(page, three):
    n_inputs = 0
    for length in range(1, 8):
        x = texts(length)
        labels = posterior(three, x) @ page["mu"] >= 0
        n_inputs += len(x)

        assert torch.equal(page["head"](page["at_the_gap"](three, x)) >= 0, labels)
    assert page["n_right"] == len(page["ratios"]) == n_inputs == 3279
    assert (page["ratios"] > 0).all()


# Two inputs that no head can distinguish


def test_alpha_and_beta_emit_token_0_gamma_1_and_delta_2_and_gamma_follows_only_alpha_delta_only_beta(twins):
    emitted = twins.emission.argmax(0).tolist()

    assert emitted == [0, 0, 1, 2]
    assert (twins.emission.amax(0) == 1).all()
    assert (twins.transition[GAMMA, :2] > 0).tolist() == [True, False]
    assert (twins.transition[DELTA, :2] > 0).tolist() == [False, True]


def test_token_1_follows_only_alpha_token_2_only_beta_and_token_0_the_other_three(twins):
    can_follow = twins.emission @ twins.transition > 0  # [z, h]

    assert can_follow.tolist() == [[True, False, True, True], [True, False, False, False], [False, True, False, False]]


def test_the_texts_1_and_2_have_different_labels_and_the_same_prediction(page, twins):
    pair = torch.tensor([[1], [2]])
    labels = posterior(twins, pair) @ page["alpha_not_beta"] >= 0
    first, second = page["at_the_gap"](twins, pair)

    assert labels.tolist() == [True, False]
    assert torch.equal(first, second)


def test_the_four_columns_have_rank_3_so_only_assumption_3_1_fails_and_the_theorem_refuses(page, twins):
    assert torch.linalg.matrix_rank(twins.emission) == 3
    assert not assumption_3_1(twins)
    assert assumption_3_2(twins)
    with pytest.raises(AssumptionError, match=r"Assumption 3\.1"):
        theorem_3_3(twins, page["alpha_not_beta"])


# More states than tokens


@pytest.fixture(scope="module")
def shares(page) -> dict[int, float]:
    """The share of tasks without a head at the defaults of the page, by the number of states."""
    rng = np.random.default_rng(0)
    return {n_states: page["share_without_head"](n_states, 20, rng) for n_states in SIZES}


def test_with_two_and_three_states_every_task_has_a_head(shares):
    assert shares[2] == shares[3] == 0


def test_7_of_20_tasks_have_no_head_with_four_states_and_15_of_20_with_eight(shares):
    assert round(20 * shares[4]) == 7
    assert round(20 * shares[8]) == 15


def test_from_four_states_on_the_share_of_tasks_without_a_head_grows(shares):
    from_four_on = [shares[n_states] for n_states in SIZES[2:]]

    assert from_four_on[0] > 0
    assert from_four_on == sorted(from_four_on)


def test_a_refutation_is_one_point_that_mixes_predictions_of_both_labels(page):
    refuted = 0
    for seed in range(12):
        model = regular_hmm(6, 3, seed, zeros=0.0)
        weights = torch.as_tensor(np.random.default_rng(seed).normal(size=6))
        labels = balanced(posterior(model, page["inputs"]) @ weights)
        guesses = page["at_the_gap"](model, page["inputs"])
        verdict = fit_or_refute(guesses, labels)

        assert not isinstance(verdict, Undecided)
        if isinstance(verdict, Impossible):
            refuted += 1
            point = verdict.positive @ guesses[labels]
            assert torch.allclose(point, verdict.negative @ guesses[~labels], atol=1e-6)
    assert refuted > 3


# Nearly dependent columns


@pytest.fixture(scope="module")
def with_noise(page, three) -> list[noisy_predictions.WithNoise]:
    """What noise does at each condition number of the page, from 2 up."""
    rng = np.random.default_rng(0)
    measured = []
    for gap in (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001):
        model = noisy_predictions.with_column_moved(three, gap)
        measured.append(noisy_predictions.with_noise(model, page["mu"], page["inputs"], rng))
    return measured


def test_the_condition_numbers_are_2_21_74_and_about_2300(with_noise):
    assert [round(entry.condition) for entry in with_noise] == [2, 6, 21, 74, 225, 755, 2269]


def test_with_noise_the_head_is_right_on_100_then_94_then_81_and_at_last_52_percent(with_noise):
    accuracies = [f"{entry.accuracy:.0%}" for entry in with_noise]

    assert accuracies == ["100%", "96%", "94%", "81%", "66%", "55%", "52%"]


def test_without_noise_the_head_is_right_on_all_81_inputs_but_its_weights_grow(with_noise):
    weights = [entry.largest_weight for entry in with_noise]

    assert all(entry.accuracy_without_noise == 1 for entry in with_noise)
    assert weights == sorted(weights)
    assert weights[-1] > 1000 * weights[0]


def test_the_same_noise_spreads_the_recovered_beliefs_beyond_the_picture(with_noise):
    assert with_noise[0].outside == 0
    assert with_noise[-1].outside > 0.5


def test_the_noise_and_its_draws_are_those_of_the_text():
    assert noisy_predictions.NOISE == 1e-3
    assert noisy_predictions.DRAWS == 100


def test_the_task_gives_about_half_of_the_81_inputs_the_label_1(page, three):
    for gap in (1.0, 0.03, 0.001):
        beliefs = posterior(noisy_predictions.with_column_moved(three, gap), page["inputs"])
        task = noisy_predictions.halving_task(page["mu"], beliefs)

        assert (beliefs @ task >= 0).sum() in (40, 41)


def test_the_page_draws_these_accuracies(page, with_noise):
    assert page["accuracies"] == [entry.accuracy for entry in with_noise]
    assert page["conditions"] == [entry.condition for entry in with_noise]


# Checks and exercises


@pytest.mark.parametrize("name", ["Proposition 3.4", "Claim B.1", "Theorem 3.3"])
def test_the_statements_hold_on_random_models_and_their_controls_fail(name):
    entry = ledger.run(ledger.find(name), instances=12, seed=0)

    assert entry.as_recorded
    assert entry.residual <= entry.tolerance
    assert entry.control_fails > 0


@pytest.mark.parametrize("name", ["goes round", "gets stuck"])
def test_in_exercise_1_chains_without_a_row_of_zeros_are_enough(page, three, name):
    chain = HMM(page["cases"][name], three.emission, [0.2, 0.3, 0.5], columns=True)
    b = torch.linalg.pinv(chain.emission).T @ (page["mu"] / claim_b_1(chain, 1))
    ratio = (page["at_the_gap"](chain, page["inputs"]) @ b) / (posterior(chain, page["inputs"]) @ page["mu"])

    assert not assumption_3_2(chain)
    assert (chain.transition.sum(1) > 0).all()
    assert (ratio > 0).all()


def test_in_exercise_2_exactly_the_tasks_that_give_alpha_and_beta_different_labels_have_no_head(page, twins):
    x = texts(4)
    x = x[log_likelihood(twins, x) > -torch.inf]
    guesses = page["at_the_gap"](twins, x)
    for weights in itertools.product([-1.0, 0.0, 1.0], repeat=3):
        if any(weights):
            verdict = fit_or_refute(guesses, ground_truth(twins, [*weights, 0.0], x) >= 0)
            labels_agree = (weights[ALPHA] >= 0) == (weights[BETA] >= 0)
            assert isinstance(verdict, LinearHead if labels_agree else Impossible)


def test_in_exercise_2_the_columns_of_alpha_gamma_and_delta_are_independent(twins):
    assert torch.linalg.matrix_rank(twins.emission[:, [ALPHA, GAMMA, DELTA]]) == 3


def test_in_exercise_2_an_input_that_begins_with_0_excludes_beta_and_1_or_2_show_alpha_or_beta(twins):
    x = texts(4)
    x = x[log_likelihood(twins, x) > -torch.inf]
    start = posterior(twins, x)

    assert not start[x[:, 0] == 0, BETA].any()
    assert torch.allclose(start[x[:, 0] == 1, ALPHA], torch.ones(1, dtype=torch.float64))
    assert torch.allclose(start[x[:, 0] == 2, BETA], torch.ones(1, dtype=torch.float64))
