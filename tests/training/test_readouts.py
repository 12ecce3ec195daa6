"""Linear probes against other ways to the same least squares; and fits of predictions to beliefs: each family finds
what it can predict, and cannot predict what others can."""

import functools

import numpy as np
import pytest
import torch
from scipy.optimize import differential_evolution, linprog, minimize

from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.training import readouts
from hmmlib.training.readouts import COLUMNS, Readout, fit_readout, total_variation
from hmmlib.validation import MASK

MODEL = random_hmm(5, 4, 1, temperature=0.2)
TEXTS = MODEL.sample(300, 6, 2).tokens
BELIEFS = posterior(MODEL, TEXTS, at=0)
FRESH = posterior(MODEL, MODEL.sample(300, 6, 3).tokens, at=0)
DRAW = np.random.default_rng(0)


def a_table(n_rows, n_columns):
    return torch.as_tensor(DRAW.dirichlet(np.full(n_rows, 0.5), n_columns).T)


C, T, R = torch.tensor([1.0, 0.02, 0.5, 0.03, 0.2]).double(), a_table(4, 4), a_table(4, 5)
ONES = torch.ones(5, dtype=torch.float64)
TABLES = {"emission": MODEL.emission, "mapped": T @ MODEL.emission, "free": R}
TRUE = {(words, way): Readout(TABLES[words], C if way else ONES) for words in COLUMNS for way in (False, True)}
"""By words, and whether the belief is reweighted: something that the family can predict."""


@functools.cache
def distance(family, truth):
    """Mean total variation on fresh beliefs between what a family's fit predicts and what is true."""
    words, reweighted = family
    found = fit_readout(BELIEFS, TRUE[truth](BELIEFS), MODEL.emission, words, reweighted, starts=4)
    assert found.columns.sum(0).numpy() == pytest.approx(1)
    assert found.weights.max() == 1
    return total_variation(found(FRESH), TRUE[truth](FRESH)).mean().item()


@pytest.mark.parametrize(
    ("family", "other"),
    [
        (("emission", True), ("mapped", False)),
        (("mapped", True), ("free", False)),
        (("free", False), ("free", True)),
        (("mapped", False), ("emission", True)),
    ],
    ids=str,
)
def test_a_family_finds_what_it_can_predict_and_cannot_predict_what_another_can(family, other):
    assert distance(family, family) < 1e-3
    assert distance(family, other) > 4e-3


def test_a_fake_token_is_a_reweighting_and_the_fit_finds_which():
    """Lemma C.2: behind a prompt u the exact model predicts W (c ⊙ p) / cᵀp, with c ∝ A (u ⊙ P[H_1]) / P[H_0]."""
    prompt = torch.as_tensor(np.random.default_rng(1).uniform(0.05, 1, 5))
    behind = masked_token_probs(MODEL, torch.nn.functional.pad(TEXTS, (1, 0), value=MASK), prompt)[:, 1]
    found = fit_readout(BELIEFS, behind, MODEL.emission, "emission", True)
    assert total_variation(found(BELIEFS), behind).max() < 2e-3
    want = MODEL.transition @ (prompt * (MODEL.transition @ MODEL.initial)) / MODEL.initial
    assert found.weights.numpy() == pytest.approx((want / want.max()).numpy(), abs=0.02)


def test_columns_are_as_near_as_a_linear_program_finds_them():
    """The mean distance is piecewise linear in the columns R, so its least value is that of a linear program."""
    beliefs, squares = BELIEFS[:100], TRUE["free", True](BELIEFS[:100]) ** 2
    wanted = squares / squares.sum(1, keepdim=True)  # what no family can predict
    predicted = np.kron(beliefs, np.eye(4))  # from the columns of R, one after the other, to all predictions
    slack, none = np.eye(400), np.zeros((5, 400))
    upper = np.block([[predicted, -slack], [-predicted, -slack]])
    sums = np.hstack([np.kron(np.eye(5), np.ones((1, 4))), none])
    cost, most = np.append(np.zeros(20), np.full(400, 0.5 / 100)), np.append(wanted, -wanted)
    least = linprog(cost, upper, most, sums, np.ones(5)).fun
    found = fit_readout(beliefs, wanted, MODEL.emission, "free")
    assert -1e-9 < total_variation(found(beliefs), wanted).mean() - least < 5e-4
    moved = Readout(0.95 * found.columns + 0.05 * R, ONES)
    assert total_variation(moved(beliefs), wanted).mean() - least > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_as_near_as_a_search_without_derivatives_finds_them(seed):
    """Where beliefs are nearly certain, weights range over many powers of ten; what is wanted has other columns."""
    model, columns = random_hmm(8, 4, seed, temperature=0.01), np.random.default_rng(seed).dirichlet([0.1] * 4, 8)
    beliefs = posterior(model, model.sample(200, 10, seed).tokens, at=0)
    wanted = beliefs @ torch.as_tensor(columns)

    def far(logs):
        found = Readout(model.emission, torch.as_tensor(logs - logs.max()).exp())(beliefs)
        return total_variation(found, wanted).mean().item()

    other = differential_evolution(far, [(-60, 0)] * 8, seed=seed, maxiter=100, popsize=10, polish=False).fun
    found = fit_readout(beliefs, wanted, model.emission, "emission", True, seed)
    assert total_variation(found(beliefs), wanted).mean() < other + 5e-4


@pytest.mark.parametrize("words", COLUMNS)
def test_no_fit_is_worse_than_without_weights_and_it_repeats(words):
    beliefs, wanted = BELIEFS[:60], TRUE["free", True](BELIEFS[:60])
    ways = (False, True, True) if words == "emission" else (False, True)
    found = [fit_readout(beliefs, wanted, MODEL.emission, words, way, seed=4, starts=2) for way in ways]
    far = [total_variation(fit(beliefs), wanted).mean() for fit in found]
    assert far[1] <= far[0] + 1e-12
    assert all(map(torch.equal, found[1], found[-1]))


def test_total_variation_is_the_largest_difference_of_an_events_chance():
    one, two = a_table(4, 3).T, a_table(4, 3).T
    events = torch.as_tensor([[int(bit) for bit in f"{k:04b}"] for k in range(16)]).double()
    assert torch.allclose(total_variation(one, two), ((one - two) @ events.T).amax(1))


def test_states_that_nobody_believes_and_beliefs_that_weights_exclude():
    certain = torch.eye(5, dtype=torch.float64)
    found = fit_readout(certain[:3], R.T[:3], MODEL.emission, "free", True)
    assert found(certain[:3]).numpy() == pytest.approx(R.T[:3].numpy(), abs=1e-3)
    assert found.columns.sum(0).numpy() == pytest.approx(1)
    assert (Readout(R, torch.tensor([0.0, 1, 1, 1, 1]))(certain)[0] == 0).all()


def test_a_softmax_finds_what_it_can_predict_and_cannot_predict_a_mean_of_columns():
    map_of, bias = torch.as_tensor(DRAW.normal(size=(4, 5))), torch.as_tensor(DRAW.normal(size=4))
    wanted, fresh = ((beliefs @ map_of.T + bias).softmax(1) for beliefs in (BELIEFS, FRESH))
    assert total_variation(readouts.softmax_readout(BELIEFS, wanted)(FRESH), fresh).mean() < 2e-3
    certain = (torch.eye(4).double() + 1e-6) / (1 + 4e-6)
    assert total_variation(readouts.softmax_readout(certain.log(), certain)(certain.log()), certain).max() < 1e-6
    sharp = torch.as_tensor(np.random.default_rng(0).dirichlet(np.full(4, 0.05), 800)).clamp(min=1e-6)
    sharp = sharp / sharp.sum(1, keepdim=True)  # of logarithms that lie far apart too
    for predictions in (sharp, (0.3 * sharp.log() @ map_of[:, :4].T + bias).softmax(1)):
        found = readouts.softmax_readout(sharp[:400].log(), predictions[:400])(sharp[400:].log())
        assert total_variation(found, predictions[400:]).mean() < 1e-3
    other, fresh = BELIEFS @ R.T, FRESH @ R.T
    assert total_variation(readouts.softmax_readout(BELIEFS, other)(FRESH), fresh).mean() > 5e-3


def test_a_free_function_finds_what_no_family_can_predict_and_it_repeats():
    wanted, fresh = (beliefs.square() @ R.T for beliefs in (BELIEFS, FRESH))
    wanted, fresh = wanted / wanted.sum(1, keepdim=True), fresh / fresh.sum(1, keepdim=True)
    family = fit_readout(BELIEFS, wanted, MODEL.emission, "free", True, starts=4)
    apart = [
        total_variation(found(FRESH), fresh).mean() for found in (readouts.free_readout(BELIEFS, wanted, 1), family)
    ]
    assert apart[0] < min(0.005, apart[1])
    one, again, other = (readouts.free_readout(BELIEFS, BELIEFS, seed, steps=3)(FRESH) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


HIDDEN = torch.as_tensor(DRAW.normal(size=(400, 6)) * [1, 5, 0.1, 1, 1, 0] + 3)  # the last does not vary
MAP = torch.as_tensor(DRAW.normal(size=(6, 3)))
VALUES = HIDDEN @ MAP + torch.as_tensor(DRAW.normal(size=(400, 3)))
SPREAD = HIDDEN.std(0, correction=0)
DECAY = 1e-4  # a larger one biases what is read; without one, least squares reads rounding where texts are alike
INPUTS = (HIDDEN - HIDDEN.mean(0)) / torch.where(SPREAD > 0, SPREAD, 1)


def test_the_linear_probe_is_least_squares_with_rows_for_the_decay():
    inputs = torch.cat([INPUTS, (400 * DECAY) ** 0.5 * torch.eye(6, dtype=torch.float64)])
    want, *_ = np.linalg.lstsq(inputs, torch.cat([VALUES - VALUES.mean(0), torch.zeros(6, 3)]), rcond=None)
    found = readouts.linear_probe(HIDDEN, VALUES)(HIDDEN)
    assert found.numpy() == pytest.approx((INPUTS @ want + VALUES.mean(0)).numpy(), abs=1e-9)


def test_the_share_of_the_variance_that_is_explained():
    for found, share in ((VALUES, 1), (VALUES.mean(0).expand_as(VALUES), 0), (2 * VALUES.mean(0) - VALUES, -3)):
        assert readouts.explained(found, VALUES) == pytest.approx(share)


def test_the_logistic_probe_is_where_another_minimiser_ends():
    labels = (HIDDEN[:, 0] + torch.as_tensor(DRAW.normal(size=400)) > 3.2).bool()
    found, inputs, signs = readouts.logistic_probe(HIDDEN, labels), INPUTS.numpy(), np.where(labels, 1.0, -1.0)

    def loss(v):
        return np.logaddexp(0, -signs * (inputs @ v[:6] + v[6])).mean() + DECAY * (v[:6] ** 2).sum()

    want = minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-9})
    assert found(HIDDEN).squeeze(1).numpy() == pytest.approx(inputs @ want.x[:6] + want.x[6], abs=1e-3)
