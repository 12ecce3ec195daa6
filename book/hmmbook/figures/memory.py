"""Figures and tables of Section 4: texts with a memory, the head that attends, and the prompt before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from hmmbook.evidence.ledger import Entry
from hmmbook.evidence.random_models.memory_sums import Comparison
from hmmbook.figures import figures
from hmmbook.figures.look import HEAD, MEMORY, SMALL, SOFT, Labels, Names, Numbers
from hmmbook.figures.tables import Table, difference, digits

# Section 4


def blocks(transition: np.ndarray, lifted: np.ndarray) -> Figure:
    """Draw the transition matrix A of a memory model, and that of the chain on memory and state together.

    Args:
        transition: A, (H, H).
        lifted: The matrix of the pairs (M, H).
    """
    figure = figures.matrices({"A": transition, "chain on (M, H)": lifted}, "from", ["to", "to"])
    for axes in figure.axes:
        axes.set(xticks=[], yticks=[])
    figure.set_size_inches(3.6, 2)
    return figure


def remaining_entropy(lengths: Sequence[int], cells: dict[str, Numbers], first_state: Numbers) -> Figure:
    """Draw how uncertain memory cells and H_0 still are after some words.

    Args:
        lengths: The numbers of words, (k,).
        cells: By the name of a cell, its entropy after so many words as a share of that of the prior, (k,).
        first_state: The same for H_0.
    """
    series = cells | {"H_0": first_state}
    colours = [*[MEMORY] * len(cells), SOFT]
    labels = ("words of the text", "remaining entropy (share)")
    figure = figures.curve(lengths, series, *labels, log="x", colours=colours)
    axes = figure.axes[0]
    axes.set_xticks(lengths, lengths)
    axes.minorticks_off()
    return figure


def sums_by_cells(comparisons: Sequence[Comparison]) -> Table:
    """Make a table of the largest difference between the library and sums, a column for each number of cells.

    Args:
        comparisons: What was computed of each model, and the same as sums.

    Raises:
        AssertionError: A difference is more than rounding.
    """
    by_cells = {}
    for comparison in comparisons:
        by_cells.setdefault(comparison.n_cells, []).append(comparison.pairs)
    head = [""]
    counts = ["models"]
    for n_cells, group in sorted(by_cells.items()):
        head.append("1 cell" if n_cells == 1 else f"{n_cells} cells")
        counts.append(str(len(group)))
    rows = [counts]
    for name in comparisons[0].pairs:
        row = [name]
        for _, group in sorted(by_cells.items()):
            row.append(difference(*[pairs[name] for pairs in group]))
        rows.append(row)
    return Table(head, rows)


def printed_and_corrected(entry: Entry) -> Table:
    """Make a table of one statement of the ledger: as corrected, as printed, and where its assumption is broken.

    Args:
        entry: The row of the ledger of a statement with a printed form that can be compared.
    """
    corrected = f"holds in {entry.instances}, up to {entry.residual:.0e}"
    if entry.residual > entry.tolerance:
        corrected = f"off by up to {entry.residual:.0e}"
    control = f"fails in {entry.control_fails} of {entry.control_instances}, by up to {entry.control_gap:.2f}"
    rows = [
        ["with the conditional, as here", corrected],
        ["with the joint, as printed", f"off in {entry.printed_failures} of {entry.instances}"],
        [f"without “{entry.broken}”", control],
    ]
    return Table([entry.name, "in random models"], rows)


# Sections 4.1 and 4.2


def attention_with_values(words: Names, scores: Numbers, attended: Labels, values: Numbers) -> Figure:
    """Draw attention scores along one text as bars, and the head's value above each attended position.

    Args:
        words: The words of the text, T.
        scores: The attention scores, (T,).
        attended: Where the head attends, (T,).
        values: The values V, (T,).
    """
    figure = figures.attention(words, scores, attended)
    axes = figure.axes[0]
    axes.set_ylim(0, 1.2)
    for position in np.flatnonzero(attended):
        place = (position + 1, float(scores[position]) + 0.04)
        axes.text(*place, f"value {values[position]:.2f}", ha="center", color=HEAD)
    return figure


def accuracy_by_angle(angles: Numbers, accuracies: Numbers) -> Figure:
    """Draw the accuracy of heads with noise in their predictions against the angle between the spans, in radians."""
    labels = ("angle between the spans (radians)", "accuracy with noise")
    figure = figures.curve(angles, {"accuracy": accuracies}, *labels, log="x")
    figure.axes[0].set_ylim(min(0.48, *accuracies), 1.02)
    return figure


def thresholds(
    points: dict[tuple[str, str], tuple[Numbers, Labels]],
    columns: dict[str, dict[str, Numbers]],
    cuts: dict[str, float],
) -> Figure:
    """Draw the probability of “sun” at sure positions by label, and the threshold at which a head's value is zero.

    Args:
        points: By how the prediction is made and the word that stands there, the probabilities and the labels.
        columns: By how the prediction is made, the columns of W that it mixes, by name. The second token is “sun”.
        cuts: By the word that stands there, the threshold.
    """
    rows = {}
    crosses = {}
    lines = {}
    for (way, word), row in points.items():
        name = f"“{word}” stands there,\n{way}"
        rows[name] = row
        crosses[name] = [column[1] for column in columns[way].values()]
        lines[name] = cuts[word]
    figure = figures.strips(rows, "probability of “sun”, given the other words", crosses, lines)
    first_way, _ = next(iter(points))
    for name, column in columns[first_way].items():
        figure.axes[0].text(column[1], -0.42, name, ha="center", fontsize=SMALL)
    return figure


def by_input(inputs: Sequence[Sequence[int]], columns: dict[str, np.ndarray], words: Names = ()) -> Table:
    """Make a table with a row for each input.

    Args:
        inputs: The inputs, (n, T).
        columns: By name, a number or a label for each input, (n,), or a distribution for each input, (n, k).
        words: The names of the tokens, if the inputs are to be shown in words.
    """
    rows = []
    for place, tokens in enumerate(np.asarray(inputs).tolist()):
        name = " ".join(words[token] for token in tokens) if words else str(tuple(tokens))
        row = [name]
        for column in columns.values():
            value = np.asarray(column)[place]
            form = ".0f" if value.dtype == bool else ".2f"
            row.append(", ".join(digits(value, form)))
        rows.append(row)
    return Table(["input", *columns], rows)
