"""Distributions over three tokens, and beliefs about three states, as points of a triangle."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D

from companion.figures.figures import HEAD, INK, LABELS, SMALL, SOFT, TYPE, finish
from hmmlib.theory.separation import Impossible

TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.866]])
"""Where the corners of a triangle of distributions are drawn."""
TOKENS = ("token 0", "token 1", "token 2")
COLUMN = dict(textcoords="offset points", fontweight="bold", bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.5))
"""How the name of a column of W stands beside its cross."""
CROSSES = "one state alone"


def draw_triangle(axes: Axes, title: str, corners: Sequence[str] = TOKENS, size: float = TYPE) -> None:
    """The sides of the triangle and the names of its corners, which are outcomes; nothing else of the axes is left."""
    axes.plot(*TRIANGLE[[0, 1, 2, 0]].T, color=SOFT, linewidth=1)
    sides = (-1, -6, "left", "top"), (1, -6, "right", "top"), (0, 6, "center", "bottom")
    for name, corner, (side, up, ha, va) in zip(corners, TRIANGLE, sides, strict=True):
        away = side * (4 + 1.6 * len(name)), up  # so that long names do not meet in the middle
        axes.annotate(name, corner, away, textcoords="offset points", ha=ha, va=va, fontsize=size)
    axes.set(aspect="equal", xlim=(-0.05, 1.05), ylim=(-0.03, 0.89))
    axes.set_title(title, loc="center", fontsize=TYPE, pad=22)
    axes.axis("off")


def draw_points(axes: Axes, points, labels, size: float = 24) -> None:
    """Points (n, 3) by their labels (n,); rows of zeros, which are inputs that cannot occur, are left out."""
    points, labels = np.asarray(points), np.asarray(labels)
    for label, colour, marker in LABELS:
        spots = points[(labels == label) & (points.sum(1) > 0)] @ TRIANGLE
        axes.scatter(*spots.T, color=colour, marker=marker, s=size, label=f"label {label:d}", alpha=0.8, linewidth=0)


def _half(corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The part of a polygon of beliefs, (k, 3), on which weightsᵀp is at least 0: a polygon too, (l, 3), or empty."""
    kept = []
    for here, there in zip(corners, np.roll(corners, -1, 0), strict=True):
        a, b = weights @ here, weights @ there
        kept += [here] if a >= 0 else []
        kept += [(b * here - a * there) / (b - a)] if a * b < 0 else []
    return np.array(kept).reshape(-1, 3)


def draw_head(axes: Axes, head, colour: str = HEAD, style: str = "--", label: str = "the head's line") -> None:
    """The line b·p = 0 of a head with weights b, (3,), where it crosses the triangle."""
    head = np.asarray(head)
    ends = [p for p in _half(np.eye(3), head) if abs(head @ p) < 1e-12 * abs(head).max()]
    if len(ends) > 1:
        axes.plot(*(np.array(ends[:2]) @ TRIANGLE).T, style, color=colour, label=label)


def simplex(
    points: np.ndarray, labels: Sequence[bool], columns: np.ndarray, head: np.ndarray, names: Sequence[str] = (),
    corners: Sequence[str] = TOKENS, crosses: str = CROSSES,
) -> Figure:  # fmt: skip
    """Distributions over three tokens as points of a triangle, and the line b·p = 0 of a `head` with weights b, (3,).

    `points`, (n, 3), are coloured by `labels`, (n,). The columns of W, (3, S), are crosses, with or without `names`.
    For distributions over something else, such as beliefs over three states, `corners` names the three, and `crosses`
    says what `columns` are.
    """
    figure, axes = plt.subplots(figsize=(5.2, 4))
    draw_triangle(axes, "", corners)
    draw_points(axes, points, labels, 20)
    spots = np.asarray(columns).T @ TRIANGLE
    axes.scatter(*spots.T, marker="x", color=INK, s=60, label=crosses)
    for name, spot in zip(names, spots, strict=False):
        axes.annotate(name, spot, (7, 5), **COLUMN)
    draw_head(axes, head)
    axes.autoscale()
    return finish(figure, 2)


def _deepest(spots: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The one of the `spots`, (n, 2), that lies deepest inside the triangle of the `corners`, (3, 2)."""
    inside = np.linalg.solve(np.vstack([corners.T, np.ones(3)]), np.vstack([spots.T, np.ones(len(spots))]))
    return spots[inside.min(0).argmax()]


def _enlarge(axes: Axes, detail: Axes, spots: np.ndarray, angle: float = 0.0) -> None:
    """A frame round the `spots`, (n, 2), turned by the angle, and the limits of the `detail` that shows its content."""
    spots = Affine2D().rotate(-angle).transform(spots)
    margin = 0.12 * np.ptp(spots, 0) + 0.01
    low, high = spots.min(0) - margin, spots.max(0) + margin
    turned = Affine2D().rotate(angle) + axes.transData
    axes.add_patch(Rectangle(low, *(high - low), fill=False, edgecolor=SOFT, linewidth=1, transform=turned))
    detail.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
    detail.set_title("the frame, turned and stretched" if angle else "the frame, enlarged", loc="center", fontsize=TYPE)
    detail.spines[:].set_visible(True)


def _draw_refutation(axes: Axes, detail: Axes, spots: np.ndarray, labels: np.ndarray, refuted: Impossible) -> None:
    """In a detail turned along the spots and stretched to its frame, the triangle of texts of one label that a proof
    mixes; and as a star the text of the other label that lies deepest in it."""
    across, up = np.linalg.svd(spots - spots.mean(0))[2][0]  # the direction in which they lie
    angle = np.arctan2(up, across)
    look = dict(transform=Affine2D().rotate(-angle) + detail.transData)
    mixed = {}
    for (label, colour, marker), weights in zip(LABELS, (refuted.positive, refuted.negative), strict=True):
        alike = spots[labels == label]
        detail.scatter(*alike.T, color=colour, marker=marker, s=14, alpha=0.5, linewidth=0, **look)
        mixed[(np.asarray(weights) > 0).sum()] = alike, alike[np.asarray(weights) > 0], label, colour, marker
    (inside, one, label, colour, _), (_, corners, other, around, marker) = mixed[1], mixed[3]
    name = f"triangle of texts of label {other:d}"
    detail.fill(*corners.T, facecolor=around, alpha=0.2, linewidth=0, label=name, **look)
    detail.plot(*corners[[0, 1, 2, 0]].T, color=around, marker=marker, linewidth=1.6, markersize=6, **look)
    star = dict(color=colour, markeredgecolor=INK, markersize=11, zorder=4, label=f"a text of label {label:d}")
    for where, turn in ((axes, {}), (detail, look)):
        where.plot(*_deepest(inside, corners), "*", **star, **turn)
    _enlarge(axes, detail, np.vstack([corners, one]), angle)


def simplex_with_prompt(
    panels: dict[str, np.ndarray], labels: Sequence[bool], columns: np.ndarray, names: Sequence[str],
    essential: Sequence[int], head: np.ndarray, refuted: Impossible,
) -> Figure:  # fmt: skip
    """Distributions over three tokens as points of two triangles, without a prompt and with it.

    `panels` has, by title, the points (n, 3) of the same n inputs, two times; a row of zeros (no such input) is left
    out. `labels` are those of the inputs, (n,). The columns of W, (3, S), are crosses with `names`; the segment or
    triangle of the `essential` ones is shaded in the second panel, which also has the line b·p = 0 of the `head`,
    (3,). `refuted` is the proof that no head fits the first panel: one point of a label that is a mixture of three of
    the other. A panel below it enlarges them. A fourth enlarges the points of the second.
    """
    spots = np.asarray(columns).T @ TRIANGLE
    figure, ((before, behind), (detail, segment)) = plt.subplots(2, 2, figsize=(5.4, 4.9), height_ratios=(1, 1.1))
    labels, (without, prompted) = np.asarray(labels), map(np.asarray, panels.values())
    _draw_refutation(before, detail, without @ TRIANGLE, labels, refuted)
    _enlarge(behind, segment, prompted[prompted.sum(1) > 0] @ TRIANGLE)
    for axes, (title, points), size in zip((before, behind), panels.items(), (9, 14), strict=True):
        draw_triangle(axes, title, size=SMALL)
        draw_points(axes, points, labels, size)
        axes.scatter(*spots.T, marker="x", color=INK, s=44, label=CROSSES)
        for name, spot in zip(names, spots, strict=True):  # on the outer side: points lie between the crosses
            left = spot[0] < spots[:, 0].mean()
            up = 4 if spot[1] > 0.05 else -4
            axes.annotate(name, spot, (-7 if left else 7, up), ha="right" if left else "left", **COLUMN)
    draw_points(segment, prompted, labels)
    left = " and ".join(names[h] for h in essential)
    shade = dict(color=SOFT, alpha=0.4, linewidth=6, zorder=0, label=f"mixtures of {left}")
    for axes in (behind, segment):
        axes.fill(*spots[list(essential)].T, **shade)
        draw_head(axes, head)
    return finish(figure, 2)


def mixtures(panels: dict[str, tuple[np.ndarray, dict[str, Sequence[float]]]], corners: Sequence[str]) -> Figure:
    """Distributions over three tokens as points of triangles beside each other, and the columns that they mix.

    `panels` maps a title to points (n, 3), of which each is drawn once, and to three or more columns by name; what
    can be mixed of these is shaded. `corners` are the tokens' names.
    """
    from scipy.spatial import ConvexHull

    figure, axes = plt.subplots(1, len(panels), figsize=(2.7 * len(panels), 2.4))
    for axis, (title, (points, columns)) in zip(axes, panels.items(), strict=True):
        draw_triangle(axis, title, corners)
        spots = np.stack(list(columns.values())) @ TRIANGLE
        axis.fill(*spots[ConvexHull(spots).vertices].T, color=SOFT, alpha=0.2, linewidth=0)
        drawn = np.unique(np.asarray(points).round(3), axis=0) @ TRIANGLE
        axis.scatter(*drawn.T, s=7, color=SOFT, linewidth=0, label="predictions")
        axis.scatter(*spots.T, marker="x", s=44, color=INK, zorder=3, label="a column of W")
        for name, (x, y) in zip(columns, spots, strict=True):
            side = dict(xytext=(8, -3), ha="left") if x >= 0.5 else dict(xytext=(-6, -4), ha="center", va="top")
            axis.annotate(name, (x, y), **side, **COLUMN)
    return finish(figure, 2)


def triangles(panels: dict[str, tuple], labels: Sequence[bool], columns: dict[str, tuple]) -> Figure:
    """The same texts in several triangles, two in a row.

    `panels` has, by title, the points (n, 3), and the names of the corners; `labels` are those of the texts, (n,);
    `columns` has, for some of the titles, points (3, S) drawn as crosses, and their names.
    """
    rows = -(-len(panels) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(5.2, 2.7 * rows), squeeze=False)
    for axis, (title, (points, corners)) in zip(axes.flat, panels.items(), strict=False):
        draw_triangle(axis, title, corners)
        draw_points(axis, points, labels, 16)
        if title in columns:
            table, names = columns[title]
            spots = np.asarray(table).T @ TRIANGLE
            axis.scatter(*spots.T, marker="x", color=INK, s=44, label="a state's distribution")
            alike = [[j for j, other in enumerate(spots) if np.allclose(spot, other)] for spot in spots]
            for k, same in enumerate(alike):
                if same[0] == k:  # equal crosses have one name, on the side away from the nearest other cross
                    others = np.delete(spots, same, 0)
                    away = spots[k] - min(others, key=lambda other: np.linalg.norm(other - spots[k]))
                    place = dict(ha="left" if away[0] > 0 else "right", va="center")
                    at = 9 * away / np.linalg.norm(away)
                    axis.annotate(", ".join(names[j] for j in same), spots[k], at, **place, **COLUMN)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    return finish(figure, 3)


def wrong_beliefs(mu: Sequence[float], scores: dict[str, Sequence[float]], names: Sequence[str]) -> Figure:
    """For each score ν, by name, the triangle of beliefs about three states, shaded where μᵀp and νᵀp differ in sign.

    `mu`, and each of `scores`, has three entries, and takes both signs; `names` are those of the corners, which have
    the marks of their labels.
    """
    figure, panels = plt.subplots(1, len(scores), figsize=(5.4, 2.4), squeeze=False)
    for axes, (title, score) in zip(panels[0], scores.items(), strict=True):
        draw_triangle(axes, "", names, SMALL)
        axes.set_title(title, loc="center", fontsize=SMALL, pad=26)
        for sign in (1, -1):
            wrong = _half(_half(np.eye(3), sign * np.asarray(mu)), -sign * np.asarray(score))
            if len(wrong) > 2:
                axes.fill(*(wrong @ TRIANGLE).T, color=SOFT, alpha=0.4, linewidth=0, label="wrong label")
        draw_head(axes, mu, INK, "-", "label changes here")
        draw_head(axes, score, label="head changes here")
        draw_points(axes, np.eye(3), np.asarray(mu) >= 0, 40)
        axes.set(xlim=(-0.08, 1.08), ylim=(-0.06, 0.93))
    return finish(figure, 3)


def name_groups(axes: Axes, points: np.ndarray, groups: Sequence[int], names: Sequence[str]) -> None:
    """Write the name of each group of points, (n, 3), beside its middle, on the side away from the triangle's centre.

    `groups` has the number of each point's group, (n,), by which `names` are read.
    """
    points = np.asarray(points)
    for group in np.unique(groups):
        middle = points[np.asarray(groups) == group].mean(0) @ TRIANGLE
        outwards = middle - TRIANGLE.mean(0)
        at = TRIANGLE.mean(0) + 1.45 * outwards
        axes.text(*at, names[group], weight="bold", ha="center", va="center")
