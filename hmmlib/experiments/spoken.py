"""What a trial's network says of each text, and what is believed of it: what measurements beyond the paper have in common.

Of each text, p is the exact belief about the state at the mask, (n, S), and g what the network says there, (n, X).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmlib.experiments.fields import Distance, Share, ShareOfTest, each
from hmmlib.experiments.labels import Task
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


def guesses_of(network: torch.nn.Module, task: Task, n_tokens: int, prompt: Tensor | None = None) -> tuple[Tensor, ...]:
    """g on training, validation and test texts, float64, over the model's tokens alone."""
    return over_tokens(task, tuning.all_probs_at_mask(network, task.tokens, prompt), n_tokens)


def over_tokens(task: Task, probs: Tensor, n_tokens: int) -> tuple[Tensor, ...]:
    """Distributions over the model's tokens alone, on training, validation and test texts."""
    said = probs[:, :n_tokens].cpu().double()
    return task.split(said / said.sum(1, keepdim=True))


def beliefs_of(model: HMM, task: Task) -> tuple[Tensor, ...]:
    """p on training, validation and test texts."""
    return task.split(posterior(model, task.tokens, at=1))


def spoken(
    network: torch.nn.Module, model: HMM, task: Task, tuned: Tuned
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], LinearHead]:
    """g with what was tuned, g without it, and the head that was tuned with it, on the model's tokens alone."""
    said = over_tokens(task, tuned.probs(task.tokens), model.n_tokens)
    plain = guesses_of(network, task, model.n_tokens)
    return said, plain, LinearHead(tuned.head.weights[: model.n_tokens].cpu().double())


def fit_family(model: HMM, beliefs: Tensor, guesses: Tensor, family: str, seed: int) -> Readout:
    """The readout of a family that is nearest on the first training texts."""
    words, reweighted = FAMILIES[family]
    return fit_readout(beliefs[:FITTED], guesses[:FITTED], model.emission, words, reweighted, seed, nearest=True)


def mean_over(values: Tensor, where: Tensor) -> float | None:
    return values[where].double().mean().item() if where.any() else None


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


def by_certainty(distances: Tensor, beliefs: Tensor) -> dict[str, float | None]:
    most = beliefs.amax(1)
    return {
        "all": distances.mean().item(),
        "certain": mean_over(distances, most > CERTAIN),
        "spread": mean_over(distances, most < SPREAD),
    }
