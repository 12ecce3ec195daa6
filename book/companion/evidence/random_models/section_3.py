"""Section 3 and appendix B: Proposition 3.4, Claim B.1, Theorem 3.3."""

from __future__ import annotations

import numpy as np
import torch

from companion.evidence.enumeration import conditional, normalised
from companion.evidence.random_models.instances import (
    all_inputs,
    draw_length,
    draw_weights,
    joint,
    non_degenerate,
    possible_inputs,
    recentred,
    shifted,
    start_without_a_state,
)
from companion.evidence.random_models.residuals import (
    Checked,
    both_signs,
    largest,
    mislabelled,
    no_head_fits,
    over,
    refused,
    tie_is_sure,
)
from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM
from hmmlib.theory.theorems import claim_b_1, theorem_3_3

# Proposition 3.4


def _decomposition_residual(table: np.ndarray) -> float:
    """How far P[U | V=v] is from P[U|Z] P[Z | V=v], and P[Z | V=v] from its recovery, in a joint table Pr(u, v, z)."""
    p_uz, p_z = table.sum(1), table.sum((0, 1))
    u_given_z = p_uz[:, p_z > 0] / p_z[p_z > 0]
    condition = np.linalg.cond(u_given_z) if np.linalg.matrix_rank(u_given_z) == u_given_z.shape[1] else np.inf
    residuals = [0.0]
    for given in table.transpose(1, 0, 2):  # Pr(u, z) with V = v
        if given.sum() == 0:
            continue
        u_given_v, z_given_v = normalised(given.sum(1)), normalised(given.sum(0))[p_z > 0]
        residuals.append(largest(u_given_v - u_given_z @ z_given_v))
        if np.isfinite(condition):
            recovered = np.linalg.pinv(u_given_z) @ u_given_v
            residuals.append(largest(recovered - z_given_v) / condition)
    return largest(*residuals)


def check_proposition_3_4(seed: int) -> Checked:
    """P[U | V=v] = P[U|Z] P[Z | V=v] for a joint table with U ⊥ V | Z, and P[Z | V=v] back from it by a left inverse."""
    rng, draw = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    n_u, n_v, n_z = rng.integers(1, 6, 3).tolist()
    prior = families.sparse_columns((n_z,), 0.3, draw)
    u_given_z, v_given_z = (families.sparse_columns((n, n_z), 0.4, draw) for n in (n_u, n_v))
    residual = _decomposition_residual(torch.einsum("z,uz,vz->uvz", prior, u_given_z, v_given_z).numpy())
    likely = (prior > 0).numpy()
    return Checked(
        residual, all(len(np.unique(part.numpy()[:, likely], axis=1).T) > 1 for part in (u_given_z, v_given_z))
    )


def control_proposition_3_4(seed: int) -> float:
    """The same on a table in which U depends on V beyond Z: all entries of Pr(u, v, z) are drawn freely."""
    draw = torch.Generator().manual_seed(seed)
    return _decomposition_residual(appendix_e.softmax_of_uniform((18,), 0.5, draw).reshape(3, 3, 2).numpy())


# Claim B.1


def _at_start_and_later(model: HMM, length: int, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Pr(x, H_0) and Pr(X_{i+1:T+i} = x, H_i) for every input, (inputs, S), by enumeration."""
    ones = np.ones(model.n_states)
    later = joint(model, [ones] * i + [None] * length)
    return joint(model, [None] * length).given_input("h0"), later.given_input(f"h{i}")


def check_claim_b_1(seed: int) -> Checked:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x] with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x) > 0.

    The left side is the library's, from messages; the right side is enumerated, but for D. So are Pr(X_{1:T} = x) and
    Pr(X_{i+1:T+i} = x).
    """
    rng = np.random.default_rng(seed)
    n_states, n_tokens = (int(rng.integers(1, 4)) for _ in range(2))
    model = families.regular_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.7)
    i, length = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    start, later = _at_start_and_later(model, length, i)
    possible = start.sum(1) > 0
    if (later.sum(1)[possible] == 0).any():
        return Checked(np.inf, True)  # then r_x would not be positive and finite
    inputs = all_inputs(n_tokens, length)[torch.as_tensor(possible)]
    left = posterior(model, shifted(inputs, i), at=i).numpy()
    ratio = (start.sum(1)[possible] / later.sum(1)[possible])[:, None]
    chances = [log_likelihood(model, x).exp().numpy() for x in (inputs, shifted(inputs, i))]
    right = ratio * claim_b_1(model, i).numpy() * conditional(start)[possible]
    sizes = largest(chances[0] - start.sum(1)[possible], chances[1] - later.sum(1)[possible])
    residual = largest(left - right, conditional(later)[possible] - right, sizes)
    return Checked(residual, largest(left - conditional(start)[possible]) > 1e-3)


def control_claim_b_1(seed: int) -> float:
    """P[H_0] misses a state that H_1 can be in: P[H_0 | x] is zero there, D or no D, and P[H_1 | X_{2:T+1} = x] is not."""
    model, missing = start_without_a_state(seed)
    here, later = _at_start_and_later(model, 2, 1)
    return float((conditional(later)[:, missing] * (here.sum(1) > 0)).max())


# Theorem 3.3


def shifted_g_1(model: HMM, inputs: torch.Tensor) -> torch.Tensor:
    """G_1 of x' = (MASK, x), (n, X): what Theorem 3.3's head reads."""
    return masked_token_probs(model, shifted(inputs, 1))[:, 0]


def check_theorem_3_3(seed: int) -> Checked:
    """bᵀG_1(x') = r_x μᵀP[H_0 | x] with r_x = Pr(X_{1:T} = x) / Pr(X_{2:T+1} = x) > 0, and the label of its sign.

    For every possible x of a length; the scale of errors is that of W†ᵀ D⁻¹ μ, worked out here, and a label counts where
    its score is beyond a few roundings of that scale, or is exactly 0. Where the target is rounding alone, no label is sure.
    Not trivial if both labels occur among those that count.
    """
    rng = np.random.default_rng(seed)
    model = non_degenerate(rng, seed)
    length = draw_length(rng, model, 3, extra=1)
    start, later = _at_start_and_later(model, length, 1)
    possible, beliefs = start.sum(1) > 0, conditional(start)
    mu = recentred(draw_weights(rng, model.n_states), beliefs)
    head = theorem_3_3(model, mu)
    if (later.sum(1)[possible] == 0).any():
        return Checked(np.inf, True)
    probs = shifted_g_1(model, all_inputs(model.n_tokens, length))[possible]
    target = over(start @ mu.numpy(), later.sum(1))[possible]
    diagonal = (model.transition @ model.initial / model.initial).numpy()
    left_inverse = np.linalg.pinv(model.emission.numpy(), rcond=0)  # no singular value is too small: none is zero
    scale = max(1.0, np.linalg.norm(left_inverse.T @ (mu.numpy() / diagonal)))
    size = max(mu.abs().max().item(), 1e-6 * scale)
    wrong = mislabelled(head.label(probs), target, size)
    unsure = tie_is_sure(mu, beliefs[possible], lambda tied, k: theorem_3_3(model, tied).sure(probs)[k])
    return Checked(max(largest(head(probs).numpy() - target) / scale, wrong, unsure), both_signs(target, size))


def balanced(target: torch.Tensor) -> torch.Tensor:
    """Labels that split the inputs near the middle, in the widest gap there; all 1 where rounding is all the gap."""
    ordered = target.sort().values
    low, high = len(ordered) // 4, max(len(ordered) // 4 + 2, 3 * len(ordered) // 4)
    gaps = ordered[low:high].diff()
    widest = low + int(gaps.argmax())
    if gaps.max() <= 1e-12 * ordered.abs().max():
        return torch.ones_like(target, dtype=torch.bool)
    return target > (ordered[widest] + ordered[widest + 1]) / 2


def control_theorem_3_3(seed: int) -> float:
    """Dependent columns, and a task that splits the inputs near the middle: 1 where a linear program refutes every head.

    And the construction refuses the model. Half of the models have as many tokens as states, half fewer.
    """
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(3, 5))
    model = families.dependent_hmm(n_states, n_states - seed % 2, seed)
    weights = torch.as_tensor(rng.normal(size=n_states))
    inputs, beliefs = possible_inputs(model, 3)
    # Posteriors sum to 1, so that a label by a threshold is a task of the form (3.1) too.
    refuted = no_head_fits([shifted_g_1(model, inputs)], balanced(beliefs @ weights))
    return float(refuted and refused(theorem_3_3, model, torch.ones(n_states)))
