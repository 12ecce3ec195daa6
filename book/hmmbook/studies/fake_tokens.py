"""What can a fake token do at most on the texts that occur?

The theorems ask whether it is right for every belief. By Lemma C.2 a fake token and a head b score a belief p by νᵀp,
where ν = d ⊙ Wᵀb and d ≥ 0, and a head scores states with equal emission distributions alike. So ν has no two opposite
signs on states that look alike. Where the other columns of W are independent, ν is otherwise free, if any d is allowed,
also one that no token on this chain gives. So what holds for all such ν holds for every fake token.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import torch
from scipy.optimize import LinearConstraint, milp, minimize
from scipy.special import expit
from torch import Tensor

from hmmbook import Measurement, Task
from hmmbook.experiments.fields import Share
from hmmlib import HMM
from hmmlib.theory.heads import share_right

STEEPNESS = (3, 10, 30, 100, 300)
"""How steep the smooth count of errors is, from one minimisation to the next."""
TOGETHER = 100
"""For how many texts the fewest errors are found together."""
MARGIN = 1e-5
"""The score, of at most 1, from which a label counts as right."""


def signed_beliefs(beliefs: Tensor, labels: Tensor) -> np.ndarray:
    """Beliefs, (n, S), with a minus where the label is 0. Their scores νᵀ are above zero where ν is right."""
    signs = torch.where(labels, 1.0, -1.0)
    return (beliefs * signs[:, None]).numpy()


def groups_of_look_alikes(emission: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The group of each state, (S,), where states with equal columns of W are in one, and the size of each group."""
    columns = emission.numpy().round(12)
    _, group, sizes = np.unique(columns, axis=1, return_inverse=True, return_counts=True)
    return group, sizes


def bounds_of_nu(emission: Tensor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The least and largest entries of ν, (S,) each, for each choice of signs of the states that look alike."""
    group, sizes = groups_of_look_alikes(emission)
    either_sign = [(-1, 0), (0, 1)]
    any_value = [(-1, 1)]
    for choice in product(*(either_sign if size > 1 else any_value for size in sizes)):
        low, high = np.array(choice, dtype=float)[group].T
        yield low, high


def good_fake_token(emission: Tensor, beliefs: Tensor, labels: Tensor) -> Tensor:
    """Find a fake token and a head that are right on many beliefs. There may be better ones.

    For each choice of signs the logistic loss is minimised first, and from there a smooth count of errors that becomes
    steeper.

    Args:
        emission: W, (X, S).
        beliefs: p, (n, S).
        labels: Their labels, (n,), bool.

    Returns:
        Their ν, (S,).
    """
    signed = signed_beliefs(beliefs, labels)

    def logistic(nu: np.ndarray) -> tuple[float, np.ndarray]:
        return np.logaddexp(0, -signed @ nu).mean(), -expit(-signed @ nu) @ signed / len(signed)

    def smooth_count(nu: np.ndarray, steep: float) -> tuple[float, np.ndarray]:
        errors = expit(-steep * signed @ nu)
        return errors.mean(), -steep * (errors * (1 - errors)) @ signed / len(signed)

    losses = [logistic]
    for steep in STEEPNESS:
        losses.append(partial(smooth_count, steep=steep))
    best = None
    fewest = np.inf
    for low, high in bounds_of_nu(emission):
        lowest = np.where(low < 0, -np.inf, 0)
        highest = np.where(high > 0, np.inf, 0)
        bounds = list(zip(lowest, highest, strict=True))
        nu = np.zeros(len(low))
        for loss in losses:
            nu = minimize(loss, nu, jac=True, bounds=bounds).x
            nu = nu / max(abs(nu).max(), 1e-9)
            errors = (signed @ nu <= 0).mean()
            if errors < fewest:
                best = nu
                fewest = errors
    return torch.as_tensor(best)


def fewest_errors(emission: Tensor, beliefs: Tensor, labels: Tensor) -> int:
    """Return on how many of these beliefs every fake token and head must be wrong, by an integer program.

    ν has entries from -1 to 1, and what it scores by less than MARGIN counts as an error.

    Args:
        emission: W, (X, S).
        beliefs: p, (n, S).
        labels: Their labels, (n,), bool.
    """
    signed = signed_beliefs(beliefs, labels) / MARGIN
    n, n_states = signed.shape
    # The variables are ν and, for each belief, whether it is an error. Their number is minimised.
    cost = np.repeat([0.0, 1.0], [n_states, n])
    integrality = np.repeat([0, 1], [n_states, n])
    right_or_error = LinearConstraint(np.c_[signed, (1 + 1 / MARGIN) * np.eye(n)], lb=1)
    least = n
    for low, high in bounds_of_nu(emission):
        lowest = np.append(low, np.zeros(n))
        highest = np.append(high, np.ones(n))
        solution = milp(cost, constraints=right_or_error, bounds=(lowest, highest), integrality=integrality)
        least = min(least, int(np.ceil(solution.mip_dual_bound - 1e-6)))
    return least


def fake_token_accuracy(model: HMM, task: Task) -> float:
    """Return the share of a task's test texts on which `good_fake_token` of its training texts is right."""
    nu = good_fake_token(model.emission, task.train.posteriors, task.train.labels)
    return share_right(task.test.posteriors @ nu >= 0, task.test.labels)


def best_head_accuracy(model: HMM, task: Task) -> float:
    """Return the share of a task's test texts on which the best head alone is right, on exact predictions.

    It is for chains with three different emission distributions, so that a head has three scores. A best head can be
    turned until two of the beliefs have the score 0. So each pair of beliefs is tried. They count as right, and so do
    others near 0.
    """
    group, _ = groups_of_look_alikes(model.emission)
    if group.max() != 2:
        raise ValueError(f"best_head_accuracy needs three different emission distributions, not {group.max() + 1}")
    signed = signed_beliefs(task.test.posteriors, task.test.labels) @ np.eye(3)[group]
    points, counts = np.unique(signed.round(9), axis=0, return_counts=True)
    most = 0
    for index, point in enumerate(points):
        normals = np.cross(point, points[index + 1 :])
        sizes = np.linalg.norm(normals, axis=1, keepdims=True)
        certain = sizes[:, 0] > 1e-7  # Two beliefs that are nearly the same decide no plane.
        scores = (normals / sizes)[certain] @ points.T
        if len(scores):
            for sign in (1, -1):
                most = max(most, ((sign * scores > -1e-8) @ counts).max())
    return float(most / counts.sum())


@Measurement(on_request=True, phase="fake tokens", vanilla=True, fake_token_accuracy=Share, fake_token_bound=Share)
def fake_tokens(model: HMM, task: Task) -> dict:
    """Measure the share of test texts on which a good fake token is right, and a bound, above which none can be.

    The bound adds the fewest errors of each hundred texts.
    """
    test = task.test
    errors = 0
    for first in range(0, len(test.labels), TOGETHER):
        together = slice(first, first + TOGETHER)
        errors += fewest_errors(model.emission, test.posteriors[together], test.labels[together])
    return {
        "fake_token_accuracy": fake_token_accuracy(model, task),
        "fake_token_bound": 1 - errors / len(test.labels),
    }


@Measurement(on_request=True, phase="fake tokens", vanilla=True, best_head_accuracy=Share)
def best_head(model: HMM, task: Task) -> dict:
    """Measure the share of test texts on which the best head alone is right, on exact predictions."""
    return {"best_head_accuracy": best_head_accuracy(model, task)}
