"""Compute means with 95% intervals (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import get_type_hints

import numpy as np
import pandas as pd

from hmmbook.experiments.fields import Share
from hmmbook.experiments.measurements import MEASUREMENTS
from hmmbook.experiments.trials import TrialResult
from hmmlib.validation import of_type


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% interval.

    For a single value the interval is infinite. Without any value the mean and the interval are NaN.
    """

    mean: float
    """The mean."""
    low: float
    """The lower end of the interval."""
    high: float
    """The upper end of the interval."""
    n: int
    """How many values there are."""
    share: bool = False
    """Whether the values are shares. Their mean lies between 0 and 1, so the interval is shown within these limits."""
    of_difference: bool = False
    """Whether this is the difference of two means, as `difference_ci` returns it."""

    @property
    def shown(self) -> tuple[float, float]:
        """The ends of the interval as they are shown."""
        if self.share:
            return max(self.low, 0.0), min(self.high, 1.0)
        return self.low, self.high

    def __format__(self, form: str) -> str:
        """Format as 93.1% [90.2%, 96.0%].

        If there is no interval, brackets after the mean say why. If there is no mean, the text is –.
        """
        form = form or ".1%"
        if math.isnan(self.mean):
            return "–"
        if self.n == 1:
            return f"{self.mean:{form}} (one trial)"
        if self.low == -math.inf:
            return f"{self.mean:{form}} (no interval)"
        low, high = self.shown
        return f"{self.mean:{form}} [{low:{form}}, {high:{form}}]"

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__

    @property
    def deviation(self) -> float:
        """The standard deviation of the values, computed from the width of the interval.

        It is NaN if there is no interval. It is also NaN for a difference, which has two samples.
        """
        if self.n < 2 or self.of_difference:
            return math.nan
        half_width = self.high / 2 - self.low / 2  # high - low might be infinite.
        return half_width / quantile(self.n - 1) * math.sqrt(self.n)


def quantile(freedom: float) -> float:
    """Return how many standard errors make up half the width of a 95% interval.

    Args:
        freedom: the degrees of freedom of Student's t.
    """
    from scipy.stats import t  # takes half a second to import

    return float(t.ppf(0.975, freedom))


def mean_ci(values: Sequence[float], share: bool | None = None) -> Interval:
    """Return the mean of values with its 95% interval (Student's t).

    You can pass this function to pandas, as in `results("quick").groupby("size").gain.agg(mean_ci)`. Use `agg` there
    and not `apply`. The method `apply` hides the column's name, so you would have to say whether it holds shares.

    Args:
        values: numbers. NaN and None are left out.
        share: whether the values are shares, whose interval is shown within 0 and 1. If you leave it out, values from
            0 to 1 count as shares in a column that a measurement declares as `Share`, such as `head_accuracy`. There
            is one exception, because pandas may give the difference of two such columns the same name. For a
            difference you want to see whether its interval reaches below 0. So an interval that does, around a mean
            below one half, is shown whole.

    Returns:
        The mean, its interval and the number of values.

    Raises:
        TypeError: a value is no number.
        ValueError: there are several columns, a value is infinite or masked, or a share is not from 0 to 1.

    Example:
        >>> mean_ci([0.5, 0.6, 0.7], share=True)
        60.0% [35.2%, 84.8%]
    """
    is_said = share is not None
    column = getattr(values, "name", None)
    values = _present_numbers(values)
    if not np.isfinite(values).all():
        raise ValueError(f"values must be finite, not {values}")
    are_within = bool(((values >= 0) & (values <= 1)).all())
    if not is_said:
        share = are_within and declares_shares(column)
    if share and not are_within:
        raise ValueError(f"values must be shares from 0 to 1, not {values}. If they are not shares, pass share=False.")
    share = bool(share)
    n = len(values)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0, share)
    scale = power_of_two(np.abs(values).max())
    mean = math.fsum(values / scale) / n * scale
    if n == 1:
        return Interval(mean, -math.inf, math.inf, 1, share)
    half = quantile(n - 1) / math.sqrt(n) * float(np.std(values / scale, ddof=1)) * scale
    if not is_said and mean < half and mean < 0.5:
        share = False
    return Interval(mean, mean - half, mean + half, n, share)


def power_of_two(size: float) -> float:
    """Return the largest power of two that is not above a size.

    We divide numbers of about this size by it before we square them, so that no square becomes infinite or zero. A
    division by a power of two does not round.
    """
    return math.ldexp(1.0, math.frexp(size)[1] - 1)


def declares_shares(column: object) -> bool:
    """Tell whether a column of the table of results holds numbers that are declared to be shares."""
    kinds = get_type_hints(TrialResult, include_extras=True)
    for measurement in MEASUREMENTS:
        for name in measurement.names:
            kinds.setdefault(name, measurement.kinds[name])
    return kinds.get(column) in (Share, Share | None)


def _present_numbers(values: Sequence[float]) -> np.ndarray:
    """Return the values that are not missing, as floats."""
    if np.ma.is_masked(values):
        raise ValueError("values must have no masked entries, because their values are unknown. Pass the others alone.")
    column = np.asarray(values, dtype=object)
    if column.ndim != 1:
        raise ValueError(
            f"values must be a list or one column of numbers, not {type(values).__name__} of shape {column.shape}. "
            "For each column of a table use table.agg(mean_ci)."
        )
    present = column[~pd.isna(column)]
    for value in present:
        if not isinstance(value, Real | np.bool_):
            raise TypeError(f"values must be numbers, not {value!r}")
    return present.astype(float)


def difference_ci(first: Interval, second: Interval) -> Interval:
    """Return the difference of the means of two independent samples, first minus second, with Welch's 95% interval.

    Its `n` counts the values of both samples. If a sample has a single value, the interval is infinite. If a sample has
    none, the mean and the interval are NaN.

    Args:
        first: the mean of one sample, as `mean_ci` returns it.
        second: the mean of the other sample.

    Raises:
        TypeError: an argument is no interval, for example a list of values.
        ValueError: an argument is itself a difference.
    """
    for name, interval in (("first", first), ("second", second)):
        if of_type(name, interval, Interval).of_difference:
            raise ValueError(f"{name} must be the mean of one sample, as mean_ci gives it, not a difference of two")
    n = first.n + second.n
    mean = first.mean - second.mean
    if min(first.n, second.n) == 0:
        return Interval(math.nan, math.nan, math.nan, n, of_difference=True)
    if min(first.n, second.n) == 1:
        return Interval(mean, -math.inf, math.inf, n, of_difference=True)
    scale = power_of_two(max(first.deviation, second.deviation))
    first_square = (first.deviation / scale) ** 2 / first.n
    second_square = (second.deviation / scale) ** 2 / second.n
    error = first_square + second_square
    freedom = 1.0
    if error:
        freedom = error**2 / (first_square**2 / (first.n - 1) + second_square**2 / (second.n - 1))
    half = quantile(freedom) * math.sqrt(error) * scale
    return Interval(mean, mean - half, mean + half, n, of_difference=True)
