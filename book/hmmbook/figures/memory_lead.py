"""Figures of the right panel of Figure 3: memory and vanilla models with the paper's heads, and with equal heads."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from hmmbook.experiments.intervals import mean_ci
from hmmbook.experiments.results import published
from hmmbook.figures.figure_3 import PUBLISHED, RIGHT, dots, draw_floor, draw_line, draw_published_means
from hmmbook.figures.look import INK, SMALL, SOFT, finish, name_ends, style
from hmmbook.studies.memory_lead import HEADS, Pair, all_sizes, lead

KINDS = ("memory", "vanilla")
HEAD_NAMES = {"attention_accuracy": "attention head", "head_accuracy": "linear head"}
ASIDE = (-0.2, 0.2)
"""How far the marks of both kinds are moved aside, so that both intervals are seen."""


def published_lead(sizes: list[int]) -> float:
    """Return the mean published lead of memory models over some sizes |M||H|, in points. NaN where there is none."""
    paper = published("right").map(lambda point: point.mean)
    memory, vanilla = (paper[series] for series in RIGHT)
    leads = 100 * (memory - vanilla).dropna()
    return leads[leads.index.isin(sizes)].mean()


def memory_against_vanilla(pairs: dict[int, Pair]) -> Figure:
    """Draw the accuracy of memory models with attention heads and of vanilla ones with linear heads, by their size.

    Each line has its name at its end. The published means are dotted. The floor is the share of the more frequent label
    in the tasks of the vanilla models.

    Args:
        pairs: The trials by their size |M||H|, as `chains_to_compare` gives them.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3.8))
    paper = published("right")
    for side, (kind, series) in enumerate(zip(KINDS, RIGHT, strict=True)):
        column = RIGHT[series]
        means = Series({size: mean_ci(pair[side][column]) for size, pair in pairs.items()})
        draw_line(axes, means, style(series), kind)
        draw_published_means(axes, paper[series], style(series), f"{kind}, paper")
    draw_floor(axes, Series({size: pair.vanilla.majority_rate.mean() for size, pair in pairs.items()}))
    axes.set(xlabel="states, or pairs of memory value and state", ylabel="accuracy on new texts", ylim=(0.44, 1.02))
    axes.set_xticks(list(pairs))
    return name_ends(figure)


def leads(pairs: dict[int, Pair], exact: bool = False) -> Figure:
    """Draw the mean lead of memory models over all sizes, with its interval, by the heads that are compared.

    Args:
        pairs: The trials by their size |M||H|, as `chains_to_compare` gives them.
        exact: Whether the leads on exact predictions are drawn, too.
    """
    together = all_sizes(pairs)
    rows = {}
    for heads in HEADS:
        rows[heads] = {"on networks": lead(together, heads)}
        if exact:
            rows[heads]["on exact predictions"] = lead(together, heads, exact=True)
    figure = dots(rows, "lead of memory models, in points")
    axes = figure.axes[0]
    look = dict(color=INK, markerfacecolor="white", markersize=5)
    axes.plot(published_lead(list(pairs)), 0, "o", label="published", **look)
    axes.axvline(0, color=SOFT, linewidth=1, zorder=0)
    return finish(figure, 3)


def mean_accuracies(pairs: dict[int, Pair]) -> DataFrame:
    """Return means with their intervals: a row for each size, and a column for each kind of model and head.

    Args:
        pairs: The trials by their size |M||H|.
    """
    table = {}
    for column, head in HEAD_NAMES.items():
        for side, kind in enumerate(KINDS):
            means = {size: mean_ci(pair[side][column]) for size, pair in pairs.items()}
            table[f"{kind}, {head}"] = Series(means)
    return DataFrame(table)


def accuracies(pairs: dict[int, Pair]) -> Figure:
    """Draw accuracies against the number of states, in a panel for each of HEADS, and the published ones in the first.

    Args:
        pairs: The trials by their size |M||H|.
    """
    means = mean_accuracies(pairs)
    figure, panels = plt.subplots(1, 3, figsize=(5.5, 3), sharey=True)
    for axes, (title, columns) in zip(panels, HEADS.items(), strict=True):
        for kind, column, shift in zip(KINDS, columns, ASIDE, strict=True):
            name = f"{kind}, {HEAD_NAMES[column]}"
            draw_line(axes, means[name], style(name), "_", shift)
        axes.set(xlabel="states", xticks=list(pairs))
        axes.set_title(title, loc="center", fontsize=SMALL)
    first = panels[0]
    for series, points in published("right").items():
        look = style(series)
        drawn = dict(color=look.colour, marker=look.marker, markersize=5)
        first.plot(points.dropna().map(lambda point: point.mean), **drawn, **PUBLISHED)
    often = Series({size: pair.vanilla.majority_rate.mean() for size, pair in pairs.items()})
    first.plot(often, color=INK, label="more frequent label", linewidth=0.8, linestyle="-.", zorder=0)
    first.set_ylabel("accuracy on new texts")
    _name_looks(first)
    return finish(figure, 2)


def _name_looks(axes: Axes) -> None:
    """Put heads, by marker and dashes, and kinds of models, by colour, into the legend."""
    for head in HEAD_NAMES.values():
        look = style(f"memory, {head}")
        axes.plot([], [], color=INK, marker=look.marker, linestyle=look.dashes, label=head)
    axes.plot([], [], color=INK, linestyle=":", label="published")
    for kind in KINDS:
        axes.plot([], [], color=style(f"{kind}, attention head").colour, linewidth=4, label=f"{kind} model")
