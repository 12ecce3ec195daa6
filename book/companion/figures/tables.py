"""Tables that a notebook shows, and the lines in which it says that a check holds."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hmmlib.experiments.results import mean_ci

if TYPE_CHECKING:
    from pandas.api.typing import DataFrameGroupBy

    from companion.evidence.ledger import Entry
    from hmmlib.theory.assumptions import Report

ROUNDING = 1e-12
"""What two ways to the same number may differ by where neither is magnified."""


def subscripts(text: str) -> str:
    """H_0, and the like, with a subscript: H₀."""
    return re.sub(r"\b([^\W\d_])_(\d)\b", lambda found: found[1] + "₀₁₂₃₄₅₆₇₈₉"[int(found[2])], text)


def difference(*pairs: tuple, bound: float = ROUNDING) -> str:
    """The largest difference of any entry over pairs (found, exact) of arrays, in words.

    AssertionError where it is above `bound`, or where nothing is compared.
    """
    entries = np.hstack([[], *(np.abs(np.asarray(found) - np.asarray(exact)).ravel() for found, exact in pairs)])
    assert entries.size, "nothing is compared"
    largest = entries.max()
    assert largest <= bound, f"they differ by {largest:.0e}, which is above {bound:.0e}"
    return f"{largest:.0e}" if largest else "0"


def digits(array, form: str = ".3f") -> list[str]:
    """The entries of an array as words, in a format; none is -0."""
    return [format(value + 0.0, form) for value in np.asarray(array, dtype=float).ravel().round(12)]


def as_set(flags, first: int = 1) -> str:
    """The marked positions, counted from `first`, as a set: {2, 3}."""
    return "{" + ", ".join(str(k + first) for k in np.flatnonzero(np.asarray(flags))) + "}"


def agree(what: str, *pairs: tuple, bound: float = ROUNDING) -> None:
    """Print in one line the `difference` of pairs (found, exact). AssertionError where it is above `bound`."""
    print(f"{what}: largest difference {difference(*pairs, bound=bound)}")


def recovered(report: Report) -> None:
    """Print in one line whether columns of W are recoverable, and how clearly."""
    own, name = report.columns, report.assumption.partition(" (")[0]
    print(f"{name} {report.verdict.value}:", end=" ")
    print(f"{own.n_columns} columns of rank {own.rank}, at an angle of {report.angle:.2f} to the others")


@dataclass(frozen=True)
class Table:
    """A table that a notebook shows; `head` names the columns. Intervals, in brackets, stand small below the rest."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def _repr_html_(self) -> str:
        def shown(cell: str) -> str:
            small = r'<br><small style="font-size: 0.72em; white-space: nowrap">\1</small>'
            return re.sub(r" (\[[^]]*\])", small, html.escape(subscripts(cell)))

        def line(cells: Sequence[str], kind: str) -> str:
            return "<tr>" + "".join(f"<{kind}>{shown(str(cell))}</{kind}>" for cell in cells) + "</tr>"

        body = "\n".join(line(row, "td") for row in self.rows)
        head = f'<table class="dataframe" cellpadding="4">\n<thead>{line(self.head, "th")}</thead>'
        return f"{head}\n<tbody>\n{body}\n</tbody>\n</table>"


def one_digit(value: float) -> str:
    """A number with one digit that counts: as it is from 0.001 to 1000, with a power of ten elsewhere, as in 2·10⁴."""
    digit, power = f"{value:.0e}".split("e")
    if value == 0 or -3 <= int(power) < 3:
        return f"{float(f'{value:.0e}'):g}"
    return f"{digit}·10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def outcomes(predictions: Sequence[tuple[str, str, bool | None]]) -> Table:
    """What was predicted, what was found, and whether it came true; None and a mean of nothing: not tested."""
    rows = []
    for predicted, found, so in predictions:
        nothing = re.search(r"\bnan\b", found)
        outcome = {True: "came true", False: "did not", None: "not tested"}[None if so is None else bool(so)]
        rows.append([predicted, *(("no such trials", "–") if nothing else (found, outcome))])
    return Table(["predicted", "found", "outcome"], rows)


def table_of(groups: DataFrameGroupBy, rows: dict, form: str = ".3f", corner: str = "", alone: bool = False) -> Table:
    """Means with 95% intervals: a row for each column of results that `rows` names, a column for each group of trials.

    With `alone` it is narrow enough for a phone: means without intervals and the sign of percents, columns without
    numbers of trials. `corner` stands above the names of the rows.
    """

    def shown(one) -> str:
        return format(one.mean, form).removesuffix("%") if alone and one.n else format(one, form)

    lines = [[name, *map(shown, groups[column].agg(mean_ci))] for name, column in rows.items()]
    return Table([corner, *(f"{name}" if alone else f"{name} ({n})" for name, n in groups.size().items())], lines)


def rulings(entries: Sequence[Entry]) -> Table:
    """A row for each statement that was run: its largest residual, the ruling on record, and how its control failed.

    AssertionError where what was found is not what is on record.
    """
    rows = []
    for entry in entries:
        assert entry.as_recorded, f"{entry.name} is not as recorded: {entry}"
        failed = f"{entry.control_fails} of {entry.control_instances} without “{entry.broken}”"
        rows.append([entry.name, f"{entry.residual:.0e}" if entry.residual else "0", entry.grade, failed])
    return Table(["statement", "largest difference", "as printed", "the control fails"], rows)
