"""The forward and the backward pass over a chain in torch: differentiable, on any device, at any length.

Inference takes *evidence*, not tokens: a nonnegative array v of shape (n, T, S), one row for each position. A
token contributes its row of W, a masked position a row of ones, a prompt any vector.

Once its memory is given, a memory model is an ordinary hidden Markov model. So it is run as K = |M|^N of them, all with
the same A. The lifted chain is never multiplied out, and the cost is |M|^N * |H|^2 a token.

Probabilities of long sequences are far below the smallest float, and real zeros must stay zeros. So a message is a
pair: a mantissa for each entry, and one exponent of two for all of them. Scaling by powers of two rounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import of_shape, of_type

if TYPE_CHECKING:
    from jaxtyping import Float

MAX_EXPONENT = {torch.float64: 1000, torch.float32: 120}
"""Exponents of two that a float surely has, and its inverse too."""

Message = tuple[Tensor, Tensor]
"""Mantissas (n, K, S) and exponents of two (n, K, 1)."""


def exponent_of(values: Tensor) -> Tensor:
    """The exponent of the power of two just above each value, bounded so that its inverse is a float; 0 for a zero."""
    most = MAX_EXPONENT[values.dtype]
    return torch.frexp(values.detach())[1].clamp(-most, most)


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2**exponent, in the dtype of `values` (torch.ldexp works out the power in float32)."""
    return values * torch.exp2(exponent.clamp(max=MAX_EXPONENT[values.dtype]).to(values.dtype))


def rescaled(message: Tensor, exponent: Tensor) -> Message:
    """The message with a largest mantissa between 1/2 and 1.

    A message of zeros has a derivative, which has a size too: it is scaled as the largest of the K beside it.
    """
    largest = message.detach().amax(-1, keepdim=True)
    if message.shape[-2] > 1:
        largest = torch.where(largest > 0, largest, largest.amax(-2, keepdim=True))
    shift = exponent_of(largest)
    return scaled(message, -shift), exponent + shift


def both_passes(
    transition: Tensor, initial: Tensor, rows: list[Tensor], normalised: Callable[[Tensor, Tensor], Message]
) -> tuple[list[Message], list[Message]]:
    """P[H_i, v_{0:i-1}] and P[v_{i+1:T} | H_i] for i = 0, …, T. `normalised` rescales each message.

    The evidence v_0, …, v_T is in `rows`, each (n, K, S); v_0 is ones, as H_0 emits nothing.
    """

    def one_pass(message: Tensor, rows: list[Tensor], carry: Tensor) -> list[Message]:
        messages = [(message, torch.zeros_like(message[..., :1], dtype=torch.int64))]
        for row in rows:
            mantissa, exponent = messages[-1]
            messages.append(normalised((mantissa * row) @ carry, exponent))
        return messages

    forward = one_pass(initial.expand(rows[0].shape), rows[:-1], transition.T.contiguous())
    # From ones at the end, with A for its transpose: no division by P[H_i], which may be zero.
    backward = one_pass(rows[0], rows[:0:-1], transition.contiguous())
    return forward, backward[::-1]


def lifted_size(model: HMM | MemoryHMM) -> int:
    """How many entries a message has: S, or |M|^N * |H| for a memory model."""
    return model.n_states if isinstance(model, HMM) else model.memory.numel() * model.n_states


def aggregated_messages(
    model: HMM | MemoryHMM, evidence: Float[Tensor, "n T S"], at: slice = slice(1, None), own: bool = False
) -> tuple[Tensor, Tensor]:
    """τ_i of (C.1), or of (D.3) for a memory model, at the positions `at` of the chain H_0, …, H_T.

    Args:
        evidence: embeddings (n, T, S), or lifted, (n, T, M^N * H).
        own: whether the evidence of position i itself counts too. Then the result is P[H_i, v], or P[M, H_i, v].

    Returns mantissas (n, positions, S) or (n, positions, M^N * H) and exponents of two (n, positions, 1).
    """
    of_type("model", model, HMM, MemoryHMM)
    of_shape("evidence", evidence, (None, None, lifted_size(model)))
    v = evidence.to(model.dtype).transpose(0, 1).unflatten(2, (-1, model.n_states))
    scale = exponent_of(v.amax((2, 3), keepdim=True))
    rows = [torch.ones_like(v[0]), *scaled(v, -scale)]
    forward, backward = both_passes(model.transition, model.initial, rows, rescaled)
    tau, exponents = [], []
    for i in range(*at.indices(len(rows))):
        (f, before), (b, after) = forward[i], backward[i]
        tau.append(f * b * rows[i] if own else f * b)  # (C.1)
        exponents.append(before + after)
    scale = torch.cat([torch.zeros_like(scale[:1]), scale])
    scale = scale.sum(0) - (0 if own else scale[at])
    tau, exponent = rescaled(torch.stack(tau), torch.stack(exponents) + scale)
    if isinstance(model, MemoryHMM):  # P[M] times the message given M; all values then get the exponent of the largest
        prior = model.memory.reshape(-1, 1)
        size = exponent + exponent_of(prior)
        possible = (tau.detach().amax(-1, keepdim=True) > 0) & (prior > 0)
        least = size.amin(2, keepdim=True)
        exponent = torch.where(possible, size, least).amax(2, keepdim=True)
        tau = tau * scaled(scaled(prior, -exponent_of(prior)), size - exponent)  # (D.3)
    return tau.flatten(2).transpose(0, 1), exponent.flatten(2).transpose(0, 1)
