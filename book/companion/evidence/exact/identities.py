"""Identities: equations of the paper confirmed at random rational points, without rounding.

A false identity of degree d holds at a random point with probability at most d / DRAWN. The degrees here are upper
bounds for the polynomial left when all denominators of an equation are multiplied out, in the free entries of A, W,
P[H_0], P[M], u and μ, for a given input and pattern of zeros.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from companion.evidence.exact import memory, vanilla
from companion.evidence.exact.rational import DRAWN
from companion.evidence.exact.vanilla import Differences

Sizes = tuple[tuple[int, int], ...]
VANILLA: Sizes = ((2, 3), (4, 12), (8, 50))
SHORTER: Sizes = ((2, 2), (4, 10), (6, 20))
MEMORY: Sizes = ((2, 3), (4, 6), (6, 12))


@dataclass(frozen=True)
class Identity:
    """`check(rng, n_states, length)` yields differences; `degree(n_states, length)` bounds the identity's degree."""

    check: Callable[[random.Random, int, int], Differences]
    sizes: Sizes
    degree: Callable[[int, int], int]


@dataclass(frozen=True)
class Confirmation:
    """`failures` entries were not 0 at `points` random points of each size (states, length).

    `error_bound` is the probability, at most, that a false identity passes at one point.
    """

    points: int
    sizes: Sizes
    failures: int
    error_bound: float


def joint_degree(length: int) -> int:
    """Of P[M, H, x]: one each for P[M], P[H_0] and u, two for each token, and up to three steps before the first."""
    return 2 * length + 6


def table_degree(n_states: int, length: int) -> int:
    """Proposition 3.4: entries of the table have degree 3; the left inverse adds a determinant, of degree n_states."""
    return n_states + 6


def quotient_degree(n_states: int, length: int) -> int:
    """Up to three joints, μ, a row of W; a left inverse of columns of W, and a marginal of degree 3 for each state."""
    return 3 * joint_degree(length) + 4 * n_states + 10


def memory_degree(n_states: int, length: int) -> int:
    """As `quotient_degree`, without marginals, but each joint with a stationary start, of degree n_states.

    The left inverse is of at most 3 * n_states + 3 columns, of degree 2 each (mixtures in V̄).
    """
    return 3 * (joint_degree(length) + n_states) + 6 * n_states + 20


def attention_degree(n_states: int, length: int) -> int:
    """As `memory_degree`, with means on both sides over positions, each of which has a denominator of its own."""
    return (2 * length + 5) * (joint_degree(length) + n_states) + 6 * n_states + 20


IDENTITIES: dict[str, Identity] = {
    "Proposition 3.4": Identity(vanilla.identity_proposition_3_4, VANILLA, table_degree),
    "Claim B.1": Identity(vanilla.identity_claim_b_1, VANILLA, quotient_degree),
    "Theorem 3.3": Identity(vanilla.identity_theorem_3_3, VANILLA, quotient_degree),
    "Lemma C.1": Identity(vanilla.identity_lemma_c_1, SHORTER, quotient_degree),
    "Lemma C.2": Identity(vanilla.identity_lemma_c_2, VANILLA, quotient_degree),
    "Theorem 3.6": Identity(vanilla.identity_theorem_3_6, VANILLA, quotient_degree),
    "Proposition D.1": Identity(memory.identity_proposition_d_1, MEMORY, memory_degree),
    "Claim D.3": Identity(memory.identity_claim_d_3, MEMORY, memory_degree),
    "Lemma D.4": Identity(memory.identity_lemma_d_4, MEMORY, memory_degree),
    "Theorem 4.3": Identity(memory.identity_theorem_4_3, MEMORY, attention_degree),
    "Lemma D.7": Identity(memory.identity_lemma_d_7, MEMORY, memory_degree),
    "Proposition D.8": Identity(memory.identity_proposition_d_8, MEMORY, memory_degree),
    "Claim D.10": Identity(memory.identity_claim_d_10, MEMORY, memory_degree),
    "Proposition D.11": Identity(memory.identity_proposition_d_11, MEMORY, memory_degree),
    "Lemma D.13": Identity(memory.identity_lemma_d_13, MEMORY, memory_degree),
    "Claim D.14": Identity(memory.identity_claim_d_14, MEMORY, memory_degree),
    "Claim D.15": Identity(memory.identity_claim_d_15, MEMORY, memory_degree),
    "Theorem D.6": Identity(memory.identity_theorem_d_6, MEMORY, attention_degree),
    "Theorem 4.6": Identity(memory.identity_theorem_4_6, MEMORY, attention_degree),
    "Exactness": Identity(vanilla.identity_exactness, VANILLA, quotient_degree),
    "Separable votes": Identity(vanilla.identity_separable_votes, VANILLA, quotient_degree),
    "Several classes": Identity(vanilla.identity_several_classes, VANILLA, quotient_degree),
}
"""By the name that the paper prints, or, of ours, that the ledger has."""


def confirm(name: str, points: int, seed: int) -> Confirmation:
    """Check one identity at `points` random points of each of its sizes."""
    identity = IDENTITIES[name]
    rng = random.Random(f"{name} {seed}")
    found = [identity.check(rng, *size) for size in identity.sizes for _ in range(points)]
    failures = sum(int(np.count_nonzero(one)) for differences in found for one in differences)
    degree = max(identity.degree(*size) for size in identity.sizes)
    return Confirmation(points, identity.sizes, failures, degree / DRAWN)
