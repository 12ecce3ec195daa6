"""Small models that break one hypothesis of a theorem and nothing else.

The book uses them as controls. A check of a theorem has to fail on a model that breaks one of its hypotheses.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from hmmlib.device import own_settings
from hmmlib.models.appendix_e import softmax_of_uniform
from hmmlib.models.families import in_equilibrium, on_a_grid, regular_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import as_generator, integer, number

ONE_TOKEN_FOR_TWO = [
    [1.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 1.0, 0.0],
    [0.0, 0.0, 0.0, 1.0],
]
"""The emissions of four states, one in each column. The first two states emit the same token."""

# Without independent columns: Assumptions 3.1 and 3.5


@own_settings()
def dependent_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0) -> HMM:
    """Draw a model for which Assumption 3.2 holds and Assumption 3.1 fails.

    Assumption 3.1 fails because the last column of W is the mean of two others.

    Args:
        n_states: the number of hidden states, at least 2. If it is 2, the last column is a copy of the first.
        n_tokens: the size of the vocabulary.
        seed: a seed, or the generator to draw from.

    Example:
        >>> from hmmlib import assumption_3_1, dependent_hmm
        >>> bool(assumption_3_1(dependent_hmm(3, 4, seed=0)))
        False
    """
    n_states = integer("n_states", n_states, 2)
    model = regular_hmm(n_states, n_tokens, seed, zeros=0.0)
    emission = on_a_grid(model.emission)
    first = emission[:, 0]
    second = emission[:, (n_states - 1) // 2]
    emission[:, -1] = (first + second) / 2  # On the grid this is exact.
    return HMM(model.transition, emission, model.initial, columns=True)


@own_settings()
def hidden_twins() -> HMM:
    """Return a model of four states α, β, γ, δ, of which α and β emit the same token.

    Assumption 3.2 holds, and Assumption 3.1 fails. Token 1 comes from γ, which follows only α. Token 2 comes from δ,
    which follows only β. So the state before token 1 is surely α, and the state before token 2 is surely β. But a mask
    in front of token 1 has the same token distribution as a mask in front of token 2.

    Example:
        >>> from hmmlib import MASK, hidden_twins, posterior
        >>> posterior(hidden_twins(), [[MASK, 1], [MASK, 2]], at=1).tolist()
        [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    transition = [
        [0.5, 0.0, 0.5, 0.5],  # to α
        [0.0, 0.0, 0.5, 0.5],  # to β
        [0.5, 0.0, 0.0, 0.0],  # to γ
        [0.0, 1.0, 0.0, 0.0],  # to δ
    ]
    return HMM(transition, ONE_TOKEN_FOR_TWO, [0.25, 0.25, 0.25, 0.25], columns=True)


def _positive_where(allowed: list[list[int]], generator: torch.Generator) -> Tensor:
    """Draw random columns that are positive where `allowed` is 1, and zero where it is 0."""
    pattern = torch.tensor(allowed, dtype=torch.float64)
    uniform = torch.rand(pattern.shape, generator=generator, dtype=torch.float64)
    weights = pattern * (0.2 + uniform)
    return weights / weights.sum(0)


@own_settings()
def essential_twins(seed: int | torch.Generator = 0) -> HMM:
    """Draw a model of four states a, b, c, d for which no prompt helps.

    All states lead to both a and b, whose columns of W are equal. State c follows only a, and d follows only b. So
    H* = {a, b} satisfies Assumption 3.5, except that the columns are not independent. For the input (1), which c emits,
    H_0 is surely a. For the input (2), which d emits, H_0 is surely b. But Ḡ_2, the token distribution behind a prompt,
    is the same for both inputs.

    Args:
        seed: a seed, or the generator to draw from.

    Example:
        >>> from hmmlib import essential_states, essential_twins
        >>> essential_states(essential_twins(), mu=[1, -1, 0, 0]) is None
        True
    """
    generator = as_generator(seed)
    to_a_and_b = [1, 1, 1, 1]
    to_c = [1, 0, 0, 0]
    to_d = [0, 1, 0, 0]
    transition = _positive_where([to_a_and_b, to_a_and_b, to_c, to_d], generator)
    initial = softmax_of_uniform((4,), 1.0, generator)
    return HMM(transition, ONE_TOKEN_FOR_TWO, initial, columns=True)


# Without a recoverable memory: Assumption 4.2


@own_settings()
def recoverable_twins(seed: int | torch.Generator = 0) -> MemoryHMM:
    """Draw a stationary memory model whose state b emits like its state a, so that Assumption 4.2 fails.

    It has one cell of two values and four states a, b, c, d. If S* = {a, c, d}, the columns of W at M × S* are linearly
    independent, but their span contains the columns of b. Tokens 0 and 1 come from a and b. Tokens 2 and 3 come from c,
    which follows only a. Tokens 4 and 5 come from d, which follows only b. The inputs (0, 2) and (0, 4) have the same
    token distributions, although H_1 is a in the first and b in the second.

    Args:
        seed: a seed, or the generator to draw from.

    Example:
        >>> from hmmlib import assumption_4_2, recoverable_twins
        >>> bool(assumption_4_2(recoverable_twins(), cell=0, syntax=[0, 2, 3]))
        False
    """
    generator = as_generator(seed)
    to_a = [1, 0, 1, 1]
    to_b = [0, 0, 1, 1]
    to_c = [1, 0, 0, 0]
    to_d = [0, 1, 0, 0]
    transition = _positive_where([to_a, to_b, to_c, to_d], generator)
    emission = torch.zeros(6, 2, 4, dtype=torch.float64)
    # States a and b have equal columns of W. States c and d have equal probabilities, but for different tokens.
    a_and_b = _two_tokens(generator)
    c_and_d = _two_tokens(generator)
    emission[0:2, :, 0] = a_and_b
    emission[0:2, :, 1] = a_and_b
    emission[2:4, :, 2] = c_and_d
    emission[4:6, :, 3] = c_and_d
    return in_equilibrium(transition, emission, softmax_of_uniform((2,), 1.0, generator))


def _two_tokens(generator: torch.Generator) -> Tensor:
    """Draw the distribution of two tokens for each of the two memory values, (2, 2). The two distributions differ."""
    uniform = torch.rand(2, generator=generator, dtype=torch.float64)
    share = (torch.arange(2) + uniform) / 2
    return torch.stack([share, 1 - share])


@own_settings()
def parity_memory_hmm(n: int, noise: float) -> MemoryHMM:
    """Return a model whose memory can be inferred only from pairs of tokens. Each token alone is uniform.

    A state is a symbol b from 0 to n - 1 and a phase, which is 0 or 1. A step keeps b and changes the phase. If the
    cell holds m, the token is b + m * phase modulo n. For inputs of length 2, M = 0 is likely exactly if both tokens
    agree. If S* has all states, all of Assumption 4.2 holds except that the columns of W are not independent. The chain
    is stationary.

    Args:
        n: the number of memory values.
        noise: the probability that a step draws a uniform state instead.

    Raises:
        ValueError: `n` is below 1, or `noise` is not from 0 to 1.

    Example:
        >>> from hmmlib import masked_token_probs, parity_memory_hmm
        >>> masked_token_probs(parity_memory_hmm(2, noise=0.1), [[0, 1]]).tolist()
        [[[0.5, 0.5], [0.5, 0.5]]]
    """
    n = integer("n", n, 1)
    noise = number("noise", noise, 0, 1)
    n_states = 2 * n
    transition = torch.full((n_states, n_states), noise / n_states, dtype=torch.float64)
    emission = torch.zeros(n, n, n_states, dtype=torch.float64)
    for phase, b in itertools.product((0, 1), range(n)):
        state = phase * n + b
        transition[(1 - phase) * n + b, state] += 1 - noise
        for m in range(n):
            emission[(b + m * phase) % n, m, state] = 1
    initial = torch.full((n_states,), 1 / n_states, dtype=torch.float64)
    memory = torch.full((n,), 1 / n, dtype=torch.float64)
    return MemoryHMM(transition, emission, initial, memory)


# Against Lemma D.9 as it is printed

EMISSIONS_OF_SHRINKING_SUPPORT = [
    [[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]],  # the probability of token 0 in p, q, r if M = 0, and if M = 1
    [[0.5, 0.0, 0.0], [1.0, 0.0, 1.0]],
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]],
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
]


@own_settings()
def shrinking_support(seed: int | torch.Generator | None = None) -> tuple[MemoryHMM, list[int]]:
    """Return a model for which no attention head can do what Lemma D.9 says as it is printed.

    It has three states. State p leads to q, and q leads to r. State r leads to p or to itself. The memory has two
    values, and μ gives weight only to value 0. The set S* is {p, q}.

    If M = 0, only p emits tokens 0 and 1. If M = 1, p and r emit token 1, and no state emits token 0. So after token 0
    the next state is surely q, but after token 1 it may also be p or r. Behind a prompt for M = 0, the next state is q
    after either token, so the outputs for both tokens are equal.

    Args:
        seed: a seed or a generator that draws other probabilities with the same zeros. Without one they are round
            numbers.

    Returns:
        The model, which is stationary, and S*.

    Example:
        >>> from hmmlib import shrinking_support
        >>> model, syntax = shrinking_support()
        >>> syntax
        [0, 1]
    """
    to_p = [0.0, 0.0, 0.5]
    to_q = [1.0, 0.0, 0.0]
    to_r = [0.0, 1.0, 0.5]
    transition = torch.tensor([to_p, to_q, to_r], dtype=torch.float64)
    emission = torch.tensor(EMISSIONS_OF_SHRINKING_SUPPORT, dtype=torch.float64)
    memory = torch.tensor([0.5, 0.5], dtype=torch.float64)
    syntax = [0, 1]
    if seed is None:
        return MemoryHMM(transition, emission, [0.25, 0.25, 0.5], memory), syntax
    generator = as_generator(seed)
    tables = []
    for table in (transition, emission, memory):
        weights = table * torch.rand(table.shape, generator=generator)
        tables.append(weights / weights.sum(0))
    return in_equilibrium(*tables), syntax
