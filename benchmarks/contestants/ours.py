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
        arrays = dict(file)
    tokens = torch.from_numpy(arrays.pop("tokens"))
    family = MemoryHMM if "memory" in arrays else HMM
    model = family(**arrays).to(dtype=getattr(torch, dtype))
    return model, tokens


def posteriors(inputs: str, dtype: str):
    """P[H_i | x] at every position. The library gives H_0 too, which the peers' chains do not have."""
    model, tokens = read(inputs, dtype)

    def call():
        return messages.posteriors(model, tokens)

    return call, lambda result: compared(result[:, 1:])


def masked(inputs: str, dtype: str):
    """G: P[X_i | x_{-i}] at every position."""
    model, tokens = read(inputs, dtype)

    def call():
        return messages.masked_token_probs(model, tokens)

    return call, compared


def sample(inputs: str, n: int, length: int, states: bool = False, dtype: str = "int64"):
    """Draw sequences, with or without their states, in integers of that type."""
    model, _ = read(inputs, "float64")

    def call():
        return model.sample(n, length, seed=1, states=states, dtype=getattr(torch, dtype))

    return call, lambda drawn: frequencies(drawn.tokens, model.n_tokens)
