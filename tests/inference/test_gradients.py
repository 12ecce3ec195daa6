"""Gradients: as finite differences are, where a prompt has zeros too, at any length; and by each part of a model."""

import numpy as np
import pytest
import torch
from record import SLOW
from torch.autograd import forward_ad

from hmmlib import (
    HMM,
    MASK,
    MemoryHMM,
    aggregated_messages,
    ground_truth,
    latent_given_others,
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    posterior,
    posteriors,
    prompt_d_6,
    prompted,
    random_hmm,
    random_memory_hmm,
    sparse_memory_hmm,
    theorem_3_3,
)

STEP = 1e-7
LENGTHS = [1, 2, 5, 300]
if SLOW:
    LENGTHS += [901, 2000]


def hardly_telling(n_cells=1, seed=0, states=4, loop=0.8):
    """A memory of two values that tokens hardly tell apart, so that after a long text none is impossible."""
    model = sparse_memory_hmm(2, states, 5, seed, 0.0, n_cells)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(model.emission.shape, generator=generator, dtype=torch.float64)
    emission = model.emission[:, :1] * (1 + 0.02 * noise)
    emission /= emission.sum(0)
    cycle = torch.eye(states, dtype=torch.float64).roll(1, 0)
    chain = (1 - loop) / states + loop * cycle
    return MemoryHMM(chain, emission, [1 / states] * states, model.memory)


class WeightedSum:
    """A random sum of all that Ḡ says behind a prompt, as a function of the prompt.

    Positions speak for what the prompt leaves and for what it excludes in turn, 2^10 to 1. So if the messages lose
    either, a gradient shows it soon.
    """

    def __init__(self, model, prompt, tokens):
        self.model = model
        self.tokens = tokens
        length = tokens.shape[1]
        lean = torch.where(prompt > 0, 1.0, 2.0**-10)
        turns = [torch.ones_like(lean)]
        for _ in range(length):
            turns.append(lean)
            turns.append(2.0**-10 / lean)
        self.sway = torch.stack(turns)[: length + 1]
        generator = torch.Generator().manual_seed(1)
        shape = (*tokens.shape, model.n_tokens)
        self.weights = torch.rand(shape, generator=generator, dtype=torch.float64)

    def __call__(self, prompt):
        embeddings = prompted(self.model, prompt, self.tokens) * self.sway
        probs = masked_token_probs_from_embeddings(self.model, embeddings)
        return (probs[:, 1:] * self.weights).sum()

    def gradient(self, prompt):
        at = prompt.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self(at), at)
        return gradient

    def differences(self, prompt):
        """Finite differences by a step to the right, because left of zero there is nothing."""
        value = self(prompt)
        slopes = []
        for entry in torch.eye(len(prompt), dtype=torch.float64):
            slopes.append((self(prompt + STEP * entry) - value) / STEP)
        return torch.stack(slopes)


@pytest.mark.parametrize(("n_cells", "n_states"), [(1, 4), (2, 4), (1, 1)])
@pytest.mark.parametrize("length", LENGTHS)
def test_gradients_at_the_prompt_of_d_6(length, n_cells, n_states):
    for seed in range(3 if SLOW else 1):
        model = hardly_telling(n_cells, seed, n_states)
        prompt = prompt_d_6(model, [1.0, 0.0], seed % n_cells)
        tokens = model.sample(1, length, seed).tokens
        for each in (model, model.flatten()):
            weighted = WeightedSum(each, prompt, tokens)
            differences = weighted.differences(prompt)
            scale = differences[prompt == 0].abs().max()
            assert scale > 1e-5
            np.testing.assert_allclose(weighted.gradient(prompt), differences, atol=1e-3 * scale)


@pytest.mark.parametrize("size", [0.5, 1e308])
@pytest.mark.parametrize("flat", [False, True])
def test_one_position_has_a_gradient_of_zeros(size, flat):
    model = hardly_telling()
    if flat:
        model = model.flatten()
    embeddings = torch.full((1, 1, 8), size, dtype=torch.float64)
    embeddings.requires_grad_()
    probs = masked_token_probs_from_embeddings(model, embeddings)
    (gradient,) = torch.autograd.grad(probs[..., 0].sum(), embeddings)
    assert probs.isfinite().all()
    assert (gradient == 0).all()


@pytest.mark.parametrize("length", [3, 1500])
def test_where_nothing_is_possible_the_gradient_is_zero(length):
    model = hardly_telling()
    embeddings = model.embed(model.sample(2, length, 0).tokens)
    embeddings[0, 1] = 0  # no state is possible at position 2 of the first text
    embeddings.requires_grad_()
    probs = masked_token_probs_from_embeddings(model, embeddings)
    possible = probs[0].sum(-1) > 0
    assert possible.nonzero().tolist() == [[1]], "only what stands at that position can still be said"
    probs[0, 2:, 0].sum().backward()
    assert (embeddings.grad == 0).all()


@pytest.mark.parametrize("part", ["transition", "initial", "emission", "memory"])
def test_results_can_be_differentiated_by_each_part_of_the_model(part):
    model = random_memory_hmm(2, 4, 4, 0, n_cells=2)
    getattr(model, part).requires_grad_()
    masked_token_probs(model, [[0, MASK, 2]])[0, 1, 0].backward()
    assert getattr(model, part).grad.abs().sum() > 0
    with torch.no_grad():
        assert not posterior(model, [[0, MASK, 2]]).requires_grad


def gradient_of_first_likelihood(model, texts):
    (gradient,) = torch.autograd.grad(log_likelihood(model, texts)[0], model.transition)
    return gradient


def test_an_impossible_text_leaves_the_gradients_of_others_as_they_are():
    emission = np.array([[0.5, 0.2], [0.5, 0.8], [0, 0]])
    model = HMM(random_hmm(2, 3, 0).transition, emission, [0.5, 0.5])
    model.transition.requires_grad_()
    alone = gradient_of_first_likelihood(model, [[0, 1, 1]])
    beside = gradient_of_first_likelihood(model, [[0, 1, 1], [0, 2, 1]])
    assert torch.equal(alone, beside)
    assert alone.abs().max() > 0.1


@pytest.mark.parametrize(("memory", "excluding_token"), [([0.5, 0.5], 2), ([0.0, 1.0], 1)])
def test_a_memory_value_that_is_out_of_the_question_hides_no_other_however_well_it_fits(memory, excluding_token):
    """The text is so long that what remains is far below the smallest float, with gradients as without them."""
    chain = random_hmm(2, 3, 0)
    of_value_0 = [[0.98, 0.02, 0.0], [0.98, 0.02, 0.0]]
    of_value_1 = [[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]
    emission = np.moveaxis([of_value_0, of_value_1], 2, 0)
    model = MemoryHMM(chain.transition, emission, chain.initial, memory)
    tokens = torch.zeros(1, 3000, dtype=torch.int64)
    tokens[0, 1] = excluding_token
    expected = masked_token_probs(model, tokens)
    np.testing.assert_allclose(expected.sum(-1), 1, rtol=1e-9)
    model.emission.requires_grad_()
    np.testing.assert_allclose(masked_token_probs(model, tokens).detach(), expected, rtol=1e-9)


# Derivatives that are taken forwards

FLAT = random_hmm(3, 4, seed=1, temperature=0.3)
FLAT_MEMORY = random_memory_hmm(2, 4, 5, seed=1, n_cells=2, temperature=0.3)
TEXTS = [[0, MASK, 2, 3], [1, 1, 0, 2]]


def chain(logits):
    """A model with another transition matrix, a function of its logits, (3, 3)."""
    return HMM(logits.reshape(3, 3).softmax(0), FLAT.emission, FLAT.initial, columns=True)


def memory_model(logits):
    """A model with another prior of its memory, a function of its logits, (4,)."""
    prior = logits.softmax(0).reshape(2, 2)
    return MemoryHMM(FLAT_MEMORY.transition, FLAT_MEMORY.emission, FLAT_MEMORY.initial, prior)


def from_rows(logits):
    """A model in rows with another start, a function of its logits, (3,)."""
    return HMM.from_rows(logits.softmax(0), FLAT.transition.T, FLAT.emission.T)


DIFFERENTIABLE = [
    (3, lambda prompt: masked_token_probs(FLAT, TEXTS, prompt)),
    (3, lambda prompt: latent_given_others(FLAT, TEXTS, prompt)),
    (8, lambda prompt: masked_token_probs(FLAT_MEMORY, TEXTS, prompt)),
    (24, lambda flat: masked_token_probs_from_embeddings(FLAT, flat.reshape(2, 4, 3))),
    (24, lambda flat: aggregated_messages(FLAT, flat.reshape(2, 4, 3))[0]),
    (9, lambda logits: posteriors(chain(logits), TEXTS)),
    (9, lambda logits: log_likelihood(chain(logits), TEXTS)),
    (9, lambda logits: ground_truth(chain(logits), [1.0, -2.0, 0.5], TEXTS)),
    (3, lambda mu: ground_truth(FLAT, mu, TEXTS)),
    (4, lambda logits: memory_posterior(memory_model(logits), TEXTS)),
    (3, lambda logits: log_likelihood(from_rows(logits), TEXTS)),
    (9, lambda logits: torch.vstack(chain(logits).to_rows()[:2])),
    (9, lambda logits: theorem_3_3(chain(logits), [1.0, -1.0, 2.0]).weights),
]
"""Functions of a vector, and how long it is."""


def dual_derivative(function, at, direction):
    """The derivative in a direction by dual tensors. It is None where it gets lost."""
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(at, direction))).tangent


@pytest.mark.parametrize(("size", "function"), DIFFERENTIABLE)
def test_a_derivative_that_is_taken_forwards_is_as_finite_differences_are(size, function):
    generator = torch.Generator().manual_seed(0)
    at = 0.5 + torch.rand(size, generator=generator, dtype=torch.float64)
    direction = torch.rand(size, generator=generator, dtype=torch.float64)
    step = 1e-6 * direction
    expected = (function(at + step) - function(at - step)) / 2e-6
    scale = expected.abs().max()
    assert scale > 1e-3
    _, by_jvp = torch.func.jvp(function, (at,), (direction,))
    jacobian = torch.func.jacfwd(function)(at)
    for derivative in (by_jvp, jacobian @ direction, dual_derivative(function, at, direction)):
        assert (derivative - expected).abs().max() < 1e-7 * scale


def test_a_derivative_of_a_derivative_is_not_lost():
    def score(prompt):
        return masked_token_probs(FLAT, TEXTS, prompt)[:, 1:].square().sum()

    at = torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64)
    backwards_twice = torch.func.jacrev(torch.func.jacrev(score))(at)
    assert backwards_twice.abs().max() > 1e-3
    torch.testing.assert_close(torch.func.jacfwd(torch.func.jacfwd(score))(at), backwards_twice)
    torch.testing.assert_close(torch.func.hessian(score)(at), backwards_twice)


def test_a_derivative_within_another_that_does_not_see_the_prompt_is_not_lost():
    at = torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64)
    direction = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    one = torch.tensor(1.0, dtype=torch.float64)

    def inner(prompt):
        _, derivative = torch.func.jvp(lambda factor: factor * masked_token_probs(FLAT, TEXTS, prompt), (one,), (one,))
        return derivative

    _, nested = torch.func.jvp(inner, (at,), (direction,))
    _, plain = torch.func.jvp(lambda prompt: masked_token_probs(FLAT, TEXTS, prompt), (at,), (direction,))
    assert plain.abs().max() > 1e-3
    torch.testing.assert_close(nested, plain)
