"""dynamax, compiled and mapped over sequences, on the chain from H_1. float64 where JAX_ENABLE_X64 is set."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.random as jr
from common import compared, frequencies, read_chain
from dynamax import hidden_markov_model as hmm

SMOOTHERS = {"smoother": hmm.hmm_smoother, "two filters": hmm.hmm_two_filter_smoother}


def read(inputs: str, n: int | None = None) -> tuple:
    """The chain as arrays of jax, in the precision that it is set to."""
    start, transition, emission, tokens = read_chain(inputs, n)
    return (
        jnp.asarray(start),
        jnp.asarray(transition),
        jnp.asarray(emission),
        jnp.asarray(tokens, dtype=jnp.int32),
    )


def posteriors(inputs: str, smoother: str = "smoother", n: int | None = None):
    """P[H_i | x] by one of dynamax's smoothers."""
    start, transition, emission, tokens = read(inputs, n)
    smooth = SMOOTHERS[smoother]
    log_likelihood = jnp.log(emission).T

    @jax.jit
    @jax.vmap
    def run(row):
        return smooth(start, transition, log_likelihood[row]).smoothed_probs  # the compiler removes the rest

    return lambda: run(tokens).block_until_ready(), compared


def masked(inputs: str, n: int | None = None):
    """G from dynamax's two filters, which leave out the token's own likelihood. Dividing it out loses all digits."""
    start, transition, emission, tokens = read(inputs, n)
    log_likelihood = jnp.log(emission).T

    @jax.jit
    @jax.vmap
    def run(row):
        before = hmm.hmm_filter(start, transition, log_likelihood[row]).predicted_probs
        _, after = hmm.hmm_backward_filter(transition, log_likelihood[row])
        states = before * after
        return states / states.sum(-1, keepdims=True) @ emission

    return lambda: run(tokens).block_until_ready(), compared


def sample(inputs: str, n: int, length: int):
    """`CategoricalHMM.sample`, mapped over keys."""
    start, transition, emission, _ = read(inputs, 1)
    model = hmm.CategoricalHMM(len(start), 1, emission.shape[1])
    probs = dict(initial_probs=start, transition_matrix=transition, emission_probs=emission[:, None, :])
    parameters, _ = model.initialize(**probs)

    @jax.jit
    @jax.vmap
    def draw(key):
        return model.sample(parameters, key, length)[1][:, 0]

    keys = jr.split(jr.PRNGKey(1), n)
    return lambda: draw(keys).block_until_ready(), lambda tokens: frequencies(tokens, emission.shape[1])
