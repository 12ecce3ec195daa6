"""The random models of appendix E.

A seed gives the same model again on the same platform with the same number of threads. The number of threads matters
because torch splits the columns of a softmax among its threads (`torch.set_num_threads`), and rounds the columns at the
edges of each part in another way. So with another number of threads the last digit of some emissions differs. A trial
records the number that it had.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hmmlib.device import own_settings
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import as_generator, integer, number

SHARP = 0.01
"""The temperature of mixing weights and emissions in appendix E. It makes them nearly one-hot."""
FLAT = 10.0
"""The temperature of start distributions and priors in appendix E. It makes them nearly uniform."""
MOST_JOINT = 2**24
"""The most joint values that memory cells may have. With more, the model alone would fill a computer's memory."""


def softmax_of_uniform(shape: tuple[int, ...], temperature: float, generator: torch.Generator) -> Tensor:
    """Draw distributions over the first axis. Each is the softmax of uniform logits divided by the temperature.

    The logits are uniform on [0, 1].
    """
    logits = torch.rand(shape, generator=generator, dtype=torch.float64)
    return torch.softmax(logits / temperature, dim=0)


def mixed_permutations(n_states: int, count: int, temperature: float, generator: torch.Generator) -> Tensor:
    """Draw a transition matrix, which is a random mixture of `count` random permutations of the states."""
    weights = softmax_of_uniform((count,), temperature, generator)
    identity = torch.eye(n_states, dtype=torch.float64)
    mixture = torch.zeros_like(identity)
    for weight in weights:
        permutation = torch.randperm(n_states, generator=generator)
        mixture = mixture + weight * identity[permutation]
    return mixture


def joint_shape(n_memory: int, n_cells: int) -> tuple[int, ...]:
    """Return the shape of a prior of the memory, with one axis for each cell.

    Raises:
        ValueError: a size is below 1, or there are more than MOST_JOINT joint values.
    """
    n_memory = integer("n_memory", n_memory, 1)
    n_cells = integer("n_cells", n_cells, 1)
    if n_cells * math.log2(n_memory) > math.log2(MOST_JOINT):
        raise ValueError(f"n_memory ** n_cells must be at most {MOST_JOINT}, not {n_memory} ** {n_cells}")
    return (n_memory,) * n_cells


@own_settings()
def random_hmm(n_states: int, n_tokens: int = 10, seed: int | torch.Generator = 0, temperature: float = SHARP) -> HMM:
    """Draw a hidden Markov model as in appendix E.

    Its transition matrix is nearly a permutation of the states. Its emissions are nearly one-hot, and its start
    distribution is nearly uniform.

    Args:
        n_states: the number of hidden states.
        n_tokens: the size of the vocabulary.
        seed: a seed, or the generator to draw from. The last digits depend on `torch.get_num_threads()` too.
        temperature: the temperature of the mixing weights and of the emissions. The lower it is, the closer they are to
            one-hot.

    Raises:
        ValueError: a size is below 1, or the temperature is not positive.

    Example:
        >>> from hmmlib import random_hmm
        >>> random_hmm(n_states=4, n_tokens=10, seed=1)
        HMM(n_states=4, n_tokens=10)
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, 1)
    temperature = number("temperature", temperature, 1e-300, 1e300)
    generator = as_generator(seed)
    transition = mixed_permutations(n_states, n_states, temperature, generator)
    emission = softmax_of_uniform((n_tokens, n_states), temperature, generator)
    initial = softmax_of_uniform((n_states,), FLAT, generator)
    return HMM(transition, emission, initial, columns=True)


@own_settings()
def random_memory_hmm(
    n_memory: int,
    n_states: int = 4,
    n_tokens: int = 10,
    seed: int | torch.Generator = 0,
    n_cells: int = 1,
    temperature: float = SHARP,
    permutations: int | None = None,
) -> MemoryHMM:
    """Draw a memory model as in appendix E, with an emission distribution for each memory value and state.

    Args:
        n_memory: the number of values of a memory cell.
        n_states: the number of hidden states h = (j, s), over all cells j. It must be a multiple of `n_cells`.
        n_tokens: the size of the vocabulary.
        seed: a seed, or the generator to draw from. The last digits depend on `torch.get_num_threads()` too.
        n_cells: the number of memory cells.
        temperature: the temperature of the mixing weights and of the emissions. The lower it is, the closer they are to
            one-hot.
        permutations: the number of permutations that the transition matrix mixes. The default is `n_states`.

    Raises:
        ValueError: a size is below 1 or too large, or the temperature is not positive.

    Example:
        >>> from hmmlib import random_memory_hmm
        >>> random_memory_hmm(n_memory=3, n_states=4, seed=1)
        MemoryHMM(n_cells=1, n_memory=3, n_states=4, n_tokens=10)
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, 1)
    shape = joint_shape(n_memory, n_cells)
    temperature = number("temperature", temperature, 1e-300, 1e300)
    count = n_states if permutations is None else integer("permutations", permutations, 1)
    generator = as_generator(seed)
    transition = mixed_permutations(n_states, count, temperature, generator)
    emission = softmax_of_uniform((n_tokens, n_memory, n_states), temperature, generator)
    initial = softmax_of_uniform((n_states,), FLAT, generator)
    memory = softmax_of_uniform((math.prod(shape),), FLAT, generator)
    return MemoryHMM(transition, emission, initial, memory.reshape(shape))
