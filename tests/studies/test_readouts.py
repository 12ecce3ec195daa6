"""Fits of predictions to beliefs: each family finds what it can predict, and cannot predict what others can."""

import functools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from hmmbook.studies.readouts import (
    COLUMNS,
    Family,
    Readout,
    fit_readout,
    free_readout,
    softmax_readout,
    total_variation,
)
from hmmlib import MASK, masked_token_probs, posterior, random_hmm

MODEL = random_hmm(5, 4, 1, temperature=0.2)
TEXTS = MODEL.sample(300, 6, 2).tokens
BELIEFS = posterior(MODEL, TEXTS, at=0)
FRESH = posterior(MODEL, MODEL.sample(300, 6, 3).tokens, at=0)
DRAW = np.random.default_rng(0)


def random_columns(n_rows, n_columns):
    return torch.as_tensor(DRAW.dirichlet(np.full(n_rows, 0.5), n_columns).T)


WEIGHTS = torch.tensor([1.0, 0.02, 0.5, 0.03, 0.2]).double()
ONES = torch.ones(5, dtype=torch.float64)
TOKEN_MAP = random_columns(4, 4)
RELABELLED = random_columns(4, 5)
TABLES = {"emission": MODEL.emission, "mapped": TOKEN_MAP @ MODEL.emission, "free": RELABELLED}
UNCHANGED = Family("emission", reweighted=False)
REWEIGHTED = Family("emission", reweighted=True)
MAPPED = Family("mapped", reweighted=False)
MAPPED_REWEIGHTED = Family("mapped", reweighted=True)
FREE = Family("free", reweighted=False)
FREE_REWEIGHTED = Family("free", reweighted=True)


def planted(family):
    """A readout that the family can predict."""
    return Readout(TABLES[family.columns], WEIGHTS if family.reweighted else ONES)


def mean_distance(first, second):
    return total_variation(first, second).mean().item()


@functools.cache
def distance(family, planted_family):
    """How far, on fresh beliefs, a family's fit is from what is planted."""
    truth = planted(planted_family)
    fit = fit_readout(BELIEFS, truth(BELIEFS), MODEL.emission, family, starts=4)
    assert fit.columns.sum(0).numpy() == pytest.approx(1)
    assert fit.weights.max() == 1
    return mean_distance(fit(FRESH), truth(FRESH))


PAIRS = [
    (REWEIGHTED, MAPPED),
    (MAPPED_REWEIGHTED, FREE),
    (FREE, FREE_REWEIGHTED),
    (MAPPED, REWEIGHTED),
]


@pytest.mark.parametrize(("family", "other"), PAIRS, ids=str)
def test_a_family_finds_what_it_can_predict_and_cannot_predict_what_another_can(family, other):
    assert distance(family, family) < 1e-3
    assert distance(family, other) > 4e-3


def test_a_fake_token_is_a_reweighting_and_the_fit_finds_which():
    """Lemma C.2: behind a prompt u the exact model predicts W (c ⊙ p) / cᵀp, with c ∝ A (u ⊙ P[H_1]) / P[H_0]."""
    prompt = torch.as_tensor(np.random.default_rng(1).uniform(0.05, 1, 5))
    texts_behind = torch.nn.functional.pad(TEXTS, (1, 0), value=MASK)
    behind = masked_token_probs(MODEL, texts_behind, prompt)[:, 1]
    fit = fit_readout(BELIEFS, behind, MODEL.emission, REWEIGHTED)
    assert total_variation(fit(BELIEFS), behind).max() < 2e-3
    expected = MODEL.transition @ (prompt * (MODEL.transition @ MODEL.initial)) / MODEL.initial
    expected = (expected / expected.max()).numpy()
    assert fit.weights.numpy() == pytest.approx(expected, abs=0.02)


def test_columns_are_as_near_as_a_linear_program_finds_them():
    """The mean distance is piecewise linear in the columns R, so its least value is that of a linear program."""
    beliefs = BELIEFS[:100]
    squares = planted(FREE_REWEIGHTED)(beliefs) ** 2
    target = squares / squares.sum(1, keepdim=True)  # what no family can predict
    predicted = np.kron(beliefs, np.eye(4))  # from the columns of R, one after the other, to all predictions
    slack = np.eye(400)
    upper = np.block([[predicted, -slack], [-predicted, -slack]])
    most = np.append(target, -target)
    sums_of_columns = np.kron(np.eye(5), np.ones((1, 4)))
    sums = np.hstack([sums_of_columns, np.zeros((5, 400))])
    cost = np.append(np.zeros(20), np.full(400, 0.5 / 100))
    least = linprog(cost, upper, most, sums, np.ones(5)).fun
    fit = fit_readout(beliefs, target, MODEL.emission, FREE)
    assert -1e-9 < mean_distance(fit(beliefs), target) - least < 5e-4
    moved = Readout(0.95 * fit.columns + 0.05 * RELABELLED, ONES)
    assert mean_distance(moved(beliefs), target) - least > 1e-3


@pytest.mark.parametrize("columns", COLUMNS)
def test_no_fit_is_worse_than_without_weights(columns):
    beliefs = BELIEFS[:60]
    target = planted(FREE_REWEIGHTED)(beliefs)

    def distance_with(reweighted):
        family = Family(columns, reweighted)
        fit = fit_readout(beliefs, target, MODEL.emission, family, seed=4, starts=2)
        return mean_distance(fit(beliefs), target)

    assert distance_with(reweighted=True) <= distance_with(reweighted=False) + 1e-12


@pytest.mark.parametrize("family", [REWEIGHTED, FREE], ids=str)
def test_a_fit_repeats(family):
    beliefs = BELIEFS[:60]
    target = planted(FREE_REWEIGHTED)(beliefs)

    def fit():
        return fit_readout(beliefs, target, MODEL.emission, family, seed=4, starts=2)

    first = fit()
    second = fit()
    assert torch.equal(first.columns, second.columns)
    assert torch.equal(first.weights, second.weights)


def test_other_columns_are_refused():
    with pytest.raises(ValueError, match="columns must be one of"):
        fit_readout(BELIEFS, BELIEFS, MODEL.emission, Family("all", False))


def test_total_variation_is_the_largest_difference_of_an_events_chance():
    first = random_columns(4, 3).T
    second = random_columns(4, 3).T
    events = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4).double()
    differences = (first - second) @ events.T
    torch.testing.assert_close(total_variation(first, second), differences.amax(1))


def test_states_that_nobody_believes_do_not_matter():
    certain = torch.eye(5, dtype=torch.float64)[:3]
    target = RELABELLED.T[:3]
    fit = fit_readout(certain, target, MODEL.emission, FREE_REWEIGHTED)
    assert fit(certain).numpy() == pytest.approx(target.numpy(), abs=1e-3)
    assert fit.columns.sum(0).numpy() == pytest.approx(1)


def test_a_belief_that_weights_exclude_predicts_nothing():
    weights = torch.tensor([0.0, 1, 1, 1, 1])
    certain = torch.eye(5, dtype=torch.float64)
    assert (Readout(RELABELLED, weights)(certain)[0] == 0).all()


MAP = torch.as_tensor(DRAW.normal(size=(4, 5)))
BIAS = torch.as_tensor(DRAW.normal(size=4))


def test_a_softmax_finds_what_it_can_predict_and_cannot_predict_a_mean_of_columns():
    def truth(beliefs):
        return (beliefs @ MAP.T + BIAS).softmax(1)

    assert mean_distance(softmax_readout(BELIEFS, truth(BELIEFS))(FRESH), truth(FRESH)) < 2e-3
    relabelled = softmax_readout(BELIEFS, BELIEFS @ RELABELLED.T)
    assert mean_distance(relabelled(FRESH), FRESH @ RELABELLED.T) > 5e-3


def test_a_softmax_of_logarithms_can_change_nothing_or_a_little():
    rng = np.random.default_rng(0)
    sharp = torch.as_tensor(rng.dirichlet(np.full(4, 0.05), 800)).clamp(min=1e-6)
    sharp = sharp / sharp.sum(1, keepdim=True)  # logarithms that lie far apart
    logs = sharp.log()
    changed = (0.3 * logs @ MAP[:, :4].T + BIAS).softmax(1)
    for predictions in (sharp, changed):
        fit = softmax_readout(logs[:400], predictions[:400])
        assert mean_distance(fit(logs[400:]), predictions[400:]) < 1e-3


def test_a_free_function_finds_what_no_family_can_predict():
    def truth(beliefs):
        squares = beliefs.square() @ RELABELLED.T
        return squares / squares.sum(1, keepdim=True)

    family = fit_readout(BELIEFS, truth(BELIEFS), MODEL.emission, FREE_REWEIGHTED, starts=4)
    free = free_readout(BELIEFS, truth(BELIEFS), 1)
    distance_of_free = mean_distance(free(FRESH), truth(FRESH))
    assert distance_of_free < 0.005
    assert distance_of_free < mean_distance(family(FRESH), truth(FRESH))


def test_a_free_function_repeats_with_its_seed():
    def read(seed):
        return free_readout(BELIEFS, BELIEFS, seed, steps=3)(FRESH)

    first = read(1)
    assert torch.equal(first, read(1))
    assert not torch.equal(first, read(2))
