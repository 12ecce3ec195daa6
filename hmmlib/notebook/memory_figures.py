"""Figures of Section 4, each a function of arrays. Figures are Matplotlib's."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from hmmlib.notebook.figures import BLUE, GREEN, INK, ORANGE, SOFT, done
from hmmlib.validation import as_array, by_name


def strips(
    rows: dict[str, tuple[Sequence[float], Sequence[bool]]],
    x_label: str,
    crosses: dict[str, Sequence[float]],
    cuts: dict[str, float],
) -> Figure:
    """Numbers along a line, a strip for each row: points of label 1 above it, of label 0 below.

    `rows` maps a name to numbers and their labels, `crosses` to what is marked on its line, `cuts` to where a head cuts
    it. ValueError for another number of labels, or a name that is no row.
    """
    if unknown := {*crosses, *cuts} - by_name("rows", rows).keys():
        raise ValueError(f"crosses and cuts must be of the rows {', '.join(rows)}, not {', '.join(sorted(unknown))}")
    figure, axes = plt.subplots(figsize=(5.2, 0.9 + 0.75 * len(rows)))
    for y, (name, (values, labels)) in enumerate(rows.items()):
        values = as_array(f"rows[{name!r}]", values, None)
        labels = as_array(f"labels of rows[{name!r}]", labels, len(values)).astype(bool)
        axes.axhline(y, color=SOFT, linewidth=1, zorder=0)
        for label, colour, marker, side in ((True, BLUE, "o", -1), (False, ORANGE, "s", 1)):
            own = np.sort(values[labels == label])
            spread = side * (0.1 + 0.25 * (np.arange(len(own)) * 0.618 % 1))  # so that points do not hide each other
            axes.scatter(own, y + spread, s=14, color=colour, marker=marker, linewidth=0, label=f"label {label:d}")
        marked = as_array(f"crosses[{name!r}]", crosses.get(name, ()), None)
        axes.scatter(marked, np.full(len(marked), y), marker="x", color=INK, s=44, zorder=3, label="columns of W")
        if name in cuts:
            axes.plot([cuts[name]] * 2, [y - 0.42, y + 0.42], color=GREEN, linestyle="--", label="where the head cuts")
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=x_label, ylim=(len(rows) - 0.5, -0.5))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(drawn.values(), drawn, loc="upper center", bbox_to_anchor=(0.4, -0.16), ncol=2, fontsize=9)
    return done(figure)
