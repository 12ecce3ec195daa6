"""Whether columns are independent and spans apart, with what rounding leaves open: holds, fails, or too close to tell.

Singular values decide where they are clear of rounding. Where they are not, the entries are taken as the rational numbers
that they are, and a rank without rounding may still say that it fails. It never says that it holds: then the columns are
independent, but by less than their own rounding, and the next model of the same meaning may break it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor


class Verdict(Enum):
    """What a predicate says. CLOSE: floats cannot tell, as the truth changes within rounding."""

    HOLDS = "holds"
    FAILS = "does not hold"
    CLOSE = "is too close to tell"


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on all of them at once."""
    verdicts = set(verdicts)
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


class Independence(NamedTuple):
    """Singular values of columns, and which of them count: those above `tolerance`, as numpy.linalg.matrix_rank judges."""

    verdict: Verdict
    rank: int
    smallest: float
    largest: float
    tolerance: float


def rounding(columns: Tensor) -> float:
    """How far singular values of columns (rows, k) whose largest is 1 may be off, by rounding of the entries and after."""
    return max(columns.shape) * torch.finfo(columns.dtype).eps


def independent(columns: Tensor) -> Independence:
    """Whether the columns of a matrix (rows, k) are linearly independent."""
    rows, n_columns = columns.shape
    if n_columns == 0:
        return Independence(Verdict.HOLDS, 0, 1.0, 1.0, 0.0)
    singular = torch.linalg.svdvals(columns)
    largest, tolerance = singular[0].item(), rounding(columns) * singular[0].item()
    rank = int((singular > tolerance).sum())
    smallest = singular[-1].item() if n_columns <= rows else 0.0
    if rank == n_columns or n_columns > rows:
        verdict = of_bool(rank == n_columns)
    else:
        exact = exact_rank(columns)
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


class Apart(NamedTuple):
    """How far the span of some columns is from that of others, 𝒱̄.

    `angle` is the smallest between both, in radians, `angle_error` how far it may be off, `condition` that of the columns
    beside an orthonormal basis of 𝒱̄, whose dimension is `rest_rank`.
    """

    verdict: Verdict
    rest_rank: int
    angle: float
    angle_error: float
    condition: float


def apart(columns: Tensor, rest: Tensor) -> Apart:
    """Whether columns (rows, k) are independent and their span meets that of the others, (rows, l), in zero only."""
    own, others = span_of(columns), span_of(rest)
    beside = torch.cat([columns, others.basis], 1)
    both, n_columns = independent(beside), beside.shape[1]
    outside = own.basis - others.basis @ (others.basis.T @ own.basis)
    sine = torch.linalg.svdvals(outside)[-1].item()
    if n_columns > len(beside):
        verdict = Verdict.FAILS
    elif not others.certain:
        verdict = Verdict.CLOSE
    elif both.smallest > both.tolerance + 2 * others.error:
        verdict = Verdict.HOLDS
    else:
        exact = exact_rank(torch.cat([columns, rest], 1))
        verdict = Verdict.CLOSE if exact in (None, n_columns) else Verdict.FAILS
    condition = both.largest / both.smallest if both.rank == n_columns else math.inf
    angle_error = own.error + others.error + rounding(beside)
    return Apart(verdict, n_columns - columns.shape[1], math.asin(min(1.0, sine)), angle_error, condition)
