"""Both sweeps over a chain, and the draw of one, compiled for CPUs: what torch would run as many small operations.

A block of *lanes* is worked on at a time, few enough for its messages to stay in the cache. A lane is one sequence, or for a
memory model one sequence with one joint value of the memory. A step of the chain is then one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Lock

import numpy as np
import scipy.linalg  # noqa: F401  (the library that computes numba's products: loaded here so that its threads can be limited)
from numba import njit
from threadpoolctl import ThreadpoolController

ENTRIES = 2**11
"""Entries of a message in a block, about: more would leave the first cache, fewer would be many calls."""
KEPT = 2**20
"""Entries of all messages that a block of several sequences keeps, at most, where the chain is long; in each thread."""
NEVER = -(2**62)
"""The exponent of zero."""
TINY = 2.0**-100
"""What is below, is not inverted."""

# A product and the sum that it goes into may be rounded once.
compiled = njit(nogil=True, cache=True, fastmath={"contract"})
# Sums, least and largest entries of a row may be taken in any order.
reduction = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "nnan"})


class _OneThread:
    """A context in which products of matrices stay on the thread that asks, for all who are in it, until the last leaves."""

    def __init__(self):
        self.controller, self.lock, self.users = ThreadpoolController(), Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.limit = self.controller.limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limit.restore_original_limits()


ONE_THREAD = _OneThread()


def shares(n: int, threads: int) -> list[slice]:
    """The indices 0 … n - 1 in equal parts, at most one for each thread."""
    edges = [n * k // threads for k in range(threads + 1)]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def side_by_side(work: Callable[[slice], None], n: int, threads: int) -> None:
    """work(part) for equal parts of n sequences, a thread for each."""
    parts = shares(n, threads)
    with ONE_THREAD, ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))


@compiled
def fill(values, value):
    """Every entry becomes `value`."""
    for b in range(len(values)):
        values[b] = value


@reduction
def largest(message, out):
    """The largest entry of each lane."""
    for b in range(message.shape[0]):
        most = message[b, 0]
        for s in range(1, message.shape[1]):
            most = message[b, s] if message[b, s] > most else most
        out[b] = most


@reduction
def smallest(message, out):
    """The smallest positive entry of each lane; 1 where none is below."""
    for b in range(message.shape[0]):
        one = message.dtype.type(1)
        least = one
        for s in range(message.shape[1]):
            value = message[b, s] if message[b, s] > 0 else one
            least = value if value < least else least
        out[b] = least


@compiled
def rescale(message, exponent, bound, scratch):
    """Divide each lane by the power of two just above its largest entry, and count that power in its exponent."""
    largest(message, scratch)
    for b in range(message.shape[0]):
        power = min(max(math.frexp(scratch[b])[1], -bound), bound)
        exponent[b] += power
        factor = message.dtype.type(math.ldexp(1.0, -power))
        for s in range(message.shape[1]):
            message[b, s] *= factor


@compiled
def condition(message, evidence, rows, values, lowest, seen, out):
    """out = message times the evidence of each lane, from `rows`, one for each sequence.

    `seen` keeps the smallest positive evidence that a lane has met.
    """
    for c in range(len(rows)):
        row = rows[c] if rows[c] >= 0 else rows[c] + len(evidence) // values  # counted from the end
        for k in range(values):
            b = c * values + k
            before, here, after = message[b], evidence[row * values + k], out[b]
            for s in range(len(after)):
                after[s] = before[s] * here[s]
            seen[b] = min(seen[b], lowest[row * values + k])


@compiled
def meet(forward, backward, out):
    """out = forward * backward: what both sides say of a position."""
    for b in range(out.shape[0]):
        for s in range(out.shape[1]):
            out[b, s] = forward[b, s] * backward[b, s]


@compiled
def mix(tau, exponent, prior, place, bound, scratch, out, top):
    """Add up the lanes of each sequence, weighted by the prior: entry (k, s) goes to entry place[k, s] of out (sequences, D).

    `top` takes the exponent of two that each sequence's sum still has; `exponent` takes the prior's as well.
    """
    values = len(prior)
    largest(tau, scratch)
    for c in range(len(out)):
        top[c] = NEVER
        for k in range(values):
            b = c * values + k
            exponent[b] += math.frexp(prior[k])[1]
            if scratch[b] > 0 and prior[k] > 0:
                top[c] = max(top[c], exponent[b] + max(math.frexp(scratch[b])[1], -bound))
        fill(out[c], 0)
        for k in range(values):
            b = c * values + k
            if scratch[b] > 0 and prior[k] > 0:
                # What lies further below the largest than any float is lost anyway.
                power = max(exponent[b] - top[c], -2 * bound)
                factor = tau.dtype.type(math.ldexp(math.frexp(prior[k])[0], power))
                for s in range(tau.shape[1]):
                    out[c, place[k, s]] += tau[b, s] * factor


@reduction
def write(weights, readout, top, answer, out, sizes):
    """Divide each row of weights (sequences, D) by its sum, multiply by the readout if there is one, and store it.

    out (sequences, D) or (sequences, X); sizes (sequences, 2) takes each sum's mantissa and exponent, if it has room.
    """
    for c in range(len(weights)):
        mine = weights[c]
        total = mine[0]
        for d in range(1, len(mine)):
            total += mine[d]
        if sizes.shape[1]:
            sizes[c, 0], sizes[c, 1] = total, top[c]
        if total > 0:
            if total < TINY:  # its inverse could be infinite
                for d in range(len(mine)):
                    mine[d] /= total
                total = mine.dtype.type(1)
            inverse = 1 / total
            target = mine if len(readout) else out[c]
            for d in range(len(mine)):
                target[d] = mine[d] * inverse
        elif not len(readout):
            out[c] = 0
    if len(readout):
        np.dot(weights, readout, answer)
        for c in range(len(out)):
            for d in range(out.shape[1]):
                out[c, d] = answer[c, d]


@compiled
def sweep(
    transition,
    back,
    initial,
    prior,
    evidence,
    lowest,
    rows,
    place,
    readout,
    first,
    own,
    every,
    bound,
    out,
    sizes,
    least,
):
    """P[H_i, v] / P[v] of every sequence at the positions first, …, first + P - 1 of the chain H_0, …, H_T.

    Args:
        transition, back: the transpose of A, and A, (S, S): a message is a row.
        initial: P[H_0], (S,).
        prior: P[M], (K,); a single 1 for a vanilla model.
        evidence: (R * K, S); r * K + k is row r of the evidence where the memory has its value k.
        lowest: (R * K,), the smallest positive entry of each of these.
        rows: (n, T), the row of evidence at each position; -1 is the last.
        place: (K, S), to which of D entries of the result an entry is added; (0, S) where each state has its own.
        readout: (D, X), multiplies the result; or (0, 0).
        own: whether the evidence of position i itself counts.
        every, bound: after how many steps a message is scaled, and the largest exponent of two.

    Writes:
        out: (n, P, D) or (n, P, X); zeros where v has probability zero.
        sizes: (n, P, 2), mantissa and exponent of two of P[v]; or (n, P, 0), and nothing is written.
        least: (n,), a number that no product of message and evidence is below, zeros aside; or (0,), and none is sought.
    """
    n, length = rows.shape
    positions, values, states = out.shape[1], len(prior), len(initial)
    last, kind, width = first + positions - 1, initial.dtype, states * values
    direct, guarded = len(place) == 0, len(least) > 0
    together = max(1, min(n, max(ENTRIES // width, 8 // values), KEPT // (width * positions)))
    lanes, depth = together * values, len(readout) if len(readout) else out.shape[2]
    kept = np.empty((positions, lanes, states), kind)  # forward messages, where they are asked for
    kept_exponent, kept_low = np.empty((positions, lanes), np.int64), np.empty((positions, lanes), kind)
    two, product, tau = (
        np.empty((2, lanes, states), kind),
        np.empty((lanes, states), kind),
        np.empty((lanes, states), kind),
    )
    weights, answer = np.empty((together, depth), kind), np.empty((together, readout.shape[1]), kind)
    exponent, top = np.empty(lanes, np.int64), np.empty(together, np.int64)
    low, worst, seen, scratch = (
        np.empty(lanes, kind),
        np.empty(lanes, kind),
        np.empty(lanes, kind),
        np.empty(lanes, kind),
    )
    for block in range(0, n, together):
        begin = min(block, n - together)  # the last block is as wide as the others
        end = begin + together
        fill(worst, 1)
        fill(seen, 1)
        fill(exponent, 0)
        message = two[0]
        for i in range(last + 1):
            after = kept[i - first] if i >= first else two[1 - i % 2]
            if i > 1:
                condition(message, evidence, rows[begin:end, i - 2], values, lowest, seen, product)
                np.dot(product, transition, after)
            elif i == 1:  # H_0 emits nothing
                np.dot(message, transition, after)
            else:
                for b in range(lanes):
                    after[b] = initial
            message = after
            if i % every == 0:
                rescale(message, exponent, bound, scratch)
            if i >= first:
                kept_exponent[i - first] = exponent
            if guarded:
                smallest(message, low)
                for b in range(lanes):
                    if i < first:
                        worst[b] = min(worst[b], low[b])
                    else:
                        kept_low[i - first, b] = low[b]
        fill(exponent, 0)
        message = two[0]
        message[:] = 1
        for i in range(length, first - 1, -1):
            if guarded:
                smallest(message, low)
                for b in range(lanes):
                    worst[b] = min(worst[b], low[b] * kept_low[i - first, b] if i <= last else low[b])
            if i > 0:
                condition(message, evidence, rows[begin:end, i - 1], values, lowest, seen, product)
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
                    mix(tau, kept_exponent[at], prior, place, bound, scratch, weights, top)
                write(weights, readout, top, answer, out[begin:end, at], sizes[begin:end, at])
            if i > first:
                np.dot(product, back, message)
                if i % every == 0:
                    rescale(message, exponent, bound, scratch)
        for c in range(together if guarded else 0):
            least[begin + c] = 1
            for b in range(c * values, (c + 1) * values):
                least[begin + c] = min(least[begin + c], worst[b] * seen[b])


GUIDES = 256
"""Into how many equal parts a distribution function is cut, so that a search begins near its end."""


@compiled
def guide(cumulative):
    """How many entries of each row of distribution functions (R, K) are at most g / GUIDES, (R, GUIDES)."""
    start = np.zeros((cumulative.shape[0], GUIDES), np.int32)
    for r in range(cumulative.shape[0]):
        k = 0
        for g in range(GUIDES):
            while cumulative[r, k] <= g / GUIDES:
                k += 1
            start[r, g] = k
    return start


@compiled
def choose(cumulative, start, row, uniform):
    """How many entries of a row are at most `uniform`: the value that it draws."""
    k = start[row, int(uniform * GUIDES)]
    while cumulative[row, k] <= uniform:
        k += 1
    return k


@compiled
def walk(cumulative, start, uniform, current, out):
    """Go on from the states `current` (n,), changed in place: a step for each row of uniform (steps, n), to out (n, steps)."""
    for i in range(uniform.shape[0]):
        for c in range(len(current)):
            current[c] = choose(cumulative, start, current[c], uniform[i, c])
            out[c, i] = current[c]


@compiled
def emit(cumulative, start, uniform, states, memory, n_states, out):
    """A token (n, T) for each of the states: row m * S + state of the distribution functions, m of the cell looked up."""
    n_syntax = n_states // memory.shape[1]
    for c in range(out.shape[0]):
        for i in range(out.shape[1]):
            state = states[c, i]
            row = memory[c, state // n_syntax] * n_states + state
            out[c, i] = choose(cumulative, start, row, uniform[c, i])
