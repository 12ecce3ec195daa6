"""What the checks share: random tasks, all inputs of a length, and joint tables of a model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmlib.evidence.enumeration import Joint, over_inputs
from hmmlib.inference.messages import lifted_size
from hmmlib.models import families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK

MOST = 300_000
"""Entries of a joint table that a check takes on; shorter inputs are drawn where there would be more."""


class Printed(NamedTuple):
    """How far a statement as printed is from holding on one instance, and the instance in words and size."""

    residual: float
    size: int
    instance: str


def all_inputs(n_tokens: int, length: int) -> Tensor:
    """Every token sequence of a length, (X**length, length), in the order of itertools.product."""
    return torch.as_tensor(over_inputs(n_tokens, length, np.array))


def draw_weights(rng: np.random.Generator, length: int, support=None) -> Tensor:
    """Random μ, (length,), with some zeros; nonzero exactly on `support` if that is given."""
    mu = np.zeros(length)
    kept = support if support is not None else np.flatnonzero(rng.random(length) < 0.7)
    kept = list(kept) or [int(rng.integers(length))]
    mu[kept] = rng.normal(size=len(kept))
    return torch.as_tensor(mu)


def draw_length(rng: np.random.Generator, model: HMM | MemoryHMM, longest: int, extra: int = 0) -> int:
    """A length from 1 to `longest` for which the joint table, with `extra` more positions, stays within MOST entries."""
    length = int(rng.integers(1, longest + 1))
    paths = lifted_size(model) * model.n_states**extra
    while length > 1 and paths * (model.n_states * model.n_tokens) ** length > MOST:
        length -= 1
    return length


def joint(model: HMM | MemoryHMM, rows: list, emission=None) -> Joint:
    """The joint table of a model, its rows as `Joint` takes them; with other emissions than the model's, if given."""
    memory = model.memory if isinstance(model, MemoryHMM) else None
    emission = model.emission if emission is None else emission
    return Joint(model.transition, emission, model.initial, rows, memory)


def in_words(model: HMM | MemoryHMM, length: int, seed: int) -> Printed:
    """An empty record of an instance: its number of latent paths and inputs as size, and a description."""
    size = lifted_size(model) * (model.n_states * model.n_tokens) ** length
    cells = "" if isinstance(model, HMM) else f"{model.n_cells} × {model.n_memory} memory values, "
    states, tokens = (
        f"{n} {what}{'s' * (n > 1)}" for n, what in ((model.n_states, "state"), (model.n_tokens, "token"))
    )
    text = f"{cells}{states}, {tokens}, length {length}, seed {seed}"
    return Printed(0.0, size, text)


def shifted(inputs: Tensor, by: int) -> Tensor:
    """(∅, …, ∅, x): each input behind `by` masked positions."""
    return torch.cat([torch.full_like(inputs[:, :1], MASK).expand(-1, by), inputs], 1)


def unscaled(mantissa: Tensor, exponent: Tensor) -> np.ndarray:
    """mantissa * 2**exponent as an array: for short inputs, where that is a float."""
    return (mantissa * torch.exp2(exponent.double())).numpy()


def start_without_a_state(seed: int) -> tuple[HMM, int]:
    """A regular chain of three states, but for P[H_0], which misses one of them; and that state."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(3, int(rng.integers(1, 4)), seed)
    missing = int(rng.integers(3))
    start = model.initial.clone()
    start[missing] = 0
    return HMM(model.transition, model.emission, start / start.sum()), missing


def largest(*differences) -> float:
    """The largest absolute entry of several arrays or numbers; 0 where they are empty. NaN stays NaN, unlike with max."""
    parts = [np.abs(np.asarray(part, dtype=float)).max(initial=0.0) for part in differences]
    return float(np.max(parts))
