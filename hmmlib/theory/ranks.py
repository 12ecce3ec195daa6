"""Ranks and spans of columns of floats, with what rounding may change about them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hmmlib.theory.reports import ColumnsReport, Verdict, of_bool

MOST_EXACT = 2**18
"""Rows times columns times the smaller of both, above which no exact rank is computed. Here it takes some seconds."""


def exact_rank(columns: Tensor) -> int | None:
    """Compute the rank of a matrix in exact arithmetic, which is possible because each float is a rational number.

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
        # Each denominator is a power of two, so the largest of a row is a common one.
        # Multiplying a row by it leaves the rank as it is.
        common = max(denominator for _, denominator in ratios)
        integers.append([ZZ(numerator * (common // denominator)) for numerator, denominator in ratios])
    return DomainMatrix(integers, tuple(columns.shape), ZZ).rank()


def rounding(columns: Tensor) -> float:
    """Return how far rounding may move a singular value of columns, (rows, k), as a share of the largest one."""
    return max(columns.shape) * torch.finfo(columns.dtype).eps


class Span(NamedTuple):
    """The span of columns."""

    basis: Tensor
    """An orthonormal basis, (rows, rank)."""
    error: float
    """The sine of the angle by which rounding may have turned the basis."""
    rank_is_exact: bool
    """Whether exact arithmetic is known to give the same rank. Otherwise the true span may be larger."""


def span_of(columns: Tensor) -> Span:
    """Compute the span of the columns of a matrix, (rows, k)."""
    if not columns.numel():
        return Span(columns, 0.0, True)
    columns = columns.unique(dim=1)
    left, singular_values, _ = torch.linalg.svd(columns, full_matrices=False)
    tolerance = rounding(columns)
    rank = int((singular_values > tolerance * singular_values[0]).sum())
    # All columns lie in the span of those axes on which some column is not zero.
    # If the rank is the number of these axes, then they are a basis, and rounding has no part in it.
    axes = (columns != 0).any(1)
    if rank == axes.sum():
        every_axis = torch.eye(len(columns), dtype=columns.dtype, device=columns.device)
        return Span(every_axis[:, axes], 0.0, True)
    rank_is_exact = rank == columns.shape[1] or rank == exact_rank(columns)
    error = tolerance * (singular_values[0] / singular_values[rank - 1]).item()
    return Span(left[:, :rank], error, rank_is_exact)


def independence(
    assumption: str, columns: Tensor, unrounded: Tensor | None = None, error: float = 0.0
) -> ColumnsReport:
    """Decide whether the columns of a matrix are linearly independent.

    The columns are independent if their smallest singular value is larger than rounding and `error` can make it.
    Otherwise the exact rank decides. If it is not full, the verdict is FAILS. If it is full, the columns are
    independent, but by less than rounding can hide, so the verdict is CLOSE. It is also CLOSE if the matrix is too
    large for an exact rank.

    Args:
        assumption: The name of the assumption in the report.
        columns: The matrix, (rows, k).
        unrounded: If the columns were computed, and so rounded, a matrix of the same span that was not. Its exact rank
            is taken instead.
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
        true_rank = exact_rank(columns if unrounded is None else unrounded)
        rank_may_be_full = true_rank is None or true_rank == n_columns
        verdict = Verdict.CLOSE if rank_may_be_full else Verdict.FAILS
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
