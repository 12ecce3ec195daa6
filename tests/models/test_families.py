"""The small families of models: each keeps what it promises, and breaks just what it says."""

import numpy as np
import pytest
import torch

from hmmlib.inference.messages import latent_given_others, masked_token_probs, memory_posterior, posterior
from hmmlib.models.families import (
    essential_hmm,
    essential_twins,
    parity_memory_hmm,
    recoverable_memory_hmm,
    recoverable_twins,
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


@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.8])
def test_essential_models(zeros):
    dependent = 0
    for seed in SEEDS:
        n_states, n_tokens = 1 + seed % 6, 1 + seed // 6
        n_essential = 1 + seed % min(n_states, n_tokens)
        model, essential = essential_hmm(n_states, n_tokens, n_essential, seed, zeros)
        assert (model.n_states, model.n_tokens, len(essential)) == (n_states, n_tokens, n_essential)
        assert essential == sorted(set(essential))
        assert set(essential) <= set(range(n_states))
        assert assumption_3_2(model)
        mu = np.zeros(n_states)
        mu[essential] = 1 + np.arange(n_essential)
        report = assumption_3_5(model, mu, essential)
        assert report
        found = essential_states(model, mu)
        assert found is not None
        assert assumption_3_5(model, mu, found)
        # One to three sources at least, and from each of them one step leads into H*.
        outside = np.delete(np.arange(n_states), essential)
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
        zeros = [0.0, 0.5, 0.9][seed % 3]
        model, cell, syntax, kept = recoverable_memory_hmm(
            n_cells, n_memory, n_syntax, n_recoverable, values, seed, zeros, stationary
        )
        assert (model.n_cells, model.n_memory, model.n_syntax) == (n_cells, n_memory, n_syntax)
        assert (len(syntax), len(kept)) == (n_recoverable, values)
        assert 0 <= cell < n_cells
        assert syntax == sorted(set(syntax))
        assert set(syntax) <= set(range(n_syntax))
        assert kept == sorted(set(kept))
        assert set(kept) <= set(range(n_memory))
        assert assumption_3_2(model)
        assert not stationary or assumption_4_4(model)
        mu = np.zeros(n_memory)
        mu[kept] = 1 + np.arange(values)
        assert assumption_d_5(model, mu, cell, syntax)
        if n_cells == 1:
            assert assumption_4_5(model, mu, syntax)
            assert assumption_4_5(model, mu, syntax).angle == assumption_d_5(model, mu, cell, syntax).angle
        if values == n_memory:
            assert assumption_4_2(model, cell, syntax)
        # Columns outside M* x H*, but for those of other values in the cell, have one or two distributions to mix.
        own = cell * n_syntax
        rest = [(m, h) for m in range(n_memory) for h in range(model.n_states)]
        rest = [(m, h) for m, h in rest if not own <= h < own + n_syntax or (m in kept and h - own not in syntax)]
        if rest:
            assert 1 <= rank(torch.stack([model.emission[:, m, h] for m, h in rest], 1)) <= 2
        zero_priors += bool((model.memory == 0).any())
        not_4_2 += not assumption_4_2(model, cell, syntax)
    assert zero_priors > 0
    assert not_4_2 > 0  # a prompt is needed


def test_essential_twins_break_independence_and_nothing_else():
    for seed in SEEDS:
        model = essential_twins(seed)
        assert assumption_3_2(model)
        report = assumption_3_5(model, [1.0, -1.0, 0, 0], [0, 1])
        assert not report
        assert not report.columns
        assert report.uncovered == report.unreached == ()
        assert report.sources == (2, 3)
        assert essential_states(model, [1.0, -1.0, 0, 0]) is None
        # With the two made to differ it would hold.
        emission = model.emission.clone()
        emission[:, 0] = torch.tensor([0.5, 0.5, 0])
        told = type(model)(model.transition, emission, model.initial)
        assert assumption_3_5(told, [1.0, -1.0, 0, 0], [0, 1])
        # What the docstring says of inputs (1) and (2).
        assert posterior(model, [[1], [2]])[:, :2].numpy() == pytest.approx(np.eye(2), abs=1e-14)
        for prompt in (np.ones(4), [0, 0, 1, 0], np.random.default_rng(seed).random(4)):
            g = masked_token_probs(model, [[MASK, 1], [MASK, 2]], prompt)[:, 1]
            assert torch.allclose(g[0], g[1], rtol=0, atol=1e-15) or (g.sum(1) == 0).any()


def test_recoverable_twins_break_the_span_and_nothing_else():
    for seed in SEEDS:
        model, syntax = recoverable_twins(seed), [0, 2, 3]
        assert assumption_4_4(model)
        for report in (
            assumption_4_2(model, 0, syntax),
            assumption_d_5(model, [1.0, -1.0], 0, syntax),
            assumption_4_5(model, [1.0, -1.0], syntax),
        ):
            assert not report
            assert report.columns
            assert report.angle < 1e-9
            assert report.rest_rank == 2
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
        model, every = parity_memory_hmm(n, noise), list(range(2 * n))
        assert assumption_4_4(model)
        report = assumption_4_2(model, 0, every)
        assert not report
        assert not report.columns
        assert report.rest_rank == 0  # no other columns: spans meet in zero
        assert report.angle == pytest.approx(np.pi / 2)
        tokens = torch.tensor([[a, b] for a in range(n) for b in range(n)])
        np.testing.assert_allclose(masked_token_probs(model, tokens), 1 / n, atol=1e-14)
        np.testing.assert_allclose(masked_token_probs(model, torch.full((1, 2), MASK)), 1 / n, atol=1e-14)
        likely = memory_posterior(model, tokens)[:, 0] > 1 / n
        assert likely.tolist() == (tokens[:, 0] == tokens[:, 1]).tolist()


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
    assert alone.tolist()[0] != alone.tolist()[1]
    behind = concentrated(model, tokens, 0, syntax, prompt)
    assert behind.tolist() == [[False, True, True]] * 2


@pytest.mark.parametrize("arguments", [(3, 3, 0), (3, 3, 4), (3, 2, 3), (3, 3, -1), (0, 3, 1), (3, 0, 1)])
def test_essential_models_that_cannot_be(arguments):
    with pytest.raises(ValueError, match="must be"):
        essential_hmm(*arguments)


RECOVERABLE = {
    "no cell": (0, 2, 2, 1, 1),
    "no value": (1, 0, 2, 1, 0),
    "no syntax state": (1, 2, 0, 0, 1),
    "no recoverable state": (1, 2, 2, 0, 1),
    "more recoverable states than there are": (1, 2, 2, 3, 1),
    "no value of supp(mu)": (1, 2, 2, 1, 0),
    "more values than there are": (1, 2, 2, 1, 3),
    "a negative number": (1, 2, 2, -1, 1),
}


@pytest.mark.parametrize("wrong", RECOVERABLE)
def test_recoverable_models_that_cannot_be(wrong):
    """Where nobody looks, a RuntimeError or IndexError of torch comes out, or a model without H*."""
    with pytest.raises(ValueError, match="must be"):
        recoverable_memory_hmm(*RECOVERABLE[wrong])
