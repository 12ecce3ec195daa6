"""What a little noise in the predictions does to the head of Theorem 3.3 where columns of W are nearly dependent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmlib import HMM, MASK, masked_token_probs, posterior, theorem_3_3

NOISE = 1e-3
"""The standard deviation of what is added to each entry of a prediction."""
DRAWS = 100
"""How often noise is drawn."""


class WithNoise(NamedTuple):
    """What the theorem's head and the left inverse of W do with noisy predictions."""

    condition: float  # the condition number of W
    accuracy: float  # the share of labels that the head gets right with noise
    accuracy_without_noise: float
    largest_weight: float  # of the head
    outside: float  # the share of recovered beliefs with an entry below 0 or above 1


def with_column_moved(model: HMM, gap: float) -> HMM:
    """Move the second column of W towards the first.

    Args:
        model: The model.
        gap: The share of the distance that is left: 1 changes nothing, and at 0 the columns are equal.
    """
    emission = model.emission.clone()
    emission[:, 1] = (1 - gap) * emission[:, 0] + gap * emission[:, 1]
    return HMM(model.transition, emission, model.initial, columns=True)


def halving_task(mu: Tensor, beliefs: Tensor) -> Tensor:
    """Move the weights μ of a task by one number, so that half of the texts get the label 1.

    Beliefs sum to 1, so this moves every target by that number.

    Args:
        mu: The weights, (S,).
        beliefs: P[H_0 | x] of each text, (n, S).
    """
    targets = (beliefs @ mu).sort().values
    middle = len(targets) // 2
    return mu - targets[middle - 1 : middle + 1].mean()


def with_noise(model: HMM, mu: Tensor, inputs: Tensor, rng: np.random.Generator) -> WithNoise:
    """Add noise to the predictions G_1 of (∅, x), and let the head of Theorem 3.3 label them.

    Args:
        model: A model that satisfies Assumptions 3.1 and 3.2.
        mu: The weights of a task, (S,). It is moved to halve the inputs.
        inputs: The texts x, (n, T).
        rng: Draws the noise.
    """
    beliefs = posterior(model, inputs)
    task = halving_task(mu, beliefs)
    labels = beliefs @ task >= 0
    head = theorem_3_3(model, task)
    masks = torch.full_like(inputs[:, :1], MASK)
    predictions = masked_token_probs(model, torch.cat([masks, inputs], 1))[:, 0]

    noise = torch.as_tensor(rng.normal(size=(DRAWS, *predictions.shape)))
    noisy = (predictions + NOISE * noise).clamp(min=0)
    right = (noisy @ head.weights >= 0) == labels
    recovered = noisy @ torch.linalg.pinv(model.emission).T
    outside = ((recovered < 0) | (recovered > 1)).any(-1)
    return WithNoise(
        condition=head.condition,
        accuracy=right.double().mean().item(),
        accuracy_without_noise=((head(predictions) >= 0) == labels).double().mean().item(),
        largest_weight=head.weights.abs().max().item(),
        outside=outside.double().mean().item(),
    )
