"""Small random models, in families of which most satisfy an assumption of the paper.

Many of their entries are exactly zero or exactly equal, because such zeros and ties are the hard cases of the theory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmlib.device import own_settings
from hmmlib.models.appendix_e import joint_shape
from hmmlib.models.chains import chain_period
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import as_generator, integer, number

MOST_DRAWS = 10_000
"""The number of rejected draws after which a family gives up."""


# Parts of models


def sparse_columns(shape: tuple[int, ...], zeros: float, generator: torch.Generator) -> Tensor:
    """Draw distributions over the first axis, with about a share `zeros` of entries that are exactly zero.

    Each is made of integers from 0 to 3, divided by their sum, so many entries are equal.
    """
    number("zeros", zeros, 0, 1)
    weights = torch.randint(1, 4, shape, generator=generator).double()
    stays = torch.rand(shape, generator=generator, dtype=torch.float64) >= zeros
    weights = weights * stays
    # A column without any weight gets all of it at one value instead.
    n_values, *column_axes = shape
    chosen_value = torch.randint(0, n_values, (1, *column_axes), generator=generator)
    at_one_value = torch.zeros_like(weights).scatter(0, chosen_value, 1.0)
    weights = torch.where(weights.any(0), weights, at_one_value)
    return weights / weights.sum(0)


def on_a_grid(columns: Tensor) -> Tensor:
    """Round distributions over the first axis to multiples of 2^-10.

    Then float64 gives products of two such numbers, and sums of such products, without rounding. All entries are
    rounded down, and the largest of a column gets what the column has lost, so that the column still sums to 1.
    """
    units = (columns * 2**10).floor()
    missing = 2**10 - units.sum(0, keepdim=True)
    return units.scatter_add(0, units.argmax(0, keepdim=True), missing) / 2**10


def ergodic_transition(n_states: int, zeros: float, generator: torch.Generator) -> Tensor:
    """Draw a sparse transition matrix that is ergodic, because it has a cycle through all states and one loop."""
    identity = torch.eye(n_states, dtype=torch.float64)
    cycle = identity.roll(1, 0)
    cycle[:, 0] = (cycle[:, 0] + identity[:, 0]) / 2
    return (sparse_columns((n_states, n_states), zeros, generator) + cycle) / 2


def in_equilibrium(transition: Tensor, emission: Tensor, memory: Tensor) -> MemoryHMM:
    """Return the memory model with these tables that starts in its stationary distribution."""
    uniform = torch.full_like(transition[0], 1 / len(transition))
    start = MemoryHMM(transition, emission, uniform, memory).stationary()
    return MemoryHMM(transition, emission, start, memory)


# Models without memory


@own_settings()
def sparse_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """Draw an HMM with exact zeros and ties in A, W and P[H_0]. It may be reducible or periodic.

    Args:
        n_states: the number of hidden states.
        n_tokens: the size of the vocabulary.
        seed: a seed, or the generator to draw from.
        zeros: about the share of entries that are exactly zero.

    Raises:
        ValueError: a size is below 1, or `zeros` is not from 0 to 1.

    Example:
        >>> from hmmlib import sparse_hmm
        >>> model = sparse_hmm(3, 4, seed=0)
        >>> int((model.transition == 0).sum())
        5
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, 1)
    generator = as_generator(seed)
    transition = sparse_columns((n_states, n_states), zeros, generator)
    emission = sparse_columns((n_tokens, n_states), zeros, generator)
    initial = sparse_columns((n_states,), zeros, generator)
    return HMM(transition, emission, initial, columns=True)


@own_settings()
def regular_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """Draw a model that satisfies Assumption 3.2, with exact zeros in A and W.

    So the chain is ergodic, and P[H_0] has full support. Assumption 3.1 may hold or not. It fails if `n_tokens` <
    `n_states`, because the columns of W are then linearly dependent, and sometimes by chance.

    Args:
        n_states: the number of hidden states.
        n_tokens: the size of the vocabulary.
        seed: a seed, or the generator to draw from.
        zeros: about the share of entries of W that are exactly zero. A has somewhat fewer zeros, and P[H_0] has none.

    Raises:
        ValueError: a size is below 1, or `zeros` is not from 0 to 1.

    Example:
        >>> from hmmlib import assumption_3_2, regular_hmm
        >>> bool(assumption_3_2(regular_hmm(3, 2, seed=0)))
        True
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, 1)
    generator = as_generator(seed)
    transition = ergodic_transition(n_states, zeros, generator)
    emission = sparse_columns((n_tokens, n_states), zeros, generator)
    initial = sparse_columns((n_states,), 0.0, generator)
    return HMM(transition, emission, initial, columns=True)


@own_settings()
def non_degenerate_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """Draw a model that satisfies Assumptions 3.1 and 3.2, with exact zeros in A and W.

    Models of `regular_hmm` are drawn until the columns of W are linearly independent.

    Args:
        n_states: the number of hidden states.
        n_tokens: the size of the vocabulary, at least `n_states`.
        seed: a seed, or the generator to draw from.
        zeros: about the share of entries of W that are exactly zero.

    Raises:
        ValueError: a size is too small, or `zeros` is not from 0 to 1.
        RuntimeError: there are so many zeros that no draw had independent columns.

    Example:
        >>> from hmmlib import assumption_3_1, non_degenerate_hmm
        >>> bool(assumption_3_1(non_degenerate_hmm(3, 4, seed=0)))
        True
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, n_states)
    generator = as_generator(seed)
    for _ in range(MOST_DRAWS):
        model = regular_hmm(n_states, n_tokens, generator, zeros)
        if torch.linalg.matrix_rank(model.emission) == n_states:
            return model
    raise RuntimeError(f"no independent columns among {MOST_DRAWS} draws. Take fewer zeros than {zeros}.")


@own_settings()
def nearly_dependent_hmm(n_states: int, n_tokens: int, gap: float, seed: int | torch.Generator = 0) -> HMM:
    """Draw a model that satisfies Assumptions 3.1 and 3.2, but Assumption 3.1 only just.

    The last column of W is nearly equal to its first.

    Args:
        n_states: the number of hidden states.
        n_tokens: the size of the vocabulary, at least `n_states`.
        gap: a number from 0 to 1. The difference of the two columns is `gap` times that of two random columns, so the
            condition number of W is about 1 / gap.
        seed: a seed, or the generator to draw from.

    Raises:
        ValueError: a size is too small, or `gap` is not from 0 to 1.

    Example:
        >>> from hmmlib import assumption_3_1, nearly_dependent_hmm
        >>> assumption_3_1(nearly_dependent_hmm(3, 4, gap=1e-6)).condition > 1e5
        True
    """
    gap = number("gap", gap, 0, 1)
    model = non_degenerate_hmm(n_states, n_tokens, seed)
    emission = model.emission.clone()
    first = emission[:, 0]
    last = emission[:, -1]
    emission[:, -1] = (1 - gap) * first + gap * last
    return HMM(model.transition, emission, model.initial, columns=True)


@own_settings()
def essential_hmm(
    n_states: int, n_tokens: int, n_essential: int, seed: int | torch.Generator = 0, zeros: float = 0.4
) -> tuple[HMM, list[int]]:
    """Draw a model that satisfies Assumption 3.2, and Assumption 3.5 with a random set H* of states.

    One to three states, the sources, lead only into H*, and each state of H* follows one of them. The columns of W at
    H* are linearly independent. Its other columns are drawn without any condition.

    Args:
        n_states: the number of hidden states.
        n_tokens: the size of the vocabulary, at least `n_essential`.
        n_essential: the size of H*.
        seed: a seed, or the generator to draw from.
        zeros: about the share of entries of A and W that are exactly zero.

    Returns:
        The model, and H* as a list of states.

    Raises:
        ValueError: a size is too small or too large, or `zeros` is not from 0 to 1.
        RuntimeError: there are so many zeros that no draw satisfied the assumptions.

    Example:
        >>> from hmmlib import essential_hmm
        >>> model, essential = essential_hmm(5, 3, n_essential=2, seed=0)
        >>> len(essential)
        2
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, 1)
    n_essential = integer("n_essential", n_essential, 1, min(n_states, n_tokens))
    generator = as_generator(seed)
    for _ in range(MOST_DRAWS):
        essential = sorted(torch.randperm(n_states, generator=generator)[:n_essential].tolist())
        shuffled = torch.randperm(n_states, generator=generator)
        n_sources = int(torch.randint(1, 4, (1,), generator=generator))
        sources = shuffled[:n_sources]
        transition = sparse_columns((n_states, n_states), zeros, generator)
        into_essential = sparse_columns((n_essential, len(sources)), zeros / 2, generator)
        if not into_essential.any(1).all():
            continue
        transition[:, sources] = 0
        transition[torch.tensor(essential)[:, None], sources] = into_essential
        emission = sparse_columns((n_tokens, n_states), zeros, generator)
        independent = torch.linalg.matrix_rank(emission[:, essential]) == n_essential
        if independent and chain_period(transition) == (True, 1):
            initial = sparse_columns((n_states,), 0.0, generator)
            return HMM(transition, emission, initial, columns=True), essential
    raise RuntimeError(f"no model of this kind among {MOST_DRAWS} draws. Take fewer zeros than {zeros}.")


# Models with a memory


@own_settings()
def sparse_memory_hmm(
    n_memory: int, n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4, n_cells: int = 1
) -> MemoryHMM:
    """Draw a memory model with exact zeros and ties in A, W, P[H_0] and P[M].

    Args:
        n_memory: the number of values of a memory cell.
        n_states: the number of hidden states, a multiple of `n_cells`.
        n_tokens: the size of the vocabulary.
        seed: a seed, or the generator to draw from.
        zeros: about the share of entries that are exactly zero.
        n_cells: the number of memory cells.

    Raises:
        ValueError: a size is not possible, or `zeros` is not from 0 to 1.

    Example:
        >>> from hmmlib import sparse_memory_hmm
        >>> sparse_memory_hmm(2, 4, 3, seed=0, n_cells=2)
        MemoryHMM(n_cells=2, n_memory=2, n_states=4, n_tokens=3)
    """
    n_states = integer("n_states", n_states, 1)
    n_tokens = integer("n_tokens", n_tokens, 1)
    shape = joint_shape(n_memory, n_cells)
    generator = as_generator(seed)
    transition = sparse_columns((n_states, n_states), zeros, generator)
    emission = sparse_columns((n_tokens, n_memory, n_states), zeros, generator)
    initial = sparse_columns((n_states,), zeros, generator)
    memory = sparse_columns((n_memory**n_cells,), zeros, generator)
    return MemoryHMM(transition, emission, initial, memory.reshape(shape))


@own_settings()
def recoverable_memory_hmm(
    n_cells: int,
    n_memory: int,
    n_syntax: int,
    n_recoverable: int,
    values: int,
    seed: int | torch.Generator = 0,
    zeros: float = 0.5,
    stationary: bool = False,
) -> tuple[MemoryHMM, int, list[int], list[int]]:
    """Draw a memory model for which Assumption 3.2 holds, and Assumption D.5 with a cell j* and sets S* and M*.

    S* is a set of syntax states, M* is a set of memory values, and H* is the set of states (j*, s) with s in S*. W has
    three kinds of columns. Those at M* × H* are linearly independent. Those of cell j* at values outside M* are drawn
    freely, because Assumption D.5 says nothing about them. All others are mixtures of one or two further distributions,
    made without rounding. If M* holds all memory values, Assumption 4.2 holds too.

    Args:
        n_cells: the number of memory cells.
        n_memory: the number of values of a cell.
        n_syntax: the number of syntax states.
        n_recoverable: the size of S*.
        values: the size of M*, which is the support of μ in Assumption D.5.
        seed: a seed, or the generator to draw from.
        zeros: about the share of entries of A and W that are exactly zero. The share for P[M] is half of it.
        stationary: whether H_0 has the stationary distribution.

    Returns:
        The model, the cell j*, and S* and M* as lists.

    Raises:
        ValueError: a size is not possible, or `zeros` is not from 0 to 1.

    Example:
        >>> from hmmlib import assumption_4_2, recoverable_memory_hmm
        >>> model, cell, syntax, values = recoverable_memory_hmm(1, 2, n_syntax=3, n_recoverable=2, values=2)
        >>> bool(assumption_4_2(model, cell, syntax))
        True
    """
    generator = as_generator(seed)
    shape = joint_shape(n_memory, n_cells)
    n_syntax = integer("n_syntax", n_syntax, 1)
    n_recoverable = integer("n_recoverable", n_recoverable, 1, n_syntax)
    values = integer("values", values, 1, n_memory)
    n_states = n_cells * n_syntax
    cell = int(torch.randint(n_cells, (1,), generator=generator))
    syntax = sorted(torch.randperm(n_syntax, generator=generator)[:n_recoverable].tolist())
    weighted = sorted(torch.randperm(n_memory, generator=generator)[:values].tolist())
    n_independent = n_recoverable * values
    n_mixed = 0  # This is how many distributions a column of the third kind mixes.
    if n_states > n_recoverable:
        n_mixed = int(torch.randint(1, 3, (1,), generator=generator))
    order = torch.randperm(n_states, generator=generator)
    transition = ergodic_transition(n_states, zeros, generator)[order][:, order]
    columns = _independent_columns(n_independent + n_mixed, zeros, generator)
    n_tokens = len(columns)
    emission = sparse_columns((n_tokens, n_memory, n_states), zeros, generator)

    of_cell = slice(cell * n_syntax, (cell + 1) * n_syntax)
    recoverable = torch.tensor(syntax) + cell * n_syntax
    is_independent = torch.zeros(n_memory, n_states, dtype=torch.bool)
    is_independent[torch.tensor(weighted)[:, None], recoverable] = True
    is_free = torch.zeros_like(is_independent)
    is_free[:, of_cell] = True
    is_free[weighted, of_cell] = False
    emission[:, is_independent] = columns[:, :n_independent]
    if n_mixed:
        is_mixture = ~(is_independent | is_free)
        shares = sparse_columns((n_mixed, int(is_mixture.sum())), zeros, generator)
        emission[:, is_mixture] = on_a_grid(columns[:, n_independent:]) @ on_a_grid(shares)
    initial = sparse_columns((n_states,), 0.0, generator)
    memory = sparse_columns((n_memory**n_cells,), zeros / 2, generator).reshape(shape)
    if stationary:
        model = in_equilibrium(transition, emission, memory)
    else:
        model = MemoryHMM(transition, emission, initial, memory)
    return model, cell, syntax, weighted


def _independent_columns(n_columns: int, zeros: float, generator: torch.Generator) -> Tensor:
    """Draw linearly independent distributions over the first axis. Each is sparse and mixed with a token of its own."""
    n_tokens = max(2, n_columns)
    while True:
        order = torch.randperm(n_tokens, generator=generator)
        distinct = torch.eye(n_tokens, dtype=torch.float64)[:, order]
        columns = sparse_columns((n_tokens, n_columns), zeros, generator) + distinct[:, :n_columns]
        columns = columns / columns.sum(0)
        if torch.linalg.matrix_rank(columns) == n_columns:
            return columns
