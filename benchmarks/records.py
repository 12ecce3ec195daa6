"""Rows of stored results, and the cells and tables that they are printed in."""

from __future__ import annotations

import math
from typing import NamedTuple

NARROW = "\u202f"
"""A narrow space that no line breaks at, between a number and its unit."""
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def printed(table: Table) -> str:
    """With a title and columns of one width, for a terminal."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(table.columns))]
    cells = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(["", table.title, *cells])


def number(value: float) -> str:
    """Three digits, and thousands with commas up to a billion: 0.0421, 4.71, 321, 51,200,000, 2.41·10¹⁰."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    if int(exponent) >= 9:
        return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPT)}"
    return f"{float(f'{value:.2e}'):,.{max(0, 2 - int(exponent))}f}"


def duration(seconds: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)}{NARROW}{unit}"
    return f"{number(seconds / 1e-9)}{NARROW}ns"


def size(amount: float) -> str:
    return f"{number(amount / 1e9)}{NARROW}GB" if amount >= 1e9 else f"{number(max(amount, 0) / 1e6)}{NARROW}MB"


def power(value: float) -> str:
    """A difference, as 1e-09."""
    return "none" if value == 0 else f"{value:.0e}"


def by_name(row: dict) -> dict[str, dict]:
    return {one["name"]: one for one in row["contestants"]}


def chosen(rows: list[dict], **key) -> list[dict]:
    return [row for row in rows if all(row.get(name) == value for name, value in key.items())]


def the(rows: list[dict], **key) -> dict:
    """The one row with that key."""
    found = chosen(rows, **key)
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows with {key}, not one")
    return found[0]
