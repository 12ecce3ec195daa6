"""Where floating point is hard: underflow, long inputs, gradients, float32. And what inference refuses."""

import math

import numpy as np
import pytest
import torch
from integers import UNIT, ratio, whole
from record import SLOW

from hmmlib.inference.messages import (
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    posterior,
)
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

TINY = math.exp(-100)
KEPT = HMM(torch.eye(2, dtype=torch.float64), [[1 - TINY, TINY], [TINY, 1 - TINY]], [0.5, 0.5])
"""The state never changes; each token speaks for one of the two states by a factor of e^100."""
REMEMBERED = MemoryHMM([[1.0]], KEPT.emission[:, :, None], [1.0], [0.5, 0.5])
"""The same with the memory in the role of the state."""


def in_integers(model, embeddings):
    """Ḡ (T, X), P[H_i | v] (T + 1, S) and log-likelihood of an HMM for embeddings (T, S), without any rounding."""
    transition, emission, before = whole(model.transition), whole(model.emission), whole(model.initial)
    evidence = [whole(np.ones(model.n_states)), *whole(embeddings)]
    forward, backward = [before], [whole(np.ones(model.n_states))]
    for row in evidence[:-1]:
        forward.append(transition @ (forward[-1] * row))
    for row in evidence[:0:-1]:
        backward.insert(0, transition.T @ (backward[0] * row))
    left_out = [f * b for f, b in zip(forward, backward, strict=True)]
    posteriors = [t * row for t, row in zip(left_out, evidence, strict=True)]
    total = posteriors[0].sum()
    logarithm = math.log(total) - (2 * len(evidence) + 1) * math.log(UNIT) if total else -math.inf
    probs = [ratio(emission @ tau, tau.sum() * UNIT) for tau in left_out[1:]]
    return np.array(probs), np.array([ratio(p, p.sum()) for p in posteriors]), logarithm


def extreme_columns(shape, rng):
    """Distributions over the first axis with entries of 1e-100, 1e-200, 1e-300, and zeros."""
    weights = rng.choice([0.0, 1e-300, 1e-200, 1e-100, 1.0], shape)
    weights[rng.integers(shape[0], size=shape[1:]), *np.indices(shape[1:])] = 1.0
    return weights / weights.sum(0)


@pytest.mark.parametrize("kind", ["extreme", "appendix E"])
def test_underflow_against_integer_arithmetic(kind):
    for seed in range(25 if SLOW else 5):
        rng = np.random.default_rng(seed)
        model = random_hmm(3, 4, seed)
        if kind == "extreme":
            model = HMM(*(extreme_columns(shape, rng) for shape in ((3, 3), (4, 3), (3,))))
        tokens = torch.as_tensor(rng.integers(-1, 4, (2, 30)))
        probs, likelihoods = masked_token_probs(model, tokens), log_likelihood(model, tokens)
        states = torch.stack([posterior(model, tokens, at) for at in range(31)], 1)
        for k in range(2):
            expected_probs, expected_states, expected_likelihood = in_integers(model, model.embed(tokens[k : k + 1])[0])
            np.testing.assert_allclose(probs[k], expected_probs, rtol=1e-11, atol=1e-300)
            np.testing.assert_allclose(states[k], expected_states, rtol=1e-11, atol=1e-300)
            np.testing.assert_allclose(likelihoods[k], expected_likelihood, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("spread", [10, 150])
def test_embeddings_of_any_magnitude_against_integer_arithmetic(spread):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        model = sparse_hmm(3, 4, seed)
        embeddings = 10.0 ** rng.uniform(-spread, spread, (1, 6, 3)) * (rng.random((1, 6, 3)) < 0.8)
        found = masked_token_probs_from_embeddings(model, embeddings)[0]
        np.testing.assert_allclose(found, in_integers(model, embeddings[0])[0], rtol=1e-11, atol=1e-300)


def test_one_row_of_embeddings_may_span_more_than_a_float():
    embeddings = [[[1e300, 1e-300], [0.0, 1.0], [1.0, 1.0]]]  # only state 1 is left
    probs = masked_token_probs_from_embeddings(KEPT, embeddings)[0]
    np.testing.assert_allclose(probs[2], KEPT.emission[:, 1], rtol=1e-12)


def test_the_smallest_float_is_evidence_anywhere():
    least, zero, one = 5e-324, [0.0, 0.0], [1.0, 1.0]
    leads = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)  # to state 0, which alone is left
    spread = torch.tensor([[1 - 1e-9, 1.0], [1e-9, 0.0]], dtype=torch.float64)
    rare = torch.tensor([[1.0, 1.0], [least, 0.0]], dtype=torch.float64)
    for transition, initial, rows in (
        (leads, [1.0, 0.0], [[least, 7.0], one, one]),
        (leads, [0.0, 1.0], [[least, 1.0], [least, 1.0], one]),
        (spread, [1.0, least], [[1e-300, least], [0.0, least], [least, least]]),
        (rare, [1.0, 0.0], [[0.0, least], one, [1.0, 1e-300]]),
        (leads, [1.0, 0.0], [zero, one, [0.0, 1.0]]),
    ):
        model = HMM(transition, [[0.5, 0.25], [0.5, 0.75]], initial)
        found = masked_token_probs_from_embeddings(model, [rows])[0]
        expected = in_integers(model, torch.tensor(rows, dtype=torch.float64))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)
    found = posterior(HMM(rare, [[least, 0.0], [1.0, 1.0]], [1.0, 0.0]), [[0, 0]])
    np.testing.assert_allclose(found, [[1.0, 0.0]], rtol=0, atol=0)


def blocks(*lengths):
    """20 zeros, then 25 ones, … as one sequence."""
    return torch.tensor([[k % 2 for k, length in enumerate(lengths) for _ in range(length)]])


@pytest.mark.parametrize("lengths", [(20, 25), (25, 20), (20, 20), (30,), (20, 41, 20), (300, 301), (500, 1, 500)])
def test_the_losing_state_may_win_in_the_end(lengths):
    tokens = blocks(*lengths)
    ones = tokens.sum().item()
    lead = tokens.shape[1] - 2 * ones  # how many more zeros than ones
    odds = np.array([1 / (1 + math.exp(np.clip(-100.0 * sign * lead, -700, 700))) for sign in (1, -1)])
    for at in (0, 1, tokens.shape[1]):
        np.testing.assert_allclose(posterior(KEPT, tokens, at)[0], odds, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(memory_posterior(REMEMBERED, tokens)[0], odds, rtol=1e-12, atol=1e-300)
    likelihood = np.logaddexp(-100.0 * ones, -100.0 * (ones + lead)) - math.log(2)
    for model in (KEPT, REMEMBERED):
        np.testing.assert_allclose(log_likelihood(model, tokens).item(), likelihood, rtol=1e-12)
        probs = masked_token_probs(model, tokens)[0]
        for i, token in enumerate(tokens[0].tolist()):
            without = lead - (1 - 2 * token)
            zero = 1 / (1 + math.exp(np.clip(-100.0 * without, -700, 700)))
            expected = KEPT.emission.numpy() @ [zero, 1 / (1 + math.exp(np.clip(100.0 * without, -700, 700)))]
            np.testing.assert_allclose(probs[i], expected, rtol=1e-12, atol=1e-300)


def test_a_state_lost_from_both_ends_may_be_the_only_one_left():
    # Zeros speak against state 1 and ones forbid state 0, which forward and backward have by then all but settled on.
    emission = [[1 - TINY, TINY], [0.0, 1 - TINY], [TINY, 0.0]]
    model, tokens = HMM(KEPT.transition, emission, [0.5, 0.5]), blocks(20, 1, 20)
    np.testing.assert_allclose(log_likelihood(model, tokens), math.log(0.5) - 4000, rtol=1e-12)
    assert posterior(model, tokens).tolist() == [[0, 1]]
    assert (masked_token_probs(model, tokens)[0, :, 1] == torch.where(tokens[0] == 0, 1 - TINY, 0)).all()


def test_gradients_survive_underflow():
    tokens = torch.cat([blocks(20, 20), torch.tensor([[MASK]])], 1)
    embeddings = KEPT.embed(tokens).requires_grad_()
    masked_token_probs_from_embeddings(KEPT, embeddings)[0, -1, 0].backward()
    # P[H] is (1/2, 1/2) there, and dP[H = h] / dv[k] = P[H = h] (1{h = k} - P[H = k]) / v[k].
    expected = torch.tensor([0.25, -0.25]) / embeddings.detach()[0, :-1]
    np.testing.assert_allclose(embeddings.grad[0, :-1], expected, rtol=1e-10)


@pytest.mark.outside
def test_a_sequence_of_200_000_tokens():
    model = sparse_hmm(3, 4, seed=4, zeros=0.0)
    tokens = torch.randint(0, 4, (1, 200_000), generator=torch.Generator().manual_seed(0))
    probs = masked_token_probs(model, tokens)
    assert torch.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-12)
    for centre in (0, 100_000, 199_999):  # far-off tokens are forgotten
        window = slice(max(0, centre - 400), centre + 400)
        near = masked_token_probs(model, tokens[:, window])[0, centre - window.start]
        np.testing.assert_allclose(probs[0, centre], near, atol=1e-12)


GRADIENTS = {
    "vanilla": (sparse_hmm(3, 4, 1, 0.2), 3),
    "one cell": (sparse_memory_hmm(2, 3, 4, 1, 0.2), 6),
    "two cells": (sparse_memory_hmm(2, 2, 4, 1, 0.2, n_cells=2), 4),
    "two cells, lifted": (sparse_memory_hmm(2, 2, 4, 1, 0.2, n_cells=2), 8),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_against_finite_differences(name):
    model, width = GRADIENTS[name]
    draw = torch.Generator().manual_seed(0)
    embeddings = 0.2 + torch.rand(2, 4, width, generator=draw, dtype=torch.float64)
    call = lambda e: masked_token_probs_from_embeddings(model, e)  # noqa: E731
    assert torch.autograd.gradcheck(call, (embeddings.clone().requires_grad_(),), atol=1e-7, rtol=1e-6)

    full, embeddings = embeddings, torch.zeros_like(embeddings)
    while (call(embeddings).sum(-1) == 0).any():  # a zero vector would be a jump
        embeddings = full * (torch.rand(full.shape, generator=draw) < 0.7)
    direction = torch.rand(2, 4, model.n_tokens, generator=draw, dtype=torch.float64)
    at = embeddings.clone().requires_grad_()
    (slopes,) = torch.autograd.grad((call(at) * direction).sum(), at)
    zeros = (embeddings == 0).nonzero().tolist()
    assert len(zeros) > 5
    for index in map(tuple, zeros):  # at a zero, one can only go up
        values, step = [], 1e-5
        for k in range(3):
            moved = embeddings.clone()
            moved[index] = k * step
            values.append((call(moved) * direction).sum().item())
        slope = (-3 * values[0] + 4 * values[1] - values[2]) / (2 * step)
        assert slopes[index].item() == pytest.approx(slope, abs=1e-6, rel=1e-6)


FLOAT32_ERROR = 2e-5
"""Largest error of float32 on sequences of 30 tokens, where no probability is near the smallest float."""


@pytest.mark.parametrize("draw", [sparse_hmm, lambda s, x, seed: sparse_memory_hmm(2, s, x, seed, n_cells=2)])
def test_float32_is_close_to_float64(draw):
    for seed in range(20):
        model = draw(4, 4, seed)
        rough, tokens = model.to(dtype=torch.float32), model.sample(10, 30, seed).tokens
        probs = masked_token_probs(rough, tokens)
        assert probs.dtype == torch.float32
        np.testing.assert_allclose(probs, masked_token_probs(model, tokens), atol=FLOAT32_ERROR)
        np.testing.assert_allclose(posterior(rough, tokens), posterior(model, tokens), atol=FLOAT32_ERROR)
        np.testing.assert_allclose(log_likelihood(rough, tokens), log_likelihood(model, tokens), rtol=1e-5)


def test_float32_stays_finite_where_probabilities_are_tiny():
    emission = torch.tensor([[1.0, 1e-40], [1e-40, 1.0]])
    model = HMM(torch.eye(2), emission, torch.tensor([0.5, 0.5]))
    probs = masked_token_probs(model, torch.tensor([[0, 1], [0, 0], [1, 1]]))
    assert torch.isfinite(probs).all()
    assert torch.isfinite(posterior(model, torch.tensor([[0, 1]]))).all()
    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        rough, tokens = random_hmm(4, 6, draw).to(dtype=torch.float32), torch.randint(0, 6, (50, 30), generator=draw)
        probs = masked_token_probs(rough, tokens)
        assert torch.isfinite(probs).all()


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        ([[[1.0, -0.5]]], "embeddings must be nonnegative, but its smallest entry is -0.5"),
        ([[[1.0, np.nan]]], "embeddings must be finite"),
        ([[[1.0, np.inf]]], "embeddings must be finite"),
        ([[[1.0, 1.0, 1.0]]], "embeddings must have 2 entries on the last axis, not 3"),
        ([[1.0, 1.0]], r"embeddings must have 3 dimensions, not shape \(1, 2\)"),
    ],
)
def test_embeddings_that_are_refused(embeddings, message):
    with pytest.raises(ValueError, match=message):
        masked_token_probs_from_embeddings(KEPT, embeddings)


def test_a_memory_model_names_both_widths():
    with pytest.raises(ValueError, match="embeddings must have 12 or 36 entries on the last axis, not 4"):
        masked_token_probs_from_embeddings(sparse_memory_hmm(3, 4, 4, n_cells=2), np.ones((1, 2, 4)))


@pytest.mark.parametrize("call", [masked_token_probs, posterior, log_likelihood])
@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[0, 2]], "tokens must be 0 to 1, or MASK = -1; found 2"),
        ([[0, -2]], "tokens must be 0 to 1, or MASK = -1; found -2"),
        ([[0.0, 1.0]], "tokens must be integers, not torch.float64"),
        ([[True]], "tokens must be integers, not torch.bool"),
        ([0, 1], r"tokens must have shape \(n, T\) with T at least 1, not \(2,\)"),
        (torch.empty(3, 0, dtype=torch.int64), r"tokens must have shape \(n, T\) with T at least 1, not \(3, 0\)"),
        ([[0, 1], [0]], "tokens must be a rectangular array"),
    ],
)
def test_tokens_that_are_refused(call, tokens, message):
    with pytest.raises(ValueError, match=message):
        call(KEPT, tokens)


@pytest.mark.parametrize("call", [masked_token_probs, posterior, log_likelihood])
def test_no_sequences_at_all(call):
    one, none = call(KEPT, [[0, 1, 0]]), call(KEPT, torch.empty(0, 3, dtype=torch.int64))
    assert none.shape == (0, *one.shape[1:])


def test_positions_and_cells_that_are_refused():
    for at in (3, -1, 1.0, True):
        with pytest.raises(ValueError, match="at must be"):
            posterior(KEPT, [[0, 1]], at)
    for cell in (1, -1, 0.0):
        with pytest.raises(ValueError, match="cell must be"):
            memory_posterior(REMEMBERED, [[0, 1]], cell)
    with pytest.raises(TypeError, match="model must be of type MemoryHMM, not HMM"):
        memory_posterior(KEPT, [[0, 1]])
