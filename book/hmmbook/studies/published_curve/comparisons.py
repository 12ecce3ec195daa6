"""Comparisons of stored trials with each other, and with the means that the paper's Figure 3 shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from pandas import DataFrame, Series

from hmmbook import mean_ci
from hmmbook.experiments.intervals import Interval, difference_ci
from hmmbook.experiments.results import published
from hmmbook.studies.published_curve.groups import SIZES, UNCHANGED, at

HEAD = "head_accuracy"
PROMPT = "prompt_accuracy"
COLUMNS = {"head tuning": HEAD, "prompt tuning": PROMPT}
"""The series of Figure 3's left panel, with the columns of the results that they are compared with."""
FEW_STATES = (4, 8)
MANY_STATES = (25, 30)


def points_above(group: DataFrame, column: str = PROMPT) -> Series:
    """Return by how many points an accuracy is above the share of the more frequent label, in each trial."""
    return 100 * (group[column] - group.majority_rate)


def differences(groups: dict[str, DataFrame]) -> dict[str, dict[str, Interval]]:
    """Return what each change does to prompts, heads and the share learned, on the same chains.

    Args:
        groups: Trials by name, each indexed by seed, among them those without a change, as `groups.by_change` has them.

    Returns:
        By the name of each change and by column, the mean difference with its interval.
    """
    unchanged = groups[UNCHANGED]
    changed_by = {}
    for name, group in groups.items():
        if name != UNCHANGED:
            columns = (PROMPT, HEAD, "learned")
            changed_by[name] = {column: mean_ci(group[column] - unchanged[column], share=False) for column in columns}
    return changed_by


# Against the published means


def gaps(group: DataFrame) -> dict[tuple[int, str], Interval]:
    """Return the differences of our means from the published ones, by the number of states and the series."""
    paper = published("left")
    found = {}
    for n_states in SIZES:
        for series, column in COLUMNS.items():
            ours = mean_ci(at(n_states, group)[column], share=True)
            found[n_states, series] = difference_ci(ours, paper[series][n_states])
    return found


def n_outside(group: DataFrame) -> int:
    """Return how many of the twelve published means lie outside our 95% intervals."""
    paper = published("left")
    count = 0
    for n_states in SIZES:
        for series, column in COLUMNS.items():
            ours = mean_ci(at(n_states, group)[column], share=True)
            if not ours.low <= paper[series][n_states].mean <= ours.high:
                count += 1
    return count


def nearest_steps(by_steps: dict[int, DataFrame], candidates: Iterable[int]) -> int:
    """Return the steps at which our twelve means are nearest to the published ones, by the sum of squares.

    Args:
        by_steps: Trials by their steps of pretraining. Between these numbers of steps, means are interpolated.
        candidates: Among which numbers of steps to look.
    """
    paper = published("left")
    distances = dict.fromkeys(candidates, 0.0)
    for n_states in SIZES:
        for series, column in COLUMNS.items():
            means = [at(n_states, group)[column].mean() for group in by_steps.values()]
            for steps in distances:
                ours = np.interp(steps, list(by_steps), means)
                distances[steps] += (ours - paper[series][n_states].mean) ** 2
    return min(distances, key=distances.get)


class JointTest(NamedTuple):
    """All twelve differences from the published means at once."""

    statistic: float
    """Chi-squared, which has twelve degrees of freedom if the means are the same."""
    p: float
    rise: float
    """How much higher the differences are at 25 and 30 states than at 4 and 8, on average."""
    error: float
    """The standard error of the rise."""


def joint_test(group: DataFrame, correlated: bool = True) -> JointTest:
    """Test all differences from the published means at once.

    Args:
        group: The trials of all sizes.
        correlated: Whether the published heads and prompts are taken to be correlated as ours are, or else not at all.
    """
    from scipy.stats import chi2  # It is imported here because it takes long to load.

    paper = published("left")
    statistic = 0.0
    rise = 0.0
    variance = 0.0
    for n_states in SIZES:
        ours = at(n_states, group)[list(COLUMNS.values())]
        theirs = [paper[series][n_states] for series in COLUMNS]
        difference = ours.mean().to_numpy() - [point.mean for point in theirs]
        errors = [point.deviation / math.sqrt(point.n) for point in theirs]
        correlation = ours.corr().to_numpy() if correlated else np.eye(2)
        covariance = ours.cov().to_numpy() / len(ours) + correlation * np.outer(errors, errors)
        statistic += difference @ np.linalg.solve(covariance, difference)
        if n_states in FEW_STATES + MANY_STATES:
            sign = 1 if n_states in MANY_STATES else -1
            rise += sign * difference.sum() / 4
            variance += covariance.sum() / 16
    p = float(chi2.sf(statistic, 2 * len(SIZES)))
    return JointTest(statistic, p, rise, math.sqrt(variance))


# All alike, or a mixture?


def mixture(early: Series, late: Series, share: float) -> tuple[float, float]:
    """Return mean and standard deviation of a mixture: a share of late values, and early ones otherwise."""
    values = np.concatenate([early, late])
    weight_of_early = np.full(len(early), (1 - share) / len(early))
    weight_of_late = np.full(len(late), share / len(late))
    weights = np.concatenate([weight_of_early, weight_of_late])
    mean = weights @ values
    return mean, math.sqrt(weights @ (values - mean) ** 2)


def explanations(early: DataFrame, late: DataFrame) -> DataFrame:
    """Return what two explanations of the published mean of prompts predict, at each number of states.

    *All alike* lowers every prompt of the late trials by one amount. *A mixture* takes a share of its trials from the
    late ones and the others from the early ones. Both have the published mean of prompts, as nearly as they can.

    Args:
        early: Trials with few steps, of all sizes.
        late: Trials with many steps.

    Returns:
        By the number of states: the share of late trials, the spreads of prompts if all are alike and in the mixture,
        and mean and spread of the mixture's heads. A spread is a standard deviation.
    """
    paper = published("left")["prompt tuning"]
    rows = {}
    for n_states in SIZES:
        first = at(n_states, early)
        last = at(n_states, late)
        low = first[PROMPT].mean()
        high = last[PROMPT].mean()
        share = float(np.clip((paper[n_states].mean - low) / (high - low), 0, 1))
        _, spread = mixture(first[PROMPT], last[PROMPT], share)
        heads, spread_of_heads = mixture(first[HEAD], last[HEAD], share)
        rows[n_states] = {
            "share": share,
            "spread if alike": last[PROMPT].std(),
            "spread": spread,
            "heads": heads,
            "spread of heads": spread_of_heads,
        }
    return DataFrame.from_dict(rows, orient="index")
