"""A head that fits, the proof that there is none, or neither: against constructions, and against exact fractions."""

from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import ROUNDING, Impossible, Undecided, fit_or_refute


def draw(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_head_is_found_where_there_is_one_and_none_where_there_is_none():
    """The plane of the head lies in the middle: rows of either label come as near, at 1 to 2."""
    for seed in range(40):
        probs = torch.softmax(2 * draw(20, 6, seed=seed), 1)
        labels = probs @ draw(6, seed=seed) >= 0
        if seed % 10 == 0:
            labels[:] = seed % 20 == 0  # one class only
        head = fit_or_refute(probs, labels)
        assert torch.equal(head.label(probs), labels), seed
        scores = probs @ head.weights
        assert 1 <= scores.abs().min() < 2
        if 0 < labels.sum() < 20:
            assert scores[labels].min().item() == pytest.approx(-scores[~labels].max().item(), rel=1e-6), seed
        probs[0] = probs[10:14].mean(0)  # a positive among negatives; what is a proof stands among the properties
        assert isinstance(fit_or_refute(probs, torch.arange(20) < 10), Impossible)


def test_labels_and_rows_that_a_fit_takes():
    """Labels as numbers; rows of zeros, whose label is 1 whatever the head; sums off by rounding of float32."""
    probs = torch.tensor([[0.9, 0.1], [0.0, 0.0], [0.2, 0.8], [0.3, 0.7 + 0.9e-5]])
    head = fit_or_refute(probs, [1, 1, 0, 0])
    assert head.label(probs).tolist() == [True, True, False, False]
    assert isinstance(fit_or_refute(torch.zeros(3, 4), [1, 1, 1]), LinearHead)
    assert isinstance(fit_or_refute([[0.5, 0.5], [0.0, 0.0]], [True, False]), Impossible)


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [1], "^probs must have 2 dimensions, not shape"),
        ([[0.5, 0.5]], [2], "^labels must be bool, or 0 and 1"),
        ([[0.5, 0.5], [1, 0]], [1], r"^labels must have shape \(2,\).*, not \(1,\)$"),
        ([[0.5, 0.6], [1, 0]], [1, 0], r"^each row of probs must sum to 1, or be zero; one sums to 1\.1$"),
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
    assert isinstance(fit_or_refute([[0.25, 0.75], [0.75, 0.25]], [False, True]), LinearHead)
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: SimpleNamespace(status=4, x=None))
    assert fit_or_refute([[0.25, 0.75], [0.75, 0.25]], [False, True]) == Undecided(1, 2, np.inf)


def test_two_points_are_told_apart_until_no_float_tells_them_apart():
    for exponent in range(1, 47):
        near = [[0.5, 0.5], [0.5 + 2.0**-exponent, 0.5 - 2.0**-exponent]]
        assert fit_or_refute(near, [True, False]).label(near).tolist() == [True, False]
    near = [[0.5, 0.5], [0.5 + 1e-15, 0.5 - 1e-15]]
    assert 0 < fit_or_refute(near, [True, False]).residual <= ROUNDING
    for seed in range(300):  # what is found gives the labels row by row too
        rng = np.random.default_rng(seed)
        point, off = rng.dirichlet(np.ones(4)), rng.normal(size=4)
        two = torch.as_tensor(np.stack([point, point + (off - off.mean()) * 2.0 ** -rng.uniform(30, 50) * point.min()]))
        found = fit_or_refute(two, [True, False])
        if isinstance(found, LinearHead):
            assert [found.label(row[None]).item() for row in two] == [True, False], seed


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
        exactly = [DomainMatrix([[QQ(*v.as_integer_ratio()) for v in row] for row in part.T.tolist()], part.T.shape, QQ)
                   for part in (corners, inside[None])]  # fmt: skip
        least = min(Fraction(str(weight)) for weight in exactly[0].lu_solve(exactly[1]).to_list_flat())
        found = fit_or_refute(np.vstack([corners, inside]), [False] * n + [True])
        answers[type(found).__name__] += 1
        if isinstance(found, LinearHead):
            assert least < 0, (seed, least)
        elif isinstance(found, Impossible):
            assert least >= -4 * ROUNDING, (seed, least)
            off = found.positive.numpy() @ inside[None] - found.negative.numpy() @ corners
            assert abs(off).sum() <= ROUNDING
            assert abs(found.negative.sum() - 1) < 1e-12
        else:
            assert abs(least) < 1e-8, (seed, least)
            assert 0 < found.wrong <= found.inputs == n + 1
            assert ROUNDING < found.residual < 1e-6
    assert answers["LinearHead"] > 120
    assert answers["Impossible"] > 200
    assert answers["Undecided"] < 120, answers
