"""Models in rows: the law of texts stays what it was, with how many states, and when the orientation is asked."""

import warnings

import numpy as np
import pytest
import scipy.optimize
import sympy
import torch
from peer_models import drawn_model, likelihoods, texts_for

from hmmlib import HMM, UnclearOrientation, dependent_hmm, essential_hmm, log_likelihood, random_hmm, regular_hmm

ROUND = [
    [0.0, 0.25, 0.75],
    [0.75, 0.0, 0.25],
    [0.25, 0.75, 0.0],
]
"""Rows and columns sum to 1, and by rows it is another table."""
EVEN = [
    [0.5, 0.25, 0.25],
    [0.25, 0.5, 0.25],
    [0.25, 0.25, 0.5],
]
"""By rows it is the same table."""
LEANS = [
    [0.5, 0.25, 0.5],
    [0.25, 0.25, 0.5],
    [0.25, 0.5, 0.0],
]
"""Only its columns sum to 1."""
WIDE = [[0.5, 0.25, 0.5], [0.5, 0.75, 0.5]]
FLAT = [1 / 3, 1 / 3, 1 / 3]
STEEP = [0.5, 0.25, 0.25]


def assert_the_same_law(rows, model, tolerance=1e-12):
    texts = texts_for(rows, 0)
    chances = log_likelihood(model, texts).exp()
    np.testing.assert_allclose(chances, likelihoods(rows, texts), rtol=tolerance)


# How many states


def test_there_is_one_state_more_only_where_no_start_before_exists():
    """The witness solves A q = startprob in fractions. There is one q for a regular A, a distribution or not."""
    exist = []
    for seed in range(150):
        rows = drawn_model(seed, zeros=0.0)
        start, transmat, _ = rows
        if len(start) > 4:
            continue
        transition = sympy.Matrix(transmat.T).applyfunc(sympy.Rational)
        exact = transition.LUsolve(sympy.Matrix(start).applyfunc(sympy.Rational))
        exists = min(exact) > -1e-14  # A start that was made by a step has its q up to rounding.
        assert HMM.from_rows(*rows).n_states == len(start) + (not exists), seed
        exist.append(exists)
    assert exist.count(True) >= 20
    assert exist.count(False) >= 20


def twin_columns(rng, transmat):
    return transmat[rng.integers(len(transmat), size=len(transmat))]


def nearly_twin_columns(rng, transmat):
    return (1 - 1e-9) * twin_columns(rng, transmat) + 1e-9 * transmat


def two_ways_on(rng, transmat):
    return rng.dirichlet(np.ones(2), size=len(transmat)) @ transmat[:2]


def many_zeros(rng, transmat):
    stays = rng.random(transmat.shape) < 0.3
    return transmat * stays + np.eye(len(transmat)) * 1e-3


@pytest.mark.parametrize("change", [twin_columns, nearly_twin_columns, two_ways_on, many_zeros])
def test_where_columns_depend_on_each_other_a_start_before_is_found_too(change):
    rng = np.random.default_rng(0)
    for n_states in [2, 3, 10, 30] * 5:
        transmat = change(rng, rng.dirichlet(np.full(n_states, 0.5), size=n_states))
        transmat /= transmat.sum(1, keepdims=True)
        start = rng.dirichlet(np.ones(n_states)) @ transmat
        emissionprob = rng.dirichlet(np.ones(3), size=n_states)
        rows = (start / start.sum(), transmat, emissionprob)
        model = HMM.from_rows(*rows)
        assert model.n_states == n_states
        assert_the_same_law(rows, model, 1e-11)


def test_a_stationary_start_is_its_own_start_before():
    model = regular_hmm(4, 3, 0)
    stationary = model.stationary()
    _, transmat, emissionprob = model.to_rows()
    assert torch.equal(HMM.from_rows(stationary, transmat, emissionprob).initial, stationary)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-4)])
def test_there_and_back_the_arrays_and_their_type_are_the_same(dtype, tolerance):
    added_states = set()
    for seed in range(60):
        rows = [array.astype(dtype) for array in drawn_model(seed)]
        start, transmat, emissionprob = rows
        model = HMM.from_rows(*rows)
        back = model.to_rows()
        assert {array.numpy().dtype for array in back} == {np.dtype(dtype)}
        assert np.array_equal(back.transmat, transmat)
        assert np.array_equal(back.emissionprob, emissionprob)
        added = model.n_states - len(start)
        np.testing.assert_allclose(back.startprob, start, rtol=0 if added else tolerance)
        assert_the_same_law(rows, model, max(tolerance, 1e-12))
        added_states.add(added)
    assert added_states == {0, 1}


def test_the_state_that_is_added_starts_and_leads_on_and_nothing_enters_it():
    """A P[H_0] is (½, ½) for any P[H_0], so no start before exists."""
    model = HMM.from_rows([0.25, 0.75], [[0.5, 0.5], [0.5, 0.5]], np.eye(2))
    assert model.transition.tolist() == [[0.5, 0.5, 0.25], [0.5, 0.5, 0.75], [0, 0, 0]]
    assert model.initial.tolist() == [0, 0, 1]
    assert model.emission[:, :2].tolist() == [[1, 0], [0, 1]]


def test_such_a_state_of_the_users_own_is_not_lost():
    start = [0.25, 0.75, 0.0]
    transmat = [
        [0.5, 0.5, 0.0],
        [0.5, 0.5, 0.0],
        [0.25, 0.75, 0.0],
    ]
    model = HMM.from_rows(start, transmat, np.eye(3))
    assert model.n_states == 4
    back = model.to_rows()
    assert back.startprob.tolist() == start
    assert back.transmat.tolist() == transmat


def test_a_text_that_begins_in_a_rare_state_has_its_probability():
    to_the_rare_state = [0.0, 0.0, 1e-9]
    transmat = np.transpose([[0.5, 0.25, 0.5], [0.5, 0.75, 0.5 - 1e-9], to_the_rare_state])
    rare = np.array([0.5, 0.5 - 1e-30, 1e-30])
    for start in (rare, rare @ transmat):
        model = HMM.from_rows(start, transmat, np.eye(3))
        chances = log_likelihood(model, [[2], [1]]).exp()
        np.testing.assert_allclose(chances, [start[2], start[1]], rtol=1e-12)


def no_convergence(a, b):
    raise RuntimeError("no end")


def dependent_columns_refused(a, b):
    raise ValueError("no end")


def a_wrong_solution(a, b):
    return np.full(a.shape[1], 1 / a.shape[1]), 0.0


@pytest.mark.parametrize("solver", [no_convergence, dependent_columns_refused, a_wrong_solution])
def test_whatever_the_solver_does_the_law_is_right(solver, monkeypatch):
    monkeypatch.setattr(scipy.optimize, "nnls", solver)
    rows = drawn_model(4, beforehand=True, zeros=0.0)
    model = HMM.from_rows(*rows)
    assert model.n_states == len(rows[0]) + 1 > 2
    assert_the_same_law(rows, model)


# Gradients


def log_likelihood_in_rows(rows, text):
    start, transmat, emissionprob = rows
    belief = start * emissionprob[:, text[0]]
    for token in text[1:]:
        belief = belief @ transmat * emissionprob[:, token]
    return belief.sum().log()


@pytest.mark.parametrize("beforehand", [True, False])
def test_gradients_go_through_to_all_three_arrays(beforehand):
    texts = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]])
    arrays = drawn_model(3, beforehand, zeros=0.0)
    rows = [torch.tensor(array, requires_grad=True) for array in arrays]
    model = HMM.from_rows(*rows)
    log_likelihood(model, texts).sum().backward()
    expected_rows = [torch.tensor(array, requires_grad=True) for array in arrays]
    for text in texts:
        log_likelihood_in_rows(expected_rows, text).backward()
    for array, expected in zip(rows, expected_rows, strict=True):
        assert (expected.grad != 0).any()
        np.testing.assert_allclose(array.grad, expected.grad, rtol=1e-10)
    assert all(array.requires_grad for array in model.to_rows())


def test_only_a_gradient_of_the_start_or_the_steps_adds_a_state():
    start, transmat, emissionprob = map(torch.as_tensor, drawn_model(4, beforehand=True, zeros=0.0))
    n_states = len(start)
    emissionprob.requires_grad_()
    assert HMM.from_rows(start, transmat, emissionprob).n_states == n_states
    transmat.requires_grad_()
    assert HMM.from_rows(start, transmat, emissionprob).n_states == n_states + 1


# Columns or rows?


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("transition", "emission", "initial", "names"),
    [
        (ROUND, WIDE, STEEP, "transition"),
        (LEANS, ROUND, STEEP, "emission"),
        (EVEN, ROUND, STEEP, "emission"),
        (ROUND, ROUND, STEEP, "transition and emission"),
        (EVEN, EVEN, STEEP, "transition and emission"),  # Only the start could mean two things.
    ],
)
def test_what_sums_to_1_both_ways_is_asked_about_where_the_model_is_made(transition, emission, initial, names, dtype):
    arrays = [dtype(transition), dtype(emission), dtype(initial)]
    message = f"^rows and columns of {names} sum to 1, .*columns=True.*from_rows"
    with pytest.warns(UnclearOrientation, match=message) as record:
        model = HMM(*arrays)
    assert [warning.filename for warning in record] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certain = HMM(*arrays, columns=True).to(dtype=model.dtype)
        HMM.from_rows(*model.to_rows())
    assert torch.equal(certain.transition, model.transition)


@pytest.mark.parametrize(
    ("transition", "emission", "initial"),
    [(LEANS, WIDE, FLAT), (EVEN, EVEN, FLAT), (EVEN, WIDE, STEEP), (LEANS, EVEN, STEEP)],
)
def test_what_is_clear_is_not_asked_about(transition, emission, initial):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HMM(transition, emission, initial)


def test_a_model_that_the_library_draws_is_not_asked_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            dependent_hmm(3, 3, seed)
            essential_hmm(4, 3, 2, seed)
            model = random_hmm(5, 5, seed).to(dtype=torch.float32)
            rows_sum_to_1 = (model.transition.sum(1) - 1).abs().max() < 1e-6  # Appendix E mixes permutations.
            assert rows_sum_to_1
            assert not torch.equal(model.transition, model.transition.T)
