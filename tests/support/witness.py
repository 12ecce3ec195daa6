"""A witness for single texts: one forward and one backward pass for each value of the memory, in NumPy, unscaled.

It computes in floats, or in any numbers that add and multiply. Python's integers are exact, and zeros and ones say what
is possible.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hmmlib.inference.evidence import lifted_size
from hmmlib.models.hmm import HMM
from hmmlib.validation import MASK

UNIT = 2**1074
"""Every float is a multiple of 1 / UNIT."""


def whole(values):
    """Floats times UNIT, as Python integers. Sums and products of them are exact."""
    times_unit = np.vectorize(lambda value: int(Fraction(value) * UNIT), otypes=[object])
    return times_unit(np.asarray(values))


def ratio(values, total):
    """Quotients of Python integers of any size, as floats, rounded once. Only zero gives zero."""
    quotients = []
    for value in values:
        if value == 0:
            quotients.append(0.0)
        else:
            quotients.append(value / total or math.ulp(0.0))
    return quotients


class Pass(NamedTuple):
    """What the two passes over evidence v at L positions give. The memory has K joint values, and each cell M."""

    chance: float
    """Pr(v)"""
    memory: np.ndarray
    """P[M, v], (K,)"""
    left: np.ndarray
    """Pr(v_{-i}) for each position i, (L,)"""
    states: np.ndarray
    """P[H_i, v_{-i}], (L, H)"""
    start: np.ndarray
    """P[H_0, v], (H,)"""
    looked_up: np.ndarray
    """P[M_{J_i}, H_i, v_{-i}], (L, M, H). M is 1 without memory."""
    joint: np.ndarray
    """P[H_i, v] from H_0 on, (L + 1, H)"""


def values_of(model):
    """Which value of the memory each state looks up, for each joint value of all cells, (K, H); else zeros."""
    if isinstance(model, HMM):
        return np.zeros((1, model.n_states), int)
    cells = np.arange(model.n_states) // model.n_syntax
    joint_values = np.array(list(np.ndindex(*model.memory.shape)))
    return joint_values[:, cells]


def row_of(model, token):
    """The evidence of one token for every value of the memory, (K, H)."""
    if token == MASK:
        return np.ones((lifted_size(model) // model.n_states, model.n_states))
    emission = model.emission.numpy().reshape(model.n_tokens, -1, model.n_states)
    return emission[token, values_of(model), range(model.n_states)]


def forward_backward(model, tokens, prompt=None, number=np.asarray):
    """The passes over tokens, or over a prompt and tokens.

    The prompt is (S,) or lifted. The function `number` turns floats into whatever is to be computed with.
    """
    rows = []
    if prompt is not None:
        rows.append(number(np.asarray(prompt, float).reshape(-1, model.n_states)))
    for token in tokens:
        rows.append(number(row_of(model, int(token))))
    transition = number(model.transition.numpy())
    initial = number(model.initial.numpy())
    memory = np.ones(1) if isinstance(model, HMM) else model.memory.numpy()
    prior = number(memory.ravel())

    from_left = [prior[:, None] * initial]
    message = from_left[0]
    for row in rows:
        from_left.append(message @ transition.T)
        message = from_left[-1] * row
    from_right = [np.ones_like(from_left[0])]
    for row in reversed(rows):
        from_right.insert(0, (from_right[0] * row) @ transition)
    tau = np.stack(from_left) * np.stack(from_right)  # (L + 1, K, H)

    # One axis at a time is summed over, because Python's integers have no other way.
    states = tau.sum(1)
    totals = states.sum(1)
    looked_up = []
    for m in range(getattr(model, "n_memory", 1)):
        looks_up = values_of(model) == m
        looked_up.append((tau[1:] * looks_up).sum(1))
    joint = [states[0]]
    for message, row in zip(tau[1:], rows, strict=True):
        joint.append((message * row).sum(0))
    return Pass(
        chance=totals[0],
        memory=tau[0].sum(1),
        left=totals[1:],
        states=states[1:],
        start=states[0],
        looked_up=np.stack(looked_up, 1),
        joint=np.stack(joint),
    )


def of_cell(model, memory, cell):
    """P[M_cell, v] from P[M, v]."""
    by_value = np.moveaxis(memory.reshape(model.memory.shape), cell, 0)
    return by_value.reshape(model.n_memory, -1).sum(1)


def share(part, total):
    return part / total if total > 0 else 0 * part


def surely(passed, states):
    """Which positions are surely in `states`, by exact zeros, (L,)."""
    elsewhere = np.delete(passed.states, states, axis=1).sum(1)
    return (passed.left > 0) & (elsewhere == 0)
