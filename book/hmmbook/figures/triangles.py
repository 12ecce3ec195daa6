"""Distributions over three tokens, and beliefs about three states, as points of a triangle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hmmbook.figures.look import HEAD, INK, LABELS, SMALL, SOFT, TYPE, Labels, Names, Numbers, finish
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible, Undecided

TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.866]])
"""Where the corners of a triangle of distributions are drawn."""
TOKENS = ("token 0", "token 1", "token 2")
CROSSES = "one state alone"
BESIDE_CROSS = dict(textcoords="offset points", fontweight="bold", bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.5))
"""How the name of a column of W stands beside its cross."""


# Parts of a triangle


def draw_triangle(axes: Axes, title: str, corners: Names = TOKENS, size: float = TYPE) -> None:
    """Draw the sides of the triangle and the names of its corners. Nothing else of the axes is left."""
    axes.plot(*TRIANGLE[[0, 1, 2, 0]].T, color=SOFT, linewidth=1)
    left, right, top = corners
    # The longer a name, the farther it is from its corner, so that two long ones do not meet in the middle.
    left_offset = (-(4 + 1.6 * len(left)), -6)
    right_offset = (4 + 1.6 * len(right), -6)
    words = dict(textcoords="offset points", fontsize=size)
    axes.annotate(left, TRIANGLE[0], left_offset, ha="left", va="top", **words)
    axes.annotate(right, TRIANGLE[1], right_offset, ha="right", va="top", **words)
    axes.annotate(top, TRIANGLE[2], (0, 6), ha="center", va="bottom", **words)
    axes.set(aspect="equal", xlim=(-0.05, 1.05), ylim=(-0.03, 0.89))
    axes.set_title(title, loc="center", fontsize=TYPE, pad=22)
    axes.axis("off")


def draw_points(axes: Axes, points: np.ndarray, labels: Labels, size: float = 24) -> None:
    """Draw points, (n, 3), by their labels, (n,). Rows of zeros, which are impossible inputs, are left out."""
    points = np.asarray(points)
    labels = np.asarray(labels)
    for label, colour, marker in LABELS:
        chosen = (labels == label) & (points.sum(1) > 0)
        x, y = (points[chosen] @ TRIANGLE).T
        look = dict(color=colour, marker=marker, alpha=0.8, linewidth=0)
        axes.scatter(x, y, s=size, label=f"label {label:d}", **look)


def draw_crosses(axes: Axes, spots: np.ndarray, label: str = CROSSES, size: float = 44) -> None:
    """Draw crosses at places of the plane, (n, 2)."""
    axes.scatter(*spots.T, marker="x", color=INK, s=size, label=label)


def draw_head(axes: Axes, head: Numbers, colour: str = HEAD, dashes: str = "--", label: str = "") -> None:
    """Draw the line b·p = 0 of a head with weights b, (3,), where it crosses the triangle."""
    head = np.asarray(head)
    rounding = 1e-12 * abs(head).max()
    corners = _half(np.eye(3), head)
    ends = corners[abs(corners @ head) < rounding]
    if len(ends) > 1:
        x, y = (ends[:2] @ TRIANGLE).T
        axes.plot(x, y, dashes, color=colour, label=label or "the head's line")


def _half(corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The part of a polygon of beliefs, (k, 3), on which weightsᵀp is at least 0: a polygon too, (l, 3), or empty."""
    part = []
    for corner, next_corner in zip(corners, np.roll(corners, -1, 0), strict=True):
        score = weights @ corner
        next_score = weights @ next_corner
        if score >= 0:
            part.append(corner)
        if score * next_score < 0:
            part.append((next_score * corner - score * next_corner) / (next_score - score))
    return np.array(part).reshape(-1, 3)


def name_groups(axes: Axes, points: np.ndarray, groups: Sequence[int], names: Names) -> None:
    """Write the name of each group of points beside its middle, on the side away from the triangle's centre.

    Args:
        axes: The axes.
        points: The points, (n, 3).
        groups: The number of each point's group, (n,).
        names: The names of the groups.
    """
    points = np.asarray(points)
    centre = TRIANGLE.mean(0)
    for group in np.unique(groups):
        middle = points[np.asarray(groups) == group].mean(0) @ TRIANGLE
        x, y = centre + 1.45 * (middle - centre)
        axes.text(x, y, names[group], weight="bold", ha="center", va="center")


def _check_three_tokens(columns: np.ndarray) -> None:
    n_tokens = len(columns)
    if n_tokens != 3:
        raise ValueError(f"A triangle shows distributions over three tokens, but these have {n_tokens} entries.")


# One triangle, or several


def simplex(
    points: np.ndarray,
    labels: Labels,
    columns: np.ndarray,
    head: Numbers,
    names: Names = (),
    corners: Names = TOKENS,
) -> Figure:
    """Draw distributions over three tokens as points of a triangle, with the line b·p = 0 of a head.

    Args:
        points: The distributions, (n, 3).
        labels: Their labels, (n,).
        columns: The columns of W, (3, S), which are crosses.
        head: The weights b of the head, (3,).
        names: The names of the columns, if they are to be shown.
        corners: The names of the tokens.

    Raises:
        ValueError: There are more or fewer than three tokens.
    """
    _check_three_tokens(columns)
    figure, axes = plt.subplots(figsize=(5.2, 4))
    draw_triangle(axes, "", corners)
    draw_points(axes, points, labels, 20)
    spots = np.asarray(columns).T @ TRIANGLE
    draw_crosses(axes, spots, size=60)
    for name, spot in zip(names, spots, strict=False):
        axes.annotate(name, spot, (7, 5), **BESIDE_CROSS)
    draw_head(axes, head)
    axes.autoscale()
    return finish(figure, 2)


def mixtures(panels: dict[str, tuple[np.ndarray, dict[str, Numbers]]], corners: Names) -> Figure:
    """Draw distributions over three tokens in triangles beside each other, and the columns that they mix.

    Args:
        panels: By title, points (n, 3), of which each is drawn once, and three or more columns by name. What can be
            mixed of the columns is shaded.
        corners: The names of the tokens.
    """
    from scipy.spatial import ConvexHull

    figure, axes = plt.subplots(1, len(panels), figsize=(2.7 * len(panels), 2.4))
    cross = dict(marker="x", s=44, color=INK, zorder=3)
    for axis, title in zip(axes, panels, strict=True):
        points, columns = panels[title]
        draw_triangle(axis, title, corners)
        spots = np.stack(list(columns.values())) @ TRIANGLE
        outline = spots[ConvexHull(spots).vertices]
        axis.fill(*outline.T, color=SOFT, alpha=0.2, linewidth=0)
        drawn = np.unique(np.asarray(points).round(3), axis=0) @ TRIANGLE
        axis.scatter(*drawn.T, s=7, color=SOFT, linewidth=0, label="predictions")
        axis.scatter(*spots.T, label="a column of W", **cross)
        for name, spot in zip(columns, spots, strict=True):
            side = dict(xytext=(8, -3), ha="left")
            if spot[0] < 0.5:
                side = dict(xytext=(-6, -4), ha="center", va="top")
            axis.annotate(name, spot, **side, **BESIDE_CROSS)
    return finish(figure, 2)


def triangles(panels: dict[str, tuple], labels: Labels, columns: dict[str, tuple]) -> Figure:
    """Draw the same texts in several triangles, two in a row.

    Args:
        panels: By title, the points (n, 3) and the names of the corners.
        labels: The labels of the texts, (n,).
        columns: For some of the titles, points (3, S) that are drawn as crosses, and their names.
    """
    n_rows = (len(panels) + 1) // 2
    figure, axes = plt.subplots(n_rows, 2, figsize=(5.2, 2.7 * n_rows), squeeze=False)
    for axis, title in zip(axes.flat, panels, strict=False):
        points, corners = panels[title]
        draw_triangle(axis, title, corners)
        draw_points(axis, points, labels, 16)
        if title in columns:
            table, names = columns[title]
            spots = np.asarray(table).T @ TRIANGLE
            draw_crosses(axis, spots, "a state's distribution")
            _name_crosses(axis, spots, names)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    return finish(figure, 3)


def _name_crosses(axes: Axes, spots: np.ndarray, names: Names) -> None:
    """Write one name for equal crosses, on the side away from the nearest other cross."""
    for k, spot in enumerate(spots):
        equal = np.flatnonzero(np.isclose(spots, spot).all(1))
        if equal[0] < k:
            continue
        other_spots = np.delete(spots, equal, 0)
        distances = np.linalg.norm(other_spots - spot, axis=1)
        away = spot - other_spots[distances.argmin()]
        name = ", ".join(names[j] for j in equal)
        side = "left" if away[0] > 0 else "right"
        offset = 9 * away / np.linalg.norm(away)
        axes.annotate(name, spot, offset, ha=side, va="center", **BESIDE_CROSS)


def wrong_beliefs(mu: Numbers, scores: dict[str, Numbers], names: Names) -> Figure:
    """Draw the triangle of beliefs about three states, shaded where a score ν gives the wrong label.

    Args:
        mu: The task μ, (3,), which takes both signs.
        scores: Scores ν by name, (3,), which take both signs. Each has a triangle, shaded where μᵀp and νᵀp differ in
            sign.
        names: The names of the states. A state's corner has the mark of its label.
    """
    mu = np.asarray(mu)
    figure, panels = plt.subplots(1, len(scores), figsize=(5.4, 2.4), squeeze=False)
    shade = dict(color=SOFT, alpha=0.4, linewidth=0, label="wrong label")
    for axes, title in zip(panels[0], scores, strict=True):
        score = np.asarray(scores[title])
        draw_triangle(axes, "", names, SMALL)
        axes.set_title(title, loc="center", fontsize=SMALL, pad=26)
        for sign in (1, -1):
            of_one_label = _half(np.eye(3), sign * mu)
            wrong = _half(of_one_label, -sign * score)
            if len(wrong) > 2:
                axes.fill(*(wrong @ TRIANGLE).T, **shade)
        draw_head(axes, mu, INK, "-", "label changes here")
        draw_head(axes, score, label="head changes here")
        draw_points(axes, np.eye(3), mu >= 0, 40)
        axes.set(xlim=(-0.08, 1.08), ylim=(-0.06, 0.93))
    return finish(figure, 3)


# Without a prompt, and with it


def simplex_with_prompt(
    panels: dict[str, np.ndarray],
    labels: Labels,
    columns: np.ndarray,
    names: Names,
    essential: Sequence[int],
    head: Numbers,
    refuted: LinearHead | Impossible | Undecided,
) -> Figure:
    """Draw distributions over three tokens as points of two triangles, without a prompt and with it.

    Without the prompt, three texts of one label are the corners of a triangle, and a text of the other label inside it
    is a star: so no line separates the labels. If a line does, it is drawn instead.

    Args:
        panels: By title, the points (n, 3) of the same inputs, first without the prompt and then with it.
        labels: The labels of the inputs, (n,).
        columns: The columns of W, (3, S), which are crosses.
        names: The names of the columns.
        essential: H*, the columns whose mixtures are shaded where the prompt is.
        head: The weights b of the head, (3,), whose line is drawn where the prompt is.
        refuted: What `fit_or_refute` says of the points without the prompt.

    Raises:
        ValueError: There are more or fewer than three tokens.
    """
    _check_three_tokens(columns)
    labels = np.asarray(labels)
    spots = np.asarray(columns).T @ TRIANGLE
    figure, (before, behind) = plt.subplots(1, 2, figsize=(5.4, 3.3))
    for axes, title in zip((before, behind), panels, strict=True):
        draw_triangle(axes, title, size=SMALL)
        draw_points(axes, panels[title], labels, 26)
        draw_crosses(axes, spots)
        _name_crosses(axes, spots, names)

    without_prompt, with_prompt = panels.values()
    if isinstance(refuted, LinearHead):
        draw_head(before, refuted.weights, label="a head's line")
        says = "A line separates\nthe labels."
    elif isinstance(refuted, Impossible):
        says = _draw_star(before, np.asarray(without_prompt) @ TRIANGLE, labels)
    else:
        says = "Rounding leaves open\nwhether a line does it."
    _write_below(before, says)

    shade = dict(color=SOFT, alpha=0.4, linewidth=6, zorder=0)
    behind.fill(*spots[list(essential)].T, **shade)
    draw_head(behind, head)
    between = " and ".join(names[h] for h in essential)
    says = f"Only {between} are left.\nThe line is right on "
    head = LinearHead(head)
    n_right = (head.label(with_prompt).numpy() == labels).sum()
    _write_below(behind, says + ("all." if n_right == len(labels) else f"{n_right} of {len(labels)}."))
    return finish(figure, 2)


def _write_below(axes: Axes, words: str) -> None:
    """Write what a triangle shows below its corners."""
    axes.annotate(words, (0.5, 0), (0, -26), textcoords="offset points", ha="center", va="top", fontsize=SMALL)


def _draw_star(axes: Axes, spots: np.ndarray, labels: np.ndarray) -> str:
    """Draw the text, of the spots (n, 2), that lies deepest in a triangle of texts of the other label, as a star.

    Returns:
        What is drawn, in words.
    """
    most = 0.0
    for label, colour, marker in LABELS:
        candidates = spots[labels == label]
        for corners in _triples(spots[labels != label]):
            depths = _depths(candidates, corners)
            if depths.max(initial=0) > most:
                most = depths.max()
                deepest = (label, colour, candidates[depths.argmax()], corners)
    if not most:
        return "No line separates\nthe labels."
    label, colour, star, corners = deepest
    (other_colour,) = {other[1] for other in LABELS if other[0] != label}
    axes.fill(*corners.T, facecolor=other_colour, edgecolor=other_colour, alpha=0.25, linewidth=1.6, zorder=0)
    look = dict(color=colour, markeredgecolor=INK, markersize=14, zorder=4, linestyle="")
    axes.plot(*star, "*", **look)
    return f"The star has label {label:d}, the\ncorners have label {not label:d}."


def _triples(spots: np.ndarray) -> Iterator[np.ndarray]:
    """The triangles, (3, 2), between the outermost of the spots, (n, 2)."""
    from scipy.spatial import ConvexHull

    if len(spots) > 2:
        outermost = ConvexHull(spots, qhull_options="QJ").vertices
        for chosen in combinations(outermost, 3):
            yield spots[list(chosen)]


def _depths(spots: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """How far each of the spots, (n, 2), is from the nearest side of a triangle, (3, 2): below 0 outside it."""
    depths = []
    for corner, next_corner, third in zip(corners, np.roll(corners, -1, 0), np.roll(corners, -2, 0), strict=True):
        along = next_corner - corner
        across = np.array([-along[1], along[0]]) / np.linalg.norm(along)
        inwards = across * np.sign(across @ (third - corner))
        depths.append((spots - corner) @ inwards)
    return np.min(depths, 0)
