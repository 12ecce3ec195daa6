"""Both passes over a chain, compiled for CPUs, because torch would run them as many small operations.

Nobody needs to read this to understand `messages`, because it computes what `forward_backward` computes.

A *lane* is one sequence, or in a memory model one sequence with one joint value of the memory. The loops work on a
block of lanes at a time, few enough that its messages stay in the processor's cache. A step of the chain is then one
product of matrices for the whole block.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.linalg  # noqa: F401  (numba multiplies with it, and once it is loaded its threads can be limited)

from hmmlib.models.compiled import compiled, reduction

ENTRIES = 2**11
"""About how many entries the messages of a block have. More would leave the first cache, and fewer cost more calls."""
SEQUENCES = 2**7
"""The most sequences of a block. A step reads one token of each, and these are far apart in memory."""
STORED = 2**20
"""The most entries of messages that a thread stores for a block of several sequences."""
NEVER = -(2**62)
"""The number that stands for the exponent of zero."""


class Chain(NamedTuple):
    """A chain and the prior of the memory. The chain is run for each of K memory values. Without a memory K is 1."""

    step: np.ndarray  # (S, S), the transpose of A, because a message is a row
    back: np.ndarray  # (S, S), A
    initial: np.ndarray  # P[H_0], (S,)
    prior: np.ndarray  # P[M] as mantissas (K,) …
    prior_exponent: np.ndarray  # … and exponents of two (K,)


class Query(NamedTuple):
    """The variable whose law is sought, and the positions at which it is."""

    groups: np.ndarray  # (G, K), ones where a value of the memory belongs to a group, zeros elsewhere
    entries: np.ndarray  # (D,), which of the G * S sums are its law, or (0,) for all states of a vanilla model
    columns: np.ndarray  # (D, X), by which that is multiplied, or (0, 0) for nothing
    first: int  # the first position of the chain H_0, …, H_T
    own: bool  # whether the evidence of the position itself counts


class Scaling(NamedTuple):
    """What keeps messages within the range of a float."""

    powers: np.ndarray  # 2^-2bound, …, 2^bound
    bound: int  # the largest exponent of two
    low: float  # a lane is scaled if its sum is not above this


@compiled
def copy(values, out):
    """Copy values to out.

    Numba would take seconds to compile the assignment of a slice, because of its error message on shapes that differ.
    """
    for b in range(len(values)):
        out[b] = values[b]


@reduction
def total(message, out):
    """Write the sum of each lane to out."""
    for b in range(message.shape[0]):
        mass = message[b, 0]
        for s in range(1, message.shape[1]):
            mass += message[b, s]
        out[b] = mass


@compiled
def rescale(message, exponent, scaling, scratch):
    """Divide each lane that has a low sum by the power of two just above the sum, and add its exponent to the lane's.

    The sums are written to `scratch`.
    """
    powers = scaling.powers
    bound = scaling.bound
    low = scaling.low
    total(message, scratch)
    for b in range(message.shape[0]):
        if scratch[b] > low:
            continue
        power = min(max(math.frexp(scratch[b])[1], -bound), bound)
        exponent[b] += power
        factor = powers[2 * bound - power]
        scratch[b] *= factor
        for s in range(message.shape[1]):
            message[b, s] *= factor


@compiled
def condition(message, rows, index, out):
    """Multiply the message of each sequence by its evidence, row index[c] of `rows` (R, K * S), and write it to out."""
    messages = message.reshape(len(index), -1)
    products = out.reshape(len(index), -1)
    for c in range(len(index)):
        r = index[c]
        for s in range(rows.shape[1]):
            products[c, s] = messages[c, s] * rows[r, s]


@compiled
def combine(forward, backward, out):
    """Multiply the forward and the backward message, which hold the evidence of both sides, and write that to out."""
    for b in range(out.shape[0]):
        for s in range(out.shape[1]):
            out[b, s] = forward[b, s] * backward[b, s]  # (C.1)


@compiled
def weigh(tau, exponent, chain, scaling, scratch, top):
    """Multiply each lane by its prior, and give all lanes of a sequence one exponent of two. Return it as `top`."""
    prior = chain.prior
    prior_exponent = chain.prior_exponent
    values = len(prior)
    powers = scaling.powers
    bound = scaling.bound
    total(tau, scratch)
    for c in range(len(top)):
        top[c] = NEVER
        for k in range(values):
            b = c * values + k
            exponent[b] += prior_exponent[k]
            if scratch[b] > 0 and prior[k] > 0:
                top[c] = max(top[c], exponent[b] + max(math.frexp(scratch[b])[1], -bound))
        for k in range(values):
            b = c * values + k
            factor = tau.dtype.type(0)
            if scratch[b] > 0 and prior[k] > 0:
                # What is smaller than the largest lane by more than the range of floats is lost anyway.
                factor = prior[k] * powers[2 * bound + max(exponent[b] - top[c], -2 * bound)]
            for s in range(tau.shape[1]):
                tau[b, s] *= factor  # (D.3)
    return top


@compiled
def gather(tau, query, sums, out):
    """Add up the lanes of each group in a sequence, (G, S), and return D of these sums in `out`, (sequences, D)."""
    groups = query.groups
    entries = query.entries
    flat = sums.reshape(-1)
    values = groups.shape[1]
    for c in range(len(out)):
        np.dot(groups, tau[c * values : (c + 1) * values], sums)
        for d in range(len(entries)):
            out[c, d] = flat[entries[d]]
    return out


@compiled
def normalise(weights, scratch, out):
    """Divide each row of weights by its sum, which is in `scratch`, and write it to out. A row of zeros stays zeros."""
    # A division takes far longer than a product, so each sum is inverted once.
    for c in range(len(out)):
        scratch[c] = 1 / scratch[c] if scratch[c] > 0 else 0
    for c in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[c, d] = weights[c, d] * scratch[c]


@compiled
def deliver(block_laws, laws):
    """Write the laws of a block, (P, sequences, D), to those of its sequences, (sequences, P, D).

    All positions of a sequence are written one after the other, which is faster than a position of all sequences.
    """
    for c in range(laws.shape[0]):
        for at in range(laws.shape[1]):
            for d in range(laws.shape[2]):
                laws[c, at, d] = block_laws[at, c, d]


class _Room(NamedTuple):
    """The arrays in which a block of C sequences, L lanes, is worked on."""

    stored: np.ndarray  # (P, L, S), forward messages where they are asked for, and …
    stored_exponent: np.ndarray  # … their exponents, (P, L)
    turns: np.ndarray  # (2, L, S), a message and the next
    product: np.ndarray  # (L, S)
    tau: np.ndarray  # (L, S)
    sums: np.ndarray  # (G, S)
    weights: np.ndarray  # (C, D)
    laws: np.ndarray  # (P, C, D) or (P, C, X), the laws of the block
    exponent: np.ndarray  # (L,), the exponents of the message
    top: np.ndarray  # (C,), the largest exponent of a sequence
    scratch: np.ndarray  # (L,)


@compiled
def forward_pass(index, last, chain, rows, query, scaling, room):
    """Compute P[H_i, v_{1:i-1}] for a block of sequences, from H_0 on to the position `last`.

    From the first position that the query asks for, these messages are stored.
    """
    # Fields that every step needs are read once, because each reading counts a reference.
    first = query.first
    step = chain.step
    turns = room.turns
    stored = room.stored
    product = room.product
    exponent = room.exponent
    scratch = room.scratch
    exponent[:] = 0
    message = turns[0]
    for i in range(last + 1):
        after = stored[i - first] if i >= first else turns[1 - i % 2]
        if i > 1:
            condition(message, rows, index[:, i - 2], product)
            np.dot(product, step, after)
        elif i == 1:  # H_0 emits nothing.
            np.dot(message, step, after)
        else:
            for b in range(len(after)):
                copy(chain.initial, after[b])
        message = after
        rescale(message, exponent, scaling, scratch)
        if i >= first:
            copy(exponent, room.stored_exponent[i - first])


@compiled
def backward_pass(index, last, chain, rows, query, scaling, room, laws, sizes):
    """Compute P[v_{i+1:T} | H_i] for a block of sequences, from H_T down to the first position that is asked for.

    Where both passes have a message, the law is written.
    """
    first = query.first
    back = chain.back
    stored = room.stored
    product = room.product
    exponent = room.exponent
    scratch = room.scratch
    tau = room.tau
    columns = query.columns
    all_states = len(query.entries) == 0
    exponent[:] = 0
    message = room.turns[0]
    message[:] = 1
    for i in range(index.shape[1], first - 1, -1):
        if i > 0:
            condition(message, rows, index[:, i - 1], product)
        else:
            copy(message.reshape(-1), product.reshape(-1))
        if i <= last:
            at = i - first
            combine(stored[at], product if query.own else message, tau)
            top = room.stored_exponent[at]
            for b in range(len(top)):
                top[b] += exponent[b]
            weights = tau
            if not all_states:
                top = weigh(tau, top, chain, scaling, scratch, room.top)
                weights = gather(tau, query, room.sums, room.weights)
            rescale(weights, top, scaling, scratch)  # Then the inverse of a sum is finite.
            if sizes.shape[2]:
                for c in range(len(top)):
                    sizes[c, at, 0] = scratch[c]
                    sizes[c, at, 1] = top[c]
            if len(columns):
                normalise(weights, scratch, weights)
                np.dot(weights, columns, room.laws[at])  # (D.1)
            else:
                normalise(weights, scratch, room.laws[at])
        if i > first:
            np.dot(product, back, message)
            rescale(message, exponent, scaling, scratch)
    deliver(room.laws, laws)


@compiled
def run_chain(chain, rows, index, query, scaling, laws, sizes):
    """Write the law of the query's variable at P positions, from the first that is asked for, and P[v].

    Args:
        chain: the chain and the prior of the memory.
        rows: the different vectors of evidence, (R, K * S). Entry k * S + s is for memory value k and state s.
        index: the row of each position of each sequence, (n, T). -1 is the last row.
        query: the variable and the positions.
        scaling: what keeps messages within the range of a float.
        laws: (n, P, D) or (n, P, X), to be written. A law is zero where v has probability zero.
        sizes: (n, P, 2), to be written with mantissas and exponents of two of P[v], or (n, P, 0) to leave them out.
    """
    n = len(index)
    values = len(chain.prior)
    states = len(chain.initial)
    width = states * values
    positions = laws.shape[1]
    last = query.first + positions - 1
    columns = query.columns
    kind = chain.initial.dtype

    in_cache = max(min(ENTRIES // width, SEQUENCES), 8 // values)
    in_memory = STORED // (width * positions)
    most = max(1, min(n, in_cache, in_memory))
    blocks = -(-n // most)
    together = -(-n // blocks)  # So all blocks have about the same size.
    lanes = together * values
    stored = np.empty((positions, lanes, states), kind)
    # A stored message is as wide as the law of a state. After it is read, the law can take its place.
    in_place = stored.shape == (positions, together, laws.shape[2])
    room = _Room(
        stored=stored,
        stored_exponent=np.empty((positions, lanes), np.int64),
        turns=np.empty((2, lanes, states), kind),
        product=np.empty((lanes, states), kind),
        tau=np.empty((lanes, states), kind),
        sums=np.empty((len(query.groups), states), kind),
        weights=np.empty((together, len(columns) if len(columns) else laws.shape[2]), kind),
        laws=stored if in_place else np.empty((positions, together, laws.shape[2]), kind),
        exponent=np.empty(lanes, np.int64),
        top=np.empty(together, np.int64),
        scratch=np.empty(lanes, kind),
    )
    for block in range(0, n, together):
        begin = min(block, n - together)  # The last block is as wide as the others, and may overlap the one before.
        block_index = index[begin : begin + together]
        forward_pass(block_index, last, chain, rows, query, scaling, room)
        block_laws = laws[begin : begin + together]
        block_sizes = sizes[begin : begin + together]
        backward_pass(block_index, last, chain, rows, query, scaling, room, block_laws, block_sizes)
