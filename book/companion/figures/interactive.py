"""Figures that a reader can move, as HTML that carries its numbers, its scripts and its styles (from `moving/`).

So it works as a notebook's output anywhere, with no server. The scripts compute what hmmlib does, by its formulas.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product

import torch
from pandas import DataFrame
from torch import Tensor

from companion.figures.figure_3 import LEFT
from hmmlib.experiments.results import published, spec_of
from hmmlib.experiments.trials import draw_model, draw_trial_task
from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.validation import MASK


def _without_comments(text: str) -> str:
    """A script or style without the lines that are comments: a page carries what a browser reads."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("//", "/*", "*")))


@dataclass(frozen=True)
class Moving:
    """A figure with its data; a notebook shows it by `_repr_html_`.

    `figure` names its script and its element in the page, `still` is the text where scripts do not run, `shared` are
    further scripts that it uses.
    """

    figure: str
    data: dict = field(repr=False)
    still: str
    shared: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """One element with everything inside; the same data give the same text."""
        folder = files("companion.figures") / "moving"
        style, *scripts = (
            _without_comments((folder / name).read_text(encoding="utf8"))
            for name in ("moving.css", "kit.js", *(f"{script}.js" for script in (*self.shared, self.figure)))
        )
        data = json.dumps(self.data, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
        element = f"moving-{self.figure}"
        start = f"hmmMoving.kit.start({json.dumps(element)}, {json.dumps(self.figure)}, {data});"
        return (
            f'<div class="moving" id="{element}">\n<style>\n{style}\n</style>\n'
            f'<p class="still">{html.escape(self.still)} (This figure moves where scripts are allowed to run.)</p>\n'
            "<script>\n" + "\n".join([*scripts, start]) + "\n</script>\n</div>"
        )


def _lists(**arrays) -> dict[str, list]:
    return {name: torch.as_tensor(array).tolist() for name, array in arrays.items()}


def _matrices(model: HMM) -> dict[str, list]:
    return _lists(transition=model.transition, emission=model.emission, initial=model.initial)


def _inputs(model: HMM) -> Tensor:
    """Every input of four tokens that can occur, (n, 4)."""
    x = torch.tensor(list(product(range(model.n_tokens), repeat=4)))
    return x[log_likelihood(model, x) > -torch.inf]


def conditioning_by_a_prompt(
    model: HMM, mu, prompt, head: LinearHead, names: Sequence[str], shown: Sequence[Sequence[int]]
) -> Moving:
    """Theorem 3.6: the prompt's entries against the posterior of H_2, the points at the gap and the head's accuracy.

    The `model` has three tokens and at most six states, with `names`; `mu`, (S,), has the task's weights, and
    `prompt` and `head` are as `theorem_3_6` gives them. `shown` are two or three inputs of four tokens, whose
    posteriors are bars.
    """
    inputs = _inputs(model).tolist()
    prompt = torch.as_tensor(prompt)
    reachable = (model.transition @ (prompt * model.marginal(1))) > 0
    arrays = _lists(mu=mu, prompt=prompt, essential=reachable.nonzero().squeeze(-1), head=head.weights)
    places = [inputs.index(torch.as_tensor(x).tolist()) for x in shown]
    data = {"model": _matrices(model), "names": list(names), **arrays, "inputs": inputs, "shown": places}
    return Moving("prompt", data, "The entries of a prompt, and what they leave of the hidden states.")


def nearly_dependent_columns(
    model: HMM, mu, names: Sequence[str], merge: tuple[int, int] = (0, 1), noise: float = 1e-3
) -> Moving:
    """Theorem 3.3 near its edge: a column of W moves to another, the head's weights and errors under noise grow.

    The task is μ less a constant that gives half of the inputs label 1. Whether some head fits where the columns are
    equal is found by `fit_or_refute`. The `model` has three tokens and three states, with `names`, and independent
    columns of W; `mu`, (3,), has the task's weights; `merge` names the column that stays, and the one that moves;
    `noise` is the standard deviation of the noise in G.
    """
    inputs = _inputs(model)
    draw = torch.randn(len(inputs), 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    emission = model.emission.clone()
    emission[:, merge[1]] = emission[:, merge[0]]
    equal = HMM(model.transition, emission, model.initial, columns=True)
    targets = posterior(equal, inputs) @ torch.as_tensor(mu).to(equal.emission)
    labels = targets > targets.sort().values[len(inputs) // 2 - 1 : len(inputs) // 2 + 1].mean()
    behind = torch.cat([torch.full_like(inputs[:, :1], MASK), inputs], 1)
    verdict = fit_or_refute(masked_token_probs(equal, behind)[:, 0], labels)
    arrays = _lists(mu=mu, merge=merge, inputs=inputs, noise=noise * draw)
    data = {"model": _matrices(model), "names": list(names), **arrays, "noiseSize": noise}
    data["refuted"] = isinstance(verdict, Impossible)
    return Moving("columns", data, "Two columns of W come together, and the head of the theorem grows.")


def _memory_matrices(model: MemoryHMM) -> dict:
    """A, P[H_0], P[M] and W as lists, flat, and which column of W state h looks up when the memory is the k-th."""
    lookup = model.lift(torch.arange(model.n_memory * model.n_states)).unflatten(0, (-1, model.n_states))
    flat = dict(prior=model.memory.flatten(), emission=model.emission.flatten(1), lookup=lookup)
    return _lists(transition=model.transition, initial=model.initial, **flat)


def attention_over_words(
    model: MemoryHMM, head: AttentionHead, mu, words: Sequence[str], text: str, values: Sequence[str],
    syntax: Sequence[int], question: str, cell: int = 0, examples: Sequence[str] = (),
) -> Moving:  # fmt: skip
    """Theorem 4.3: a text that the reader writes, the head's scores along it, its label and the true posterior.

    `model` and `head` are as `theorem_4_3` relates them, for the task `mu`, (M,), about `cell`, with S* = `syntax`,
    and the task in words as a `question`. `words` are the tokens' names, in lower case, `values` those of the
    memory's values. `text` is the first text; `examples` are further ones, impossible ones too.
    """
    weights = _lists(query=head.query, key=head.key, value=head.value, output=head.output)
    held = [memory[cell] for memory in product(range(model.n_memory), repeat=model.n_cells)]
    data = {
        "model": {**_memory_matrices(model), "held": held, "count": model.n_memory},
        "head": {**weights, "condition": head.condition},
        **_lists(mu=mu, essential=[cell * model.n_syntax + s for s in syntax]),
    }
    data |= {"words": list(words), "names": list(values), "question": question, "first": text}
    # At most 10 bars along one text: with more of them their words overlap on a phone.
    data |= {"examples": list(examples), "most": 10}
    return Moving("attention", data, "A text of your own, and the words to which the head attends.", ("writing",))


def softmax_and_its_limit(model: MemoryHMM, head: AttentionHead, words: Sequence[str], text: str) -> Moving:
    """The relaxation of (4.1): weights and output of the softmax head along one text, against the norm of its query."""
    x = torch.tensor([[words.index(word) for word in text.split()]])
    probs = masked_token_probs(model, x)
    values = head.values(probs, model.embed(x))[0]
    arrays = _lists(scores=head.scores(probs)[0], values=values, attended=head.attended(probs)[0])
    data = {"words": text.split(), **arrays, "unit": head.query.norm().item()}
    return Moving("softmax", data, "The weights of a softmax as its query grows.")


def passing_messages(
    model: HMM, words: Sequence[str], states: Sequence[str], text: str, masked: Sequence[int] = ()
) -> Moving:
    """Section 2: the two passes along one text, a message at a time, and what they give; words can be masked.

    The `model` has two `states` and at most four tokens, whose names, `words`, begin with different letters. `text`
    has one to five words; `masked` are the positions that are masked first, from 1.
    """
    data = {"model": _matrices(model), "states": list(states), "words": list(words)}
    data |= {"text": [words.index(word) for word in text.split()], "masked": list(masked)}
    still = "Messages from the left and from the right, and what they give at each position."
    return Moving("messages", data, still)


def open_and_shut(frames, labels, likeliest, names: Sequence[str], corners: Sequence[str]) -> Moving:
    """A tuned prompt whose part at the mask follows the text, or is the same for every text, in a triangle of tokens.

    Args:
        frames: Predictions of three tokens, (k, k, n, 3). The first axis is how far the attention to the prompt follows
            the text, from not at all to as tuned, the second how far its values do.
        labels: The labels of the texts, (n,).
        likeliest: The likeliest state of each text, (n,).
        names: The names of the states.
        corners: The names of the tokens.
    """
    arrays = _lists(frames=torch.as_tensor(frames).double().round(decimals=4), labels=labels, likeliest=likeliest)
    still = "Predictions with a tuned prompt, while what it adds at the mask follows the text or does not."
    return Moving("gate", {"names": list(names), "corners": list(corners), **arrays}, still)


def belief_word_by_word(
    model: MemoryHMM, words: Sequence[str], cells: Sequence[str], values: Sequence[Sequence[str]],
    syntax: Sequence[str], text: str, read: int = 0, examples: Sequence[str] = (),
) -> Moving:  # fmt: skip
    """A text that the reader writes or steps through: posteriors of memory cells and state after each word.

    `words` are the tokens' names, in lower case; a full stop may be one. `cells`, `values` and `syntax` are names of
    the cells, of each cell's values, and of the syntax states. `text` is the first text, of which `read` words have
    been read; `examples` are further ones, impossible ones too. The word for MASK is "[mask]".
    """
    data = {
        "model": _memory_matrices(model),
        "held": list(product(range(model.n_memory), repeat=model.n_cells)),
        "cells": [{"name": cell, "values": list(named)} for cell, named in zip(cells, values, strict=True)],
        "states": [f"{cell}, {part}" for cell in cells for part in syntax],
    }
    # At most 24 words of a text: with more of them the reader's own are out of sight on a phone.
    data |= {"words": list(words), "first": text, "read": read, "examples": list(examples), "most": 24}
    still = "What is believed of each memory cell and of the state after each word of a text."
    return Moving("beliefs", data, still, ("writing",))


def _trial(row) -> dict:
    """What is drawn of a trial: its accuracies, and the token that each state favours, with its weight in the task."""
    spec = spec_of(row)
    model = draw_model(spec)
    weights = draw_trial_task(spec, model).mu.tolist()
    found = {name.split()[0]: row[column] for name, column in LEFT.items()}
    found |= {"majority": row.majority_rate, "learned": None if math.isnan(row.learned) else row.learned}
    states = list(zip(model.emission.argmax(0).tolist(), weights, strict=True))
    return {"size": spec.size, "seed": spec.seed, **found, "states": states}


def trial_by_trial(results: DataFrame) -> Moving:
    """Head and prompt of each trial with a prompt as two marks joined by a line, the published means beside them.

    The chain of the chosen trial is drawn as its states, each above the token that it emits most often, by the sign
    of its weight in the task. The trials have one vocabulary.
    """
    trials = results[results.prompt_accuracy.notna()].sort_values(["size", "seed"], kind="stable")
    paper = published("left").items()
    means = {series.split()[0]: [[n, point.mean] for n, point in points.items()] for series, points in paper}
    drawn = [_trial(row) for _, row in trials.iterrows()]
    data = {"tokens": int(trials.n_tokens.iloc[0]), "trials": drawn, "published": means}
    return Moving("trials", data, "Every trial of the panel: its head, its prompt, its chain and its task.")
