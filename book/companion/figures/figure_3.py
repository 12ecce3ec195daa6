"""Figures of stored results: Figure 3, what explains it, and any means with their intervals. All are Matplotlib's."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame, Series

from companion.figures.figures import FIRST, INK, SMALL, SOFT, finish, style
from hmmlib.experiments.results import Interval, mean_ci, published

LEFT = {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}
RIGHT = {"memory HMM + attention head": "attention_accuracy", "vanilla HMM + linear head": "head_accuracy"}
LADDER = {
    "head of Theorem 3.3": "built_head_accuracy",
    "head tuned on the exact G": "exact_head_accuracy",
    "prompt tuned on the exact Ḡ": "exact_prompt_accuracy",
    "head tuned on the network": "head_accuracy",
    "prompt tuned on the network": "prompt_accuracy",
}
"""Series of Figure 3 as the paper names them, and of the ladder from theory to network, each with its column of the
results. What is tuned on the exact model is tuned as what is tuned on the network: passes, batches and rates."""


def draw_line(axes: Axes, points: Series, look: tuple[str, str, str], label: str, shift: float = 0.0) -> None:
    """Means, by their place on the axis, joined by a line; 95% intervals as bars where there are any."""
    points, (colour, marker, dashes) = points[[point.n > 0 for point in points]], look
    at, means = points.index + shift, [point.mean for point in points]
    axes.plot(at, means, color=colour, marker=marker, label=label, markersize=5, linestyle=dashes)
    for x, point in zip(at, points, strict=True):
        if point.n > 1:
            axes.plot([x, x], point.shown, color=colour, linewidth=1.2)


def _published(axes: Axes, points: Series, colour: str, marker: str, label: str) -> None:
    """The paper's means, dotted with open markers, and its 95% band."""
    means, low, high = zip(*((point.mean, point.low, point.high) for point in points), strict=True)
    look = dict(marker=marker, markersize=5, markerfacecolor="white", linestyle=":", linewidth=1.2)
    axes.plot(points.index, means, color=colour, label=f"{label}, published", **look)
    axes.fill_between(points.index, low, high, color=colour, alpha=0.08, linewidth=0)


def panel(results: DataFrame, name: str, title: str = "") -> Figure:
    """A panel of Figure 3, "left" or "right": means over trials with 95% intervals, beside the published ones."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    paper, series = published(name), {"left": LEFT, "right": RIGHT}[name]
    for shift, (label, column) in zip((-0.15, 0.15), series.items(), strict=True):
        rows = results if name == "left" else results[(results.n_memory > 1) == label.startswith("memory")]
        draw_line(axes, rows.groupby("size")[column].agg(mean_ci), style(label), label, shift)
        _published(axes, paper[label].dropna(), *style(label)[:2], label)
    if name == "left":
        axes.axvline(10, color=SOFT, linewidth=1, zorder=0)
        axes.text(10.2, 0.46, "|H| = |X|", color=INK, fontsize=SMALL)
    label = "hidden states |H|" if name == "left" else "|M||H|, with |H| = 4 for memory models"
    axes.set(xlabel=label, ylabel="test accuracy", ylim=(0.44, 1.02), title=title)
    axes.set_xticks(sorted({*results["size"], *paper.index}))
    return finish(figure, 2)


def prompts_by_size(results: DataFrame) -> Figure:
    """Accuracy of tuned prompts by the number of hidden states, ours and the published: why do these fall?"""
    name, ours = "prompt tuning", results.groupby("n_states").prompt_accuracy.agg(mean_ci)
    figure = lines({name: ours}, "hidden states |H|", "test accuracy")
    _published(figure.axes[0], published("left")[name], *style(name)[:2], name)
    return finish(figure, 2)


def gains(results: DataFrame) -> Figure:
    """Prompt minus head in each trial, a dot; their mean with its 95% interval; the published difference of means."""
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.scatter(results["size"], results.gain, s=14, color=SOFT, alpha=0.8, linewidth=0, label="a trial")
    draw_line(axes, results.groupby("size").gain.agg(mean_ci), (INK, "o", "-"), "mean with its 95% interval")
    paper = published("left").map(lambda found: found.mean)
    look = dict(color=INK, marker="o", markerfacecolor="white", linestyle=":", linewidth=1.2, label="published")
    axes.plot(paper["prompt tuning"] - paper["head tuning"], **look)
    axes.axhline(0, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel="hidden states |H|", ylabel="prompt − head", xticks=sorted({*results["size"], *paper.index}))
    return finish(figure, 2)


def ladder(results: DataFrame) -> Figure:
    """From theory to network: means over trials, for each way of having a head or a prompt."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    for k, (label, column) in enumerate(LADDER.items()):
        points = results.groupby("size")[column].agg(mean_ci)
        draw_line(axes, points, style(label), label, 0.12 * (k - 2))
    sizes = sorted({*results["size"]})
    axes.set(xlabel="hidden states |H|", ylabel="test accuracy", ylim=(None, 1.02), xticks=sizes)
    return finish(figure, 2)


def against_learned(results: DataFrame) -> Figure:
    """Accuracy of head and prompt against the share of what there was to learn that the network has learned."""
    figure, axes = plt.subplots(figsize=(5.4, 3.2))
    for label, column in LEFT.items():
        colour, marker, _ = style(label)
        size = 26 if label.startswith("head") else 12  # both are seen where they lie on each other
        drawn = dict(s=size, color=colour, marker=marker, linewidth=0.5, edgecolor="white")
        axes.scatter(results.learned, results[column], **drawn, label=label)
    x_label = "share learned (0: loss of token frequencies, 1: least loss)"
    axes.set(xlabel=x_label, ylabel="test accuracy", ylim=(0.44, 1.02))
    return finish(figure, 2)


def lines(series: dict[str, Series], x_label: str, y_label: str, log: bool = False) -> Figure:
    """A line for each of up to six series: means with 95% intervals (`mean_ci`)."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    for k, (name, points) in enumerate(series.items()):
        draw_line(axes, points, style(name, k), name)
    axes.set(xlabel=x_label, ylabel=y_label, xscale="log" if log else "linear")
    ticks = sorted(set().union(*(points.index for points in series.values())))
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    return finish(figure, 2)


def dots(
    rows: dict[str, dict[str, Interval]], x_label: str, trials: dict[str, dict] | None = None,
    opened: dict[str, Series] | None = None, numbers: bool = False,
) -> Figure:  # fmt: skip
    """Means with 95% intervals along one axis: a line for each of `rows`, a mark for each of up to six series.

    `trials` has the single values of some rows, by series; they are small and pale, and rings where `opened` says so.
    With `numbers` the means stand beside their intervals, in percent.
    """
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    figure, axes = plt.subplots(figsize=(5.4, 0.8 + (0.18 if numbers else 0.14) * len(rows) * (len(series) + 1)))
    for k, name in enumerate(series):
        colour, marker, _ = style(name, k)
        shift = (k + 1) / (len(series) + 1) - 0.5
        drawn = {at + shift: row[name] for at, row in enumerate(rows.values()) if name in row and row[name].n}
        axes.plot([found.mean for found in drawn.values()], list(drawn), marker, color=colour, markersize=5, label=name)
        for at, found in drawn.items():
            if found.n > 1:
                axes.plot(found.shown, [at, at], color=colour, linewidth=1.2)
            if numbers:
                axes.text(max(found.shown) + 0.01, at, f"{found.mean:.0%}", va="center", fontsize=SMALL)
        for at, row in enumerate(rows):
            single = list((trials or {}).get(row, {}).get(name, ()))
            for value, ring in zip(single, (opened or {}).get(row, [False] * len(single)), strict=True):
                look = dict(markerfacecolor="none", markersize=4) if ring else dict(markersize=3)
                axes.plot(value, at + shift, "o", color=colour, alpha=0.45, zorder=1, **look)
    for at in range(1, len(rows)):
        axes.axhline(at - 0.5, color=SOFT, linewidth=0.6)
    axes.set(xlabel=x_label, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params("y", length=0)
    axes.spines["left"].set_visible(False)
    return finish(figure, 3)


def plane(groups: dict[str, DataFrame], sizes: Sequence[int], name: str) -> Figure:
    """Accuracy of heads (across) and of prompts (up), a panel for each number of states: means with 95% intervals.

    `groups` are tables of results, joined by a line that the legend calls `name`, each with its own short name beside
    it, unless that would lie on an earlier one's. The published pair of means is a star in the rectangle of its bands.
    """
    paper = published("left")
    figure, panels = plt.subplots(len(sizes), 1, figsize=(5.4, 3.6 * len(sizes)), squeeze=False)
    for axes, n_states in zip(panels[:, 0], sizes, strict=True):
        across, up = (paper[name][n_states] for name in LEFT)
        corner, extent = (across.low, up.low), (across.high - across.low, up.high - up.low)
        axes.add_patch(Rectangle(corner, *extent, color=SOFT, alpha=0.45, linewidth=0, label="published bands"))
        axes.plot(across.mean, up.mean, "*", color=INK, markersize=11, label="published means")
        means = {}
        for label, group in groups.items():
            rows = group[(group["size"] == n_states) & group.prompt_accuracy.notna()]
            if len(rows):
                means[label] = [mean_ci(rows[column]) for column in LEFT.values()]
        named = []
        if means:
            at = ([pair[side].mean for pair in means.values()] for side in (0, 1))
            axes.plot(*at, color=FIRST, marker="o", markersize=5, linewidth=1, label=name)
        for label, (x, y) in means.items():
            axes.plot(x.shown, [y.mean, y.mean], color=FIRST, linewidth=0.7, alpha=0.8)
            axes.plot([x.mean, x.mean], y.shown, color=FIRST, linewidth=0.7, alpha=0.8)
            if not any(abs(x.mean - a) < 0.03 and abs(y.mean - b) < 0.03 for a, b in named):
                axes.annotate(label, (x.mean, y.mean), (5, -11), textcoords="offset points", fontsize=SMALL)
                named.append((x.mean, y.mean))
        axes.set(xlim=(0.55, 0.9), ylim=(0.55, 1.01), ylabel="prompts")
        axes.set_title(f"|H| = {n_states}", loc="center", fontsize="medium")
    axes.set_xlabel("heads: test accuracy")
    return finish(figure, 2)
