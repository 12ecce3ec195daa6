"""Figures and tables of Section 4: texts with a memory, the head that attends, and the prompt before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from hmmbook.figures import figures
from hmmbook.figures.look import HEAD, MEMORY, SMALL, SOFT, Labels, Names, Numbers
from hmmbook.figures.tables import Table, digits

# Section 4


def belief_in_the_truth(lengths: Sequence[int], of_memory: Numbers, of_first_state: Numbers) -> Figure:
    """Draw how much belief the true sentiment and the true first state have after some words.

    Args:
        lengths: The numbers of words, (k,).
        of_memory: The mean belief in the value that the memory holds, (k,).
        of_first_state: The mean belief in the state H_0 that was drawn, (k,).
    """
    series = {"the sentiment": of_memory, "first state": of_first_state}
    labels = ("words read", "belief in the truth")
    figure = figures.curve(lengths, series, *labels, log="x", colours=[MEMORY, SOFT])
    axes = figure.axes[0]
    axes.set_ylim(0, 1.03)
    axes.set_xticks(lengths, lengths)
    axes.minorticks_off()
    axes.text(lengths[-2], of_memory[-2] + 0.02, "the sentiment  ", ha="right", fontsize=SMALL)
    axes.text(lengths[-1], of_first_state[-1] - 0.12, "the first hidden state", ha="right", fontsize=SMALL)
    return figures.finish(figure)


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
