"""The families of models: each keeps what it promises, and breaks just what it says."""

import math

import numpy as np
import pytest
import torch

import hmmlib

SEEDS = range(30)


def rank(columns):
    return np.linalg.matrix_rank(columns.reshape(len(columns), -1).numpy())


@pytest.mark.parametrize("n_states", [1, 2, 3, 6])
def test_regular_independent_and_dependent_models(n_states):
    zeros = 0
    for seed in SEEDS:
        regular = hmmlib.regular_hmm(n_states, 3, seed)
        free = hmmlib.non_degenerate_hmm(n_states, n_states + seed % 3, seed)
        assert hmmlib.assumption_3_2(regular)
        assert (regular.initial > 0).all()
        assert hmmlib.assumption_3_2(free)
        assert rank(free.emission) == n_states
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
        report = hmmlib.assumption_3_5(model, mu, essential)
        assert report
        assert hmmlib.assumption_3_5(model, mu, hmmlib.essential_states(model, mu))
        outside = np.delete(np.arange(n_states), essential)  # one step leads from a source into H*
        assert (model.transition[outside][:, list(report.sources)] == 0).all()
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
        # Columns outside M* x H*, but for those of other values in the cell, have one or two distributions to mix.
        own = range(cell * n_syntax, (cell + 1) * n_syntax)
        rest = [(m, h) for m in range(n_memory) for h in range(model.n_states)]
        rest = [(m, h) for m, h in rest if h not in own or (m in kept and own.index(h) not in syntax)]
        if rest:
            assert 1 <= rank(torch.stack([model.emission[:, m, h] for m, h in rest], 1)) <= 2
        zero_priors += bool((model.memory == 0).any())
        not_4_2 += not hmmlib.assumption_4_2(model, cell, syntax)
    assert zero_priors > 0
    assert not_4_2 > 0  # a prompt is needed


def test_hidden_and_essential_twins_break_independence_and_nothing_else():
    model, tokens = hmmlib.hidden_twins(), [[hmmlib.MASK, 1], [hmmlib.MASK, 2]]
    assert (bool(hmmlib.assumption_3_2(model)), bool(hmmlib.assumption_3_1(model))) == (True, False)
    assert hmmlib.posterior(model, tokens, at=1).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert hmmlib.masked_token_probs(model, tokens)[:, 0].tolist() == [[1, 0, 0]] * 2
    for seed in SEEDS:
        model, mu = hmmlib.essential_twins(seed), [1.0, -1.0, 0, 0]
        report = hmmlib.assumption_3_5(model, mu, [0, 1])
        assert hmmlib.assumption_3_2(model)
        assert (bool(report.columns), report.uncovered, report.sources, report.unreached) == (False, (), (2, 3), ())
        assert hmmlib.essential_states(model, mu) is None
        # Inputs (1) and (2), of which a statement's control shows that no prompt helps.
        assert hmmlib.posterior(model, [[1], [2]])[:, :2].numpy() == pytest.approx(np.eye(2), abs=1e-14)


def test_recoverable_twins_break_the_span_and_nothing_else():
    for seed in SEEDS:
        model, syntax, mu = hmmlib.recoverable_twins(seed), [0, 2, 3], [1.0, -1.0]
        assert hmmlib.assumption_4_4(model)
        by_mu = hmmlib.assumption_d_5(model, mu, 0, syntax), hmmlib.assumption_4_5(model, mu, syntax)
        for report in (hmmlib.assumption_4_2(model, 0, syntax), *by_mu):
            assert (bool(report), bool(report.columns), report.rest_rank) == (False, True, 2)
            assert report.angle < 1e-9
        assert torch.equal(model.emission[:, :, 0], model.emission[:, :, 1])
        assert hmmlib.assumption_4_2(model, 0, [2, 3])  # so that S* = {c, d} would do
        g, latent = (of(model, [[0, 2], [0, 4]]) for of in (hmmlib.masked_token_probs, hmmlib.latent_given_others))
        assert (g[0] - g[1]).abs().max() < 1e-14
        np.testing.assert_allclose(latent.unflatten(2, (2, 4)).sum(2)[:, 0], np.eye(4)[:2], atol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_parity_models_break_independence_and_nothing_else(n):
    for noise in (0.02, 0.1, 0.4):
        model = hmmlib.parity_memory_hmm(n, noise)
        assert hmmlib.assumption_4_4(model)
        report = hmmlib.assumption_4_2(model, 0, range(2 * n))
        assert (bool(report), bool(report.columns), report.rest_rank) == (False, False, 0)
        assert report.angle == pytest.approx(np.pi / 2)  # no other columns: spans meet in zero
        pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
        for tokens in (pairs, torch.full((1, 2), hmmlib.MASK)):
            np.testing.assert_allclose(hmmlib.masked_token_probs(model, tokens), 1 / n, atol=1e-14)
        likely = hmmlib.memory_posterior(model, pairs)[:, 0] > 1 / n
        assert torch.equal(likely, pairs[:, 0] == pairs[:, 1])


def test_shrinking_support():
    model, syntax = hmmlib.shrinking_support()
    assert syntax == [0, 1]
    assert hmmlib.assumption_4_4(model)
    assert hmmlib.assumption_d_5(model, [1.0, 0.0], 0, syntax)
    prompt, tokens = hmmlib.prompt_d_6(model, [1.0, 0.0], 0), [[0, 2], [1, 2]]
    g = hmmlib.masked_token_probs(model, tokens, prompt)
    np.testing.assert_allclose(g[0, 1:], g[1, 1:], atol=1e-14)
    alone = hmmlib.concentrated(model, tokens, 0, syntax)
    assert alone.any(1).all()
    assert not torch.equal(*alone)
    assert hmmlib.concentrated(model, tokens, 0, syntax, prompt).tolist() == [[False, True, True]] * 2


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        *((hmmlib.random_hmm, (3, 4, 0, bad)) for bad in (math.inf, True)),
        *((hmmlib.random_memory_hmm, (3, 4, 4, 0, 1, bad)) for bad in (math.inf, True)),
        (hmmlib.non_degenerate_hmm, (4, 3)),
        (hmmlib.dependent_hmm, (1, 3)),
        *((hmmlib.essential_hmm, sizes) for sizes in [(3, 3, 0), (3, 3, 4), (3, 2, 3)]),
        *((hmmlib.recoverable_memory_hmm, (1, 2, 2, *sizes)) for sizes in [(0, 1), (3, 1), (1, 0), (1, 3)]),
    ],
)
def test_sizes_that_cannot_be(family, sizes):
    with pytest.raises(ValueError, match="must be"):
        family(*sizes)
