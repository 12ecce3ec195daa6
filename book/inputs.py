"""What a notebook's outputs depend on: a file of parameters, and the files of the library that its code can come to."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import ClassVar

import nbformat
import yaml
from IPython.core.inputtransformer2 import TransformerManager

import hmmlib


class Plain(yaml.SafeLoader):
    """YAML as it looks, by the core schema of version 1.2: 010, 1:30 and `no` are words, not 8, 90 and False."""

    yaml_implicit_resolvers: ClassVar[dict] = {}


for kind, pattern, first in (
    ("bool", "true|false|True|False", "tfTF"),
    ("int", "[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", "null|~|", ["n", "~", ""]),
):
    Plain.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"({pattern})$"), list(first))


def read_parameters(path: Path, notebooks: Iterable[Path] = ()) -> dict:
    """The values of a parameter file, which is YAML, by their names; papermill writes both into a cell, as any code.

    ValueError, naming the file, where it cannot be read or is no YAML, and where a name is no parameter of a notebook.
    """
    try:
        loader = Plain(path.read_text(encoding="utf8"))
        node = loader.get_single_node()
        values = loader.construct_document(node) if node else None
    except (OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no parameter file: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is no parameter file: it must have lines `name: value`, not {values!r}")
    if len(node.value) > len(values):
        raise ValueError(f"{path} is no parameter file: a parameter stands in it twice")
    if wrong := [name for name in values if not (isinstance(name, str) and name.isidentifier())]:
        raise ValueError(f"{path} is no parameter file: no parameter can be named {wrong[0]!r}")
    for notebook in notebooks:
        from papermill import inspect_notebook  # takes a second, which only a run need wait for

        known = inspect_notebook(str(notebook))
        if unknown := [name for name in values if name not in known]:
            takes = f"{notebook.stem} takes {', '.join(known)}"
            raise ValueError(f"{path} is no parameter file: {unknown[0]!r} is no parameter: {takes}")
    return values


def module_file(root: Path, name: str) -> Path | None:
    """The file of a module of the library, or None where there is none of that name."""
    path = (root / "book" if name.split(".")[0] == "companion" else root).joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def imported(code: str) -> frozenset[str]:
    """Modules of the library that code imports; a name of `hmmlib` itself stands for the module it comes from."""
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
    every = [*(root / "hmmlib").rglob("*"), *(root / "book" / "companion").rglob("*")]
    everything = sorted(path for path in every if path.is_file() and "__pycache__" not in path.parts)
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
