"""Checkpoints: a dictionary of tensors and plain values in a file that is written whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


class CheckpointError(OSError):
    """A checkpoint could not be written. The message names the file and the reason."""


def as_path(path: str | Path) -> Path:
    """Return the path of a checkpoint. The file need not exist.

    Raises:
        ValueError: The path is not that of a file `*.pt`. It is refused, so that no other file is overwritten.
    """
    path = Path(os.path.expanduser(path))
    if path.suffix != ".pt" or path.is_dir() or path.parent.is_file():
        raise ValueError(f"checkpoint must be a file *.pt in a folder, not {path}")
    return path


def save(path: str | Path, content: dict) -> None:
    """Write a checkpoint under a temporary name, and then rename it.

    Args:
        path: The file, in a folder that need not exist yet. An older checkpoint stays until the new one is whole.
        content: Tensors, numbers and texts, and lists and dictionaries of these.

    Raises:
        CheckpointError: The file cannot be written.
    """
    path = as_path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    buffer = io.BytesIO()
    torch.save(content, buffer)  # If torch wrote the file itself, its error would not say that a disk is full.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(buffer.getbuffer())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(f"no checkpoint could be written to {path}: {error}") from error


def load(path: str | Path) -> dict | None:
    """Return the content of a checkpoint, with its tensors on the CPU, or None if there is no file.

    Raises:
        ValueError: The file is not a checkpoint. It stays as it is.
    """
    path = as_path(path)
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # Each kind of damaged file raises another kind of error.
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is no checkpoint that can be read, so move it away: {reason}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no checkpoint, but holds a {type(content).__name__}. Name another file")
    return content


@contextmanager
def naming_damaged(path: str | Path) -> Iterator[None]:
    """Turn any error within the block into a ValueError that names the file, whose content then does not fit."""
    try:
        yield
    except Exception as error:  # Each kind of foreign content raises another kind of error.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ValueError(f"{path} is no checkpoint that can be used, so move it away: {reason}") from error


def remove(path: str | Path) -> None:
    """Delete a checkpoint if it exists."""
    as_path(path).unlink(missing_ok=True)
