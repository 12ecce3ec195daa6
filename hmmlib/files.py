"""Text files that are written whole or not at all, and JSON that is read to the letter."""

from __future__ import annotations

import json
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


def parse_json(content: bytes) -> object:
    """What a JSON text stands for, in UTF-8 and to the letter: no name twice in an object, and neither NaN nor Infinity.

    ValueError, in one line, which says what is wrong.
    """
    try:
        return json.loads(content.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict:
    """An object of JSON. ValueError where a name stands twice in it."""
    names = dict(pairs)
    if len(names) < len(pairs):
        twice = next(name for name in names if sum(other == name for other, _ in pairs) > 1)
        raise ValueError(f"{twice} stands in it twice")
    return names


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")
