"""Random models: those of appendix E, and small families that satisfy one assumption of the paper or break just that one."""

from __future__ import annotations

import torch
from torch import Tensor

from hmmlib.hmm import HMM, MemoryHMM, as_generator, at_least

SHARP = 0.01
"""Temperature of the softmax over uniform logits for mixing weights and emissions (appendix E): nearly one-hot."""
FLAT = 10.0
"""Temperature for start distributions (appendix E): nearly uniform."""


def softmax_of_uniform(shape: tuple[int, ...], temperature: float, generator: torch.Generator) -> Tensor:
    """Distributions over the first axis: softmax of logits drawn uniformly from [0, 1], divided by `temperature`."""
    return torch.softmax(torch.rand(shape, generator=generator, dtype=torch.float64) / temperature, dim=0)


def mixed_permutations(n_states: int, generator: torch.Generator) -> Tensor:
    """Appendix E's transition matrix: a random convex combination of `n_states` random permutation matrices."""
    weights = softmax_of_uniform((n_states,), SHARP, generator)
    eye = torch.eye(n_states, dtype=torch.float64)
    return sum(weight * eye[torch.randperm(n_states, generator=generator)] for weight in weights)


def random_hmm(n_states: int, n_tokens: int = 10, seed: int | torch.Generator = 0) -> HMM:
    """An HMM as in appendix E: near-permutation transitions, near-one-hot emissions, near-uniform start."""
    n_states, n_tokens = at_least("n_states", n_states, 1), at_least("n_tokens", n_tokens, 1)
    generator = as_generator(seed)
    transition = mixed_permutations(n_states, generator)
    emission = softmax_of_uniform((n_tokens, n_states), SHARP, generator)
    return HMM(transition, emission, softmax_of_uniform((n_states,), FLAT, generator))


def random_memory_hmm(
    n_memory: int, n_states: int = 4, n_tokens: int = 10, seed: int | torch.Generator = 0, n_cells: int = 1
) -> MemoryHMM:
    """A memory model as in appendix E: one emission distribution for each (m, h); the memory's prior is near-uniform."""
    n_memory, n_states = at_least("n_memory", n_memory, 1), at_least("n_states", n_states, 1)
    n_tokens, n_cells = at_least("n_tokens", n_tokens, 1), at_least("n_cells", n_cells, 1)
    generator = as_generator(seed)
    transition = mixed_permutations(n_states, generator)
    emission = softmax_of_uniform((n_tokens, n_memory, n_states), SHARP, generator)
    initial = softmax_of_uniform((n_states,), FLAT, generator)
    memory = softmax_of_uniform((n_memory**n_cells,), FLAT, generator).reshape((n_memory,) * n_cells)
    return MemoryHMM(transition, emission, initial, memory)


def sparse_columns(shape: tuple[int, ...], zeros: float, generator: torch.Generator) -> Tensor:
    """Distributions over the first axis with about a share `zeros` of exact zeros, and ties: entries are small integers."""
    weights = torch.randint(1, 4, shape, generator=generator).double()
    weights = weights * (torch.rand(shape, generator=generator, dtype=torch.float64) >= zeros)
    keep = torch.randint(0, shape[0], (1, *shape[1:]), generator=generator)  # no column may vanish
    weights = torch.where(weights.sum(0, keepdim=True) > 0, weights, torch.zeros(shape).scatter(0, keep, 1.0).double())
    return weights / weights.sum(0, keepdim=True)


def sparse_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """An HMM with exact zeros and ties in A, W and P[H_0]; it may be reducible or periodic."""
    generator = as_generator(seed)
    shapes = (n_states, n_states), (n_tokens, n_states), (n_states,)
    return HMM(*(sparse_columns(shape, zeros, generator) for shape in shapes))


def sparse_memory_hmm(
    n_memory: int, n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4, n_cells: int = 1
) -> MemoryHMM:
    """A memory model with exact zeros and ties in A, W, P[H_0] and P[M]."""
    generator = as_generator(seed)
    chain = [
        sparse_columns(shape, zeros, generator) for shape in ((n_states, n_states), (n_tokens, n_memory, n_states))
    ]
    initial = sparse_columns((n_states,), zeros, generator)
    memory = sparse_columns((n_memory**n_cells,), zeros, generator).reshape((n_memory,) * n_cells)
    return MemoryHMM(*chain, initial, memory)


def _ergodic_transition(n_states: int, zeros: float, generator: torch.Generator) -> Tensor:
    """A sparse matrix made ergodic by a cycle through all states and one loop; zeros stay elsewhere."""
    cycle = torch.eye(n_states, dtype=torch.float64).roll(1, 0)
    cycle[:, 0] = (cycle[:, 0] + torch.eye(n_states, dtype=torch.float64)[:, 0]) / 2
    return (sparse_columns((n_states, n_states), zeros, generator) + cycle) / 2


def regular_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """A model that satisfies Assumption 3.2 (ergodic, P[H_0] of full support), with zeros in A and W.

    Assumption 3.1 is not arranged: with `n_tokens` < `n_states`, or by chance, the columns of W are dependent.
    """
    generator = as_generator(seed)
    transition = _ergodic_transition(n_states, zeros, generator)
    emission = sparse_columns((n_tokens, n_states), zeros, generator)
    return HMM(transition, emission, sparse_columns((n_states,), 0.0, generator))


def non_degenerate_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """A model that satisfies Assumptions 3.1 and 3.2; needs `n_tokens` ≥ `n_states`. Rejection of `regular_hmm` draws."""
    if n_tokens < n_states:
        raise ValueError(f"{n_states} independent columns need at least {n_states} tokens, not {n_tokens}")
    generator = as_generator(seed)
    while True:
        model = regular_hmm(n_states, n_tokens, generator, zeros)
        if torch.linalg.matrix_rank(model.emission) == n_states:
            return model


def nearly_dependent_hmm(n_states: int, n_tokens: int, gap: float, seed: int | torch.Generator = 0) -> HMM:
    """Assumptions 3.1 and 3.2 hold, but the last column of W is within `gap` of the first: condition about 1/gap."""
    model = non_degenerate_hmm(n_states, n_tokens, seed)
    emission = model.emission.clone()
    emission[:, -1] = (1 - gap) * emission[:, 0] + gap * emission[:, -1]
    return HMM(model.transition, emission, model.initial)


def dependent_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0) -> HMM:
    """Assumption 3.2 holds and 3.1 fails: the last column of W is a mixture of two others (a copy at two states)."""
    model = regular_hmm(at_least("n_states", n_states, 2), n_tokens, seed, zeros=0.0)
    emission = model.emission.clone()
    emission[:, -1] = (emission[:, 0] + emission[:, (n_states - 1) // 2]) / 2
    return HMM(model.transition, emission, model.initial)


def hidden_twins() -> HMM:
    """Four states a, b, c, d; a and b emit the same token, and only what follows tells them apart.

    Assumption 3.2 holds, 3.1 fails. Token 1 can only follow a, token 2 only b: so the inputs (1) and (2) say for sure
    that H_1 was a, or b, and yet the token at the gap has one and the same distribution.
    """
    transition = [[0.5, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    emission = [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    return HMM(transition, emission, [0.25, 0.25, 0.25, 0.25])
