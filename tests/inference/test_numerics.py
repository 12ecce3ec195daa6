"""What is promised of floating point: zeros, entries of 1e-100, any length. And what is refused."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from witness import forward_backward

from hmmlib import (
    HMM,
    MASK,
    MemoryHMM,
    aggregated_messages,
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    possible_given_others,
    posterior,
    posteriors,
    random_hmm,
    sparse_memory_hmm,
)

FAIR = HMM(np.eye(2), 0.25 + np.eye(2) / 2, [0.5, 0.5], columns=True)
"""The state never changes. Each token is evidence for one of the two states."""
REMEMBERED = MemoryHMM([[1.0]], FAIR.emission[..., None], [1.0], [0.5, 0.5])
"""The same with the memory in the role of the state."""
WIDE = {"prec": 50, "Emin": -(10**9), "Emax": 10**9}
"""Decimal arithmetic that rounds 1e-50. Nothing is subtracted, so errors stay relative, and nothing underflows."""
LEAKS = [0.0, 0.5, 1e-12, 1e-100]


def law(weights):
    total = weights.sum()
    return [float(weight / total) if total else 0.0 for weight in weights]


def in_decimals(model, tokens):
    """G (T, X), P[H_i | x] (T + 1, S) and the log-likelihood for tokens (T,) of an HMM."""
    number = np.vectorize(Decimal, otypes=[object])
    with localcontext(**WIDE):
        passes = forward_backward(model, tokens, None, number)
        emission = number(model.emission)
        likelihood = float(passes.chance.ln()) if passes.chance else -math.inf
        probs = [law(emission @ tau) for tau in passes.states]
        states = [law(joint) for joint in passes.joint]
    return np.array(probs), np.array(states), likelihood


def assert_as_promised(values, expected):
    """Zeros are zeros, and what is 1e-100 or more is right to 1e-12."""
    values = np.asarray(values)
    large = expected >= 1e-100
    assert (values[expected == 0] == 0).all()
    np.testing.assert_allclose(values[large], expected[large], rtol=1e-12, atol=0)
    assert (values[~large] < 1.0001e-100).all()


def leaky(shape, rng, leaks):
    """Distributions over the first axis: one entry of about 1 in each, and leaks elsewhere."""
    weights = rng.choice(leaks, shape)
    largest = rng.integers(shape[0], size=shape[1:])
    weights[largest, *np.indices(shape[1:])] = 1.0
    return weights / weights.sum(0)


def without_zeros(rng):
    return leaky((3, 3), rng, [1e-12, 1e-100])


def slow(rng):
    return np.full((3, 3), 1e-12) + (1 - 3e-12) * np.eye(3)


def with_zeros(rng):
    return leaky((3, 3), rng, [0.0, 1e-12, 1e-100])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("length", [50, 3000])
@pytest.mark.parametrize("chain", [without_zeros, slow, with_zeros])
def test_zeros_are_exact_and_entries_from_1e_100_up_are_right_at_any_length(chain, length):
    """Any text will do where A has no zeros. Else it is one that the model draws, with a third of it hidden."""
    zeros = 0
    for seed in range(3 if length < 100 else 1):
        rng = np.random.default_rng(seed)
        transition = chain(rng)
        emission = leaky((4, 3), rng, LEAKS)
        model = HMM(transition, emission, leaky((3,), rng, LEAKS), columns=True)
        tokens = torch.as_tensor(rng.integers(MASK, 4, (1, length)))
        if chain is with_zeros:
            tokens = torch.where(tokens < 1, MASK, model.sample(1, length, seed).tokens)
        probs, states, likelihood = in_decimals(model, tokens[0])
        assert_as_promised(masked_token_probs(model, tokens)[0], probs)
        assert_as_promised(posteriors(model, tokens)[0], states)
        np.testing.assert_allclose(log_likelihood(model, tokens), likelihood, rtol=1e-12, atol=1e-12)
        zeros += (states == 0).sum()
    assert zeros > 0 or chain is not with_zeros


SMALL = torch.tensor([3.0, 9.0, 5.0]) * 1e-31
LARGE = torch.tensor([2.0, 7.0, 4.0]) * 1e30
TWO_POSITIONS = torch.stack([SMALL, LARGE])[None]
CHAIN = random_hmm(3, 4, 1)


def tau_by_hand(own):
    """τ_1 over two positions has v_2 only; with its own evidence it has v_1 too."""
    tau = CHAIN.transition.T @ LARGE.double() * (CHAIN.transition @ CHAIN.initial)
    return tau * SMALL.double() if own else tau


def assert_tau(model, embeddings, own, expected):
    mantissa, exponent = aggregated_messages(model, embeddings, own=own)
    assert mantissa.shape == (1, 2, embeddings.shape[2])
    assert exponent.shape == (1, 2, 1)
    assert exponent.dtype == torch.int64
    tau = torch.ldexp(mantissa, exponent)
    np.testing.assert_allclose(tau[0, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("own", [False, True])
def test_messages_leave_out_the_evidence_of_their_own_position_unless_told(own):
    assert_tau(CHAIN, TWO_POSITIONS, own, tau_by_hand(own))


@pytest.mark.parametrize("own", [False, True])
def test_a_memory_that_says_nothing_only_multiplies_the_prior(own):
    emission = CHAIN.emission[:, None].expand(-1, 2, -1)
    model = MemoryHMM(CHAIN.transition, emission, CHAIN.initial, [0.25, 0.75])
    expected = np.outer([0.25, 0.75], tau_by_hand(own)).ravel()
    assert_tau(model, TWO_POSITIONS.repeat(1, 1, 2), own, expected)


@pytest.mark.parametrize("lengths", [(20, 25), (30,), (20, 41, 20), (150, 151), (200, 1, 200), (5000, 1)])
def test_the_losing_state_may_win_in_the_end(lengths):
    """20 zeros, then 25 ones, …: the odds of the two states are 3 to the power of how many more zeros there are."""
    text = []
    for index, length in enumerate(lengths):
        text += [index % 2] * length
    tokens = torch.tensor([text])
    probs, states, likelihood = in_decimals(FAIR, tokens[0])
    for model in (FAIR, REMEMBERED):
        np.testing.assert_allclose(masked_token_probs(model, tokens)[0], probs, rtol=1e-12)
        np.testing.assert_allclose(log_likelihood(model, tokens).item(), likelihood, rtol=1e-12)
    assert_as_promised(posteriors(FAIR, tokens)[0], states)
    assert_as_promised(memory_posterior(REMEMBERED, tokens)[0], states[0])
    assert possible_given_others(FAIR, tokens).all(), "also what is too unlikely for a float"


REFUSED = [
    (masked_token_probs, FAIR, ([[0, 2]],), "tokens must be 0 to 1, or MASK = -1, but one is 2"),
    (posterior, FAIR, ([[0, 1]], 3), "at must be an integer from 0 to 2, not 3"),
    (memory_posterior, FAIR, ([[0, 1]],), "model must be of type MemoryHMM, not HMM"),
    (memory_posterior, REMEMBERED, ([[0, 1]], 1), "cell must be an integer from 0 to 0, not 1"),
    (masked_token_probs_from_embeddings, FAIR, ([[[1.0] * 3]],), r"have 2 entries .* not shape \(1, 1, 3\)"),
    (masked_token_probs_from_embeddings, FAIR, (np.ones((1, 0, 2)),), r"and one position or more, not shape \(1, 0,"),
    (
        masked_token_probs_from_embeddings,
        sparse_memory_hmm(3, 4, 4, n_cells=2),
        (np.ones((1, 2, 4)),),
        "embeddings must have 12 or 36 entries on the last axis",
    ),
]


@pytest.mark.parametrize(("function", "model", "arguments", "message"), REFUSED)
def test_what_is_refused(function, model, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        function(model, *arguments)


# Columns that do not quite sum to 1


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 9e-10), (torch.float32, 9e-6)])
@pytest.mark.parametrize("length", [10, 1000])
def test_errors_of_columns_within_the_tolerance_add_up_over_a_text(dtype, error, length):
    transition = torch.eye(2, dtype=dtype)
    emission = torch.full((2, 2), 0.5, dtype=dtype)
    too_much_and_too_little = torch.tensor([1 + error, 1 - error], dtype=dtype)
    initial = torch.tensor([0.5, 0.5], dtype=dtype)
    model = HMM(transition * too_much_and_too_little, emission * too_much_and_too_little, initial, columns=True)
    tokens = [[0] * length]
    belief = posterior(model, tokens)[0]
    # Exactly, the ratio is 1. Each token counts the first state too much, and the other too little, in A and in W.
    assert belief[0] / belief[1] - 1 == pytest.approx(4 * length * error, rel=0.05)
    too_much = HMM(transition * (1 + error), emission * (1 + error), initial, columns=True)
    exact = HMM(transition, emission, initial, columns=True)
    excess = log_likelihood(too_much, tokens) - log_likelihood(exact, tokens)
    assert excess.item() == pytest.approx(2 * length * error, rel=0.05)
