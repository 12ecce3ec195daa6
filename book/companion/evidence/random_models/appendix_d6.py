"""Appendix D.3 from the value function on: Lemma D.13, Claims D.14 and D.15, Theorems D.6 and 4.6."""

from __future__ import annotations

import numpy as np
import torch

from companion.evidence.random_models.appendix_d1 import head_residual, mean_inverse
from companion.evidence.random_models.appendix_d3 import head_of, memory_given, recovery_of
from companion.evidence.random_models.instances import all_inputs
from companion.evidence.random_models.memory_instances import (
    TRIES,
    PromptedInstance,
    not_stationary,
    one_cell_instance,
    parity,
    prompted_instance,
    with_other_start,
)
from companion.evidence.random_models.residuals import (
    Checked,
    both_signs,
    largest,
    no_head_fits,
    over,
    refused,
    twin_gap,
)
from hmmlib.inference.messages import masked_token_probs, memory_posterior, prompted
from hmmlib.models import families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory.theorems import prompt_d_6, prompt_for_any_start, prompted_head, theorem_4_6

# Lemma D.13, Claims D.14 and D.15


def check_lemma_d_13(seed: int) -> Checked:
    """V = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_{-i} = x̂_{-i}] = r μᵀP[M_{j*} | x] on Î; 0 for all i > 1 where x̂ is impossible."""
    case, head = prompted_instance(seed), head_of(seed)
    values = head.values(case.probs, case.embeddings).numpy()
    impossible = (case.chance > 0) & (case.hat_chance == 0)
    residuals = [largest(values[impossible, 1:])]
    exact = case.hat.given_input(f"m{case.cell}") @ case.mu.numpy()
    for i in range(2, case.length + 2):
        read, left = values[:, i - 1], case.hat_left[:, i - 1]
        rows = case.in_r & case.moved[:, i - 1]
        possible = rows & (left > 0) & (case.hat_chance > 0)
        residuals.append(largest((read - over(exact, left))[rows & (left > 0)]))
        residuals.append(largest((read - over(case.chance, left) * case.target)[possible]))
        residuals.append(largest(case.target[rows & ~possible]))
    nontrivial = bool((case.prompt == 0).any()) and both_signs(case.target[case.in_r])
    return Checked(largest(*residuals) / case.condition, nontrivial)


def control_lemma_d_13(seed: int) -> float:
    """`parity_memory_hmm`: behind the prompt, (0, 0) and (0, 1) have one token and one Ḡ at position 2, and other signs."""
    model, x = parity(seed), torch.tensor([[0, 0], [0, 1]])
    target = memory_posterior(model, x)[:, :1] - 0.5
    probs = masked_token_probs(model, x, prompt_d_6(model, [1.0, -1.0], 0))[:, 1]
    return twin_gap(probs, target) if target[0] > 0 > target[1] else 0.0


def check_claim_d_14(seed: int) -> Checked:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | X = x]: the first factor by messages, the rest enumerated."""
    case = prompted_instance(seed)
    return Checked(_claim_d_14_residual(case), bool((case.prompt == 0).any()))


def _claim_d_14_residual(case: PromptedInstance) -> float:
    behind = memory_given(case, own=True)[:, 0] @ case.mu.numpy()  # (D.10)
    chance = over(case.hat_chance, case.hat_left[:, 0])
    return largest((behind * chance - case.target)[case.hat_chance > 0])


def control_claim_d_14(seed: int) -> float:
    """A start that is not stationary: the text behind the prompt is then judged from another start than the text alone."""
    model, inputs = not_stationary(seed)
    mu = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return _claim_d_14_residual(PromptedInstance(model, mu, 0, [0], inputs, prompt_d_6(model, mu, 0)))


def check_claim_d_15(seed: int) -> Checked:
    """Where x̂ is impossible and x is not, μᵀP[M_{j*} | x] = 0 exactly; where x̂_{-i} is impossible, Ḡ_i is zero."""
    case = with_other_start(seed, zeros=0.0)
    excluded = (case.chance > 0) & (case.hat_chance == 0)
    score = memory_posterior(case.model, case.inputs, case.cell) @ case.mu
    residual = largest(score.numpy()[excluded], case.target[excluded], case.probs.numpy()[case.hat_left == 0])
    return Checked(residual, bool(excluded.any()))


def control_claim_d_15(seed: int) -> float:
    """A prompt that is 0 on a value of supp(μ): an input that only this value explains is impossible, and weighs."""
    rng = np.random.default_rng(seed)
    draw = torch.Generator().manual_seed(seed)
    chain = families.regular_hmm(2, 1, draw)
    emission = torch.zeros(3, 2, 2, dtype=torch.float64)
    emission[0] = 0.2 + 0.6 * torch.rand(2, 2, generator=draw)
    emission[1, 0], emission[2, 1] = 1 - emission[0, 0], 1 - emission[0, 1]  # tokens 1 and 2 tell the value
    model = MemoryHMM(chain.transition, emission, chain.stationary(), [0.5, 0.5])
    mu = torch.as_tensor(0.5 + rng.random(2))
    other = prompt_d_6(model, torch.tensor([1.0, 0.0]), 0)
    case = PromptedInstance(model, mu, 0, [0], all_inputs(3, 2), other)
    return largest(case.target[(case.chance > 0) & (case.hat_chance == 0)])


# Theorems D.6 and 4.6


def check_theorem_d_6(seed: int) -> Checked:
    """Attn = r_x μᵀP[M_{j*} | x] on 𝓡, r_x the mean of r_{x,i} over the attended positions; 0 where x̂ is impossible.

    And the same without stationarity and regularity, for the prompt that lets H_1 have the law of H_0. Each label is that
    of its target. Not trivial if both occur, in either half, and the prompt is not all ones.
    """
    case = prompted_instance(seed)
    found, other = _theorem_d_6(case), _any_start(seed, case)
    return Checked(largest(found.residual, other.residual), found.nontrivial and other.nontrivial)


def _with_any_start(seed: int, case: PromptedInstance) -> PromptedInstance | None:
    """Chain and start drawn anew, until H_1 can be where H_0 can and both labels occur; or else the last of the former."""
    draw, old, other = torch.Generator().manual_seed(seed), case.model, None
    for _ in range(TRIES):
        transition = families.sparse_columns((old.n_states, old.n_states), 0.6, draw)
        initial = families.sparse_columns((old.n_states,), 0.3, draw)
        if ((initial > 0) & (transition @ initial == 0)).any():
            continue
        model = MemoryHMM(transition, old.emission, initial, old.memory)
        prompt = prompt_for_any_start(model, case.mu, case.cell)
        other = PromptedInstance(model, case.mu, case.cell, case.syntax, case.inputs, prompt)
        if both_signs(other.target[other.in_r & (other.hat_chance > 0)]):
            break
    return other


def _any_start(seed: int, case: PromptedInstance) -> Checked:
    """The head of the proof behind `prompt_for_any_start`."""
    other = _with_any_start(seed, case)
    if other is None:
        return Checked(0.0, False)
    head = prompted_head(other.model, case.mu, recovery_of(seed))
    exact = other.hat.given_input(f"m{case.cell}") @ case.mu.numpy()
    rows = other.in_r & (other.hat_chance > 0)
    want = exact * mean_inverse(other.hat_left, other.hat_sure)
    residual = head_residual(case, head, (other.probs, other.embeddings), want, other.target, rows)
    initial, first = other.model.initial.numpy(), other.model.marginal(1).numpy()
    prompt_right = over(initial, first).max() * exact - other.chance * other.target  # the maximum scales u into [0, 1]
    return Checked(largest(residual, prompt_right), both_signs(other.target[rows]))


def _theorem_d_6(case: PromptedInstance) -> Checked:
    prompt, head = theorem_4_6(case.model, case.mu, case.cell, case.syntax)
    read = masked_token_probs(case.model, case.inputs, prompt), prompted(case.model, prompt, case.inputs)
    ratios, possible = case.chance * mean_inverse(case.hat_left, case.hat_sure), case.hat_chance > 0
    if not (ratios[case.in_r & possible] > 0).all():
        return Checked(np.inf, True)
    residual = head_residual(case, head, read, np.where(possible, ratios * case.target, 0), case.target, case.in_r)
    excluded = case.target[case.in_r & ~possible]
    return Checked(largest(residual, excluded), both_signs(case.target[case.in_r]) and bool((prompt == 0).any()))


def check_theorem_4_6(seed: int) -> Checked:
    """Theorem D.6 with one memory cell."""
    return _theorem_d_6(one_cell_instance(seed))


def control_theorem_d_6(seed: int) -> float:
    """`parity_memory_hmm` behind the prompt (D.6), μ on both values: 1 where no attention head fits the inputs of length 2,
    and the construction refuses the model.

    For i > 1, Ḡ_i is the same vector everywhere, and Ḡ_1 takes two values. So the attended positions, and what
    position 1 adds, can depend on the input only through which of the two it is; linear programs refute every function
    of the tokens with one such constant each. Attending to position 1 alone gives one score for each of the two, and
    both labels occur with either.
    """
    model, x = parity(seed), all_inputs(2, 2)
    probs, labels = (
        masked_token_probs(model, x, prompt_d_6(model, [1.0, -1.0], 0)),
        memory_posterior(model, x)[:, 0] > 0.5,
    )
    blind = largest(probs[:, 1:] - 0.5) < 1e-12
    first = (probs[:, 0, 0] > 0.5).long()  # which of the two values Ḡ_1 takes
    two = largest(*(probs[first == k, 0] - probs[first == k, 0][0] for k in (0, 1))) < 1e-12
    both = all(labels[first == k].any() and not labels[first == k].all() for k in (0, 1))
    shown, constants = (torch.nn.functional.one_hot(values, 2).double() for values in (x, first))
    attended = (shown[:, 0], shown[:, 1], shown.mean(1))
    refuted = no_head_fits([torch.cat([values, constants], 1) / 2 for values in attended], labels)
    return float(refused(theorem_4_6, model, [1.0, -1.0], 0, range(4)) and blind and two and both and refuted)
