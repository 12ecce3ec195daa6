"""Supports of models, inputs and messages as bit masks, where a message is one entry of a table; and all of a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import NamedTuple

Rows = tuple[int, ...]
"""An input: for each position the support of its row of W, a mask of bits m * H + h."""
Columns = tuple[int, ...]
"""The support of A: for each state the mask of states after it."""


def image(targets: list[int]) -> list[int]:
    """The table, over all masks, of the map that sends bit b to `targets[b]`."""
    table = [0] * (1 << len(targets))
    for mask in range(1, len(table)):
        low = mask & -mask
        table[mask] = table[mask ^ low] | targets[low.bit_length() - 1]
    return table


class MaskTables:
    """Tables between masks for a number of states, cells and values. Lifted masks have bits k * H + h, k joint values.

    `lift` is η, from a row of W to a lifted mask; `looked_up` φ, from a lifted mask to one of (m_j, j, s). `states` leads
    from a lifted mask to states h, and from these `cells` to cells j, `syntax` to the syntax states s in them. `value`
    leads from a lifted mask to the values of the first cell, and `having` from a set of values to the lifted mask where
    the first cell has one of them.
    """

    def __init__(self, n_states: int, n_cells: int, n_values: int):
        self.n_states, self.n_cells, self.n_values = n_states, n_cells, n_values
        self.n_syntax, self.joint = n_states // n_cells, list(product(range(n_values), repeat=n_cells))
        self.size = len(self.joint) * n_states
        self.full = (1 << self.size) - 1
        index = [(values, h) for values in self.joint for h in range(n_states)]
        column = [values[h // self.n_syntax] * n_states + h for values, h in index]
        rows, sets = range(1 << n_values * n_states), range(1 << n_values)
        self.lift = [sum(1 << b for b, c in enumerate(column) if row >> c & 1) for row in rows]
        self.looked_up = image([1 << c for c in column])
        self.states = image([1 << h for _, h in index])
        self.cells = image([1 << h // self.n_syntax for h in range(n_states)])
        self.syntax = image([1 << h % self.n_syntax for h in range(n_states)])
        self.value = image([1 << values[0] for values, _ in index])
        self.having = [sum(1 << b for b, (values, _) in enumerate(index) if mu >> values[0] & 1) for mu in sets]

    def lifted(self, rows: Rows) -> Rows:
        lift = self.lift
        return tuple([lift[row] for row in rows])


@lru_cache
def mask_tables(n_states: int, n_cells: int = 1, n_values: int = 1) -> MaskTables:
    return MaskTables(n_states, n_cells, n_values)


class World(NamedTuple):
    """The support of a model (A and P[M]; P[H_0] is full): `ahead` and `back` carry a lifted mask one step along A."""

    tables: MaskTables
    columns: Columns
    ahead: list[int]
    back: list[int]
    prior: int


def world(tables: MaskTables, columns: Columns, memory: int) -> World:
    """The world of a chain and a mask of possible joint values."""
    n, blocks = tables.n_states, range(len(tables.joint))
    ahead, back = (image([mask << k * n for k in blocks for mask in masks]) for masks in (columns, into(columns)))
    return World(tables, columns, ahead, back, sum(((1 << n) - 1) << k * n for k in blocks if memory >> k & 1))


def latent_supports(model: World, rows: Rows) -> list[int]:
    """The support of P[H̃_i, evidence but that of i] for i = 0, …, t, lifted masks, from lifted rows."""
    message, before = model.ahead[model.prior], [model.prior]
    for row in rows:
        before.append(message)
        message = model.ahead[message & row]
    after = model.tables.full
    for i in range(len(rows), 0, -1):
        before[i] &= after
        after = model.back[after & rows[i - 1]]
    before[0] &= after
    return before


def possible(model: World, rows: Rows) -> bool:
    """Whether the evidence has positive probability, by a pass from the front alone."""
    message = model.prior
    for row in rows:
        message = model.ahead[message] & row
    return message != 0


def without(model: World, rows: Rows, i: int) -> Rows:
    """Nothing observed at position i, from 1."""
    return (*rows[: i - 1], model.tables.full, *rows[i:])


@lru_cache
def subsets(mask: int) -> list[int]:
    """The nonempty subsets of a mask."""
    return [subset for subset in range(mask, 0, -1) if not subset & ~mask]


def members(mask: int) -> list[int]:
    return [b for b in range(mask.bit_length()) if mask >> b & 1]


def bits(mask: int, size: int) -> list[int]:
    return [mask >> b & 1 for b in range(size)]


def inside(mask: int, other: int) -> bool:
    return mask & ~other == 0


# Models and inputs


def into(columns: Columns) -> Columns:
    """The transpose: for each state the mask of states before it."""
    size = range(len(columns))
    return tuple(sum(1 << h for h in size if columns[h] >> after & 1) for after in size)


def ergodic(columns: Columns) -> bool:
    """Whether A is primitive: then this power of it has no zero (Wielandt 1950)."""
    n = len(columns)
    step, reach = image(list(columns)), [1 << h for h in range(n)]
    for _ in range((n - 1) ** 2 + 1):
        reach = [step[mask] for mask in reach]
    return all(mask == (1 << n) - 1 for mask in reach)


def stays_full(columns: Columns) -> bool:
    """Whether every P[H_i] has full support when P[H_0] has: no row of A is zero."""
    return all(into(columns))


def matrices(n_states: int, wanted: Callable[[Columns], bool] = ergodic) -> list[Columns]:
    """All supports of A that are `wanted`; none of their columns is zero."""
    return [columns for columns in product(range(1, 1 << n_states), repeat=n_states) if wanted(columns)]


def up_to_relabelling(matrices: list[Columns]) -> list[Columns]:
    """One support of A for each class of those that a permutation of the states takes into each other."""

    def relabelled(columns: Columns, order: tuple[int, ...]) -> Columns:
        moved = [sum(1 << order[b] for b in members(column)) for column in columns]
        return tuple(moved[order.index(h)] for h in range(len(order)))

    return [c for c in matrices if c == min(relabelled(c, order) for order in permutations(range(len(c))))]


@dataclass(frozen=True)
class Size:
    """All models of one size and all inputs of the lengths given; `reduced`: A up to relabelling, P[M] of full support."""

    n_states: int
    lengths: tuple[int, ...]
    n_cells: int = 1
    n_values: int = 1
    wanted: Callable[[Columns], bool] = ergodic
    reduced: bool = False

    def worlds(self) -> Iterator[World]:
        tables = mask_tables(self.n_states, self.n_cells, self.n_values)
        transitions, every = matrices(self.n_states, self.wanted), (1 << len(tables.joint)) - 1
        for columns in up_to_relabelling(transitions) if self.reduced else transitions:
            for memory in [every] if self.reduced else subsets(every):
                yield world(tables, columns, memory)

    def inputs(self) -> list[Rows]:
        """Every sequence of rows of W, shortest first."""
        rows = range(1 << self.n_values * self.n_states)
        return [x for length in self.lengths for x in product(rows, repeat=length)]

    def __str__(self) -> str:
        chain = "ergodic A" if self.wanted is ergodic else "A without a zero row or column"
        cells = f", {self.n_cells} cell{'s' * (self.n_cells > 1)} of {self.n_values} values" * (self.n_values > 1)
        some = ", A up to relabelling and P[M] of full support" * self.reduced
        lengths = f"1 to {max(self.lengths)}" if len(self.lengths) > 1 else "1"
        return f"{self.n_states} states{cells}, every {chain}{some}, any rows of W, length {lengths}"
