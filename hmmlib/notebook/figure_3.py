"""Figure 3 and what explains it, each figure a function of stored results. All return the Matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hmmlib.experiments.summaries import LADDER, LEFT, RIGHT, Interval, along, as_results, gain, reference, size
from hmmlib.notebook.figures import BLUE, GREEN, INK, ORANGE, RED, SOFT, done, legend_below
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
            axes.plot([x, x], [point.low, point.high], color=colour, linewidth=1.2)


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
    figure, axes = plt.subplots(figsize=(5.4, 3.8))
    series = {"left": LEFT, "right": RIGHT}[name]
    for shift, (label, read) in zip((-0.15, 0.15), series.items(), strict=True):
        colour, marker = LOOK[label]
        draw_line(axes, along(results, read, size), colour, marker, label, shift)
        _published(axes, reference(name)[label], colour, marker, label)
    if name == "left":
        axes.axvline(10, color=SOFT, linewidth=1, zorder=0)
        axes.text(10.2, 0.46, "|H| = |X|", color=INK, fontsize=8.5)
    label = "hidden states |H|" if name == "left" else "|M||H|, with |H| = 4 for memory models"
    axes.set(xlabel=label, ylabel="test accuracy", ylim=(0.44, 1.02), title=title)
    axes.set_xticks(sorted({size(r) for r in results} | set(reference(name)[next(iter(series))])))
    legend_below(axes)
    return done(figure)


def gains(results: Sequence[TrialResult]) -> Figure:
    """Prompt minus head in each trial, a dot, and their mean with its 95% interval."""
    _some(results)
    figure, axes = plt.subplots(figsize=(5.4, 3))
    axes.scatter(*zip(*[(size(r), gain(r)) for r in results], strict=True), s=14, color=BLUE, alpha=0.35, linewidth=0)
    draw_line(axes, along(results, gain, size), INK, "o", "mean with its 95% interval")
    axes.axhline(0, color=SOFT, linewidth=1, zorder=0)
    axes.set(xlabel="hidden states |H|", ylabel="prompt − head")
    axes.set_xticks(sorted({size(r) for r in results}))
    legend_below(axes)
    return done(figure)


def ladder(results: Sequence[TrialResult]) -> Figure:
    """From theory to network: means over trials of each rung that exists at a size."""
    figure, axes = plt.subplots(figsize=(5.4, 4))
    for k, (label, read) in enumerate(LADDER.items()):
        colour, marker = LOOK[label]
        dashed = "exact" in label or "Theorem" in label
        points = along(results, read, size)
        draw_line(axes, points, colour, marker, label, 0.12 * (k - 2))
        axes.lines[-1 - sum(point.n > 1 for point in points.values())].set_linestyle("--" if dashed else "-")
    axes.set(xlabel="hidden states |H|", ylabel="test accuracy", ylim=(None, 1.02))
    axes.set_xticks(sorted({size(r) for r in results}))
    legend_below(axes)
    return done(figure)


def against_excess(results: Sequence[TrialResult], series: dict[str, Callable]) -> Figure:
    """Accuracy against the network's excess masked-token loss, a dot for each trial of the named series."""
    _some(results)
    if unknown := by_name("series", series).keys() - LOOK.keys():
        raise ValueError(f"series must be among {', '.join(LOOK)}, not {', '.join(map(str, unknown))}")
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    for label, read in series.items():
        colour, marker = LOOK[label]
        dots = [(max(r.excess_loss, 1e-3), read(r)) for r in results if read(r) is not None]
        if not dots:
            raise ValueError(f"results must have a value for {label!r} in one trial or more, not in none")
        axes.scatter(*zip(*dots, strict=True), s=20, color=colour, marker=marker, alpha=0.55, linewidth=0, label=label)
    axes.set_xscale("log")
    axes.set(xlabel="excess masked-token loss (nats)", ylabel="test accuracy", ylim=(0.44, 1.02))
    axes.legend(loc="lower left", fontsize=8.5)
    return done(figure)


def against_steps(results: Sequence[TrialResult]) -> Figure:
    """Accuracy, and excess loss below it, against pretraining steps: means with 95% intervals."""
    _some(results)
    figure, (above, below) = plt.subplots(2, 1, figsize=(5.4, 5), sharex=True, height_ratios=(3, 2))

    def steps(result: TrialResult) -> int:
        return result.spec.steps

    for label, read in LEFT.items():
        draw_line(above, along(results, read, steps), *LOOK[label], label)
    for name, colour in (("ladder_head_accuracy", ORANGE), ("ladder_prompt_accuracy", BLUE)):
        level = along(results, lambda r: getattr(r, name), lambda r: 0)
        if not level:
            raise ValueError(f"results must have {name} in one trial or more, not in none")
        what = "head" if "head" in name else "prompt"
        above.axhline(level[0].mean, color=colour, linestyle="--", linewidth=1.2, label=f"{what} tuned on the exact Ḡ")
    draw_line(below, along(results, lambda r: r.excess_loss, steps), INK, "o", "excess loss")
    above.set_xscale("log")
    above.set(ylabel="test accuracy", ylim=(0.44, 1.02))
    below.set(xlabel="pretraining steps", ylabel="excess loss (nats)", ylim=(0, None))
    ticks = sorted({steps(result) for result in results})
    below.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    below.minorticks_off()
    above.legend(fontsize=8.5, ncol=2)
    return done(figure)
