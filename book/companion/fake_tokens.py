"""How far a fake token goes on the texts that occur, where the theorems ask whether it is right for every belief.

By Lemma C.2 a fake token and a head b score a belief p by νᵀp with ν = d ⊙ Wᵀb and d ≥ 0, and a head scores states with
equal emission distributions alike. So ν has no two opposite signs on states that look alike. Where the other columns of
W are independent it is otherwise free, if any d is allowed, also one that no token on this chain gives.
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

from hmmlib.experiments.labels import Task
from hmmlib.experiments.measurements import Measurement
from hmmlib.experiments.specs import Share
from hmmlib.models.hmm import HMM

STEEP = (3, 10, 30, 100, 300)
"""How steep the smooth count of errors is, from one minimisation to the next."""
TOGETHER, MARGIN = 100, 1e-5
"""Texts for which the fewest errors are found together, and the score, of at most 1, that counts as right from."""


def _signed(beliefs: Tensor, labels: Tensor) -> np.ndarray:
    """Beliefs, (n, S), with a minus where the label is 0: νᵀ of one is above zero where ν is right."""
    return (beliefs * torch.where(labels, 1.0, -1.0)[:, None]).numpy()


def _signs(emission: Tensor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The least and largest entries of ν, (S,) each, for each choice of signs of the states that look alike."""
    _, group, members = np.unique(emission.numpy().round(12), axis=1, return_inverse=True, return_counts=True)
    for signs in product(*([(-1, 0), (0, 1)] if many > 1 else [(-1, 1)] for many in members)):
        low, high = np.array(signs, dtype=float)[group].T
        yield low, high


def good_fake_token(emission: Tensor, beliefs: Tensor, labels: Tensor) -> Tensor:
    """ν, (S,), of a fake token and a head that are right on many beliefs, (n, S): there may be better ones.

    For each choice of signs: the least logistic loss, and from there a smooth count of errors that becomes steeper.
    """
    signed, best, fewest = _signed(beliefs, labels), None, np.inf

    def logistic(nu: np.ndarray) -> tuple[float, np.ndarray]:
        return np.logaddexp(0, -signed @ nu).mean(), -expit(-signed @ nu) @ signed / len(signed)

    def smooth(nu: np.ndarray, steep: float) -> tuple[float, np.ndarray]:
        errors = expit(-steep * signed @ nu)
        return errors.mean(), -steep * (errors * (1 - errors)) @ signed / len(signed)

    for low, high in _signs(emission):
        bounds = list(zip(np.where(low < 0, -np.inf, 0), np.where(high > 0, np.inf, 0), strict=True))
        nu = np.zeros(len(low))
        for loss in (logistic, *(partial(smooth, steep=steep) for steep in STEEP)):
            nu = minimize(loss, nu, jac=True, bounds=bounds).x
            nu = nu / max(abs(nu).max(), 1e-9)
            if (errors := (signed @ nu <= 0).mean()) < fewest:
                best, fewest = nu, errors
    return torch.as_tensor(best)


def fewest_errors(emission: Tensor, beliefs: Tensor, labels: Tensor) -> int:
    """On how many of these beliefs, (n, S), some fake token and head must be wrong: a mixed-integer linear program.

    ν has entries from -1 to 1, and what it scores by less than MARGIN counts as an error.
    """
    signed = _signed(beliefs, labels) / MARGIN
    n, n_states = signed.shape
    cost, whole = np.repeat([0.0, 1.0], [n_states, n]), np.repeat([0, 1], [n_states, n])
    rows = LinearConstraint(np.c_[signed, (1 + 1 / MARGIN) * np.eye(n)], lb=1)  # νᵀp is MARGIN or more, or an error
    least = n
    for low, high in _signs(emission):
        bounds = np.r_[low, np.zeros(n)], np.r_[high, np.ones(n)]
        found = milp(cost, constraints=rows, bounds=bounds, integrality=whole)
        least = min(least, int(np.ceil(found.mip_dual_bound - 1e-6)))
    return least


def fake_token_accuracy(model: HMM, task: Task) -> float:
    """The share of a task's test texts on which `good_fake_token` of its training texts is right."""
    nu = good_fake_token(model.emission, task.train.posteriors, task.train.labels)
    return ((task.test.posteriors @ nu >= 0) == task.test.labels).double().mean().item()


def best_head_accuracy(model: HMM, task: Task) -> float:
    """The share of a task's test texts on which the best head alone is right, on exact predictions.

    For chains with three different emission distributions, so that a head has three scores. A best head can be turned
    until two of the beliefs have the score 0: each two of them are tried, and count as right, as do others near 0.
    """
    _, group = np.unique(model.emission.numpy().round(12), axis=1, return_inverse=True)
    points, many = np.unique(
        (_signed(task.test.posteriors, task.test.labels) @ np.eye(3)[group]).round(9), axis=0, return_counts=True
    )
    most = 0
    for k in range(len(points)):
        normals = np.cross(points[k], points[k + 1 :])
        sizes = np.linalg.norm(normals, axis=1, keepdims=True)
        scores = (normals / sizes)[sizes[:, 0] > 1e-7] @ points.T  # of nearly the same two beliefs no plane is certain
        for sign in (1, -1) if len(scores) else ():
            most = max(most, ((sign * scores > -1e-8) @ many).max())
    return float(most / many.sum())


@Measurement(on_request=True, phase="fake tokens", vanilla=True, fake_token_accuracy=Share, fake_token_bound=Share)
def fake_tokens(model: HMM, task: Task) -> dict:
    """Of the test texts, the share on which a good fake token is right, and a bound, above which none can be.

    The bound adds the fewest errors of each hundred texts.
    """
    parts = zip(task.test.posteriors.split(TOGETHER), task.test.labels.split(TOGETHER), strict=True)
    errors = sum(fewest_errors(model.emission, *part) for part in parts)
    return dict(
        fake_token_accuracy=fake_token_accuracy(model, task), fake_token_bound=1 - errors / len(task.test.labels)
    )


@Measurement(on_request=True, phase="fake tokens", vanilla=True, best_head_accuracy=Share)
def best_head(model: HMM, task: Task) -> dict:
    """Of the test texts, the share on which the best head alone is right, on exact predictions."""
    return dict(best_head_accuracy=best_head_accuracy(model, task))
