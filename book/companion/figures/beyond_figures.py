"""Figures of *Beyond the paper*, each a function of results or of points. Figures are Matplotlib's."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame, Series

from companion.figures.figure_3 import LEFT, draw_line
from companion.figures.figures import BLUE, GREEN, INK, ORANGE, RED, SMALL, SOFT, TYPE, finish, legend_below
from companion.figures.triangles import TRIANGLE, draw_points, draw_triangle
from hmmlib.experiments.results import Interval, mean_ci, published

COLOURS = (BLUE, ORANGE, GREEN, RED, SOFT, INK)
MARKERS = "os^Dxv"


def lines(series: dict[str, Series], x_label: str, y_label: str, log: bool = False) -> Figure:
    """A line for each of up to six series: means with 95% intervals (`mean_ci`) by their place on the axis."""
    figure, axes = plt.subplots(figsize=(5.4, 3.4))
    for (name, points), colour, marker in zip(series.items(), COLOURS, MARKERS, strict=False):
        draw_line(axes, points, colour, marker, name)
    ticks = sorted(set().union(*(points.index for points in series.values())))
    if log:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel=x_label, ylabel=y_label)
    legend_below(figure)
    return finish(figure)


def dots(rows: dict[str, dict[str, Interval]], x_label: str) -> Figure:
    """Means with 95% intervals along one axis: a line of the figure for each of `rows`, with a mark for each of up to six
    series, whose names are alike in all rows."""
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    figure, axes = plt.subplots(figsize=(5.4, 0.8 + 0.14 * len(rows) * (len(series) + 1)))
    for k, (name, colour, marker) in enumerate(zip(series, COLOURS, MARKERS, strict=False)):
        shift = (k + 1) / (len(series) + 1) - 0.5
        drawn = {at + shift: row[name] for at, row in enumerate(rows.values()) if name in row and row[name].n}
        axes.plot([found.mean for found in drawn.values()], list(drawn), marker, color=colour, markersize=5, label=name)
        for at, found in drawn.items():
            if found.n > 1:
                axes.plot(found.shown, [at, at], color=colour, linewidth=1.2)
    for at in range(1, len(rows)):
        axes.axhline(at - 0.5, color=SOFT, linewidth=0.6)
    axes.set(xlabel=x_label, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params("y", length=0)
    axes.spines["left"].set_visible(False)
    legend_below(figure, columns=3)
    return finish(figure)


def _half(corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The part of a polygon of beliefs, (k, 3), on which weightsᵀp is at least 0: a polygon too, (l, 3), or empty."""
    kept = []
    for here, there in zip(corners, np.roll(corners, -1, 0), strict=True):
        a, b = weights @ here, weights @ there
        kept += [here] if a >= 0 else []
        kept += [(b * here - a * there) / (b - a)] if a * b < 0 else []
    return np.array(kept).reshape(-1, 3)


def wrong_beliefs(mu: Sequence[float], scores: dict[str, Sequence[float]], names: Sequence[str]) -> Figure:
    """For each score ν, by name, the triangle of beliefs about three states: where μᵀp and νᵀp have other signs is shaded.

    `mu`, and each of `scores`, has three entries, and takes both signs; `names` are those of the corners.
    """
    mu = np.asarray(mu, dtype=float)
    figure, panels = plt.subplots(1, len(scores), figsize=(5.4, 2.2), squeeze=False)
    for axes, (title, score) in zip(panels[0], scores.items(), strict=True):
        score = np.asarray(score, dtype=float)
        draw_triangle(axes, title, names, SMALL)
        for sign in (1, -1):
            wrong = _half(_half(np.eye(3), sign * mu), -sign * score)
            if len(wrong) > 2:
                axes.fill(*(wrong @ TRIANGLE).T, color=RED, alpha=0.35, linewidth=0, label="wrong label")
        for weights, colour, style, label in (
            (mu, INK, "-", "the label changes"),
            (score, BLUE, "--", "the head's changes"),
        ):
            edge = [p for p in _half(np.eye(3), weights) if abs(weights @ p) < 1e-12]
            if len(edge) > 1:
                axes.plot(*(np.array(edge[:2]) @ TRIANGLE).T, style, color=colour, label=label)
    legend_below(figure, columns=3)
    return finish(figure)


def plane(series: dict[str, dict[str, DataFrame]], sizes: Sequence[int]) -> Figure:
    """Accuracy of heads (across) and of prompts (up), a panel for each number of states: means with 95% intervals.

    `series` maps a name to tables of results, which are joined by a line, each with its own short name beside it, unless it
    would lie on that of an earlier one. The published pair of means is a star in the rectangle of its bands.
    """
    paper = published("left")
    figure, panels = plt.subplots(len(sizes), 1, figsize=(5.4, 3.6 * len(sizes)), squeeze=False)
    for axes, n_states in zip(panels[:, 0], sizes, strict=True):
        across, up = (paper[name][n_states] for name in LEFT)
        corner, extent = (across.low, up.low), (across.high - across.low, up.high - up.low)
        axes.add_patch(Rectangle(corner, *extent, color=SOFT, alpha=0.45, linewidth=0, label="published bands"))
        axes.plot(across.mean, up.mean, "*", color=INK, markersize=11, label="published means")
        marked = []
        for (name, groups), colour, marker in zip(series.items(), COLOURS, MARKERS, strict=False):
            pairs = {}
            for label, group in groups.items():
                rows = group[(group["size"] == n_states) & group.prompt_accuracy.notna()]
                if len(rows):
                    pairs[label] = [mean_ci(rows[column]) for column in LEFT.values()]
            if not pairs:
                continue
            axes.plot(
                *([pair[k].mean for pair in pairs.values()] for k in (0, 1)),
                color=colour, marker=marker, markersize=5, linewidth=1, label=name,
            )  # fmt: skip
            for label, (x, y) in pairs.items():
                axes.plot(x.shown, [y.mean, y.mean], color=colour, linewidth=0.7, alpha=0.6)
                axes.plot([x.mean, x.mean], y.shown, color=colour, linewidth=0.7, alpha=0.6)
                if not any(abs(x.mean - a) < 0.03 and abs(y.mean - b) < 0.03 for a, b in marked):
                    axes.annotate(label, (x.mean, y.mean), (5, -11), textcoords="offset points", fontsize=SMALL)
                    marked.append((x.mean, y.mean))
        axes.set(xlim=(0.55, 0.9), ylim=(0.55, 1.01), ylabel="prompts")
        axes.set_title(f"|H| = {n_states}", loc="center", fontsize=TYPE)
    axes.set_xlabel("heads: test accuracy")
    legend_below(figure)
    return finish(figure)


def triangles(
    panels: dict[str, tuple[np.ndarray, Sequence[str]]],
    labels: Sequence[bool],
    columns: dict[str, tuple[np.ndarray, Sequence[str]]],
) -> Figure:
    """The same texts in several triangles, two in a row.

    Args:
        panels: by title, the points (n, 3), and the names of the corners.
        labels: of the texts, (n,).
        columns: for some of the titles, points (3, S) drawn as crosses, and their names.
    """
    labels = np.asarray(labels, dtype=bool)
    rows = -(-len(panels) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(5.2, 2.7 * rows), squeeze=False)
    for axis, (title, (points, corners)) in zip(axes.flat, panels.items(), strict=False):
        points = np.asarray(points)
        draw_triangle(axis, title, corners)
        draw_points(axis, points, labels, 16, 0.6)
        if title in columns:
            table, names = columns[title]
            at = np.asarray(table).T @ TRIANGLE
            axis.scatter(*at.T, marker="x", color=INK, s=44, label="what a state says")
            for k, (name, (x, y)) in enumerate(zip(names, at, strict=True)):
                axis.annotate(name, (x, y), (7, 5 - 15 * (k % 2)), textcoords="offset points", fontweight="bold")
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    legend_below(figure, columns=3)
    return finish(figure)
