"""When a prompt and a head are right for every belief: only where their ν is a positive multiple of μ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmbook.studies.certificates.nearest import TOLERANCE, prompt_to_diagonal
from hmmlib import HMM, Impossible, LinearHead, Undecided, fit_or_refute
from hmmlib.theory.assumptions import as_mu
from hmmlib.validation import as_tensor

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


def refuting_belief(mu: Float[ArrayLike, " S"], score: Float[ArrayLike, " S"]) -> Tensor | None:
    """Find a belief that the task μ and the score ν label differently.

    If μ takes both signs, as it must, there is such a belief on a state, or on the edge between a state with μ < 0 and
    another, unless ν is a positive multiple of μ. So no other ν is right for every belief. The two labels differ
    clearly, except where rounding leaves little between the two thresholds.

    Args:
        mu: μ, (S,).
        score: ν, (S,).

    Returns:
        A belief, (S,), or None if ν is a positive multiple of μ.
    """
    score = as_tensor("score", score, 1, signed=True).detach().double()
    mu = as_tensor("mu", mu, 1, like=score, signed=True).detach()
    states = torch.eye(len(mu), dtype=mu.dtype, device=mu.device)
    below = mu < 0
    turned = below != (score < 0)
    if turned.any():
        return states[turned][0]
    # On each edge from a state with μ ≥ 0 to one with μ < 0, both change their sign once, each at its own share.
    share_of_mu = share_of_zero(mu, below)
    share_of_score = share_of_zero(score, below)
    gaps = (share_of_mu - share_of_score).abs()
    if gaps.max() < TOLERANCE:
        return None
    above_index, below_index = divmod(int(gaps.argmax()), gaps.shape[1])
    share = (share_of_mu + share_of_score)[above_index, below_index] / 2
    return (1 - share) * states[~below][above_index] + share * states[below][below_index]


def share_of_zero(values: Tensor, below: Tensor) -> Tensor:
    """On each edge from a state that is not `below` to one that is, the second's share where the value is zero."""
    positive = values[~below].unsqueeze(1)
    return positive / (positive - values[below])


def separating_head(model: HMM, mu: Float[ArrayLike, " S"]) -> LinearHead | Impossible | Undecided:
    """Find a head that scores the emission distribution of each state with the sign of μ.

    The score is 0 or more where μ > 0 and negative where μ < 0. If there is no such head, then no choice of prompt and
    head is right for every belief, because d ≥ 0 cannot turn the sign of a score. If A is a permutation and the scores
    are not 0, the head is enough, as `prompt_for_separating_head` shows.

    Args:
        model: The model.
        mu: μ, (S,). States of weight 0 may have any score.

    Returns:
        The head, a proof that there is none, or neither where rounding leaves it open.
    """
    mu = as_mu(model, mu, HMM)
    weighed = mu != 0
    return fit_or_refute(model.emission.T[weighed], mu[weighed] > 0)


def prompt_for_separating_head(model: HMM, mu: Float[ArrayLike, " S"], head: LinearHead) -> tuple[Tensor, LinearHead]:
    """Construct the prompt with which a multiple of a separating head is right for every belief.

    The prompt makes d = |μ / Wᵀb|, and 0 where μ is 0. Then ν = μ.

    Args:
        model: A model whose A is a permutation, so that any d can be had.
        mu: μ, (S,).
        head: A head that scores each state with the sign of μ.

    Returns:
        The prompt u in [0, 1], (S,), and the head.

    Raises:
        ValueError: A is no permutation, or the head's score of a state has another sign than μ.
    """
    mu = as_mu(model, mu, HMM)
    reaches = prompt_to_diagonal(model)
    scores = head.weights.to(model.emission) @ model.emission
    zeros_and_ones = (model.transition == 0) | (model.transition == 1)
    if not zeros_and_ones.all() or not reaches.any(0).all():
        raise ValueError("model must have a permutation as transition: with another, not every reweighting can be had")
    wrong = (scores.sign() != mu.sign()) & (mu != 0)
    if wrong.any():
        states = wrong.nonzero().flatten().tolist()
        raise ValueError(f"head must score each state with the sign of mu; for these states it does not: {states}")
    diagonal = torch.where(mu != 0, mu / scores, 0)
    prompt = model.transition.T @ (diagonal / reaches.sum(1))
    largest = prompt.max()
    return prompt / largest, LinearHead(head.weights * largest)
