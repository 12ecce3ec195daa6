"""A task that a prompt gets wrong, because it shifts the odds between two values of the memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.random_models.memory_instances import MemoryInstance


def task_between_odds(instance: MemoryInstance) -> Tensor:
    """Find the task on the first two memory values whose boundary lies between odds without and with a prompt.

    Among the inputs of 𝓡 it takes the one where the prompt shifts the odds of these two values most. There the weighted
    posterior has one sign without the prompt, and the other sign with it. If no odds are shifted, the boundary lies on
    them.

    Args:
        instance: A memory model with a prompt, which leaves the first two values of its cell.

    Returns:
        The weights (1, -c, 0, …), (M,), where c is the geometric mean of the two odds.
    """
    with_prompt = instance.hat.given_input(f"m{instance.cell}")[:, :2]
    without = instance.beliefs[:, :2]
    both_values = instance.in_r & (without > 0).all(1) & (with_prompt > 0).all(1)
    odds = without[both_values, 0] / without[both_values, 1]
    shifted_odds = with_prompt[both_values, 0] / with_prompt[both_values, 1]
    most = np.abs(np.log(odds / shifted_odds)).argmax()
    weights = torch.zeros(instance.model.n_memory, dtype=torch.float64)
    weights[0] = 1.0
    weights[1] = -np.sqrt(odds[most] * shifted_odds[most])
    return weights
