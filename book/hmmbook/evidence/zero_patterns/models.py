"""Every pattern of zeros of the models of a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from hmmbook.evidence.exact.rational import Model


def binary(size: int) -> np.ndarray:
    """Return all patterns of this size, (2^size, size). Pattern k has bit b of k at b."""
    return np.arange(1 << size)[:, None] >> np.arange(size) & 1


def subsets(allowed: np.ndarray) -> np.ndarray:
    """Return the nonempty subsets of a set, each as an indicator, with the whole set first."""
    nonempty = binary(len(allowed))[:0:-1].astype(bool)
    leaves_the_set = (nonempty & ~allowed).any(1)
    return nonempty[~leaves_the_set]


def ergodic(transition: np.ndarray) -> bool:
    """Whether A is primitive: then this power of it has no zero (Wielandt 1950)."""
    exponent = (len(transition) - 1) ** 2 + 1
    return (np.linalg.matrix_power(transition, exponent) > 0).all()


def stays_full(transition: np.ndarray) -> bool:
    """Whether every P[H_i] has full support when P[H_0] has, because no row of A is zero."""
    return transition.any(1).all()


def matrices(n_states: int, condition: Callable[[np.ndarray], bool] = ergodic) -> list[np.ndarray]:
    """Return all supports of A that satisfy a condition. None of their columns is zero."""
    nonempty = binary(n_states)[1:]
    choices = np.indices((len(nonempty),) * n_states).reshape(n_states, -1).T  # of a support for each column
    supports = []
    for choice in choices:
        matrix = nonempty[choice].T
        if condition(matrix):
            supports.append(matrix)
    return supports


def up_to_relabelling(transitions: list[np.ndarray]) -> list[np.ndarray]:
    """Return one support of A for each class of those that a permutation of the states takes into each other."""

    def code(matrix: np.ndarray) -> tuple[int, ...]:
        return tuple((1 << np.arange(len(matrix))) @ matrix)

    representatives = []
    for transition in transitions:
        relabelled = [transition[np.ix_(order, order)] for order in permutations(range(len(transition)))]
        if code(transition) == min(map(code, relabelled)):
            representatives.append(transition)
    return representatives


@dataclass(frozen=True)
class Size:
    """All models of one size, and all inputs of some lengths."""

    n_states: int
    lengths: tuple[int, ...]
    n_cells: int = 1
    n_values: int = 1  # 1 for a vanilla HMM
    condition: Callable[[np.ndarray], bool] = ergodic  # on A
    reduced: bool = False  # whether A is taken up to relabelling, and P[M] of full support only

    def models(self) -> Iterator[Model]:
        """Yield a model for every A and P[M], of ones and zeros. Every possible row of W is that of a token."""
        rows = binary(self.n_values * self.n_states).reshape(-1, self.n_values, self.n_states)
        transitions = matrices(self.n_states, self.condition)
        shape = (self.n_values,) * self.n_cells
        memories = subsets(np.ones(shape, bool).ravel()).astype(float)
        if self.reduced:
            transitions = up_to_relabelling(transitions)
            memories = memories[:1]
        for transition in transitions:
            for memory in memories:
                yield Model(transition.astype(float), rows, np.ones(self.n_states), memory.reshape(shape))

    def inputs(self) -> list[np.ndarray]:
        """Return for each length every sequence of rows of W, (length, n)."""
        n_rows = 1 << self.n_values * self.n_states
        return [np.indices((n_rows,) * length).reshape(length, -1) for length in self.lengths]

    def n_patterns(self) -> int:
        """Return the number of pairs of a model and an input."""
        n_inputs = 0
        for x in self.inputs():
            n_inputs += x.shape[1]
        return len(list(self.models())) * n_inputs

    def __str__(self) -> str:
        text = f"{self.n_states} states"
        if self.n_values > 1:
            cells = "1 cell" if self.n_cells == 1 else f"{self.n_cells} cells"
            text += f", {cells} of {self.n_values} values"
        text += ", every ergodic A" if self.condition is ergodic else ", every A without a zero row or column"
        if self.reduced:
            text += ", A up to relabelling and P[M] of full support"
        lengths = f"1 to {max(self.lengths)}" if len(self.lengths) > 1 else "1"
        return f"{text}, any rows of W, length {lengths}"
