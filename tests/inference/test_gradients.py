"""Gradients: as finite differences are, where a prompt has zeros too, at any length; and by each part of a model."""

import numpy as np
import pytest
import torch
from record import SLOW

from hmmlib.inference.messages import (
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    posterior,
    prompted,
)  # fmt: skip
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.theorems import prompt_d_6
from hmmlib.validation import MASK

STEP = 1e-7


def hardly_telling(n_cells, seed, states=4, loop=0.8):
    """A memory of two values that tokens hardly tell apart: after a long text none is impossible."""
    model = sparse_memory_hmm(2, states, 5, seed, 0.0, n_cells)
    noise = torch.rand(model.emission.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    emission = model.emission[:, :1] * (1 + 0.02 * noise)
    chain = (1 - loop) / states + loop * torch.eye(states, dtype=torch.float64).roll(1, 0)
    return MemoryHMM(chain, emission / emission.sum(0), [1 / states] * states, model.memory)


def slopes(model, prompt, tokens):
    """Of a random sum of all that Ḡ says: by backward, and by a step to the right, as left of zero there is nothing.

    Positions speak for what the prompt leaves and for the rest in turn, 2^10 to 1: what is lost of either is lost soon.
    """
    lean, generator = torch.where(prompt > 0, 1.0, 2.0**-10), torch.Generator().manual_seed(1)
    sway = torch.stack([torch.ones_like(lean), *[lean, 2.0**-10 / lean] * tokens.shape[1]])[: tokens.shape[1] + 1]
    weights = torch.rand(*tokens.shape, model.n_tokens, generator=generator, dtype=torch.float64)

    def weighted(u):
        probs = masked_token_probs_from_embeddings(model, prompted(model, u, tokens) * sway)
        return (probs[:, 1:] * weights).sum()

    at = prompt.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(weighted(at), at)
    moved = [prompt, *(prompt + STEP * entry for entry in torch.eye(len(prompt), dtype=torch.float64))]
    here, *there = map(weighted, moved)
    return gradient, (torch.stack(there) - here) / STEP


@pytest.mark.parametrize(("n_cells", "states"), [(1, 4), (2, 4), (1, 1)])
@pytest.mark.parametrize("length", [1, 2, 5, 300, *([901, 2000] if SLOW else [])])
def test_gradients_at_the_prompt_of_d_6(length, n_cells, states):
    for seed in range(3 if SLOW else 1):
        model = hardly_telling(n_cells, seed, states)
        prompt, tokens = prompt_d_6(model, [1.0, 0.0], seed % n_cells), model.sample(1, length, seed).tokens
        for one in (model, model.flatten()):
            gradient, differences = slopes(one, prompt, tokens)
            scale = differences[prompt == 0].abs().max()
            assert scale > 1e-5
            np.testing.assert_allclose(gradient, differences, atol=1e-3 * scale)


def test_one_position_has_a_gradient_of_zeros():
    for model in (hardly_telling(1, 0), hardly_telling(1, 0).flatten()):
        for size in (0.5, 1e308):
            at = torch.full((1, 1, 8), size, dtype=torch.float64, requires_grad=True)
            found = masked_token_probs_from_embeddings(model, at)
            assert found.isfinite().all()
            assert (torch.autograd.grad(found[..., 0].sum(), at)[0] == 0).all()


@pytest.mark.parametrize("length", [3, 1500])
def test_where_nothing_is_possible_the_gradient_is_zero(length):
    model = hardly_telling(1, 0)
    at = model.embed(model.sample(2, length, 0).tokens)
    at[0, 1] = 0  # no state at position 2 of the first text: only what stands there can still be said
    probs = masked_token_probs_from_embeddings(model, at.requires_grad_())
    assert (probs[0].sum(-1) > 0).tolist() == [k == 1 for k in range(length)]
    assert (torch.autograd.grad(probs[0, 2:, 0].sum(), at)[0] == 0).all()


@pytest.mark.parametrize("part", ["transition", "initial", "emission", "memory"])
def test_results_can_be_differentiated_by_each_part_of_the_model(part):
    model = random_memory_hmm(2, 4, 4, 0, n_cells=2)
    getattr(model, part).requires_grad_()
    masked_token_probs(model, [[0, MASK, 2]])[0, 1, 0].backward()
    assert getattr(model, part).grad.abs().sum() > 0
    with torch.no_grad():
        assert not posterior(model, [[0, MASK, 2]]).requires_grad


def test_an_impossible_text_leaves_the_gradients_of_others_as_they_are():
    model = HMM([[0.7, 0.4], [0.3, 0.6]], [[0.5, 0.2], [0.5, 0.8], [0, 0]], [0.5, 0.5])
    model.transition.requires_grad_()
    alone, beside = (
        torch.autograd.grad(log_likelihood(model, texts)[0], model.transition)[0]
        for texts in ([[0, 1, 1]], [[0, 1, 1], [0, 2, 1]])
    )
    assert torch.equal(alone, beside)
    assert alone.abs().max() > 0.1


@pytest.mark.parametrize("memory", [[0.5, 0.5], [0.0, 1.0]])
def test_a_memory_value_that_is_out_of_the_question_hides_no_other_however_well_it_fits(memory):
    """Texts so long that what remains is far below the smallest float: with gradients, as without them."""
    emission = np.array([[[0.98, 0.98], [0.25, 0.5]], [[0.02, 0.02], [0.25, 0.25]], [[0.0, 0.0], [0.5, 0.25]]])
    chain = random_hmm(2, 3, 0)
    model = MemoryHMM(chain.transition, emission, chain.initial, memory)
    tokens = torch.zeros(1, 3000, dtype=torch.int64)
    tokens[0, 1] = 1 if memory[0] == 0 else 2  # which the first value never emits
    expected = masked_token_probs(model, tokens)
    np.testing.assert_allclose(expected.sum(-1), 1, rtol=1e-9)
    model.emission.requires_grad_()
    np.testing.assert_allclose(masked_token_probs(model, tokens).detach(), expected, rtol=1e-9)
