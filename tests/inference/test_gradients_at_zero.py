"""Gradients where a prompt has zeros, as that of (D.6) has: against finite differences, at any length."""

import numpy as np
import pytest
import torch
from record import SLOW

from hmmlib.inference import forward_backward
from hmmlib.inference.messages import masked_token_probs_from_embeddings, prompted
from hmmlib.models.families import sparse_memory_hmm
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory.theorems import prompt_d_6

STEP = 1e-7


def hardly_telling(n_cells, seed, loop=0.8):
    """A memory of two values that tokens hardly tell apart: after a long text none is impossible."""
    model = sparse_memory_hmm(2, 4, 5, seed, 0.0, n_cells)
    noise = torch.rand(model.emission.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    emission = model.emission[:, :1] * (1 + 0.02 * noise)
    chain = torch.full((4, 4), (1 - loop) / 4, dtype=torch.float64) + loop * torch.eye(4, dtype=torch.float64).roll(
        1, 0
    )
    return MemoryHMM(chain / chain.sum(0), emission / emission.sum(0), [0.25] * 4, model.memory)


def weighted(model, prompt, tokens):
    """A random sum of all that Ḡ says, and so a number."""
    probs = masked_token_probs_from_embeddings(model, prompted(model, prompt, tokens))
    return (probs * torch.rand(probs.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).sum()


def slopes(model, prompt, tokens):
    """By backward, and by a step to the right in each entry, as left of zero there is nothing."""
    at = prompt.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(weighted(model, at, tokens), at)
    here, differences = weighted(model, prompt, tokens), []
    for entry in torch.eye(len(prompt), dtype=torch.float64):
        differences.append((weighted(model, prompt + STEP * entry, tokens) - here) / STEP)
    return gradient, torch.stack(differences)


@pytest.mark.parametrize("n_cells", [1, 2])
@pytest.mark.parametrize("length", [1, 2, 5, 300, 900, *([700, 2000] if SLOW else [2000])])
def test_gradients_at_the_prompt_of_d_6(length, n_cells):
    for seed in range(3 if SLOW else 1):
        model = hardly_telling(n_cells, seed)
        prompt, tokens = prompt_d_6(model, [1.0, 0.0], seed % n_cells), model.sample(2, length, seed).tokens
        gradient, differences = slopes(model, prompt, tokens)
        scale = differences[prompt == 0].abs().max()
        assert scale > 1e-4
        np.testing.assert_allclose(gradient, differences, atol=1e-3 * scale)
        flat, _ = slopes(model.flatten(), prompt, tokens)
        np.testing.assert_allclose(gradient, flat, rtol=1e-9, atol=1e-9 * scale)


def test_without_the_lanes_beside_it_a_gradient_vanishes(monkeypatch):
    honest = forward_backward.rescaled

    def alone(message, exponent):
        return tuple(part.squeeze(-2) for part in honest(message.unsqueeze(-2), exponent.unsqueeze(-2)))

    monkeypatch.setattr(forward_backward, "rescaled", alone)
    model = hardly_telling(1, 0)
    gradient, differences = slopes(model, prompt_d_6(model, [1.0, 0.0], 0), model.sample(2, 2000, 0).tokens)
    assert (gradient - differences).abs().max() > 0.1 * differences.abs().max()


def test_one_position_has_a_gradient_of_zeros():
    for model in (hardly_telling(1, 0), hardly_telling(1, 0).flatten()):
        at = torch.full((1, 1, 8), 0.5, dtype=torch.float64, requires_grad=True)
        found = masked_token_probs_from_embeddings(model, at)
        assert found.requires_grad
        (gradient,) = torch.autograd.grad(found[..., 0].sum(), at)
        assert (gradient == 0).all()
        huge = torch.full((1, 1, 8), 1e308, dtype=torch.float64, requires_grad=True)
        assert masked_token_probs_from_embeddings(model, huge).isfinite().all()


@pytest.mark.parametrize("length", [3, 50, 1500])
def test_where_nothing_is_possible_the_gradient_is_zero(length):
    model = hardly_telling(1, 0)
    embeddings = model.embed(model.sample(2, length, 0).tokens)
    embeddings[0, 1] = 0  # no state at position 2 of the first text: only what stands there can still be said
    at = embeddings.clone().requires_grad_()
    probs = masked_token_probs_from_embeddings(model, at)
    assert (probs[0].sum(-1) > 0).tolist() == [k == 1 for k in range(length)]
    (gradient,) = torch.autograd.grad((probs[0, 2:, 0]).sum(), at)
    assert (gradient == 0).all()
