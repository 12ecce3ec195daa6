"""Witnesses that share nothing with the rest of the library: probabilities by summing over all latent paths.

NumPy only, no messages, no scaling: the joint probability of Sections 3 and 4 is written down for every path of memory
values and hidden states, and everything else is a sum over paths. Exponential in length, so for small models only.
`Enumeration` is for one sequence of embeddings, `Joint` for all token sequences of a length at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np

MOST_PATHS = 2_000_000


def _arrays(transition, emission, initial, memory) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The parts of a model, the prior of no memory having no axes. ValueError where their shapes do not fit each other."""
    transition, emission, initial = (np.asarray(part, dtype=float) for part in (transition, emission, initial))
    prior = np.ones(()) if memory is None else np.asarray(memory, dtype=float)
    cells, n_states = prior.shape, initial.size
    shapes = transition.shape, initial.shape, emission.shape[1:]
    if shapes != ((n_states, n_states), (n_states,), (*cells[:1], n_states)) or len(set(cells)) > 1:
        raise ValueError(f"transition, initial, emission and memory do not fit each other: {shapes}, {cells}")
    if cells and n_states % len(cells):
        raise ValueError(f"memory must have a number of cells that divides the {n_states} states, not {len(cells)}")
    return transition, emission, initial, prior


def _position(name: str, value: int, first: int, last: int) -> int:
    """`value` where it is a position of the chain; ValueError otherwise."""
    if not first <= value <= last:
        raise ValueError(f"{name} must be {first} to {last}, not {value}")
    return value


class Enumeration:
    """All latent paths of a model for one sequence of embeddings.

    Args:
        transition, emission, initial: A (S, S), W (X, S) or (X, M, H), P[H_0]; arrays, columns sum to 1.
        embeddings: (T, S), or (T, M*H) with index m * H + h.
        memory: joint prior of the memory cells, (M, …, M), or None for a vanilla model.

    ValueError where there are more than MOST_PATHS paths, for shapes that do not fit, and for no position of the chain.
    """

    def __init__(self, transition, emission, initial, embeddings, memory=None):
        transition, emission, initial, prior = _arrays(transition, emission, initial, memory)
        prior = np.atleast_1d(prior)
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
        rows = self.rows
        if leave_out is not None:
            rows = np.delete(rows, _position("leave_out", leave_out, 1, rows.shape[1]) - 1, axis=1)
        return self.prior_weight * rows.prod(1)

    def likelihood(self) -> float:
        """Pr(X = x)."""
        return self.weight().sum()

    def state(self, at: int, leave_out: int | None = None) -> np.ndarray:
        """P[H_at, evidence], (S,); without the evidence of position `leave_out`, if given."""
        at = _position("at", at, 0, self.rows.shape[1])
        return np.bincount(self.states[:, at], self.weight(leave_out), self.n_states)

    def memory(self, cell: int) -> np.ndarray:
        """P[M_cell, evidence], (M,)."""
        cell = _position("cell", cell, 0, self.memories.shape[1] - 1)
        return np.bincount(self.memories[:, cell], self.weight(), self.n_values)

    def masked_token(self, at: int) -> np.ndarray:
        """P[X_at, evidence of all other positions], (X,): Ḡ_at before it is normalised."""
        weight = self.weight(leave_out=at)
        return self.emission[:, self.values[:, at], self.states[:, at]] @ weight


class Joint:
    """The joint table of memory, hidden states and tokens: an array with axes m0 … , x1 … xT, h0 … hT.

    Args:
        transition, emission, initial: A (S, S), W (X, S) or (X, M, H), P[H_0]; arrays, columns sum to 1.
        rows: one entry for each position: None for a token (its axis runs over all X tokens), or a fixed row of
            evidence (then the axis has length 1): a prompt (S,), or lifted (M, …, M, H); or ones.
        memory: joint prior of the memory cells, (M, …, M), or None for a vanilla model.

    ValueError where the table would have more than MOST_PATHS * 4 entries, and for shapes that do not fit.
    """

    def __init__(self, transition, emission, initial, rows, memory=None):
        transition, emission, initial, prior = _arrays(transition, emission, initial, memory)
        self.n_cells, self.length, self.n_states = prior.ndim, len(rows), len(initial)
        tokens = len(emission) ** sum(row is None for row in rows)
        if (count := prior.size * tokens * self.n_states ** (self.length + 1)) > 4 * MOST_PATHS:
            raise ValueError(f"a table of {count} entries is more than the {4 * MOST_PATHS} that enumeration takes on")
        looked_up = emission if memory is None else self._looked_up(emission)
        table = prior[..., None] * initial
        for i, row in enumerate(rows, 1):
            table = table[..., None] * transition.T  # …, h_{i-1}, h_i
            evidence = looked_up if row is None else np.asarray(row, float).reshape(1, *prior.shape, self.n_states)
            evidence = np.moveaxis(evidence, 0, self.n_cells)  # m0 …, x_i, h_i
            axis = self.n_cells + i - 1
            before = tuple(range(self.n_cells, axis))
            after = tuple(range(axis + 1, axis + 1 + i))
            table = np.expand_dims(table, axis) * np.expand_dims(evidence, before + after)
        self.table = table
        self.inputs = table.shape[self.n_cells : self.n_cells + self.length]

    def _looked_up(self, emission: np.ndarray) -> np.ndarray:
        """W as a function of all cells, (X, M, …, M, H): state h = (j, s) reads cell j."""
        n_tokens, n_values, n_states = emission.shape
        table = np.empty((n_tokens, *(n_values,) * self.n_cells, n_states))
        for h in range(n_states):
            own = 1 + h // (n_states // self.n_cells)
            table[..., h] = np.expand_dims(emission[:, :, h], [a for a in range(1, self.n_cells + 1) if a != own])
        return table

    def _axis(self, name: str) -> int:
        letter, number = name[0], int(name[1:])
        return {"m": number, "x": self.n_cells + number - 1, "h": self.n_cells + self.length + number}[letter]

    def of(self, *names: str) -> np.ndarray:
        """The marginal table of some variables, axes in the order named: `of("x1", "h0")` is Pr(x_1, h_0)."""
        axes = [self._axis(name) for name in names]
        rest = tuple(axis for axis in range(self.table.ndim) if axis not in axes)
        ranks = np.argsort(np.argsort(axes))
        return self.table.sum(rest).transpose(ranks)

    def given_input(self, *names: str) -> np.ndarray:
        """Pr(x, names) for every input x, (inputs, …), inputs in the order of itertools.product."""
        table = self.of(*(f"x{i + 1}" for i in range(self.length)), *names)
        return table.reshape(-1, *table.shape[self.length :])

    def left_out(self, i: int, *names: str) -> np.ndarray:
        """Pr(x_{-i}, names) for every input x, whatever its i-th token, (inputs, …). Position i must be a token's."""
        table = self.of(*(f"x{k + 1}" for k in range(self.length) if k + 1 != i), *names)
        table = np.broadcast_to(np.expand_dims(table, i - 1), (*self.inputs, *table.shape[self.length - 1 :]))
        return table.reshape(-1, *table.shape[self.length :])

    def token(self, i: int) -> np.ndarray:
        """Pr(x_{-i}, X_i = z) for every input and every token z, (inputs, X). Position i must be a token's."""
        table = np.moveaxis(self.of(*(f"x{k + 1}" for k in range(self.length))), i - 1, -1)
        table = np.broadcast_to(np.expand_dims(table, i - 1), (*self.inputs, table.shape[-1]))
        return table.reshape(-1, table.shape[-1])

    def cell_and_state(self, i: int) -> np.ndarray:
        """Pr(M_{J_i} = m, H_i = h, x_{-i}) for every input, (inputs, M, H)."""
        table = self.left_out(i, *(f"m{j}" for j in range(self.n_cells)), f"h{i}")
        n_syntax = self.n_states // self.n_cells
        by_cell = []
        for j in range(self.n_cells):
            others = tuple(1 + k for k in range(self.n_cells) if k != j)
            by_cell.append(table[..., j * n_syntax : (j + 1) * n_syntax].sum(others))
        return np.concatenate(by_cell, -1)


def normalised(vector: np.ndarray) -> np.ndarray:
    """The vector divided by its sum; zeros where the sum is zero."""
    total = vector.sum()
    return vector / total if total > 0 else vector


def conditional(table: np.ndarray) -> np.ndarray:
    """Each row, (rows, …), divided by its sum over all but the first axis; zeros where the sum is zero."""
    total = table.sum(tuple(range(1, table.ndim)), keepdims=True)
    return table / np.where(total > 0, total, 1)


def over_inputs(n_tokens: int, length: int, call: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """`call` of every token sequence of a length, stacked."""
    return np.stack([call(x) for x in itertools.product(range(n_tokens), repeat=length)])


def rational_rank(matrix: np.ndarray) -> int:
    """The rank of a matrix whose entries are the rational numbers that these floats are, by elimination without rounding."""
    rows = [[Fraction(value) for value in row] for row in np.asarray(matrix, float).tolist()]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((k for k in range(rank, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for k in range(rank + 1, len(rows)):
            factor = rows[k][column] / rows[rank][column]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[rank], strict=True)]
        rank += 1
    return rank
