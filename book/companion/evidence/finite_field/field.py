"""Exact arithmetic modulo the prime 2**61 - 1: models at random points, and the messages of the paper, in plain integers.

An equation between probabilities that holds for all models is an identity between rational functions of the entries of
A, W, P[H_0], P[M]. So it holds modulo a prime too, where entries are drawn uniformly and nothing is rounded; and an
identity that is false holds at a random point with probability at most its degree over the prime (Schwartz, Zippel).

One kind of model serves throughout: a vanilla HMM is a memory model of one cell with one value. Messages are written
once for any `Arithmetic`; with BOOLEAN they compute supports.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from operator import mul
from typing import NamedTuple

P = 2**61 - 1
"""The prime."""

MASK = -1
"""The token that means "nothing observed here"."""

Vector = list[int]
Matrix = list[Vector]
"""A list of rows."""


class Arithmetic(NamedTuple):
    """`reduce` brings a sum or product back into range, `invert` inverts; the inverse of 0 is 0, as (D.3) has 0/0 = 0."""

    reduce: Callable[[int], int]
    invert: Callable[[int], int]


FIELD = Arithmetic(lambda v: v % P, lambda v: pow(v, -1, P) if v % P else 0)
BOOLEAN = Arithmetic(lambda v: min(v, 1), lambda v: min(v, 1))


def dot(a: Vector, b: Vector, ring: Arithmetic = FIELD) -> int:
    return ring.reduce(sum(map(mul, a, b)))


def apply(matrix: Matrix, vector: Vector, ring: Arithmetic = FIELD) -> Vector:
    return [dot(row, vector, ring) for row in matrix]


def times(a: Vector, b: Vector, ring: Arithmetic = FIELD) -> Vector:
    """The elementwise product."""
    return [ring.reduce(x * y) for x, y in zip(a, b, strict=True)]


def over(a: Vector, b: Vector) -> Vector:
    """The elementwise quotient a / b; 0 where b is 0."""
    return [x * FIELD.invert(y) % P for x, y in zip(a, b, strict=True)]


def scaled(vector: Vector, factor: int) -> Vector:
    return [v * factor % P for v in vector]


def normalised(vector: Vector) -> Vector:
    """The vector divided by its sum; the zero vector stays zero. ValueError for another vector whose sum is 0."""
    return scaled(vector, pow(sum(vector) % P, -1, P)) if any(vector) else vector


def share(joint: int, given: int) -> int:
    """A conditional probability joint / given. ValueError where `given` is 0."""
    return joint * pow(given, -1, P) % P


def mismatches(left: Sequence[int], right: Sequence[int]) -> int:
    """In how many entries two vectors differ modulo P."""
    return sum((a - b) % P != 0 for a, b in zip(left, right, strict=True))


# Linear equations


def reduced(matrix: Matrix) -> tuple[Matrix, list[int]]:
    """The reduced row echelon form of a matrix, and the columns of its pivots."""
    rows, pivots = [list(row) for row in matrix], []
    for column in range(len(rows[0])):
        at = len(pivots)
        pivot = next((r for r in range(at, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = scaled(rows[at], pow(rows[at][column], -1, P))
        for r, row in enumerate(rows):
            if r != at and row[column]:
                rows[r] = [(v - row[column] * w) % P for v, w in zip(row, rows[at], strict=True)]
        pivots.append(column)
    return rows, pivots


def basis(vectors: list[Vector]) -> list[Vector]:
    """The vectors that no vectors before them span."""
    if not vectors:
        return []
    _, pivots = reduced([list(row) for row in zip(*vectors, strict=True)])
    return [vectors[k] for k in pivots]


def left_inverse(columns: list[Vector]) -> Matrix:
    """L with L C = 1, for the matrix C of these columns. ValueError where they are dependent."""
    count, size = len(columns), len(columns[0])
    rows, pivots = reduced(
        [[c[r] for c in columns] + [int(r == other) for other in range(size)] for r in range(size)],
    )
    if pivots[:count] != list(range(count)):
        raise ValueError("the columns are linearly dependent modulo P")
    return [row[count:] for row in rows[:count]]


def stationary(transition: Matrix) -> Vector:
    """The vector π with Aπ = π and sum 1. ValueError where there are several."""
    size = len(transition)
    equations = [[a - (r == h) for h, a in enumerate(row)] + [0] for r, row in enumerate(transition)]
    rows, pivots = reduced([*equations, [1] * (size + 1)])
    if pivots != list(range(size)):
        raise ValueError("the stationary vector is not unique modulo P")
    return [row[size] for row in rows[:size]]


# Models


@dataclass(frozen=True)
class Model:
    """A memory model over a field, or the supports of one.

    `transition` A[h'][h] (H, H); `emission` W[x][m * H + h] (X, M*H); `initial` P[H_0] (H,); `memory` P[M], flat over
    the joint values (m_1, …, m_N), (M^N,). States h = (j, s) have index j * n_syntax + s. Lifted vectors (M^N * H,)
    have index k * H + h for joint value k.
    """

    transition: Matrix
    emission: Matrix
    initial: Vector
    memory: Vector
    n_values: int = 1
    n_cells: int = 1

    @property
    def n_states(self) -> int:
        return len(self.initial)

    @property
    def n_tokens(self) -> int:
        return len(self.emission)

    @property
    def n_syntax(self) -> int:
        return self.n_states // self.n_cells

    @cached_property
    def lookup(self) -> list[int]:
        """For each lifted index the index m_j * H + h of the column of W that it emits from."""
        joint = product(range(self.n_values), repeat=self.n_cells)
        n = self.n_states
        return [values[h // self.n_syntax] * n + h for values in joint for h in range(n)]

    def lift(self, row: Vector) -> Vector:
        """η of appendix D.2: (M*H,) to (M^N * H,)."""
        return [row[column] for column in self.lookup]

    def looked_up(self, lifted: Vector, ring: Arithmetic = FIELD) -> Vector:
        """From a joint of (M, H_i), lifted, that of (M_{J_i}, H_i), (M*H,)."""
        result = [0] * (self.n_values * self.n_states)
        for column, value in zip(self.lookup, lifted, strict=True):
            result[column] += value
        return [ring.reduce(v) for v in result]

    def unlift(self, lifted: Vector, ring: Arithmetic = FIELD) -> Vector:
        """φ of (D.4): the mean, not the sum, over the cells that are not looked up."""
        share = ring.invert(self.n_values ** (self.n_cells - 1))
        return [ring.reduce(v * share) for v in self.looked_up(lifted, ring)]

    def of_cell(self, lifted: Vector, cell: int) -> Vector:
        """From a joint of (M, H_i), lifted, that of M_cell, (M,)."""
        result = [0] * self.n_values
        joint = list(product(range(self.n_values), repeat=self.n_cells))
        for index, value in enumerate(lifted):
            result[joint[index // self.n_states][cell]] += value
        return [v % P for v in result]

    def column(self, value: int, state: int) -> Vector:
        """W_{:,(m,h)}, (X,)."""
        return [row[value * self.n_states + state] for row in self.emission]

    def evidence(self, tokens: Sequence[int]) -> Matrix:
        """Lifted proper embeddings η(e(x)), one row for each token; ones for MASK."""
        ones = [1] * len(self.lookup)
        return [ones if x == MASK else self.lift(self.emission[x]) for x in tokens]

    def as_pattern(self) -> Model:
        """The same model with 1 for every entry that is not zero."""
        matrices = ([[min(v, 1) for v in row] for row in matrix] for matrix in (self.transition, self.emission))
        vectors = ([min(v, 1) for v in vector] for vector in (self.initial, self.memory))
        return Model(*matrices, *vectors, self.n_values, self.n_cells)


# Messages


def marginals(model: Model, length: int, ring: Arithmetic = FIELD) -> Matrix:
    """P[H_0], …, P[H_length]."""
    result = [model.initial]
    for _ in range(length):
        result.append(apply(model.transition, result[-1], ring))
    return result


def reverse_kernel(transition: Matrix, before: Vector, after: Vector, ring: Arithmetic = FIELD) -> Matrix:
    """P[H_{i-1} | H_i] by Bayes' rule, rows h_{i-1}, from P[H_{i-1}] and P[H_i]."""
    inverse = [ring.invert(v) for v in after]
    columns = zip(*transition, strict=True)
    return [
        [ring.reduce(a * b * v) for a, v in zip(column, inverse, strict=True)]
        for column, b in zip(columns, before, strict=True)
    ]


def right_messages(model: Model, first: Vector, rows: Matrix, ring: Arithmetic = FIELD) -> Matrix:
    """The messages δ from i-1 to i of appendix C, for i = 1, …, t, from the first, P[H_1]."""
    messages = [first]
    for row in rows[:-1]:
        messages.append(apply(model.transition, times(messages[-1], row, ring), ring))
    return messages


def left_messages(kernels: list[Matrix], last: Vector, rows: Matrix, ring: Arithmetic = FIELD) -> Matrix:
    """The messages δ from i+1 to i of appendix C, for i = 1, …, t, from the last, P[H_t]; kernels[i] leads from H_i back."""
    messages = [last]
    for i in range(len(rows), 1, -1):
        messages.append(apply(kernels[i], times(messages[-1], rows[i - 1], ring), ring))
    return messages[::-1]


def tau(model: Model, rows: Matrix, ring: Arithmetic = FIELD) -> Matrix:
    """τ_1, …, τ_t of (C.1) and (D.3), as the paper defines them, for lifted embeddings (t, M^N * H)."""
    n, states = model.n_states, marginals(model, len(rows), ring)
    kernels = [[], *(reverse_kernel(model.transition, *pair, ring) for pair in pairwise(states))]
    result: Matrix = [[] for _ in rows]
    for k, weight in enumerate(model.memory):
        block = [row[k * n : (k + 1) * n] for row in rows]
        prior = [[ring.reduce(weight * v) for v in vector] for vector in states[1:]]  # P[M = k, H_i]
        right = right_messages(model, prior[0], block, ring)
        left = left_messages(kernels, prior[-1], block, ring)
        for i, total in enumerate(prior):
            inverse = [ring.invert(v) for v in total]
            result[i] += times(times(left[i], right[i], ring), inverse, ring)
    return result


def masked_token_probs(model: Model, rows: Matrix) -> Matrix:
    """Ḡ of appendices C and D.2, (t, X): W φ(τ_i) divided by the sum of φ(τ_i); the zero vector where that is zero."""
    return [apply(model.emission, normalised(model.unlift(vector))) for vector in tau(model, rows)]


def joint(model: Model, rows: Matrix, at: int) -> Vector:
    """P[M, H_at, evidence], lifted, by products of A and diagonal matrices alone; `at` from 0 to t."""
    n, result = model.n_states, []
    columns = [list(c) for c in zip(*model.transition, strict=True)]
    for k, weight in enumerate(model.memory):
        block = [row[k * n : (k + 1) * n] for row in rows]
        ahead, back = scaled(model.initial, weight), [1] * n
        for row in block[:at]:
            ahead = times(apply(model.transition, ahead), row)
        for row in reversed(block[at:]):
            back = apply(columns, times(back, row))
        result += times(ahead, back)
    return result


def without(rows: Matrix, i: int) -> Matrix:
    """The evidence with nothing observed at position i (from 1)."""
    return [*rows[: i - 1], [1] * len(rows[0]), *rows[i:]]


# Random points


def random_column(rng: random.Random, pattern: Sequence[int]) -> Vector:
    """Uniform among the vectors that sum to 1 and are 0 where the pattern is 0."""
    column = [rng.randrange(P) if free else 0 for free in pattern]
    last = max(k for k, free in enumerate(pattern) if free)
    column[last] = (1 - sum(column) + column[last]) % P
    return column


def random_vector(rng: random.Random, pattern: Vector) -> Vector:
    """Uniform among the vectors with this support."""
    return [rng.randrange(1, P) if free else 0 for free in pattern]


def random_columns(rng: random.Random, patterns: Sequence[Sequence[int]]) -> Matrix:
    """A matrix whose columns are random on the given supports."""
    return [list(row) for row in zip(*(random_column(rng, pattern) for pattern in patterns), strict=True)]


def random_pattern(rng: random.Random, size: int, zeros: float) -> Vector:
    """A support: each entry missing with probability `zeros`, but never all."""
    kept = rng.randrange(size)
    return [int(k == kept or rng.random() >= zeros) for k in range(size)]


def full(size: int, count: int) -> Matrix:
    """`count` full supports."""
    return [[1] * size] * count


def possible_input(
    rng: random.Random, model: Model, length: int, wanted: Callable[[list[int]], bool] = lambda tokens: True
) -> list[int]:
    """Tokens that some path of the model emits, drawn until `wanted`: a walk along the supports."""

    def draw(weights: Sequence[int]) -> int:
        return rng.choice([k for k, weight in enumerate(weights) if weight])

    while True:
        k, state, tokens = draw(model.memory), draw(model.initial), []
        for _ in range(length):
            state = draw([row[state] for row in model.transition])
            column = model.lookup[k * model.n_states + state]
            tokens.append(draw([row[column] for row in model.emission]))
        if wanted(tokens):
            return tokens
