"""Figures that a reader can move, as HTML that carries its numbers, its scripts and its styles.

So a figure works anywhere as a notebook's output, without a server. Its script, in `moving/`, computes what hmmlib
computes, by the same formulas.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product

import numpy as np
import torch
from pandas import DataFrame, Series
from torch import Tensor

from hmmbook.experiments.parts import draw_model, draw_trial_task
from hmmbook.experiments.results import published, spec_of
from hmmbook.figures.figure_3 import LEFT
from hmmbook.figures.look import Labels, Names
from hmmbook.figures.triangles import TOKENS
from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.validation import MASK


def _source(name: str) -> str:
    """Read one of the scripts or the style of the figures that move."""
    return (files("hmmbook.figures") / "moving" / name).read_text(encoding="utf8")


@dataclass(frozen=True)
class Moving:
    """A figure with its data; a notebook shows it by `_repr_html_`."""

    figure: str
    """Names its script and its element in the page."""
    data: dict = field(repr=False)
    still: str
    """The text where scripts do not run."""
    shared: tuple[str, ...] = ()
    """Further scripts that it uses."""

    def _repr_html_(self) -> str:
        """One element with everything inside. The same data give the same text."""
        style = _source("moving.css")
        scripts = [_source(f"{name}.js") for name in ("kit", *self.shared, self.figure)]
        data = json.dumps(self.data, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
        element = f"moving-{self.figure}"
        start = f"hmmMoving.kit.start({json.dumps(element)}, {json.dumps(self.figure)}, {data});"
        return (
            f'<div class="moving" id="{element}">\n<style>\n{style}\n</style>\n'
            f'<p class="still">{html.escape(self.still)} (This figure moves where scripts are allowed to run.)</p>\n'
            "<script>\n" + "\n".join([*scripts, start]) + "\n</script>\n</div>"
        )


# Data for the scripts


def _lists(**arrays) -> dict[str, list]:
    return {name: torch.as_tensor(array).tolist() for name, array in arrays.items()}


def _matrices(model: HMM) -> dict[str, list]:
    return _lists(transition=model.transition, emission=model.emission, initial=model.initial)


def _memory_matrices(model: MemoryHMM) -> dict[str, list]:
    """A, P[H_0], P[M] and W, flat, and which column of W state h looks up when the memory is the k-th."""
    columns = torch.arange(model.n_memory * model.n_states)
    return _lists(
        transition=model.transition,
        initial=model.initial,
        prior=model.memory.flatten(),
        emission=model.emission.flatten(1),
        lookup=model.lift(columns).unflatten(0, (-1, model.n_states)),
    )


def _memories(model: MemoryHMM) -> list[tuple[int, ...]]:
    """The values of all cells, for every memory."""
    return list(product(range(model.n_memory), repeat=model.n_cells))


def _tokens(words: Names, text: str) -> list[int]:
    return [words.index(word) for word in text.split()]


def _possible_inputs(model: HMM, length: int = 4) -> Tensor:
    """Every input of so many tokens that can occur, (n, length)."""
    inputs = torch.tensor(list(product(range(model.n_tokens), repeat=length)))
    return inputs[log_likelihood(model, inputs) > -torch.inf]


# Section 2


def passing_messages(model: HMM, words: Names, states: Names, text: str, masked: Sequence[int] = ()) -> Moving:
    """Show the two passes along a text, a message at a time, and what they give. The reader can mask words.

    Args:
        model: A model of two states and at most four tokens.
        words: The names of the tokens, which begin with different letters.
        states: The names of the states.
        text: One to five words.
        masked: The positions that are masked at first, counted from 1.
    """
    data = {
        "model": _matrices(model),
        "states": list(states),
        "words": list(words),
        "text": _tokens(words, text),
        "masked": list(masked),
    }
    still = "Messages from the left and from the right, and what they give at each position."
    return Moving("messages", data, still)


# Section 3


def nearly_dependent_columns(
    model: HMM,
    mu: Tensor,
    names: Names,
    merge: tuple[int, int] = (0, 1),
    noise: float = 1e-3,
    words: Names = TOKENS,
) -> Moving:
    """Show Theorem 3.3 near its edge: a column of W moves to another, and the head's weights and errors grow.

    The task is μ less a constant that gives half of the inputs label 1. The page says whether some head fits where the
    columns are equal, which `fit_or_refute` finds.

    Args:
        model: A model of three tokens and three states, with independent columns of W.
        mu: μ, (3,).
        names: The names of the states.
        merge: The column that stays, and the one that moves.
        noise: The standard deviation of the noise in G.
        words: The names of the tokens.
    """
    inputs = _possible_inputs(model)
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(len(inputs), 3, generator=generator, dtype=torch.float64)
    stays, moves = merge
    emission = model.emission.clone()
    emission[:, moves] = emission[:, stays]
    merged = HMM(model.transition, emission, model.initial, columns=True)
    data = {
        "model": _matrices(model),
        "names": list(names),
        "words": list(words),
        **_lists(mu=mu, merge=merge, inputs=inputs, noise=noise * draw),
        "noiseSize": noise,
        "refuted": _no_head_fits_half(merged, inputs, torch.as_tensor(mu)),
    }
    return Moving("columns", data, "Two columns of W come together, and the head of the theorem grows.")


def _no_head_fits_half(model: HMM, inputs: Tensor, mu: Tensor) -> bool:
    """Whether no head gives label 1 to the half of the inputs with the larger targets."""
    targets = posterior(model, inputs) @ mu.to(model.emission)
    half = len(inputs) // 2
    median = targets.sort().values[half - 1 : half + 1].mean()
    gap = torch.full_like(inputs[:, :1], MASK)
    probs = masked_token_probs(model, torch.cat([gap, inputs], 1))[:, 0]
    return isinstance(fit_or_refute(probs, targets > median), Impossible)


def conditioning_by_a_prompt(
    model: HMM, mu: Tensor, prompt: Tensor, head: LinearHead, names: Names, shown: Sequence[Sequence[int]]
) -> Moving:
    """Show Theorem 3.6: what the entries of a prompt do to the belief in H_2, the prediction at the gap and accuracy.

    Args:
        model: A model of three tokens and at most six states.
        mu: μ, (S,).
        prompt: The prompt, as `theorem_3_6` gives it.
        head: The head, as `theorem_3_6` gives it.
        names: The names of the states.
        shown: Two or three inputs of one length that can occur. Their posteriors are bars, and all inputs of this
            length are points.

    Raises:
        ValueError: An input that is shown cannot occur.
    """
    prompt = torch.as_tensor(prompt)
    shown = torch.as_tensor(shown)
    reachable = model.transition @ (prompt * model.marginal(1)) > 0
    essential = reachable.nonzero().squeeze(-1)
    inputs = _possible_inputs(model, shown.shape[1]).tolist()
    for tokens in shown.tolist():
        if tokens not in inputs:
            raise ValueError(f"shown has the input {tokens}, which this model never emits. Choose one that can occur.")
    data = {
        "model": _matrices(model),
        "names": list(names),
        **_lists(mu=mu, prompt=prompt, essential=essential, head=head.weights),
        "inputs": inputs,
        "shown": [inputs.index(tokens) for tokens in shown.tolist()],
    }
    return Moving("prompt", data, "The entries of a prompt, and what they leave of the hidden states.")


# Section 4


def belief_word_by_word(
    model: MemoryHMM,
    words: Names,
    cells: Names,
    values: Sequence[Names],
    syntax: Names,
    text: str,
    read: int = 0,
    examples: Names = (),
) -> Moving:
    """Show the posteriors of memory cells and state after each word of a text that the reader writes.

    Args:
        model: The model.
        words: The names of the tokens, in lower case. A full stop may be one. The word for MASK is "[mask]".
        cells: The names of the cells.
        values: The names of each cell's values.
        syntax: The names of the syntax states.
        text: The text at first.
        read: How many of its words have been read.
        examples: Further texts, also impossible ones.
    """
    data = {
        "model": _memory_matrices(model),
        "held": _memories(model),
        "cells": [{"name": cells[j], "values": list(values[j])} for j in range(model.n_cells)],
        "states": [f"{cell}, {part}" for cell, part in product(cells, syntax)],
        "words": list(words),
        "first": text,
        "read": read,
        "examples": list(examples),
        "most": 24,  # With more words the reader's own are out of sight on a phone.
    }
    still = "What is believed of each memory cell and of the state after each word of a text."
    return Moving("beliefs", data, still, ("writing",))


def attention_over_words(
    model: MemoryHMM,
    head: AttentionHead,
    mu: Tensor,
    words: Names,
    text: str,
    values: Names,
    syntax: Sequence[int],
    question: str,
    cell: int = 0,
    examples: Names = (),
) -> Moving:
    """Show Theorem 4.3 on a text that the reader writes: the head's scores, its label and the true posterior.

    Args:
        model: The model.
        head: The head, as `theorem_4_3` gives it.
        mu: μ, (M,).
        words: The names of the tokens, in lower case.
        text: The text at first.
        values: The names of the memory's values.
        syntax: S*, indices of syntax states.
        question: The task in words.
        cell: j*.
        examples: Further texts, also impossible ones.
    """
    memory = {
        **_memory_matrices(model),
        "held": [held[cell] for held in _memories(model)],
        "count": model.n_memory,
    }
    weights = _lists(query=head.query, key=head.key, value=head.value, output=head.output)
    data = {
        "model": memory,
        "head": {**weights, "condition": head.condition},
        **_lists(mu=mu, essential=[cell * model.n_syntax + s for s in syntax]),
        "words": list(words),
        "names": list(values),
        "question": question,
        "first": text,
        "examples": list(examples),
        "most": 10,  # With more bars along a text their words overlap on a phone.
    }
    return Moving("attention", data, "A text of your own, and the words to which the head attends.", ("writing",))


def softmax_and_its_limit(model: MemoryHMM, head: AttentionHead, words: Names, text: str) -> Moving:
    """Show the relaxation of (4.1): weights and output of the softmax head on a text, against the norm of its query.

    Args:
        model: The model.
        head: The head.
        words: The names of the tokens.
        text: The text.
    """
    tokens = torch.tensor([_tokens(words, text)])
    probs = masked_token_probs(model, tokens)
    values = head.values(probs, model.embed(tokens))
    data = {
        "words": text.split(),
        "scores": head.scores(probs)[0].tolist(),
        "values": values[0].tolist(),
        "attended": head.attended(probs)[0].tolist(),
        "unit": head.query.norm().item(),
    }
    return Moving("softmax", data, "The weights of a softmax as its query grows.")


# Section 5, and tuned prompts


def open_and_shut(
    frames: np.ndarray,
    labels: Labels,
    likeliest: Sequence[int],
    names: Names,
    corners: Names,
) -> Moving:
    """Show a tuned prompt whose part at the mask follows the text, or is the same for every text, in a triangle.

    Args:
        frames: Predictions of three tokens, (k, k, n, 3). The first axis is how far the attention to the prompt follows
            the text, from not at all to as tuned, the second how far its values do.
        labels: The labels of the texts, (n,).
        likeliest: The likeliest state of each text, (n,).
        names: The names of the states.
        corners: The names of the tokens.
    """
    rounded = torch.as_tensor(frames).double().round(decimals=4)
    data = {
        "names": list(names),
        "corners": list(corners),
        **_lists(frames=rounded, labels=labels, likeliest=likeliest),
    }
    still = "Predictions with a tuned prompt, while what it adds at the mask follows the text or does not."
    return Moving("gate", data, still)


def trial_by_trial(results: DataFrame) -> Moving:
    """Show head and prompt of each trial with a prompt as two marks joined by a line, beside the published means.

    The chain of the trial that the reader chooses is drawn as its states, each above its likeliest token, by the sign
    of its weight in the task.

    Args:
        results: The trials, as `results` gives them, with one vocabulary.
    """
    trials = results[results.prompt_accuracy.notna()].sort_values(["size", "seed"], kind="stable")
    means = {}
    for series, points in published("left").items():
        means[_short_name(series)] = [(size, point.mean) for size, point in points.items()]
    data = {
        "tokens": int(trials.n_tokens.iloc[0]),
        "trials": [_trial(row) for _, row in trials.iterrows()],
        "published": means,
    }
    return Moving("trials", data, "Every trial of the panel: its head, its prompt, its chain and its task.")


def _short_name(series: str) -> str:
    """`head` of `head tuning`."""
    return series.split()[0]


def _trial(row: Series) -> dict:
    """What is drawn of a trial: its accuracies, and the token that each state favours, with its weight in the task."""
    spec = spec_of(row)
    model = draw_model(spec)
    weights = draw_trial_task(spec, model).mu.tolist()
    favourites = model.emission.argmax(0).tolist()
    accuracies = {_short_name(series): row[column] for series, column in LEFT.items()}
    return {
        "size": spec.size,
        "seed": spec.seed,
        **accuracies,
        "majority": row.majority_rate,
        "learned": None if math.isnan(row.learned) else row.learned,
        "states": list(zip(favourites, weights, strict=True)),
    }
