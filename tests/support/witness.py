"""A witness for single inputs: one forward and one backward pass for each value of the memory, in NumPy, unscaled. In
floats, or in any numbers that add and multiply: Python's integers are exact, zeros and ones say what is possible."""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hmmlib.inference.messages import lifted_size
from hmmlib.models.hmm import HMM
from hmmlib.validation import MASK

UNIT = 2**1074
"""Every float is a multiple of 1 / UNIT."""


def whole(values):
    """Floats times UNIT, as Python integers: sums and products of them are exact."""
    return np.vectorize(lambda value: int(Fraction(value) * UNIT), otypes=[object])(np.asarray(values))


def ratio(values, total):
    """Floats from Python integers of any size; 0 for 0 alone, the smallest float for what rounds to it."""
    return [(v / total or math.ulp(0.0)) if v else 0.0 for v in values]  # Python rounds the quotient of integers once


class Pass(NamedTuple):
    """Pr(v); P[M, v], (K,); for each position i Pr(v_{-i}), (L,), and P[H_i, v_{-i}], (L, H); P[H_0, v], (H,);
    `looked_up` P[M_{J_i}, H_i, v_{-i}], (L, M, H), M = 1 without memory; `joint` P[H_i, v] from H_0 on, (L + 1, H)."""

    chance: float
    memory: np.ndarray
    left: np.ndarray
    states: np.ndarray
    start: np.ndarray
    looked_up: np.ndarray
    joint: np.ndarray


def values_of(model):
    """Which value of the memory each state looks up, for each joint value of all cells, (K, H); else zeros."""
    if isinstance(model, HMM):
        return np.zeros((1, model.n_states), int)
    cells = np.arange(model.n_states) // model.n_syntax
    return np.array(list(np.ndindex(*model.memory.shape)))[:, cells]


def row_of(model, token):
    """The evidence of one token for every value of the memory, (K, H)."""
    if token == MASK:
        return np.ones((lifted_size(model) // model.n_states, model.n_states))
    emission = model.emission.numpy().reshape(model.n_tokens, -1, model.n_states)
    return emission[token, values_of(model), range(model.n_states)]


def forward_backward(model, tokens, prompt=None, number=np.asarray):
    """The pass over (prompt, tokens), or over the tokens alone; the prompt is (S,) or lifted; `number` turns floats
    into whatever is to be computed with."""
    rows = [] if prompt is None else [np.asarray(prompt, float).reshape(-1, model.n_states)]
    rows = [number(row) for row in [*rows, *(row_of(model, int(token)) for token in tokens)]]
    prior = number(np.ones(1) if isinstance(model, HMM) else model.memory.numpy().ravel())
    transition, initial = number(model.transition.numpy()), number(model.initial.numpy())
    ahead, carried = [prior[:, None] * initial], prior[:, None] * initial
    for row in rows:
        ahead.append(carried @ transition.T)
        carried = ahead[-1] * row
    behind = [np.ones_like(ahead[0])]
    for row in reversed(rows):
        behind.insert(0, (behind[0] * row) @ transition)
    tau = np.stack([a * b for a, b in zip(ahead, behind, strict=True)])  # (L + 1, K, H)
    states = tau.sum(1)
    # An axis at a time: sums of Python's integers have no other way.
    at_value = [(tau[1:] * (values_of(model) == m)).sum(1) for m in range(getattr(model, "n_memory", 1))]
    joint = np.stack([states[0], *((t * row).sum(0) for t, row in zip(tau[1:], rows, strict=True))])
    total = states.sum(1)
    return Pass(total[0], tau[0].sum(1), total[1:], states[1:], states[0], np.stack(at_value, 1), joint)


def of_cell(model, memory, cell):
    """P[M_cell, v] from P[M, v]."""
    return np.moveaxis(memory.reshape(model.memory.shape), cell, 0).reshape(model.n_memory, -1).sum(1)


def share(part, whole):
    return part / whole if whole > 0 else 0 * part


def surely(found, states):
    """Which positions are surely in `states`, by exact zeros, (L,)."""
    return (found.left > 0) & (np.delete(found.states, states, axis=1).sum(1) == 0)
