"""Figures of prompts on the exact model: accuracies by the number of states, and what one prompt does on one chain."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

from hmmbook.experiments.intervals import mean_ci
from hmmbook.experiments.labels import Task
from hmmbook.figures.figure_3 import EXACT, FULLY_FITTED, draw_line, lines
from hmmbook.figures.figures import stacked
from hmmbook.figures.look import LABEL_0, LABEL_1, SMALL, SOFT, finish, name_ends
from hmmbook.studies.kept_states import KEPT, belief_by_label, factors_of, fitting_share, shares_by_token
from hmmlib import HMM


def by_states(trials: DataFrame) -> Figure:
    """Draw accuracies on the exact model by the number of states: tuned prompts, tuned heads, fully fitted heads.

    Args:
        trials: The left panel's trials, as `results` gives them, with a column FULLY_FITTED.
    """
    by_size = trials.groupby("n_states")
    tuned = {
        "tuned prompt and head": by_size.ladder_prompt_accuracy.agg(mean_ci),
        "tuned head": by_size.ladder_head_accuracy.agg(mean_ci),
    }
    figure = lines(tuned, "hidden states", "accuracy on exact predictions")
    axes = figure.axes[0]
    fitted = by_size[FULLY_FITTED].agg(mean_ci, share=True)
    draw_line(axes, fitted, EXACT[FULLY_FITTED], FULLY_FITTED, shift=0.25)
    axes.plot([10, 10], [0.6, 0.75], color=SOFT, linewidth=1, zorder=0)
    axes.text(10.4, 0.597, "more states than tokens", fontsize=SMALL)
    axes.plot(by_size.majority_rate.mean(), color=SOFT, label="more frequent label")
    return name_ends(figure)


def states_by_token(model: HMM, task: Task, prompt: Tensor, shaded: int | None = None) -> Figure:
    """Draw each state above its likeliest token, at the factor that a prompt gives it.

    Args:
        model: The chain.
        task: The task, whose weights and labels the marks show.
        prompt: The prompt u, (S,).
        shaded: The token whose states are shaded.
    """
    figure, axes = plt.subplots(figsize=(5.4, 3))
    factors = factors_of(model, prompt)
    likeliest_tokens = model.emission.argmax(0)
    places = _side_by_side(likeliest_tokens)
    of_label_1, of_label_0 = belief_by_label(task)
    marks = {
        "weight above 0": (task.mu > 0, "^", 60),
        "weight below 0": (task.mu < 0, "v", 60),
        "weight 0": (task.mu == 0, "o", 26),
    }
    for name, (states, marker, size) in marks.items():
        colours = [LABEL_1 if more else LABEL_0 for more in (of_label_1 > of_label_0)[states]]
        opacity = torch.where(factors[states] > KEPT, 1.0, 0.35)
        look = dict(marker=marker, clip_on=False, alpha=opacity)
        if states.any():
            axes.scatter(places[states], factors[states], size, colours, **look)
        axes.scatter([], [], size, SOFT, marker=marker, label=name)
    axes.scatter([], [], 40, LABEL_1, marker="s", label="mostly in texts of label 1")
    axes.scatter([], [], 40, LABEL_0, marker="s", label="mostly in texts of label 0")
    axes.set(xlabel="likeliest token of the state", ylabel="factor by the tuned prompt", ylim=(0, 1.02))
    axes.set_xticks(range(model.n_tokens))
    axes.axhline(KEPT, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)
    axes.text(model.n_tokens - 0.55, KEPT + 0.02, "above: kept", ha="right", fontsize=SMALL)
    for border in range(1, model.n_tokens):
        axes.axvline(border - 0.5, color=SOFT, linewidth=0.4, zorder=0)
    _shade(axes, shaded)
    return finish(figure, 3)


def _side_by_side(tokens: Tensor) -> Tensor:
    """Return places on the axis for states, so that states of one token stand beside each other."""
    places = tokens.double()
    for token in tokens.unique():
        states = (tokens == token).nonzero().flatten()
        distance = min(0.2, 0.85 / len(states))
        places[states] += distance * (torch.arange(len(states)) - (len(states) - 1) / 2)
    return places


def _shade(axes: Axes, token: int | None) -> None:
    if token is not None:
        axes.axvspan(token - 0.5, token + 0.5, color=SOFT, alpha=0.15, linewidth=0, zorder=0)


def belief_by_token(model: HMM, task: Task, prompts: dict[str, Tensor], shaded: int | None = None) -> Figure:
    """Draw the share of the reweighted belief in the states of each likeliest token, split by the label of the text.

    Args:
        model: The chain.
        task: The task.
        prompts: Prompts u, (S,), by name. Each has a panel.
        shaded: The token whose bar is shaded.
    """
    panels = {}
    for name, prompt in prompts.items():
        shares = shares_by_token(model, task, prompt)
        title = f"{name}: one label for each token fits {fitting_share(shares):.0%}"
        panels[title] = {"texts of label 1": shares[0], "texts of label 0": shares[1]}
    figure = stacked(panels, [str(token) for token in range(model.n_tokens)], "likeliest token of the states")
    for axes in figure.axes:
        _shade(axes, shaded)
    return figure
