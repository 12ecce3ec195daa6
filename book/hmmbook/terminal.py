"""What commands write to the terminal: lines, and how far the work is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

console = Console()
errors = Console(stderr=True)
SECONDS_BETWEEN_LINES = 60.0
"""How often a log that is no terminal is told how far the work is."""


def line(text: str, to: Console = console) -> None:
    """Write a line as it is, however long."""
    to.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress(first_text: str) -> Iterator[Callable[[str], None]]:
    """Give a function that shows how far the work is.

    On a terminal each text replaces the one before it. In a log there is a line a minute.
    """
    if console.is_terminal:
        with console.status(first_text) as status:
            yield status.update
        return
    last_line = time.monotonic()

    def once_a_minute(text: str) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            line(text, errors)

    yield once_a_minute
