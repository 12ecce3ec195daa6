"""Section 3 with appendices B and C: Proposition 3.4, Claim B.1, Lemmas C.1 and C.2, Theorems 3.3 and 3.6.

A check compares both sides of a statement on one random instance. A control breaks one hypothesis, and returns by how
much the conclusion then fails.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.enumeration import conditional, over
from hmmbook.evidence.random_models import instances
from hmmbook.evidence.random_models.instances import Checked, both_signs, joint, largest, refused, shifted
from hmmlib.inference.evidence import prompted
from hmmlib.inference.forward_backward import aggregated_messages
from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models import appendix_e, counterexamples, families
from hmmlib.models.hmm import HMM
from hmmlib.theory.theorems import claim_b_1, ground_truth, lemma_c_2, theorem_3_3, theorem_3_6

# Proposition 3.4


def _decomposition_residual(table: np.ndarray) -> float:
    """How far P[U | V=v] is from P[U|Z] P[Z | V=v], and P[Z | V=v] from its recovery, in a joint table Pr(u, v, z)."""
    table = table[:, :, table.sum((0, 1)) > 0]
    u_given_v = conditional(table.sum(2).T)
    z_given_v = conditional(table.sum(0))
    u_given_z = table.sum(1) / table.sum((0, 1))
    residual = largest(u_given_v - z_given_v @ u_given_z.T)
    if np.linalg.matrix_rank(u_given_z) == u_given_z.shape[1]:
        recovered = u_given_v @ np.linalg.pinv(u_given_z).T
        residual = largest(residual, (recovered - z_given_v) / np.linalg.cond(u_given_z))
    return residual


def check_proposition_3_4(seed: int) -> Checked:
    """P[U | V=v] = P[U|Z] P[Z | V=v] for a table with U ⊥ V | Z, and P[Z | V=v] back from it by a left inverse."""
    draw = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    n_u, n_v, n_z = rng.integers(1, 6, 3).tolist()
    prior = families.sparse_columns((n_z,), 0.3, draw)
    u_given_z = families.sparse_columns((n_u, n_z), 0.4, draw)
    v_given_z = families.sparse_columns((n_v, n_z), 0.4, draw)
    table = torch.einsum("z,uz,vz->uvz", prior, u_given_z, v_given_z)
    u_depends_on_z = len(u_given_z[:, prior > 0].unique(dim=1).T) > 1
    v_depends_on_z = len(v_given_z[:, prior > 0].unique(dim=1).T) > 1
    return Checked(_decomposition_residual(table.numpy()), u_depends_on_z and v_depends_on_z)


def control_proposition_3_4(seed: int) -> float:
    """The same on a table in which U depends on V beyond Z: all entries of Pr(u, v, z) are drawn freely."""
    draw = torch.Generator().manual_seed(seed)
    table = appendix_e.softmax_of_uniform((18,), 0.5, draw).reshape(3, 3, 2)
    return _decomposition_residual(table.numpy())


# Claim B.1


class Paths(NamedTuple):
    """What a sum over all hidden paths says of each possible text x of a length."""

    inputs: Tensor  # x, (n, T)
    start: np.ndarray  # Pr(x, H_0), (n, S)
    later: np.ndarray  # Pr(i earlier rows, x, H_i), (n, S)

    @property
    def beliefs(self) -> np.ndarray:
        """P[H_0 | x], (n, S)."""
        return conditional(self.start)

    @property
    def chance(self) -> np.ndarray:
        """Pr(x), (n,)."""
        return self.start.sum(1)

    @property
    def later_chance(self) -> np.ndarray:
        """Pr(i earlier rows, x), (n,)."""
        return self.later.sum(1)


def _paths(model: HMM, earlier_rows: list, length: int) -> Paths:
    start = joint(model, [None] * length).given_input("h0")
    later = joint(model, [*earlier_rows, *[None] * length]).given_input(f"h{len(earlier_rows)}")
    possible = start.sum(1) > 0
    inputs = instances.all_inputs(model.n_tokens, length)[torch.as_tensor(possible)]
    return Paths(inputs, start[possible], later[possible])


def _prompt_and_gap(prompt: Tensor) -> list[np.ndarray]:
    """The rows of (z̃, ∅)."""
    return [prompt.numpy(), np.ones(len(prompt))]


def check_claim_b_1(seed: int) -> Checked:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x] with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x) > 0.

    The left side and the probabilities of inputs are the library's. The right side is enumerated, but for D.
    """
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 4))
    n_tokens = int(rng.integers(1, 4))
    model = families.regular_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.7)
    i = int(rng.integers(1, 4))
    length = int(rng.integers(1, 4))
    paths = _paths(model, [np.ones(n_states)] * i, length)
    behind = shifted(paths.inputs, i)

    left = posterior(model, behind, at=i).numpy()
    ratio = paths.chance / paths.later_chance
    right = ratio[:, None] * claim_b_1(model, i).numpy() * paths.beliefs
    chance = log_likelihood(model, paths.inputs).exp().numpy()
    later_chance = log_likelihood(model, behind).exp().numpy()
    residual = largest(
        left - right,
        conditional(paths.later) - right,
        chance - paths.chance,
        later_chance - paths.later_chance,
    )
    return Checked(residual, largest(left - paths.beliefs) > 1e-3)


def control_claim_b_1(seed: int, steps: int = 1) -> float:
    """P[H_0] misses a state that later ones can be in: P[H_0 | x] is zero there, D or no D; P[H_1 | (∅, x)] is not."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(3, int(rng.integers(1, 4)), seed)
    missing = int(rng.integers(3))
    start = model.initial.clone()
    start[missing] = 0
    model = HMM(model.transition, model.emission, start / start.sum(), columns=True)
    paths = _paths(model, [np.ones(3)] * steps, 2)
    return float(conditional(paths.later)[:, missing].max())


control_lemma_c_2 = partial(control_claim_b_1, steps=2)


# Theorem 3.3


def shifted_g_1(model: HMM, inputs: Tensor) -> Tensor:
    """G_1 of x' = (∅, x), (n, X), which Theorem 3.3's head reads."""
    return masked_token_probs(model, shifted(inputs, 1))[:, 0]


def _scale(columns: Tensor, mu: Tensor, diagonal: Tensor) -> float:
    """The norm of the head W†ᵀ D⁻¹ μ for independent columns of W, or 1 if that is less."""
    left_inverse = np.linalg.pinv(columns.numpy(), rcond=0)  # No singular value is too small, since none is zero.
    divided = mu.numpy() / diagonal.numpy()
    return max(1.0, np.linalg.norm(left_inverse.T @ divided))


def check_theorem_3_3(seed: int) -> Checked:
    """bᵀG_1(x') = r_x μᵀP[H_0 | x] with r_x = Pr(X_{1:T} = x) / Pr(X_{2:T+1} = x) > 0, and the label of its sign.

    Where the target is rounding alone, no label is sure.
    """
    rng = np.random.default_rng(seed)
    model = instances.non_degenerate(rng, seed)
    length = instances.draw_length(rng, model, 3, extra=1)
    paths = _paths(model, [np.ones(model.n_states)], length)
    mu = instances.recentred(instances.draw_weights(rng, model.n_states), paths.beliefs)
    head = theorem_3_3(model, mu)
    probs = shifted_g_1(model, paths.inputs)

    target = paths.start @ mu.numpy() / paths.later_chance  # It is not finite where r_x is not.
    scale = _scale(model.emission, mu, model.transition @ model.initial / model.initial)
    size = max(largest(mu), 1e-6 * scale)
    # A head allows for the rounding of texts of 1,024 tokens. So it may be unsure of targets as small as that,
    # but not of larger ones. Where it is sure, and at ties, its label has to be right.
    sure = head.sure(probs).numpy()
    hesitant = float((~sure & (abs(target) > 1e-12 * scale)).any())
    judged = sure | (target == 0)
    wrong = instances.mislabelled(head.label(probs)[judged], target[judged], size)

    def sure_of(tied: Tensor, k: int) -> Tensor:
        return theorem_3_3(model, tied).sure(probs)[k]

    unsure = instances.tie_is_sure(mu, paths.beliefs, sure_of)
    error = largest(head(probs).numpy() - target) / scale
    return Checked(max(error, wrong, unsure, hesitant), both_signs(target, size))


def balanced(target: Tensor) -> Tensor:
    """Label inputs by a threshold near the middle of their targets, in the widest gap there.

    Args:
        target: The targets, (n,).

    Returns:
        The labels, (n,) bool. All are 1 where rounding is all the gap.
    """
    ordered = target.sort().values
    low = len(ordered) // 4
    high = max(low + 2, 3 * len(ordered) // 4)
    gaps = ordered[low:high].diff()
    if gaps.max() <= 1e-12 * ordered.abs().max():
        return torch.ones_like(target, dtype=torch.bool)
    widest = low + int(gaps.argmax())
    return target > (ordered[widest] + ordered[widest + 1]) / 2


def control_theorem_3_3(seed: int) -> float:
    """Dependent columns, and a task that splits the inputs near the middle: 1 where no head fits, by a linear program.

    The construction has to refuse the model too. Half of the models have as many tokens as states, half fewer.
    """
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(3, 5))
    model = counterexamples.dependent_hmm(n_states, n_states - seed % 2, seed)
    weights = torch.as_tensor(rng.normal(size=n_states))
    inputs, beliefs = instances.possible_inputs(model, 3)
    # Posteriors sum to 1, so a label by a threshold is a task of the form (3.1) too.
    refuted = instances.no_head_fits([shifted_g_1(model, inputs)], balanced(beliefs @ weights))
    return float(refuted and refused(theorem_3_3, model, torch.ones(n_states)))


# Lemmas C.1 and C.2


def _excludes_some(model: HMM, prompt: Tensor) -> bool:
    """Whether a prompt is more than ones, which exclude nothing, and less than one that nothing can follow."""
    seen = prompt[(model.transition @ model.initial) > 0]
    return bool(seen.any()) and len(seen.unique()) > 1


def check_lemma_c_1(seed: int) -> Checked:
    """τ_i(ê(x)) = P[H_i, X̂_{-i} = (z̃, ∅, x)_{-i}]; Ḡ_i is P[X̂_i | X̂_{-i}] for i > 1, zero where impossible."""
    model, _, length = instances.essential_instance(seed)
    prompt = instances.draw_prompt(np.random.default_rng(seed), model.n_states)
    texts = shifted(instances.all_inputs(model.n_tokens, length), 1)
    tau = instances.unscaled(*aggregated_messages(model, prompted(model, prompt, texts)))
    predicted = masked_token_probs(model, texts, prompt).numpy()

    table = joint(model, _prompt_and_gap(prompt) + [None] * length)
    without_prompt = joint(model, _prompt_and_gap(torch.ones_like(prompt)) + [None] * length)
    states = [without_prompt.given_input("h1")]
    for i in range(2, length + 3):
        states.append(table.left_out(i, f"h{i}"))
    tokens = [conditional(states[1] @ model.emission.numpy().T)]
    for i in range(3, length + 3):
        tokens.append(conditional(table.token(i)))
    states = np.stack(states, 1)
    impossible = states.sum(2) == 0
    residual = largest(
        tau - states,  # (C.2)
        predicted[:, 1:] - np.stack(tokens, 1),
        predicted[impossible],
    )
    return Checked(residual, _excludes_some(model, prompt))


def control_lemma_c_1(seed: int) -> float:
    """X̂ emits with (1 - u) ⊙ W at every step, not the first only: Ḡ is no conditional probability of that process."""
    return instances.apart_if_emitted_alike(families.non_degenerate_hmm(3, 3, seed), seed)


def check_lemma_c_2(seed: int) -> Checked:
    """P[H_2 | z̃, X̂_{3:T+2} = x] = r_x D (P[z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, x); (3.3) is W times both."""
    model, _, length = instances.essential_instance(seed)
    prompt = instances.draw_prompt(np.random.default_rng(seed), model.n_states)
    paths = _paths(model, _prompt_and_gap(prompt), length)
    without_ratio = lemma_c_2(model, prompt).numpy() * paths.beliefs
    right = over(paths.chance, paths.later_chance)[:, None] * without_ratio

    # The gap is position 2 of (u, ∅, x), and `own` makes it a posterior of H_2 given all tokens.
    texts = shifted(paths.inputs, 1)
    embeddings = prompted(model, prompt, texts)
    mantissa, _ = aggregated_messages(model, embeddings, slice(2, 3), own=True)
    left = conditional(mantissa[:, 0].numpy())
    predicted = masked_token_probs(model, texts, prompt)[:, 1].numpy()
    possible = paths.later_chance > 0
    residual = largest(
        (left - right)[possible],
        (predicted - right @ model.emission.numpy().T)[possible],  # (3.3)
        without_ratio[~possible],
    )
    return Checked(residual, _excludes_some(model, prompt))


# Theorem 3.6


def _task_on(essential: list[int], n_states: int, seed: int) -> Tensor:
    """Draw a task that weighs some states of H*, mostly two or more."""
    rng = np.random.default_rng([seed, 1])
    least = min(len(essential), 2 if rng.random() < 0.8 else 1)
    n_weighed = int(rng.integers(least, len(essential) + 1))
    support = sorted(rng.choice(essential, size=n_weighed, replace=False).tolist())
    return instances.draw_weights(np.random.default_rng(seed), n_states, support=support)


def check_theorem_3_6(seed: int) -> Checked:
    """bᵀḠ_2(ê(x)) = r_x μᵀP[H_0 | x], r_x = Pr(x) / Pr(z̃, x) > 0; both are 0 where prompt and x exclude each other."""
    model, essential, length = instances.essential_instance(seed)
    paths = _paths(model, [], length)
    mu = instances.recentred(_task_on(essential, model.n_states, seed), paths.beliefs)
    prompt, head = theorem_3_6(model, mu, essential)
    chance = _paths(model, _prompt_and_gap(prompt), length).later_chance
    probs = masked_token_probs(model, shifted(paths.inputs, 1), prompt)[:, 1]

    target = paths.start @ mu.numpy()  # Pr(x) μᵀP[H_0 | x]
    first = model.transition @ model.initial
    diagonal = (model.transition @ (prompt * first) / model.initial)[essential]
    scale = _scale(model.emission[:, essential], mu[essential], diagonal)
    error = largest(head(probs).numpy() - over(target, chance)) / scale
    wrong = instances.mislabelled(head.label(probs), paths.beliefs @ mu.numpy(), largest(mu))
    missed = (diagonal <= 0).any()  # The prompt lets H_2 miss a state of H*.
    excludes = bool((prompt == 0).any())
    nontrivial = both_signs(target) and len(essential) > 1 and excludes
    return Checked(largest(error, target[chance == 0], wrong, missed), nontrivial)


def control_theorem_3_6(seed: int) -> float:
    """`essential_twins`, W alike at both states of H*: inputs of different labels have one Ḡ_2, whatever the prompt.

    1 if so, and the construction refuses the model. A prompt is tried with each of the 16 supports.
    """
    rng = np.random.default_rng(seed)
    model = counterexamples.essential_twins(seed)
    mu = [1.0, -1.0, 0.0, 0.0]
    inputs = torch.tensor([[1], [2]])
    apart = 0.0
    for support in itertools.product((0.0, 1.0), repeat=4):
        sizes = torch.as_tensor(0.1 + 0.9 * rng.random(4))
        prompt = torch.tensor(support, dtype=torch.float64) * sizes
        predicted = masked_token_probs(model, shifted(inputs, 1), prompt)[:, 1]
        apart = largest(apart, predicted[0] - predicted[1])
    certain = torch.eye(2, dtype=torch.float64)
    states_are_shown = largest(posterior(model, inputs)[:, :2] - certain) < 1e-12
    target = ground_truth(model, mu, inputs)
    labels_differ = target[0] > 0.5 and target[1] < -0.5
    refuses = refused(theorem_3_6, model, mu, [0, 1])
    return float(refuses and states_are_shown and apart < 1e-12 and labels_differ)
