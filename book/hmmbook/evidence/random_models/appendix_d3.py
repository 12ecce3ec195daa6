"""Section 4.2 and appendices D.2 and D.3: what a prompt does to a memory model, and Theorems 4.6 and D.6."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.enumeration import conditional, over
from hmmbook.evidence.random_models import appendix_d1, broken_assumptions, instances
from hmmbook.evidence.random_models import memory_instances as cases
from hmmbook.evidence.random_models.instances import Checked, Printed, both_signs, largest, refused
from hmmbook.evidence.random_models.memory_instances import MemoryInstance
from hmmlib.inference import messages
from hmmlib.inference.forward_backward import aggregated_messages
from hmmlib.models import appendix_e, counterexamples, families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.assumptions import assumption_4_4, assumption_4_5

# Where there is no head without a prompt, there is none behind (D.6).
control_claim_d_10 = partial(appendix_d1.control_claim_d_3, behind_prompt=True)
control_lemma_d_9 = partial(appendix_d1.control_lemma_d_2, behind_prompt=True)
control_lemma_d_13 = partial(appendix_d1.control_lemma_d_4, behind_prompt=True)


# What the library says of memory and state


def excludes(prompt: Tensor) -> bool:
    """Whether a prompt leaves a state out. Behind any other, what is checked is trivial."""
    return bool((prompt == 0).any())


def cells_of(case: MemoryInstance) -> list[str]:
    """The names of all memory cells, as `Joint` takes them."""
    return [f"m{j}" for j in range(case.model.n_cells)]


def tau(case: MemoryInstance, own: bool = False) -> np.ndarray:
    """P[M, H_i, x̂_{-i}], with x̂_i too if `own`, (n, T + 1, M, …, M, H)."""
    scaled = aggregated_messages(case.model, case.embeddings, slice(1, None), own)
    lifted_shape = (*case.model.memory.shape, case.model.n_states)
    return instances.unscaled(*scaled).reshape(len(case.inputs), -1, *lifted_shape)


def memory_given(case: MemoryInstance, own: bool = False) -> np.ndarray:
    """P[M_{j*} | X̂_{-i} = x̂_{-i}], given x̂_i too if `own`, (n, T + 1, M)."""
    weights = np.moveaxis(tau(case, own), 2 + case.cell, 2)
    weights = weights.reshape(*weights.shape[:3], -1).sum(-1)
    rows = weights.reshape(-1, weights.shape[-1])
    return conditional(rows).reshape(weights.shape)


# Lemma D.7 and Proposition D.8


def check_lemma_d_7(seed: int) -> Checked:
    """(D.5): τ_i(ê(x)) = P[H̃_i, X̂_{-i} = (z̃, x)_{-i}] for every u in [0, 1]^{|H̃|}; Ḡ_i for i > 1, or zero."""
    case = cases.sparse_instance(seed, behind_prompt=True)
    exact = [case.hat_free.given_input(*cells_of(case), "h1")]
    for i in case.positions:
        exact.append(case.hat.left_out(i, *cells_of(case), f"h{i}"))
    impossible = case.hat_left == 0
    residual = largest(
        tau(case) - np.stack(exact, 1),  # (D.5)
        appendix_d1.output_residual(case),
        case.probs.numpy()[impossible],
    )
    some_possible = bool((case.hat_chance > 0).any())
    return Checked(residual, some_possible and len(case.prompt.unique()) > 2)


def control_lemma_d_7(seed: int) -> float:
    """As for Lemma C.1, with a lifted prompt."""
    return instances.apart_if_emitted_alike(families.sparse_memory_hmm(2, 3, 3, seed, 0.0), seed)


def _later(model: MemoryHMM, inputs: Tensor, i: int) -> np.ndarray:
    """P[M, H_i, X_{i+1:i+t} = x] for every x, by messages, (n, M, …, M, H)."""
    evidence = model.lift(model.embed(instances.shifted(inputs, i)))
    scaled = aggregated_messages(model, evidence, slice(i, i + 1), own=True)
    return instances.unscaled(*scaled).reshape(-1, *model.memory.shape, model.n_states)


def check_proposition_d_8(seed: int) -> Checked:
    """P[M, H_i, X_{i+1:i+t}] = P[M, H_0, X_{1:t}]: the left side by messages, the right side enumerated."""
    case = cases.prompted_instance(seed)
    at_start = case.table.given_input(*cells_of(case), "h0")
    residual = largest(_later(case.model, case.inputs, 1 + seed % 3) - at_start)
    return Checked(residual, case.model.n_states > 1 and case.model.n_memory > 1)


def control_proposition_d_8(seed: int) -> float:
    """A start that is not stationary: P[M, H_1] alone differs from P[M, H_0]."""
    case = broken_assumptions.not_stationary(seed)
    return largest(_later(case.model, case.inputs, 1) - case.table.given_input("m0", "h0"))


# Claim D.10 and Proposition D.11


def check_claim_d_10(seed: int) -> Checked:
    """As Claim D.3, on Ḡ_i(ê(x)) for i > 1 with the prompt (D.6); P[H_0] need not be stationary."""
    case = cases.with_other_start(seed, zeros=0.4)
    every_input = np.ones(len(case.inputs), bool)
    residual = appendix_d1.recovery_residual(case, every_input)
    return Checked(residual, excludes(case.prompt) and len(case.states) < case.model.n_states)


def check_proposition_d_11(seed: int) -> Checked:
    """For i > 1, P[M_{j*} | X̂_{-i} = x̂_{-i}] is exactly 0 outside supp(μ); and it is what enumeration gives."""
    case = cases.with_other_start(seed, zeros=0.4)
    memory = memory_given(case)[:, 1:]
    exact = [conditional(case.hat.left_out(i, f"m{case.cell}")) for i in case.positions]
    outside = (case.mu == 0).numpy()
    leaks = (memory[:, :, outside] > 0).any()
    residual = largest(memory - np.stack(exact, 1), leaks)
    return Checked(residual, bool(outside.any()))


def control_proposition_d_11(seed: int) -> float:
    """A prompt that is not (D.6), but positive everywhere: memory values outside supp(μ) keep their probability."""
    model = counterexamples.recoverable_twins(seed)
    prompt = torch.as_tensor(0.2 + 0.8 * np.random.default_rng(seed).random(8))
    inputs = torch.tensor([[0, 2]])
    case = MemoryInstance(model, cases.FIRST_VALUE, 0, [0], inputs, prompt)
    return float(memory_given(case)[:, 1:, 1].max())


# Claim D.12


def check_claim_d_12(seed: int) -> Checked:
    """supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ supp P[H_{i-1} | X_{-(i-1)} = x_{-(i-1)}]: exactly, by the library."""
    case = cases.with_other_start(seed, zeros=0.0)
    behind_prompt = case.state_probs.numpy()[:, 1:]
    alone = replace(case, prompt=None).state_probs.numpy()
    exact = [conditional(case.hat.left_out(i, f"h{i}")) for i in case.positions]
    grows = (behind_prompt[alone == 0] > 0).any()  # (D.9)
    some_excluded = (alone[alone.any(-1)] == 0).any()
    residual = largest(behind_prompt - np.stack(exact, 1), grows)
    return Checked(residual, excludes(case.prompt) and bool(some_excluded))


def control_claim_d_12(seed: int) -> float:
    """P[H_0] misses a state that P[H_1] has: then H_2 can be where H_1 cannot. The mass outside the support."""
    draw = torch.Generator().manual_seed(seed)
    transition = 0.2 + torch.rand(3, 3, generator=draw, dtype=torch.float64)
    transition[2, 0] = 0  # The last state is entered only from the one in the middle.
    transition[2, 2] = 0
    emission = appendix_e.softmax_of_uniform((2, 2, 3), 0.5, draw)
    start = [1.0, 0.0, 0.0]
    model = MemoryHMM(transition / transition.sum(0), emission, start, [0.5, 0.5])
    mu = torch.ones(2, dtype=torch.float64)
    prompt = torch.ones(6, dtype=torch.float64)
    case = MemoryInstance(model, mu, 0, [0], instances.all_inputs(2, 2), prompt)
    alone = replace(case, prompt=None).state_probs
    return largest(case.state_probs[:, 1:][alone == 0])


# Lemma D.9


def check_lemma_d_9(seed: int) -> Checked:
    """Î ⊆ 𝓘 = {i > 1: supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ H*} for x in 𝓩, Î not empty; scores as in Lemma D.2."""
    case = cases.prompted_instance(seed)
    rows = case.sure.any(1) & case.in_z
    missed = (case.moved & ~case.hat_sure)[rows].any()
    score_of_prompt = case.head.scores(case.probs)[:, 0]
    prompt_attended = (score_of_prompt > -1 + 1e-9).any()  # It must stay below all others.
    residual = largest(missed, prompt_attended, appendix_d1.attention_residual(case, rows))
    return Checked(residual, case.selective and excludes(case.prompt))


def printed_lemma_d_9(seed: int) -> Printed:
    """𝓘 = Î, with 𝓩 of (D.7) over i ∈ [t] and β_1 = -2, as printed: 1 where they differ on an input."""
    if seed % 10 == 0:  # These seeds give the family that was made for this.
        seed += 1
    case = cases.prompted_instance(seed)
    first = torch.zeros_like(case.head.query)
    first[-1] = -2
    printed_head = replace(case.head, positions=first[None])
    attended = printed_head.attended(case.probs).numpy()
    in_printed_z = (case.hat_left[:, : case.length] > 0).all(1)
    differs = (attended != case.moved)[case.in_r & in_printed_z].any()
    return instances.in_words(case.model, case.length, seed, float(differs))


def counterexample_lemma_d_9() -> Printed:
    """`shrinking_support`, inputs (0, 2) and (1, 2): all Ḡ_i with i > 1 agree, so 𝓘 does, and Î is {2, 3} and {2}."""
    model, syntax = counterexamples.shrinking_support()
    mu = [1.0, 0.0]
    inputs = torch.tensor([[0, 2], [1, 2]])
    prompt = theorems.prompt_d_6(model, mu, 0)
    predicted = messages.masked_token_probs(model, inputs, prompt)[:, 1:]
    sure = theorems.concentrated(model, inputs, 0, syntax)

    assumptions_hold = assumption_4_4(model).holds and assumption_4_5(model, mu, syntax).holds
    in_r = bool(sure.any(1).all())
    in_z = bool(predicted.any(-1).all())
    outputs_agree = largest(predicted[0] - predicted[1]) < 1e-12
    sets_differ = not torch.equal(sure[0], sure[1])
    fails = assumptions_hold and in_r and in_z and outputs_agree and sets_differ
    return Printed(float(fails), 24, "three states, two memory values, four tokens, length 2")


# Lemma D.13


def check_lemma_d_13(seed: int) -> Checked:
    """V = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_{-i} = x̂_{-i}] = r μᵀP[M_{j*} | x] on Î; 0 where x̂ is impossible, i > 1."""
    case = cases.prompted_instance(seed)
    values = case.head.values(case.probs, case.embeddings)[:, 1:].numpy()
    left = case.hat_left[:, 1:]
    target = case.target[:, None]
    rows = case.in_r[:, None] & case.sure
    possible = rows & (left > 0) & (case.hat_chance > 0)[:, None]

    first_form = over(case.hat_target[:, None], left)
    second_form = over(case.chance[:, None], left) * target
    residual = largest(
        (values - first_form)[rows & (left > 0)],
        (values - second_form)[possible],
        values[(case.chance > 0) & (case.hat_chance == 0)],
        target * (rows & ~possible),
    )
    nontrivial = excludes(case.prompt) and both_signs(case.target[case.in_r])
    return Checked(residual / case.condition, nontrivial)


# Claims D.14 and D.15


def _claim_d_14_residual(case: MemoryInstance) -> float:
    behind_prompt = memory_given(case, own=True)[:, 0] @ case.mu.numpy()  # (D.10)
    chance_of_fake_token = over(case.hat_chance, case.hat_left[:, 0])
    return largest((behind_prompt * chance_of_fake_token - case.target)[case.hat_chance > 0])


def check_claim_d_14(seed: int) -> Checked:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | X = x]: the first factor by messages."""
    case = cases.prompted_instance(seed)
    return Checked(_claim_d_14_residual(case), excludes(case.prompt))


def control_claim_d_14(seed: int) -> float:
    """A start that is not stationary: the text behind the prompt then has another start than the text alone."""
    return _claim_d_14_residual(broken_assumptions.not_stationary(seed))


def check_claim_d_15(seed: int) -> Checked:
    """Where x̂ is impossible and x is not, μᵀP[M_{j*} | x] = 0 exactly; where x̂_{-i} is impossible, Ḡ_i is zero."""
    case = cases.with_other_start(seed, zeros=0.0)
    excluded = (case.chance > 0) & (case.hat_chance == 0)
    beliefs = messages.memory_posterior(case.model, case.inputs, case.cell)
    score = (beliefs @ case.mu).numpy()
    probs_of_impossible = case.probs.numpy()[case.hat_left == 0]
    residual = largest(score[excluded], case.target[excluded], probs_of_impossible)
    return Checked(residual, bool(excluded.any()))


def control_claim_d_15(seed: int) -> float:
    """A prompt that is 0 on a value of supp(μ): an input that only this value explains is impossible, and weighs."""
    draw = torch.Generator().manual_seed(seed)
    chain = families.regular_hmm(2, 1, draw)
    emission = torch.zeros(3, 2, 2, dtype=torch.float64)
    emission[0] = 0.2 + 0.6 * torch.rand(2, 2, generator=draw)
    emission[1, 0] = 1 - emission[0, 0]  # Token 1 shows the first memory value, and token 2 the second.
    emission[2, 1] = 1 - emission[0, 1]
    model = MemoryHMM(chain.transition, emission, chain.stationary(), [0.5, 0.5])
    mu = torch.as_tensor(0.5 + np.random.default_rng(seed).random(2))
    prompt = theorems.prompt_d_6(model, [1.0, 0.0], 0)
    case = MemoryInstance(model, mu, 0, [0], instances.all_inputs(3, 2), prompt)
    return largest(case.target[(case.chance > 0) & (case.hat_chance == 0)])


# Theorems 4.6 and D.6


def _theorem_d_6(case: MemoryInstance) -> Checked:
    prompt, head = theorems.theorem_4_6(case.model, case.mu, case.cell, case.syntax)
    prompted = replace(case, prompt=prompt)
    read = (prompted.probs, prompted.embeddings)
    ratios = case.chance * case.mean_inverse
    possible = case.hat_chance > 0
    expected = np.where(possible, ratios * case.target, 0)
    residual = largest(
        appendix_d1.head_residual(case, head, read, expected, case.in_r),
        case.target[case.in_r & ~possible],
        (ratios[case.in_r & possible] <= 0).any(),
    )
    return Checked(residual, both_signs(case.target[case.in_r]) and excludes(prompt))


def _draw_other_chain(seed: int, case: MemoryInstance) -> MemoryInstance | None:
    """Draw chain and start anew, until H_1 can be where H_0 can and both labels occur, or else return the last so far.

    The prompt is that of `prompt_for_any_start`.
    """
    draw = torch.Generator().manual_seed(seed)
    model = case.model
    other = None
    for _ in range(cases.TRIES):
        transition = families.sparse_columns((model.n_states, model.n_states), 0.6, draw)
        initial = families.sparse_columns((model.n_states,), 0.3, draw)
        never_entered = (initial > 0) & (transition @ initial == 0)
        if never_entered.any():
            continue
        other_model = MemoryHMM(transition, model.emission, initial, model.memory)
        prompt = theorems.prompt_for_any_start(other_model, case.mu, case.cell)
        other = replace(case, model=other_model, prompt=prompt)
        if both_signs(other.target[other.in_r & (other.hat_chance > 0)]):
            break
    return other


def _any_start(seed: int, case: MemoryInstance) -> Checked:
    """The head of the proof, without stationarity and regularity, behind `prompt_for_any_start`."""
    other = _draw_other_chain(seed, case)
    if other is None:
        return Checked(0.0, False)
    rows = other.in_r & (other.hat_chance > 0)
    read = (other.probs, other.embeddings)
    expected = other.hat_target * other.mean_inverse
    residual = appendix_d1.head_residual(other, other.head, read, expected, rows)
    first = other.model.transition @ other.model.initial
    largest_ratio = over(other.model.initial.numpy(), first.numpy()).max()  # By it the prompt is scaled into [0, 1].
    prompt_error = largest_ratio * other.hat_target - other.chance * other.target
    return Checked(largest(residual, prompt_error), both_signs(other.target[rows]))


def check_theorem_d_6(seed: int) -> Checked:
    """Attn = r_x μᵀP[M_{j*} | x] on 𝓡, r_x the mean of r_{x,i} over the attended positions; 0 where x̂ is impossible.

    The same holds without stationarity and regularity, for the prompt that lets H_1 have the law of H_0.
    """
    case = cases.prompted_instance(seed)
    stationary = _theorem_d_6(case)
    any_start = _any_start(seed, case)
    residual = largest(stationary.residual, any_start.residual)
    return Checked(residual, stationary.nontrivial and any_start.nontrivial)


def check_theorem_4_6(seed: int) -> Checked:
    """Theorem D.6 with one memory cell."""
    return _theorem_d_6(cases.one_cell_instance(seed))


def control_theorem_d_6(seed: int) -> float:
    """As for Theorem 4.3, behind the prompt (D.6) for μ on both values.

    For i > 1, Ḡ_i is the same vector everywhere, and Ḡ_1 takes two values. So the attended positions, and what
    position 1 adds, depend on the input only through which of the two it is. Linear programs refute every function of
    the tokens with such a constant. Attending to position 1 alone gives one score for each, with both labels.
    """
    case = broken_assumptions.parity(seed, behind_prompt=True)
    labels = messages.memory_posterior(case.model, case.inputs)[:, 0] > 0.5
    blind = largest(case.probs[:, 1:] - 0.5) < 1e-12
    first = (case.probs[:, 0, 0] > 0.5).long()  # Which of its two values Ḡ_1 takes.
    two_values = True
    both_labels = True
    for k in (0, 1):
        alike = case.probs[first == k, 0]
        two_values &= largest(alike - alike[0]) < 1e-12
        both_labels &= len(labels[first == k].unique()) == 2

    tokens = torch.nn.functional.one_hot(case.inputs, 2).double()
    constants = torch.nn.functional.one_hot(first, 2).double()
    functions = []
    every_attended = [tokens[:, 0], tokens[:, 1], tokens.mean(1)]
    for attended in every_attended:
        functions.append(torch.cat([attended, constants], 1) / 2)
    refuted = instances.no_head_fits(functions, labels)
    refuses = refused(theorems.theorem_4_6, case.model, case.mu, 0, case.syntax)
    return float(refuses and blind and two_values and both_labels and refuted)


control_theorem_4_6 = control_theorem_d_6
