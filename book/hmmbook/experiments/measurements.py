"""`Measurement` registers a function that measures something of a trial.

A new measurement is one more function. Its parameters name what it needs of a trial, as the parameters of a pytest
function name its fixtures, and a trial makes only what some measurement needs. The measurements of Section 5 are in
`section_5` and `exact_ladder`. Those of our own studies are in `hmmbook.studies`.

Two words recur. The *original* numbers are fields of `TrialResult`, so every result has them. All others are *further*
ones, which a trial makes unless they are on request; those it makes only where `also` names them.
`TrialResult.added` holds the further numbers.
"""

from __future__ import annotations

import inspect
import keyword
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from hmmbook.experiments.fields import Anything, Text, as_type, checked, make_adapter, storable
from hmmbook.experiments.labels import Task
from hmmbook.experiments.specs import FIELD_TYPES, TrialSpec
from hmmbook.experiments.unchanged import unchanged

Seeds = dict[str, int]
"""The seed of each random draw of a trial, by name."""
Split = tuple[Tensor, Tensor, Tensor]
"""Values of the training, the validation and the test texts."""

RESERVED_NAMES = {
    *FIELD_TYPES,
    "format",
    "spec",
    "seeds",
    "seconds",
    "environment",
    "added",
    "store",
    "changes",
    "size",
    "gain",
    "excess_loss",
    "learned",
}
"""Names that every result's file or the table of results has already."""
MEASUREMENTS: list[Measurement] = []
"""All measurements, in the order in which a trial makes them."""


def check_name(name: str) -> None:
    """Raise ValueError if a measurement cannot have a name, which is an attribute of results and a column of tables."""
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} is a name that every result has: take another name")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"the name of a measurement must be one of Python's, without _ before it, not {name!r}")


class Measurement:
    """Register a function as a measurement of trials. Use it as a decorator.

    The function returns a dictionary of named numbers. A number that does not exist is None. The function must not
    change what it is given, because the measurements after it are given the same. Each of its parameters names
    something that a trial has:

    - `spec`, `seeds`, `model`, `task`;
    - `exact`, the exact G on the task's texts, (n, T, X);
    - `beliefs`, the exact P[H_1 | X_{-1}] of a vanilla model, (n, S), split;
    - `network`, the pretrained network, and `outputs`, its predictions, (n, T, X and special ids);
    - `tuned`, what is tuned on it, and `tuned_head`, the head tuned with it, in float64;
    - `untuned` and `prompted`, the predictions at the mask without and with what is tuned, (n, X), split;
    - `before_step`, a function to call now and then in long work, which ends the trial when its time is over.

    A parameter with a default keeps it. A function of the same module and name replaces the earlier one, so that a
    notebook's cell can be run again.

    Args:
        names: the names of the numbers. Each becomes an attribute of `TrialResult` and a column of `results()`.
        phase: what its seconds are counted to. The function's own name if left out.
        vanilla: whether only trials of vanilla models have it. In the others its numbers are None.
        prompts: whether only trials that tune a prompt have it.
        on_request: whether a trial makes it only where `also` asks for one of its names.
        kinds: more names, each with the type of its value. A dictionary of types is a table with just these names.

    Raises:
        TypeError: it is used without names, a kind is no type, or what it decorates is no function with a name.
        ValueError: another measurement has one of the names, or every result has it, or it is no name of Python's. Or
            the phase is no text of printed characters.

    Example:
        >>> from hmmbook import Measurement
        >>> @Measurement("share_of_zeros", on_request=True)
        ... def zeros(exact):
        ...     return {"share_of_zeros": (exact == 0).double().mean().item()}
        >>> MEASUREMENTS.pop().names  # so that it does not stay registered here
        ('share_of_zeros',)
    """

    def __init__(
        self,
        *names: str,
        phase: str = "",
        vanilla: bool = False,
        prompts: bool = False,
        on_request: bool = False,
        **kinds: Any,
    ):
        for name in names:
            if not isinstance(name, str):
                raise TypeError('Measurement takes the names of what is measured: @Measurement("my_share")')
        self.kinds = dict.fromkeys(names, Anything)
        for name, kind in kinds.items():
            self.kinds[name] = kind_of(name, kind)
        self.names = tuple(self.kinds)
        if not self.names:
            raise TypeError('Measurement takes the names of what is measured: @Measurement("my_share")')
        for name in self.names:
            check_name(name)
        self.phase = phase if phase == "" else checked("phase", Text, phase)
        self.vanilla = vanilla
        self.prompts = prompts
        self.on_request = on_request

    def __call__(self, function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        if not hasattr(function, "__qualname__"):
            kind = type(function).__name__
            raise TypeError(f"a measurement must be a function with a name, not {kind}: write a def that calls it")
        self.function = function
        self.needs = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.default is parameter.empty:
                self.needs.append(name)
        self.phase = self.phase or function.__name__.replace("_", " ")
        remaining = [measurement for measurement in MEASUREMENTS if not measurement.is_earlier_version_of(self)]
        for measurement in remaining:
            for name in measurement.names:
                if name in self.names:
                    raise ValueError(f"another measurement gives {name} already: take another name")
        MEASUREMENTS[:] = [*remaining, self]
        return function

    def is_earlier_version_of(self, other: Measurement) -> bool:
        """Whether the other measurement is the same function, defined again."""
        if self.function is other.function:
            return True
        if self.function.__name__ == "<lambda>":
            return False
        same_module = self.function.__module__ == other.function.__module__
        return same_module and self.function.__qualname__ == other.function.__qualname__

    def exists_for(self, spec: TrialSpec) -> bool:
        """Whether trials of such a spec have it."""
        if self.vanilla and spec.n_memory > 1:
            return False
        return spec.tuner == "prompt" or not self.prompts

    def values(self, trial: object) -> dict[str, Any]:
        """Measure a trial.

        Raises:
            ValueError: the function returned something else than its names, or a value that cannot be stored, or it
                changed what it was given.
            Exception: the function raised it. A note on it names the measurement.
        """
        called = f"the measurement {self.function.__name__}"
        arguments = {name: getattr(trial, name) for name in self.needs}
        with unchanged(called, **arguments):
            try:
                values = self.function(**arguments)
            except Exception as error:
                error.add_note(f"raised in {called}")
                raise
        if not isinstance(values, dict) or set(values) != set(self.names):
            raise ValueError(f"{called} must give a dict with {', '.join(self.names)}, not {reprlib.repr(values)}")
        stored = {}
        for name, value in values.items():
            try:
                stored[name] = storable(name, self.kinds[name], value)
            except ValueError as error:
                raise ValueError(f"{called} gives what cannot be stored: {error}") from None
        return stored


def kind_of(name: str, kind: Any) -> Any:
    """Return the type of a number that a measurement declares.

    Raises:
        TypeError: it is no type, so no value could be checked.
    """
    try:
        field_type = as_type(kind)
        make_adapter(field_type).rebuild()  # A text is read as the name of a type, which need not exist.
    except Exception as error:  # Pydantic raises errors of many classes, for example where a name is not defined.
        short = reprlib.repr(kind)
        raise TypeError(f"the kind of {name} must be a type, or a dictionary of types, not {short}") from error
    return field_type


def measured_names() -> set[str]:
    """Return the names that all measurements together give."""
    names = set()
    for measurement in MEASUREMENTS:
        names.update(measurement.names)
    return names


def names_on_request() -> list[str]:
    """Return the names that a trial measures only where it is asked for them."""
    names = []
    for measurement in MEASUREMENTS:
        if measurement.on_request:
            names.extend(measurement.names)
    return names


def measurements_of(names: Iterable[str]) -> list[Measurement]:
    """Return the measurements that give at least one of these names."""
    names = set(names)
    return [measurement for measurement in MEASUREMENTS if not names.isdisjoint(measurement.names)]


def over_tokens(task: Task, probs: Tensor, n_tokens: int) -> Split:
    """Return a network's distributions over the model's tokens alone, in float64.

    Args:
        task: the task whose texts they belong to.
        probs: the network's distributions, (n, X and special ids).
        n_tokens: the number of tokens of the model.
    """
    probs = probs[:, :n_tokens].cpu().double()
    return task.split(probs / probs.sum(1, keepdim=True))
