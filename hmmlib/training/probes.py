"""Linear probes: what can be read off a network's hidden states by least squares, or by logistic regression.

Each is fitted on one set of texts and judged on another. The hidden states are centred and scaled by the first set's, and
a bias is fitted, so that what the layer adds to all texts alike does not count.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

DECAY = 1e-4
"""The weight of the squared norm of a probe's weights beside the mean loss. Without it logistic regression has no end where
labels can be separated, and least squares reads rounding where texts are few and alike."""
STEPS = 300
"""The most steps of L-BFGS."""


class Probe(NamedTuple):
    """(hidden - `centre`) / `scale` times `weights` (d, k), plus `bias` (k,)."""

    centre: Tensor
    scale: Tensor
    weights: Tensor
    bias: Tensor

    def __call__(self, hidden: Tensor) -> Tensor:
        """What is read off hidden states (n, d): (n, k)."""
        return (hidden.to(self.centre) - self.centre) / self.scale @ self.weights + self.bias


def _scaled(hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre, scale, and the hidden states with them; what does not vary keeps the scale 1."""
    hidden = hidden.detach().double().cpu()
    centre, spread = hidden.mean(0), hidden.std(0, correction=0)
    scale = torch.where(spread > 0, spread, 1)
    return centre, scale, (hidden - centre) / scale


def linear_probe(hidden: Tensor, values: Tensor) -> Probe:
    """The probe of values (n, k) from hidden states (n, d), by least squares with `DECAY` times the weights' squared norm."""
    centre, scale, inputs = _scaled(hidden)
    values = values.to(inputs)
    bias, n = values.mean(0), len(inputs)
    gram = inputs.T @ inputs / n + DECAY * torch.eye(inputs.shape[1], dtype=inputs.dtype)
    return Probe(centre, scale, torch.linalg.solve(gram, inputs.T @ (values - bias) / n), bias)


def logistic_probe(hidden: Tensor, labels: Tensor) -> Probe:
    """The probe (n, 1) of hidden states (n, d) whose sign is the label, (n,) bool, by logistic regression with `DECAY` times
    the weights' squared norm."""
    centre, scale, inputs = _scaled(hidden)
    target = labels.to(inputs)
    weights, bias = inputs.new_zeros(inputs.shape[1], 1).requires_grad_(), inputs.new_zeros(1).requires_grad_()
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        scores = (inputs @ weights + bias).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, target) + DECAY * weights.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(closure)
    return Probe(centre, scale, weights.detach(), bias.detach())


def explained(found: Tensor, values: Tensor) -> float:
    """The share of the values' variance that `found` explains, both (n, k): at most 1, and below 0 where their mean is nearer.

    All k are taken together. ValueError where the values do not vary.
    """
    total = (values - values.mean(0)).square().sum()
    if not total > 0:
        raise ValueError("values must vary: there is nothing to explain")
    return 1 - ((found.to(values) - values).square().sum() / total).item()
