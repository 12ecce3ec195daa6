"""What hypothesis draws: models of every shape, and what they are asked. And how far two ways to one result may differ.

HMMLIB_SLOW=1 draws 1,000 examples of each property, anew each time. Otherwise there are 25, always the same.
"""

from functools import wraps

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from record import SLOW

from hmmlib.inference import messages
from hmmlib.inference.evidence import lifted_size
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

COMMON = dict(deadline=None, database=None, report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow])
if SLOW:
    settings.register_profile("tests", **COMMON, max_examples=1000, print_blob=True)
else:
    settings.register_profile("tests", **COMMON, max_examples=25, derandomize=True)
settings.load_profile("tests")


def for_all(**strategies):
    """A test of each example that the strategies draw. Its attribute `held` counts the examples for which it held."""

    def decorate(check):
        @given(**strategies)
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
"""Near-zeros too, as small as whatever text of some seven tokens allows, one that contradicts itself included."""
SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 4)


@st.composite
def columns(draw, shape, entries):
    """Distributions over the first axis: free ones, one token or state for sure, all alike, or nearly so."""
    kind = draw(st.sampled_from(["free", "free", "sure", "alike", "nearly alike"]))
    size, *further = shape
    if kind == "sure":
        chosen = draw(arrays(np.int64, further, elements=st.integers(0, size - 1)))
        return np.moveaxis(np.eye(size)[chosen], -1, 0)
    if kind == "free":
        weights = draw(arrays(np.float64, shape, elements=entries))
    else:
        column = draw(arrays(np.float64, size, elements=entries))
        weights = np.broadcast_to(column.reshape(-1, *[1] * len(further)), shape).copy()
    if kind == "nearly alike":
        weights[0] *= 1 + 1e-9 * np.arange(np.prod(further, dtype=int)).reshape(further)
    weights[0] += weights.sum(0) == 0
    return weights / weights.sum(0)


@st.composite
def hmms(draw, entries=HARD, dtype=torch.float64):
    """HMMs of 1 to 4 states and 1 to 4 tokens."""
    n_states = draw(SIZES)
    n_tokens = draw(SIZES)
    transition = draw(columns((n_states, n_states), entries))
    emission = draw(columns((n_tokens, n_states), entries))
    initial = draw(columns((n_states,), entries))
    return HMM(transition, emission, initial, columns=True).to(dtype=dtype)


@st.composite
def memory_hmms(draw, entries=HARD, dtype=torch.float64):
    """Memory models of 1 to 3 cells, 1 to 3 values (at most 2 in three cells), and 1 or 2 syntax states."""
    n_cells = draw(st.integers(1, 3))
    n_values = draw(st.integers(1, min(3, 5 - n_cells)))
    n_states = n_cells * draw(st.integers(1, 2 if n_cells < 3 else 1))
    n_tokens = draw(SIZES)
    transition = draw(columns((n_states, n_states), entries))
    emission = draw(columns((n_tokens, n_values, n_states), entries))
    initial = draw(columns((n_states,), entries))
    prior = draw(columns((n_values**n_cells,), entries))
    return MemoryHMM(transition, emission, initial, prior.reshape((n_values,) * n_cells)).to(dtype=dtype)


def models(entries=HARD, dtype=torch.float64):
    return hmms(entries, dtype) | memory_hmms(entries, dtype)


@st.composite
def asked(draw, entries=HARD, dtype=torch.float64, family=models, longest=6, most=4):
    """A model and tokens (n, T) for it, n ≤ `most`: likely ones or any, with some or all of them hidden."""
    model = draw(family(entries, dtype))
    n = draw(st.integers(1, most))
    length = draw(st.integers(1, longest))
    if draw(st.booleans()):
        tokens = draw(arrays(np.int64, (n, length), elements=st.integers(MASK, model.n_tokens - 1)))
        return model, torch.as_tensor(tokens)
    hidden = torch.as_tensor(draw(arrays(np.bool_, (n, length))))
    tokens = model.sample(n, length, draw(SEEDS)).tokens
    return model, torch.where(hidden, MASK, tokens)


@st.composite
def prompted(draw, entries=HARD, dtype=torch.float64, **sizes):
    """A model, its tokens and a prompt, which is lifted where the model has a memory."""
    model, tokens = draw(asked(entries, dtype, **sizes))
    prompt = draw(arrays(np.float64, lifted_size(model), elements=entries | st.just(7.0)))
    return model, tokens, torch.as_tensor(prompt).to(model.dtype)


# What is asked of them, and how it is compared


def answers(model, tokens, prompt=None):
    """Every family of distributions that inference has to give, by name: (n, …, entries)."""
    result = {
        "G": messages.masked_token_probs(model, tokens, prompt),
        "latents": messages.latent_given_others(model, tokens, prompt),
    }
    if prompt is None:
        result["posteriors"] = messages.posteriors(model, tokens)
        for cell in range(getattr(model, "n_cells", 0)):
            result[f"memory {cell}"] = messages.memory_posterior(model, tokens, cell)
    return result


def rounding(model, length):
    """How far two ways to one result may differ, relative to it.

    Nothing is subtracted on the way, so errors only add up: one rounding unit, eps / 2, for each operation. These are,
    for each position, S + 1 to carry a message on; K, the values of the memory, to weigh and add these up; twice
    D = M * S, to divide by the sum and to read tokens off; and six more. Two ways may err by as much in opposite
    directions.
    """
    n_values = lifted_size(model) // model.n_states
    n_read = getattr(model, "n_memory", 1) * model.n_states
    operations = (length + 1) * (model.n_states + 1) + n_values + 2 * n_read + 6
    return operations * torch.finfo(model.dtype).eps


LOST = {torch.float64: 1e-100, torch.float32: 1e-30}
"""Probabilities below are not compared, because some products on the way to them leave the range of a float."""


def agree(result, expected, bound, dtype=torch.float64):
    """Both sets of `answers` are the same, relative to each number."""
    assert result.keys() == expected.keys()
    for name, probabilities in result.items():
        np.testing.assert_allclose(probabilities, expected[name], rtol=bound, atol=LOST[dtype], err_msg=name)


def agree_in_size(logarithms, expected, bound):
    """Logarithms of probabilities, whose own rounding counts too: one unit for the product and one for the sum."""
    eps = torch.finfo(logarithms.dtype).eps
    np.testing.assert_allclose(logarithms, expected, rtol=2 * eps, atol=bound + 2 * eps)
