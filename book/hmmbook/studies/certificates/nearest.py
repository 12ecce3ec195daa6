"""The heads and prompts whose ν is nearest to μ, by linear programs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hmmbook.studies.certificates.certain_labels import Certificate, as_diagonal, certificate
from hmmlib import HMM, LinearHead, lemma_c_2
from hmmlib.theory.assumptions import as_mu
from hmmlib.validation import as_tensor, integer, number

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike

TOLERANCE = 1e-10
"""By how much the constraints of a linear program may be off. The solver HiGHS takes no less."""
REFINEMENTS = 8
"""How often, at most, a linear program is solved again for what its solution leaves over."""


def prompt_to_diagonal(model: HMM) -> Tensor:
    """The matrix, (S, S), that maps a prompt u to d, because Lemma C.2 is linear in u."""
    states = torch.eye(model.n_states, dtype=model.dtype, device=model.device)
    columns = [lemma_c_2(model, state) for state in states]
    return torch.stack(columns, 1)


def as_numpy(table: Tensor) -> np.ndarray:
    """A table in float64 for the solvers, which compute on the CPU and take no gradients."""
    return table.detach().cpu().double().numpy()


def solve(cost, upper: np.ndarray, most: np.ndarray, bounds) -> np.ndarray:
    """The x of least cost with upper @ x ≤ most. RuntimeError if the solver does not find it."""
    from scipy.optimize import linprog

    options = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    solution = linprog(cost, A_ub=upper, b_ub=most, bounds=bounds, options=options)
    if solution.x is None:
        raise RuntimeError(f"a linear program was not solved: {solution.message}")
    return solution.x


def least_error(matrix: np.ndarray, target: np.ndarray, lowest: float | None) -> np.ndarray:
    """The x ≥ lowest (any x if None) at which the largest entry of |matrix x - target| is least."""
    rows, columns = matrix.shape
    ones = np.ones((rows, 1))
    upper = np.block([[matrix, -ones], [-matrix, -ones]])
    most = np.append(target, -target)
    cost = np.eye(columns + 1)[-1]  # the last variable is the largest entry
    bounds = [(lowest, None)] * columns + [(0, None)]
    return solve(cost, upper, most, bounds)[:-1]


def least_spread(matrix: np.ndarray, target: np.ndarray, error: float) -> np.ndarray:
    """The x of least κ with no entry of |matrix x - target| above `error`."""
    rows, columns = matrix.shape
    # The last two variables are the largest and the smallest entry of x.
    identity = np.eye(columns)
    ones = np.ones((columns, 1))
    zeros = np.zeros((columns, 1))
    padding = np.zeros((rows, 2))
    upper = np.block([[matrix, padding], [-matrix, padding], [identity, -ones, zeros], [-identity, zeros, ones]])
    most = np.concatenate([target + error, error - target, np.zeros(2 * columns)])
    cost = np.append(np.zeros(columns), [0.5, -0.5])  # κ = (max x - min x) / 2
    return solve(cost, upper, most, (None, None))[:columns]


def heads_of_small_error(matrix: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """No head at all, least squares, and a linear program that is solved again for what it leaves over.

    The solver's tolerance is absolute, so where columns of W nearly agree, one solution is far off but several are not.
    """
    head = np.zeros(matrix.shape[1])
    heads = [head, np.linalg.lstsq(matrix, target, rcond=None)[0]]
    with suppress(RuntimeError):  # If the solver gives up, the heads so far stay.
        for _ in range(REFINEMENTS):
            remaining = target - matrix @ head
            size = abs(remaining).max()
            if not size > TOLERANCE * abs(target).max():
                break
            head = head + size * least_error(matrix, remaining / size, None)
            heads.append(head)
    return heads


def nearest_head(
    model: HMM, mu: Float[ArrayLike, " S"], diagonal: Float[Tensor, " S"] | None = None, slack: float = 0.0
) -> tuple[LinearHead, Certificate]:
    """Find the head of least κ among those of nearly the least δ.

    It is found by linear programs, as far as floats go. Where columns of W nearly agree, a head of smaller δ may exist
    whose weights are too large to be computed. The certificate is that of the head as it is.

    Args:
        model: The model.
        mu: μ, (S,).
        diagonal: d, (S,), as in `certificate`.
        slack: By how much δ may exceed the least.

    Raises:
        ValueError: The slack is negative, or μ or d has another shape.
    """
    mu = as_mu(model, mu, HMM)
    diagonal = as_diagonal(model, diagonal)
    slack = number("slack", slack, 0)
    scale = mu.abs().max().item()
    matrix = as_numpy(diagonal.unsqueeze(1) * model.emission.T)  # from b to ν
    target = as_numpy(mu) / scale

    candidates = []
    for weights in heads_of_small_error(matrix, target):
        head = LinearHead(mu.new_tensor(weights * scale))
        candidates.append((head, certificate(model, mu, head, diagonal)))
    least = min(made.error for _, made in candidates)
    error = least * (1 + 1e-9) + TOLERANCE * scale + slack
    with suppress(RuntimeError):  # If the solver gives up, the candidates so far stay.
        weights = least_spread(matrix, target, error / scale)
        head = LinearHead(mu.new_tensor(weights * scale))
        candidates.append((head, certificate(model, mu, head, diagonal)))
    near = [candidate for candidate in candidates if candidate[1].error <= error + TOLERANCE * scale]
    return min(near, key=lambda candidate: candidate[1].spread)


def nearest_prompt(model: HMM, mu: Float[ArrayLike, " S"], head: LinearHead) -> tuple[Tensor, Certificate]:
    """Find the prompt with which a head has the least δ, by a linear program.

    Args:
        model: The model.
        mu: μ, (S,).
        head: The head.

    Returns:
        The prompt u ≥ 0, (S,), and the certificate. If an entry of u is larger than 1, scale it down and the head up,
        because only their product counts.

    Raises:
        RuntimeError: The linear program is beyond its solver.
    """
    mu = as_mu(model, mu, HMM)
    matrix = (head.weights.to(mu) @ model.emission).unsqueeze(1) * prompt_to_diagonal(model)  # from u to ν
    solution = least_error(as_numpy(matrix), as_numpy(mu), 0.0)
    prompt = mu.new_tensor(solution).clamp(min=0)  # The solver's bounds have a tolerance too.
    return prompt, certificate(model, mu, head, lemma_c_2(model, prompt))


def alternate(
    model: HMM, mu: Float[ArrayLike, " S"], prompt: Float[ArrayLike, " S"], rounds: int = 20
) -> tuple[Tensor, LinearHead, Certificate]:
    """Improve prompt and head by turns, each the best for the other.

    δ never grows, but it need not end at the least possible.

    Args:
        model: The model.
        mu: μ, (S,).
        prompt: The prompt to begin with, (S,).
        rounds: The most turns.

    Returns:
        The prompt, whose largest entry is 1 unless it is the first, the head, and their certificate.
    """
    prompt = as_tensor("prompt", prompt, 1, like=model.initial).detach()
    best = None
    for _ in range(integer("rounds", rounds, 1)):
        head, made = nearest_head(model, mu, lemma_c_2(model, prompt))
        if best and made.error >= best[2].error:
            break
        best = (prompt, head, made)
        try:
            prompt, _ = nearest_prompt(model, mu, head)
        except RuntimeError:
            break
        if not prompt.max() > 0:
            break
        prompt = prompt / prompt.max()
    return best
