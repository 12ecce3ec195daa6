"""Whether some linear head gives inputs their labels: the head, a proof of none, or neither if rounding decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hmmlib.theory.heads import ZERO, LinearHead
from hmmlib.validation import SUM_TOLERANCE, as_labels, as_tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

ROUNDING = ZERO * torch.finfo(torch.float64).eps
"""Two mixtures of distributions that differ by less, entries summed, have the same scores up to rounding."""


@dataclass(frozen=True)
class Impossible:
    """A proof that no linear head gives a set of inputs their labels, up to rounding.

    A mixture of negative inputs (weights `negative`, which sum to 1) equals a nonnegative combination of positive
    ones (weights `positive`), up to `residual`, the sum of the sizes of all differences, which is at most `ROUNDING`.
    A head that fits would score the first below zero and the second not, and yet both the same up to rounding.
    """

    positive: Tensor
    negative: Tensor
    residual: float


@dataclass(frozen=True)
class Undecided:
    """Inputs and labels that rounding leaves undecided: neither a head that fits nor a proof of none was found.

    `wrong` is the number of inputs, of `inputs`, to which the best head found gives another label, or a score that
    rounding could move across 0; `residual` that of the combination found: a proof, if it were at most `ROUNDING`.
    """

    wrong: int
    inputs: int
    residual: float


def fit_or_refute(probs: Float[ArrayLike, "n X"], labels: Bool[ArrayLike, " n"]) -> LinearHead | Impossible | Undecided:
    """A linear head that gives every row of `probs` its label in `labels`, (n,), or the proof that there is none.

    By Farkas' lemma there is a head with b·p ≥ 1 on positive and b·p ≤ -1 on negative rows, or there are weights as
    in `Impossible`. Nonnegative least squares finds the weights that come nearest; what they leave over is the head.
    The rows are first spread evenly in all directions in which they differ, which moves no input across a plane.

    `probs` are (n, X), each row a distribution, or zero (then its score is 0 and its label 1, whatever the head).
    ValueError for another shape, or a row that sums to neither 1 nor 0.
    """
    probs = as_tensor("probs", probs, 2).detach().cpu().double()
    labels, sums = as_labels(labels, len(probs)).cpu(), probs.sum(1)
    off = ((sums - 1).abs() > SUM_TOLERANCE[torch.float32]) & (sums != 0)
    if off.any():
        raise ValueError(f"each row of probs must sum to 1, or be zero; one sums to {sums[off][0]:.6g}")
    rows, negative = probs.numpy(), ~labels.numpy()
    spread, back = _spread(rows)
    signed = np.where(negative, -1.0, 1.0)[:, None] * spread
    weights, direction = _nearest_combination(signed, negative)
    head, wrong = _head(back @ direction, probs, labels)
    if wrong:
        other = _head(back @ _by_margin(signed[rows.any(1)]), probs, labels)
        head, wrong = min((head, wrong), other, key=lambda found: found[1])
    if not wrong:
        return head
    if not (total := weights[negative].sum()):
        return Undecided(wrong, len(rows), np.inf)
    weights = weights / total
    positive, mixture = weights[~negative], weights[negative]
    residual = float(abs(positive @ rows[~negative] - mixture @ rows[negative]).sum())
    if residual <= ROUNDING:
        return Impossible(torch.as_tensor(positive), torch.as_tensor(mixture), residual)
    return Undecided(wrong, len(rows), residual)


def _spread(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, X) as (n, k + 1): coordinates that spread evenly around 0 where the sum is 1, and last the sum.

    And the matrix (X, k + 1) by which a direction there becomes the weights of a head.
    """
    sums = rows.sum(1, keepdims=True)
    centre = rows.sum(0) / max(1.0, sums.sum())
    moved = rows - sums * centre
    _, sizes, axes = np.linalg.svd(moved, full_matrices=False)
    seen = sizes > max(ZERO, *rows.shape) * torch.finfo(torch.float64).eps * np.linalg.norm(rows)
    scale = axes[seen].T / sizes[seen] * len(rows) ** 0.5
    return np.hstack([moved @ scale, sums]), np.hstack([scale - centre @ scale, np.ones((rows.shape[1], 1))])


def _nearest_combination(signed: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights ≥ 0 of the combination nearest to 0, where those of negative inputs are to sum to 1; and a direction.

    What is left over, (β, γ), has β·row ≤ 0 for positive rows and ≥ γ > 0 for negative ones, unless it is 0: so -β
    fits, and γ / 2 more for each row puts positive and negative rows at the same distance.
    """
    from scipy.optimize import nnls

    columns = np.vstack([signed.T, negative])
    target = np.append(np.zeros(signed.shape[1]), 1.0)
    try:
        weights, _ = nnls(columns, target)
    except RuntimeError:  # too many steps
        weights = np.zeros(len(signed))
    *beta, gamma = target - columns @ weights
    direction = -np.array(beta)
    direction[-1] += gamma / 2
    return weights, direction


def _by_margin(signed: np.ndarray) -> np.ndarray:
    """A direction in which all rows lie at 1 or beyond, by a linear program; or 0 where it finds none."""
    from scipy.optimize import linprog

    found = linprog(np.zeros(signed.shape[1]), -signed, -np.ones(len(signed)), bounds=(None, None))
    return found.x if found.status == 0 else np.zeros(signed.shape[1])


def _head(weights: np.ndarray, probs: Tensor, labels: Tensor) -> tuple[LinearHead, int]:
    """A head with these weights, scaled to a margin of 1 to 2; and how many inputs it mislabels, or nearly."""
    weights, rows = torch.as_tensor(weights), probs.any(1)
    scores = torch.where(labels, probs @ weights, -(probs @ weights))
    beyond = scores > 2 * ROUNDING * (probs @ weights.abs())  # twice, so that no other order of the sums decides
    fits = torch.where(rows, beyond, labels)
    if fits.all() and rows.any():  # a power of two changes no rounding
        weights = torch.ldexp(weights, -torch.frexp(scores[rows].min()).exponent + 1)
    return LinearHead(weights), int((~fits).sum())
