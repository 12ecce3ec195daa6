"""Whether columns are independent and spans meet in zero only: holds, fails, or too close for floats to tell.

Singular values decide where they are clear of rounding. Where they are not, the entries are taken as the rational numbers
that they are, and a rank without rounding may still say that it fails. It never says that it holds: then the columns are
independent, but by less than their own rounding, and the next model of the same meaning may break it.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor


class Verdict(Enum):
    """What a predicate finds. CLOSE: floats cannot tell, as the truth changes within rounding."""

    HOLDS = "holds"
    FAILS = "does not hold"
    CLOSE = "is too close to tell"


def all_of(*verdicts: Verdict) -> Verdict:
    """The verdict on all of them at once."""
    return next((verdict for verdict in (Verdict.FAILS, Verdict.CLOSE) if verdict in verdicts), Verdict.HOLDS)


def of_bool(holds: bool) -> Verdict:
    """The verdict where nothing was rounded."""
    return Verdict.HOLDS if holds else Verdict.FAILS


MOST = 2**18
"""Rows times columns times the less of both, up to which an exact rank is found: some seconds."""


def exact_rank(columns: Tensor) -> int | None:
    """The rank of a matrix (rows, k) whose entries are taken as the rational numbers they are; None above `MOST`."""
    if columns.numel() * min(columns.shape) > MOST:
        return None
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    ratios = [[entry.as_integer_ratio() for entry in row] for row in columns.tolist()]
    # A row's rank does not change with its unit.
    whole = [[ZZ(top * (max(b for _, b in row) // bottom)) for top, bottom in row] for row in ratios]
    return DomainMatrix(whole, tuple(columns.shape), ZZ).rank() if columns.numel() else 0


def rounding(columns: Tensor) -> float:
    """How far singular values of columns (rows, k) whose largest is 1 may be off, by rounding of the entries and after."""
    return max(columns.shape) * torch.finfo(columns.dtype).eps


class Independence(NamedTuple):
    """Singular values of columns, and how many count: those above `tolerance`, as numpy.linalg.matrix_rank judges."""

    verdict: Verdict
    rank: int
    smallest_singular_value: float
    largest_singular_value: float
    tolerance: float

    @property
    def condition(self) -> float:
        """The ratio of the singular values; infinity where the columns are dependent."""
        dependent = self.verdict is Verdict.FAILS or not self.smallest_singular_value
        return math.inf if dependent else self.largest_singular_value / self.smallest_singular_value


def independent(columns: Tensor, exactly: Tensor | None = None, error: float = 0.0) -> Independence:
    """Whether the columns of a matrix (rows, k) are linearly independent.

    Where they are known only within rounding, `exactly` has those that are to have the same rank, and `error` is by how
    much more than their own rounding the singular values may be off.
    """
    rows, n_columns = columns.shape
    if n_columns == 0:
        return Independence(Verdict.HOLDS, 0, 1.0, 1.0, 0.0)
    singular = torch.linalg.svdvals(columns)
    largest, tolerance = singular[0].item(), rounding(columns) * singular[0].item()
    rank = int((singular > tolerance).sum())
    smallest = singular[-1].item() if n_columns <= rows else 0.0
    if n_columns > rows or smallest > tolerance + error:
        verdict = of_bool(n_columns <= rows)
    else:
        exact = exact_rank(columns if exactly is None else exactly)
        verdict = Verdict.CLOSE if exact in (None, n_columns) else Verdict.FAILS
    return Independence(verdict, rank, smallest, largest, tolerance)


class Span(NamedTuple):
    """An orthonormal basis (rows, rank) of the span of columns, and by how much it may be turned: an angle's sine.

    `certain` is False where the columns have that rank only within rounding: exactly, their span is larger, or may be where
    they are too many for an exact rank.
    """

    basis: Tensor
    error: float
    certain: bool


def span_of(columns: Tensor) -> Span:
    """The span of the columns of a matrix (rows, k)."""
    columns = columns.unique(dim=1) if columns.numel() else columns
    left, singular, _ = torch.linalg.svd(columns, full_matrices=False)
    if not len(singular) or not singular[0]:
        return Span(left[:, :0], 0.0, True)
    unit = rounding(columns)
    rank = int((singular > unit * singular[0]).sum())
    # The columns lie in the span of the axes of their nonzero rows: where it is all of that, nothing turns it.
    axes = (columns != 0).any(1)
    if rank == axes.sum():
        return Span(torch.eye(len(columns)).to(columns)[:, axes], 0.0, True)
    certain = rank == columns.shape[1] or rank == exact_rank(columns)
    return Span(left[:, :rank], unit * (singular[0] / singular[rank - 1]).item(), certain)


class Intersection(NamedTuple):
    """How the span of some columns meets that of others, 𝒱̄.

    `angle` is the smallest between both, in radians, `angle_error` how far it may be off, `condition` that of the columns
    beside an orthonormal basis of 𝒱̄, whose dimension is `rest_rank`.
    """

    verdict: Verdict
    rest_rank: int
    angle: float
    angle_error: float
    condition: float


def trivial_intersection(columns: Tensor, rest: Tensor) -> Intersection:
    """Whether columns (rows, k) are independent and their span meets that of the others, (rows, l), in zero only."""
    inside, others = span_of(columns), span_of(rest)
    beside = torch.cat([columns, others.basis], 1)
    both = independent(beside, torch.cat([columns, rest], 1), 2 * others.error)
    outside = inside.basis - others.basis @ (others.basis.T @ inside.basis)
    sine = torch.linalg.svdvals(outside)[-1].item()
    too_many = beside.shape[1] > len(beside)
    return Intersection(
        both.verdict if others.certain or too_many else Verdict.CLOSE,
        others.basis.shape[1],
        math.asin(min(1.0, sine)),
        inside.error + others.error + rounding(beside),
        both.condition,
    )
