"""What the appendices show: the columns of W by their states, probabilities in shaded squares, and how statements stand."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from companion.evidence.ledger import Entry
from companion.figures.figures import ORANGE, SOFT, done, ink_on_shade
from companion.figures.tables import Table
from hmmlib.models.sentences import Sentences
from hmmlib.validation import all_of_type, as_array, by_name, integer_between, length_of, of_type

Pairs = Sequence[tuple[int, int]]


def _squares(axes: Axes, table: np.ndarray, form: str, size: float) -> None:
    """Shaded squares, white for 0 and dark for 1, with their numbers; zeros are left empty."""
    axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        if value:
            text = format(value, form).removeprefix("0" if value < 1 else "")
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=ink_on_shade(value))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _as_pairs(name: str, pairs: Pairs, values: int, states: int) -> list[tuple[int, int]]:
    """`pairs` as a list, where each is a memory value and a state; ValueError otherwise."""
    checked = []
    for pair in pairs:
        if length_of(f"each of {name}", pair) != 2:
            raise ValueError(f"each of {name} must be a memory value and a state, not {pair!r}")
        value, state = (
            integer_between(f"each of {name}", k, 0, n - 1) for k, n in zip(pair, (values, states), strict=True)
        )
        checked.append((value, state))
    return checked


def columns_of_w(example: Sentences, recoverable: Pairs, unseen: Pairs = ()) -> Figure:
    """W of a model with words, a row for each word, a column for each state and value of the memory cell that it looks up.

    Args:
        recoverable: pairs (memory value, state) whose columns stand in an orange frame.
        unseen: pairs whose columns are crossed out.

    ValueError for a pair that there is not.
    """
    model = of_type("example", example, Sentences).model
    size = values, states = model.n_memory, model.n_states
    framed, crossed = _as_pairs("recoverable", recoverable, *size), _as_pairs("unseen", unseen, *size)
    figure, axes = plt.subplots(figsize=(4.4, 3.5))
    _squares(axes, model.emission.permute(0, 2, 1).flatten(1).numpy(), ".2g", 7.5)
    axes.set_yticks(range(len(example.words)), example.words)
    named = [name for state in range(states) for name in example.values[state // model.n_syntax]]
    axes.set_xticks(range(values * states), named, rotation=90, fontsize=8)
    top = -0.5
    for state in range(states):
        cell, part = divmod(state, model.n_syntax)
        middle = values * state + (values - 1) / 2
        axes.text(middle, top - 0.2, f"{example.cells[cell]}\n{example.syntax[part]}", ha="center", fontsize=8.5)
        if state:
            axes.axvline(values * state - 0.5, color=SOFT, linewidth=1)
    for value, state in framed:
        corner = values * state + value - 0.5, top
        axes.add_patch(
            Rectangle(corner, 1, len(example.words), fill=False, edgecolor=ORANGE, linewidth=2, clip_on=False)
        )
    for value, state in crossed:
        left, bottom = values * state + value - 0.5, len(example.words) - 0.5
        axes.plot([left, left + 1], [top, bottom], color=SOFT, linewidth=1.2)
        axes.plot([left, left + 1], [bottom, top], color=SOFT, linewidth=1.2)
    axes.set_xlim(-0.6, values * states - 0.4)
    return done(figure)


def grids(panels: dict[str, tuple[np.ndarray, Sequence[str]]], rows: Sequence[str], per_row: int = 2) -> Figure:
    """Tables of probabilities as shaded squares with their numbers, `per_row` of them side by side.

    `panels` maps a title to a table (len(rows), k) and the names of its k columns. ValueError for another shape.
    """
    tables = {
        title: (
            as_array(f"panels[{title!r}]", table, length_of("rows", rows), length_of("names of columns", names)),
            names,
        )
        for title, (table, names) in by_name("panels", panels).items()
    }
    wide = integer_between("per_row", per_row, 1, 3)
    high = -(-len(tables) // wide)
    figure, axes = plt.subplots(high, wide, figsize=(4.4, (0.34 * len(rows) + 0.75) * high), squeeze=False, sharey=True)
    for axis, (title, (table, names)) in zip(axes.flat, tables.items(), strict=False):
        _squares(axis, table, ".2f", 8)
        axis.set_title(title, loc="center", fontsize=9)
        axis.set_yticks(range(len(rows)), rows)
        axis.set_xticks(range(len(names)), names, fontsize=8.5)
    for axis in axes.flat[len(tables) :]:
        axis.axis("off")
    return done(figure)


def rulings(entries: Sequence[Entry]) -> Table:
    """A row for each statement that was run: its largest residual, the ruling on record, and how its control failed.

    AssertionError where what was found is not what is on record.
    """
    for entry in (entries := all_of_type("entries", entries, Entry)):
        if not entry.as_recorded:
            raise AssertionError(f"{entry.name} is not as recorded: {entry}")
    rows = [
        [
            entry.name,
            f"{entry.residual:.0e}" if entry.residual else "0",
            entry.grade,
            f"{entry.control_fails} of {entry.control_instances} without “{entry.broken}”",
        ]
        for entry in entries
    ]
    return Table(["statement", "largest difference", "as printed", "the control fails"], rows)
