"""What follows from a transition matrix alone: which states lead to which, the period, the stationary distribution."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.validation import SUM_TOLERANCE


def reachable(transition: Tensor) -> Tensor:
    """Return a bool matrix, (S, S), that is true at [h', h] where state h leads to h' in zero or more steps."""
    n_states = len(transition)
    in_no_step = torch.eye(n_states, dtype=torch.bool, device=transition.device)
    in_one_step = transition.detach() > 0
    reach = in_no_step | in_one_step
    for _ in range(n_states.bit_length()):  # Each squaring doubles the number of steps.
        paths = reach.double() @ reach.double()
        reach = paths > 0
    return reach


STEPS_AT_ONCE = 1024
"""The number of steps after which the columns of a power of A are made to sum to 1 again, as rounding adds up."""


@without_autocast()
def law_after(steps: int, transition: Tensor, law: Tensor) -> Tensor:
    """Return A^steps applied to a distribution, (S,). The result sums to 1 however many steps there are."""
    many_steps, remaining_steps = divmod(steps, STEPS_AT_ONCE)
    if many_steps:
        power = torch.linalg.matrix_power(transition, STEPS_AT_ONCE)
        law = law_after(many_steps, power / power.sum(0), law)
    law = torch.linalg.matrix_power(transition, remaining_steps) @ law
    return as_law(law)


def as_law(law: Tensor) -> Tensor:
    """Return probabilities, divided by their sum if it is further from 1 than SUM_TOLERANCE allows.

    The columns of A and P[H_0] may each be off by this tolerance, and in a product these errors add up.
    """
    total = law.sum()
    is_off = (total.detach() - 1).abs() > SUM_TOLERANCE[law.dtype]
    return law / total if is_off else law


def chain_period(transition: Tensor) -> tuple[bool, int]:
    """Return whether the chain is irreducible, and its period. The period of a reducible chain is given as 0."""
    from scipy.sparse.csgraph import shortest_path  # Only here, because it takes long to load.

    if not reachable(transition).all():
        return False, 0
    # follows[h, h'] is true where h' can come after h. NumPy cannot read a tensor that torch.func wraps, so lists help.
    follows = np.array((transition.detach().T > 0).tolist())
    # level[h] is the least number of steps from state 0 to h.
    level = shortest_path(follows, unweighted=True, indices=0).astype(int)
    # The length of every cycle is a sum of these differences, and their gcd is the period (Denardo 1977).
    source, target = follows.nonzero()
    return True, math.gcd(*(level[source] + 1 - level[target]))


@without_autocast()
def stationary_law(transition: Tensor) -> Tensor:
    """Return the distribution π with Aπ = π, (S,). No gradient goes through it.

    States are eliminated one after the other without a subtraction (Grassmann, Taksar and Heyman 1985), so each entry
    is accurate to rounding, however small it is.

    Raises:
        ValueError: there is more than one such distribution, because several classes of states are closed, that is,
            never left. Or an entry of the distribution is too small for a float.
    """
    transition = transition.detach()
    reach = reachable(transition)
    # State h is in a closed class if every h' that it leads to, where reach[h', h] is true, also leads back to h.
    is_closed = (~reach | reach.T).all(0)
    closed = is_closed.nonzero().squeeze(-1)
    if not reach[closed][:, closed].all():
        raise ValueError("transition has several closed classes, and therefore more than one stationary distribution")
    law = _by_elimination(transition[closed][:, closed])
    return torch.zeros_like(transition[0]).index_copy(0, closed, law)


def _by_elimination(transition: Tensor) -> Tensor:
    """Return the stationary distribution of an irreducible chain."""
    rates = transition.clone()
    for k in range(len(rates) - 1, 0, -1):
        leaving = rates[:k, k]
        entering = rates[k, :k] / leaving.sum()
        rates[k, :k] = entering
        rates[:k, :k] = rates[:k, :k] + leaving[:, None] * entering
    weights = torch.ones_like(rates[0])
    for k in range(1, len(rates)):
        weights[k] = (rates[k, :k] * weights[:k]).sum()
    law = weights / weights.sum()
    tolerance = 10 * SUM_TOLERANCE[law.dtype]
    stays = torch.allclose(transition @ law, law, rtol=tolerance, atol=0)
    if not stays or not (law > 0).all():
        raise ValueError("transition must have no entries too small for its stationary distribution in floats")
    return law
