"""The loops that draw a chain and its tokens, compiled for CPUs.

Each row of a table `cumulative` (R, K) is the distribution function of one distribution on the values 0, …, K - 1. A
random number from [0, 1) draws a value from a row, by inverting the function. The value is the number of entries of the
row that are at most the random number. To find it fast, the search begins where `guide` says.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# The compiler may round a product and the sum that it enters once, together.
compiled = njit(nogil=True, cache=True, fastmath={"contract"})
# The compiler may also add in any order, and may take it that no number is NaN and that -0 is 0.
reduction = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "nnan"})

GUIDES = 256
"""The number of equal parts into which `guide` cuts the interval from 0 to 1."""


@compiled
def guide(cumulative):
    """Return how many entries of each row are at most g / GUIDES, for g = 0, …, GUIDES - 1, as (R, GUIDES).

    A search for a number from part g begins there.
    """
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
    """Return the value that the number `uniform` draws from a row. `start` is the table's guide."""
    k = start[row, int(uniform * GUIDES)]
    while cumulative[row, k] <= uniform:
        k += 1
    return k


@compiled
def walk(cumulative, start, uniform, current, out):
    """Move n chains on by some steps, and write their states to `out`, (n, steps).

    The chains go on from the states `current` (n,), which the last states replace. Each of the numbers `uniform`
    (steps, n) draws one step of one chain.
    """
    for i in range(uniform.shape[0]):
        for c in range(len(current)):
            current[c] = choose(cumulative, start, current[c], uniform[i, c])
            out[c, i] = current[c]


@compiled
def emit(cumulative, start, uniform, states, memory, n_states, out):
    """Draw a token for each of the states (n, T), and write it to `out`.

    The distribution of the token is row m * S + state of the table, if the cell that the state looks up holds m.
    """
    n_syntax = n_states // memory.shape[1]
    for c in range(out.shape[0]):
        for i in range(out.shape[1]):
            state = states[c, i]
            value = memory[c, state // n_syntax]
            row = value * n_states + state
            out[c, i] = choose(cumulative, start, row, uniform[c, i])
