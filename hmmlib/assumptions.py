"""The paper's assumptions as predicates. Each returns a report with the numbers behind the verdict, not a bare bool."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hmmlib.hmm import HMM, MemoryHMM, reachable


class AssumptionError(ValueError):
    """A theorem was asked for a model that breaks one of its assumptions; `report` says how."""

    def __init__(self, report: Report):
        super().__init__(f"{report.assumption} does not hold: {report}")
        self.report = report


@dataclass(frozen=True)
class Report:
    """`assumption` is the paper's name and number, `holds` the verdict. True in a condition where it holds."""

    assumption: str
    holds: bool

    def __bool__(self) -> bool:
        return self.holds

    def require(self) -> None:
        """Raise AssumptionError unless the assumption holds."""
        if not self.holds:
            raise AssumptionError(self)


@dataclass(frozen=True)
class IndependenceReport(Report):
    """Linear independence of columns, judged as numpy.linalg.matrix_rank does: singular values above `tolerance`."""

    n_columns: int
    rank: int
    smallest_singular_value: float
    largest_singular_value: float
    tolerance: float

    @property
    def condition(self) -> float:
        """σ_max / σ_min; infinity where the columns are dependent."""
        return self.largest_singular_value / self.smallest_singular_value if self.holds else math.inf

    def __str__(self) -> str:
        return (
            f"{self.n_columns} columns of rank {self.rank}, smallest singular value "
            f"{self.smallest_singular_value:.3g} (tolerance {self.tolerance:.2g})"
        )


@dataclass(frozen=True)
class RegularityReport(Report):
    """Ergodicity (`irreducible`, `period` 1) and the support of P[H_0]."""

    irreducible: bool
    period: int
    start_support: int
    n_states: int

    def __str__(self) -> str:
        chain = f"irreducible of period {self.period}" if self.irreducible else "reducible"
        return f"the chain is {chain}; P[H_0] is positive on {self.start_support} of {self.n_states} states"


def independence(assumption: str, columns: Tensor) -> IndependenceReport:
    """Whether the columns of a matrix (rows, k) are linearly independent."""
    rows, n_columns = columns.shape
    singular = torch.linalg.svdvals(columns.detach())
    tolerance = max(rows, n_columns) * torch.finfo(columns.dtype).eps * singular[0].item()
    rank = int((singular > tolerance).sum())
    smallest = singular[-1].item() if n_columns <= rows else 0.0
    return IndependenceReport(assumption, rank == n_columns, n_columns, rank, smallest, singular[0].item(), tolerance)


def assumption_3_1(model: HMM) -> IndependenceReport:
    """Non-degeneracy: the columns of W are linearly independent, as far as floats can tell."""
    if not isinstance(model, HMM):
        raise TypeError(f"Assumption 3.1 is about an HMM, not {type(model).__name__}")
    return independence("Assumption 3.1 (non-degeneracy)", model.emission)


def chain_period(transition: Tensor) -> tuple[bool, int]:
    """Whether the chain is irreducible, and its period (0 where it is reducible)."""
    if not reachable(transition).all():
        return False, 0
    follows = (transition.detach().T > 0).cpu()  # follows[h, h']: h' can come after h
    level = torch.full((len(follows),), -1)
    frontier, depth = torch.arange(len(follows)) == 0, 0
    while frontier.any():
        level[frontier] = depth
        frontier, depth = follows[frontier].any(0) & (level < 0), depth + 1
    # Every cycle's length is a sum of these differences, and they generate the same gcd (Denardo 1977).
    source, target = follows.nonzero(as_tuple=True)
    return True, math.gcd(*(level[source] + 1 - level[target]).tolist())


def assumption_3_2(model: HMM | MemoryHMM) -> RegularityReport:
    """Regularity: the chain H_0, H_1, … is ergodic (irreducible and aperiodic) and P[H_0] has full support."""
    irreducible, period = chain_period(model.transition)
    support = int((model.initial > 0).sum())
    holds = irreducible and period == 1 and support == model.n_states
    return RegularityReport("Assumption 3.2 (regularity)", holds, irreducible, period, support, model.n_states)
