"""Probabilities that are fractions of powers of two: exact in floats, with ties, as near the edge as one likes."""

from fractions import Fraction

import numpy as np


def column(rng, n, units, zeros=0.3):
    """A distribution over n in whole units of 1 / units, with about a share `zeros` of zeros."""
    weights = rng.integers(1, 4, n) * (rng.random(n) >= zeros)
    if not weights.any():
        weights[rng.integers(n)] = 1
    parts = weights * units // weights.sum()
    parts[rng.choice(weights.nonzero()[0])] += units - parts.sum()
    return parts / units


def columns(rng, n, k, units, zeros=0.3):
    """Such distributions side by side, (n, k)."""
    return np.stack([column(rng, n, units, zeros) for _ in range(k)], 1)


def subset(rng, n):
    """Some of the numbers below n, at least one, sorted."""
    return sorted(rng.choice(n, rng.integers(1, n + 1), replace=False).tolist())


def towards(one, other, depth):
    """(1 - d) one + d other for d = 2^-depth, without rounding: so the fractions of both must be coarse."""
    share = Fraction(1, 2**depth)
    moved = [(1 - share) * Fraction(a) + share * Fraction(b) for a, b in zip(one, other, strict=True)]
    found = np.array([float(entry) for entry in moved])
    assert [Fraction(entry) for entry in found] == moved
    return found


def balancing(rng, weights):
    """Whole weights μ, not all 0, with Σ μ weights = 0 exactly, for rational weights; None where no floats hold any."""
    weights, mu = [Fraction(weight) for weight in weights], [0] * len(weights)
    positive = [k for k, weight in enumerate(weights) if weight]
    if len(positive) < 2:
        mu = [int(rng.integers(-2, 3)) * (k not in positive) for k in range(len(weights))]
        return mu if any(mu) else None
    one, other = rng.choice(positive, 2, replace=False)
    share = weights[other] / weights[one]
    mu[one], mu[other] = share.numerator, -share.denominator
    return mu if max(map(abs, mu)) < 2**50 else None
