"""Both sweeps over a chain, and the draw of one, compiled for CPUs: what torch would run as many small operations.

A block of *lanes* is worked on at a time, few enough for its messages to stay in the cache. A lane is one sequence, or for a
memory model one sequence with one joint value of the memory. Lanes are the last axis of every array, so that each inner loop
is over lanes whatever the number of states, and a step of the chain is one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import scipy.linalg  # noqa: F401  (the library that computes numba's products: loaded here so that its threads can be limited)
from numba import njit
from threadpoolctl import ThreadpoolController

ENTRIES = 2**11
"""Entries of a message in a block, about: more would leave the first cache, fewer would be many calls."""
KEPT = 2**20
"""Entries of all messages that a block keeps, at most, where the chain is long."""
NEVER = -(2**62)
"""The exponent of zero."""

# A product and the sum it goes into may be rounded once; nothing is reordered.
compiled = njit(nogil=True, cache=True, fastmath={"contract"})


_CONTROLLER = ThreadpoolController()


def shares(n: int, threads: int) -> list[slice]:
    """The indices 0 … n - 1 in equal parts, at most one for each thread."""
    edges = [n * k // threads for k in range(threads + 1)]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def side_by_side(work: Callable[[slice], None], n: int, threads: int) -> None:
    """work(part) for equal parts of n sequences, a thread for each; products of matrices stay on the thread that asks."""
    parts = shares(n, threads)
    with _CONTROLLER.limit(limits=1, user_api="blas"), ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))


@compiled
def fill(values, value):
    """Every entry becomes `value`."""
    for b in range(len(values)):
        values[b] = value


@compiled
def copy(message, out):
    """out = message."""
    for s in range(out.shape[0]):
        for b in range(out.shape[1]):
            out[s, b] = message[s, b]


@compiled
def largest(message, out):
    """The largest entry of each lane."""
    fill(out, 0)
    for s in range(message.shape[0]):
        for b in range(message.shape[1]):
            out[b] = max(out[b], message[s, b])


@compiled
def smallest(message, out):
    """The smallest positive entry of each lane; 1 where none is below."""
    fill(out, 1)
    for s in range(message.shape[0]):
        for b in range(message.shape[1]):
            value = message[s, b]
            out[b] = value if 0 < value < out[b] else out[b]


@compiled
def rescale(message, exponent, bound, scratch):
    """Divide each lane by the power of two just above its largest entry, and count that power in its exponent."""
    largest(message, scratch)
    for b in range(message.shape[1]):
        power = min(max(math.frexp(scratch[b])[1], -bound), bound)
        exponent[b] += power
        scratch[b] = math.ldexp(1.0, -power)
    for s in range(message.shape[0]):
        for b in range(message.shape[1]):
            message[s, b] *= scratch[b]


@compiled
def condition(message, evidence, rows, values, lowest, column, seen, out):
    """out = message times the evidence of each lane, from `rows`, one for each sequence.

    Leaves in `column` where that stands, and in `seen` the smallest positive evidence that a lane has met.
    """
    for c in range(len(rows)):
        row = rows[c] if rows[c] >= 0 else rows[c] + evidence.shape[1] // values  # counted from the end
        for k in range(values):
            column[c * values + k] = row * values + k
    if values == 1:
        for s in range(message.shape[0]):
            for b in range(message.shape[1]):
                out[s, b] = message[s, b] * evidence[s, column[b]]
    else:  # the evidence of one sequence lies side by side
        for c in range(len(rows)):
            mine, at = slice(c * values, (c + 1) * values), column[c * values]
            for s in range(message.shape[0]):
                before, row, after = message[s, mine], evidence[s, at : at + values], out[s, mine]
                for k in range(values):
                    after[k] = before[k] * row[k]
    for b in range(message.shape[1]):
        seen[b] = min(seen[b], lowest[column[b]])


@compiled
def meet(forward, backward, out):
    """out = forward * backward: what both sides say of a position."""
    for s in range(out.shape[0]):
        for b in range(out.shape[1]):
            out[s, b] = forward[s, b] * backward[s, b]


@compiled
def mix(tau, exponent, prior, place, bound, scratch, out, top):
    """Add up the lanes of each sequence, weighted by the prior: entry (s, k) goes to row place[k, s] of out (D, sequences).

    Scales tau (S, lanes) in place; `top` takes the exponent of two that each sequence's sum still has.
    """
    values = len(prior)
    largest(tau, scratch)
    for c in range(out.shape[1]):
        top[c] = NEVER
        for b in range(c * values, (c + 1) * values):
            scratch[b] *= prior[b - c * values]
            if scratch[b] > 0:
                top[c] = max(top[c], exponent[b] + math.frexp(scratch[b])[1])
        for b in range(c * values, (c + 1) * values):
            power = min(exponent[b] - top[c], bound)
            scratch[b] = math.ldexp(prior[b - c * values], power) if scratch[b] > 0 else 0.0
    for d in range(out.shape[0]):
        fill(out[d], 0)
    for s in range(tau.shape[0]):
        for b in range(tau.shape[1]):
            tau[s, b] *= scratch[b]
    for c in range(out.shape[1]):
        for k in range(values):
            for s in range(tau.shape[0]):  # one state after the other, so that no sum waits for the one before
                out[place[k, s], c] += tau[s, c * values + k]


@compiled
def write(weights, readout, top, total, answer, out, sizes):
    """Divide each column of weights (D, sequences) by its sum, multiply by the readout if there is one, and store it.

    out (sequences, D) or (sequences, X); sizes (sequences, 2) takes each sum's mantissa and exponent, if it has room.
    """
    fill(total, 0)
    for d in range(weights.shape[0]):
        for c in range(weights.shape[1]):
            total[c] += weights[d, c]
    for c in range(len(total)):
        if sizes.shape[1]:
            sizes[c, 0], sizes[c, 1] = total[c], top[c]
        total[c] = total[c] if total[c] > 0 else 1
    if len(readout):
        np.dot(readout, weights, answer)
        weights = answer
    for c in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[c, d] = weights[d, c] / total[c]


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
        transition, back: A and its transpose, (S, S).
        initial: P[H_0], (S,).
        prior: P[M], (K,); a single 1 for a vanilla model.
        evidence: (S, R * K); column r * K + k is row r of the evidence where the memory has its value k.
        lowest: (R * K,), the smallest positive entry of each of these columns.
        rows: (n, T), the row of evidence at each position; -1 is the last.
        place: (K, S), to which of D entries of the result an entry is added; (0, S) where each state has its own.
        readout: (X, D), multiplies the result; or (0, 0).
        own: whether the evidence of position i itself counts.
        every, bound: after how many steps a message is scaled, and the largest exponent of two.

    Writes:
        out: (n, P, D) or (n, P, X); zeros where v has probability zero.
        sizes: (n, P, 2), mantissa and exponent of two of P[v]; or (n, P, 0), and nothing is written.
        least: (n,), a number that no product of message and evidence is below, zeros aside.
    """
    n, length = rows.shape
    positions, values, states = out.shape[1], len(prior), len(initial)
    last, kind, width = first + positions - 1, initial.dtype, states * values
    direct = len(place) == 0
    together = max(1, min(n, max(ENTRIES // width, 32 // values), KEPT // (width * positions)))
    lanes, depth = together * values, readout.shape[1] if len(readout) else out.shape[2]
    kept = np.empty((positions, states, lanes), kind)  # forward messages, where they are asked for
    kept_exponent, kept_low = np.empty((positions, lanes), np.int64), np.empty((positions, lanes), kind)
    message, product, tau = (
        np.empty((states, lanes), kind),
        np.empty((states, lanes), kind),
        np.empty((states, lanes), kind),
    )
    weights, answer = np.empty((depth, together), kind), np.empty((len(readout), together), kind)
    column = np.empty(lanes, np.uint64)  # a sign would have to be looked at in each inner loop
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
        for s in range(states):
            fill(message[s], initial[s])
        for i in range(last + 1):
            if i > 1:
                condition(message, evidence, rows[begin:end, i - 2], values, lowest, column, seen, product)
                np.dot(transition, product, message)
            elif i == 1:  # H_0 emits nothing
                copy(message, product)
                np.dot(transition, product, message)
            if i % every == 0:
                rescale(message, exponent, bound, scratch)
            smallest(message, low)
            for b in range(lanes):
                if i < first:
                    worst[b] = min(worst[b], low[b])
                else:
                    kept_exponent[i - first, b], kept_low[i - first, b] = exponent[b], low[b]
            if i >= first:
                copy(message, kept[i - first])
        fill(exponent, 0)
        for s in range(states):
            fill(message[s], 1)
        for i in range(length, first - 1, -1):
            smallest(message, low)
            for b in range(lanes):
                worst[b] = min(worst[b], low[b] * kept_low[i - first, b] if i <= last else low[b])
            if i > 0:
                condition(message, evidence, rows[begin:end, i - 1], values, lowest, column, seen, product)
            else:
                copy(message, product)
            if i <= last:
                at = i - first
                if direct:
                    meet(kept[at], product if own else message, weights)
                    for b in range(lanes):
                        top[b] = kept_exponent[at, b] + exponent[b]
                else:
                    meet(kept[at], product if own else message, tau)
                    for b in range(lanes):
                        kept_exponent[at, b] += exponent[b]
                    mix(tau, kept_exponent[at], prior, place, bound, scratch, weights, top)
                write(weights, readout, top, scratch[:together], answer, out[begin:end, at], sizes[begin:end, at])
            if i > first:
                np.dot(back, product, message)
                if i % every == 0:
                    rescale(message, exponent, bound, scratch)
        for c in range(together):
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
def emit(cumulative, start, uniform, states, lookup, out):
    """A token (n, T) for each of the states: row lookup * S + state of the distribution functions."""
    for c in range(out.shape[0]):
        for i in range(out.shape[1]):
            state = states[c, i]
            out[c, i] = choose(cumulative, start, lookup[c, state] * lookup.shape[1] + state, uniform[c, i])
