"""Whether some linear head gives inputs their labels: the head, or a proof that there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hmmlib.theory.heads import LinearHead
from hmmlib.validation import SUM_TOLERANCE, as_labels, as_tensor


@dataclass(frozen=True)
class Impossible:
    """A proof that no linear head gives a set of inputs their labels, up to rounding.

    A mixture of negative inputs (weights `negative`, which sum to 1) equals a nonnegative combination of positive ones
    (weights `positive`), up to `residual`. A head that fits would score the first below zero and the second not; so it would
    need weights so large that `residual` times their sum exceeds its margin.
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
    labels, sums = as_labels(labels, len(probs)).cpu(), probs.sum(1)
    off = ((sums - 1).abs() > SUM_TOLERANCE[torch.float32]) & (sums != 0)
    if off.any():
        raise ValueError(f"each row of probs must sum to 1, or be zero; one sums to {sums[off][0]:.6g}")
    positive, negative = probs[labels].numpy(), probs[~labels].numpy()
    rows = np.concatenate([-positive, negative])
    margin = np.concatenate([np.where(positive.any(1), -1.0, 0.0), -np.ones(len(negative))])
    fit = linprog(np.zeros(probs.shape[1]), rows, margin, bounds=(None, None))
    if fit.status == 0:
        head = LinearHead(torch.as_tensor(fit.x))
        if torch.equal(head.label(probs), labels):
            return head
    share = np.concatenate([np.zeros(len(positive)), np.ones(len(negative))])
    columns, target = np.vstack([-rows.T, share]), np.append(np.zeros(probs.shape[1]), 1.0)
    refutation = linprog(np.zeros(len(probs)), A_eq=columns, b_eq=target)
    if refutation.status != 0:
        raise RuntimeError(f"neither a head nor a refutation was found: {refutation.message}")
    weights = torch.as_tensor(refutation.x)
    residual = float(abs(columns @ refutation.x - target).max())
    return Impossible(weights[: len(positive)], weights[len(positive) :], residual)
