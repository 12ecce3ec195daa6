"""The proofs as constructions: from a model and μ to the head that a theorem says exists."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hmmlib.assumptions import assumption_3_1, assumption_3_2
from hmmlib.heads import LinearHead
from hmmlib.hmm import HMM


def as_weights(mu, length: int, like: Tensor) -> Tensor:
    """μ as a tensor (length,), of the dtype and device of `like`. ValueError for another shape, NaN, or only zeros."""
    mu = mu if isinstance(mu, Tensor) else torch.as_tensor(np.asarray(mu, dtype=float))
    if mu.shape != (length,):
        raise ValueError(f"mu must have shape ({length},), one weight for each state, not {tuple(mu.shape)}")
    mu = mu.to(like)
    if not torch.isfinite(mu).all():
        raise ValueError("mu must be finite, but holds NaN or infinity")
    if not mu.any():
        raise ValueError("mu must not be all zero: every input would get label 1")
    return mu


def claim_b_1(model: HMM, i: int) -> Tensor:
    """The diagonal of D in Claim B.1, P[H_i] / P[H_0], shape (S,): P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x].

    ValueError where P[H_0] has no full support.
    """
    if not (model.initial > 0).all():
        raise ValueError("Claim B.1 divides by P[H_0], which is zero in some state")
    return model.marginal(i) / model.initial


def theorem_3_3(model: HMM, mu) -> LinearHead:
    """The head b = W†ᵀ D⁻¹ μ of Theorem 3.3 (proof in appendix B), to be applied to G_1 of (MASK, x).

    Its score is μᵀP[H_0 | X_{1:T} = x] times a positive r_x. W† is the pseudoinverse, which is a left inverse here.

    Args:
        mu: the task's weights on the hidden states, (S,), not all zero.

    Raises:
        AssumptionError: the columns of W are dependent (3.1), or the chain is not regular (3.2).
        ValueError: `mu` has another length, is not finite, or is all zero.
    """
    if not isinstance(model, HMM):
        raise TypeError(f"theorem_3_3 is about an HMM, not {type(model).__name__}")
    mu = as_weights(mu, model.n_states, model.emission)
    assumption_3_2(model).require()
    independent = assumption_3_1(model)
    independent.require()
    left_inverse = torch.linalg.pinv(model.emission)
    return LinearHead(left_inverse.T @ (mu / claim_b_1(model, 1)), independent.condition)
