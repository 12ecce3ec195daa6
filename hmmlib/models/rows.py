"""Models in rows, which is the convention of hmmlearn and dynamax.

In those libraries the rows of a table sum to 1, but here its columns do. That is not the only difference. Their start
distribution is that of the state that emits the first token, but P[H_0] here comes one step before that state. So the
start distribution of a model in rows is A P[H_0].
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.models.chains import as_law
from hmmlib.tensors import carries_tangent
from hmmlib.validation import SUM_TOLERANCE, as_distribution, of_shape

TAKE_ROWS = (
    ". Its rows do. Here column h is the distribution given state h, and initial is P[H_0], one step before the first "
    "token. So do not pass the transposes, which would make another model. "
    "Pass the rows to HMM.from_rows(startprob, transmat, emissionprob)."
)
"""The end of an error's message if `HMM` is given a table by rows."""
TAKE_COLUMNS = ". Its columns do. Pass a model in columns to HMM(transition, emission, initial)."
"""The end of an error's message if `HMM.from_rows` is given a table by columns."""


class UnclearOrientation(UserWarning):
    """A warning that the arrays of a model could be given by columns or by rows, and would then be different models.

    Example:
        >>> import warnings
        >>> from hmmlib import HMM, UnclearOrientation
        >>> turning = [[0.0, 0.25, 0.75], [0.75, 0.0, 0.25], [0.25, 0.75, 0.0]]
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", UnclearOrientation)
        ...     model = HMM(turning, [[1.0, 1.0, 1.0]], [0.5, 0.25, 0.25], columns=True)
    """


class Rows(NamedTuple):
    """A model in rows."""

    startprob: Tensor
    """(S,), the distribution of the state that emits the first token."""
    transmat: Tensor
    """(S, S). Row h is the distribution of the state after h."""
    emissionprob: Tensor
    """(S, X). Row h is the distribution of the token given state h."""


def of_one_kind(**arrays: Tensor) -> None:
    """Check that the arrays of a model have one dtype and one device.

    Raises:
        ValueError: dtypes or devices differ.
    """
    kinds = {(array.dtype, array.device) for array in arrays.values()}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} is {array.dtype} on {array.device}" for name, array in arrays.items())
        raise ValueError(f"the arrays of a model must share one dtype and one device, but {listed}")


# From rows to columns and back


def to_columns(startprob, transmat, emissionprob) -> tuple[Tensor, Tensor, Tensor]:
    """Return A, W and P[H_0] of the model that gives every text the same probability.

    It has the same states if some P[H_0] solves A P[H_0] = startprob. Otherwise a last state is added, which is always
    H_0. No state leads to it, and its column of A is `startprob`. The state is also added where a gradient is asked
    for, because no gradient would go through the solution of the equation.

    Raises:
        ValueError: the arrays are not a model in rows.
    """
    start = as_distribution("startprob", startprob, 1)
    table = as_distribution("transmat", transmat, 2, axis=1, hint=TAKE_COLUMNS)
    emission_rows = as_distribution("emissionprob", emissionprob, 2, axis=1, hint=TAKE_COLUMNS)
    of_shape("transmat", table, (len(start), len(start)), " to match startprob")
    of_shape("emissionprob", emission_rows, (len(start), None), " to match startprob")
    of_one_kind(startprob=start, transmat=table, emissionprob=emission_rows)
    transition = table.T
    emission = emission_rows.T
    if not _is_differentiated(start) and not _is_differentiated(transition):
        initial = start_before(transition, start)
        # The user's own last state may look like the one that is added below, because it is always H_0 and no state
        # leads to it. Then `to_rows` would drop it. So a further state is added, which `to_rows` drops instead.
        if initial is not None and not last_only_starts(transition, initial):
            return transition, emission, initial
    transition = torch.cat([transition, start[:, None]], 1)
    transition = torch.cat([transition, torch.zeros_like(transition[:1])])
    uniform = emission.new_full((len(emission), 1), 1 / len(emission))  # H_0 emits nothing, so any column would do.
    initial = torch.zeros_like(transition[0])
    initial[-1] = 1
    return transition, torch.cat([emission, uniform], 1), initial


@without_autocast()
def to_rows(transition: Tensor, emission: Tensor, initial: Tensor) -> Rows:
    """Return the model in rows that gives every text the same probability. A last state that is only H_0 is dropped."""
    start = as_law(transition @ initial)
    n_states = len(initial)
    if last_only_starts(transition, initial):
        n_states -= 1
    # These are copies, because a transpose may be a view of the model's own numbers.
    table = transition.T[:n_states, :n_states].clone(memory_format=torch.contiguous_format)
    emission_rows = emission.T[:n_states].clone(memory_format=torch.contiguous_format)
    return Rows(start[:n_states], table, emission_rows)


def _is_differentiated(tensor: Tensor) -> bool:
    """Tell whether a derivative is asked for, backwards or forwards."""
    return tensor.requires_grad or carries_tangent(tensor)


def last_only_starts(transition: Tensor, initial: Tensor) -> bool:
    """Tell whether the last state is always H_0 and no state leads to it, as with the state that `to_columns` adds."""
    return not initial[:-1].any() and not transition[-1].any()


@np.errstate(all="ignore")
def start_before(transition: Tensor, start: Tensor) -> Tensor | None:
    """Return a distribution q with A q = start, or None if none is found.

    If `start` is stationary, it is q itself. Otherwise nonnegative least squares look for q. They divide each residual
    by its entry of `start`, because a text may begin in a rare state too. The solver may fail where columns of A are
    nearly dependent, so its result is only taken if every entry of A q is right to rounding.
    """
    from scipy.optimize import nnls  # It is imported here because it takes long to load.

    columns = transition.detach().cpu().double().numpy()
    goal = start.detach().cpu().double().numpy()
    tolerance = 16 * len(goal) * torch.finfo(start.dtype).eps

    def solves(candidate: Tensor) -> bool:
        errors = np.abs(columns @ candidate.cpu().double().numpy() - goal)
        sums_to_1 = abs(candidate.sum().item() - 1) <= SUM_TOLERANCE[candidate.dtype]
        return sums_to_1 and bool((errors <= tolerance * goal).all())

    if solves(start.detach()):
        return start.detach()
    reached = goal > 0
    usable = (columns[~reached] == 0).all(0)  # These states lead only to states in which a text may begin.
    solution = np.zeros(len(goal))
    # The solver may not converge within its steps, and SciPy 1.12 refuses dependent columns.
    with suppress(RuntimeError, ValueError):
        if usable.any():
            relative = columns[np.ix_(reached, usable)] / goal[reached, None]
            solution[usable], _ = nnls(relative, np.ones(reached.sum()))
    candidate = start.new_tensor(solution)
    return candidate if solves(candidate) else None


# Columns or rows?


def ask_orientation(transition: Tensor, emission: Tensor, initial: Tensor) -> None:
    """Warn, at the line that makes the model, if its arrays could be given by rows and would then be another model.

    A table could be given by rows if its rows sum to 1 as well as its columns. If it is not symmetric, that would be
    another table. If A and W are both symmetric, the tables are the same by rows, but `initial` could be meant as the
    distribution of H_1. That makes another model unless H_0 and H_1 have the same distribution.
    """
    tolerance = SUM_TOLERANCE[transition.dtype]
    transition = transition.detach()
    initial = initial.detach()
    sums_both_ways = []
    asymmetric = []
    for name, table in (("transition", transition), ("emission", emission.detach())):
        is_square = len(table) == len(table.T)
        errors_of_rows = (table.sum(1) - 1).abs()
        if is_square and (errors_of_rows <= tolerance).all():
            sums_both_ways.append(name)
            if (table - table.T).abs().max() > tolerance:
                asymmetric.append(name)
    with without_autocast():
        start_moves = (transition @ initial - initial).abs().max() > tolerance
    if asymmetric or (len(sums_both_ways) == 2 and start_moves):
        names = " and ".join(asymmetric or sums_both_ways)
        warnings.warn(
            f"rows and columns of {names} sum to 1, and by rows this is another model. "
            "The arrays are taken by columns, with initial = P[H_0], one step before the first token. If that is "
            "right, pass columns=True. If they are rows, call HMM.from_rows(startprob, transmat, emissionprob).",
            UnclearOrientation,
            stacklevel=3,
        )
