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
from hmmbook.figures.tables import Table, outcomes
from hmmbook.figures.triangles import draw_head, name_groups, triangles
from hmmbook.studies import look_alikes
from hmmbook.studies.mechanism import fits, tables
from hmmbook.studies.mechanism.constants import CONSTANTS
from hmmbook.studies.mechanism.entries import Entry
from hmmbook.studies.mechanism.gate import CHANGES
from hmmbook.studies.mechanism.heads_by_size import ALONE, PENALTIES, TUNED_AS_QUICK

CHANGED = {
    "as it was tuned": "none",
    "values the same\nfor every text": "values at their mean",
    "attention the same\nfor every text": "attention to the prompt frozen",
    "both the same\nfor every text": "attention frozen, values at their mean",
}
"""The changes that are drawn, from the one that costs least, by what stands beside them."""


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


def prompt_against_fake_tokens(trials: DataFrame) -> Figure:
    """Accuracies on the chains of task D: the mean of each, with a dot for each chain.

    `trials` are those of `tables.task_d`.
    """
    accuracies = {
        "small head alone": tables.best_of_size(trials, ALONE),
        "fake token and head,\nat most": trials.fake_token_bound,
        "tuned prompt\nand head": trials.prompt_accuracy,
    }
    return rows_of_chains(accuracies, "test accuracy")


def changed_prompts(trials: DataFrame) -> Figure:
    """Test accuracy after one change to the tuned prompt, with a head fitted anew: the mean, and each chain.

    `trials` are those of `tables.task_d`, whose mean bound is a line.
    """
    changes = tables.of_changes(trials)
    accuracies = {label: changes[change] for label, change in CHANGED.items()}
    accuracies["a constant vector,\nno prompt"] = tables.longer_constants(trials)["without a prompt"]
    figure = rows_of_chains(accuracies, "test accuracy, head fitted anew")
    axes = figure.axes[0]
    bound = trials.fake_token_bound.mean()
    axes.axvline(bound, color=INK, linestyle="--", linewidth=1.2)
    above = dict(textcoords="offset points", ha="right", fontsize=SMALL)
    axes.annotate("bound for fake tokens", (bound, -0.5), (0, 5), **above)
    return finish(figure)


def rows_of_chains(accuracies: dict[str, Series], x_label: str) -> Figure:
    """Draw a row for each series of accuracies: a pale dot for each chain, and the mean with its interval.

    Args:
        accuracies: By the name of a row, the accuracy on each chain.
        x_label: The label of the axis.
    """
    figure, axes = plt.subplots(figsize=(5.4, 0.9 + 0.55 * len(accuracies)))
    for row, shares in enumerate(accuracies.values()):
        mean = mean_ci(shares)
        axes.plot(shares, [row + 0.12] * len(shares), "o", color=SOFT, alpha=0.45, markersize=4)
        axes.plot(mean.shown, [row - 0.15, row - 0.15], color=TUNED_PROMPT.colour, linewidth=1.5)
        axes.plot(mean.mean, row - 0.15, "o", color=TUNED_PROMPT.colour, markersize=7)
        axes.text(1.02, row, f"{mean.mean:.0%}", va="center", fontsize=SMALL)
    axes.set(xlabel=x_label, xlim=(0.45, 1.01), ylim=(len(accuracies) - 0.5, -0.5))
    axes.set_yticks(range(len(accuracies)), accuracies)
    axes.tick_params("y", length=0)
    axes.spines["left"].set_visible(False)
    return finish(figure)


def with_best_lines(
    panels: dict[str, np.ndarray], best_heads: Sequence[Numbers], labels: Labels, likeliest: Sequence[int], names: Names
) -> Figure:
    """Two triangles with predictions of the same texts, and in each the line of its best head.

    The groups of texts with one likeliest state are named in the first.

    Args:
        panels: By title, the predictions of three tokens, (n, 3).
        best_heads: The weights of a head for each panel, (3,).
        labels: The labels of the texts, (n,).
        likeliest: The likeliest state of each text, (n,).
        names: The names of the states.
    """
    corners = ["1", "2", "3"]
    figure = triangles({title: (points, corners) for title, points in panels.items()}, labels, {})
    for axes, head in zip(figure.axes, best_heads, strict=True):
        draw_head(axes, head, label="best head's line")
    name_groups(figure.axes[0], next(iter(panels.values())), likeliest, names)
    return finish(figure, 3)


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
    columns = ["bound", "tuned head", "best head, exact", "small head", "1 vector", "20 vectors"]
    chains = tables.chains_of_task_d()[columns]
    rows = [[str(seed), *_percents(shares)] for seed, shares in chains.iterrows()]
    rows.append(["mean", *_percents(chains.mean())])
    return Table(["chain", *columns], rows)


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


# Further results


def accuracies_on_look_alikes() -> Figure:
    """Test accuracies on the task that a fake token solves and on task D, with a bound for fake tokens, if below 1."""
    series_of_task = look_alikes.accuracies(tables.stored())
    rows = {}
    bounds = []
    for task, series in series_of_task.items():
        rows[task] = {name: mean_ci(shares) for name, shares in series.items()}
        bounds.append(rows[task].pop("a fake token and linear head, at most").mean)
    figure = dots(rows, "test accuracy", numbers=True)
    axes = figure.axes[0]
    look = dict(color=INK, linestyle="--", linewidth=1.2, label="fake token and linear head, at most")
    for place, bound in enumerate(bounds):
        if bound < 1:
            axes.plot([bound, bound], [place - 0.45, place + 0.45], **look)
            axes.text(bound + 0.006, place - 0.2, f"{bound:.0%}", fontsize=SMALL)
    return finish(figure, 2)


def net_shares() -> Figure:
    """Net shares of reweighting and relabelling, on tasks of look-alikes and on the paper's chains."""
    rows = {}
    for task, shares in fits.net_shares().items():
        rows[task] = {fit: shares[fit] for fit in ("nearest reweighting", "nearest relabelling")}
    figure = dots(rows, "net share of what the prompt changes")
    figure.axes[0].set_xlim(0, 1)
    return figure


def table_of_net_shares() -> Table:
    """A row for each task: the mean net share of each family of functions."""
    rows = []
    for task, shares in fits.net_shares().items():
        means = [f"{share.mean:.2f}" for share in shares.values()]
        rows.append([task.replace("\n", " "), *means])
    return Table(["task", *fits.FITS], rows)


def table_of_labels_followed() -> Table:
    """A row for each part of the hidden state: how often the label goes with it, on tasks A and C."""
    on_a = fits.labels_followed("look-alikes-a")
    on_c = fits.labels_followed("look-alikes-c")
    rows = []
    for part in fits.FOLLOWED:
        shares = [f"{share:.2f}" for share in (*on_a.loc[part], *on_c.loc[part])]
        rows.append([part, *shares])
    columns = [f"{task}, {layer}" for task, table in (("A", on_a), ("C", on_c)) for layer in table]
    return Table(["part from another text", *columns], rows)


def table_of_controls(trials: DataFrame) -> Table:
    """A row for each kind of prompt: mean distances of the predictions from W p and from two fits.

    `trials` are those of `fits.distances_of_controls`.
    """
    distances = fits.distances_of_controls(trials)
    rows = []
    for kind, row in distances.iterrows():
        rows.append([kind, *(f"{distance:.2f}" for distance in row)])
    return Table(["mean distance of the prediction", *distances.columns], rows)


def distances_by_tuner() -> Figure:
    """Mean distances of the predictions behind a prompt, a prefix and LoRA, at 10 and at 30 states."""
    families = {
        "no change (W p)": "unchanged",
        "nearest reweighting": "reweighted",
        "nearest relabelling": "relabelled",
        "network's error without a prompt": "floor",
    }
    rows = {}
    for n_states in (10, 30):
        for tuner, trials in fits.tuners().items():
            of_size = trials[trials.n_states == n_states]
            distances = {name: mean_ci(of_size[fits.apart(family)]) for name, family in families.items()}
            rows[f"{tuner},\n|H| = {n_states}"] = distances
    return dots(rows, "mean distance")


# Predictions


def overview_of_predictions(*groups: Sequence[Entry]) -> Table:
    """A row for each entry: its question, and how many of the predictions that it made beforehand came true.

    Predictions that were not tested do not count.
    """
    rows = []
    for group in groups:
        for entry in group:
            verdicts = [row[-1] for row in outcomes(entry.made_beforehand()).rows]
            came_true = verdicts.count("came true")
            tested = came_true + verdicts.count("did not")
            rows.append([entry.number, entry.question, f"{came_true} of {tested}"])
    return Table(["entry", "question", "came true"], rows)


def table_of_predictions(entries: Sequence[Entry]) -> Table:
    """A row for each prediction: what was predicted, what came, and whether it came true."""
    rows = []
    for entry in entries:
        for predicted, result, verdict in outcomes(entry.outcomes).rows:
            rows.append([entry.number, predicted, result, verdict])
    return Table(["entry", "what was predicted", "what came", "outcome"], rows)
