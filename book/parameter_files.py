"""Parameter files of notebooks: YAML, where every name is a parameter, and every value is read as it stands there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import yaml


class Plain(yaml.SafeLoader):
    """YAML as it looks, by the core schema of its version 1.2: 010, 1:30 and `no` are not 8, 90 and False, but
    words."""

    yaml_implicit_resolvers: ClassVar[dict] = {}


for kind, pattern, first in (
    ("bool", "true|false|True|False", "tfTF"),
    ("int", "[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", "null|~|", ["n", "~", ""]),
):
    Plain.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"({pattern})$"), list(first))


def read_parameters(path: Path, notebooks: Iterable[Path] = ()) -> dict:
    """The values of a parameter file by their names; papermill writes both into a cell, as it would any code.

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
        known = parameters_of(notebook)
        if unknown := [name for name in values if name not in known]:
            near = difflib.get_close_matches(str(unknown[0]), known, n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            takes = f"{notebook.stem} takes {', '.join(known)}"
            raise ValueError(f"{path} is no parameter file: {unknown[0]!r} is no parameter:{hint} {takes}")
    return values


def parameters_of(notebook: Path) -> list[str]:
    """The names that a notebook's cell of parameters sets."""
    import papermill  # takes a second, which only a run need wait for

    return list(papermill.inspect_notebook(str(notebook)))
