"""Properties of heads, of what theorems are stated with, of label rules and of networks."""

from functools import cache

import numpy as np
import torch
from constructions import read_3_6
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from strategies import (
    LOST,
    MILD,
    SEEDS,
    asked,
    columns,
    for_all,
    hmms,
    memory_hmms,
    models,
    prompts,
    rounding,
)
from witness import forward_backward, surely

from hmmlib.experiments import labels
from hmmlib.inference import messages
from hmmlib.theory import heads, separation, theorems
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.theory.separation import Impossible, Undecided
from hmmlib.training import tuning
from hmmlib.training.bert import Shape, build
from hmmlib.validation import MASK

EPS = torch.finfo(torch.float64).eps
TURNS = st.integers(-30, 30).map(lambda power: 2.0**power)
"""Factors that round nothing."""
WEIGHT = st.sampled_from([0.0, 1.0, -1.0, 2.0]) | st.floats(-3, 3).map(lambda w: round(w, 2))


def weights(length):
    """Task weights μ, not all zero."""
    return arrays(np.float64, length, elements=WEIGHT).filter(np.any).map(torch.as_tensor)


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


@for_all(case=read_by_an_attention_head(), data=st.data())
def test_a_trained_attention_head_without_positions_does_not_see_their_order(case, data):
    _, probs, _ = case
    n_tokens = probs.shape[-1]
    key, value = (data.draw(arrays(np.float64, (n_tokens, 2), elements=WEIGHT).map(torch.as_tensor)) for _ in range(2))
    head = tuning.TunedAttention(key, value, torch.zeros(probs.shape[1], 2, dtype=torch.float64))
    order = data.draw(st.permutations(range(probs.shape[1])))
    np.testing.assert_allclose(head(probs[:, order]), head(probs), rtol=0, atol=64 * EPS * (1 + value.abs().max()))
    said = (probs @ value).unbind(-1)
    low, high = (sum(getattr(one, side)(1) for one in said) for side in ("amin", "amax"))
    assert ((head(probs) >= low - 64 * EPS) & (head(probs) <= high + 64 * EPS)).all()


# Theorems


@for_all(case=asked(MILD), data=st.data(), factor=TURNS)
def test_the_truth_is_odd_in_the_weights_and_knows_no_scale(case, data, factor):
    model, tokens = case
    cell = data.draw(st.integers(0, getattr(model, "n_cells", 1) - 1))
    mu = data.draw(weights(getattr(model, "n_memory", model.n_states)))
    found = theorems.ground_truth(model, mu, tokens, cell)
    assert torch.equal(theorems.ground_truth(model, -mu, tokens, cell), -found)
    assert torch.equal(theorems.ground_truth(model, factor * mu, tokens, cell), factor * found)
    known = messages.posterior(model, tokens) if cell == 0 and not hasattr(model, "n_cells") else None
    known = messages.memory_posterior(model, tokens, cell) if known is None else known
    assert ((found - known @ mu).abs() <= heads.unit(torch.float64, 9) * (known @ mu.abs())).all()
    assert torch.equal(theorems.ground_truth(model, torch.ones_like(mu), tokens, cell) > 0, known.sum(1) > 0)


@for_all(case=asked(MILD, family=hmms), data=st.data())
def test_a_prompt_on_posteriors_does_what_messages_do(case, data):
    model, tokens = case
    assume((model.initial > 0).all())
    prompt = data.draw(prompts(model, MILD))
    found = tuning.probs_behind_prompt(model, messages.posterior(model, tokens), prompt)
    np.testing.assert_allclose(found, read_3_6(model, prompt, tokens), 4 * rounding(model, tokens.shape[1] + 2), 1e-30)


@for_all(case=asked(MILD, family=memory_hmms), data=st.data())
def test_where_the_state_is_surely_in_a_set_is_what_exact_zeros_say(case, data):
    model, tokens = case
    cell, state = (data.draw(st.integers(0, n - 1)) for n in (model.n_cells, model.n_syntax))
    prompt = data.draw(prompts(model, MILD))
    for given in (None, prompt):
        found = theorems.concentrated(model, tokens, cell, [state], given)
        expected = [surely(forward_backward(model, x, given), [cell * model.n_syntax + state]) for x in tokens.tolist()]
        if given is not None:
            expected = [np.arange(len(one)) * one > 0 for one in expected]
        np.testing.assert_array_equal(found, expected)


# Tasks and networks


@cache
def network():
    """For three tokens; drawn, and transformers loaded, when first asked for."""
    return build(Shape(layers=1, width=8, heads=1, max_length=8), 3, 0)


@for_all(
    tokens=arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.integers(MASK, 2)),
)
def test_a_network_gives_distributions_and_those_of_a_batch_are_those_of_its_sequences(tokens):
    tokens = torch.as_tensor(tokens)
    every, first = tuning.all_probs(network(), tokens), tuning.all_probs_at_mask(network(), tokens)
    eps = torch.finfo(torch.float32).eps
    assert ((every >= 0) & (every <= 1)).all()
    assert ((every.sum(-1) - 1).abs() <= 8 * eps).all()
    alone = torch.cat([tuning.all_probs(network(), row[None]) for row in tokens])
    for found, expected in ((every, alone), (first, alone[:, 0])):
        np.testing.assert_allclose(found, expected, rtol=1e-5)  # a layer's sums of 8 to 32 terms, a hundred units


@for_all(
    model=models(MILD),
    length=st.integers(2, 5),
    n=st.integers(3, 12),
    seed=SEEDS,
    law=st.sampled_from(["masked", "before"]),
)
def test_a_task_is_labelled_by_the_posterior_of_what_is_seen(model, length, n, seed, law):
    task = labels.draw_task(model, length, (n - 2, 1, 1), seed, law)
    again = labels.draw_task(model, length, (n - 2, 1, 1), seed, law)
    assert torch.equal(task.tokens, again.tokens)
    assert torch.equal(task.mu, again.mu)
    assert (task.tokens[:, 0] == MASK).all()
    seen, at = (task.tokens, 1) if law == "masked" else (task.tokens[:, 1:], 0)
    known = messages.memory_posterior(model, seen) if hasattr(model, "n_cells") else messages.posterior(model, seen, at)
    np.testing.assert_allclose(task.posteriors, known, rounding(model, length), LOST[model.dtype])
    assert ((task.posteriors.sum(1) - 1).abs() <= rounding(model, length)).all()
    scores = task.posteriors @ task.mu
    assert torch.equal(task.labels, scores >= 0)
    both = 0 < task.labels[: n - 2].sum() < n - 2
    assert both or task.redraws == labels.REDRAWS
