"""Models with rational entries, their probabilities without rounding, and random rational points.

An equation between probabilities that holds for all models is an identity between rational functions of the entries of
A, W, P[H_0], P[M]. A false one of degree d holds with probability at most d / DRAWN at a random point whose free
entries are drawn uniformly from DRAWN numbers (Schwartz, Zippel). Arrays here hold Python's fractions, of any size.

One kind of model serves throughout: a vanilla HMM is a memory model of one cell with one value.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import lcm, prod

import numpy as np

from companion.evidence.enumeration import normalised, over

DRAWN = 2**61
"""From how many numbers each free entry is drawn."""


def fractions(array) -> np.ndarray:
    """An array of fractions; of floats, the rational numbers that they are."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(array))


def reduced(matrix: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The reduced row echelon form of a matrix of fractions, and the columns of its pivots."""
    rows, pivots = matrix.copy(), []
    for column in range(rows.shape[1]):
        at = len(pivots)
        nonzero = at + np.flatnonzero(rows[at:, column])
        if len(nonzero):
            rows[[at, nonzero[0]]] = rows[[nonzero[0], at]]
            rows[at] /= rows[at, column]
            others = np.arange(len(rows)) != at
            rows[others] -= np.outer(rows[others, column], rows[at])
            pivots.append(column)
    return rows, pivots


def rank(matrix) -> int:
    """The rank of a matrix whose entries are the rational numbers that these floats are."""
    matrix = np.asarray(matrix)
    return len(reduced(fractions(matrix))[1]) if matrix.size else 0


def left_inverse(columns: np.ndarray) -> np.ndarray:
    """L with L C = 1 for a matrix C of fractions whose columns are independent."""
    size, count = columns.shape
    return reduced(np.concatenate([columns, fractions(np.eye(size, dtype=int))], 1))[0][:count, count:]


def stationary(transition: np.ndarray) -> np.ndarray:
    """The distribution π with Aπ = π, of a chain that has one alone."""
    size = len(transition)
    equations = np.concatenate([transition - np.eye(size, dtype=int), np.ones((1, size), int)])
    return left_inverse(fractions(equations))[:, -1]


@dataclass(frozen=True)
class Model:
    """`transition` A (H, H), `emission` W (X, M, H), `initial` P[H_0] (H,), `memory` P[M] (M, …, M), one axis a cell.

    State h = (j, s) has index j * |S| + s. Evidence and joint probabilities are lifted, (K, H) with K joint values of
    all cells; axes before these may run over several texts.
    """

    transition: np.ndarray
    emission: np.ndarray
    initial: np.ndarray
    memory: np.ndarray

    @property
    def n_states(self) -> int:
        return len(self.initial)

    @cached_property
    def values(self) -> np.ndarray:
        """The value of each cell, (cells, K)."""
        return np.indices(self.memory.shape).reshape(self.memory.ndim, -1)

    @cached_property
    def lookup(self) -> np.ndarray:
        """Which value each state looks up, (K, H)."""
        return np.repeat(self.values, self.n_states // len(self.values), 0).T

    @property
    def ones(self) -> np.ndarray:
        """Nothing observed, (K, H)."""
        return np.ones(self.lookup.shape, self.initial.dtype)

    def rows(self, tokens: Sequence) -> list[np.ndarray]:
        """η(e(x)), for each position one table (K, H), or (n, K, H) where `tokens` has n tokens there."""
        return [self.emission[x][..., self.lookup, np.arange(self.n_states)] for x in tokens]

    def looked_up(self, lifted: np.ndarray) -> np.ndarray:
        """From a joint of (M, H_i), lifted, that of (M_{J_i}, H_i), (M, H)."""
        return np.stack([(lifted * (self.lookup == m)).sum(-2) for m in range(len(self.memory))], -2)

    def unlift(self, lifted: np.ndarray) -> np.ndarray:
        """φ of (D.4): the mean, not the sum, over the cells that are not looked up."""
        return self.looked_up(lifted) / len(self.memory) ** (self.memory.ndim - 1)

    def of_cell(self, lifted: np.ndarray, cell: int) -> np.ndarray:
        """From a joint of (M, H_i), lifted, that of M_cell, (M,)."""
        return np.stack([lifted[..., self.values[cell] == m, :].sum((-2, -1)) for m in range(len(self.memory))], -1)


def whole(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Fractions as integers over one denominator, which add and multiply faster; other numbers as they are, over 1."""
    if array.dtype != object:
        return array, 1
    common = lcm(*(value.denominator for value in array.flat))
    return np.vectorize(int, otypes=[object])(array * common), common


def others(model: Model, rows: list[np.ndarray]) -> Iterator[np.ndarray]:
    """P[M, H_i, evidence but that of position i] for i = 0, …, t, lifted: by one pass ahead and one back."""
    parts = np.outer(model.memory, model.initial), model.transition, *rows
    (message, step, *rows), (unit, per_step, *units) = zip(*map(whole, parts), strict=True)
    ahead, behind = [message], [model.ones]
    for row in rows:
        ahead.append(message @ step.T)
        message = ahead[-1] * row
    for row in reversed(rows):
        behind.insert(0, (behind[0] * row) @ step)
    scale = unit * per_step ** len(rows) * prod(units)
    scales = [scale, *(scale // own for own in units)]
    for a, b, own in zip(ahead, behind, scales, strict=True):
        yield a * b if scale == 1 else np.vectorize(Fraction, otypes=[object])(a * b, own)


def other_than(model: Model, rows: list[np.ndarray], i: int) -> np.ndarray:
    """The same for one position; for i = 0 it is P[M, H_0, evidence]."""
    return next(islice(others(model, rows), i, None))


def marginals(model: Model, length: int) -> list[np.ndarray]:
    """P[H_0], …, P[H_length]."""
    result = [model.initial]
    for _ in range(length):
        result.append(model.transition @ result[-1])
    return result


def reverse_kernel(transition: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """P[H_{i-1} | H_i] by Bayes' rule, rows h_{i-1}, from P[H_{i-1}] and P[H_i]."""
    return over(transition.T * before[:, None], after[None])


def tau(model: Model, rows: list[np.ndarray]) -> list[np.ndarray]:
    """τ_1, …, τ_t of (C.1) and (D.3) from the two messages that appendix C defines, for lifted embeddings (K, H)."""
    states = marginals(model, len(rows))
    prior = [np.outer(model.memory, law) for law in states]  # P[M, H_i]
    right, left = [prior[1]], [prior[-1]]
    for row in rows[:-1]:
        right.append((right[-1] * row) @ model.transition.T)
    for i in range(len(rows) - 1, 0, -1):
        left.insert(0, (left[0] * rows[i]) @ reverse_kernel(model.transition, states[i], states[i + 1]).T)
    return [over(a * b, p) for a, b, p in zip(left, right, prior[1:], strict=True)]


def prediction(model: Model, table: np.ndarray) -> np.ndarray:
    """Ḡ_i, (X,), from P[M, H_i, evidence but that of i]; the zero vector where that evidence is impossible."""
    return model.emission.reshape(len(model.emission), -1) @ normalised(model.unlift(table)).ravel()


def random_column(rng: random.Random, pattern: Sequence[int]) -> np.ndarray:
    """A distribution that is positive where the pattern is not 0; all but one of its entries are drawn freely."""
    column, free = np.zeros(len(pattern), object), [k for k, one in enumerate(pattern) if one]
    last = free.pop(rng.randrange(len(free)))
    for k in free:
        column[k] = Fraction(1 + rng.randrange(DRAWN), DRAWN * (len(free) + 1))
    column[last] = 1 - column.sum()
    return column


def random_columns(rng: random.Random, patterns: Sequence[Sequence[int]]) -> np.ndarray:
    """A matrix whose columns are random distributions on the given supports."""
    return np.stack([random_column(rng, pattern) for pattern in patterns], 1)


def random_weights(rng: random.Random, pattern: Sequence[int], signed: bool = True) -> np.ndarray:
    """A vector of this support, with entries up to 1 in size, of both signs or positive."""
    drawn = [1 + rng.randrange(DRAWN) for _ in pattern]
    return fractions([Fraction(2 * k - 1 - DRAWN if signed else k, DRAWN) for k in drawn]) * np.array(pattern)


def random_pattern(rng: random.Random, size: int, zeros: float) -> list[int]:
    """A support: each entry missing with probability `zeros`, but never all."""
    certain = rng.randrange(size)
    return [int(k == certain or rng.random() >= zeros) for k in range(size)]


def possible_text(rng: random.Random, model: Model, length: int) -> list[int]:
    """Tokens that some path of the model emits: a walk along the supports."""
    k, state, tokens = rng.choice(np.flatnonzero(model.memory)), rng.choice(np.flatnonzero(model.initial)), []
    for _ in range(length):
        state = rng.choice(np.flatnonzero(model.transition[:, state]))
        tokens.append(int(rng.choice(np.flatnonzero(model.emission[:, model.lookup[k, state], state]))))
    return tokens
