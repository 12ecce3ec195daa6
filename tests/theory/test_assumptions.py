"""The numbers that the predicates report, against computations of another kind; verdicts: `test_near_the_edge`."""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.linalg
import torch

import hmmlib
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import recoverable_columns
from hmmlib.theory.ranks import exact_rank, independence
from hmmlib.theory.reports import AssumptionError, Verdict

DOUBLE = torch.float64
EPS = 2.0**-52
HALF = [[0.0, 0.5], [1.0, 0.5]]
UNIFORM = [0.5, 0.5]

# Assumption 3.1

ONE_TO_EACH_AXIS = [
    [3, 0, 0],
    [0, 5, 0],
    [0, 0, 4],
    [0, 0, 0],
]
ONE_IS_ZERO = [
    [2, 0, 0],
    [0, 1, 0],
]
ALL_ARE_ZERO = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("columns", "rank", "smallest", "largest"),
    [
        (ONE_TO_EACH_AXIS, 3, 3.0, 5.0),
        (ONE_IS_ZERO, 2, 0.0, 2.0),
        (ALL_ARE_ZERO, 0, 0.0, 0.0),
    ],
)
def test_the_report_on_columns_along_the_axes(columns, rank, smallest, largest):
    columns = torch.as_tensor(columns, dtype=DOUBLE)
    n_columns = columns.shape[1]
    report = independence("these columns", columns)
    assert report.assumption == "these columns"
    assert report.n_columns == n_columns
    assert report.rank == rank
    assert report.smallest_singular_value == smallest
    assert report.largest_singular_value == largest
    assert report.tolerance == max(columns.shape) * EPS * largest
    assert report.verdict is (Verdict.HOLDS if rank == n_columns else Verdict.FAILS)
    assert report.condition == (largest / smallest if rank == n_columns else math.inf)
    text_of_size = f"smallest singular value {smallest:.3g} (tolerance {report.tolerance:.2g})"
    assert str(report) == f"{n_columns} columns of rank {rank}, {text_of_size}"


def test_ranks_are_judged_by_the_rounding_of_the_columns():
    columns = torch.tensor([[1.0, 1.0], [0.0, 1e-7]], dtype=DOUBLE)
    assert independence("", columns).rank == 2
    report = independence("", columns.float())
    assert report.rank == 1
    assert report.tolerance == pytest.approx(2 * 2**-23 * math.sqrt(2))


def test_ranks_are_exact_however_small_the_entries_are():
    least = 2.0**-1074
    columns = torch.tensor([[1.0, least], [0.0, least]], dtype=DOUBLE)
    assert exact_rank(columns) == 2
    assert exact_rank(columns[:1].repeat(2, 1)) == 1


def test_a_singular_value_that_only_rounding_made_positive_counts_as_zero():
    third_is_the_mean = [
        [4.0, 2.0, 3.0],
        [2.0, 4.0, 3.0],
        [1.0, 2.0, 1.5],
    ]
    report = independence("", torch.tensor(third_is_the_mean, dtype=DOUBLE))
    assert report.smallest_singular_value > 0
    assert report.verdict is Verdict.FAILS
    assert report.condition == math.inf


def test_assumption_3_1_is_about_the_columns_of_the_emission():
    emission = [[0.75, 0.25], [0.25, 0.75]]
    model = HMM(HALF, emission, UNIFORM)
    assert hmmlib.assumption_3_1(model) == independence("Assumption 3.1 (non-degeneracy)", model.emission)


# Assumption 3.2

TURN = np.eye(3)[[2, 0, 1]]  # 0 to 1 to 2 to 0
CYCLES_OF_TWO_AND_FOUR = [
    [0, 0.5, 0, 1],
    [1, 0, 0, 0],
    [0, 0.5, 0, 0],
    [0, 0, 1, 0],
]


@pytest.mark.parametrize(
    ("transition", "initial", "period", "support"),
    [
        (HALF, UNIFORM, 1, 2),
        (HALF, [1, 0], 1, 1),
        (TURN, [0.5, 0.5, 0], 3, 2),
        (CYCLES_OF_TWO_AND_FOUR, [0.25] * 4, 2, 4),
        (np.eye(2), UNIFORM, 0, 2),
    ],
)
def test_the_report_on_regularity(transition, initial, period, support):
    n_states = len(initial)
    table = np.eye(n_states)
    report = hmmlib.assumption_3_2(HMM(transition, table, initial, columns=True))
    assert report == hmmlib.assumption_3_2(MemoryHMM(transition, table[:, None], initial, [1.0]))
    assert report.irreducible is (period > 0)
    assert report.period == period
    assert report.start_support == support
    assert report.n_states == n_states
    chain = f"irreducible of period {period}" if period else "reducible"
    assert str(report) == f"the chain is {chain}; P[H_0] is positive on {support} of {n_states} states"
    assert report.holds is bool(report) is (period == 1 and support == n_states)
    if report.holds:
        assert report.require() is report
        return
    with pytest.raises(AssumptionError) as caught:
        report.require()
    assert str(caught.value) == f"Assumption 3.2 (regularity) does not hold: {report}"
    assert caught.value.report is report


# Assumption 3.5

ANYWHERE = [0.3, 0.3, 0.4]
FROM_0_TO_0_AND_1 = [
    [0.5, 0.5, 0],
    ANYWHERE,
    ANYWHERE,
]
NOTHING_LEADS_TO_1_SURELY = [
    [1.0, 0, 0],
    [1.0, 0, 0],
    ANYWHERE,
]


@pytest.mark.parametrize(
    ("rows", "mu", "essential", "uncovered", "sources", "unreached"),
    [
        (FROM_0_TO_0_AND_1, [1, -1, 0], [1, 0], [], [0], []),
        (FROM_0_TO_0_AND_1, [1, 0, 1], [0, 1], [2], [0], []),
        (FROM_0_TO_0_AND_1, [1, 0, 0], [0], [], [], [0]),
        (NOTHING_LEADS_TO_1_SURELY, [1, 0, 0], [0, 1], [], [0, 1], [1]),
    ],
)
def test_the_report_on_essential_states(rows, mu, essential, uncovered, sources, unreached):
    chain = np.transpose(rows)
    uniform = np.full(3, 1 / 3)
    model = HMM(chain, np.eye(3), uniform)
    report = hmmlib.assumption_3_5(model, mu, essential)
    assert report.assumption == "Assumption 3.5 (relaxed non-degeneracy)"
    assert list(report.uncovered) == uncovered
    assert list(report.sources) == sources
    assert list(report.unreached) == unreached
    assert report.holds is (not uncovered and not unreached)
    assert report.columns == independence("columns of W at H*", model.emission[:, essential])
    if uncovered:
        assert str(report) == f"states of supp(mu) outside H*: {uncovered}"
    elif unreached:
        assert str(report) == f"states of H* that no source leads to: {unreached}"
    else:
        assert str(report) == str(report.columns)


def test_essential_states_are_found_wherever_one_of_all_sets_will_do():
    n_found = 0
    for seed in range(60):
        model = hmmlib.sparse_hmm(2 + seed % 3, 2 + seed % 2, seed, zeros=0.6)
        n = model.n_states
        rng = np.random.default_rng(seed)
        mu = rng.choice([0.0, 1.0, -2.0], size=n)
        mu[seed % n] = 1.0
        good = []
        for size in range(1, n + 1):
            for states in combinations(range(n), size):
                if hmmlib.assumption_3_5(model, mu, states).holds:
                    good.append(list(states))
        assert hmmlib.essential_states(model, mu) in (good or [None]), seed
        n_found += bool(good)
    assert 10 < n_found < 50


# Assumptions 4.2, 4.5 and D.5


@pytest.mark.parametrize("seed", range(12))
def test_recovery_is_reported_as_scipy_says(seed):
    n_cells = 1 + seed // 6
    n_recoverable = 1 + seed % 2
    n_values = 3 - seed % 2
    model, cell, syntax, values = hmmlib.recoverable_memory_hmm(n_cells, 3, 2, n_recoverable, n_values, seed, 0.2)
    mu = np.zeros(3)
    mu[values] = 1.0
    columns, other_columns = recoverable_columns(model, cell, syntax, values)
    n_of_cell = len(values) * (model.n_syntax - len(syntax))
    assert other_columns.shape[1] == n_of_cell + 3 * (model.n_states - model.n_syntax)
    rank = 0
    angle = np.pi / 2
    condition = np.linalg.cond(columns)
    if other_columns.shape[1]:
        basis = scipy.linalg.orth(other_columns)
        rank = basis.shape[1]
        angle = scipy.linalg.subspace_angles(columns.numpy(), other_columns.numpy()).min()
        condition = np.linalg.cond(np.hstack([columns, basis]))

    reports = {"D.5": hmmlib.assumption_d_5(model, mu, cell, syntax)}
    if model.n_cells == 1:
        reports["4.5"] = hmmlib.assumption_4_5(model, mu, syntax)
    if len(values) == 3:
        reports["4.2"] = hmmlib.assumption_4_2(model, cell, syntax)
    for number, report in reports.items():
        assert report.assumption == f"Assumption {number} (recoverable states)"
        assert report.holds
        assert report.rest_rank == rank
        assert report.columns == independence("columns of W at M* x H*", columns)
        assert report.angle == pytest.approx(angle, rel=1e-7)
        assert report.condition == pytest.approx(condition, rel=1e-9)
        text_of_angle = f"smallest angle to the span of the others (dimension {rank}): {report.angle:.3g}"
        assert str(report) == f"{report.columns}; {text_of_angle} (give or take {report.angle_error:.2g})"


def one_value(*columns):
    """A memory of one value. State h emits like column h."""
    n = len(columns)
    emission = np.stack(columns, axis=1)
    chain = np.full((n, n), 1 / n)
    return MemoryHMM(chain, emission[:, None], chain[0], [1.0])


def test_spans_that_meet_break_recovery_though_the_columns_are_independent():
    first = [1, 0, 0]
    second = [0, 1, 0]
    mean = [0.5, 0.5, 0]
    model = one_value(first, second, mean)
    report = hmmlib.assumption_4_2(model, 0, [0, 1])
    assert report.columns.holds
    assert not report.holds
    assert report.rest_rank == 1
    assert report.condition == math.inf
    assert report.angle == pytest.approx(0, abs=1e-7)
    report_on_first = hmmlib.assumption_4_2(model, 0, [0])  # The other two columns span the first.
    assert report_on_first.angle == pytest.approx(0, abs=1e-7)


FIRST = [0.9, 0.05, 0.05]
SECOND = [0.05, 0.9, 0.05]


@pytest.mark.parametrize(("second", "verdict"), [(SECOND, Verdict.CLOSE), (FIRST, Verdict.FAILS)])
def test_others_whose_rank_is_within_rounding_leave_open_only_what_depends_on_them(second, verdict):
    other = np.array([0.1, 0.1, 0.8])
    difference = 2.0**-56 * np.array([1, -1, 0])
    model = one_value(FIRST, second, other, other + difference)
    assert hmmlib.assumption_4_2(model, 0, [0, 1]).verdict is verdict


def test_assumption_4_5_is_about_one_cell_and_spans_along_the_axes_turn_by_nothing():
    table = torch.eye(8, dtype=torch.float64).reshape(8, 2, 4)
    chain = np.full((4, 4), 0.25)
    memory = np.full((2, 2), 0.25)
    model = MemoryHMM(chain, table, chain[0], memory)
    with pytest.raises(ValueError, match=r"^model must have one memory cell, not 2\. Use assumption_d_5 for several"):
        hmmlib.assumption_4_5(model, [1.0, -1.0], [0])
    with pytest.raises(ValueError, match=r"^each of values must be an integer from 0 to 1, not 2$"):
        recoverable_columns(model, 1, [1], [2])
    assert hmmlib.assumption_d_5(model, [0.0, 1.0], 0, [0]).angle_error == 8 * EPS


# Assumption 4.4


def test_the_report_on_stationarity():
    stationary = HMM(HALF, np.eye(2), [1 / 3, 2 / 3])
    report = hmmlib.assumption_4_4(stationary)
    assert report.holds
    assert report.drift < 1e-15
    assert report.regularity == hmmlib.assumption_3_2(stationary)
    drifting = HMM(HALF, np.eye(2), UNIFORM)
    report = hmmlib.assumption_4_4(drifting)
    assert report.assumption == "Assumption 4.4 (stationarity)"
    assert not report.holds
    assert report.drift == 0.5
    assert str(report) == f"{report.regularity}; A P[H_0] differs from P[H_0] by a factor of up to 1 + 0.5"
    stationary_but_not_regular = HMM(np.eye(2), np.eye(2), UNIFORM)
    report = hmmlib.assumption_4_4(stationary_but_not_regular)
    assert not report.holds
    assert report.drift == 0.0


@pytest.mark.parametrize(
    ("drift", "verdict"),
    [
        (2.0**-49, Verdict.HOLDS),
        (1.125 * 2.0**-48, Verdict.CLOSE),
        (2.0**-45, Verdict.CLOSE),
        (2.0**-28, Verdict.FAILS),
    ],
)
def test_a_uniform_start_may_drift_by_the_rounding_of_its_sums(drift, verdict):
    """That is 4 * 4 * 2^-52 = 2^-48 of each share here."""
    transition = torch.full((4, 4), 0.25, dtype=torch.float64)
    transition[0] += drift / 4
    transition[1] -= drift / 4
    report = hmmlib.assumption_4_4(HMM(transition, np.eye(4), [0.25] * 4))
    assert (report.verdict, report.drift) == (verdict, drift)
