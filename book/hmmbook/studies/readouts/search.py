"""Gradient methods that fits share: L-BFGS for convex losses, and Adam from many starts at once for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

LBFGS_STEPS = 300
"""The most steps of L-BFGS."""

Parameters = list[Tensor]
"""What a search moves: tensors whose first axis counts its starts."""


@dataclass(frozen=True)
class SearchPlan:
    """How a search from many starts goes: first on few texts from all starts, then on all texts from the best."""

    texts: int = 500
    """How many texts count at first."""
    first_steps: int = 100
    """Steps of Adam on these."""
    survivors: int = 8
    """How many of the nearest go on."""
    last_steps: int = 300
    """Their steps on all texts."""
    rate: float = 0.1
    """The rate of Adam, which falls to zero."""


PLAN = SearchPlan()


def standardise(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the means of features, (n, d), their scales, and the features shifted and scaled by these.

    A feature that does not vary keeps the scale 1.
    """
    features = features.detach().double().cpu()
    centre = features.mean(0)
    deviation = features.std(0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1)
    return centre, scale, (features - centre) / scale


def minimise(parameters: list[Tensor], loss: Callable[[], Tensor]) -> None:
    """Run L-BFGS on `loss()`."""
    optimiser = torch.optim.LBFGS(parameters, max_iter=LBFGS_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)


def descend(parameters: Iterable[Tensor], rate: float, steps: int, loss: Callable[[int], Tensor]) -> None:
    """Run Adam on `loss(step)`, at a rate that falls to zero like a cosine."""
    optimiser = torch.optim.Adam(parameters, lr=rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        with torch.enable_grad():
            value = loss(step)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        scheduler.step()


def nearest(predict: Callable[..., Tensor], starts: Parameters, inputs: Tensor, target: Tensor) -> Parameters:
    """Return those parameters, of all that a search passes, whose predictions are nearest to the target, (n, X).

    The distance is the mean total variation. `predict(inputs, *parameters)` gives predictions (starts, n, X). The first
    start is among those that go on to all texts.
    """
    few_inputs = inputs[: PLAN.texts]
    few_targets = target[: PLAN.texts]
    parameters, distances = approach(predict, starts, few_inputs, few_targets, PLAN.first_steps)
    survivors = distances.argsort()[: PLAN.survivors]
    going_on = []
    for start, part in zip(starts, parameters, strict=True):
        going_on.append(torch.cat([start[:1], part[survivors]]))
    parameters, distances = approach(predict, going_on, inputs, target, PLAN.last_steps)
    return [part[distances.argmin()] for part in parameters]


def approach(
    predict: Callable[..., Tensor], starts: Parameters, inputs: Tensor, target: Tensor, steps: int
) -> tuple[Parameters, Tensor]:
    """Return, for each start, the nearest parameters that so many steps of Adam pass, and their distance."""
    parameters = [part.clone().requires_grad_() for part in starts]
    best = [part.clone() for part in starts]
    least = starts[0].new_full((len(starts[0]),), torch.inf)

    def sum_of_distances(_: int) -> Tensor:
        distances = (predict(inputs, *parameters) - target).abs().sum(2).mean(1) / 2
        nearer = distances < least
        least[nearer] = distances.detach()[nearer]
        for best_part, part in zip(best, parameters, strict=True):
            best_part[nearer] = part.detach()[nearer]
        return distances.sum()

    descend(parameters, PLAN.rate, steps, sum_of_distances)
    return best, least
