"""The paper's assumptions as predicates. Each returns a verdict and the numbers behind it, not a bare bool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.models.chains import chain_period
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.ranks import exact_rank as exact_rank  # where others import it from
from hmmlib.theory.ranks import independence, rounding, span_of
from hmmlib.theory.reports import AssumptionError as AssumptionError  # where others import it from
from hmmlib.theory.reports import (
    ColumnsReport,
    EssentialReport,
    RecoveryReport,
    RegularityReport,
    StationarityReport,
    Verdict,
    all_of,
    of_bool,
)
from hmmlib.theory.reports import Report as Report
from hmmlib.validation import SUM_TOLERANCE, as_indices, as_weights, integer, of_type

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


# What the predicates and the theorems take, checked


def as_mu(model: HMM | MemoryHMM, mu, *kinds: type) -> Tensor:
    """Check a task's weights μ against a model of one of these kinds, (S,), or (M,) for a memory model."""
    of_type("model", model, *kinds)
    length = model.n_states if isinstance(model, HMM) else model.n_memory
    return as_weights(mu, length, model.emission)


def as_cell(model: MemoryHMM, cell: int) -> int:
    """Check the index j* of a cell of a memory model."""
    return integer("cell", cell, 0, of_type("model", model, MemoryHMM).n_cells - 1)


def recoverable_states(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> list[int]:
    """Return H* = {j*} × S*, the hidden states of cell j* with a syntax state in S*, as sorted indices."""
    first = as_cell(model, cell) * model.n_syntax
    return [first + s for s in as_indices("syntax", syntax, model.n_syntax)]


def weighted_values(model: MemoryHMM, mu: Float[ArrayLike, " M"]) -> list[int]:
    """Return M* = supp(μ), the memory values to which a task gives a weight other than 0.

    Args:
        model: The model.
        mu: μ, the task's weights on the memory values, (M,).

    Raises:
        ValueError: The weights do not fit the model.
    """
    return as_mu(model, mu, MemoryHMM).nonzero().flatten().tolist()


# Section 3


def assumption_3_1(model: HMM) -> ColumnsReport:
    """Decide whether the columns of W are linearly independent, so that the model is non-degenerate.

    Args:
        model: The model, whose emission matrix is W.

    Example:
        >>> from hmmlib import assumption_3_1, hidden_twins
        >>> print(assumption_3_1(hidden_twins()))
        4 columns of rank 3, smallest singular value 0 (tolerance 1.3e-15)
    """
    of_type("model", model, HMM)
    return independence("Assumption 3.1 (non-degeneracy)", model.emission)


def assumption_3_2(model: HMM | MemoryHMM) -> RegularityReport:
    """Decide whether the chain is irreducible and aperiodic and P[H_0] is never 0, so that the model is regular.

    Args:
        model: The model.

    Example:
        >>> from hmmlib import HMM, assumption_3_2
        >>> report = assumption_3_2(HMM([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]))
        >>> report.holds, report.period
        (False, 2)
    """
    of_type("model", model, HMM, MemoryHMM)
    irreducible, period = chain_period(model.transition)
    support = int((model.initial > 0).sum())
    n_states = model.n_states
    chain = f"irreducible of period {period}" if irreducible else "reducible"
    return RegularityReport(
        "Assumption 3.2 (regularity)",
        of_bool(irreducible and period == 1 and support == n_states),
        f"the chain is {chain}; P[H_0] is positive on {support} of {n_states} states",
        irreducible=irreducible,
        period=period,
        start_support=support,
        n_states=n_states,
    )


def _indices(entries: Tensor) -> tuple[int, ...]:
    """Return the indices of the entries that are true, or not zero."""
    return tuple(entries.nonzero().flatten().tolist())


def assumption_3_5(model: HMM, mu: Float[ArrayLike, " S"], essential: Sequence[int]) -> EssentialReport:
    """Decide whether H* satisfies relaxed non-degeneracy.

    The columns of W at H* are independent, and H* contains supp(μ). Moreover H* = ∪_{h ∈ 𝓑} supp(A_{:,h}), which is
    where one step from some set 𝓑 of states can lead.

    Args:
        model: The model.
        mu: μ, the task's weights on the hidden states, (S,).
        essential: H*, indices of states.

    Raises:
        ValueError: The weights or the states do not fit the model.

    Example:
        >>> from hmmlib import assumption_3_5, hidden_twins
        >>> report = assumption_3_5(hidden_twins(), [1.0, 0.0, -1.0, 0.0], essential=[0, 2])
        >>> report.holds, report.sources
        (True, (0,))
    """
    mu = as_mu(model, mu, HMM)
    essential = as_indices("essential", essential, model.n_states)
    inside = torch.zeros(model.n_states, dtype=torch.bool, device=model.device)
    inside[essential] = True
    columns = independence("columns of W at H*", model.emission[:, essential])

    can_step = model.transition.detach() > 0  # can_step[h', h] is true where a step can lead from h to h'.
    leads_outside = can_step[~inside].any(0)
    # The largest possible 𝓑 are all states from which no step leads outside H*. The supports of their columns of A lie
    # in H*, and their union has to be all of H*.
    is_reached = can_step[:, ~leads_outside].any(1)
    uncovered = _indices((mu != 0) & ~inside)
    unreached = _indices(inside & ~is_reached)
    # What fails comes first, and what holds is left out.
    details = []
    if uncovered:
        details.append(f"states of supp(mu) outside H*: {list(uncovered)}")
    if unreached:
        details.append(f"states of H* that no source leads to: {list(unreached)}")
    if columns.verdict is not Verdict.HOLDS or not details:
        details.append(str(columns))
    return EssentialReport(
        "Assumption 3.5 (relaxed non-degeneracy)",
        all_of(columns.verdict, of_bool(not uncovered and not unreached)),
        "; ".join(details),
        columns=columns,
        uncovered=uncovered,
        sources=_indices(~leads_outside),
        unreached=unreached,
    )


def essential_states(model: HMM, mu: Float[ArrayLike, " S"]) -> list[int] | None:
    """Find a set H* for which Assumption 3.5 holds.

    H* has to be a union of supports of columns of A, and it has to contain supp(μ). The search begins with the empty
    union. As long as a state of supp(μ) is missing, each support that contains the first missing state is added in
    turn. A union whose columns of W are dependent is dropped, because they stay dependent in every larger set.

    Args:
        model: The model.
        mu: μ, the task's weights on the hidden states, (S,).

    Returns:
        The states of H*, sorted. None means that there is no such set, or that rounding leaves this open.

    Example:
        >>> from hmmlib import essential_states, hidden_twins
        >>> essential_states(hidden_twins(), [1.0, 0.0, -1.0, 0.0])
        [0, 2]
    """
    support = frozenset(_indices(as_mu(model, mu, HMM)))
    supports_of_columns = {frozenset(_indices(column)) for column in model.transition.T}

    def independent(states: frozenset[int]) -> bool:
        if len(states) > model.n_tokens:
            return False
        columns = model.emission[:, sorted(states)]
        return independence("columns of W at a set of states", columns).holds

    if not independent(support):
        return None
    tried = set()
    candidates = [frozenset()]
    while candidates:
        states = candidates.pop()
        missing = support - states
        if not missing:
            return sorted(states)
        first_missing = min(missing)
        unions = {states | reached for reached in supports_of_columns if first_missing in reached}
        unions = unions - tried
        tried |= unions
        candidates += filter(independent, unions)
    return None


# Section 4


def recoverable_columns(
    model: MemoryHMM, cell: int, syntax: Sequence[int], values: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Split the columns of W into those to be recovered, at M* × H* with H* = {j*} × S*, and the others.

    Args:
        model: The model.
        cell: j*.
        syntax: S*, indices of syntax states.
        values: M*, which is supp(μ) in Assumption D.5. None stands for all memory values, as in Assumption 4.2.

    Returns:
        The columns at M* × H*, (X, k), sorted by syntax state and then by value.
        The others, (X, l). For the other states of cell j* these are the columns at values in M*, and for the states of
        the other cells the columns at all values.
    """
    states = recoverable_states(model, cell, syntax)
    values = as_indices("values", range(model.n_memory) if values is None else values, model.n_memory)
    states_of_cell = range(cell * model.n_syntax, (cell + 1) * model.n_syntax)
    table = model.emission.detach()
    recoverable = []
    other_columns = []
    for h in states:
        recoverable += [table[:, m, h] for m in values]
    for h in states_of_cell:
        if h not in states:
            other_columns += [table[:, m, h] for m in values]
    for h in range(model.n_states):
        if h not in states_of_cell:
            other_columns += [table[:, m, h] for m in range(model.n_memory)]
    recoverable = torch.stack(recoverable, 1)
    return recoverable, torch.stack(other_columns, 1) if other_columns else recoverable[:, :0]


@without_autocast()
def _recovery(assumption: str, model: MemoryHMM, cell: int, syntax, values) -> RecoveryReport:
    """Decide whether the recoverable columns are independent, and their span meets that of the others only in 0.

    Both are true exactly if the recoverable columns and a basis of the others' span are independent together.
    """
    recoverable, other_columns = recoverable_columns(model, cell, syntax, values)
    inside = span_of(recoverable)
    outside = span_of(other_columns)
    columns = independence("columns of W at M* x H*", recoverable)

    with_basis = torch.cat([recoverable, outside.basis], 1)
    every_column = torch.cat([recoverable, other_columns], 1)
    # Turning a basis by an angle moves it, and so any singular value, by less than twice the sine of the angle.
    together = independence("columns with a basis of the others", with_basis, every_column, 2 * outside.error)
    too_many = with_basis.shape[1] > len(with_basis)  # Then they are dependent, whatever the exact span is.
    apart = together.verdict if outside.rank_is_exact or too_many else Verdict.CLOSE

    projection = outside.basis @ (outside.basis.T @ inside.basis)
    sine = torch.linalg.svdvals(inside.basis - projection)[-1].item()
    angle = math.asin(min(1.0, sine))
    angle_error = inside.error + outside.error + rounding(with_basis)
    rank = outside.basis.shape[1]
    return RecoveryReport(
        f"{assumption} (recoverable states)",
        all_of(columns.verdict, apart),
        f"{columns}; smallest angle to the span of the others (dimension {rank}): {angle:.3g} "
        f"(give or take {angle_error:.2g})",
        columns=columns,
        rest_rank=rank,
        angle=angle,
        angle_error=angle_error,
        condition=together.condition,
    )


def assumption_4_2(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> RecoveryReport:
    """Decide whether the states H* = {j*} × S* are recoverable.

    This means that the columns of W at M × H* are independent, and that their span meets that of the others only in 0.

    Args:
        model: The model.
        cell: j*.
        syntax: S*, indices of syntax states.

    Raises:
        ValueError: The model has no such cell or syntax state.

    Example:
        >>> from hmmlib import assumption_4_2, recoverable_twins
        >>> report = assumption_4_2(recoverable_twins(), cell=0, syntax=[0, 2, 3])
        >>> report.holds, report.columns.holds
        (False, True)
    """
    return _recovery("Assumption 4.2", model, cell, syntax, None)


@without_autocast()
def assumption_4_4(model: HMM | MemoryHMM) -> StationarityReport:
    """Decide whether the model is stationary, so that Assumption 3.2 holds and P[H_0] = A P[H_0] in every state.

    The two sides may differ by the rounding of a sum. If P[H_0] was computed as an eigenvector, they may also differ by
    the rounding of its largest probability, because the error is then as large in every state. For a regular model in
    float64 the verdicts mean:

    - HOLDS: In each state they differ by the rounding of a sum, or by a rounding of the largest probability that is at
      most 1e-11 of the state's own.
    - CLOSE: In each state they differ by at most 1e-9 of its probability, which is how far the sum of a column of A may
      be from 1, or by the rounding of the largest probability. The verdict is also CLOSE if a step is too unlikely for
      a float.
    - FAILS: In some state they differ by more.

    Example:
        >>> from hmmlib import HMM, assumption_4_4
        >>> model = HMM([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.5], [0.0, 0.5]], [0.25, 0.75])
        >>> report = assumption_4_4(model)
        >>> report.holds, report.drift
        (False, 1.0)
    """
    regularity = assumption_3_2(model)
    transition = model.transition.detach()
    start = model.initial.detach()
    after = transition @ start
    drifts = torch.where(after == start, 0, after / start - 1).abs()

    rounding_of_sum = 4 * rounding(model.transition)
    table_tolerance = SUM_TOLERANCE[model.dtype]
    like_an_eigenvector = (after - start).abs() <= rounding_of_sum * start.max()
    holds = ((drifts <= rounding_of_sum) | (like_an_eigenvector & (drifts <= table_tolerance / 100))).all()
    is_near = ((drifts <= table_tolerance) | like_an_eigenvector).all()

    is_possible = (transition > 0) & (start > 0)
    too_small = is_possible & (transition * start < torch.finfo(model.dtype).tiny)
    verdict = of_bool(bool(holds))
    if too_small.any() or (not holds and is_near):
        verdict = Verdict.CLOSE
    drift = drifts.max().item()
    if too_small.any():
        drift = max(drift, 1.0)  # All of a state's share may be lost.
    return StationarityReport(
        "Assumption 4.4 (stationarity)",
        all_of(regularity.verdict, verdict),
        f"{regularity}; A P[H_0] differs from P[H_0] by a factor of up to 1 + {drift:.3g}",
        regularity=regularity,
        drift=drift,
    )


def assumption_4_5(model: MemoryHMM, mu: Float[ArrayLike, " M"], syntax: Sequence[int]) -> RecoveryReport:
    """Decide whether states are recoverable at the memory values in M* = supp(μ), for a model with one memory cell.

    This relaxes Assumption 4.2, which looks at all memory values.

    Args:
        model: A model with one memory cell.
        mu: μ, the task's weights on the memory values, (M,).
        syntax: S*, indices of syntax states.

    Raises:
        ValueError: The model has several cells, or the weights or a syntax state do not fit it.

    Example:
        >>> from hmmlib import assumption_4_5, parity_memory_hmm
        >>> print(assumption_4_5(parity_memory_hmm(2, 0.1), [1.0, -1.0], [0, 1, 2, 3]).verdict)
        Verdict.FAILS
    """
    if of_type("model", model, MemoryHMM).n_cells > 1:
        raise ValueError(f"model must have one memory cell, not {model.n_cells}. Use assumption_d_5 for several cells")
    return _recovery("Assumption 4.5", model, 0, syntax, weighted_values(model, mu))


def assumption_d_5(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> RecoveryReport:
    """Decide whether states are recoverable at M* = supp(μ), as in Assumption 4.5, in a model with several cells.

    The span at M* × H* is compared with that at M* × ({j*} × S \\ S*) and at all values of the other cells.

    Args:
        model: The model.
        mu: μ, the task's weights on the memory values, (M,). Its support is M*.
        cell: j*.
        syntax: S*, indices of syntax states.

    Raises:
        ValueError: The weights, the cell or a syntax state do not fit the model.

    Example:
        >>> from hmmlib import assumption_d_5, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(2, n_memory=2, n_syntax=2, n_recoverable=1, values=2)
        >>> assumption_d_5(model, [1.0, -1.0], cell, syntax).holds
        True
    """
    return _recovery("Assumption D.5", model, cell, syntax, weighted_values(model, mu))
