"""Check that a function which a user passes changes none of its arguments, and say where it raises an error.

Later parts of a trial are given the same arguments.
"""

from __future__ import annotations

import sysconfig
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import hmmlib

LIBRARIES = (
    Path(sysconfig.get_path("stdlib")),
    Path(sysconfig.get_path("purelib")),
    Path(__file__).parents[1],
    Path(hmmlib.__file__).parent,
)
"""Where code is that is not the user's own."""


@contextmanager
def unchanged(called: str, **arguments: Any) -> Iterator[None]:
    """Raise an error if one of a function's arguments changes within this context.

    Numbers that are measured after such a change would be wrong, and nobody would notice. We compare checksums of the
    arguments, which takes less time than to copy them.

    If the function itself raises an error, a note on the error names the function and its line. A sweep shows such
    notes, but no traceback.

    Args:
        called: what the function is called in the message of an error.
        arguments: what the function is given, by name.

    Raises:
        ValueError: an argument has changed. The message names the function and the argument.
    """
    before = {name: checksum(value) for name, value in arguments.items()}
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in {called}{_line_of(error)}")
        raise
    for name, value in arguments.items():
        if checksum(value) != before[name]:
            raise ValueError(f"{called} must not change what it is given, but it has changed {name}. Change a copy.")


def _line_of(error: Exception) -> str:
    """Return the innermost line of the user's own code, as the end of a sentence, or nothing if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if frame.line and not any(path.is_relative_to(folder) for folder in LIBRARIES):
            return f", at the line: {frame.line}"
    return ""


def checksum(value: Any) -> int:
    """Return a checksum of all tensors and plain values inside a value."""
    digest = 0
    for part in parts_of(value):
        digest = zlib.adler32(part, digest)
    return digest


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the bytes of each tensor and plain value inside a value."""
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
