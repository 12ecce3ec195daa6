"""pomegranate's DenseHMM, on the chain from H_1."""

from __future__ import annotations

import torch
from common import compared, read_chain
from pomegranate.distributions import Categorical
from pomegranate.hmm import DenseHMM


def posteriors(inputs: str, dtype: str, n: int | None = None):
    """P[H_i | x] by `predict_proba`."""
    *parts, tokens = read_chain(inputs, n)
    start, transition, emission = (torch.as_tensor(part, dtype=getattr(torch, dtype)) for part in parts)
    states = [Categorical(row[None]) for row in emission]
    model = DenseHMM(states, edges=transition, starts=start, ends=torch.ones_like(start))  # any state may be the last
    observed = torch.from_numpy(tokens)[:, :, None]

    def call():
        with torch.no_grad():
            return model.predict_proba(observed)

    return call, compared
