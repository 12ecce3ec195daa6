"""The attention head by itself: shapes, ties, positions, lifted embeddings, and its soft form."""

import numpy as np
import pytest
import torch

from hmmlib.inference.messages import masked_token_probs, prompted
from hmmlib.models.families import recoverable_memory_hmm
from hmmlib.models.hmm import unlift
from hmmlib.theory.heads import AttentionHead
from hmmlib.theory.theorems import theorem_4_3, theorem_4_6


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_head(n_states=3, n_memory=2, n_tokens=4, n_positions=0, n_cells=1, seed=0):
    parts = [(n_states + 1,), (n_states + 1, n_tokens), (n_memory * n_states, n_tokens), (n_memory * n_states,)]
    parts = [draw(*shape, seed=10 * seed + k) for k, shape in enumerate(parts)]
    return AttentionHead(*parts, draw(n_positions, n_states + 1, seed=10 * seed + 9), n_cells=n_cells)


def distributions(*shape, seed=0):
    return torch.softmax(draw(*shape, seed=seed), -1)


def evidence(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(head, probs, embeddings):
    """(4.1) and (4.2), position by position; embeddings (T, M*H)."""
    scores = []
    for i, p in enumerate(probs.numpy()):
        key = head.key.numpy() @ p
        if i < len(head.positions):
            key = key + head.positions[i].numpy()
        scores.append(head.query.numpy() @ key)
    values = [
        head.output.numpy() @ ((head.value.numpy() @ p) * v)
        for p, v in zip(probs.numpy(), embeddings.numpy(), strict=True)
    ]
    best = [k for k, score in enumerate(scores) if score > max(scores) - 1e-12]
    return np.mean([values[k] for k in best]), scores, values, best


@pytest.mark.parametrize("n_positions", [0, 1, 3, 5, 9])
def test_the_head_is_4_2_position_by_position(n_positions):
    for seed in range(10):
        head = random_head(n_positions=n_positions, seed=seed)
        probs, embeddings = distributions(4, 5, 4, seed=seed), evidence(4, 5, 6, seed=seed)
        for k in range(4):
            score, scores, values, best = by_hand(head, probs[k], embeddings[k])
            np.testing.assert_allclose(head.scores(probs)[k], scores, atol=1e-13)
            np.testing.assert_allclose(head.values(probs, embeddings)[k], values, atol=1e-13)
            assert head.attended(probs)[k].nonzero().squeeze(-1).tolist() == best
            assert head(probs, embeddings)[k].item() == pytest.approx(score, abs=1e-12)
            assert head.label(probs, embeddings)[k].item() == (score >= 0)


def key_of(scores):
    """A head whose scores are those given when position i shows token i alone, with value function 1, 10, 100, …."""
    n = len(scores)
    key = torch.zeros(2, n, dtype=torch.float64)
    key[0] = torch.as_tensor(scores, dtype=torch.float64)
    value = 10.0 ** torch.arange(n, dtype=torch.float64)[None]
    one = torch.ones(1, dtype=torch.float64)
    query = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return lambda error=0.0: AttentionHead(query, key, value, one, key_error=error)


@pytest.mark.parametrize(
    ("scores", "error", "expected"),
    [
        ([1.0, 1.0, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 - 1e-15, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 + 1e-15, 1.0 - 2e-15], 0.0, [0, 1, 2]),
        ([1.0, 1.0 - 1e-3, 0.5], 0.0, [0]),
        ([1.0, 1.0 - 5e-14, 0.5], 0.0, [0]),
        ([1.0, 1.0 - 1e-9, 0.5], 1e-9, [0, 1]),
        ([1.0, 1.0 - 1e-3, 0.5], 1e-9, [0]),
        ([0.0, 0.0, 0.0], 0.0, [0, 1, 2]),
        ([1e-15, 0.0, -1e-3], 0.0, [0]),
        ([1e-15, 0.0, -1e-3], 1e-15, [0, 1]),
        ([-3.0, -2.0, -2.0], 0.0, [1, 2]),
        ([1e6, 1e6 - 1e-9, 1e6 - 1e-3], 0.0, [0, 1]),
        ([-1e6, 1.0, 1.0 - 1e-15], 0.0, [1, 2]),
        # The most that may be a tie: of three positions each score may be off by 16 + 3 rounding units of its size, and
        # by the key's error.
        ([1.0, 1.0 - 37 * 2.0**-52, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 - 39 * 2.0**-52, 0.5], 0.0, [0]),
        ([0.25, 0.25 - 2.0**-47, 0.0], 0.0, [0]),
        ([8.0, 8.0 - 0.99 * 2.0**-44, 0.5], 0.0, [0, 1]),
        ([1.0, 1.0 - 2.0**-42, 0.5], 2.0**-43, [0, 1]),
        ([1.0, 1.0 - 2.0**-42, 0.5], 2.0**-44, [0]),
    ],
)
def test_ties_to_rounding(scores, error, expected):
    head = key_of(scores)(error)
    probs = torch.eye(3, dtype=torch.float64)[None]
    assert head.attended(probs)[0].nonzero().squeeze(-1).tolist() == expected
    score = head(probs, torch.ones(1, 3, 1, dtype=torch.float64)).item()
    assert score == pytest.approx(np.mean([10.0**k for k in expected]), rel=1e-12)


def test_ties_in_float32():
    probs = torch.eye(3)[None]
    for gap, count in ((1e-7, 2), (1e-3, 1)):
        exact = key_of([1.0, 1.0 - gap, 0.5])()
        head = AttentionHead(exact.query.float(), exact.key.float(), exact.value.float(), exact.output.float())
        assert head.attended(probs).sum().item() == count
        assert head(probs, torch.ones(1, 3, 1)).dtype == torch.float32
        assert head(probs.double(), torch.ones(1, 3, 1).double()).dtype == torch.float32


@pytest.mark.parametrize(
    ("error", "drift", "units", "zero"),
    [
        (0, 0, 37, True), (0, 0, 39, False), (999, 0, 2035, True), (999, 0, 2037, False), (0, 100, 437, True),
        (0, 100, 439, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mass", [1.0, 0.5])
def test_values_within_rounding_of_their_terms_are_zero(error, drift, units, zero, mass):
    """Two terms of 1/2 that cancel but for rounding units: no value up to 16 + 3 a term, 2 * drift, and its error."""
    gap = units * 2.0**-52
    value = torch.tensor([[1 + gap], [1.0]], dtype=torch.float64)
    parts = torch.zeros(3), torch.zeros(3, 1), value, torch.tensor([1.0, -1.0])
    errors = {"value_error": torch.full((2,), error * 2.0**-52, dtype=torch.float64), "drift": drift * 2.0**-52}
    head = AttentionHead(*(part.double() for part in parts), **errors)
    probs = torch.full((2, 3, 1), mass, dtype=torch.float64)
    found = head.values(probs, torch.full((2, 3, 2), 0.5))
    np.testing.assert_allclose(found, np.full((2, 3), 0.0 if zero else mass * gap / 2), rtol=1e-12)


def test_distributions_of_zero_score_zero():
    """A position whose other tokens are impossible has the zero vector: its score and its value are 0."""
    head = random_head(n_positions=1)
    probs = distributions(2, 3, 4)
    probs[:, 1] = 0
    embeddings = evidence(2, 3, 6)
    assert (head.scores(probs)[:, 1] == 0).all()
    assert (head.values(probs, embeddings)[:, 1] == 0).all()
    assert torch.isfinite(head(torch.zeros_like(probs), embeddings)).all()
    assert (head(torch.zeros_like(probs), torch.zeros_like(embeddings)) == 0).all()
    assert head.label(torch.zeros_like(probs), torch.zeros_like(embeddings)).all()


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_lifted_and_plain_embeddings_give_equal_values(n_cells):
    for seed in range(4):
        model, cell, syntax, _ = recoverable_memory_hmm(n_cells, 2, 2, 1, 2, seed, 0.7, True)
        head = theorem_4_3(model, [1.0, -2.0], cell, syntax)
        assert head.n_cells == n_cells
        tokens = model.sample(5, 4, seed).tokens
        probs, plain = masked_token_probs(model, tokens), model.embed(tokens)
        lifted = model.lift(plain)
        np.testing.assert_allclose(unlift(lifted, n_cells, 2), plain, atol=1e-14)
        for read in (head.values, head, lambda p, e: head.soft(p, e, 3.0)):
            np.testing.assert_allclose(read(probs, lifted), read(probs, plain), atol=1e-12)
        # Any lifted vector counts as its mean over the cells that a state does not look up.
        free = evidence(*lifted.shape, seed=seed)
        np.testing.assert_allclose(head.values(probs, free), head.values(probs, model.unlift(free)), atol=1e-12)


def test_embeddings_lifted_for_another_number_of_cells_are_refused():
    head = random_head(n_states=4, n_memory=2, n_cells=2)
    probs = distributions(1, 3, 4)
    assert head.values(probs, evidence(1, 3, 8)).shape == (1, 3)  # M*H
    assert head.values(probs, evidence(1, 3, 16)).shape == (1, 3)  # M^2 * H
    for width in (4, 32, 12):
        with pytest.raises(
            ValueError, match=r"embeddings must have shape \(1, 3, 8\), or 16 as its last entry, not \(1, 3,"
        ):
            head.values(probs, evidence(1, 3, width))
    single = random_head(n_states=4, n_memory=2, n_cells=1)
    with pytest.raises(ValueError, match=r"embeddings must have shape \(1, 3, 8\)"):
        single.values(probs, evidence(1, 3, 16))


def test_the_soft_head_becomes_the_head():
    met = 0
    for seed in range(6):
        model, cell, syntax, _ = recoverable_memory_hmm(1 + seed % 2, 2, 2, 1, 2, seed, 0.95, True)
        prompt, head = theorem_4_6(model, [1.0, -2.0], cell, syntax)
        tokens = model.sample(12, 5, seed).tokens
        probs, rows = masked_token_probs(model, tokens, prompt), prompted(model, prompt, tokens)
        errors = [(head.soft(probs, rows, sharpness) - head(probs, rows)).abs() for sharpness in (0.0, 10.0, 1e3, 1e5)]
        gap = head.scores(probs).masked_fill(head.attended(probs), -torch.inf).amax(1)
        clear = gap < head.scores(probs).amax(1) - 1e-3  # the runner-up is well below
        met += int(clear.sum())
        assert (errors[-1][clear] < 1e-9).all()
        mean = head.values(probs, rows).mean(1)
        np.testing.assert_allclose(head.soft(probs, rows, 0.0), mean, atol=1e-13)
        assert torch.isfinite(head.soft(probs, rows, 1e9)).all()
    assert met > 20


def test_gradients_flow_through_the_soft_head():
    head = random_head(n_positions=2)
    parts = [part.clone().requires_grad_() for part in (head.query, head.key, head.value, head.output, head.positions)]
    trained = AttentionHead(*parts)
    probs, embeddings = distributions(3, 5, 4).requires_grad_(), evidence(3, 5, 6).requires_grad_()
    trained.soft(probs, embeddings, 2.0).pow(2).sum().backward()
    for part in (*parts, probs, embeddings):
        assert part.grad is not None
        assert torch.isfinite(part.grad).all()
        assert part.grad.abs().sum() > 0

    def soft(*parts):
        return AttentionHead(*parts).soft(probs.detach(), embeddings.detach(), 2.0)

    assert torch.autograd.gradcheck(soft, parts)
    trained(probs, embeddings).sum().backward()  # the arg-max itself passes gradients to the values only
    assert torch.isfinite(trained.value.grad).all()


GOOD = {"query": (4,), "key": (4, 5), "value": (6, 5), "output": (6,), "positions": (2, 4)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": (3,)}, r"^key must have shape \(3, any\), not \(4, 5\)$"),
        ({"query": (4, 1)}, "^query must have 1 dimension, not shape"),
        ({"key": (4,)}, "^key must have 2 dimensions, not shape"),
        ({"key": (4, 6)}, r"^value must have shape \(6, 6\) to match output and key, not \(6, 5\)$"),
        ({"value": (6,)}, "^value must have 2 dimensions, not shape"),
        ({"output": (6, 1)}, "^output must have 1 dimension, not shape"),
        (
            {"output": (7,), "value": (7, 5)},
            r"^output must have a multiple of \|H\| entries .* which is 3, not 7 entries",
        ),
        ({"positions": (2, 5)}, r"^positions must have shape \(any, 4\) to match query, not \(2, 5\)$"),
        ({"positions": (4,)}, "^positions must have 2 dimensions, not shape"),
        (
            {"query": (1,), "key": (1, 5), "positions": (2, 1)},
            r"^output must .* which is 0, not 6 entries and 1 cells$",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(changed, message):
    parts = [torch.zeros(shape) for shape in {**GOOD, **changed}.values()]
    with pytest.raises(ValueError, match=message):
        AttentionHead(*parts)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_cells": 2}, r"n_cells must divide \|H\|, which is 3, not 6 entries and 2 cells$"),
        ({"n_cells": 0}, "^n_cells must be an integer of 1 or more, not 0$"),
        ({"value_error": torch.zeros(5)}, r"^value_error must have shape \(6,\) to match output, not \(5,\)$"),
        ({"value_error": -torch.ones(6)}, "^value_error must be nonnegative"),
        ({"value_error": [np.nan] * 6}, "^value_error must be finite"),
    ],
)  # fmt: skip
def test_what_a_head_says_of_itself_must_be_possible(changed, message):
    with pytest.raises(ValueError, match=message):
        AttentionHead(*(torch.zeros(shape) for shape in GOOD.values()), **changed)


@pytest.mark.parametrize("name", GOOD)
def test_parts_are_finite_and_follow_the_query(name):
    parts = {each: torch.zeros(shape) for each, shape in GOOD.items()}
    mixed = AttentionHead(**{each: part.double() if each == name else part for each, part in parts.items()})
    kinds = {getattr(mixed, each).dtype for each in (*GOOD, "value_error")}
    assert kinds == {torch.float64 if name == "query" else torch.float32}
    parts[name].view(-1)[-1] = torch.nan
    with pytest.raises(ValueError, match=f"^{name} must be finite, but holds NaN or infinity"):
        AttentionHead(**parts)


def test_whole_numbers_in_lists_make_a_head_of_float64():
    lists = [[1, 0, 2], [[1, 0], [0, 1], [1, 1]], [[1, 2], [3, 4]], [1, -1]]
    probs, embeddings = distributions(2, 3, 2), evidence(2, 3, 2)
    for positions in (None, [[0, 0, 3]]):
        head = AttentionHead(*lists, positions)
        tensors = [None if part is None else torch.tensor(part).double() for part in (*lists, positions)]
        assert torch.equal(head(probs, embeddings), AttentionHead(*tensors)(probs, embeddings))
        assert (head.condition, head.n_cells, head.query.dtype) == (1.0, 1, torch.float64)


@pytest.mark.parametrize(
    ("shape", "fill", "message"),
    [
        ((2, 3, 5), 0.5, r"embeddings must have shape \(2, 3, 6\), or 6 as its last entry, not \(2, 3, 5\)"),
        ((2, 4, 6), 0.5, r"embeddings must have shape \(2, 3, 6\).*, not \(2, 4, 6\)"),
        ((1, 3, 6), 0.5, r"embeddings must have shape \(2, 3, 6\).*, not \(1, 3, 6\)"),
        ((3, 6), 0.5, "embeddings must have 3 dimensions, not shape"),
        ((2, 3, 6), np.nan, "embeddings must be finite"),
        ((2, 3, 6), -0.5, "embeddings must be nonnegative"),
    ],
)
def test_embeddings_that_are_refused(shape, fill, message):
    head, probs = random_head(), distributions(2, 3, 4)
    for read in (head.values, head, head.label, lambda p, e: head.soft(p, e, 1.0)):
        with pytest.raises(ValueError, match=message):
            read(probs, torch.full(shape, fill))
    with pytest.raises(ValueError, match=r"^sharpness must be a number of 0 or more, not -1$"):
        head.soft(probs, evidence(2, 3, 6), -1)
