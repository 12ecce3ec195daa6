"""Figure 3 and what explains it, each figure a function of stored results. All return the Matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion.figures.figures import BLUE, GREEN, INK, ORANGE, RED, SMALL, SOFT, finish, legend_below
from hmmlib.experiments.summaries import (
    LADDER,
    LEFT,
    RIGHT,
    Interval,
    along,
    as_results,
    gain,
    learned,
    reference,
    size,
)
from hmmlib.validation import by_name

if TYPE_CHECKING:
    from hmmlib.experiments.trials import TrialResult

LOOK = {
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
    axes: Axes, points: dict[int, Interval], colour: str, marker: str, label: str, shift: float = 0.0
) -> None:
    """Means joined by a line, 95% intervals as bars where there are any."""
    at = [x + shift for x in points]
    means = [point.mean for point in points.values()]
    axes.plot(at, means, color=colour, marker=marker, label=label, markersize=5)
    for x, point in zip(at, points.values(), strict=True):
        if point.n > 1:
            axes.plot([x, x], point.shown, color=colour, linewidth=1.2)


def _published(axes: Axes, points: dict[int, Interval], colour: str, marker: str, label: str) -> None:
    """The paper's means, dotted with open markers, and its 95% band."""
    axes.plot(
        list(points), [point.mean for point in points.values()], color=colour, marker=marker, markersize=5,
        markerfacecolor="white", linestyle=":", linewidth=1.2, label=f"{label}, published",
    )  # fmt: skip
    band = [[getattr(point, side) for point in points.values()] for side in ("low", "high")]
    axes.fill_between(list(points), *band, color=colour, alpha=0.08, linewidth=0)


def _some(results: Sequence[TrialResult]) -> None:
    """TypeError for what are no results, ValueError where there is nothing to draw."""
    if not as_results(results):
        raise ValueError("results must hold one trial or more, not none")


def panel(results: Sequence[TrialResult], name: str, title: str = "") -> Figure:
    """A panel of Figure 3, "left" or "right": means over trials with 95% intervals, beside the published ones."""
    if not isinstance(name, str) or name not in ("left", "right"):
        raise ValueError(f"name must be left or right, not {name!r}")
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    series = {"left": LEFT, "right": RIGHT}[name]
    for shift, (label, read) in zip((-0.15, 0.15), series.items(), strict=True):
        colour, marker = LOOK[label]
        draw_line(axes, along(results, read, size), colour, marker, label, shift)
        _published(axes, reference(name)[label], colour, marker, label)
    if name == "left":
        axes.axvline(10, color=SOFT, linewidth=1, zorder=0)
        axes.text(10.2, 0.46, "|H| = |X|", color=INK, fontsize=SMALL)
    label = "hidden states |H|" if name == "left" else "|M||H|, with |H| = 4 for memory models"
    axes.set(xlabel=label, ylabel="test accuracy", ylim=(0.44, 1.02), title=title)
    axes.set_xticks(sorted({size(r) for r in results} | set(reference(name)[next(iter(series))])))
    legend_below(figure)
    return finish(figure)


def gains(results: Sequence[TrialResult]) -> Figure:
    """Prompt minus head in each trial, a dot, and their mean with its 95% interval."""
    _some(results)
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.scatter(*zip(*[(size(r), gain(r)) for r in results], strict=True), s=14, color=BLUE, alpha=0.35, linewidth=0)
    draw_line(axes, along(results, gain, size), INK, "o", "mean with its 95% interval")
    axes.axhline(0, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel="hidden states |H|", ylabel="prompt − head")
    axes.set_xticks(sorted({size(r) for r in results}))
    legend_below(figure)
    return finish(figure)


def ladder(results: Sequence[TrialResult]) -> Figure:
    """From theory to network: means over trials of each rung that exists at a size."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    for k, (label, read) in enumerate(LADDER.items()):
        colour, marker = LOOK[label]
        dashed = "exact" in label or "Theorem" in label
        points = along(results, read, size)
        draw_line(axes, points, colour, marker, label, 0.12 * (k - 2))
        axes.lines[-1 - sum(point.n > 1 for point in points.values())].set_linestyle("--" if dashed else "-")
    axes.set(xlabel="hidden states |H|", ylabel="test accuracy", ylim=(None, 1.02))
    axes.set_xticks(sorted({size(r) for r in results}))
    legend_below(figure)
    return finish(figure)


def against_learned(results: Sequence[TrialResult], series: dict[str, Callable]) -> Figure:
    """Accuracy against the share of what there was to learn that the network has learned, a dot for each trial of a series."""
    _some(results)
    if unknown := by_name("series", series).keys() - LOOK.keys():
        raise ValueError(f"series must be among {', '.join(LOOK)}, not {', '.join(map(str, unknown))}")
    figure, axes = plt.subplots(figsize=(5.4, 3.2))
    for label, read in series.items():
        colour, marker = LOOK[label]
        dots = [(learned(r), read(r)) for r in results if read(r) is not None]
        if not dots:
            raise ValueError(f"results must have a value for {label!r} in one trial or more, not in none")
        axes.scatter(*zip(*dots, strict=True), s=20, color=colour, marker=marker, alpha=0.55, linewidth=0, label=label)
    axes.set(
        xlabel="share learned (0: the tokens' frequencies, 1: the exact G)", ylabel="test accuracy", ylim=(0.44, 1.02)
    )
    legend_below(figure)
    return finish(figure)
