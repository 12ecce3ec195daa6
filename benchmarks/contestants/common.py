"""What all contestants use: inputs from a file, and the part of a result that is compared."""

from __future__ import annotations

import numpy as np

COMPARED = 5
"""Results of the first sequences are compared, which every contestant has, however few it does."""


def read_chain(inputs: str, n: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read start, transition and emission as the peers take them, and the first `n` sequences.

    The file has the paper's A, W and P[H_0], whose columns are distributions. For the peers, rows are distributions,
    and the first state emits the first token.
    """
    with np.load(inputs) as file:
        transition = file["transition"]
        emission = file["emission"]
        initial = file["initial"]
        tokens = file["tokens"]
    start = transition @ initial
    parts = (start / start.sum(), transition.T, emission.T, tokens[:n])
    return tuple(map(np.ascontiguousarray, parts))


def compared(result) -> np.ndarray:
    """The part of a result (n, T, …) that is compared."""
    return np.asarray(result[:COMPARED])


def frequencies(tokens, n_tokens: int) -> np.ndarray:
    """The share of each token among all."""
    tokens = np.asarray(tokens)
    return np.bincount(tokens.ravel(), minlength=n_tokens) / tokens.size
