"""A head that fits, the proof that there is none, or neither: against constructions, and against exact fractions."""

from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import ROUNDING, Impossible, Undecided, fit_or_refute


def check_refutation(proof, probs, labels):
    """A mixture of the negative rows equals a nonnegative combination of the positive ones."""
    assert isinstance(proof, Impossible)
    assert (proof.positive >= 0).all()
    assert (proof.negative >= 0).all()
    assert proof.negative.sum().item() == pytest.approx(1, abs=1e-9)
    gap = (proof.positive @ probs[labels] - proof.negative @ probs[~labels]).abs().max()
    assert gap < 1e-9
    assert proof.residual < 1e-9


def distributions(n, n_tokens, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(n, n_tokens, generator=draw, dtype=torch.float64), 1)


def test_a_head_is_found_where_there_is_one():
    for seed in range(60):
        probs = distributions(20, 6, seed)
        labels = probs @ torch.randn(6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) >= 0
        if seed % 10 == 0:
            labels[:] = seed % 20 == 0  # one class only
        head = fit_or_refute(probs, labels)
        assert isinstance(head, LinearHead)
        assert torch.equal(head.label(probs), labels), seed


def test_a_refutation_is_found_where_there_is_no_head():
    for seed in range(30):
        probs = distributions(20, 5, seed)
        labels = torch.arange(20) < 10
        probs[0] = probs[10:14].mean(0)  # a positive among negatives
        check_refutation(fit_or_refute(probs, labels), probs, labels)
    with pytest.raises(ValueError, match=r"labels must have shape \(2,\), not \(3,\)"):
        fit_or_refute([[0.5, 0.5], [1, 0]], [True, False, True])


def test_labels_and_rows_that_a_fit_takes():
    """Labels as numbers; rows of zeros, whose label is 1 whatever the head; sums off by rounding of float32."""
    probs = torch.tensor([[0.9, 0.1], [0.0, 0.0], [0.2, 0.8], [0.3, 0.7 + 0.9e-5]])
    head = fit_or_refute(probs, [1, 1, 0, 0])
    assert head.label(probs).tolist() == [True, True, False, False]
    none = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    check_refutation(fit_or_refute(none, torch.tensor([True, False])), none.double(), torch.tensor([True, False]))


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [1], "^probs must have 2 dimensions, not shape"),
        ([[[0.5, 0.5]]], [1], "^probs must have 2 dimensions, not shape"),
        ([[0.5, 0.5]], [2], "^labels must be bool, or 0 and 1"),
        ([[0.5, 0.5], [1, 0]], [1], r"^labels must have shape \(2,\).*, not \(1,\)$"),
        ([[0.5, 0.6], [1, 0]], [1, 0], "^each row of probs must sum to 1, or be zero"),
        ([[0.5, 0.5 + 1.1e-5], [1, 0]], [1, 0], "^each row of probs must sum to 1, or be zero"),
        ([[0.0, 1e-4], [1, 0]], [1, 0], "^each row of probs must sum to 1, or be zero"),
    ],
)
def test_what_a_fit_refuses(probs, labels, message):
    with pytest.raises(ValueError, match=message):
        fit_or_refute(probs, labels)


def test_where_no_solver_ends_it_is_undecided(monkeypatch):
    def gives_up(*_):
        raise RuntimeError("too many steps")

    monkeypatch.setattr("scipy.optimize.nnls", gives_up)
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: SimpleNamespace(status=4, x=None))
    found = fit_or_refute([[0.25, 0.75], [0.75, 0.25]], [False, True])
    assert found == Undecided(1, 2, np.inf)
    monkeypatch.undo()
    monkeypatch.setattr("scipy.optimize.nnls", gives_up)
    assert isinstance(fit_or_refute([[0.25, 0.75], [0.75, 0.25]], [False, True]), LinearHead)


@pytest.mark.parametrize("exponent", range(1, 47))
def test_two_points_are_told_apart_however_near(exponent):
    near = [[0.5, 0.5], [0.5 + 2.0**-exponent, 0.5 - 2.0**-exponent]]
    assert fit_or_refute(near, [True, False]).label(near).tolist() == [True, False]


def test_a_head_that_is_found_gives_the_labels_row_by_row_too():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        point, off = rng.dirichlet(np.ones(4)), rng.normal(size=4)
        two = torch.as_tensor(np.stack([point, point + (off - off.mean()) * 2.0 ** -rng.uniform(30, 50) * point.min()]))
        found = fit_or_refute(two, [True, False])
        if isinstance(found, LinearHead):
            assert [found.label(row[None]).item() for row in two] == [True, False], seed


def test_points_that_no_float_tells_apart_are_refuted_up_to_rounding():
    near = [[0.5, 0.5], [0.5 + 1e-15, 0.5 - 1e-15]]
    assert 0 < fit_or_refute(near, [True, False]).residual <= ROUNDING


def solved(columns, target):
    """The exact solution of a square system of floats, as fractions."""
    n = len(target)
    table = [[Fraction(columns[k][i]) for k in range(n)] + [Fraction(target[i])] for i in range(n)]
    for k in range(n):
        pivot = next(i for i in range(k, n) if table[i][k])
        table[k], table[pivot] = table[pivot], table[k]
        table[k] = [entry / table[k][k] for entry in table[k]]
        for i in range(n):
            if i != k:
                factor = table[i][k]
                table[i] = [a - factor * b for a, b in zip(table[i], table[k], strict=True)]
    return [row[-1] for row in table]


def test_near_the_edge_no_answer_contradicts_exact_fractions():
    """Negative inputs are X independent rows; a positive one is theirs with one weight near 0, on either side."""
    answers = Counter()
    for seed in range(600):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 7))
        corners = rng.dirichlet(np.ones(n), n)
        weights = rng.dirichlet(np.ones(n))
        edge = 2.0 ** -int(rng.integers(1, 53)) * rng.choice([-1, 1])
        weights[0], weights[1:] = edge, weights[1:] / weights[1:].sum() * (1 - edge)
        inside = weights @ corners
        if (inside < 0).any():  # far outside
            continue
        least = min(solved(corners.tolist(), inside.tolist()))
        found = fit_or_refute(np.vstack([corners, inside]), [False] * n + [True])
        answers[type(found).__name__] += 1
        if isinstance(found, LinearHead):
            assert least < 0, (seed, least)
        elif isinstance(found, Impossible):
            assert least >= -4 * ROUNDING, (seed, least)
        else:
            assert abs(least) < 1e-8, (seed, least)
            assert 0 < found.wrong <= found.inputs == n + 1
            assert ROUNDING < found.residual < 1e-6
    assert answers["LinearHead"] > 120
    assert answers["Impossible"] > 200
    assert answers["Undecided"] < 120, answers
