"""The models of appendix E are made as its words say; all that is drawn are distributions, by the seed."""

import numpy as np
import pytest
import torch
from good_calls import GOOD, call, function

from hmmlib.models import families
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm

DRAWN = [name for name in GOOD if "seed" in GOOD[name] and function(name).__module__ == families.__name__]


def by_its_words(seed, n_states, n_tokens, memory=(), sharp=0.01, permutations=None):
    """A convex combination of permutation matrices, emissions, a start and a prior, in NumPy from the same draws."""
    generator, flat = torch.Generator().manual_seed(seed), 10.0

    def softmax(temperature, *shape):
        weights = np.exp(torch.rand(shape, generator=generator, dtype=torch.float64).numpy() / temperature)
        return weights / weights.sum(0)

    transition = np.zeros((n_states, n_states))
    for weight in softmax(sharp, permutations or n_states):
        transition[np.arange(n_states), torch.randperm(n_states, generator=generator)] += weight
    emission, initial = softmax(sharp, n_tokens, *memory[:1], n_states), softmax(flat, n_states)
    return [transition, emission, initial, *([softmax(flat, np.prod(memory))] if memory else [])]


@pytest.mark.parametrize("n_states", [2, 4, 30])
def test_models_are_what_appendix_e_says(n_states):
    for seed in range(5):
        for given in ({}, {"temperature": 0.5}):
            sharp = given.get("temperature", 0.01)
            cases = [(random_hmm(n_states, seed=seed, **given), by_its_words(seed, n_states, 10, sharp=sharp))]
            for cells, count in ((1, None), (2, 1), (2, 12)):
                made = random_memory_hmm(3, n_states, 7, seed, cells, permutations=count, **given)
                cases.append((made, by_its_words(seed, n_states, 7, (3,) * cells, sharp, count)))
            for made, expected in cases:
                for one, wanted in zip(parts(made), expected, strict=True):
                    np.testing.assert_allclose(one, wanted, rtol=1e-12)


def parts(model):
    """All parameters of a model, the memory's prior as one column."""
    memory = [model.memory.flatten()] if hasattr(model, "memory") else []
    return [model.transition, model.emission, model.initial, *memory]


@pytest.mark.parametrize("name", ["random_hmm", "random_memory_hmm", *DRAWN])
def test_columns_sum_to_one_and_the_seed_decides(name):
    def make(seed):
        made = call(name, seed=seed)
        return parts(made[0] if isinstance(made, tuple) else made)

    for seed in range(10):
        found = make(seed)
        for again in (make(seed), make(torch.Generator().manual_seed(seed))):
            assert all(map(torch.equal, found, again))
        for part in found:
            np.testing.assert_allclose(part.sum(0), 1, atol=1e-14)
        assert not all(map(torch.equal, found, make(seed + 100)))


@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.6, 1.0])
def test_sparse_columns_have_zeros_and_ties_and_never_vanish(zeros):
    columns = families.sparse_columns((8, 2000), zeros, torch.Generator().manual_seed(0))
    assert (columns == 0).double().mean().item() == pytest.approx(min(zeros, 7 / 8), abs=0.03)
    ratios = columns / torch.where(columns > 0, columns, 2).amin(0)
    allowed = torch.tensor([0, 1, 4 / 3, 1.5, 2, 3], dtype=torch.float64)
    assert ((ratios.unsqueeze(-1) - allowed).abs().amin(-1) < 1e-9).all()
