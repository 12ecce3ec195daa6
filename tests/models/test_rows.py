"""Models in rows: the law of texts stays what it was, of how many states, and when the orientation is asked."""

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import sympy
import torch
from peer_models import drawn_model, likelihoods, texts_for

from hmmlib import UnclearOrientation, log_likelihood, random_hmm
from hmmlib.models.families import dependent_hmm, essential_hmm, regular_hmm, sparse_hmm
from hmmlib.models.hmm import HMM

LEAVES = [0.25, 0.75], [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
"""A model in rows whose start is the law after no step: A P[H_0] is (½, ½) for any P[H_0]."""


def fractions(array):
    """The numbers of an array, as they are."""
    return [fractions(part) if part.ndim else Fraction(part.item()) for part in torch.as_tensor(np.asarray(array))]


def law_in_rows(rows, length):
    """The probability of each text, by all paths H_1, …, H_T: p_1(h_1) B_{h_1 x_1} P_{h_1 h_2} B_{h_2 x_2} …"""
    start, table, words = map(fractions, rows)
    found = {}
    for text in itertools.product(range(len(words[0])), repeat=length):
        found[text] = Fraction(0)
        for path in itertools.product(range(len(start)), repeat=length):
            weight = start[path[0]] * words[path[0]][text[0]]
            for (a, b), token in zip(itertools.pairwise(path), text[1:], strict=True):
                weight *= table[a][b] * words[b][token]
            found[text] += weight
    return found


def law_in_columns(model, length):
    """The same by all paths H_0, H_1, …, H_T, as Section 3 has it: H_0 emits nothing."""
    step, words, start = map(fractions, (model.transition, model.emission, model.initial))
    found = {}
    for text in itertools.product(range(len(words)), repeat=length):
        found[text] = Fraction(0)
        for path in itertools.product(range(len(start)), repeat=length + 1):
            weight = start[path[0]]
            for (a, b), token in zip(itertools.pairwise(path), text, strict=True):
                weight *= step[b][a] * words[token][b]
            found[text] += weight
    return found


def furthest(found, expected):
    """The largest relative difference of two laws; infinity where one has a text that the other cannot say."""
    assert found.keys() == expected.keys()
    ratios = [(found[text], law) for text, law in expected.items()]
    return max(float(abs(f / e - 1)) if e else (0.0 if f == 0 else np.inf) for f, e in ratios)


def small(seed):
    """A model with few enough paths."""
    return drawn_model(seed, shape=(2 + seed // 2 % 2, 2 + seed // 4 % 2))


def test_the_law_of_texts_is_that_of_the_rows_by_enumeration_in_fractions():
    sizes = {0: 0, 1: 0}
    for seed in range(40):
        rows = small(seed)
        model = HMM.from_rows(*rows)
        more = model.n_states - len(rows[0])
        sizes[more] += 1
        for length in (1, 2, 3):
            expected = law_in_rows(rows, length)
            gap = furthest(law_in_columns(model, length), expected)
            assert gap == 0 if more else gap <= 1e-13, (
                seed,
                length,
            )  # with one more state, the numbers are the same ones
            assert furthest(law_in_rows(model.to_rows(), length), expected) <= 1e-13, (seed, length)
            texts = np.array(list(expected))
            likely = log_likelihood(model, texts).exp().numpy()
            np.testing.assert_allclose(likely, np.array(list(expected.values()), float), rtol=1e-12)
    assert min(sizes.values()) >= 10


def test_any_model_in_columns_has_the_same_law_in_rows_and_comes_back():
    for seed in range(30):
        model = sparse_hmm(1 + seed % 3, 2 + seed % 2, seed, zeros=(0.0, 0.3, 0.6)[seed % 3])
        again = HMM.from_rows(*model.to_rows())
        assert again.n_states == model.n_states
        for length in (1, 3):
            expected = law_in_columns(model, length)
            assert furthest(law_in_rows(model.to_rows(), length), expected) <= 1e-13
            assert furthest(law_in_columns(again, length), expected) <= 1e-13


def test_the_transposes_with_the_start_distribution_are_another_model():
    """The control: P[H_0] = startprob makes the law of texts that have lost their first token."""
    far = []
    for seed in range(24):
        rows = start, table, words = small(seed)
        transposed = HMM(table.T, words.T, start, columns=True)
        expected, found, longer = law_in_rows(rows, 2), law_in_columns(transposed, 2), law_in_rows(rows, 3)
        far.append(sum(abs(found[text] - law) for text, law in expected.items()) / 2)
        lost = {text: sum(longer[first, *text] for first in range(words.shape[1])) for text in expected}
        assert furthest(found, lost) <= 1e-13
    assert np.median(np.array(far, float)) > 0.01
    assert max(far) > 0.2


def test_there_is_one_state_more_only_where_no_start_before_exists():
    """The witness solves A q = startprob in fractions: there is one q for a regular A, a distribution or not."""
    counts = {True: 0, False: 0}
    for seed in range(150):
        start, table, _ = rows = drawn_model(seed, zeros=0.0)
        if len(start) > 4:
            continue
        exact = sympy.Matrix(fractions(table)).T.LUsolve(sympy.Matrix(fractions(start)))
        exists = min(exact) > -1e-14  # of a start that was made by a step, the q is found up to rounding
        assert HMM.from_rows(*rows).n_states == len(start) + (not exists), seed
        counts[exists] += 1
    assert min(counts.values()) >= 20


@pytest.mark.parametrize("kind", ["twins", "nearly twins", "few ways on", "zeros"])
def test_where_columns_depend_on_each_other_a_start_before_is_found_too(kind):
    rng = np.random.default_rng(0)
    for states in (2, 3, 10, 30):
        for seed in range(10):
            table = rng.dirichlet(np.full(states, 0.5), size=states)
            near = 0.0 if kind == "twins" else 1e-9
            if kind in ("twins", "nearly twins"):
                table = (1 - near) * table[rng.integers(states, size=states)] + near * table
            elif kind == "few ways on":
                table = rng.dirichlet(np.ones(2), size=states) @ table[:2]
            else:
                table = table * (rng.random(table.shape) < 0.3) + np.eye(states) * 1e-3
            table /= table.sum(1, keepdims=True)
            start = rng.dirichlet(np.ones(states)) @ table
            words = rng.dirichlet(np.ones(3), size=states)
            rows = start / start.sum(), table, words
            model, texts = HMM.from_rows(*rows), texts_for(rows, seed)
            assert model.n_states == states
            np.testing.assert_allclose(log_likelihood(model, texts).exp(), likelihoods(rows, texts), rtol=1e-11)


def test_a_stationary_start_is_the_start_before():
    model = regular_hmm(4, 3, 0)
    rows = model.stationary(), model.transition.T, model.emission.T
    assert torch.equal(HMM.from_rows(*rows).initial, rows[0])


def test_there_and_back_the_arrays_are_the_same():
    for seed in range(60):
        rows = drawn_model(seed)
        model = HMM.from_rows(*rows)
        back = model.to_rows()
        assert back._fields == ("startprob", "transmat", "emissionprob")
        assert torch.equal(back.transmat, torch.as_tensor(rows[1]))
        assert torch.equal(back.emissionprob, torch.as_tensor(rows[2]))
        tolerance = 0 if model.n_states > len(rows[0]) else 1e-13
        np.testing.assert_allclose(back.startprob, rows[0], rtol=tolerance)


def test_a_last_state_of_the_users_own_that_nothing_enters_is_not_lost():
    """Its row is the start, so that H_0 could be that state for sure, and then `to_rows` would leave it out."""
    rows = [0.25, 0.75, 0.0], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]], np.eye(3)
    model = HMM.from_rows(*rows)
    assert model.n_states == 4
    for found, given in zip(model.to_rows(), rows, strict=True):
        assert found.tolist() == np.array(given).tolist()


def test_the_state_that_is_added_starts_and_leads_on_and_nothing_enters_it():
    model = HMM.from_rows(*LEAVES)
    assert model.transition.tolist() == [[0.5, 0.5, 0.25], [0.5, 0.5, 0.75], [0, 0, 0]]
    assert model.initial.tolist() == [0, 0, 1]
    assert model.emission[:, :2].tolist() == [[1, 0], [0, 1]]
    assert model.marginal(1).tolist() == [0.25, 0.75, 0]
    states = model.sample(50, 6, 0).states
    assert (states[:, 0] == 2).all()
    assert (states[:, 1:] < 2).all()


def test_a_text_that_begins_in_a_rare_state_has_its_probability():
    table = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.5, 0.5 - 1e-9, 1e-9]])
    start = np.array([0.5, 0.5 - 1e-30, 1e-30])
    for rows in ((start, table, np.eye(3)), (start @ table, table, np.eye(3))):
        found = log_likelihood(HMM.from_rows(*rows), [[2], [1]]).exp()
        np.testing.assert_allclose(found, [rows[0][2], rows[0][1]], rtol=1e-12)


def refuse(kind):
    def call(*_, **__):
        raise kind("no end")

    return call


@pytest.mark.parametrize(
    "solver",
    [refuse(RuntimeError), refuse(ValueError), lambda a, b: (np.full(a.shape[1], 1 / a.shape[1]), 0.0)],
    ids=["without end", "of dependent columns", "wrong"],
)
def test_whatever_the_solver_does_the_law_is_right(solver, monkeypatch):
    """A damage: with one state more where one of the same size exists, and never with another law."""
    monkeypatch.setattr(scipy.optimize, "nnls", solver)
    rows = drawn_model(4, beforehand=True, zeros=0.0)
    assert len(rows[0]) > 1
    model, texts = HMM.from_rows(*rows), texts_for(rows, 0)
    assert model.n_states == len(rows[0]) + 1
    np.testing.assert_allclose(log_likelihood(model, texts).exp(), likelihoods(rows, texts), rtol=1e-12)


def test_in_float32():
    sizes = set()
    for seed in range(40):
        rows = [np.float32(part) for part in drawn_model(seed)]
        model, texts = HMM.from_rows(*rows), texts_for(rows, seed)
        assert model.dtype == torch.float32
        sizes.add(model.n_states - len(rows[0]))
        np.testing.assert_allclose(log_likelihood(model, texts).exp(), likelihoods(rows, texts), rtol=1e-4)
        assert all(part.dtype == torch.float32 for part in model.to_rows())
        for found, given in zip(model.to_rows()[1:], rows[1:], strict=True):
            assert np.array_equal(found.numpy(), given)
    assert sizes == {0, 1}


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
    for part in model.to_rows():
        assert part.requires_grad


def test_only_what_a_gradient_is_asked_of_adds_a_state():
    start, table, words = map(torch.as_tensor, drawn_model(4, beforehand=True, zeros=0.0))
    assert HMM.from_rows(start, table, words.clone().requires_grad_()).n_states == len(start)
    assert HMM.from_rows(start, table.clone().requires_grad_(), words).n_states == len(start) + 1


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
SILENT = {
    "columns that are none in rows": (LEANS, WIDE, FLAT),
    "the same by rows": (EVEN, EVEN, FLAT),
    "a symmetric transition beside columns": (EVEN, WIDE, STEEP),
    "a symmetric emission beside columns": (LEANS, EVEN, STEEP),
}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("arrays", ASKED.values(), ids=ASKED)
def test_what_sums_to_1_both_ways_is_asked_about_where_the_model_is_made(arrays, kind):
    *parts, named = arrays
    parts = [kind(part) for part in parts]
    with pytest.warns(
        UnclearOrientation, match=f"^rows and columns of {named} sum to 1, .*columns=True.*from_rows"
    ) as asked:
        model = HMM(*parts)
    assert [one.filename for one in asked] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = HMM(*parts, columns=True).to(dtype=model.dtype)
        HMM.from_rows(*model.to_rows())
    assert torch.equal(said.transition, model.transition)


@pytest.mark.parametrize("arrays", SILENT.values(), ids=SILENT)
def test_what_is_clear_is_not_asked_about(arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HMM(*arrays)


@pytest.mark.parametrize("name", ASKED)
def test_where_it_is_asked_another_reading_of_the_same_arrays_is_another_model(name):
    transition, emission, start, _ = ASKED[name]
    read = law_in_columns(HMM(transition, emission, start, columns=True), 3)
    turned = [np.transpose(part) if part is ROUND else part for part in (transition, emission)]
    if ROUND in (transition, emission):
        other = law_in_columns(HMM(*turned, start, columns=True), 3)
    else:
        other = law_in_rows((start, transition, emission), 3)
    assert furthest(read, other) > 0.01


def test_where_all_sums_allow_both_and_nothing_is_asked_both_readings_are_the_same_model():
    transition, emission, start = SILENT["the same by rows"]
    found, other = law_in_columns(HMM(transition, emission, start), 3), law_in_rows((start, transition, emission), 3)
    assert furthest(found, other) < 1e-15


def test_models_that_the_library_draws_are_never_asked_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            model = random_hmm(5, 5, seed)
            assert (model.transition.sum(1) - 1).abs().max() < 1e-12  # appendix E mixes permutations
            assert not torch.equal(model.transition, model.transition.T)
            model.to(dtype=torch.float32)
            sparse_hmm(2, 2, seed, zeros=0.8)
            dependent_hmm(3, 3, seed)
            essential_hmm(4, 3, 2, seed)
