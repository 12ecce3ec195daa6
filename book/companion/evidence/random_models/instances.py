"""What the checks share: what they draw, all inputs of a length, and how far a statement is from holding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from companion.evidence.enumeration import Joint, conditional, over_inputs
from hmmlib.inference.messages import lifted_size, masked_token_probs
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import AssumptionError, assumption_3_1, assumption_3_2
from hmmlib.theory.heads import UnsureHead
from hmmlib.theory.separation import Impossible, fit_or_refute
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
    """A length from 1 to `longest` for which the joint table, with `extra` more positions, is not too large."""
    length = int(rng.integers(1, longest + 1))
    paths = lifted_size(model) * model.n_states**extra
    while length > 1 and paths * (model.n_states * model.n_tokens) ** length > MOST_ENTRIES:
        length -= 1
    return length


def joint(model: HMM | MemoryHMM, rows: list, emission: Tensor | None = None) -> Joint:
    """The joint table of a model, its rows as `Joint` takes them; with other emissions than the model's, if given."""
    emission = model.emission if emission is None else emission
    return Joint(model.transition, emission, model.initial, rows, getattr(model, "memory", None))


def apart_if_emitted_alike(model: HMM | MemoryHMM, seed: int) -> float:
    """How far Ḡ_2 of (u, x), u random, is from P[X̂_2 | X̂_{-2}], where X̂ emits with (1 - u) ⊙ W at every step."""
    prompt = torch.as_tensor(0.1 + 0.8 * np.random.default_rng(seed).random(model.emission[0].numel()))
    emission = (1 - prompt.reshape(model.emission.shape[1:])) * model.emission
    weights = conditional(joint(model, [prompt.numpy(), None, None], emission).cell_and_state(2))
    g = masked_token_probs(model, all_inputs(model.n_tokens, 2), prompt)[:, 1].numpy()
    return largest(g - weights.reshape(len(g), -1) @ model.emission.flatten(1).T.numpy())


def possible_inputs(model: HMM, length: int) -> tuple[Tensor, Tensor]:
    """All inputs of a length in supp(P[X]), (n, T), and P[H_0 | X_{1:T} = x] for each, (n, S), by enumeration."""
    start = joint(model, [None] * length).given_input("h0")
    possible = torch.as_tensor(start.sum(1) > 0)
    return all_inputs(model.n_tokens, length)[possible], torch.as_tensor(conditional(start))[possible]


def shifted(inputs: Tensor, by: int) -> Tensor:
    """(∅, …, ∅, x): each input behind `by` masked positions."""
    return torch.cat([torch.full_like(inputs[:, :1], MASK).expand(-1, by), inputs], 1)


def recentred(mu: Tensor, posteriors: np.ndarray) -> Tensor:
    """μ, nonzero where it was, moved so that μᵀp has either sign among these distributions (n, k), if they differ."""
    weighed = (mu != 0).numpy()
    mass = posteriors[:, weighed].sum(1)
    ratios = posteriors[mass > 1e-9] @ mu.numpy() / mass[mass > 1e-9]
    if not len(ratios) or np.ptp(ratios) < 1e-6:
        return mu
    return mu - torch.as_tensor((ratios.min() + ratios.max()) / 2 * weighed)


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


class Checked(NamedTuple):
    """How far a statement is from holding on one instance, and whether that could have failed: it must hold on all."""

    residual: float
    nontrivial: bool


class Printed(NamedTuple):
    """How far a statement as printed is from holding on one instance, and the instance in words and size."""

    residual: float
    size: int
    instance: str


def in_words(model: MemoryHMM, length: int, seed: int, residual: float) -> Printed:
    """The record of an instance: its number of latent paths and inputs as size, and a description."""
    size = lifted_size(model) * (model.n_states * model.n_tokens) ** length
    words = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((model.n_states, "state"), (model.n_tokens, "token"))]
    cells = f"{model.n_cells} × {model.n_memory} memory values"
    return Printed(residual, size, f"{cells}, {', '.join(words)}, length {length}, seed {seed}")


def unscaled(mantissa: Tensor, exponent: Tensor) -> np.ndarray:
    """mantissa * 2**exponent as an array: for short inputs, where that is a float."""
    return (mantissa * torch.exp2(exponent.double())).numpy()


def largest(*differences) -> float:
    """The largest absolute entry of several arrays or numbers; 0 where they are empty. NaN stays NaN, unlike in max."""
    sizes = [np.abs(np.asarray(difference, dtype=float)).max(initial=0.0) for difference in differences]
    return float(np.max(sizes))


def both_signs(target: np.ndarray, size: float = 1.0) -> bool:
    """Whether a task has both labels, beyond rounding of `size`."""
    return bool((target > 1e-9 * size).any() and (target < -1e-9 * size).any())


def mislabelled(label: Tensor, target: np.ndarray, size: float) -> float:
    """1 where a label is not that of its target, else 0; a target within rounding of `size` counts only if it is 0."""
    return float((label.numpy() != (target >= 0))[(target == 0) | (abs(target) > 1e-9 * size)].any())


def refused(construct: Callable, *given) -> bool:
    """Whether a construction refuses a model of which an assumption does not hold, as it has to."""
    try:
        construct(*given)
    except AssumptionError:
        return True
    return False


def no_head_fits(inputs: list[Tensor], labels: Tensor) -> bool:
    """Whether a linear program refutes every linear head on each of these inputs, (n, k)."""
    verdicts = [fit_or_refute(one, labels) for one in inputs]
    return all(isinstance(one, Impossible) and one.residual < 1e-9 for one in verdicts)


def twin_gap(probs: Tensor, truth: Tensor) -> float:
    """How much two inputs differ in what a head should read there, if their outputs do not differ at all; else 0."""
    return float((truth[0] - truth[1]).abs().max()) if largest(probs[0] - probs[1]) < 1e-12 else 0.0


def tie_is_sure(mu: Tensor, beliefs: np.ndarray, sure: Callable[[Tensor, int], Tensor]) -> float:
    """1 where a head is sure of its label on an input, whose μᵀp is no more than rounding for a shifted μ; else 0.

    `sure(shifted μ, input)` makes the head and asks it. The input is the first of which p, (n, k), is no point mass.
    """
    undecided = np.flatnonzero((beliefs > 0.01).sum(1) > 1)
    if not len(undecided):
        return 0.0
    tied = mu
    for _ in range(3):  # each time what rounding left
        tied = tied - float(beliefs[undecided[0]] @ tied.numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsureHead)
        return float(tied.abs().max() > 1e-6 and bool(sure(tied, int(undecided[0]))))
