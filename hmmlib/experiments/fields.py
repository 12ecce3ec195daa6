"""What a field of a spec or of a result can be, as types that pydantic checks, and what is said of any other value."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from datetime import date
from functools import cache
from typing import Annotated, Literal, NamedTuple, get_args, get_origin

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from hmmlib.validation import FINITE, LARGEST, MOST

ROUNDING = 1e-5
"""How far below zero rounding may bring a divergence that is zero."""


class Examples(NamedTuple):
    """Marks a share as one of a spec's examples: of those for "test", say, where it is a multiple of 1/test."""

    part: str


def _day(text: str) -> str:
    if date.fromisoformat(text).isoformat() != text:
        raise ValueError(text)
    return text


Count = Annotated[int, Field(ge=1, le=MOST), f"at most {MOST}"]
CountOrZero = Annotated[int, Field(ge=0, le=MOST), f"at most {MOST}"]
TwoOrMore = Annotated[int, Field(ge=2, le=MOST), f"at most {MOST}"]
Seed = Annotated[int, Field(ge=0, lt=2**63), "at most 2**63 - 1"]
Positive = Annotated[float, Field(gt=0, le=LARGEST), f"positive and at most {LARGEST:g}"]
PositiveOrZero = Annotated[float, Field(ge=0, le=LARGEST), f"0 or more and at most {LARGEST:g}"]
Word = Annotated[str, Field(pattern=r"^[a-z0-9-]{0,40}$"), "a word of small letters, digits and hyphens"]
Share = Annotated[float, Field(ge=0, le=1), "a share, 0 to 1"]
ShareOfTest = Annotated[float, Field(ge=0, le=1), Examples("test"), "a share, 0 to 1"]
ShareOfValidation = Annotated[float, Field(ge=0, le=1), Examples("validation"), "a share, 0 to 1"]
Distance = Annotated[float, Field(ge=-ROUNDING, le=1 + ROUNDING), "a distance, 0 to 1"]
DistanceL1 = Annotated[float, Field(ge=-ROUNDING, le=2 + ROUNDING), "a distance, 0 to 2"]
Explained = Annotated[float, Field(ge=-FINITE, le=1 + ROUNDING), "at most 1"]
ZeroOrOne = Annotated[float, Field(ge=0, le=1, multiple_of=1), "0 or 1"]
Seconds = Annotated[float, Field(ge=0, le=FINITE), "0 or more, finite"]
Amount = Annotated[float, Field(ge=-ROUNDING, le=FINITE), "a number of 0 or more, finite"]
Finite = Annotated[float, Field(ge=-FINITE, le=FINITE), "a finite number"]
Text = Annotated[str, Field(min_length=1), "a word"]
AnyText = Annotated[str, Field(min_length=0), "a word"]
Hexadecimal = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$"), "16 hexadecimal digits"]
Day = Annotated[str, AfterValidator(_day), "a day, such as 2026-01-31"]
"""The last entry of each says what a number beyond its bounds should be; of integers, what one above them should be."""

Anything = Finite | str | None
"""What a measurement may give that declares no more: this, or a table of numbers by one name or two."""


class Rows(NamedTuple):
    """A table of any number of rows: they are named by integers from 1 to a field of the spec, and are all of one kind."""

    named: str
    most: str
    row: object


def each(names: Iterable[str], kind) -> dict[str, object]:
    """A table with just these names, all of one kind."""
    return dict.fromkeys(names, kind)


@cache
def count_to(most: int) -> type:
    """A number of some of so many."""
    return Annotated[int, Field(ge=0, le=most), f"0 to {most}"]


WORDS = {"int_type": "an integer", "float_type": "a number", "string_type": "a word", "dict_type": "an object"}
"""What a value should be, by the name of pydantic's error of type."""
LONGEST = 100
"""The longest text that an error shows whole."""


@cache
def _adapter(field_type) -> TypeAdapter:
    return TypeAdapter(field_type)


def checked(name: str, field_type, value):
    """`value` as the type has it: a Python number for one of NumPy's, 1.0 for 1. ValueError where it is none of the type."""
    value = value.item() if isinstance(value, np.integer | np.floating) else value
    try:
        return _adapter(field_type).validate_python(value, strict=True)
    except ValidationError as error:
        first, *others = error.errors()
        inside = first["loc"][:1] * (get_origin(field_type) is dict)  # the name within an object
        alike = [first, *(other for other in others if other["loc"][:1] == inside)]
        accepted = " or ".join(dict.fromkeys(_accepted(field_type, one) for one in alike))
        named = f"{name}: {inside[0]}" if inside else name
        given = first["input"] if inside else value
        shown = repr(given) if isinstance(given, str) and len(given) <= LONGEST else reprlib.repr(given)
        raise ValueError(f"{named} must be {accepted}, not {shown}") from None


def _accepted(field_type, error: dict) -> str:
    """What a type takes, as far as an error of pydantic says that a value misses it."""
    number = isinstance(error["input"], int) and not isinstance(error["input"], bool)
    if error["type"] == "literal_error":
        return f"one of {', '.join(get_args(field_type))}"
    if error["type"] in WORDS and not (number and error["type"] == "float_type"):  # an integer that no float holds
        return WORDS[error["type"]]
    if isinstance(error.get("ctx", {}).get("ge"), int):  # of an integer, the bound itself says it
        return f"{error['ctx']['ge']} or more"
    return _said(field_type)


def _said(field_type) -> str:
    """What the first of our own types within it says of its numbers."""
    if get_origin(field_type) is Annotated:
        return field_type.__metadata__[-1]
    return next(filter(None, map(_said, get_args(field_type))), "")


def base(field_type) -> type:
    """int, float or str: what the values of a spec's field are."""
    return str if get_origin(field_type) is Literal else get_args(field_type)[0]
