"""hmmlearn's CategoricalHMM, in float64, on the chain from H_1: its first state emits the first token."""

from __future__ import annotations

import numpy as np
from common import Chain, frequencies, shown
from hmmlearn.hmm import CategoricalHMM


def build(inputs: str, implementation: str, n: int | None = None) -> tuple[CategoricalHMM, np.ndarray, list[int]]:
    """The model, the tokens of `n` sequences as one column, and the sequences' lengths."""
    chain = Chain.read(inputs, n)
    model = CategoricalHMM(n_components=len(chain.start), implementation=implementation)
    model.startprob_, model.transmat_, model.emissionprob_ = chain[:3]
    model.n_features = chain.emission.shape[1]
    return model, chain.tokens.reshape(-1, 1), [chain.tokens.shape[1]] * len(chain.tokens)


def by_sequence(lengths: list[int]):
    """Rows of all tokens, cut into sequences of the same length, and those that are shown."""
    return lambda result: shown(result.reshape(len(lengths), lengths[0], -1))


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
