"""The forward and the backward pass over a chain in torch: differentiable, on any device, at any length.

Inference never sees tokens, only *evidence*: a nonnegative array v of shape (n, T, S), one row for each position. A
token contributes its row of W, a masked position a row of ones, a prompt any vector. Two verbs carry everything:
*condition* (multiply a message by a row of evidence) and *predict* (carry it one step along the chain).

Probabilities of long sequences are far below the smallest float, and real zeros must stay zeros. So a message is a
pair: a mantissa for each entry, and one exponent of two for all of them. Scaling by powers of two rounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MAX_EXPONENT = {torch.float64: 1000, torch.float32: 120}
"""Exponents of two that a float surely has, and its inverse too."""
IMPOSSIBLE = torch.iinfo(torch.int64).min // 2
"""The exponent of zero, where exponents are compared."""

Message = tuple[Tensor, Tensor]
"""Mantissas (R, S) and exponents of two (R, 1)."""


def exponent_of(values: Tensor) -> Tensor:
    """The exponent of the power of two just above each value, bounded so that its inverse is a float too; 0 for a zero."""
    most = MAX_EXPONENT[values.dtype]
    return torch.frexp(values.detach())[1].clamp(-most, most)


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2**exponent, in the dtype of `values` (torch.ldexp works out the power in float32)."""
    return values * torch.exp2(exponent.clamp(max=MAX_EXPONENT[values.dtype]).to(values.dtype))


def rescaled(message: Tensor, exponent: Tensor, lanes: int = 1) -> Message:
    """The message with a largest mantissa between 1/2 and 1.

    A message of zeros has a derivative, which has a size too: it is scaled as the largest of the `lanes` rows beside it.
    """
    largest = message.detach().amax(-1, keepdim=True)
    if lanes > 1:
        beside = largest.unflatten(0, (-1, lanes)).amax(1).repeat_interleave(lanes, 0)
        largest = torch.where(largest > 0, largest, beside)
    shift = exponent_of(largest)
    return scaled(message, -shift), exponent + shift


def both_passes(
    transition: Tensor, initial: Tensor, rows: list[Tensor], normalised: Callable[[Tensor, Tensor], Message]
) -> tuple[list[Message], list[Message]]:
    """P[H_i, v_{0:i-1}] and P[v_{i+1:T} | H_i] for i = 0, …, T, each step of them `normalised`.

    Args:
        transition, initial: A, (S, S); P[H_0], (S,) or as a row.
        rows: the evidence v_0, …, v_T, each (R, S); v_0 is ones, as H_0 emits nothing.
    """

    def one_pass(message: Tensor, rows: list[Tensor], carry: Tensor) -> list[Message]:
        messages = [(message, torch.zeros_like(message[..., :1], dtype=torch.int64))]
        for row in rows:
            mantissa, exponent = messages[-1]
            messages.append(normalised((mantissa * row) @ carry, exponent))
        return messages

    forward = one_pass(initial.expand(rows[0].shape), rows[:-1], transition.T.contiguous())
    # From ones at the end, with A for its transpose: no division by P[H_i], which may be zero.
    backward = one_pass(torch.ones_like(rows[0]), rows[:0:-1], transition.contiguous())
    return forward, backward[::-1]


def chain_weights(
    transition: Tensor, initial: Tensor, evidence: Tensor, at: slice, own: bool, lanes: int = 1
) -> tuple[Tensor, Tensor]:
    """The joint P[H_i, v] for the positions `at` of the chain H_0, …, H_T, up to a power of two.

    Args:
        transition: A, (S, S).
        initial: P[H_0], (S,).
        evidence: (T, R, S), nonnegative; R independent rows, of which each `lanes`, one after the other, are one sequence.
        at: which of the T + 1 positions.
        own: whether the evidence of the position itself counts. Without it the result is τ_i of (C.1).

    Returns:
        Mantissas (positions, R, S) and exponents of two (positions, R, 1): the joint is mantissa * 2**exponent.
    """
    scale = exponent_of(evidence.unflatten(1, (-1, lanes)).amax((2, 3)))[..., None].repeat_interleave(lanes, 1)
    rows = [torch.ones_like(evidence[0]), *scaled(evidence, -scale)]
    passes = both_passes(transition, initial, rows, lambda message, exponent: rescaled(message, exponent, lanes))
    tau, exponents = [], []
    for (f, before), (b, after), row in zip(*(part[at] for part in (*passes, rows)), strict=True):
        tau.append(f * b * row if own else f * b)  # (C.1)
        exponents.append(before + after)
    scale = torch.cat([torch.zeros_like(scale[:1]), scale]).to(torch.int64)
    return rescaled(torch.stack(tau), torch.stack(exponents) + scale.sum(0) - (0 if own else scale[at]))
