"""Figure 3 and what explains it, each figure a function of a table of results. All return the Matplotlib figure."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from companion.figures.figures import BLUE, GREEN, INK, ORANGE, RED, SMALL, SOFT, finish, legend_below
from hmmlib.experiments.results import mean_ci, published, share_learned

LEFT = {"head tuning": "head_accuracy", "prompt tuning": "prompt_accuracy"}
RIGHT = {"memory HMM + attention head": "attention_accuracy", "vanilla HMM + linear head": "head_accuracy"}
LADDER = {
    "head of Theorem 3.3": "built_head_accuracy",
    "head tuned on the exact G": "exact_head_accuracy",
    "prompt tuned on the exact Ḡ": "exact_prompt_accuracy",
    "head tuned on the network": "head_accuracy",
    "prompt tuned on the network": "prompt_accuracy",
}
"""Series of Figure 3 as the paper names them, and of the ladder from theory to network, each with its column of the results.
What is tuned on the exact model is tuned with the passes, batches and rates of what is tuned on the network."""
STYLES = {
    "head tuning": (ORANGE, "s"),
    "prompt tuning": (BLUE, "o"),
    "memory HMM + attention head": (BLUE, "o"),
    "vanilla HMM + linear head": (ORANGE, "s"),
    "head of Theorem 3.3": (INK, "x"),
    "head tuned on the exact G": (GREEN, "^"),
    "prompt tuned on the exact Ḡ": (RED, "D"),
    "head tuned on the network": (ORANGE, "s"),
    "prompt tuned on the network": (BLUE, "o"),
}
"""Colour and marker of each series."""


def draw_line(
    axes: Axes, points: Series, colour: str, marker: str, label: str, shift: float = 0.0, style: str = "-"
) -> None:
    """Means, by their place on the axis, joined by a line; 95% intervals as bars where there are any."""
    points = points[[point.n > 0 for point in points]]
    at, means = points.index + shift, [point.mean for point in points]
    axes.plot(at, means, color=colour, marker=marker, label=label, markersize=5, linestyle=style)
    for x, point in zip(at, points, strict=True):
        if point.n > 1:
            axes.plot([x, x], point.shown, color=colour, linewidth=1.2)


def _published(axes: Axes, points: Series, colour: str, marker: str, label: str) -> None:
    """The paper's means, dotted with open markers, and its 95% band."""
    axes.plot(
        points.index, [point.mean for point in points], color=colour, marker=marker, markersize=5,
        markerfacecolor="white", linestyle=":", linewidth=1.2, label=f"{label}, published",
    )  # fmt: skip
    band = [[getattr(point, side) for point in points] for side in ("low", "high")]
    axes.fill_between(points.index, *band, color=colour, alpha=0.08, linewidth=0)


def panel(results: DataFrame, name: str, title: str = "") -> Figure:
    """A panel of Figure 3, "left" or "right": means over trials with 95% intervals, beside the published ones."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    paper, series = published(name), {"left": LEFT, "right": RIGHT}[name]
    for shift, (label, column) in zip((-0.15, 0.15), series.items(), strict=True):
        rows = results if name == "left" else results[(results.n_memory > 1) == label.startswith("memory")]
        colour, marker = STYLES[label]
        draw_line(axes, rows.groupby("size")[column].agg(mean_ci), colour, marker, label, shift)
        _published(axes, paper[label].dropna(), colour, marker, label)
    if name == "left":
        axes.axvline(10, color=SOFT, linewidth=1, zorder=0)
        axes.text(10.2, 0.46, "|H| = |X|", color=INK, fontsize=SMALL)
    label = "hidden states |H|" if name == "left" else "|M||H|, with |H| = 4 for memory models"
    axes.set(xlabel=label, ylabel="test accuracy", ylim=(0.44, 1.02), title=title)
    axes.set_xticks(sorted({*results["size"], *paper.index}))
    legend_below(figure)
    return finish(figure)


def gains(results: DataFrame) -> Figure:
    """Prompt minus head in each trial, a dot, and their mean with its 95% interval."""
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.scatter(results["size"], results.gain, s=14, color=BLUE, alpha=0.35, linewidth=0)
    draw_line(axes, results.groupby("size").gain.agg(mean_ci), INK, "o", "mean with its 95% interval")
    axes.axhline(0, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel="hidden states |H|", ylabel="prompt − head")
    axes.set_xticks(sorted({*results["size"]}))
    legend_below(figure)
    return finish(figure)


def ladder(results: DataFrame) -> Figure:
    """From theory to network: means over trials of each rung that exists at a size."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    for k, (label, column) in enumerate(LADDER.items()):
        dashed = "exact" in label or "Theorem" in label
        points = results.groupby("size")[column].agg(mean_ci)
        draw_line(axes, points, *STYLES[label], label, 0.12 * (k - 2), "--" if dashed else "-")
    axes.set(xlabel="hidden states |H|", ylabel="test accuracy", ylim=(None, 1.02))
    axes.set_xticks(sorted({*results["size"]}))
    legend_below(figure)
    return finish(figure)


def against_learned(results: DataFrame) -> Figure:
    """Accuracy of head and prompt against the share of what there was to learn that the network has learned, a dot for each."""
    figure, axes = plt.subplots(figsize=(5.4, 3.2))
    learned = share_learned(results)
    for label, column in LEFT.items():
        colour, marker = STYLES[label]
        axes.scatter(learned, results[column], s=20, color=colour, marker=marker, alpha=0.55, linewidth=0, label=label)
    axes.set(
        xlabel="share learned (0: the tokens' frequencies, 1: the exact G)", ylabel="test accuracy", ylim=(0.44, 1.02)
    )
    legend_below(figure)
    return finish(figure)
