"""What a notebook's outputs depend on: the files of the library that its code can come to, and one hash of them all."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

import hmmlib


def module_file(root: Path, name: str) -> Path | None:
    """The file of a module of the library, or None where there is none of that name."""
    path = (root / "book" if name.split(".")[0] == "companion" else root).joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def imported(code: str) -> frozenset[str]:
    """Modules of the library that code imports, wherever; a name of `hmmlib` itself stands for the module it comes
    from."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "hmmlib":
            names |= {f"hmmlib.{hmmlib._MODULE.get(alias.name, alias.name)}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in names if name.split(".")[0] in ("hmmlib", "companion"))


def reached(root: Path, code: str) -> list[Path]:
    """The files of the library that code can come to: modules over all imports, and whatever is no module.

    The whole library where that cannot be known: for `import hmmlib` alone, and a name that `hmmlib` does not have.
    """
    packages = (root / "hmmlib", root / "book" / "companion")
    every = (path for package in packages for path in package.rglob("*") if "__pycache__" not in path.parts)
    everything = sorted(path for path in every if path.is_file())
    files, names = {root / "hmmlib" / "__init__.py"}, set(imported(code))
    while names:
        name = names.pop()
        file = module_file(root, name)
        if name == "hmmlib" or (file is None and name.count(".") == 1 and name.startswith("hmmlib.")):
            return everything
        if file and file not in files:
            files.add(file)
            names |= imported(file.read_text())
    return sorted(files | {file for file in everything if file.suffix != ".py"})


def code_of(notebook: nbformat.NotebookNode) -> str:
    """What a notebook runs, as plain Python."""
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return "\n".join(TransformerManager().transform_cell(source) for source in cells)


def digest(root: Path, words: str, files: Iterable[Path]) -> str:
    """One hash of words and of files' names and contents."""
    hashed = hashlib.sha256(words.encode())
    for file in files:
        content = file.read_bytes()
        hashed.update(f"{file.relative_to(root)} {len(content)}\n".encode() + content)
    return hashed.hexdigest()
