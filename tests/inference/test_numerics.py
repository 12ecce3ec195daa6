"""What is promised of floating point: zeros, entries of 1e-100, any length. And what is refused."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from witness import forward_backward

from hmmlib.inference import messages
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

FAIR = HMM(np.eye(2), [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5], columns=True)
"""The state never changes; each token is evidence for one of the two states."""
REMEMBERED = MemoryHMM([[1.0]], FAIR.emission[:, :, None], [1.0], [0.5, 0.5])
"""The same with the memory in the role of the state."""
LARGE = {"prec": 50, "Emin": -(10**9), "Emax": 10**9}
"""Decimal arithmetic that rounds 1e-50: nothing is subtracted, so that errors stay relative; nothing underflows."""
LEAKS = [0.0, 0.5, 1e-12, 1e-100]
CHAINS = {
    "no zeros in A": lambda rng: leaky((3, 3), rng, [1e-12, 1e-100]),
    "slow": lambda rng: np.full((3, 3), 1e-12) + (1 - 3e-12) * np.eye(3),
    "zeros in A": lambda rng: leaky((3, 3), rng, [0.0, 1e-12, 1e-100]),
}
TWO_CELLS, embedded = sparse_memory_hmm(3, 4, 4, n_cells=2), messages.masked_token_probs_from_embeddings


def in_decimals(model, tokens):
    """G (T, X), P[H_i | x] (T + 1, S) and the log-likelihood for tokens (T,) of an HMM."""
    number = np.vectorize(Decimal, otypes=[object])

    def law(weights):
        return [float(weight / weights.sum()) if weights.sum() else 0.0 for weight in weights]

    with localcontext(**LARGE):
        found, emission = forward_backward(model, tokens, None, number), number(model.emission)
        likelihood = float(found.chance.ln()) if found.chance else -math.inf
        probs = [law(emission @ tau) for tau in found.states]
        return np.array(probs), np.array([law(joint) for joint in found.joint]), likelihood


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
        assert_as_promised(messages.masked_token_probs(model, tokens)[0], probs)
        assert_as_promised(messages.posteriors(model, tokens)[0], states)
        np.testing.assert_allclose(messages.log_likelihood(model, tokens), likelihood, rtol=1e-12, atol=1e-12)
        zeros += (states == 0).sum()
    assert zeros > 0 or chain != "zeros in A"


def test_messages_leave_out_the_evidence_of_their_own_position_unless_told():
    """Over two positions, by hand: τ_1 has v_2 only, and with its own evidence v_1 too, whatever their sizes and type.

    The sum over a memory of which both values say the same is that message, times the prior."""
    model, v = random_hmm(3, 4, 1), torch.tensor([[[0.3e-30, 0.9e-30, 0.5e-30], [2e30, 7e30, 4e30]]])
    remembered = MemoryHMM(model.transition, model.emission[:, None].expand(-1, 2, -1), model.initial, [0.25, 0.75])
    of_later = model.transition.T @ v[0, 1].double() * (model.transition @ model.initial)
    for own, expected in (({}, of_later), ({"own": False}, of_later), ({"own": True}, of_later * v[0, 0].double())):
        for one, prior, u in ((model, [1.0], v), (remembered, [0.25, 0.75], v.repeat(1, 1, 2))):
            mantissa, exponent = messages.aggregated_messages(one, u, **own)
            assert (mantissa.shape, exponent.shape, exponent.dtype) == ((1, 2, u.shape[2]), (1, 2, 1), torch.int64)
            found = torch.ldexp(mantissa, exponent)[0, 0]
            np.testing.assert_allclose(found, np.outer(prior, expected).ravel(), rtol=1e-12)


@pytest.mark.parametrize("lengths", [(20, 25), (30,), (20, 41, 20), (150, 151), (200, 1, 200), (5000, 1)])
def test_the_losing_state_may_win_in_the_end(lengths):
    """20 zeros, then 25 ones, …: the odds of the two states are 3 to the power of how many more zeros there are."""
    tokens = torch.tensor([[k % 2 for k, length in enumerate(lengths) for _ in range(length)]])
    probs, states, likelihood = in_decimals(FAIR, tokens[0])
    for model in (FAIR, REMEMBERED):
        np.testing.assert_allclose(messages.masked_token_probs(model, tokens)[0], probs, rtol=1e-12)
        np.testing.assert_allclose(messages.log_likelihood(model, tokens).item(), likelihood, rtol=1e-12)
    assert_as_promised(messages.posteriors(FAIR, tokens)[0], states)
    assert_as_promised(messages.memory_posterior(REMEMBERED, tokens)[0], states[0])
    assert messages.possible_given_others(FAIR, tokens).all()  # also what is too unlikely for a float


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: messages.masked_token_probs(FAIR, [[0, 2]]), "tokens must be 0 to 1, or MASK = -1; found 2"),
        (lambda: messages.log_likelihood(FAIR, [[0.0, 1.0]]), "tokens must be integers, not torch.float64"),
        (lambda: messages.posterior(FAIR, [0, 1]), r"tokens must have shape .* T at least 1, not \(2,\)"),
        (lambda: messages.posterior(FAIR, [[0, 1]], 3), "at must be an integer from 0 to 2, not 3"),
        (lambda: messages.memory_posterior(FAIR, [[0, 1]]), "model must be of type MemoryHMM, not HMM"),
        (lambda: messages.memory_posterior(REMEMBERED, [[0, 1]], 1), "cell must be an integer from 0 to 0, not 1"),
        (lambda: embedded(FAIR, [[[1.0] * 3]]), r"have 2 entries .* not shape \(1, 1, 3\)"),
        (lambda: embedded(FAIR, [[1.0, 1.0]]), r"have 3 dimensions, not shape \(1, 2\)"),
        (lambda: embedded(FAIR, np.ones((1, 0, 2))), r"and one position or more, not shape \(1, 0, 2\)"),
        (lambda: messages.masked_token_probs(FAIR, [[0]], []), "prompt is empty"),
        (lambda: embedded(TWO_CELLS, np.ones((1, 2, 4))), "embeddings must have 12 or 36 entries on the last axis"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
