"""What the checks share: how they draw models and tasks, all inputs of a length, and how they measure a failure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.enumeration import Joint, conditional, over_inputs
from hmmlib.inference.evidence import lifted_size
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models import appendix_e, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import AssumptionError, assumption_3_1, assumption_3_2
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.validation import MASK

MOST_ENTRIES = 300_000
"""Entries of a joint table that a check takes on. Where there would be more, its inputs are shorter."""
ROUNDING = 1e-9
"""A target of a task below this, relatively, may be zero."""

shared = lru_cache(maxsize=64)
"""Statements about one kind of instance share what is drawn from a seed."""


# What a check returns


class Checked(NamedTuple):
    """What a check found on one instance."""

    residual: float  # How far the statement is from holding.
    nontrivial: bool  # Whether the instance could have shown a failure.


class Printed(NamedTuple):
    """How far a statement is from holding as the paper prints it, on one instance."""

    residual: float
    size: int  # The number of latent paths and inputs.
    instance: str  # A description for the reader.


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_words(model: MemoryHMM, length: int, seed: int, residual: float) -> Printed:
    """Describe an instance on which a printed form was compared."""
    size = lifted_size(model) * (model.n_states * model.n_tokens) ** length
    cells = f"{model.n_cells} × {model.n_memory} memory values"
    states = _counted(model.n_states, "state")
    tokens = _counted(model.n_tokens, "token")
    return Printed(residual, size, f"{cells}, {states}, {tokens}, length {length}, seed {seed}")


# Inputs and tables


def all_inputs(n_tokens: int, length: int) -> Tensor:
    """Return every token sequence of a length, (X**length, length), in the order of itertools.product."""
    return torch.as_tensor(over_inputs(n_tokens, length, np.array))


def shifted(inputs: Tensor, by: int) -> Tensor:
    """Put masked positions in front of each input: (∅, …, ∅, x).

    Args:
        inputs: Texts, (n, T).
        by: The number of masked positions.

    Returns:
        The longer texts, (n, by + T).
    """
    masks = torch.full_like(inputs[:, :1], MASK).expand(-1, by)
    return torch.cat([masks, inputs], 1)


def joint(model: HMM | MemoryHMM, rows: list, emission: Tensor | None = None) -> Joint:
    """Sum the joint table of a model over all paths.

    Args:
        model: A small model.
        rows: An entry for each position, as `Joint` takes them.
        emission: Other emissions than the model's.
    """
    if emission is None:
        emission = model.emission
    return Joint(model.transition, emission, model.initial, rows, getattr(model, "memory", None))


def possible_inputs(model: HMM, length: int) -> tuple[Tensor, Tensor]:
    """Return all possible inputs of a length, (n, T), and P[H_0 | X_{1:T} = x] of each, (n, S), by enumeration."""
    start = joint(model, [None] * length).given_input("h0")
    possible = torch.as_tensor(start.sum(1) > 0)
    inputs = all_inputs(model.n_tokens, length)[possible]
    return inputs, torch.as_tensor(conditional(start))[possible]


def unscaled(mantissa: Tensor, exponent: Tensor) -> np.ndarray:
    """Return mantissa * 2**exponent, which is a float for short inputs."""
    return (mantissa * torch.exp2(exponent.double())).numpy()


# Tasks, models and prompts


def draw_weights(rng: np.random.Generator, length: int, support=None) -> Tensor:
    """Draw the weights μ of a task, (length,), some of which are zero. They are nonzero exactly on a `support`."""
    if support is None:
        support = np.flatnonzero(rng.random(length) < 0.7)
    if len(support) == 0:
        support = [int(rng.integers(length))]
    mu = np.zeros(length)
    mu[list(support)] = rng.normal(size=len(support))
    return torch.as_tensor(mu)


def recentred(mu: Tensor, posteriors: np.ndarray) -> Tensor:
    """Move μ on its support, so that μᵀp takes both signs among the distributions p, (n, k), if these differ."""
    support = (mu != 0).numpy()
    mass = posteriors[:, support].sum(1)
    counts = mass > 1e-9
    ratios = posteriors[counts] @ mu.numpy() / mass[counts]
    if len(ratios) == 0 or np.ptp(ratios) < 1e-6:
        return mu
    middle = (ratios.min() + ratios.max()) / 2
    return mu - torch.as_tensor(middle * support)


def draw_length(rng: np.random.Generator, model: HMM | MemoryHMM, longest: int, extra: int = 0) -> int:
    """Draw a length up to `longest`, for which the joint table with `extra` more positions is not too large."""
    length = int(rng.integers(1, longest + 1))
    paths = lifted_size(model) * model.n_states**extra
    while length > 1 and paths * (model.n_states * model.n_tokens) ** length > MOST_ENTRIES:
        length -= 1
    return length


def draw_prompt(rng: np.random.Generator, size: int) -> Tensor:
    """Draw a prompt in [0, 1], some of whose entries are zero or one."""
    entries = rng.random(size)
    nonzero = rng.random(size) < 0.6
    ones = rng.random(size) < 0.2
    return torch.as_tensor(entries * nonzero + ones).clamp(max=1)


def non_degenerate(rng: np.random.Generator, seed: int) -> HMM:
    """Draw a model that satisfies Assumptions 3.1 and 3.2: sparse, nearly degenerate, or of appendix E."""
    n_states = int(rng.integers(1, 5))
    n_tokens = int(rng.integers(max(2, n_states), 5))
    family = rng.integers(3)
    if family == 0 and n_states > 1:
        gap = 10.0 ** -rng.integers(1, 6)
        return families.nearly_dependent_hmm(n_states, n_tokens, gap, seed)
    if family == 1:
        draw = torch.Generator().manual_seed(seed)
        while True:
            model = appendix_e.random_hmm(n_states, n_tokens, draw)
            if assumption_3_1(model) and assumption_3_2(model):
                return model
    zeros = float(rng.random()) * 0.6
    return families.non_degenerate_hmm(n_states, n_tokens, seed, zeros=zeros)


@shared
def essential_instance(seed: int) -> tuple[HMM, list[int], int]:
    """Draw a model that satisfies Assumptions 3.2 and 3.5, its set H*, and a length of inputs."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.choice([1, 2, 3, 3, 4, 4]))
    n_tokens = int(rng.choice([1, 2, 3, 3]))
    is_smaller = int(rng.random() < 0.2)
    n_essential = max(1, min(n_states - 1, n_tokens) - is_smaller)
    zeros = 0.2 + 0.5 * rng.random()
    model, essential = families.essential_hmm(n_states, n_tokens, n_essential, seed, zeros=zeros)
    return model, essential, draw_length(rng, model, 3, extra=2)


# Residuals


def largest(*differences) -> float:
    """Return the largest absolute entry of several arrays or numbers, 0 if all are empty. NaN stays NaN."""
    sizes = [0.0]
    for difference in differences:
        entries = np.abs(np.asarray(difference, dtype=float))
        sizes.append(entries.max(initial=0.0))
    return float(np.max(sizes))


def both_signs(target: np.ndarray, size: float = 1.0) -> bool:
    """Tell whether a task has both labels, beyond the rounding of targets of this size."""
    rounding = ROUNDING * size
    return bool((target > rounding).any() and (target < -rounding).any())


def mislabelled(label: Tensor, target: np.ndarray, size: float) -> float:
    """Return 1 where a label is not that of its target, else 0. Of targets within rounding only exact zeros count."""
    wrong = label.numpy() != (target >= 0)
    clear = (target == 0) | (abs(target) > ROUNDING * size)
    return float(wrong[clear].any())


def tie_is_sure(mu: Tensor, beliefs: np.ndarray, sure: Callable[[Tensor, int], Tensor]) -> float:
    """Return 1 where a head is sure of a label although the target is rounding alone, else 0.

    μ is moved by a constant until μᵀp is no more than rounding for one belief p, the first that is no point mass.

    Args:
        mu: The weights of the task.
        beliefs: The belief p on each input, (n, k).
        sure: Makes the head of a task, and asks whether it is sure of the label on the input of this index.
    """
    undecided = np.flatnonzero((beliefs > 0.01).sum(1) > 1)
    if len(undecided) == 0:
        return 0.0
    chosen = int(undecided[0])
    tied = mu
    for _ in range(3):  # Each round subtracts what rounding has left of the target.
        tied = tied - float(beliefs[chosen] @ tied.numpy())
    if tied.abs().max() <= 1e-6:
        return 0.0
    return float(sure(tied, chosen))


def refused(construct: Callable, *arguments) -> bool:
    """Tell whether a construction refuses a model that breaks one of its assumptions, as it has to."""
    try:
        construct(*arguments)
    except AssumptionError:
        return True
    return False


def no_head_fits(inputs: list[Tensor], labels: Tensor) -> bool:
    """Tell whether a linear program refutes every linear head on each of these inputs, (n, k)."""
    verdicts = [fit_or_refute(probs, labels) for probs in inputs]
    return all(isinstance(verdict, Impossible) and verdict.residual < 1e-9 for verdict in verdicts)


def twin_gap(probs: Tensor, truth: Tensor) -> float:
    """Return how much two inputs differ in what a head should read, if they have one output; else 0."""
    alike = largest(probs[0] - probs[1]) < 1e-12
    if not alike:
        return 0.0
    return float((truth[0] - truth[1]).abs().max())


def apart_if_emitted_alike(model: HMM | MemoryHMM, seed: int) -> float:
    """Return how far Ḡ_2 of (u, x) is from P[X̂_2 | X̂_{-2}], where X̂ emits with (1 - u) ⊙ W at every step."""
    n_columns = model.emission[0].numel()
    prompt = torch.as_tensor(0.1 + 0.8 * np.random.default_rng(seed).random(n_columns))
    emission = (1 - prompt.reshape(model.emission.shape[1:])) * model.emission
    table = joint(model, [prompt.numpy(), None, None], emission)
    weights = conditional(table.cell_and_state(2))
    inputs = all_inputs(model.n_tokens, 2)
    predicted = masked_token_probs(model, inputs, prompt)[:, 1].numpy()
    columns = model.emission.flatten(1).T.numpy()
    expected = weights.reshape(len(inputs), -1) @ columns
    return largest(predicted - expected)
