"""Measurements on request: how nearly a task is solvable on the exact model, and how many labels are certain.

Of each text p is the exact belief about the state that the task weighs, (S,).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.exact_ladder import built_if_certain
from hmmbook.experiments.fields import Amount, DistanceL1, Share, as_type
from hmmbook.experiments.labels import LABEL_RULES
from hmmbook.experiments.measurements import Seeds, Split
from hmmbook.studies.certificates.certain_labels import Certificate, certificate
from hmmbook.studies.certificates.exactness import separating_head
from hmmbook.studies.certificates.nearest import alternate, nearest_head, nearest_prompt
from hmmbook.studies.kinds_of_text import mean
from hmmbook.studies.readouts.families import fit_families
from hmmbook.studies.readouts.readout import total_variation
from hmmlib import HMM, Impossible, LinearHead, essential_states, lemma_c_2, theorem_3_6, tune_head

NEAREST = as_type({"error": Amount, "spread": Amount, "spread at 1% more": Amount})
"""δ of a head as a share of ‖μ‖∞, its κ, and the κ of the head that may have a δ larger by 1% of ‖μ‖∞."""
SLACKS = (0.0, 0.01, 0.03, 0.1, 0.3)
"""How much δ a head of a smaller κ may cost, as shares of ‖μ‖∞."""
HEADS = ("nearest head", "tuned head", "tuned prompt, reweighting", "tuned prompt, relabelling")
"""Whose labels may be certain."""
CERTIFIED = as_type({"certified": Share, "right": Share, "certified but wrong": Share, "distance": DistanceL1})
"""Of test texts: the share whose labels are certain, are right, and are certain but wrong, and the mean ε."""


@Measurement(
    on_request=True,
    vanilla=True,
    solvable=as_type({"head": NEAREST, "prompt": NEAREST, "votes apart": Share | None}) | None,
)
def solvable(spec: TrialSpec, model: HMM, task: Task) -> dict:
    """Measure how near a head alone comes to the task, and how near a prompt with a head comes.

    Heads are found by linear programs. Prompts and heads are found by turns from several starts, so a smaller δ may
    exist. "votes apart" is 1 where a head can score the columns of W with the signs of μ, 0 where none can, and None
    where rounding leaves it open. All of it is None for a label rule without d.
    """
    rule = LABEL_RULES[spec.labels]
    if rule.diagonal is None:
        return {"solvable": None}
    mu = task.mu
    origin = rule.origin(model)
    separating = separating_head(model, mu)
    ends = [alternate(origin, mu, start) for start in starting_prompts(origin, mu, separating)]
    prompt, _, _ = min(ends, key=lambda end: end[2].error)
    votes_apart = None
    if isinstance(separating, LinearHead):
        votes_apart = 1.0
    elif isinstance(separating, Impossible):
        votes_apart = 0.0
    return {
        "solvable": {
            "head": nearest_of(model, mu, rule.diagonal(model)),
            "prompt": nearest_of(model, mu, lemma_c_2(origin, prompt)),
            "votes apart": votes_apart,
        }
    }


def starting_prompts(model: HMM, mu: Tensor, separating: object) -> list[Tensor]:
    """Prompts from which the search begins: all ones, the best for a separating head, and that of Theorem 3.6."""
    prompts = [torch.ones_like(model.initial)]
    if isinstance(separating, LinearHead):
        with suppress(RuntimeError):  # The linear program may be beyond its solver.
            prompts.append(nearest_prompt(model, mu, separating)[0])
    essential = essential_states(model, mu)
    if essential:
        construction, _ = built_if_certain(theorem_3_6, model, mu, essential)
        if construction is not None:
            prompts.append(construction[0])
    return [prompt for prompt in prompts if prompt.max() > 0]


def nearest_of(model: HMM, mu: Tensor, diagonal: Tensor) -> dict[str, float]:
    """δ and κ of the nearest head, and κ with 1% more of δ, as shares of ‖μ‖∞."""
    scale = mu.abs().max().item()
    _, least = nearest_head(model, mu, diagonal)
    _, loose = nearest_head(model, mu, diagonal, slack=0.01 * scale)
    return {"error": least.error / scale, "spread": least.spread / scale, "spread at 1% more": loose.spread / scale}


class Exact(NamedTuple):
    """An exact prediction, to which that of the network is compared."""

    predict: Callable[[Tensor], Tensor]
    """From beliefs, (n, S), to predictions, (n, X)."""
    chain: HMM
    """The chain whose W it weighs."""
    diagonal: Tensor
    """Its d, (S,)."""


@Measurement(on_request=True, vanilla=True, certified=as_type(dict.fromkeys(HEADS, CERTIFIED)) | None)
def certified(
    spec: TrialSpec,
    model: HMM,
    task: Task,
    beliefs: Split,
    untuned: Split,
    prompted: Split,
    tuned_head: LinearHead,
    seeds: Seeds,
    before_step: Callable,
) -> dict:
    """Measure how many labels are certain to be right, from the network's L1 distance ε to the exact Ḡ on each text.

    This is asked of the nearest head on the exact G, of the head tuned on the network, and of the tuned prompt with its
    head: once with the nearest reweighting as Ḡ, and once with the nearest relabelling R p, where R stands in the place
    of W. The slack and the scale of a head are chosen on training texts. It is None for labels that do not weigh the
    state at the mask.
    """
    if spec.labels != "masked":
        return {"certified": None}
    mu = task.mu
    scale = mu.abs().max().item()
    diagonal = LABEL_RULES[spec.labels].diagonal(model)
    fits = fit_families(model, beliefs[0], prompted[0], ("reweighted", "relabelled"), seeds["evaluation"], before_step)
    reweighted = fits["reweighted"]
    relabelled = fits["relabelled"]
    relabelled_chain = HMM(model.transition, relabelled.columns, model.initial, columns=True)

    plain = Exact(lambda p: p @ model.emission.T, model, diagonal)
    reweighting = Exact(reweighted, model, reweighted.weights)
    relabelling = Exact(relabelled, relabelled_chain, diagonal)

    nearest = [nearest_head(model, mu, diagonal, slack * scale)[0] for slack in SLACKS]
    head_alone = tune_head(untuned[0], task.train.labels, spec.tuning(), seeds["tuning"])
    alone = scaled_heads(head_alone, scale)
    behind = scaled_heads(tuned_head, scale)
    rows = (
        certified_shares(task, beliefs, plain, untuned, nearest),
        certified_shares(task, beliefs, plain, untuned, alone),
        certified_shares(task, beliefs, reweighting, prompted, behind),
        certified_shares(task, beliefs, relabelling, prompted, behind),
    )
    return {"certified": dict(zip(HEADS, rows, strict=True))}


def scaled_heads(head: LinearHead, scale: float) -> list[LinearHead]:
    """Multiples of a head. They give the same labels, but differ in δ and κ."""
    factors = torch.logspace(-4, 1, 41, dtype=torch.float64)
    return [LinearHead(head.weights * factor * scale) for factor in factors]


def certified_shares(
    task: Task, beliefs: Split, exact: Exact, outputs: Split, heads: list[LinearHead]
) -> dict[str, float]:
    """Of the head that certifies most training texts: CERTIFIED on test texts."""
    distances = []
    for predictions, posteriors in zip(outputs, beliefs, strict=True):
        distances.append(2 * total_variation(predictions, exact.predict(posteriors)))
    best: Certificate | None = None
    most = -1.0
    for head in heads:
        made = certificate(exact.chain, task.mu, head, exact.diagonal)
        share = mean(made.holds(beliefs[0], distances[0]))
        if share > most:
            most = share
            best = made
            labels = head.label(outputs[2])
    certain = best.holds(beliefs[2], distances[2])
    right = labels == task.test.labels
    return {
        "certified": mean(certain),
        "right": mean(right),
        "certified but wrong": mean(certain & ~right),
        "distance": mean(distances[2]),
    }
