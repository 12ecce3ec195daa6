"""Models in rows: the law of texts stays what it was, of how many states, and when the orientation is asked."""

import warnings

import numpy as np
import pytest
import scipy.optimize
import sympy
import torch
from peer_models import drawn_model, likelihoods, texts_for

from hmmlib import UnclearOrientation, log_likelihood, random_hmm
from hmmlib.models.families import dependent_hmm, essential_hmm, regular_hmm, sparse_hmm
from hmmlib.models.hmm import HMM

ROUND = [[0.0, 0.25, 0.75], [0.75, 0.0, 0.25], [0.25, 0.75, 0.0]]
LEANS = [[0.5, 0.25, 0.5], [0.25, 0.25, 0.5], [0.25, 0.5, 0.0]]
EVEN = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
WIDE = [[0.5, 0.25, 0.5], [0.5, 0.75, 0.5]]
FLAT, STEEP = [1 / 3] * 3, [0.5, 0.25, 0.25]
ASKED = {
    "a transition that goes round": (ROUND, WIDE, STEEP, "transition"),
    "an emission that goes round": (LEANS, ROUND, STEEP, "emission"),
    "both": (ROUND, ROUND, STEEP, "transition and emission"),
    "one of two": (EVEN, ROUND, STEEP, "emission"),
    "only the start": (EVEN, EVEN, STEEP, "transition and emission"),
}
SILENT = [(LEANS, WIDE, FLAT), (EVEN, EVEN, FLAT), (EVEN, WIDE, STEEP), (LEANS, EVEN, STEEP)]
"""Columns that are none in rows; the same by rows; a symmetric transition, or emission, beside columns."""


def assert_the_same_law(rows, model, tolerance=1e-12):
    texts = texts_for(rows, 0)
    np.testing.assert_allclose(log_likelihood(model, texts).exp(), likelihoods(rows, texts), rtol=tolerance)


def test_there_is_one_state_more_only_where_no_start_before_exists():
    """The witness solves A q = startprob in fractions: there is one q for a regular A, a distribution or not."""
    counts = {True: 0, False: 0}
    for seed in range(150):
        start, table, _ = rows = drawn_model(seed, zeros=0.0)
        if len(start) > 4:
            continue
        left, right = (sympy.Matrix(array).applyfunc(sympy.Rational) for array in (table.T, start))
        exact = left.LUsolve(right)
        exists = min(exact) > -1e-14  # of a start that was made by a step, the q is found up to rounding
        assert HMM.from_rows(*rows).n_states == len(start) + (not exists), seed
        counts[exists] += 1
    assert min(counts.values()) >= 20


@pytest.mark.parametrize("kind", ["twins", "nearly twins", "few ways on", "zeros"])
def test_where_columns_depend_on_each_other_a_start_before_is_found_too(kind):
    rng = np.random.default_rng(0)
    for states in [2, 3, 10, 30] * 5:
        table, two = rng.dirichlet(np.full(states, 0.5), size=states), rng.dirichlet(np.ones(2), size=states)
        twins, near = table[rng.integers(states, size=states)], 1e-9 * (kind == "nearly twins")
        sparse = table * (rng.random(table.shape) < 0.3) + np.eye(states) * 1e-3
        table = {"few ways on": two @ table[:2], "zeros": sparse}.get(kind, (1 - near) * twins + near * table)
        table /= table.sum(1, keepdims=True)
        start = rng.dirichlet(np.ones(states)) @ table
        rows = start / start.sum(), table, rng.dirichlet(np.ones(3), size=states)
        model = HMM.from_rows(*rows)
        assert model.n_states == states
        assert_the_same_law(rows, model, 1e-11)
    stationary = regular_hmm(4, 3, 0).stationary()
    assert torch.equal(HMM.from_rows(stationary, *regular_hmm(4, 3, 0).to_rows()[1:]).initial, stationary)


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-4)])
def test_there_and_back_the_arrays_and_their_type_are_the_same(kind, tolerance):
    sizes = set()
    for seed in range(60):
        rows = start, *others = [np.asarray(part, kind) for part in drawn_model(seed)]
        model = HMM.from_rows(*rows)
        found, *same = back = model.to_rows()
        sizes.add(more := model.n_states - len(start))
        assert back._fields == ("startprob", "transmat", "emissionprob")
        assert {part.numpy().dtype for part in back} == {np.dtype(kind)}
        assert all(map(np.array_equal, same, others))
        np.testing.assert_allclose(found, start, rtol=0 if more else tolerance)
        assert_the_same_law(rows, model, max(tolerance, 1e-12))
    assert sizes == {0, 1}


def test_the_state_that_is_added_starts_and_leads_on_and_nothing_enters_it():
    """A P[H_0] is (½, ½) for any P[H_0]. Given as one of the user's own, such a state is not lost."""
    model = HMM.from_rows([0.25, 0.75], [[0.5, 0.5], [0.5, 0.5]], np.eye(2))
    assert model.transition.tolist() == [[0.5, 0.5, 0.25], [0.5, 0.5, 0.75], [0, 0, 0]]
    assert (model.initial.tolist(), model.emission[:, :2].tolist()) == ([0, 0, 1], [[1, 0], [0, 1]])
    own = [0.25, 0.75, 0.0], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]], np.eye(3).tolist()
    model = HMM.from_rows(*own)
    assert model.n_states == 4
    assert [part.tolist() for part in model.to_rows()] == [*own]


def test_a_text_that_begins_in_a_rare_state_has_its_probability():
    table = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.5, 0.5 - 1e-9, 1e-9]])
    start = np.array([0.5, 0.5 - 1e-30, 1e-30])
    for first in (start, start @ table):
        found = log_likelihood(HMM.from_rows(first, table, np.eye(3)), [[2], [1]]).exp()
        np.testing.assert_allclose(found, [first[2], first[1]], rtol=1e-12)


@pytest.mark.parametrize("solver", [RuntimeError, ValueError, "wrong"])
def test_whatever_the_solver_does_the_law_is_right(solver, monkeypatch):
    """A damage: with one state more where one of the same size exists, and never with another law."""

    def damaged(a, b):
        if solver == "wrong":
            return np.full(a.shape[1], 1 / a.shape[1]), 0.0
        raise solver("no end")

    monkeypatch.setattr(scipy.optimize, "nnls", damaged)
    rows = drawn_model(4, beforehand=True, zeros=0.0)
    model = HMM.from_rows(*rows)
    assert model.n_states == len(rows[0]) + 1 > 2
    assert_the_same_law(rows, model)


@pytest.mark.parametrize("beforehand", [True, False])
def test_gradients_go_through_to_all_three_arrays(beforehand):
    texts = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]])
    made = drawn_model(3, beforehand, zeros=0.0)
    ours, theirs = ([torch.tensor(part, requires_grad=True) for part in made] for _ in range(2))
    model = HMM.from_rows(*ours)
    log_likelihood(model, texts).sum().backward()
    start, table, words = theirs
    for text in texts:
        belief = start * words[:, text[0]]
        for token in text[1:]:
            belief = belief @ table * words[:, token]
        belief.sum().log().backward()
    for found, expected in zip(ours, theirs, strict=True):
        assert (expected.grad != 0).any()
        np.testing.assert_allclose(found.grad, expected.grad, rtol=1e-10)
    assert all(part.requires_grad for part in model.to_rows())
    # Only what a gradient is asked of adds a state.
    start, table, words = map(torch.as_tensor, drawn_model(4, beforehand=True, zeros=0.0))
    assert HMM.from_rows(start, table, words.clone().requires_grad_()).n_states == len(start)
    assert HMM.from_rows(start, table.clone().requires_grad_(), words).n_states == len(start) + 1


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", ASKED)
def test_what_sums_to_1_both_ways_is_asked_about_where_the_model_is_made(name, kind):
    *arrays, named = ASKED[name]
    message = f"^rows and columns of {named} sum to 1, .*columns=True.*from_rows"
    with pytest.warns(UnclearOrientation, match=message) as asked:
        model = HMM(*map(kind, arrays))
    assert [one.filename for one in asked] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = HMM(*map(kind, arrays), columns=True).to(dtype=model.dtype)
        HMM.from_rows(*model.to_rows())
    assert torch.equal(said.transition, model.transition)


def test_what_is_clear_is_not_asked_about_nor_any_model_that_the_library_draws():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for arrays in SILENT:
            HMM(*arrays)
        for seed in range(5):
            mixed = random_hmm(5, 5, seed).to(dtype=torch.float32)
            sparse_hmm(2, 2, seed, 0.8), dependent_hmm(3, 3, seed), essential_hmm(4, 3, 2, seed)
            assert (mixed.transition.sum(1) - 1).abs().max() < 1e-6  # appendix E mixes permutations
            assert not torch.equal(mixed.transition, mixed.transition.T)
