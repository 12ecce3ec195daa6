"""The two generative models of the paper: the hidden Markov model (Section 3) and its memory-augmented variant (Section 4).

Orientation, as in the paper: **columns** are conditional distributions.
`transition[h', h] = P[H_i = h' | H_{i-1} = h]` (the paper's A), `emission[x, h] = P[X_i = x | H_i = h]` (W).
The first token X_1 is emitted by H_1; H_0 emits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hmmlib import backend
from hmmlib.models import peers, rows
from hmmlib.models.chains import eliminated, reachable
from hmmlib.models.sampling import choose, cumulative_rows, draw
from hmmlib.validation import SUM_TOLERANCE, as_distribution, as_generator, as_tensor, as_tokens, integer, of_shape

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that tokens and states can be drawn in."""


class Sample(NamedTuple):
    """What was drawn from a model: `tokens` (n, T); `states` (n, T+1), from H_0 to H_T, or None; `memory` (n, N), or None."""

    tokens: Tensor
    states: Tensor | None
    memory: Tensor | None


def recast(distribution: Tensor, device, dtype) -> Tensor:
    """A table of distributions over the first axis, moved to another device or dtype so that they sum to 1 there too."""
    if dtype not in (None, *SUM_TOLERANCE):
        raise ValueError(f"dtype must be {' or '.join(map(str, SUM_TOLERANCE))}, not {dtype!r}")
    device = None if device is None else backend.pick(str(device) if isinstance(device, torch.device) else device)
    moved = distribution.to(device=device, dtype=dtype)
    return moved if moved.dtype == distribution.dtype else moved / moved.sum(0)


def unlift(lifted: Tensor, n_cells: int, n_memory: int) -> Tensor:
    """φ of (D.4): (…, M^N * H) to (…, M*H), the mean over the memory cells that a state does not look up."""
    n_syntax = lifted.shape[-1] // (n_memory**n_cells * n_cells)
    table = lifted.reshape(*lifted.shape[:-1], *(n_memory,) * n_cells, n_cells, n_syntax)
    axes = range(lifted.ndim - 1, lifted.ndim - 1 + n_cells)
    means = []
    for cell in range(n_cells):
        others = [axis for axis in axes if axis != axes[cell]]
        part = table[..., cell, :]
        means.append(part.mean(others) if others else part)  # (D.4)
    return torch.stack(means, dim=-2).flatten(-3)


class _Chain:
    """What both models share: the Markov chain H_0, H_1, … with transition A and start distribution P[H_0]."""

    transition: Tensor
    emission: Tensor
    initial: Tensor

    def _set_chain(self, transition, emission, initial, *memory_axis: None, **hint: str) -> None:
        self.transition = as_distribution("transition", transition, 2, **hint).clone()
        self.emission = as_distribution("emission", emission, 2 + len(memory_axis), **hint).clone()
        self.initial = as_distribution("initial", initial, 1).clone()
        self.n_tokens, self.n_states = len(self.emission), len(self.initial)
        of_shape("transition", self.transition, (self.n_states, self.n_states), " to match initial")
        of_shape("emission", self.emission, (None, *memory_axis, self.n_states), " to match initial")
        rows.of_one_kind(transition=self.transition, emission=self.emission, initial=self.initial)

    @property
    def dtype(self) -> torch.dtype:
        return self.transition.dtype

    @property
    def device(self) -> torch.device:
        return self.transition.device

    def marginal(self, i: int) -> Float[Tensor, " S"]:
        """The marginal distribution P[H_i], shape (n_states,): A applied i times to P[H_0]."""
        return torch.linalg.matrix_power(self.transition, integer("i", i, 0)) @ self.initial

    def stationary(self) -> Float[Tensor, " S"]:
        """The distribution π with Aπ = π, shape (n_states,). ValueError if there is more than one.

        States are eliminated without a subtraction (Grassmann, Taksar, Heyman 1985), so that each entry is accurate to
        rounding, however slowly the chain mixes. If near-zeros leave the range of a float, it is as accurate as logarithms
        are. No gradient goes through it.
        """
        reach = reachable(self.transition)
        returns = (~reach | reach.T).all(0)  # column h: whatever h reaches, reaches h
        closed = returns.nonzero().squeeze(-1)
        if not reach[closed][:, closed].all():
            raise ValueError("there is more than one stationary distribution: transition has several closed classes")
        law = eliminated(self.transition[closed][:, closed])
        return torch.zeros_like(self.initial).index_copy(0, closed, law)

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor | None:
        return None

    def sample(
        self,
        n: int,
        length: int,
        seed: int | torch.Generator = 0,
        states: bool = True,
        dtype: torch.dtype = torch.int64,
    ) -> Sample:
        """Draw `n` independent sequences of `length` tokens. In a memory model each has a memory, drawn once and kept.

        The same seed gives the same draws on the same platform. With `states=False` no states are returned, which saves
        most of the memory in use, as does a small `dtype` for tokens and states. ValueError for a dtype that is too small.
        """
        n, length, largest = (
            integer("n", n, 1),
            integer("length", length, 1),
            max(self.n_tokens, self.n_states * states),
        )
        if dtype not in INTEGERS or largest - 1 > torch.iinfo(dtype).max:
            raise ValueError(f"dtype must be an integer type of torch that holds 0 to {largest - 1}, not {dtype}")
        generator = as_generator(seed, self.device)
        memory = self._sample_memory(n, generator)
        emission = self.emission.reshape(self.n_tokens, -1)
        known = torch.zeros(n, 1, dtype=torch.int64, device=self.device) if memory is None else memory
        drawn = draw(self.transition, emission, self.initial, known, length, generator, states, dtype)
        return Sample(*drawn, memory)

    def stream(
        self, n: int, length: int, seed: int | torch.Generator = 0, block: int = 1024, dtype: torch.dtype = torch.int64
    ) -> Iterator[Tensor]:
        """Draw the tokens of `n` sequences and give out `block` of them at a time, so that no more than a block is ever held.

        The last block may be smaller. One generator draws block after block, so that the draws depend on `block`.
        ValueError as `sample` raises it.
        """
        n, block, generator = integer("n", n, 1), integer("block", block, 1), as_generator(seed, self.device)
        for begin in range(0, n, block):
            yield self.sample(min(block, n - begin), length, generator, states=False, dtype=dtype).tokens


class HMM(_Chain):
    """A hidden Markov model (Section 3): A = `transition` (S, S), W = `emission` (X, S), P[H_0] = `initial` (S,).

    They may be arrays or tensors, and become float64 unless they are float32. ValueError if a shape does not fit, an
    entry is negative or not finite, or a column does not sum to 1. Where a table's rows sum to 1 too, and by rows it would
    be another model, a warning asks which is meant (`UnclearOrientation`); `columns=True` says that it is columns. A model
    in rows is made by `HMM.from_rows`.
    """

    def __init__(
        self,
        transition: Float[ArrayLike, "S S"],
        emission: Float[ArrayLike, "X S"],
        initial: Float[ArrayLike, " S"],
        *,
        columns: bool | None = None,
    ):
        if columns is not None and columns is not True:
            raise ValueError(f"columns must be True or left out (for rows, HMM.from_rows is there), not {columns!r}")
        self._set_chain(transition, emission, initial, hint=rows.TAKE_ROWS)
        if columns is None:
            rows.ask_orientation(self.transition, self.emission, self.initial)

    def __repr__(self) -> str:
        return f"HMM(n_states={self.n_states}, n_tokens={self.n_tokens})"

    @classmethod
    def from_rows(
        cls,
        startprob: Float[ArrayLike, " S"],
        transmat: Float[ArrayLike, "S S"],
        emissionprob: Float[ArrayLike, "S X"],
    ) -> HMM:
        """The model with the same probabilities of all texts as a model in rows, as hmmlearn, dynamax and textbooks have it.

        There `transmat[h, h']` (S, S) leads from h to h', `emissionprob` is (S, X), and `startprob` (S,) is the
        distribution of the state that emits the first token. Here that state is H_1, so P[H_0] has to solve
        A P[H_0] = startprob. If a distribution does so to rounding, it is taken, and `n_states` is S. Otherwise, and where
        a gradient is asked for, there is one state more, `n_states` is S + 1: the last, from which `startprob` leads on, and
        which nothing enters. Such a chain is not regular (Assumption 3.2), so that the theorems do not speak of it.
        ValueError if a shape does not fit, an entry is negative or not finite, or a row does not sum to 1.
        """
        return cls(*rows.to_columns(rows.read_rows(startprob, transmat, emissionprob)), columns=True)

    def to_rows(self) -> rows.Rows:
        """(startprob (S,), transmat (S, S), emissionprob (S, X)) of `from_rows`: the same probabilities of all texts, in rows.

        `startprob` is A P[H_0], the law of H_1. If the last state is H_0 for sure and nothing enters it, it emits nothing,
        and is left out: so what `from_rows` was given comes back.
        """
        return rows.to_rows(self.transition, self.emission, self.initial)

    @classmethod
    def from_hmmlearn(cls, fitted) -> HMM:
        """The same model as hmmlearn's `CategoricalHMM`, fitted or with its arrays set; its states by `from_rows`.

        TypeError for a model of another class, ValueError for one without its arrays, or where `from_rows` raises it.
        """
        return cls(*rows.to_columns(peers.from_hmmlearn(fitted)), columns=True)

    def to_hmmlearn(self):
        """The same model as hmmlearn's `CategoricalHMM`, of the states of `to_rows`, in float64.

        `score` and `predict_proba` work at once, and `fit` goes on from what the model has.
        """
        return peers.to_hmmlearn(self.to(dtype=torch.float64).to_rows())

    @classmethod
    def from_dynamax(cls, params) -> HMM:
        """The same model as the parameters of dynamax's `CategoricalHMM` with emissions of one dimension; see `from_rows`.

        The dtype is that of the parameters: float32, unless JAX is set to 64 bits. TypeError for parameters of another
        class, ValueError for emissions of several dimensions, or where `from_rows` raises it.
        """
        return cls(*rows.to_columns(peers.from_dynamax(params)), columns=True)

    def to_dynamax(self):
        """dynamax's `CategoricalHMM`, and its parameters: the same model, of the states of `to_rows`.

        JAX makes the parameters float32, unless it is set to 64 bits. What `fit_em` also asks for, which parameters are to
        be trained, is `hmm.initialize()[1]`.
        """
        return peers.to_dynamax(self.to_rows())

    def to(self, device=None, dtype=None) -> HMM:
        """The same model, on another device or with another dtype (float64 or float32)."""
        parts = (recast(part, device, dtype) for part in (self.transition, self.emission, self.initial))
        return HMM(*parts, columns=True)

    def embed(self, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T S"]:
        """The proper embeddings of tokens (n, T), e(x) = P[X_i = x | H_i]: rows of W, and ones for MASK. (n, T, S)."""
        tokens = as_tokens(tokens, self.n_tokens, self.device)
        rows = torch.cat([self.emission, torch.ones_like(self.emission[:1])])  # row -1 answers MASK
        return rows[tokens]


class MemoryHMM(_Chain):
    """A memory-augmented hidden Markov model (Section 4).

    Hidden states are h = (j, s), index `j * n_syntax + s`: the cell j that is looked up, and the syntax state s.
    `transition` (H, H) and `initial` (H,) describe H_0, H_1, …; `emission` (X, M, H) holds W_{x,(m,j,s)}, the
    probability of token x in state h = (j, s) when cell j holds the value m; `memory` (M, …, M), one axis for each of
    the N cells, is the joint prior P[M_1, …, M_N].
    """

    def __init__(
        self,
        transition: Float[ArrayLike, "H H"],
        emission: Float[ArrayLike, "X M H"],
        initial: Float[ArrayLike, " H"],
        memory: Float[ArrayLike, "*cells"],
    ):
        self._set_chain(transition, emission, initial, None)
        memory = as_tensor("memory", memory)
        self.n_cells, self.n_memory = memory.ndim, self.emission.shape[1]
        if self.n_cells == 0 or set(memory.shape) != {self.n_memory}:
            raise ValueError(
                f"memory must have one axis of {self.n_memory} values (as emission has) for each cell, "
                f"not shape {tuple(memory.shape)}"
            )
        self.memory = as_distribution("memory", memory.reshape(-1), 1).reshape(memory.shape).clone()
        if self.n_states % self.n_cells:
            raise ValueError(f"{self.n_states} hidden states do not divide among {self.n_cells} memory cells")
        self.n_syntax = self.n_states // self.n_cells
        rows.of_one_kind(transition=self.transition, memory=self.memory)

    def __repr__(self) -> str:
        return (
            f"MemoryHMM(n_cells={self.n_cells}, n_memory={self.n_memory}, "
            f"n_states={self.n_states}, n_tokens={self.n_tokens})"
        )

    def to(self, device=None, dtype=None) -> MemoryHMM:
        """The same model, on another device or with another dtype (float64 or float32)."""
        chain = (recast(part, device, dtype) for part in (self.transition, self.emission, self.initial))
        return MemoryHMM(*chain, recast(self.memory.reshape(-1), device, dtype).reshape(self.memory.shape))

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(n, generator=generator, dtype=self.dtype, device=self.device)
        joint = choose(cumulative_rows(self.memory.reshape(-1)).expand(n, -1).contiguous(), uniform)
        return torch.stack(torch.unravel_index(joint, self.memory.shape), dim=1)

    def embed(self, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T M*H"]:
        """The proper embeddings of tokens (n, T), e(x) = P[X_i = x | M_{J_i}, H_i], and ones for MASK.

        (n, T, M*H), where m * H + h is the index of memory value m and state h.
        """
        tokens = as_tokens(tokens, self.n_tokens, self.device)
        rows = self.emission.reshape(self.n_tokens, -1)
        return torch.cat([rows, torch.ones_like(rows[:1])])[tokens]

    def joint_values(self) -> Tensor:
        """All joint values (m_1, …, m_N) of the memory, one a row: (M^N, N)."""
        joint = torch.arange(self.memory.numel(), device=self.device)
        return torch.stack(torch.unravel_index(joint, self.memory.shape), dim=1)

    def lift(self, embeddings: Float[Tensor, "... M*H"]) -> Float[Tensor, "... M**N*H"]:
        """η of appendix D.2: (…, M*H) to (…, M^N * H), with η(v)_(m_1…m_N, j, s) = v_(m_j, j, s)."""
        cells, values = self.n_cells, self.n_memory
        of_shape("embeddings", embeddings, (..., values * self.n_states))
        table = embeddings.reshape(*embeddings.shape[:-1], values, cells, self.n_syntax)
        lifted = table[..., self.joint_values(), torch.arange(cells, device=table.device), :]  # (…, M^N, N, n_syntax)
        return lifted.flatten(-3)

    def unlift(self, lifted: Float[Tensor, "... M**N*H"]) -> Float[Tensor, "... M*H"]:
        """φ of (D.4): (…, M^N * H) to (…, M*H), the mean over the memory cells that a state does not look up."""
        of_shape("lifted", lifted, (..., self.memory.numel() * self.n_states))
        return unlift(lifted, self.n_cells, self.n_memory)

    def flatten(self) -> HMM:
        """The vanilla HMM over (m_1, …, m_N, h) that generates the same sequences; its transition is multiplied out."""
        joint = self.memory.reshape(-1)
        eye = torch.eye(len(joint), dtype=self.dtype, device=self.device)
        emission = self.lift(self.emission.reshape(self.n_tokens, -1))
        transition, initial = torch.kron(eye, self.transition.contiguous()), torch.kron(joint, self.initial)
        return HMM(transition, emission, initial, columns=True)
