"""Numbers, times and sizes as the tables show them."""

from __future__ import annotations

import math

NARROW = "\u202f"
"""A narrow space that no line breaks at, between a number and its unit."""
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Three digits, and thousands with commas up to a billion: 0.0421, 4.71, 321, 51,200,000, 2.41·10¹⁰."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    if int(exponent) >= 9:
        return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPT)}"
    return f"{float(f'{value:.2e}'):,.{max(0, 2 - int(exponent))}f}"


def duration(seconds: float) -> str:
    unit, size = next((one for one in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)) if seconds >= one[1]), ("ns", 1e-9))
    return f"{number(seconds / size)}{NARROW}{unit}"


def size(amount: float) -> str:
    return f"{number(amount / 1e9)}{NARROW}GB" if amount >= 1e9 else f"{number(max(amount, 0) / 1e6)}{NARROW}MB"


def power(value: float) -> str:
    """A difference, as 1e-09."""
    return "none" if value == 0 else f"{value:.0e}"
