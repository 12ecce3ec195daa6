"""What commands write to the terminal: lines, and where the work is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

console, errors = Console(), Console(stderr=True)
MINUTE = 60.0
"""Seconds between two lines that say where the work is."""
_last = time.monotonic()


def line(text: str, to: Console = console) -> None:
    """Write a line as it is, however long."""
    to.print(text, highlight=False, markup=False, soft_wrap=True)


def once_a_minute(text: str) -> None:
    """Write to stderr where the work of this process is, once a minute: for the log of a job, or one of several."""
    global _last
    if time.monotonic() - _last >= MINUTE:
        _last = time.monotonic()
        line(text, errors)


def trial_once_a_minute(spec, phase: str, share: float) -> None:
    """The same for a trial, of which this share of a phase, 0 to 1, is done."""
    from hmmlib.experiments.sweeps import describe

    once_a_minute(f"{describe(spec)}: {phase} {share:.0%}")


@contextmanager
def progress(begin: str) -> Iterator[Callable[[str], None]]:
    """A function to be called with words on where the work is: on a terminal they take each other's place."""
    global _last
    if not console.is_terminal:
        _last = time.monotonic()
        yield once_a_minute
        return
    with console.status(begin) as status:
        yield status.update
