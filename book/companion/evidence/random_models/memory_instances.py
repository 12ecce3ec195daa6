"""Memory models with a task, recoverable states, all inputs of a length, and a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from companion.evidence.enumeration import Joint, conditional, over
from companion.evidence.random_models import instances
from companion.evidence.random_models.instances import both_signs, draw_length, draw_weights, shared
from hmmlib.inference import messages
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.heads import AttentionHead

FIRST_VALUE, BOTH = torch.tensor([[1.0, 0.0], [1.0, -1.0]], dtype=torch.float64)
"""Tasks on the first of two memory values, and on both."""

TRIES, ENOUGH = 24, 14
"""Draws of a model, at most, until all is as wanted; after fewer it is enough that some input is in 𝓡."""


@dataclass(frozen=True)
class MemoryInstance:
    """A memory model, a task μ on cell j*, recoverable syntax states S*, all inputs of a length, and perhaps a prompt.

    With a prompt, position i of x is i + 1 of x̂ = (z̃, x). Without one, x̂ is x.
    """

    model: MemoryHMM
    mu: Tensor
    cell: int
    syntax: list[int]
    inputs: Tensor
    prompt: Tensor | None = None

    @property
    def length(self) -> int:
        return self.inputs.shape[1]

    @property
    def positions(self) -> range:
        """The positions of x in x̂, from 1 or from 2."""
        first = 1 if self.prompt is None else 2
        return range(first, first + self.length)

    @property
    def states(self) -> list[int]:
        """H*."""
        return [self.cell * self.model.n_syntax + s for s in self.syntax]

    @cached_property
    def table(self) -> Joint:
        """The joint table of X."""
        return instances.joint(self.model, [None] * self.length)

    @cached_property
    def hat(self) -> Joint:
        """The joint table of X̂, with z̃ at its first position."""
        behind = [] if self.prompt is None else [self.prompt.numpy()]
        return instances.joint(self.model, [*behind, *[None] * self.length])

    @cached_property
    def hat_free(self) -> Joint:
        """The joint table of X̂ with nothing observed at its first position."""
        return instances.joint(self.model, [np.ones_like(self.prompt.numpy()), *[None] * self.length])

    @cached_property
    def chance(self) -> np.ndarray:
        """Pr(X = x), (n,)."""
        return self.table.given_input()

    @cached_property
    def hat_chance(self) -> np.ndarray:
        """Pr(X̂ = x̂), (n,)."""
        return self.hat.given_input()

    @cached_property
    def target(self) -> np.ndarray:
        """μᵀP[M_{j*} | X = x], (n,), by enumeration."""
        return conditional(self.table.given_input(f"m{self.cell}")) @ self.mu.numpy()

    def _concentrated(self, table: Joint) -> np.ndarray:
        """Where all of P[H_i | all tokens but the i-th] is on H* at each of the last T positions of a table, (n, T)."""
        weights = [table.left_out(i, f"h{i}") for i in range(table.length - self.length + 1, table.length + 1)]
        return np.stack([(w.sum(1) > 0) & (np.delete(w, self.states, 1).sum(1) == 0) for w in weights], 1)

    @cached_property
    def sure(self) -> np.ndarray:
        """Î for every input, (n, T): where all of P[H_i | X_{-i} = x_{-i}] is on H*, by enumeration."""
        return self._concentrated(self.table)

    @cached_property
    def hat_sure(self) -> np.ndarray:
        """Where all of P[H_i | X̂_{-i} = x̂_{-i}] is on H*, (n, T), or (n, T + 1) and never at the prompt."""
        return np.pad(self._concentrated(self.hat), ((0, 0), (self.positions[0] - 1, 0)))

    @property
    def moved(self) -> np.ndarray:
        """Î of (D.8): Î of the input without prompt, moved by one, (n, T + 1)."""
        return np.pad(self.sure, ((0, 0), (1, 0)))  # (D.8)

    @cached_property
    def hat_left(self) -> np.ndarray:
        """Pr(X̂_{-i} = x̂_{-i}), (n, T) or (n, T + 1); for the prompt's i = 1 that is Pr(X_{2:T+1} = x)."""
        at_prompt = [] if self.prompt is None else [self.hat_free.given_input()]
        return np.stack(at_prompt + [self.hat.left_out(i) for i in self.positions], 1)

    @cached_property
    def mean_inverse(self) -> np.ndarray:
        """The mean of 1 / Pr(X̂_{-i} = x̂_{-i}) over the positions that `hat_sure` gives, (n,)."""
        inverse = over(np.ones_like(self.hat_left), self.hat_left)
        return (inverse * self.hat_sure).sum(1) / np.maximum(self.hat_sure.sum(1), 1)

    @cached_property
    def in_r(self) -> np.ndarray:
        """Which inputs are in 𝓡 (4.3), (n,)."""
        return (self.chance > 0) & self.sure.any(1)

    @cached_property
    def in_z(self) -> np.ndarray:
        """𝓩 of (D.7) with i from 2 to t + 1: inputs for which every x̂_{-i} is possible, (n,)."""
        return (self.hat_left[:, 1:] > 0).all(1)  # (D.7)

    @cached_property
    def probs(self) -> Tensor:
        return messages.masked_token_probs(self.model, self.inputs, self.prompt)

    @cached_property
    def embeddings(self) -> Tensor:
        if self.prompt is None:
            return self.model.embed(self.inputs)
        return messages.prompted(self.model, self.prompt, self.inputs)

    @property
    def state_probs(self) -> Tensor:
        """P[H_i | all other tokens, and the prompt] by the library, (n, T, H) or (n, T + 1, H)."""
        latent = messages.latent_given_others(self.model, self.inputs, self.prompt)
        return latent.unflatten(2, (self.model.n_memory, self.model.n_states)).sum(2)

    @cached_property
    def condition(self) -> float:
        """Condition of the columns of W at M* × H* beside an orthonormal basis of the others: the scale of errors."""
        values = range(self.model.n_memory) if self.prompt is None else self.mu.nonzero().squeeze(-1).tolist()
        inside, rest = columns(self.model, self.cell, self.syntax, values)
        basis = scipy.linalg.orth(rest, rcond=1e-9) if rest.size else rest
        return float(np.linalg.cond(np.concatenate([inside, basis], 1)))

    @cached_property
    def recovery(self) -> theorems.Recovery:
        """Θ^(1) and Θ^(2,s) of Claim D.3, or behind a prompt of Claim D.10."""
        if self.prompt is None:
            return theorems.claim_d_3(self.model, self.cell, self.syntax)
        return theorems.claim_d_10(self.model, self.mu, self.cell, self.syntax)

    @property
    def head(self) -> AttentionHead:
        """The attention head of the proofs of Theorem 4.3, or behind a prompt of D.6; any chain will do."""
        made = theorems.attention_head if self.prompt is None else theorems.prompted_head
        return made(self.model, self.mu, self.recovery)

    @property
    def selective(self) -> bool:
        """Whether some state is outside H*, and on some input of 𝓡 some position is sure and another is not."""
        among = self.sure[self.in_r]
        return len(self.states) < self.model.n_states and bool((among.any(1) & ~among.all(1)).any())


def columns(model: MemoryHMM, cell: int, syntax: list[int], values: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The columns of W at M* × H*, and all others but those of cell j* outside M*."""
    states, every = [cell * model.n_syntax + s for s in syntax], range(model.n_memory)
    inside = [(m, h) for h in states for m in values]
    others = [h for h in range(model.n_states) if h not in states]
    rest = [(m, h) for h in others for m in (values if h // model.n_syntax == cell else every)]
    table = model.emission.numpy()
    return tuple(table[:, [m for m, _ in part], [h for _, h in part]] for part in (inside, rest))


def draw_sizes(rng: np.random.Generator, cells: Sequence[int] = (1, 2, 2, 3)) -> tuple[int, int, int, int]:
    """Cells, memory values, syntax states and recoverable ones of a small model."""
    n_cells = int(rng.choice(cells))
    n_memory = int(rng.choice({1: [1, 2, 3, 3], 2: [2, 3, 3, 3], 3: [2]}[n_cells]))  # 3: two to weigh, one not to
    n_syntax = int(rng.integers(1, {1: 5, 2: 3, 3: 2}[n_cells]))
    return n_cells, n_memory, n_syntax, int(rng.integers(1, n_syntax + 1))


def _any_chain(rng: np.random.Generator, sizes: tuple, seed: int) -> tuple[MemoryHMM, int, list[int], None]:
    """Assumption 4.2 holds. Half of the chains are not regular: reducible or periodic, P[H_0] with zeros."""
    zeros = 0.5 + 0.45 * rng.random()
    model, cell, syntax, _ = families.recoverable_memory_hmm(*sizes, sizes[1], seed, zeros)
    if rng.random() < 0.5:
        draw = torch.Generator().manual_seed(seed)
        transition = families.sparse_columns((model.n_states, model.n_states), 0.7, draw)
        initial = families.sparse_columns((model.n_states,), 0.4, draw)
        model = MemoryHMM(transition, model.emission, initial, model.memory)
    return model, cell, syntax, None


def _stationary(rng: np.random.Generator, sizes: tuple, seed: int) -> tuple[MemoryHMM, int, list[int], list[int]]:
    """Assumptions 4.4 and D.5 hold. Two tasks in three weigh all values but one, which a prompt then excludes."""
    values = max(1, sizes[1] - 1) if rng.random() < 2 / 3 else int(rng.integers(1, sizes[1] + 1))
    return families.recoverable_memory_hmm(*sizes, values, seed, 0.5 + 0.45 * rng.random(), stationary=True)


def draw_instance(seed: int, make, longest: int, extra: int, *cells: Sequence[int]) -> MemoryInstance:
    """Draw models from `make(rng, sizes, seed)`, at most TRIES, until inputs in 𝓡 have both labels, and a prompt
    something to exclude where `make` gives the values that are weighed; or else some input is in 𝓡.
    """
    rng = np.random.default_rng(seed)
    sizes, found = draw_sizes(rng, *cells), None
    for k in range(TRIES):
        sizes = sizes if k < 4 else draw_sizes(rng, *cells)
        model, cell, syntax, values = make(rng, sizes, int(rng.integers(2**31)))
        length = max(draw_length(rng, model, longest, extra) for _ in range(2))  # short inputs are seldom in 𝓡
        mu = draw_weights(rng, model.n_memory, support=values)
        instance = MemoryInstance(model, mu, cell, syntax, instances.all_inputs(model.n_tokens, length))
        posteriors = conditional(instance.table.given_input(f"m{cell}"))[instance.in_r]
        instance = replace(instance, mu=instances.recentred(mu, posteriors))
        excluding = values is None or len(values) < model.n_memory
        if excluding and both_signs(posteriors @ instance.mu.numpy()):
            return instance
        found = instance if found is None or not found.in_r.any() else found
        if k >= ENOUGH and found.in_r.any():
            break
    return found


@shared
def memory_instance(seed: int) -> MemoryInstance:
    """Assumption 4.2 holds."""
    return draw_instance(seed, _any_chain, 4, 0)


def _with_prompt_d_6(instance: MemoryInstance) -> MemoryInstance:
    return replace(instance, prompt=theorems.prompt_d_6(instance.model, instance.mu, instance.cell))


@shared
def prompted_instance(seed: int) -> MemoryInstance:
    """Assumptions 4.4 and D.5 hold, and the prompt is (D.6)."""
    if seed % 10 == 0:  # rare among the others: the prompt takes a state away, and more positions become sure
        model, syntax = families.shrinking_support(seed)
        return _with_prompt_d_6(MemoryInstance(model, FIRST_VALUE, 0, syntax, instances.all_inputs(4, 2)))
    return _with_prompt_d_6(draw_instance(seed, _stationary, 3, 1))


@shared
def one_cell_instance(seed: int) -> MemoryInstance:
    """The same with one memory cell."""
    return _with_prompt_d_6(draw_instance(seed, _stationary, 4, 1, [1]))


def with_other_start(seed: int, zeros: float) -> MemoryInstance:
    """`prompted_instance`, for even seeds with a P[H_0] that is not stationary."""
    instance = prompted_instance(seed)
    if seed % 2:
        return instance
    model, draw = instance.model, torch.Generator().manual_seed(seed)
    initial = families.sparse_columns((model.n_states,), zeros, draw)
    return replace(instance, model=MemoryHMM(model.transition, model.emission, initial, model.memory))


def sparse_instance(seed: int, behind_prompt: bool = False) -> MemoryInstance:
    """Any sparse memory model of up to three tokens, with any prompt or none, and without a task."""
    rng = np.random.default_rng(seed)
    n_cells, n_memory, n_syntax, _ = draw_sizes(rng)
    n_tokens, zeros = int(rng.integers(1, 4)), float(rng.random()) * 0.7
    model = families.sparse_memory_hmm(n_memory, n_cells * n_syntax, n_tokens, seed, zeros, n_cells)
    size = model.memory.numel() * model.n_states
    prompt = torch.as_tensor(rng.random(size) * (rng.random(size) < 0.6)) if behind_prompt else None
    inputs = instances.all_inputs(n_tokens, draw_length(rng, model, 3 - behind_prompt, extra=behind_prompt))
    return MemoryInstance(model, torch.zeros(n_memory), 0, [0], inputs, prompt)


def not_stationary(seed: int) -> MemoryInstance:
    """A regular chain, not stationary one step after its start either, and the prompt (D.6) for the first value."""
    draw = torch.Generator().manual_seed(seed)
    chain = families.regular_hmm(3, 2, draw, zeros=0.2)
    weights = chain.stationary() * torch.arange(1, 4)
    emission = appendix_e.softmax_of_uniform((3, 2, 3), 0.2, draw)
    memory = appendix_e.softmax_of_uniform((2,), 1.0, draw)
    model = MemoryHMM(chain.transition, emission, weights / weights.sum(), memory)
    if torch.allclose(model.marginal(1), model.marginal(2)):
        return not_stationary(seed + 1)
    return _with_prompt_d_6(MemoryInstance(model, FIRST_VALUE, 0, [0], instances.all_inputs(3, 2)))


def parity(seed: int, n: int = 2, behind_prompt: bool = False) -> MemoryInstance:
    """`parity_memory_hmm` with noise drawn from `seed`, and all inputs of length 2; perhaps behind the prompt (D.6)."""
    model = families.parity_memory_hmm(n, float(np.random.default_rng(seed).uniform(0.02, 0.4)))
    case = MemoryInstance(model, BOTH if n == 2 else torch.ones(n), 0, list(range(2 * n)), instances.all_inputs(n, 2))
    return _with_prompt_d_6(case) if behind_prompt else case


def twins(seed: int, behind_prompt: bool) -> MemoryInstance:
    """`recoverable_twins`, and two inputs between which G_1 does not differ, nor Ḡ_2 behind the prompt (D.6)."""
    case = MemoryInstance(families.recoverable_twins(seed), BOTH, 0, [0, 2, 3], torch.tensor([[0, 2], [0, 4]]))
    return _with_prompt_d_6(case) if behind_prompt else case
