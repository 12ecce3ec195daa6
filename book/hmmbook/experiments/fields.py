"""The types of the fields of specs and results, and the check of one value.

A type says which values are possible, for example a share from 0 to 1. Pydantic does the checking. A trial's result may
hold tables, so `as_type` makes a type of a dictionary of types as well.
"""

from __future__ import annotations

import re
import reprlib
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12, and brings it along

LARGEST_INTEGER = 2**31 - 1
"""The largest size or count that torch is sure to take."""
LARGEST_NUMBER = 1e30
"""The largest rate or bound: far beyond any of use, and far from where float32 ends."""
ROUNDING = 1e-5
"""How far below zero rounding may bring a divergence that is zero."""

# Numbers of a spec
Size = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
Count = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
TwoOrMore = Annotated[int, Field(ge=2, le=LARGEST_INTEGER)]
Positive = Annotated[float, Field(gt=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
PositiveOrZero = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


def _own_name(name: str) -> str:
    if not re.fullmatch("[a-z0-9-]{0,40}", name):
        raise ValueError("it must be at most 40 small letters a to z, digits and hyphens")
    return name


OwnName = Annotated[str, AfterValidator(_own_name)]

# Numbers of a result
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[Finite, Field(ge=-ROUNDING)]
Distance = Annotated[float, Field(ge=-ROUNDING, le=1 + ROUNDING)]
DistanceL1 = Annotated[float, Field(ge=-ROUNDING, le=2 + ROUNDING)]
Explained = Annotated[Finite, Field(le=1 + ROUNDING)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]

# Texts of a result
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
Hexadecimal = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]

Row = dict[Text, Finite | None]
Anything = Finite | str | dict[Text, Finite | Row | dict[Text, Row] | None] | None
"""The type of a measurement that declares none: a number, a text, or numbers by name in up to three levels."""


def as_type(kind: Any, extra: Literal["forbid", "allow"] = "forbid") -> Any:
    """Return the type that pydantic checks for a kind.

    Args:
        kind: a type, or a dictionary of kinds. The dictionary stands for a table with just these names.
        extra: whether the table may have more names than these.
    """
    if not isinstance(kind, dict):
        return kind
    columns = {name: as_type(column) for name, column in kind.items()}
    table = TypedDict("Table", columns)
    return with_config(ConfigDict(extra=extra))(table)


_adapter = cache(TypeAdapter)


def checked(name: str, field_type: Any, value: Any, strict: bool = True) -> Any:
    """Return a value as its type has it, for example a Python number for one of NumPy's.

    Args:
        name: what the value is called in the message of an error.
        field_type: a type, as `as_type` gives it.
        value: the value to check.
        strict: whether a text is refused where a number belongs. A command line has only texts.

    Raises:
        ValueError: the value is not of this type. The message names the field and quotes the value.
    """
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return _adapter(field_type).validate_python(value, strict=strict)
    except ValidationError as error:
        first = error.errors()[0]
    path = [name]
    for part in first["loc"]:
        # Pydantic also names the branch of a union that it tried, which says nothing to a reader.
        if not re.match(r"dict\[|constrained-", str(part)):
            path.append(str(part))
    message = first["msg"].removeprefix("Value error, ")
    raise ValueError(f"{'.'.join(path)}: {message}, not {reprlib.repr(first['input'])}")
