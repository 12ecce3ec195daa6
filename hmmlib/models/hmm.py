"""The generative models of the paper: the hidden Markov model (Section 3) and its memory-augmented variant (Section 4).

Orientation, as in the paper: **columns** are conditional distributions.
`transition[h', h] = P[H_i = h' | H_{i-1} = h]` (the paper's A), `emission[x, h] = P[X_i = x | H_i = h]` (W).
The first token X_1 is emitted by H_1; H_0 emits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hmmlib import backend
from hmmlib.models import rows
from hmmlib.models.sampling import choose, cumulative_rows, draw
from hmmlib.validation import (
    SUM_TOLERANCE,
    as_distribution,
    as_generator,
    as_tensor,
    as_tokens,
    integer,
    of_shape,
    of_type,
)

if TYPE_CHECKING:
    from typing import Self

    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that tokens and states can be drawn in."""


class Sample(NamedTuple):
    """What a model drew: `tokens` (n, T); `states` (n, T+1), from H_0 to H_T, or None; `memory` (n, N), or None."""

    tokens: Tensor
    states: Tensor | None
    memory: Tensor | None


def reachable(transition: Tensor) -> Tensor:
    """Which states lead to which in zero or more steps, bool (S, S): entry [h', h] where h leads to h'."""
    reach = torch.eye(len(transition), dtype=torch.bool, device=transition.device) | (transition.detach() > 0)
    for _ in range(len(transition).bit_length()):
        reach = reach.double() @ reach.double() > 0
    return reach


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left * right; NaN where both are positive and the product is too small for a float of full precision."""
    product = left * right
    lost = (product < torch.finfo(product.dtype).tiny) & (left > 0) & (right > 0)
    return torch.where(lost, torch.nan, product)


def stationary_by_elimination(transition: Tensor) -> Tensor:
    """The stationary distribution of an irreducible chain, (S,), by elimination of one state after the other."""
    transition = transition.detach()
    rest, weights = transition.clone(), torch.ones_like(transition[0])
    for k in range(len(rest) - 1, 0, -1):
        rest[k, :k] = rest[k, :k] / rest[:k, k].sum()
        rest[:k, :k] = rest[:k, :k] + _product(rest[:k, k : k + 1], rest[k : k + 1, :k])
    for k in range(1, len(rest)):
        weights[k] = _product(rest[k, :k], weights[:k]).sum()
    law = weights / weights.sum()
    return law if (law > 0).all() else _stationary_in_logarithms(transition)


def _stationary_in_logarithms(transition: Tensor) -> Tensor:
    """As `stationary_by_elimination`, where near-zeros leave the range of a float; as accurate as the logarithms."""
    rest, weights = transition.log(), torch.zeros_like(transition[0])
    for k in range(len(rest) - 1, 0, -1):
        rest[k, :k] = rest[k, :k] - rest[:k, k].logsumexp(0)
        rest[:k, :k] = torch.logaddexp(rest[:k, :k], rest[:k, k : k + 1] + rest[k : k + 1, :k])
    for k in range(1, len(rest)):
        weights[k] = (rest[k, :k] + weights[:k]).logsumexp(0)
    return weights.softmax(0)


def chain_period(transition: Tensor) -> tuple[bool, int]:
    """Whether the chain is irreducible, and its period (0 where it is reducible)."""
    from scipy.sparse.csgraph import shortest_path  # only here: it takes long to load

    if not reachable(transition).all():
        return False, 0
    follows = (transition.detach().T > 0).cpu().numpy()  # follows[h, h']: h' can come after h
    level = shortest_path(follows, unweighted=True, indices=0).astype(int)
    # Every cycle's length is a sum of these differences, and they generate the same gcd (Denardo 1977).
    source, target = follows.nonzero()
    return True, math.gcd(*(level[source] + 1 - level[target]))


def recast(distribution: Tensor, device, dtype) -> Tensor:
    """A copy of distributions over the first axis, on another device or of another dtype, that sum to 1 there too."""
    if dtype not in (None, *SUM_TOLERANCE):
        raise ValueError(f"dtype must be {' or '.join(map(str, SUM_TOLERANCE))}, not {dtype!r}")
    device = None if device is None else backend.pick(str(device) if isinstance(device, torch.device) else device)
    moved = distribution.to(device=device, dtype=dtype, copy=True)
    return moved if moved.dtype == distribution.dtype else moved / moved.sum(0)


def unlift(lifted: Tensor, n_cells: int, n_memory: int) -> Tensor:
    """φ of (D.4): (…, M^N * H) to (…, M*H), the mean over the memory cells that a state does not look up."""
    n_syntax, means = lifted.shape[-1] // (n_memory**n_cells * n_cells), []
    for cell in range(n_cells):
        memory = n_memory**cell, n_memory, n_memory ** (n_cells - 1 - cell)
        table = lifted.reshape(*lifted.shape[:-1], *memory, n_cells, n_syntax)
        means.append(table[..., cell, :].mean((-4, -2)))  # (D.4)
    return torch.stack(means, dim=-2).flatten(-3)


class _Chain:
    """What both models share: the Markov chain H_0, H_1, … with transition A and start distribution P[H_0]."""

    def _set_chain(self, transition, emission, initial, ndim: int, **hint: str) -> None:
        self.transition = as_distribution("transition", transition, 2, **hint).clone()
        self.emission = as_distribution("emission", emission, ndim, **hint).clone()
        self.initial = as_distribution("initial", initial, 1).clone()
        self.n_tokens, self.n_states = len(self.emission), len(self.initial)
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
        """The same model, on another device or with another dtype (float64 or float32)."""
        moved = copy(self)
        for name, table in vars(self).items():
            if isinstance(table, Tensor):
                flat = table.flatten() if name == "memory" else table
                setattr(moved, name, recast(flat, device, dtype).reshape(table.shape))
        return moved

    def embed(self, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T S"]:
        """The proper embeddings e(x) of tokens (n, T), and ones for MASK: P[X_i = x | H_i], (n, T, S), rows of W.

        In a memory model P[X_i = x | M_{J_i}, H_i], (n, T, M*H), with index m * H + h for value m and state h.
        """
        table = self.emission.flatten(1)
        table = torch.cat([table, torch.ones_like(table[:1])])  # row -1 answers MASK
        return table[as_tokens(tokens, self.n_tokens, self.device)]

    def marginal(self, i: int) -> Float[Tensor, " S"]:
        """The marginal distribution P[H_i], shape (n_states,): A applied i times to P[H_0]."""
        return torch.linalg.matrix_power(self.transition, integer("i", i, 0)) @ self.initial

    def stationary(self) -> Float[Tensor, " S"]:
        """The distribution π with Aπ = π, shape (n_states,). ValueError if there is more than one.

        States are eliminated without a subtraction (Grassmann, Taksar, Heyman 1985), so that each entry is accurate to
        rounding, or to that of logarithms where near-zeros leave the range of a float. No gradient goes through it.
        """
        reach = reachable(self.transition)
        closed = (~reach | reach.T).all(0).nonzero().squeeze(-1)  # h, where whatever h reaches, reaches h
        if not reach[closed][:, closed].all():
            raise ValueError("there is more than one stationary distribution: transition has several closed classes")
        law = stationary_by_elimination(self.transition[closed][:, closed])
        return torch.zeros_like(self.initial).index_copy(0, closed, law)

    def sample(
        self, n: int, length: int, seed: int | torch.Generator, states: bool = True,
        dtype: torch.dtype = torch.int64,
    ) -> Sample:  # fmt: skip
        """Draw `n` independent sequences of `length` tokens. In a memory model each has a memory, drawn once and kept.

        The same seed gives the same draws on the same platform. `states=False` and a small `dtype` of tokens and states
        save memory. ValueError for a dtype that is too small.
        """
        n, length = integer("n", n, 1), integer("length", length, 1)
        largest = max(self.n_tokens, self.n_states * states)
        if dtype not in INTEGERS or largest - 1 > torch.iinfo(dtype).max:
            raise ValueError(f"dtype must be an integer type of torch that holds 0 to {largest - 1}, not {dtype}")
        generator = as_generator(seed, self.device)
        memory = self._sample_memory(n, generator) if isinstance(self, MemoryHMM) else None
        known = torch.zeros(n, 1, dtype=torch.int64, device=self.device) if memory is None else memory
        tables = self.transition, self.emission.flatten(1), self.initial
        return Sample(*draw(*tables, known, length, generator, states, dtype), memory)

    def stream(
        self, n: int, length: int, seed: int | torch.Generator, block: int = 1024, dtype: torch.dtype = torch.int64
    ) -> Iterator[Tensor]:
        """Draw the tokens of `n` sequences, and give out `block` of them at a time; the last block may be smaller.

        One generator draws block after block, so that the draws depend on `block`. ValueError as `sample` raises it.
        """
        n, block, generator = integer("n", n, 1), integer("block", block, 1), as_generator(seed, self.device)
        for begin in range(0, n, block):
            yield self.sample(min(block, n - begin), length, generator, states=False, dtype=dtype).tokens


class HMM(_Chain):
    """A hidden Markov model (Section 3): A = `transition` (S, S), W = `emission` (X, S), P[H_0] = `initial` (S,).

    They may be arrays or tensors, and become float64 unless they are float32. ValueError if a shape does not fit, an
    entry is negative or not finite, or a column does not sum to 1. Where a table's rows sum to 1 too, and by rows it
    would be another model, a warning asks which is meant (`UnclearOrientation`); `columns=True` says columns.
    `HMM.from_rows` makes a model of rows.
    """

    def __init__(
        self, transition: Float[ArrayLike, "S S"], emission: Float[ArrayLike, "X S"], initial: Float[ArrayLike, " S"],
        *, columns: bool = False,
    ):  # fmt: skip
        self._set_chain(transition, emission, initial, 2, hint=rows.TAKE_ROWS)
        if not columns:
            rows.ask_orientation(self.transition, self.emission, self.initial)

    @classmethod
    def from_rows(
        cls, startprob: Float[ArrayLike, " S"], transmat: Float[ArrayLike, "S S"], emissionprob: Float[ArrayLike, "S X"]
    ) -> HMM:
        """The model with the same probabilities of all texts as a model in rows, as hmmlearn and dynamax have it.

        There `transmat[h, h']` (S, S) leads from h to h', `emissionprob` is (S, X), and `startprob` (S,) is the
        distribution of the state that emits the first token. Here that state is H_1, so P[H_0] has to solve
        A P[H_0] = startprob. A distribution that does so to rounding is taken, and `n_states` is S. If there is none,
        or a gradient is asked for, it is S + 1: from the last state, which nothing enters, `startprob` leads on.
        Such a chain is not regular (Assumption 3.2), so that the theorems do not cover it.
        ValueError if a shape does not fit, an entry is negative or not finite, or a row does not sum to 1.
        """
        return cls(*rows.to_columns(startprob, transmat, emissionprob), columns=True)

    def to_rows(self) -> rows.Rows:
        """The model in rows, with the same probabilities of all texts: what `from_rows` takes, with its shapes.

        `startprob` is A P[H_0], the law of H_1. A last state that is H_0 for sure, and that nothing enters, emits
        nothing and is left out: so what `from_rows` was given comes back.
        """
        return rows.to_rows(self.transition, self.emission, self.initial)

    @classmethod
    def from_hmmlearn(cls, fitted) -> HMM:
        """The same model as hmmlearn's `CategoricalHMM`, fitted or with its arrays set; its states by `from_rows`.

        TypeError for a model of another class, ValueError for one without its arrays, or where `from_rows` raises it.
        """
        from hmmlearn.hmm import CategoricalHMM
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(of_type("fitted", fitted, CategoricalHMM), rows.HMMLEARN)
        return cls.from_rows(*(getattr(fitted, name) for name in rows.HMMLEARN))

    def to_hmmlearn(self):
        """The same model as hmmlearn's `CategoricalHMM`, of the states of `to_rows`, in float64.

        `score` and `predict_proba` work at once, and `fit` goes on from what the model has.
        """
        from hmmlearn.hmm import CategoricalHMM

        arrays = self.to(dtype=torch.float64).to_rows()
        made = CategoricalHMM(len(arrays.startprob), n_features=self.n_tokens, init_params="")
        for name, array in zip(rows.HMMLEARN, arrays, strict=True):
            setattr(made, name, array.detach().cpu().numpy().copy())
        return made

    @classmethod
    def from_dynamax(cls, params) -> HMM:
        """The same model as the parameters of dynamax's `CategoricalHMM`, of their dtype; its states by `from_rows`.

        TypeError for parameters of another class, ValueError for emissions of several dimensions, or where `from_rows`
        raises it.
        """
        from dynamax.hidden_markov_model.models.categorical_hmm import ParamsCategoricalHMM

        of_type("params", params, ParamsCategoricalHMM)
        words = as_tensor("params.emissions.probs", params.emissions.probs)
        of_shape("params.emissions.probs", words, (None, 1, None), ", emissions of one dimension")
        return cls.from_rows(params.initial.probs, params.transitions.transition_matrix, words[:, 0])

    def to_dynamax(self):
        """dynamax's `CategoricalHMM`, and its parameters: the same model, of the states of `to_rows`.

        JAX makes them float32, unless it is set to 64 bits. Which are to be trained, for `fit_em`, is
        `hmm.initialize()[1]`.
        """
        from dynamax.hidden_markov_model import CategoricalHMM
        from jax.numpy import asarray

        start, table, words = (asarray(array.detach().cpu().numpy().copy()) for array in self.to_rows())
        made = CategoricalHMM(len(start), 1, self.n_tokens)
        given = dict(initial_probs=start, transition_matrix=table, emission_probs=words[:, None])
        return made, made.initialize(**given)[0]


class MemoryHMM(_Chain):
    """A memory-augmented hidden Markov model (Section 4).

    Hidden states are h = (j, s), index `j * n_syntax + s`: the cell j that is looked up, and the syntax state s.
    `transition` (H, H) and `initial` (H,) describe H_0, H_1, …; `emission` (X, M, H) holds W_{x,(m,j,s)}, the
    probability of token x in state h = (j, s) when cell j holds the value m; `memory` (M, …, M), one axis for each of
    the N cells, is the joint prior P[M_1, …, M_N].
    """

    def __init__(
        self, transition: Float[ArrayLike, "H H"], emission: Float[ArrayLike, "X M H"], initial: Float[ArrayLike, " H"],
        memory: Float[ArrayLike, "*cells"],
    ):  # fmt: skip
        self._set_chain(transition, emission, initial, 3)
        memory = as_tensor("memory", memory)
        self.n_cells, self.n_memory = memory.ndim, self.emission.shape[1]
        if set(memory.shape) != {self.n_memory}:
            axes = f"one axis of {self.n_memory} values (as emission has) for each cell"
            raise ValueError(f"memory must have {axes}, not shape {tuple(memory.shape)}")
        self.memory = as_distribution("memory", memory.reshape(-1), 1).reshape(memory.shape).clone()
        if self.n_states % self.n_cells:
            raise ValueError(f"{self.n_states} hidden states do not divide among {self.n_cells} memory cells")
        self.n_syntax = self.n_states // self.n_cells
        rows.of_one_kind(transition=self.transition, memory=self.memory)

    def _sample_memory(self, n: int, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(n, generator=generator, dtype=self.dtype, device=self.device)
        joint = choose(cumulative_rows(self.memory.reshape(-1)).expand(n, -1).contiguous(), uniform)
        return torch.stack(torch.unravel_index(joint, self.memory.shape), dim=1)

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
        emission = self.lift(self.emission.flatten(1))
        transition, initial = torch.kron(eye, self.transition.contiguous()), torch.kron(joint, self.initial)
        return HMM(transition, emission, initial, columns=True)
