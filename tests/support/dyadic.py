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
    distributions = [column(rng, n, units, zeros) for _ in range(k)]
    return np.stack(distributions, 1)


def subset(rng, n):
    """Some of the numbers below n, at least one, sorted."""
    size = rng.integers(1, n + 1)
    return sorted(rng.choice(n, size, replace=False).tolist())


def towards(start, end, depth):
    """(1 - d) start + d end for d = 2^-depth, without rounding: so the fractions of both must be coarse."""
    share = Fraction(1, 2**depth)
    moved = []
    for a, b in zip(start, end, strict=True):
        exact = (1 - share) * Fraction(a) + share * Fraction(b)
        moved.append(float(exact))
        assert Fraction(moved[-1]) == exact
    return np.array(moved)


def balancing(rng, weights):
    """Whole weights μ, not all 0, with Σ μ weights = 0 exactly, for rational weights; None where no floats hold any."""
    mu = [0] * len(weights)
    positive = np.flatnonzero(weights)
    if len(positive) < 2:
        for k in range(len(weights)):
            weight = int(rng.integers(-2, 3))
            if k not in positive:
                mu[k] = weight
        return mu if any(mu) else None
    first, second = rng.choice(positive, 2, replace=False)
    share = Fraction(weights[second]) / Fraction(weights[first])
    mu[first] = share.numerator
    mu[second] = -share.denominator
    return mu if max(map(abs, mu)) < 2**50 else None
