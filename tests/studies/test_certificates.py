"""Certificates and heads of small error: against exact fractions, against duals, and where they must fail."""

from fractions import Fraction
from itertools import permutations, product
from types import SimpleNamespace

import dyadic
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from witness import forward_backward, whole

from hmmbook.studies.certificates import (
    Certificate,
    alternate,
    certificate,
    nearest_head,
    nearest_prompt,
)
from hmmlib import (
    HMM,
    LinearHead,
    essential_hmm,
    lemma_c_2,
    nearly_dependent_hmm,
    non_degenerate_hmm,
    random_hmm,
    theorem_3_3,
    theorem_3_6,
)
from hmmlib.theory.heads import unit

DOUBLE = torch.float64
fractions = np.vectorize(Fraction, otypes=[object])


def dyadic_model(rng):
    """A model of three states and tokens whose probabilities are sixteenths, so that fractions of them are exact."""
    transition = dyadic.columns(rng, 3, 3, 16)
    emission = dyadic.columns(rng, 3, 3, 16, 0.2)
    return HMM(transition, emission, dyadic.column(rng, 3, 16, 0))


def exact_beliefs(model, longest):
    """P[H_0 | x] in fractions, of all possible texts of at most a length."""
    for length in range(1, longest + 1):
        for text in product(range(model.n_tokens), repeat=length):
            weights = forward_backward(model, np.array(text), number=whole).start
            if weights.sum():
                yield fractions(weights) / int(weights.sum())


def mislabelled(guess, distance, head, positive):
    """Whether moving as much as the distance allows from one token to another turns the label of a guess."""
    for source, sink in permutations(range(3), 2):
        moved = min(distance / 2, guess[source])
        spoilt = guess.copy()
        spoilt[source] -= moved
        spoilt[sink] += moved
        if (head @ spoilt >= 0) != positive:
            return True
    return False


def count_certified(share_of_bound, distance=Fraction(1, 8)):
    """How many texts are certified by a share of the bound, and how many of these a guess mislabels."""
    n_certified = 0
    n_wrong = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = dyadic_model(rng)
        mu = rng.integers(-4, 5, 3) / 4
        prompt = torch.as_tensor(rng.integers(1, 9, 3) / 8)
        if not mu.any():
            continue
        head, made = nearest_head(model, mu, lemma_c_2(model, prompt), slack=0.05)
        transition, emission, initial = map(fractions, (model.transition, model.emission, model.initial))
        weights_of_head = fractions(head.weights)
        diagonal = transition @ (fractions(prompt) * (transition @ initial)) / initial
        for belief in exact_beliefs(model, 3):
            target = fractions(mu) @ belief
            weights = diagonal * belief
            bound = Fraction(made.error) + distance * Fraction(made.spread) * weights.sum()
            if abs(target) > share_of_bound * bound:
                n_certified += 1
                guess = emission @ weights / weights.sum()
                n_wrong += mislabelled(guess, distance, weights_of_head, target >= 0)
    return n_certified, n_wrong


def test_no_guess_within_the_distance_mislabels_a_certified_text():
    n_certified, n_wrong = count_certified(1)
    assert n_certified > 30
    assert n_wrong == 0


def test_half_the_certificate_is_not_enough():
    _, n_wrong = count_certified(Fraction(1, 2))
    assert n_wrong > 0


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-6, 1e-9])
def test_rounding_certifies_no_belief_whose_label_differs_without_it(gap):
    """Columns are nearly dependent, so δ is what rounding has left, and νᵀp in fractions has another sign than μᵀp."""
    powers = 2.0 ** torch.arange(-52, -9, 7)
    offsets = torch.outer(torch.arange(-60, 61), powers).flatten().double()
    certified = 0
    right = 0
    for seed in range(6):
        model = nearly_dependent_hmm(3, 4, gap, seed)
        mu = np.random.default_rng(seed).standard_normal(3)
        mu[:2] = abs(mu[0]), -abs(mu[1])
        head = theorem_3_3(model, mu)
        transition, emission, initial = map(fractions, (model.transition, model.emission, model.initial))
        diagonal = transition @ initial / initial
        first = mu[1] / (mu[1] - mu[0]) + offsets  # beside the point between two states where μᵀp changes its sign
        first = first[(first > 0) & (first < 1)]
        near = torch.stack([first, 1 - first, 0 * first], 1)
        is_certified = certificate(model, mu, head).holds(near, 0.0)
        for belief in map(fractions, near[is_certified]):
            probs = emission @ (diagonal * belief)
            positive = fractions(mu) @ belief >= 0
            rounded = (probs / (diagonal @ belief)).astype(float)
            label = head.label([rounded]).item()
            certified += 1
            right += (fractions(head.weights) @ probs >= 0) == positive == label
    assert right == certified > 250


@pytest.mark.parametrize("error", [0.0, 0.5])
def test_the_rounding_of_a_certificate_is_that_of_the_scores_and_of_the_head_itself(error):
    model = dyadic_model(np.random.default_rng(3))
    head = LinearHead([1.0, -3.0, 0.5], error=error)
    made = certificate(model, [1.0, -0.5, 0.25], head)
    sizes = head.weights.abs()
    bounds = error * 3 + 2 * unit(torch.float64, 6) * (sizes + error * 3)
    expected = made.diagonal * (bounds @ model.emission)
    torch.testing.assert_close(made.rounding, expected, rtol=1e-15, atol=0)
    assert made.largest_rounding == bounds.max().item()


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_what_holds_is_the_inequality_in_any_units(scale):
    mu = torch.tensor([3, -2], dtype=DOUBLE)
    diagonal = torch.tensor([2, 1], dtype=DOUBLE)
    rounding = torch.tensor([0.2, 0.3], dtype=DOUBLE)
    made = Certificate(
        mu=mu * scale,
        diagonal=diagonal,
        error=0.1 * scale,
        spread=0.5 * scale,
        rounding=rounding * scale,
        largest_rounding=0.05 * scale,
    )
    rng = np.random.default_rng(0)
    points = torch.as_tensor(rng.dirichlet(np.ones(3), 500))[:, :2]
    target = (points @ mu).abs()
    bound = 0.1 + 0.4 * (0.5 + 0.05) * (points @ diagonal) + points @ rounding
    holds = target > bound
    assert 0 < holds.sum() < 500
    assert torch.equal(made.holds(points.float(), 0.4), holds)
    distances = torch.full((500,), 0.4)
    assert torch.equal(made.holds(points, distances), holds)


def test_what_is_equal_does_not_hold():
    mu = torch.tensor([1.0, -1.0], dtype=torch.float64)
    zeros = torch.zeros(2, dtype=torch.float64)
    tie = Certificate(mu, zeros, 1.0 - unit(torch.float64, 2), 0.0, zeros, 0.0)
    assert not tie.holds(torch.eye(2), 0.0).any()
    with pytest.raises(ValueError, match=r"^posteriors must"):
        tie.holds(torch.eye(3), 0.1)
    with pytest.raises(ValueError, match=r"^distance must"):
        tie.holds(torch.eye(2), "far")


@pytest.mark.parametrize("seed", [0, 1, 7, 11, 16, 19])
def test_the_least_error_and_the_least_spread_are_those_of_other_programs(seed):
    """The dual: min ‖M b - μ‖∞ = max μᵀy over Mᵀy = 0, ‖y‖₁ ≤ 1. For κ, over heads and half of any difference."""
    model = random_hmm(6, 4, seed, temperature=0.5)
    rng = np.random.default_rng(seed)
    mu = rng.standard_normal(6)
    diagonal = torch.as_tensor(rng.random(6))
    _, made = nearest_head(model, mu, diagonal)
    matrix = (diagonal.unsqueeze(1) * model.emission.T).numpy()
    dual = linprog(
        np.concatenate([-mu, mu]),
        A_eq=np.hstack([matrix.T, -matrix.T]),
        b_eq=np.zeros(4),
        A_ub=np.ones((1, 12)),
        b_ub=[1],
        bounds=(0, None),
    )
    assert made.error == pytest.approx(-dual.fun, abs=1e-7)
    assert made.error > 1e-3

    _, loose = nearest_head(model, mu, diagonal, slack=0.02)
    assert loose.error <= made.error + 0.02 + 1e-8
    assert loose.spread < made.spread
    units = np.eye(4)
    pairs = np.array([first - second for first, second in permutations(units, 2)])
    no_spread = np.zeros((6, 1))
    upper = np.block([[pairs, np.full((12, 1), -2)], [matrix, no_spread], [-matrix, no_spread]])
    most = np.concatenate([np.zeros(12), loose.error + mu, loose.error - mu])
    least = linprog(np.eye(5)[4], A_ub=upper, b_ub=most, bounds=(None, None))
    assert loose.spread == pytest.approx(least.fun, abs=1e-6)


def test_the_prompt_of_theorem_3_6_does_what_a_head_alone_cannot():
    model, states = essential_hmm(4, 3, 2, 5)
    mu = np.zeros(4)
    mu[states] = 1.0, -1.0
    prompt, head = theorem_3_6(model, mu, states)
    diagonal = lemma_c_2(model, prompt)
    assert certificate(model, mu, head, diagonal).error < 1e-12
    nearest, _ = nearest_head(model, mu, diagonal)
    _, with_prompt = nearest_prompt(model, mu, nearest)
    assert with_prompt.error < 1e-8
    _, without_prompt = nearest_head(model, mu)
    assert without_prompt.error > 1e-3


def test_a_diagonal_is_a_vector_of_numbers_one_for_each_state():
    model = non_degenerate_hmm(3, 4, 0)
    mu = [1.0, -0.5, 0.25]
    head = LinearHead([1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"^diagonal must have shape \(3,\)"):
        certificate(model, mu, head, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"^diagonal must be an array of num"):
        certificate(model, mu, head, "abc")
    single = np.ones(3, dtype=np.float32)
    assert certificate(model, mu, head, single).diagonal.dtype == DOUBLE


MODEL = random_hmm(6, 5, 5, temperature=0.5)
RNG = np.random.default_rng(5)
MU = RNG.standard_normal(6)
START = torch.as_tensor(RNG.random(6))


def test_the_nearest_prompt_is_that_of_another_program_and_nowhere_negative():
    head, _ = nearest_head(MODEL, MU, lemma_c_2(MODEL, START))
    units = torch.eye(6, dtype=DOUBLE)
    reach = torch.stack([lemma_c_2(MODEL, unit_prompt) for unit_prompt in units], 1)  # from u to d
    matrix = ((head.weights @ MODEL.emission).unsqueeze(1) * reach).numpy()
    edge = np.ones((6, 1))
    upper = np.block([[matrix, -edge], [-matrix, -edge]])
    most = np.concatenate([MU, -MU])
    cost = np.eye(7)[6]
    least = linprog(cost, A_ub=upper, b_ub=most).fun
    unbounded = linprog(cost, A_ub=upper, b_ub=most, bounds=(None, None)).fun
    prompt, made = nearest_prompt(MODEL, MU, head)
    assert prompt.min() >= 0
    assert made.error == pytest.approx(least, abs=1e-8)
    assert least > unbounded + 1e-3


def test_turns_end_nearer_than_they_begin():
    once = alternate(MODEL, MU, START, rounds=1)
    twice = alternate(MODEL, MU, START, rounds=2)
    prompt, head, made = alternate(MODEL, MU, START)
    assert prompt.min() >= 0
    assert prompt.max() == 1
    assert made.error == certificate(MODEL, MU, head, lemma_c_2(MODEL, prompt)).error
    _, first = nearest_head(MODEL, MU, lemma_c_2(MODEL, START))
    assert torch.equal(once[0], START)
    assert once[2].error == first.error
    assert made.error < twice[2].error < once[2].error


def test_behind_a_prompt_of_zeros_no_head_has_a_score_and_turns_end():
    zeros = torch.zeros(6, dtype=torch.float64)
    assert torch.equal(alternate(MODEL, MU, zeros)[0], zeros)


def test_impossible_rounds_and_slacks_are_refused():
    with pytest.raises(ValueError, match=r"^rounds must"):
        alternate(MODEL, MU, START, rounds=0)
    with pytest.raises(ValueError, match=r"^slack must"):
        nearest_head(MODEL, MU, slack=-1)


def test_what_the_solver_gives_up_on_is_an_error_or_ends_the_turns(monkeypatch):
    head, _ = nearest_head(MODEL, MU)
    unsolved = SimpleNamespace(x=None, message="too hard")
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: unsolved)
    with pytest.raises(RuntimeError, match=r"^a linear program was not solved: too hard$"):
        nearest_prompt(MODEL, MU, head)
    assert torch.equal(alternate(MODEL, MU, START)[0], START)


@pytest.mark.parametrize("seed", range(12))
def test_where_columns_nearly_agree_no_head_that_is_at_hand_is_better(seed):
    """Chains of appendix E: the weights that are needed go up to 1e15, and one linear program alone ends far off."""
    model = random_hmm(10, 10, seed)
    mu = np.random.default_rng(seed).standard_normal(10)
    ones = torch.ones(10, dtype=torch.float64)
    _, made = nearest_head(model, mu, ones)
    least_squares, *_ = np.linalg.lstsq(model.emission.T.numpy(), mu, rcond=None)
    other = certificate(model, mu, LinearHead(least_squares), ones)
    assert made.error <= abs(mu).max() + 1e-8
    assert made.error <= other.error + 1e-15 * other.spread + 1e-8
    if seed == 7:
        assert made.error < 1e-9, "one linear program leaves 5e-7"
