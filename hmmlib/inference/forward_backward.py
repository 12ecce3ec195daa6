"""The forward and the backward pass over a chain in torch, with gradients, on any device and at any length.

Once its memory is given, a memory model is an ordinary hidden Markov model. So it is run as K = |M|^N of them, all with
the same A. The lifted chain is never multiplied out, and the cost is |M|^N * |H|^2 a token.

Probabilities of long sequences are far below the smallest float, and real zeros must stay zeros. So a message
has two parts, a mantissa for each entry and one exponent e for all of them. It stands for the mantissas times 2^e.
Scaling by powers of two rounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.inference.evidence import lifted_size
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import as_tensor, of_shape, of_type

if TYPE_CHECKING:
    from jaxtyping import Float

MAX_EXPONENT = {torch.float64: 1000, torch.float32: 120}
"""A bound b for each dtype, so that all powers of two from 2^-b to 2^b are floats."""

Message = tuple[Tensor, Tensor]
"""Mantissas (n, K, S) and exponents of two (n, K, 1)."""


def exponent_of(values: Tensor) -> Tensor:
    """Return the exponent of the power of two just above each value, and 0 for a value of zero.

    It is cut off at MAX_EXPONENT, so that the power and its inverse are floats.
    """
    bound = MAX_EXPONENT[values.dtype]
    _, exponent = torch.frexp(values.detach())
    return exponent.clamp(-bound, bound)


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """Return values * 2**exponent in the dtype of the values. torch.ldexp would compute the powers in float32."""
    exponent = exponent.clamp(max=MAX_EXPONENT[values.dtype])
    return values * torch.exp2(exponent.to(values.dtype))


def rescaled(message: Tensor, exponent: Tensor) -> Message:
    """Return a message with its largest mantissa between 1/2 and 1.

    A message of zeros has no exponent of its own, but a gradient goes through it. So it is scaled like the largest of
    the K messages that belong to the same text.
    """
    largest = message.detach().amax(-1, keepdim=True)
    if message.shape[-2] > 1:
        largest_of_all = largest.amax(-2, keepdim=True)
        largest = torch.where(largest > 0, largest, largest_of_all)
    shift = exponent_of(largest)
    return scaled(message, -shift), exponent + shift


def both_passes(
    transition: Tensor, initial: Tensor, rows: list[Tensor], normalise: Callable[[Tensor, Tensor], Message]
) -> tuple[list[Message], list[Message]]:
    """Pass messages over the chain in both directions. A message is a row vector, so a step multiplies from the right.

    Args:
        transition: A, (S, S).
        initial: P[H_0], (S,), or one for each value of the memory.
        rows: the evidence v_0, …, v_T, each (n, K, S). v_0 is ones, because H_0 emits nothing.
        normalise: a function of mantissas and exponents that returns them as a rescaled message.

    Returns:
        The forward messages P[H_i, v_{0:i-1}], and the backward messages P[v_{i+1:T} | H_i], each for i = 0, …, T.
    """
    forward = _pass(initial.expand(rows[0].shape), rows[:-1], transition.T.contiguous(), normalise)
    # The way back begins with ones and has A in the place of its transpose. So nothing is divided by P[H_i], which may
    # be zero.
    backward = _pass(rows[0], rows[:0:-1], transition.contiguous(), normalise)
    return forward, backward[::-1]


def _pass(
    first: Tensor, rows: list[Tensor], carry: Tensor, normalise: Callable[[Tensor, Tensor], Message]
) -> list[Message]:
    """Return the first message and the one after each row. A step multiplies by the row, then by the matrix `carry`."""
    exponent = torch.zeros_like(first[..., :1], dtype=torch.int64)
    messages = [(first, exponent)]
    for row in rows:
        mantissa, exponent = messages[-1]
        messages.append(normalise((mantissa * row) @ carry, exponent))
    return messages


@without_autocast()
def aggregated_messages(
    model: HMM | MemoryHMM, evidence: Float[Tensor, "n T S"], at: slice = slice(1, None), own: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the product τ_i of the messages from both sides of position i, (C.1), or (D.3) for a memory model.

    If the evidence is that of tokens x, τ_i is P[H_i, X_{-i} = x_{-i}], or P[M, H_i, X_{-i} = x_{-i}] for a memory
    model. Its entries may be far below the smallest float, so it comes as mantissas and exponents of two.

    Args:
        model: the model.
        evidence: embeddings, (n, T, S), or the lifted ones of a memory model, (n, T, M^N * H).
        at: a slice of the positions 0, …, T of the chain H_0, …, H_T, in ascending order. The default is 1, …, T.
        own: whether the evidence of position i itself counts too. Then the result is P[H_i, v], or P[M, H_i, v].

    Returns:
        Mantissas, (n, positions, S) or (n, positions, M^N * H), and exponents e, (n, positions, 1). The value of τ_i is
        its mantissas times 2^e.

    Raises:
        ValueError: the evidence has another shape, or `at` holds no position.

    Example:
        >>> from hmmlib import random_hmm
        >>> model = random_hmm(2, 3)
        >>> mantissa, exponent = aggregated_messages(model, model.embed([[0, 2, 1]]))
        >>> mantissa.shape
        torch.Size([1, 3, 2])
    """
    of_type("model", model, HMM, MemoryHMM)
    evidence = as_tensor("evidence", evidence, empty=True, like=model.initial)
    of_shape("evidence", evidence, (None, None, lifted_size(model)))
    positions = _positions(at, evidence.shape[1])
    v = evidence.transpose(0, 1).unflatten(2, (-1, model.n_states))
    scale = exponent_of(v.amax((2, 3), keepdim=True))
    rows = [torch.ones_like(v[0]), *scaled(v, -scale)]
    forward, backward = both_passes(model.transition, model.initial, rows, rescaled)

    products = []
    exponents = []
    for i in positions:
        from_left, exponent_left = forward[i]
        from_right, exponent_right = backward[i]
        product = from_left * from_right  # (C.1)
        if own:
            product = product * rows[i]
        products.append(product)
        exponents.append(exponent_left + exponent_right)

    scale = torch.cat([torch.zeros_like(scale[:1]), scale])
    total_scale = scale.sum(0)
    if not own:
        total_scale = total_scale - scale[at]
    tau, exponent = rescaled(torch.stack(products), torch.stack(exponents) + total_scale)
    if isinstance(model, MemoryHMM):
        tau, exponent = _times_prior(model, tau, exponent)
    return tau.flatten(2).transpose(0, 1), exponent.flatten(2).transpose(0, 1)


def _positions(at: slice, length: int) -> range:
    """Return the positions of a chain H_0, …, H_T that a slice holds."""
    of_type("at", at, slice)
    try:
        positions = range(length + 1)[at]
    except (TypeError, ValueError):  # The step of `at` is 0, or an end of it is not an integer.
        positions = range(0)
    if not positions or positions.step < 0:
        raise ValueError(f"at must be a slice of one or more of the positions 0 to {length}, ascending, not {at}")
    return positions


def _times_prior(model: MemoryHMM, tau: Tensor, exponent: Tensor) -> Message:
    """Multiply the messages given M by P[M], and give all values of the memory the exponent of the largest product."""
    prior = model.memory.reshape(-1, 1)
    size = exponent + exponent_of(prior)
    possible = (tau.detach().amax(-1, keepdim=True) > 0) & (prior > 0)
    smallest = size.amin(2, keepdim=True)
    exponent = torch.where(possible, size, smallest).amax(2, keepdim=True)
    mantissa_of_prior = scaled(prior, -exponent_of(prior))
    return tau * scaled(mantissa_of_prior, size - exponent), exponent  # (D.3)
