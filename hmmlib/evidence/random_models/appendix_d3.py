"""Appendix D.3 up to the key function: Lemma D.7, Propositions D.8 and D.11, Claims D.10 and D.12, Lemma D.9."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from hmmlib.evidence.enumeration import Joint, conditional
from hmmlib.evidence.random_models.appendix_d1 import Place, draw_place, recovery_residual, shape, twin_gap
from hmmlib.evidence.random_models.instances import (
    Printed,
    all_inputs,
    draw_length,
    draw_weights,
    in_words,
    joint,
    largest,
    shifted,
    unscaled,
)
from hmmlib.inference.messages import aggregated_messages, latent_given_others, masked_token_probs, prompted
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.theorems import Recovery, claim_d_10, concentrated, prompt_d_6, prompted_head


@dataclass(frozen=True)
class Prompted(Place):
    """A `Place` with a prompt before each input: position i of x is i + 1 of x̂ = (z̃, x)."""

    prompt: Tensor

    @cached_property
    def hat(self) -> Joint:
        """The joint table of X̂ with z̃ at its first position."""
        return self._after(self.prompt)

    def _after(self, first: Tensor) -> Joint:
        return joint(self.model, [first.numpy(), *[None] * self.length])

    @cached_property
    def hat_chance(self) -> np.ndarray:
        """Pr(X̂ = x̂), (n,)."""
        return self.hat.given_input()

    @cached_property
    def hat_left(self) -> np.ndarray:
        """Pr(X̂_{-i} = x̂_{-i}), (n, T + 1); for i = 1 that is Pr(X_{2:T+1} = x)."""
        free = self._after(torch.ones_like(self.prompt)).given_input()
        return np.stack([free] + [self.hat.left_out(i) for i in range(2, self.length + 2)], 1)

    @cached_property
    def hat_sure(self) -> np.ndarray:
        """Positions i > 1 where all of P[H_i | X̂_{-i} = x̂_{-i}] is on H*, (n, T + 1), by enumeration."""
        outside = np.delete(np.arange(self.model.n_states), self.states)
        weights = [self.hat.left_out(i, f"h{i}")[:, outside].sum(1) for i in range(2, self.length + 2)]
        inside = (np.stack(weights, 1) == 0) & (self.hat_left[:, 1:] > 0)
        return np.concatenate([np.zeros((len(inside), 1), bool), inside], 1)

    @cached_property
    def moved(self) -> np.ndarray:
        """Î of (D.8): Î of the input without prompt, moved by one, (n, T + 1)."""
        return np.concatenate([np.zeros((len(self.sure), 1), bool), self.sure], 1)

    @cached_property
    def in_z(self) -> np.ndarray:
        """𝓩 of (D.7) with i from 2 to t + 1: inputs for which every x̂_{-i} is possible, (n,)."""
        return (self.hat_left[:, 1:] > 0).all(1)

    @cached_property
    def probs(self) -> Tensor:
        return masked_token_probs(self.model, self.inputs, self.prompt)

    @cached_property
    def embeddings(self) -> Tensor:
        return prompted(self.model, self.prompt, self.inputs)


def _recoverable(rng: np.random.Generator, sizes: tuple, seed: int) -> tuple[MemoryHMM, int, list[int], list[int]]:
    n_cells, n_memory, n_syntax, n_recoverable = sizes
    values, zeros = int(rng.integers(1, n_memory + 1)), 0.5 + 0.45 * rng.random()
    return families.recoverable_memory_hmm(
        n_cells, n_memory, n_syntax, n_recoverable, values, seed, zeros, stationary=True
    )


@lru_cache(maxsize=2)
def draw_prompted(seed: int) -> Prompted:
    """Assumptions 4.4 and D.5 hold, and the prompt is (D.6)."""
    if seed % 10 == 0:  # rare among the others: the prompt takes a state away, and more positions become sure
        model, syntax = families.shrinking_support(seed)
        place = Place(model, torch.tensor([1.0, 0.0], dtype=torch.float64), 0, syntax, all_inputs(4, 2))
    else:
        place = draw_place(seed, _recoverable, 3, 1)
    prompt = prompt_d_6(place.model, place.mu, place.cell)
    return Prompted(place.model, place.mu, place.cell, place.syntax, place.inputs, prompt)


def with_other_start(seed: int, zeros: float) -> Prompted:
    """For even seeds the same place, but P[H_0] is not stationary: for statements that do not need it to be."""
    place = draw_prompted(seed)
    if seed % 2:
        return place
    model, draw = place.model, torch.Generator().manual_seed(seed)
    initial = families.sparse_columns((model.n_states,), zeros, draw)
    return replace(place, model=MemoryHMM(model.transition, model.emission, initial, model.memory))


@lru_cache(maxsize=2)
def recovery_of(seed: int) -> Recovery:
    place = draw_prompted(seed)
    return claim_d_10(place.model, place.mu, place.cell, place.syntax)


def head_of(seed: int) -> AttentionHead:
    place = draw_prompted(seed)
    return prompted_head(place.model, place.mu, recovery_of(seed))


def tau(place: Prompted, own: bool = False) -> np.ndarray:
    """P[M, H_i, x̂_{-i}] (with x̂_i too if `own`) of the library, unscaled, (n, T + 1, M, …, M, H)."""
    embeddings = prompted(place.model, place.prompt, place.inputs)
    found = aggregated_messages(place.model, embeddings, slice(1, None), own)
    shape = (*embeddings.shape[:2], *place.model.memory.shape, place.model.n_states)
    return unscaled(*found).reshape(shape)


# Lemma D.7


def check_lemma_d_7(seed: int) -> float:
    """(D.5): τ_i(ê(x)) = P[H̃_i, X̂_{-i} = (z̃, x)_{-i}] for every u in [0, 1]^{|H̃|}; Ḡ_i for i > 1; zero where impossible."""
    place = _any_prompt(seed)
    names = [f"m{j}" for j in range(place.model.n_cells)]
    messages, g = tau(place), place.probs.numpy()
    latent = latent_given_others(place.model, place.inputs, place.prompt).numpy()
    free = place._after(torch.ones_like(place.prompt)).given_input(*names, "h1")
    residuals = [largest(messages[:, 0] - free), largest(g[place.hat_left == 0])]
    flat = place.model.emission.reshape(place.model.n_tokens, -1).T.numpy()
    for i in range(2, place.length + 2):
        residuals.append(largest(messages[:, i - 1] - place.hat.left_out(i, *names, f"h{i}")))
        own = conditional(place.hat.cell_and_state(i)).reshape(len(g), -1)
        residuals.append(largest(g[:, i - 1] - conditional(place.hat.token(i)), g[:, i - 1] - own @ flat))
        residuals.append(largest(latent[:, i - 1] - own))
    return largest(*residuals)


def _any_prompt(seed: int, longest: int = 2) -> Prompted:
    """Any sparse memory model with any prompt; nothing else is assumed."""
    rng = np.random.default_rng(seed)
    n_cells, n_memory, n_syntax, _ = shape(rng)
    n_tokens, zeros = int(rng.integers(1, 4)), float(rng.random()) * 0.7
    model = families.sparse_memory_hmm(n_memory, n_cells * n_syntax, n_tokens, seed, zeros, n_cells)
    size = model.memory.numel() * model.n_states
    prompt = torch.as_tensor(rng.random(size) * (rng.random(size) < 0.6))
    inputs = all_inputs(n_tokens, draw_length(rng, model, longest, extra=1))
    return Prompted(model, draw_weights(rng, n_memory), 0, [0], inputs, prompt)


def printed_lemma_d_7(seed: int) -> Printed:
    """With u of |H| entries, as printed: no lifted state can look up its probability of z̃ (unless |M| = 1)."""
    place = _any_prompt(seed)
    record = in_words(place.model, place.length, seed)
    try:
        masked_token_probs(place.model, place.inputs, place.prompt[: place.model.n_states])
    except ValueError:
        return record._replace(residual=np.inf)
    return record


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


def check_proposition_d_8(seed: int) -> float:
    """P[M, H_i, X_{i+1:i+t}] = P[M, H_0, X_{1:t}]: the left side by messages, the right side enumerated."""
    place, i = draw_prompted(seed), 1 + seed % 3
    names = [f"m{j}" for j in range(place.model.n_cells)]
    return largest(_later(place.model, place.inputs, i) - place.table.given_input(*names, "h0"))


def _later(model: MemoryHMM, inputs: Tensor, i: int) -> np.ndarray:
    """P[M, H_i, X_{i+1:i+t} = x] for every x, (n, M, …, M, H)."""
    evidence = model.lift(model.embed(shifted(inputs, i)))
    found = aggregated_messages(model, evidence, slice(i, i + 1), own=True)
    return unscaled(*found).reshape(-1, *model.memory.shape, model.n_states)


def draw_not_stationary(seed: int) -> tuple[MemoryHMM, Tensor]:
    """A regular chain that does not start in its stationary distribution, with all inputs of length 2."""
    draw = torch.Generator().manual_seed(seed)
    chain = families.regular_hmm(3, 2, draw, zeros=0.2)
    initial = chain.stationary() * torch.arange(1, 4)
    emission = appendix_e.softmax_of_uniform((3, 2, 3), 0.2, draw)
    model = MemoryHMM(
        chain.transition, emission, initial / initial.sum(), appendix_e.softmax_of_uniform((2,), 1.0, draw)
    )
    return model, all_inputs(3, 2)


def control_proposition_d_8(seed: int) -> float:
    """A start that is not stationary: P[M, H_1] alone differs from P[M, H_0]."""
    model, inputs = draw_not_stationary(seed)
    return largest(_later(model, inputs, 1) - joint(model, [None] * 2).given_input("m0", "h0"))


# Claim D.10, Proposition D.11, Claim D.12


def check_claim_d_10(seed: int) -> float:
    """As Claim D.3, on Ḡ_i(ê(x)) for i > 1 with the prompt (D.6); P[H_0] need not be stationary."""
    place = with_other_start(seed, zeros=0.4)
    return recovery_residual(
        recovery_of(seed), place, place.hat, place.probs.numpy(), 1, np.ones(len(place.inputs), bool)
    )


def control_claim_d_10(seed: int) -> float:
    """`recoverable_twins`, μ on both values: behind the prompt too, Ḡ_2 is one and Pr(H_2 ∈ H*) is 1 and 0."""
    model, x, prompt = _twins(seed)
    latent = latent_given_others(model, x, prompt)[:, 1].unflatten(1, (2, 4)).sum(1)
    return twin_gap(masked_token_probs(model, x, prompt)[:, 1], latent[:, :1])


def _twins(seed: int) -> tuple[MemoryHMM, Tensor, Tensor]:
    model = families.recoverable_twins(seed)
    return model, torch.tensor([[0, 2], [0, 4]]), prompt_d_6(model, [1.0, -1.0], 0)


def _memory_given_others(place: Prompted) -> np.ndarray:
    """P[M_{j*} | X̂_{-i} = x̂_{-i}] of the library, (n, T + 1, M)."""
    weights = np.moveaxis(tau(place), 2 + place.cell, 2)
    weights = weights.reshape(*weights.shape[:3], -1).sum(-1)
    return conditional(weights.reshape(-1, weights.shape[-1])).reshape(weights.shape)


def check_proposition_d_11(seed: int) -> float:
    """For i > 1, P[M_{j*} | X̂_{-i} = x̂_{-i}] is exactly 0 outside supp(μ); and it is what enumeration gives."""
    place = with_other_start(seed, zeros=0.4)
    found, off = _memory_given_others(place), (place.mu == 0).numpy()
    if (found[:, 1:, off] > 0).any():
        return np.inf
    exact = [conditional(place.hat.left_out(i, f"m{place.cell}")) for i in range(2, place.length + 2)]
    return largest(found[:, 1:] - np.stack(exact, 1))


def control_proposition_d_11(seed: int) -> float:
    """A prompt that is not (D.6), but positive everywhere: memory values outside supp(μ) keep their probability."""
    rng = np.random.default_rng(seed)
    model = families.recoverable_twins(seed)
    prompt = torch.as_tensor(0.2 + 0.8 * rng.random(8))
    place = Prompted(model, torch.tensor([1.0, 0.0], dtype=torch.float64), 0, [0], torch.tensor([[0, 2]]), prompt)
    return float(_memory_given_others(place)[:, 1:, 1].max())


def check_claim_d_12(seed: int) -> float:
    """supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ supp P[H_{i-1} | X_{-(i-1)} = x_{-(i-1)}]: exactly, in the library's numbers."""
    place = with_other_start(seed, zeros=0.0)
    with_prompt, without = (_states(place, prompt) for prompt in (place.prompt, None))
    exact = [conditional(place.hat.left_out(i, f"h{i}")) for i in range(2, place.length + 2)]
    if (with_prompt[:, 1:][without == 0] > 0).any():
        return np.inf
    return largest(with_prompt[:, 1:] - np.stack(exact, 1))


def _states(place: Prompted, prompt: Tensor | None) -> np.ndarray:
    """P[H_i | all other tokens, and the prompt], (n, T or T + 1, H)."""
    latent = latent_given_others(place.model, place.inputs, prompt)
    return latent.unflatten(2, (place.model.n_memory, place.model.n_states)).sum(2).numpy()


def control_claim_d_12(seed: int) -> float:
    """P[H_0] misses a state that P[H_1] has: then H_2 can be where H_1 cannot. The mass outside the support."""
    draw = torch.Generator().manual_seed(seed)
    transition = 0.2 + torch.rand(3, 3, generator=draw, dtype=torch.float64)
    transition[2, 0] = transition[2, 2] = 0  # the last state is entered only from the one in the middle
    transition = transition / transition.sum(0)
    emission = appendix_e.softmax_of_uniform((2, 2, 3), 0.5, draw)
    model = MemoryHMM(transition, emission, [1.0, 0.0, 0.0], [0.5, 0.5])
    place = Prompted(model, torch.ones(2, dtype=torch.float64), 0, [0], all_inputs(2, 2), torch.ones(6).double())
    with_prompt, without = _states(place, place.prompt)[:, 1:], _states(place, None)
    return float(with_prompt[without == 0].max(initial=0.0))


# Lemma D.9


def check_lemma_d_9(seed: int) -> float:
    """Î ⊆ 𝓘 = {i > 1: supp P[H_i | X̂_{-i} = x̂_{-i}] ⊆ H*} for x in 𝓩, Î not empty; scores as in Lemma D.2."""
    place, recovery, head = draw_prompted(seed), recovery_of(seed), head_of(seed)
    rows = place.sure.any(1) & place.in_z
    found = concentrated(place.model, place.inputs, place.cell, place.syntax, place.prompt).numpy()
    attended = head.attended(place.probs).numpy()
    if (found != place.hat_sure)[place.chance > 0].any() or (place.moved & ~place.hat_sure)[rows].any():
        return 1.0
    if (attended != place.hat_sure)[rows].any():
        return 1.0
    scores = head.scores(place.probs).numpy()
    if (scores[:, 0] > -1 + 1e-9).any():
        return 1.0  # the position of the prompt must stay below all others
    weights = [conditional(place.hat.left_out(i, f"h{i}"))[:, place.states] for i in range(2, place.length + 2)]
    error = scores[:, 1:] - np.stack([w.sum(1) for w in weights], 1)
    return largest(error[place.chance > 0]) / recovery.condition


def printed_lemma_d_9(seed: int) -> Printed:
    """𝓘 = Î, with 𝓩 of (D.7) over i ∈ [t] and β_1 = -2, as printed: 1 where they differ on an input."""
    place = draw_prompted(seed)
    query, key = head_of(seed).query, head_of(seed).key
    first = torch.zeros_like(query)
    first[-1] = -2
    head = AttentionHead(
        query, key, head_of(seed).value, head_of(seed).output, first[None], recovery_of(seed).condition
    )
    rows = place.within & (place.hat_left[:, : place.length] > 0).all(1)
    differs = (head.attended(place.probs).numpy() != place.moved)[rows].any()
    return in_words(place.model, place.length, seed)._replace(residual=float(differs))


def control_lemma_d_9(seed: int) -> float:
    """`recoverable_twins` behind a prompt: no Ḡ_i with i > 1 differs between two inputs, but where H_2 ∈ H* does; 1 if so."""
    model, x, prompt = _twins(seed)
    sure = concentrated(model, x, 0, [0, 2, 3], prompt)
    probs = masked_token_probs(model, x, prompt)[:, 1:]
    return twin_gap(probs, sure.double()) if sure.any(1).all() else 0.0
