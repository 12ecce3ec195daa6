"""What a predicate on an assumption returns: a verdict, with the numbers behind it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import Enum
from typing import Self


class Verdict(Enum):
    """What a predicate finds.

    `CLOSE` means that rounding hides the answer. Among the numbers that rounding could have turned into the model's own
    are some for which the assumption holds, and some for which it fails.

    Example:
        >>> from hmmlib import HMM, assumption_3_1
        >>> assumption_3_1(HMM([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5])).verdict
        <Verdict.FAILS: 'does not hold'>
    """

    HOLDS = "holds"
    FAILS = "does not hold"
    CLOSE = "is too close to tell"


def all_of(*verdicts: Verdict) -> Verdict:
    """Return the verdict on all of several conditions at once."""
    for verdict in (Verdict.FAILS, Verdict.CLOSE):
        if verdict in verdicts:
            return verdict
    return Verdict.HOLDS


def of_bool(holds: bool) -> Verdict:
    """Return the verdict on a condition that rounding has no part in."""
    return Verdict.HOLDS if holds else Verdict.FAILS


class AssumptionError(ValueError):
    """The model breaks an assumption of the theorem. `report` has the numbers.

    Example:
        >>> from hmmlib import AssumptionError, hidden_twins, theorem_3_3
        >>> try:
        ...     theorem_3_3(hidden_twins(), [1.0, -1.0, 0.0, 0.0])
        ... except AssumptionError as error:
        ...     error.report.rank
        3
    """

    def __init__(self, report: Report):
        super().__init__(f"{report.assumption} {report.verdict.value}: {report}")
        self.report = report


@dataclass(frozen=True)
class Report:
    """What a predicate returns. In an `if` it counts as true where the assumption holds. `print` shows its summary."""

    assumption: str
    """The paper's name and number of the assumption."""
    verdict: Verdict
    summary: str
    """The numbers in words."""

    @property
    def holds(self) -> bool:
        """Whether the assumption certainly holds. Otherwise it fails, or is too close to tell."""
        return self.verdict is Verdict.HOLDS

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.summary

    def require(self) -> Self:
        """Return the report itself. If the assumption is too close to tell, this warns.

        Raises:
            AssumptionError: The assumption fails.
        """
        if self.verdict is Verdict.FAILS:
            raise AssumptionError(self)
        if self.verdict is Verdict.CLOSE:
            warnings.warn(f"{self.assumption} {self.verdict.value}: {self}.", stacklevel=3)
        return self


@dataclass(frozen=True)
class ColumnsReport(Report):
    """Whether columns are linearly independent, as in Assumption 3.1."""

    n_columns: int
    rank: int
    """The number of singular values above `tolerance`."""
    smallest_singular_value: float
    largest_singular_value: float
    tolerance: float
    """How far rounding may move a singular value."""
    condition: float
    """The largest singular value over the smallest, or infinity where the columns are dependent."""


@dataclass(frozen=True)
class RegularityReport(Report):
    """Whether the chain is regular, Assumption 3.2. It is ergodic if it is irreducible and its period is 1."""

    irreducible: bool
    """Whether each state can be reached from each other one."""
    period: int
    """The greatest common divisor of the lengths of all cycles, or 0 if the chain is reducible."""
    start_support: int
    """On how many states P[H_0] is positive."""
    n_states: int


@dataclass(frozen=True)
class EssentialReport(Report):
    """Whether H* is a set of essential states, Assumption 3.5."""

    columns: ColumnsReport
    """The report on the columns of W at H*."""
    uncovered: tuple[int, ...]
    """The states of supp(μ) outside H*."""
    sources: tuple[int, ...]
    """All states from which one step leads into H* only, the largest possible 𝓑."""
    unreached: tuple[int, ...]
    """The states of H* to which no step from a source leads."""


@dataclass(frozen=True)
class RecoveryReport(Report):
    """Whether H* is a set of recoverable states, Assumptions 4.2, 4.5 and D.5."""

    columns: ColumnsReport
    """The report on the columns of W at M* × H*, those to be recovered."""
    rest_rank: int
    """The dimension of 𝒱̄, the span of the other columns."""
    angle: float
    """The smallest angle between 𝒱̄ and the span of the columns to be recovered, in radians."""
    angle_error: float
    """By how much rounding may change the angle."""
    condition: float
    """The condition number of the columns together with an orthonormal basis of 𝒱̄. A left inverse may magnify an error
    by this factor."""


@dataclass(frozen=True)
class StationarityReport(Report):
    """Whether P[H_0] is stationary, Assumption 4.4."""

    regularity: RegularityReport
    """The report on Assumption 3.2."""
    drift: float
    """The largest |A P[H_0] / P[H_0] - 1| in any state."""
