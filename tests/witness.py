"""A witness for single inputs: one forward and one backward pass for each value of the memory, in NumPy, unscaled."""

from typing import NamedTuple

import numpy as np

from hmmlib.hmm import HMM, MASK
from hmmlib.messages import lifted_size


class Pass(NamedTuple):
    """Pr(v); P[M, v], (K,); for each position i Pr(v_{-i}), (L,), and P[H_i, v_{-i}], (L, H); P[H_0, v], (H,)."""

    chance: float
    memory: np.ndarray
    left: np.ndarray
    states: np.ndarray
    start: np.ndarray


def row_of(model, token):
    """The evidence of one token for every value of the memory, (K, H)."""
    if token == MASK:
        return np.ones((lifted_size(model) // model.n_states, model.n_states))
    emission = model.emission.numpy()
    if isinstance(model, HMM):
        return emission[token][None]
    rows = np.empty((model.memory.numel(), model.n_states))
    for k, values in enumerate(np.ndindex(*model.memory.shape)):
        for h in range(model.n_states):
            rows[k, h] = emission[token, values[h // model.n_syntax], h]
    return rows


def forward_backward(model, tokens, prompt=None):
    """The pass over (prompt, tokens), or over the tokens alone; the prompt is (S,) or lifted."""
    rows = [] if prompt is None else [np.asarray(prompt, float).reshape(-1, model.n_states)]
    rows += [row_of(model, int(token)) for token in tokens]
    prior = np.ones(1) if isinstance(model, HMM) else model.memory.numpy().ravel()
    transition = model.transition.numpy()
    ahead, carried = [prior[:, None] * model.initial.numpy()], prior[:, None] * model.initial.numpy()
    for row in rows:
        ahead.append(carried @ transition.T)
        carried = ahead[-1] * row
    behind = [np.ones_like(ahead[0])]
    for row in reversed(rows):
        behind.insert(0, (behind[0] * row) @ transition)
    tau = np.stack([a * b for a, b in zip(ahead, behind, strict=True)])  # (L + 1, K, H)
    return Pass(tau[0].sum(), tau[0].sum(1), tau[1:].sum((1, 2)), tau[1:].sum(1), tau[0].sum(0))


def of_cell(model, memory, cell):
    """P[M_cell, v] from P[M, v]."""
    return np.moveaxis(memory.reshape(model.memory.shape), cell, 0).reshape(model.n_memory, -1).sum(1)


def share(part, whole):
    return part / whole if whole > 0 else 0 * part


def surely(found, states):
    """Which positions are surely in `states`, by exact zeros, (L,)."""
    outside = np.delete(found.states, states, axis=1).sum(1)
    return (found.left > 0) & (outside == 0)
