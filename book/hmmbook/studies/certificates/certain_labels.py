"""The certificate of a head: how far a prediction may be off before a label can be wrong.

Of a text x let p = P[H_0 | X_{1:T} = x]. Behind a prompt u the exact prediction is W (d ⊙ p) / dᵀp, where
d = A (u ⊙ P[H_1]) / P[H_0] (Lemma C.2). Without a prompt it is the same with d = P[H_1] / P[H_0] (Claim B.1). A head b
scores it νᵀp / dᵀp, where ν = d ⊙ Wᵀb. The label of the text is the sign of μᵀp. So if ν is near μ and a network's
prediction is near the exact one, the label is right where |μᵀp| is large enough. P[H_0] must be positive in each state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from hmmlib import HMM, LinearHead, claim_b_1
from hmmlib.theory.assumptions import as_mu
from hmmlib.theory.heads import unit
from hmmlib.validation import as_tensor, of_shape

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Certificate:
    """How far a head's scores with a prompt may be from those of a task, and still have the right sign."""

    mu: Tensor
    """The weights μ of the task, (S,)."""
    diagonal: Tensor
    """The d of the exact prediction W (d ⊙ p) / dᵀp, (S,)."""
    error: float
    """δ = ‖ν - μ‖∞."""
    spread: float
    """κ = (max b - min b) / 2."""
    rounding: Tensor
    """d ⊙ Wᵀt, (S,), where t, (X,), bounds the rounding of a score. It bounds the rounding of νᵀp."""
    largest_rounding: float
    """The largest entry of t."""

    def holds(
        self, posteriors: Float[ArrayLike, "n S"], distance: float | Float[ArrayLike, " n"]
    ) -> Bool[Tensor, " n"]:
        """Tell where a prediction is certain to have the right label: where |μᵀp| > δ + ε κ dᵀp.

        Let a prediction g̃ sum to 1 and lie within ε of the exact g. Then |b·g̃ - b·g| is at most ε κ, and
        dᵀp b·g = νᵀp is within δ of μᵀp. What rounding may add, also to the head's own score, is added on the right.

        Args:
            posteriors: The beliefs p, (n, S).
            distance: The L1 distance ε, from 0 to 2, one number or one for each text, (n,).

        Returns:
            Whether the label is certain, (n,), bool.

        Raises:
            ValueError: A distance is negative, or the posteriors have another shape.
        """
        beliefs = as_tensor("posteriors", posteriors, like=self.mu)
        of_shape("posteriors", beliefs, (None, len(self.mu)))
        distance = as_tensor("distance", distance, like=self.mu)
        weights = beliefs @ self.diagonal  # dᵀp
        bound = self.error + distance * self.spread * weights
        rounding_of_target = unit(self.mu.dtype, len(self.mu)) * self.mu.abs()
        rounding = beliefs @ (self.rounding + rounding_of_target)
        rounding = rounding + distance * self.largest_rounding * weights
        return (beliefs @ self.mu).abs() > bound + rounding


def as_diagonal(model: HMM, diagonal: Float[ArrayLike, " S"] | None) -> Tensor:
    """Check d, (S,). If it is left out, it is that of G_1, where no prompt stands before the text."""
    if diagonal is None:
        return claim_b_1(model, 1)
    diagonal = as_tensor("diagonal", diagonal, 1, like=model.initial)
    return of_shape("diagonal", diagonal, (model.n_states,))


def certificate(
    model: HMM, mu: Float[ArrayLike, " S"], head: LinearHead, diagonal: Float[Tensor, " S"] | None = None
) -> Certificate:
    """Compute the certificate of a head on W (d ⊙ p) / dᵀp.

    Args:
        model: The model.
        mu: The weights μ of the task, (S,).
        head: The head.
        diagonal: d, (S,). Behind a prompt u it is `lemma_c_2(model, u)`. If left out, it is that of G_1 without a
            prompt, `claim_b_1(model, 1)`.

    Raises:
        ValueError: μ or d has another shape.
    """
    mu = as_mu(model, mu, HMM)
    diagonal = as_diagonal(model, diagonal)
    weights = head.weights.to(model.initial)
    score = diagonal * (weights @ model.emission)  # ν

    # Sums of S and X terms have relative errors, and the head's weights have their own. The head rounds too, and it
    # counts a score as zero that is within the rounding of its longest text.
    error_of_weights = head.error * weights.abs().max()
    terms = model.n_states + model.n_tokens
    share = unit(weights.dtype, terms) + unit(weights.dtype, max(terms, head.length))
    bounds = error_of_weights + share * (weights.abs() + error_of_weights)  # t

    return Certificate(
        mu=mu,
        diagonal=diagonal,
        error=(score - mu).abs().max().item(),
        spread=(weights.max() - weights.min()).item() / 2,
        rounding=diagonal * (bounds @ model.emission),
        largest_rounding=bounds.max().item(),
    )
