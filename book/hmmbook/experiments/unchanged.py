"""What a function of a user's is given must stay as it is, because later parts of a trial are given the same."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def unchanged(called: str, **arguments: Any) -> Iterator[None]:
    """Refuse that a function changes one of its arguments meanwhile.

    Numbers that are measured after such a change would be wrong, and nobody would see it. Checksums of tensors are
    compared, which takes less time than copies.

    Args:
        called: what the function is called in the message of an error.
        arguments: what it is given, by name.

    Raises:
        ValueError: an argument is another than before. The message names function and argument.
    """
    before = {name: checksum(value) for name, value in arguments.items()}
    yield
    for name, value in arguments.items():
        if checksum(value) != before[name]:
            raise ValueError(f"{called} must not change what it is given, but it has changed {name}: change a copy")


def checksum(value: Any) -> int:
    """Return a checksum of all tensors and plain values that a value consists of."""
    digest = 0
    for part in parts_of(value):
        digest = zlib.adler32(part, digest)
    return digest


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the bytes of each tensor and plain value that a value consists of."""
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous()
        if array.is_floating_point() and array.itemsize < 4:
            array = array.float()  # NumPy has no bfloat16.
        yield array.numpy()
    elif isinstance(value, nn.Module):
        yield from parts_of([*value.parameters(), *value.buffers()])
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from parts_of(entry)
    elif isinstance(value, dict):
        yield from parts_of(list(value.items()))
    elif isinstance(value, str | int | float):
        yield repr(value).encode()
    elif type(value).__module__.startswith("hmmlib."):  # a model, a head or a reader of a network
        yield from parts_of(vars(value))
