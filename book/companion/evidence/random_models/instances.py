"""What the checks draw: weights, lengths and prompts, all inputs of a length, and vanilla models with joint tables."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import Joint, conditional, over_inputs
from hmmlib.inference.messages import lifted_size
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_3_1, assumption_3_2
from hmmlib.validation import MASK

MOST_ENTRIES = 300_000
"""Entries of a joint table that a check takes on; shorter inputs are drawn where there would be more."""

shared = lru_cache(maxsize=64)
"""What is drawn from a seed is drawn once for all statements, also from the seeds that follow where it is trivial."""


def all_inputs(n_tokens: int, length: int) -> Tensor:
    """Every token sequence of a length, (X**length, length), in the order of itertools.product."""
    return torch.as_tensor(over_inputs(n_tokens, length, np.array))


def draw_weights(rng: np.random.Generator, length: int, support=None) -> Tensor:
    """Random μ, (length,), with some zeros; nonzero exactly on `support` if that is given."""
    mu = np.zeros(length)
    chosen = support if support is not None else np.flatnonzero(rng.random(length) < 0.7)
    chosen = list(chosen) or [int(rng.integers(length))]
    mu[chosen] = rng.normal(size=len(chosen))
    return torch.as_tensor(mu)


def draw_length(rng: np.random.Generator, model: HMM | MemoryHMM, longest: int, extra: int = 0) -> int:
    """A length from 1 to `longest` for which the joint table, with `extra` more positions, has at most MOST_ENTRIES entries."""
    length = int(rng.integers(1, longest + 1))
    paths = lifted_size(model) * model.n_states**extra
    while length > 1 and paths * (model.n_states * model.n_tokens) ** length > MOST_ENTRIES:
        length -= 1
    return length


def joint(model: HMM | MemoryHMM, rows: list, emission=None) -> Joint:
    """The joint table of a model, its rows as `Joint` takes them; with other emissions than the model's, if given."""
    memory = model.memory if isinstance(model, MemoryHMM) else None
    emission = model.emission if emission is None else emission
    return Joint(model.transition, emission, model.initial, rows, memory)


def possible_inputs(model: HMM, length: int) -> tuple[Tensor, Tensor]:
    """All inputs of a length in supp(P[X]), (n, T), and P[H_0 | X_{1:T} = x] for each, (n, S), by enumeration."""
    start = joint(model, [None] * length).given_input("h0")
    possible = torch.as_tensor(start.sum(1) > 0)
    return all_inputs(model.n_tokens, length)[possible], torch.as_tensor(conditional(start))[possible]


def shifted(inputs: Tensor, by: int) -> Tensor:
    """(∅, …, ∅, x): each input behind `by` masked positions."""
    return torch.cat([torch.full_like(inputs[:, :1], MASK).expand(-1, by), inputs], 1)


def recentred(mu: Tensor, posteriors: np.ndarray) -> Tensor:
    """μ, nonzero where it was, moved so that μᵀp is negative for some of these distributions (n, k) and positive for others.

    Unchanged where the distributions do not differ on supp(μ).
    """
    weighed = (mu != 0).numpy()
    mass = posteriors[:, weighed].sum(1)
    ratios = posteriors[mass > 1e-9] @ mu.numpy() / mass[mass > 1e-9]
    if not len(ratios) or np.ptp(ratios) < 1e-6:
        return mu
    return mu - torch.as_tensor((ratios.min() + ratios.max()) / 2 * weighed)


# Vanilla models


def non_degenerate(rng: np.random.Generator, seed: int) -> HMM:
    """A model that satisfies Assumptions 3.1 and 3.2: sparse, near degenerate, or of appendix E."""
    n_states = int(rng.integers(1, 5))
    n_tokens = int(rng.integers(max(2, n_states), 5))
    family = rng.integers(3)
    if family == 0 and n_states > 1:
        return families.nearly_dependent_hmm(n_states, n_tokens, 10.0 ** -rng.integers(1, 6), seed)
    if family == 1:
        draw = torch.Generator().manual_seed(seed)
        while True:
            model = appendix_e.random_hmm(n_states, n_tokens, draw)
            if assumption_3_1(model) and assumption_3_2(model):
                return model
    return families.non_degenerate_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.6)


def start_without_a_state(seed: int) -> tuple[HMM, int]:
    """A regular chain of three states, but for P[H_0], which misses one of them; and that state."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(3, int(rng.integers(1, 4)), seed)
    missing = int(rng.integers(3))
    start = model.initial.clone()
    start[missing] = 0
    return HMM(model.transition, model.emission, start / start.sum(), columns=True), missing


@shared
def essential_instance(seed: int) -> tuple[HMM, list[int], int]:
    """A model that satisfies Assumptions 3.2 and 3.5, its set H*, and a length of inputs."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.choice([1, 2, 3, 3, 4, 4]))
    n_tokens = int(rng.choice([1, 2, 3, 3]))
    n_essential = max(1, min(n_states - 1, n_tokens) - int(rng.random() < 0.2))
    model, essential = families.essential_hmm(n_states, n_tokens, n_essential, seed, zeros=0.2 + 0.5 * rng.random())
    return model, essential, draw_length(rng, model, 3, extra=2)


def draw_prompt(rng: np.random.Generator, size: int) -> Tensor:
    """A random prompt in [0, 1], with zeros and ones."""
    return torch.as_tensor(rng.random(size) * (rng.random(size) < 0.6) + (rng.random(size) < 0.2)).clamp(max=1)


def draw_subset(states: list[int], seed: int) -> list[int]:
    """A random part of a set of states, of two or more mostly."""
    rng = np.random.default_rng([seed, 1])
    least = min(len(states), 2 if rng.random() < 0.8 else 1)
    return sorted(rng.choice(states, size=int(rng.integers(least, len(states) + 1)), replace=False).tolist())


def chain_in_turn(rng: np.random.Generator, n_states: int) -> np.ndarray:
    """A chain that visits one to three classes of states in turn: irreducible, and its period is their number."""
    classes = np.arange(n_states) % min(n_states, int(rng.integers(1, 4)))
    allowed = classes[:, None] == (classes[None, :] + 1) % (classes.max() + 1)
    weights = allowed * rng.integers(1, 4, (n_states, n_states))
    return weights / weights.sum(0)
