"""Checks of arguments, whose errors name the argument, the value found and the values accepted."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

FINITE = sys.float_info.max
"""The largest number that is not infinite."""

LARGEST = 1e30
"""The largest rate or bound that training takes: far beyond any of use, and far from where float32 ends."""

MOST = 2**31 - 1
"""The largest size or count of a trial: what torch is sure to take."""


def as_seed(seed: int, other: str = "") -> int:
    """`seed` where torch can be seeded with it; ValueError otherwise, which names what `other` is accepted."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 - 1{other}, not {seed!r}")
    return int(seed)


def at_least(name: str, value, low: int) -> int:
    """`value` where it is an integer of `low` or more; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise ValueError(f"{name} must be an integer of {low} or more, not {value!r}")
    return int(value)


def between(name: str, value, low: float, high: float = math.inf) -> float:
    """`value` where it is a number from `low` to `high`, ends included; ValueError otherwise."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not low <= value <= high
    ):
        limits = f"from {low:g} to {high:g}" if high < FINITE else f"of {low:g} or more"
        raise ValueError(f"{name} must be a number {limits}{', finite' * (high == FINITE)}, not {value!r}")
    return value


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


def all_of_type(name: str, values, *kinds: type) -> list:
    """`values` as a list, where each is of one of these classes; TypeError otherwise."""
    try:
        values = list(values)
    except TypeError:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a sequence of {wanted}, not {type(values).__name__}") from None
    return [of_type(f"each of {name}", value, *kinds) for value in values]


def dense(name: str, value: Tensor) -> Tensor:
    """`value` where it is laid out as most tensors are, and has its numbers; ValueError otherwise."""
    if value.layout != torch.strided or value.is_nested:
        raise ValueError(f"{name} must be a dense tensor, not {'nested' if value.is_nested else value.layout}")
    if value.is_meta or value.is_quantized:
        raise ValueError(f"{name} must hold plain numbers, not be a {'meta' if value.is_meta else 'quantized'} tensor")
    return value


def tensor_of(name: str, value, wanted: str) -> Tensor:
    """`value` where it is a dense tensor; a copy of it for any other array, as what is checked must not change later.

    ValueError, with what is `wanted`, for what is no array, and where entries are masked: what they hide would count.
    """
    if isinstance(value, Tensor):
        return dense(name, value)
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be {wanted}, not a masked array")
    try:
        return torch.as_tensor(np.array(value))
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{type(value).__name__} {reprlib.repr(value)}"
        raise ValueError(f"{name} must be {wanted}, not {found} ({error})") from None


def of_width(name: str, value, width: int, ndim: int | None = None) -> Tensor:
    """`value` where it is a tensor of real numbers with that last axis, and so many axes; entries are not looked at."""
    dense(name, of_type(name, value, Tensor))
    if value.dtype == torch.bool or value.is_complex():
        raise ValueError(f"{name} must hold real numbers, not {value.dtype}")
    ndim = value.ndim if ndim is None else ndim
    if value.ndim != ndim or value.shape[-1:] != (width,):
        axes = f"{ndim} {'axis' if ndim == 1 else 'axes'}, the last of them"
        raise ValueError(f"{name} must have {axes} of length {width}, not shape {tuple(value.shape)}")
    return value
