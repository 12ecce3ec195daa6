"""The random models of appendix E."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import as_generator, integer, number

SHARP = 0.01
"""Temperature of the softmax over uniform logits for mixing weights and emissions (appendix E): nearly one-hot."""
FLAT = 10.0
"""Temperature for start distributions (appendix E): nearly uniform."""


def softmax_of_uniform(shape: tuple[int, ...], temperature: float, generator: torch.Generator) -> Tensor:
    """Distributions over the first axis: softmax of logits drawn uniformly from [0, 1], divided by `temperature`."""
    return torch.softmax(torch.rand(shape, generator=generator, dtype=torch.float64) / temperature, dim=0)


def mixed_permutations(
    n_states: int, generator: torch.Generator, temperature: float = SHARP, count: int | None = None
) -> Tensor:
    """The transition matrix of appendix E: a random mixture of `count` random permutations, of `n_states` if None."""
    weights = softmax_of_uniform((n_states if count is None else count,), temperature, generator)
    eye = torch.eye(n_states, dtype=torch.float64)
    return sum(weight * eye[torch.randperm(n_states, generator=generator)] for weight in weights)


def random_hmm(n_states: int, n_tokens: int = 10, seed: int | torch.Generator = 0, temperature: float = SHARP) -> HMM:
    """An HMM as in appendix E: A is nearly a permutation, emissions are nearly one-hot, the start is nearly uniform.

    `temperature` is that of the mixing weights and of the emissions. ValueError for one that is not positive, and for
    sizes below 1.
    """
    n_states, n_tokens = integer("n_states", n_states, 1), integer("n_tokens", n_tokens, 1)
    generator, temperature = as_generator(seed), number("temperature", temperature, 1e-300, 1e300)
    transition = mixed_permutations(n_states, generator, temperature)
    emission = softmax_of_uniform((n_tokens, n_states), temperature, generator)
    return HMM(transition, emission, softmax_of_uniform((n_states,), FLAT, generator), columns=True)


MOST_JOINT = 2**24
"""Joint values of a memory's cells; with more of them the model alone would fill the memory of a computer."""


def joint_shape(n_memory: int, n_cells: int) -> tuple[int, ...]:
    """The shape of a prior of the memory, (n_memory,) * n_cells. ValueError for too many values or sizes below 1."""
    n_memory, n_cells = integer("n_memory", n_memory, 1), integer("n_cells", n_cells, 1)
    if n_cells * math.log2(n_memory) > math.log2(MOST_JOINT):
        raise ValueError(f"n_memory ** n_cells must be at most {MOST_JOINT}, not {n_memory} ** {n_cells}")
    return (n_memory,) * n_cells


def random_memory_hmm(
    n_memory: int, n_states: int = 4, n_tokens: int = 10, seed: int | torch.Generator = 0, n_cells: int = 1,
    temperature: float = SHARP, permutations: int | None = None,
) -> MemoryHMM:  # fmt: skip
    """A memory model as in appendix E: each (m, h) has an emission distribution; the memory's prior is nearly uniform.

    The transition matrix mixes `permutations` permutations, by default `n_states`. ValueError as in `random_hmm`.
    """
    n_states, n_tokens = integer("n_states", n_states, 1), integer("n_tokens", n_tokens, 1)
    shape = joint_shape(n_memory, n_cells)
    generator, temperature = as_generator(seed), number("temperature", temperature, 1e-300, 1e300)
    count = n_states if permutations is None else integer("permutations", permutations, 1)
    transition = mixed_permutations(n_states, generator, temperature, count)
    emission = softmax_of_uniform((n_tokens, n_memory, n_states), temperature, generator)
    initial = softmax_of_uniform((n_states,), FLAT, generator)
    memory = softmax_of_uniform((math.prod(shape),), FLAT, generator).reshape(shape)
    return MemoryHMM(transition, emission, initial, memory)
