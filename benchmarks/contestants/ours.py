"""What hmmlib does: the library's own functions, called as a user would."""

from __future__ import annotations

import numpy as np
import torch
from common import compared, frequencies

from hmmlib.inference import messages
from hmmlib.models.hmm import HMM, MemoryHMM


def read(inputs: str, dtype: str) -> tuple[HMM | MemoryHMM, torch.Tensor]:
    """A model with or without a memory, and its tokens."""
    with np.load(inputs) as file:
        parts = dict(file)
    tokens = torch.from_numpy(parts.pop("tokens"))
    return (MemoryHMM if "memory" in parts else HMM)(**parts).to(dtype=getattr(torch, dtype)), tokens


def posteriors(inputs: str, dtype: str):
    """P[H_i | x] at every position; the library gives H_0 too, which the peers' chains do not have."""
    model, tokens = read(inputs, dtype)
    return lambda: messages.posteriors(model, tokens), lambda result: compared(result[:, 1:])


def masked(inputs: str, dtype: str):
    """G: P[X_i | x_{-i}] at every position."""
    model, tokens = read(inputs, dtype)
    return lambda: messages.masked_token_probs(model, tokens), compared


def sample(inputs: str, n: int, length: int, states: bool = False, dtype: str = "int64"):
    """Draw sequences, with or without their states, in so many bits."""
    model, _ = read(inputs, "float64")
    settings = dict(seed=1, states=states, dtype=getattr(torch, dtype))
    return lambda: model.sample(n, length, **settings), lambda drawn: frequencies(drawn.tokens, model.n_tokens)
