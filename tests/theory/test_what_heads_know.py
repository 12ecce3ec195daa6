"""What a head knows of its own errors, number by number."""

import numpy as np
import pytest
import torch

from hmmlib.models.families import recoverable_memory_hmm
from hmmlib.theory import separation, theorems
from hmmlib.theory.heads import ZERO, AttentionHead, LinearHead

EPS = torch.finfo(torch.float64).eps


def test_a_linear_heads_bound_by_hand():
    head = LinearHead([1.0, -2.0], error=[0.5, 0.25])
    probs = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    for length in (1, 7):
        sizes = probs @ torch.tensor([1.5, 2.25]).double()
        want = probs @ torch.tensor([0.5, 0.25]).double() + (ZERO + length) * EPS * sizes
        assert head.bound(probs, length).tolist() == want.tolist()
    assert head.bound(probs).tolist() == head.bound(probs, 1).tolist()


def test_what_is_not_said_of_a_texts_length_is_one():
    """A score of 17.5 rounding units: beyond the bound behind a text of one token, within that of two."""
    head, probs = LinearHead([1.0, -1.0 + 35 * EPS]), [[0.5, 0.5]]
    assert head(probs).item() == head(probs, 1).item() == 17.5 * EPS
    assert head(probs, 2).item() == 0
    assert head.sure(probs).item()
    assert not head.sure(probs, 2).item()
    lower = LinearHead(-head.weights)
    assert not lower.label(probs).item()
    assert lower.label(probs, 2).item()
    for ask in (head, head.label, head.sure, head.bound):
        with pytest.raises(ValueError, match=r"^length must be an integer of 1 or more, not 0$"):
            ask(probs, 0)


def test_attention_bounds_grow_with_the_text_and_not_with_the_vocabulary():
    """Scores 60 rounding units apart: within the two bounds of a text of 40 tokens."""
    head = AttentionHead([1.0, 0.0], [[1.0, 1 - 60 * EPS], [0.0, 0.0]], [[1.0, 1.0]], [1.0])
    probs = torch.eye(2, dtype=torch.float64)[torch.tensor([[0] + [1] * 39])]
    assert head.attended(probs).all()
    assert head.attended(probs[:, :3]).sum() == 1


def test_heads_carry_the_errors_of_their_readings():
    model, cell, syntax, _ = recoverable_memory_hmm(2, 2, 2, 1, 2, 0)
    recovery = theorems.claim_d_3(model, cell, syntax)
    states = recovery.states
    for head in (
        theorems.attention_head(model, [1.0, -1.0], recovery),
        theorems.prompted_head(model, [1.0, -1.0], recovery),
    ):
        assert head.key_error == recovery.key_error > 0
        errors = head.value_error.reshape(model.n_memory, model.n_states)
        assert torch.equal(errors[:, states], recovery.value_error.T)
        assert recovery.value_error.max() > 0
        errors[:, states] = 0
        assert not errors.any()


# What `fit_or_refute` is made of


def margins(n, seed):
    """Rows that a direction separates, negative ones turned round; what it should do is put all beyond zero."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(4), n)
    negative = rows @ rng.standard_normal(4) < 0
    return np.where(negative, -1.0, 1.0)[:, None] * np.hstack([rows - rows.mean(0), np.ones((n, 1))]), negative


def test_what_is_left_over_is_a_direction_that_separates_in_the_middle():
    """The nearest combination to zero leaves a direction; rows of either label come as near to its plane."""
    met = 0
    for seed in range(40):
        signed, negative = margins(12, seed)
        weights, direction = separation._nearest_combination(signed, negative)
        assert (weights >= 0).all()
        if 0 < negative.sum() < 12:
            reach = signed @ direction
            assert reach.min() > 0
            assert reach[negative].min() == pytest.approx(reach[~negative].min(), rel=1e-6)
            met += 1
    assert met > 20


def test_a_heads_margin_is_from_one_to_two():
    rng = np.random.default_rng(0)
    for size in (1e-6, 1e-3, 1.0, 1e5):
        weights = size * rng.standard_normal(4)
        probs = torch.as_tensor(rng.dirichlet(np.ones(4), 9))
        labels = probs @ torch.as_tensor(weights) >= 0
        head, wrong = separation._head(weights, probs, labels)
        assert wrong == 0
        assert 1 <= (probs @ head.weights).abs().min() < 2
    head, wrong = separation._head(np.zeros(4), torch.zeros(3, 4).double(), torch.ones(3, dtype=torch.bool))
    assert (head.weights == 0).all()
    assert wrong == 0
