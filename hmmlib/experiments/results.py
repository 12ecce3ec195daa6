"""What a result must be to be stored, or believed: each field by itself, and what fields say of each other.

A field's type stands in `trials.TrialResult`, what a later measurement gives with the measurement; here is the rest. Of a
trial with parts of one's own, which may be of other sizes than the spec's, nothing is asked that hangs on sizes.
"""

from __future__ import annotations

import math
import re
import reprlib
from functools import cache
from types import FunctionType
from typing import Literal, get_args, get_type_hints

from hmmlib.experiments import measurements
from hmmlib.experiments.fields import AnyText, Anything, Count, Day, Examples, Finite, Hexadecimal, Rows, Text, checked
from hmmlib.experiments.labels import REDRAWS
from hmmlib.experiments.specs import TYPES as SPEC_TYPES
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import ORIGINAL, TrialResult, trial_seeds

OTHERS = ("spec", "added")
TYPES = {
    name: field_type
    for name, field_type in get_type_hints(TrialResult, include_extras=True).items()
    if name not in OTHERS
}
"""The type of each field that a result's file has under its name."""
NOTED = {
    "device": Text,
    "precision": Literal["float32", "float16", "bfloat16"],
    "machine": AnyText,
    "threads": Count,
    "python": Text,
    "torch": Text,
    "transformers": Text,
    "commit": Text | None,
}
"""What every result has in its environment, and the type of each: `trials.environment` gives it."""
NOTED_LATER = {"hmmlib": Text, "library": Hexadecimal, "date": Day}
"""What the oldest results lack there."""
MEASURED = re.compile(r"\d{4}-\d\d-\d\d, commit \S+, library [0-9a-f]{16}")
"""What an environment says of a measurement that was added later, under "NAME measured"."""
CHANCE = 20
"""Nats of luck: a network is by that much better than the best, summed over the sequences that both are judged by, with a
probability below e^-20. For on each, the mean of log q/p over what is masked has an exponential whose mean is at most 1."""
ONE = 1e-12
"""How far rounding may take a share from a multiple of one example."""


def from_content(content: dict) -> TrialResult:
    """The result that a file's object stands for; what it holds is not looked at yet. ValueError where it lacks a field, or has
    no spec."""
    given = content.get("spec")
    if not isinstance(given, dict):
        raise ValueError(f"its spec must be an object with the fields of a TrialSpec, not {reprlib.repr(given)}")
    if other := _but(given, SPEC_TYPES):
        raise ValueError(f"its spec has {other}, which is no field of a TrialSpec")
    spec = TrialSpec(**given)
    if lacks := [name for name in {**spec.content(), **given} if given.get(name) != getattr(spec, name)]:
        raise ValueError(f"its spec lacks {', '.join(sorted(lacks))}")
    if lacks := [name for name in TYPES if name not in content]:
        raise ValueError(f"it lacks {', '.join(lacks)}")
    added = {name: value for name, value in content.items() if name not in ("spec", *TYPES)}
    return TrialResult(spec=spec, **{name: content[name] for name in TYPES}, added=added)


def check_result(result: TrialResult) -> None:
    """ValueError where no trial could give such a result; it names the field, what was found and what is accepted."""
    spec = result.spec
    for name, field_type in TYPES.items():
        _check(name, field_type, getattr(result, name), spec)
    _check_measured(result)
    if result.redraws > REDRAWS and not spec.own:
        raise ValueError(f"redraws must be at most {REDRAWS}, not {result.redraws}")
    if result.majority_rate < 0.5:
        raise ValueError(f"majority_rate must be 0.5 to 1, not {result.majority_rate}")
    if result.seeds != trial_seeds(spec.seed):
        raise ValueError(f"seeds must be those that seed {spec.seed} gives, not {reprlib.repr(result.seeds)}")
    _check_losses(result)
    _check_seconds(result)
    _check_environment(result)


def _but(names, known) -> str:
    """The first name that is not known, shortened for a message; empty where there is none."""
    return next((_short(name) for name in names if name not in known), "")


def _short(name: str) -> str:
    return name if len(name) <= 60 and name.isprintable() else reprlib.repr(name)


def _check(name: str, kind, value, spec: TrialSpec) -> None:
    """Whether a value is of a kind, as a `Measurement` has them. ValueError, which names it, where it is not."""
    if isinstance(kind, FunctionType):
        kind = Anything if spec.own else kind(spec)
    if kind is None:
        if value is not None:
            raise ValueError(f"{name} must be null for such a trial, not {reprlib.repr(value)}")
    elif isinstance(kind, dict | Rows):
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, not {reprlib.repr(value)}")
        rows = kind if isinstance(kind, dict) else _rows(name, kind, value, spec)
        if lacks := [row for row in rows if row not in value]:
            raise ValueError(f"{name} lacks {', '.join(lacks)}")
        if other := _but(value, rows):
            raise ValueError(f"{name}: {other} is no name of it; there are {', '.join(rows)}")
        for row, one in rows.items():
            _check(f"{name}: {row}", one, value[row], spec)
    elif kind is Anything and isinstance(value, dict):
        for row, one in value.items():
            inner = one if isinstance(one, dict) else {"": one}
            for column, number in inner.items():
                checked(": ".join(filter(None, (name, _short(row), _short(column)))), Finite | None, number)
    else:
        checked(name, kind, value)
        if value is not None and not spec.own and (examples := _examples(kind)):
            n = getattr(spec, examples.part)
            if abs(value - round(value * n) / n) > ONE:
                raise ValueError(
                    f"{name} must be a multiple of 1/{n}, as of the {n} {examples.part} examples, not {value!r}"
                )


def _rows(name: str, kind: Rows, value: dict, spec: TrialSpec) -> dict:
    """The rows that a table has, with the kind of each."""
    most = getattr(spec, kind.most)
    for row in value:
        if not re.fullmatch("[1-9][0-9]{0,9}", row, re.ASCII) or int(row) > most:
            raise ValueError(f"{name}: {_short(row)} must be {kind.named}, 1 to {most}")
    return dict.fromkeys(value, kind.row)


@cache
def _examples(field_type) -> Examples | None:
    """The examples of which a type is a share."""
    marked = next((mark for mark in getattr(field_type, "__metadata__", ()) if isinstance(mark, Examples)), None)
    return marked or next(filter(None, map(_examples, get_args(field_type))), None)


def _check_measured(result: TrialResult) -> None:
    """What a trial measures depends on its spec; what theorems build, on their assumptions too."""
    if other := _but(result.added, measurements.measured_names() - TYPES.keys()):
        raise ValueError(f"{other} is no field of a result, and no measurement of this version of hmmlib")
    kinds = {
        name: kind for one in measurements.MEASUREMENTS if one.has(result.spec) for name, kind in one.kinds.items()
    }
    for name, value in ({name: getattr(result, name) for name in ORIGINAL} | result.added).items():
        if name not in kinds and value is not None:
            raise ValueError(f"{name} must be null for such a trial, not {reprlib.repr(value)}")
        if name in kinds and name in result.added:
            _check(name, kinds[name], value, result.spec)
        elif name in kinds and value is None and not name.startswith("built_"):
            raise ValueError(f"{name} must be there for such a trial, not None")


def _check_losses(result: TrialResult) -> None:
    """Of losses on the same text, nothing is better than the best, nor the best worse than a guess, but by luck."""
    n, best, n_tokens = result.spec.evaluation, result.best_loss, result.spec.n_tokens
    bounds = {"network_loss": result.network_loss}
    if not result.spec.own:
        bounds[f"log {n_tokens}"] = math.log(n_tokens)
    for name, loss in bounds.items():
        if best > loss + CHANCE / n:
            raise ValueError(
                f"best_loss must be at most {name} and {CHANCE}/{n} more, for luck on {n} sequences; "
                f"but it is {best}, and {name} is {loss}"
            )


def _check_seconds(result: TrialResult) -> None:
    """A trial takes seconds for each phase of what it has measured; they stay where a table is taken out to be made again."""
    names = {"pretraining": set(ORIGINAL)}
    for one in measurements.MEASUREMENTS:
        if one.has(result.spec):
            names.setdefault(one.phase, set()).update(one.names)
    if other := _but(result.seconds, names):
        raise ValueError(f"seconds: {other} is no phase of such a trial; there are {', '.join(names)}")
    there = {*ORIGINAL, *result.added}
    if lacks := [phase for phase, given in names.items() if phase not in result.seconds and given & there]:
        raise ValueError(f"seconds lacks {', '.join(lacks)}")


def _check_environment(result: TrialResult) -> None:
    """What an environment must have, and what it says of measurements; what later versions note there as well may be there."""
    given = result.environment
    if lacks := [name for name in NOTED if name not in given]:
        raise ValueError(f"environment lacks {', '.join(lacks)}")
    for name, value in given.items():
        checked(f"environment: {_short(name)}", (NOTED | NOTED_LATER).get(name, AnyText | int | None), value)
        if name.endswith(" measured"):
            measured = name.removesuffix(" measured")
            if measured not in result.added:
                raise ValueError(f"environment: {_short(name)} is there, but {_short(measured)} is not")
            if not isinstance(value, str) or not MEASURED.fullmatch(value):
                raise ValueError(
                    f"environment: {name} must be a day, a commit and a library, such as 2026-01-31, commit 0123456789ab, "
                    f"library 0123456789abcdef, not {reprlib.repr(value)}"
                )
