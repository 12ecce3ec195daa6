"""Identities: equations of the paper confirmed at random rational points, without rounding.

A false identity of degree d holds at a random point with probability at most d / DRAWN. The degrees here are upper
bounds for the polynomial left when all denominators of an equation are multiplied out, in the free entries of A, W,
P[H_0], P[M], u and μ, for a given input and pattern of zeros.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np

from companion.evidence.exact import memory, vanilla
from companion.evidence.exact.rational import DRAWN
from companion.evidence.exact.vanilla import Differences

Sizes = tuple[tuple[int, int], ...]
VANILLA: Sizes = ((2, 3), (4, 12), (8, 50))
MEMORY: Sizes = ((2, 3), (4, 6), (6, 12))
SHORTER: Sizes = ((2, 2), (4, 10), (6, 20))
"""For Lemma C.1, whose messages as the paper prints them divide at every step, so that fractions grow."""


class Identity(NamedTuple):
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


# P[M, H, x] has a degree of at most 2 T + 6: one each for P[M], P[H_0] and u, two for each token, three steps before.


def quotient_degree(n_states: int, length: int) -> int:
    """Up to three joints, μ, a row of W; a left inverse of columns of W, and a marginal of degree 3 for each state."""
    return 3 * (2 * length + 6) + 4 * n_states + 10


def attention_degree(n_states: int, length: int) -> int:
    """Joints with a stationary start, of degree n_states; means on both sides over positions, each with a denominator.

    The left inverse is of at most 3 * n_states + 3 columns, of degree 2 each (mixtures in V̄).
    """
    return (2 * length + 5) * (2 * length + 6 + n_states) + 6 * n_states + 20


def _by_statement(module: ModuleType, sizes: Sizes, degree: Callable[[int, int], int]) -> dict[str, Identity]:
    """The identities of a module by the names of their statements: identity_claim_b_1 is that of Claim B.1."""
    found = {}
    for key, check in vars(module).items():
        if key.startswith("identity_"):
            words = key.removeprefix("identity_").replace("_", " ").capitalize()
            name = re.sub(r" (\w) (\d+)$", lambda number: f" {number[1].upper()}.{number[2]}", words)
            found[name] = Identity(check, sizes, degree)
    return found


IDENTITIES = _by_statement(vanilla, VANILLA, quotient_degree) | _by_statement(memory, MEMORY, attention_degree)
IDENTITIES["Lemma C.1"] = IDENTITIES["Lemma C.1"]._replace(sizes=SHORTER)


def confirm(name: str, points: int, seed: int) -> Confirmation:
    """Check one identity at `points` random points of each of its sizes."""
    identity = IDENTITIES[name]
    rng = random.Random(f"{name} {seed}")
    found = [identity.check(rng, *size) for size in identity.sizes for _ in range(points)]
    failures = sum(int(np.count_nonzero(one)) for differences in found for one in differences)
    degree = max(identity.degree(*size) for size in identity.sizes)
    return Confirmation(points, identity.sizes, failures, degree / DRAWN)
