"""What a trial's network predicts for each text, and the exact belief: what measurements beyond the paper have in common.

Of each text, p is the exact belief about the state at the mask, (n, S), and g the network's prediction there, (n, X).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from hmmlib.experiments.labels import Task
from hmmlib.experiments.specs import Distance, Share, ShareOfTest, each
from hmmlib.inference.messages import posterior
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training import tuning
from hmmlib.training.adapters import Tuned
from hmmlib.training.readouts import Readout, fit_readout

FAMILIES = {
    "unchanged": ("emission", False),
    "translated": ("translated", False),
    "reweighted": ("emission", True),
    "translated and reweighted": ("translated", True),
    "relabelled": ("own", False),
    "relabelled and reweighted": ("own", True),
}
"""What a prompt may do to the belief, as `fit_readout` takes it."""

FITTED = 2000
"""The most training texts that a fit is made on."""
CERTAIN, SPREAD = 0.98, 0.8
"""A text is certain where the largest entry of p is above the first, and spread where it is below the second."""
NEAR_TIE = 0.01
"""A text is a near tie where |μᵀp| is at most this share of the largest entry of |μ|."""

KINDS = ("certain", "spread", "near tie", "clear", "weighed", "not weighed")
"""The kinds of texts, as `kinds_of` gives them."""
SHARES = {"all": ShareOfTest} | each(KINDS, Share | None)
"""What a table by kind has in a row: shares of all test texts, and of those of each kind, if there are any."""
BY_CERTAINTY = {"all": Distance, "certain": Distance | None, "spread": Distance | None}
"""What `by_certainty` gives."""


def predictions(
    network: torch.nn.Module, task: Task, n_tokens: int, prompt: Tensor | None = None
) -> tuple[Tensor, ...]:
    """g on training, validation and test texts, float64, over the model's tokens alone."""
    return over_tokens(task, tuning.all_probs_at_mask(network, task.tokens, prompt), n_tokens)


def over_tokens(task: Task, probs: Tensor, n_tokens: int) -> tuple[Tensor, ...]:
    """Distributions over the model's tokens alone, on training, validation and test texts."""
    probs = probs[:, :n_tokens].cpu().double()
    return task.split(probs / probs.sum(1, keepdim=True))


def beliefs_of(model: HMM, task: Task) -> tuple[Tensor, ...]:
    """p on training, validation and test texts."""
    return task.split(posterior(model, task.tokens, at=1))


def network_outputs(
    network: torch.nn.Module, model: HMM, task: Task, tuned: Tuned
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], LinearHead]:
    """g with what was tuned, g without it, and the head that was tuned with it, on the model's tokens alone."""
    behind = over_tokens(task, tuned.probs(task.tokens), model.n_tokens)
    head = LinearHead(tuned.head.weights[: model.n_tokens].cpu().double())
    return behind, predictions(network, task, model.n_tokens), head


def fit_families(
    model: HMM, beliefs: Tensor, outputs: Tensor, families: Iterable[str], seed: int, tick: Callable
) -> dict[str, Readout]:
    """The readout of each family that is nearest to the outputs on the first training texts."""
    fits = {}
    for family in families:
        words, reweighted = FAMILIES[family]
        fits[family] = fit_readout(
            beliefs[:FITTED], outputs[:FITTED], model.emission, words, reweighted, seed, nearest=True
        )
        tick()
    return fits


def mean(values: Tensor, where: Tensor | None = None) -> float | None:
    """The mean of values, or of some of them; None where there are none."""
    values = values if where is None else values[where]
    return values.double().mean().item() if len(values) else None


def by_certainty(distances: Tensor, beliefs: Tensor) -> dict[str, float | None]:
    """The mean over all texts, over those that are certain, and over those whose belief is spread."""
    most = beliefs.amax(1)
    return {
        "all": mean(distances),
        "certain": mean(distances, most > CERTAIN),
        "spread": mean(distances, most < SPREAD),
    }


def kinds_of(task: Task, beliefs: Tensor) -> dict[str, Tensor]:
    """Which test texts are of which kind."""
    most, likeliest = beliefs.max(1)
    margin = (task.split(task.posteriors)[2].to(task.mu) @ task.mu).abs() / task.mu.abs().max()
    return {
        "certain": most > CERTAIN,
        "spread": most < SPREAD,
        "near tie": margin <= NEAR_TIE,
        "clear": margin > NEAR_TIE,
        "weighed": task.mu[likeliest] != 0,
        "not weighed": task.mu[likeliest] == 0,
    }
