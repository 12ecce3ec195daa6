"""Floats as integers of any size, of which sums and products are exact."""

import math
from fractions import Fraction

import numpy as np

UNIT = 2**1074
"""Every float is a multiple of 1 / UNIT."""


def whole(values):
    """Floats times UNIT, as Python integers: sums and products of them are exact."""
    return np.vectorize(lambda value: int(Fraction(value) * UNIT), otypes=[object])(np.asarray(values))


def ratio(values, total):
    """Floats from Python integers of any size; 0 for 0 alone, the smallest float for what rounds to it."""
    return [(v / total or math.ulp(0.0)) if v else 0.0 for v in values]  # Python rounds the quotient of integers once
