"""Section 3 with appendices B and C: Proposition 3.4, Claim B.1, Lemmas C.1 and C.2, Theorems 3.3 and 3.6."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import Joint, conditional
from companion.evidence.random_models.instances import (
    Checked,
    all_inputs,
    both_signs,
    draw_length,
    draw_prompt,
    draw_weights,
    essential_instance,
    joint,
    largest,
    mislabelled,
    no_head_fits,
    non_degenerate,
    over,
    possible_inputs,
    recentred,
    refused,
    shifted,
    start_without_a_state,
    tie_is_sure,
    unscaled,
)
from hmmlib.inference.messages import aggregated_messages, log_likelihood, masked_token_probs, posterior, prompted
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM
from hmmlib.theory.theorems import claim_b_1, ground_truth, lemma_c_2, theorem_3_3, theorem_3_6


def _decomposition_residual(table: np.ndarray) -> float:
    """How far P[U | V=v] is from P[U|Z] P[Z | V=v], and P[Z | V=v] from its recovery, in a joint table Pr(u, v, z)."""
    table = table[:, :, table.sum((0, 1)) > 0]
    u_given_v, z_given_v = conditional(table.sum(2).T), conditional(table.sum(0))
    u_given_z = table.sum(1) / table.sum((0, 1))
    residual = largest(u_given_v - z_given_v @ u_given_z.T)
    if np.linalg.matrix_rank(u_given_z) == u_given_z.shape[1]:
        recovered = u_given_v @ np.linalg.pinv(u_given_z).T
        residual = largest(residual, (recovered - z_given_v) / np.linalg.cond(u_given_z))
    return residual


def check_proposition_3_4(seed: int) -> Checked:
    """P[U | V=v] = P[U|Z] P[Z | V=v] for a table with U ⊥ V | Z, and P[Z | V=v] back from it by a left inverse."""
    rng, draw = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    n_u, n_v, n_z = rng.integers(1, 6, 3).tolist()
    prior = families.sparse_columns((n_z,), 0.3, draw)
    u_given_z, v_given_z = (families.sparse_columns((n, n_z), 0.4, draw) for n in (n_u, n_v))
    residual = _decomposition_residual(torch.einsum("z,uz,vz->uvz", prior, u_given_z, v_given_z).numpy())
    nontrivial = all(len(part[:, prior > 0].unique(dim=1).T) > 1 for part in (u_given_z, v_given_z))
    return Checked(residual, nontrivial)


def control_proposition_3_4(seed: int) -> float:
    """The same on a table in which U depends on V beyond Z: all entries of Pr(u, v, z) are drawn freely."""
    draw = torch.Generator().manual_seed(seed)
    return _decomposition_residual(appendix_e.softmax_of_uniform((18,), 0.5, draw).reshape(3, 3, 2).numpy())


def _at_start_and_later(model: HMM, length: int, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Pr(x, H_0) and Pr(X_{i+1:T+i} = x, H_i) for every input, (inputs, S), by enumeration."""
    later = joint(model, [np.ones(model.n_states)] * i + [None] * length)
    return joint(model, [None] * length).given_input("h0"), later.given_input(f"h{i}")


def check_claim_b_1(seed: int) -> Checked:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x] with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x) > 0.

    The left side and the probabilities of inputs are the library's, from messages; the right side is enumerated, but
    for D. Where r_x were not finite, the residual would not be.
    """
    rng = np.random.default_rng(seed)
    n_states, n_tokens = (int(rng.integers(1, 4)) for _ in range(2))
    model = families.regular_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.7)
    i, length = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    start, later = _at_start_and_later(model, length, i)
    possible = start.sum(1) > 0
    start, later = start[possible], later[possible]
    inputs = all_inputs(n_tokens, length)[torch.as_tensor(possible)]
    left = posterior(model, shifted(inputs, i), at=i).numpy()
    right = (start.sum(1) / later.sum(1))[:, None] * claim_b_1(model, i).numpy() * conditional(start)
    chances = [log_likelihood(model, x).exp().numpy() for x in (inputs, shifted(inputs, i))]
    sizes = largest(chances[0] - start.sum(1), chances[1] - later.sum(1))
    residual = largest(left - right, conditional(later) - right, sizes)
    return Checked(residual, largest(left - conditional(start)) > 1e-3)


def control_claim_b_1(seed: int) -> float:
    """P[H_0] misses a state that H_1 can be in: P[H_0 | x] is zero there, D or no D; P[H_1 | X_{2:T+1} = x] is not."""
    model, missing = start_without_a_state(seed)
    here, later = _at_start_and_later(model, 2, 1)
    return float((conditional(later)[:, missing] * (here.sum(1) > 0)).max())


def shifted_g_1(model: HMM, inputs: Tensor) -> Tensor:
    """G_1 of x' = (MASK, x), (n, X): what Theorem 3.3's head reads."""
    return masked_token_probs(model, shifted(inputs, 1))[:, 0]


def check_theorem_3_3(seed: int) -> Checked:
    """bᵀG_1(x') = r_x μᵀP[H_0 | x] with r_x = Pr(X_{1:T} = x) / Pr(X_{2:T+1} = x) > 0, and the label of its sign.

    For every possible x of a length; the scale of errors is that of W†ᵀ D⁻¹ μ, worked out here, and a label counts
    where its score is beyond a few roundings of that scale, or is exactly 0. Where the target is rounding alone, no
    label is sure. Not trivial if both labels occur among those that count.
    """
    rng = np.random.default_rng(seed)
    model = non_degenerate(rng, seed)
    length = draw_length(rng, model, 3, extra=1)
    start, later = _at_start_and_later(model, length, 1)
    possible, beliefs = start.sum(1) > 0, conditional(start)
    mu = recentred(draw_weights(rng, model.n_states), beliefs)
    head = theorem_3_3(model, mu)
    probs = shifted_g_1(model, all_inputs(model.n_tokens, length))[possible]
    target = (start @ mu.numpy())[possible] / later.sum(1)[possible]  # not finite where r_x is not
    scale = _scale(model.emission, mu, model.transition @ model.initial / model.initial)
    size = max(mu.abs().max().item(), 1e-6 * scale)
    wrong = mislabelled(head.label(probs), target, size)
    unsure = tie_is_sure(mu, beliefs[possible], lambda tied, k: theorem_3_3(model, tied).sure(probs)[k])
    return Checked(max(largest(head(probs).numpy() - target) / scale, wrong, unsure), both_signs(target, size))


def _scale(columns: Tensor, mu: Tensor, diagonal: Tensor) -> float:
    """The norm of the head W†ᵀ D⁻¹ μ for independent columns of W, or 1 if that is less."""
    left_inverse = np.linalg.pinv(columns.numpy(), rcond=0)  # no singular value is too small: none is zero
    return max(1.0, np.linalg.norm(left_inverse.T @ (mu.numpy() / diagonal.numpy())))


def balanced(target: Tensor) -> Tensor:
    """Labels that split the inputs near the middle, in the widest gap there; all 1 where rounding is all the gap."""
    ordered = target.sort().values
    low, high = len(ordered) // 4, max(len(ordered) // 4 + 2, 3 * len(ordered) // 4)
    gaps = ordered[low:high].diff()
    widest = low + int(gaps.argmax())
    if gaps.max() <= 1e-12 * ordered.abs().max():
        return torch.ones_like(target, dtype=torch.bool)
    return target > (ordered[widest] + ordered[widest + 1]) / 2


def control_theorem_3_3(seed: int) -> float:
    """Dependent columns, and a task that splits the inputs near the middle: 1 where no head fits, by a linear program.

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


def _with_prompt(model: HMM, prompt: Tensor, length: int) -> Joint:
    """The joint table of (z̃, ∅, x) for every x of a length."""
    return joint(model, [prompt.numpy(), np.ones(model.n_states)] + [None] * length)


def _behind_gap(model: HMM, length: int) -> Tensor:
    """(∅, x) for every x: what stands behind the prompt."""
    return shifted(all_inputs(model.n_tokens, length), 1)


def _conditions(model: HMM, prompt: Tensor) -> bool:
    """Whether a prompt is more than ones, which exclude nothing, and less than one that nothing can follow."""
    seen = prompt[(model.transition @ model.initial) > 0]
    return bool(seen.any()) and len(seen.unique()) > 1


def check_lemma_c_1(seed: int) -> Checked:
    """τ_i(ê(x)) = P[H_i, X̂_{-i} = (z̃, ∅, x)_{-i}] at all i; Ḡ_i is P[X̂_i | X̂_{-i}] for i > 1, zero where
    impossible."""
    model, _, length = essential_instance(seed)
    prompt = draw_prompt(np.random.default_rng(seed), model.n_states)
    x = _behind_gap(model, length)
    tau = unscaled(*aggregated_messages(model, prompted(model, prompt, x)))
    g = masked_token_probs(model, x, prompt).numpy()
    table = _with_prompt(model, prompt, length)
    at_prompt = _with_prompt(model, torch.ones_like(prompt), length).given_input("h1")  # its row becomes ones
    witness = np.stack([at_prompt, *(table.left_out(i, f"h{i}") for i in range(2, length + 3))], 1)
    tokens = [witness[:, 1] @ model.emission.numpy().T, *(table.token(i) for i in range(3, length + 3))]
    differences = [tau - witness]  # (C.2)
    differences += [g[:, 1:] - np.stack(list(map(conditional, tokens)), 1), g[witness.sum(2) == 0]]
    return Checked(largest(*differences), _conditions(model, prompt))


def control_lemma_c_1(seed: int) -> float:
    """X̂ emits with (1 - u) ⊙ W at every step, not the first only: Ḡ is no conditional probability of that process."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(3, 3, seed, zeros=0.2)
    prompt = torch.as_tensor(0.1 + 0.8 * rng.random(3))
    table = joint(model, [prompt.numpy(), np.ones(3), None, None], emission=(1 - prompt) * model.emission)
    g = masked_token_probs(model, _behind_gap(model, 2), prompt).numpy()
    return largest(g[:, 1] - conditional(table.given_input("h2") @ model.emission.numpy().T))


def check_lemma_c_2(seed: int) -> Checked:
    """P[H_2 | z̃, X̂_{3:T+2} = x] = r_x D (P[z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, x); and (3.3), W times
    both."""
    model, _, length = essential_instance(seed)
    prompt = draw_prompt(np.random.default_rng(seed), model.n_states)
    chance = _with_prompt(model, prompt, length).given_input("h2").sum(1)
    possible = chance > 0
    start = joint(model, [None] * length).given_input("h0")
    reached = lemma_c_2(model, prompt).numpy()
    right = over(start.sum(1), chance)[:, None] * reached * conditional(start)
    tokens = _behind_gap(model, length)
    # The gap is position 2 of (u, ∅, x): a state's posterior there, given all.
    mantissa, _ = aggregated_messages(model, prompted(model, prompt, tokens), slice(2, 3), own=True)
    library = conditional(mantissa[:, 0].numpy())
    g = masked_token_probs(model, tokens, prompt)[:, 1].numpy()
    equation_3_3 = largest((g - right @ model.emission.numpy().T)[possible])
    impossible = largest((reached * conditional(start))[~possible])
    return Checked(largest((library - right)[possible], equation_3_3, impossible), _conditions(model, prompt))


def control_lemma_c_2(seed: int) -> float:
    """P[H_0] misses a state that H_2 can be in: P[H_0 | x] is zero there, whatever D, and the left side is not."""
    model, missing = start_without_a_state(seed)
    left = conditional(_with_prompt(model, torch.ones(3, dtype=torch.float64), 2).given_input("h2"))
    possible = joint(model, [None] * 2).given_input() > 0
    return float((left[:, missing] * possible).max())


def check_theorem_3_6(seed: int) -> Checked:
    """bᵀḠ_2(ê(x)) = r_x μᵀP[H_0 | x], r_x = Pr(x) / Pr(z̃, x) > 0; both are 0 where prompt and x exclude each other.

    And each label is that of its target. Not trivial if both occur, |H*| > 1, and the prompt leaves a state out.
    """
    model, essential, length = essential_instance(seed)
    start = joint(model, [None] * length).given_input("h0")
    occurs = start.sum(1) > 0
    start, beliefs = start[occurs], conditional(start[occurs])
    rng = np.random.default_rng([seed, 1])
    least = min(len(essential), 2 if rng.random() < 0.8 else 1)
    weighed = rng.choice(essential, size=int(rng.integers(least, len(essential) + 1)), replace=False)
    weights = draw_weights(np.random.default_rng(seed), model.n_states, support=sorted(weighed.tolist()))
    mu = recentred(weights, beliefs)
    prompt, head = theorem_3_6(model, mu, essential)
    chance = _with_prompt(model, prompt, length).given_input()[occurs]
    probs = masked_token_probs(model, _behind_gap(model, length), prompt)[:, 1][occurs]
    target = start @ mu.numpy()
    diagonal = (model.transition @ (prompt * (model.transition @ model.initial)) / model.initial)[essential]
    scale = _scale(model.emission[:, essential], mu[essential], diagonal)
    error = largest(head(probs).numpy() - over(target, chance)) / scale
    wrong = mislabelled(head.label(probs), beliefs @ mu.numpy(), mu.abs().max().item())
    missed = (diagonal <= 0).any()  # the prompt lets H_2 miss a state of H*
    nontrivial = both_signs(target) and len(essential) > 1 and bool((prompt == 0).any())
    return Checked(largest(error, target[chance == 0], wrong, missed), nontrivial)


def control_theorem_3_6(seed: int) -> float:
    """`essential_twins`: two inputs of different labels between which Ḡ_2 does not differ, whatever the prompt.

    1 if so, and the construction refuses the model. What a prompt does depends on its entries only through
    A(u ⊙ P[H_1]); all 16 supports of u are tried.
    """
    rng = np.random.default_rng(seed)
    model, mu, x = families.essential_twins(seed), [1.0, -1.0, 0.0, 0.0], torch.tensor([[1], [2]])
    target = ground_truth(model, mu, x)
    apart = 0.0
    for pattern in itertools.product((0.0, 1.0), repeat=4):
        prompt = torch.tensor(pattern, dtype=torch.float64) * torch.as_tensor(0.1 + 0.9 * rng.random(4))
        g = masked_token_probs(model, shifted(x, 1), prompt)[:, 1]
        apart = largest(apart, g[0] - g[1])
    same = largest(posterior(model, x)[:, :2] - torch.eye(2, dtype=torch.float64)) < 1e-12
    refuses = refused(theorem_3_6, model, mu, [0, 1])
    return float(refuses and same and apart < 1e-12 and target[0] > 0.5 and target[1] < -0.5)
