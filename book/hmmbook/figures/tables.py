"""Tables that a notebook shows, and the lines in which it says that a check holds."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hmmbook.evidence.ledger import Entry

ROUNDING = 1e-12
"""By how much two ways to the same number may differ where neither is magnified."""


# Numbers and signs in words


def subscripts(text: str) -> str:
    """Write H_0, and the like, with a subscript: H₀."""
    return re.sub(r"\b([^\W\d_])_(\d)\b", lambda match: match[1] + "₀₁₂₃₄₅₆₇₈₉"[int(match[2])], text)


def digits(array, form: str = ".3f") -> list[str]:
    """Return the entries of an array as words in a format. None is -0."""
    entries = np.asarray(array, dtype=float).ravel().round(12)
    return [format(entry + 0.0, form) for entry in entries]


def one_digit(value: float) -> str:
    """Return a number with one digit that counts: as it is from 0.001 to 1000, and elsewhere as in 2·10⁴."""
    rounded = f"{value:.0e}"
    digit, power = rounded.split("e")
    if value == 0 or -3 <= int(power) < 3:
        return f"{float(rounded):g}"
    exponent = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digit}·10{exponent}"


def as_set(flags, first: int = 1) -> str:
    """Return the marked positions, counted from `first`, as a set: {2, 3}."""
    positions = np.flatnonzero(np.asarray(flags)) + first
    return "{" + ", ".join(map(str, positions)) + "}"


# Checks


def difference(*pairs: tuple, bound: float = ROUNDING) -> str:
    """Return in words the largest difference of any entry over pairs of arrays, computed and exact.

    Raises:
        AssertionError: It is above the bound, or nothing is compared.
    """
    entries = [np.abs(np.asarray(computed) - np.asarray(exact)).ravel() for computed, exact in pairs]
    every_entry = np.hstack(entries) if entries else np.array([])
    assert every_entry.size, "nothing is compared"
    largest = every_entry.max()
    assert largest <= bound, f"they differ by {largest:.0e}, which is above {bound:.0e}"
    return f"{largest:.0e}" if largest else "0"


def agree(what_is_compared: str, *pairs: tuple, bound: float = ROUNDING) -> None:
    """Print in one line the `difference` of pairs of arrays.

    Raises:
        AssertionError: It is above the bound.
    """
    print(f"{what_is_compared}: largest difference {difference(*pairs, bound=bound)}")


# Tables


@dataclass(frozen=True)
class Table:
    """A table that a notebook shows. Intervals, in brackets, stand small below their numbers."""

    head: Sequence[str]
    """The names of the columns."""
    rows: Sequence[Sequence[str]]

    def _repr_html_(self) -> str:
        head = f'<table class="dataframe" cellpadding="4">\n<thead>{_html_row(self.head, "th")}</thead>'
        body = "\n".join(_html_row(row, "td") for row in self.rows)
        return f"{head}\n<tbody>\n{body}\n</tbody>\n</table>"


def _html_row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{_html_cell(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def _html_cell(text: str) -> str:
    small = r'<br><small style="font-size: 0.72em; white-space: nowrap">\1</small>'
    return re.sub(r" (\[[^]]*\])", small, html.escape(subscripts(text)))


def outcomes(predictions: Sequence[tuple[str, str, bool | None]]) -> Table:
    """Make a table of what was predicted, what came out, and whether the prediction came true.

    Args:
        predictions: The prediction and what came out, both in words, and whether it came true. None stands for a
            prediction that was not tested. A mean of no trials, nan, counts as not tested either.
    """
    rows = []
    for predicted, measured, came_true in predictions:
        if re.search(r"\bnan\b", measured):
            rows.append([predicted, "no such trials", "–"])
        elif came_true is None:
            rows.append([predicted, measured, "not tested"])
        else:
            rows.append([predicted, measured, "came true" if came_true else "did not"])
    return Table(["predicted", "found", "outcome"], rows)


def rulings(entries: Sequence[Entry]) -> Table:
    """Make a table of statements: the largest residual, the ruling on record, and how often the control failed.

    Raises:
        AssertionError: A statement is not as recorded.
    """
    rows = []
    for entry in entries:
        assert entry.as_recorded, f"{entry.name} is not as recorded: {entry}"
        residual = f"{entry.residual:.0e}" if entry.residual else "0"
        failures = f"{entry.control_fails} of {entry.control_instances} without “{entry.broken}”"
        rows.append([entry.name, residual, entry.grade, failures])
    return Table(["statement", "largest difference", "as printed", "the control fails"], rows)
