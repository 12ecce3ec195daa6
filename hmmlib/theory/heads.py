"""Classification heads: what is trained, or constructed, on top of a frozen masked language model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.models.hmm import unlift
from hmmlib.validation import FINITE, alike, as_parameter, as_rows, as_tensor, at_least, between, of_shape

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

ZERO = 16
"""A probability, or a sum of terms of that size, is known to within this many rounding units of it, relatively."""


class UnsureHead(UserWarning):
    """A head was built whose own error exceeds every score that it can give: each label would be a guess."""


def unit(dtype: torch.dtype, length: int = 1) -> float:
    """The relative error that a probability behind a text of that length, or a sum of numbers of one sign, may have.

    Each token may add a rounding unit, and those of a chain with tiny leaks do not cancel.
    """
    return (ZERO + length) * torch.finfo(dtype).eps


def unless_within(score: Tensor, bound: Tensor) -> Tensor:
    """The score, or exactly 0 where it is no larger than its `bound`; same gradient."""
    return torch.where(score.detach().abs() <= bound, score - score.detach(), score)


STEPS = 24
"""Times at most that a linear system's residual is solved for again: each makes it smaller by about 10^16 / condition."""


def _refined(left_inverse: Tensor, columns: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """W†ᵀ target, (X,), with what W†'s rounding leaves of Wᵀb = target solved for again; and what is left then, (k,)."""
    weights, left, precision = torch.zeros_like(columns[:, 0]), target, torch.finfo(target.dtype)
    for _ in range(STEPS):
        weights = weights + left_inverse.T @ left
        weights = torch.where(weights.abs() < precision.tiny / precision.eps**2, 0, weights)  # it would never end
        left = target - columns.T @ weights
        if (left.abs() <= precision.eps * (columns.T @ weights.abs())).all():
            break
    return weights, left.abs()


@dataclass(frozen=True, eq=False)
class LinearHead:
    """The linear head of Section 3: score b·p, label 1 where the score is ≥ 0.

    A score within `bound(p)` of zero counts as zero, so that a tie has label 1; `sure(p)` says where it is beyond, and the
    label no guess.

    `weights` is b, (X,). `condition` is the condition number of the left inverse that a construction went through (1 where
    there was none). `error`, (X,), says how well the weights are known: an upper bound on what is missing in b·p is
    error·p (zero where they are what they are).
    """

    weights: Float[Tensor, " X"]
    condition: float = 1.0
    error: Float[Tensor, " X"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", as_parameter("weights", self.weights, 1))
        if not len(self.weights):
            raise ValueError("weights must have one entry for each token, and not be empty")
        between("condition", self.condition, 0)
        error = torch.zeros_like(self.weights.detach()) if self.error is None else as_parameter("error", self.error, 1)
        object.__setattr__(self, "error", of_shape("error", error, (len(self.weights),), " to match weights"))
        alike("a head's parts", self.weights, error)

    @classmethod
    def reading(cls, columns: Tensor, target: Tensor, condition: float) -> LinearHead:
        """The head that gives W q, for every q ≥ 0, the score target·q: b = W†ᵀ target, (X,), for `columns` W, (X, k).

        W† is the pseudoinverse: where it is a left inverse, b solves Wᵀb = target, and what its rounding leaves of that
        equation bounds the error of a score. Warns, as `UnsureHead`, where no score exceeds that bound.
        """
        left_inverse = torch.linalg.pinv(columns)
        weights, missing = _refined(left_inverse, columns, target)
        error, left = _refined(left_inverse, columns, 2 * missing + unit(target.dtype) * target.abs())
        # What is left belongs to a state, and whatever token it emits may stand for it.
        head = cls(weights, condition, error + (left * (columns > 0)).amax(1))
        if (target.abs() <= head.bound(columns.T)).all():
            warnings.warn(
                f"no score of this head exceeds its error: the columns of W have condition {condition:.2g}",
                UnsureHead,
                stacklevel=3,
            )
        return head

    def _scored(self, probs, length: int) -> tuple[Tensor, Tensor]:
        """Scores and their bounds."""
        at_least("length", length, 1)
        probs = as_rows("probs", probs, len(self.weights), 2, like=self.weights)
        with torch.no_grad():
            sizes = probs @ (self.weights.abs() + self.error.abs())
            bounds = (probs @ self.error).clamp(min=0) + unit(probs.dtype, length) * sizes
        return probs @ self.weights, bounds

    def __call__(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Float[Tensor, " n"]:
        """Scores (n,) of token distributions (n, X); 0 where within their bound. ValueError for another shape.

        `length` is that of the text that the distributions are conditioned on: the longer, the more they may be off. What
        is not said does for texts of some ten tokens, and for most of any length.
        """
        return unless_within(*self._scored(probs, length))

    def label(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Bool[Tensor, " n"]:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs, length) >= 0

    def bound(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Float[Tensor, " n"]:
        """By how much a score may be off, (n,): rounding of `probs` and of the sum, and the error of the weights."""
        return self._scored(probs, length)[1]

    def sure(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Bool[Tensor, " n"]:
        """Where the score is beyond its bound, (n,), bool: elsewhere it is 0, and its label a guess, or right for a tie."""
        return self(probs, length) != 0


@dataclass(frozen=True, eq=False)
class AttentionHead:
    """The attention head of Section 4.1, with arg-max over positions as in (4.1) and (4.2).

    Position i scores qᵀ(Θ^(K) p_i + β_i); the head averages bᵀ((Θ^(V) p_i) ⊙ φ(v_i)) over the positions of the largest
    score, where p_i is a token distribution and v_i an embedding.

    What is *sure* in floats is what its bound cannot change. A position is attended if its score may be the largest, given
    the bounds of all; a value within its bound is zero; and `sure` says where all that is attended has values of one sign
    beyond their bounds, so that the label is that of the exact head, whichever of them it attends to.

    Args:
        query: q, (H+1,). key: Θ^(K), (H+1, X). value: Θ^(V), (M*H, X). output: b, (M*H,).
        positions: β_1, β_2, … as rows, (P, H+1); zero from position P + 1 on.
        condition: condition number of the left inverse that a construction went through.
        n_cells: N; embeddings may then be lifted, and φ of (D.4) is applied to them.
        key_error: by how much qᵀΘ^(K)p may be off because of Θ^(K), for a distribution p.
        value_error: likewise each entry of Θ^(V)p, (M*H,); zero where it is None.
        drift: the relative error of the probabilities p that is not rounding: that of a start which is nearly stationary.

    ValueError where the shapes do not fit each other.
    """

    query: Float[Tensor, " H+1"]
    key: Float[Tensor, "H+1 X"]
    value: Float[Tensor, "M*H X"]
    output: Float[Tensor, " M*H"]
    positions: Float[Tensor, "P H+1"] | None = None
    condition: float = 1.0
    n_cells: int = 1
    key_error: float = 0.0
    value_error: Float[Tensor, " M*H"] | None = None
    drift: float = 0.0

    def __post_init__(self) -> None:
        between("condition", self.condition, 0)
        for name in ("key_error", "drift"):
            between(name, getattr(self, name), 0, FINITE)
        at_least("n_cells", self.n_cells, 1)
        query = as_parameter("query", self.query, 1)
        positions = query.new_zeros(0, len(query)) if self.positions is None else self.positions
        positions = as_parameter("positions", positions, 2)
        parameters = {
            "query": query,
            "key": as_parameter("key", self.key, 2),
            "value": as_parameter("value", self.value, 2),
            "output": as_parameter("output", self.output, 1),
            "positions": positions if positions.numel() else positions.to(query),
        }
        nothing = torch.zeros_like(parameters["output"].detach())
        error = nothing if self.value_error is None else as_parameter("value_error", self.value_error, 1)
        if (error < 0).any():
            raise ValueError(f"value_error must be nonnegative, but its smallest entry is {error.min().item():.6g}")
        parameters["value_error"] = error
        for name, parameter in parameters.items():
            object.__setattr__(self, name, parameter)
        self._check_shapes()

    def _check_shapes(self) -> None:
        width, tokens, n_states = len(self.query), self.key.shape[1], len(self.query) - 1
        shapes = {
            "key": (self.key, (width, tokens)),
            "value": (self.value, (len(self.output), tokens)),
            "positions": (self.positions, (len(self.positions), width)),
            "value_error": (self.value_error, (len(self.output),)),
        }
        for name, (parameter, shape) in shapes.items():
            if tuple(parameter.shape) != shape:
                raise ValueError(f"{name} must have shape {shape} to match the others, not {tuple(parameter.shape)}")
        if n_states < 1 or len(self.output) % n_states or not len(self.output):
            raise ValueError(f"output must have a multiple of |H| = {n_states} entries, not {len(self.output)}")
        if n_states % self.n_cells:
            raise ValueError(f"n_cells must divide |H| = {n_states}, as each cell has its states, not {self.n_cells}")
        alike("a head's parts", self.query, self.key, self.value, self.output, self.positions, self.value_error)

    def _probs(self, probs) -> Tensor:
        return as_rows("probs", probs, self.key.shape[1], 3, like=self.key)

    def _unit(self, length: int) -> float:
        return unit(self.key.dtype, length) + 2 * self.drift

    def _with_positions(self, scores: Tensor, positions: Tensor) -> Tensor:
        placed = min(len(positions), scores.shape[1])
        return torch.cat([scores[:, :placed] + positions[:placed], scores[:, placed:]], 1)

    def scores(self, probs: Float[ArrayLike, "n T X"]) -> Float[Tensor, "n T"]:
        """Attention scores qᵀ(K(p_i) + β_i) of (4.1), (n, T), for distributions (n, T, X)."""
        probs = self._probs(probs)
        return self._with_positions(probs @ (self.key.T @ self.query), self.positions @ self.query)

    def attended(self, probs: Float[ArrayLike, "n T X"]) -> Bool[Tensor, "n T"]:
        """The set 𝓘 of (4.1), bool (n, T): positions of the largest score, and those that may have it given their bounds."""
        probs = self._probs(probs).detach()
        scores, sizes = self.scores(probs).detach(), probs @ (self.key.abs().T @ self.query.abs())
        sizes = self._with_positions(sizes, self.positions.abs() @ self.query.abs())
        bounds = self._unit(probs.shape[1]) * sizes.detach() + self.key_error * probs.sum(-1)
        return scores + bounds >= (scores - bounds).amax(1, keepdim=True)  # (4.1)

    def _inputs(self, probs, embeddings) -> tuple[Tensor, Tensor]:
        """Both checked; lifted embeddings go through φ."""
        probs, embeddings = self._probs(probs), as_tensor("embeddings", embeddings, 3, like=self.key)
        width, n_states = len(self.output), len(self.query) - 1
        lifted = (width // n_states) ** self.n_cells * n_states
        if embeddings.shape[:2] != probs.shape[:2] or embeddings.shape[2] not in {width, lifted}:
            choice = " or ".join(map(str, sorted({width, lifted})))
            raise ValueError(
                f"embeddings must have shape ({', '.join(map(str, probs.shape[:2]))}, {choice}), "
                f"not {tuple(embeddings.shape)}"
            )
        if embeddings.shape[2] != width:
            embeddings = unlift(embeddings, self.n_cells, width // n_states)
        return probs, embeddings

    def values(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Float[Tensor, "n T"]:
        """V(p_i, v_i), (n, T), 0 where within their bound. `embeddings` are (n, T, M*H), or lifted, (n, T, M^N * H)."""
        probs, embeddings = self._inputs(probs, embeddings)
        values = ((probs @ self.value.T) * embeddings) @ self.output
        with torch.no_grad():
            rounded = self._unit(probs.shape[1]) * (probs @ self.value.abs().T)
            missed = self.value_error * probs.sum(-1, keepdim=True)
            bounds = ((rounded + missed) * embeddings) @ self.output.abs()
        return unless_within(values, bounds)

    def __call__(
        self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]
    ) -> Float[Tensor, " n"]:
        """Attn of (4.2), scores (n,): the mean of V over the attended positions."""
        chosen = self.attended(probs)
        return (self.values(probs, embeddings) * chosen).sum(1) / chosen.sum(1)  # (4.2)

    def soft(
        self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"], sharpness: float
    ) -> Float[Tensor, " n"]:
        """The head with softmax(sharpness * scores) in place of the arg-max, (n,): its limit as ‖q‖ → ∞ is the head."""
        between("sharpness", sharpness, 0, FINITE)
        weights = (sharpness * self.scores(probs)).softmax(1)
        return (self.values(probs, embeddings) * weights).sum(1)

    def label(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Bool[Tensor, " n"]:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs, embeddings) >= 0

    def sure(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Bool[Tensor, " n"]:
        """Where rounding cannot change the label, (n,), bool: all attended values are beyond their bounds, of one sign."""
        chosen, values = self.attended(probs), self.values(probs, embeddings)
        return ((values > 0) | ~chosen).all(1) | ((values < 0) | ~chosen).all(1)
