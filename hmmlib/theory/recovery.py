"""What the theorems of Section 4 share: parameters that read the hidden state and a memory cell off a distribution.

Claims D.3 and D.10 recover P[H_i = h | …] and P[M_{j*}, H_i = (j*, s) | …] from the token distribution at position i.
Lemmas D.2, D.4 and D.9 make a query, keys, values and position embeddings of the matrices that do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.models.hmm import MemoryHMM
from hmmlib.theory import assumptions
from hmmlib.theory.assumptions import as_mu, recoverable_columns, recoverable_states, weighted_values
from hmmlib.theory.ranks import span_of
from hmmlib.validation import of_type

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Recovery:
    """The matrices of Claims D.3 and D.10 for recoverable states H* = {j*} × S*."""

    theta_1: Tensor
    """Θ^(1), (H, X). Row h ∈ H* maps a token distribution to P[H_i = h | …]. Of the rows outside H*, the first maps it
    to the probability of all states outside H* together, and the others are zero."""
    theta_2: Tensor
    """Θ^(2,s) for each s ∈ S*, (|S*|, M, X). It maps a token distribution to P[M_{j*}, H_i = (j*, s) | …]."""
    cell: int
    """j*."""
    states: list[int]
    """H* as indices of hidden states."""
    condition: float
    """The condition number of the columns whose left inverse was taken."""
    error: float
    """By how much a probability may be wrong because of the matrices, as a share of the largest entry of its row."""


@without_autocast()
def _recover(model: MemoryHMM, condition: float, cell: int, syntax: Sequence[int], values: list[int]) -> Recovery:
    """Read Θ^(1) and Θ^(2,s) off a left inverse of the recoverable columns with a basis of 𝒱̄, the others' span."""
    states = recoverable_states(model, cell, syntax)
    recoverable, other_columns = recoverable_columns(model, cell, syntax, values)
    basis = span_of(other_columns).basis
    left_inverse = _left_inverse(torch.cat([recoverable, basis], 1))
    readings, readings_of_others = left_inverse.tensor_split([recoverable.shape[1]])
    by_state = readings.unflatten(0, (len(states), len(values)))

    theta_2 = recoverable.new_zeros(len(states), model.n_memory, model.n_tokens)
    theta_2[:, values] = by_state
    theta_1 = recoverable.new_zeros(model.n_states, model.n_tokens)
    theta_1[states] = by_state.sum(1)
    outside = [h for h in range(model.n_states) if h not in states]
    if outside:
        # Columns of W sum to 1, so the weights of the basis times its sums are the probability of all other columns.
        theta_1[outside[0]] = (basis @ readings_of_others).sum(0)

    every_column = torch.cat([recoverable, other_columns], 1)
    # Without rounding, a row of `readings` reads 1 from its own column of W and 0 from every other. The head's values
    # come from single rows, and the score of a position from the sum of all rows.
    exact_readings = torch.eye(
        recoverable.shape[1], every_column.shape[1], dtype=every_column.dtype, device=every_column.device
    )
    errors = readings @ every_column - exact_readings
    errors_of_sum = readings.sum(0) @ every_column - exact_readings.sum(0)
    error_of_values = (errors.abs().amax(1) / readings.abs().amax(1)).max()
    error_of_keys = errors_of_sum.abs().max() / theta_1[states].abs().sum(0).max()
    error = max(error_of_values.item(), error_of_keys.item())
    return Recovery(theta_1, theta_2, cell, states, condition, error)


def _left_inverse(columns: Tensor) -> Tensor:
    """Return the pseudoinverse, improved by one step of Newton's method, which removes most of its rounding."""
    left_inverse = torch.linalg.pinv(columns)
    return 2 * left_inverse - (left_inverse @ columns) @ left_inverse


def claim_d_3(model: MemoryHMM, cell: int, syntax: Sequence[int]) -> Recovery:
    """Construct Θ^(1) and Θ^(2,s) of Claim D.3, to be applied to G_i(x).

    Args:
        model: A model that satisfies Assumption 4.2 for these states.
        cell: j*.
        syntax: S*, indices of syntax states.

    Returns:
        The matrices, with their condition number and error.

    Raises:
        AssumptionError: Assumption 4.2 does not hold.
        ValueError: The model has no such cell or syntax state.

    Example:
        >>> from hmmlib import claim_d_3, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> recovery = claim_d_3(model, cell, syntax)
        >>> recovery.theta_1.shape, recovery.theta_2.shape
        (torch.Size([3, 6]), torch.Size([2, 2, 6]))
    """
    report = assumptions.assumption_4_2(model, cell, syntax).require()
    return _recover(model, report.condition, cell, syntax, list(range(model.n_memory)))


def claim_d_10(model: MemoryHMM, mu: Float[ArrayLike, " M"], cell: int, syntax: Sequence[int]) -> Recovery:
    """Construct Θ^(1) and Θ^(2,s) of Claim D.10, to be applied to Ḡ_i(ê(x)) with the prompt (D.6).

    Args:
        model: A model that satisfies Assumption 4.5 for these states, or D.5 if it has several cells.
        mu: μ, the task's weights on the memory values, (M,). Values of weight zero need not be recoverable.
        cell: j*.
        syntax: S*, indices of syntax states.

    Returns:
        The matrices, with their condition number and error.

    Raises:
        AssumptionError: Assumption 4.5, or D.5, does not hold.
        ValueError: The weights, the cell or a syntax state do not fit the model.

    Example:
        >>> from hmmlib import claim_d_10, recoverable_memory_hmm
        >>> model, cell, syntax, values = recoverable_memory_hmm(1, n_memory=3, n_syntax=2, n_recoverable=1, values=2)
        >>> mu = [1.0 if value in values else 0.0 for value in range(3)]
        >>> claim_d_10(model, mu, cell, syntax).states == syntax
        True
    """
    if of_type("model", model, MemoryHMM).n_cells == 1:
        report = assumptions.assumption_4_5(model, mu, syntax)
    else:
        report = assumptions.assumption_d_5(model, mu, cell, syntax)
    return _recover(model, report.require().condition, cell, syntax, weighted_values(model, mu))


def lemma_d_2(model: MemoryHMM, recovery: Recovery) -> tuple[Tensor, Tensor]:
    """Construct the query and key of Lemma D.2, which give position i as its score the probability that H_i is in H*.

    Args:
        model: The model.
        recovery: What a claim recovers in the model.

    Returns:
        The query q, (H+1,), and the key Θ^(K), (H+1, X).

    Example:
        >>> from hmmlib import claim_d_3, lemma_d_2, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> query, key = lemma_d_2(model, claim_d_3(model, cell, syntax))
        >>> syntax, query
        ([0, 2], tensor([1., 0., 1., 0.], dtype=torch.float64))
    """
    states = of_type("recovery", recovery, Recovery).states
    query = recovery.theta_1.new_zeros(of_type("model", model, MemoryHMM).n_states + 1)
    query[states] = 1
    key = torch.cat([recovery.theta_1, torch.zeros_like(recovery.theta_1[:1])])
    return query, key


def lemma_d_4(model: MemoryHMM, recovery: Recovery, mu: Float[ArrayLike, " M"]) -> tuple[Tensor, Tensor]:
    """Construct the value parameters of Lemmas D.4 and D.13.

    Where H_i is surely in H*, Θ^(V) G_i(x) = P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}] (D.2).

    Args:
        model: The model.
        recovery: What a claim recovers in the model.
        mu: μ, the task's weights on the memory values, (M,).

    Returns:
        Θ^(V), (M*H, X), and b = Bᵀμ, (M*H,).

    Example:
        >>> from hmmlib import claim_d_3, lemma_d_4, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> value, output = lemma_d_4(model, claim_d_3(model, cell, syntax), [1.0, -2.0])
        >>> output
        tensor([ 1.,  1.,  1., -2., -2., -2.], dtype=torch.float64)
    """
    mu = as_mu(model, mu, MemoryHMM)
    states = of_type("recovery", recovery, Recovery).states
    value = recovery.theta_2.new_zeros(model.n_memory, model.n_states, model.n_tokens)
    value[:, states] = recovery.theta_2.transpose(0, 1)  # (D.2)
    output = torch.zeros_like(value[..., 0])  # (M, H), the weight of each memory value and state
    # In each state of cell j* a memory value has its weight μ. States of the other cells do not count.
    output_by_cell = output.unflatten(1, (model.n_cells, -1))
    output_by_cell[:, recovery.cell] = mu[:, None]
    return value.flatten(0, 1), output.flatten()


@without_autocast()
def lemma_d_9(model: MemoryHMM, recovery: Recovery) -> tuple[Tensor, Tensor, Tensor]:
    """Construct the query, key and position embeddings of Lemma D.9, which never attend to the prompt's own position.

    The proof adds -2 to the score of position 1, where the prompt is. That is enough if no score exceeds 1 without it.
    But the output at position 1 is not conditioned on the prompt, so its score may exceed 1. Therefore -(1 + s) is
    added here, where s is the largest score that a position can have, or 1 if that is larger.

    Args:
        model: The model.
        recovery: What a claim recovers in the model.

    Returns:
        The query q, (H+1,), the key Θ^(K), (H+1, X), and β_1 as a row, (1, H+1).

    Example:
        >>> from hmmlib import claim_d_3, lemma_d_9, recoverable_memory_hmm
        >>> model, cell, syntax, _ = recoverable_memory_hmm(1, n_memory=2, n_syntax=3, n_recoverable=2, values=2)
        >>> query, key, positions = lemma_d_9(model, claim_d_3(model, cell, syntax))
        >>> query
        tensor([1., 0., 1., 1.], dtype=torch.float64)
        >>> bool((positions @ query <= -2).all())
        True
    """
    query, key = lemma_d_2(model, recovery)
    query[-1] = 1
    largest_score = (query @ key).max()
    first_position = torch.zeros_like(query)
    first_position[-1] = -(1 + largest_score.clamp(min=1))
    return query, key, first_position[None]
