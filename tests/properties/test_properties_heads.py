"""Properties of linear heads, and of those that are fitted."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from strategies import MILD, columns, for_all

from hmmlib.theory import heads, separation
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible, Undecided

EPS = torch.finfo(torch.float64).eps
TURNS = st.integers(-30, 30).map(lambda power: 2.0**power)
"""Factors that round nothing."""
WEIGHT = st.sampled_from([0.0, 1.0, -1.0, 2.0]) | st.floats(-3, 3).map(lambda w: round(w, 2))


@st.composite
def read_by_a_linear_head(draw):
    """Token distributions (n, X), with zeros, ties and sure ones; and weights."""
    n_tokens = draw(st.integers(1, 5))
    probs = draw(columns((n_tokens, draw(st.integers(1, 5))), MILD)).T
    return torch.as_tensor(probs.copy()), draw(arrays(np.float64, n_tokens, elements=WEIGHT))


@for_all(case=read_by_a_linear_head(), factor=TURNS, shift=WEIGHT)
def test_a_linear_head_is_linear_and_its_labels_know_no_scale(case, factor, shift):
    probs, b = case
    head, b = LinearHead(b), torch.as_tensor(b)
    for other, inputs in ((LinearHead(factor * b), probs), (head, factor * probs)):
        assert torch.equal(other(inputs), factor * head(probs))
        assert torch.equal(other.label(inputs), head.label(probs))
    assert torch.equal(LinearHead(-b)(probs), -head(probs))
    assert torch.equal(head.label(probs), head(probs) >= 0)
    size = heads.ZERO * EPS * (probs @ b.abs() + abs(shift) + 1)
    assert ((LinearHead(b + shift)(probs) - head(probs) - shift).abs() <= 2 * size).all()
    assert ((head(probs) - probs @ b).abs() <= size).all()
    assert ((head(probs) - torch.cat([head(row[None]) for row in probs])).abs() <= 2 * size).all()


@for_all(case=read_by_a_linear_head(), labels=st.lists(st.booleans(), min_size=5, max_size=5))
def test_a_head_fits_or_a_certificate_says_that_none_does(case, labels):
    probs, labels = case[0], torch.tensor(labels)[: len(case[0])]
    found = separation.fit_or_refute(probs, labels)
    if isinstance(found, LinearHead):
        assert torch.equal(found.label(probs), labels)
        return
    if isinstance(found, Undecided):
        assert found.wrong > 0
        assert separation.ROUNDING < found.residual < 1e-6
        return
    assert isinstance(found, Impossible)
    assert all((part >= -1e-12).all() for part in (found.positive, found.negative))
    assert abs(found.negative.sum() - 1) <= 1e-9
    mixture = found.negative @ probs[~labels] - found.positive @ probs[labels]
    assert mixture.abs().max() <= found.residual + 1e-12
    assert found.residual <= separation.ROUNDING
