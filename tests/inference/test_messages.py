"""What inference returns, against witnesses: the sum over all latent paths, hmmlearn, dynamax, the flattened model."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised
from record import SLOW

from hmmlib.inference import messages
from hmmlib.inference.messages import (
    lifted_size,
    log_likelihood,
    masked_token_probs,
    masked_token_probs_from_embeddings,
    memory_posterior,
    posterior,
    posteriors,
    prompted,
)
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import MemoryHMM
from hmmlib.validation import MASK

MODELS = 100 if SLOW else 40
"""Random models of each family that are enumerated."""
FAMILIES = {
    "sparse": lambda s, x, seed: sparse_hmm(s, x, seed, zeros=0.1 * (seed % 6)),
    "appendix E": random_hmm,
    "sparse, one cell": lambda s, x, seed: sparse_memory_hmm(1 + seed % 3, s, x, seed, zeros=0.1 * (seed % 6)),
    "appendix E, one cell": lambda s, x, seed: random_memory_hmm(1 + seed % 3, s, x, seed),
    "sparse, two cells": lambda s, x, seed: sparse_memory_hmm(1 + seed % 3, s, x, seed, 0.1 * (seed % 6), n_cells=2),
    "appendix E, two cells": lambda s, x, seed: random_memory_hmm(1 + seed % 3, s, x, seed, n_cells=2),
}


def draw(family, seed, most_paths=4500):
    """A model of a family, a length from 1 to 6, and a generator: as many states as enumeration can bear."""
    rng = np.random.default_rng(seed)
    length, step = int(rng.integers(1, 7)), 2 if "two" in family else 1
    cells = (1 + seed % 3) ** (0 if "cell" not in family else step)
    sizes = [s for s in range(step, 6, step) if cells * s ** (length + 1) <= most_paths] or [step]
    return FAMILIES[family](int(rng.choice(sizes)), int(rng.integers(1, 5)), seed), length, rng


def draw_tokens(model, n, length, rng):
    """Half of the sequences from the model, half arbitrary (so of probability zero, some), a fifth of it all hidden."""
    likely = model.sample(n - n // 2, length, int(rng.integers(2**31))).tokens
    tokens = torch.cat([likely, torch.as_tensor(rng.integers(0, model.n_tokens, (n // 2, length)))])
    return torch.where(torch.as_tensor(rng.random(tokens.shape) < 0.2), MASK, tokens)


def paths(model, embeddings):
    """All latent paths for one sequence of embeddings (T, M*H)."""
    memory = model.memory if isinstance(model, MemoryHMM) else None
    return Enumeration(model.transition, model.emission, model.initial, embeddings, memory)


def lifted_masked_token(model, prompted):
    """Ḡ for one sequence of lifted embeddings (T, M^N * H): the cells given their values leave a vanilla model each."""
    total = 0.0
    for (values, prior), rows in zip(
        np.ndenumerate(model.memory.numpy()), prompted.reshape(len(prompted), -1, model.n_states).unbind(1), strict=True
    ):
        emission = model.emission[
            :, np.array(values)[np.arange(model.n_states) // model.n_syntax], range(model.n_states)
        ]
        given = Enumeration(model.transition, emission, model.initial, rows)
        total = total + prior * np.stack([given.masked_token(i) for i in range(1, len(rows) + 1)])
    return np.stack([normalised(row) for row in total])


def error(found, expected):
    """Largest error; infinity where one of the two is exactly zero and the other is not."""
    found, expected = np.asarray(found), np.asarray(expected)
    return abs(found - expected).max() if ((found == 0) == (expected == 0)).all() else np.inf


@pytest.mark.parametrize("family", FAMILIES)
def test_arbitrary_embeddings_and_prompts_equal_the_sum_over_all_paths(family):
    for seed in range(MODELS):
        model, length, rng = draw(family, seed)
        proper = model.embed(draw_tokens(model, 1, length, rng))
        size = proper.shape[-1]
        prompt = torch.as_tensor(
            rng.integers(0, 4, (1, 1, size)) * rng.random((1, 1, size)) * 10.0 ** rng.integers(-9, 9)
        )
        free = torch.as_tensor(rng.exponential(size=proper.shape) * (rng.random(proper.shape) < 0.8))
        for embeddings in (free, torch.cat([prompt, torch.ones_like(prompt), proper], 1)[:, :length]):
            one = paths(model, embeddings[0])
            expected = [normalised(one.masked_token(i)) for i in range(1, length + 1)]
            assert error(masked_token_probs_from_embeddings(model, embeddings)[0], expected) <= 1e-12, seed
        if isinstance(model, MemoryHMM):
            size = lifted_size(model)
            prompt = torch.as_tensor(rng.random((1, 1, size)) * (rng.random((1, 1, size)) < 0.7))
            prompted = torch.cat([prompt, model.lift(proper)], 1)[:, :length]
            found = masked_token_probs_from_embeddings(model, prompted)[0]
            assert error(found, lifted_masked_token(model, prompted[0])) <= 1e-12, seed


@pytest.mark.outside
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_hmmlearn_agrees(zeros):
    hmmlearn = pytest.importorskip("hmmlearn.hmm")
    for seed in range(10):
        model = sparse_hmm(2 + seed % 5, 4, seed, zeros)
        witness = hmmlearn.CategoricalHMM(model.n_states)
        witness.startprob_ = model.marginal(1).numpy()  # hmmlearn starts at H_1
        witness.transmat_, witness.emissionprob_ = model.transition.T.numpy(), model.emission.T.numpy()
        tokens = model.sample(3, 50, seed).tokens
        found, likelihoods = posteriors(model, tokens)[:, 1:], log_likelihood(model, tokens)
        for row, states, likelihood in zip(tokens, found, likelihoods, strict=True):
            score, expected = witness.score_samples(row[:, None].numpy())
            np.testing.assert_allclose(states, expected, atol=1e-11)
            assert likelihood.item() == pytest.approx(score, rel=1e-12)


@pytest.mark.outside
def test_dynamax_agrees():
    jax, dynamax = pytest.importorskip("jax"), pytest.importorskip("dynamax.hidden_markov_model")
    with jax.enable_x64(True):
        for seed in range(3):
            model = sparse_hmm(4, 4, seed, zeros=0.0)  # dynamax floors probabilities at 1e-15: none is near that here
            witness = dynamax.CategoricalHMM(4, 1, 4)
            parameters, _ = witness.initialize(
                initial_probs=jax.numpy.asarray(model.marginal(1).numpy()),
                transition_matrix=jax.numpy.asarray(model.transition.T.numpy()),
                emission_probs=jax.numpy.asarray(model.emission.T.numpy()[:, None, :]),
            )
            tokens = model.sample(1, 50, seed).tokens
            smoothed = witness.smoother(parameters, jax.numpy.asarray(tokens.T.numpy()))
            assert smoothed.smoothed_probs.dtype == np.float64
            np.testing.assert_allclose(posteriors(model, tokens)[0, 1:], smoothed.smoothed_probs, atol=1e-11)
            assert log_likelihood(model, tokens).item() == pytest.approx(float(smoothed.marginal_loglik), rel=1e-12)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_blocks_and_threads_do_not_show(n_threads, monkeypatch):
    model = sparse_memory_hmm(2, 4, 3, 0, 0.3, n_cells=2)
    vanilla = sparse_hmm(3, 3, 1, 0.3)
    tokens = torch.randint(0, 3, (37, 6), generator=torch.Generator().manual_seed(0))
    prompt = torch.rand(16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    calls = [
        lambda: masked_token_probs(model, tokens),
        lambda: masked_token_probs(model, tokens, prompt),
        lambda: memory_posterior(model, tokens, 1),
        lambda: posterior(vanilla, tokens, 2),
        lambda: log_likelihood(vanilla, tokens),
    ]
    whole = [call() for call in calls]
    monkeypatch.setattr(messages, "BLOCK", 6 * 16 * 5)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        for one, call in zip(whole, calls, strict=True):
            np.testing.assert_allclose(call(), one, rtol=1e-14)
        vanilla.emission.requires_grad_(True)
        assert posterior(vanilla, tokens, 2).requires_grad
        with torch.no_grad():
            assert not posterior(vanilla, tokens, 2).requires_grad
        with pytest.raises(ValueError, match="at must be an integer from 0 to 6, not 7"):
            posterior(model, tokens, 7)
    finally:
        torch.set_num_threads(before)


def test_prompts_and_embeddings_follow_the_precision_of_the_model():
    model, tokens = random_hmm(3, 4, 1).to(dtype=torch.float32), torch.tensor([[0, 1]])
    prompt = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    embeddings = prompted(model, prompt, tokens)
    assert embeddings.dtype == torch.float32
    found = masked_token_probs_from_embeddings(model, embeddings.double())
    assert found.dtype == torch.float32
    assert torch.equal(found, masked_token_probs(model, tokens, prompt))


@pytest.mark.parametrize("part", ["transition", "initial", "emission", "memory"])
def test_results_can_be_differentiated_by_each_part_of_the_model(part):
    model = random_memory_hmm(2, 4, 4, 0, n_cells=2)
    getattr(model, part).requires_grad_()
    masked_token_probs(model, [[0, MASK, 2]])[0, 1, 0].backward()
    assert getattr(model, part).grad.abs().sum() > 0


@pytest.mark.parametrize("memory", [[0.5, 0.5], [0.0, 1.0]])
def test_a_memory_value_that_is_out_of_the_question_hides_no_other_however_well_it_fits(memory):
    """Texts so long that what remains is far below the smallest float: with gradients, as without them."""
    emission = np.array([[[0.98, 0.98], [0.25, 0.5]], [[0.02, 0.02], [0.25, 0.25]], [[0.0, 0.0], [0.5, 0.25]]])
    chain = random_hmm(2, 3, 0)
    model = MemoryHMM(chain.transition, emission, chain.initial, memory)
    tokens = torch.zeros(1, 3000, dtype=torch.int64)
    tokens[0, 1] = 1 if memory[0] == 0 else 2  # which the first value never emits
    expected = masked_token_probs(model, tokens)
    assert torch.allclose(expected.sum(-1), torch.ones(1, 3000, dtype=torch.float64))
    model.emission.requires_grad_()
    assert torch.allclose(masked_token_probs(model, tokens), expected, rtol=1e-9, atol=0)


def test_messages_leave_out_the_evidence_of_their_own_position_unless_told():
    """Over two positions, by hand: τ_1 has v_2 only, and with its own evidence v_1 too, whatever their sizes."""
    model, v = (
        random_hmm(3, 4, 1),
        torch.rand(1, 2, 3, dtype=torch.float64) * torch.tensor([[[1e-40], [1e30]]]).double(),
    )
    of_later = model.transition.T @ v[0, 1] * (model.transition @ model.initial)
    for own, expected in ((None, of_later), (False, of_later), (True, of_later * v[0, 0])):
        mantissa, exponent = messages.aggregated_messages(model, v, **({} if own is None else {"own": own}))
        assert mantissa.shape == (1, 2, 3)
        assert torch.allclose(torch.ldexp(mantissa, exponent)[0, 0], expected, rtol=1e-12, atol=0)
