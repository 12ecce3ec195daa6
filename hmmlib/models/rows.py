"""The other convention, of hmmlearn and dynamax: rows that sum to 1, and a start that emits the first token.

That is more than a transpose. There, the start distribution is that of the state that emits the first token; here,
P[H_0] comes one step before it. So a model in rows is a model in columns where A P[H_0] is its start.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmlib.validation import SUM_TOLERANCE, as_distribution, of_shape

TAKE_ROWS = (
    "; its rows do. Here column h is the distribution given state h, and initial is P[H_0], one step before the first "
    "token, so that the transposes alone make another model than "
    "HMM.from_rows(startprob, transmat, emissionprob), which takes rows"
)
TAKE_COLUMNS = "; its columns do, as HMM(transition, emission, initial) takes them"
HMMLEARN = "startprob_", "transmat_", "emissionprob_"
"""What hmmlearn calls the arrays of `Rows`."""


class UnclearOrientation(UserWarning):
    """The arrays of a model could be meant by columns or by rows, and these are two models."""


class Rows(NamedTuple):
    """A model in rows: `startprob` (S,), of the first token's state; `transmat` (S, S); `emissionprob` (S, X)."""

    startprob: Tensor
    transmat: Tensor
    emissionprob: Tensor


def of_one_kind(**arrays: Tensor) -> None:
    """ValueError unless these arrays of a model have one dtype and one device."""
    if len({(array.dtype, array.device) for array in arrays.values()}) > 1:
        found = ", ".join(f"{name} {array.dtype} on {array.device}" for name, array in arrays.items())
        raise ValueError(f"a model's arrays must share one dtype and one device, not {found}")


def to_columns(startprob, transmat, emissionprob) -> tuple[Tensor, Tensor, Tensor]:
    """A, W and P[H_0] of the model with the same law of texts: of the same states where that can be, or with one more.

    The one more comes last, is H_0 and nothing else, and has `startprob` as its column of A. It is taken too where a
    gradient is asked for, which the solution of A P[H_0] = startprob would not have.
    """
    start = as_distribution("startprob", startprob, 1)
    transition = as_distribution("transmat", transmat, 2, axis=1, hint=TAKE_COLUMNS).T
    emission = as_distribution("emissionprob", emissionprob, 2, axis=1, hint=TAKE_COLUMNS).T
    of_shape("transmat", transition.T, (len(start), len(start)), " to match startprob")
    of_shape("emissionprob", emission.T, (len(start), None), " to match startprob")
    of_one_kind(startprob=start, transmat=transition, emissionprob=emission)
    initial = None if start.requires_grad or transition.requires_grad else start_before(transition, start)
    if initial is not None and not last_only_starts(transition, initial):  # `to_rows` would drop a state of the user's
        return transition, emission, initial
    silent = emission.new_full((len(emission), 1), 1 / len(emission))  # H_0 emits nothing: any distribution would do
    transition = torch.cat([transition, start[:, None]], 1)
    transition = torch.cat([transition, torch.zeros_like(transition[:1])])
    initial = torch.zeros_like(transition[0])
    initial[-1] = 1
    return transition, torch.cat([emission, silent], 1), initial


def to_rows(transition: Tensor, emission: Tensor, initial: Tensor) -> Rows:
    """The model in rows that has the same law of texts: without the last state, if that is H_0 and nothing else."""
    start = transition @ initial
    total = start.sum()
    if (total.detach() - 1).abs() > SUM_TOLERANCE[start.dtype]:  # where the sums of A and P[H_0] are barely within it
        start = start / total
    n = len(initial) - last_only_starts(transition, initial)
    return Rows(start[:n], transition.T[:n, :n].contiguous(), emission.T[:n].contiguous())


def last_only_starts(transition: Tensor, initial: Tensor) -> bool:
    """Whether H_0 is the last state for sure, and nothing enters that: the mark of the state that `to_columns` adds."""
    return not (initial[:-1].any() or transition[-1].any())


def start_before(transition: Tensor, start: Tensor) -> Tensor | None:
    """A distribution q with A q = start, each entry to rounding and zeros exactly; None where none was found.

    It is `start` itself where that is stationary; else by nonnegative least squares, of which SciPy 1.12 to 1.14 miss
    some where columns of A are nearly dependent. Whatever is found has to pass `solves`, so that the law of texts is
    right in any case. Residuals are relative to each entry of `start`: a text may begin in a rare state.
    """
    from scipy.optimize import nnls  # only here: SciPy's optimisers take long to load

    columns, goal = (part.detach().cpu().double().numpy() for part in (transition, start))
    tolerance = 16 * len(goal) * torch.finfo(start.dtype).eps

    def solves(q: Tensor) -> bool:
        off = np.abs(columns @ q.cpu().double().numpy() - goal)
        return bool((off <= tolerance * goal).all()) and abs(q.sum().item() - 1) <= SUM_TOLERANCE[q.dtype]

    if solves(start.detach()):
        return start.detach()
    found, reached = np.zeros(len(goal)), goal > 0
    usable = (columns[~reached] == 0).all(0)
    # It may find no end within its steps, or be given what is not finite; SciPy 1.12 refuses dependent columns.
    with np.errstate(over="ignore"), suppress(RuntimeError, ValueError):
        if usable.any():
            found[usable], _ = nnls(columns[np.ix_(reached, usable)] / goal[reached, None], np.ones(reached.sum()))
    before = torch.as_tensor(found).to(start)
    return before if solves(before) else None


def ask_orientation(transition: Tensor, emission: Tensor, initial: Tensor) -> None:
    """Warn, at the line that makes the model, where only the user knows which way round its arrays are meant.

    That is where rows and columns of A or W sum to 1, and it is not symmetric. Where both are so and symmetric, it is
    still unclear whose law `initial` is, H_0's or H_1's, unless these are the same.
    """
    tolerance = SUM_TOLERANCE[transition.dtype]
    start, tables = initial.detach(), {"transition": transition.detach(), "emission": emission.detach()}
    square = {name: table for name, table in tables.items() if len(table) == len(table.T)}
    both_ways = {name: table for name, table in square.items() if ((table.sum(1) - 1).abs() <= tolerance).all()}
    lopsided = [name for name, table in both_ways.items() if (table - table.T).abs().max() > tolerance]
    moves = (tables["transition"] @ start - start).abs().max() > tolerance
    if lopsided or (len(both_ways) == 2 and moves):
        warnings.warn(
            f"rows and columns of {' and '.join(lopsided or both_ways)} sum to 1, and by rows this is another model. "
            "The arrays are taken by columns, with initial = P[H_0], one step before the first token. Say so with "
            "HMM(..., columns=True); or, if they are rows, with HMM.from_rows(startprob, transmat, emissionprob)",
            UnclearOrientation,
            stacklevel=3,
        )
