"""Properties of heads: linear ones, those that are fitted, and attention heads."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from strategies import MILD, columns, for_all

from hmmlib.theory import heads, separation
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.theory.separation import Impossible, Undecided

EPS = torch.finfo(torch.float64).eps
TURNS = st.integers(-30, 30).map(lambda power: 2.0**power)
"""Factors that round nothing."""
WEIGHT = st.sampled_from([0.0, 1.0, -1.0, 2.0]) | st.floats(-3, 3).map(lambda w: round(w, 2))


@st.composite
def distributions(draw, *shape):
    """Token distributions (…, X) from (X, …): zeros, ties, sure ones."""
    return torch.as_tensor(np.moveaxis(draw(columns(shape[-1:] + shape[:-1], MILD)), 0, -1).copy())


@st.composite
def read_by_a_linear_head(draw):
    n_tokens = draw(st.integers(1, 5))
    return draw(distributions(draw(st.integers(1, 5)), n_tokens)), draw(arrays(np.float64, n_tokens, elements=WEIGHT))


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


@st.composite
def read_by_an_attention_head(draw):
    """An attention head, distributions (n, T, X) and embeddings (n, T, M * H); scores that tie are likely."""
    n, length, n_tokens, n_states, n_values = (draw(st.integers(1, most)) for most in (3, 4, 3, 3, 2))
    shapes = (n_states + 1,), (n_states + 1, n_tokens), (n_values * n_states, n_tokens), (n_values * n_states,)
    parts = [torch.as_tensor(draw(arrays(np.float64, shape, elements=WEIGHT))) for shape in shapes]
    embeddings = draw(arrays(np.float64, (n, length, n_values * n_states), elements=MILD))
    return AttentionHead(*parts), draw(distributions(n, length, n_tokens)), torch.as_tensor(embeddings)


@for_all(case=read_by_an_attention_head(), data=st.data(), factor=TURNS)
def test_an_attention_head_is_the_mean_over_what_it_attends_to_wherever_that_stands(case, data, factor):
    head, probs, embeddings = case
    scores, attended, values = head(probs, embeddings), head.attended(probs), head.values(probs, embeddings)
    below = head.scores(probs).amax(1, keepdim=True) - head.scores(probs)
    assert (attended | (below > 0)).all()
    assert not (attended & (below > 1e-9)).any()
    sizes = 1 + values.abs().amax(1)
    means = torch.stack([row[chosen].mean() for row, chosen in zip(values, attended, strict=True)])
    assert ((scores - means).abs() <= 8 * EPS * sizes).all()
    order = data.draw(st.permutations(range(probs.shape[1])))
    # A product of matrices may round otherwise in another order of its rows, by as much as a score counts for zero.
    slack = 256 * EPS * sizes
    moved = head(probs[:, order], embeddings[:, order])
    assert ((moved - scores).abs() <= slack).all()
    larger = AttentionHead(head.query, head.key, head.value, factor * head.output)
    assert torch.equal(larger.label(probs, embeddings), head.label(probs, embeddings))
    assert torch.equal(larger(probs, embeddings), factor * scores)
    soft = head.soft(probs, embeddings, factor)
    assert ((soft >= values.amin(1) - slack) & (soft <= values.amax(1) + slack)).all()
    everywhere = torch.stack([probs[:, 0]] * 3, 1), torch.stack([embeddings[:, 0]] * 3, 1)
    assert ((head(*everywhere) - head.values(*everywhere)[:, 0]).abs() <= slack).all()
