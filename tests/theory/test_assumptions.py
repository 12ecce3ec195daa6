"""The numbers that the predicates report, against computations of another kind; verdicts: `test_near_the_edge`."""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.linalg
import torch

import hmmlib
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import AssumptionError, Verdict, exact_rank, independence, recoverable_columns

HOLDS, FAILS, CLOSE = Verdict.HOLDS, Verdict.FAILS, Verdict.CLOSE
EPS = 2.0**-52
HALF, TURN = [[0.0, 0.5], [1.0, 0.5]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
TWO_FOUR = [[0, 0.5, 0, 1], [1, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 1, 0]]  # cycles of two and of four states
MIXED = np.array([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0.3, 0.3, 0.4]]).T  # from 0 to 0 and 1 only, from others anywhere
STILL = np.array([[1.0, 0, 0], [1.0, 0, 0], [0.3, 0.3, 0.4]]).T  # from 0 and 1 to 0: nothing leads to 1 surely


@pytest.mark.parametrize(
    ("transition", "initial", "found", "summary"),
    [
        (HALF, [0.5, 0.5], (True, True, 1, 2, 2), "is irreducible of period 1; P[H_0] is positive on 2 of 2 states"),
        (HALF, [1, 0], (False, True, 1, 1, 2), "is irreducible of period 1; P[H_0] is positive on 1 of 2 states"),
        (TURN, [0.5, 0.5, 0], (False, True, 3, 2, 3), "irreducible of period 3; P[H_0] is positive on 2 of 3 states"),
        (TWO_FOUR, [0.25] * 4, (False, True, 2, 4, 4), "of period 2; P[H_0] is positive on 4 of 4 states"),
        (np.eye(2), [0.5, 0.5], (False, False, 0, 2, 2), "the chain is reducible; P[H_0] is positive on 2 of 2 states"),
    ],
)  # fmt: skip
def test_regularity_is_reported_whole(transition, initial, found, summary):
    table = np.eye(len(initial))
    report = hmmlib.assumption_3_2(HMM(transition, table, initial, columns=True))
    assert report == hmmlib.assumption_3_2(MemoryHMM(transition, table[:, None], initial, [1.0]))
    assert (report.holds, report.irreducible, report.period, report.start_support, report.n_states) == found
    assert bool(report) is found[0]
    assert report.assumption == "Assumption 3.2 (regularity)"
    assert str(report).endswith(summary)
    if found[0]:
        assert report.require() is report
        return
    with pytest.raises(AssumptionError) as caught:
        report.require()
    assert str(caught.value) == f"Assumption 3.2 (regularity) does not hold: {report}"
    assert caught.value.report is report


@pytest.mark.parametrize(
    ("columns", "verdict", "rank", "smallest", "largest"),
    [
        ([[3, 0, 0], [0, 5, 0], [0, 0, 4], [0, 0, 0]], HOLDS, 3, 3.0, 5.0),
        ([[2, 0, 0], [0, 1, 0]], FAILS, 2, 0.0, 2.0),
        ([[0, 0], [0, 0], [0, 0]], FAILS, 0, 0.0, 0.0),
    ],
)
def test_the_report_on_columns_along_the_axes(columns, verdict, rank, smallest, largest):
    columns = torch.tensor(columns, dtype=torch.float64)
    report, n_columns = independence("these columns", columns), columns.shape[1]
    assert (report.assumption, report.verdict, report.rank) == ("these columns", verdict, rank)
    assert (report.smallest_singular_value, report.largest_singular_value) == (smallest, largest)
    assert (report.tolerance, report.n_columns) == (max(columns.shape) * EPS * largest, n_columns)
    assert report.condition == (largest / smallest if verdict is HOLDS else math.inf)
    words = f"smallest singular value {smallest:.3g} (tolerance {report.tolerance:.2g})"
    assert str(report) == f"{n_columns} columns of rank {rank}, {words}"


def test_ranks_are_judged_by_the_rounding_of_the_columns_and_exactly_however_small_they_are():
    near = torch.tensor([[1.0, 1.0], [0.0, 1e-7]], dtype=torch.float64)
    report = independence("", near.float())
    assert (independence("", near).rank, report.rank) == (2, 1)
    assert report.tolerance == pytest.approx(2 * 2**-23 * math.sqrt(2))
    smallest = torch.tensor([[1.0, 2.0**-1074], [0.0, 2.0**-1074]], dtype=torch.float64)
    assert (exact_rank(smallest), exact_rank(smallest[:1].repeat(2, 1))) == (2, 1)
    plain = HMM(HALF, [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5])
    assert hmmlib.assumption_3_1(plain) == independence("Assumption 3.1 (non-degeneracy)", plain.emission)


def test_a_stationary_start_is_reported_whole():
    third = hmmlib.assumption_4_4(HMM(HALF, np.eye(2), [1 / 3, 2 / 3]))
    assert third.holds
    assert third.drift < 1e-15
    assert third.regularity == hmmlib.assumption_3_2(HMM(HALF, np.eye(2), [1 / 3, 2 / 3]))
    half = hmmlib.assumption_4_4(HMM(HALF, np.eye(2), [0.5, 0.5]))
    assert (half.assumption, half.verdict, half.drift) == ("Assumption 4.4 (stationarity)", FAILS, 0.5)
    assert str(half) == f"{half.regularity}; A P[H_0] differs from P[H_0] by a factor of up to 1 + 0.5"
    still = hmmlib.assumption_4_4(HMM(np.eye(2), np.eye(2), [0.5, 0.5]))  # stationary, but not regular
    assert (still.holds, still.drift) == (False, 0.0)


@pytest.mark.parametrize(
    ("chain", "mu", "essential", "holds", "rest", "words"),
    [
        (MIXED, [1, -1, 0], [1, 0], True, ((), (0,), ()), "[]; states of H* that no step surely into H* reaches: []"),
        (MIXED, [1, 0, 1], [0, 1], False, ((2,), (0,), ()), "[2]; states of H* that no step"),
        (MIXED, [1, 0, 0], [0], False, ((), (), (0,)), "[]; states of H* that no step surely into H* reaches: [0]"),
        (STILL, [1, 0, 0], [0, 1], False, ((), (0, 1), (1,)), "reaches: [1]"),
    ],
)
def test_essential_states_are_reported_whole(chain, mu, essential, holds, rest, words):
    report = hmmlib.assumption_3_5(HMM(chain, np.eye(3), np.full(3, 1 / 3)), mu, essential)
    assert (report.assumption, report.holds) == ("Assumption 3.5 (relaxed non-degeneracy)", holds)
    assert (report.uncovered, report.sources, report.unreached) == rest
    assert report.columns == independence("columns of W at H*", torch.eye(3).double()[:, essential])
    assert str(report).startswith(f"{report.columns}; states of supp(mu) outside H*: ")
    assert words in str(report)


def test_essential_states_are_found_wherever_one_of_all_sets_will_do():
    found = 0
    for seed in range(60):
        model = hmmlib.sparse_hmm(2 + seed % 3, 2 + seed % 2, seed, zeros=0.6)
        n = model.n_states
        mu = np.random.default_rng(seed).choice([0.0, 1.0, -2.0], size=n)
        mu[seed % n] = 1.0
        sets = [list(which) for size in range(1, n + 1) for which in combinations(range(n), size)]
        good = [which for which in sets if hmmlib.assumption_3_5(model, mu, which).holds]
        assert hmmlib.essential_states(model, mu) in (good or [None]), seed
        found += bool(good)
    assert 10 < found < 50


@pytest.mark.parametrize("seed", range(12))
def test_recovery_is_reported_as_scipy_says(seed):
    sizes = 1 + seed // 6, 3, 2, 1 + seed % 2, 3 - seed % 2
    model, cell, syntax, values = hmmlib.recoverable_memory_hmm(*sizes, seed, zeros=0.2)
    mu = np.zeros(3)
    mu[values] = 1.0
    columns, rest = (part.numpy() for part in recoverable_columns(model, cell, syntax, values))
    of_others = 3 * (model.n_states - model.n_syntax)
    assert rest.shape[1] == len(values) * (model.n_syntax - len(syntax)) + of_others
    reports = {"D.5": hmmlib.assumption_d_5(model, mu, cell, syntax)}
    if model.n_cells == 1:
        reports["4.5"] = hmmlib.assumption_4_5(model, mu, syntax)
    if len(values) == 3:
        reports["4.2"] = hmmlib.assumption_4_2(model, cell, syntax)
    rank, angle, condition = 0, np.pi / 2, np.linalg.cond(columns)
    if rest.shape[1]:
        basis, angle = scipy.linalg.orth(rest), scipy.linalg.subspace_angles(columns, rest).min()
        rank, condition = basis.shape[1], np.linalg.cond(np.hstack([columns, basis]))
    for number, report in reports.items():
        assert report.assumption == f"Assumption {number} (recoverable states)"
        assert (report.holds, report.rest_rank) == (True, rank)
        assert report.columns == independence("columns of W at M* x H*", torch.as_tensor(columns))
        assert report.angle == pytest.approx(angle, rel=1e-7)
        assert report.condition == pytest.approx(condition, rel=1e-9)
        words = f"smallest angle to the span of the others (dimension {rank}): {report.angle:.3g} "
        assert str(report) == f"{report.columns}; {words}(give or take {report.angle_error:.2g})"


def even(emission):
    """A memory of one value; state h emits like column h."""
    emission = np.asarray(emission, float)
    n = emission.shape[1]
    return MemoryHMM(np.full((n, n), 1 / n), emission[:, None], [1 / n] * n, [1.0])


def test_spans_that_meet_break_recovery_though_the_columns_are_independent():
    model = even([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 0]])  # the third column is the mean of the first two
    report = hmmlib.assumption_4_2(model, 0, [0, 1])
    assert (report.columns.holds, report.holds, report.rest_rank, report.condition) == (True, False, 1, math.inf)
    assert report.angle == pytest.approx(0, abs=1e-7)
    assert hmmlib.assumption_4_2(model, 0, [0]).angle == pytest.approx(0, abs=1e-7)  # the two others span the first
    # Others whose rank is within rounding leave open only what depends on them.
    others = np.array([[0.1, 0.1, 0.8]]) + 2.0**-56 * np.array([[0, 0, 0], [1, -1, 0]])
    for second, verdict in (([0.05, 0.9, 0.05], CLOSE), ([0.9, 0.05, 0.05], FAILS)):
        model = even(np.stack([[0.9, 0.05, 0.05], second, *others], 1))
        assert hmmlib.assumption_4_2(model, 0, [0, 1]).verdict is verdict


@pytest.mark.parametrize(
    ("drift", "verdict"), [(2.0**-49, HOLDS), (1.125 * 2.0**-48, CLOSE), (2.0**-45, CLOSE), (2.0**-28, FAILS)]
)
def test_a_uniform_start_may_drift_by_the_rounding_of_its_sums(drift, verdict):
    """That is 4 · 4 · 2⁻⁵² = 2⁻⁴⁸ of each share here."""
    transition = torch.full((4, 4), 0.25, dtype=torch.float64)
    transition[:2] += drift / 4 * torch.tensor([[1.0], [-1.0]])
    report = hmmlib.assumption_4_4(HMM(transition, np.eye(4), [0.25] * 4))
    assert (report.verdict, report.drift) == (verdict, drift)


def test_assumption_4_5_is_about_one_cell_and_spans_along_the_axes_turn_by_nothing():
    table = torch.eye(8, dtype=torch.float64).reshape(8, 2, 4)
    model = MemoryHMM(np.full((4, 4), 0.25), table, np.full(4, 0.25), np.full((2, 2), 0.25))
    with pytest.raises(ValueError, match=r"^Assumption 4\.5 is about one memory cell, not 2: see assumption_d_5$"):
        hmmlib.assumption_4_5(model, [1.0, -1.0], [0])
    with pytest.raises(ValueError, match=r"^each of values must be an integer from 0 to 1, not 2$"):
        recoverable_columns(model, 1, [1], [2])
    assert hmmlib.assumption_d_5(model, [0.0, 1.0], 0, [0]).angle_error == 8 * EPS
