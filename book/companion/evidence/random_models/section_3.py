"""Section 3 with appendices B and C: Proposition 3.4, Claim B.1, Lemmas C.1 and C.2, Theorems 3.3 and 3.6."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import conditional, over
from companion.evidence.random_models import instances
from companion.evidence.random_models.instances import Checked, both_signs, joint, largest, refused, shifted
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


def _beside(model: HMM, before: list, length: int) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Every possible x of a length, (n, T); Pr(x, H_0) and Pr(`before`, x, H_i), (n, S), after i rows: by all paths."""
    start = joint(model, [None] * length).given_input("h0")
    later = joint(model, [*before, *[None] * length]).given_input(f"h{len(before)}")
    possible = start.sum(1) > 0
    inputs = instances.all_inputs(model.n_tokens, length)[torch.as_tensor(possible)]
    return inputs, start[possible], later[possible]


def _prompt_and_gap(prompt: Tensor) -> list[np.ndarray]:
    """The rows of (z̃, ∅)."""
    return [prompt.numpy(), np.ones(len(prompt))]


def check_claim_b_1(seed: int) -> Checked:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x] with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x) > 0.

    The left side and the probabilities of inputs are the library's; the right side is enumerated, but for D.
    """
    rng = np.random.default_rng(seed)
    n_states, n_tokens = (int(rng.integers(1, 4)) for _ in range(2))
    model = families.regular_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.7)
    i, length = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    inputs, start, later = _beside(model, [np.ones(n_states)] * i, length)
    left = posterior(model, shifted(inputs, i), at=i).numpy()
    right = (start.sum(1) / later.sum(1))[:, None] * claim_b_1(model, i).numpy() * conditional(start)
    chances = [log_likelihood(model, x).exp().numpy() for x in (inputs, shifted(inputs, i))]
    sizes = largest(chances[0] - start.sum(1), chances[1] - later.sum(1))
    residual = largest(left - right, conditional(later) - right, sizes)
    return Checked(residual, largest(left - conditional(start)) > 1e-3)


def control_claim_b_1(seed: int, steps: int = 1) -> float:
    """P[H_0] misses a state that later ones can be in: P[H_0 | x] is zero there, D or no D; P[H_1 | (∅, x)] is not."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(3, int(rng.integers(1, 4)), seed)
    missing, start = int(rng.integers(3)), model.initial.clone()
    start[missing] = 0
    model = HMM(model.transition, model.emission, start / start.sum(), columns=True)
    _, _, later = _beside(model, [np.ones(3)] * steps, 2)
    return float(conditional(later)[:, missing].max())


control_lemma_c_2 = partial(control_claim_b_1, steps=2)


def shifted_g_1(model: HMM, inputs: Tensor) -> Tensor:
    """G_1 of x' = (MASK, x), (n, X): what Theorem 3.3's head reads."""
    return masked_token_probs(model, shifted(inputs, 1))[:, 0]


def check_theorem_3_3(seed: int) -> Checked:
    """bᵀG_1(x') = r_x μᵀP[H_0 | x] with r_x = Pr(X_{1:T} = x) / Pr(X_{2:T+1} = x) > 0, and the label of its sign.

    Where the target is rounding alone, no label is sure.
    """
    rng = np.random.default_rng(seed)
    model = instances.non_degenerate(rng, seed)
    length = instances.draw_length(rng, model, 3, extra=1)
    inputs, start, later = _beside(model, [np.ones(model.n_states)], length)
    beliefs = conditional(start)
    mu = instances.recentred(instances.draw_weights(rng, model.n_states), beliefs)
    head, probs = theorem_3_3(model, mu), shifted_g_1(model, inputs)
    target = start @ mu.numpy() / later.sum(1)  # not finite where r_x is not
    scale = _scale(model.emission, mu, model.transition @ model.initial / model.initial)
    size = max(mu.abs().max().item(), 1e-6 * scale)
    wrong = instances.mislabelled(head.label(probs), target, size)
    unsure = instances.tie_is_sure(mu, beliefs, lambda tied, k: theorem_3_3(model, tied).sure(probs)[k])
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
    inputs, beliefs = instances.possible_inputs(model, 3)
    # Posteriors sum to 1, so that a label by a threshold is a task of the form (3.1) too.
    refuted = instances.no_head_fits([shifted_g_1(model, inputs)], balanced(beliefs @ weights))
    return float(refuted and refused(theorem_3_3, model, torch.ones(n_states)))


def _conditions(model: HMM, prompt: Tensor) -> bool:
    """Whether a prompt is more than ones, which exclude nothing, and less than one that nothing can follow."""
    seen = prompt[(model.transition @ model.initial) > 0]
    return bool(seen.any()) and len(seen.unique()) > 1


def check_lemma_c_1(seed: int) -> Checked:
    """τ_i(ê(x)) = P[H_i, X̂_{-i} = (z̃, ∅, x)_{-i}]; Ḡ_i is P[X̂_i | X̂_{-i}] for i > 1, zero where impossible."""
    model, _, length = instances.essential_instance(seed)
    prompt = instances.draw_prompt(np.random.default_rng(seed), model.n_states)
    x = shifted(instances.all_inputs(model.n_tokens, length), 1)
    tau = instances.unscaled(*aggregated_messages(model, prompted(model, prompt, x)))
    g = masked_token_probs(model, x, prompt).numpy()
    table, free = (joint(model, _prompt_and_gap(u) + [None] * length) for u in (prompt, torch.ones_like(prompt)))
    witness = [free.given_input("h1"), *(table.left_out(i, f"h{i}") for i in range(2, length + 3))]
    tokens = [witness[1] @ model.emission.numpy().T, *(table.token(i) for i in range(3, length + 3))]
    witness = np.stack(witness, 1)
    differences = [tau - witness]  # (C.2)
    differences += [g[:, 1:] - np.stack(list(map(conditional, tokens)), 1), g[witness.sum(2) == 0]]
    return Checked(largest(*differences), _conditions(model, prompt))


def control_lemma_c_1(seed: int) -> float:
    """X̂ emits with (1 - u) ⊙ W at every step, not the first only: Ḡ is no conditional probability of that process."""
    return instances.apart_if_emitted_alike(families.non_degenerate_hmm(3, 3, seed), seed)


def check_lemma_c_2(seed: int) -> Checked:
    """P[H_2 | z̃, X̂_{3:T+2} = x] = r_x D (P[z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, x); (3.3) is W times both."""
    model, _, length = instances.essential_instance(seed)
    prompt = instances.draw_prompt(np.random.default_rng(seed), model.n_states)
    inputs, start, later = _beside(model, _prompt_and_gap(prompt), length)
    chance, unscaled = later.sum(1), lemma_c_2(model, prompt).numpy() * conditional(start)
    right, tokens = over(start.sum(1), chance)[:, None] * unscaled, shifted(inputs, 1)
    # The gap is position 2 of (u, ∅, x): a state's posterior there, given all.
    mantissa, _ = aggregated_messages(model, prompted(model, prompt, tokens), slice(2, 3), own=True)
    library = conditional(mantissa[:, 0].numpy())
    equation_3_3 = masked_token_probs(model, tokens, prompt)[:, 1].numpy() - right @ model.emission.numpy().T
    residual = largest((library - right)[chance > 0], equation_3_3[chance > 0], unscaled[chance == 0])
    return Checked(residual, _conditions(model, prompt))


def check_theorem_3_6(seed: int) -> Checked:
    """bᵀḠ_2(ê(x)) = r_x μᵀP[H_0 | x], r_x = Pr(x) / Pr(z̃, x) > 0; both are 0 where prompt and x exclude each other."""
    model, essential, length = instances.essential_instance(seed)
    inputs, start, _ = _beside(model, [], length)
    beliefs = conditional(start)
    rng = np.random.default_rng([seed, 1])
    least = min(len(essential), 2 if rng.random() < 0.8 else 1)
    weighed = rng.choice(essential, size=int(rng.integers(least, len(essential) + 1)), replace=False)
    weights = instances.draw_weights(np.random.default_rng(seed), model.n_states, support=sorted(weighed.tolist()))
    mu = instances.recentred(weights, beliefs)
    prompt, head = theorem_3_6(model, mu, essential)
    chance = _beside(model, _prompt_and_gap(prompt), length)[2].sum(1)
    probs = masked_token_probs(model, shifted(inputs, 1), prompt)[:, 1]
    target = start @ mu.numpy()  # Pr(x) μᵀP[H_0 | x]
    diagonal = (model.transition @ (prompt * (model.transition @ model.initial)) / model.initial)[essential]
    scale = _scale(model.emission[:, essential], mu[essential], diagonal)
    error = largest(head(probs).numpy() - over(target, chance)) / scale
    wrong = instances.mislabelled(head.label(probs), beliefs @ mu.numpy(), mu.abs().max().item())
    missed = (diagonal <= 0).any()  # the prompt lets H_2 miss a state of H*
    nontrivial = both_signs(target) and len(essential) > 1 and bool((prompt == 0).any())
    return Checked(largest(error, target[chance == 0], wrong, missed), nontrivial)


def control_theorem_3_6(seed: int) -> float:
    """`essential_twins`, W alike at both states of H*: inputs of different labels have one Ḡ_2, whatever the prompt.

    1 if so, and the construction refuses the model. A prompt is tried with each of the 16 supports.
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
