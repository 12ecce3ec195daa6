"""The generative models of the paper: the hidden Markov model (Section 3) and its memory-augmented variant (Section 4).

Orientation, as in the paper: **columns** are conditional distributions.
`transition[h', h] = P[H_i = h' | H_{i-1} = h]` (the paper's A), `emission[x, h] = P[X_i = x | H_i = h]` (W).
The first token X_1 is emitted by H_1; H_0 emits nothing.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hmmlib import device as backend
from hmmlib.models import peers, rows
from hmmlib.models.chains import law_after, stationary_law
from hmmlib.models.sampling import choose, cumulative_rows, draw
from hmmlib.models.tensors import copied
from hmmlib.validation import (
    SUM_TOLERANCE,
    TRANSPOSED,
    as_distribution,
    as_generator,
    as_tensor,
    as_tokens,
    integer,
    of_shape,
)

if TYPE_CHECKING:
    from typing import Self

    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that tokens and states can be drawn in."""


class Sample(NamedTuple):
    """What a model drew.

    Example:
        >>> from hmmlib import random_memory_hmm
        >>> sample = random_memory_hmm(n_memory=3, seed=0).sample(n=2, length=5, seed=1)
        >>> [tuple(part.shape) for part in sample]
        [(2, 5), (2, 6), (2, 1)]
    """

    tokens: Tensor
    """(n, T)"""
    states: Tensor | None
    """(n, T + 1), from H_0 to H_T, or None if they were not asked for."""
    memory: Tensor | None
    """(n, N), the values of the memory's cells, or None for an HMM."""


def recast(distribution: Tensor, device, dtype) -> Tensor:
    """Copy distributions over the first axis to another device or dtype, so that they sum to 1 there too."""
    if dtype not in (None, *SUM_TOLERANCE):
        raise ValueError(f"dtype must be {' or '.join(map(str, SUM_TOLERANCE))}, not {dtype!r}")
    if device is not None:
        device = backend.pick(str(device) if isinstance(device, torch.device) else device)
    moved = distribution.to(device=device, dtype=dtype, copy=True)
    return moved if moved.dtype == distribution.dtype else moved / moved.sum(0)


def unlift(lifted: Tensor, n_cells: int, n_memory: int) -> Tensor:
    """Return φ of (D.4), from lifted entries, (…, M^N * H), to those of the looked-up cell only, (…, M*H).

    It is the mean over the values of the cells that a state does not look up. In a vector that `lift` made, these
    entries are equal, so their mean gives back what was lifted.
    """
    n_syntax = lifted.shape[-1] // (n_memory**n_cells * n_cells)
    means = []
    for cell in range(n_cells):
        cells_before = n_memory**cell
        cells_after = n_memory ** (n_cells - 1 - cell)
        table = lifted.reshape(*lifted.shape[:-1], cells_before, n_memory, cells_after, n_cells, n_syntax)
        means.append(table[..., cell, :].mean((-4, -2)))  # (D.4)
    return torch.stack(means, dim=-2).flatten(-3)


class _Chain:
    """What both models share: the Markov chain H_0, H_1, … with transition A and start distribution P[H_0]."""

    def _set_chain(self, transition, emission, initial, emission_axes: int, hint: str = TRANSPOSED) -> None:
        """Check and copy the arrays. `hint` ends the error's message where a table is given by rows."""
        self.transition = copied(as_distribution("transition", transition, 2, hint=hint))
        self.emission = copied(as_distribution("emission", emission, emission_axes, hint=hint))
        self.initial = copied(as_distribution("initial", initial, 1))
        self.n_tokens = len(self.emission)
        self.n_states = len(self.initial)
        of_shape("transition", self.transition, (self.n_states, self.n_states), " to match initial")
        of_shape("emission", self.emission, (..., self.n_states), " to match initial")
        rows.of_one_kind(transition=self.transition, emission=self.emission, initial=self.initial)

    def __repr__(self) -> str:
        names = ("n_cells", "n_memory", "n_states", "n_tokens")
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in names if hasattr(self, name))
        return f"{type(self).__name__}({sizes})"

    @property
    def dtype(self) -> torch.dtype:
        return self.transition.dtype

    @property
    def device(self) -> torch.device:
        return self.transition.device

    def to(self, device=None, dtype=None) -> Self:
        """Return the same model on another device, or with another dtype (float64 or float32)."""
        moved = copy(self)
        for name, table in vars(self).items():
            if isinstance(table, Tensor):
                # The memory is one distribution over all its axes. Of the others, each column is one.
                distribution = table.flatten() if name == "memory" else table
                setattr(moved, name, copied(recast(distribution, device, dtype).reshape(table.shape)))
        return moved

    def embed(self, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T S"]:
        """Return the proper embeddings e(x) of tokens, which are rows of W, and ones for MASK.

        Args:
            tokens: (n, T).

        Returns:
            P[X_i = x | H_i], (n, T, S). In a memory model P[X_i = x | M_{J_i}, H_i], (n, T, M*H), with index m * H + h
            for value m and state h.
        """
        table = self.emission.flatten(1)
        table = torch.cat([table, torch.ones_like(table[:1])])  # The last row, -1, is that of MASK.
        return table[as_tokens(tokens, self.n_tokens, self.device)]

    def marginal(self, i: int) -> Float[Tensor, " S"]:
        """Return the distribution P[H_i], (S,), which is A applied i times to P[H_0]."""
        return law_after(integer("i", i, 0), self.transition, self.initial)

    def stationary(self) -> Float[Tensor, " S"]:
        """Return the distribution π with Aπ = π, (S,). No gradient goes through it.

        Raises:
            ValueError: there is more than one, or an entry is too small for a float.
        """
        return stationary_law(self.transition)

    def sample(
        self,
        n: int,
        length: int,
        seed: int | torch.Generator,
        states: bool = True,
        dtype: torch.dtype = torch.int64,
    ) -> Sample:
        """Draw independent sequences of tokens. In a memory model each has a memory, drawn once and kept.

        Args:
            n: the number of sequences.
            length: the number of tokens of each.
            seed: a seed, or the generator to draw from. A seed gives the same draws again on the same platform.
            states: whether to return the states. Without them, less memory is used.
            dtype: the type of tokens and states. A small one uses less memory.

        Raises:
            ValueError: the dtype is no integer type, or too small.
        """
        n = integer("n", n, 1)
        length = integer("length", length, 1)
        largest = max(self.n_tokens, self.n_states if states else 0) - 1
        if dtype not in INTEGERS or largest > torch.iinfo(dtype).max:
            raise ValueError(f"dtype must be an integer type of torch that holds 0 to {largest}, not {dtype}")
        generator = as_generator(seed, self.device)
        memory = self._sample_memory(n, generator)
        cell_values = memory
        if memory is None:
            # An HMM draws like a memory model with one cell of one value, whose index is 0.
            cell_values = torch.zeros(n, 1, dtype=torch.int64, device=self.device)
        tables = (self.transition, self.emission.flatten(1), self.initial)
        tokens, drawn_states = draw(*tables, cell_values, length, generator, states, dtype)
        return Sample(tokens, drawn_states, memory)

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor | None:
        """Draw the values of the memory's cells for n sequences, (n, N). It is None if the model has no memory."""
        return None


class HMM(_Chain):
    """A hidden Markov model (Section 3).

    Arrays and tensors are accepted. They become float64 unless they are float32. `HMM.from_rows` takes a model in rows.

    Columns have to sum to 1 within 1e-9, or within 1e-5 in float32. They are used as they are, because nothing divides
    them by their sums. If the columns of a state are off, every token gives this state too much or too little weight,
    so the errors add up over a text. In a text of T tokens the log-likelihood may be off by 2 T times the error of a
    column, and the ratio of two posteriors by 4 T times, as a share. For 1000 tokens this share is at most 4e-6, and 4%
    in float32. If your texts are long, divide each column by its sum first.

    Args:
        transition: the paper's A, (S, S). Column h is the distribution of the state after h.
        emission: the paper's W, (X, S). Column h is the distribution of the token given state h.
        initial: P[H_0], (S,).
        columns: True says that the arrays are meant by columns. Otherwise a warning asks for this where their rows sum
            to 1 too, so that they could be meant by rows.

    Raises:
        ValueError: a shape does not fit, an entry is negative or not finite, or a column does not sum to 1.

    Example:
        >>> from hmmlib import HMM
        >>> model = HMM([[0.9, 0.3], [0.1, 0.7]], [[0.8, 0.1], [0.2, 0.9]], [0.5, 0.5])
        >>> model
        HMM(n_states=2, n_tokens=2)
        >>> model.sample(n=3, length=4, seed=0).tokens.shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        transition: Float[ArrayLike, "S S"],
        emission: Float[ArrayLike, "X S"],
        initial: Float[ArrayLike, " S"],
        *,
        columns: bool = False,
    ):
        self._set_chain(transition, emission, initial, 2, hint=rows.TAKE_ROWS)
        if not columns:
            rows.ask_orientation(self.transition, self.emission, self.initial)

    @classmethod
    def from_rows(
        cls, startprob: Float[ArrayLike, " S"], transmat: Float[ArrayLike, "S S"], emissionprob: Float[ArrayLike, "S X"]
    ) -> HMM:
        """Return the model that gives all texts the probabilities of a model in rows, as in hmmlearn and dynamax.

        There the start distribution is that of the state that emits the first token. Here that state is H_1, so P[H_0]
        has to solve A P[H_0] = startprob. If a distribution solves it up to rounding, the model has S states.
        Otherwise, or if a gradient is asked for, it has one state more. H_0 is then surely this last state, from which
        the chain goes on by `startprob` and to which it never returns. Such a chain is not regular (Assumption 3.2), so
        the theorems do not cover it.

        Args:
            startprob: (S,), the distribution of the state that emits the first token.
            transmat: (S, S); `transmat[h, h']` leads from h to h'.
            emissionprob: (S, X).

        Raises:
            ValueError: a shape does not fit, an entry is negative or not finite, or a row does not sum to 1.

        Example:
            >>> model = HMM.from_rows([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.2], [0.1, 0.9]])
            >>> model.to_rows().startprob
            tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        return cls(*rows.to_columns(startprob, transmat, emissionprob), columns=True)

    def to_rows(self) -> rows.Rows:
        """Return the model in rows that gives all texts the same probabilities.

        `startprob` is A P[H_0], the law of H_1. A last state that only starts is left out, because it emits nothing.
        So what `from_rows` was given comes back.
        """
        return rows.to_rows(self.transition, self.emission, self.initial)

    @classmethod
    def from_hmmlearn(cls, fitted) -> HMM:
        """Return the same model as hmmlearn's `CategoricalHMM`, by `from_rows`.

        Raises:
            TypeError: the model is of another class.
            ValueError: it has no arrays yet, or `from_rows` refuses them.
        """
        return cls.from_rows(*peers.of_hmmlearn(fitted))

    def to_hmmlearn(self):
        """Return the same model as hmmlearn's `CategoricalHMM`, in float64, which `fit` can train further."""
        return peers.to_hmmlearn(self.to(dtype=torch.float64).to_rows())

    @classmethod
    def from_dynamax(cls, params) -> HMM:
        """Return the same model as the parameters of dynamax's `CategoricalHMM`, of their dtype, by `from_rows`.

        Raises:
            TypeError: the parameters are of another class.
            ValueError: their emissions have several dimensions, or `from_rows` refuses the arrays.
        """
        return cls.from_rows(*peers.of_dynamax(params))

    def to_dynamax(self) -> tuple:
        """Return dynamax's `CategoricalHMM` and its parameters. JAX makes them float32 unless it is set to 64 bits."""
        return peers.to_dynamax(self.to_rows())


class MemoryHMM(_Chain):
    """A memory-augmented hidden Markov model (Section 4).

    A hidden state h = (j, s) is the cell j that is looked up and the syntax state s. Its index is `j * n_syntax + s`.

    Embeddings and prompts may be *lifted*. They then have an entry for each joint value of the memory and each state,
    M^N · H, instead of one for each value of the cell that is looked up and each state, M · H.

    The arrays are used as they are, so small errors of their sums add up over a long text, as `HMM` says.

    Args:
        transition: A, (H, H). Column h is the distribution of the state after h.
        emission: W, (X, M, H). Entry [x, m, h] is the probability of token x in state h = (j, s) if cell j holds m.
        initial: P[H_0], (H,).
        memory: the joint prior P[M_1, …, M_N], with one axis of M values for each of the N cells.

    Raises:
        ValueError: a shape does not fit, an entry is negative or not finite, or a distribution does not sum to 1.

    Example:
        >>> import numpy as np
        >>> from hmmlib import MemoryHMM
        >>> MemoryHMM(np.eye(2), np.full((3, 4, 2), 1 / 3), [0.5, 0.5], np.full((4, 4), 1 / 16))
        MemoryHMM(n_cells=2, n_memory=4, n_states=2, n_tokens=3)
    """

    def __init__(
        self,
        transition: Float[ArrayLike, "H H"],
        emission: Float[ArrayLike, "X M H"],
        initial: Float[ArrayLike, " H"],
        memory: Float[ArrayLike, "*cells"],
    ):
        self._set_chain(transition, emission, initial, 3)
        memory = as_tensor("memory", memory)
        self.n_cells = memory.ndim
        self.n_memory = self.emission.shape[1]
        if set(memory.shape) != {self.n_memory}:
            axes = f"one axis of {self.n_memory} values (as emission has) for each cell"
            raise ValueError(f"memory must have {axes}, not shape {tuple(memory.shape)}")
        prior = as_distribution("memory", memory.reshape(-1), 1)
        self.memory = copied(prior.reshape(memory.shape))
        if self.n_states % self.n_cells:
            raise ValueError(f"{self.n_states} hidden states do not divide among {self.n_cells} memory cells")
        self.n_syntax = self.n_states // self.n_cells
        rows.of_one_kind(transition=self.transition, memory=self.memory)

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(n, generator=generator, dtype=self.dtype, device=self.device)
        prior = cumulative_rows(self.memory.reshape(-1))
        joint_indices = choose(prior.expand(n, -1).contiguous(), uniform)
        return torch.stack(torch.unravel_index(joint_indices, self.memory.shape), dim=1)

    def joint_values(self) -> Tensor:
        """Return all joint values (m_1, …, m_N) of the memory, one a row, (M^N, N)."""
        joint_indices = torch.arange(self.memory.numel(), device=self.device)
        return torch.stack(torch.unravel_index(joint_indices, self.memory.shape), dim=1)

    def lift(self, embeddings: Float[ArrayLike, "... M*H"]) -> Float[Tensor, "... M**N*H"]:
        """Return η of appendix D.2, (…, M*H) to (…, M^N * H), with η(v)_(m_1…m_N, j, s) = v_(m_j, j, s)."""
        embeddings = as_tensor("embeddings", embeddings, empty=True, like=self.initial, signed=True)
        of_shape("embeddings", embeddings, (..., self.n_memory * self.n_states))
        table = embeddings.reshape(*embeddings.shape[:-1], self.n_memory, self.n_cells, self.n_syntax)
        cells = torch.arange(self.n_cells, device=table.device)
        # For joint value (m_1, …, m_N) and cell j the entries are those of value m_j and cell j. The two index arrays,
        # (M^N, N) and (N,), say this for all pairs of a joint value and a cell.
        lifted = table[..., self.joint_values(), cells, :]  # (…, M^N, N, n_syntax)
        return lifted.flatten(-3)

    def unlift(self, lifted: Float[ArrayLike, "... M**N*H"]) -> Float[Tensor, "... M*H"]:
        """Return φ of (D.4), (…, M^N * H) to (…, M*H), which undoes `lift`.

        It is the mean over the values of the cells that a state does not look up.
        """
        lifted = as_tensor("lifted", lifted, empty=True, like=self.initial, signed=True)
        of_shape("lifted", lifted, (..., self.memory.numel() * self.n_states))
        return unlift(lifted, self.n_cells, self.n_memory)

    def flatten(self) -> HMM:
        """Return the HMM that draws the same texts. Its states are the pairs of a joint memory value and a state h.

        Its transition matrix has (M^N * H)² entries.
        """
        # The joint value of the memory comes first in a pair. No step changes it, hence the identity.
        prior = self.memory.reshape(-1)
        identity = torch.eye(len(prior), dtype=self.dtype, device=self.device)
        transition = torch.kron(identity, self.transition.contiguous())
        initial = torch.kron(prior, self.initial)
        return HMM(transition, self.lift(self.emission.flatten(1)), initial, columns=True)
