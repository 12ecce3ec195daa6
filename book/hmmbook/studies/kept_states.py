"""Which states does a prompt keep, and does one label for each token fit the belief in them?

By (3.3) a prompt multiplies the belief in each state by a factor. A linear head has one weight for each token. So the
states with one likeliest token should indicate one label, as far as they keep their belief.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmbook import Task
from hmmlib import HMM, lemma_c_2

KEPT = 0.5
"""A state is kept if its factor is larger than this. The largest factor is 1."""


def factors_of(model: HMM, prompt: Tensor) -> Tensor:
    """Return the factor by which a prompt multiplies the belief in each state, beside a prompt of ones.

    Args:
        model: The chain.
        prompt: The prompt u, (S,).

    Returns:
        The factors, (S,), of which the largest is 1.
    """
    factors = lemma_c_2(model, prompt) / lemma_c_2(model, torch.ones_like(prompt))
    return factors / factors.max()


def belief_by_label(task: Task) -> tuple[Tensor, Tensor]:
    """Return the belief in each state, summed over the texts of label 1 and over those of label 0, (S,) each."""
    return task.posteriors[task.labels].sum(0), task.posteriors[~task.labels].sum(0)


def shares_by_token(model: HMM, task: Task, prompt: Tensor) -> tuple[Tensor, Tensor]:
    """Return what share of the reweighted belief is in the states of each likeliest token, by the label of the text.

    Args:
        model: The chain.
        task: The task.
        prompt: The prompt u, (S,).

    Returns:
        Shares of texts of label 1 and of label 0, (X,) each, which together sum to 1.
    """
    weighted = task.posteriors * lemma_c_2(model, prompt)
    weighted = weighted / weighted.sum(1, keepdim=True)
    likeliest_tokens = model.emission.argmax(0)
    amounts = []
    for label in (True, False):
        by_state = weighted[task.labels == label].sum(0)
        by_token = torch.zeros(model.n_tokens, dtype=by_state.dtype).index_add_(0, likeliest_tokens, by_state)
        amounts.append(by_token / len(weighted))
    return tuple(amounts)


def fitting_share(shares: tuple[Tensor, Tensor]) -> float:
    """Return the share of the belief that is in texts of the label that fits most of its token's belief."""
    return torch.maximum(*shares).sum().item()
