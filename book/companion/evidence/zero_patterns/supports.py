"""The zeros of models, inputs and messages, for all of a size, where 1 stands for every entry that is positive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from companion.evidence.exact.rational import Model, others


def supports(model: Model, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Where P[H̃_i, evidence but that of i] > 0, for i = 0, …, t and n inputs at once, (n, K, H) each."""
    return [table > 0 for table in np.broadcast_arrays(*others(model, rows))]


def anywhere(tables: np.ndarray) -> np.ndarray:
    """Of tables (…, A, B), those with an entry that is not zero."""
    return tables.any((-2, -1))


def binary(size: int) -> np.ndarray:
    """All patterns of this size, (2^size, size), pattern k with bit b of k at b."""
    return np.arange(1 << size)[:, None] >> np.arange(size) & 1


def subsets(allowed: np.ndarray) -> np.ndarray:
    """The nonempty subsets of a set, each as an indicator, the whole set first."""
    every = binary(len(allowed))[:0:-1].astype(bool)
    return every[~(every & ~allowed).any(1)]


def members(indicator: np.ndarray) -> list[int]:
    return np.flatnonzero(indicator).tolist()


# Models and inputs


def ergodic(transition: np.ndarray) -> bool:
    """Whether A is primitive: then this power of it has no zero (Wielandt 1950)."""
    return (np.linalg.matrix_power(transition, (len(transition) - 1) ** 2 + 1) > 0).all()


def stays_full(transition: np.ndarray) -> bool:
    """Whether every P[H_i] has full support when P[H_0] has: no row of A is zero."""
    return transition.any(1).all()


def matrices(n_states: int, wanted: Callable[[np.ndarray], bool] = ergodic) -> list[np.ndarray]:
    """All supports of A that are `wanted`; none of their columns is zero."""
    columns = 1 + np.indices(((1 << n_states) - 1,) * n_states).reshape(n_states, -1)
    return [matrix.T for matrix in binary(n_states)[columns.T] if wanted(matrix.T)]


def up_to_relabelling(matrices: list[np.ndarray]) -> list[np.ndarray]:
    """One support of A for each class of those that a permutation of the states takes into each other."""

    def code(matrix: np.ndarray) -> tuple[int, ...]:
        return tuple((1 << np.arange(len(matrix))) @ matrix)

    orders = list(permutations(range(len(matrices[0]))))
    return [a for a in matrices if code(a) == min(code(a[np.ix_(order, order)]) for order in orders)]


@dataclass(frozen=True)
class Size:
    """All models of one size and all inputs of some lengths; `reduced`: A up to relabelling, P[M] of full support."""

    n_states: int
    lengths: tuple[int, ...]
    n_cells: int = 1
    n_values: int = 1
    wanted: Callable[[np.ndarray], bool] = ergodic
    reduced: bool = False

    def models(self) -> Iterator[Model]:
        """Every A and P[M], of ones and zeros; P[H_0] is full, and each possible row of W is a token's."""
        shape = (self.n_values,) * self.n_cells
        rows = binary(self.n_values * self.n_states).reshape(-1, self.n_values, self.n_states)
        transitions = matrices(self.n_states, self.wanted)
        memories = subsets(np.ones(shape, bool).ravel()).astype(float)
        for transition in up_to_relabelling(transitions) if self.reduced else transitions:
            for memory in memories[:1] if self.reduced else memories:
                yield Model(transition.astype(float), rows, np.ones(self.n_states), memory.reshape(shape))

    def inputs(self) -> list[np.ndarray]:
        """For each length every sequence of rows of W, (length, n)."""
        return [np.indices((1 << self.n_values * self.n_states,) * t).reshape(t, -1) for t in self.lengths]

    def __str__(self) -> str:
        chain = "ergodic A" if self.wanted is ergodic else "A without a zero row or column"
        cells = f", {self.n_cells} cell{'s' * (self.n_cells > 1)} of {self.n_values} values" * (self.n_values > 1)
        some = ", A up to relabelling and P[M] of full support" * self.reduced
        lengths = f"1 to {max(self.lengths)}" if len(self.lengths) > 1 else "1"
        return f"{self.n_states} states{cells}, every {chain}{some}, any rows of W, length {lengths}"
