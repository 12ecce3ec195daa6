"""Ranks and spans of columns of floats, and the verdicts that rounding leaves: holds, fails, or too close to tell."""

from __future__ import annotations

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
    """How far rounding may move the singular values of columns (rows, k), the largest of which is 1."""
    return max(columns.shape) * torch.finfo(columns.dtype).eps


class Span(NamedTuple):
    """An orthonormal basis (rows, rank) of the span of columns, and by how much it may be turned: an angle's sine.

    Where `certain` is False the columns have that rank only within rounding: their exact span is larger, or may be.
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
