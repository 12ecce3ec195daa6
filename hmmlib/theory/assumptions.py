"""The paper's assumptions as predicates. Each returns a report with the numbers behind the verdict, not a bare bool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from hmmlib.models.chains import chain_period
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.ranks import Verdict, apart, independent, of_bool, rounding, together
from hmmlib.validation import SUM_TOLERANCE, as_indices, as_weights, of_type

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


class AssumptionError(ValueError):
    """A theorem was asked for a model that breaks one of its assumptions, or may: `report` says how."""

    def __init__(self, report: Report):
        way_on = "; allow_close=True goes on all the same" if report.verdict is Verdict.CLOSE else ""
        super().__init__(f"{report.assumption} {report.verdict.value}: {report}{way_on}")
        self.report = report


@dataclass(frozen=True)
class Report:
    """`assumption` is the paper's name and number, `verdict` one of three. True in a condition where it holds."""

    assumption: str
    verdict: Verdict

    @property
    def holds(self) -> bool:
        """Whether the verdict is that it holds. Where this is False it fails, or is too close to tell."""
        return self.verdict is Verdict.HOLDS

    def __bool__(self) -> bool:
        return self.holds

    def require(self, allow_close: bool = False) -> Self:
        """The report itself where the assumption holds, or may hold if `allow_close`; AssumptionError otherwise."""
        of_type("allow_close", allow_close, bool)
        if not self.holds and not (allow_close and self.verdict is Verdict.CLOSE):
            raise AssumptionError(self)
        return self


@dataclass(frozen=True)
class IndependenceReport(Report):
    """Linear independence of columns, judged as numpy.linalg.matrix_rank does: singular values above `tolerance`.

    Where some are not, a rank without rounding says whether it fails; if not, it is too close to tell.
    """

    n_columns: int
    rank: int
    smallest_singular_value: float
    largest_singular_value: float
    tolerance: float

    @property
    def condition(self) -> float:
        """σ_max / σ_min; infinity where the columns are dependent, or within rounding of it."""
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


@dataclass(frozen=True)
class EssentialReport(Report):
    """Assumption 3.5, part by part: the columns of W at H*, states of supp(μ) outside H*, and how H* is reached.

    `sources` is the largest possible 𝓑: all states from which one step leads into H* only. `unreached` are the states of
    H* to which none of them leads.
    """

    columns: IndependenceReport
    uncovered: tuple[int, ...]
    sources: tuple[int, ...]
    unreached: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.columns}; states of supp(mu) outside H*: {list(self.uncovered)}; "
            f"states of H* that no step surely into H* reaches: {list(self.unreached)}"
        )


@dataclass(frozen=True)
class RecoveryReport(Report):
    """Assumptions 4.2, 4.5, D.5: the recoverable columns of W, and how far their span is from that of the others.

    `rest_rank` is the dimension of the other span (𝒱̄), `angle` the smallest angle between the two in radians, known to
    within `angle_error`, `condition` that of the recoverable columns beside an orthonormal basis of 𝒱̄: what a left
    inverse can magnify.
    """

    columns: IndependenceReport
    rest_rank: int
    angle: float
    angle_error: float
    condition: float

    def __str__(self) -> str:
        return (
            f"{self.columns}; smallest angle to the span of the others (dimension {self.rest_rank}): "
            f"{self.angle:.3g} (give or take {self.angle_error:.2g})"
        )


@dataclass(frozen=True)
class StationarityReport(Report):
    """Assumption 4.4: `regularity` as in Assumption 3.2, and `drift`, the largest |A P[H_0] / P[H_0] - 1| of a state.

    An equation holds in floats only within rounding: up to `tolerance`. Above it, but within what the sums of columns
    may be off, it is too close to tell.
    """

    regularity: RegularityReport
    drift: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"{self.regularity}; A P[H_0] differs from P[H_0] by a factor of up to 1 + {self.drift:.3g} "
            f"(tolerance {self.tolerance:.2g})"
        )


# Checks of what the predicates and the theorems are given


def as_mu(model: HMM | MemoryHMM, mu, *kinds: type) -> Tensor:
    """Check a model, which is of one of `kinds`, and μ; returns μ, (S,), or (M,) for a memory model, as `as_weights` does."""
    of_type("model", model, *kinds)
    return as_weights(mu, model.n_states if isinstance(model, HMM) else model.n_memory, model.emission)


def as_cell(model: MemoryHMM, cell: int) -> int:
    """Check a memory model and a cell j* of it. ValueError where it has no such."""
    (cell,) = as_indices("cell", [cell], of_type("model", model, MemoryHMM).n_cells)
    return cell


def as_recoverable(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> tuple[int, list[int]]:
    """Check a cell j* and its syntax states S*; returns both, S* sorted. ValueError where the model has no such."""
    return as_cell(model, cell), as_indices("syntax", syntax, model.n_syntax)


def recoverable_states(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> list[int]:
    """H* = {`cell`} × `syntax` as indices of hidden states, sorted. ValueError where the model has no such."""
    cell, syntax = as_recoverable(model, cell, syntax)
    return [cell * model.n_syntax + s for s in syntax]


def weighted_values(model: MemoryHMM, mu: Float[ArrayLike, " M"]) -> list[int]:
    """M* = supp(μ), the memory values that the task weighs. ValueError for a μ that does not fit the model."""
    return as_mu(model, mu, MemoryHMM).nonzero().squeeze(-1).tolist()


# The assumptions


def independence(assumption: str, columns: Tensor) -> IndependenceReport:
    """Whether the columns of a matrix (rows, k) are linearly independent."""
    found = independent(columns.detach())
    return IndependenceReport(
        assumption, found.verdict, columns.shape[1], found.rank, found.smallest, found.largest, found.tolerance
    )


def assumption_3_1(model: HMM) -> IndependenceReport:
    """Non-degeneracy: the columns of W are linearly independent."""
    of_type("model", model, HMM)
    return independence("Assumption 3.1 (non-degeneracy)", model.emission)


def assumption_3_2(model: HMM | MemoryHMM) -> RegularityReport:
    """Regularity: the chain H_0, H_1, … is ergodic (irreducible and aperiodic) and P[H_0] has full support."""
    of_type("model", model, HMM, MemoryHMM)
    irreducible, period = chain_period(model.transition)
    start = int((model.initial > 0).sum())
    verdict = of_bool(irreducible and period == 1 and start == model.n_states)
    return RegularityReport("Assumption 3.2 (regularity)", verdict, irreducible, period, start, model.n_states)


def assumption_3_5(model: HMM, mu: Float[ArrayLike, " S"], essential: Sequence[int]) -> EssentialReport:
    """Relaxed non-degeneracy for the set H* = `essential`.

    The columns of W at H* are independent, supp(μ) ⊆ H*, and H* = ∪_{h ∈ 𝓑} supp(A_{:,h}) for some set 𝓑 of states.
    ValueError for a μ or a set that does not fit the model.
    """
    mu, essential = as_mu(model, mu, HMM), as_indices("essential", essential, model.n_states)
    inside = torch.zeros(model.n_states, dtype=torch.bool, device=model.device)
    inside[essential] = True
    columns = independence("columns of W at H*", model.emission[:, essential])
    follows = model.transition.detach() > 0
    into = ~(follows & ~inside[:, None]).any(0)  # from these states one step leads into H* only
    uncovered = (mu != 0) & ~inside
    unreached = inside & ~(follows & into).any(1)
    verdict = together([columns.verdict, of_bool(not uncovered.any() and not unreached.any())])
    states = [tuple(part.nonzero().squeeze(-1).tolist()) for part in (uncovered, into, unreached)]
    return EssentialReport("Assumption 3.5 (relaxed non-degeneracy)", verdict, columns, *states)


def essential_states(model: HMM, mu: Float[ArrayLike, " S"]) -> list[int] | None:
    """Some set H* for which Assumption 3.5 holds, or None where floats can vouch for none.

    A set is a union of supports of columns of A. Independence is inherited by subsets, so it is enough to try unions
    that are built by covering one state of supp(μ) at a time.
    """
    wanted = frozenset(as_mu(model, mu, HMM).nonzero().squeeze(-1).tolist())
    if not independence("", model.emission[:, sorted(wanted)]):
        return None
    steps = {frozenset(column.nonzero().squeeze(-1).tolist()) for column in model.transition.T}
    seen, open_sets = set(), [frozenset()]
    while open_sets:
        states = open_sets.pop()
        missing = wanted - states
        if not missing:
            return sorted(states)
        for union in {states | step for step in steps if min(missing) in step} - seen:
            seen.add(union)
            if len(union) <= model.n_tokens and independence("", model.emission[:, sorted(union)]):
                open_sets.append(union)
    return None


def recoverable_columns(
    model: MemoryHMM, cell: int, syntax: Sequence[int], values: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """The columns of W at M* × H*, H* = {j*} × S*, (X, k), ordered by syntax state, then value; and the others, (X, l).

    With `values` (M* = supp(μ), Assumption D.5) the others are those at M* × ({j*} × S \\ S*) and at all values of
    the other cells; without (Assumption 4.2), M* is all of M.
    """
    cell, syntax = as_recoverable(model, cell, syntax)
    values = as_indices("values", range(model.n_memory) if values is None else values, model.n_memory)
    own = cell * model.n_syntax
    table = model.emission.detach()
    recoverable = [table[:, m, own + s] for s in syntax for m in values]
    rest = [table[:, m, own + s] for s in set(range(model.n_syntax)) - set(syntax) for m in values]
    other = [h for h in range(model.n_states) if not own <= h < own + model.n_syntax]
    rest += [table[:, m, h] for h in other for m in range(model.n_memory)]
    return torch.stack(recoverable, 1), torch.stack(rest, 1) if rest else table.new_zeros(len(table), 0)


def _recovery(assumption: str, model: MemoryHMM, cell: int, syntax, values) -> RecoveryReport:
    columns, rest = recoverable_columns(model, cell, syntax, values)
    own, (verdict, *numbers) = independence("columns of W at M* x H*", columns), apart(columns, rest)
    return RecoveryReport(assumption, together([own.verdict, verdict]), own, *numbers)


def assumption_4_2(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> RecoveryReport:
    """Recoverable states H* = {`cell`} × `syntax`: the columns of W at M × H* are independent, and their span meets
    that of all other columns in zero only. ValueError for a cell or a syntax state that the model does not have.
    """
    return _recovery("Assumption 4.2 (recoverable states)", model, cell, syntax, None)


def assumption_4_4(model: HMM | MemoryHMM) -> StationarityReport:
    """Stationarity: Assumption 3.2 holds and P[H_0] = A P[H_0], state by state, within rounding."""
    regularity, start = assumption_3_2(model), model.initial.detach()
    after = model.transition.detach() @ start
    drift = torch.where(after == start, 0, after / start - 1).abs().max().item()
    tolerance = 4 * rounding(model.transition)
    flows = model.transition.detach() * start
    lost = (flows < torch.finfo(model.dtype).tiny) & (model.transition > 0) & (start > 0)  # too small for floats
    close = lost.any() or tolerance < drift <= SUM_TOLERANCE[model.dtype]
    verdict = together([regularity.verdict, Verdict.CLOSE if close else of_bool(drift <= tolerance)])
    return StationarityReport("Assumption 4.4 (stationarity)", verdict, regularity, drift, tolerance)


def assumption_4_5(model: MemoryHMM, mu: Float[ArrayLike, " M"], syntax: Sequence[int]) -> RecoveryReport:
    """Assumption 4.2 relaxed to the memory values in supp(μ), for one memory cell. ValueError for more cells."""
    if of_type("model", model, MemoryHMM).n_cells > 1:
        raise ValueError(f"Assumption 4.5 is about one memory cell, not {model.n_cells}: see assumption_d_5")
    return _recovery("Assumption 4.5 (recoverable states)", model, 0, syntax, weighted_values(model, mu))


def assumption_d_5(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> RecoveryReport:
    """Assumption 4.5 for several cells: M* × H* against M* × ({j*} × S \\ S*) and all values of the other cells."""
    return _recovery("Assumption D.5 (recoverable states)", model, cell, syntax, weighted_values(model, mu))
