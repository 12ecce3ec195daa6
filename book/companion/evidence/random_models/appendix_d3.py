"""Appendix D.3 up to the key function: Lemma D.7, Propositions D.8 and D.11, Claims D.10 and D.12, Lemma D.9."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import conditional
from companion.evidence.random_models.appendix_d1 import recovery_residual
from companion.evidence.random_models.instances import all_inputs, joint, shared, shifted
from companion.evidence.random_models.memory_instances import (
    PromptedInstance,
    any_prompt_instance,
    not_stationary,
    prompted_instance,
    twins,
    with_other_start,
)
from companion.evidence.random_models.residuals import Checked, Printed, in_words, largest, refused, twin_gap, unscaled
from hmmlib.inference.messages import aggregated_messages, latent_given_others, masked_token_probs, prompted
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.theorems import Recovery, claim_d_10, concentrated, prompt_d_6, prompted_head


@shared
def recovery_of(seed: int) -> Recovery:
    case = prompted_instance(seed)
    return claim_d_10(case.model, case.mu, case.cell, case.syntax)


def head_of(seed: int) -> AttentionHead:
    case = prompted_instance(seed)
    return prompted_head(case.model, case.mu, recovery_of(seed))


def tau(case: PromptedInstance, own: bool = False) -> np.ndarray:
    """P[M, H_i, x̂_{-i}] (with x̂_i too if `own`) of the library, unscaled, (n, T + 1, M, …, M, H)."""
    embeddings = prompted(case.model, case.prompt, case.inputs)
    scaled = aggregated_messages(case.model, embeddings, slice(1, None), own)
    return unscaled(*scaled).reshape(*embeddings.shape[:2], *case.model.memory.shape, case.model.n_states)


# Lemma D.7


def check_lemma_d_7(seed: int) -> Checked:
    """(D.5): τ_i(ê(x)) = P[H̃_i, X̂_{-i} = (z̃, x)_{-i}] for every u in [0, 1]^{|H̃|}; Ḡ_i for i > 1; zero where impossible."""
    case = any_prompt_instance(seed)
    names = [f"m{j}" for j in range(case.model.n_cells)]
    messages, g = tau(case), case.probs.numpy()
    latent = latent_given_others(case.model, case.inputs, case.prompt).numpy()
    residuals = [largest(messages[:, 0] - case.hat_free.given_input(*names, "h1")), largest(g[case.hat_left == 0])]
    flat = case.model.emission.reshape(case.model.n_tokens, -1).T.numpy()
    for i in range(2, case.length + 2):
        residuals.append(largest(messages[:, i - 1] - case.hat.left_out(i, *names, f"h{i}")))  # (D.5)
        exact = conditional(case.hat.cell_and_state(i)).reshape(len(g), -1)
        residuals.append(largest(g[:, i - 1] - conditional(case.hat.token(i)), g[:, i - 1] - exact @ flat))
        residuals.append(largest(latent[:, i - 1] - exact))
    return Checked(largest(*residuals), len(case.prompt.unique()) > 2 and bool((case.hat_chance > 0).any()))


def control_lemma_d_7(seed: int) -> float:
    """X̂ emits with (1 - u) ⊙ W at every step, not only at the first: Ḡ is no conditional probability of that process."""
    rng = np.random.default_rng(seed)
    model = families.sparse_memory_hmm(2, 3, 3, seed, 0.0)
    prompt = torch.as_tensor(0.1 + 0.8 * rng.random(6))
    other = (1 - prompt.reshape(2, 3)) * model.emission
    table = joint(model, [prompt.numpy(), None, None], emission=other)
    g = masked_token_probs(model, all_inputs(3, 2), prompt).numpy()
    witness = conditional(table.cell_and_state(2)).reshape(9, -1) @ model.emission.reshape(3, -1).T.numpy()
    return largest(g[:, 1] - witness)


# Proposition D.8


def check_proposition_d_8(seed: int) -> Checked:
    """P[M, H_i, X_{i+1:i+t}] = P[M, H_0, X_{1:t}]: the left side by messages, the right side enumerated."""
    case, i = prompted_instance(seed), 1 + seed % 3
    names = [f"m{j}" for j in range(case.model.n_cells)]
    residual = largest(_later(case.model, case.inputs, i) - case.table.given_input(*names, "h0"))
    return Checked(residual, case.model.n_states > 1 and case.model.n_memory > 1)


def _later(model: MemoryHMM, inputs: Tensor, i: int) -> np.ndarray:
    """P[M, H_i, X_{i+1:i+t} = x] for every x, (n, M, …, M, H)."""
    evidence = model.lift(model.embed(shifted(inputs, i)))
    scaled = aggregated_messages(model, evidence, slice(i, i + 1), own=True)
    return unscaled(*scaled).reshape(-1, *model.memory.shape, model.n_states)


def control_proposition_d_8(seed: int) -> float:
    """A start that is not stationary: P[M, H_1] alone differs from P[M, H_0]."""
    model, inputs = not_stationary(seed)
    return largest(_later(model, inputs, 1) - joint(model, [None] * 2).given_input("m0", "h0"))


# Claim D.10, Proposition D.11, Claim D.12


def check_claim_d_10(seed: int) -> Checked:
    """As Claim D.3, on Ḡ_i(ê(x)) for i > 1 with the prompt (D.6); P[H_0] need not be stationary."""
    case = with_other_start(seed, zeros=0.4)
    among = np.ones(len(case.inputs), bool)
    residual = recovery_residual(recovery_of(seed), case, case.hat, case.probs.numpy(), 1, among)
    return Checked(residual, bool((case.prompt == 0).any()) and len(case.states) < case.model.n_states)


def control_claim_d_10(seed: int) -> float:
    """`recoverable_twins`, μ on both values: behind the prompt too, Ḡ_2 is one and Pr(H_2 ∈ H*) is 1 and 0.

    0 if the construction takes the model all the same.
    """
    model, x = twins(seed)
    if not refused(claim_d_10, model, [1.0, -1.0], 0, [0, 2, 3]):
        return 0.0
    prompt = prompt_d_6(model, [1.0, -1.0], 0)
    latent = latent_given_others(model, x, prompt)[:, 1].unflatten(1, (2, 4)).sum(1)
    return twin_gap(masked_token_probs(model, x, prompt)[:, 1], latent[:, :1])


def memory_given(case: PromptedInstance, own: bool = False) -> np.ndarray:
    """P[M_{j*} | X̂_{-i} = x̂_{-i}] (x̂_i too if `own`) of the library, (n, T + 1, M)."""
    weights = np.moveaxis(tau(case, own), 2 + case.cell, 2)
    weights = weights.reshape(*weights.shape[:3], -1).sum(-1)
    return conditional(weights.reshape(-1, weights.shape[-1])).reshape(weights.shape)


def check_proposition_d_11(seed: int) -> Checked:
    """For i > 1, P[M_{j*} | X̂_{-i} = x̂_{-i}] is exactly 0 outside supp(μ); and it is what enumeration gives."""
    case = with_other_start(seed, zeros=0.4)
    memory, off = memory_given(case), (case.mu == 0).numpy()
    if (memory[:, 1:, off] > 0).any():
        return Checked(np.inf, True)
    exact = [conditional(case.hat.left_out(i, f"m{case.cell}")) for i in range(2, case.length + 2)]
    return Checked(largest(memory[:, 1:] - np.stack(exact, 1)), bool(off.any()))


def control_proposition_d_11(seed: int) -> float:
    """A prompt that is not (D.6), but positive everywhere: memory values outside supp(μ) keep their probability."""
    rng = np.random.default_rng(seed)
    model = families.recoverable_twins(seed)
    prompt = torch.as_tensor(0.2 + 0.8 * rng.random(8))
    case = PromptedInstance(
        model, torch.tensor([1.0, 0.0], dtype=torch.float64), 0, [0], torch.tensor([[0, 2]]), prompt
    )
    return float(memory_given(case)[:, 1:, 1].max())


def check_claim_d_12(seed: int) -> Checked:
    """supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ supp P[H_{i-1} | X_{-(i-1)} = x_{-(i-1)}]: exactly, in the library's numbers."""
    case = with_other_start(seed, zeros=0.0)
    with_prompt, without = (_states(case, prompt) for prompt in (case.prompt, None))
    exact = [conditional(case.hat.left_out(i, f"h{i}")) for i in range(2, case.length + 2)]
    if (with_prompt[:, 1:][without == 0] > 0).any():  # (D.9)
        return Checked(np.inf, True)
    possible = without[without.any(-1)]
    nontrivial = bool((case.prompt == 0).any()) and bool((possible == 0).any())
    return Checked(largest(with_prompt[:, 1:] - np.stack(exact, 1)), nontrivial)


def _states(case: PromptedInstance, prompt: Tensor | None) -> np.ndarray:
    """P[H_i | all other tokens, and the prompt], (n, T or T + 1, H)."""
    latent = latent_given_others(case.model, case.inputs, prompt)
    return latent.unflatten(2, (case.model.n_memory, case.model.n_states)).sum(2).numpy()


def control_claim_d_12(seed: int) -> float:
    """P[H_0] misses a state that P[H_1] has: then H_2 can be where H_1 cannot. The mass outside the support."""
    draw = torch.Generator().manual_seed(seed)
    transition = 0.2 + torch.rand(3, 3, generator=draw, dtype=torch.float64)
    transition[2, 0] = transition[2, 2] = 0  # the last state is entered only from the one in the middle
    transition = transition / transition.sum(0)
    emission = appendix_e.softmax_of_uniform((2, 2, 3), 0.5, draw)
    model = MemoryHMM(transition, emission, [1.0, 0.0, 0.0], [0.5, 0.5])
    case = PromptedInstance(model, torch.ones(2, dtype=torch.float64), 0, [0], all_inputs(2, 2), torch.ones(6).double())
    with_prompt, without = _states(case, case.prompt)[:, 1:], _states(case, None)
    return float(with_prompt[without == 0].max(initial=0.0))


# Lemma D.9


def check_lemma_d_9(seed: int) -> Checked:
    """Î ⊆ 𝓘 = {i > 1: supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ H*} for x in 𝓩, Î not empty; scores as in Lemma D.2."""
    case = prompted_instance(seed)
    return Checked(_behind_the_prompt(case, head_of(seed)), case.selective and bool((case.prompt == 0).any()))


def _behind_the_prompt(case: PromptedInstance, head: AttentionHead) -> float:
    rows = case.sure.any(1) & case.in_z
    sure = concentrated(case.model, case.inputs, case.cell, case.syntax, case.prompt).numpy()
    attended = head.attended(case.probs).numpy()
    if (sure != case.hat_sure)[case.chance > 0].any() or (case.moved & ~case.hat_sure)[rows].any():
        return 1.0
    if (attended != case.hat_sure)[rows].any():
        return 1.0
    scores = head.scores(case.probs).numpy()
    if (scores[:, 0] > -1 + 1e-9).any():
        return 1.0  # the position of the prompt must stay below all others
    weights = [conditional(case.hat.left_out(i, f"h{i}"))[:, case.states] for i in range(2, case.length + 2)]
    error = scores[:, 1:] - np.stack([w.sum(1) for w in weights], 1)
    return largest(error[case.chance > 0]) / case.condition


def printed_lemma_d_9(seed: int) -> Printed:
    """𝓘 = Î, with 𝓩 of (D.7) over i ∈ [t] and β_1 = -2, as printed: 1 where they differ on an input."""
    seed += seed % 10 == 0  # leaves out the family that was made for this
    case = prompted_instance(seed)
    first = torch.zeros_like(head_of(seed).query)
    first[-1] = -2
    head = replace(head_of(seed), positions=first[None])
    rows = case.in_r & (case.hat_left[:, : case.length] > 0).all(1)
    differs = (head.attended(case.probs).numpy() != case.moved)[rows].any()
    return in_words(case.model, case.length, seed, float(differs))


def control_lemma_d_9(seed: int) -> float:
    """`recoverable_twins` behind a prompt: no Ḡ_i with i > 1 differs between two inputs, but where H_2 ∈ H* does; 1 if so."""
    model, x = twins(seed)
    prompt = prompt_d_6(model, [1.0, -1.0], 0)
    sure = concentrated(model, x, 0, [0, 2, 3], prompt)
    probs = masked_token_probs(model, x, prompt)[:, 1:]
    return twin_gap(probs, sure.double()) if sure.any(1).all() else 0.0
