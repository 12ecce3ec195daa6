"""Section 4.2 and appendices D.2 and D.3: what a prompt does to a memory model, and Theorems 4.6 and D.6."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import conditional, over
from companion.evidence.random_models import appendix_d1, instances
from companion.evidence.random_models import memory_instances as cases
from companion.evidence.random_models.instances import Checked, Printed, both_signs, largest, refused
from companion.evidence.random_models.memory_instances import MemoryInstance
from hmmlib.inference import messages
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.assumptions import assumption_4_4, assumption_4_5

# Where there is no head without a prompt, there is none behind (D.6).
control_claim_d_10 = partial(appendix_d1.control_claim_d_3, behind_prompt=True)
control_lemma_d_9 = partial(appendix_d1.control_lemma_d_2, behind_prompt=True)
control_lemma_d_13 = partial(appendix_d1.control_lemma_d_4, behind_prompt=True)


def excludes(prompt: Tensor) -> bool:
    """Whether a prompt leaves a state out; behind any other, what is checked is trivial."""
    return bool((prompt == 0).any())


def tau(case: MemoryInstance, own: bool = False) -> np.ndarray:
    """P[M, H_i, x̂_{-i}] (with x̂_i too if `own`) of the library, unscaled, (n, T + 1, M, …, M, H)."""
    scaled = messages.aggregated_messages(case.model, case.embeddings, slice(1, None), own)
    return instances.unscaled(*scaled).reshape(len(case.inputs), -1, *case.model.memory.shape, case.model.n_states)


def check_lemma_d_7(seed: int) -> Checked:
    """(D.5): τ_i(ê(x)) = P[H̃_i, X̂_{-i} = (z̃, x)_{-i}] for every u in [0, 1]^{|H̃|}; Ḡ_i for i > 1, or zero."""
    case = cases.sparse_instance(seed, behind_prompt=True)
    names = [f"m{j}" for j in range(case.model.n_cells)]
    exact = [case.hat_free.given_input(*names, "h1")] + [case.hat.left_out(i, *names, f"h{i}") for i in case.positions]
    differences = [tau(case) - np.stack(exact, 1)]  # (D.5)
    differences += [appendix_d1.output_residual(case), case.probs.numpy()[case.hat_left == 0]]
    return Checked(largest(*differences), len(case.prompt.unique()) > 2 and bool((case.hat_chance > 0).any()))


def control_lemma_d_7(seed: int) -> float:
    """As for Lemma C.1, with a lifted prompt."""
    return instances.apart_if_emitted_alike(families.sparse_memory_hmm(2, 3, 3, seed, 0.0), seed)


def check_proposition_d_8(seed: int) -> Checked:
    """P[M, H_i, X_{i+1:i+t}] = P[M, H_0, X_{1:t}]: the left side by messages, the right side enumerated."""
    case = cases.prompted_instance(seed)
    names = [f"m{j}" for j in range(case.model.n_cells)]
    residual = largest(_later(case.model, case.inputs, 1 + seed % 3) - case.table.given_input(*names, "h0"))
    return Checked(residual, case.model.n_states > 1 and case.model.n_memory > 1)


def _later(model: MemoryHMM, inputs: Tensor, i: int) -> np.ndarray:
    """P[M, H_i, X_{i+1:i+t} = x] for every x, (n, M, …, M, H)."""
    evidence = model.lift(model.embed(instances.shifted(inputs, i)))
    scaled = messages.aggregated_messages(model, evidence, slice(i, i + 1), own=True)
    return instances.unscaled(*scaled).reshape(-1, *model.memory.shape, model.n_states)


def control_proposition_d_8(seed: int) -> float:
    """A start that is not stationary: P[M, H_1] alone differs from P[M, H_0]."""
    case = cases.not_stationary(seed)
    return largest(_later(case.model, case.inputs, 1) - case.table.given_input("m0", "h0"))


def check_claim_d_10(seed: int) -> Checked:
    """As Claim D.3, on Ḡ_i(ê(x)) for i > 1 with the prompt (D.6); P[H_0] need not be stationary."""
    case = cases.with_other_start(seed, zeros=0.4)
    residual = appendix_d1.recovery_residual(case, np.ones(len(case.inputs), bool))
    return Checked(residual, excludes(case.prompt) and len(case.states) < case.model.n_states)


def memory_given(case: MemoryInstance, own: bool = False) -> np.ndarray:
    """P[M_{j*} | X̂_{-i} = x̂_{-i}] (x̂_i too if `own`) of the library, (n, T + 1, M)."""
    weights = np.moveaxis(tau(case, own), 2 + case.cell, 2)
    weights = weights.reshape(*weights.shape[:3], -1).sum(-1)
    return conditional(weights.reshape(-1, weights.shape[-1])).reshape(weights.shape)


def check_proposition_d_11(seed: int) -> Checked:
    """For i > 1, P[M_{j*} | X̂_{-i} = x̂_{-i}] is exactly 0 outside supp(μ); and it is what enumeration gives."""
    case = cases.with_other_start(seed, zeros=0.4)
    memory, off = memory_given(case)[:, 1:], (case.mu == 0).numpy()
    exact = [conditional(case.hat.left_out(i, f"m{case.cell}")) for i in case.positions]
    return Checked(largest(memory - np.stack(exact, 1), (memory[:, :, off] > 0).any()), bool(off.any()))


def control_proposition_d_11(seed: int) -> float:
    """A prompt that is not (D.6), but positive everywhere: memory values outside supp(μ) keep their probability."""
    prompt = torch.as_tensor(0.2 + 0.8 * np.random.default_rng(seed).random(8))
    case = MemoryInstance(families.recoverable_twins(seed), cases.FIRST_VALUE, 0, [0], torch.tensor([[0, 2]]), prompt)
    return float(memory_given(case)[:, 1:, 1].max())


def check_claim_d_12(seed: int) -> Checked:
    """supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ supp P[H_{i-1} | X_{-(i-1)} = x_{-(i-1)}]: exactly, by the library."""
    case = cases.with_other_start(seed, zeros=0.0)
    with_prompt, without = case.state_probs.numpy()[:, 1:], replace(case, prompt=None).state_probs.numpy()
    exact = [conditional(case.hat.left_out(i, f"h{i}")) for i in case.positions]
    grows = (with_prompt[without == 0] > 0).any()  # (D.9)
    nontrivial = excludes(case.prompt) and bool((without[without.any(-1)] == 0).any())
    return Checked(largest(with_prompt - np.stack(exact, 1), grows), nontrivial)


def control_claim_d_12(seed: int) -> float:
    """P[H_0] misses a state that P[H_1] has: then H_2 can be where H_1 cannot. The mass outside the support."""
    draw = torch.Generator().manual_seed(seed)
    transition = 0.2 + torch.rand(3, 3, generator=draw, dtype=torch.float64)
    transition[2, 0] = transition[2, 2] = 0  # the last state is entered only from the one in the middle
    emission = appendix_e.softmax_of_uniform((2, 2, 3), 0.5, draw)
    model = MemoryHMM(transition / transition.sum(0), emission, [1.0, 0.0, 0.0], [0.5, 0.5])
    case = MemoryInstance(model, torch.ones(2).double(), 0, [0], instances.all_inputs(2, 2), torch.ones(6).double())
    return largest(case.state_probs[:, 1:][replace(case, prompt=None).state_probs == 0])


def check_lemma_d_9(seed: int) -> Checked:
    """Î ⊆ 𝓘 = {i > 1: supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ H*} for x in 𝓩, Î not empty; scores as in Lemma D.2."""
    case = cases.prompted_instance(seed)
    rows = case.sure.any(1) & case.in_z
    missed = (case.moved & ~case.hat_sure)[rows].any()
    prompt_attended = (case.head.scores(case.probs)[:, 0] > -1 + 1e-9).any()  # it must stay below all others
    residual = largest(missed, prompt_attended, appendix_d1.attention_residual(case, rows))
    return Checked(residual, case.selective and excludes(case.prompt))


def printed_lemma_d_9(seed: int) -> Printed:
    """𝓘 = Î, with 𝓩 of (D.7) over i ∈ [t] and β_1 = -2, as printed: 1 where they differ on an input."""
    seed += seed % 10 == 0  # leaves out the family that was made for this
    case = cases.prompted_instance(seed)
    first = torch.zeros_like(case.head.query)
    first[-1] = -2
    rows = case.in_r & (case.hat_left[:, : case.length] > 0).all(1)
    differs = (replace(case.head, positions=first[None]).attended(case.probs).numpy() != case.moved)[rows].any()
    return instances.in_words(case.model, case.length, seed, float(differs))


def counterexample_lemma_d_9() -> Printed:
    """`shrinking_support`, inputs (0, 2) and (1, 2): all Ḡ_i with i > 1 agree, so 𝓘 does, and Î is {2, 3} and {2}."""
    model, syntax = families.shrinking_support()
    x, prompt = torch.tensor([[0, 2], [1, 2]]), theorems.prompt_d_6(model, [1.0, 0.0], 0)
    g = messages.masked_token_probs(model, x, prompt)[:, 1:]
    sure = theorems.concentrated(model, x, 0, syntax)
    fair = assumption_4_4(model).holds and assumption_4_5(model, [1.0, 0.0], syntax).holds and bool(g.any(-1).all())
    differs = largest(g[0] - g[1]) < 1e-12 and bool(sure.any(1).all()) and not torch.equal(sure[0], sure[1])
    return Printed(float(fair and differs), 24, "three states, two memory values, four tokens, length 2")


def check_lemma_d_13(seed: int) -> Checked:
    """V = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_{-i} = x̂_{-i}] = r μᵀP[M_{j*} | x] on Î; 0 where x̂ is impossible, i > 1."""
    case = cases.prompted_instance(seed)
    values = case.head.values(case.probs, case.embeddings).numpy()
    values, left = values[:, 1:], case.hat_left[:, 1:]
    excluded, target = (case.chance > 0) & (case.hat_chance == 0), case.target[:, None]
    exact = (case.hat.given_input(f"m{case.cell}") @ case.mu.numpy())[:, None]
    rows = case.in_r[:, None] & case.sure
    possible = rows & (left > 0) & (case.hat_chance > 0)[:, None]
    differences = [values[excluded], (values - over(exact, left))[rows & (left > 0)]]
    differences += [(values - over(case.chance[:, None], left) * target)[possible], target * (rows & ~possible)]
    nontrivial = excludes(case.prompt) and both_signs(case.target[case.in_r])
    return Checked(largest(*differences) / case.condition, nontrivial)


def check_claim_d_14(seed: int) -> Checked:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | X = x]: the first factor by messages."""
    case = cases.prompted_instance(seed)
    return Checked(_claim_d_14_residual(case), excludes(case.prompt))


def _claim_d_14_residual(case: MemoryInstance) -> float:
    behind = memory_given(case, own=True)[:, 0] @ case.mu.numpy()  # (D.10)
    chance = over(case.hat_chance, case.hat_left[:, 0])
    return largest((behind * chance - case.target)[case.hat_chance > 0])


def control_claim_d_14(seed: int) -> float:
    """A start that is not stationary: the text behind the prompt then has another start than the text alone."""
    return _claim_d_14_residual(cases.not_stationary(seed))


def check_claim_d_15(seed: int) -> Checked:
    """Where x̂ is impossible and x is not, μᵀP[M_{j*} | x] = 0 exactly; where x̂_{-i} is impossible, Ḡ_i is zero."""
    case = cases.with_other_start(seed, zeros=0.0)
    excluded = (case.chance > 0) & (case.hat_chance == 0)
    score = messages.memory_posterior(case.model, case.inputs, case.cell) @ case.mu
    residual = largest(score.numpy()[excluded], case.target[excluded], case.probs.numpy()[case.hat_left == 0])
    return Checked(residual, bool(excluded.any()))


def control_claim_d_15(seed: int) -> float:
    """A prompt that is 0 on a value of supp(μ): an input that only this value explains is impossible, and weighs."""
    draw = torch.Generator().manual_seed(seed)
    chain = families.regular_hmm(2, 1, draw)
    emission = torch.zeros(3, 2, 2, dtype=torch.float64)
    emission[0] = 0.2 + 0.6 * torch.rand(2, 2, generator=draw)
    emission[1, 0], emission[2, 1] = 1 - emission[0, 0], 1 - emission[0, 1]  # tokens 1 and 2 show the value
    model = MemoryHMM(chain.transition, emission, chain.stationary(), [0.5, 0.5])
    mu = torch.as_tensor(0.5 + np.random.default_rng(seed).random(2))
    case = MemoryInstance(model, mu, 0, [0], instances.all_inputs(3, 2), theorems.prompt_d_6(model, [1.0, 0.0], 0))
    return largest(case.target[(case.chance > 0) & (case.hat_chance == 0)])


def check_theorem_d_6(seed: int) -> Checked:
    """Attn = r_x μᵀP[M_{j*} | x] on 𝓡, r_x the mean of r_{x,i} over the attended positions; 0 where x̂ is impossible.

    And the same without stationarity and regularity, for the prompt that lets H_1 have the law of H_0.
    """
    case = cases.prompted_instance(seed)
    found, other = _theorem_d_6(case), _any_start(seed, case)
    return Checked(largest(found.residual, other.residual), found.nontrivial and other.nontrivial)


def _any_start(seed: int, case: MemoryInstance) -> Checked:
    """The head of the proof behind `prompt_for_any_start`.

    Chain and start are drawn anew, until H_1 can be where H_0 can and both labels occur; or else the last so far.
    """
    draw, old, other = torch.Generator().manual_seed(seed), case.model, None
    for _ in range(cases.TRIES):
        transition = families.sparse_columns((old.n_states, old.n_states), 0.6, draw)
        initial = families.sparse_columns((old.n_states,), 0.3, draw)
        first = transition @ initial
        if ((initial > 0) & (first == 0)).any():
            continue
        model = MemoryHMM(transition, old.emission, initial, old.memory)
        other = replace(case, model=model, prompt=theorems.prompt_for_any_start(model, case.mu, case.cell))
        rows, largest_ratio = other.in_r & (other.hat_chance > 0), over(initial.numpy(), first.numpy()).max()
        if both_signs(other.target[rows]):
            break
    if other is None:
        return Checked(0.0, False)
    exact = other.hat.given_input(f"m{case.cell}") @ case.mu.numpy()
    read, want = (other.probs, other.embeddings), exact * other.mean_inverse
    residual = appendix_d1.head_residual(other, other.head, read, want, rows)
    prompt_right = largest_ratio * exact - other.chance * other.target  # the largest ratio scales u into [0, 1]
    return Checked(largest(residual, prompt_right), both_signs(other.target[rows]))


def _theorem_d_6(case: MemoryInstance) -> Checked:
    prompt, head = theorems.theorem_4_6(case.model, case.mu, case.cell, case.syntax)
    made = replace(case, prompt=prompt)
    read = made.probs, made.embeddings
    ratios, possible = case.chance * case.mean_inverse, case.hat_chance > 0
    residual = appendix_d1.head_residual(case, head, read, np.where(possible, ratios * case.target, 0), case.in_r)
    wrong = case.target[case.in_r & ~possible], (ratios[case.in_r & possible] <= 0).any()
    return Checked(largest(residual, *wrong), both_signs(case.target[case.in_r]) and excludes(prompt))


def check_theorem_4_6(seed: int) -> Checked:
    """Theorem D.6 with one memory cell."""
    return _theorem_d_6(cases.one_cell_instance(seed))


def control_theorem_d_6(seed: int) -> float:
    """As for Theorem 4.3, behind the prompt (D.6) for μ on both values.

    For i > 1, Ḡ_i is the same vector everywhere, and Ḡ_1 takes two values. So the attended positions, and what
    position 1 adds, depend on the input only through which of the two it is; linear programs refute every function of
    the tokens with such a constant. Attending to position 1 alone gives one score for each, with both labels.
    """
    case = cases.parity(seed, behind_prompt=True)
    probs, labels = case.probs, messages.memory_posterior(case.model, case.inputs)[:, 0] > 0.5
    blind = largest(probs[:, 1:] - 0.5) < 1e-12
    first = (probs[:, 0, 0] > 0.5).long()  # which of the two values Ḡ_1 takes
    two = largest(*(probs[first == k, 0] - probs[first == k, 0][0] for k in (0, 1))) < 1e-12
    both = all(labels[first == k].any() and not labels[first == k].all() for k in (0, 1))
    shown, constants = (torch.nn.functional.one_hot(values, 2).double() for values in (case.inputs, first))
    attended = (shown[:, 0], shown[:, 1], shown.mean(1))
    refuses = refused(theorems.theorem_4_6, case.model, case.mu, 0, case.syntax)
    refuted = instances.no_head_fits([torch.cat([values, constants], 1) / 2 for values in attended], labels)
    return float(refuses and blind and two and both and refuted)


control_theorem_4_6 = control_theorem_d_6
