"""Figures of how a tuned prompt helps: what heads read by their size, what is left of a changed prompt, the gate."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from hmmbook.experiments.intervals import mean_ci
from hmmbook.figures.figure_3 import dots, draw_line
from hmmbook.figures.look import INK, LABELS, SMALL, SOFT, TUNED_HEAD, TUNED_PROMPT, Labels, Names, Numbers, finish
from hmmbook.figures.tables import Table
from hmmbook.studies.mechanism import tables
from hmmbook.studies.mechanism.constants import CONSTANTS
from hmmbook.studies.mechanism.gate import CHANGES
from hmmbook.studies.mechanism.heads_by_size import PENALTIES, TUNED_AS_QUICK

CHANGED = {
    "as it was tuned": "none",
    "prompt hidden\nfrom the text": "prompt hidden from the text",
    "values the same\nfor every text": "values at their mean",
    "attention the same\nfor every text": "attention to the prompt frozen",
    "both the same": "attention frozen, values at their mean",
    "prompt hidden from\nthe mask, last layer": "prompt hidden from the mask, last layer",
}
"""The changes that are drawn, from those that cost least, by what stands beside them."""


def theorem_against_tuned(by_size: dict[int, DataFrame]) -> Figure:
    """Accuracy on the exact model at each size: a head alone, and heads behind random, theorem's and tuned prompts.

    `by_size` has tables as `tables.theorem` gives them.
    """
    names = {
        "head alone": "fitted head alone",
        "random prompts": "random prompts, fitted heads",
        "best of 30 random": "best random prompt, fitted head",
        "prompt of Theorem 3.6": "theorem's prompt, fitted head",
        "tuned prompt and head": "tuned prompt, tuned head",
    }
    rows = {}
    for n_states, table in by_size.items():
        label = f"{n_states} states,\n{len(table)} chains"
        rows[label] = {name: mean_ci(table[column]) for name, column in names.items()}
    return dots(rows, "test accuracy on exact predictions", numbers=True)


def reading_by_size(trials: DataFrame) -> Figure:
    """Test accuracy of linear heads against the size of their weights, with and without the tuned prompt.

    `trials` are those of `tables.task_d`. Each point is the mean over the chains for one penalty on the weights.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3.6))
    looks = {
        "with the prompt": ("with the tuned prompt", TUNED_PROMPT),
        "without the prompt": ("without a prompt", TUNED_HEAD),
    }
    for reading, (label, look) in looks.items():
        accuracies = tables.of_heads(trials, reading, "accuracy")
        norms = np.log(tables.of_heads(trials, reading, "norm")).mean()
        points = {np.exp(norms[name]): mean_ci(accuracies[name]) for name in PENALTIES}
        draw_line(axes, Series(points).sort_index(), look, label)
        tuned_norm = np.exp(norms[TUNED_AS_QUICK])
        tuned = mean_ci(accuracies[TUNED_AS_QUICK])
        axes.plot(tuned_norm, tuned.mean, "*", color=look.colour, markersize=15, markeredgecolor="white")
    bound = trials.fake_token_bound.mean()
    axes.axhline(bound, color=INK, linestyle="--", linewidth=1.2)
    axes.text(0.3, bound - 0.035, "bound on exact predictions", fontsize=SMALL)
    axes.plot([], [], "*", color=SOFT, markersize=12, label="head after usual tuning")
    axes.set(xscale="log", xlabel="size of the head's weights, ‖b‖", ylabel="test accuracy", ylim=(0.48, 1.02))
    return finish(figure, 2)


def changed_prompts(trials: DataFrame) -> Figure:
    """Test accuracy after one change to the tuned prompt, with a head fitted anew: the mean, and each chain.

    `trials` are those of `tables.task_d`, whose mean bound is a line.
    """
    changes = tables.of_changes(trials)
    rows = {}
    single = {}
    for label, change in CHANGED.items():
        rows[label] = {"prompt of 20 vectors": mean_ci(changes[change])}
        single[label] = {"prompt of 20 vectors": changes[change]}
    constant = tables.longer_constants(trials)["without a prompt"]
    rows["in place of a prompt"] = {"constant vector": mean_ci(constant)}
    single["in place of a prompt"] = {"constant vector": constant}
    figure = dots(rows, "test accuracy, head fitted anew", single)
    axes = figure.axes[0]
    bound = trials.fake_token_bound.mean()
    axes.axvline(bound, color=INK, linestyle="--", linewidth=1.2, label="bound, mean of the chains")
    figure.set_figheight(4.4)
    return finish(figure, 2)


def attention_by_state(
    attention: Numbers,
    likeliest: Sequence[int],
    labels: Labels,
    names: Names,
    order: Sequence[int],
) -> Figure:
    """How much the mask attends to one prompt vector, text by text, above the likeliest state of each.

    Args:
        attention: The attention weights, (n,).
        likeliest: The likeliest state of each text, (n,).
        labels: The labels of the texts, (n,).
        names: The names of the states.
        order: The states from left to right.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3))
    attention = np.asarray(attention)
    likeliest = np.asarray(likeliest)
    labels = np.asarray(labels)
    for place, state in enumerate(order):
        for label, colour, marker in LABELS:
            chosen = (likeliest == state) & (labels == label)
            aside = place + np.linspace(-0.3, 0.3, chosen.sum())
            look = dict(color=colour, marker=marker, linewidth=0, alpha=0.7)
            axes.scatter(aside, attention[chosen], 14, **look)
    for label, colour, marker in LABELS:
        axes.scatter([], [], 30, colour, marker=marker, label=f"label {int(label)}")
    axes.set(xlabel="likeliest state of the text", ylabel="attention to the vector", ylim=(0, 1))
    axes.set_xticks(range(len(order)), [names[state] for state in order])
    return finish(figure, 2)


def table_of_chains() -> Table:
    """A row for each chain of task D, in percent, and the means in a last row."""
    chains = tables.chains_of_task_d()
    norms = chains.pop("its norm")
    rows = []
    for seed, shares in chains.iterrows():
        rows.append([str(seed), *_percents(shares), f"{norms[seed]:,.0f}"])
    rows.append(["mean", *_percents(chains.mean()), f"median {norms.median():,.0f}"])
    return Table(["chain", *chains.columns, "norm of the fully fitted head"], rows)


def _percents(shares: Series) -> list[str]:
    return [f"{100 * share:.0f}" for share in shares]


def table_of_changes() -> Table:
    """A row for each change: mean accuracies with their intervals, for prompts of 20 vectors and of one."""
    columns = {
        "task D, 20 vectors": tables.task_d(),
        "1 vector": tables.task_d(1),
        "30 states, 20 vectors": tables.left_panel(30),
        "1 vector, 30 states": tables.left_panel(30, 1),
    }
    changes = {name: tables.of_changes(trials) for name, trials in columns.items()}
    rows = []
    for change in (*CHANGES, *CONSTANTS):
        means = [f"{mean_ci(table[change]):.0%}" for table in changes.values()]
        rows.append([change, *means])
    return Table(["what is changed", *columns], rows)
