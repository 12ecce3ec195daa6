"""Models in rows, drawn; and those of hmmlearn and dynamax, where these are installed: else the test is skipped."""

import numpy as np
import pytest

from hmmlib.models.hmm import HMM


def drawn_rows(rng, shape, zeros):
    """Distributions over the last axis; about a share `zeros` of their entries is zero, but never all of them."""
    weights = rng.gamma(rng.choice([0.3, 1.0]), size=shape) * (rng.random(shape) >= zeros)
    lost = weights.sum(-1) < 1e-200
    weights[lost] = np.eye(shape[-1])[rng.integers(shape[-1])]
    return weights / weights.sum(-1, keepdims=True)


def drawn_model(seed, beforehand=None, zeros=None, shape=None):
    """startprob, transmat, emissionprob (S, X), drawn; with `beforehand` one step after some distribution."""
    rng = np.random.default_rng(seed)
    beforehand = seed % 2 == 0 if beforehand is None else beforehand
    zeros = (0.0, 0.3, 0.6)[seed % 3] if zeros is None else zeros
    states, tokens = (rng.integers(1 if beforehand else 2, 7), rng.integers(2, 6)) if shape is None else shape
    table, words = drawn_rows(rng, (states, states), zeros), drawn_rows(rng, (states, tokens), zeros)
    start = drawn_rows(rng, (states,), zeros)
    return (start @ table if beforehand else start), table, words


def texts_for(model, seed, n=6, length=6):
    """Random texts: half of them of the model, half of any tokens, which may be impossible."""
    own = HMM.from_rows(*model).sample(n // 2, length, seed).tokens
    return np.concatenate([own, np.random.default_rng(seed).integers(0, np.shape(model[2])[1], (n // 2, length))])


def likelihoods(model, texts):
    """By the forward algorithm in rows: p_1 B_{·x_1}, and then a step and a token, again and again."""
    start, table, words = map(np.asarray, model)
    beliefs = start * words.T[texts[:, 0]]
    for tokens in texts.T[1:]:
        beliefs = beliefs @ table * words.T[tokens]
    return beliefs.sum(1)


def categorical(model=None):
    """hmmlearn's model with these arrays."""
    module = pytest.importorskip("hmmlearn.hmm")
    start, table, words = drawn_model(0) if model is None else model
    made = module.CategoricalHMM(len(start))
    made.startprob_, made.transmat_, made.emissionprob_ = start, table, words
    return made


def parameters(model=None):
    """dynamax's parameters with these arrays."""
    jnp = pytest.importorskip("jax.numpy")
    module = pytest.importorskip("dynamax.hidden_markov_model")
    start, table, words = map(jnp.asarray, drawn_model(0) if model is None else model)
    made = module.CategoricalHMM(len(start), 1, words.shape[1])
    return made.initialize(initial_probs=start, transition_matrix=table, emission_probs=words[:, None])[0]
