"""Write lines to the terminal, and show there how far the work is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

console = Console()
errors = Console(stderr=True)
SECONDS_BETWEEN_LINES = 60.0
"""How many seconds pass between two lines on how far the work is, if the output is no terminal but a log."""


def line(text: str, to: Console = console) -> None:
    """Write a line as it is, without breaking it where it is long."""
    to.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress(first_text: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a text on how far the work is.

    On a terminal each text replaces the one before it. In a log, which is no terminal, a text becomes a line if the
    last line is a minute old.

    Args:
        first_text: what a terminal shows at first.
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
