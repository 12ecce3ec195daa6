"""Appendix D.3 from the value function on: Lemma D.13, Claims D.14 and D.15, Theorems D.6 and 4.6."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from hmmlib.evidence.enumeration import conditional
from hmmlib.evidence.random_models.appendix_d1 import draw_place, twin_gap
from hmmlib.evidence.random_models.appendix_d3 import (
    Prompted,
    draw_not_stationary,
    draw_prompted,
    head_of,
    recovery_of,
    tau,
    with_other_start,
)
from hmmlib.evidence.random_models.instances import all_inputs, largest
from hmmlib.inference.messages import masked_token_probs, memory_posterior, prompted
from hmmlib.models import families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.theory.theorems import prompt_d_6, prompt_for_any_start, prompted_head, theorem_4_6

# Lemma D.13, Claims D.14 and D.15


def _ratios(place: Prompted) -> np.ndarray:
    """r_{x,i} = Pr(X = x) / Pr(X̂_{-i} = x̂_{-i}), (n, T + 1); 0 where that is impossible."""
    return np.where(place.hat_left > 0, place.chance[:, None] / np.where(place.hat_left > 0, place.hat_left, 1), 0)


def check_lemma_d_13(seed: int) -> float:
    """V = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_{-i} = x̂_{-i}] = r μᵀP[M_{j*} | x] on Î; 0 for all i > 1 where x̂ is impossible."""
    place, head = draw_prompted(seed), head_of(seed)
    found = head.values(place.probs, place.embeddings).numpy()
    impossible = (place.chance > 0) & (place.hat_chance == 0)
    residuals = [largest(found[impossible, 1:])]
    exact = place.hat.given_input(f"m{place.cell}") @ place.mu.numpy()
    ratios = _ratios(place)
    for i in range(2, place.length + 2):
        rows = place.within & place.moved[:, i - 1] & (place.hat_left[:, i - 1] > 0)
        given = exact / np.where(rows, place.hat_left[:, i - 1], 1)
        residuals.append(largest((found[:, i - 1] - given)[rows]))
        possible = rows & (place.hat_chance > 0)
        residuals.append(largest((found[:, i - 1] - ratios[:, i - 1] * place.target)[possible]))
        residuals.append(largest(place.target[place.within & place.moved[:, i - 1] & ~possible]))
    return largest(*residuals) / recovery_of(seed).condition


def _parity(seed: int) -> tuple[MemoryHMM, Tensor]:
    model = families.parity_memory_hmm(2, float(np.random.default_rng(seed).uniform(0.02, 0.4)))
    return model, prompt_d_6(model, [1.0, -1.0], 0)


def control_lemma_d_13(seed: int) -> float:
    """`parity_memory_hmm`: behind the prompt, (0, 0) and (0, 1) have one token and one Ḡ at position 2, and other signs."""
    model, prompt = _parity(seed)
    x = torch.tensor([[0, 0], [0, 1]])
    target = memory_posterior(model, x)[:, :1] - 0.5
    probs = masked_token_probs(model, x, prompt)[:, 1]
    return twin_gap(probs, target) if target[0] > 0 > target[1] else 0.0


def check_claim_d_14(seed: int) -> float:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | X = x]: the first factor by messages, the rest enumerated."""
    place = draw_prompted(seed)
    return _d_14(place.model, place)


def _d_14(model: MemoryHMM, place: Prompted) -> float:
    weights = np.moveaxis(tau(place, own=True)[:, 0], 1 + place.cell, 1)
    found = conditional(weights.reshape(*weights.shape[:2], -1).sum(-1)) @ place.mu.numpy()
    rows = place.hat_chance > 0
    chance = place.hat_chance / np.where(rows, place.hat_left[:, 0], 1)
    return largest((found * chance - place.target)[rows])


def control_claim_d_14(seed: int) -> float:
    """A start that is not stationary: the text behind the prompt is then judged from another start than the text alone."""
    model, inputs = draw_not_stationary(seed)
    mu = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return _d_14(model, Prompted(model, mu, 0, [0], inputs, prompt_d_6(model, mu, 0)))


def check_claim_d_15(seed: int) -> float:
    """Where x̂ is impossible and x is not, μᵀP[M_{j*} | x] = 0 exactly; where x̂_{-i} is impossible, Ḡ_i is zero."""
    place = with_other_start(seed, zeros=0.0)
    excluded = (place.chance > 0) & (place.hat_chance == 0)
    found = memory_posterior(place.model, place.inputs, place.cell) @ place.mu
    return largest(found.numpy()[excluded], place.target[excluded], place.probs.numpy()[place.hat_left == 0])


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
    place = Prompted(model, mu, 0, [0], all_inputs(3, 2), other)
    return largest(place.target[(place.chance > 0) & (place.hat_chance == 0)])


# Theorems D.6 and 4.6


def check_theorem_d_6(seed: int) -> float:
    """Attn = r_x μᵀP[M_{j*} | x] on 𝓡, r_x the mean of r_{x,i} over the attended positions; 0 where x̂ is impossible.

    And the same without stationarity and regularity, for the prompt that lets H_1 have the law of H_0.
    """
    place = draw_prompted(seed)
    return largest(_theorem(seed, place), _any_start(seed, place))


def _any_start(seed: int, place: Prompted) -> float:
    """The head of the proof behind `prompt_for_any_start`, on a chain and a start drawn anew; 0 where there is none."""
    draw = torch.Generator().manual_seed(seed)
    old = place.model
    transition = families.sparse_columns((old.n_states, old.n_states), 0.6, draw)
    initial = families.sparse_columns((old.n_states,), 0.3, draw)
    model = MemoryHMM(transition, old.emission, initial, old.memory)
    if ((initial > 0) & (model.marginal(1) == 0)).any():
        return 0.0
    prompt = prompt_for_any_start(model, place.mu, place.cell)
    other = Prompted(model, place.mu, place.cell, place.syntax, place.inputs, prompt)
    head = prompted_head(model, place.mu, recovery_of(seed))
    score = head(other.probs, other.embeddings).numpy()
    exact = other.hat.given_input(f"m{place.cell}") @ place.mu.numpy()
    left = np.where(other.hat_sure, 1 / np.where(other.hat_left > 0, other.hat_left, 1), 0)
    want = exact * left.sum(1) / np.maximum(other.hat_sure.sum(1), 1)
    first = model.marginal(1).numpy()
    factor = np.divide(
        initial.numpy(), first, out=np.zeros_like(first), where=first > 0
    ).max()  # what scales u into [0, 1]
    rows = other.within & (other.hat_chance > 0)
    return largest(largest((score - want)[rows]) / head.condition, factor * exact - other.chance * other.target)


def _theorem(seed: int, place: Prompted) -> float:
    prompt, head = theorem_4_6(place.model, place.mu, place.cell, place.syntax)
    score = head(masked_token_probs(place.model, place.inputs, prompt), prompted(place.model, prompt, place.inputs))
    ratios = np.where(place.hat_sure, _ratios(place), 0).sum(1) / np.maximum(place.hat_sure.sum(1), 1)
    possible = place.hat_chance > 0
    if not (ratios[place.within & possible] > 0).all():
        return np.inf
    want = np.where(possible, ratios * place.target, 0)
    excluded = largest(place.target[place.within & ~possible])
    return largest(largest((score.numpy() - want)[place.within]) / head.condition, excluded)


def check_theorem_4_6(seed: int) -> float:
    """Theorem D.6 with one memory cell."""
    return _theorem(seed, _one_cell(seed))


@lru_cache(maxsize=2)
def _one_cell(seed: int) -> Prompted:
    def make(rng, _, seed):
        n_memory, n_syntax = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        n_recoverable, values = int(rng.integers(1, n_syntax + 1)), int(rng.integers(1, n_memory + 1))
        zeros = 0.5 + 0.45 * rng.random()
        return families.recoverable_memory_hmm(1, n_memory, n_syntax, n_recoverable, values, seed, zeros, True)

    place = draw_place(seed, make, 4, 1)
    prompt = prompt_d_6(place.model, place.mu, 0)
    return Prompted(place.model, place.mu, 0, place.syntax, place.inputs, prompt)


def control_theorem_d_6(seed: int) -> float:
    """`parity_memory_hmm` behind the prompt (D.6), μ on both values: 1 where no attention head fits the inputs of length 2.

    For i > 1, Ḡ_i is the same vector everywhere, and Ḡ_1 takes two values. So the attended positions, and what
    position 1 adds, can depend on the input only through which of the two it is; linear programs refute every function
    of the tokens with one such constant each. Attending to position 1 alone gives one score for each of the two, and
    both labels occur with either.
    """
    model, prompt = _parity(seed)
    x = all_inputs(2, 2)
    probs, labels = masked_token_probs(model, x, prompt), memory_posterior(model, x)[:, 0] > 0.5
    blind = largest(probs[:, 1:] - 0.5) < 1e-12
    kind = (probs[:, 0, 0] > 0.5).long()
    two = largest(*(probs[kind == k, 0] - probs[kind == k, 0][0] for k in (0, 1))) < 1e-12
    both = all(labels[kind == k].any() and not labels[kind == k].all() for k in (0, 1))
    shown, kinds = (torch.nn.functional.one_hot(part, 2).double() for part in (x, kind))
    parts = (shown[:, 0], shown[:, 1], shown.mean(1))
    refuted = [fit_or_refute(torch.cat([part, kinds], 1) / 2, labels) for part in parts]
    return float(blind and two and both and all(isinstance(r, Impossible) and r.residual < 1e-9 for r in refuted))
