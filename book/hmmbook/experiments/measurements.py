"""Register functions that measure something of a trial.

A new measurement is one more function with the decorator `Measurement`. Its parameters name what it needs of a trial,
as the parameters of a pytest function name its fixtures. A trial makes only what some measurement needs. The
measurements of Section 5 are in `section_5` and `exact_ladder`. Those of our own studies are in `hmmbook.studies`.

Numbers are of two kinds. The *original* numbers are fields of `TrialResult`, so every result has them. All others are
*further* numbers, which are in `TrialResult.added`. Every trial measures the further numbers too, except those on
request. It measures a number on request only if the argument `also` names it.
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
"""Names that have a meaning already, in every result's file or in the table of results."""
PARTS_OF_TRIALS = (
    "spec",
    "seeds",
    "model",
    "task",
    "exact",
    "beliefs",
    "network",
    "outputs",
    "tuned",
    "tuned_head",
    "untuned",
    "prompted",
    "before_step",
)
"""What a measurement can ask for, by the name of a parameter. The docstring of `Measurement` explains each."""
MEASUREMENTS: list[Measurement] = []
"""All measurements, in the order in which a trial makes them."""


def check_name(name: str) -> None:
    """Raise ValueError if a measurement cannot have this name.

    The name becomes an attribute of results and a column of tables.
    """
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} is a name that every result has already. Choose another name.")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"the name of a measurement must be a Python identifier without _ at its start, not {name!r}")


class Measurement:
    """Register a function as a measurement of trials. Use it as a decorator.

    The function returns a dictionary of named numbers. In the place of a number there may be a text, or a dictionary of
    numbers, and a number that does not exist is None. The function must not change what it is given, because the
    measurements after it are given the same. Each of its parameters names something that a trial has:

    - `spec`, `seeds`, `model` and `task` are what the trial has drawn or was given.
    - `exact` is the exact G on the task's texts, (n, T, X).
    - `beliefs` is the exact P[H_1 | X_{-1}] of a vanilla model. It has three parts, of the training, the validation and
      the test texts, each of shape (n, S).
    - `network` is the pretrained network.
    - `outputs` is what the network predicts on the task's texts, (n, T, X and special ids).
    - `tuned` is what the spec's tuner tunes on the network. `tuned_head` is the head tuned with it, in float64.
    - `untuned` is what the network predicts at the mask without what is tuned, and `prompted` is what it predicts with
      it. Both have three parts like `beliefs`, each of shape (n, X).
    - `before_step` is a function to call now and then in long work. It ends the trial when its time is over.

    A parameter with a default value keeps this value. A function replaces an earlier one of the same module and name,
    so that a notebook's cell can be run again.

    Args:
        names: the names of the numbers. Each becomes an attribute of `TrialResult` and a column of `results()`.
        phase: the name under which a result's `seconds` count its time. If you leave it out, it is the function's name.
        vanilla: whether only trials of vanilla models have this measurement. In other trials its numbers are None.
        prompts: whether only trials that tune a prompt have it. In other trials its numbers are None.
        on_request: whether a trial makes it only if `also` asks for one of its names.
        **kinds: more names, each with the type of its value, such as `my_share=Share`. A dictionary of types stands for
            a table with exactly these names.

    Raises:
        TypeError: no names are given, `kinds` is given as a name, a kind is no type, the decorated object is no
            function with a name, or one of its parameters names nothing that a trial has.
        ValueError: a name belongs to another measurement or to every result, or is no Python identifier. Or the phase
            has characters that cannot be printed.

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
                raise TypeError('Measurement takes the names of what is measured, for example @Measurement("my_share")')
        if "kinds" in kinds:
            raise TypeError("Measurement takes each name with its kind, for example @Measurement(my_share=Share)")
        self.kinds = dict.fromkeys(names, Anything)
        for name, kind in kinds.items():
            self.kinds[name] = kind_of(name, kind)
        self.names = tuple(self.kinds)
        if not self.names:
            raise TypeError('Measurement takes the names of what is measured, for example @Measurement("my_share")')
        for name in self.names:
            check_name(name)
        self.phase = phase if phase == "" else checked("phase", Text, phase)
        self.vanilla = vanilla
        self.prompts = prompts
        self.on_request = on_request

    def __call__(self, function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        if not hasattr(function, "__qualname__"):
            kind = type(function).__name__
            raise TypeError(f"a measurement must be a function with a name, not {kind}. Write a def that calls it.")
        self.function = function
        self.needs = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.default is parameter.empty:
                self.needs.append(name)
        for name in self.needs:
            if name not in PARTS_OF_TRIALS:
                raise TypeError(
                    f"the measurement {function.__name__} asks for {name}, which no trial has. "
                    f"A trial has {', '.join(PARTS_OF_TRIALS)}."
                )
        self.phase = self.phase or function.__name__.replace("_", " ")
        remaining = [measurement for measurement in MEASUREMENTS if not measurement.is_earlier_version_of(self)]
        for measurement in remaining:
            for name in measurement.names:
                if name in self.names:
                    raise ValueError(
                        f"the measurement {measurement.function.__name__} gives {name} already. Choose another name. "
                        "If you have renamed the function, restart Python."
                    )
        MEASUREMENTS[:] = [*remaining, self]
        return function

    def is_earlier_version_of(self, other: Measurement) -> bool:
        """Tell whether the other measurement is the same function, defined again.

        All lambdas have the same name, so a lambda is the same only if it is the same object.
        """
        if self.function is other.function:
            return True
        if self.function.__name__ == "<lambda>":
            return False
        same_module = self.function.__module__ == other.function.__module__
        return same_module and self.function.__qualname__ == other.function.__qualname__

    def exists_for(self, spec: TrialSpec) -> bool:
        """Tell whether trials of such a spec have this measurement."""
        if self.vanilla and spec.n_memory > 1:
            return False
        return spec.tuner == "prompt" or not self.prompts

    def values(self, trial: object) -> dict[str, Any]:
        """Measure a trial.

        Args:
            trial: the trial, whose attributes the function is given.

        Returns:
            Each name with its value, in the form in which it is stored.

        Raises:
            ValueError: the function did not return exactly its names, returned a value that cannot be stored, or
                changed what it was given.
            Exception: the function raised it. A note on it names the measurement.
        """
        called = f"the measurement {self.function.__name__}"
        arguments = {name: getattr(trial, name) for name in self.needs}
        with unchanged(called, **arguments):
            values = self.function(**arguments)
        if not isinstance(values, dict) or set(values) != set(self.names):
            raise ValueError(f"{called} must return a dict with {', '.join(self.names)}, not {reprlib.repr(values)}")
        stored = {}
        for name, value in values.items():
            try:
                stored[name] = storable(name, self.kinds[name], value)
            except ValueError as error:
                raise ValueError(f"{called} returned what cannot be stored: {error}") from None
        return stored


def kind_of(name: str, kind: Any) -> Any:
    """Return the type that a measurement declares for one of its numbers.

    Args:
        name: the name of the number.
        kind: a type, or a dictionary of types.

    Raises:
        TypeError: it is no type, so that no value could be checked.
    """
    try:
        field_type = as_type(kind)
        make_adapter(field_type).rebuild()  # Finds out whether a type exists whose name is given as a text.
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

    The probabilities of special ids are left out, and those that remain are divided by their sum.

    Args:
        task: the task whose texts the distributions belong to.
        probs: the network's distributions, (n, X and special ids).
        n_tokens: the number of tokens of the model.

    Returns:
        The distributions of the training, the validation and the test texts, each of shape (n, X).
    """
    probs = probs[:, :n_tokens].cpu().double()
    return task.split(probs / probs.sum(1, keepdim=True))
