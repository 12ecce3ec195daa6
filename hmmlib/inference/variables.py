"""Variables whose law inference gives: a state, a latent, a token, a memory cell.

Each depends on H̃_i = (M_1, …, M_N, H_i) alone. So its law is made of sums of the law of H̃_i.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hmmlib.inference.evidence import lifted_size
from hmmlib.models.hmm import HMM, MemoryHMM


class Variable(NamedTuple):
    """How to turn the law of H̃_i, a table (K memory values, S states), into the law of a variable, in three steps.

    First `groups` adds up values of the memory, which gives G rows of S sums. Then `entries` picks D of these numbers.
    At last `columns` multiplies them.
    """

    groups: Tensor
    """Which of the memory's K values each group adds up: G rows of zeros and ones, (G, K)."""
    entries: Tensor
    """The places, in the flat list of G * S sums, of the D numbers that are picked, (D,)."""
    columns: Tensor | None = None
    """The law of the variable given each of the D values, (X, D), as W is that of a token. None if the D numbers are
    the law already."""


def state(model: HMM | MemoryHMM) -> Variable:
    """Return the variable H_i, summed over the memory."""
    states = torch.arange(model.n_states, device=model.device)
    every_value = model.initial.new_ones(1, lifted_size(model) // model.n_states)
    return Variable(every_value, states)


def latent(model: HMM | MemoryHMM) -> Variable:
    """Return the variable H_i, or (M_{J_i}, J_i, S_i) of a memory model with index m * H + h.

    It is φ of (D.4), whose factor cancels in a law.
    """
    if isinstance(model, HMM):
        return state(model)
    states = torch.arange(model.n_states, device=model.device)
    values = torch.arange(model.n_memory, device=model.device)
    holds = one_hot(model.joint_values(), model.n_memory)  # (K, N, M): whether cell j holds the value m
    groups = holds.flatten(1).T  # row j * M + m
    cell_of_state = states // model.n_syntax
    group = cell_of_state * model.n_memory + values[:, None]  # (M, S): the row of value m in the cell of the state
    entries = (group * model.n_states + states).flatten()
    return Variable(groups.to(model.dtype), entries)


def token(model: HMM | MemoryHMM) -> Variable:
    """Return the variable X_i. Its law given the latent is a column of W."""
    return latent(model)._replace(columns=model.emission.flatten(1))


def memory_cell(model: MemoryHMM, cell: int) -> Variable:
    """Return the variable M_cell, summed over the states."""
    groups = one_hot(model.joint_values()[:, cell], model.n_memory).T.to(model.dtype)
    values = torch.eye(model.n_memory, dtype=model.dtype, device=model.device)
    columns = values.repeat_interleave(model.n_states, 1)
    entries = torch.arange(columns.shape[1], device=model.device)
    return Variable(groups, entries, columns)
