"""Models in rows, drawn; and those of hmmlearn and dynamax. Where these are not installed the test is skipped."""

import numpy as np
import pytest

from hmmlib.models.hmm import HMM


def drawn_rows(rng, shape, zeros):
    """Distributions over the last axis. About a share `zeros` of their entries is zero, but never all of them."""
    weights = rng.gamma(rng.choice([0.3, 1.0]), size=shape) * (rng.random(shape) >= zeros)
    lost = weights.sum(-1) < 1e-200
    weights[lost] = np.eye(shape[-1])[rng.integers(shape[-1])]
    return weights / weights.sum(-1, keepdims=True)


def drawn_model(seed, beforehand=None, zeros=None, shape=None):
    """startprob, transmat and emissionprob. With `beforehand` the start is one step after some distribution."""
    rng = np.random.default_rng(seed)
    if beforehand is None:
        beforehand = seed % 2 == 0
    if zeros is None:
        zeros = (0.0, 0.3, 0.6)[seed % 3]
    if shape is None:
        shape = (rng.integers(1 if beforehand else 2, 7), rng.integers(2, 6))
    n_states, n_tokens = shape
    transmat = drawn_rows(rng, (n_states, n_states), zeros)
    emissionprob = drawn_rows(rng, (n_states, n_tokens), zeros)
    start = drawn_rows(rng, (n_states,), zeros)
    if beforehand:
        start = start @ transmat
    return start, transmat, emissionprob


def texts_for(model, seed, n=6, length=6):
    """Random texts. Half of them are of the model, and half of any tokens, so they may be impossible."""
    n_tokens = np.shape(model[2])[1]
    likely = HMM.from_rows(*model).sample(n // 2, length, seed).tokens
    arbitrary = np.random.default_rng(seed).integers(0, n_tokens, (n // 2, length))
    return np.concatenate([likely, arbitrary])


def likelihoods(model, texts):
    """By the forward algorithm in rows: the start and a token, then a step and a token, again and again."""
    start, transmat, emissionprob = map(np.asarray, model)
    beliefs = start * emissionprob.T[texts[:, 0]]
    for tokens in texts.T[1:]:
        beliefs = beliefs @ transmat * emissionprob.T[tokens]
    return beliefs.sum(1)


def categorical(model=None):
    """hmmlearn's model with these arrays."""
    module = pytest.importorskip("hmmlearn.hmm")
    start, transmat, emissionprob = drawn_model(0) if model is None else model
    peer = module.CategoricalHMM(len(start))
    peer.startprob_ = start
    peer.transmat_ = transmat
    peer.emissionprob_ = emissionprob
    return peer


def parameters(model=None):
    """dynamax's parameters with these arrays."""
    jnp = pytest.importorskip("jax.numpy")
    module = pytest.importorskip("dynamax.hidden_markov_model")
    start, transmat, emissionprob = map(jnp.asarray, drawn_model(0) if model is None else model)
    peer = module.CategoricalHMM(len(start), 1, emissionprob.shape[1])
    params, _ = peer.initialize(initial_probs=start, transition_matrix=transmat, emission_probs=emissionprob[:, None])
    return params
