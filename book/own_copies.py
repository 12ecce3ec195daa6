"""What a reader does to a notebook is kept: edits of a twin before it is written again, and copies to work in."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import datetime
from itertools import count
from pathlib import Path

import jupytext
import nbformat

from hmmlib.files import write_whole

PAIR = "ipynb,md:myst"


def cell_id(cells: list[dict], k: int) -> str:
    """The id of a twin's k-th cell: a hash of its place, kind and text, and of there being none after it."""
    text = "".join(cells[k]["source"])  # which a file has in lines
    words = f"{k} {cells[k]['cell_type']} {text}{' the last' if k == len(cells) - 1 else ''}"
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def edited(twin: Path) -> bool:
    """Whether the text, order or outputs of a twin's cells are others than it was written with, whatever its source is now.

    Its cells' ids tell, which no editor changes. To open and save it is no edit; to run it is one, for its outputs. What is
    no whole notebook counts as edited.
    """
    try:
        cells = json.loads(twin.read_text(encoding="utf8"))["cells"]
        as_written = [cell["id"] == cell_id(cells, k) and not cell.get("outputs") for k, cell in enumerate(cells)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return True
    return not as_written or not all(as_written)


def keep(path: Path, folder: Path) -> Path:
    """Copy a file into a folder under a name with the time in it that no other file has; the copy.

    OSError where that fails; then there is no copy, not even a part of one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begins = f"{path.stem}-{datetime.now():%Y-%m-%d-%H%M%S}"
    names = (f"{begins}{f'-{number}' if number > 1 else ''}{path.suffix}" for number in count(1))
    copy = next(folder / name for name in names if not (folder / name).exists())
    try:
        shutil.copy2(path, copy)
    except OSError:
        copy.unlink(missing_ok=True)
        raise
    return copy


def copy_out(twin: str, path: Path) -> bool:
    """Write a twin as a notebook to work in, with a text notebook that Jupytext keeps like it.

    Returns False, and writes nothing, where there is one of the two: that is the reader's.
    """
    text = path.with_suffix(".md")
    if path.exists() or text.exists():
        return False
    notebook = nbformat.reads(twin, 4)
    notebook.metadata["jupytext"] = {"formats": PAIR}
    for cell in notebook.cells:
        cell.source = cell.source.strip("\n")  # as the text has it, so that the two are alike from the beginning
    write_whole(path, nbformat.writes(notebook) + "\n")
    write_whole(text, jupytext.writes(notebook, fmt="md:myst"))  # last: to Jupytext, what is newer is what counts
    return True
