"""Memory models with a task, recoverable states, all inputs of a length, and perhaps a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from hmmbook.evidence.enumeration import Joint, conditional, over
from hmmbook.evidence.random_models import instances
from hmmbook.evidence.random_models.instances import both_signs, draw_length, draw_weights, shared
from hmmlib.inference import messages
from hmmlib.inference.evidence import prompted
from hmmlib.models import counterexamples, families
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import theorems
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.recovery import Recovery

FIRST_VALUE = torch.tensor([1.0, 0.0], dtype=torch.float64)
"""The task that weighs the first of two memory values."""
TRIES = 24
"""How often a model is drawn, at most, until its inputs can show a failure."""
ENOUGH = 14
"""After so many draws it is enough that some input is in 𝓡."""


@dataclass(frozen=True)
class MemoryInstance:
    """A memory model, a task μ on cell j*, recoverable syntax states S*, all inputs of a length, and perhaps a prompt.

    With a prompt, position i of x is position i + 1 of x̂ = (z̃, x). Without one, x̂ is x.
    """

    model: MemoryHMM
    mu: Tensor  # μ, (M,)
    cell: int  # j*
    syntax: list[int]  # S*
    inputs: Tensor  # (n, T)
    prompt: Tensor | None = None  # lifted, (M**N * H,)

    @property
    def length(self) -> int:
        return self.inputs.shape[1]

    @property
    def positions(self) -> range:
        """The positions of x in x̂, counted from 1."""
        first = 1 if self.prompt is None else 2
        return range(first, first + self.length)

    @property
    def states(self) -> list[int]:
        """H* = {j*} × S*."""
        return [self.cell * self.model.n_syntax + s for s in self.syntax]

    # By enumeration

    @cached_property
    def table(self) -> Joint:
        """The joint table of X."""
        return instances.joint(self.model, [None] * self.length)

    @cached_property
    def hat(self) -> Joint:
        """The joint table of X̂, with z̃ at its first position."""
        tokens = [None] * self.length
        if self.prompt is None:
            return instances.joint(self.model, tokens)
        return instances.joint(self.model, [self.prompt.numpy(), *tokens])

    @cached_property
    def hat_free(self) -> Joint:
        """The joint table of X̂ with nothing observed at its first position."""
        ones = np.ones_like(self.prompt.numpy())
        return instances.joint(self.model, [ones, *[None] * self.length])

    @cached_property
    def chance(self) -> np.ndarray:
        """Pr(X = x), (n,)."""
        return self.table.given_input()

    @cached_property
    def hat_chance(self) -> np.ndarray:
        """Pr(X̂ = x̂), (n,)."""
        return self.hat.given_input()

    @property
    def beliefs(self) -> np.ndarray:
        """P[M_{j*} | X = x], (n, M)."""
        return conditional(self.table.given_input(f"m{self.cell}"))

    @cached_property
    def target(self) -> np.ndarray:
        """μᵀP[M_{j*} | X = x], (n,)."""
        return self.beliefs @ self.mu.numpy()

    @property
    def hat_target(self) -> np.ndarray:
        """μᵀP[M_{j*}, X̂ = x̂], (n,)."""
        return self.hat.given_input(f"m{self.cell}") @ self.mu.numpy()

    def _surely_in_states(self, table: Joint) -> np.ndarray:
        """Where P[H_i | all tokens but the i-th] is on H*, at each of the last T positions of a table, (n, T)."""
        columns = []
        for i in range(table.length - self.length + 1, table.length + 1):
            weights = table.left_out(i, f"h{i}")
            outside = np.delete(weights, self.states, 1).sum(1)
            columns.append((weights.sum(1) > 0) & (outside == 0))
        return np.stack(columns, 1)

    @cached_property
    def sure(self) -> np.ndarray:
        """Î for every input, (n, T): where all of P[H_i | X_{-i} = x_{-i}] is on H*."""
        return self._surely_in_states(self.table)

    @cached_property
    def hat_sure(self) -> np.ndarray:
        """Where all of P[H_i | X̂_{-i} = x̂_{-i}] is on H*, (n, T), or (n, T + 1) and never at the prompt."""
        sure = self._surely_in_states(self.hat)
        return sure if self.prompt is None else _behind_prompt(sure)

    @property
    def moved(self) -> np.ndarray:
        """Î of (D.8), which is that of the input without prompt, moved by one, (n, T + 1)."""
        return _behind_prompt(self.sure)  # (D.8)

    @cached_property
    def hat_left(self) -> np.ndarray:
        """Pr(X̂_{-i} = x̂_{-i}), (n, T) or (n, T + 1). For the prompt's position that is Pr(X_{2:T+1} = x)."""
        columns = [self.hat.left_out(i) for i in self.positions]
        if self.prompt is not None:
            columns.insert(0, self.hat_free.given_input())
        return np.stack(columns, 1)

    @cached_property
    def mean_inverse(self) -> np.ndarray:
        """The mean of 1 / Pr(X̂_{-i} = x̂_{-i}) over the positions of `hat_sure`, (n,)."""
        inverse = over(np.ones_like(self.hat_left), self.hat_left)
        n_sure = self.hat_sure.sum(1)
        return (inverse * self.hat_sure).sum(1) / np.maximum(n_sure, 1)

    @cached_property
    def in_r(self) -> np.ndarray:
        """Which inputs are in 𝓡 (4.3), (n,)."""
        return (self.chance > 0) & self.sure.any(1)

    @cached_property
    def in_z(self) -> np.ndarray:
        """Which inputs are in 𝓩 of (D.7) with i from 2 to t + 1, those for which every x̂_{-i} is possible, (n,)."""
        return (self.hat_left[:, 1:] > 0).all(1)  # (D.7)

    @property
    def selective(self) -> bool:
        """Whether some state is outside H*, and on some input of 𝓡 some position is sure and another is not."""
        among = self.sure[self.in_r]
        some_are_sure = among.any(1) & ~among.all(1)
        return len(self.states) < self.model.n_states and bool(some_are_sure.any())

    # By the library

    @cached_property
    def probs(self) -> Tensor:
        """G, or Ḡ behind a prompt, (n, T, X) or (n, T + 1, X)."""
        return messages.masked_token_probs(self.model, self.inputs, self.prompt)

    @cached_property
    def embeddings(self) -> Tensor:
        """e(x), or the embeddings of (u, x) behind a prompt."""
        if self.prompt is None:
            return self.model.embed(self.inputs)
        return prompted(self.model, self.prompt, self.inputs)

    @property
    def state_probs(self) -> Tensor:
        """P[H_i | all other tokens, and the prompt], (n, T, H) or (n, T + 1, H)."""
        latent = messages.latent_given_others(self.model, self.inputs, self.prompt)
        return latent.unflatten(2, (self.model.n_memory, self.model.n_states)).sum(2)

    @property
    def concentrated(self) -> Tensor:
        """Î of the library, (n, T) or (n, T + 1) bool."""
        return theorems.concentrated(self.model, self.inputs, self.cell, self.syntax, self.prompt)

    @cached_property
    def condition(self) -> float:
        """The condition of the columns at M* × H* beside an orthonormal basis of the others: the scale of errors."""
        values = None if self.prompt is None else self.mu.nonzero().flatten().tolist()
        inside, outside = columns(self.model, self.cell, self.syntax, values)
        if outside.size:
            outside = scipy.linalg.orth(outside, rcond=1e-9)
        return float(np.linalg.cond(np.concatenate([inside, outside], 1)))

    @cached_property
    def recovery(self) -> Recovery:
        """Θ^(1) and Θ^(2,s) of Claim D.3, or behind a prompt of Claim D.10."""
        if self.prompt is None:
            return theorems.claim_d_3(self.model, self.cell, self.syntax)
        return theorems.claim_d_10(self.model, self.mu, self.cell, self.syntax)

    @property
    def head(self) -> AttentionHead:
        """The attention head of the proof of Theorem 4.3, or behind a prompt of Theorem D.6. Any chain will do."""
        if self.prompt is None:
            return theorems.attention_head(self.model, self.mu, self.recovery)
        return theorems.prompted_head(self.model, self.mu, self.recovery)


def _behind_prompt(sure: np.ndarray) -> np.ndarray:
    """Put the prompt's position, which never counts, in front of marked positions: (n, T) becomes (n, T + 1)."""
    return np.pad(sure, ((0, 0), (1, 0)))


def columns(model: MemoryHMM, cell: int, syntax: list[int], values: Sequence[int] | None):
    """Return the columns of W at M* × H*, (X, k), and all others but those of cell j* outside M*, (X, l)."""
    values = range(model.n_memory) if values is None else values
    states = [cell * model.n_syntax + s for s in syntax]
    inside = []
    for h in states:
        inside += [(m, h) for m in values]
    outside = []
    for h in range(model.n_states):
        if h not in states:
            seen_values = values if h // model.n_syntax == cell else range(model.n_memory)
            outside += [(m, h) for m in seen_values]
    return _at(model, inside), _at(model, outside)


def _at(model: MemoryHMM, places: list[tuple[int, int]]) -> np.ndarray:
    """The columns of W at pairs of a memory value and a state, (X, k)."""
    values = [m for m, _ in places]
    states = [h for _, h in places]
    return model.emission.numpy()[:, values, states]


# Drawing models


class Sizes(NamedTuple):
    """The sizes of a small memory model, in the order in which `recoverable_memory_hmm` takes them."""

    n_cells: int
    n_memory: int
    n_syntax: int
    n_recoverable: int


MEMORY_VALUES = {1: [1, 2, 3, 3], 2: [2, 3, 3, 3], 3: [2]}
"""Numbers of memory values, by the number of cells. Of three values, two can be weighed and one not."""
MOST_SYNTAX = {1: 4, 2: 2, 3: 1}
"""The largest number of syntax states, by the number of cells."""


def draw_sizes(rng: np.random.Generator, cells: Sequence[int]) -> Sizes:
    """Draw the sizes of a small model."""
    n_cells = int(rng.choice(cells))
    n_memory = int(rng.choice(MEMORY_VALUES[n_cells]))
    n_syntax = int(rng.integers(1, MOST_SYNTAX[n_cells] + 1))
    return Sizes(n_cells, n_memory, n_syntax, int(rng.integers(1, n_syntax + 1)))


SEVERAL_CELLS = (1, 2, 2, 3)
"""Numbers of cells from which most instances are drawn."""


class Drawn(NamedTuple):
    """A memory model with recoverable states."""

    model: MemoryHMM
    cell: int  # j*
    syntax: list[int]  # S*
    values: list[int] | None  # The memory values that a task may weigh; None stands for any.


def _any_chain(rng: np.random.Generator, sizes: Sizes, seed: int) -> Drawn:
    """Draw a model of Assumption 4.2. Half of the chains are not regular: reducible, periodic, or P[H_0] has zeros."""
    zeros = 0.5 + 0.45 * rng.random()
    model, cell, syntax, _ = families.recoverable_memory_hmm(*sizes, sizes.n_memory, seed, zeros)
    if rng.random() < 0.5:
        draw = torch.Generator().manual_seed(seed)
        transition = families.sparse_columns((model.n_states, model.n_states), 0.7, draw)
        initial = families.sparse_columns((model.n_states,), 0.4, draw)
        model = MemoryHMM(transition, model.emission, initial, model.memory)
    return Drawn(model, cell, syntax, None)


def _stationary(rng: np.random.Generator, sizes: Sizes, seed: int) -> Drawn:
    """Draw a model of Assumptions 4.4 and D.5.

    Two tasks in three weigh all memory values but one, which a prompt then excludes.
    """
    leaves_one_out = rng.random() < 2 / 3
    n_values = max(1, sizes.n_memory - 1) if leaves_one_out else int(rng.integers(1, sizes.n_memory + 1))
    zeros = 0.5 + 0.45 * rng.random()
    return Drawn(*families.recoverable_memory_hmm(*sizes, n_values, seed, zeros, stationary=True))


def draw_instance(
    seed: int,
    make: Callable[[np.random.Generator, Sizes, int], Drawn],
    longest: int,
    extra: int,
    cells: Sequence[int] = SEVERAL_CELLS,
) -> MemoryInstance:
    """Draw models until a check on their inputs could fail.

    That is so where inputs in 𝓡 have both labels, and a prompt has a memory value to exclude. After TRIES draws,
    or ENOUGH of them if some input is in 𝓡, the best so far is returned.

    Args:
        seed: The seed.
        make: Draws a model of some sizes.
        longest: The largest length of inputs.
        extra: The number of positions that are put in front of the inputs.
        cells: The numbers of cells to draw from.
    """
    rng = np.random.default_rng(seed)
    sizes = draw_sizes(rng, cells)
    best = None
    for k in range(TRIES):
        if k >= 4:
            sizes = draw_sizes(rng, cells)
        model, cell, syntax, values = make(rng, sizes, int(rng.integers(2**31)))
        lengths = [draw_length(rng, model, longest, extra) for _ in range(2)]
        mu = draw_weights(rng, model.n_memory, support=values)
        inputs = instances.all_inputs(model.n_tokens, max(lengths))  # Short inputs are seldom in 𝓡.
        instance = MemoryInstance(model, mu, cell, syntax, inputs)
        posteriors = instance.beliefs[instance.in_r]
        instance = replace(instance, mu=instances.recentred(mu, posteriors))
        excludes = values is None or len(values) < model.n_memory
        if excludes and both_signs(posteriors @ instance.mu.numpy()):
            return instance
        if best is None or not best.in_r.any():
            best = instance
        if k >= ENOUGH and best.in_r.any():
            break
    return best


@shared
def memory_instance(seed: int) -> MemoryInstance:
    """Draw an instance of Assumption 4.2."""
    return draw_instance(seed, _any_chain, 4, 0)


def with_prompt_d_6(instance: MemoryInstance) -> MemoryInstance:
    """Put the prompt (D.6) in front of the inputs of an instance."""
    return replace(instance, prompt=theorems.prompt_d_6(instance.model, instance.mu, instance.cell))


@shared
def prompted_instance(seed: int) -> MemoryInstance:
    """Draw an instance of Assumptions 4.4 and D.5 behind the prompt (D.6)."""
    if seed % 10 == 0:  # Rarely otherwise does the prompt take a state away, so that more positions become sure.
        model, syntax = counterexamples.shrinking_support(seed)
        return with_prompt_d_6(MemoryInstance(model, FIRST_VALUE, 0, syntax, instances.all_inputs(4, 2)))
    return with_prompt_d_6(draw_instance(seed, _stationary, 3, 1))


@shared
def one_cell_instance(seed: int) -> MemoryInstance:
    """Draw such an instance with one memory cell."""
    return with_prompt_d_6(draw_instance(seed, _stationary, 4, 1, [1]))


def with_other_start(seed: int, zeros: float) -> MemoryInstance:
    """Draw a `prompted_instance`, for even seeds with a P[H_0] that is not stationary."""
    instance = prompted_instance(seed)
    if seed % 2:
        return instance
    model = instance.model
    draw = torch.Generator().manual_seed(seed)
    initial = families.sparse_columns((model.n_states,), zeros, draw)
    return replace(instance, model=MemoryHMM(model.transition, model.emission, initial, model.memory))


def sparse_instance(seed: int, behind_prompt: bool = False) -> MemoryInstance:
    """Draw any sparse memory model of up to three tokens, with any prompt or none, and without a task."""
    rng = np.random.default_rng(seed)
    n_cells, n_memory, n_syntax, _ = draw_sizes(rng, SEVERAL_CELLS)
    n_tokens = int(rng.integers(1, 4))
    zeros = float(rng.random()) * 0.7
    model = families.sparse_memory_hmm(n_memory, n_cells * n_syntax, n_tokens, seed, zeros, n_cells)
    size = model.memory.numel() * model.n_states
    prompt = None
    if behind_prompt:
        entries = rng.random(size)
        prompt = torch.as_tensor(entries * (rng.random(size) < 0.6))
    length = draw_length(rng, model, 3 - behind_prompt, extra=behind_prompt)
    inputs = instances.all_inputs(n_tokens, length)
    return MemoryInstance(model, torch.zeros(n_memory), 0, [0], inputs, prompt)
