"""The paper's assumptions as predicates. Each returns a report with the numbers behind the verdict, not a bare bool."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from hmmlib.models.hmm import HMM, MemoryHMM, chain_period
from hmmlib.validation import SUM_TOLERANCE, as_indices, as_weights, integer, of_type

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


class Verdict(Enum):
    """What a predicate finds. CLOSE: rounding leaves it open, as the truth changes within it."""

    HOLDS = "holds"
    FAILS = "does not hold"
    CLOSE = "is too close to tell"


def all_of(*verdicts: Verdict) -> Verdict:
    """The verdict on all of them at once."""
    return next((verdict for verdict in (Verdict.FAILS, Verdict.CLOSE) if verdict in verdicts), Verdict.HOLDS)


def of_bool(holds: bool) -> Verdict:
    """The verdict where nothing was rounded."""
    return Verdict.HOLDS if holds else Verdict.FAILS


class AssumptionError(ValueError):
    """The model breaks an assumption of the theorem: `report` has the numbers."""

    def __init__(self, report: Report):
        super().__init__(f"{report.assumption} {report.verdict.value}: {report}")
        self.report = report


@dataclass(frozen=True)
class Report:
    """What a predicate returns: true in a condition where the assumption holds, and printed as its numbers, `summary`.

    `assumption` is the paper's name and number. Numbers that an assumption does not have are None:

    - independent columns (3.1): `n_columns`; `rank`, the number of singular values above `tolerance`; the smallest
      and the largest of these; `condition`, their ratio, infinity where the columns are dependent.
    - regularity (3.2): whether the chain is `irreducible`, its `period` (ergodic means irreducible and 1), and
      `start_support`, on how many of `n_states` P[H_0] is positive.
    - essential states (3.5): `columns` is the report on the columns of W at H*, `uncovered` the states of supp(μ)
      outside H*, `sources` all states from which one step leads into H* only (the largest possible 𝓑), and
      `unreached` the states of H* to which none of them leads.
    - recoverable states (4.2, 4.5, D.5): `columns` is the report on the columns of W at M* × H*, `rest_rank` the
      dimension of the span of the others (𝒱̄), `angle` the smallest angle between both spans in radians, known to
      within `angle_error`, and `condition` that of the columns beside an orthonormal basis of 𝒱̄: what a left inverse
      can magnify.
    - stationarity (4.4): `regularity` is the report on Assumption 3.2, `drift` the largest |A P[H_0] / P[H_0] - 1| of
      a state.
    """

    assumption: str
    verdict: Verdict
    summary: str
    n_columns: int | None = None
    rank: int | None = None
    smallest_singular_value: float | None = None
    largest_singular_value: float | None = None
    tolerance: float | None = None
    condition: float | None = None
    irreducible: bool | None = None
    period: int | None = None
    start_support: int | None = None
    n_states: int | None = None
    columns: Report | None = None
    uncovered: tuple[int, ...] | None = None
    sources: tuple[int, ...] | None = None
    unreached: tuple[int, ...] | None = None
    rest_rank: int | None = None
    angle: float | None = None
    angle_error: float | None = None
    regularity: Report | None = None
    drift: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the verdict is that it holds. Where this is False it fails, or is too close to tell."""
        return self.verdict is Verdict.HOLDS

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.summary

    def require(self) -> Self:
        """The report itself, with a warning where the verdict is CLOSE. AssumptionError where the assumption fails."""
        if self.verdict is Verdict.FAILS:
            raise AssumptionError(self)
        if not self.holds:
            warnings.warn(f"{self.assumption} {self.verdict.value}: {self}.", stacklevel=3)
        return self


# What the predicates and the theorems are given, checked: ValueError where it does not fit the model


def as_mu(model: HMM | MemoryHMM, mu, *kinds: type) -> Tensor:
    """The weights μ of a task on a model of one of `kinds`, (S,), or (M,) for a memory model."""
    of_type("model", model, *kinds)
    return as_weights(mu, model.n_states if isinstance(model, HMM) else model.n_memory, model.emission)


def as_cell(model: MemoryHMM, cell: int) -> int:
    """A cell j* of a memory model."""
    return integer("cell", cell, 0, of_type("model", model, MemoryHMM).n_cells - 1)


def recoverable_states(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> list[int]:
    """H* = {j*} × S* as indices of hidden states, sorted."""
    first = as_cell(model, cell) * model.n_syntax
    return [first + s for s in as_indices("syntax", syntax, model.n_syntax)]


def weighted_values(model: MemoryHMM, mu: Float[ArrayLike, " M"]) -> list[int]:
    """M* = supp(μ), the memory values that the task weighs. ValueError for a μ that does not fit the model."""
    return as_mu(model, mu, MemoryHMM).nonzero().flatten().tolist()


# Ranks and spans of columns of floats


MOST_EXACT = 2**18
"""Rows times columns times the less of both, up to which an exact rank is found: some seconds."""


def exact_rank(columns: Tensor) -> int | None:
    """The rank of a matrix (rows, k), its entries taken as the rational numbers they are; None above `MOST_EXACT`."""
    if columns.numel() * min(columns.shape) > MOST_EXACT:
        return None
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    ratios = [[entry.as_integer_ratio() for entry in row] for row in columns.tolist()]
    # A row's rank does not change with its unit.
    whole = [[ZZ(top * (max(b for _, b in row) // bottom)) for top, bottom in row] for row in ratios]
    return DomainMatrix(whole, tuple(columns.shape), ZZ).rank()


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
    if not columns.numel():
        return Span(columns, 0.0, True)
    columns = columns.unique(dim=1)
    left, singular, _ = torch.linalg.svd(columns, full_matrices=False)
    unit = rounding(columns)
    rank = int((singular > unit * singular[0]).sum())
    # The columns lie in the span of the axes of their nonzero rows: where it is all of that, nothing turns it.
    axes = (columns != 0).any(1)
    if rank == axes.sum():
        return Span(torch.eye(len(columns)).to(columns)[:, axes], 0.0, True)
    certain = rank == columns.shape[1] or rank == exact_rank(columns)
    return Span(left[:, :rank], unit * (singular[0] / singular[rank - 1]).item(), certain)


# The assumptions


def independence(assumption: str, columns: Tensor, exactly: Tensor | None = None, error: float = 0.0) -> Report:
    """Whether the columns of a matrix (rows, k) are linearly independent.

    Singular values decide where they are clear of rounding, and of an `error` beyond it. Where they are not, the exact
    rank does, of the entries as the rational numbers that they are (or of `exactly`, where `columns` are rounded). If
    that is full, the columns are independent by less than their own rounding, and the verdict is CLOSE.
    """
    columns = columns.detach()
    n_columns, singular = columns.shape[1], torch.linalg.svdvals(columns)
    largest, tolerance = singular[0].item(), rounding(columns) * singular[0].item()
    rank, few = int((singular > tolerance).sum()), n_columns <= len(columns)
    smallest = singular[-1].item() if few else 0.0
    verdict = of_bool(few)
    if few and smallest <= tolerance + error:
        exact = exact_rank(columns if exactly is None else exactly)
        verdict = Verdict.CLOSE if exact in (None, n_columns) else Verdict.FAILS
    condition = math.inf if verdict is Verdict.FAILS or not smallest else largest / smallest
    words = f"{n_columns} columns of rank {rank}, smallest singular value {smallest:.3g} (tolerance {tolerance:.2g})"
    return Report(assumption, verdict, words, n_columns, rank, smallest, largest, tolerance, condition)


def assumption_3_1(model: HMM) -> Report:
    """Non-degeneracy: the columns of W are linearly independent."""
    of_type("model", model, HMM)
    return independence("Assumption 3.1 (non-degeneracy)", model.emission)


def assumption_3_2(model: HMM | MemoryHMM) -> Report:
    """Regularity: the chain H_0, H_1, … is ergodic (irreducible and aperiodic) and P[H_0] has full support."""
    of_type("model", model, HMM, MemoryHMM)
    irreducible, period = chain_period(model.transition)
    support, n_states = int((model.initial > 0).sum()), model.n_states
    chain = f"irreducible of period {period}" if irreducible else "reducible"
    numbers = dict(irreducible=irreducible, period=period, start_support=support, n_states=n_states)
    return Report(
        "Assumption 3.2 (regularity)",
        of_bool(irreducible and period == 1 and support == n_states),
        f"the chain is {chain}; P[H_0] is positive on {support} of {n_states} states",
        **numbers,
    )


def assumption_3_5(model: HMM, mu: Float[ArrayLike, " S"], essential: Sequence[int]) -> Report:
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
    masks = {"uncovered": (mu != 0) & ~inside, "sources": into, "unreached": inside & ~(follows & into).any(1)}
    states = {name: tuple(mask.nonzero().flatten().tolist()) for name, mask in masks.items()}
    return Report(
        "Assumption 3.5 (relaxed non-degeneracy)",
        all_of(columns.verdict, of_bool(not states["uncovered"] and not states["unreached"])),
        f"{columns}; states of supp(mu) outside H*: {list(states['uncovered'])}; "
        f"states of H* that no step surely into H* reaches: {list(states['unreached'])}",
        columns=columns,
        **states,
    )


def essential_states(model: HMM, mu: Float[ArrayLike, " S"]) -> list[int] | None:
    """Some set H* for which Assumption 3.5 holds; None if there is none, or if rounding leaves it open.

    A set is a union of supports of columns of A. Independence is inherited by subsets, so it is enough to try unions
    that are built by covering one state of supp(μ) at a time.
    """
    wanted = frozenset(as_mu(model, mu, HMM).nonzero().flatten().tolist())
    steps = {frozenset(column.nonzero().flatten().tolist()) for column in model.transition.T}

    def allowed(states: frozenset[int]) -> bool:
        return len(states) <= model.n_tokens and independence("", model.emission[:, sorted(states)]).holds

    seen, open_sets = set(), [frozenset()] if allowed(wanted) else []
    while open_sets:
        states = open_sets.pop()
        missing = wanted - states
        if not missing:
            return sorted(states)
        unions = {states | step for step in steps if min(missing) in step} - seen
        seen |= unions
        open_sets += filter(allowed, unions)
    return None


def recoverable_columns(
    model: MemoryHMM, cell: int, syntax: Sequence[int], values: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """The columns of W at M* × H*, H* = {j*} × S*, (X, k), by syntax state, then value; and the others, (X, l).

    With `values` (M* = supp(μ), Assumption D.5) the others are those at M* × ({j*} × S \\ S*) and at all values of
    the other cells; without (Assumption 4.2), M* is all of M.
    """
    states = recoverable_states(model, cell, syntax)
    values = as_indices("values", range(model.n_memory) if values is None else values, model.n_memory)
    own = range(cell * model.n_syntax, (cell + 1) * model.n_syntax)
    rest = [(m, h) for h in own if h not in states for m in values]
    rest += [(m, h) for h in range(model.n_states) if h not in own for m in range(model.n_memory)]
    table = model.emission.detach()
    recoverable = torch.stack([table[:, m, h] for h in states for m in values], 1)
    return recoverable, torch.stack([table[:, m, h] for m, h in rest], 1) if rest else recoverable[:, :0]


def _recovery(assumption: str, model: MemoryHMM, cell: int, syntax, values) -> Report:
    recoverable, others = recoverable_columns(model, cell, syntax, values)
    inside, rest = span_of(recoverable), span_of(others)
    beside = torch.cat([recoverable, rest.basis], 1)
    columns = independence("columns of W at M* x H*", recoverable)
    both = independence("both", beside, torch.cat([recoverable, others], 1), 2 * rest.error)
    certain = rest.certain or beside.shape[1] > len(beside)
    outside = inside.basis - rest.basis @ (rest.basis.T @ inside.basis)
    angle = math.asin(min(1.0, torch.linalg.svdvals(outside)[-1].item()))
    rank, error = rest.basis.shape[1], inside.error + rest.error + rounding(beside)
    numbers = dict(columns=columns, rest_rank=rank, angle=angle, angle_error=error, condition=both.condition)
    return Report(
        f"{assumption} (recoverable states)",
        all_of(columns.verdict, both.verdict if certain else Verdict.CLOSE),
        f"{columns}; smallest angle to the span of the others (dimension {rank}): {angle:.3g} "
        f"(give or take {error:.2g})",
        **numbers,
    )


def assumption_4_2(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> Report:
    """Recoverable states H* = {`cell`} × `syntax`: the columns of W at M × H* are independent, and their span meets
    that of all other columns in zero only. ValueError for a cell or a syntax state that the model does not have.
    """
    return _recovery("Assumption 4.2", model, cell, syntax, None)


def assumption_4_4(model: HMM | MemoryHMM) -> Report:
    """Stationarity: Assumption 3.2 holds and P[H_0] = A P[H_0] in every state, up to rounding.

    Rounding is that of the sums, or of P[H_0] as an eigenvector that was computed: then a rare state has as large an
    error as the most frequent one, which may be up to 1e-11 of its probability (in float64). The verdict is CLOSE where
    it is more than that, where no state differs by more than 1e-9 of its probability (columns of A sum to 1 within
    1e-9), and where a step is too unlikely for a float.
    """
    regularity, start = assumption_3_2(model), model.initial.detach()
    after = model.transition.detach() @ start
    drifts = torch.where(after == start, 0, after / start - 1).abs()
    unit, loose = 4 * rounding(model.transition), SUM_TOLERANCE[model.dtype]
    of_an_eigenvector = (after - start).abs() <= unit * start.max()
    holds = ((drifts <= unit) | (of_an_eigenvector & (drifts <= loose / 100))).all()
    flows = model.transition.detach() * start
    lost = (flows < torch.finfo(model.dtype).tiny) & (model.transition > 0) & (start > 0)  # too small for floats
    close = lost.any() or (not holds and ((drifts <= loose) | of_an_eigenvector).all())
    drift = max(drifts.max().item(), float(lost.any()))  # all of a share may be lost
    return Report(
        "Assumption 4.4 (stationarity)",
        all_of(regularity.verdict, Verdict.CLOSE if close else of_bool(bool(holds))),
        f"{regularity}; A P[H_0] differs from P[H_0] by a factor of up to 1 + {drift:.3g}",
        regularity=regularity,
        drift=drift,
    )


def assumption_4_5(model: MemoryHMM, mu: Float[ArrayLike, " M"], syntax: Sequence[int]) -> Report:
    """Assumption 4.2 relaxed to the memory values in supp(μ), for one memory cell. ValueError for more cells."""
    if of_type("model", model, MemoryHMM).n_cells > 1:
        raise ValueError(f"Assumption 4.5 is about one memory cell, not {model.n_cells}: see assumption_d_5")
    return _recovery("Assumption 4.5", model, 0, syntax, weighted_values(model, mu))


def assumption_d_5(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> Report:
    """Assumption 4.5 for several cells: M* × H* against M* × ({j*} × S \\ S*) and all values of the other cells."""
    return _recovery("Assumption D.5", model, cell, syntax, weighted_values(model, mu))
