"""What all contestants share: inputs from a file, and which part of a result is compared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHOWN = 5
"""Sequences whose results are compared: the first ones, which every contestant has, however few it does."""


class Chain(NamedTuple):
    """A model as the peers take it: rows are distributions, and the first state emits the first token."""

    start: np.ndarray
    transition: np.ndarray
    emission: np.ndarray
    tokens: np.ndarray

    @classmethod
    def read(cls, inputs: str, n: int | None = None) -> Chain:
        """From a file with the paper's A, W and P[H_0], columns as distributions, and tokens: the first `n` sequences."""
        with np.load(inputs) as file:
            start = file["transition"] @ file["initial"]
            parts = (start / start.sum(), file["transition"].T, file["emission"].T, file["tokens"][:n])
            return cls(*map(np.ascontiguousarray, parts))


def shown(result) -> np.ndarray:
    """The part of a result (n, T, …) that is compared."""
    return np.asarray(result[:SHOWN])


def frequencies(tokens, n_tokens: int) -> np.ndarray:
    """How often each token occurs, as a share of all."""
    return np.bincount(np.asarray(tokens).ravel(), minlength=n_tokens) / np.asarray(tokens).size
