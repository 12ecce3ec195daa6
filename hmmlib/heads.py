"""Classification heads: what is trained, or constructed, on top of a frozen masked language model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hmmlib.hmm import as_tensor


@dataclass(frozen=True, eq=False)
class LinearHead:
    """The linear head of Section 3: score b·p, label 1 where the score is ≥ 0.

    `weights` is b, (X,). `condition` is the condition number of the left inverse that a construction went through
    (1 where there was none): scores carry a relative error of about `condition` times the rounding unit.
    """

    weights: Tensor
    condition: float = 1.0

    def __post_init__(self) -> None:
        weights = self.weights if isinstance(self.weights, Tensor) else torch.as_tensor(np.array(self.weights, float))
        if weights.ndim != 1:
            raise ValueError(f"weights must have shape (X,), not {tuple(weights.shape)}")
        object.__setattr__(self, "weights", weights)

    def __call__(self, probs) -> Tensor:
        """Scores (n,) of token distributions (n, X). ValueError for another shape."""
        probs = as_tensor("probs", probs, 2).to(device=self.weights.device, dtype=self.weights.dtype)
        if probs.shape[1] != len(self.weights):
            raise ValueError(f"probs must have shape (n, {len(self.weights)}), not {tuple(probs.shape)}")
        return probs @ self.weights

    def label(self, probs) -> Tensor:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs) >= 0


@dataclass(frozen=True)
class Impossible:
    """A proof that no linear head gives a set of inputs their labels.

    A mixture of negative inputs (weights `negative`, which sum to 1) equals a nonnegative combination of positive ones
    (weights `positive`), up to `residual`. A head that fits would score the first below zero and the second not.
    """

    positive: Tensor
    negative: Tensor
    residual: float


def fit_or_refute(probs, labels) -> LinearHead | Impossible:
    """A linear head that labels every row of `probs` as `labels` (n,) say, or the proof that there is none.

    Two linear programs, each the other's alternative (Farkas' lemma): b·p ≥ 1 on positive and b·p ≤ -1 on negative
    rows, or nonnegative weights as in `Impossible`. Asking for a margin costs nothing: distributions sum to 1, so the
    scores of a head can all be moved by one constant.

    Args:
        probs: (n, X), each row a distribution, or zero (then its score is 0 and its label 1, whatever the head).

    Raises:
        ValueError: another shape, or a row that sums to neither 1 nor 0.
        RuntimeError: the solver decides neither.
    """
    from scipy.optimize import linprog

    probs = as_tensor("probs", probs, 2).detach().cpu().double()
    labels = torch.as_tensor(labels).cpu()
    if not ((labels == 0) | (labels == 1)).all():
        raise ValueError("labels must be bool, or 0 and 1")
    labels = labels.bool()
    if labels.shape != probs.shape[:1]:
        raise ValueError(f"labels must have shape {tuple(probs.shape[:1])}, not {tuple(labels.shape)}")
    sums = probs.sum(1)
    if not (torch.isclose(sums, torch.ones_like(sums), atol=1e-6) | (sums == 0)).all():
        raise ValueError("each row of probs must sum to 1, or be zero")
    positive, negative = probs[labels].numpy(), probs[~labels].numpy()
    rows = np.concatenate([-positive, negative])
    margin = np.concatenate([np.where(positive.any(1), -1.0, 0.0), -np.ones(len(negative))])
    found = linprog(np.zeros(probs.shape[1]), rows, margin, bounds=(None, None))
    if found.status == 0:
        head = LinearHead(torch.as_tensor(found.x))
        if torch.equal(head.label(probs), labels):
            return head
    share = np.concatenate([np.zeros(len(positive)), np.ones(len(negative))])
    columns, target = np.vstack([-rows.T, share]), np.append(np.zeros(probs.shape[1]), 1.0)
    found = linprog(np.zeros(len(probs)), A_eq=columns, b_eq=target)
    if found.status != 0:
        raise RuntimeError(f"neither a head nor a refutation was found: {found.message}")
    weights = torch.as_tensor(found.x)
    residual = float(abs(columns @ found.x - target).max())
    return Impossible(weights[: len(positive)], weights[len(positive) :], residual)
