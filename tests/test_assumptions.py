"""The predicates on models, against computations of another kind."""

import math

import numpy as np
import pytest
import torch

from hmmlib.assumptions import AssumptionError, assumption_3_1, assumption_3_2, chain_period, independence
from hmmlib.generate import random_memory_hmm, sparse_columns, sparse_hmm
from hmmlib.hmm import HMM


def by_powers(transition):
    """Irreducibility and period from powers of the Boolean matrix: the lengths of all walks from state 0 back to it."""
    follows = (transition > 0).numpy().T
    n = len(follows)
    reach, walks, returns = np.eye(n, dtype=bool), np.eye(n, dtype=bool), []
    for length in range(1, 3 * n + 1):  # enough to go to any cycle, round it, and back
        walks = walks @ follows
        reach |= walks
        if walks[0, 0]:
            returns.append(length)
    return (True, math.gcd(*returns)) if reach.all() else (False, 0)


def random_chain(seed):
    """A sparse chain; every second one moves round 2 to 4 classes of states, under shuffled names."""
    rng = np.random.default_rng(seed)
    period = int(rng.integers(2, 5)) if seed % 2 else 1
    n = int(rng.integers(period, 9))
    group = np.arange(n) % period
    allowed = torch.as_tensor((group[:, None] - group - 1) % period == 0)
    transition = allowed * sparse_columns((n, n), 0.2 * (seed % 5), torch.Generator().manual_seed(seed))
    transition = torch.where(transition.sum(0) > 0, transition, allowed.double())
    order = rng.permutation(n)
    return (transition / transition.sum(0))[order][:, order]


def test_period_of_random_chains_by_matrix_powers():
    seen = {}
    for seed in range(1500):
        chain = random_chain(seed)
        expected = by_powers(chain)
        assert chain_period(chain) == expected, seed
        seen[expected] = seen.get(expected, 0) + 1
    assert all(seen.get(kind, 0) > 20 for kind in [(False, 0), (True, 1), (True, 2), (True, 3), (True, 4)]), seen


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_period_of_a_cycle(n):
    cycle = torch.eye(n).roll(1, 0)
    assert chain_period(cycle) == (True, n)
    cycle[:, -1] = (cycle[:, -1] + cycle[:, 0]) / 2  # from the last state also past the first one
    assert chain_period(cycle) == (True, 1)


def test_regularity_report():
    swap, loop = [[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.5], [1.0, 0.5]]
    for transition, initial, expected in [
        (loop, [0.5, 0.5], (True, True, 1, 2)),
        (loop, [1.0, 0.0], (False, True, 1, 1)),
        (swap, [0.5, 0.5], (False, True, 2, 2)),
        (np.eye(2), [0.5, 0.5], (False, False, 0, 2)),
    ]:
        report = assumption_3_2(HMM(transition, [[1.0, 1.0]], initial))
        assert (report.holds, report.irreducible, report.period, report.start_support) == expected
        assert bool(report) is expected[0]
        assert report.assumption.startswith("Assumption 3.2")
    with pytest.raises(AssumptionError, match=r"reducible; P\[H_0\] is positive on 2 of 2 states") as caught:
        report.require()
    assert caught.value.report is report


def test_regularity_of_memory_models_is_that_of_their_chain():
    for seed in range(30):
        model = random_memory_hmm(3, 4, 5, seed)
        assert assumption_3_2(model).holds == (by_powers(model.transition) == (True, 1))


def test_rank_of_random_emissions():
    ranks = set()
    for seed in range(300):
        model = sparse_hmm(1 + seed % 5, 1 + seed % 7, seed, 0.5)
        report, expected = assumption_3_1(model), np.linalg.matrix_rank(model.emission.numpy())
        assert (report.rank, report.holds) == (expected, expected == model.n_states)
        ranks.add((expected, model.n_states))
        singular = np.linalg.svd(model.emission.numpy(), compute_uv=False)
        assert report.largest_singular_value == pytest.approx(singular[0])
        if expected == model.n_states:
            assert report.smallest_singular_value == pytest.approx(singular[-1])
            assert report.condition == pytest.approx(singular[0] / singular[-1])
        else:
            assert report.smallest_singular_value < 1e-14
            assert report.condition == math.inf
    assert len(ranks) > 10


@pytest.mark.parametrize(("gap", "holds"), [(0.0, False), (1e-17, False), (1e-12, True), (1e-6, True), (0.5, True)])
def test_rank_of_duplicates_and_near_duplicates(gap, holds):
    emission = torch.tensor([[0.2, 0.5, 0.2], [0.3, 0.1, 0.3], [0.5, 0.4, 0.5]], dtype=torch.float64)
    emission[:, 2] += gap * torch.tensor([0.1, -0.3, 0.2], dtype=torch.float64)
    report = independence("these columns", emission)
    assert (report.holds, report.rank) == (holds, 3 if holds else 2)
    if gap >= 1e-12:
        assert 0.01 * gap < report.smallest_singular_value < gap
    if not holds:
        with pytest.raises(AssumptionError, match="these columns does not hold: 3 columns of rank 2"):
            report.require()


def test_more_columns_than_rows_are_dependent():
    report = independence("these columns", torch.rand(3, 4, dtype=torch.float64))
    assert (report.holds, report.rank, report.n_columns, report.smallest_singular_value) == (False, 3, 4, 0.0)
