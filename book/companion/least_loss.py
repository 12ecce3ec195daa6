"""The fully fitted linear head, of least logistic loss: a head that is tuned for some passes need not reach it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hmmlib.experiments.labels import Task

PENALTY = 1e-10
"""On squared weights, halved: with it the loss has a least value where the labels can be separated, too."""


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
    to = axes[:rank].T * scales  # coordinates of like scale
    z, y, w = probs @ to, labels.double(), torch.zeros(rank).double()
    penalties = PENALTY + penalty * scales.square()  # ‖b‖² is the sum of (scale times w)²

    def loss(w: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(z @ w, y) + (penalties * w.square()).sum() / 2

    for _ in range(50):
        p = (z @ w).sigmoid()
        slope = z.T @ (p - y) / len(z) + penalties * w
        curvature = z.T @ (z * (p * (1 - p))[:, None]) / len(z) + torch.diag(penalties)
        step = torch.linalg.solve(curvature, slope)
        before, after = loss(w), loss(w - step)
        while after > before and step.abs().max() > 1e-9:
            step = step / 2
            after = loss(w - step)
        w = w - step
        if before - after < 1e-11:
            break
    return to @ w


def least_loss_accuracy(task: Task, probs: Tensor) -> float:
    """Test accuracy of the head of least loss on a task's training texts; `probs`, (n, X), are of all its texts."""
    (train, _, test), (labels, _, truth) = task.split(probs), task.split(task.labels)
    return ((test @ least_loss_head(train, labels) >= 0) == truth).double().mean().item()
