"""The figure and the tables of the page of errata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from hmmbook.figures import figures
from hmmbook.figures.look import Names, Numbers
from hmmbook.figures.tables import Table, digits

if TYPE_CHECKING:
    from torch import Tensor

    from hmmlib import AttentionHead, MemoryHMM

FRACTIONS = {0.5: "½", 0.25: "¼", 0.75: "¾", 0.125: "⅛"}
MINUS = "\N{MINUS SIGN}"


def fractions(vector: Numbers) -> str:
    """Write a vector as readers would do by hand: (½, ½, 0), without line breaks in it."""
    entries = []
    for entry in vector:
        number = float(entry)
        entries.append(FRACTIONS.get(number, f"{number:.2g}"))
    separator = ",\N{NO-BREAK SPACE}"
    return f"({separator.join(entries)})"


def columns_of_w(model: MemoryHMM, states: Names) -> Table:
    """Make a table of W: a row for each value of the only memory cell and each state, and in it a column of W.

    Args:
        model: A model with one memory cell.
        states: The names of its states.
    """
    rows = []
    for value in range(model.n_memory):
        for k, state in enumerate(states):
            column = model.emission[:, value, k]
            rows.append([f"{state}, M = {value}", *digits(column, "g")])
    tokens = [f"token {token}" for token in range(model.n_tokens)]
    return Table(["column of W", *tokens], rows)


def second_states(without_prompt: Numbers, with_prompt: Numbers, in_text: Names, attended: Names) -> Figure:
    """Draw the distributions of the second token's state after the first tokens 0 and 1, with words beside the rows.

    Args:
        without_prompt: The distributions over the states p, q and r from the text alone, (2, 3).
        with_prompt: Those with the prompt, (2, 3).
        in_text: What stands beside each row without the prompt.
        attended: What stands beside each row with it.
    """
    states = ["p", "q", "r"]
    panels = {"without the prompt": (without_prompt, states), "with the prompt": (with_prompt, states)}
    figure = figures.grids(panels, ["0", "1"])
    for axis, answers in zip(figure.axes, (in_text, attended), strict=True):
        axis.text(2.6, 0, answers[0], fontsize=9, va="center")
        axis.text(2.6, 1, answers[1], fontsize=9, va="center", weight="bold")
        axis.set_xlabel("state of the second token", fontsize=9)
    figure.axes[0].set_ylabel("first token", fontsize=9)
    figure.axes[0].tick_params(axis="y", labelsize=9)
    figure.set_size_inches(5.4, 1.8)
    figure.tight_layout()
    return figure


def scores_and_labels(heads: dict[str, AttentionHead], probs: Tensor, embeddings: Tensor, target: float) -> Table:
    """Make a table of what heads give one text: the scores of its positions, the output and the label.

    Args:
        heads: The heads, by what stands above their columns.
        probs: The predictions for the text, (1, T, X).
        embeddings: Its embeddings, (1, T, M * S).
        target: The exact value whose sign the label should be.
    """
    columns = {}
    for name, head in heads.items():
        output = head(probs, embeddings).item()
        scores = digits(head.scores(probs)[0], ".2f")
        columns[name] = [*scores, f"{output:.2f}", f"{int(output >= 0)}"]
    length = probs.shape[1]
    columns["target"] = ["–"] * length + [f"{target:.2f}", f"{int(target >= 0)}"]
    names = [f"score of position {i}" for i in range(1, length + 1)]
    rows = []
    for name, *cells in zip([*names, "output", "label"], *columns.values(), strict=True):
        rows.append([name, *(cell.replace("-", MINUS) for cell in cells)])
    heading = [name.replace("-", MINUS) for name in columns]
    return Table(["β₁ ends in", *heading], rows)
