"""A readout: the network's prediction as a function of the exact belief about the state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Readout(NamedTuple):
    """The prediction R (c ⊙ p) / cᵀp from a belief p.

    Behind a fake token it is so with R = W (Lemma C.2). A network might also predict by other columns than those of W.
    """

    columns: Tensor
    """R, (X, S). Each column is a distribution over tokens."""
    weights: Tensor
    """c ≥ 0, (S,), whose largest entry is 1."""

    def __call__(self, beliefs: Tensor) -> Tensor:
        """Predict tokens from beliefs.

        Args:
            beliefs: p, (n, S). If columns and weights have axes before these, those count readouts.

        Returns:
            Predictions, (n, X). They are zero where c ⊙ p = 0.
        """
        weighed = beliefs.to(self.columns) * self.weights.unsqueeze(-2)  # c ⊙ p
        total = weighed.sum(-1, keepdim=True)
        return weighed @ self.columns.mT / torch.where(total > 0, total, 1)


def with_log_weights(columns: Tensor, logs: Tensor) -> Readout:
    """The readout whose weights have these logarithms, up to a factor. Axes before the last count readouts."""
    return Readout(columns, (logs - logs.amax(-1, keepdim=True)).exp())


def total_variation(predictions: Tensor, others: Tensor) -> Tensor:
    """Return half the L1 distance of two distributions over tokens, for every text.

    Args:
        predictions: The first distributions, (n, X).
        others: The second ones, (n, X).

    Returns:
        The distances, (n,), from 0 to 1.
    """
    return (predictions - others.to(predictions)).abs().sum(1) / 2
