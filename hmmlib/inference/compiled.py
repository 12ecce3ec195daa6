"""Both passes over a chain, compiled for CPUs: what torch would run as many small operations.

A block of *lanes* is worked on at a time, few enough for its messages to stay in the cache. A lane is one sequence, or for a
memory model one sequence with one joint value of the memory. A step of the chain is then one product of matrices.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg  # noqa: F401  (the library that computes numba's products: loaded here so that its threads can be limited)

from hmmlib.models.compiled import compiled, reduction

ENTRIES = 2**11
"""Entries of a message in a block, about: more would leave the first cache, fewer would be many calls."""
KEPT = 2**20
"""Entries of all messages that a block of several sequences keeps, at most, where the chain is long; in each thread."""
NEVER = -(2**62)
"""The exponent of zero."""
TINY = 2.0**-100
"""What is below, is not inverted."""


@compiled
def fill(values, value):
    """Every entry becomes `value`."""
    for b in range(len(values)):
        values[b] = value


@reduction
def total(message, out):
    """The sum of each lane."""
    for b in range(message.shape[0]):
        mass = message[b, 0]
        for s in range(1, message.shape[1]):
            mass += message[b, s]
        out[b] = mass


@reduction
def lower(message, low):
    """Each of the K * S entries of `low` becomes the smallest positive one of all sequences, if that is less."""
    every, one = message.reshape(-1, len(low)), message.dtype.type(1)
    for c in range(len(every)):
        mine = every[c]
        for d in range(len(low)):
            positive = mine[d] if mine[d] > 0 else one
            low[d] = positive if positive < low[d] else low[d]


@compiled
def rescale(message, exponent, powers, bound, scratch):
    """Divide each lane by the power of two just above its sum, and count that power in its exponent."""
    total(message, scratch)
    for b in range(message.shape[0]):
        power = min(max(math.frexp(scratch[b])[1], -bound), bound)
        exponent[b] += power
        factor = powers[2 * bound - power]
        for s in range(message.shape[1]):
            message[b, s] *= factor


@compiled
def condition(message, evidence, rows, out):
    """out = message times the evidence of each sequence, whose row of (R, K * S) `rows` says."""
    before, after = message.reshape(len(rows), -1), out.reshape(len(rows), -1)
    for c in range(len(rows)):
        mine, here, product = before[c], evidence[rows[c]], after[c]
        for s in range(len(here)):
            product[s] = mine[s] * here[s]


@compiled
def meet(forward, backward, out):
    """out = forward * backward: what both sides say of a position."""
    for b in range(out.shape[0]):
        for s in range(out.shape[1]):
            out[b, s] = forward[b, s] * backward[b, s]


@compiled
def weigh(tau, exponent, prior, prior_exponent, powers, bound, scratch, top):
    """Multiply each lane by its prior, and give all lanes of a sequence one exponent of two, which `top` takes."""
    values = len(prior)
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
                # What lies further below the largest than any float is lost anyway.
                factor = prior[k] * powers[2 * bound + max(exponent[b] - top[c], -2 * bound)]
            for s in range(tau.shape[1]):
                tau[b, s] *= factor


@compiled
def gather(tau, groups, take, sums, out):
    """Add up the lanes of each sequence that belong together, (G, S), and take D of these sums: out (sequences, D)."""
    values, flat = groups.shape[1], sums.reshape(-1)
    for c in range(len(out)):
        np.dot(groups, tau[c * values : (c + 1) * values], sums)
        for d in range(len(take)):
            out[c, d] = flat[take[d]]


@reduction
def write(weights, readout, top, scratch, answer, out, sizes, begin, at):
    """Divide each row of weights (sequences, D) by its sum, multiply by the readout if there is one, and store it.

    Row c goes to out[begin + c, at], and its sum's mantissa and exponent to sizes[begin + c, at], if it has room.
    """
    total(weights, scratch)
    for c in range(len(weights)):
        mine, mass = weights[c], scratch[c]
        if sizes.shape[2]:
            sizes[begin + c, at, 0], sizes[begin + c, at, 1] = mass, top[c]
        if 0 < mass < TINY:  # its inverse could be infinite
            for d in range(len(mine)):
                mine[d] /= mass
            mass = weights.dtype.type(1)
        inverse = 1 / mass if mass > 0 else weights.dtype.type(0)
        target = mine if len(readout) else out[begin + c, at]
        for d in range(len(mine)):
            target[d] = mine[d] * inverse
    if len(readout):
        np.dot(weights, readout, answer)
        for c in range(len(weights)):
            out[begin + c, at] = answer[c]


@compiled
def run_chain(
    transition,
    back,
    initial,
    prior,
    prior_exponent,
    powers,
    evidence,
    lowest,
    rows,
    groups,
    take,
    readout,
    first,
    own,
    every,
    bound,
    alone,
    out,
    sizes,
    least,
):
    """P[H_i, v] / P[v] of every sequence at the positions first, …, first + P - 1 of the chain H_0, …, H_T.

    Args:
        transition, back: the transpose of A, and A, (S, S): a message is a row.
        initial: P[H_0], (S,).
        prior, prior_exponent: P[M], (K,), as mantissas and exponents of two; a single 1 for a vanilla model.
        powers: 2^-2bound, …, 2^bound.
        evidence: (R, K * S); entry k * S + s where the memory has its value k and the state is s.
        lowest: (R,), the smallest positive entry of each of these rows.
        rows: (n, T), the row of evidence at each position; -1 is the last.
        groups: (G, K), ones where a value of the memory belongs to a group, zeros elsewhere: its lanes are added up.
        take: (D,), which of the G * S sums the result has; or (0,), where it has the states of a vanilla model.
        readout: (D, X), multiplies the result; or (0, 0).
        own: whether the evidence of position i itself counts.
        every, bound: after how many steps a message is scaled, and the largest exponent of two.
        alone: whether each sequence is a block of its own.

    Writes:
        out: (n, P, D) or (n, P, X); zeros where v has probability zero.
        sizes: (n, P, 2), mantissa and exponent of two of P[v]; or (n, P, 0), and nothing is written.
        least: (n,), a number that no product of message and evidence is below in the sequence's block, zeros aside; or (0,),
            and none is sought.
    """
    n, length = rows.shape
    positions, values, states = out.shape[1], len(prior), len(initial)
    last, kind, width = first + positions - 1, initial.dtype, states * values
    direct, guarded = len(take) == 0, len(least) > 0
    most = 1 if alone else max(1, min(n, max(ENTRIES // width, 8 // values), KEPT // (width * positions)))
    together = -(-n // -(-n // most))  # as many blocks, but all of about the same size
    lanes, depth = together * values, len(readout) if len(readout) else out.shape[2]
    kept = np.empty((positions, lanes, states), kind)  # forward messages, where they are asked for
    kept_exponent = np.empty((positions, lanes), np.int64)
    two, product = np.empty((2, lanes, states), kind), np.empty((lanes, states), kind)
    tau, sums = np.empty((lanes, states), kind), np.empty((len(groups), states), kind)
    weights, answer = np.empty((together, depth), kind), np.empty((together, readout.shape[1]), kind)
    exponent, top, scratch = np.empty(lanes, np.int64), np.empty(together, np.int64), np.empty(lanes, kind)
    low_forward, low_backward = np.empty(width, kind), np.empty(width, kind)
    for block in range(0, n, together):
        begin = min(block, n - together)  # the last block is as wide as the others
        end = begin + together
        fill(low_forward, 1)
        fill(low_backward, 1)
        fill(exponent, 0)
        message = two[0]
        for i in range(last + 1):
            after = kept[i - first] if i >= first else two[1 - i % 2]
            if i > 1:
                condition(message, evidence, rows[begin:end, i - 2], product)
                np.dot(product, transition, after)
            elif i == 1:  # H_0 emits nothing
                np.dot(message, transition, after)
            else:
                for b in range(lanes):
                    after[b] = initial
            message = after
            if i % every == 0:
                rescale(message, exponent, powers, bound, scratch)
            if i >= first:
                kept_exponent[i - first] = exponent
            if guarded:
                lower(message, low_forward)
        fill(exponent, 0)
        message = two[0]
        message[:] = 1
        for i in range(length, first - 1, -1):
            if guarded:
                lower(message, low_backward)
            if i > 0:
                condition(message, evidence, rows[begin:end, i - 1], product)
            else:
                product[:] = message
            if i <= last:
                at = i - first
                meet(kept[at], product if own else message, weights if direct else tau)
                for b in range(lanes):
                    kept_exponent[at, b] += exponent[b]
                if direct:
                    top[:] = kept_exponent[at]
                else:
                    weigh(tau, kept_exponent[at], prior, prior_exponent, powers, bound, scratch, top)
                    gather(tau, groups, take, sums, weights)
                write(weights, readout, top, scratch, answer, out, sizes, begin, at)
            if i > first:
                np.dot(product, back, message)
                if i % every == 0:
                    rescale(message, exponent, powers, bound, scratch)
        if guarded:
            seen = kind.type(1)
            for c in range(begin, end):
                for i in range(length):
                    seen = min(seen, lowest[rows[c, i]])
            fill(least[begin:end], low_forward.min() * low_backward.min() * seen)
