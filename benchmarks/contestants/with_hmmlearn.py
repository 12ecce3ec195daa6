"""hmmlearn's CategoricalHMM, in float64, on the chain from H_1: its first state emits the first token."""

from __future__ import annotations

import numpy as np
from common import compared, frequencies, read_chain
from hmmlearn.hmm import CategoricalHMM


def build(inputs: str, implementation: str, n: int | None = None) -> tuple[CategoricalHMM, np.ndarray, list[int]]:
    """The model, the tokens of `n` sequences as one column, and the sequences' lengths."""
    start, transition, emission, tokens = read_chain(inputs, n)
    model = CategoricalHMM(n_components=len(start), implementation=implementation)
    model.startprob_ = start
    model.transmat_ = transition
    model.emissionprob_ = emission
    model.n_features = emission.shape[1]
    lengths = [tokens.shape[1]] * len(tokens)
    return model, tokens.reshape(-1, 1), lengths


def by_sequence(lengths: list[int]):
    """Cut the rows of all tokens into sequences of the same length, and pick those that are compared."""

    def pick(result):
        return compared(result.reshape(len(lengths), lengths[0], -1))

    return pick


def posteriors(inputs: str, implementation: str = "scaling", n: int | None = None):
    """P[H_i | x] by `predict_proba`."""
    model, column, lengths = build(inputs, implementation, n)
    return lambda: model.predict_proba(column, lengths), by_sequence(lengths)


def masked(inputs: str, implementation: str = "scaling", n: int | None = None):
    """G from the posteriors: without the token's own likelihood, normalised, and multiplied by W."""
    model, column, lengths = build(inputs, implementation, n)
    likelihood = model.emissionprob_.T

    def call():
        states = model.predict_proba(column, lengths) / likelihood[column[:, 0]]
        return states / states.sum(1, keepdims=True) @ model.emissionprob_

    return call, by_sequence(lengths)


def sample(inputs: str, n: int, length: int):
    """`sample`, which draws one sequence at a time."""
    model, *_ = build(inputs, "scaling", 1)
    random = np.random.RandomState(1)

    def call():
        sequences = []
        for _ in range(n):
            tokens, _ = model.sample(length, random_state=random)
            sequences.append(tokens[:, 0])
        return np.stack(sequences)

    return call, lambda tokens: frequencies(tokens, model.n_features)
