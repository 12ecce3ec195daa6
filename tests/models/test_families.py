"""The families of models: each keeps what it promises, and breaks just what it says."""

import math

import numpy as np
import pytest
import torch

import hmmlib

SEEDS = range(30)


@pytest.mark.parametrize("n_states", [1, 2, 3, 6])
def test_regular_independent_and_dependent_models(n_states):
    zeros = 0
    for seed in SEEDS:
        regular = hmmlib.regular_hmm(n_states, 3, seed)
        free = hmmlib.non_degenerate_hmm(n_states, n_states + seed % 3, seed)
        assert hmmlib.assumption_3_2(regular)
        assert (regular.initial > 0).all()
        assert hmmlib.assumption_3_2(free)
        assert np.linalg.matrix_rank(free.emission) == n_states
        zeros += int((regular.transition == 0).sum() + (regular.emission == 0).sum())
        if n_states > 1:
            dependent = hmmlib.dependent_hmm(n_states, n_states + 2, seed)
            assert hmmlib.assumption_3_2(dependent)
            columns = dependent.emission
            assert torch.equal(columns[:, -1], (columns[:, 0] + columns[:, (n_states - 1) // 2]) / 2)
    assert zeros > len(SEEDS)


@pytest.mark.parametrize("gap", [1e-2, 1e-6])
def test_nearly_dependent_columns(gap):
    for seed in SEEDS:
        model = hmmlib.nearly_dependent_hmm(4, 5, gap, seed)
        assert 0 < (model.emission[:, -1] - model.emission[:, 0]).abs().max() < gap * 1.000001
        assert hmmlib.assumption_3_1(model).condition > 0.3 / gap
        assert hmmlib.assumption_3_1(model)
        assert hmmlib.assumption_3_2(model)


@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.8])
def test_essential_models(zeros):
    dependent = 0
    for seed in SEEDS:
        n_states, n_tokens = 1 + seed % 6, 1 + seed // 6
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = hmmlib.essential_hmm(n_states, n_tokens, n_essential, seed, zeros)
        assert (model.n_states, model.n_tokens, len(essential)) == (n_states, n_tokens, n_essential)
        assert essential == sorted(set(essential) & set(range(n_states)))
        assert hmmlib.assumption_3_2(model)
        mu = np.zeros(n_states)
        mu[essential] = 1 + np.arange(n_essential)
        assert hmmlib.assumption_3_5(model, mu, essential)
        assert hmmlib.assumption_3_5(model, mu, hmmlib.essential_states(model, mu))
        dependent += not hmmlib.assumption_3_1(model)
    assert dependent > 0


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_recoverable_models(n_cells, stationary):
    zero_priors, not_4_2 = 0, 0
    for seed in SEEDS:
        n_memory, n_syntax = 1 + seed % 3, 1 + (seed // 3) % 3
        n_recoverable, values = 1 + seed % n_syntax, 1 + (seed // 2) % n_memory
        sizes = n_cells, n_memory, n_syntax, n_recoverable, values
        model, cell, syntax, kept = hmmlib.recoverable_memory_hmm(*sizes, seed, [0.0, 0.5, 0.9][seed % 3], stationary)
        assert (model.n_cells, model.n_memory, model.n_syntax, len(syntax), len(kept)) == sizes
        assert cell in range(n_cells)
        assert syntax == sorted(set(syntax) & set(range(n_syntax)))
        assert kept == sorted(set(kept) & set(range(n_memory)))
        assert hmmlib.assumption_3_2(model)
        assert not stationary or hmmlib.assumption_4_4(model)
        mu = np.zeros(n_memory)
        mu[kept] = 1 + np.arange(values)
        report = hmmlib.assumption_d_5(model, mu, cell, syntax)
        assert report
        assert n_cells > 1 or hmmlib.assumption_4_5(model, mu, syntax).angle == report.angle
        assert values < n_memory or hmmlib.assumption_4_2(model, cell, syntax)
        zero_priors += bool((model.memory == 0).any())
        not_4_2 += not hmmlib.assumption_4_2(model, cell, syntax)
    assert zero_priors > 0
    assert not_4_2 > 0  # a prompt is needed


def test_hidden_twins_break_independence_and_nothing_else():
    model, tokens = hmmlib.hidden_twins(), [[hmmlib.MASK, 1], [hmmlib.MASK, 2]]
    assert (bool(hmmlib.assumption_3_2(model)), bool(hmmlib.assumption_3_1(model))) == (True, False)
    assert hmmlib.posterior(model, tokens, at=1).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert hmmlib.masked_token_probs(model, tokens)[:, 0].tolist() == [[1, 0, 0]] * 2


def test_counterexamples_break_nothing_else():
    """What they break, controls of the ledger rest on."""
    for seed in SEEDS:
        model, mu = hmmlib.essential_twins(seed), [1.0, -1.0, 0, 0]
        assert hmmlib.assumption_3_2(model)
        assert hmmlib.assumption_3_5(model, mu, [0, 1]).sources == (2, 3)
        assert hmmlib.essential_states(model, mu) is None
        model = hmmlib.recoverable_twins(seed)
        assert hmmlib.assumption_4_4(model)
        assert hmmlib.assumption_4_2(model, 0, [0, 2, 3]).rest_rank == 2
        assert hmmlib.assumption_4_2(model, 0, [2, 3])  # so that S* = {c, d} would do
        model, syntax = hmmlib.shrinking_support(seed)
        assert hmmlib.assumption_4_4(model)
        assert hmmlib.assumption_d_5(model, [1.0, 0.0], 0, syntax)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_parity_models_are_stationary_and_say_nothing_but_by_pairs_of_tokens(n):
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    for noise in (0.02, 0.1, 0.4):
        model = hmmlib.parity_memory_hmm(n, noise)
        assert hmmlib.assumption_4_4(model)
        assert hmmlib.assumption_4_2(model, 0, range(2 * n)).rest_rank == 0
        np.testing.assert_allclose(hmmlib.masked_token_probs(model, pairs), 1 / n, atol=1e-14)
        likely = hmmlib.memory_posterior(model, pairs)[:, 0] > 1 / n
        assert torch.equal(likely, pairs[:, 0] == pairs[:, 1])


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
