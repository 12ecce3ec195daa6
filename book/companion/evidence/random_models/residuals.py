"""How far a statement is from holding on an instance, as a number or as a record."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmlib.inference.messages import lifted_size
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import AssumptionError
from hmmlib.theory.heads import UnsureHead
from hmmlib.theory.separation import Impossible, fit_or_refute


class Checked(NamedTuple):
    """How far a statement is from holding on one instance, and whether that could have failed: it must hold on all."""

    residual: float
    nontrivial: bool


class Printed(NamedTuple):
    """How far a statement as printed is from holding on one instance, and the instance in words and size."""

    residual: float
    size: int
    instance: str


def in_words(model: HMM | MemoryHMM, length: int, seed: int, residual: float) -> Printed:
    """The record of an instance: its number of latent paths and inputs as size, and a description."""
    size = lifted_size(model) * (model.n_states * model.n_tokens) ** length
    cells = "" if isinstance(model, HMM) else f"{model.n_cells} × {model.n_memory} memory values, "
    counted = ((model.n_states, "state"), (model.n_tokens, "token"))
    states, tokens = (f"{n} {what}{'s' * (n > 1)}" for n, what in counted)
    return Printed(residual, size, f"{cells}{states}, {tokens}, length {length}, seed {seed}")


def unscaled(mantissa: Tensor, exponent: Tensor) -> np.ndarray:
    """mantissa * 2**exponent as an array: for short inputs, where that is a float."""
    return (mantissa * torch.exp2(exponent.double())).numpy()


def largest(*differences) -> float:
    """The largest absolute entry of several arrays or numbers; 0 where they are empty. NaN stays NaN, unlike with max."""
    sizes = [np.abs(np.asarray(difference, dtype=float)).max(initial=0.0) for difference in differences]
    return float(np.max(sizes))


def over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The elementwise quotient; 0 where `whole` is 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), 0)


def both_signs(target: np.ndarray, size: float = 1.0) -> bool:
    """Whether a task has both labels, beyond rounding of `size`."""
    return bool((target > 1e-9 * size).any() and (target < -1e-9 * size).any())


def mislabelled(label: Tensor, target: np.ndarray, size: float) -> float:
    """1 where a label is not that of its target, else 0; left out is what is not 0, and within rounding of `size` of it."""
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
    """1 where a head is sure of its label on the first input, whose μᵀp is no more than rounding for a shifted μ; else 0.

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
