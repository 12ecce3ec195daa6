"""The draw of a chain and of its tokens, compiled for CPUs.

A table of distribution functions is `cumulative` (R, K), one a row. The value that a number in [0, 1) draws from a row
is how many of the row's entries are at most that number. The search for it begins where `guide` says.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# A product and the sum that it goes into may be rounded once.
compiled = njit(nogil=True, cache=True, fastmath={"contract"})
# Sums, least and largest entries of a row may be taken in any order.
reduction = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "nnan"})

GUIDES = 256
"""Into how many equal parts the numbers from 0 to 1 are cut."""


@compiled
def guide(cumulative):
    """Return how many entries of each row are at most g / GUIDES, for each g: (R, GUIDES)."""
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
    """Return the value that the number `uniform` draws from a row, by the table's guide `start`."""
    k = start[row, int(uniform * GUIDES)]
    while cumulative[row, k] <= uniform:
        k += 1
    return k


@compiled
def walk(cumulative, start, uniform, current, out):
    """Move chains on from their states `current` (n,), in place, by `uniform` (steps, n). Write to `out` (n, steps)."""
    for i in range(uniform.shape[0]):
        for c in range(len(current)):
            current[c] = choose(cumulative, start, current[c], uniform[i, c])
            out[c, i] = current[c]


@compiled
def emit(cumulative, start, uniform, states, memory, n_states, out):
    """Draw a token for each of the states (n, T), from row m * S + state, where the cell looked up holds m."""
    n_syntax = n_states // memory.shape[1]
    for c in range(out.shape[0]):
        for i in range(out.shape[1]):
            state = states[c, i]
            value = memory[c, state // n_syntax]
            row = value * n_states + state
            out[c, i] = choose(cumulative, start, row, uniform[c, i])
