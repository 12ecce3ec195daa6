"""Markov chains by themselves: which states are reached, periods, and the stationary distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def reachable(transition: Tensor) -> Tensor:
    """Which states can be reached from which in zero or more steps, bool (S, S): entry [h', h] says whether h leads to h'."""
    reach = torch.eye(len(transition), dtype=torch.bool, device=transition.device) | (transition.detach() > 0)
    for _ in range(len(transition).bit_length()):
        reach = reach.double() @ reach.double() > 0
    return reach


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left * right, or NaN if both are positive and their product is too small for a float of full precision."""
    product = left * right
    lost = (product < torch.finfo(product.dtype).tiny) & (left > 0) & (right > 0)
    return torch.where(lost, torch.nan, product)


def eliminated(transition: Tensor) -> Tensor:
    """The stationary distribution of an irreducible chain, (S,), by elimination of one state after the other."""
    transition = transition.detach()
    rest, weights = transition.clone(), torch.ones_like(transition[0])
    for k in range(len(rest) - 1, 0, -1):
        rest[k, :k] = rest[k, :k] / rest[:k, k].sum()
        rest[:k, :k] = rest[:k, :k] + _product(rest[:k, k : k + 1], rest[k : k + 1, :k])
    for k in range(1, len(rest)):
        weights[k] = _product(rest[k, :k], weights[:k]).sum()
    law = weights / weights.sum()
    return law if (law > 0).all() else _eliminated_in_logarithms(transition)


def _eliminated_in_logarithms(transition: Tensor) -> Tensor:
    """As `eliminated`, where near-zeros would leave the range of a float on the way. As accurate as the logarithms are."""
    rest, weights = transition.log(), torch.zeros_like(transition[0])
    for k in range(len(rest) - 1, 0, -1):
        rest[k, :k] = rest[k, :k] - rest[:k, k].logsumexp(0)
        rest[:k, :k] = torch.logaddexp(rest[:k, :k], rest[:k, k : k + 1] + rest[k : k + 1, :k])
    for k in range(1, len(rest)):
        weights[k] = (rest[k, :k] + weights[:k]).logsumexp(0)
    return weights.softmax(0)


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
