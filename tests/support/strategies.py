"""What hypothesis draws: models of every shape, and what they are asked. And how far two ways to one result may differ.
HMMLIB_SLOW=1 draws 1,000 examples of each property, anew each time; otherwise 25, always the same."""

from functools import wraps

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from record import SLOW

from hmmlib.inference import messages
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

HOW = dict(deadline=None, database=None, report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow])
HOW |= dict(max_examples=1000, print_blob=True) if SLOW else dict(max_examples=25, derandomize=True)
settings.register_profile("tests", **HOW)
settings.load_profile("tests")


def for_all(**drawn):
    """A test of each example that the strategies draw. Its attribute `held` counts the examples for which it held."""

    def decorate(check):
        @given(**drawn)
        @wraps(check)
        def counted(**example):
            check(**example)
            counted.held += 1

        counted.held = 0
        return counted

    return decorate


# Models

MILD = st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.02]) | st.floats(0.02, 1.0)
"""Zeros, ties, and nothing so small that products of a dozen leave float32."""
HARD = st.sampled_from([0.0, 1.0, 1.0, 3.0, 1e-6, 1e-9]) | st.floats(1e-9, 1.0)
"""Near-zeros too: as small as whatever text of some seven tokens allows, one that contradicts itself included."""
SEEDS = st.integers(0, 2**31)


@st.composite
def columns(draw, shape, entries):
    """Distributions over the first axis: free ones, one token or state for sure, all alike, or nearly so."""
    kind = draw(st.sampled_from(["free", "free", "sure", "alike", "nearly alike"]))
    rest = shape[1:]
    if kind == "sure":
        chosen = draw(arrays(np.int64, rest, elements=st.integers(0, shape[0] - 1)))
        return np.moveaxis(np.eye(shape[0])[chosen], -1, 0)
    weights = draw(arrays(np.float64, shape if kind == "free" else shape[:1], elements=entries))
    if kind != "free":
        weights = np.broadcast_to(weights.reshape(-1, *(1,) * len(rest)), shape).copy()
    if kind == "nearly alike":
        weights[0] *= 1 + 1e-9 * np.arange(np.prod(rest, dtype=int)).reshape(rest)
    weights[0] += weights.sum(0) == 0
    return weights / weights.sum(0)


@st.composite
def hmms(draw, entries=HARD, dtype=torch.float64):
    """HMMs of 1 to 4 states and 1 to 4 tokens."""
    n_states, n_tokens = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shapes = (n_states, n_states), (n_tokens, n_states), (n_states,)
    return HMM(*(draw(columns(shape, entries)) for shape in shapes), columns=True).to(dtype=dtype)


@st.composite
def memory_hmms(draw, entries=HARD, dtype=torch.float64):
    """Memory models of 1 to 3 cells, 1 to 3 values (at most 2 in three cells), and 1 or 2 syntax states."""
    n_cells = draw(st.integers(1, 3))
    n_values = draw(st.integers(1, min(3, 5 - n_cells)))
    n_states, n_tokens = n_cells * draw(st.integers(1, 2 if n_cells < 3 else 1)), draw(st.integers(1, 4))
    shapes = (n_states, n_states), (n_tokens, n_values, n_states), (n_states,)
    chain = [draw(columns(shape, entries)) for shape in shapes]
    prior = draw(columns((n_values**n_cells,), entries)).reshape((n_values,) * n_cells)
    return MemoryHMM(*chain, prior).to(dtype=dtype)


def models(entries=HARD, dtype=torch.float64):
    return hmms(entries, dtype) | memory_hmms(entries, dtype)


@st.composite
def asked(draw, entries=HARD, dtype=torch.float64, family=models, longest=6, most=4):
    """A model and tokens (n, T) for it, n ≤ `most`: likely ones or any, with some or all of them hidden."""
    model = draw(family(entries, dtype))
    shape = draw(st.integers(1, most)), draw(st.integers(1, longest))
    if draw(st.booleans()):
        return model, torch.as_tensor(draw(arrays(np.int64, shape, elements=st.integers(MASK, model.n_tokens - 1))))
    hidden = draw(arrays(np.bool_, shape))
    return model, torch.where(torch.as_tensor(hidden), MASK, model.sample(*shape, draw(SEEDS)).tokens)


@st.composite
def prompts(draw, model, entries=HARD):
    """A prompt for a model: lifted where it has a memory."""
    lifted = draw(arrays(np.float64, messages.lifted_size(model), elements=entries | st.just(7.0)))
    return torch.as_tensor(lifted).to(model.dtype)


@st.composite
def prompted(draw, entries=HARD, dtype=torch.float64, **sizes):
    """A model, its tokens and a prompt."""
    model, tokens = draw(asked(entries, dtype, **sizes))
    return model, tokens, draw(prompts(model, entries))


# What is asked of them, and how it is compared


def answers(model, tokens, prompt=None):
    """Every family of distributions that inference has to give, by name: (n, …, entries)."""
    given = () if prompt is None else (prompt,)
    found = {
        "G": messages.masked_token_probs(model, tokens, *given),
        "latents": messages.latent_given_others(model, tokens, *given),
    }
    if prompt is None:
        found["posteriors"] = messages.posteriors(model, tokens)
        for cell in range(getattr(model, "n_cells", 0)):
            found[f"memory {cell}"] = messages.memory_posterior(model, tokens, cell)
    return found


def rounding(model, length):
    """How far two ways to one result may differ, relative to it: nothing is subtracted on the way, so that errors only
    add up, one rounding unit, eps / 2, for each operation. These are, for each position, S + 1 to carry a message on;
    K, the values of the memory, to weigh and add these up; twice D = M * S, to divide by the sum and to read tokens
    off; and six more. Two ways may err by as much in opposite directions."""
    n_values = messages.lifted_size(model) // model.n_states
    n_read = getattr(model, "n_memory", 1) * model.n_states
    operations = (length + 1) * (model.n_states + 1) + n_values + 2 * n_read + 6
    return operations * torch.finfo(model.dtype).eps


LOST = {torch.float64: 1e-100, torch.float32: 1e-30}
"""Probabilities below are not compared: some products on the way to them leave the range of a float."""


def agree(found, expected, bound, dtype=torch.float64):
    """Both sets of `answers` are the same, relative to each number."""
    assert found.keys() == expected.keys()
    for name, one in found.items():
        np.testing.assert_allclose(one, expected[name], rtol=bound, atol=LOST[dtype], err_msg=name)


def agree_in_size(found, expected, bound):
    """Logarithms of probabilities, whose own rounding counts too: one unit for the product and one for the sum."""
    eps = torch.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=2 * eps, atol=bound + 2 * eps)
