"""Static figures, each a function of arrays; none of them trains or samples. All return the Matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.optimize import isotonic_regression

from companion.figures.tables import subscripts

if TYPE_CHECKING:
    from hmmlib.models.sentences import Sentences

ROLES = {
    "label-1": "#0072b2", "label-0": "#b97f00", "memory": "#009e73", "trained": "#d55e00", "head": "#b0479c",
    "first": "#7d7a1c", "second": "#6c62c4", "soft": "#748491", "ink": "#22303c",
}  # fmt: skip
"""What a colour stands for, by its name in companion.css: one meaning on all pages, and never the only sign.

A prompt is `trained`; `soft` and `ink` are texts, tokens, hidden states, models without memory, and ink, dashed, what
is exact; `first` and `second` are of no role: two states, or two fits.
"""
LABEL_1, LABEL_0, MEMORY, TRAINED, HEAD, FIRST, SECOND, SOFT, INK = ROLES.values()
LABELS = (True, LABEL_1, "o"), (False, LABEL_0, "s")
COLOURS, MARKERS = (SOFT, FIRST, SECOND, INK, SOFT, INK), "os^Dxv"
HATCHES, DASHES = ("", "///", "...", "xxx"), ("-", "--", ":", "-.")
STYLES = {
    "texts of label 1": (LABEL_1, "o", "-"), "texts of label 0": (LABEL_0, "s", "-"),
    **dict.fromkeys(("head tuning", "head tuned on the network", "head", "tuned head"), (HEAD, "s", "-")),
    **dict.fromkeys(("prompt tuning", "prompt tuned on the network", "prompt and head", "tuned prompt and head",
                     "prompt of 20 vectors"), (TRAINED, "o", "-")),
    "prompt of one vector": (TRAINED, "^", ":"),
    "head tuned on the exact G": (HEAD, "^", "--"), "prompt tuned on the exact Ḡ": (TRAINED, "D", "--"),
    **dict.fromkeys(("head of Theorem 3.3", "linear programs' head"), (INK, "x", "--")),
    **dict.fromkeys(("memory HMM + attention head", "memory, attention head"), (MEMORY, "o", "-")),
    **dict.fromkeys(("memory, 7 values", "value that was drawn"), (MEMORY, "o", "-")),
    "memory, linear head": (MEMORY, "s", "--"), "vanilla, attention head": (SOFT, "o", "-"),
    **dict.fromkeys(("vanilla HMM + linear head", "vanilla, linear head"), (SOFT, "s", "--")),
    "first state, 28 states": (SOFT, "s", "-"),
    "probe on the hidden state": (INK, "x", "-"), "probe, fresh weights": (SOFT, "v", ":"),
    "nearest reweighting": (SECOND, "^", "-"), "nearest relabelling": (FIRST, "D", "-"),
    "no change (W p)": (INK, "v", ":"), "network's error without a prompt": (SOFT, "x", ":"),
    **dict.fromkeys(("frequencies only", "token frequencies"), (INK, "", ":")),
    **dict.fromkeys(("exact conditionals", "least possible"), (INK, "", "--")),
}  # fmt: skip
"""Colour, marker and dashes of each series that has a meaning of its own, the same on all pages."""
SHADE = 0.4  # the opacity of a square under a number: what is written on it in ink can be read
TYPE = SMALL = 12  # points; on a phone, in a figure of 5.4 inches, some 11 pixels


def style(name: str, k: int = 0) -> tuple[str, str, str]:
    """Colour, marker and dashes of a series; of one that is not in `STYLES`, those of the k-th."""
    return STYLES.get(name, (COLOURS[k], MARKERS[k], "-"))


def use_style() -> None:
    """One look for all figures: vector output, no box, labels in ink. Call once in a notebook."""
    plt.rc("figure", dpi=110)
    plt.rc("font", size=TYPE)
    plt.rc("axes", edgecolor=SOFT, labelcolor=INK, titlelocation="left", titlesize=12)
    plt.rc("axes.spines", right=False, top=False)
    plt.rc("legend", fontsize=SMALL, frameon=False)
    plt.rc("hatch", color="white")
    plt.rc("lines", linewidth=1.8)
    plt.rc("svg", fonttype="none", hashsalt="hmmlib")  # text stays text: light, searchable, in the page's own font
    plt.rc("text", color=INK)
    plt.rc(("xtick", "ytick"), color=INK, labelsize=11)
    with suppress(ImportError):
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})


def marks_of(*every: Axes) -> dict[str, Artist]:
    """What a legend of some axes shows: each name once."""
    return {name: mark for axes in every for mark, name in zip(*axes.get_legend_handles_labels(), strict=True)}


def finish(figure: Figure, legend: int = 0) -> Figure:
    """Put a legend below, in as many of the `legend` columns as fit, make the figure longer by it, and close it.

    Call it again after further marks are drawn: the new legend takes the place of the old one.

    A closed figure is shown once by a notebook: as the value of its cell.
    """
    drawn = marks_of(*figure.axes)
    for old in [*figure.legends]:
        figure.set_figheight(figure.get_figheight() - old.get_window_extent().height / figure.dpi)
        old.remove()
    for columns in range(legend, 0, -1):
        shown = figure.legend(drawn.values(), map(subscripts, drawn), loc="lower center", ncol=columns, fontsize=SMALL)
        if columns == 1 or shown.get_window_extent().width <= 0.95 * figure.bbox.width:
            break
        shown.remove()
    below = sum(shown.get_window_extent().height for shown in figure.legends) / figure.dpi
    figure.set_figheight(figure.get_figheight() + below)
    for _ in range(2):  # what stands outside axes of equal scales is found the second time
        figure.tight_layout(rect=(0, below / figure.get_figheight(), 1, 1))
    plt.close(figure)
    return figure


def name_ends(figure: Figure) -> Figure:
    """Finish a figure of one pair of axes with the name of each line beside its right end in place of a legend."""
    (axes,) = figure.axes
    lines = sorted(marks_of(axes).items(), key=lambda named: named[1].get_ydata()[-1])
    ends, right = np.array([line.get_ydata()[-1] for _, line in lines]), axes.get_xlim()[1]
    least = np.arange(len(lines)) * 0.085 * np.ptp(axes.get_ylim())
    for (name, line), end, place in zip(lines, ends, isotonic_regression(ends - least).x + least, strict=True):
        leader = dict(arrowstyle="-", color=line.get_color(), linewidth=1.2, shrinkA=0, shrinkB=3)
        at = right + 0.03 * np.ptp(axes.get_xlim()), place
        name = subscripts(name.replace(" tuning", ""))  # short, so that the whole fits on a phone
        axes.annotate(name, (line.get_xdata()[-1], end), at, va="center", fontsize=SMALL, arrowprops=leader)
    figure.set_figwidth(5.5)
    return finish(figure)


def distributions(
    rows: dict[str, Sequence[float]], outcomes: Sequence[str], title: str = "", colours: Sequence[str] = COLOURS,
    levels: dict[str, tuple[str, Sequence[float]]] | None = None,
) -> Figure:  # fmt: skip
    """Probability vectors side by side, a bar for each row; `levels` maps names to (colour, vector), drawn as lines."""
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    width = 0.8 / len(rows)
    for k, (name, row) in enumerate(rows.items()):
        at = np.arange(len(outcomes)) + (k - (len(rows) - 1) / 2) * width
        axes.bar(at, row, width * 0.92, color=colours[k], hatch=HATCHES[k], label=name)
    for k, (name, (colour, row)) in enumerate((levels or {}).items()):
        at, dashes = np.arange(len(outcomes)), "-:"[k % 2]
        axes.hlines(row, at - 0.45, at + 0.45, color=colour, linestyle=dashes, linewidth=2.5, label=name)
    axes.set(ylabel="probability", ylim=(0, 1), title=title, xticks=range(len(outcomes)), xticklabels=outcomes)
    return finish(figure, 2)


def stacked(panels: dict[str, dict[str, Sequence[float]]], outcomes: Sequence[str], x_label: str) -> Figure:
    """Bars with a part for each series, one panel above the other."""
    figure, rows = plt.subplots(len(panels), 1, figsize=(5.4, 2.2 * len(panels) + 0.3), squeeze=False)
    for axes, (title, series) in zip(rows[:, 0], panels.items(), strict=True):
        below = np.zeros(len(outcomes))
        for k, (name, heights) in enumerate(series.items()):
            look = dict(color=style(name, k)[0], hatch=HATCHES[k], label=name)
            axes.bar(np.arange(len(below)), heights, 0.8, bottom=below, **look)
            below = below + np.asarray(heights)
        axes.set(title=title, ylabel="share", xticks=range(len(below)), xticklabels=outcomes)
    axes.set_xlabel(x_label)
    return finish(figure, 2)


def matrices(named: dict[str, np.ndarray], x_label: str, y_labels: Sequence[str]) -> Figure:
    """Matrices of probabilities as shaded squares."""
    figure, axes = plt.subplots(1, len(named), figsize=(2.7 * len(named), 2.9), squeeze=False)
    for axis, (name, matrix), y_label in zip(axes[0], named.items(), y_labels, strict=True):
        _shades(axis, matrix, 0.9)
        axis.set(title=name, xlabel=x_label, ylabel=y_label, aspect="equal")
    return finish(figure)


def losses(steps: Sequence[int], values: Sequence[float], levels: dict[str, float]) -> Figure:
    """Masked-token loss against steps, with up to three named levels as lines."""
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.plot(steps, values, color=SOFT, label="network")
    for k, (name, level) in enumerate(levels.items()):
        colour, _, dashes = style(name, k)
        axes.axhline(level, color=colour, linestyle=dashes, label=name)
    axes.set(xlabel="pretraining step", ylabel="masked-token loss (nats)", ylim=(0, None))
    return finish(figure, 2)


def scatter(
    x: Sequence[float], y: Sequence[float], x_label: str, y_label: str, diagonal: bool = False,
    marked: dict[str, Sequence[bool]] | None = None,
) -> Figure:  # fmt: skip
    """Points of one quantity against another, with a line where one is zero, y = x if asked for, and some by name."""
    figure, axes = plt.subplots(figsize=(4.8, 3.8))
    for values, line in ((x, axes.axvline), (y, axes.axhline)):
        if min(values) < 0 < max(values):
            line(0, color=SOFT, linewidth=0.8, zorder=0)
    axes.scatter(x, y, s=14, color=SOFT, alpha=0.8, linewidth=0)
    for name, which in (marked or {}).items():
        axes.scatter(np.asarray(x)[which], np.asarray(y)[which], s=26, marker="D", color=INK, linewidth=0, label=name)
    if diagonal:
        axes.plot(*[[min(*x, *y), max(*x, *y)]] * 2, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel=x_label, ylabel=y_label)
    return finish(figure, len(marked or ()))


def curve(
    x: Sequence[float], series: dict[str, Sequence[float]], x_label: str, y_label: str, log: str = "",
    colours: Sequence[str] = COLOURS,
) -> Figure:  # fmt: skip
    """Up to four lines with markers over a common x; `log` names the logarithmic axes ("x", "y" or "xy")."""
    figure, axes = plt.subplots(figsize=(5.4, 3))
    for k, (name, values) in enumerate(series.items()):
        colour = style(name)[0] if name in STYLES else colours[k]
        axes.plot(x, values, DASHES[k], marker=MARKERS[k], color=colour, label=name, markersize=5)
    axes.set(xlabel=x_label, ylabel=y_label, **{f"{axis}scale": "log" for axis in log})
    return finish(figure, 2 if len(series) > 1 else 0)


def dependencies(places: dict[str, tuple], arrows: Sequence[tuple[str, str]]) -> Figure:
    """Which statement a proof takes from which: a box at each place, an arrow from what is used to where it is used.

    `places` maps a name to (column, row); rows count upwards. `arrows` are pairs of names, (used, where).
    """
    columns, rows = zip(*places.values(), strict=True)
    wide, high = max(columns) - min(columns) + 1, max(rows) - min(rows) + 1
    figure, axes = plt.subplots(figsize=(1.35 * wide, 0.72 * high))
    boxes = {}
    for name, place in places.items():
        box = dict(boxstyle="round,pad=0.45", facecolor="white", edgecolor=INK)
        text = axes.text(*place, name, ha="center", va="center", fontsize=11, bbox=box, zorder=3)
        boxes[name] = text.get_bbox_patch()
    for used, where in arrows:
        line = dict(arrowstyle="-|>", color=SOFT, linewidth=1.3, shrinkA=2, shrinkB=2)
        line |= dict(patchA=boxes[used], patchB=boxes[where])
        axes.annotate("", places[where], places[used], arrowprops=line, zorder=4)  # once the boxes have their sizes
    axes.set(xlim=(min(columns) - 0.5, max(columns) + 0.5), ylim=(min(rows) - 0.5, max(rows) + 0.5))
    axes.axis("off")
    return finish(figure)


def attention(words: Sequence[str], scores: Sequence[float], attended: Sequence[bool]) -> Figure:
    """Attention scores along one input: a bar for each position, the attended ones filled; a line at 1."""
    at, scores, attended = np.arange(1, len(words) + 1), np.asarray(scores), np.asarray(attended)
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    for which, fill, name in ((attended, SOFT, "attended"), (~attended, "none", "not attended")):
        axes.bar(at[which], scores[which], 0.7, facecolor=fill, edgecolor=SOFT, linewidth=1.4, label=name)
    axes.axhline(1, color=INK, linewidth=1, linestyle=":")
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(ylabel="attention score", xticks=at, xticklabels=[f"{word}\n{i}" for i, word in enumerate(words, 1)])
    return finish(figure, 2)


def strips(
    rows: dict[str, tuple[Sequence, Sequence]], x_label: str, crosses: dict[str, Sequence], cuts: dict[str, float]
) -> Figure:
    """Numbers along a line, a strip for each row: points of label 1 above it, of label 0 below, each drawn once.

    `rows` maps a name to numbers and their labels, `crosses` to the columns of W there, `cuts` to where a head cuts.
    """
    figure, axes = plt.subplots(figsize=(5.2, 0.6 + 0.75 * len(rows)))
    cross = dict(marker="x", color=INK, s=44, zorder=3, label="a column of W")
    cut = dict(color=HEAD, linestyle="--", zorder=4, label="the head's threshold")
    for y, (name, (values, labels)) in enumerate(rows.items()):
        values, labels = np.asarray(values), np.asarray(labels)
        axes.axhline(y, color=SOFT, linewidth=1, zorder=0)
        for label, colour, marker in LABELS:
            drawn = np.unique(values[labels == label].round(3))
            aside = 0.1 + 0.25 * (np.arange(len(drawn)) * 0.618 % 1)  # so that points do not hide each other
            at, look = y - aside if label else y + aside, dict(color=colour, marker=marker, linewidth=0)
            axes.scatter(drawn, at, s=14, label=f"label {label:d}", **look)
            if name in cuts and ((drawn >= cuts[name]) != label).any():
                wrong = (drawn >= cuts[name]) != label
                axes.scatter(drawn[wrong], at[wrong], s=44, facecolor="none", edgecolor=INK, label="wrong sign")
        axes.scatter(crosses[name], np.full(len(crosses[name]), y), **cross)
        if name in cuts:
            axes.plot([cuts[name]] * 2, [y - 0.42, y + 0.42], **cut)
    axes.set(xlabel=x_label, yticks=range(len(rows)), yticklabels=rows, ylim=(len(rows) - 0.5, -0.5))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return finish(figure, 2)


def _shades(axes: Axes, table: np.ndarray, most: float, colour: str = INK) -> None:
    """Squares of one colour, from none for 0 to the opacity `most` for 1, so that they follow a page into dark mode."""
    inks = LinearSegmentedColormap.from_list("inks", [(*to_rgb(colour), 0), (*to_rgb(colour), most)])
    edges = (np.arange(length + 1) - 0.5 for length in reversed(np.shape(table)))
    axes.pcolormesh(*edges, np.asarray(table), cmap=inks, vmin=0, vmax=1, edgecolor="white", linewidth=0.5)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.spines[:].set_visible(False)


def _squares(axes: Axes, table: np.ndarray, form: str, size: float, zeros: bool = False, colour: str = INK) -> None:
    """Shaded squares with their numbers; zeros are left empty unless asked for."""
    _shades(axes, table, SHADE, colour)
    for (row, column), value in np.ndenumerate(table):
        if value or zeros:
            text = format(value, form).removeprefix("0" if value < 1 else "")
            axes.text(column, row, text, ha="center", va="center", fontsize=size)
    axes.tick_params(length=0)


def beliefs(words: Sequence[str], cells: dict[str, tuple[Sequence[str], np.ndarray]]) -> Figure:
    """The posterior of each memory cell at first and after each word: a row for each word, a column for each value.

    `cells` maps a cell's name to the names of its values, M of them, and its posteriors (len(words) + 1, M).
    """
    ratios = [len(names) for names, _ in cells.values()]
    size = min(5.4, 0.95 + 0.41 * sum(ratios)), 1.1 + 0.27 * (len(words) + 1)
    figure, axes = plt.subplots(1, len(cells), figsize=size, squeeze=False, sharey=True, width_ratios=ratios)
    for axis, (cell, (names, table)) in zip(axes[0], cells.items(), strict=True):
        _squares(axis, np.asarray(table), ".2f", 9.5, zeros=True, colour=MEMORY)
        axis.set_xticks(range(len(names)), names, rotation=45, ha="left", rotation_mode="anchor")
        axis.xaxis.tick_top()
        axis.set_xlabel(cell, fontweight="bold")
    axes[0, 0].set_yticks(range(len(words) + 1), ["(prior)", *words])
    return finish(figure)


def grids(panels: dict[str, tuple[np.ndarray, Sequence[str]]], rows: Sequence[str], per_row: int = 2) -> Figure:
    """Tables of probabilities as shaded squares with their numbers, `per_row` of them side by side.

    `panels` maps a title to a table (len(rows), k) and the names of its k columns.
    """
    high = -(-len(panels) // per_row)
    size = 4.4, (0.34 * len(rows) + 0.75) * high
    figure, axes = plt.subplots(high, per_row, figsize=size, squeeze=False, sharey=True)
    for axis, (title, (table, names)) in zip(axes.flat, panels.items(), strict=True):
        _squares(axis, np.asarray(table), ".2f", 8)
        axis.set_title(title, loc="center", fontsize=9)
        axis.set_yticks(range(len(rows)), rows)
        axis.set_xticks(range(len(names)), names, fontsize=8.5)
    return finish(figure)


def columns_of_w(example: Sentences, recoverable: Sequence[tuple], unseen: Sequence[tuple] = ()) -> Figure:
    """W of a model with words, a row for each word, a column for each state and value of the cell that it looks up.

    `recoverable` and `unseen` are pairs (memory value, state) whose columns are framed, or have crosses for zeros.
    """
    model, high = example.model, len(example.words)
    values, states = model.n_memory, model.n_states
    figure, axes = plt.subplots(figsize=(4.4, 3.5))
    _squares(axes, model.emission.permute(0, 2, 1).flatten(1).numpy(), ".2g", 7.5)
    axes.set_yticks(range(high), example.words)
    named = [name for state in range(states) for name in example.values[state // model.n_syntax]]
    axes.set_xticks(range(values * states), named, rotation=90, fontsize=8)
    for state in range(states):
        cell, part = divmod(state, model.n_syntax)
        name = f"{example.cells[cell]}\n{example.syntax[part]}"
        axes.text(values * (state + 0.5) - 0.5, -0.7, name, ha="center", fontsize=8.5)
        if state:
            axes.axvline(values * state - 0.5, color=SOFT, linewidth=1)
    for value, state in recoverable:
        corner, look = (values * state + value - 0.5, -0.5), dict(fill=False, edgecolor=INK, linewidth=2)
        axes.add_patch(Rectangle(corner, 1, high, clip_on=False, **look))
    for value, state in unseen:  # crosses where no number stands
        rows = np.flatnonzero(model.emission[:, value, state] == 0)
        axes.plot(np.full(len(rows), values * state + value), rows, "x", color=SOFT, markersize=11)
    axes.set_xlim(-0.6, values * states - 0.4)
    return finish(figure)
