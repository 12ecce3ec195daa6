"""Properties of the models themselves: a memory model and its equivalents, the laws of a chain, what is drawn."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st
from strategies import LOST, SEEDS, agree, agree_in_size, answers, asked, for_all, hmms, memory_hmms, models, rounding

from hmmlib.inference import messages
from hmmlib.models import sampling
from hmmlib.models.hmm import HMM, MemoryHMM

TURNED = np.asfortranarray([[0.25, 0.5], [0.75, 0.5]])
"""A matrix that is not stored row by row."""


def summed(model, found):
    """What the flattened model says of (m_1, …, m_N, h), summed up as the memory model's own results are."""
    joint = found["posteriors"].unflatten(-1, (*model.memory.shape, model.n_states))
    axes = range(2, 2 + model.n_cells)
    result = {"G": found["G"], "posteriors": joint.sum(tuple(axes))}
    for cell, axis in enumerate(axes):
        result[f"memory {cell}"] = joint.movedim(axis, 2).flatten(3).sum(-1)[:, 0]
    return result


@for_all(case=asked(family=memory_hmms))
@example(case=(MemoryHMM(TURNED, np.ones((1, 2, 2)), [0.5, 0.5], [0.5, 0.5]), torch.tensor([[0]])))
def test_a_memory_model_is_the_vanilla_model_it_flattens_to(case):
    model, tokens = case
    flat = model.flatten()
    assert torch.equal(flat.embed(tokens), model.lift(model.embed(tokens)))
    # The flattened chain adds up K times as many terms.
    found = answers(model, tokens)
    del found["latents"]
    agree(found, summed(model, answers(flat, tokens)), rounding(flat, tokens.shape[1]))
    sizes = (messages.log_likelihood(one, tokens) for one in (model, flat))
    agree_in_size(*sizes, rounding(flat, tokens.shape[1]))


def closed_classes(transition):
    """The sets of states that are never left, each with all that reach one another."""
    follows = [set(np.flatnonzero(column)) | {h} for h, column in enumerate(transition.T.numpy())]
    for _ in follows:
        follows = [set().union(*(follows[after] for after in reach)) for reach in follows]
    return {frozenset(reach) for h, reach in enumerate(follows) if all(h in follows[after] for after in reach)}


@for_all(model=hmms())
@example(model=HMM([[0.0, 1e-300, 0.0], [1.0, 0.0, 1e-300], [0.0, 1.0, 1.0]], np.ones((1, 3)), [1.0, 0.0, 0.0]))
@example(model=HMM([[1.0, 1.0], [1e-310, 0.0]], np.ones((1, 2)), [1.0, 0.0]))
@example(model=HMM([[0.0, 1e-310], [1.0, 1.0]], np.ones((1, 2)), [1.0, 0.0]))
def test_there_is_one_stationary_distribution_for_one_closed_class_and_it_stays(model):
    classes = closed_classes(model.transition)
    if len(classes) > 1:
        with pytest.raises(ValueError, match="more than one stationary distribution"):
            model.stationary()
        return
    found = model.stationary()
    bound = 1e-11  # of logarithms, which may be as large as 745 and are added up S² times
    assert (found >= 0).all()
    assert (found[[h for h in range(model.n_states) if h not in min(classes)]] == 0).all()
    assert abs(found.sum() - 1) <= bound
    np.testing.assert_allclose(model.transition @ found, found, rtol=bound, atol=LOST[model.dtype])
    turned = torch.arange(model.n_states).roll(1)
    other = HMM(model.transition[turned][:, turned], model.emission[:, turned], model.initial[turned])
    np.testing.assert_allclose(other.stationary(), found[turned], rtol=bound, atol=LOST[model.dtype])


@for_all(model=models() | models(dtype=torch.float32), length=st.integers(1, 8), seed=SEEDS)
def test_nothing_of_probability_zero_is_drawn(model, length, seed):
    tokens, states, memory = model.sample(30, length, seed)
    assert (model.initial[states[:, 0]] > 0).all()
    assert (model.transition[states[:, 1:], states[:, :-1]] > 0).all()
    if memory is None:
        assert (model.emission[tokens, states[:, 1:]] > 0).all()
    else:
        assert (model.memory[tuple(memory.T)] > 0).all()
        looked_up = memory.gather(1, states[:, 1:] // model.n_syntax)
        assert (model.emission[tokens, looked_up, states[:, 1:]] > 0).all()
    if model.dtype == torch.float64:
        assert (messages.log_likelihood(model, tokens) > -math.inf).all()


def same_draws(one, other):
    return all(a is b is None or torch.equal(a, b.to(a.dtype)) for a, b in zip(one, other, strict=True))


@for_all(model=models(), n=st.integers(1, 9), block=st.integers(1, 10), length=st.integers(1, 6), seed=SEEDS)
def test_a_seed_repeats_its_draws_however_they_are_asked_for_and_a_stream_is_its_blocks(model, n, block, length, seed):
    drawn, generator = model.sample(n, length, seed), torch.Generator().manual_seed(seed)
    assert same_draws(drawn, model.sample(n, length, seed))
    assert same_draws(drawn, model.sample(n, length, torch.Generator().manual_seed(seed)))
    assert same_draws(drawn, model.sample(n, length, seed, dtype=torch.uint8))
    assert torch.equal(drawn.tokens, model.sample(n, length, seed, states=False).tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "compiled_loops", lambda: None)
        assert same_draws(drawn, model.sample(n, length, seed))
    assert torch.equal(torch.cat(list(model.stream(n, length, seed, n))), drawn.tokens)
    parts = list(model.stream(n, length, seed, block))
    assert [len(part) for part in parts] == [min(block, n - k) for k in range(0, n, block)]
    blocks = [model.sample(len(part), length, generator).tokens for part in parts]
    assert torch.equal(torch.cat(parts), torch.cat(blocks))
