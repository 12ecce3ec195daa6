"""States and texts of the model on the page on prompts, and the prediction behind a prompt."""

import itertools

import torch

from hmmbook.evidence.random_models.instances import shifted
from hmmlib import HMM, log_likelihood, masked_token_probs

ALPHA, BETA, GAMMA, DELTA = range(4)
ONES = torch.ones(4, dtype=torch.float64)
PATTERNS = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4).double()
"""Each set of four states, as a prompt that is one there and zero elsewhere, (16, 4)."""


def possible_inputs(model: HMM, length: int) -> torch.Tensor:
    x = torch.tensor(list(itertools.product(range(model.n_tokens), repeat=length)))
    return x[log_likelihood(model, x) > -torch.inf]


def at_gap(model: HMM, x: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
    """Ḡ_2 of (u, ∅, x)."""
    return masked_token_probs(model, shifted(x, 1), prompt)[:, 1]
