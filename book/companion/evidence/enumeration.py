"""Witnesses that share nothing with the rest of the library: probabilities by summing over all latent paths.

NumPy only, no messages, no scaling: the joint probability of Sections 3 and 4 is written down for every path, and all
else is a sum over paths. Exponential in length, so for small models only. Of Python's fractions the results are
fractions, without rounding. `Enumeration` is for one sequence of embeddings, `Joint` for all inputs of a length.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

MOST_ENTRIES = 8_000_000


def _numbers(array) -> np.ndarray:
    """Floats, or fractions as they are."""
    array = np.asarray(array)
    return array if array.dtype == object else array.astype(float)


class Joint:
    """The joint table of memory, hidden states and tokens: an array with axes m0 … , x1 … xT, h0 … hT.

    Args:
        transition, emission, initial: A (S, S), W (X, S) or (X, M, H), P[H_0]; arrays, columns sum to 1.
        rows: one entry for each position: None for a token (its axis runs over all X tokens), or a fixed row of
            evidence (then the axis has length 1): a prompt (S,), or lifted (M, …, M, H); or ones.
        memory: joint prior of the memory cells, (M, …, M), or None for a vanilla model.

    ValueError where the table would have more than MOST_ENTRIES entries.
    """

    def __init__(self, transition, emission, initial, rows, memory=None):
        transition, emission, initial = map(_numbers, (transition, emission, initial))
        prior = np.array(1, transition.dtype) if memory is None else _numbers(memory)
        self.n_cells, self.length, self.n_states = prior.ndim, len(rows), len(initial)
        tokens = len(emission) ** sum(row is None for row in rows)
        if (count := prior.size * tokens * self.n_states ** (self.length + 1)) > MOST_ENTRIES:
            raise ValueError(f"a table of {count} entries is more than the {MOST_ENTRIES} that enumeration takes on")
        looked_up = emission if memory is None else _looked_up(emission, self.n_cells)
        cells, start = range(self.n_cells), self.n_cells + self.length  # axes of the table: m, then x, then h
        table, axes = prior[..., None] * initial, [*cells, start]
        for h, (x, row) in enumerate(enumerate(rows, self.n_cells), start + 1):
            evidence = looked_up if row is None else _numbers(row).reshape(1, *prior.shape, self.n_states)
            before, axes = axes, [*range(x + 1), *range(start, h + 1)]
            table = np.einsum(table, before, transition, [h, h - 1], evidence, [x, *cells, h], axes)
        self.table, self.inputs = table, table.shape[self.n_cells : start]

    def _axis(self, name: str) -> int:
        return {"m": 0, "x": self.n_cells - 1, "h": self.n_cells + self.length}[name[0]] + int(name[1:])

    def of(self, *names: str) -> np.ndarray:
        """The marginal table of some variables, axes in the order named: `of("x1", "h0")` is Pr(x_1, h_0)."""
        return np.einsum(self.table, range(self.table.ndim), [self._axis(name) for name in names])

    def left_out(self, i: int, *names: str) -> np.ndarray:
        """Pr(x_{-i}, names) for every input x, (inputs, …), in the order of itertools.product; x_i is a token."""
        table = self.of(*(f"x{k}" for k in range(1, self.length + 1) if k != i), *names)
        table = np.expand_dims(table, i - 1) if i else table
        table = np.broadcast_to(table, (*self.inputs, *table.shape[self.length :]))
        return table.reshape(-1, *table.shape[self.length :])

    def given_input(self, *names: str) -> np.ndarray:
        """Pr(x, names) for every input x, (inputs, …)."""
        return self.left_out(0, *names)

    def token(self, i: int) -> np.ndarray:
        """Pr(x_{-i}, X_i = z) for every input and every token z, (inputs, X)."""
        return self.left_out(i, f"x{i}")

    def cell_and_state(self, i: int) -> np.ndarray:
        """Pr(M_{J_i} = m, H_i = h, x_{-i}) for every input, (inputs, M, H); M is 1 for a vanilla model."""
        if not self.n_cells:
            return self.left_out(i, f"h{i}")[:, None]
        table, cells = self.left_out(i, *(f"m{j}" for j in range(self.n_cells)), f"h{i}"), range(self.n_cells)
        blocks = enumerate(np.split(table, self.n_cells, -1))
        return np.concatenate([block.sum(tuple(1 + k for k in cells if k != j)) for j, block in blocks], -1)


def _looked_up(emission: np.ndarray, n_cells: int) -> np.ndarray:
    """W as a function of all cells, (X, M, …, M, H): state h = (j, s) reads cell j."""
    n_tokens, n_values, n_states = emission.shape
    table = np.empty((n_tokens, *(n_values,) * n_cells, n_states), emission.dtype)
    for h in range(n_states):
        own = 1 + h // (n_states // n_cells)
        table[..., h] = np.expand_dims(emission[:, :, h], [a for a in range(1, n_cells + 1) if a != own])
    return table


class Enumeration(Joint):
    """All `n_paths` latent paths of a model for one sequence of embeddings, (T, S), or (T, M*H) with index m * H + h.

    What else is given, and the ValueError for more than MOST_ENTRIES paths, are those of `Joint`.
    """

    def __init__(self, transition, emission, initial, embeddings, memory=None):
        self.emission, rows = _numbers(emission), _numbers(embeddings)
        if memory is not None:
            rows = _looked_up(rows.reshape(-1, *self.emission.shape[1:]), np.ndim(memory))
        super().__init__(transition, emission, initial, list(rows), memory)
        self._given = lambda rows: Joint(transition, emission, initial, rows, memory)
        self.rows, self.n_paths = list(rows), self.table.size

    def _without(self, i: int) -> Joint:
        """The table without the evidence of a position, counted from 1."""
        return self._given([*self.rows[: i - 1], np.ones_like(self.rows[0]), *self.rows[i:]])

    def likelihood(self) -> float:
        """Pr(X = x)."""
        return self.table.sum()

    def state(self, at: int, leave_out: int | None = None) -> np.ndarray:
        """P[H_at, evidence], (S,); without the evidence of position `leave_out`, if given."""
        return (self._without(leave_out) if leave_out else self).of(f"h{at}")

    def masked_token(self, at: int) -> np.ndarray:
        """P[X_at, evidence of all other positions], (X,): Ḡ_at before it is normalised."""
        return self.emission.reshape(len(self.emission), -1) @ self._without(at).cell_and_state(at).ravel()


def over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The elementwise quotient; 0 where `whole` is 0, as (D.3) has 0/0 = 0."""
    return np.where(whole == 0, 0, part / np.where(whole == 0, 1, whole))


def normalised(vector: np.ndarray) -> np.ndarray:
    """The vector divided by its sum; zeros where the sum is zero."""
    return over(vector, vector.sum())


def conditional(table: np.ndarray) -> np.ndarray:
    """Each row, (rows, …), divided by its sum over all but the first axis; zeros where the sum is zero."""
    return over(table, table.sum(tuple(range(1, table.ndim)), keepdims=True))


def over_inputs(n_tokens: int, length: int, call: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """`call` of every token sequence of a length, stacked."""
    return np.stack([call(x) for x in itertools.product(range(n_tokens), repeat=length)])
