"""The families of models keep what they promise. The counterexamples break just what they say."""

import math

import numpy as np
import pytest
import torch

import hmmlib
from hmmlib import assumption_3_1, assumption_3_2, assumption_3_5, assumption_4_2, assumption_4_4, assumption_d_5

SEEDS = range(30)


def weights_on(indices, length):
    mu = np.zeros(length)
    mu[indices] = 1 + np.arange(len(indices))
    return mu


def is_set(indices, size):
    """Whether these are sorted indices below the size, each of them once."""
    return indices == sorted(set(indices) & set(range(size)))


# Families


@pytest.mark.parametrize("n_states", [1, 2, 3, 6])
def test_regular_and_independent_models(n_states):
    zeros = 0
    for seed in SEEDS:
        regular = hmmlib.regular_hmm(n_states, 3, seed)
        assert assumption_3_2(regular)
        zeros += int((regular.emission == 0).sum())
        independent = hmmlib.non_degenerate_hmm(n_states, n_states + seed % 3, seed)
        assert assumption_3_2(independent)
        assert np.linalg.matrix_rank(independent.emission) == n_states
    assert zeros > len(SEEDS)


@pytest.mark.parametrize("gap", [1e-2, 1e-6])
def test_nearly_dependent_columns(gap):
    for seed in SEEDS:
        model = hmmlib.nearly_dependent_hmm(4, 5, gap, seed)
        first, *_, last = model.emission.T
        distance = (last - first).abs().max()
        assert 0 < distance < gap * 1.000001
        assert assumption_3_1(model).condition > 0.3 / gap
        assert assumption_3_1(model)
        assert assumption_3_2(model)


@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.8])
def test_essential_models(zeros):
    dependent = 0
    for seed in SEEDS:
        n_states = 1 + seed % 6
        n_tokens = 1 + seed // 6
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = hmmlib.essential_hmm(n_states, n_tokens, n_essential, seed, zeros)
        assert (model.n_states, model.n_tokens, len(essential)) == (n_states, n_tokens, n_essential)
        assert is_set(essential, n_states)
        mu = weights_on(essential, n_states)
        assert assumption_3_2(model)
        assert assumption_3_5(model, mu, essential)
        assert assumption_3_5(model, mu, hmmlib.essential_states(model, mu))
        dependent += not assumption_3_1(model)
    assert dependent > 0


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_recoverable_models(n_cells, stationary):
    with_zeros_in_prior = 0
    only_with_prompt = 0
    for seed in SEEDS:
        n_memory = 1 + seed % 3
        n_syntax = 1 + (seed // 3) % 3
        n_recoverable = 1 + seed % n_syntax
        n_values = 1 + (seed // 2) % n_memory
        sizes = (n_cells, n_memory, n_syntax, n_recoverable, n_values)
        zeros = [0.0, 0.5, 0.9][seed % 3]
        model, cell, syntax, values = hmmlib.recoverable_memory_hmm(*sizes, seed, zeros, stationary)
        assert (model.n_cells, model.n_memory, model.n_syntax, len(syntax), len(values)) == sizes
        assert cell in range(n_cells)
        assert is_set(syntax, n_syntax)
        assert is_set(values, n_memory)
        assert assumption_3_2(model)
        assert assumption_4_4(model) or not stationary
        mu = weights_on(values, n_memory)
        report = assumption_d_5(model, mu, cell, syntax)
        assert report
        if n_cells == 1:
            assert hmmlib.assumption_4_5(model, mu, syntax).angle == report.angle
        recoverable = bool(assumption_4_2(model, cell, syntax))
        assert recoverable or n_values < n_memory
        only_with_prompt += not recoverable
        with_zeros_in_prior += bool((model.memory == 0).any())
    assert with_zeros_in_prior > 0
    assert only_with_prompt > 0


# Counterexamples


@pytest.mark.parametrize("n_states", [2, 3, 6])
def test_the_last_column_of_a_dependent_model_is_exactly_a_mixture(n_states):
    for seed in SEEDS:
        model = hmmlib.dependent_hmm(n_states, n_states + 2, seed)
        columns = model.emission.T
        middle = columns[(n_states - 1) // 2]
        assert assumption_3_2(model)
        assert torch.equal(columns[-1], (columns[0] + middle) / 2)


def test_hidden_twins_break_independence_and_nothing_else():
    model = hmmlib.hidden_twins()
    tokens = [[hmmlib.MASK, 1], [hmmlib.MASK, 2]]
    assert assumption_3_2(model)
    assert not assumption_3_1(model)
    assert hmmlib.posterior(model, tokens, at=1).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert hmmlib.masked_token_probs(model, tokens)[:, 0].tolist() == [[1, 0, 0], [1, 0, 0]]


def test_essential_twins_break_independence_and_nothing_else():
    for seed in SEEDS:
        model = hmmlib.essential_twins(seed)
        mu = [1.0, -1.0, 0, 0]
        assert assumption_3_2(model)
        assert assumption_3_5(model, mu, [0, 1]).sources == (2, 3)
        assert hmmlib.essential_states(model, mu) is None


def test_recoverable_twins_are_recoverable_without_the_first_state():
    for seed in SEEDS:
        model = hmmlib.recoverable_twins(seed)
        assert assumption_4_4(model)
        assert assumption_4_2(model, 0, [0, 2, 3]).rest_rank == 2
        assert assumption_4_2(model, 0, [2, 3])


def test_a_shrinking_support_satisfies_the_assumptions():
    for seed in (None, *SEEDS):
        model, syntax = hmmlib.shrinking_support(seed)
        assert assumption_4_4(model)
        assert assumption_d_5(model, [1.0, 0.0], 0, syntax)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_parity_models_are_stationary_and_say_nothing_but_by_pairs_of_tokens(n):
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    for noise in (0.02, 0.1, 0.4):
        model = hmmlib.parity_memory_hmm(n, noise)
        assert assumption_4_4(model)
        assert assumption_4_2(model, 0, range(2 * n)).rest_rank == 0
        np.testing.assert_allclose(hmmlib.masked_token_probs(model, pairs), 1 / n, atol=1e-14)
        value_0_is_likely = hmmlib.memory_posterior(model, pairs)[:, 0] > 1 / n
        assert torch.equal(value_0_is_likely, pairs[:, 0] == pairs[:, 1])


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        (hmmlib.random_hmm, (3, 4, 0, math.inf)),
        (hmmlib.dependent_hmm, (1, 3)),
        (hmmlib.essential_hmm, (3, 2, 3)),
        (hmmlib.recoverable_memory_hmm, (1, 2, 2, 3, 1)),
        (hmmlib.recoverable_memory_hmm, (1, 2, 2, 1, 3)),
    ],
)
def test_sizes_that_cannot_be(family, sizes):
    with pytest.raises(ValueError, match="must be"):
        family(*sizes)
