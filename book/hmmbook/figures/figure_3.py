"""Figures of stored results: Figure 3, what explains it, and any means with their intervals. All are Matplotlib's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame, Series

from hmmbook.experiments.intervals import Interval, mean_ci
from hmmbook.experiments.results import published
from hmmbook.figures.look import FIRST, HEAD, INK, SMALL, SOFT, Labels, Numbers, Style, finish, name_ends, style

LEFT = {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}
"""The series of Figure 3's left panel, as the paper names them, with their columns of the results."""
RIGHT = {"memory HMM + attention head": "attention_accuracy", "vanilla HMM + linear head": "head_accuracy"}
"""Those of the right panel."""
FULLY_FITTED = "fully fitted head"
EXACT = {"likeliest states": Style(INK, "D", "--"), FULLY_FITTED: Style(HEAD, "D", "--")}
"""What is fitted to exact beliefs or predictions beside the left panel, the column and the look of each."""
PUBLISHED = dict(markerfacecolor="white", linestyle=":", linewidth=1.2)
"""How published means are drawn."""


def _means(points: Iterable[Interval]) -> list[float]:
    return [point.mean for point in points]


def draw_line(axes: Axes, points: Series, look: tuple[str, str, str], label: str, shift: float = 0.0) -> None:
    """Draw means that are joined by a line, with 95% intervals as bars.

    Args:
        axes: The axes.
        points: The means, as `mean_ci` gives them, by their places on the axis. Means of nothing are left out.
        look: Colour, marker and dashes.
        label: The name in the legend.
        shift: What is added to the places.
    """
    colour, marker, dashes = look
    points = points[[point.n > 0 for point in points]]
    if points.empty:
        return
    places = points.index + shift
    line = dict(color=colour, marker=marker, markersize=5, linestyle=dashes)
    axes.plot(places, _means(points), label=label, **line)
    for place, point in zip(places, points, strict=True):
        if point.n > 1:
            axes.plot([place, place], point.shown, color=colour, linewidth=1.2)


def draw_published_means(axes: Axes, points: Series, look: Style, label: str) -> None:
    """Draw the paper's means of a series, dotted with open markers.

    Args:
        axes: The axes.
        points: The means, as `published` gives them.
        look: The look of the series.
        label: The name in the legend.
    """
    means = points.dropna().map(lambda point: point.mean)
    mark = dict(color=look.colour, marker=look.marker, markersize=5)
    axes.plot(means, label=label, **mark, **PUBLISHED)


def _draw_published(axes: Axes, points: Series, series: str) -> None:
    """Draw the paper's means, dotted with open markers, and their 95% band."""
    points = points.dropna()
    draw_published_means(axes, points, style(series), f"{series}, published")
    low = [point.low for point in points]
    high = [point.high for point in points]
    band = dict(color=style(series).colour, alpha=0.08, linewidth=0)
    axes.fill_between(points.index, low, high, **band)


def panel(results: DataFrame, name: str, title: str = "") -> Figure:
    """Draw a panel of Figure 3: means over trials with 95% intervals, beside the published ones.

    Args:
        results: The results of the panel's trials, as `results` gives them.
        name: "left" or "right".
        title: The title.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    paper = published(name)
    is_left = name == "left"
    shift = -0.15
    for series, column in (LEFT if is_left else RIGHT).items():
        of_memory_models = series.startswith("memory")
        rows = results if is_left else results[(results.n_memory > 1) == of_memory_models]
        means = rows.groupby("size")[column].agg(mean_ci)
        draw_line(axes, means, style(series), series, shift)
        _draw_published(axes, paper[series], series)
        shift = 0.15
    if is_left:
        axes.axvline(10, color=SOFT, linewidth=1, zorder=0)
        axes.text(10.4, 0.46, "more states than tokens", color=INK, fontsize=SMALL)
    x_label = "hidden states" if is_left else "states, or pairs of memory value and state"
    axes.set(xlabel=x_label, ylabel="accuracy on new texts", ylim=(0.44, 1.02), title=title)
    axes.set_xticks(sorted({*results["size"], *paper.index}))
    return finish(figure, 2)


def head_against_prompt(results: DataFrame) -> Figure:
    """Draw the accuracy of heads and of prompts by the number of states, with the published means and a floor.

    Each line has its name at its end. The floor is the share of the more frequent label. Fully fitted heads are
    drawn if the results have a column FULLY_FITTED.

    Args:
        results: The results of the left panel's trials, as `results` gives them.
    """
    by_size = results.groupby("n_states")
    paper = published("left")
    figure, axes = plt.subplots(figsize=(5.4, 3.8))
    for series, column in LEFT.items():
        draw_line(axes, by_size[column].agg(mean_ci), style(series), series)
        draw_published_means(axes, paper[series], style(series), f"{series}, paper")
    if FULLY_FITTED in results:
        draw_line(axes, by_size[FULLY_FITTED].agg(mean_ci), EXACT[FULLY_FITTED], FULLY_FITTED)
    draw_floor(axes, by_size.majority_rate.mean())
    n_tokens = results.n_tokens.iloc[0]
    axes.axvline(n_tokens, color=SOFT, linewidth=1, zorder=0)
    axes.text(n_tokens + 0.4, 0.46, "more states than tokens", fontsize=SMALL)
    axes.set(xlabel="hidden states", ylabel="accuracy on new texts", ylim=(0.44, 1.02))
    axes.set_xticks(sorted({*by_size.groups, *paper.index}))
    return name_ends(figure)


def draw_floor(axes: Axes, shares: Series) -> None:
    """Draw the share of the more frequent label, which needs no network at all."""
    axes.plot(shares, color=INK, label="frequent label", linewidth=0.8, linestyle="-.", zorder=0)


def beside_exact_rules(results: DataFrame) -> Figure:
    """Draw heads and prompts on networks, and dashed what is fitted to the exact model, by the number of states.

    Args:
        results: The results of the left panel's trials, with the columns of EXACT.
    """
    by_size = results.groupby("n_states")
    on_networks = {name: by_size[column].agg(mean_ci) for name, column in LEFT.items()}
    figure = lines(on_networks, "hidden states", "accuracy on new texts")
    for name, look in EXACT.items():
        draw_line(figure.axes[0], by_size[name].agg(mean_ci), look, name)
    return name_ends(figure)


def prompts_by_size(results: DataFrame) -> Figure:
    """Draw the accuracy of tuned prompts by the number of hidden states, ours and the published one."""
    series = "prompt tuning"
    ours = results.groupby("n_states").prompt_accuracy.agg(mean_ci)
    figure = lines({series: ours}, "hidden states", "accuracy on new texts")
    _draw_published(figure.axes[0], published("left")[series], series)
    return finish(figure, 2)


def gains(results: DataFrame) -> Figure:
    """Draw prompt minus head of each trial, their means with 95% intervals, and the published difference of means."""
    figure, axes = plt.subplots(figsize=(5.4, 3))
    pale = dict(color=SOFT, alpha=0.8, linewidth=0)
    axes.scatter(results["size"], results.gain, s=14, label="a trial", **pale)
    means = results.groupby("size").gain.agg(mean_ci)
    draw_line(axes, means, Style(INK, "o", "-"), "mean with its 95% interval")
    paper = published("left").map(lambda point: point.mean)
    axes.plot(paper["prompt tuning"] - paper["head tuning"], color=INK, marker="o", label="published", **PUBLISHED)
    axes.axhline(0, color=SOFT, linewidth=1, zorder=0)
    sizes = sorted({*results["size"], *paper.index})
    axes.set(xlabel="hidden states", ylabel="accuracy, prompt − head", xticks=sizes)
    return finish(figure, 2)


def against_learned(results: DataFrame) -> Figure:
    """Draw the accuracy of head and prompt against the share of what there was to learn that the network learned."""
    figure, axes = plt.subplots(figsize=(5.4, 3.2))
    for series, column in LEFT.items():
        look = style(series)
        size = 26 if series.startswith("head") else 12  # Both are seen where they lie on each other.
        drawn = dict(color=look.colour, marker=look.marker, linewidth=0.5, edgecolor="white")
        axes.scatter(results.learned, results[column], s=size, label=series, **drawn)
    x_label = "share learned (0: token frequencies, 1: least loss)"
    axes.set(xlabel=x_label, ylabel="accuracy on new texts", ylim=(0.44, 1.02))
    return finish(figure, 2)


def lines(series: dict[str, Series], x_label: str, y_label: str, log: bool = False) -> Figure:
    """Draw a line for each of up to six series.

    Args:
        series: By name, means with 95% intervals, as `mean_ci` gives them, by their places on the axis.
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.
        log: Whether the horizontal axis is logarithmic.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    ticks = set()
    for k, (name, points) in enumerate(series.items()):
        draw_line(axes, points, style(name, k), name)
        ticks |= set(points.index)
    axes.set(xlabel=x_label, ylabel=y_label, xscale="log" if log else "linear")
    axes.set_xticks(sorted(ticks), map(str, sorted(ticks)))
    axes.minorticks_off()
    return finish(figure, 2)


# Means along one axis


def dots(
    rows: dict[str, dict[str, Interval]],
    x_label: str,
    trials: dict[str, dict] | None = None,
    opened: dict[str, Series] | None = None,
    numbers: bool = False,
) -> Figure:
    """Draw means with 95% intervals along one axis: a line for each row, a mark for each of up to six series.

    Args:
        rows: By the name of a row, the means of its series by name.
        x_label: The label of the axis.
        trials: By the name of a row, the single values of its series, which are small and pale.
        opened: By the name of a row, which of its single values are rings.
        numbers: Whether the means stand beside their intervals, in percent.
    """
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    n_lines = len(rows) * (len(series) + 1)
    height = 0.8 + (0.18 if numbers else 0.14) * n_lines
    figure, axes = plt.subplots(figsize=(5.4, height))
    for k, name in enumerate(series):
        colour, marker, _ = style(name, k)
        shift = (k + 1) / (len(series) + 1) - 0.5
        drawn = {}
        for at, row in enumerate(rows.values()):
            if name in row and row[name].n:
                drawn[at + shift] = row[name]
        axes.plot(_means(drawn.values()), list(drawn), marker, color=colour, markersize=5, label=name)
        for height, point in drawn.items():
            _draw_interval(axes, point, height, colour, numbers)
        for at, row in enumerate(rows):
            values = (trials or {}).get(row, {}).get(name, ())
            rings = (opened or {}).get(row, [False] * len(values))
            _draw_single_values(axes, values, rings, at + shift, colour)
    for at in range(1, len(rows)):
        axes.axhline(at - 0.5, color=SOFT, linewidth=0.6)
    axes.set(xlabel=x_label, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params("y", length=0)
    axes.spines["left"].set_visible(False)
    return finish(figure, 3)


def _draw_interval(axes: Axes, point: Interval, height: float, colour: str, number: bool) -> None:
    if point.n > 1:
        axes.plot(point.shown, [height, height], color=colour, linewidth=1.2)
    if number:
        axes.text(max(point.shown) + 0.01, height, f"{point.mean:.0%}", va="center", fontsize=SMALL)


def _draw_single_values(axes: Axes, values: Numbers, rings: Labels, height: float, colour: str) -> None:
    for value, is_ring in zip(values, rings, strict=True):
        look = dict(markerfacecolor="none", markersize=4) if is_ring else dict(markersize=3)
        axes.plot(value, height, "o", color=colour, alpha=0.45, zorder=1, **look)


# Heads across, prompts up


def plane(groups: dict[str, DataFrame], sizes: Sequence[int], name: str) -> Figure:
    """Draw the accuracy of heads across and of prompts up: means with 95% intervals.

    The published pair of means is a star in the rectangle of its bands.

    Args:
        groups: Tables of results, each with a short name. It stands beside the group's means, unless that place is
            taken.
        sizes: Numbers of states, of which each has a panel.
        name: The name of the line that joins the groups.
    """
    height = 3.6 * len(sizes)
    figure, panels = plt.subplots(len(sizes), 1, figsize=(5.4, height), squeeze=False)
    for axes, n_states in zip(panels[:, 0], sizes, strict=True):
        _draw_published_pair(axes, n_states)
        means = {}
        for label, group in groups.items():
            rows = group[(group["size"] == n_states) & group.prompt_accuracy.notna()]
            if len(rows):
                means[label] = (mean_ci(rows.head_accuracy), mean_ci(rows.prompt_accuracy))
        if means:
            heads, prompts = zip(*means.values(), strict=True)
            line = dict(color=FIRST, marker="o", markersize=5, linewidth=1)
            axes.plot(_means(heads), _means(prompts), label=name, **line)
        _draw_pairs(axes, means)
        axes.set(xlim=(0.55, 0.9), ylim=(0.55, 1.01), ylabel="prompts")
        axes.set_title(f"|H| = {n_states}", loc="center", fontsize="medium")
    axes.set_xlabel("heads: test accuracy")
    return finish(figure, 2)


def _draw_published_pair(axes: Axes, n_states: int) -> None:
    paper = published("left")
    head = paper["head tuning"][n_states]
    prompt = paper["prompt tuning"][n_states]
    width = head.high - head.low
    height = prompt.high - prompt.low
    bands = Rectangle((head.low, prompt.low), width, height)
    bands.set(color=SOFT, alpha=0.45, linewidth=0, label="published bands")
    axes.add_patch(bands)
    axes.plot(head.mean, prompt.mean, "*", color=INK, markersize=11, label="published means")


def _draw_pairs(axes: Axes, means: dict[str, tuple[Interval, Interval]]) -> None:
    """Draw the intervals of pairs of means, and their names where these do not lie upon each other."""
    bar = dict(color=FIRST, linewidth=0.7, alpha=0.8)
    named = []
    for label, (head, prompt) in means.items():
        axes.plot(head.shown, [prompt.mean, prompt.mean], **bar)
        axes.plot([head.mean, head.mean], prompt.shown, **bar)
        place = np.array([head.mean, prompt.mean])
        distances = [abs(place - other).max() for other in named]
        if min(distances, default=1) >= 0.03:
            axes.annotate(label, place, (5, -11), textcoords="offset points", fontsize=SMALL)
            named.append(place)
