"""Classification heads: what is trained, or constructed, on top of a frozen masked language model.

A head gives a text the label 1 where its score is ≥ 0, and otherwise the label 0. Floats are rounded, so a score that
is exactly zero in the paper may come out slightly negative. Therefore both heads follow one rule: a score counts as
zero where it is no larger than a tolerance, a small share of the size that its terms can have. The label of a tie is
then 1, as it should be, and `sure` is true where the score is beyond the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.models.hmm import unlift
from hmmlib.tensors import copied
from hmmlib.validation import as_labels, as_tensor, integer, number, of_shape

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

ROUNDING_UNITS = 16
"""How many rounding units a probability, or a sum of terms of one sign, may be off, relative to its size. `unit` adds
one for each token of the text."""
LONGEST_TEXT = 1024
"""How many tokens a text may have for a head that a theorem constructs. Each token may add a rounding unit."""
STEPS = 24
"""The largest number of steps in which a linear system is solved. Each step solves it for the residual of the step
before, and so divides the residual by about 10^16 / condition."""


def unit(dtype: torch.dtype, length: int = 1) -> float:
    """Return how far off a probability given a text may be, relative to its size. So may a sum of terms of one sign.

    That is `ROUNDING_UNITS` rounding units. Each token may add one more, because the columns of A sum to 1 only within
    rounding, and these errors add up.

    Args:
        dtype: The floats that were computed with.
        length: The number of tokens in the text.
    """
    return (ROUNDING_UNITS + length) * torch.finfo(dtype).eps


def zero_within(score: Tensor, tolerance: Tensor) -> Tensor:
    """Return the score, or exactly 0 where it is no larger than its tolerance. The gradient stays the same."""
    plain_score = score.detach()
    zero_with_gradient = score - plain_score
    return torch.where(plain_score.abs() <= tolerance, zero_with_gradient, score)


def share_right(predicted: Tensor, labels) -> float:
    """Return the share of the predicted labels, (n,) bool, that equal the labels, (n,)."""
    labels = as_labels(labels, len(predicted)).to(predicted.device)
    return (predicted == labels).double().mean().item()


def _own(tensor: Tensor) -> Tensor:
    """Copy a tensor, so that nobody changes the head from outside. A tensor that requires gradients stays itself."""
    return tensor if tensor.requires_grad else copied(tensor)


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A linear head of Section 3: the score is b·p, and the label is 1 where b·p ≥ 0.

    A score counts as zero where it is no larger than `tolerance(p)`, a small share of the size of its terms. Rounding
    could have changed the sign of such a score.

    Args:
        weights: b, (X,).
        condition: The condition number of the left inverse behind the weights, or 1 if there was none.
        error: By how much a score may be wrong beyond its own rounding, as a share of the largest weight.
        length: The number of tokens of the longest text that the tolerance allows for.

    Raises:
        ValueError: The weights are not a vector of finite numbers, or another argument is negative.

    Example:
        >>> from hmmlib import LinearHead
        >>> head = LinearHead([1.0, -1.0, 0.0])
        >>> probs = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]
        >>> head(probs)
        tensor([ 0.0000, -0.1000], dtype=torch.float64)
        >>> head.label(probs)
        tensor([ True, False])
        >>> head.sure(probs)
        tensor([False,  True])
    """

    weights: Float[Tensor, " X"]
    condition: float = 1.0
    error: float = 0.0
    length: int = 1

    def __post_init__(self) -> None:
        number("condition", self.condition, 0)
        number("error", self.error, 0)
        integer("length", self.length, 1)
        object.__setattr__(self, "weights", _own(as_tensor("weights", self.weights, 1, signed=True)))

    def _checked(self, probs) -> Tensor:
        probs = as_tensor("probs", probs, like=self.weights)
        return of_shape("probs", probs, (None, len(self.weights)))

    @without_autocast()
    def __call__(self, probs: Float[ArrayLike, "n X"]) -> Float[Tensor, " n"]:
        """Return the scores b·p, (n,), of token distributions, (n, X). A score within its tolerance is 0.

        Raises:
            ValueError: The distributions have another shape, or are not numbers ≥ 0.
        """
        probs = self._checked(probs)
        return zero_within(probs @ self.weights, self.tolerance(probs))

    def label(self, probs: Float[ArrayLike, "n X"]) -> Bool[Tensor, " n"]:
        """Return the labels, (n,) bool: whether b·p ≥ 0."""
        return self(probs) >= 0

    @without_autocast()
    def tolerance(self, probs: Float[ArrayLike, "n X"]) -> Float[Tensor, " n"]:
        """Return how large a score may be, (n,), and still count as zero."""
        probs = self._checked(probs)
        with torch.no_grad():
            rounding = unit(probs.dtype, self.length) * (probs @ self.weights.abs())
            return rounding + self.error * self.weights.abs().max() * probs.sum(1)

    def sure(self, probs: Float[ArrayLike, "n X"]) -> Bool[Tensor, " n"]:
        """Return where the score is beyond its tolerance, (n,) bool.

        Elsewhere the label is 1. That is right if the exact score is 0, and a guess if rounding hides its sign.
        """
        return self(probs) != 0

    predict = label

    def score(self, probs: Float[ArrayLike, "n X"], labels: Bool[ArrayLike, " n"]) -> float:
        """Return the accuracy, by scikit-learn's name: the share of the labels, (n,), that `predict` returns."""
        return share_right(self.predict(probs), labels)

    @classmethod
    @without_autocast()
    def by_left_inverse(cls, columns: Tensor, target: Tensor, condition: float) -> LinearHead:
        """Return the head that gives W q, for every q ≥ 0, the score target·q.

        Its weights are b = W†ᵀ target, which solve Wᵀb = target. The head's `error` is by how much rounding
        breaks that equation, as a share of the largest weight. If it is 1 or more, no score is beyond its tolerance, so
        the head is never sure. The tolerance allows for texts of LONGEST_TEXT tokens.

        Args:
            columns: W, (X, k), whose pseudoinverse is a left inverse.
            target: The scores of the columns, (k,).
            condition: The condition number of the columns.
        """
        weights, residual = _solve_transposed(columns, target)
        missing = 2 * residual.abs().max() / weights.abs().max()  # The residual itself is rounded, so it counts twice.
        return cls(weights, condition, missing.item(), LONGEST_TEXT)


def _solve_transposed(columns: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Solve Wᵀb = target by b = W†ᵀ target, and then again for the residual that rounding leaves.

    Returns:
        The weights b, (X,), and the residual of the equation, (k,).
    """
    precision = torch.finfo(target.dtype)
    too_small = precision.tiny / precision.eps**2
    left_inverse = torch.linalg.pinv(columns)
    weights = torch.zeros_like(columns[:, 0])
    residual = target
    for _ in range(STEPS):
        weights = weights + left_inverse.T @ residual
        # Where a weight should be zero, each step makes it smaller, but its error stays as large as the weight itself.
        # So the test below would fail until the weight is zero.
        weights = torch.where(weights.abs() < too_small, 0, weights)
        residual = target - columns.T @ weights
        sizes = columns.T @ weights.abs()
        if (residual.abs() <= precision.eps * sizes).all():
            break
    return weights, residual


@dataclass(frozen=True, eq=False)
class AttentionHead:
    """The attention head of Section 4.1, with arg-max over positions as in (4.1) and (4.2).

    Position i has a token distribution p_i and an embedding v_i. Its score is qᵀ(Θ^(K) p_i + β_i), and its value is
    bᵀ((Θ^(V) p_i) ⊙ φ(v_i)). The head's own score is the mean value of the attended positions, those of the largest
    score, and the label is 1 where that mean is ≥ 0.

    Each score and each value has a tolerance, a small share of the size that its terms can have. A position is attended
    if its score could be the largest when every score may be off by its tolerance. A value within its tolerance counts
    as zero.

    Args:
        query: q, (H+1,).
        key: Θ^(K), (H+1, X).
        value: Θ^(V), (M*H, X).
        output: b, (M*H,).
        positions: β_1, β_2, … as rows, (P, H+1). They are zero from position P + 1 on.
        condition: The condition number of the left inverse behind the parameters, or 1 if there was none.
        n_cells: N, the number of memory cells. If there are several, embeddings may be lifted, which means that they
            have an entry for each value of all cells together and each state. Then φ of (D.4) is applied to them.
        error: By how much a score or value may be wrong beyond its own rounding, as a share of its largest weight.

    Raises:
        ValueError: The shapes do not fit each other, or a number is negative.

    Example:
        >>> from hmmlib import AttentionHead
        >>> head = AttentionHead(query=[1, 0], key=[[1, 0], [0, 0]], value=[[1, 0], [-1, 2]], output=[1, 1])
        >>> probs, embeddings = [[[1.0, 0.0], [0.5, 0.5]]], [[[1.0, 0.0], [1.0, 1.0]]]
        >>> head.scores(probs)
        tensor([[1.0000, 0.5000]], dtype=torch.float64)
        >>> head.attended(probs)
        tensor([[ True, False]])
        >>> head(probs, embeddings)
        tensor([1.], dtype=torch.float64)
    """

    query: Float[Tensor, " H+1"]
    key: Float[Tensor, "H+1 X"]
    value: Float[Tensor, "M*H X"]
    output: Float[Tensor, " M*H"]
    positions: Float[Tensor, "P H+1"] | None = None
    condition: float = 1.0
    n_cells: int = 1
    error: float = 0.0

    def __post_init__(self) -> None:
        query = as_tensor("query", self.query, 1, signed=True)
        key = as_tensor("key", self.key, like=query, signed=True)
        value = as_tensor("value", self.value, like=query, signed=True)
        output = as_tensor("output", self.output, 1, like=query, signed=True)
        positions = query.new_zeros(0, len(query)) if self.positions is None else self.positions
        positions = as_tensor("positions", positions, empty=True, like=query, signed=True)
        of_shape("key", key, (len(query), None))
        of_shape("value", value, (len(output), key.shape[1]), " to match output and key")
        of_shape("positions", positions, (None, len(query)), " to match query")
        number("condition", self.condition, 0)
        number("error", self.error, 0)
        n_states = len(query) - 1
        n_cells = integer("n_cells", self.n_cells, 1)
        if n_states < 1 or len(output) % n_states or n_states % n_cells:
            raise ValueError(
                f"output must have a multiple of |H| entries, and n_cells must divide |H|, which is {n_states}, "
                f"the length of query less 1. But output has {len(output)} entries, and n_cells is {n_cells}"
            )
        object.__setattr__(self, "query", _own(query))
        object.__setattr__(self, "key", _own(key))
        object.__setattr__(self, "value", _own(value))
        object.__setattr__(self, "output", _own(output))
        object.__setattr__(self, "positions", _own(positions))

    def _checked(self, probs) -> Tensor:
        probs = as_tensor("probs", probs, like=self.key)
        return of_shape("probs", probs, (None, None, self.key.shape[1]))

    def _unlifted(self, embeddings, probs: Tensor) -> Tensor:
        """Check embeddings, and apply φ of (D.4) to lifted ones."""
        embeddings = as_tensor("embeddings", embeddings, 3, like=self.key)
        n_states = len(self.query) - 1
        n_memory = len(self.output) // n_states
        lifted_width = n_memory**self.n_cells * n_states
        is_lifted = embeddings.shape[2] == lifted_width and lifted_width != len(self.output)
        if is_lifted:
            embeddings = unlift(embeddings, self.n_cells, n_memory)
        shape = (*probs.shape[:2], len(self.output))
        return of_shape("embeddings", embeddings, shape, f", or {lifted_width} as its last entry")

    def _share(self, length: int) -> float:
        """Return the tolerance of a score or a value, as a share of the size of its terms."""
        return unit(self.key.dtype, length) + self.error

    def _with_positions(self, scores: Tensor, positions: Tensor) -> Tensor:
        """Add what the position embeddings contribute, (P,), to the scores of the first P positions."""
        n_placed = min(len(positions), scores.shape[1])
        placed = scores[:, :n_placed] + positions[:n_placed]
        return torch.cat([placed, scores[:, n_placed:]], 1)

    @without_autocast()
    def scores(self, probs: Float[ArrayLike, "n T X"]) -> Float[Tensor, "n T"]:
        """Return the attention scores qᵀ(Θ^(K) p_i + β_i) of (4.1), (n, T), for distributions (n, T, X)."""
        probs = self._checked(probs)
        from_keys = probs @ (self.key.T @ self.query)
        from_positions = self.positions @ self.query
        return self._with_positions(from_keys, from_positions)

    @without_autocast()
    def attended(self, probs: Float[ArrayLike, "n T X"]) -> Bool[Tensor, "n T"]:
        """Return which positions the set 𝓘 of (4.1) has, (n, T) bool. Their score is the largest, within tolerances."""
        probs = self._checked(probs).detach()
        scores = self.scores(probs).detach()
        with torch.no_grad():
            size_of_query = self.query.abs()
            largest_term = (size_of_query @ self.key.abs()).max()
            size_of_positions = self.positions.abs() @ size_of_query
            sizes = self._with_positions(largest_term * probs.sum(-1), size_of_positions)
        tolerances = self._share(probs.shape[1]) * sizes
        return scores + tolerances >= (scores - tolerances).amax(1, keepdim=True)  # (4.1)

    @without_autocast()
    def values(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Float[Tensor, "n T"]:
        """Return the values V(p_i, v_i), (n, T). A value within its tolerance is 0.

        Args:
            probs: Token distributions, (n, T, X).
            embeddings: Embeddings, (n, T, M*H), or lifted ones, (n, T, M^N * H).

        Raises:
            ValueError: The arrays have other shapes.
        """
        probs = self._checked(probs)
        embeddings = self._unlifted(embeddings, probs)
        values = ((probs @ self.value.T) * embeddings) @ self.output
        with torch.no_grad():
            largest_terms = self.value.abs().amax(1) * self.output.abs()
            sizes = (embeddings @ largest_terms) * probs.sum(-1)
        return zero_within(values, self._share(probs.shape[1]) * sizes)

    def __call__(
        self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]
    ) -> Float[Tensor, " n"]:
        """Return Attn of (4.2), the scores (n,): the mean of the values over the attended positions."""
        chosen = self.attended(probs)
        return (self.values(probs, embeddings) * chosen).sum(1) / chosen.sum(1)  # (4.2)

    def label(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Bool[Tensor, " n"]:
        """Return the labels, (n,) bool: whether the score is ≥ 0."""
        return self(probs, embeddings) >= 0

    def sure(self, probs: Float[ArrayLike, "n T X"], embeddings: Float[ArrayLike, "n T M*H"]) -> Bool[Tensor, " n"]:
        """Return where rounding cannot change the label, (n,) bool.

        All attended values are then beyond their tolerances and have one sign, so that the label is the same whichever
        of these positions the exact head attends to.
        """
        passed_over = ~self.attended(probs)
        values = self.values(probs, embeddings)
        all_positive = ((values > 0) | passed_over).all(1)
        all_negative = ((values < 0) | passed_over).all(1)
        return all_positive | all_negative
