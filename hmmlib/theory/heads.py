"""Classification heads: what is trained, or constructed, on top of a frozen masked language model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.models.hmm import unlift
from hmmlib.validation import as_labels, as_tensor, integer, number, of_shape

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

ZERO = 16
"""A probability, or a sum of terms of that size, is known to within this many rounding units of it, relatively."""


class UnsureHead(UserWarning):
    """A head was built whose own error exceeds every score that it can give: each label would be a guess."""


def share_right(found: Tensor, labels) -> float:
    """The share of labels, (n,), that were found, (n,) bool."""
    return (found == as_labels(labels, len(found)).to(found.device)).double().mean().item()


def unit(dtype: torch.dtype, length: int = 1) -> float:
    """The relative error that a probability given a text of that length, or a sum of numbers of one sign, may have.

    Each token may add a rounding unit, and those of a chain with tiny leaks do not cancel.
    """
    return (ZERO + length) * torch.finfo(dtype).eps


def unless_within(score: Tensor, bound: Tensor) -> Tensor:
    """The score, or exactly 0 where it is no larger than its `bound`; same gradient."""
    return torch.where(score.detach().abs() <= bound, score - score.detach(), score)


STEPS = 24
"""Times at most that a linear system's residual is solved for again; each divides it by about 10^16 / condition."""


def _refined(left_inverse: Tensor, columns: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """W†ᵀ target, (X,), with what rounding leaves of Wᵀb = target solved for again; and what is left then, (k,)."""
    weights, left, precision = torch.zeros_like(columns[:, 0]), target, torch.finfo(target.dtype)
    for _ in range(STEPS):
        weights = weights + left_inverse.T @ left
        weights = torch.where(weights.abs() < precision.tiny / precision.eps**2, 0, weights)  # it would never end
        left = target - columns.T @ weights
        if (left.abs() <= precision.eps * (columns.T @ weights.abs())).all():
            break
    return weights, left.abs()


def _set(head: LinearHead | AttentionHead, **parts: Tensor) -> None:
    """Put parts into a frozen dataclass: copies, so that nobody changes them from outside, but of what is trained."""
    for name, part in parts.items():
        object.__setattr__(head, name, part if part.requires_grad else part.clone())


@dataclass(frozen=True, eq=False)
class LinearHead:
    """The linear head of Section 3: score b·p, label 1 where the score is ≥ 0.

    A score within `bound(p)` of zero counts as zero, so that a tie has label 1; `sure(p)` is true where it is beyond.

    `weights` is b, (X,). `condition` is the condition number of the left inverse that a construction went through (1
    where there was none). `error`, (X,), bounds the error of the weights: error·p is at least what is missing in b·p
    (zero where it is None). ValueError where the shapes do not fit each other.
    """

    weights: Float[Tensor, " X"]
    condition: float = 1.0
    error: Float[Tensor, " X"] | None = None

    def __post_init__(self) -> None:
        weights = as_tensor("weights", self.weights, 1, signed=True)
        number("condition", self.condition, 0)
        error = torch.zeros_like(weights.detach()) if self.error is None else self.error
        error = of_shape("error", as_tensor("error", error, like=weights, signed=True), tuple(weights.shape))
        _set(self, weights=weights, error=error)

    @classmethod
    def by_left_inverse(cls, columns: Tensor, target: Tensor, condition: float) -> LinearHead:
        """The head that gives W q, for every q ≥ 0, the score target·q: b = W†ᵀ target, with W, (X, k), the `columns`.

        Where the pseudoinverse W† is a left inverse, b solves Wᵀb = target, and what its rounding leaves of that
        equation bounds the error of a score. Warns, as `UnsureHead`, where no score exceeds that bound.
        """
        left_inverse = torch.linalg.pinv(columns)
        weights, missing = _refined(left_inverse, columns, target)
        error, left = _refined(left_inverse, columns, 2 * missing + unit(target.dtype) * target.abs())
        # What is left belongs to a state, and whatever token it emits may stand for it.
        head = cls(weights, condition, error + (left * (columns > 0)).amax(1))
        if (target.abs() <= head.bound(columns.T)).all():
            words = f"no score of this head exceeds its error: the columns of W have condition {condition:.2g}"
            warnings.warn(words, UnsureHead, stacklevel=3)
        return head

    def _scored(self, probs, length: int) -> tuple[Tensor, Tensor]:
        """Scores and their bounds."""
        integer("length", length, 1)
        probs = of_shape("probs", as_tensor("probs", probs, like=self.weights), (None, len(self.weights)))
        with torch.no_grad():
            sizes = probs @ (self.weights.abs() + self.error.abs())
            bounds = (probs @ self.error).clamp(min=0) + unit(probs.dtype, length) * sizes
        return probs @ self.weights, bounds

    def __call__(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Float[Tensor, " n"]:
        """Scores (n,) of token distributions (n, X); 0 where within their bound. ValueError for another shape.

        `length` is that of the text that the distributions are conditioned on: the longer, the more they may be off.
        The default suits texts of up to some ten tokens; with longer ones a score of 0 may be missed.
        """
        return unless_within(*self._scored(probs, length))

    def label(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Bool[Tensor, " n"]:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs, length) >= 0

    predict = label

    def score(self, probs: Float[ArrayLike, "n X"], labels: Bool[ArrayLike, " n"]) -> float:
        """Accuracy, by scikit-learn's name: the share of `labels` that `predict` returns. The call gives scores b·p."""
        return share_right(self.predict(probs), labels)

    def bound(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Float[Tensor, " n"]:
        """By how much a score may be off, (n,): rounding of `probs` and of the sum, and the error of the weights."""
        return self._scored(probs, length)[1]

    def sure(self, probs: Float[ArrayLike, "n X"], length: int = 1) -> Bool[Tensor, " n"]:
        """Where the score is beyond its bound, (n,), bool: elsewhere its label 1 is right for a tie, or a guess."""
        return self(probs, length) != 0


@dataclass(frozen=True, eq=False)
class AttentionHead:
    """The attention head of Section 4.1, with arg-max over positions as in (4.1) and (4.2).

    Position i scores qᵀ(Θ^(K) p_i + β_i); the head averages bᵀ((Θ^(V) p_i) ⊙ φ(v_i)) over the positions of the
    largest score, where p_i is a token distribution and v_i an embedding. A position is attended if its score may be
    the largest, given the bounds of all; a value within its bound is zero. Where all attended values are beyond their
    bounds and of one sign, the label is that of the exact head, whichever of them it attends to: `sure` is true there.

    Args:
        query: q, (H+1,). key: Θ^(K), (H+1, X). value: Θ^(V), (M*H, X). output: b, (M*H,).
        positions: β_1, β_2, … as rows, (P, H+1); zero from position P + 1 on.
        condition: condition number of the left inverse that a construction went through.
        n_cells: N; embeddings may then be lifted, and φ of (D.4) is applied to them.
        key_error: by how much qᵀΘ^(K)p may be off because of Θ^(K), for a distribution p.
        value_error: likewise each entry of Θ^(V)p, (M*H,); zero where it is None.
        drift: the relative error of the probabilities p beyond rounding: that of a start which is nearly stationary.

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
        query = as_tensor("query", self.query, 1, signed=True)
        key, value = (as_tensor(name, getattr(self, name), like=query, signed=True) for name in ("key", "value"))
        output = as_tensor("output", self.output, 1, like=query, signed=True)
        positions = query.new_zeros(0, len(query)) if self.positions is None else self.positions
        positions = as_tensor("positions", positions, empty=True, like=query, signed=True)
        error = torch.zeros_like(output.detach()) if self.value_error is None else self.value_error
        error = as_tensor("value_error", error, like=query)
        of_shape("key", key, (len(query), None))
        of_shape("value", value, (len(output), key.shape[1]), " to match output and key")
        of_shape("positions", positions, (None, len(query)), " to match query")
        of_shape("value_error", error, tuple(output.shape), " to match output")
        for name in ("condition", "key_error", "drift"):
            number(name, getattr(self, name), 0)
        n_states, n_cells = len(query) - 1, integer("n_cells", self.n_cells, 1)
        if n_states < 1 or len(output) % n_states or n_states % n_cells:
            raise ValueError(
                f"output must have a multiple of |H| entries and n_cells must divide |H|, which is {n_states}, "
                f"not {len(output)} entries and {n_cells} cells"
            )
        _set(self, query=query, key=key, value=value, output=output, positions=positions, value_error=error)

    def _probs(self, probs) -> Tensor:
        return of_shape("probs", as_tensor("probs", probs, like=self.key), (None, None, self.key.shape[1]))

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
        """The set 𝓘 of (4.1), bool (n, T): positions of the largest score, or that may have it given their bounds."""
        probs = self._probs(probs).detach()
        scores, sizes = self.scores(probs).detach(), probs @ (self.key.abs().T @ self.query.abs())
        sizes = self._with_positions(sizes, self.positions.abs() @ self.query.abs())
        bounds = self._unit(probs.shape[1]) * sizes.detach() + self.key_error * probs.sum(-1)
        return scores + bounds >= (scores - bounds).amax(1, keepdim=True)  # (4.1)

    def values(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Float[Tensor, "n T"]:
        """V(p_i, v_i), (n, T), 0 where within their bound. `embeddings`: (n, T, M*H), or lifted, (n, T, M^N * H)."""
        probs, embeddings = self._probs(probs), as_tensor("embeddings", embeddings, 3, like=self.key)
        width, n_states = len(self.output), len(self.query) - 1
        lifted = (width // n_states) ** self.n_cells * n_states
        if embeddings.shape[2] == lifted != width:
            embeddings = unlift(embeddings, self.n_cells, width // n_states)
        of_shape("embeddings", embeddings, (*probs.shape[:2], width), f", or {lifted} as its last entry")
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
        """The head with softmax(sharpness * scores) in place of the arg-max, (n,); the head is its limit."""
        number("sharpness", sharpness, 0)
        weights = (sharpness * self.scores(probs)).softmax(1)
        return (self.values(probs, embeddings) * weights).sum(1)

    def label(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Bool[Tensor, " n"]:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs, embeddings) >= 0

    def sure(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Bool[Tensor, " n"]:
        """Where rounding cannot change the label, (n,), bool: attended values are beyond their bounds, of one sign."""
        chosen, values = self.attended(probs), self.values(probs, embeddings)
        return ((values > 0) | ~chosen).all(1) | ((values < 0) | ~chosen).all(1)
