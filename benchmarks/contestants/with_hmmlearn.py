"""hmmlearn's CategoricalHMM, in float64, on the chain from H_1: its first state emits the first token."""

from __future__ import annotations

import numpy as np
from common import compared, frequencies, read_chain
from hmmlearn.hmm import CategoricalHMM


def build(inputs: str, implementation: str, n: int | None = None) -> tuple[CategoricalHMM, np.ndarray, list[int]]:
    """The model, the tokens of `n` sequences as one column, and the sequences' lengths."""
    start, transition, emission, tokens = read_chain(inputs, n)
    model = CategoricalHMM(n_components=len(start), implementation=implementation)
    model.startprob_, model.transmat_, model.emissionprob_ = start, transition, emission
    model.n_features = emission.shape[1]
    return model, tokens.reshape(-1, 1), [tokens.shape[1]] * len(tokens)


def by_sequence(lengths: list[int]):
    """Cuts the rows of all tokens into sequences of the same length, and picks those that are compared."""
    return lambda result: compared(result.reshape(len(lengths), lengths[0], -1))


def posteriors(inputs: str, implementation: str = "scaling", n: int | None = None):
    """P[H_i | x] by `predict_proba`."""
    model, column, lengths = build(inputs, implementation, n)
    return lambda: model.predict_proba(column, lengths), by_sequence(lengths)


def masked(inputs: str, implementation: str = "scaling", n: int | None = None):
    """G from the posteriors: without the token's own likelihood, normalised, and multiplied by W."""
    model, column, lengths = build(inputs, implementation, n)
    likelihood = model.emissionprob_.T

    def call():
        others = model.predict_proba(column, lengths) / likelihood[column[:, 0]]
        return others / others.sum(1, keepdims=True) @ model.emissionprob_

    return call, by_sequence(lengths)


def sample(inputs: str, n: int, length: int):
    """`sample`, which draws one sequence at a time."""
    model, *_ = build(inputs, "scaling", 1)
    random = np.random.RandomState(1)

    def call():
        return np.stack([model.sample(length, random_state=random)[0][:, 0] for _ in range(n)])

    return call, lambda tokens: frequencies(tokens, model.n_features)
