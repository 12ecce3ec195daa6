"""Checks of what users pass: each error names the argument, what was found, and what is accepted."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

MASK = -1
"""The token that means "nothing observed here"."""
SUM_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""How far probabilities may be from a sum of 1, for each dtype that a model may have."""


def integer(name: str, value, low: int, high: int | None = None) -> int:
    """`value` where it is an integer of `low` or more, and of `high` or less if that is given; ValueError otherwise."""
    fits = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not fits or value < low or (high is not None and value > high):
        limits = f"of {low} or more" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be an integer {limits}, not {value!r}")
    return int(value)


def number(name: str, value, low: float, high: float = math.inf) -> float:
    """`value` where it is a number from `low` to `high`, ends included, and no NaN; ValueError otherwise."""
    fits = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not fits or not low <= value <= high:
        limits = f"of {low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
        raise ValueError(f"{name} must be a number {limits}, not {value!r}")
    return float(value)


def one_of(name: str, value, choices: Collection[str]) -> str:
    """`value` where it is one of these words; ValueError otherwise."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def of_type(name: str, value, *kinds: type):
    """`value` where it is of one of these classes; TypeError otherwise."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be of type {wanted}, not {type(value).__name__}")
    return value


def of_shape(name: str, value: Tensor, shape: tuple, why: str = "") -> Tensor:
    """`value` where it is a tensor of that shape: None is any length, `...` in front any axes before the others.

    TypeError for what is no tensor, ValueError for another shape.
    """
    found, last = tuple(of_type(name, value, Tensor).shape), tuple(size for size in shape if size is not ...)
    compared = found[len(found) - len(last) :] if shape[:1] == (...,) and len(found) >= len(last) else found
    if len(compared) != len(last) or any(size not in (None, one) for size, one in zip(last, compared, strict=True)):
        words = ", ".join({None: "any", ...: "…"}.get(size, str(size)) for size in shape) + "," * (len(shape) == 1)
        raise ValueError(f"{name} must have shape ({words}){why}, not {found}")
    return value


def as_seed(seed: int, other: str = "") -> int:
    """`seed` where torch can be seeded with it; ValueError otherwise, which names what `other` is accepted."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 - 1{other}, not {seed!r}")
    return int(seed)


def as_generator(seed: int | torch.Generator, device="cpu") -> torch.Generator:
    """A generator on `device`, freshly seeded, or the one given."""
    if not isinstance(seed, torch.Generator):
        return torch.Generator(device).manual_seed(as_seed(seed, " or a torch.Generator"))
    if seed.device.type != torch.device(device).type:
        raise ValueError(f"seed must be a generator on {device}, where the model is, not on {seed.device}")
    return seed


def _tensor(name: str, value, wanted: str) -> Tensor:
    """A tensor as it is, any other array as a copy, as what is checked must not change later. Else ValueError."""
    if isinstance(value, Tensor):
        return value
    try:
        return torch.as_tensor(np.array(value))
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{type(value).__name__} {reprlib.repr(value)}"
        raise ValueError(f"{name} must be {wanted}, not {found} ({error})") from None


def as_tensor(
    name: str, value, ndim: int | None = None, empty: bool = False, like: Tensor | None = None, signed: bool = False
) -> Tensor:
    """`value` as a float64 tensor (float32 stays float32), or of the dtype and device of `like`.

    ValueError where it is then no array of finite numbers, for negative ones unless `signed`, and for an array without
    entries unless `empty`.
    """
    value = _tensor(name, value, "an array of numbers")
    if value.dtype == torch.bool or value.is_complex():
        raise ValueError(f"{name} must hold real numbers, not {value.dtype}")
    given = value if value.dtype == torch.float32 else value.to(torch.float64)
    value = given if like is None else given.to(like)
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, not shape {tuple(value.shape)}")
    if value.numel() == 0:
        if empty:
            return value
        raise ValueError(f"{name} is empty: shape {tuple(value.shape)}")
    plain = value.detach()
    if not torch.isfinite(plain).all():
        raise ValueError(f"{name} must be finite, but holds NaN or infinity as {value.dtype}")
    if value.dtype != given.dtype and (given.detach().any(-1).to(plain.device) & ~plain.any(-1)).any():
        raise ValueError(f"{name} must not be so small that all of a row is zero as {value.dtype}")
    if not signed and (plain < 0).any():
        raise ValueError(f"{name} must be nonnegative, but its smallest entry is {plain.min().item():.6g}")
    return value


TRANSPOSED = "; its rows do, so pass the transpose: here column h is the distribution given state h"


def as_distribution(name: str, value, ndim: int, axis: int = 0, hint: str = TRANSPOSED) -> Tensor:
    """Probabilities that sum to 1 over the first axis, or `axis`.

    ValueError otherwise, which ends in the hint where a table sums to 1 over its other axis.
    """
    value = as_tensor(name, value, ndim)
    tolerance = SUM_TOLERANCE[value.dtype]
    off = (value.detach().sum(axis) - 1).abs()
    if (off > tolerance).any():
        worst = off.max().item()
        others_do = ndim == 2 and ((value.detach().sum(1 - axis) - 1).abs() <= tolerance).all()
        lines = ("columns (first axis)", "rows (last axis)")[axis]
        what = "sum to 1" if ndim == 1 else f"have {lines} that sum to 1"
        raise ValueError(f"{name} must {what} within {tolerance:g}, but is off by {worst:.3g}{hint * bool(others_do)}")
    return value


def as_tokens(tokens, n_tokens: int, device=None) -> Tensor:
    """Check tokens: integers of shape (n, T), T ≥ 1, each MASK or from 0 to n_tokens - 1. Returns int64."""
    tokens = _tensor("tokens", tokens, "a rectangular array of integers of shape (n, T)")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"tokens must be integers, not {tokens.dtype}")
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must have shape (n, T) with T at least 1, not {tuple(tokens.shape)}")
    least = 0 if tokens.dtype == torch.uint64 else MASK  # what int64 cannot hold becomes negative
    tokens = tokens.to(device=device, dtype=torch.int64)
    if tokens.numel() and (tokens.min() < least or tokens.max() >= n_tokens):
        bad = tokens[(tokens < least) | (tokens >= n_tokens)][0]
        raise ValueError(f"tokens must be 0 to {n_tokens - 1}, or MASK = {MASK}; found {bad}")
    return tokens


def as_weights(mu, length: int, like: Tensor) -> Tensor:
    """μ as a tensor (length,), of the dtype and device of `like`. ValueError for another shape, NaN, or only zeros."""
    given = as_tensor("mu", mu, signed=True)
    of_shape("mu", given, (length,), ", one weight for each state or memory value")
    if not given.any():
        raise ValueError("mu must not be all zero: every input would get label 1")
    mu = as_tensor("mu", given, like=like, signed=True)
    if mu.count_nonzero() < given.count_nonzero():
        raise ValueError(f"mu must have no weight so small that it is zero as {mu.dtype}")
    return mu


def as_indices(name: str, values: Sequence[int], below: int) -> list[int]:
    """A nonempty set of indices from 0 to `below` - 1, sorted. ValueError for anything else."""
    values = values.tolist() if isinstance(values, Tensor | np.ndarray) else values
    try:
        found = sorted(integer(f"each of {name}", value, 0, below - 1) for value in values)
    except TypeError:
        raise ValueError(f"{name} must be a sequence of integers, not {values!r}") from None
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{name} must name at least one index, and none twice, not {found}")
    return found


def as_labels(labels, n: int) -> Tensor:
    """Labels as a bool tensor (n,). ValueError for another shape, or what is neither bool nor 0 and 1."""
    labels = _tensor("labels", labels, "bool, or 0 and 1")
    other = labels[(labels != 0) & (labels != 1)]
    if len(other):
        raise ValueError(f"labels must be bool, or 0 and 1, not {other[0].item()}")
    if labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), not {tuple(labels.shape)}")
    return labels.bool()
