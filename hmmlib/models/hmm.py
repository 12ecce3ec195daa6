"""The generative models of the paper: the hidden Markov model (Section 3) and its memory-augmented variant (Section 4).

As in the paper, the **columns** of a table are conditional distributions. The table `transition` is the paper's A, with
`transition[h', h] = P[H_i = h' | H_{i-1} = h]`. The table `emission` is the paper's W, with
`emission[x, h] = P[X_i = x | H_i = h]`. H_1 emits the first token X_1, and H_0 emits nothing.
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
from hmmlib.tensors import copied
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
"""The types in which tokens and states can be drawn."""


class Sample(NamedTuple):
    """The sequences that a model drew.

    Example:
        >>> from hmmlib import random_memory_hmm
        >>> sample = random_memory_hmm(n_memory=3, seed=0).sample(n=2, length=5, seed=1)
        >>> [tuple(part.shape) for part in sample]
        [(2, 5), (2, 6), (2, 1)]
    """

    tokens: Tensor
    """(n, T), the tokens."""
    states: Tensor | None
    """(n, T + 1), the states from H_0 to H_T, or None if they were not asked for."""
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
    """Return φ of (D.4), which takes lifted vectors, (…, M^N * H), to vectors (…, M*H).

    A lifted vector has an entry for each state and each joint value of all cells. The result has one for each state and
    each value of the cell that the state looks up, which is the mean over the values of all other cells. In a vector
    that `MemoryHMM.lift` made, the entries of a mean are equal, so that φ gives back what was lifted.
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
    """The Markov chain H_0, H_1, … that both models have, with the transition A and the start distribution P[H_0]."""

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
        """Return the same model on another device, or with another dtype, which is float64 or float32.

        Raises:
            ValueError: this machine has no such device, or the dtype is another.
        """
        moved = copy(self)
        for name, table in vars(self).items():
            if isinstance(table, Tensor):
                # The memory is one distribution over all its axes. Of the others, each column is one.
                distribution = table.flatten() if name == "memory" else table
                setattr(moved, name, copied(recast(distribution, device, dtype).reshape(table.shape)))
        return moved

    def embed(self, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T S"]:
        """Return the proper embeddings e(x) of tokens. That of a token is its row of W, and that of MASK is ones.

        Args:
            tokens: texts, (n, T).

        Returns:
            P[X_i = x_i | H_i], (n, T, S). For a memory model it is P[X_i = x_i | M_{J_i}, H_i], (n, T, M*H), where the
            entry m * H + h is for value m and state h.

        Raises:
            ValueError: the tokens are not integers, are out of range, or have another shape.
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
            ValueError: there is more than one such distribution, or an entry of it is too small for a float.
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
            states: whether to return the states. Without them, less of the computer's memory is used.
            dtype: the type of tokens and states. A small one uses less of it too.

        Raises:
            ValueError: the dtype is not an integer type, or is too small for the tokens or states.
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
            # An HMM draws like a memory model whose single cell has a single value, 0.
            cell_values = torch.zeros(n, 1, dtype=torch.int64, device=self.device)
        tables = (self.transition, self.emission.flatten(1), self.initial)
        tokens, drawn_states = draw(*tables, cell_values, length, generator, states, dtype)
        return Sample(tokens, drawn_states, memory)

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor | None:
        """Draw the values of the memory's cells for n sequences, (n, N). It is None if the model has no memory."""
        return None


class HMM(_Chain):
    """A hidden Markov model (Section 3).

    Arrays and tensors are accepted. They become float64 unless they are float32. If the rows of your tables sum to 1,
    as those of hmmlearn and dynamax do, use `HMM.from_rows` instead.

    Columns have to sum to 1 within 1e-9, or within 1e-5 in float32. They are used as they are, because nothing divides
    them by their sums. If the columns of a state are off, every token gives this state too much or too little weight,
    so the errors add up over a text. In a text of T tokens the log-likelihood may be off by 2 T times the error of a
    column. The ratio of two posteriors may have a relative error of 4 T times the error of a column. For 1000 tokens
    this relative error is at most 4e-6, or 4% in float32. If your texts are long, divide each column by its sum first.

    Args:
        transition: the paper's A, (S, S). Column h is the distribution of the state after h.
        emission: the paper's W, (X, S). Column h is the distribution of the token given state h.
        initial: P[H_0], (S,).
        columns: whether you confirm that the arrays are given by columns. Without it there is a warning if their rows
            sum to 1 too, because they could then be given by rows.

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
        """Return the model that gives every text the same probability as a model in rows, as hmmlearn and dynamax have.

        In a model in rows, the start distribution is that of the state that emits the first token. Here that state is
        H_1, so P[H_0] has to solve A P[H_0] = startprob. If a distribution solves it up to rounding, the model has S
        states. Otherwise, or if a gradient is asked for, it has one state more. Then H_0 is always this last state. The
        chain goes on from it by `startprob` and never returns to it. Such a chain is not regular (Assumption 3.2), so
        the theorems do not cover it.

        Args:
            startprob: (S,), the distribution of the state that emits the first token.
            transmat: (S, S). Row h is the distribution of the state after h.
            emissionprob: (S, X). Row h is the distribution of the token given state h.

        Raises:
            ValueError: a shape does not fit, an entry is negative or not finite, or a row does not sum to 1.

        Example:
            >>> model = HMM.from_rows([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.2], [0.1, 0.9]])
            >>> model.to_rows().startprob
            tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        return cls(*rows.to_columns(startprob, transmat, emissionprob), columns=True)

    def to_rows(self) -> rows.Rows:
        """Return the model in rows that gives every text the same probability.

        Its `startprob` is A P[H_0], the distribution of H_1. If the last state is H_0 only, as one that `from_rows` has
        added, it is left out, because it emits nothing. So `to_rows` gives back what `from_rows` was given.
        """
        return rows.to_rows(self.transition, self.emission, self.initial)

    @classmethod
    def from_hmmlearn(cls, fitted) -> HMM:
        """Return the model of a fitted `CategoricalHMM` of hmmlearn. Its arrays are passed to `from_rows`.

        Raises:
            TypeError: `fitted` is of another class.
            ValueError: `fitted` has not been fitted, so it has no arrays, or `from_rows` refuses them.
        """
        return cls.from_rows(*peers.of_hmmlearn(fitted))

    def to_hmmlearn(self):
        """Return the same model as a `CategoricalHMM` of hmmlearn, in float64. Its `fit` can train it further."""
        return peers.to_hmmlearn(self.to(dtype=torch.float64).to_rows())

    @classmethod
    def from_dynamax(cls, params) -> HMM:
        """Return the model with the parameters of a `CategoricalHMM` of dynamax. They are passed to `from_rows`.

        Raises:
            TypeError: `params` is of another class.
            ValueError: an emission of `params` has several dimensions, or `from_rows` refuses the arrays.
        """
        return cls.from_rows(*peers.of_dynamax(params))

    def to_dynamax(self) -> tuple:
        """Return a `CategoricalHMM` of dynamax and its parameters.

        JAX rounds them to float32 unless it is set to 64 bits.
        """
        return peers.to_dynamax(self.to_rows())


class MemoryHMM(_Chain):
    """A memory-augmented hidden Markov model (Section 4).

    A hidden state h = (j, s) is the cell j that is looked up and the syntax state s. Its index is `j * n_syntax + s`.

    Embeddings and prompts may be *lifted*. An embedding has M * H entries, one for each state and each value of the
    cell that the state looks up. A lifted one has M^N * H entries, one for each state and each joint value of cells.

    The arrays are used as they are, so small errors of their sums add up over a long text, as the docstring of `HMM`
    explains.

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
            axes = f"one axis of {self.n_memory} values for each cell, because emission has so many"
            raise ValueError(f"memory must have {axes}, not shape {tuple(memory.shape)}")
        prior = as_distribution("memory", memory.reshape(-1), 1)
        self.memory = copied(prior.reshape(memory.shape))
        if self.n_states % self.n_cells:
            raise ValueError(f"initial must have a multiple of n_cells = {self.n_cells} entries, not {self.n_states}")
        self.n_syntax = self.n_states // self.n_cells
        rows.of_one_kind(transition=self.transition, memory=self.memory)

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(n, generator=generator, dtype=self.dtype, device=self.device)
        prior = cumulative_rows(self.memory.reshape(-1))
        joint_indices = choose(prior.expand(n, -1).contiguous(), uniform)
        return torch.stack(torch.unravel_index(joint_indices, self.memory.shape), dim=1)

    def joint_values(self) -> Tensor:
        """Return all joint values (m_1, …, m_N) of the memory, each in a row of its own, (M^N, N)."""
        joint_indices = torch.arange(self.memory.numel(), device=self.device)
        return torch.stack(torch.unravel_index(joint_indices, self.memory.shape), dim=1)

    def lift(self, embeddings: Float[ArrayLike, "... M*H"]) -> Float[Tensor, "... M**N*H"]:
        """Return η(v) of appendix D.2, which lifts embeddings v, (…, M*H) to (…, M^N * H).

        Its entries are η(v)_(m_1…m_N, j, s) = v_(m_j, j, s).
        """
        embeddings = as_tensor("embeddings", embeddings, empty=True, like=self.initial, signed=True)
        of_shape("embeddings", embeddings, (..., self.n_memory * self.n_states))
        table = embeddings.reshape(*embeddings.shape[:-1], self.n_memory, self.n_cells, self.n_syntax)
        cells = torch.arange(self.n_cells, device=table.device)
        # For joint value (m_1, …, m_N) and cell j the entries are those of value m_j and cell j. The two index arrays,
        # (M^N, N) and (N,), say this for all pairs of a joint value and a cell.
        lifted = table[..., self.joint_values(), cells, :]  # (…, M^N, N, n_syntax)
        return lifted.flatten(-3)

    def unlift(self, lifted: Float[ArrayLike, "... M**N*H"]) -> Float[Tensor, "... M*H"]:
        """Return φ of (D.4), which undoes `lift`, (…, M^N * H) to (…, M*H).

        An entry of the result is a mean over the values of all cells that its state does not look up.
        """
        lifted = as_tensor("lifted", lifted, empty=True, like=self.initial, signed=True)
        of_shape("lifted", lifted, (..., self.memory.numel() * self.n_states))
        return unlift(lifted, self.n_cells, self.n_memory)

    def flatten(self) -> HMM:
        """Return the HMM whose texts have the same distribution. Its states are pairs of a joint memory value and an h.

        Its transition matrix has (M^N * H)² entries, so the model must be small.
        """
        # The joint value of the memory comes first in a pair. No step changes it, hence the identity.
        prior = self.memory.reshape(-1)
        identity = torch.eye(len(prior), dtype=self.dtype, device=self.device)
        transition = torch.kron(identity, self.transition.contiguous())
        initial = torch.kron(prior, self.initial)
        return HMM(transition, self.lift(self.emission.flatten(1)), initial, columns=True)
