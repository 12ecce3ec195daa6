"""Linear and attention heads by themselves: scores, ties and tolerances to the last unit, and what they refuse."""

import numpy as np
import pytest
import torch

from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.families import recoverable_memory_hmm
from hmmlib.models.hmm import unlift
from hmmlib.theory.heads import LONGEST_TEXT, ROUNDING_UNITS, AttentionHead, LinearHead, unit, zero_within
from hmmlib.theory.theorems import theorem_4_3

DOUBLE = torch.float64
SINGLE = torch.float32
EPS = torch.finfo(DOUBLE).eps


@pytest.mark.parametrize(("dtype", "eps"), [(DOUBLE, 2.0**-52), (SINGLE, 2.0**-23)])
def test_scores_within_their_tolerance_are_zero_and_keep_their_gradient(dtype, eps):
    units = torch.tensor([16, -16, 17, -17, 64, 65, 0], dtype=dtype)
    size = torch.tensor([1, 1, 1, 1, 4, 4, 0], dtype=dtype)
    score = (units * eps).requires_grad_()
    result = zero_within(score, 16 * eps * size)
    assert (result / eps).tolist() == [0, 0, 17, -17, 0, 65, 0]
    assert result.dtype == dtype
    result.sum().backward()
    assert score.grad.tolist() == [1] * 7


# Linear heads


def test_the_label_is_1_where_the_score_is_not_negative():
    head = LinearHead([1, -1, 0])
    probs = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.75, 0.25, 0.0]]
    assert head.weights.dtype == DOUBLE
    assert head.condition == 1.0
    assert head.error == 0.0
    np.testing.assert_allclose(head(probs), [0, -0.1, 0.5], atol=1e-7)
    assert head.label(probs).tolist() == [True, False, True]
    assert head.sure(probs).tolist() == [False, True, True]
    assert head.score(probs, [True, False, False]) == pytest.approx(2 / 3)


def test_weights_are_copied_unless_they_are_trained():
    plain = torch.tensor([1.0, -1.0])
    trained = torch.tensor([1.0, -1.0], requires_grad=True)
    head = LinearHead(plain)
    plain[0] = 5.0
    assert head.weights.tolist() == [1.0, -1.0]
    assert LinearHead(trained).weights is trained


def test_a_linear_head_refuses_what_does_not_fit():
    head = LinearHead([1, -1, 0])
    for probs in ([[0.5, 0.5]], [0.5, 0.5, 0.0]):
        for ask in (head, head.label, head.sure, head.tolerance):
            with pytest.raises(ValueError, match=r"^probs must have"):
                ask(probs)
    with pytest.raises(ValueError, match=r"^weights must have 1 dimension, not shape"):
        LinearHead([[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"^condition must be a number of 0 or more, not -1$"):
        LinearHead([1.0], condition=-1)
    with pytest.raises(ValueError, match=r"^error must be a number of 0 or more, not -1$"):
        LinearHead([1.0], error=-1)


def test_the_tolerance_of_a_linear_head_by_hand():
    head = LinearHead([1.0, -2.0], error=0.125)
    rounding = (ROUNDING_UNITS + 1) * EPS
    even, sure, impossible = head.tolerance([[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]).tolist()
    assert even == rounding * 1.5 + 0.125 * 2.0
    assert sure == rounding * 1.0 + 0.125 * 2.0
    assert impossible == 0.0
    assert unit(DOUBLE) == unit(DOUBLE, 1) == rounding


def test_a_score_beyond_17_rounding_units_of_its_size_is_sure():
    even = [[0.5, 0.5]]  # The scores are 17.5 and 16.5 units.
    assert LinearHead([1.0, -1.0 + 35 * EPS]).sure(even)
    assert not LinearHead([1.0, -1.0 + 33 * EPS]).sure(even)
    assert LinearHead([-1.0, 1.0 - 33 * EPS]).label(even)
    assert not LinearHead([-1.0, 1.0 - 35 * EPS]).label(even)


def head_with_scores(columns, scores):
    return LinearHead.by_left_inverse(columns, torch.tensor(scores, dtype=DOUBLE), 7.0)


def test_what_no_left_inverse_can_give_is_the_error_of_the_head():
    """Two columns are equal but are to have the scores 0 and 1. The least squares give both of them 1 / 2."""
    equal = [0.5, 0.5, 0.0]
    columns = torch.tensor([equal, equal, [0.0, 0.0, 1.0]], dtype=DOUBLE).T
    head = head_with_scores(columns, [1.0, 0.0, 4.0])
    np.testing.assert_allclose(head.weights, [0.5, 0.5, 4.0])
    assert head.error == pytest.approx(2 * 0.5 / 4.0)
    assert head.condition == 7.0
    assert head.length == LONGEST_TEXT
    assert head.sure(columns.T).tolist() == [False, False, True]
    hopeless = head_with_scores(columns, [1.0, -1.0, 0.25])
    assert hopeless.error == pytest.approx(2 * 1.0 / 0.25)
    assert not hopeless.sure(columns.T).any()
    exact = head_with_scores(columns[:, 1:], [1.0, 4.0])
    assert exact.error < 4 * EPS


# Attention heads


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=DOUBLE)


def random_head(n_positions=0, seed=0):
    """A head for three states, two memory values and four tokens."""
    return AttentionHead(
        query=draw(4, seed=10 * seed),
        key=draw(4, 4, seed=10 * seed + 1),
        value=draw(6, 4, seed=10 * seed + 2),
        output=draw(6, seed=10 * seed + 3),
        positions=draw(n_positions, 4, seed=10 * seed + 4),
    )


def distributions(*shape, seed=0):
    return torch.softmax(draw(*shape, seed=seed), -1)


def evidence(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=DOUBLE)


@pytest.mark.parametrize("n_positions", [0, 3, 5, 9])
def test_the_head_is_4_1_and_4_2_in_index_notation(n_positions):
    for seed in range(3):
        head = random_head(n_positions, seed)
        probs = distributions(4, 5, 4, seed=seed)
        embeddings = evidence(4, 5, 6, seed=seed)
        beta = np.vstack([head.positions, np.zeros((5, 4))])[:5]
        scores_of_tokens = np.einsum("a,ax,kix->ki", head.query, head.key, probs)
        scores = scores_of_tokens + beta @ head.query.numpy()
        values = np.einsum("r,rx,kix,kir->ki", head.output, head.value, probs, embeddings)
        best = np.eye(5, dtype=bool)[scores.argmax(1)]
        np.testing.assert_allclose(head.scores(probs), scores, atol=1e-13)
        np.testing.assert_allclose(head.values(probs, embeddings), values, atol=1e-13)
        assert head.attended(probs).tolist() == best.tolist()
        np.testing.assert_allclose(head(probs, embeddings), values[best], atol=1e-12)
        expected_labels = values[best] >= 0
        assert head.label(probs, embeddings).tolist() == expected_labels.tolist()


def scoring(scores, error=0.0, dtype=DOUBLE, positions=None):
    """A head that gives position i the score scores[i] and the value 10^i, if token i is shown there for sure."""
    values = [10.0**i for i in range(len(scores))]
    return AttentionHead(
        query=torch.tensor([1.0, 0.0], dtype=dtype),
        key=torch.tensor([scores, [0.0] * len(scores)], dtype=dtype),
        value=torch.tensor([values], dtype=dtype),
        output=torch.tensor([1.0], dtype=dtype),
        positions=positions,
        error=error,
    )


APART_BY_2_TO_THE_MINUS_42 = [1.0, 1.0 - 2.0**-42, 0.5]


# A score of three positions may be off by 16 + 3 rounding units of the largest weight, and by the error of the head.
@pytest.mark.parametrize(
    ("scores", "error", "attended"),
    [
        ([-3.0, -2.0, -2.0], 0.0, [1, 2]),
        ([1.0, 1.0 - 37 * EPS, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 - 39 * EPS, 0.5], 0.0, [0]),
        ([8.0, 8.0 - 37 * 8 * EPS, 0.5], 0.0, [0, 1]),
        (APART_BY_2_TO_THE_MINUS_42, 2.0**-43, [0, 1]),
        (APART_BY_2_TO_THE_MINUS_42, 2.0**-44, [0]),
    ],
)
def test_positions_are_attended_whose_scores_may_be_equal(scores, error, attended):
    head = scoring(scores, error)
    probs = torch.eye(3, dtype=DOUBLE)[None]
    assert head.attended(probs)[0].nonzero().flatten().tolist() == attended
    embeddings = torch.ones(1, 3, 1, dtype=DOUBLE)
    values = [10.0**i for i in attended]
    assert head(probs, embeddings).item() == pytest.approx(np.mean(values), rel=1e-12)


@pytest.mark.parametrize(("units", "n_attended"), [(176, 2), (184, 1)])
def test_a_position_embedding_adds_to_the_size_of_a_score(units, n_attended):
    """Both scores have the size 1 + 4, so each may be off by (16 + 2) * 5 units."""
    smaller = 4.0 - units * EPS
    head = scoring([1.0, 1.0], positions=[[4.0, 0.0], [smaller, 0.0]])
    probs = torch.eye(2, dtype=DOUBLE)[None]
    assert head.attended(probs).sum() == n_attended


def test_ties_in_float32():
    probs = torch.eye(3)[None]
    tied = scoring([1.0, 1.0 - 1e-7, 0.5], dtype=SINGLE)
    assert tied.attended(probs).sum() == 2
    apart = scoring([1.0, 1.0 - 1e-3, 0.5], dtype=SINGLE)
    assert apart.attended(probs).sum() == 1


def test_ties_behind_long_texts():
    """Scores 60 units apart are within the two tolerances of 40 tokens, but not of 3."""
    head = scoring([1.0, 1 - 60 * EPS])
    tokens = torch.tensor([0] + [1] * 39)
    probs = torch.eye(2, dtype=DOUBLE)[None, tokens]
    assert head.attended(probs).all()
    assert head.attended(probs[:, :3]).sum() == 1


@pytest.mark.parametrize(("error", "units"), [(0, 38), (999, 2036)])
@pytest.mark.parametrize("mass", [1.0, 0.5])
def test_values_within_rounding_of_their_terms_are_zero(error, units, mass):
    """Two terms cancel but for some rounding units. Each may be off by 16 + 3 units, and by the error."""
    query = torch.zeros(3, dtype=DOUBLE)
    key = torch.zeros(3, 1)
    probs = torch.full((2, 3, 1), mass)
    embeddings = torch.full((2, 3, 2), 0.5)
    gap_within = (units - 1) * EPS
    gap_beyond = (units + 1) * EPS
    for gap, expected in [(gap_within, 0.0), (gap_beyond, mass * gap_beyond / 2)]:
        value = torch.tensor([[1 + gap], [1.0]], dtype=DOUBLE)
        head = AttentionHead(query, key, value, [1.0, -1.0], error=error * EPS)
        result = head.values(probs, embeddings)
        np.testing.assert_allclose(result, np.full((2, 3), expected), rtol=1e-12)


def test_where_nothing_is_possible_the_score_is_zero_and_the_label_one():
    head = random_head()
    nothing = torch.zeros(2, 3, 4).double()
    for embeddings in (evidence(2, 3, 6), torch.zeros(2, 3, 6)):
        assert head(nothing, embeddings).tolist() == [0, 0]
        assert head.label(nothing, embeddings).all()
        assert not head.sure(nothing, embeddings).any()


def test_a_label_is_sure_where_all_attended_values_have_one_sign():
    """Both positions of each text are attended. A value is that of the token, times the entry of the embedding."""

    def head(*values):
        return AttentionHead(query=[1, 0], key=[[1, 1], [0, 0]], value=[values], output=[1])

    entries = [[1.0, 2.0], [3.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    embeddings = torch.tensor(entries)[..., None]
    probs = torch.eye(2)[None].repeat(4, 1, 1)
    assert head(1, 1).sure(probs, embeddings).tolist() == [True, True, False, False]
    assert head(-1, -1).sure(probs, embeddings).tolist() == [True, True, False, False]
    assert not head(1, -1).sure(probs, embeddings).any()


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_lifted_and_plain_embeddings_give_equal_values_and_others_are_refused(n_cells):
    model, cell, syntax, _ = recoverable_memory_hmm(n_cells, 2, 2, 1, 2, 0, 0.7, True)
    head = theorem_4_3(model, [1.0, -2.0], cell, syntax)
    tokens = model.sample(5, 4, 0).tokens
    probs = masked_token_probs(model, tokens)
    plain = model.embed(tokens)
    lifted = model.lift(plain)
    np.testing.assert_allclose(unlift(lifted, n_cells, 2), plain, atol=1e-14)
    values = head.values(probs, plain)
    np.testing.assert_allclose(head.values(probs, lifted), values, atol=1e-12)
    np.testing.assert_allclose(head(probs, lifted), head(probs, plain), atol=1e-12)
    # Any lifted vector counts as its mean over the cells that a state does not look up.
    free = evidence(*lifted.shape)
    values = head.values(probs, model.unlift(free))
    np.testing.assert_allclose(head.values(probs, free), values, atol=1e-12)
    width = plain.shape[2]
    lifted_width = lifted.shape[2]
    message = rf"embeddings must have shape \(5, 4, {width}\), or {lifted_width} as its last entry, not \(5, 4,"
    for wrong_width in {width // 2, 2 * width, 4 * width} - {lifted_width}:
        with pytest.raises(ValueError, match=message):
            head.values(probs, evidence(5, 4, wrong_width))


def test_the_arg_max_passes_gradients_to_the_values():
    head = random_head(n_positions=2)
    probs = distributions(2, 3, 4)
    embeddings = evidence(2, 3, 6)

    def scores(value, output):
        return AttentionHead(head.query, head.key, value, output, head.positions)(probs, embeddings)

    value = head.value.clone().requires_grad_()
    output = head.output.clone().requires_grad_()
    assert torch.autograd.gradcheck(scores, (value, output))


SHAPES = {"query": (4,), "key": (4, 5), "value": (6, 5), "output": (6,), "positions": (2, 4)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": (3,)}, r"^key must have shape \(3, any\), not \(4, 5\)$"),
        ({"query": (4, 1)}, "^query must have 1 dimension, not shape"),
        ({"key": (4, 6)}, r"^value must have shape \(6, 6\) to match output and key, not \(6, 5\)$"),
        ({"output": (6, 1)}, "^output must have 1 dimension, not shape"),
        ({"output": (7,), "value": (7, 5)}, r"^output must have a multiple .* is 3,.* But output has 7 entries"),
        ({"positions": (2, 5)}, r"^positions must have shape \(any, 4\) to match query, not \(2, 5\)$"),
        ({"query": (1,), "key": (1, 5), "positions": (2, 1)}, "which is 0,.* has 6 entries, and n_cells is 1$"),
        ({"n_cells": 2}, r"n_cells must divide \|H\|, which is 3,.* has 6 entries, and n_cells is 2$"),
        ({"n_cells": 0}, "^n_cells must be an integer of 1 or more, not 0$"),
        ({"condition": -1}, "^condition must be a number of 0 or more, not -1$"),
        ({"error": -1}, "^error must be a number of 0 or more, not -1$"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(changed, message):
    arguments = {**SHAPES, **changed}
    for name in SHAPES:
        arguments[name] = torch.zeros(arguments[name])
    with pytest.raises(ValueError, match=message):
        AttentionHead(**arguments)


@pytest.mark.parametrize("name", SHAPES)
def test_parts_follow_the_query_and_whole_numbers_in_lists_are_float64(name):
    parts = {part: torch.ones(shape) for part, shape in SHAPES.items()}
    mixed = AttentionHead(**parts | {name: parts[name].double()})
    expected = torch.float64 if name == "query" else torch.float32
    for part in SHAPES:
        assert getattr(mixed, part).dtype == expected
    lists = {part: tensor.long().tolist() for part, tensor in parts.items()}
    assert AttentionHead(**lists).query.dtype == torch.float64
    del parts["positions"]
    head = AttentionHead(**parts)
    assert head.positions.shape == (0, 4)
    assert head.condition == 1.0
    assert head.n_cells == 1
    assert head.error == 0.0


def test_distributions_and_embeddings_that_are_refused():
    head = random_head()
    probs = distributions(2, 3, 4)
    embeddings = evidence(2, 3, 6)
    with pytest.raises(ValueError, match=r"^embeddings must have shape \(2, 3, 6\).*, not \(1, 3, 6\)"):
        head.values(probs, embeddings[:1])
    with pytest.raises(ValueError, match=r"^embeddings must have 3 dimensions, not shape"):
        head.values(probs, embeddings[0])
    with pytest.raises(ValueError, match=r"^probs must have shape \(any, any, 4\), not \(2, 4\)$"):
        head(probs[:, 0], embeddings)
