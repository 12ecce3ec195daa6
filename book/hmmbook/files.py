"""Write files whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def absolute(path: str | Path) -> Path:
    """Return an absolute path, in which a ~ at the beginning is replaced by the user's home.

    Many shells replace the ~ themselves, but not all, and not everywhere.
    """
    return Path(os.path.expanduser(path)).absolute()


def writable_folder(name: str, folder: str | Path) -> Path:
    """Make a folder if it is not there, and return its absolute path.

    Args:
        name: what the folder is called in the message of an error.
        folder: the folder.

    Raises:
        OSError: the folder cannot be made, or nothing can be written in it.
    """
    folder = absolute(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"{name} must be a folder where files can be written, not {folder}: {error.strerror}") from error
    return folder


def write_whole(path: str | Path, content: str | bytes) -> Path:
    """Write a file under a temporary name and rename it, so that nobody ever reads it half-written.

    Args:
        path: the file. A file that is already there stays until the new one is whole, and the new one gets its
            permissions. If the path is a link, the link stays, and the file that it leads to is written.
        content: a text, which is written as UTF-8, or bytes.

    Returns:
        The absolute path.

    Raises:
        OSError: the file cannot be written. The message names it.
    """
    path = absolute(path)
    if isinstance(content, str):
        content = content.encode()
    # The name is random, because processes on two machines that share a disk may have the same number.
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        if target.exists() and not target.is_file():
            raise OSError("it is no regular file")  # because renaming would replace a device, for example, by a file
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            if target.exists():
                with suppress(OSError):  # Some disks have no permissions.
                    shutil.copymode(target, temporary)  # before there is content that others must not read
            file.write(content)
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(f"{path} could not be written: {error}") from error
        raise
    return path
