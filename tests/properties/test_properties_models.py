"""Properties of the models themselves: a memory model and its equivalents, the laws of a chain, what is drawn."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st
from strategies import SEEDS, agree, agree_in_size, answers, asked, for_all, hmms, memory_hmms, models, rounding

from hmmlib.inference import messages
from hmmlib.models import sampling
from hmmlib.models.hmm import HMM, MemoryHMM

COLUMN_BY_COLUMN = np.asfortranarray([[0.25, 0.5], [0.75, 0.5]])
"""A matrix that is not stored row by row, as most are."""
ONE_TOKEN = np.ones((1, 2, 2))
STORED_OTHERWISE = MemoryHMM(COLUMN_BY_COLUMN, ONE_TOKEN, [0.5, 0.5], [0.5, 0.5])


def summed_over_memory(model, flattened):
    """What the flattened model says of (m_1, …, m_N, h), summed up as the memory model's own results are."""
    joint = flattened["posteriors"].unflatten(-1, (*model.memory.shape, model.n_states))
    axes = range(2, 2 + model.n_cells)
    result = {"G": flattened["G"], "posteriors": joint.sum(tuple(axes))}
    for cell, axis in enumerate(axes):
        by_value = joint.movedim(axis, 2).flatten(3).sum(-1)
        result[f"memory {cell}"] = by_value[:, 0]
    return result


@for_all(case=asked(family=memory_hmms))
@example(case=(STORED_OTHERWISE, torch.tensor([[0]])))
def test_a_memory_model_is_the_vanilla_model_it_flattens_to(case):
    model, tokens = case
    flat = model.flatten()
    bound = rounding(flat, tokens.shape[1])  # The flattened chain adds up K times as many terms.
    assert torch.equal(flat.embed(tokens), model.lift(model.embed(tokens)))
    by_memory_model = answers(model, tokens)
    del by_memory_model["latents"]
    agree(by_memory_model, summed_over_memory(model, answers(flat, tokens)), bound)
    agree_in_size(messages.log_likelihood(model, tokens), messages.log_likelihood(flat, tokens), bound)


def closed_classes(transition):
    """The sets of states that are never left, each with all that reach one another."""
    n_states = len(transition)
    reached = []
    for h in range(n_states):
        states = {h}
        for _ in range(n_states):
            for state in list(states):
                states.update(np.flatnonzero(transition[:, state]).tolist())
        reached.append(frozenset(states))
    return {states for states in reached if all(reached[state] == states for state in states)}


@for_all(model=hmms())
def test_there_is_one_stationary_distribution_for_one_closed_class_and_it_stays(model):
    classes = closed_classes(model.transition)
    if len(classes) > 1:
        with pytest.raises(ValueError, match="more than one stationary distribution"):
            model.stationary()
        return
    (recurrent,) = classes
    law = model.stationary()
    for h in range(model.n_states):
        assert (law[h] > 0) == (h in recurrent)
    assert abs(law.sum() - 1) <= 1e-14
    np.testing.assert_allclose(model.transition @ law, law, rtol=1e-12)
    turned = torch.arange(model.n_states).roll(1)
    transition = model.transition[turned][:, turned]
    renumbered = HMM(transition, model.emission[:, turned], model.initial[turned], columns=True)
    np.testing.assert_allclose(renumbered.stationary(), law[turned], rtol=1e-12)


@for_all(model=models() | models(dtype=torch.float32), length=st.integers(1, 8), seed=SEEDS)
def test_nothing_of_probability_zero_is_drawn(model, length, seed):
    tokens, states, memory = model.sample(30, length, seed)
    assert (model.initial[states[:, 0]] > 0).all()
    before = states[:, :-1]
    after = states[:, 1:]
    assert (model.transition[after, before] > 0).all()
    if memory is None:
        assert (model.emission[tokens, after] > 0).all()
    else:
        assert (model.memory[tuple(memory.T)] > 0).all()
        looked_up = memory.gather(1, after // model.n_syntax)
        assert (model.emission[tokens, looked_up, after] > 0).all()
    if model.dtype == torch.float64:
        assert (messages.log_likelihood(model, tokens) > -math.inf).all()


def assert_same_draws(sample, expected):
    for part, expected_part in zip(sample, expected, strict=True):
        if expected_part is None:
            assert part is None
        else:
            assert torch.equal(part.long(), expected_part)


@for_all(model=models(), n=st.integers(1, 9), length=st.integers(1, 6), seed=SEEDS)
def test_a_seed_repeats_its_draws_however_they_are_asked_for(model, n, length, seed):
    expected = model.sample(n, length, seed)
    assert_same_draws(model.sample(n, length, seed), expected)
    assert_same_draws(model.sample(n, length, torch.Generator().manual_seed(seed)), expected)
    assert_same_draws(model.sample(n, length, seed, dtype=torch.uint8), expected)
    without_states = model.sample(n, length, seed, states=False)
    assert torch.equal(without_states.tokens, expected.tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "compiled_loops", lambda: None)
        assert_same_draws(model.sample(n, length, seed), expected)
        patch.undo()
        patch.setattr(sampling, "BLOCK", 4)
        assert_same_draws(model.sample(n, length, seed), expected)
