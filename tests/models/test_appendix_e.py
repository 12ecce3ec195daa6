"""The models of appendix E are made as its words say. All that families draw are distributions, by the seed."""

import numpy as np
import pytest
import torch
from good_calls import GOOD, call, function

from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_columns

SEEDED = [name for name in GOOD if "seed" in GOOD[name] and "." not in name]
DRAWN = [name for name in SEEDED if function(name).__module__.startswith("hmmlib.models")]


def parts(model):
    """All parameters of a model, the memory's prior as one column."""
    tables = [model.transition, model.emission, model.initial]
    if hasattr(model, "memory"):
        tables.append(model.memory.flatten())
    return tables


def softmax(generator, temperature, *shape):
    logits = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
    weights = np.exp(logits / temperature)
    return weights / weights.sum(0)


def convex_combination_of_permutations(generator, temperature, n_states, count):
    transition = np.zeros((n_states, n_states))
    for weight in softmax(generator, temperature, count):
        targets = torch.randperm(n_states, generator=generator)
        transition[np.arange(n_states), targets] += weight
    return transition


def assert_close(model, expected):
    for table, expected_table in zip(parts(model), expected, strict=True):
        np.testing.assert_allclose(table, expected_table, rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.01, 0.5])
@pytest.mark.parametrize("n_states", [2, 4, 30])
def test_an_hmm_is_what_appendix_e_says(n_states, temperature):
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        expected = [
            convex_combination_of_permutations(generator, temperature, n_states, n_states),
            softmax(generator, temperature, 10, n_states),
            softmax(generator, 10.0, n_states),
        ]
        assert_close(random_hmm(n_states, seed=seed, temperature=temperature), expected)
        if temperature == 0.01:
            assert_close(random_hmm(n_states, seed=seed), expected)


@pytest.mark.parametrize(("n_cells", "permutations"), [(1, None), (2, 1), (2, 12)])
def test_a_memory_model_is_what_appendix_e_says(n_cells, permutations):
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        expected = [
            convex_combination_of_permutations(generator, 0.01, 4, permutations or 4),
            softmax(generator, 0.01, 7, 3, 4),
            softmax(generator, 10.0, 4),
            softmax(generator, 10.0, 3**n_cells),
        ]
        assert_close(random_memory_hmm(3, 4, 7, seed, n_cells, permutations=permutations), expected)


@pytest.mark.parametrize("name", DRAWN)
def test_columns_sum_to_one_and_the_seed_decides(name):
    def draw(seed):
        model = call(name, seed=seed)
        return parts(model[0] if isinstance(model, tuple) else model)

    for seed in range(10):
        tables = draw(seed)
        for repeated in (draw(seed), draw(torch.Generator().manual_seed(seed))):
            assert all(map(torch.equal, tables, repeated))
        for table in tables:
            np.testing.assert_allclose(table.sum(0), 1, atol=1e-14)
        assert not all(map(torch.equal, tables, draw(seed + 100)))


@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.6, 1.0])
def test_sparse_columns_have_zeros_and_ties_and_never_vanish(zeros):
    columns = sparse_columns((8, 2000), zeros, torch.Generator().manual_seed(0))
    share_of_zeros = (columns == 0).double().mean().item()
    assert share_of_zeros == pytest.approx(min(zeros, 7 / 8), abs=0.03)
    smallest = torch.where(columns > 0, columns, 2).amin(0)
    ratios = (columns / smallest).unsqueeze(-1)
    allowed = torch.tensor([0, 1, 4 / 3, 1.5, 2, 3], dtype=torch.float64)
    assert ((ratios - allowed).abs().amin(-1) < 1e-9).all()


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_states", [8, 100, 300])
def test_the_number_of_threads_changes_no_more_than_last_digits(n_states, threads):
    expected = random_hmm(n_states, seed=1)
    for count in (2, 3, 16):
        threads(count)
        model = random_hmm(n_states, seed=1)
        assert torch.equal(model.transition, expected.transition)
        assert torch.equal(model.initial, expected.initial)
        np.testing.assert_allclose(model.emission, expected.emission, rtol=4e-16, atol=0)
