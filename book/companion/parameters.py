"""Checks on the parameters of a notebook, whoever set them: its author, a reader in Colab, or papermill.

papermill only warns about a name that a notebook does not have, and passes any type. So a notebook's first line after
its parameters calls `check`.
"""

from __future__ import annotations

import ast
import difflib
import json
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError, create_model

from hmmlib.experiments.presets import PRESETS

INSTANCES = dict.fromkeys(PRESETS, 300) | {"smoke": 20}
"""How many random models the notebooks on theory check at each preset."""

MINUTES = {"smoke": 1.0, "quick": 3.0, "laptop": 30.0, "gpu": 10.0, "paper": 15.0, "released-code": 30.0}
"""How long a notebook computes what the store lacks, at most, at each preset."""


class ParameterError(ValueError):
    """A parameter that a notebook does not have, of the wrong type, or of an impossible value."""


def _from_text(value):
    """`-p sizes "[4, 30]"` reaches the notebook as text: read it as JSON where it is."""
    with suppress(ValueError, TypeError, RecursionError):
        return json.loads(value)
    return value


def _no_bool(value):
    """True is no number here, though Python counts it as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


NUMBER = BeforeValidator(_no_bool)
Seed = Annotated[int, Field(ge=0, lt=2**63), NUMBER]
Count = Annotated[int, Field(ge=0), NUMBER]
Size = Annotated[int, Field(ge=1), NUMBER]
Sizes = Annotated[list[Size], Field(min_length=1), BeforeValidator(_from_text)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), NUMBER]
PositiveOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), NUMBER]
Length = Annotated[int, Field(ge=-1, le=50), NUMBER]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]
Preset = Literal[tuple(PRESETS)]


def _assignments(cell: str) -> dict[str, ast.expr | None]:
    """What a cell assigns to each name, with or without the type beside the name."""
    lines = [line for line in ast.parse(cell).body if isinstance(line, ast.Assign | ast.AnnAssign)]
    pairs = [(line.targets[0] if isinstance(line, ast.Assign) else line.target, line.value) for line in lines]
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name)}


def _message(item: dict) -> str:
    """One of pydantic's errors, with the parameter's name in front and what was given behind."""
    where = "".join(f"[{part}]" if isinstance(part, int) else part for part in item["loc"])
    given = "" if item["type"] == "missing" else f", not {item['input']!r}"
    example = '; a list is given as "[4, 8]"' if item["type"] == "list_type" else ""
    return f"parameter {where!r}: {item['msg']}{given}{example}"


def check(namespace: dict, **declared) -> None:
    """Check a notebook's parameters and put them, converted, into its namespace; show which are not those of its text.

    `namespace` is the notebook's `globals()`, `declared` has the type of each parameter, as pydantic takes it.
    ParameterError for a name that is not declared (with the nearest one that is), a wrong type, an impossible value.
    """
    # The notebook's own cell of parameters begins with "# Parameters:", that of papermill with "# Parameters".
    cells = [cell.lstrip() for cell in namespace.get("In", []) if cell.lstrip().startswith("# Parameters")]
    latest = max((k for k, cell in enumerate(cells) if cell.startswith("# Parameters:")), default=0)
    assigned = list(map(_assignments, cells[latest:]))
    problems = []
    for name in sorted(set().union(*assigned) - declared.keys()):
        hint = "".join(f"did you mean {near!r}? " for near in difflib.get_close_matches(name, declared, n=1))
        problems.append(f"unknown parameter {name!r}: {hint}this notebook takes {', '.join(declared)}")
    model = create_model("Parameters", **{name: (kind, ...) for name, kind in declared.items()})
    try:
        values = model(**{name: namespace[name] for name in declared if name in namespace}).model_dump()
    except ValidationError as error:
        problems += map(_message, error.errors())
    if problems:
        raise ParameterError("; ".join(problems))
    namespace.update(values)
    differ = []
    for name, expression in assigned[0].items() if assigned else ():
        with suppress(ValueError):  # not a literal
            if values[name] != (usual := ast.literal_eval(expression)):
                differ.append(f"`{name}` is {values[name]!r} instead of {usual!r}")
    if differ:
        from IPython.display import Markdown, display  # there is IPython wherever there are cells

        note = "numbers and pictures below are of this run, numbers in the sentences of the usual one."
        title = "**Run with other parameters than the text was written for:**"
        display(Markdown(f"{title} {', '.join(differ)}. So {note}"))
