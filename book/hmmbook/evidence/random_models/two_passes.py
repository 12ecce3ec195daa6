"""Random small cases on which two passes are compared with a list of all paths, and a chain with reversed arrows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.enumeration import Enumeration, normalised
from hmmlib import HMM, MemoryHMM, sparse_hmm, sparse_memory_hmm


class Case(NamedTuple):
    """A model, and the embeddings of one text."""

    model: HMM | MemoryHMM
    embeddings: Tensor
    """(1, T, S), or (1, T, M*H) for a memory model. The first is a random vector, which no token has."""

    @property
    def has_memory(self) -> bool:
        return isinstance(self.model, MemoryHMM)

    @property
    def depends_on_arrows(self) -> bool:
        """Whether there are two states and two tokens, so that a prediction can depend on the transitions."""
        return min(self.model.n_states, self.model.n_tokens) > 1


def draw_case(rng: np.random.Generator) -> Case:
    """Draw a small model with many zeros, a third of them with a memory, and the embeddings of a random text."""
    n_states = int(rng.integers(1, 4))
    n_tokens = int(rng.integers(1, 5))
    length = int(rng.integers(1, 6))
    seed = int(rng.integers(2**31))
    if rng.integers(3) == 0:
        n_cells = int(rng.integers(1, 3))
        model = sparse_memory_hmm(2, 2, n_tokens, seed, n_cells=n_cells)
    else:
        model = sparse_hmm(n_states, n_tokens, seed)
    tokens = torch.as_tensor(rng.integers(-1, n_tokens, (1, length)))  # -1 is the mask.
    embeddings = model.embed(tokens)
    width = embeddings.shape[-1]
    vector = rng.random(width) * (rng.random(width) > 0.3)
    embeddings[:, 0] = torch.as_tensor(vector)
    return Case(model, embeddings)


def from_all_paths(case: Case) -> np.ndarray:
    """Compute Ḡ at each position, (T, X), by a sum over all paths of hidden states.

    This shares no code with the library.
    """
    model = case.model
    memory = getattr(model, "memory", None)
    paths = Enumeration(model.transition, model.emission, model.initial, case.embeddings[0], memory)
    length = case.embeddings.shape[1]
    return np.stack([normalised(paths.masked_token(i)) for i in range(1, length + 1)])


def with_reversed_arrows(model: HMM | MemoryHMM) -> HMM | MemoryHMM:
    """Turn the arrows between the hidden states round: the transition is the transpose, with normalised columns."""
    transposed = model.transition.T + 1e-3  # No column is all zeros.
    transition = transposed / transposed.sum(0)
    if isinstance(model, MemoryHMM):
        return MemoryHMM(transition, model.emission, model.initial, model.memory)
    return HMM(transition, model.emission, model.initial, columns=True)
