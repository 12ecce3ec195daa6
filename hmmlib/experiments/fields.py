"""What a field of a spec or of a result can be, as types that pydantic checks.

Some bounds are fields of the spec that a result belongs to, such as the number of test examples. They are checked where
`checked` is given that spec.
"""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Callable, Iterable
from datetime import date
from functools import cache
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo, with_config
from typing_extensions import TypedDict  # comes with pydantic, which asks for it before Python 3.12

FINITE = sys.float_info.max
"""The largest number that is not infinite."""
LARGEST = 1e30
"""The largest rate or bound that training takes: far beyond any of use, and far from where float32 ends."""
MOST = 2**31 - 1
"""The largest size or count of a trial: what torch is sure to take."""
ROUNDING = 1e-5
"""How far below zero rounding may bring a divergence that is zero."""
ONE = 1e-12
"""How far rounding may take a share from a multiple of one example."""


def _of_the_spec(check: Callable) -> AfterValidator:
    """A check that takes a value and the spec which it belongs to, and says what is wrong with the value."""

    def validate(value, info: ValidationInfo):
        if value is not None and info.context is not None and (wrong := check(value, info.context)):
            raise ValueError(wrong)
        return value

    return AfterValidator(validate)


def _share_of(part: str) -> AfterValidator:
    def check(value, spec):
        n = getattr(spec, part)
        return abs(value - round(value * n) / n) > ONE and f"must be a multiple of 1/{n}, of the {n} {part} examples"

    return _of_the_spec(check)


def _day(text: str) -> str:
    if date.fromisoformat(text).isoformat() != text:
        raise ValueError("must be a day, such as 2026-01-31")
    return text


Size = Annotated[int, Field(ge=1, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
TwoOrMore = Annotated[int, Field(ge=2, le=MOST)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
PositiveOrZero = Annotated[float, Field(ge=0, le=LARGEST)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
ShareOfTest = Annotated[Share, _share_of("test")]
ShareOfValidation = Annotated[Share, _share_of("validation")]
CountOfStates = Annotated[Count, _of_the_spec(lambda n, spec: n > spec.n_states and f"must be 0 to {spec.n_states}")]
Distance = Annotated[float, Field(ge=-ROUNDING, le=1 + ROUNDING)]
DistanceL1 = Annotated[float, Field(ge=-ROUNDING, le=2 + ROUNDING)]
Explained = Annotated[float, Field(ge=-FINITE, le=1 + ROUNDING)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Amount = Annotated[float, Field(ge=-ROUNDING, le=FINITE)]
Finite = Annotated[float, Field(ge=-FINITE, le=FINITE)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9-]{0,40}$")]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[Line, Field(min_length=1)]
Hexadecimal = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Day = Annotated[str, AfterValidator(_day)]
Anything = Finite | str | dict[Text, Finite | dict[Text, Finite | None] | None] | None
"""What a measurement may give that declares no more."""
Kind = object
"""A type as above, or a dict of kinds: a table with just these names."""


def each(names: Iterable[str], kind: Kind) -> dict[str, Kind]:
    """A table with just these names, all of one kind."""
    return dict.fromkeys(names, kind)


def as_type(kind: Kind):
    """The type that pydantic checks for a kind."""
    if not isinstance(kind, dict):
        return kind
    table = TypedDict("Table", {name: as_type(of) for name, of in kind.items()})
    return with_config(ConfigDict(extra="forbid"))(table)


def by_step(kind: Kind):
    """A table whose rows are named by numbers of steps, up to the spec's."""

    def wrong(table, spec):
        other = [step for step in table if not re.fullmatch("[1-9][0-9]{0,9}", step) or int(step) > spec.steps]
        return other and f"its rows must be numbers of steps, 1 to {spec.steps}, not {reprlib.repr(other[0])}"

    return Annotated[dict[str, as_type(kind)], _of_the_spec(wrong)]


def by_layer(kind: Kind, first: int = 0, others: tuple[str, ...] = ()):
    """A table with a row for each layer of the spec's network, from the first on, and for these others."""

    def wrong(table, spec):
        names = {*others, *(f"layer {layer}" for layer in range(first, spec.layers + 1))}
        return names != table.keys() and f"its rows must be {', '.join(sorted(names))}"

    return Annotated[dict[str, as_type(kind)], _of_the_spec(wrong)]


@cache
def _adapter(field_type) -> TypeAdapter:
    return TypeAdapter(field_type)


def checked(name: str, field_type, value, spec=None, strict: bool = True):
    """`value` as the type has it: a Python number for one of NumPy's, 1.0 for 1; if not `strict`, text is read as a number.

    ValueError where it is none of the type, or not what goes with the spec: it names what is wrong, and what was found.
    """
    value = value.item() if isinstance(value, np.generic) else value
    try:
        return _adapter(field_type).validate_python(value, strict=strict, context=spec)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(
            [name, *(str(part) for part in first["loc"] if not str(part).startswith(("dict[", "constrained-")))]
        )
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {message}, not {reprlib.repr(first['input'])}") from None
