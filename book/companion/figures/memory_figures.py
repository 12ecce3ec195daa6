"""Figures of Section 4, each a function of arrays. Figures are Matplotlib's."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from companion.figures.figures import BLUE, GREEN, INK, ORANGE, SOFT, TRIANGLE, TYPE, done, legend_below
from hmmlib.validation import as_array, by_name, different_words


def mixtures(panels: dict[str, tuple[np.ndarray, dict[str, Sequence[float]]]], corners: Sequence[str]) -> Figure:
    """Distributions over three tokens as points of triangles beside each other, and the columns that they are mixtures of.

    `panels` maps a title to points (n, 3), of which each is drawn once, and to columns by name; what can be mixed of three
    or more of them is shaded. `corners` are the tokens' names. ValueError for arrays of other shapes.
    """
    from scipy.spatial import ConvexHull

    corners = different_words("corners", corners, 3)
    figure, axes = plt.subplots(1, len(by_name("panels", panels)), figsize=(2.7 * len(panels), 2.4), squeeze=False)
    for axis, (title, (points, columns)) in zip(axes[0], panels.items(), strict=True):
        points = np.unique(as_array(f"panels[{title!r}]", points, None, 3).round(3), axis=0) @ TRIANGLE
        own = by_name(f"columns of panels[{title!r}]", columns)
        spots = np.array([as_array(f"column {name!r}", column, 3) for name, column in own.items()]) @ TRIANGLE
        axis.plot(*TRIANGLE[[0, 1, 2, 0]].T, color=SOFT, linewidth=1)
        if len(spots) > 2:
            axis.fill(*spots[ConvexHull(spots).vertices].T, color=SOFT, alpha=0.3, linewidth=0)
        axis.scatter(*points.T, s=7, color=BLUE, linewidth=0, label="guesses")
        axis.scatter(*spots.T, marker="x", s=44, color=INK, zorder=3, label="columns of W")
        for name, (x, y) in zip(own, spots, strict=True):
            side = dict(xytext=(8, -3), ha="left") if x >= 0.5 else dict(xytext=(0, -15), ha="center")
            axis.annotate(name, (x, y), textcoords="offset points", fontweight="bold", **side)
        for name, (x, y) in zip(corners, TRIANGLE, strict=True):
            axis.annotate(name, (x, y), (x, y + (0.05 if y else -0.12)), ha="center")
        axis.set(aspect="equal", xlim=(-0.12, 1.4), ylim=(-0.16, 1))
        axis.set_title(title, loc="center", fontsize=TYPE)
        axis.axis("off")
    legend_below(figure)
    return done(figure)


def strips(
    rows: dict[str, tuple[Sequence[float], Sequence[bool]]],
    x_label: str,
    crosses: dict[str, Sequence[float]],
    cuts: dict[str, float],
) -> Figure:
    """Numbers along a line, a strip for each row: points of label 1 above it, of label 0 below, each drawn once.

    `rows` maps a name to numbers and their labels, `crosses` to what is marked on its line, `cuts` to where a head cuts
    it. ValueError for another number of labels, or a name that is no row.
    """
    if unknown := {*crosses, *cuts} - by_name("rows", rows).keys():
        raise ValueError(f"crosses and cuts must be of the rows {', '.join(rows)}, not {', '.join(sorted(unknown))}")
    figure, axes = plt.subplots(figsize=(5.2, 0.6 + 0.75 * len(rows)))
    for y, (name, (values, labels)) in enumerate(rows.items()):
        values = as_array(f"rows[{name!r}]", values, None)
        labels = as_array(f"labels of rows[{name!r}]", labels, len(values)).astype(bool)
        axes.axhline(y, color=SOFT, linewidth=1, zorder=0)
        for label, colour, marker, side in ((True, BLUE, "o", -1), (False, ORANGE, "s", 1)):
            own = np.unique(values[labels == label].round(3))
            spread = side * (0.1 + 0.25 * (np.arange(len(own)) * 0.618 % 1))  # so that points do not hide each other
            axes.scatter(own, y + spread, s=14, color=colour, marker=marker, linewidth=0, label=f"label {label:d}")
        marked = as_array(f"crosses[{name!r}]", crosses.get(name, ()), None)
        axes.scatter(marked, np.full(len(marked), y), marker="x", color=INK, s=44, zorder=3, label="columns of W")
        if name in cuts:
            axes.plot(
                [cuts[name]] * 2,
                [y - 0.42, y + 0.42],
                color=GREEN,
                linestyle="--",
                zorder=4,
                label="where the head cuts",
            )
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=x_label, ylim=(len(rows) - 0.5, -0.5))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    legend_below(figure)
    return done(figure)
