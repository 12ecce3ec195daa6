"""The families of models: each keeps what it promises, and breaks just what it says."""

import math

import numpy as np
import pytest
import torch

from hmmlib.inference.messages import latent_given_others, masked_token_probs, memory_posterior, posterior
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import (
    dependent_hmm,
    essential_hmm,
    essential_twins,
    hidden_twins,
    nearly_dependent_hmm,
    non_degenerate_hmm,
    parity_memory_hmm,
    recoverable_memory_hmm,
    recoverable_twins,
    regular_hmm,
    shrinking_support,
)
from hmmlib.theory.assumptions import (
    assumption_3_1,
    assumption_3_2,
    assumption_3_5,
    assumption_4_2,
    assumption_4_4,
    assumption_4_5,
    assumption_d_5,
    essential_states,
)
from hmmlib.theory.theorems import concentrated, prompt_d_6
from hmmlib.validation import MASK

SEEDS = range(30)


def rank(columns):
    return np.linalg.matrix_rank(columns.reshape(len(columns), -1).numpy())


@pytest.mark.parametrize("n_states", [1, 2, 3, 6])
def test_regular_independent_and_dependent_models(n_states):
    zeros = 0
    for seed in SEEDS:
        regular, free = regular_hmm(n_states, 3, seed), non_degenerate_hmm(n_states, n_states + seed % 3, seed)
        assert assumption_3_2(regular)
        assert (regular.initial > 0).all()
        assert assumption_3_2(free)
        assert rank(free.emission) == n_states
        zeros += int((regular.transition == 0).sum() + (regular.emission == 0).sum())
        if n_states > 1:
            dependent = dependent_hmm(n_states, n_states + 2, seed)
            assert assumption_3_2(dependent)
            columns = dependent.emission
            assert rank(columns) < n_states
            assert torch.equal(columns[:, -1], (columns[:, 0] + columns[:, (n_states - 1) // 2]) / 2)
    assert zeros > len(SEEDS)


@pytest.mark.parametrize("gap", [1e-2, 1e-6])
def test_nearly_dependent_columns(gap):
    for seed in SEEDS:
        model = nearly_dependent_hmm(4, 5, gap, seed)
        assert 0 < (model.emission[:, -1] - model.emission[:, 0]).abs().max() < gap * 1.000001
        assert assumption_3_1(model).condition == pytest.approx(np.linalg.cond(model.emission.numpy()), rel=1e-6)
        assert assumption_3_1(model).condition > 0.3 / gap
        assert assumption_3_1(model)
        assert assumption_3_2(model)


@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.8])
def test_essential_models(zeros):
    dependent = 0
    for seed in SEEDS:
        n_states, n_tokens = 1 + seed % 6, 1 + seed // 6
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = essential_hmm(n_states, n_tokens, n_essential, seed, zeros)
        assert (model.n_states, model.n_tokens, len(essential)) == (n_states, n_tokens, n_essential)
        assert essential == sorted(set(essential) & set(range(n_states)))
        assert assumption_3_2(model)
        mu = np.zeros(n_states)
        mu[essential] = 1 + np.arange(n_essential)
        report = assumption_3_5(model, mu, essential)
        assert report
        assert assumption_3_5(model, mu, essential_states(model, mu))
        outside = np.delete(np.arange(n_states), essential)  # one step leads from a source into H*
        assert (model.transition[outside][:, list(report.sources)] == 0).all()
        dependent += not assumption_3_1(model)
    assert dependent > 0


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_recoverable_models(n_cells, stationary):
    zero_priors, not_4_2 = 0, 0
    for seed in SEEDS:
        n_memory, n_syntax = 1 + seed % 3, 1 + (seed // 3) % 3
        n_recoverable, values = 1 + seed % n_syntax, 1 + (seed // 2) % n_memory
        sizes = n_cells, n_memory, n_syntax, n_recoverable, values
        model, cell, syntax, kept = recoverable_memory_hmm(*sizes, seed, [0.0, 0.5, 0.9][seed % 3], stationary)
        assert (model.n_cells, model.n_memory, model.n_syntax, len(syntax), len(kept)) == sizes
        assert cell in range(n_cells)
        assert syntax == sorted(set(syntax) & set(range(n_syntax)))
        assert kept == sorted(set(kept) & set(range(n_memory)))
        assert assumption_3_2(model)
        assert not stationary or assumption_4_4(model)
        mu = np.zeros(n_memory)
        mu[kept] = 1 + np.arange(values)
        report = assumption_d_5(model, mu, cell, syntax)
        assert report
        if n_cells == 1:
            assert assumption_4_5(model, mu, syntax)
            assert assumption_4_5(model, mu, syntax).angle == report.angle
        assert values < n_memory or assumption_4_2(model, cell, syntax)
        # Columns outside M* x H*, but for those of other values in the cell, have one or two distributions to mix.
        own = range(cell * n_syntax, (cell + 1) * n_syntax)
        rest = [(m, h) for m in range(n_memory) for h in range(model.n_states)]
        rest = [(m, h) for m, h in rest if h not in own or (m in kept and own.index(h) not in syntax)]
        if rest:
            assert 1 <= rank(torch.stack([model.emission[:, m, h] for m, h in rest], 1)) <= 2
        zero_priors += bool((model.memory == 0).any())
        not_4_2 += not assumption_4_2(model, cell, syntax)
    assert zero_priors > 0
    assert not_4_2 > 0  # a prompt is needed


def test_hidden_twins_differ_in_what_follows_only():
    model, tokens = hidden_twins(), [[MASK, 1], [MASK, 2]]
    assert assumption_3_2(model)
    assert not assumption_3_1(model)
    assert posterior(model, tokens, at=1).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert masked_token_probs(model, tokens)[:, 0].tolist() == [[1, 0, 0]] * 2


def test_essential_twins_break_independence_and_nothing_else():
    mu = [1.0, -1.0, 0, 0]
    for seed in SEEDS:
        model = essential_twins(seed)
        assert assumption_3_2(model)
        report = assumption_3_5(model, mu, [0, 1])
        assert (bool(report), bool(report.columns), report.uncovered, report.unreached) == (False, False, (), ())
        assert report.sources == (2, 3)
        assert essential_states(model, mu) is None
        emission = model.emission.clone()
        emission[:, 0] = torch.tensor([0.5, 0.5, 0])  # with the two made to differ it would hold
        assert assumption_3_5(type(model)(model.transition, emission, model.initial), mu, [0, 1])
        # What the docstring says of inputs (1) and (2).
        assert posterior(model, [[1], [2]])[:, :2].numpy() == pytest.approx(np.eye(2), abs=1e-14)
        for prompt in (np.ones(4), [0, 0, 1, 0], np.random.default_rng(seed).random(4)):
            g = masked_token_probs(model, [[MASK, 1], [MASK, 2]], prompt)[:, 1]
            assert torch.allclose(g[0], g[1], rtol=0, atol=1e-15) or (g.sum(1) == 0).any()


def test_recoverable_twins_break_the_span_and_nothing_else():
    for seed in SEEDS:
        model, syntax, mu = recoverable_twins(seed), [0, 2, 3], [1.0, -1.0]
        assert assumption_4_4(model)
        by_mu = assumption_d_5(model, mu, 0, syntax), assumption_4_5(model, mu, syntax)
        for report in (assumption_4_2(model, 0, syntax), *by_mu):
            assert (bool(report), bool(report.columns), report.rest_rank) == (False, True, 2)
            assert report.angle < 1e-9
        # b alone emits like a, and so S* = {c, d} would do.
        assert assumption_4_2(model, 0, [2, 3])
        assert torch.equal(model.emission[:, :, 0], model.emission[:, :, 1])
        g, latent = (of(model, [[0, 2], [0, 4]]) for of in (masked_token_probs, latent_given_others))
        assert (g[0] - g[1]).abs().max() < 1e-14
        states = latent.unflatten(2, (2, 4)).sum(2)[:, 0]
        np.testing.assert_allclose(states, [[1, 0, 0, 0], [0, 1, 0, 0]], atol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_parity_models_break_independence_and_nothing_else(n):
    for noise in (0.02, 0.1, 0.4):
        model = parity_memory_hmm(n, noise)
        assert assumption_4_4(model)
        report = assumption_4_2(model, 0, range(2 * n))
        assert (bool(report), bool(report.columns), report.rest_rank) == (False, False, 0)
        assert report.angle == pytest.approx(np.pi / 2)  # no other columns: spans meet in zero
        pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
        for tokens in (pairs, torch.full((1, 2), MASK)):
            np.testing.assert_allclose(masked_token_probs(model, tokens), 1 / n, atol=1e-14)
        likely = memory_posterior(model, pairs)[:, 0] > 1 / n
        assert torch.equal(likely, pairs[:, 0] == pairs[:, 1])


def test_shrinking_support():
    model, syntax = shrinking_support()
    assert syntax == [0, 1]
    assert assumption_4_4(model)
    assert assumption_d_5(model, [1.0, 0.0], 0, syntax)
    prompt, tokens = prompt_d_6(model, [1.0, 0.0], 0), [[0, 2], [1, 2]]
    g = masked_token_probs(model, tokens, prompt)
    np.testing.assert_allclose(g[0, 1:], g[1, 1:], atol=1e-14)
    alone = concentrated(model, tokens, 0, syntax)
    assert alone.any(1).all()
    assert not torch.equal(*alone)
    assert concentrated(model, tokens, 0, syntax, prompt).tolist() == [[False, True, True]] * 2


IMPOSSIBLE = {
    random_hmm: [(3, 4, 0, math.inf), (3, 4, 0, True)],
    random_memory_hmm: [(3, 4, 4, 0, 1, math.inf), (3, 4, 4, 0, 1, True)],
    non_degenerate_hmm: [(4, 3)],
    dependent_hmm: [(1, 3)],
    essential_hmm: [(3, 3, 0), (3, 3, 4), (3, 2, 3), (3, 3, -1), (0, 3, 1), (3, 0, 1)],
    # No cell, value, syntax state, recoverable state, too many of them, values of supp(mu): none, too many; below 0
    recoverable_memory_hmm: [
        *[(0, 2, 2, 1, 1), (1, 0, 2, 1, 0), (1, 2, 0, 0, 1), (1, 2, 2, 0, 1)],
        *[(1, 2, 2, 3, 1), (1, 2, 2, 1, 0), (1, 2, 2, 1, 3), (1, 2, 2, -1, 1)],
    ],
}


@pytest.mark.parametrize("family", IMPOSSIBLE, ids=lambda family: family.__name__)
def test_sizes_that_cannot_be(family):
    for sizes in IMPOSSIBLE[family]:
        with pytest.raises(ValueError, match="must be"):
            family(*sizes)
