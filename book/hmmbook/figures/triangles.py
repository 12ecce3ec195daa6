"""Distributions over three tokens, and beliefs about three states, as points of a triangle."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D

from hmmbook.figures.look import HEAD, INK, LABELS, SMALL, SOFT, TYPE, Labels, Names, Numbers, finish
from hmmlib.theory.separation import Impossible

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


# One triangle, or several


def simplex(
    points: np.ndarray,
    labels: Labels,
    columns: np.ndarray,
    head: Numbers,
    names: Names = (),
) -> Figure:
    """Draw distributions over three tokens as points of a triangle, with the line b·p = 0 of a head.

    Args:
        points: The distributions, (n, 3).
        labels: Their labels, (n,).
        columns: The columns of W, (3, S), which are crosses.
        head: The weights b of the head, (3,).
        names: The names of the columns, if they are to be shown.
    """
    figure, axes = plt.subplots(figsize=(5.2, 4))
    draw_triangle(axes, "")
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
    refuted: Impossible,
) -> Figure:
    """Draw distributions over three tokens as points of two triangles, without a prompt and with it.

    Panels below enlarge the proof that no head fits without the prompt, and the points with it.

    Args:
        panels: By title, the points (n, 3) of the same inputs, first without the prompt and then with it.
        labels: The labels of the inputs, (n,).
        columns: The columns of W, (3, S), which are crosses.
        names: The names of the columns.
        essential: H*, the columns whose mixtures are shaded where the prompt is.
        head: The weights b of the head, (3,), whose line is drawn where the prompt is.
        refuted: The proof. A point of one label is a mixture of three of the other.
    """
    labels = np.asarray(labels)
    without_prompt, with_prompt = map(np.asarray, panels.values())
    spots = np.asarray(columns).T @ TRIANGLE
    figure, axes = plt.subplots(2, 2, figsize=(5.4, 4.9), height_ratios=(1, 1.1))
    (before, behind), (proof, enlarged) = axes
    _draw_refutation(before, proof, without_prompt @ TRIANGLE, labels, refuted)
    _enlarge(behind, enlarged, with_prompt[with_prompt.sum(1) > 0] @ TRIANGLE)
    for axis, title, size in zip((before, behind), panels, (9, 14), strict=True):
        draw_triangle(axis, title, size=SMALL)
        draw_points(axis, panels[title], labels, size)
        draw_crosses(axis, spots)
        for name, spot in zip(names, spots, strict=True):  # On the outer side, since points lie between the crosses.
            is_left = spot[0] < spots[:, 0].mean()
            offset = (-7 if is_left else 7, 4 if spot[1] > 0.05 else -4)
            axis.annotate(name, spot, offset, ha="right" if is_left else "left", **BESIDE_CROSS)
    draw_points(enlarged, with_prompt, labels)
    mixed = " and ".join(names[h] for h in essential)
    for axis in (behind, enlarged):
        outline = spots[list(essential)].T
        shade = dict(color=SOFT, alpha=0.4, linewidth=6, zorder=0)
        axis.fill(*outline, label=f"mixtures of {mixed}", **shade)
        draw_head(axis, head)
    return finish(figure, 2)


def _draw_refutation(axes: Axes, proof: Axes, spots: np.ndarray, labels: np.ndarray, refuted: Impossible) -> None:
    """Draw a proof that no line separates the spots, (n, 2): three texts of one label mix to a text of the other.

    The three are a triangle. The text of the other label that lies deepest in it is a star. The panel of the proof is
    turned along the spots and stretched to its frame.
    """
    across, up = np.linalg.svd(spots - spots.mean(0))[2][0]  # The direction in which the spots lie.
    angle = np.arctan2(up, across)
    turned = dict(transform=Affine2D().rotate(-angle) + proof.transData)
    parts = []
    for look, weights in zip(LABELS, (refuted.positive, refuted.negative), strict=True):
        label, colour, marker = look
        alike = spots[labels == label]
        pale = dict(color=colour, marker=marker, alpha=0.5, linewidth=0)
        proof.scatter(*alike.T, s=14, **pale, **turned)
        mixed = alike[np.asarray(weights) > 0]
        parts.append((look, alike, mixed))
    single, triple = sorted(parts, key=lambda part: len(part[2]))

    (label, colour, marker), _, corners = triple
    name = f"triangle of texts of label {label:d}"
    shade = dict(facecolor=colour, alpha=0.2, linewidth=0)
    proof.fill(*corners.T, label=name, **shade, **turned)
    outline = corners[[0, 1, 2, 0]].T
    sides = dict(color=colour, marker=marker, linewidth=1.6, markersize=6)
    proof.plot(*outline, **sides, **turned)

    (label, colour, _), candidates, mixture = single
    name = f"a text of label {label:d}"
    star = dict(color=colour, markeredgecolor=INK, markersize=11, zorder=4, label=name)
    deepest = _deepest(candidates, corners)
    axes.plot(*deepest, "*", **star)
    proof.plot(*deepest, "*", **star, **turned)
    _enlarge(axes, proof, np.vstack([corners, mixture]), angle)


def _deepest(spots: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The one of the spots, (n, 2), that lies deepest inside the triangle of the corners, (3, 2)."""
    equations = np.vstack([corners.T, np.ones(3)])
    sums = np.ones(len(spots))
    weights = np.linalg.solve(equations, np.vstack([spots.T, sums]))
    return spots[weights.min(0).argmax()]


def _enlarge(axes: Axes, detail: Axes, spots: np.ndarray, angle: float = 0.0) -> None:
    """Draw a frame round the spots, (n, 2), turned by the angle, and limit the detail to what is in the frame."""
    spots = Affine2D().rotate(-angle).transform(spots)
    margin = 0.12 * np.ptp(spots, 0) + 0.01
    low = spots.min(0) - margin
    high = spots.max(0) + margin
    turned = Affine2D().rotate(angle) + axes.transData
    width, height = high - low
    frame = dict(fill=False, edgecolor=SOFT, linewidth=1)
    axes.add_patch(Rectangle(low, width, height, transform=turned, **frame))
    detail.set_xlim(low[0], high[0])
    detail.set_ylim(low[1], high[1])
    detail.set(xticks=[], yticks=[])
    title = "the frame, turned and stretched" if angle else "the frame, enlarged"
    detail.set_title(title, loc="center", fontsize=TYPE)
    detail.spines[:].set_visible(True)
