"""Equations of the paper at random rational points, without rounding, in NumPy's arrays of Python's fractions alone."""
