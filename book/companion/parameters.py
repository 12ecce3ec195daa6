"""Checks on the parameters of a notebook, whoever set them: its author, a reader in Colab, or papermill.

papermill by itself only warns about a name that a notebook does not have, and passes whatever type it read. So each
notebook's first line after its parameters is a call of `check`, which stops the run with a message that names the
parameter and what it takes.
"""

from __future__ import annotations

import ast
import difflib
import json
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, create_model

from hmmlib.experiments.presets import PRESETS

MARK = "# Parameters"
"""First words of a cell that sets parameters: papermill writes them, and the notebooks' own cells begin with them too."""


class ParameterError(ValueError):
    """A parameter that a notebook does not have, of the wrong type, or of an impossible value."""


def _from_text(value):
    """`-p sizes "[4, 30]"` reaches the notebook as text: read it as JSON where it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _no_bool(value):
    """True is no number here, though Python counts it as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_no_bool)]
Count = Annotated[int, Field(ge=0), BeforeValidator(_no_bool)]
Size = Annotated[int, Field(ge=1), BeforeValidator(_no_bool)]
Sizes = Annotated[list[Size], Field(min_length=1), BeforeValidator(_from_text)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
PositiveOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_no_bool)]
Length = Annotated[int, Field(ge=-1, le=50), BeforeValidator(_no_bool)]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]
Preset = Literal[tuple(PRESETS)]


def _assigned(source: str) -> set[str]:
    return {
        node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _parameter_cells(namespace: dict) -> list[str]:
    """The notebook's parameter cell, and the cells with parameters that were run after it."""
    cells = [cell for cell in namespace.get("In", []) if cell.lstrip().startswith(MARK)]
    own = max((k for k, cell in enumerate(cells) if cell.lstrip().startswith(MARK + ":")), default=0)
    return cells[own:]


def _defaults(cell: str) -> dict:
    """What a parameter cell assigns, with or without the type beside the name, where that is a literal."""
    found = {}
    for line in ast.parse(cell).body:
        if not isinstance(line, ast.Assign | ast.AnnAssign):
            continue
        target = line.targets[0] if isinstance(line, ast.Assign) else line.target
        if isinstance(target, ast.Name):
            with suppress(ValueError):
                found[target.id] = ast.literal_eval(line.value)
    return found


def _tell_what_differs(values: dict, defaults: dict) -> None:
    """Say above a page, where it is run with other parameters than its text was written for, which these are."""
    others = {name: value for name, value in values.items() if name in defaults and value != defaults[name]}
    if others:
        from IPython.display import Markdown, display  # there is IPython wherever there are cells

        here = ", ".join(f"`{name}` is {value!r} instead of {defaults[name]!r}" for name, value in others.items())
        note = "numbers and pictures below are of this run, numbers in the sentences of the usual one."
        display(Markdown(f"**Run with other parameters than the text was written for:** {here}. So {note}"))


def check(namespace: dict, **declared) -> None:
    """Check a notebook's parameters and put them, converted, into its namespace; say which are not those of its text.

    Args:
        namespace: the notebook's `globals()`.
        declared: the type of each parameter, as pydantic takes it.

    Raises:
        ParameterError: a name that is not declared (with the nearest one that is), a wrong type, an impossible value.
            In a notebook the message alone is shown.
    """
    problems = []
    cells = _parameter_cells(namespace)
    for name in sorted(set().union(*map(_assigned, cells)) - declared.keys()):
        near = difflib.get_close_matches(name, declared, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        problems.append(f"unknown parameter {name!r}: {hint}this notebook takes {', '.join(declared)}")
    model = create_model(
        "Parameters", __config__=ConfigDict(extra="forbid"), **{n: (t, ...) for n, t in declared.items()}
    )
    values = {name: namespace[name] for name in declared if name in namespace}
    try:
        checked = model(**values)
    except ValidationError as error:
        for item in error.errors():
            where = "".join(f"[{part}]" if isinstance(part, int) else str(part) for part in item["loc"])
            given = "" if item["type"] == "missing" else f", not {item['input']!r}"
            problems.append(f"parameter {where!r}: {item['msg']}{given}")
    if problems:
        raise ParameterError("; ".join(problems))
    namespace.update(checked.model_dump())
    if cells:
        _tell_what_differs(checked.model_dump(), _defaults(cells[0]))


INSTANCES = dict.fromkeys(PRESETS, 300) | {"smoke": 20}
"""How many random models the notebooks on theory check at each preset."""


MINUTES = {"smoke": 1.0, "quick": 3.0, "laptop": 30.0, "gpu": 10.0, "paper": 15.0, "released-code": 30.0}
"""How long a notebook computes what the store lacks, at most, at each preset."""
