"""Linear probes: what can be read off hidden states by a shift, a scale and a matrix."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmbook.studies.readouts.search import minimise, standardise

DECAY = 1e-4
"""The weight of the squared norm of a probe's weights beside the mean loss. Without it, logistic regression has no end
where labels can be separated, and least squares reads rounding where texts are few and alike."""


class Probe(NamedTuple):
    """A map of hidden states: (hidden - centre) / scale times weights, plus bias."""

    centre: Tensor
    """(d,)."""
    scale: Tensor
    """(d,)."""
    weights: Tensor
    """(d, k)."""
    bias: Tensor
    """(k,)."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return what is read off hidden states, (n, d): (n, k)."""
        return (hidden.to(self.centre) - self.centre) / self.scale @ self.weights + self.bias


def linear_probe(hidden: Tensor, values: Tensor) -> Probe:
    """Fit a probe of values by least squares with a small decay.

    Args:
        hidden: Hidden states, (n, d).
        values: The values, (n, k).
    """
    centre, scale, inputs = standardise(hidden)
    n, width = inputs.shape
    values = values.to(inputs)
    bias = values.mean(0)
    gram = inputs.T @ inputs / n + DECAY * torch.eye(width, dtype=inputs.dtype)
    weights = torch.linalg.solve(gram, inputs.T @ (values - bias) / n)
    return Probe(centre, scale, weights, bias)


def logistic_probe(hidden: Tensor, labels: Tensor) -> Probe:
    """Fit a probe whose sign is the label, by logistic regression with a small decay.

    Args:
        hidden: Hidden states, (n, d).
        labels: The labels, (n,), bool.
    """
    centre, scale, inputs = standardise(hidden)
    target = labels.to(inputs)
    weights = inputs.new_zeros(inputs.shape[1], 1).requires_grad_()
    bias = inputs.new_zeros(1).requires_grad_()

    def loss() -> Tensor:
        scores = (inputs @ weights + bias).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, target) + DECAY * weights.square().sum()

    minimise([weights, bias], loss)
    return Probe(centre, scale, weights.detach(), bias.detach())


def explained(predicted: Tensor, values: Tensor) -> float:
    """Return the share of the variance of values that is explained. It is negative where the mean is nearer.

    Args:
        predicted: What was predicted of the values, (n, k).
        values: The values, (n, k).

    Raises:
        ValueError: The values do not vary.
    """
    total = (values - values.mean(0)).square().sum()
    if not total > 0:
        raise ValueError("values must vary: there is nothing to explain")
    return 1 - ((predicted.to(values) - values).square().sum() / total).item()
