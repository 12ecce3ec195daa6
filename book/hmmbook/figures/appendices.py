"""Figures and tables of the pages on appendices B, C, D and D.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from hmmbook.figures import figures
from hmmbook.figures.look import FIRST, INK, SECOND, SOFT, Numbers, finish
from hmmbook.figures.tables import Table, digits

if TYPE_CHECKING:
    from hmmbook.evidence.ledger import Entry


def vector(numbers: Numbers, form: str = ".3f") -> str:
    """Write a vector in a table: (0.250, 0.750)."""
    return f"({', '.join(digits(numbers, form))})"


# Appendix B


def odds_of_two_starts(early: Numbers, late: Numbers, slope: float) -> Figure:
    """Draw the odds of a state before each text, where the text starts later against where it starts early.

    Args:
        early: The odds where the text starts after H_0, (n,).
        late: The odds where it starts after H_1, (n,).
        slope: By how much the later start multiplies the odds, which is the slope of the line.
    """
    figure, axes = plt.subplots(figsize=(5.4, 2.6))
    end = 1.05 * float(max(early))
    axes.scatter(early, late, s=30, color=INK, alpha=0.8, linewidth=0)
    axes.plot([0, end], [0, slope * end], color=SOFT, linewidth=1, zorder=0)
    below = dict(xytext=(0, -34), textcoords="offset points", ha="right")
    axes.annotate(f"slope {slope:.2f}", (end, slope * end), **below)
    axes.set_xlabel("odds of the second state, text after H₀")
    axes.set_ylabel("odds of the second\nstate, text after H₁")
    axes.set(xlim=0, ylim=0, aspect="equal")
    return finish(figure)


# Appendix C


def two_halves(beliefs: dict[str, Numbers], joined: Numbers) -> Figure:
    """Draw the belief about a state given parts of a text, and dashes for what the two halves give together.

    Args:
        beliefs: The prior, and the beliefs given the left half, the right half and both, by name and in this order.
        joined: The product of the halves over the prior, scaled to sum to 1.
    """
    colours = [SOFT, FIRST, SECOND, SOFT]
    outcomes = ["state a", "state b", "state c"]
    title = "belief about position 3, in 0 1 ? 2 1"
    figure = figures.distributions(beliefs, outcomes, title, colours)
    (axes,) = figure.axes
    for bar in axes.containers[0]:  # The bars of the prior are outlines.
        bar.set(facecolor="none", edgecolor=INK, hatch="")
    last_bars = axes.containers[-1]
    left_ends = [bar.get_x() for bar in last_bars]
    right_ends = [bar.get_x() + bar.get_width() for bar in last_bars]
    axes.hlines(joined, left_ends, right_ends, color=INK, linewidth=2.5, label="left · right / prior")
    axes.set_ylim(0, 1.1 * max(float(max(belief)) for belief in beliefs.values()))
    return finish(figure, 3)


# Appendix D

ARROWS = (
    ("D.1", "D.3"),
    ("D.3", "D.2"),
    ("D.3", "D.4"),
    ("D.2", "Theorem 4.3"),
    ("D.4", "Theorem 4.3"),
    ("D.1", "D.7"),
    ("D.3", "D.10"),
    ("D.4", "D.13"),
    ("D.7", "D.11"),
    ("D.7", "D.10"),
    ("D.11", "D.10"),
    ("D.10", "D.9"),
    ("D.10", "D.13"),
    ("D.8", "D.12"),
    ("D.12", "D.9"),
    ("D.8", "D.14"),
    ("D.8", "D.15"),
    ("D.7", "D.15"),
    ("D.14", "D.13"),
    ("D.15", "D.13"),
    ("D.12", "D.13"),
    ("D.15", "Theorem D.6"),
    ("D.9", "Theorem D.6"),
    ("D.13", "Theorem D.6"),
    ("Theorem D.6", "Theorem 4.6"),
)
"""Which statement of appendix D is used, itself or its construction, in the proof of which other one."""
PLACES = {
    "D.1": (0.3, 5),
    "D.7": (1.3, 5),
    "D.8": (2.95, 5),
    "D.3": (0, 4),
    "D.11": (1.55, 4),
    "D.12": (2.2, 4),
    "D.14": (2.95, 4),
    "D.15": (3.75, 4),
    "D.2": (-0.35, 3),
    "D.4": (0.3, 3),
    "D.10": (1.0, 3),
    "Theorem 4.3": (0, 2),
    "D.9": (1.45, 2),
    "D.13": (2.3, 2),
    "Theorem D.6": (2.3, 1),
    "Theorem 4.6": (2.3, 0),
}
"""The column and row of each statement in the figure."""
SUBJECTS = {
    "D.1": "mixture",
    "D.7": "fake token",
    "D.8": "any start",
    "D.3": "read-outs",
    "D.11": "memory",
    "D.12": "states",
    "D.14": "rescaling",
    "D.15": "excluded",
    "D.2": "key",
    "D.4": "value",
    "D.10": "read-outs",
    "Theorem 4.3": "head alone",
    "D.9": "key",
    "D.13": "value",
    "Theorem D.6": "prompt, several cells",
    "Theorem 4.6": "prompt, one cell",
}
"""What each statement is about, in a word or two below its name."""
PROVED_FIRST = ("D.1", "D.2", "D.3", "D.4", "D.7", "Theorem 4.3")
"""The statements that the page on appendix D proves. The others are proved on the page on D.3."""


def proofs_of_appendix_d() -> Figure:
    """Draw which statement of appendix D leads to which. Those that the page on appendix D proves are shaded."""
    figure = figures.dependencies(PLACES, ARROWS)
    for text in figure.axes[0].texts[: len(PLACES)]:
        name = text.get_text()
        text.set_text(f"{name}\n{SUBJECTS[name]}")
        text.set(fontsize=8.5, linespacing=1.3)
        box = text.get_bbox_patch()
        box.set_boxstyle("round", pad=0.4)
        if name in PROVED_FIRST:
            box.set_facecolor("#dde3e8")
    figure.set_size_inches(4.9, 5.6)
    return figure


def rulings_of_appendix_d(entries: Sequence[Entry]) -> Table:
    """Make a table of statements: the ruling on the printed form, and how often the control failed.

    Args:
        entries: What the ledger found. An assumption is a condition, which claims nothing.
    """
    rows = []
    for entry in entries:
        ruling = entry.grade
        if entry.name.startswith("Assumption"):
            ruling = "condition"
        if not entry.as_recorded:
            ruling = "not as recorded"
        failed = f"{entry.control_fails} of {entry.control_instances} without “{entry.broken}”"
        rows.append([entry.name, ruling, failed])
    return Table(["statement", "as printed", "the control fails"], rows)


# Appendix D.3


def scores_and_targets(targets: Numbers, scores: Numbers, surely_cats: Sequence[bool]) -> Figure:
    """Draw the score of each text against its target, with larger points for more texts, and a ring for cats.

    Args:
        targets: The weighted posteriors, (n,).
        scores: The scores of the head with the prompt, (n,).
        surely_cats: Which texts are surely about a cat, (n,). All of them have one target and one score.
    """
    pairs = np.stack([np.asarray(targets), np.asarray(scores)], 1).round(9)
    points, counts = np.unique(pairs, axis=0, return_counts=True)
    x_label = "target, summed over all paths"
    y_label = "score of the head with the prompt"
    figure = figures.scatter(*points.T, x_label, y_label)
    (axes,) = figure.axes
    axes.collections[0].set(sizes=12 + 6 * counts, color=INK)
    n_cats = int(np.sum(surely_cats))
    if n_cats > 0:
        place = pairs[np.asarray(surely_cats)][0]
        axes.scatter(*place, s=72 + 6 * n_cats, facecolor="none", edgecolor=INK)
        beside = dict(xytext=(10, -16), textcoords="offset points", ha="left")
        axes.annotate("surely a cat", place, **beside)
    return figure
