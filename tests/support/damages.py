"""How tests damage what a check relies on: one sign, one index or one factor."""

from collections.abc import Callable
from typing import NamedTuple


class Damage(NamedTuple):
    """A function that stands in the place of another."""

    statements: list[str]  # those that rely on it
    words: str
    place: object  # a module or a class
    name: str  # of the function there
    function: Callable  # takes the honest function, and then what that takes

    def apply(self, monkeypatch) -> None:
        honest = getattr(self.place, self.name)

        def damaged(*args, **kwargs):
            return self.function(honest, *args, **kwargs)

        monkeypatch.setattr(self.place, self.name, damaged)


def result(change: Callable) -> Callable:
    """A function for a `Damage` that changes nothing but the result."""
    return lambda honest, *args, **kwargs: change(honest(*args, **kwargs))


def instead(value: Callable) -> Callable:
    """A function for a `Damage` that does not call the honest one."""
    return lambda honest, *args: value(*args)
