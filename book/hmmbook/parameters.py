"""Check the parameters of a notebook, be they set by its author, by a reader in Colab, or by papermill.

papermill only warns about a name that a notebook does not have, and it passes on values of any type. So the first line
after a notebook's parameters calls `check`.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, create_model

from hmmbook.experiments.presets import PRESETS
from hmmlib.device import as_name
from hmmlib.validation import did_you_mean

INSTANCES = dict.fromkeys(PRESETS, 300) | {"smoke": 20}
"""How many random models the notebooks on theory check, for each preset."""
MINUTES = {"smoke": 1.0, "quick": 3.0, "laptop": 30.0, "gpu": 10.0, "paper": 15.0, "released-code": 30.0}
"""How many minutes a notebook may compute what the store lacks, for each preset."""


class ParameterError(ValueError):
    """A parameter is unknown to the notebook, or its value is missing, of the wrong type, or impossible."""


# Types of parameters


def _from_text(value):
    """Read a list from a text, because papermill's `-p sizes "[4, 30]"` reaches the notebook as text."""
    with suppress(ValueError, TypeError, RecursionError):
        return json.loads(value)
    return value


def _no_bool(value):
    """Refuse True as a number, although Python counts it as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _device(name):
    """Refuse a name that no device has."""
    try:
        return as_name(name)
    except ValueError:
        raise ValueError("must be one of auto, cpu, cuda, mps, or cuda:N") from None


NUMBER = BeforeValidator(_no_bool)
Seed = Annotated[int, Field(ge=0, lt=2**32), NUMBER]
Count = Annotated[int, Field(ge=0), NUMBER]
Size = Annotated[int, Field(ge=1), NUMBER]
Thousands = Annotated[int, Field(ge=1000), NUMBER]
Sizes = Annotated[list[Size], Field(min_length=1), BeforeValidator(_from_text)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), NUMBER]
PositiveOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), NUMBER]
Length = Annotated[int, Field(ge=-1, le=50), NUMBER]
Device = Annotated[str, AfterValidator(_device)]
Preset = Literal[tuple(PRESETS)]


# What the cells of a notebook assign


def _assignments(cell: str) -> dict[str, ast.expr | None]:
    """Return the expression that a cell assigns to each name, whether or not it also declares a type."""
    assignments = {}
    for statement in ast.parse(cell).body:
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        if isinstance(target, ast.Name):
            assignments[target.id] = statement.value
    return assignments


def _cells_of_parameters(namespace: dict) -> list[dict[str, ast.expr | None]]:
    """Return the assignments of the notebook's own cell of parameters, and of papermill's cell if there is one.

    If the own cell was run several times, only its latest version and what was run after it count.
    """
    cells = []
    for cell in namespace.get("In", []):
        # The notebook's own cell begins with "# Parameters:". That of papermill begins with "# Parameters".
        if cell.lstrip().startswith("# Parameters:"):
            cells = []
        if cell.lstrip().startswith("# Parameters"):
            cells.append(_assignments(cell.lstrip()))
    return cells


# The check


def _unknown(name: str, declared: dict) -> str:
    return f"Unknown parameter {name!r}.{did_you_mean(name, declared)} This notebook takes {', '.join(declared)}."


def _message(error: dict) -> str:
    """Return one of pydantic's errors as a sentence with the parameter's name and value."""
    name, *indices = error["loc"]
    place = str(name) + "".join(f"[{index}]" for index in indices)
    message = f"Parameter {place!r}: {error['msg'].removeprefix('Value error, ')}"
    if error["type"] != "missing":
        message += f", not {error['input']!r}"
    if error["type"] == "literal_error":
        choices = re.findall("'(.*?)'", error["ctx"]["expected"])
        return f"{message}.{did_you_mean(error['input'], choices)}"
    if error["type"] == "list_type":
        message += '. Write a list as "[4, 8]"'
    return message + "."


def check(namespace: dict, **declared) -> None:
    """Check a notebook's parameters, convert them to their types, and put them into its namespace.

    If they differ from those that the text was written for, a note in the notebook says so.

    Args:
        namespace: The notebook's `globals()`.
        declared: The type of each parameter, as pydantic takes it.

    Raises:
        ParameterError: A name is not declared, or a value is missing, of the wrong type, or impossible.
    """
    cells = _cells_of_parameters(namespace)
    assigned = set().union(*cells)
    problems = [_unknown(name, declared) for name in sorted(assigned - declared.keys())]
    fields = {name: (kind, ...) for name, kind in declared.items()}
    values = {name: namespace[name] for name in declared if name in namespace}
    try:
        values = create_model("Parameters", **fields)(**values).model_dump()
    except ValidationError as error:
        problems += map(_message, error.errors())
    if problems:
        raise ParameterError(" ".join(problems))
    namespace.update(values)
    if cells:
        _show_differences(values, cells[0])


def _show_differences(values: dict, usual: dict[str, ast.expr | None]) -> None:
    """Show a note on the parameters that differ from those of the notebook's own cell, if any do."""
    differences = []
    for name, expression in usual.items():
        with suppress(ValueError):  # An expression that is no literal is not compared.
            usual_value = ast.literal_eval(expression)
            if values[name] != usual_value:
                differences.append(f"`{name}` is {values[name]!r} instead of {usual_value!r}")
    if differences:
        from IPython.display import Markdown, display  # There is IPython wherever there are cells.

        display(
            Markdown(
                f"**Run with other parameters than the text was written for:** {', '.join(differences)}. So the "
                "numbers in the sentences are not those of this run, but pictures and tables below are."
            )
        )
