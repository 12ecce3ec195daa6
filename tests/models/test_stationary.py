"""Stationary distributions of chains whose rates lie far apart, against the same elimination in fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from hmmlib.models import hmm
from hmmlib.models.hmm import HMM


def exactly_stationary(transition: torch.Tensor) -> list[Fraction]:
    """By the same elimination, in fractions: nothing is rounded."""
    rest = [[Fraction(entry) for entry in row] for row in transition.double().tolist()]
    for k in range(len(rest) - 1, 0, -1):
        leaving = sum(rest[h][k] for h in range(k))
        rest[k][:k] = [entry / leaving for entry in rest[k][:k]]
        for h in range(k):
            rest[h][:k] = [a + rest[h][k] * b for a, b in zip(rest[h][:k], rest[k][:k], strict=True)]
    weights = [Fraction(1)]
    for k in range(1, len(rest)):
        weights.append(sum(a * b for a, b in zip(rest[k][:k], weights, strict=True)))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize(("kind", "accurate"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_chains_whose_rates_lie_far_apart_have_their_stationary_law(kind, accurate, monkeypatch):
    again = []
    in_logarithms = hmm._stationary_in_logarithms
    monkeypatch.setattr(hmm, "_stationary_in_logarithms", lambda rates: (again.append(rates), in_logarithms(rates))[1])
    generator, tiny = torch.Generator().manual_seed(0), torch.finfo(kind).tiny
    for _ in range(200):
        n = int(torch.randint(2, 7, (1,), generator=generator))
        powers = torch.rand(n, n, generator=generator, dtype=torch.float64) * math.log(tiny) * 0.9
        there = torch.rand(n, n, generator=generator) < 0.5
        there[torch.arange(1, n), torch.arange(n - 1)] = there[0, n - 1] = True  # a cycle, so no state is ever lost
        rates = torch.where(there, powers.exp(), 0).to(kind)
        found, exact = hmm.stationary_by_elimination(rates), exactly_stationary(rates)
        assert all(abs(found[k].item() / float(exact[k]) - 1) < accurate for k in range(n) if exact[k] > tiny), rates
    assert 20 < len(again) < 180


def test_a_product_that_is_lost_beside_a_larger_term_is_noticed():
    chain = [
        [0.9, 1e-280, 1e-280, 0, 0, 0],
        [0, 1, 0, 1e-200, 0, 0],
        [0, 0, 1, 1e-280, 0, 1e-100],
        [1e-300, 0, 0, 1, 1e-300, 1e-200],
        [0, 1e-100, 0, 0, 1, 0],
        [0.1, 0, 1e-280, 0, 0, 1],
    ]
    found = HMM(chain, np.ones((1, 6)), np.full(6, 1 / 6)).stationary().numpy()
    assert np.allclose(found, [10 / 3 * 1e-280, 2e-200 / 3, 1 / 3, 2e-100 / 3, 2 / 3, 2e-180 / 3], rtol=1e-12, atol=0)
