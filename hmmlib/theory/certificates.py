"""Beyond the paper: how far off a prediction may be before a label is wrong, and what a prompt and a head can do.

Of a text x let p = P[H_0 | X_{1:T} = x]. With a prompt u, Ḡ_2 = W (d ⊙ p) / dᵀp with d = A (u ⊙ P[H_1]) / P[H_0]
(Lemma C.2); without one, G_1 is the same with d = P[H_1] / P[H_0] (Claim B.1). A head b scores νᵀp / dᵀp there, with
ν = d ⊙ Wᵀb, and the label is the sign of μᵀp. So (u, b) is right for every belief p if ν is a positive multiple of μ,
and, where μ takes both signs, only then. P[H_0] must be positive in every state.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import as_mu
from hmmlib.theory.heads import LinearHead, unit
from hmmlib.theory.separation import Impossible, Undecided, fit_or_refute
from hmmlib.theory.theorems import claim_b_1, lemma_c_2
from hmmlib.validation import as_tensor, integer, number, of_shape

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

TOLERANCE = 1e-10
"""By how much the constraints of a linear program may be off (HiGHS takes no less)."""
REFINEMENTS = 8
"""How often a linear program is solved again for what its solution leaves over, at most."""


@dataclass(frozen=True)
class Certificate:
    """How far a head's scores with a prompt can be from those of a task, and still have the right sign.

    `mu` is μ, `diagonal` d, both (S,); `error` is δ = ‖ν - μ‖∞, and `spread` is κ = (max b - min b) / 2. `rounding` is
    d ⊙ Wᵀt, (S,), where t, (X,), bounds the rounding of a score: that of δ and that which the head itself counts as
    zero; `largest_rounding` is the largest entry of t.
    """

    mu: Tensor
    diagonal: Tensor
    error: float
    spread: float
    rounding: Tensor
    largest_rounding: float

    def holds(self, posteriors: Float[Tensor, "n S"], distance: float | Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Where |μᵀp| > δ + ε κ dᵀp, (n,), bool: a prediction of sum 1, within ε of Ḡ_2 in L1, has the right label.

        For a prediction g̃, |b·g̃ - b·Ḡ_2| is at most ε κ, and dᵀp b·Ḡ_2 = νᵀp is within δ of μᵀp. What rounding may
        add, to the head's own score too, is added on the right. `posteriors` are p, (n, S); `distance` is ε, from 0 to
        2, a number or (n,). ValueError for a negative one, or another shape.
        """
        beliefs = of_shape("posteriors", posteriors, (None, len(self.mu))).to(self.mu)
        distance = as_tensor("distance", distance, like=self.mu)
        certain = self.error + distance * self.spread * (beliefs @ self.diagonal)
        lost = beliefs @ (self.rounding + unit(self.mu.dtype, len(self.mu)) * self.mu.abs())
        lost = lost + distance * self.largest_rounding * (beliefs @ self.diagonal)
        return (beliefs @ self.mu).abs() > certain + lost


def _as_diagonal(model: HMM, diagonal: Tensor | None) -> Tensor:
    if diagonal is None:
        return claim_b_1(model, 1)
    return of_shape("diagonal", as_tensor("diagonal", diagonal, 1, like=model.initial), (model.n_states,))


def _reaches(model: HMM) -> Tensor:
    """The matrix of u to d, (S, S)."""
    return torch.stack([lemma_c_2(model, only) for only in torch.eye(model.n_states)], 1)


def certificate(
    model: HMM, mu: Float[ArrayLike, " S"], head: LinearHead, diagonal: Float[Tensor, " S"] | None = None
) -> Certificate:
    """The `Certificate` of a head on W (d ⊙ p) / dᵀp for the task μ, (S,).

    `diagonal` is d, (S,): on Ḡ_2 with a prompt u `lemma_c_2(model, u)`; on G_1 `claim_b_1(model, 1)`, taken if None.
    """
    mu, diagonal, weights = as_mu(model, mu, HMM), _as_diagonal(model, diagonal), head.weights.to(model.initial)
    score = diagonal * (weights @ model.emission)  # ν
    # Sums of S and X terms have relative errors, the weights their own; both once more, as the head rounds too.
    error = head.error.to(weights).abs()
    lost = error + 2 * unit(weights.dtype, model.n_states + model.n_tokens) * (weights.abs() + error)
    spread = (weights.max() - weights.min()).item() / 2
    rounding = diagonal * (lost @ model.emission)
    return Certificate(mu, diagonal, (score - mu).abs().max().item(), spread, rounding, lost.max().item())


def refuting_belief(mu: Float[Tensor, " S"], score: Float[Tensor, " S"]) -> Tensor | None:
    """A belief, (S,), that μ and the score ν, both (S,), label differently; None where ν is a positive multiple of μ.

    Where μ takes both signs, as it must, there is one on a state, or on the edge between a state with μ < 0 and
    another: so no other ν is right for every belief. The labels differ by what rounding leaves of the two thresholds.
    """
    score = score.double()
    mu = torch.as_tensor(mu).to(score)
    states, below = torch.eye(len(mu), dtype=mu.dtype), mu < 0
    if (turned := below != (score < 0)).any():
        return states[turned][0]
    first, second = (v[~below].unsqueeze(1) / (v[~below].unsqueeze(1) - v[below]) for v in (mu, score))
    gaps = (first - second).abs()  # of the shares at which μ and ν change sign, on every edge
    if gaps.max() < TOLERANCE:
        return None
    one, other = divmod(int(gaps.argmax()), gaps.shape[1])
    share = (first + second)[one, other] / 2
    return (1 - share) * states[~below][one] + share * states[below][other]


def _program(cost, upper: np.ndarray, most: np.ndarray, bounds) -> np.ndarray:
    """The x of least cost with upper @ x ≤ most. RuntimeError where the solver does not find it."""
    from scipy.optimize import linprog

    options = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    found = linprog(cost, A_ub=upper, b_ub=most, bounds=bounds, options=options)
    if found.x is None:
        raise RuntimeError(f"a linear program was not solved: {found.message}")
    return found.x


def _least_error(matrix: np.ndarray, target: np.ndarray, low: float | None) -> np.ndarray:
    """The x ≥ low (any x if None) at which the largest entry of |matrix x - target| is least."""
    rows, columns = matrix.shape
    ones = np.ones((rows, 1))
    upper = np.block([[matrix, -ones], [-matrix, -ones]])
    cost = np.eye(columns + 1)[-1]
    return _program(cost, upper, np.append(target, -target), [(low, None)] * columns + [(0, None)])[:-1]


def _of_least_spread(matrix: np.ndarray, target: np.ndarray, error: float) -> np.ndarray:
    """The x of least spread with no entry of |matrix x - target| above `error`."""
    rows, columns = matrix.shape
    identity, ones, none, pad = np.eye(columns), np.ones((columns, 1)), np.zeros((columns, 1)), np.zeros((rows, 2))
    upper = np.block([[matrix, pad], [-matrix, pad], [identity, -ones, none], [-identity, none, ones]])
    most = np.concatenate([target + error, error - target, np.zeros(2 * columns)])
    cost = np.append(np.zeros(columns), [0.5, -0.5])  # κ = (high - low) / 2
    return _program(cost, upper, most, (None, None))[:columns]


def _heads(matrix: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """Heads of small error: none at all, least squares, and a linear program, solved again for what it leaves over.

    The solver's tolerance is absolute: where columns of W nearly agree, one solution is far off, and several are not.
    """
    found = [np.zeros(matrix.shape[1]), np.linalg.lstsq(matrix, target, rcond=None)[0]]
    head = found[0]
    with suppress(RuntimeError):  # what the solver gives up on stays as it was
        for _ in range(REFINEMENTS):
            rest = target - matrix @ head
            size = abs(rest).max()
            if not size > TOLERANCE * abs(target).max():
                break
            head = head + size * _least_error(matrix, rest / size, None)
            found.append(head)
    return found


def nearest_head(
    model: HMM, mu: Float[ArrayLike, " S"], diagonal: Float[Tensor, " S"] | None = None, slack: float = 0.0
) -> tuple[LinearHead, Certificate]:
    """The head of least κ whose δ is the least, or larger by at most `slack`. `diagonal` is as in `certificate`.

    By linear programs, as far as floats go: where columns of W nearly agree a head of smaller δ may exist whose
    weights are too large to be computed. The certificate is that of the head as it is.
    """
    mu, diagonal = as_mu(model, mu, HMM), _as_diagonal(model, diagonal)
    scale = mu.abs().max().item()
    matrix = (diagonal.unsqueeze(1) * model.emission.T).double().numpy()  # b to ν
    target, slack = mu.double().numpy() / scale, number("slack", slack, 0)

    def judged(weights: np.ndarray) -> tuple[LinearHead, Certificate]:
        head = LinearHead(torch.as_tensor(weights * scale).to(mu))
        return head, certificate(model, mu, head, diagonal)

    found = [judged(weights) for weights in _heads(matrix, target)]
    error = min(made.error for _, made in found) * (1 + 1e-9) + TOLERANCE * scale + slack
    with suppress(RuntimeError):  # what has been found stands
        found.append(judged(_of_least_spread(matrix, target, error / scale)))
    good = [one for one in found if one[1].error <= error + TOLERANCE * scale]
    return min(good, key=lambda one: one[1].spread)


def nearest_prompt(model: HMM, mu: Float[ArrayLike, " S"], head: LinearHead) -> tuple[Tensor, Certificate]:
    """The prompt u ≥ 0, (S,), with which this head has the least δ, by a linear program; and the certificate.

    A prompt that is larger than 1 somewhere is made of one in [0, 1] and a larger head: only their product counts.
    """
    mu = as_mu(model, mu, HMM)
    matrix = (head.weights.to(mu) @ model.emission).unsqueeze(1) * _reaches(model)  # u to ν
    prompt = torch.as_tensor(_least_error(matrix.double().numpy(), mu.double().numpy(), 0.0)).to(mu)
    prompt = prompt.clamp(min=0)  # the solver's bounds have a tolerance too
    return prompt, certificate(model, mu, head, lemma_c_2(model, prompt))


def alternate(
    model: HMM, mu: Float[ArrayLike, " S"], prompt: Float[Tensor, " S"], rounds: int = 20
) -> tuple[Tensor, LinearHead, Certificate]:
    """Prompt and head by turns, each the best for the other: δ never grows, but need not end at the least.

    `prompt`, (S,), is where it begins. The prompt is scaled to have 1 as its largest entry.
    """
    prompt, best = torch.as_tensor(prompt).to(model.initial), None
    for _ in range(integer("rounds", rounds, 1)):
        head, found = nearest_head(model, mu, lemma_c_2(model, prompt))
        if best and found.error >= best[2].error:
            break
        best = prompt, head, found
        try:
            prompt, _ = nearest_prompt(model, mu, head)
        except RuntimeError:  # the linear program is beyond its solver
            break
        if not prompt.max() > 0:
            break
        prompt = prompt / prompt.max()
    return best


def separating_head(model: HMM, mu: Float[ArrayLike, " S"]) -> LinearHead | Impossible | Undecided:
    """A head whose score of a state's emission distribution is 0 or more where μ > 0, and below where μ < 0.

    Where there is none, no prompt and head are right for every belief, as d ≥ 0 cannot turn the sign of a score.
    Where A is a permutation and the scores are not 0, one is enough: `prompt_for_separating_head`.
    """
    mu = as_mu(model, mu, HMM)
    weighed = mu != 0
    return fit_or_refute(model.emission.T[weighed], mu[weighed] > 0)


def prompt_for_separating_head(model: HMM, mu: Float[ArrayLike, " S"], head: LinearHead) -> tuple[Tensor, LinearHead]:
    """The prompt u, (S,), in [0, 1] and the multiple of a separating head that are right for every belief.

    A must be a permutation, so that any d can be had: d = |μ / Wᵀb|, and 0 where μ is; then δ = 0.
    ValueError where A is none, or the head's score of a state has another sign than μ.
    """
    mu, reaches, scores = as_mu(model, mu, HMM), _reaches(model), head.weights.to(model.emission) @ model.emission
    if not ((model.transition == 0) | (model.transition == 1)).all() or not reaches.any(0).all():
        raise ValueError("model must have a permutation as transition: with another, not every reweighting can be had")
    if wrong := ((scores.sign() != mu.sign()) & (mu != 0)).nonzero().flatten().tolist():
        raise ValueError(f"head must score each state with the sign of mu; for these states it does not: {wrong}")
    diagonal = torch.where(mu != 0, mu / scores, 0)  # d
    prompt = model.transition.T @ (diagonal / reaches.sum(1))
    return prompt / prompt.max(), LinearHead(head.weights * prompt.max())


# How a prompt can change which tokens stand for a state, which no fake token can


def signal_for(words: Sequence[int], n_tokens: int) -> Float[Tensor, "X S"]:
    """The signal with which the token `words[h]` stands for state h, (X, S) of zeros and ones, float64."""
    return torch.nn.functional.one_hot(torch.as_tensor(words), n_tokens).T.double()


def gated_readout(
    emission: Float[Tensor, "X S"], beliefs: Float[Tensor, "n S"], signal: Float[Tensor, "X S"] | None = None
) -> Float[Tensor, "n X"]:
    """What a network of |X||H| gated units predicts from beliefs p, (n, S), with W the `emission`, (X, S): (n, X).

    Without a signal, W p. Unit (x, h) is max(0, p_h + signal_xh - 1): p_h where the signal is 1, and 0 where it is 0.
    It adds to the prediction of token x, and takes back what state h contributed before, the column W_:h. So with a
    prompt whose signal R has one 1 for each state, the network predicts R p; a state without keeps its column of W.
    No weight depends on R.
    """
    beliefs = beliefs.to(emission)
    if signal is None:
        return beliefs @ emission.T
    gates = (beliefs.unsqueeze(1) + signal.to(emission) - 1).relu()  # (n, X, S)
    return beliefs @ emission.T + gates.sum(2) - gates.sum(1) @ emission.T
