"""Identities: equations of the paper confirmed at random rational points, without rounding.

A false identity of degree d holds at a random point with probability at most d / DRAWN. The degree is that of the
polynomial left when all denominators of an equation are multiplied out, in the free entries of A, W, P[H_0], P[M], u
and μ, for a given input and pattern of zeros. At the sizes here it is at most 1,100, so the probability is below 2^-50.

The largest bound is that of an attention head with T = 12 positions and 6 states. Both sides of its equation are means
over positions of quotients, and each of the 2 T + 5 factors in their denominators has a degree of at most 2 T + 12. The
left inverse adds 56: it is of at most 21 columns, some of which are mixtures of degree 2.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hmmbook.evidence.exact import memory, vanilla
from hmmbook.evidence.exact.vanilla import Differences

Sizes = tuple[tuple[int, int], ...]
"""Pairs of a number of states and a length."""
VANILLA: Sizes = ((2, 3), (4, 12), (8, 50))
MEMORY: Sizes = ((2, 3), (4, 6), (6, 12))
SHORTER: Sizes = ((2, 2), (4, 10), (6, 20))
"""For Lemma C.1, whose messages as the paper prints them divide at every step, so that fractions grow."""


class Identity(NamedTuple):
    """An equation, and where it is confirmed."""

    check: Callable[[random.Random, int, int], Differences]  # of a generator, a number of states and a length
    sizes: Sizes


@dataclass(frozen=True)
class Confirmation:
    """How an identity fared at random points."""

    points: int  # the number of points at each size
    sizes: Sizes
    failures: int  # the number of entries that were not 0


IDENTITIES = {
    "Proposition 3.4": Identity(vanilla.identity_proposition_3_4, VANILLA),
    "Claim B.1": Identity(vanilla.identity_claim_b_1, VANILLA),
    "Theorem 3.3": Identity(vanilla.identity_theorem_3_3, VANILLA),
    "Lemma C.1": Identity(vanilla.identity_lemma_c_1, SHORTER),
    "Lemma C.2": Identity(vanilla.identity_lemma_c_2, VANILLA),
    "Theorem 3.6": Identity(vanilla.identity_theorem_3_6, VANILLA),
    "Proposition D.1": Identity(memory.identity_proposition_d_1, MEMORY),
    "Claim D.3": Identity(memory.identity_claim_d_3, MEMORY),
    "Claim D.10": Identity(memory.identity_claim_d_10, MEMORY),
    "Lemma D.4": Identity(memory.identity_lemma_d_4, MEMORY),
    "Lemma D.13": Identity(memory.identity_lemma_d_13, MEMORY),
    "Theorem 4.3": Identity(memory.identity_theorem_4_3, MEMORY),
    "Theorem 4.6": Identity(memory.identity_theorem_4_6, MEMORY),
    "Theorem D.6": Identity(memory.identity_theorem_d_6, MEMORY),
    "Lemma D.7": Identity(memory.identity_lemma_d_7, MEMORY),
    "Proposition D.8": Identity(memory.identity_proposition_d_8, MEMORY),
    "Proposition D.11": Identity(memory.identity_proposition_d_11, MEMORY),
    "Claim D.14": Identity(memory.identity_claim_d_14, MEMORY),
    "Claim D.15": Identity(memory.identity_claim_d_15, MEMORY),
}
"""By the name of the statement."""


def confirm(name: str, points: int, seed: int) -> Confirmation:
    """Check an identity at random points of each of its sizes.

    Args:
        name: The name of a statement in IDENTITIES, for example "Claim B.1".
        points: The number of points at each size.
        seed: Where the points are drawn from.

    Returns:
        The number of entries that were not exactly 0.
    """
    identity = IDENTITIES[name]
    rng = random.Random(f"{name} {seed}")
    failures = 0
    for n_states, length in identity.sizes:
        for _ in range(points):
            for difference in identity.check(rng, n_states, length):
                failures += int(np.count_nonzero(difference))
    return Confirmation(points, identity.sizes, failures)
