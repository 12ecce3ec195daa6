"""Ranks and spans of columns of floats, with what rounding may change about them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hmmlib.theory.reports import ColumnsReport, Verdict, of_bool

MOST_EXACT = 2**18
"""Rows times columns times the lesser of both, up to which an exact rank is computed. That takes some seconds."""


def exact_rank(columns: Tensor) -> int | None:
    """Compute the rank of a matrix whose entries are taken as the rational numbers that they are.

    Args:
        columns: The matrix, (rows, k).

    Returns:
        The rank, or None if the matrix is larger than `MOST_EXACT`.
    """
    if columns.numel() * min(columns.shape) > MOST_EXACT:
        return None
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    integers = []
    for row in columns.tolist():
        ratios = [entry.as_integer_ratio() for entry in row]
        # Each denominator is a power of two, so the largest is a common one. A factor of a row changes no rank.
        common = max(denominator for _, denominator in ratios)
        integers.append([ZZ(numerator * (common // denominator)) for numerator, denominator in ratios])
    return DomainMatrix(integers, tuple(columns.shape), ZZ).rank()


def rounding(columns: Tensor) -> float:
    """Return how far rounding may move the singular values of columns, (rows, k), if the largest of them is 1."""
    return max(columns.shape) * torch.finfo(columns.dtype).eps


class Span(NamedTuple):
    """The span of columns."""

    basis: Tensor
    """An orthonormal basis, (rows, rank)."""
    error: float
    """By how much rounding may have turned the basis: the sine of an angle."""
    certain: bool
    """Whether the rank is exact. Otherwise the exact span is larger than the one within rounding, or may be."""


def span_of(columns: Tensor) -> Span:
    """Compute the span of the columns of a matrix, (rows, k)."""
    if not columns.numel():
        return Span(columns, 0.0, True)
    columns = columns.unique(dim=1)
    left, singular_values, _ = torch.linalg.svd(columns, full_matrices=False)
    tolerance = rounding(columns)
    rank = int((singular_values > tolerance * singular_values[0]).sum())
    # The columns lie in the span of the axes of their nonzero rows. Where they span all of it, nothing turns the basis.
    axes = (columns != 0).any(1)
    if rank == axes.sum():
        every_axis = torch.eye(len(columns)).to(columns)
        return Span(every_axis[:, axes], 0.0, True)
    certain = rank == columns.shape[1] or rank == exact_rank(columns)
    error = tolerance * (singular_values[0] / singular_values[rank - 1]).item()
    return Span(left[:, :rank], error, certain)


def independence(assumption: str, columns: Tensor, exactly: Tensor | None = None, error: float = 0.0) -> ColumnsReport:
    """Decide whether the columns of a matrix are linearly independent.

    Singular values decide where they are clear of rounding, and of an error beyond it. Otherwise the exact rank
    decides. If the exact rank is full, the columns are independent by less than their own rounding, so the verdict is
    CLOSE.

    Args:
        assumption: What the report is called.
        columns: The matrix, (rows, k).
        exactly: The matrix whose exact rank counts, if the columns themselves were rounded.
        error: By how much a singular value may be wrong beyond rounding.
    """
    columns = columns.detach()
    n_columns = columns.shape[1]
    singular_values = torch.linalg.svdvals(columns)
    largest = singular_values[0].item()
    tolerance = rounding(columns) * largest
    rank = int((singular_values > tolerance).sum())

    can_be_independent = n_columns <= len(columns)
    smallest = singular_values[-1].item() if can_be_independent else 0.0
    verdict = of_bool(can_be_independent)
    if can_be_independent and smallest <= tolerance + error:
        exact = exact_rank(columns if exactly is None else exactly)
        verdict = Verdict.CLOSE if exact in (None, n_columns) else Verdict.FAILS
    condition = math.inf
    if verdict is not Verdict.FAILS and smallest > 0:
        condition = largest / smallest
    return ColumnsReport(
        assumption,
        verdict,
        f"{n_columns} columns of rank {rank}, smallest singular value {smallest:.3g} (tolerance {tolerance:.2g})",
        n_columns=n_columns,
        rank=rank,
        smallest_singular_value=smallest,
        largest_singular_value=largest,
        tolerance=tolerance,
        condition=condition,
    )
