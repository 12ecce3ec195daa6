"""Tables that a notebook shows, and the lines in which it says that a check holds."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hmmlib.experiments.summaries import Read, as_results, means
from hmmlib.validation import by_name, length_of

if TYPE_CHECKING:
    from hmmlib.experiments.trials import TrialResult
    from hmmlib.theory.assumptions import RecoveryReport

SMALL = "font-size: 0.72em; white-space: nowrap"
ROUNDING = 1e-12
"""What two ways to the same number may differ by where neither is magnified."""


def difference(*pairs: tuple, bound: float = ROUNDING) -> str:
    """The largest difference of any entry over pairs (found, exact) of arrays, in words. AssertionError where it is above
    `bound`, or where nothing is compared."""
    gaps = [np.abs(np.asarray(found) - np.asarray(exact)) for found, exact in pairs]
    entries = np.concatenate([gap.ravel() for gap in gaps]) if gaps else np.empty(0)
    if not entries.size:
        raise AssertionError("nothing is compared")
    if not entries.max() <= bound:
        raise AssertionError(f"they differ by {entries.max():.0e}, which is above {bound:.0e}")
    return f"{entries.max():.0e}" if entries.max() else "0"


def digits(array, form: str = ".3f") -> list[str]:
    """The entries of an array as words, in a format; none is -0."""
    return [format(value + 0.0, form) for value in np.asarray(array, dtype=float).ravel().round(12)]


def as_set(flags, first: int = 1) -> str:
    """The marked positions, counted from `first`, as a set: {2, 3}."""
    return "{" + ", ".join(str(k + first) for k in np.flatnonzero(np.asarray(flags))) + "}"


def agree(what: str, *pairs: tuple, bound: float = ROUNDING) -> None:
    """Print in one line how far pairs (found, exact) are apart, as `difference` has it, which also insists on `bound`."""
    print(f"{what}: largest difference {difference(*pairs, bound=bound)}")


def recovered(report: RecoveryReport) -> None:
    """Print in one line whether columns of W are recoverable, and how clearly."""
    own, name = report.columns, report.assumption.partition(" (")[0]
    print(f"{name} {report.verdict.value}:", end=" ")
    print(f"{own.n_columns} columns of rank {own.rank}, at an angle of {report.angle:.2f} to the others")


@dataclass(frozen=True)
class Table:
    """A table that a notebook shows: `head` names the columns, each of `rows` has a cell for each of them.

    In each cell, what is in square brackets, as an interval is, stands in small type below the rest.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"each of rows must have {len(self.head)} cells, as the head has, not {len(row)}")

    def _repr_html_(self) -> str:
        def shown(cell: str) -> str:
            return re.sub(r" (\[[^]]*\])", rf'<br><small style="{SMALL}">\1</small>', html.escape(cell))

        def line(cells: Sequence[str], kind: str) -> str:
            return "<tr>" + "".join(f"<{kind}>{shown(str(cell))}</{kind}>" for cell in cells) + "</tr>"

        body = "\n".join(line(row, "td") for row in self.rows)
        return f'<table class="dataframe">\n<thead>{line(self.head, "th")}</thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def outcomes(predictions: Sequence[tuple[str, str, bool]]) -> Table:
    """What was predicted, what was found, and whether the prediction came true. ValueError for what is no such triple."""
    for one in predictions:
        of_words = length_of("each of predictions", one) == 3 and all(isinstance(word, str) for word in one[:2])
        if not of_words or not isinstance(one[2], bool | np.bool_):
            raise ValueError(
                f"each of predictions must be a sentence, what was found, and whether it is so, not {one!r}"
            )
    rows = [[said, found, "came true" if so else "did not"] for said, found, so in predictions]
    return Table(["predicted", "found", ""], rows)


def within(name: str, *keys: str) -> Read:
    """What reads a number off the table that a measurement gave, by its names; None where it is missing."""

    def read(result: TrialResult) -> float | None:
        value = getattr(result, name)
        for key in keys:
            value = None if value is None else value.get(key)
        return value

    return read


def table_of(
    results: Sequence[TrialResult], groups: dict[str, Callable], rows: dict[str, Read], form: str = ".3f"
) -> Table:
    """A row for each thing that is read, a column for each group of results: means with 95% intervals.

    `groups` maps a column's name to whether a result is in it.
    """
    columns = {
        name: [r for r in as_results(results) if belongs(r)] for name, belongs in by_name("groups", groups).items()
    }
    lines = []
    for name, read in by_name("rows", rows).items():
        found = [means(group, read) for group in columns.values()]
        lines.append([name, *("–" if one is None else format(one, form) for one in found)])
    return Table(["", *(f"{name} ({len(group)})" for name, group in columns.items())], lines)
