"""Classification heads: what is trained, or constructed, on top of a frozen masked language model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hmmlib.models.hmm import unlift
from hmmlib.validation import FINITE, as_parameter, as_rows, as_tensor, at_least, between

ZERO = 16
"""Scores within this many rounding units of the sum of their terms' sizes are zero: so a tie is label 1, not a guess."""


def unless_rounding(score: Tensor, size: Tensor) -> Tensor:
    """The score, or exactly 0 where it is no larger than the rounding of a sum of terms of that `size`; same gradient."""
    small = score.detach().abs() <= ZERO * torch.finfo(score.dtype).eps * size
    return torch.where(small, score - score.detach(), score)


@dataclass(frozen=True, eq=False)
class LinearHead:
    """The linear head of Section 3: score b·p, label 1 where the score is ≥ 0.

    `weights` is b, (X,). `condition` is the condition number of the left inverse that a construction went through
    (1 where there was none): scores carry a relative error of about `condition` times the rounding unit.
    """

    weights: Tensor
    condition: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", as_parameter("weights", self.weights, 1))
        if not len(self.weights):
            raise ValueError("weights must have one entry for each token, and not be empty")
        between("condition", self.condition, 0)

    def __call__(self, probs) -> Tensor:
        """Scores (n,) of token distributions (n, X); 0 where within rounding of it. ValueError for another shape."""
        probs = as_rows("probs", probs, len(self.weights), 2, like=self.weights)
        return unless_rounding(probs @ self.weights, probs @ self.weights.detach().abs())

    def label(self, probs) -> Tensor:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs) >= 0


TIES = 256
"""Scores within this many rounding units of the largest, times the head's condition, count as equal to it."""


@dataclass(frozen=True, eq=False)
class AttentionHead:
    """The attention head of Section 4.1, with arg-max over positions as in (4.1) and (4.2).

    Position i scores qᵀ(Θ^(K) p_i + β_i); the head averages bᵀ((Θ^(V) p_i) ⊙ φ(v_i)) over the positions of the largest
    score, where p_i is a token distribution and v_i an embedding.

    Args:
        query: q, (H+1,). key: Θ^(K), (H+1, X). value: Θ^(V), (M*H, X). output: b, (M*H,).
        positions: β_1, β_2, … as rows, (P, H+1); zero from position P + 1 on.
        condition: condition number of the left inverse that a construction went through. Scores that differ by less
            than rounding times this are ties.
        n_cells: N; embeddings may then be lifted, and φ of (D.4) is applied to them.

    ValueError where the shapes do not fit each other.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    positions: Tensor | None = None
    condition: float = 1.0
    n_cells: int = 1

    def __post_init__(self) -> None:
        between("condition", self.condition, 0)
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
        for name, parameter in parameters.items():
            object.__setattr__(self, name, parameter)
        self._check_shapes()

    def _check_shapes(self) -> None:
        width, tokens, n_states = len(self.query), self.key.shape[1], len(self.query) - 1
        shapes = {
            "key": (self.key, (width, tokens)),
            "value": (self.value, (len(self.output), tokens)),
            "positions": (self.positions, (len(self.positions), width)),
        }
        for name, (parameter, shape) in shapes.items():
            if tuple(parameter.shape) != shape:
                raise ValueError(f"{name} must have shape {shape} to match the others, not {tuple(parameter.shape)}")
        if n_states < 1 or len(self.output) % n_states or not len(self.output):
            raise ValueError(f"output must have a multiple of |H| = {n_states} entries, not {len(self.output)}")
        if n_states % self.n_cells:
            raise ValueError(f"n_cells must divide |H| = {n_states}, as each cell has its states, not {self.n_cells}")
        parameters = (self.query, self.key, self.value, self.output, self.positions)
        types = {(parameter.dtype, parameter.device) for parameter in parameters}
        if len(types) > 1:
            raise ValueError(f"a head's parts must share one dtype and one device, not {sorted(map(str, types))}")

    def _probs(self, probs) -> Tensor:
        return as_rows("probs", probs, self.key.shape[1], 3, like=self.key)

    def scores(self, probs) -> Tensor:
        """Attention scores qᵀ(K(p_i) + β_i) of (4.1), (n, T), for distributions (n, T, X)."""
        probs = self._probs(probs)
        scores = probs @ (self.key.T @ self.query)
        placed = min(len(self.positions), scores.shape[1])
        return torch.cat([scores[:, :placed] + self.positions[:placed] @ self.query, scores[:, placed:]], 1)

    def attended(self, probs) -> Tensor:
        """The set 𝓘 of (4.1), bool (n, T): positions of the largest score, ties to rounding included."""
        scores = self.scores(probs)
        largest = scores.amax(1, keepdim=True)
        slack = TIES * torch.finfo(scores.dtype).eps * self.condition * largest.abs().clamp(min=1)
        return scores >= largest - slack  # (4.1)

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

    def values(self, probs, embeddings) -> Tensor:
        """V(p_i, v_i), (n, T), 0 where within rounding of it. `embeddings` are (n, T, M*H), or lifted, (n, T, M^N * H)."""
        probs, embeddings = self._inputs(probs, embeddings)
        values = ((probs @ self.value.T) * embeddings) @ self.output
        with torch.no_grad():
            # What Θ^(V) reads is off by its own rounding, and by that of the left inverse it came from.
            read = probs @ self.value.abs().T + self.condition * probs.sum(-1, keepdim=True)
            size = (read * embeddings) @ self.output.abs()
        return unless_rounding(values, size)

    def __call__(self, probs, embeddings) -> Tensor:
        """Attn of (4.2), scores (n,): the mean of V over the attended positions."""
        chosen = self.attended(probs)
        return (self.values(probs, embeddings) * chosen).sum(1) / chosen.sum(1)  # (4.2)

    def soft(self, probs, embeddings, sharpness: float) -> Tensor:
        """The head with softmax(sharpness * scores) in place of the arg-max, (n,): its limit as ‖q‖ → ∞ is the head."""
        between("sharpness", sharpness, 0, FINITE)
        weights = (sharpness * self.scores(probs)).softmax(1)
        return (self.values(probs, embeddings) * weights).sum(1)

    def label(self, probs, embeddings) -> Tensor:
        """Labels (n,), bool: whether the score is ≥ 0."""
        return self(probs, embeddings) >= 0
