"""Figures, each a function of arrays or results; none of them trains or samples. All return the Matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hmmlib.theory.separation import Impossible
from hmmlib.validation import as_array, by_name, length_of, not_empty, of_type

INK, SOFT = "#22303c", "#748491"
# Okabe and Ito's colours, which colour-blind readers tell apart; the orange is darker, to be seen as a line on white.
BLUE, ORANGE, GREEN, RED = "#0072b2", "#b97f00", "#009e73", "#d55e00"
TYPE, SMALL = 11.5, 11  # points; on a phone, in a figure of 5.4 inches, some 11 and 10.5 pixels


def use_style() -> None:
    """One look for all figures: vector output, no box, labels in ink. Call once in a notebook."""
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "font.size": TYPE,
            "axes.edgecolor": SOFT,
            "axes.labelcolor": INK,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlelocation": "left",
            "axes.titlesize": 12,
            "legend.fontsize": SMALL,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "svg.fonttype": "none",  # text stays text: light, searchable, in the page's own font
            "svg.hashsalt": "hmmlib",
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    set_matplotlib_formats("svg", metadata={"Date": None})


def legend_below(figure: Figure, columns: int = 2) -> None:
    """One legend of all axes under them, where it takes no width, in as many of the columns as fit beside each other."""
    drawn = {name: mark for axes in figure.axes for mark, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    legend = figure.legend(drawn.values(), drawn, loc="lower center", ncol=columns, fontsize=SMALL)
    if columns > 1 and legend.get_window_extent().width > 0.95 * figure.bbox.width:
        legend.remove()
        legend_below(figure, columns - 1)


def done(figure: Figure) -> Figure:
    """Made longer by its legend, and closed, so that a notebook shows it once: as the value of its cell."""
    below = sum(legend.get_window_extent().height for legend in figure.legends) / figure.dpi
    figure.set_figheight(figure.get_figheight() + below)
    figure.tight_layout(rect=(0, below / figure.get_figheight(), 1, 1))
    plt.close(figure)
    return figure


def distributions(rows: dict[str, Sequence[float]], outcomes: Sequence[str], title: str = "") -> Figure:
    """Probability vectors side by side, one group of bars for each row. ValueError for a row of another length."""
    heights = {
        name: as_array(f"rows[{name!r}]", row, length_of("outcomes", outcomes))
        for name, row in by_name("rows", rows).items()
    }
    colours = [BLUE, ORANGE, GREEN, RED, SOFT]
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    width = 0.8 / len(rows)
    for k, (name, row) in enumerate(heights.items()):
        at = np.arange(len(outcomes)) + (k - (len(rows) - 1) / 2) * width
        axes.bar(at, row, width * 0.92, color=colours[k % len(colours)], label=name)
    axes.set_xticks(np.arange(len(outcomes)), outcomes)
    axes.set(ylabel="probability", ylim=(0, 1), title=title)
    legend_below(figure)
    return done(figure)


def stacked(panels: dict[str, dict[str, Sequence[float]]], outcomes: Sequence[str], x_label: str) -> Figure:
    """Bars with a part for each series, one panel above the other. ValueError for a series of another length."""
    colours = [BLUE, ORANGE, GREEN, RED, SOFT]
    figure, rows = plt.subplots(
        len(by_name("panels", panels)), 1, figsize=(5.4, 2.2 * len(panels) + 0.3), squeeze=False
    )
    for axes, (title, series) in zip(rows[:, 0], panels.items(), strict=True):
        below = np.zeros(length_of("outcomes", outcomes))
        for (name, heights), colour in zip(by_name(f"panels[{title!r}]", series).items(), colours, strict=False):
            heights = as_array(f"panels[{title!r}][{name!r}]", heights, len(below))
            axes.bar(np.arange(len(below)), heights, 0.8, bottom=below, color=colour, label=name)
            below = below + heights
        axes.set_xticks(np.arange(len(below)), outcomes)
        axes.set(title=title, ylabel="share")
    axes.set_xlabel(x_label)
    legend_below(figure)
    return done(figure)


def matrices(named: dict[str, np.ndarray], x_label: str, y_labels: Sequence[str]) -> Figure:
    """Matrices of probabilities as shaded squares, white for 0 and dark for 1. ValueError for what is no matrix."""
    if length_of("y_labels", y_labels) != len(by_name("named", named)):
        raise ValueError(f"y_labels must be as many as the matrices, {len(named)}, not {len(y_labels)}")
    named = {name: as_array(f"named[{name!r}]", matrix, None, None) for name, matrix in named.items()}
    figure, axes = plt.subplots(1, len(named), figsize=(2.7 * len(named), 2.9), squeeze=False)
    for axis, (name, matrix), y_label in zip(axes[0], named.items(), y_labels, strict=True):
        axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
        axis.set(title=name, xlabel=x_label, ylabel=y_label)
        axis.spines[:].set_visible(False)
    return done(figure)


def losses(steps: Sequence[int], values: Sequence[float], levels: dict[str, float]) -> Figure:
    """Masked-token loss against steps, with named levels as lines. ValueError for another number of values than of steps."""
    steps = not_empty("steps", as_array("steps", steps, None))
    values, levels = as_array("values", values, len(steps)), by_name("levels", levels)
    if len(levels) > 3:
        raise ValueError(f"levels must be 1 to 3 lines, by name, not {len(levels)}")
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.plot(steps, values, color=BLUE)
    for (name, level), colour, style in zip(levels.items(), (ORANGE, GREEN, RED), (":", "--", "-."), strict=False):
        axes.axhline(level, color=colour, linestyle=style, label=name)
    axes.set(xlabel="pretraining step", ylabel="masked-token loss (nats)", ylim=(0, None))
    legend_below(figure)
    return done(figure)


def scatter(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str, diagonal: bool = False) -> Figure:
    """Points of one quantity against another, with the line y = x if asked for. ValueError where they are not as many."""
    x = not_empty("x", as_array("x", x, None))
    y = as_array("y", y, len(x))
    figure, axes = plt.subplots(figsize=(4.8, 3.8))
    axes.scatter(x, y, s=14, color=BLUE, alpha=0.6, linewidth=0)
    if diagonal:
        span = [min(*x, *y), max(*x, *y)]
        axes.plot(span, span, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel=x_label, ylabel=y_label)
    return done(figure)


def curve(x: Sequence[float], series: dict[str, Sequence[float]], x_label: str, y_label: str, log: str = "") -> Figure:
    """Lines with markers over a common x; `log` names the logarithmic axes ("x", "y" or "xy").

    ValueError for more than four lines, or one of another length than x.
    """
    colours, markers = [BLUE, ORANGE, GREEN, RED], "os^D"
    if len(by_name("series", series)) > len(markers):
        raise ValueError(f"series must be 1 to {len(markers)} lines, by name, not {len(series)}")
    x = as_array("x", x, None)
    series = {name: as_array(f"series[{name!r}]", values, len(x)) for name, values in series.items()}
    if log not in ("", "x", "y", "xy"):
        raise ValueError(f"log must be '', 'x', 'y' or 'xy', not {log!r}")
    figure, axes = plt.subplots(figsize=(5.4, 3))
    for k, (name, values) in enumerate(series.items()):
        axes.plot(x, values, marker=markers[k], color=colours[k], label=name, markersize=5)
    axes.set(xlabel=x_label, ylabel=y_label, **{f"{axis}scale": "log" for axis in log})
    if len(series) > 1:
        legend_below(figure)
    return done(figure)


TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.866]])
"""Where the corners of a triangle of distributions over three tokens are drawn."""


def _draw_refutation(axes: Axes, detail: Axes, spots: np.ndarray, labels: np.ndarray, refuted: Impossible) -> None:
    """The points of each label that a proof mixes, joined, in a detail stretched to its frame; and the one point that both
    mixtures are."""
    joined = []
    for value, colour, marker, weights in (
        (True, BLUE, "o", refuted.positive),
        (False, ORANGE, "s", refuted.negative),
    ):
        own = spots[labels == value]
        weights = as_array("the weights of refuted", weights, len(own))
        corners = own[weights > 0]
        middle = weights[weights > 0] @ corners / weights.sum()
        turned = corners[np.argsort(np.arctan2(*(corners - middle).T))]
        detail.scatter(*own.T, color=colour, marker=marker, s=14, alpha=0.3, linewidth=0)
        detail.fill(*turned.T, facecolor=colour, edgecolor=colour, alpha=0.2, linewidth=0)
        detail.plot(*np.vstack([turned, turned[:1]]).T, color=colour, marker=marker, linewidth=1.6, markersize=6)
        joined.append(corners)
    for where in (axes, detail):
        where.plot(*middle, "*", color=RED, markersize=10, zorder=4, label="mixture of both labels")
    low, high = np.vstack(joined).min(0), np.vstack(joined).max(0)
    low, high = low - 0.12 * (high - low) - 0.01, high + 0.12 * (high - low) + 0.01
    axes.add_patch(Rectangle(low, *(high - low), fill=False, edgecolor=SOFT, linewidth=1))
    detail.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
    detail.set_title("the frame, enlarged", loc="center", fontsize=TYPE)
    detail.spines[:].set_visible(True)


def _crossings(head: np.ndarray) -> np.ndarray:
    """The two points where the line b·p = 0 crosses the sides of the triangle, (2, 2); (0, 2) where it does not."""
    ends = []
    for i, j in ((0, 1), (1, 2), (2, 0)):
        if head[i] * head[j] < 0:
            share = head[i] / (head[i] - head[j])
            ends.append((1 - share) * TRIANGLE[i] + share * TRIANGLE[j])
    return np.array(ends if len(ends) == 2 else []).reshape(-1, 2)


def simplex(points: np.ndarray, labels: Sequence[bool], corners: np.ndarray, head: np.ndarray | None = None) -> Figure:
    """Distributions over three tokens as points of a triangle.

    Args:
        points: (n, 3), coloured by `labels`.
        corners: (3, S), the columns of W, drawn as crosses.
        head: weights b of a linear head, (3,); the line b·p = 0 is drawn where it crosses the triangle.

    ValueError for arrays of other shapes.
    """
    points, corners = as_array("points", points, None, 3), as_array("corners", corners, 3, None)
    labels, head = as_array("labels", labels, len(points)), head if head is None else as_array("head", head, 3)
    figure, axes = plt.subplots(figsize=(5.2, 4))
    axes.plot(*TRIANGLE[[0, 1, 2, 0]].T, color=SOFT, linewidth=1)
    for k, (x, y) in enumerate(TRIANGLE):
        axes.annotate(f"token {k}", (x, y), (x, y + (0.05 if k == 2 else -0.07)), ha="center")
    labels = labels.astype(bool)
    for value, colour, marker in ((True, BLUE, "o"), (False, ORANGE, "s")):
        spots = points[labels == value] @ TRIANGLE
        size = 34 if value else 26
        axes.scatter(*spots.T, color=colour, marker=marker, s=size, label=f"label {value:d}", alpha=0.75, linewidth=0)
    axes.scatter(*(corners.T @ TRIANGLE).T, marker="x", color=INK, s=60, label="columns of W")
    if head is not None and len(crossings := _crossings(head)):
        axes.plot(*crossings.T, color=GREEN, linestyle="--", label="the head's line b·p = 0")
    axes.set(aspect="equal")
    axes.axis("off")
    legend_below(figure)
    return done(figure)


def dependencies(
    places: dict[str, tuple[float, float]], arrows: Sequence[tuple[str, str]], marked: Sequence[str] = ()
) -> Figure:
    """Which statement a proof takes from which: a box at each place, an arrow from what is used to where it is used.

    Args:
        places: name to (column, row); rows count upwards.
        arrows: pairs of names, (used, where).
        marked: names of boxes in orange and with an asterisk; the others are blue.

    ValueError for an arrow or a mark at a name that has no place.
    """
    by_name("places", places)
    arrows, marked = list(arrows), list(marked)
    for what, names in (("arrows", {name for arrow in arrows for name in arrow}), ("marked", set(marked))):
        if unknown := sorted(names - places.keys()):
            raise ValueError(f"{what} must be among the places {', '.join(places)}, not {', '.join(unknown)}")
    columns, rows = zip(*places.values(), strict=True)
    wide, high = max(columns) - min(columns) + 1, max(rows) - min(rows) + 1
    figure, axes = plt.subplots(figsize=(1.35 * wide, 0.72 * high))
    boxes = {}
    for name, (column, row) in places.items():
        box = dict(boxstyle="round,pad=0.45", facecolor="white", edgecolor=ORANGE if name in marked else BLUE)
        label = f"{name}*" if name in marked else name
        boxes[name] = axes.text(column, row, label, ha="center", va="center", fontsize=SMALL, bbox=box, zorder=3)
    for used, where in arrows:
        ends = dict(patchA=boxes[used].get_bbox_patch(), patchB=boxes[where].get_bbox_patch(), shrinkA=2, shrinkB=2)
        line = dict(arrowstyle="-|>", color=SOFT, linewidth=1.3, **ends)
        axes.annotate("", places[where], places[used], arrowprops=line, zorder=4)  # once the boxes have their sizes
    axes.set(xlim=(min(columns) - 0.5, max(columns) + 0.5), ylim=(min(rows) - 0.5, max(rows) + 0.5))
    axes.axis("off")
    return done(figure)


def attention(words: Sequence[str], scores: Sequence[float], attended: Sequence[bool], bound: float = 1.0) -> Figure:
    """Attention scores along one input: a bar for each position, the attended ones dark; a line at `bound`.

    ValueError where there are not as many scores, or marks, as words.
    """
    scores, at = as_array("scores", scores, length_of("words", words)), np.arange(1, len(words) + 1)
    attended = as_array("attended", attended, len(words)).astype(bool)
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    for which, colour, name in ((attended, BLUE, "attended"), (~attended, SOFT, "not attended")):
        axes.bar(at[which], scores[which], 0.7, color=colour, label=name)
    axes.axhline(bound, color=INK, linewidth=1, linestyle=":")
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xticks(at, [f"{word}\n{i}" for i, word in zip(at, words, strict=True)])
    axes.set(ylabel="attention score")
    legend_below(figure)
    return done(figure)


def _draw_triangle(axis: Axes, title: str, points, labels, columns, names) -> None:
    """Points in a triangle of three tokens, by their labels, and named columns as crosses."""
    axis.plot(*TRIANGLE[[0, 1, 2, 0]].T, color=SOFT, linewidth=1)
    for k, (x, y) in enumerate(TRIANGLE):
        axis.annotate(f"token {k}", (x, y), (x, y + (0.04 if k == 2 else -0.1)), ha="center", fontsize=SMALL)
    for value, colour, marker in ((True, BLUE, "o"), (False, ORANGE, "s")):
        spots = points[(labels == value) & (points.sum(1) > 0)] @ TRIANGLE
        axis.scatter(*spots.T, color=colour, marker=marker, s=24, label=f"label {value:d}", alpha=0.75, linewidth=0)
    axis.scatter(*columns.T, marker="x", color=INK, s=44, label="columns of W")
    for name, (x, y) in zip(names, columns, strict=True):
        axis.annotate(name, (x, y), (6, 4), textcoords="offset points", fontweight="bold")
    axis.set(aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.14, 0.98))
    axis.set_title(title, loc="center", fontsize=TYPE)
    axis.axis("off")


def simplex_with_prompt(
    panels: dict[str, np.ndarray],
    labels: Sequence[bool],
    corners: np.ndarray,
    names: Sequence[str],
    essential: Sequence[int],
    head: np.ndarray,
    refuted: Impossible | None = None,
) -> Figure:
    """Distributions over three tokens as points of a triangle, one panel for each prompt.

    Args:
        panels: by title, the points (n, 3) of the same n inputs; a row of zeros (no such input) is left out.
        labels: of the inputs, (n,).
        corners: (3, S), the columns of W, drawn as crosses and named by `names`.
        essential: the columns whose segment or triangle is shaded in the last panel.
        head: weights b of a linear head, (3,); the line b·p = 0 is drawn in the last panel, through the triangle.
        refuted: the proof that no head fits the points of the first panel: a mixture of points of the one label and one of
            the other that are the same point. A panel behind the first enlarges them: they are joined, and the point is a
            star.

    ValueError for arrays of other shapes.
    """
    labels, corners, head = (
        as_array("labels", labels, None),
        as_array("corners", corners, 3, length_of("names", names)),
        as_array("head", head, 3),
    )
    panels = {t: as_array(f"panels[{t!r}]", points, len(labels), 3) for t, points in by_name("panels", panels).items()}
    if not set(essential) <= set(range(len(names))):
        raise ValueError(f"essential must hold columns from 0 to {len(names) - 1}, not {list(essential)}")
    labels, columns, essential = labels.astype(bool), corners.T @ TRIANGLE, list(essential)
    if refuted is None:
        figure, (cells,) = plt.subplots(1, len(panels), figsize=(2.7 * len(panels), 2.7), squeeze=False)
        places = cells
    else:  # two in a row, the enlarged detail second
        rows = len(panels) // 2 + 1
        figure, cells = plt.subplots(rows, 2, figsize=(5.4, 2.45 * rows), squeeze=False)
        first, detail, *others = cells.flat
        places = [first, *others][: len(panels)]
        spots = next(iter(panels.values())) @ TRIANGLE
        _draw_refutation(first, detail, spots, labels, of_type("refuted", refuted, Impossible))
        for free in others[len(panels) - 1 :]:
            free.axis("off")
    for axis, (title, points) in zip(places, panels.items(), strict=True):
        _draw_triangle(axis, title, points, labels, columns, names)
    axis.fill(*columns[essential].T, facecolor=SOFT, edgecolor=GREEN, alpha=0.35, linewidth=5, zorder=0)
    if len(crossings := _crossings(head)):
        axis.plot(*crossings.T, color=GREEN, linestyle="--", label="the head's line b·p = 0")
    if refuted is not None and len(panels) % 2 == 0:
        drawn = {name: mark for one in places for mark, name in zip(*one.get_legend_handles_labels(), strict=True)}
        others[-1].legend(drawn.values(), drawn, loc="center left", fontsize=SMALL)
    else:
        legend_below(figure, columns=3)
    return done(figure)


def ink_on_shade(value: float) -> str:
    """For text on a square of the colour map Blues, which does not change on a dark page: what can be read there."""
    return "#fefefe" if value > 0.71 else "#020202"


def beliefs(words: Sequence[str], cells: dict[str, tuple[Sequence[str], np.ndarray]]) -> Figure:
    """What is believed of each memory cell before the first word and after each word: a row for each word, a shaded column
    for each value.

    `cells` maps a cell's name to the names of its values, M of them, and its posteriors (len(words) + 1, M). ValueError
    for a table of another shape.
    """
    cells = {
        cell: (
            names,
            as_array(f"cells[{cell!r}]", table, length_of("words", words) + 1, length_of("names of values", names)),
        )
        for cell, (names, table) in by_name("cells", cells).items()
    }
    ratios = [len(names) for names, _ in cells.values()]
    size = min(5.4, 0.95 + 0.41 * sum(ratios)), 1.1 + 0.27 * (len(words) + 1)
    figure, axes = plt.subplots(1, len(cells), figsize=size, squeeze=False, sharey=True, width_ratios=ratios)
    for axis, (cell, (names, table)) in zip(axes[0], cells.items(), strict=True):
        axis.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            shade = dict(ha="center", va="center", fontsize=9.5, color=ink_on_shade(value))
            axis.text(column, row, f"{value:.2f}".lstrip("0"), **shade)
        axis.set_xticks(range(len(names)), names, rotation=45, ha="left", rotation_mode="anchor")
        axis.xaxis.tick_top()
        axis.set_xlabel(cell, fontweight="bold")
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    axes[0, 0].set_yticks(range(len(words) + 1), ["(prior)", *words])
    return done(figure)
