"""Parameter files of notebooks: YAML, where every name is a parameter, and every value is read as it stands there."""

from __future__ import annotations

import ast
import difflib
import json
import keyword
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import yaml


def read_parameters(path: Path, notebooks: Iterable[Path] = ()) -> dict:
    """The values of a parameter file by their names, which papermill writes into a cell as they stand, as it would any code.

    ValueError, naming the file, where it cannot be read or is no YAML, where YAML takes a value for another than it looks, and
    where a name is none, or no parameter of one of the notebooks.
    """
    try:
        text = path.read_text(encoding="utf8")
        values, node = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
        _check_plain(text)
    except OSError as error:
        raise ValueError(f"{path} is no parameter file: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:  # of a tag's wrong value
        raise ValueError(f"{path} is no parameter file: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is no parameter file: it must have lines `name: value`, not {values!r}")
    if len(node.value) > len(values):
        raise ValueError(f"{path} is no parameter file: a parameter stands in it twice")
    if wrong := [name for name in values if not is_name(name)]:
        raise ValueError(f"{path} is no parameter file: no parameter can be named {', '.join(map(repr, wrong))}")
    for notebook in notebooks:
        known = parameters_of(notebook)
        if unknown := [name for name in values if name not in known]:
            near = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            takes = f"{notebook.stem} takes {', '.join(known)}"
            raise ValueError(f"{path} is no parameter file: {unknown[0]!r} is no parameter:{hint} {takes}")
    return values


def is_name(text) -> bool:
    return isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text)


def parameters_of(notebook: Path) -> list[str]:
    """The names that a notebook's cell of parameters sets."""
    import papermill  # takes a second, which only a run need wait for

    return list(papermill.inspect_notebook(str(notebook)))


def _check_plain(text: str) -> None:
    """ValueError for a word without quotes that YAML takes for what neither Python nor JSON do: 010 is 8 there, 1:30 is 90."""
    for token in yaml.scan(text):
        if isinstance(token, yaml.ScalarToken) and token.plain:
            with suppress(yaml.YAMLError):  # `<<`, which has no value of its own
                value = yaml.safe_load(token.value)
                if not isinstance(value, str) and repr(value) not in map(repr, _literals(token.value)):
                    raise ValueError(
                        f"{token.value} in line {token.start_mark.line + 1} would be read as {value!r}; "
                        "write a number as 10 or 0.5, a truth value as true or false, and a word in quotes"
                    )


def _literals(text: str) -> list:
    """What a text stands for in Python and in JSON, if anything."""
    found = []
    for read in (ast.literal_eval, json.loads):
        with suppress(ValueError, SyntaxError):
            found.append(read(text))
    return found
