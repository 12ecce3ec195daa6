"""Find a linear head that gives inputs their labels, or a proof that there is none, unless rounding leaves it open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hmmlib.device import own_settings
from hmmlib.theory.heads import ROUNDING_UNITS, LinearHead
from hmmlib.validation import SUM_TOLERANCE, as_labels, as_tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

ROUNDING = ROUNDING_UNITS * torch.finfo(torch.float64).eps
"""Two mixtures of distributions count as equal if the absolute values of their differences sum to at most this."""


@dataclass(frozen=True)
class Impossible:
    """A proof that no linear head gives a set of inputs their labels, up to rounding.

    Inputs whose label is 1 are called positive, the others negative. The proof is a mixture of negative inputs that
    equals a combination of positive ones with weights ≥ 0. A head that fits would give the mixture a score below 0, and
    the combination a score of 0 or more. But they are equal, so they have the same score.

    Example:
        >>> from hmmlib import fit_or_refute
        >>> proof = fit_or_refute([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], labels=[True, True, False])
        >>> proof.positive, proof.negative
        (tensor([0.5000, 0.5000], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """

    positive: Tensor
    """The weights of the positive inputs, ≥ 0."""
    negative: Tensor
    """The weights of the negative inputs, ≥ 0, which sum to 1."""
    residual: float
    """The sum of the absolute differences between mixture and combination, at most `ROUNDING`."""


@dataclass(frozen=True)
class Undecided:
    """Inputs and labels that rounding leaves undecided: neither a head that fits nor a proof of none was found.

    Example:
        >>> from hmmlib import Undecided, fit_or_refute
        >>> nearly_equal = [0.75 + 2.0**-44, 0.25 - 2.0**-44]
        >>> answer = fit_or_refute([[0.75, 0.25], [0.25, 0.75], nearly_equal], labels=[False, False, True])
        >>> isinstance(answer, Undecided)
        True
    """

    wrong: int
    """The number of inputs to which the best head found gives another label, or a score that rounding could move
    across 0."""
    inputs: int
    """The number of inputs."""
    residual: float
    """The residual, as in `Impossible`, of the nearest combination found, or infinity if none was found. At most
    `ROUNDING` would be a proof."""


@own_settings()
def fit_or_refute(probs: Float[ArrayLike, "n X"], labels: Bool[ArrayLike, " n"]) -> LinearHead | Impossible | Undecided:
    """Find a linear head that gives every input its label, or prove that there is none.

    By Farkas' lemma, either there is a head with b·p ≥ 1 on positive and b·p ≤ -1 on negative inputs, or there are
    weights as in `Impossible`. Nonnegative least squares finds the weights that come nearest to such a proof. If they
    are no proof, their residual gives a head. Before that the inputs are moved and scaled, so that they vary equally in
    all directions in which they differ. A plane still separates the same inputs afterwards.

    Args:
        probs: The inputs, (n, X). Each row is a distribution, or zero. The label of a zero row is 1, whatever the head.
        labels: Their labels, (n,).

    Returns:
        The head, or `Impossible`, which is the proof, or `Undecided` if rounding hides the answer.

    Raises:
        ValueError: The shapes differ, or a row sums to neither 1 nor 0.

    Example:
        >>> from hmmlib import fit_or_refute
        >>> probs = [[0.75, 0.25], [0.25, 0.75]]
        >>> fit_or_refute(probs, labels=[True, False]).label(probs)
        tensor([ True, False])
    """
    probs, labels = _checked(probs, labels)
    rows = probs.numpy()
    negative = ~labels.numpy()
    coordinates, to_weights = _whiten(rows)
    signed = np.where(negative, -1.0, 1.0)[:, None] * coordinates

    weights, direction = _nearest_combination(signed, negative)
    head, wrong = _head(to_weights @ direction, probs, labels)
    if wrong:
        nonzero = rows.any(1)
        second_head, second_wrong = _head(to_weights @ _by_margin(signed[nonzero]), probs, labels)
        if second_wrong < wrong:
            head, wrong = second_head, second_wrong
    if not wrong:
        return head

    total = weights[negative].sum()
    if not total:
        return Undecided(wrong, len(rows), np.inf)
    positive_weights = weights[~negative] / total
    negative_weights = weights[negative] / total
    difference = positive_weights @ rows[~negative] - negative_weights @ rows[negative]
    residual = float(abs(difference).sum())
    if residual <= ROUNDING:
        return Impossible(torch.as_tensor(positive_weights), torch.as_tensor(negative_weights), residual)
    return Undecided(wrong, len(rows), residual)


def _checked(probs, labels) -> tuple[Tensor, Tensor]:
    """Return inputs in float64 and labels, both on the CPU."""
    probs = as_tensor("probs", probs, 2).detach().cpu().double()
    labels = as_labels(labels, len(probs)).cpu()
    sums = probs.sum(1)
    is_off = ((sums - 1).abs() > SUM_TOLERANCE[torch.float32]) & (sums != 0)
    if is_off.any():
        raise ValueError(f"each row of probs must sum to 1, or be zero, but one sums to {sums[is_off][0]:.6g}")
    return probs, labels


def _whiten(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move the mean of the inputs to 0, and scale them to the same variance in all k directions in which they differ.

    Returns:
        New coordinates of the rows, (n, k + 1). The last of them is the sum of the row, which is 1 or 0.
        The matrix, (X, k + 1), that turns a direction in these coordinates into the weights of a head.
    """
    sums = rows.sum(1, keepdims=True)
    centre = rows.sum(0) / max(1.0, sums.sum())
    moved = rows - sums * centre
    _, sizes, axes = np.linalg.svd(moved, full_matrices=False)
    rounding = max(ROUNDING_UNITS, *rows.shape) * torch.finfo(torch.float64).eps
    differs = sizes > rounding * np.linalg.norm(rows)
    scale = axes[differs].T / sizes[differs] * len(rows) ** 0.5
    coordinates = np.hstack([moved @ scale, sums])
    ones = np.ones((rows.shape[1], 1))
    to_weights = np.hstack([scale - centre @ scale, ones])
    return coordinates, to_weights


def _nearest_combination(signed: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the combination of signed inputs that is nearest to 0, and a direction that separates them.

    A signed input is a row of coordinates, with the opposite sign if the input is negative. The weights of the
    combination are ≥ 0, and those of the negative inputs are to sum to 1.

    Let r = (β, γ) be what least squares leaves. At its optimum no column has a positive product with r. So β·row ≤ 0 on
    positive rows and β·row ≥ γ on negative ones, in coordinates without the sign. Moreover γ = r·r, which is positive
    unless nothing is left. Hence -β separates, with its plane through the positive rows. Adding γ / 2 to every score,
    by the last coordinate, which is 1, puts the plane in the middle.
    """
    from scipy.optimize import nnls

    columns = np.vstack([signed.T, negative])
    target = np.append(np.zeros(signed.shape[1]), 1.0)
    try:
        weights, _ = nnls(columns, target)
    except RuntimeError:  # It took too many steps.
        weights = np.zeros(len(signed))
    *beta, gamma = target - columns @ weights
    direction = -np.array(beta)
    direction[-1] += gamma / 2
    return weights, direction


def _by_margin(signed: np.ndarray) -> np.ndarray:
    """Find a direction whose product with each row is 1 or more, by a linear program. Return 0 if there is none."""
    from scipy.optimize import linprog

    no_direction = np.zeros(signed.shape[1])
    margins = np.ones(len(signed))
    result = linprog(no_direction, -signed, -margins, bounds=(None, None))
    return result.x if result.status == 0 else no_direction


def _head(weights: np.ndarray, probs: Tensor, labels: Tensor) -> tuple[LinearHead, int]:
    """Return a head with these weights, and how many inputs it mislabels, or may mislabel because of rounding.

    If there are none, the weights are scaled so that the score nearest to 0 has a size from 1 to 2.
    """
    weights = torch.as_tensor(weights)
    nonzero = probs.any(1)
    scores = probs @ weights
    margins = torch.where(labels, scores, -scores)
    beyond = margins > 2 * ROUNDING * (probs @ weights.abs())  # Twice, so that the order of the sums has no say.
    fits = torch.where(nonzero, beyond, labels)
    if fits.all() and nonzero.any():
        # Scaling by a power of two changes no rounding.
        exponent = torch.frexp(margins[nonzero].min()).exponent
        weights = torch.ldexp(weights, 1 - exponent)
    return LinearHead(weights), int((~fits).sum())
