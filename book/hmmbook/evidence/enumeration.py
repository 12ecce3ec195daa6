"""A witness that shares nothing with the library: probabilities as sums over all latent paths.

It uses NumPy only, no messages and no scaling. The joint probability of Sections 3 and 4 is written down for every
path, and everything else is a sum over paths. The cost is exponential in the length, so it is for small models. Where
a model is given in Python's fractions, the results are fractions too, and nothing is rounded.

`Joint` has all inputs of a length at once. `Enumeration` has one sequence of embeddings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

MOST_ENTRIES = 8_000_000
"""The largest joint table that is made."""


def _as_numbers(array) -> np.ndarray:
    """Floats, or fractions as they are."""
    array = np.asarray(array)
    if array.dtype == object:
        return array
    return array.astype(float)


class Joint:
    """Make the joint table of memory, tokens and hidden states, with axes m0 … , x1 … xT, h0 … hT.

    Args:
        transition: A, (S, S). Its columns sum to 1.
        emission: W, (X, S), or (X, M, S) for a memory model.
        initial: P[H_0], (S,).
        rows: An entry for each position. None stands for a token, whose axis runs over all X tokens. A row of
            evidence is fixed, and its axis has length 1. It can be a prompt (S,), or lifted (M, …, M, S), or ones.
        memory: The joint prior of the memory cells, (M, …, M), or None for a vanilla model.

    Raises:
        ValueError: the table would have more than MOST_ENTRIES entries.
    """

    def __init__(self, transition, emission, initial, rows, memory=None):
        transition = _as_numbers(transition)
        emission = _as_numbers(emission)
        initial = _as_numbers(initial)
        if memory is None:
            prior = np.array(1, transition.dtype)
        else:
            prior = _as_numbers(memory)
            emission = _of_all_cells(emission, prior.ndim)
        self.n_cells = prior.ndim
        self.length = len(rows)
        self.n_states = len(initial)
        self.cells = [f"m{j}" for j in range(self.n_cells)]
        self.tokens = [f"x{i}" for i in range(1, self.length + 1)]
        self.states = [f"h{i}" for i in range(self.length + 1)]
        self._refuse_if_too_large(prior.size, len(emission), rows)

        self.table = prior[..., None] * initial
        for i, row in enumerate(rows, 1):
            evidence = emission
            if row is not None:
                evidence = _as_numbers(row).reshape(1, *prior.shape, self.n_states)
            self._append_position(i, transition, evidence)
        self.inputs = self.table.shape[self.n_cells : self.n_cells + self.length]

    def _refuse_if_too_large(self, memory_size: int, n_tokens: int, rows: Sequence) -> None:
        free_positions = sum(row is None for row in rows)
        entries = memory_size * n_tokens**free_positions * self.n_states ** (self.length + 1)
        if entries > MOST_ENTRIES:
            raise ValueError(
                f"The joint table of this model would have {entries} entries. Enumeration takes at most {MOST_ENTRIES}."
            )

    def _append_position(self, i: int, transition: np.ndarray, evidence: np.ndarray) -> None:
        """Multiply P[H_i | H_{i-1}] and P[X_i | M, H_i] into the table, which so gets the axes x_i and h_i."""
        step_axes = self._axes([f"h{i}", f"h{i - 1}"])
        evidence_axes = self._axes([f"x{i}", *self.cells, f"h{i}"])
        before = self._axes(self._variables(i - 1))
        after = self._axes(self._variables(i))
        self.table = np.einsum(self.table, before, transition, step_axes, evidence, evidence_axes, after)

    def _variables(self, length: int) -> list[str]:
        """The names of all variables of the first positions, in the order of the table's axes."""
        return self.cells + self.tokens[:length] + self.states[: length + 1]

    def _axes(self, names: Sequence[str]) -> list[int]:
        first_axis = {"m": 0, "x": self.n_cells - 1, "h": self.n_cells + self.length}
        return [first_axis[name[0]] + int(name[1:]) for name in names]

    def of(self, *names: str) -> np.ndarray:
        """Sum the table to the marginal of some variables, with axes in the order named.

        Args:
            names: Variables, for example `of("x1", "h0")` for Pr(x_1, h_0).
        """
        return np.einsum(self.table, range(self.table.ndim), self._axes(names))

    def given_input(self, *names: str) -> np.ndarray:
        """Return Pr(x, names) for every input x, (inputs, …), in the order of itertools.product."""
        return self._by_input(self.of(*self.tokens, *names))

    def left_out(self, i: int, *names: str) -> np.ndarray:
        """Return Pr(x_{-i}, names) for every input x, (inputs, …), in the order of itertools.product.

        Args:
            i: A position that is a token, counted from 1.
            names: Variables, each of which becomes an axis.
        """
        other_tokens = self.tokens[: i - 1] + self.tokens[i:]
        table = self.of(*other_tokens, *names)
        return self._by_input(np.expand_dims(table, i - 1))

    def _by_input(self, table: np.ndarray) -> np.ndarray:
        """One axis for all inputs, in the place of one for each token."""
        further_axes = table.shape[self.length :]
        return np.broadcast_to(table, (*self.inputs, *further_axes)).reshape(-1, *further_axes)

    def token(self, i: int) -> np.ndarray:
        """Return Pr(x_{-i}, X_i = z) for every input x and every token z, (inputs, X)."""
        return self.left_out(i, f"x{i}")

    def cell_and_state(self, i: int) -> np.ndarray:
        """Return Pr(M_{J_i} = m, H_i = h, x_{-i}) for every input, (inputs, M, H). M is 1 for a vanilla model."""
        if self.n_cells == 0:
            return self.left_out(i, f"h{i}")[:, None]
        table = self.left_out(i, *self.cells, f"h{i}")
        looked_up = []
        for cell, states_of_cell in enumerate(np.split(table, self.n_cells, -1)):
            axes_of_cells = list(range(1, 1 + self.n_cells))
            axes_of_cells.pop(cell)
            looked_up.append(states_of_cell.sum(tuple(axes_of_cells)))
        return np.concatenate(looked_up, -1)


def _of_all_cells(emission: np.ndarray, n_cells: int) -> np.ndarray:
    """W as a function of all cells, (X, M, …, M, H), where state h = (j, s) reads cell j."""
    n_tokens, n_values, n_states = emission.shape
    table = np.empty((n_tokens, *(n_values,) * n_cells, n_states), emission.dtype)
    for h in range(n_states):
        cell = h // (n_states // n_cells)
        shape = [n_tokens] + [1] * n_cells
        shape[1 + cell] = n_values
        table[..., h] = emission[:, :, h].reshape(shape)
    return table


class Enumeration(Joint):
    """List all latent paths of a model for one sequence of embeddings.

    The model is given as to `Joint`. Too many paths raise the same ValueError.

    Args:
        embeddings: (T, S), or (T, M*S) with index m * S + h for a memory model.
    """

    def __init__(self, transition, emission, initial, embeddings, memory=None):
        self.emission = _as_numbers(emission)
        rows = _as_numbers(embeddings)
        if memory is not None:
            rows = _of_all_cells(rows.reshape(-1, *self.emission.shape[1:]), np.ndim(memory))
        self.rows = list(rows)
        super().__init__(transition, emission, initial, self.rows, memory)
        self._model = (transition, emission, initial)
        self._memory = memory

    def _without(self, i: int) -> Joint:
        """The table without the evidence of position i, counted from 1."""
        rows = list(self.rows)
        rows[i - 1] = np.ones_like(rows[i - 1])
        return Joint(*self._model, rows, self._memory)

    def likelihood(self) -> float:
        """Return Pr(X = x)."""
        return self.table.sum()

    def state(self, at: int, leave_out: int | None = None) -> np.ndarray:
        """Return P[H_at, evidence], (S,), without the evidence of position `leave_out` if it is given."""
        if leave_out is None:
            return self.of(f"h{at}")
        return self._without(leave_out).of(f"h{at}")

    def masked_token(self, at: int) -> np.ndarray:
        """Return P[X_at, evidence of all other positions], (X,), which is Ḡ_at before it is normalised."""
        columns = self.emission.reshape(len(self.emission), -1)
        return columns @ self._without(at).cell_and_state(at).ravel()


def over(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Divide elementwise. The quotient is 0 where `total` is 0, as (D.3) has 0/0 = 0."""
    return np.where(total == 0, 0, part / np.where(total == 0, 1, total))


def normalised(vector: np.ndarray) -> np.ndarray:
    """Divide a vector by its sum. It stays zero where the sum is zero."""
    return over(vector, vector.sum())


def conditional(table: np.ndarray) -> np.ndarray:
    """Divide each row of a table, (rows, …), by its sum over all but the first axis. Rows of zeros stay."""
    return over(table, table.sum(tuple(range(1, table.ndim)), keepdims=True))


def over_inputs(n_tokens: int, length: int, call: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """Stack what a function gives of every token sequence of a length, in the order of itertools.product."""
    return np.stack([call(tokens) for tokens in itertools.product(range(n_tokens), repeat=length)])
