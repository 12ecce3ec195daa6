"""Define the types of the fields of specs and results, and check values against them.

A type says which values are possible, for example a share from 0 to 1. Pydantic does the checking. A trial's result may
hold tables, so `as_type` also makes a type from a dictionary of types. A value must come back from its file exactly as
it was written, and `storable` makes sure of that.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from torch import Tensor
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12, and brings it along

LARGEST_INTEGER = 2**31 - 1
"""The largest size or count that torch is sure to take."""
LARGEST_NUMBER = 1e30
"""The largest rate or bound. No useful one comes near it, and it is still far below the largest float32."""
ROUNDING = 1e-5
"""How far rounding may take a number beyond its limit, for example a divergence of zero below zero."""

# Numbers of a spec
Size = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
Count = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
TwoOrMore = Annotated[int, Field(ge=2, le=LARGEST_INTEGER)]
Positive = Annotated[float, Field(gt=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
PositiveOrZero = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


def _own_name(name: str) -> str:
    if not re.fullmatch("[a-z0-9-]{0,40}", name):
        raise ValueError("it must be at most 40 characters, which are lower-case letters a to z, digits and hyphens")
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
"""The type of a number for which a measurement declares none.

It is a number, a text, or a dictionary with numbers by name, nested in up to three levels.
"""


def as_type(kind: Any, extra: Literal["forbid", "allow"] = "forbid") -> Any:
    """Return the type that pydantic checks for a kind.

    Args:
        kind: a type, or a dictionary of kinds. The dictionary stands for a table with exactly these names.
        extra: whether the table may have more names than these.
    """
    if not isinstance(kind, dict):
        return kind
    columns = {name: as_type(column) for name, column in kind.items()}
    table = TypedDict("Table", columns)
    return with_config(ConfigDict(extra=extra))(table)


make_adapter = cache(TypeAdapter)
"""Return the object with which pydantic checks values of a type. It is made once for each type."""


def checked(name: str, field_type: Any, value: Any, strict: bool = True) -> Any:
    """Check a value, and return it as its type has it.

    For example, a number of NumPy's becomes one of Python's.

    Args:
        name: what the value is called in the message of an error.
        field_type: a type, as `as_type` gives it.
        value: the value to check.
        strict: whether a text is refused where a number belongs. A command line passes only texts, so it is not strict.

    Raises:
        ValueError: the value is not of this type. The message names the field and quotes the value.
    """
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return make_adapter(field_type).validate_python(value, strict=strict)
    except ValidationError as error:
        raise ValueError(_in_one_line(name, error)) from None


def _in_one_line(name: str, error: ValidationError) -> str:
    """Return the first thing that pydantic found wrong with a field, in one line."""
    first = error.errors()[0]
    path = [name]
    for part in first["loc"]:
        # Pydantic also names the branch of a union that it tried, which says nothing to a reader.
        if not re.match(r"dict\[|constrained-", str(part)):
            path.append(str(part))
    message = first["msg"].removeprefix("Value error, ").replace("null", "None")
    return f"{'.'.join(path)}: {message}, not {reprlib.repr(first['input'])}"


def storable(name: str, field_type: Any, value: Any) -> Any:
    """Return a value of a result as it will be read from its file.

    Numbers of NumPy and torch become Python's, and a tuple becomes a list. Dictionaries and lists are copied.

    Args:
        name: what the value is called in the message of an error.
        field_type: a type, as `as_type` gives it.
        value: the value to store.

    Raises:
        ValueError: the value is not of this type, or a JSON file cannot hold it. The message names the field.
    """
    plain = _plain(name, value)
    columns = set()
    for column in _columns(name, plain):
        if column in columns:
            raise ValueError(f"{column}: two numbers would have this name in the table of results. Rename one.")
        columns.add(column)
    try:
        # Checked as JSON, because a type such as tuple[float, float] must also accept the list that a file holds.
        make_adapter(field_type).validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        raise ValueError(_in_one_line(name, error)) from None
    return plain


def _plain(name: str, value: Any) -> Any:
    """Return a value that has only what JSON has.

    JSON has dictionaries with texts as keys, lists, texts, finite numbers, bool and None.
    """
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, str):
        value = str.__str__(value)  # for example a version of torch, which has a class of its own
    if isinstance(value, dict):
        entries = {}
        for key, entry in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{name}: Keys should be texts, not {reprlib.repr(key)}")
            entries[_plain(name, key)] = _plain(f"{name}.{key}", entry)
        return entries
    if isinstance(value, list | tuple):
        return [_plain(name, entry) for entry in value]
    if type(value) not in (float, int, str, bool, type(None)):
        raise ValueError(
            f"{name}: Input should be a number, a text, None, or a list or dictionary of these, "
            f"not {type(value).__name__} {reprlib.repr(value)}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}: Input should be a finite number, or None where there is none, not {value}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name}: Input should be an integer of at most 64 bits, not {reprlib.repr(value)}")
    if isinstance(value, str) and not value.isascii():
        _check_characters(name, value)
    return value


def _check_characters(name: str, text: str) -> None:
    """Refuse a text with a surrogate, which is half of a character, because UTF-8 has no place for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: Input should be a text that UTF-8 can hold, not {text!a}") from None


def _columns(name: str, value: Any) -> Iterator[str]:
    """Yield the names that a value's numbers have in the table of results."""
    if not isinstance(value, dict):
        yield name
        return
    for key, entry in value.items():
        yield from _columns(f"{name}.{key}", entry)
