"""Text files that are written whole or not at all, and JSON that is read to the letter."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path


def writable_folder(name: str, folder: str | Path) -> Path:
    """The folder, made where it is not there. OSError, which names it, where nothing can be written in it."""
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
        with suppress(OSError, TypeError):  # there is none, or the disk has become read-only
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(f"{path} could not be written: {error}") from error
        raise
    return path


def parse_json(content: bytes) -> object:
    """What a JSON text stands for, in UTF-8 and to the letter. ValueError, in one line, for a name that is twice in an
    object, for NaN and Infinity, and for what is no JSON.
    """

    def without_repeats(pairs: list[tuple[str, object]]) -> dict:
        if twice := [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]:
            raise ValueError(f"{twice[0]} stands in it twice")
        return dict(pairs)

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number of JSON")

    try:
        return json.loads(content.decode(), object_pairs_hook=without_repeats, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
