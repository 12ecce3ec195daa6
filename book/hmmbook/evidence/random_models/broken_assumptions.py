"""Memory models that break one assumption, for the controls: without it, the conclusion of a statement has to fail."""

from __future__ import annotations

import numpy as np
import torch

from hmmbook.evidence.random_models.instances import all_inputs
from hmmbook.evidence.random_models.memory_instances import FIRST_VALUE, MemoryInstance, with_prompt_d_6
from hmmlib.models import appendix_e, counterexamples, families
from hmmlib.models.hmm import MemoryHMM

BOTH = torch.tensor([1.0, -1.0], dtype=torch.float64)
"""The task that weighs both memory values."""


def not_stationary(seed: int) -> MemoryInstance:
    """Draw a regular chain that is not stationary, not even a step after its start, behind the prompt (D.6)."""
    draw = torch.Generator().manual_seed(seed)
    chain = families.regular_hmm(3, 2, draw, zeros=0.2)
    weights = chain.stationary() * torch.arange(1, 4)
    emission = appendix_e.softmax_of_uniform((3, 2, 3), 0.2, draw)
    memory = appendix_e.softmax_of_uniform((2,), 1.0, draw)
    model = MemoryHMM(chain.transition, emission, weights / weights.sum(), memory)
    if torch.allclose(model.marginal(1), model.marginal(2)):
        return not_stationary(seed + 1)
    return with_prompt_d_6(MemoryInstance(model, FIRST_VALUE, 0, [0], all_inputs(3, 2)))


def parity(seed: int, n: int = 2, behind_prompt: bool = False) -> MemoryInstance:
    """Return `parity_memory_hmm` with random noise, and all inputs of length 2; perhaps behind the prompt (D.6)."""
    noise = float(np.random.default_rng(seed).uniform(0.02, 0.4))
    mu = BOTH if n == 2 else torch.ones(n)
    inputs = all_inputs(n, 2)
    every_state = list(range(2 * n))
    instance = MemoryInstance(counterexamples.parity_memory_hmm(n, noise), mu, 0, every_state, inputs)
    return with_prompt_d_6(instance) if behind_prompt else instance


def twins(seed: int, behind_prompt: bool) -> MemoryInstance:
    """Return `recoverable_twins` and two inputs with one G_1; behind the prompt (D.6), with one Ḡ_2."""
    inputs = torch.tensor([[0, 2], [0, 4]])
    instance = MemoryInstance(counterexamples.recoverable_twins(seed), BOTH, 0, [0, 2, 3], inputs)
    return with_prompt_d_6(instance) if behind_prompt else instance
