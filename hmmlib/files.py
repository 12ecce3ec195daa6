"""Text files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def writable_folder(name: str, folder: str | Path) -> Path:
    """The folder, made where it is not there. OSError, which names it and the cause, where no file can be written in it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"{name} must be a folder where files can be written, not {folder}: {error.strerror}") from error
    return folder.resolve()


def write_whole(path: Path, text: str) -> Path:
    """Write a file under a temporary name and rename it, so that no half-written one is ever read.

    OSError, which names the file and the cause, where that fails; what lay there before stays.
    """
    path, temporary = Path(path), None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError("it is no regular file")  # a device, say, would become one
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            with suppress(OSError):  # a disk that has become read-only; the name says that it is no result
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(f"{path} could not be written: {error}") from error
        raise
    return path
