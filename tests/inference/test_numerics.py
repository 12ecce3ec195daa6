"""What is promised of floating point: zeros, entries of 1e-100, any length; gradients, float32. And what is refused."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from integers import UNIT, ratio, whole

from hmmlib.inference import messages
from hmmlib.inference.messages import (
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    posterior,
    posteriors,
)
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

FAIR = HMM(np.eye(2), [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5], columns=True)
"""The state never changes; each token is evidence for one of the two states."""
REMEMBERED = MemoryHMM([[1.0]], FAIR.emission[:, :, None], [1.0], [0.5, 0.5])
"""The same with the memory in the role of the state."""
LARGE = {"prec": 50, "Emin": -(10**9), "Emax": 10**9}
"""Decimal arithmetic that rounds 1e-50: nothing is subtracted, so that errors stay relative; nothing underflows."""


def both_passes(model, embeddings, number):
    """τ (T + 1, S), and it times the evidence of its own position, of an HMM in any numbers, for embeddings (T, S)."""
    transition, before = number(model.transition), number(model.initial)
    evidence = [number(np.ones(model.n_states)), *number(embeddings)]
    forward, backward = [before], [evidence[0]]
    for row in evidence[:-1]:
        forward.append(transition @ (forward[-1] * row))
    for row in evidence[:0:-1]:
        backward.insert(0, transition.T @ (backward[0] * row))
    left_out = [f * b for f, b in zip(forward, backward, strict=True)]
    return left_out, [t * row for t, row in zip(left_out, evidence, strict=True)]


def in_integers(model, embeddings):
    """Ḡ (T, X) and P[H_i | v] (T + 1, S), without any rounding."""
    emission, (left_out, joint) = whole(model.emission), both_passes(model, embeddings, whole)
    probs = [ratio(emission @ tau, tau.sum() * UNIT) for tau in left_out[1:]]
    return np.array(probs), np.array([ratio(p, p.sum()) for p in joint])


def in_decimals(model, tokens):
    """G (T, X), P[H_i | x] (T + 1, S) and the log-likelihood for tokens (T,)."""

    def number(values):
        return np.vectorize(Decimal, otypes=[object])(np.asarray(values))

    def law(weights):
        return [float(weight / weights.sum()) if weights.sum() else 0.0 for weight in weights]

    with localcontext(**LARGE):
        left_out, joint = both_passes(model, model.embed(tokens[None])[0], number)
        emission, total = number(model.emission), joint[0].sum()
        likelihood = float(total.ln()) if total else -math.inf
        return np.array([law(emission @ tau) for tau in left_out[1:]]), np.array([law(p) for p in joint]), likelihood


def assert_as_promised(found, expected):
    """Zeros are zeros; what is 1e-100 or more is right to 1e-12."""
    found, certain = np.asarray(found), expected >= 1e-100
    assert (found[expected == 0] == 0).all()
    np.testing.assert_allclose(found[certain], expected[certain], rtol=1e-12, atol=0)
    assert (found[~certain] < 1.0001e-100).all()


def leaky(shape, rng, leaks):
    """Distributions over the first axis: one entry of about 1 in each, all others leaks."""
    weights = rng.choice(leaks, shape)
    weights[rng.integers(shape[0], size=shape[1:]), *np.indices(shape[1:])] = 1.0
    return weights / weights.sum(0)


LEAKS = [0.0, 0.5, 1e-12, 1e-100]
CHAINS = {
    "no zeros in A": lambda rng: leaky((3, 3), rng, [1e-12, 1e-100]),
    "slow": lambda rng: np.full((3, 3), 1e-12) + (1 - 3e-12) * np.eye(3),
    "zeros in A": lambda rng: leaky((3, 3), rng, [0.0, 1e-12, 1e-100]),
}


@pytest.mark.parametrize("way", ["loops", "torch"])
@pytest.mark.parametrize("length", [50, 3000])
@pytest.mark.parametrize("chain", CHAINS)
def test_zeros_are_exact_and_entries_from_1e_100_up_are_right_at_any_length(chain, length, way, monkeypatch):
    """Any text at all where A has no zeros; else one that the model draws, with a third of it hidden."""
    if way == "torch":
        monkeypatch.setattr(messages, "compiled_loops", lambda: None)
    zeros = 0
    for seed in range(3 if length < 100 else 1):
        rng = np.random.default_rng(seed)
        model = HMM(CHAINS[chain](rng), leaky((4, 3), rng, LEAKS), leaky((3,), rng, LEAKS), columns=True)
        tokens = torch.as_tensor(rng.integers(MASK, 4, (1, length)))
        if chain == "zeros in A":
            tokens = torch.where(tokens < 1, MASK, model.sample(1, length, seed).tokens)
        probs, states, likelihood = in_decimals(model, tokens[0])
        assert_as_promised(masked_token_probs(model, tokens)[0], probs)
        assert_as_promised(posteriors(model, tokens)[0], states)
        np.testing.assert_allclose(log_likelihood(model, tokens), likelihood, rtol=1e-12, atol=1e-12)
        zeros += (states == 0).sum()
    assert zeros > 0 or chain != "zeros in A"


def test_leaks_cost_no_second_pass(monkeypatch):
    """Once a sequence with leaks of 1e-12 was run again, entry by entry: 5.6 seconds for one of 10,000 tokens."""
    monkeypatch.setattr(messages, "_in_torch", lambda *_: pytest.fail("run again"))
    rng = np.random.default_rng(0)
    model = HMM(CHAINS["zeros in A"](rng), leaky((4, 3), rng, [1e-12]), leaky((3,), rng, [1e-12]), columns=True)
    assert masked_token_probs(model, model.sample(1, 10_000, 0).tokens).isfinite().all()


def test_embeddings_of_any_magnitude_against_integer_arithmetic():
    for seed in range(25):
        rng = np.random.default_rng(seed)
        model, scale = sparse_hmm(3, 4, seed), 10.0 ** rng.uniform(-200, 200, (1, 6, 1))
        embeddings = scale * 10.0 ** rng.uniform(-10, 10, (1, 6, 3)) * (rng.random((1, 6, 3)) < 0.8)
        found = masked_token_probs_from_embeddings(model, embeddings)[0]
        np.testing.assert_allclose(found, in_integers(model, embeddings[0])[0], rtol=1e-11, atol=0)


def blocks(*lengths):
    """20 zeros, then 25 ones, … as one sequence."""
    return torch.tensor([[k % 2 for k, length in enumerate(lengths) for _ in range(length)]])


@pytest.mark.parametrize("lengths", [(20, 25), (30,), (20, 41, 20), (150, 151), (200, 1, 200), (5000, 1)])
def test_the_losing_state_may_win_in_the_end(lengths):
    """In closed form: the odds of the two states are 3 to the power of how many more zeros than ones there are."""
    tokens = blocks(*lengths)
    ones, logarithm = tokens.sum().item(), math.log(3)
    lead = tokens.shape[1] - 2 * ones
    odds = np.array([1 / (1 + math.exp(np.clip(-logarithm * sign * lead, -700, 700))) for sign in (1, -1)])
    for at in (0, 1, tokens.shape[1]):
        assert_as_promised(posterior(FAIR, tokens, at)[0], odds)
    assert_as_promised(memory_posterior(REMEMBERED, tokens)[0], odds)
    likelihood = np.logaddexp(0, -lead * logarithm)
    likelihood += (tokens.shape[1] - ones) * math.log(0.75) + ones * math.log(0.25) - math.log(2)
    for model in (FAIR, REMEMBERED):
        np.testing.assert_allclose(log_likelihood(model, tokens).item(), likelihood, rtol=1e-12)
        probs = masked_token_probs(model, tokens)[0]
        for i, token in enumerate(tokens[0, :300].tolist()):
            zero = 1 / (1 + math.exp(np.clip(-logarithm * (lead - (1 - 2 * token)), -700, 700)))
            np.testing.assert_allclose(
                probs[i], FAIR.emission @ torch.tensor([zero, 1 - zero], dtype=torch.float64), rtol=1e-12
            )


def test_gradients_survive_a_text_of_1e_90():
    tokens = torch.cat([blocks(200, 200), torch.tensor([[MASK]])], 1)
    embeddings = FAIR.embed(tokens).requires_grad_()
    masked_token_probs_from_embeddings(FAIR, embeddings)[0, -1, 0].backward()
    # P[H] is (1/2, 1/2) there, and dP[H = h] / dv[k] = P[H = h] (1{h = k} - P[H = k]) / v[k], times 3/4 - 1/4.
    expected = torch.tensor([0.125, -0.125]) / embeddings.detach()[0, :-1]
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
        ([[[1.0, 1.0, 1.0]]], r"embeddings must have 2 entries on the last axis, .* not shape \(1, 1, 3\)"),
        ([[1.0, 1.0]], r"embeddings must have 3 dimensions, not shape \(1, 2\)"),
    ],
)
def test_embeddings_that_are_refused(embeddings, message):
    with pytest.raises(ValueError, match=message):
        masked_token_probs_from_embeddings(FAIR, embeddings)


def test_a_memory_model_names_both_widths():
    with pytest.raises(ValueError, match="embeddings must have 12 or 36 entries on the last axis"):
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
        call(FAIR, tokens)


@pytest.mark.parametrize("call", [masked_token_probs, posterior, log_likelihood])
def test_no_sequences_at_all(call):
    one, none = call(FAIR, [[0, 1, 0]]), call(FAIR, torch.empty(0, 3, dtype=torch.int64))
    assert none.shape == (0, *one.shape[1:])


def test_positions_and_cells_that_are_refused():
    for at in (3, -1, 1.0, True):
        with pytest.raises(ValueError, match="at must be"):
            posterior(FAIR, [[0, 1]], at)
    for cell in (1, -1, 0.0):
        with pytest.raises(ValueError, match="cell must be"):
            memory_posterior(REMEMBERED, [[0, 1]], cell)
    with pytest.raises(TypeError, match="model must be of type MemoryHMM, not HMM"):
        memory_posterior(FAIR, [[0, 1]])
