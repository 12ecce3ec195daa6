"""Variables whose law, that is, whose distribution, inference gives: a state, a latent, a token, a memory cell.

Given H̃_i = (M_1, …, M_N, H_i), each of them depends on nothing else. So its law is made of sums of the law of H̃_i.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hmmlib.inference.evidence import lifted_size
from hmmlib.models.hmm import HMM, MemoryHMM


class Variable(NamedTuple):
    """How the law of a variable is made from the law of H̃_i.

    The law of H̃_i is a table with a row for each of the K joint values of the memory and a column for each of the S
    states. First `groups` adds up rows of this table, which gives G rows of S sums. Then `entries` picks D of these
    sums. Finally `columns` multiplies them, if it is given.
    """

    groups: Tensor
    """Zeros and ones, (G, K). Row g has a one at each memory value that group g adds up."""
    entries: Tensor
    """The places of the D sums that are picked, (D,), in the flat list of all G * S sums."""
    columns: Tensor | None = None
    """The law of the variable given each of D latent values, (X, D), as W is for a token. If it is None, the D sums are
    the law already."""


def state(model: HMM | MemoryHMM) -> Variable:
    """Return the variable H_i. Its law is summed over the memory."""
    states = torch.arange(model.n_states, device=model.device)
    every_value = model.initial.new_ones(1, lifted_size(model) // model.n_states)
    return Variable(every_value, states)


def latent(model: HMM | MemoryHMM) -> Variable:
    """Return the latent variable on which a token depends, H_i, or (M_{J_i}, J_i, S_i) in a memory model.

    In a memory model the entry m * H + h of its law is for value m and state h. The law is φ of (D.4), up to a factor
    that cancels when the law is divided by its sum.
    """
    if isinstance(model, HMM):
        return state(model)
    states = torch.arange(model.n_states, device=model.device)
    values = torch.arange(model.n_memory, device=model.device)
    holds = one_hot(model.joint_values(), model.n_memory)  # (K, N, M), one where cell j holds the value m
    groups = holds.flatten(1).T  # row j * M + m
    cell_of_state = states // model.n_syntax
    group = cell_of_state * model.n_memory + values[:, None]  # (M, S), the row of value m in the cell of the state
    entries = (group * model.n_states + states).flatten()
    return Variable(groups.to(model.dtype), entries)


def token(model: HMM | MemoryHMM) -> Variable:
    """Return the variable X_i. Its law given the latent is a column of W."""
    return latent(model)._replace(columns=model.emission.flatten(1))


def memory_cell(model: MemoryHMM, cell: int) -> Variable:
    """Return the variable M_cell. Its law is summed over the states."""
    groups = one_hot(model.joint_values()[:, cell], model.n_memory).T.to(model.dtype)
    values = torch.eye(model.n_memory, dtype=model.dtype, device=model.device)
    columns = values.repeat_interleave(model.n_states, 1)
    entries = torch.arange(columns.shape[1], device=model.device)
    return Variable(groups, entries, columns)
