"""Static figures, each a function of arrays. None of them trains or samples, and all return the Matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# Notebooks find the look of figures here too.
from hmmbook.figures.look import COLOURS, DASHES, HATCHES, LABELS, MARKERS, STYLES, Labels, Names, Numbers
from hmmbook.figures.look import FIRST as FIRST
from hmmbook.figures.look import HEAD as HEAD
from hmmbook.figures.look import INK as INK
from hmmbook.figures.look import LABEL_0 as LABEL_0
from hmmbook.figures.look import LABEL_1 as LABEL_1
from hmmbook.figures.look import MEMORY as MEMORY
from hmmbook.figures.look import ROLES as ROLES
from hmmbook.figures.look import SECOND as SECOND
from hmmbook.figures.look import SMALL as SMALL
from hmmbook.figures.look import SOFT as SOFT
from hmmbook.figures.look import TRAINED as TRAINED
from hmmbook.figures.look import finish as finish
from hmmbook.figures.look import name_ends as name_ends
from hmmbook.figures.look import style as style
from hmmbook.figures.look import use_style as use_style

if TYPE_CHECKING:
    from hmmlib.models.sentences import Sentences

SHADE = 0.4
"""The opacity of a square under a number, so that the number in ink can be read."""


# Bars and lines


def distributions(
    rows: dict[str, Numbers],
    outcomes: Names,
    title: str = "",
    colours: Names = COLOURS,
    levels: dict[str, tuple[str, Numbers]] | None = None,
) -> Figure:
    """Draw probability vectors side by side.

    Args:
        rows: The vectors by name, each with an entry for each outcome.
        outcomes: The names of the outcomes.
        title: The title.
        colours: The colours of the vectors.
        levels: More vectors, drawn as lines: by name, a colour and the vector.
    """
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    width = 0.8 / len(rows)
    for k, (name, row) in enumerate(rows.items()):
        shift = (k - (len(rows) - 1) / 2) * width
        middles = np.arange(len(outcomes)) + shift
        axes.bar(middles, np.asarray(row), width * 0.92, color=colours[k], hatch=HATCHES[k], label=name)
    for k, (name, (colour, row)) in enumerate((levels or {}).items()):
        middles = np.arange(len(outcomes))
        dashes = "-:"[k % 2]
        look = dict(color=colour, linestyle=dashes, linewidth=2.5, label=name)
        axes.hlines(np.asarray(row), middles - 0.45, middles + 0.45, **look)
    axes.set(ylabel="probability", ylim=(0, 1), title=title)
    axes.set_xticks(range(len(outcomes)), outcomes)
    return finish(figure, 2)


def stacked(panels: dict[str, dict[str, Numbers]], outcomes: Names, x_label: str) -> Figure:
    """Draw bars with a part for each series, one panel above the other.

    Args:
        panels: By title, the heights of each series by name.
        outcomes: The names of the bars.
        x_label: The label of the horizontal axis.
    """
    height = 2.2 * len(panels) + 0.3
    figure, rows = plt.subplots(len(panels), 1, figsize=(5.4, height), squeeze=False)
    for axes, (title, series) in zip(rows[:, 0], panels.items(), strict=True):
        bottom = np.zeros(len(outcomes))
        for k, (name, heights) in enumerate(series.items()):
            look = dict(color=style(name, k).colour, hatch=HATCHES[k], label=name)
            axes.bar(np.arange(len(bottom)), heights, 0.8, bottom=bottom, **look)
            bottom = bottom + np.asarray(heights)
        axes.set(title=title, ylabel="share", xticks=range(len(bottom)), xticklabels=outcomes)
    axes.set_xlabel(x_label)
    return finish(figure, 2)


def attention(words: Names, scores: Numbers, attended: Labels) -> Figure:
    """Draw attention scores along one text as bars, those of attended positions filled, and a line at 1."""
    positions = np.arange(1, len(words) + 1)
    scores = np.asarray(scores)
    attended = np.asarray(attended)
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    outline = dict(edgecolor=SOFT, linewidth=1.4)
    attended_look = dict(facecolor=SOFT, label="attended") | outline
    other_look = dict(facecolor="none", label="not attended") | outline
    axes.bar(positions[attended], scores[attended], 0.7, **attended_look)
    axes.bar(positions[~attended], scores[~attended], 0.7, **other_look)
    axes.axhline(1, color=INK, linewidth=1, linestyle=":")
    axes.axhline(0, color=INK, linewidth=0.8)
    names = [f"{word}\n{position}" for word, position in zip(words, positions, strict=True)]
    axes.set(ylabel="attention score", xticks=positions, xticklabels=names)
    return finish(figure, 2)


def losses(steps: Sequence[int], values: Numbers, levels: dict[str, float]) -> Figure:
    """Draw the masked-token loss against steps, with up to three levels by name."""
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.plot(steps, values, color=SOFT, label="network")
    for k, (name, level) in enumerate(levels.items()):
        look = style(name, k)
        axes.axhline(level, color=look.colour, linestyle=look.dashes, label=name)
    axes.set(xlabel="pretraining step", ylabel="masked-token loss (nats)", ylim=(0, None))
    return finish(figure, 2)


def scatter(
    x: Numbers,
    y: Numbers,
    x_label: str,
    y_label: str,
    diagonal: bool = False,
    marked: dict[str, np.ndarray] | None = None,
) -> Figure:
    """Draw points of one quantity against another, with a line where one of them is zero.

    Args:
        x: One quantity, (n,).
        y: The other, (n,).
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.
        diagonal: Whether to draw the line y = x.
        marked: By name, points to mark, (n,) bool.
    """
    marked = marked or {}
    figure, axes = plt.subplots(figsize=(4.8, 3.8))
    if min(x) < 0 < max(x):
        axes.axvline(0, color=SOFT, linewidth=0.8, zorder=0)
    if min(y) < 0 < max(y):
        axes.axhline(0, color=SOFT, linewidth=0.8, zorder=0)
    axes.scatter(x, y, s=14, color=SOFT, alpha=0.8, linewidth=0)
    for name, chosen in marked.items():
        points = (np.asarray(x)[chosen], np.asarray(y)[chosen])
        axes.scatter(*points, s=26, marker="D", color=INK, linewidth=0, label=name)
    if diagonal:
        ends = [min(*x, *y), max(*x, *y)]
        axes.plot(ends, ends, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel=x_label, ylabel=y_label)
    return finish(figure, len(marked))


def curve(
    x: Numbers,
    series: dict[str, Numbers],
    x_label: str,
    y_label: str,
    log: str = "",
    colours: Names = COLOURS,
    share: bool = False,
) -> Figure:
    """Draw up to four lines with markers over a common x.

    Args:
        x: The places, (n,).
        series: The values of each line by name, (n,).
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.
        log: The logarithmic axes: "x", "y" or "xy".
        colours: The colours of the lines that have none of their own in `STYLES`.
        share: Whether the vertical axis goes from 0 to 1, whatever the values are.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3))
    for k, (name, values) in enumerate(series.items()):
        colour = style(name).colour if name in STYLES else colours[k]
        look = dict(marker=MARKERS[k], color=colour, markersize=5)
        axes.plot(x, values, DASHES[k], label=name, **look)
    axes.set(xlabel=x_label, ylabel=y_label)
    for axis in log:
        axes.set(**{f"{axis}scale": "log"})
    if share:
        axes.set_ylim(-0.03, 1)
    return finish(figure, 2 if len(series) > 1 else 0)


def strips(
    rows: dict[str, tuple[Sequence, Sequence]],
    x_label: str,
    crosses: dict[str, Sequence],
    cuts: dict[str, float],
) -> Figure:
    """Draw numbers along lines, points of label 1 above a line and points of label 0 below it, each number once.

    Args:
        rows: By the name of a line, its numbers and their labels.
        x_label: The label of the horizontal axis.
        crosses: By the name of a line, the columns of W there.
        cuts: By the name of a line, where a head cuts it.
    """
    figure, axes = plt.subplots(figsize=(5.2, 0.6 + 0.75 * len(rows)))
    cross = dict(marker="x", color=INK, s=44, zorder=3)
    threshold = dict(color=HEAD, linestyle="--", zorder=4)
    for y, (name, (values, labels)) in enumerate(rows.items()):
        axes.axhline(y, color=SOFT, linewidth=1, zorder=0)
        _draw_strip(axes, y, values, labels, cuts.get(name))
        heights = np.full(len(crosses[name]), y)
        axes.scatter(crosses[name], heights, label="a column of W", **cross)
        if name in cuts:
            ends = [y - 0.42, y + 0.42]
            axes.plot([cuts[name]] * 2, ends, label="the head's threshold", **threshold)
    axes.set(xlabel=x_label, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), rows)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return finish(figure, 2)


def _draw_strip(axes: Axes, y: int, values: Numbers, labels: Labels, cut: float | None) -> None:
    """Draw the points of one strip, with rings where a head with this threshold is wrong."""
    values = np.asarray(values)
    labels = np.asarray(labels)
    for label, colour, marker in LABELS:
        drawn = np.unique(values[labels == label].round(3))
        distances = 0.1 + 0.25 * (np.arange(len(drawn)) * 0.618 % 1)  # Points should not hide each other.
        heights = y - distances if label else y + distances
        look = dict(color=colour, marker=marker, linewidth=0)
        axes.scatter(drawn, heights, s=14, label=f"label {label:d}", **look)
        if cut is None:
            continue
        wrong = (drawn >= cut) != label
        if wrong.any():
            ring = dict(s=44, facecolor="none", edgecolor=INK, label="wrong sign")
            axes.scatter(drawn[wrong], heights[wrong], **ring)


def dependencies(places: dict[str, tuple], arrows: Sequence[tuple[str, str]]) -> Figure:
    """Draw which statement a proof takes from which, as boxes with arrows between them.

    Args:
        places: The column and row of each box by its name. Rows count upwards.
        arrows: Pairs of names, from what is used to where it is used.
    """
    columns, rows = zip(*places.values(), strict=True)
    width = max(columns) - min(columns) + 1
    height = max(rows) - min(rows) + 1
    figure, axes = plt.subplots(figsize=(1.35 * width, 0.72 * height))
    boxes = {}
    for name, place in places.items():
        text = axes.text(*place, name, ha="center", va="center", fontsize=11, zorder=3)
        text.set_bbox(dict(boxstyle="round,pad=0.45", facecolor="white", edgecolor=INK))
        boxes[name] = text.get_bbox_patch()
    for used, user in arrows:
        line = dict(arrowstyle="-|>", color=SOFT, linewidth=1.3, shrinkA=2, shrinkB=2)
        ends = dict(patchA=boxes[used], patchB=boxes[user])  # Arrows end at boxes, once these have their sizes.
        axes.annotate("", places[user], places[used], arrowprops=line | ends, zorder=4)
    axes.set_xlim(min(columns) - 0.5, max(columns) + 0.5)
    axes.set_ylim(min(rows) - 0.5, max(rows) + 0.5)
    axes.axis("off")
    return finish(figure)


# Shaded squares


def _shades(axes: Axes, table: np.ndarray, opacity: float, colour: str = INK) -> None:
    """Draw squares of one colour, from none for 0 to the opacity for 1, so that they follow a page into dark mode."""
    rows, columns = np.shape(table)
    ends = [(*to_rgb(colour), 0), (*to_rgb(colour), opacity)]
    inks = LinearSegmentedColormap.from_list("inks", ends)
    look = dict(cmap=inks, vmin=0, vmax=1, edgecolor="white", linewidth=0.5)
    x_edges = np.arange(columns + 1) - 0.5
    y_edges = np.arange(rows + 1) - 0.5
    axes.pcolormesh(x_edges, y_edges, np.asarray(table), **look)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.spines[:].set_visible(False)


def _squares(axes: Axes, table: np.ndarray, form: str, size: float, zeros: bool = False, colour: str = INK) -> None:
    """Draw shaded squares with their numbers. Zeros are left empty unless asked for."""
    _shades(axes, table, SHADE, colour)
    for (row, column), value in np.ndenumerate(table):
        if value == 0 and not zeros:
            continue
        text = format(value, form)
        if value < 1:
            text = text.removeprefix("0")
        axes.text(column, row, text, ha="center", va="center", fontsize=size)
    axes.tick_params(length=0)


def beliefs(words: Names, cells: dict[str, tuple[Names, np.ndarray]]) -> Figure:
    """Draw the posterior of each memory cell at first and after each word of a text.

    Args:
        words: The T words, of which each has a row.
        cells: By the name of a cell, the names of its M values and its posteriors, (T + 1, M).
    """
    widths = [len(names) for names, _ in cells.values()]
    width = min(5.4, 0.95 + 0.41 * sum(widths))
    height = 1.1 + 0.27 * (len(words) + 1)
    shape = dict(figsize=(width, height), width_ratios=widths)
    figure, axes = plt.subplots(1, len(cells), squeeze=False, sharey=True, **shape)
    for axis, cell in zip(axes[0], cells, strict=True):
        names, table = cells[cell]
        _squares(axis, np.asarray(table), ".2f", 9.5, zeros=True, colour=MEMORY)
        axis.set_xticks(range(len(names)), names, rotation=45, ha="left", rotation_mode="anchor")
        axis.xaxis.tick_top()
        axis.set_xlabel(cell, fontweight="bold")
    axes[0, 0].set_yticks(range(len(words) + 1), ["(prior)", *words])
    return finish(figure)


def grids(panels: dict[str, tuple[np.ndarray, Names]], rows: Names, per_row: int = 2) -> Figure:
    """Draw tables of probabilities as shaded squares with their numbers.

    Args:
        panels: By title, a table (len(rows), k) and the names of its k columns.
        rows: The names of the rows of each table.
        per_row: The number of tables beside each other, which divides that of the panels.
    """
    n_rows = len(panels) // per_row
    size = (4.4, (0.34 * len(rows) + 0.75) * n_rows)
    figure, axes = plt.subplots(n_rows, per_row, figsize=size, squeeze=False, sharey=True)
    for axis, title in zip(axes.flat, panels, strict=True):
        table, names = panels[title]
        _squares(axis, np.asarray(table), ".2f", 8)
        axis.set_title(title, loc="center", fontsize=9)
        axis.set_yticks(range(len(rows)), rows)
        axis.set_xticks(range(len(names)), names, fontsize=8.5)
    return finish(figure)


def columns_of_w(
    example: Sentences, recoverable: Sequence[tuple[int, int]], unseen: Sequence[tuple[int, int]] = ()
) -> Figure:
    """Draw W of a model with words: a row for each word, a column for each state and value of the cell that it reads.

    Args:
        example: The model.
        recoverable: Pairs of a memory value and a state, whose columns are framed.
        unseen: Such pairs, whose columns have crosses for zeros.
    """
    model = example.model
    figure, axes = plt.subplots(figsize=(4.4, 3.5))
    by_state_and_value = model.emission.permute(0, 2, 1).flatten(1)
    size = 8 if by_state_and_value.shape[1] > 8 else 10  # Fewer columns leave room for larger type.
    _squares(axes, by_state_and_value.numpy(), ".2g", size - 0.5)
    axes.set_yticks(range(len(example.words)), example.words)
    values = []
    for state in range(model.n_states):
        cell, part = divmod(state, model.n_syntax)
        values += example.values[cell]
        name = f"{example.cells[cell]}\n{example.syntax[part]}"
        middle = model.n_memory * (state + 0.5) - 0.5
        axes.text(middle, -0.7, name, ha="center", fontsize=size + 0.5)
        if state > 0:
            axes.axvline(model.n_memory * state - 0.5, color=SOFT, linewidth=1)
    axes.set_xticks(range(len(values)), values, rotation=90, fontsize=size)
    for value, state in recoverable:
        corner = (model.n_memory * state + value - 0.5, -0.5)
        look = dict(clip_on=False, fill=False, edgecolor=INK, linewidth=2)
        axes.add_patch(Rectangle(corner, 1, len(example.words), **look))
    for value, state in unseen:
        rows = np.flatnonzero(model.emission[:, value, state] == 0)
        places = np.full(len(rows), model.n_memory * state + value)
        axes.plot(places, rows, "x", color=SOFT, markersize=11)
    axes.set_xlim(-0.6, len(values) - 0.4)
    return finish(figure)
