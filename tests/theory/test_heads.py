"""Linear and attention heads by themselves: scores, ties and bounds to the last unit, gradients, what they refuse."""

import numpy as np
import pytest
import torch

from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.families import recoverable_memory_hmm
from hmmlib.models.hmm import unlift
from hmmlib.theory.heads import ZERO, AttentionHead, LinearHead, unit, unless_within
from hmmlib.theory.theorems import theorem_4_3

EPS = torch.finfo(torch.float64).eps
GOOD = {"query": (4,), "key": (4, 5), "value": (6, 5), "output": (6,), "positions": (2, 4)}


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23)])
def test_scores_within_their_bound_are_zero_and_keep_their_gradient(dtype, unit):
    score = torch.tensor([16, -16, 17, -17, 64, 65, 0], dtype=dtype) * unit
    size = torch.tensor([1, 1, 1, 1, 4, 4, 0], dtype=dtype)
    score.requires_grad_()
    found = unless_within(score, 16 * unit * size)
    assert found.tolist() == [0, 0, 17 * unit, -17 * unit, 0, 65 * unit, 0]
    assert found.dtype == dtype
    found.sum().backward()
    assert score.grad.tolist() == [1] * 7


def test_the_weights_and_labels_of_a_linear_head():
    head = LinearHead([1, -1, 0])
    assert (head.weights.dtype, head.condition) == (torch.float64, 1.0)
    probs = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.75, 0.25, 0.0]]
    np.testing.assert_allclose(head(probs), [0, -0.1, 0.5], atol=1e-7)
    assert head.label(probs).tolist() == [True, False, True]
    given = torch.tensor([1.0, -1.0], requires_grad=True)
    assert LinearHead(given).weights is given
    assert LinearHead(given, error=[0.0, 0.0]).error.dtype == torch.float32
    for wrong in ([[0.5, 0.5]], [0.5, 0.5, 0.0]):
        with pytest.raises(ValueError, match="probs must have"):
            head(wrong)
    for wrong, message in [
        (dict(weights=[[1.0, 2.0]]), "weights must have 1 dimension, not shape"),
        (dict(weights=[1.0], condition=-1), "condition must be a number of 0 or more, not -1$"),
        (dict(weights=[1.0, 2.0], error=[0.0]), r"error must have shape \(2,\), not \(1,\)$"),
        (dict(weights=[1.0], error=[np.nan]), "error must be finite"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            LinearHead(**wrong)


def test_a_linear_heads_bound_by_hand_grows_with_the_text_whose_length_is_one_unless_it_is_said():
    head = LinearHead([1.0, -2.0], error=[0.5, 0.25])
    probs = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    for length in (1, 7):
        sizes = probs @ torch.tensor([1.5, 2.25]).double()
        want = probs @ torch.tensor([0.5, 0.25]).double() + (ZERO + length) * EPS * sizes
        assert head.bound(probs, length).tolist() == want.tolist()
    assert head.bound(probs).tolist() == head.bound(probs, 1).tolist()
    assert unit(torch.float64) == (ZERO + 1) * EPS
    # A score of 17.5 rounding units: beyond the bound behind a text of one token, within that of two.
    head, probs = LinearHead([1.0, -1.0 + 35 * EPS]), [[0.5, 0.5]]
    assert head(probs).item() == head(probs, 1).item() == 17.5 * EPS
    assert (head(probs, 2).item(), head.sure(probs).item(), head.sure(probs, 2).item()) == (0, True, False)
    lower = LinearHead(-head.weights)
    assert (lower.label(probs).item(), lower.label(probs, 2).item()) == (False, True)
    for ask in (head, head.label, head.sure, head.bound):
        with pytest.raises(ValueError, match=r"^length must be an integer of 1 or more, not 0$"):
            ask(probs, 0)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_head(n_positions=0, n_cells=1, seed=0, n_states=3):
    parts = [(n_states + 1,), (n_states + 1, 4), (2 * n_states, 4), (2 * n_states,), (n_positions, n_states + 1)]
    return AttentionHead(*(draw(*shape, seed=10 * seed + k) for k, shape in enumerate(parts)), n_cells=n_cells)


def distributions(*shape, seed=0):
    return torch.softmax(draw(*shape, seed=seed), -1)


def evidence(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n_positions", [0, 3, 5, 9])
def test_the_head_is_4_1_and_4_2_in_index_notation(n_positions):
    for seed in range(3):
        head = random_head(n_positions, seed=seed)
        probs, embeddings = distributions(4, 5, 4, seed=seed), evidence(4, 5, 6, seed=seed)
        beta = np.vstack([head.positions, np.zeros((5, 4))])[:5]
        scores = np.einsum("a,ax,kix->ki", head.query, head.key, probs) + beta @ head.query.numpy()
        values = np.einsum("r,rx,kix,kir->ki", head.output, head.value, probs, embeddings)
        best = np.eye(5, dtype=bool)[scores.argmax(1)]
        np.testing.assert_allclose(head.scores(probs), scores, atol=1e-13)
        np.testing.assert_allclose(head.values(probs, embeddings), values, atol=1e-13)
        assert head.attended(probs).tolist() == best.tolist()
        np.testing.assert_allclose(head(probs, embeddings), values[best], atol=1e-12)
        assert head.label(probs, embeddings).tolist() == (values[best] >= 0).tolist()


def scoring(scores, error=0.0, dtype=torch.float64):
    """A head whose scores are those given when position i shows token i alone, with value function 1, 10, 100, …."""
    value = [[10.0**k for k in range(len(scores))]]
    parts = [1.0, 0.0], [scores, [0.0] * len(scores)], value, [1.0]
    return AttentionHead(*(torch.tensor(part, dtype=dtype) for part in parts), key_error=error)


@pytest.mark.parametrize(
    ("scores", "error", "expected"),
    [
        ([-3.0, -2.0, -2.0], 0.0, [1, 2]),
        ([-1e6, 1.0, 1.0 - 1e-15], 0.0, [1, 2]),
        # The most that may be a tie: of three positions each score may be off by 16 + 3 rounding units of its size, and
        # by the key's error.
        ([1.0, 1.0 - 37 * 2.0**-52, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 - 39 * 2.0**-52, 0.5], 0.0, [0]),
        ([8.0, 8.0 - 0.99 * 2.0**-44, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 - 2.0**-42, 0.5], 2.0**-43, [0, 1]),
        ([1.0, 1.0 - 2.0**-42, 0.5], 2.0**-44, [0]),
    ],
)
def test_ties_to_rounding(scores, error, expected):
    head, probs = scoring(scores, error), torch.eye(3, dtype=torch.float64)[None]
    assert head.attended(probs)[0].nonzero().squeeze(-1).tolist() == expected
    score = head(probs, torch.ones(1, 3, 1, dtype=torch.float64)).item()
    assert score == pytest.approx(np.mean([10.0**k for k in expected]), rel=1e-12)


def test_ties_in_float32_and_behind_long_texts():
    """Bounds grow with the text, not with the vocabulary: scores 60 units apart are within the two of 40 tokens."""
    probs = torch.eye(3)[None]
    for gap, count in ((1e-7, 2), (1e-3, 1)):
        head = scoring([1.0, 1.0 - gap, 0.5], dtype=torch.float32)
        assert head.attended(probs).sum().item() == count
        assert head(probs.double(), torch.ones(1, 3, 1).double()).dtype == torch.float32
    head = scoring([1.0, 1 - 60 * EPS])
    probs = torch.eye(2, dtype=torch.float64)[torch.tensor([[0] + [1] * 39])]
    assert head.attended(probs).all()
    assert head.attended(probs[:, :3]).sum() == 1


@pytest.mark.parametrize(("error", "drift", "most"), [(0, 0, 38), (999, 0, 2036), (0, 100, 438)])
@pytest.mark.parametrize("mass", [1.0, 0.5])
def test_values_within_rounding_of_their_terms_are_zero(error, drift, most, mass):
    """Two terms of 1/2 that cancel but for rounding units: no value up to 16 + 3 a term, 2 * drift, and its error."""
    for gap, zero in (((most - 1) * EPS, True), ((most + 1) * EPS, False)):
        value = torch.tensor([[1 + gap], [1.0]], dtype=torch.float64)
        parts = torch.zeros(3).double(), torch.zeros(3, 1), value, torch.tensor([1.0, -1.0])
        head = AttentionHead(*parts, value_error=[error * EPS] * 2, drift=drift * EPS)
        found = head.values(torch.full((2, 3, 1), mass), torch.full((2, 3, 2), 0.5))
        np.testing.assert_allclose(found, np.full((2, 3), 0.0 if zero else mass * gap / 2), rtol=1e-12)


def test_where_nothing_is_possible_the_score_is_zero_and_the_label_one():
    head, nothing = random_head(), torch.zeros(2, 3, 4).double()
    for embeddings in (evidence(2, 3, 6), torch.zeros(2, 3, 6)):
        assert head(nothing, embeddings).tolist() == [0, 0]
        assert head.label(nothing, embeddings).all()


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_lifted_and_plain_embeddings_give_equal_values_and_others_are_refused(n_cells):
    model, cell, syntax, _ = recoverable_memory_hmm(n_cells, 2, 2, 1, 2, 0, 0.7, True)
    head, tokens = theorem_4_3(model, [1.0, -2.0], cell, syntax), model.sample(5, 4, 0).tokens
    probs, plain = masked_token_probs(model, tokens), model.embed(tokens)
    lifted = model.lift(plain)
    np.testing.assert_allclose(unlift(lifted, n_cells, 2), plain, atol=1e-14)
    for read in (head.values, head, lambda p, e: head.soft(p, e, 3.0)):
        np.testing.assert_allclose(read(probs, lifted), read(probs, plain), atol=1e-12)
    # Any lifted vector counts as its mean over the cells that a state does not look up.
    free = evidence(*lifted.shape)
    np.testing.assert_allclose(head.values(probs, free), head.values(probs, model.unlift(free)), atol=1e-12)
    width, widest = plain.shape[2], lifted.shape[2]
    message = rf"embeddings must have shape \(5, 4, {width}\), or {widest} as its last entry, not \(5, 4,"
    for wrong in {width // 2, 2 * width, 4 * width} - {widest}:
        with pytest.raises(ValueError, match=message):
            head.values(probs, evidence(5, 4, wrong))


def test_the_soft_head_becomes_the_head():
    head, probs, rows = random_head(n_positions=2), distributions(12, 5, 4), evidence(12, 5, 6)
    np.testing.assert_allclose(head.soft(probs, rows, 1e5), head(probs, rows), atol=1e-9)
    np.testing.assert_allclose(head.soft(probs, rows, 0.0), head.values(probs, rows).mean(1), atol=1e-13)
    weights = (2 * head.scores(probs)).softmax(1)
    np.testing.assert_allclose(head.soft(probs, rows, 2.0), (weights * head.values(probs, rows)).sum(1), atol=1e-13)
    assert torch.isfinite(head.soft(probs, rows, 1e9)).all()


def test_gradients_flow_through_the_soft_head():
    head = random_head(n_positions=2)
    parts = [part.clone().requires_grad_() for part in (head.query, head.key, head.value, head.output, head.positions)]
    read = distributions(2, 3, 4).requires_grad_(), evidence(2, 3, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda *given: AttentionHead(*given[:5]).soft(*given[5:], 2.0), (*parts, *read))
    AttentionHead(*parts)(*read).sum().backward()  # the arg-max itself passes gradients to the values only
    assert parts[2].grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": (3,)}, r"^key must have shape \(3, any\), not \(4, 5\)$"),
        ({"query": (4, 1)}, "^query must have 1 dimension, not shape"),
        ({"key": (4, 6)}, r"^value must have shape \(6, 6\) to match output and key, not \(6, 5\)$"),
        ({"output": (6, 1)}, "^output must have 1 dimension, not shape"),
        ({"output": (7,), "value": (7, 5)}, r"^output must have a multiple of \|H\| entries .* is 3, not 7 entries"),
        ({"positions": (2, 5)}, r"^positions must have shape \(any, 4\) to match query, not \(2, 5\)$"),
        ({"query": (1,), "key": (1, 5), "positions": (2, 1)}, "^output must .* which is 0, not 6 entries and 1 cells$"),
        ({"n_cells": 2}, r"n_cells must divide \|H\|, which is 3, not 6 entries and 2 cells$"),
        ({"n_cells": 0}, "^n_cells must be an integer of 1 or more, not 0$"),
        ({"drift": -1}, "^drift must be a number of 0 or more, not -1$"),
        ({"value_error": torch.zeros(5)}, r"^value_error must have shape \(6,\) to match output, not \(5,\)$"),
        ({"value_error": -torch.ones(6)}, "^value_error must be nonnegative"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(changed, message):
    parts = {name: torch.zeros(part) if name in GOOD else part for name, part in {**GOOD, **changed}.items()}
    with pytest.raises(ValueError, match=message):
        AttentionHead(**parts)


@pytest.mark.parametrize("name", GOOD)
def test_parts_follow_the_query_and_whole_numbers_in_lists_are_float64(name):
    parts = {each: torch.ones(shape) for each, shape in GOOD.items()} | {"value_error": torch.zeros(6)}
    mixed = AttentionHead(**{each: part.double() if each == name else part for each, part in parts.items()})
    kinds = {getattr(mixed, each).dtype for each in (*GOOD, "value_error")}
    assert kinds == {torch.float64 if name == "query" else torch.float32}
    plain = AttentionHead(**{each: parts[each].long().tolist() for each in GOOD})
    assert (plain.query.dtype, plain.condition, plain.n_cells) == (torch.float64, 1.0, 1)
    assert AttentionHead(*(parts[each] for each in list(GOOD)[:4])).positions.shape == (0, 4)


def test_what_no_left_inverse_can_give_is_in_the_bound_of_the_states_that_it_is_about():
    """Six equal columns, of which one is to have another score than the others, and a state with a token of its own."""
    columns, target = torch.zeros(3, 7).double(), torch.tensor([1.0, 0, 0, 0, 0, 0, -1]).double()
    columns[:2, :6], columns[2, 6] = 0.5, 1.0
    head = LinearHead.by_left_inverse(columns, target, np.inf)
    missing = (target - columns.T @ head.weights).abs()
    assert (head.bound(columns.T) >= missing).all()
    assert missing[0] > 0.8
    assert head.sure(columns.T).tolist() == [False] * 6 + [True]
    head = LinearHead.by_left_inverse(columns[:, [0, 1, 6]], torch.tensor([1.0, -1.0, 1.0]).double(), np.inf)
    np.testing.assert_allclose(columns.T @ head.error, [2.0] * 6 + [unit(torch.float64)], rtol=1e-12)


def test_distributions_and_embeddings_that_are_refused():
    head, probs, fitting = random_head(), distributions(2, 3, 4), evidence(2, 3, 6)
    for call, message in [
        (lambda: head.values(probs, fitting[:1]), r"embeddings must have shape \(2, 3, 6\).*, not \(1, 3, 6\)"),
        (lambda: head.values(probs, fitting[0]), "embeddings must have 3 dimensions, not shape"),
        (lambda: head(probs[:, 0], fitting), r"probs must have shape \(any, any, 4\), not \(2, 4\)$"),
        (lambda: head.soft(probs, fitting, -1), "sharpness must be a number of 0 or more, not -1$"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            call()
