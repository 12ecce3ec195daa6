"""What all contestants share: inputs from a file, and which part of a result is compared."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

COMPARED = 5
"""Sequences whose results are compared: the first ones, which every contestant has, however few it does."""


def read_chain(inputs: str, n: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Start, transition and emission as the peers take them, and the first `n` sequences.

    The file has the paper's A, W and P[H_0], columns as distributions; for the peers, rows are distributions, and the
    first state emits the first token.
    """
    with np.load(inputs) as file:
        start = file["transition"] @ file["initial"]
        parts = (start / start.sum(), file["transition"].T, file["emission"].T, file["tokens"][:n])
        return tuple(map(np.ascontiguousarray, parts))


def compared(result) -> np.ndarray:
    """The part of a result (n, T, …) that is compared."""
    return np.asarray(result[:COMPARED])


def frequencies(tokens, n_tokens: int) -> np.ndarray:
    """How often each token occurs, as a share of all."""
    return np.bincount(np.asarray(tokens).ravel(), minlength=n_tokens) / np.asarray(tokens).size


def whole_training(build: Callable):
    """A call builds a network and trains it. The answer: the seconds of the training, then all weights in a row."""
    from torch.nn.utils import parameters_to_vector

    def call() -> np.ndarray:
        network, train = build()
        start = time.perf_counter()
        train()
        seconds = time.perf_counter() - start
        return np.concatenate([[seconds], parameters_to_vector(network.parameters()).detach().double().numpy()])

    return call, lambda result: result
