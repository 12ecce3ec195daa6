"""Checks of what users pass. Each error names the argument, and says what was found and what is accepted."""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from hmmlib.tensors import carries_tangent

MASK = -1
"""The token that means "nothing observed here".

Example:
    >>> from hmmlib import MASK, masked_token_probs, random_hmm
    >>> model = random_hmm(n_states=4, n_tokens=5, seed=0)
    >>> masked_token_probs(model, [[MASK, 2, 0]]).shape
    torch.Size([1, 3, 5])
"""
SUM_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""How far from 1 rounding may leave a sum of probabilities, for each dtype that a model may have."""


# Numbers and words


def integer(name: str, value, low: int, high: int | None = None) -> int:
    """Return an integer that is at least `low`, and at most `high` if that is given.

    Raises:
        ValueError: the value is not an integer, or is outside these limits.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < low or (high is not None and value > high):
        limits = f"of {low} or more" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be an integer {limits}, not {value!r}")
    return int(value)


def number(name: str, value, low: float, high: float = math.inf) -> float:
    """Return a number from `low` to `high`, both included.

    Raises:
        ValueError: the value is not a number, is NaN, or is outside these limits.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        limits = f"of {low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
        raise ValueError(f"{name} must be a number {limits}, not {value!r}")
    return float(value)


def one_of(name: str, value, choices: Collection[str]) -> str:
    """Return a word that is one of the choices.

    Raises:
        ValueError: the value is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices)
        dot = "." if hint else ""
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}{dot}{hint}")
    return value


def did_you_mean(value, choices: Collection[str]) -> str:
    """Return the question " Did you mean …?" with the choice that is spelled most like a word, or "" if none is."""
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def of_type(name: str, value, *kinds: type):
    """Return a value that is of one of these classes.

    Raises:
        TypeError: the value is of another class.
    """
    if not isinstance(value, kinds):
        accepted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be of type {accepted}, not {type(value).__name__}")
    return value


# Seeds


def as_seed(seed: int, also_accepted: str = "") -> int:
    """Return a seed that torch takes.

    A CPU's generator reads only 32 bits of a seed. A larger seed would draw what a smaller one draws, so it is refused.

    Args:
        seed: an integer from 0 to 2**32 - 1.
        also_accepted: what the error's message says is accepted besides integers.

    Raises:
        ValueError: the seed is not such an integer.
    """
    is_integer = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not is_integer or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to 2**32 - 1{also_accepted}, not {seed!r}")
    return int(seed)


def as_generator(seed: int | torch.Generator, device="cpu") -> torch.Generator:
    """Return a random generator on a device, so that any seed or generator can be used with a model on any device.

    A seed starts a new generator. A generator on this device is returned as it is. One on another device draws the
    seed of a new one.

    Raises:
        ValueError: `seed` is neither a seed nor a generator.
    """
    if not isinstance(seed, torch.Generator):
        return torch.Generator(device).manual_seed(as_seed(seed, " or a torch.Generator"))
    device = torch.device(device)
    if seed.device.type == device.type and device.index in (None, seed.device.index):
        return seed
    return torch.Generator(device).manual_seed(seed_from(seed))


def seed_from(generator: torch.Generator) -> int:
    """Draw a seed from 0 to 2**62 - 1 from a generator."""
    return int(torch.randint(2**62, (1,), generator=generator, device=generator.device))


# Arrays


def of_shape(name: str, value: Tensor, shape: tuple, reason: str = "") -> Tensor:
    """Return a tensor, if it has the shape that is asked for.

    Args:
        name: what the tensor is called in the message of an error.
        value: the tensor.
        shape: a length for each axis. None stands for any length, and `...` in front for any number of further axes.
        reason: what the error's message says after the shape.

    Raises:
        TypeError: the value is not a tensor.
        ValueError: the tensor has another shape.
    """
    actual = tuple(of_type(name, value, Tensor).shape)
    lengths = shape
    compared = actual
    if shape[0] is ...:
        lengths = shape[1:]
        compared = actual[max(0, len(actual) - len(lengths)) :]
    fits = len(compared) == len(lengths)
    for length, expected in zip(compared, lengths, strict=False):
        fits = fits and expected in (None, length)
    if not fits:
        raise ValueError(f"{name} must have shape {_as_text(shape)}{reason}, not {actual}")
    return value


def _as_text(shape: tuple) -> str:
    """Write a shape as Python prints a tuple, with "any" for any length and "…" for any number of axes."""
    names = {None: "any", ...: "…"}
    entries = [names.get(length, str(length)) for length in shape]
    text = ", ".join(entries)
    return f"({text},)" if len(entries) == 1 else f"({text})"


def as_array(name: str, value, accepted: str = "an array of numbers", as_floats: bool = False) -> Tensor:
    """Return an array as a tensor. Every array that a user passes comes in through this function.

    A tensor is returned as it is. Any other array is copied to the CPU, so that nobody can change it after its check.

    Args:
        name: what the array is called in the message of an error.
        value: a tensor, or whatever NumPy reads as an array, for example nested lists or a table of pandas.
        accepted: what the error's message says is accepted.
        as_floats: whether a number that no type of torch holds, such as a fraction, becomes the nearest float64.

    Raises:
        ValueError: the value is not an array, or an entry is missing, masked or not a number, or a tensor does not
            store each of its entries.
    """
    if isinstance(value, Tensor):
        return _as_dense(name, value)
    try:
        is_masked = _has_masked_entries(value)
        if not is_masked:
            return torch.as_tensor(_as_numbers(value, as_floats), device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        is_masked = False
        reason = error
    if is_masked:
        raise ValueError(f"{name} must have no masked entries, because their values are unknown. Fill them first.")
    short = " ".join(reprlib.repr(value).split())
    raise ValueError(f"{name} must be {accepted}, not {type(value).__name__} {short}, because {reason}")


def _as_dense(name: str, value: Tensor) -> Tensor:
    """Return a tensor, if it stores each of its entries as a number of its own."""
    reason = ""
    if value.is_nested:
        reason = "it is nested. Pad its rows to one length."
    elif value.is_quantized:
        reason = "it is quantised. Pass value.dequantize()."
    elif value.is_meta:
        reason = "it is on the device meta, where a tensor has no entries"
    elif isinstance(value, torch.masked.MaskedTensor):
        reason = "it is masked. Pass value.to_tensor(…), which fills the masked entries."
    elif value.layout != torch.strided:
        reason = "it is sparse. Pass value.to_dense()."
    if reason:
        raise ValueError(f"{name} must be a dense tensor, but {reason}")
    return value


def _has_masked_entries(value) -> bool:
    """Tell whether a value is a NumPy array with a masked entry, or a list or pandas Series that holds such an array.

    NumPy would ignore the mask and read the number below it.
    """
    if isinstance(value, int | float | str | bytes | np.generic | Tensor):
        return False
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return True
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return array.dtype == object and any(map(_has_masked_entries, array.flat))
    is_sequence = hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, Mapping)
    return is_sequence and any(map(_has_masked_entries, value))


@np.errstate(all="ignore")
def _as_numbers(value, as_floats: bool) -> np.ndarray:
    """Copy an array to a NumPy array of a type that torch can take."""
    array = np.array(value)
    if array.dtype == object:  # Pandas stores integers and truth values like this if some could be missing.
        array = np.array(array.tolist())
    if array.dtype.kind == "f" and array.itemsize > 8:  # Torch has no long doubles.
        return array.astype(np.float64)
    if array.dtype.kind in "biufc":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    for entry in array.flat:
        if not isinstance(entry, Real | Decimal):
            raise TypeError(f"{reprlib.repr(entry)} is not a number")
    if as_floats:
        return array.astype(np.float64)
    raise TypeError("its numbers are too large, or fractions")


def as_tensor(
    name: str, value, ndim: int | None = None, empty: bool = False, like: Tensor | None = None, signed: bool = False
) -> Tensor:
    """Return an array of finite numbers as a tensor.

    Args:
        name: what the array is called in the message of an error.
        value: the array. Entries of float32 stay so, and all others become float64.
        ndim: how many axes it must have.
        empty: whether it may have no entries.
        like: a tensor whose dtype and device the result gets.
        signed: whether entries may be negative.

    Raises:
        ValueError: the value is not such an array, or a whole row of it becomes zero in the dtype of `like`.
    """
    value = as_array(name, value, as_floats=True)
    if value.dtype == torch.bool or value.is_complex():
        raise ValueError(f"{name} must hold real numbers, not {value.dtype}")
    precise = value if value.dtype == torch.float32 else value.to(torch.float64)
    value = precise if like is None else precise.to(like)
    if ndim is not None and value.ndim != ndim:
        dimensions = "1 dimension" if ndim == 1 else f"{ndim} dimensions"
        raise ValueError(f"{name} must have {dimensions}, not shape {tuple(value.shape)}")
    if value.numel() == 0:
        if empty:
            return value
        raise ValueError(f"{name} must have at least one entry, not shape {tuple(value.shape)}")
    entries = value.detach()
    if not torch.isfinite(entries).all():
        raise ValueError(f"{name} must be finite, but holds NaN or infinity in {value.dtype}")
    if value.dtype != precise.dtype:
        had_entries = precise.detach().any(-1).to(value.device)
        if (had_entries & ~entries.any(-1)).any():
            raise ValueError(f"{name} must not be so small that a row is all zero in {value.dtype}. Use float64.")
    if not signed and (entries < 0).any():
        raise ValueError(f"{name} must be nonnegative, but its smallest entry is {entries.min().item():.6g}")
    return value


# What a model is made of, and what it is asked about

TRANSPOSED = ". Its rows do, so pass the transpose. Here column h is the distribution given state h."
"""How the error of `as_distribution` ends for a table whose rows sum to 1."""


def as_distribution(name: str, value, ndim: int, axis: int = 0, hint: str = TRANSPOSED) -> Tensor:
    """Return probabilities, if they sum to 1 over one axis within SUM_TOLERANCE.

    Args:
        name: what the array is called in the message of an error.
        value: the array.
        ndim: how many axes it must have.
        axis: the axis over which it must sum to 1.
        hint: how the error's message ends if a table sums to 1 over its other axis instead.

    Raises:
        ValueError: the value is not an array of finite nonnegative numbers, or does not sum to 1.
    """
    value = as_tensor(name, value, ndim)
    tolerance = SUM_TOLERANCE[value.dtype]
    errors = _errors_of_sums(value, axis)
    if (errors <= tolerance).all():
        return value
    limit = f"sum to 1 within {tolerance:g}"
    size = f"is off by {errors.max().item():.3g}"
    if ndim == 1:
        raise ValueError(f"{name} must {limit}, but {size}. If that is rounding, divide it by its sum.")
    line = "column"
    along = "first axis"
    if axis != 0:
        line = "row"
        along = "last axis"
    worst = (errors == errors.max()).nonzero()[0].tolist()
    place = ", ".join(map(str, worst))
    advice = f". If that is rounding, divide each {line} by its sum."
    if ndim == 2 and (_errors_of_sums(value, 1 - axis) <= tolerance).all():
        advice = hint
    raise ValueError(f"{name} must have {line}s ({along}) that {limit}, but {line} {place} {size}{advice}")


def _errors_of_sums(table: Tensor, axis: int) -> Tensor:
    """Return how far the sums over an axis are from 1."""
    return (table.detach().sum(axis) - 1).abs()


def as_tokens(tokens, n_tokens: int, device=None) -> Tensor:
    """Return tokens as int64 of shape (n, T), on a device if one is named.

    Raises:
        ValueError: the tokens are not integers of shape (n, T) with T ≥ 1, or one is not MASK or 0, …, n_tokens - 1.
    """
    tokens = as_array("tokens", tokens, "a rectangular array of integers of shape (n, T)")
    if tokens.is_floating_point() and tokens.isnan().any():
        raise ValueError(f"tokens must be integers, but an entry is missing. Write MASK = {MASK} for an unknown token.")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"tokens must be integers, not {tokens.dtype}")
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must have shape (n, T) with T at least 1, not {tuple(tokens.shape)}")
    least = 0 if tokens.dtype == torch.uint64 else MASK  # In int64 a large uint64 would become negative.
    converted = tokens.to(device=device, dtype=torch.int64)
    values = converted
    if converted.device.type == "cpu" and not carries_tangent(converted):
        # Torch would use its threads, and these spin afterwards beside the threads of the compiled loops.
        values = converted.numpy()
    if converted.numel() and (values.min() < least or values.max() >= n_tokens):
        text, position = ((converted < least) | (converted >= n_tokens)).nonzero()[0].tolist()
        outside = tokens[text, position].item()
        raise ValueError(f"tokens must be 0 to {n_tokens - 1}, or MASK = {MASK}, but one is {outside}")
    return converted


def as_weights(mu, length: int, like: Tensor) -> Tensor:
    """Return the weights μ of a task, of shape (length,), with the dtype and device of `like`.

    Raises:
        ValueError: the weights have another shape, are not finite, are all zero, or become zero in the dtype of `like`.
    """
    precise = as_tensor("mu", mu, signed=True)
    of_shape("mu", precise, (length,), ", one weight for each state or memory value")
    if not precise.any():
        raise ValueError("mu must not be all zero, because every input would then get label 1")
    mu = as_tensor("mu", precise, like=like, signed=True)
    if mu.count_nonzero() < precise.count_nonzero():
        raise ValueError(f"mu must have no weight so small that it is zero as {mu.dtype}. Scale mu up, or use float64.")
    return mu


def as_indices(name: str, values: Sequence[int], below: int) -> list[int]:
    """Return a set of indices from 0 to `below` - 1, in ascending order.

    Raises:
        ValueError: there is no index, an index is there twice, or one is not an integer in this range.
    """
    is_table = getattr(values, "ndim", 1) != 1
    if is_table or isinstance(values, Mapping | bytes) or not hasattr(values, "__iter__"):
        # Iterating would give the names of a table's columns, the keys of a dict, and the codes of letters.
        short = " ".join(reprlib.repr(values).split())
        raise ValueError(f"{name} must be a sequence of integers, not {type(values).__name__} {short}")
    if isinstance(values, Tensor | np.ndarray):
        values = as_array(name, values).tolist()
    indices = [integer(f"each of {name}", value, 0, below - 1) for value in values]
    indices.sort()
    if not indices or len(set(indices)) < len(indices):
        raise ValueError(f"{name} must name at least one index, and none twice, not {indices}")
    return indices


def as_labels(labels, n: int) -> Tensor:
    """Return labels as a bool tensor (n,).

    Raises:
        ValueError: the labels have another shape, or are neither bool nor 0 and 1.
    """
    labels = as_array("labels", labels, "bool, or 0 and 1")
    neither = labels[(labels != 0) & (labels != 1)]
    if len(neither):
        raise ValueError(f"labels must be bool, or 0 and 1, not {neither[0].item()}")
    if labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), not {tuple(labels.shape)}")
    return labels.bool()
