"""A witness that shares nothing with the rest of the library: probabilities by summing over all latent paths.

NumPy only, no messages, no scaling: the joint probability of Sections 3 and 4 is written down for every path of memory
values and hidden states, and everything else is a sum over paths. Exponential in length, so for small models only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

MOST_PATHS = 2_000_000


class Enumeration:
    """All latent paths of a model for one sequence of embeddings.

    Args:
        transition, emission, initial: A (S, S), W (X, S) or (X, M, H), P[H_0]; arrays, columns sum to 1.
        embeddings: (T, S), or (T, M*H) with index m * H + h.
        memory: joint prior of the memory cells, (M, …, M), or None for a vanilla model.

    ValueError where there are more than MOST_PATHS paths.
    """

    def __init__(self, transition, emission, initial, embeddings, memory=None):
        transition, emission, initial = (np.asarray(part, dtype=float) for part in (transition, emission, initial))
        prior = np.ones(1) if memory is None else np.asarray(memory, dtype=float)
        n_states, n_cells, n_values = len(initial), prior.ndim, prior.shape[0]
        embeddings = np.asarray(embeddings, dtype=float)
        count = n_states ** (len(embeddings) + 1) * prior.size
        if count > MOST_PATHS:
            raise ValueError(f"{count} latent paths are more than the {MOST_PATHS} that enumeration takes on")
        table = embeddings.reshape(len(embeddings), n_values, n_states)
        self.emission = emission.reshape(len(emission), n_values, n_states)
        chains = np.array(list(itertools.product(range(n_states), repeat=len(embeddings) + 1)))
        cells = chains // (n_states // n_cells)  # J_i along each chain
        weight = initial[chains[:, 0]] * transition[chains[:, 1:], chains[:, :-1]].prod(1)
        states, values, rows, weights, memories = [], [], [], [], []
        for cell_values in itertools.product(range(n_values), repeat=n_cells):
            looked_up = np.array(cell_values)[cells]
            states.append(chains)
            values.append(looked_up)
            memories.append(np.tile(cell_values, (len(chains), 1)))
            rows.append(table[np.arange(len(embeddings)), looked_up[:, 1:], chains[:, 1:]])
            weights.append(prior[cell_values] * weight)
        self.states, self.values, self.memories = map(np.concatenate, (states, values, memories))
        self.rows, self.prior_weight = np.concatenate(rows), np.concatenate(weights)
        self.n_states, self.n_values = n_states, n_values

    def weight(self, leave_out: int | None = None) -> np.ndarray:
        """Joint probability of each path and the evidence, but for that of position `leave_out` (counted from 1)."""
        rows = self.rows if leave_out is None else np.delete(self.rows, leave_out - 1, axis=1)
        return self.prior_weight * rows.prod(1)

    def likelihood(self) -> float:
        """Pr(X = x)."""
        return self.weight().sum()

    def state(self, at: int, leave_out: int | None = None) -> np.ndarray:
        """P[H_at, evidence], (S,); without the evidence of position `leave_out`, if given."""
        return np.bincount(self.states[:, at], self.weight(leave_out), self.n_states)

    def memory(self, cell: int) -> np.ndarray:
        """P[M_cell, evidence], (M,)."""
        return np.bincount(self.memories[:, cell], self.weight(), self.n_values)

    def masked_token(self, at: int) -> np.ndarray:
        """P[X_at, evidence of all other positions], (X,): Ḡ_at before it is normalised."""
        return self.emission[:, self.values[:, at], self.states[:, at]] @ self.weight(leave_out=at)


def normalised(vector: np.ndarray) -> np.ndarray:
    """The vector divided by its sum; zeros where the sum is zero."""
    total = vector.sum()
    return vector / total if total > 0 else vector


def over_inputs(n_tokens: int, length: int, call: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """`call` of every token sequence of a length, stacked."""
    return np.stack([call(x) for x in itertools.product(range(n_tokens), repeat=length)])
