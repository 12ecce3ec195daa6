"""Checks of arguments, whose errors name the argument, the value found and the values accepted."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Collection, Iterable, Sequence

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


def integer_between(name: str, value, low: int, high: int) -> int:
    """`value` where it is an integer from `low` to `high`, ends included; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return int(value)


def integers_between(name: str, values: Iterable[int], low: int, high: int) -> list[int]:
    """`values` as a list, where each is an integer from `low` to `high`; TypeError for what is no sequence."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of integers from {low} to {high}, not {values!r}")
    return [integer_between(f"each of {name}", value, low, high) for value in values]


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


def index_to(name: str, value, last: int, of: str = "") -> int:
    """`value` where it is an integer from 0 to `last`; ValueError otherwise, which names what the limit is `of`."""
    if (value := at_least(name, value, 0)) > last:
        raise ValueError(f"{name} must be 0 to {last}{of}, not {value}")
    return value


def size_to(name: str, value, most: int) -> int:
    """`value` where it is an integer from 1 to `most`; ValueError otherwise."""
    if (value := at_least(name, value, 1)) > most:
        raise ValueError(f"{name} must be 1 to {most}, not {value}")
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


def of_length(name: str, value: Tensor, lengths: Collection[int], where: str = "") -> Tensor:
    """`value` where its last axis has one of these lengths; ValueError otherwise."""
    if value.shape[-1] not in lengths:
        wanted = " or ".join(map(str, sorted(set(lengths))))
        raise ValueError(f"{name} must have {wanted} entries{where}, not {value.shape[-1]}")
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


MASK = -1
"""The token that means "nothing observed here"."""


SUM_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""How far probabilities may be from a sum of 1, for each dtype that a model may have."""

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that tokens and states can be drawn in."""


def alike(name: str, *tensors: Tensor) -> None:
    """ValueError unless these tensors, named together, have one dtype and one device."""
    types = {(tensor.dtype, tensor.device) for tensor in tensors}
    if len(types) > 1:
        raise ValueError(f"{name} must share one dtype and one device, not {sorted(map(str, types))}")


def as_precision(dtype) -> torch.dtype:
    """`dtype` where a model may have it; ValueError otherwise."""
    if not isinstance(dtype, torch.dtype) or dtype not in SUM_TOLERANCE:
        raise ValueError(f"dtype must be {' or '.join(map(str, SUM_TOLERANCE))}, not {dtype!r}")
    return dtype


def as_integer_type(dtype, most: int) -> torch.dtype:
    """`dtype` where it is one of integers that holds 0 to `most`; ValueError otherwise."""
    if not isinstance(dtype, torch.dtype) or dtype not in INTEGERS or most > torch.iinfo(dtype).max:
        raise ValueError(f"dtype must be an integer type of torch that holds 0 to {most}, not {dtype}")
    return dtype


def as_tensor(
    name: str,
    value,
    ndim: int | None = None,
    empty: bool = False,
    like: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """`value` as a float64 tensor (float32 stays float32), or of the dtype and device of `like`.

    ValueError where it is then no array of finite numbers, for negative ones unless `signed`, and for an array without
    entries unless `empty`.
    """
    value = tensor_of(name, value, "an array of numbers")
    if value.dtype == torch.bool or value.is_complex():
        raise ValueError(f"{name} must hold real numbers, not {value.dtype}")
    value = value if value.dtype == torch.float32 else value.to(torch.float64)
    given, value = value, value if like is None else value.to(like)
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
    """Probabilities that sum to 1 over the first axis (the only axis a caller flattens to, for a joint table), or `axis`.

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
    tokens = tensor_of("tokens", tokens, "a rectangular array of integers of shape (n, T)")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"tokens must be integers, not {tokens.dtype}")
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must have shape (n, T) with T at least 1, not {tuple(tokens.shape)}")
    unsigned, tokens = tokens.dtype == torch.uint64, tokens.to(device=device, dtype=torch.int64)
    least = 0 if unsigned else MASK  # what is too large for int64 has become negative
    if tokens.numel() and (tokens.min() < least or tokens.max() >= n_tokens):
        bad = tokens[(tokens < least) | (tokens >= n_tokens)][0].item()
        bad += 2**64 if unsigned and bad < 0 else 0
        raise ValueError(f"tokens must be 0 to {n_tokens - 1}, or MASK = {MASK}; found {bad}")
    return tokens


def as_generator(seed: int | torch.Generator, device="cpu") -> torch.Generator:
    """A generator on `device`, freshly seeded, or the one given."""
    if isinstance(seed, torch.Generator):
        if seed.device.type != torch.device(device).type:
            raise ValueError(f"seed must be a generator on {device}, where the model is, not on {seed.device}")
        return seed
    return torch.Generator(device).manual_seed(as_seed(seed, " or a torch.Generator"))


def as_weights(mu, length: int, like: Tensor) -> Tensor:
    """μ as a tensor (length,), of the dtype and device of `like`. ValueError for another shape, NaN, or only zeros."""
    mu = tensor_of("mu", mu, f"an array of real numbers, of shape ({length},)")
    if mu.is_complex() or mu.dtype == torch.bool:
        raise ValueError(f"mu must hold real numbers, not {mu.dtype}")
    if mu.shape != (length,):
        raise ValueError(
            f"mu must have shape ({length},), one weight for each state or memory value, not {tuple(mu.shape)}"
        )
    given, mu = mu, mu.to(like)
    if not torch.isfinite(mu).all():
        raise ValueError("mu must be finite, but holds NaN or infinity")
    if not given.any():
        raise ValueError("mu must not be all zero: every input would get label 1")
    if mu.count_nonzero() < given.count_nonzero():
        raise ValueError(f"mu must have no weight so small that it is zero as {mu.dtype}")
    return mu


def as_indices(name: str, values: Sequence[int], below: int) -> list[int]:
    """A nonempty set of indices from 0 to `below` - 1, sorted. ValueError for anything else."""
    values = dense(name, values) if isinstance(values, Tensor) else values
    values = values.tolist() if isinstance(values, Tensor | np.ndarray) else values
    try:
        found = sorted(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a sequence of integers, not {values!r}") from None
    if any(isinstance(v, bool) or not isinstance(v, int | np.integer) or not 0 <= v < below for v in found):
        raise ValueError(f"{name} must hold integers from 0 to {below - 1}, not {found}")
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{name} must name at least one index, and none twice, not {found}")
    return [int(v) for v in found]


def as_labels(labels, n: int) -> Tensor:
    """Labels as a bool tensor (n,). ValueError for another shape, or what is neither bool nor 0 and 1."""
    labels = tensor_of("labels", labels, "bool, or 0 and 1")
    other = labels[(labels != 0) & (labels != 1)]
    if len(other):
        raise ValueError(f"labels must be bool, or 0 and 1, not {other[0].item()}")
    if labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), not {tuple(labels.shape)}")
    return labels.bool()


def as_array(name: str, value, *shape: int | None) -> np.ndarray:
    """`value` as an array of real numbers of that shape, where None is any length; ValueError otherwise."""
    wanted = f"({', '.join('any' if length is None else str(length) for length in shape)}{',' * (len(shape) == 1)})"
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of shape {wanted}, not {type(value).__name__} ({error})") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of real numbers, not of {array.dtype}")
    if array.ndim != len(shape) or any(a not in (None, b) for a, b in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} must be an array of shape {wanted}, not {array.shape}")
    return array


def not_empty(name: str, values: np.ndarray) -> np.ndarray:
    """`values` where there are any; ValueError otherwise."""
    if not len(values):
        raise ValueError(f"{name} must hold one number or more, not none")
    return values


def length_of(name: str, values) -> int:
    """How many there are; TypeError for what is no sequence."""
    try:
        return len(values)
    except TypeError:
        raise TypeError(f"{name} must be a sequence, not {type(values).__name__}") from None


def by_name(name: str, value) -> dict:
    """`value` where it is a dict with something in it; TypeError or ValueError otherwise."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, by name, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must hold one entry or more, by name, not none")
    return value


def as_vector(name: str, value, length: int) -> Tensor:
    """`value` as a finite vector (length,), float64; ValueError otherwise."""
    try:
        value = dense(name, torch.as_tensor(value, dtype=torch.float64)).detach().cpu()
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {length} finite numbers, not {value!r}") from None
    if value.shape != (length,) or not torch.isfinite(value).all():
        raise ValueError(f"{name} must be {length} finite numbers, not {value.tolist()!r}")
    return value


def different_words(name: str, words: Sequence[str], count: int) -> list[str]:
    """`words` as a list, where they are so many, different and not empty; ValueError otherwise."""
    try:
        words = list(words)
    except TypeError:
        raise ValueError(f"{name} must be {count} different words, not {words!r}") from None
    good = all(isinstance(word, str) and word.strip() for word in words)
    if not good or len(words) != count or len(set(words)) != count:
        raise ValueError(f"{name} must be {count} different words, not {words!r}")
    return words


def as_rows(name: str, value, width: int, ndim: int, like: Tensor) -> Tensor:
    """`value` as by `as_tensor`, of shape (n, width) or, with 3 axes, (n, T, width). ValueError for another shape."""
    value = as_tensor(name, value, ndim, like=like)
    if value.shape[-1] != width:
        raise ValueError(f"{name} must have shape ({'n, T' if ndim == 3 else 'n'}, {width}), not {tuple(value.shape)}")
    return value


def as_parameter(name: str, part, ndim: int) -> Tensor:
    """A head's parameter as a tensor: float64, or float32 where it is given so; its own unless it is being trained.

    ValueError for another number of axes, no numbers, NaN or infinity.
    """
    given, part = part, tensor_of(name, part, "an array of numbers")
    if not part.is_floating_point() and (isinstance(given, Tensor) or part.is_complex()):
        raise ValueError(f"{name} must hold floating-point numbers, not {part.dtype}")
    part = part if part.dtype == torch.float32 else part.to(torch.float64)
    part = part if part.requires_grad else part.clone()  # what is being trained stays what it is
    if part.ndim != ndim:
        raise ValueError(f"{name} must have shape {('(k,)', '(k, l)')[ndim - 1]}, not {tuple(part.shape)}")
    if not torch.isfinite(part.detach()).all():
        raise ValueError(f"{name} must be finite, but holds NaN or infinity")
    return part


# What follows is the whole list of checks; those above that are not in it are on their way out.


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
    return value
