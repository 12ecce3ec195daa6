"""pomegranate's DenseHMM, on the chain from H_1."""

from __future__ import annotations

import torch
from common import compared, read_chain
from pomegranate.distributions import Categorical
from pomegranate.hmm import DenseHMM


def posteriors(inputs: str, dtype: str, n: int | None = None):
    """P[H_i | x] by `predict_proba`."""
    start, transition, emission, tokens = read_chain(inputs, n)
    precision = getattr(torch, dtype)
    starts = torch.as_tensor(start, dtype=precision)
    edges = torch.as_tensor(transition, dtype=precision)
    states = [Categorical(row[None]) for row in torch.as_tensor(emission, dtype=precision)]
    ends = torch.ones_like(starts)  # any state may be the last
    model = DenseHMM(states, edges=edges, starts=starts, ends=ends)
    observed = torch.from_numpy(tokens)[:, :, None]

    def call():
        with torch.no_grad():
            return model.predict_proba(observed)

    return call, compared
