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
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_a_head_is_found_where_there_is_one_and_none_where_there_is_none():
    """The plane of the head lies in the middle: inputs of either label come as near, at 1 to 2."""
    for seed in range(40):
        probs = torch.softmax(2 * draw(20, 6, seed=seed), 1)
        labels = probs @ draw(6, seed=seed) >= 0
        if seed % 20 == 0:
            labels[:] = True
        if seed % 20 == 10:
            labels[:] = False
        head = fit_or_refute(probs, labels)
        assert torch.equal(head.label(probs), labels), seed
        scores = probs @ head.weights
        assert 1 <= scores.abs().min() < 2
        if labels.any() and not labels.all():
            nearest_positive = scores[labels].min().item()
            nearest_negative = -scores[~labels].max().item()
            assert nearest_positive == pytest.approx(nearest_negative, rel=1e-6), seed
        probs[0] = probs[10:14].mean(0)  # A positive input is a mixture of negative ones.
        assert isinstance(fit_or_refute(probs, torch.arange(20) < 10), Impossible)


def test_labels_and_rows_that_a_fit_takes():
    """Labels may be numbers. A row of zeros has the label 1 whatever the head. Sums may be rounded to float32."""
    rounded = [0.3, 0.7 + 0.9e-5]
    probs = torch.tensor([[0.9, 0.1], [0.0, 0.0], [0.2, 0.8], rounded])
    head = fit_or_refute(probs, [1, 1, 0, 0])
    assert head.label(probs).tolist() == [True, True, False, False]
    assert isinstance(fit_or_refute(torch.zeros(3, 4), [1, 1, 1]), LinearHead)
    even_and_zero = [[0.5, 0.5], [0.0, 0.0]]
    assert isinstance(fit_or_refute(even_and_zero, [True, False]), Impossible)


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [1], "^probs must have 2 dimensions, not shape"),
        ([[0.5, 0.5]], [2], "^labels must be bool, or 0 and 1"),
        ([[0.5, 0.5], [1, 0]], [1], r"^labels must have shape \(2,\).*, not \(1,\)$"),
        ([[0.5, 0.6], [1, 0]], [1, 0], r"^each row of probs must sum to 1, or be zero, but one sums to 1\.1$"),
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

    def finds_nothing(*_, **__):
        return SimpleNamespace(status=4, x=None)

    probs = [[0.25, 0.75], [0.75, 0.25]]
    labels = [False, True]
    monkeypatch.setattr("scipy.optimize.nnls", gives_up)
    assert isinstance(fit_or_refute(probs, labels), LinearHead)
    monkeypatch.setattr("scipy.optimize.linprog", finds_nothing)
    assert fit_or_refute(probs, labels) == Undecided(1, 2, np.inf)


def test_two_points_are_told_apart_until_no_float_tells_them_apart():
    for exponent in range(1, 47):
        points = [[0.5, 0.5], [0.5 + 2.0**-exponent, 0.5 - 2.0**-exponent]]
        head = fit_or_refute(points, [True, False])
        assert head.label(points).tolist() == [True, False]
    points = [[0.5, 0.5], [0.5 + 1e-15, 0.5 - 1e-15]]
    assert 0 < fit_or_refute(points, [True, False]).residual <= ROUNDING


def test_a_head_gives_each_input_its_label_when_it_is_alone():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        point = rng.dirichlet(np.ones(4))
        direction = rng.normal(size=4)
        direction -= direction.mean()
        distance = 2.0 ** -rng.uniform(30, 50) * point.min()
        points = torch.as_tensor(np.stack([point, point + direction * distance]))
        answer = fit_or_refute(points, [True, False])
        if isinstance(answer, LinearHead):
            assert answer.label(points[:1]).item(), seed
            assert not answer.label(points[1:]).item(), seed


def exact_matrix(array):
    def exact(entry):
        return QQ(*entry.as_integer_ratio())

    rows = [list(map(exact, row)) for row in array.tolist()]
    return DomainMatrix(rows, array.shape, QQ)


def test_near_the_edge_no_answer_contradicts_exact_fractions():
    """The negative inputs are independent. A positive one is a mixture of them with one weight near 0, or below."""
    answers = Counter()
    for seed in range(600):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 7))
        corners = rng.dirichlet(np.ones(n), n)
        weights = rng.dirichlet(np.ones(n))
        depth = int(rng.integers(1, 53))
        edge = 2.0**-depth * rng.choice([-1, 1])
        weights[0] = edge
        weights[1:] *= (1 - edge) / weights[1:].sum()
        positive = weights @ corners
        if (positive < 0).any():
            continue
        exact_weights = exact_matrix(corners.T).lu_solve(exact_matrix(positive[:, None])).to_list_flat()
        least_weight = min(Fraction(str(weight)) for weight in exact_weights)

        answer = fit_or_refute(np.vstack([corners, positive]), [False] * n + [True])
        answers[type(answer)] += 1
        if isinstance(answer, LinearHead):
            assert least_weight < 0, seed
        elif isinstance(answer, Impossible):
            assert least_weight >= -4 * ROUNDING, seed
            difference = answer.positive.numpy() @ positive[None] - answer.negative.numpy() @ corners
            assert abs(difference).sum() <= ROUNDING
            assert abs(answer.negative.sum() - 1) < 1e-12
        else:
            assert abs(least_weight) < 1e-8, seed
            assert 0 < answer.wrong <= answer.inputs == n + 1
            assert ROUNDING < answer.residual < 1e-6
    assert answers[LinearHead] > 120
    assert answers[Impossible] > 200
    assert answers[Undecided] < 120, answers
