"""Models with rational entries, their probabilities without rounding, and random rational points.

An equation between probabilities that holds for all models is an identity between rational functions of the entries of
A, W, P[H_0] and P[M]. A false identity of degree d holds with probability at most d / DRAWN at a random point whose
free entries are drawn uniformly from DRAWN numbers (Schwartz, Zippel). Arrays in this module hold Python's fractions,
of any size.

One kind of model serves throughout, because a vanilla HMM is a memory model of one cell with one value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from hmmbook.evidence.enumeration import normalised, over

DRAWN = 2**61
"""From how many numbers each free entry is drawn."""


# Linear algebra


def fractions(array) -> np.ndarray:
    """Return an array of fractions. Floats become the rational numbers that they are."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(array))


def echelon_form(matrix: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return the reduced row echelon form of a matrix of fractions, and the columns of its pivots."""
    rows = matrix.copy()
    pivots = []
    for column in range(rows.shape[1]):
        top = len(pivots)
        candidates = top + np.flatnonzero(rows[top:, column])
        if len(candidates) == 0:
            continue
        pivot = candidates[0]
        rows[[top, pivot]] = rows[[pivot, top]]
        rows[top] /= rows[top, column]
        is_other = np.arange(len(rows)) != top
        rows[is_other] -= np.outer(rows[is_other, column], rows[top])
        pivots.append(column)
    return rows, pivots


def rank(matrix) -> int:
    """Return the rank of a matrix whose entries are the rational numbers that these floats are."""
    matrix = np.asarray(matrix)
    if matrix.size == 0:
        return 0
    return len(echelon_form(fractions(matrix))[1])


def left_inverse(columns: np.ndarray) -> np.ndarray:
    """Return L with L C = 1 for a matrix C of fractions whose columns are independent."""
    size, count = columns.shape
    identity = fractions(np.eye(size, dtype=int))
    form, _ = echelon_form(np.concatenate([columns, identity], 1))
    return form[:count, count:]


def stationary(transition: np.ndarray) -> np.ndarray:
    """Return the distribution π with Aπ = π, of a chain that has only one."""
    size = len(transition)
    stays = transition - np.eye(size, dtype=int)
    sums_to_1 = np.ones((1, size), int)
    equations = np.concatenate([stays, sums_to_1])
    return left_inverse(fractions(equations))[:, -1]


# A model and its probabilities


@dataclass(frozen=True)
class Model:
    """A memory model, or a vanilla HMM as one with a single memory value.

    State h = (j, s) has index j * |S| + s. Evidence and joint probabilities are *lifted*, (K, H), with K joint values
    of all cells. Axes before these may run over several texts.
    """

    transition: np.ndarray  # A, (H, H)
    emission: np.ndarray  # W, (X, M, H)
    initial: np.ndarray  # P[H_0], (H,)
    memory: np.ndarray  # P[M], (M, …, M), one axis for each cell

    @property
    def n_states(self) -> int:
        """|H|, with the cell that a state looks up."""
        return len(self.initial)

    @cached_property
    def values(self) -> np.ndarray:
        """The value of each cell for each joint value of the memory, (cells, K)."""
        return np.indices(self.memory.shape).reshape(self.memory.ndim, -1)

    @cached_property
    def lookup(self) -> np.ndarray:
        """Which value each state looks up, (K, H)."""
        states_of_a_cell = self.n_states // len(self.values)
        return np.repeat(self.values, states_of_a_cell, axis=0).T

    @property
    def ones(self) -> np.ndarray:
        """The evidence of a position where nothing is observed, (K, H)."""
        return np.ones(self.lookup.shape, self.initial.dtype)

    def rows(self, tokens: Sequence) -> list[np.ndarray]:
        """Return η(e(x)): a table (K, H) for each position, or (n, K, H) where `tokens` has n tokens there."""
        states = np.arange(self.n_states)
        return [self.emission[x][..., self.lookup, states] for x in tokens]

    def looked_up(self, lifted: np.ndarray) -> np.ndarray:
        """From a joint of (M, H_i), lifted, return that of (M_{J_i}, H_i), (M, H)."""
        by_value = [(lifted * (self.lookup == m)).sum(-2) for m in range(len(self.memory))]
        return np.stack(by_value, -2)

    def unlift(self, lifted: np.ndarray) -> np.ndarray:
        """Return φ of (D.4): the mean, not the sum, over the cells that are not looked up."""
        return self.looked_up(lifted) / len(self.memory) ** (self.memory.ndim - 1)

    def of_cell(self, lifted: np.ndarray, cell: int) -> np.ndarray:
        """From a joint of (M, H_i), lifted, return that of M_cell, (M,)."""
        by_value = [lifted[..., self.values[cell] == m, :].sum((-2, -1)) for m in range(len(self.memory))]
        return np.stack(by_value, -1)


def latent_joints(model: Model, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Return P[M, H_i, evidence but that of position i] for i = 0, …, t, lifted, by one pass ahead and one back."""
    message = np.outer(model.memory, model.initial)
    ahead = [message]
    for row in rows:
        ahead.append(message @ model.transition.T)
        message = ahead[-1] * row
    behind = [model.ones]
    for row in reversed(rows):
        behind.append((behind[-1] * row) @ model.transition)
    behind.reverse()
    return [a * b for a, b in zip(ahead, behind, strict=True)]


def marginals(model: Model, length: int) -> list[np.ndarray]:
    """Return P[H_0], …, P[H_length]."""
    laws = [model.initial]
    for _ in range(length):
        laws.append(model.transition @ laws[-1])
    return laws


def reverse_kernel(transition: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return P[H_{i-1} | H_i] by Bayes' rule, with a row for each h_{i-1}, from P[H_{i-1}] and P[H_i]."""
    return over(transition.T * before[:, None], after[None])


def tau(model: Model, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Return τ_1, …, τ_t of (C.1) and (D.3) from the two messages that appendix C defines, for lifted evidence."""
    states = marginals(model, len(rows))
    prior = [np.outer(model.memory, law) for law in states]  # P[M, H_i]
    right_messages = [prior[1]]
    for row in rows[:-1]:
        right_messages.append((right_messages[-1] * row) @ model.transition.T)
    left_messages = [prior[-1]]
    for i in range(len(rows) - 1, 0, -1):
        backwards = reverse_kernel(model.transition, states[i], states[i + 1])
        left_messages.append((left_messages[-1] * rows[i]) @ backwards.T)
    left_messages.reverse()
    return [over(a * b, p) for a, b, p in zip(left_messages, right_messages, prior[1:], strict=True)]


def prediction(model: Model, table: np.ndarray) -> np.ndarray:
    """Return Ḡ_i, (X,), from P[M, H_i, evidence but that of i]. It is zero where that evidence is impossible."""
    columns = model.emission.reshape(len(model.emission), -1)
    return columns @ normalised(model.unlift(table)).ravel()


# Random points


def random_column(rng: random.Random, pattern: Sequence[int]) -> np.ndarray:
    """Draw a distribution that is positive where the pattern is not 0. All but one of its entries are drawn freely."""
    column = np.zeros(len(pattern), object)
    free = np.flatnonzero(pattern).tolist()
    last = free.pop(rng.randrange(len(free)))
    for k in free:
        column[k] = Fraction(1 + rng.randrange(DRAWN), DRAWN * (len(free) + 1))
    column[last] = 1 - column.sum()
    return column


def random_columns(rng: random.Random, patterns: Sequence[Sequence[int]]) -> np.ndarray:
    """Draw a matrix whose columns are random distributions on the given supports."""
    columns = [random_column(rng, pattern) for pattern in patterns]
    return np.stack(columns, 1)


def random_weights(rng: random.Random, pattern: Sequence[int], signed: bool = True) -> np.ndarray:
    """Draw a vector of this support, with entries up to 1 in size, of both signs or positive."""
    numerators = np.array([1 + rng.randrange(DRAWN) for _ in pattern], object)
    if signed:
        numerators = 2 * numerators - 1 - DRAWN
    return fractions(numerators) / DRAWN * np.array(pattern)


def random_pattern(rng: random.Random, size: int, zeros: float) -> list[int]:
    """Draw a support. Each entry is missing with probability `zeros`, but one is always there."""
    pattern = [1] * size
    certain = rng.randrange(size)
    for k in range(size):
        if k != certain and rng.random() < zeros:
            pattern[k] = 0
    return pattern


def possible_text(rng: random.Random, model: Model, length: int) -> list[int]:
    """Draw tokens that some path of the model emits, by a walk along the supports."""

    def one_of(entries: np.ndarray) -> int:
        return int(rng.choice(np.flatnonzero(entries)))

    k = one_of(model.memory)
    state = one_of(model.initial)
    tokens = []
    for _ in range(length):
        state = one_of(model.transition[:, state])
        value = model.lookup[k, state]
        tokens.append(one_of(model.emission[:, value, state]))
    return tokens
