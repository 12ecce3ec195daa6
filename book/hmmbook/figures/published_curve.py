"""Figures of the page on the published curve."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from hmmbook.experiments.intervals import Interval, mean_ci
from hmmbook.experiments.results import published
from hmmbook.figures import figure_3
from hmmbook.figures.figure_3 import LEFT
from hmmbook.figures.look import INK, SMALL, SOFT, finish, style

NEAR = 2
"""A head or prompt within so many points of the more frequent label does about as well as that."""


def prompts_by_size(left: DataFrame, networks: DataFrame, plateau: float) -> Figure:
    """Draw prompts by the number of states, ours and the published, and single networks of 30 states beside them.

    Args:
        left: The trials of the left panel of Figure 3.
        networks: Trials of 30 states with nine changes. They are rings where the network is on the plateau.
        plateau: The share learned below which a network is on the plateau.
    """
    figure = figure_3.prompts_by_size(left)
    axes = figure.axes[0]
    is_on_plateau = networks.learned < plateau
    below = networks[is_on_plateau]
    above = networks[~is_on_plateau]
    look = dict(marker="o", color=INK, markersize=4.5, linestyle="")
    beside = networks.n_states + 1
    below_label = f"nine changes, learned below {plateau:g}"
    axes.plot(beside[is_on_plateau], below.prompt_accuracy, markerfacecolor="white", label=below_label, **look)
    axes.plot(beside[~is_on_plateau], above.prompt_accuracy, label="nine changes, learned more", **look)
    return finish(figure, 2)


def above_more_frequent_label(trials: DataFrame, plateau: float) -> Figure:
    """Draw by how many points heads and prompts are above the more frequent label, against the share learned.

    Lines join means in five ranges of the share learned. The title counts the heads and prompts on the plateau that
    are near the more frequent label.

    Args:
        trials: The trials.
        plateau: The share learned below which a network is on the plateau. It ends the first of the five ranges.
    """
    points = trials.copy()
    for column in LEFT.values():
        points[column] = 100 * (trials[column] - trials.majority_rate)
    figure = figure_3.against_learned(points)
    axes = figure.axes[0]
    axes.set(ylabel="points above the\nmore frequent label", ylim=(-6, 47))
    axes.axhline(0, color=SOFT, linewidth=1, zorder=0)
    axes.axvspan(-0.03, plateau, color=SOFT, alpha=0.15, linewidth=0)
    axes.text((plateau - 0.03) / 2, 43, "plateau", ha="center", fontsize=SMALL)

    edges = sorted({-0.1, plateau, 0.25, 0.5, 0.75, 1.0})
    ranges = pd.cut(points.learned, edges)
    means = points.groupby(ranges, observed=True)[["learned", *LEFT.values()]].mean()
    for series, column in LEFT.items():
        axes.plot(means.learned, means[column], color=style(series).colour, linewidth=1.2)

    on_plateau = points[points.learned < plateau]
    n_heads = (on_plateau.head_accuracy.abs() < NEAR).sum()
    n_prompts = (on_plateau.prompt_accuracy.abs() < NEAR).sum()
    counts = f"{n_heads} of {len(on_plateau)} heads and {n_prompts} of {len(on_plateau)} prompts"
    axes.set_title(f"on the plateau {counts}\nare within {NEAR} points of 0", fontsize=SMALL)
    return finish(figure, 2)


def changes(groups: dict[str, DataFrame], plateau: float) -> Figure:
    """Draw heads and prompts at 30 states, a row for the published means and one for each group of trials.

    Single trials are small, and rings where the network is on the plateau. A bar is the mean share of the more frequent
    label, and a dotted line goes through each published mean.

    Args:
        groups: Trials by name.
        plateau: The share learned below which a network is on the plateau.
    """
    paper = published("left").loc[30, list(LEFT)]
    rows = {"published": paper.to_dict()}
    single = {}
    rings = {}
    for name, group in groups.items():
        text = f"{name}\n(learned: {group.learned.mean():.2f})"
        rows[text] = {series: mean_ci(group[column]) for series, column in LEFT.items()}
        single[text] = {series: group[column] for series, column in LEFT.items()}
        rings[text] = group.learned < plateau
    figure = figure_3.dots(rows, "test accuracy at 30 states", single, rings)
    axes = figure.axes[0]
    ring = dict(marker="o", linestyle="", markerfacecolor="none", markersize=4)
    axes.plot([], [], color=SOFT, label=f"share learned below {plateau:g}", **ring)
    for row, group in enumerate(groups.values(), 1):
        axes.plot(group.majority_rate.mean(), row, "|", color=SOFT, markersize=20, label="more frequent label")
    for series in LEFT:
        axes.axvline(paper[series].mean, color=style(series).colour, linewidth=1, linestyle=":", zorder=0)
    return finish(figure, 2)


def gaps(differences: dict[tuple[int, str], Interval]) -> Figure:
    """Draw by how many percentage points our means are above the published ones, with 95% intervals.

    Args:
        differences: By the number of states and the series, as `comparisons.gaps` gives them.
    """
    rows = {}
    for (n_states, series), gap in differences.items():
        row = rows.setdefault(f"{n_states} states", {})
        row[series] = Interval(100 * gap.mean, 100 * gap.low, 100 * gap.high, gap.n)
    figure = figure_3.dots(rows, "ours minus published, percentage points")
    figure.axes[0].axvline(0, color=SOFT, linewidth=1, zorder=0)
    return figure
