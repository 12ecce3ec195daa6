"""The forward and the backward pass over a chain in torch: differentiable, on any device, exact where a float would underflow.

Inference never sees tokens, only *evidence*: a nonnegative array v of shape (n, T, S), one row for each position. A
token contributes its row of W, a masked position a row of ones, a prompt any vector. Two verbs carry everything:
*condition* (multiply a message by a row of evidence) and *predict* (carry it one step along the chain).

Probabilities of long sequences are far below the smallest float, and real zeros must stay zeros. So a message is a
pair: a mantissa, and an exponent of two. Scaling by powers of two rounds nothing. One exponent for a whole message is
enough for almost every sequence. If some entry sinks so low that a product could underflow, the sequence is run again
with an exponent for each entry (`_one_pass_by_entry`). In float32 this guard is off, so that what lies 1e-38 below the
largest entry of a message may be lost there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MAX_EXPONENT = {torch.float64: 1000, torch.float32: 120}
"""Exponents of two that a float surely has, and its inverse too."""

SCALE_EVERY = {torch.float64: 4, torch.float32: 1}
"""After how many steps a message is scaled. A float64 has room for some steps, and what sinks too low is noticed."""


def exponent_of(values: Tensor) -> Tensor:
    """The exponent of the power of two just above each value, bounded so that its inverse is a float too; 0 for a zero."""
    most = MAX_EXPONENT[values.dtype]
    return torch.frexp(values.detach())[1].clamp(-most, most)


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2**exponent, in the dtype of `values` (torch.ldexp works out the power in float32)."""
    return values * torch.exp2(exponent.clamp(max=MAX_EXPONENT[values.dtype]).to(values.dtype))


def split(values: Tensor) -> tuple[Tensor, Tensor]:
    """Split values into mantissas and exponents of two, entry by entry."""
    exponent = exponent_of(values).to(torch.int64)
    return scaled(values, -exponent), exponent


def _one_pass(transition: Tensor, first: Tensor, rows: list[Tensor], lanes: int) -> tuple[list[Tensor], list[Tensor]]:
    """The messages before, between and after L rows of evidence: from `first` (S,), condition, predict, condition, ….

    Each row is (R, S). Returns L + 1 mantissas (R, S), and one exponent for each message, (R, 1). A message of zeros has
    a derivative, which has a size too: the message is scaled as the largest of the `lanes` rows beside it.
    """
    message = first.expand(rows[0].shape) if rows else first
    exponent = torch.zeros(len(message), 1, dtype=torch.int64, device=first.device)
    messages, exponents = [message], [exponent]
    carry = transition.T.contiguous()
    every = SCALE_EVERY[first.dtype]
    for k, row in enumerate(rows):
        message = (message * row) @ carry
        if k % every == 0:
            largest = message.detach().amax(-1, keepdim=True)
            beside = largest.unflatten(0, (-1, lanes)).amax(1).repeat_interleave(lanes, 0)
            shift = exponent_of(torch.where(largest > 0, largest, beside))
            message, exponent = scaled(message, -shift), exponent + shift
        messages.append(message)
        exponents.append(exponent)
    return messages, exponents


def _one_pass_by_entry(
    transition: Tensor, first: Tensor, rows: list[tuple[Tensor, Tensor]], lanes: int
) -> tuple[list[Tensor], list[Tensor]]:
    """As `_one_pass`, with an exponent for each entry, (R, S), so that none can underflow. It is slower: S^2 a step.

    Each row is given as its mantissas and exponents. A zero has a derivative, which has a size too: its exponent is the one
    that the entry would have if what is zero had been one.
    """
    message, exponent = split(first.expand(rows[0][0].shape))
    # Everything is split: half the smallest float is zero.
    carry, steps = split(transition)
    messages, exponents = [message], [exponent]
    never = torch.iinfo(torch.int64).min // 2
    instead = torch.where(message > 0, message, 1).detach()
    for row, size in rows:
        message, instead = message * row, instead * torch.where(row > 0, row, 1).detach()
        shift = exponent_of(instead)
        message, instead = scaled(message, -shift), scaled(instead, -shift)
        terms = carry * message.unsqueeze(-2)  # (R, S, S): into state h' from state h
        others = (carry * instead.unsqueeze(-2)).detach()
        sizes = (exponent + size + shift).unsqueeze(-2) + steps
        alive = (terms.detach() > 0).any(-1, keepdim=True)
        others = torch.where(alive, terms.detach(), others)
        top = torch.where(others > 0, exponent_of(others) + sizes, never).amax(-1)
        exponent = torch.where(top == never, 0, top)
        away = sizes - exponent.unsqueeze(-1)
        message, instead = scaled(terms, away).sum(-1), scaled(others, away).sum(-1)
        instead = torch.where(instead > 0, instead, 1)
        messages.append(message)
        exponents.append(exponent)
    return messages, exponents


def smallest(values: Tensor) -> Tensor:
    """The smallest positive entry of each row, or 1 for a row of zeros."""
    values = values.detach()
    return torch.where(values > 0, values, 1).amin(-1).clamp(max=1)


class _Passed(NamedTuple):
    """Both passes over one chain, position by position: lists of T + 1 messages, P[H_i, v_{1:i-1}] and P[v_{i+1:T} | H_i]."""

    forward: list[Tensor]
    backward: list[Tensor]
    exponents: list[Tensor]

    @classmethod
    def over(cls, one_pass: Callable, transition: Tensor, initial: Tensor, rows: list, lanes: int) -> _Passed:
        forward, exponents = one_pass(transition, initial, rows[:-1], lanes)
        # From ones at the end, conditioning and predicting with Aᵀ gives P[v_{i+1:T} | H_i]: no division by P[H_i].
        backward, from_end = one_pass(transition.T, torch.ones_like(initial), rows[:0:-1], lanes)
        both = [a + b for a, b in zip(exponents, from_end[::-1], strict=True)]
        return cls(forward, backward[::-1], both)

    def weights(self, rows: list[Tensor], at: slice, own: bool) -> tuple[Tensor, Tensor]:
        """τ at the positions `at`, times their own evidence if `own`: mantissas and exponents, stacked."""
        positions = zip(self.forward[at], self.backward[at], rows[at], strict=True)
        tau = torch.stack([f * b * row if own else f * b for f, b, row in positions])  # (C.1)
        return tau, torch.stack(self.exponents[at])

    def doubtful(self, transition: Tensor, rows: list[Tensor]) -> Tensor:
        """The rows in which some product may have underflowed, (R,)."""
        # All rows as one first: that is three times as fast, and mostly ends the matter.
        any_row = self._doubtful(transition, rows, lambda values: smallest(values.reshape(1, -1)))
        return self._doubtful(transition, rows, smallest) if any_row.any() else any_row.expand(len(rows[0]))

    def _doubtful(self, transition: Tensor, rows: list[Tensor], least_of: Callable[[Tensor], Tensor]) -> Tensor:
        # While no positive entry is below `safe`, no product of the next step underflows; so zeros are real.
        tiny = torch.finfo(transition.dtype).tiny
        evidence = torch.stack([least_of(row) for row in rows]).amin(0)
        safe = tiny / (smallest(transition.reshape(-1)) * evidence)
        pairs = zip(self.forward, self.backward, strict=True)
        least = torch.stack([least_of(f) * least_of(b) for f, b in pairs]).amin(0)
        return (least < safe) | (evidence < tiny)


def _align(tau: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Give each row one exponent, (…, 1), and mantissas (…, S) the largest of which lies between 1/2 and 1."""
    if exponent.shape[-1] == 1:
        top = exponent_of(tau.amax(-1, keepdim=True))
        return scaled(tau, -top), exponent + top
    shift = exponent_of(tau)
    size = torch.where(tau.detach() > 0, shift + exponent, torch.iinfo(torch.int64).min // 2)
    top = size.amax(-1, keepdim=True)
    top = torch.where(top < -(2**60), 0, top)
    return scaled(tau, (exponent - top)), top


def both_passes(
    transition: Tensor, initial: Tensor, evidence: Tensor, scale: Tensor, at: slice, own: bool, lanes: int = 1
) -> tuple[Tensor, Tensor]:
    """As `chain_weights`, with positions first: from evidence (T, R, S) to (positions, R, S) and (positions, R, 1).

    Each `lanes` rows, one after the other, belong to one sequence. Each row of evidence is first divided by two to the
    power `scale`, (T, R, 1), which is put back in the end.
    """
    nothing = torch.ones_like(evidence[:1])  # H_0 emits nothing
    rows = [*nothing, *scaled(evidence, -scale)]
    passed = _Passed.over(_one_pass, transition, initial, rows, lanes)
    tau, exponent = _align(*passed.weights(rows, at, own))
    scale = torch.cat([torch.zeros_like(scale[:1]), scale]).to(torch.int64)
    exponent = exponent + scale.sum(0) - (0 if own else scale[at])
    if initial.dtype == torch.float64 and tau.numel():
        redo = (passed.doubtful(transition, rows) | flushed(evidence, scale[1:])).nonzero().squeeze(-1)
        if len(redo):
            mantissas, sizes = split(torch.cat([nothing[:, redo], evidence[:, redo]]))
            pairs = list(zip(mantissas, sizes, strict=True))
            passed = _Passed.over(_one_pass_by_entry, transition, initial, pairs, 1)
            again, size = passed.weights(mantissas, at, own)
            again = _align(again, size + own * sizes[at])
            tau, exponent = tau.index_copy(1, redo, again[0]), exponent.index_copy(1, redo, again[1])
    return tau, exponent


def flushed(evidence: Tensor, scale: Tensor) -> Tensor:
    """The rows whose evidence was scaled down, (R,), because embeddings are above 1, so that an entry may have become 0."""
    least = torch.finfo(evidence.dtype).tiny * torch.exp2(scale[..., 0].to(evidence.dtype))
    return ((scale[..., 0] > 0) & (smallest(evidence) < least)).any(0)


def chain_weights(transition: Tensor, initial: Tensor, evidence: Tensor, at: slice, own: bool) -> tuple[Tensor, Tensor]:
    """The joint P[H_i, v] for the positions `at` of the chain H_0, …, H_T, up to a power of two.

    Args:
        transition: A, (S, S).
        initial: P[H_0], (S,).
        evidence: (R, T, S), nonnegative; R independent rows.
        at: which of the T + 1 positions.
        own: whether the evidence of the position itself counts. Without it the result is τ_i of (C.1).

    Returns:
        Mantissas (R, positions, S) and exponents of two (R, positions, 1): the joint is mantissa * 2**exponent.
    """
    scale = exponent_of(evidence.amax(-1, keepdim=True))
    tau, exponent = both_passes(transition, initial, evidence.transpose(0, 1), scale.transpose(0, 1), at, own)
    return tau.transpose(0, 1), exponent.transpose(0, 1)
