"""What does a linear head reach that is fitted fully? A head that is tuned for some passes need not reach it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hmmbook import Task
from hmmlib.theory.heads import share_right

LEAST_PENALTY = 1e-10
"""On squared weights, halved. With it the loss has a least value even where the labels can be separated."""
MOST_STEPS = 50
LEAST_GAIN = 1e-11
"""Newton's method ends when a step gains less than this."""


def least_loss_head(probs: Tensor, labels: Tensor, penalty: float = 0.0) -> Tensor:
    """Fit the linear head of least logistic loss by Newton's method.

    Args:
        probs: Predictions, (n, X), in float64.
        labels: Their labels, (n,).
        penalty: The λ of an additional penalty λ‖b‖²/2, which keeps the weights small.

    Returns:
        The weights b, (X,).
    """
    _, sizes, axes = torch.linalg.svd(probs, full_matrices=False)
    rank = int((sizes > 1e-10 * sizes[0]).sum())
    scales = len(probs) ** 0.5 / sizes[:rank]
    to_weights = axes[:rank].T * scales  # from coordinates of like scale
    inputs = probs @ to_weights
    targets = labels.double()
    penalties = LEAST_PENALTY + penalty * scales.square()  # ‖b‖² is the sum of squared coordinates times their scales
    coordinates = torch.zeros(rank).double()

    def loss(coordinates: Tensor) -> Tensor:
        logistic = binary_cross_entropy_with_logits(inputs @ coordinates, targets)
        return logistic + (penalties * coordinates.square()).sum() / 2

    for _ in range(MOST_STEPS):
        p = (inputs @ coordinates).sigmoid()
        slope = inputs.T @ (p - targets) / len(inputs) + penalties * coordinates
        curvature = inputs.T @ (inputs * (p * (1 - p))[:, None]) / len(inputs) + torch.diag(penalties)
        step = torch.linalg.solve(curvature, slope)
        before = loss(coordinates)
        after = loss(coordinates - step)
        while after > before and step.abs().max() > 1e-9:
            step = step / 2
            after = loss(coordinates - step)
        coordinates = coordinates - step
        if before - after < LEAST_GAIN:
            break
    return to_weights @ coordinates


def least_loss_accuracy(task: Task, probs: Tensor) -> float:
    """Return the test accuracy of the head of least loss on a task's training texts.

    Args:
        task: The task.
        probs: Predictions for all its texts, (n, X).
    """
    train, _, test = task.split(probs)
    head = least_loss_head(train, task.train.labels)
    return share_right(test @ head >= 0, task.test.labels)
