"""Models with rational entries, their probabilities without rounding, and random rational points.

An equation between probabilities that holds for all models is an identity between rational functions of the entries of
A, W, P[H_0], P[M]. A false one of degree d holds with probability at most d / DRAWN at a random point whose free entries
are drawn uniformly from DRAWN numbers (Schwartz, Zippel). Arrays here hold Python's fractions, of any size.

One kind of model serves throughout: a vanilla HMM is a memory model of one cell with one value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import lcm

import numpy as np

DRAWN = 2**61
"""From how many numbers each free entry is drawn."""

MASK = -1
"""The token that means "nothing observed here"."""


def fractions(array) -> np.ndarray:
    """An array of fractions; of floats, the rational numbers that they are."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(array))


def normalised(vector: np.ndarray) -> np.ndarray:
    """The vector divided by its sum; the zero vector stays zero."""
    return vector / vector.sum() if vector.any() else vector


def over(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The elementwise quotient; 0 where b is 0, as (D.3) has 0/0 = 0."""
    return np.where(b == 0, 0, a / np.where(b == 0, 1, b))


# Linear equations


def reduced(matrix: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The reduced row echelon form of a matrix of fractions, and the columns of its pivots."""
    rows, pivots = matrix.copy(), []
    for column in range(rows.shape[1]):
        at = len(pivots)
        nonzero = np.flatnonzero(rows[at:, column])
        if not len(nonzero):
            continue
        rows[[at, at + nonzero[0]]] = rows[[at + nonzero[0], at]]
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
    """L with L C = 1 for a matrix C of fractions. ValueError where its columns are dependent."""
    count = columns.shape[1]
    rows, pivots = reduced(np.concatenate([columns, fractions(np.eye(len(columns), dtype=int))], 1))
    if pivots[:count] != list(range(count)):
        raise ValueError("the columns are linearly dependent")
    return rows[:count, count:]


def stationary(transition: np.ndarray) -> np.ndarray:
    """The distribution π with Aπ = π. ValueError where there are several."""
    size = len(transition)
    equations = np.concatenate([transition - np.eye(size, dtype=int), np.ones((1, size), int)])
    rows, pivots = reduced(fractions(np.concatenate([equations, np.eye(size + 1, dtype=int)[:, -1:]], 1)))
    if pivots != list(range(size)):
        raise ValueError("the stationary distribution is not unique")
    return rows[:size, size]


# Models and their probabilities


@dataclass(frozen=True)
class Model:
    """`transition` A (H, H), `emission` W (X, M, H), `initial` P[H_0] (H,), `memory` P[M] (K,), K the joint values of
    all cells. State h = (j, s) has index j * |S| + s. Evidence and joint probabilities are lifted, (K, H)."""

    transition: np.ndarray
    emission: np.ndarray
    initial: np.ndarray
    memory: np.ndarray
    n_cells: int = 1

    @property
    def n_states(self) -> int:
        return len(self.initial)

    @property
    def n_values(self) -> int:
        return self.emission.shape[1]

    @cached_property
    def lookup(self) -> np.ndarray:
        """Which value each state looks up, (K, H)."""
        joint = np.array(list(product(range(self.n_values), repeat=self.n_cells)))
        return joint[:, np.arange(self.n_states) * self.n_cells // self.n_states]

    @property
    def ones(self) -> np.ndarray:
        """Nothing observed, (K, H)."""
        return np.ones(self.lookup.shape, object)

    def rows(self, tokens: Sequence[int]) -> list[np.ndarray]:
        """η(e(x)), one table for each token; ones for MASK."""
        states = np.arange(self.n_states)
        return [self.ones if x == MASK else self.emission[x][self.lookup, states] for x in tokens]

    def looked_up(self, lifted: np.ndarray) -> np.ndarray:
        """From a joint of (M, H_i), lifted, that of (M_{J_i}, H_i), (M, H)."""
        return np.stack([(lifted * (self.lookup == m)).sum(0) for m in range(self.n_values)])

    def unlift(self, lifted: np.ndarray) -> np.ndarray:
        """φ of (D.4): the mean, not the sum, over the cells that are not looked up."""
        return self.looked_up(lifted) / self.n_values ** (self.n_cells - 1)

    def of_cell(self, lifted: np.ndarray, cell: int) -> np.ndarray:
        """From a joint of (M, H_i), lifted, that of M_cell, (M,)."""
        table = lifted.sum(1).reshape((self.n_values,) * self.n_cells)
        return np.moveaxis(table, cell, 0).reshape(self.n_values, -1).sum(1)

    def mixture(self, weights: np.ndarray) -> np.ndarray:
        """W times weights of the (m, h), (X,)."""
        return self.emission.reshape(len(self.emission), -1) @ weights.ravel()


def whole(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Fractions as integers over one denominator: these add and multiply faster."""
    common = lcm(*(value.denominator for value in array.flat))
    return np.vectorize(int, otypes=[object])(array * common), common


def others(model: Model, rows: list[np.ndarray]) -> list[np.ndarray]:
    """P[M, H_i, evidence but that of position i] for i = 0, …, t, lifted: by one pass ahead and one back."""
    return [_table(*part) for part in _passes(model, rows)]


def other_than(model: Model, rows: list[np.ndarray], i: int) -> np.ndarray:
    """The same for one position; for i = 0 it is P[M, H_0, evidence]."""
    return _table(*_passes(model, rows)[i])


def _table(ahead: np.ndarray, behind: np.ndarray, denominator: int) -> np.ndarray:
    return np.vectorize(Fraction, otypes=[object])(ahead * behind, denominator)


def _passes(model: Model, rows: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """For each position the messages from both sides, in integers, and what to divide their product by."""
    (step, unit), (start, of_start), (prior, of_prior) = map(whole, (model.transition, model.initial, model.memory))
    rows, units = zip(*map(whole, rows), strict=True)
    ahead, message = [np.outer(prior, start)], np.outer(prior, start)
    for row in rows:
        ahead.append(message @ step.T)
        message = ahead[-1] * row
    behind = [whole(model.ones)[0]]
    for row in reversed(rows):
        behind.insert(0, (behind[0] * row) @ step)
    scale = of_prior * of_start * unit ** len(rows) * np.prod(np.array(units, object))
    scales = [scale, *(scale // own for own in units)]
    return list(zip(ahead, behind, scales, strict=True))


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
    return model.mixture(normalised(model.looked_up(table)))


# Random points


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
    return fractions(
        [free * Fraction(2 * k - 1 - DRAWN if signed else k, DRAWN) for free, k in zip(pattern, drawn, strict=True)]
    )


def random_pattern(rng: random.Random, size: int, zeros: float) -> list[int]:
    """A support: each entry missing with probability `zeros`, but never all."""
    certain = rng.randrange(size)
    return [int(k == certain or rng.random() >= zeros) for k in range(size)]


def possible_text(
    rng: random.Random, model: Model, length: int, wanted: Callable[[list[int]], bool] = lambda tokens: True
) -> list[int]:
    """Tokens that some path of the model emits, drawn until `wanted`: a walk along the supports."""
    while True:
        k, state, tokens = rng.choice(np.flatnonzero(model.memory)), rng.choice(np.flatnonzero(model.initial)), []
        for _ in range(length):
            state = rng.choice(np.flatnonzero(model.transition[:, state]))
            tokens.append(int(rng.choice(np.flatnonzero(model.emission[:, model.lookup[k, state], state]))))
        if wanted(tokens):
            return tokens
