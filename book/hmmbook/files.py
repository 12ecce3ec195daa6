"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def writable_folder(name: str, folder: str | Path) -> Path:
    """Make a folder if it is not there, and return its absolute path.

    Args:
        name: what the folder is called in the message of an error.
        folder: the folder.

    Raises:
        OSError: nothing can be written in it.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"{name} must be a folder where files can be written, not {folder}: {error.strerror}") from error
    return folder.resolve()


def write_whole(path: Path, text: str) -> Path:
    """Write a file under a temporary name and rename it, so that no half-written one is ever read.

    Args:
        path: the file. A file that lies there stays until the new one is whole.
        text: its content.

    Returns:
        The path.

    Raises:
        OSError: the file cannot be written. The message names it.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError("it is no regular file")  # a device, for example, would become one
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(text.encode())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(f"{path} could not be written: {error}") from error
        raise
    return path
