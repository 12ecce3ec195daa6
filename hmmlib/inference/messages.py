"""Conditional probabilities read off the messages (appendices C and D.2): fast, and at any length.

`reference` has the same formulas as the paper prints them; read that first. `forward_backward` passes the messages in
torch. On a CPU, where no gradient is asked for, compiled loops (`compiled`) do it, without a temporary.

What is impossible has probability 0, exactly. In float64, probabilities from 1e-100 up have a relative error below
1e-12 at any length, where the entries of A, of P[H_0] and of each row of evidence (relative to its largest) are 0 or
from 1e-100 up, and the text does not contradict itself beyond that: at each position, the states that the text before
it leaves and those that the text after it needs must share 1e-100 of their weight. That is so for every text where A
has no zeros, and for a text drawn from the model but for a chance of some 1e-100. Beyond, and in float32 beyond 1e-30,
what is so unlikely may count as impossible, and a gradient may not be a number. `possible_given_others` is right in
any case.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hmmlib import backend
from hmmlib.inference.forward_backward import MAX_EXPONENT, aggregated_messages, both_passes, lifted_size, rescaled
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK, as_tensor, as_tokens, integer, of_type

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from numpy.typing import ArrayLike

BLOCK = 2**22
"""Entries of evidence worked on at a time in torch: bounds the memory in use."""
SMALL = 2**16
"""Entries of evidence below which a second thread costs more than it brings."""


def compiled_loops():
    """The loops of `inference.compiled`, or None where there is no numba."""
    return backend.loops("hmmlib.inference.compiled")


def as_embeddings(name: str, model: HMM | MemoryHMM, values, ndim: int) -> Tensor:
    """Embeddings or a prompt, checked: nonnegative, as wide as those of tokens, or lifted."""
    of_type("model", model, HMM, MemoryHMM)
    values = as_tensor(name, values, ndim, empty=ndim > 1, like=model.initial)
    widths = sorted({model.emission[0].numel(), lifted_size(model)})
    if values.shape[-1] not in widths or 0 in values.shape[1:]:
        wanted = f"{' or '.join(map(str, widths))} entries on the last axis"
        raise ValueError(f"{name} must have {wanted}, and one position or more, not shape {tuple(values.shape)}")
    return values


def _lifted(model: HMM | MemoryHMM, embeddings: Tensor) -> Tensor:
    """The embeddings with η(v) for each vector v of a memory model that is not lifted; all others stay as they are."""
    return embeddings if embeddings.shape[-1] == lifted_size(model) else model.lift(embeddings)


def as_evidence(model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]) -> Float[Tensor, "n T S"]:
    """Embeddings, checked and lifted: (n, T, S), or (n, T, M^N * H) for a memory model.

    ValueError for a negative or non-finite entry, or another last axis.
    """
    return _lifted(model, as_embeddings("embeddings", model, embeddings, 3))


def prompted(
    model: HMM | MemoryHMM, prompt: Float[ArrayLike, " S"], tokens: Int[ArrayLike, "n T"]
) -> Float[Tensor, "n T+1 S"]:
    """Embeddings with a prompt in front, ê(x) = (u, e(x_1), …, e(x_T)), as in (4.4); in (3.2) `tokens` begin with MASK.

    Args:
        prompt: u, one vector: (S,) for an HMM; (M*H,) or lifted, (M^N * H,), for a memory model.
        tokens: (n, T).

    Returns embeddings as wide as the prompt, (n, T + 1, S), (n, T + 1, M*H) or (n, T + 1, M^N * H). ValueError for a
    prompt or tokens of the wrong shape or with a bad entry.
    """
    prompt = as_embeddings("prompt", model, prompt, 1)
    embeddings = model.embed(tokens)
    if embeddings.shape[-1] != len(prompt):
        embeddings = model.lift(embeddings)
    return torch.cat([prompt.expand(len(embeddings), 1, -1), embeddings], 1)  # (3.2), (4.4)


class _Evidence(NamedTuple):
    """Evidence, given by number: each position of each sequence has one of R rows, which are lifted."""

    rows: Tensor  # (R, K * S)
    index: Tensor  # (n, T); -1 is the last row


class _Variable(NamedTuple):
    """A variable that depends on H̃_i = (M_1, …, M_N, H_i), so that its law is made of sums of the law of H̃_i."""

    groups: Tensor  # (G, K), zeros and ones: which of the memory's K values are added up, for each state
    entries: Tensor  # (D,), which of the G * S sums are its law
    columns: Tensor | None = None  # (X, D): or its law given each of these, as W is that of a token


def _evidence(model: HMM | MemoryHMM, tokens, prompt=None) -> _Evidence:
    """The evidence of tokens, or of `prompted(model, prompt, tokens)`: rows for the prompt, each token, and MASK."""
    of_type("model", model, HMM, MemoryHMM)
    tokens = as_tokens(tokens, model.n_tokens, model.device)
    words = torch.tensor([*range(model.n_tokens), MASK], device=model.device)[:, None]
    if prompt is None:
        return _Evidence(_lifted(model, model.embed(words)[:, 0]), tokens)
    rows = prompted(model, prompt, words)
    rows = torch.cat([rows[:1, 0], rows[:, 1]])
    numbers = torch.where(tokens == MASK, -1, tokens + 1)
    return _Evidence(_lifted(model, rows), torch.cat([torch.zeros_like(tokens[:, :1]), numbers], 1))


def _state(model: HMM | MemoryHMM) -> _Variable:
    """The variable H_i, summed over the memory."""
    states = torch.arange(model.n_states, device=model.device)
    return _Variable(model.initial.new_ones(1, lifted_size(model) // model.n_states), states)


def _latent(model: HMM | MemoryHMM) -> _Variable:
    """The variable H_i; in a memory model (M_{J_i}, J_i, S_i), m * H + h: φ of (D.4), whose factor cancels in a law."""
    if isinstance(model, HMM):
        return _state(model)
    states = torch.arange(model.n_states, device=model.device)
    groups = one_hot(model.joint_values(), model.n_memory).flatten(1).T  # row j * M + m: cell j has value m
    rows = states // model.n_syntax * model.n_memory + torch.arange(model.n_memory, device=model.device)[:, None]
    return _Variable(groups.to(model.dtype), (rows * model.n_states + states).flatten())


def _token(model: HMM | MemoryHMM) -> _Variable:
    """The variable X_i, whose law given the latent is a column of W."""
    return _latent(model)._replace(columns=model.emission.flatten(1))


def _cell(model: MemoryHMM, cell: int) -> _Variable:
    """The variable M_cell, summed over the states."""
    groups = one_hot(model.joint_values()[:, cell], model.n_memory).T.to(model.dtype)
    columns = torch.eye(model.n_memory, dtype=model.dtype, device=model.device).repeat_interleave(model.n_states, 1)
    return _Variable(groups, torch.arange(columns.shape[1], device=model.device), columns)


def _read(
    model: HMM | MemoryHMM, evidence: _Evidence, at: slice, own: bool, variable: _Variable, sized: bool = False
) -> tuple[Tensor, Tensor]:
    """The variable's law given the evidence v at the positions `at`; v leaves out the position itself unless `own`.

    Returns:
        (n, positions, D) or (n, positions, X), zeros where v has probability zero; and P[v], its mantissa and exponent
        of two, (n, positions, 2), if `sized` (and `own`), else without meaning.
    """
    asked = (part.requires_grad for part in (evidence.rows, *vars(model).values()) if isinstance(part, Tensor))
    differentiable = torch.is_grad_enabled() and any(asked)
    if differentiable or model.device.type != "cpu" or compiled_loops() is None or not evidence.index.numel():
        return _in_torch(model, evidence, at, own, variable)
    return _in_loops(model, evidence, at, own, variable, sized)


def _in_torch(model, evidence: _Evidence, at: slice, own: bool, variable: _Variable) -> tuple[Tensor, Tensor]:
    """As `_read`, by operations of torch: differentiable, and on any device."""
    laws, sizes = [], []
    for index in evidence.index.split(max(1, BLOCK // (evidence.index.shape[1] * evidence.rows.shape[1]))):
        tau, exponent = aggregated_messages(model, evidence.rows[index], at, own)
        lanes = tau.unflatten(-1, (-1, model.n_states))
        sums = torch.einsum("gk,npks->npgs", variable.groups, lanes).flatten(2)
        weights = sums[..., variable.entries]
        total = weights.sum(-1, keepdim=True)
        possible = total > 0
        probs = torch.where(possible, weights, 0) / torch.where(possible, total, 1)  # no gradient where nothing is
        laws.append(probs if variable.columns is None else probs @ variable.columns.T)  # (D.1)
        sizes.append(torch.cat([total, exponent.to(total.dtype)], -1))
    # At T = 1 nothing is conditioned on: that has a gradient too, of zeros.
    return torch.cat(laws) + 0 * evidence.rows[:1, :1].sum(), torch.cat(sizes)


def _in_loops(model, evidence: _Evidence, at: slice, own: bool, variable: _Variable, sized: bool):
    """As `_read`, by compiled loops."""
    loops, dtype, (n, length) = compiled_loops(), model.dtype, evidence.index.shape
    rows, scale = rescaled(evidence.rows.unsqueeze(1), torch.zeros((), dtype=torch.int64, device="cpu"))
    prior = model.memory.flatten() if isinstance(model, MemoryHMM) else torch.ones(1, dtype=dtype, device="cpu")
    columns = backend.uninitialized(0, 0, dtype=dtype) if variable.columns is None else variable.columns
    entries = variable.entries[: 0 if isinstance(model, HMM) else None]
    first, stop, _ = at.indices(length + 1)
    laws = backend.uninitialized(n, stop - first, len(columns) or len(variable.entries), dtype=dtype)
    sizes = backend.uninitialized(n, stop - first, 2 * sized, dtype=dtype)
    chain = loops.Chain(*_arrays(model.transition.T, model.transition, model.initial, *torch.frexp(prior)))
    query = loops.Query(*_arrays(variable.groups, entries, columns.T), first, own)
    scaling = loops.Scaling(_powers(dtype), MAX_EXPONENT[dtype], 4 if dtype == torch.float64 else 1)
    arrays = _arrays(evidence.index, laws, sizes)
    (rows,) = _arrays(rows.squeeze(1))

    def work(part: slice) -> None:
        index, *results = (array[part] for array in arrays)
        loops.run_chain(chain, rows, index, query, scaling, *results)

    with backend.flushing(dtype):
        backend.side_by_side(work, n, torch.get_num_threads() if n * length * rows.shape[1] > SMALL else 1)
    if sized:
        sizes[..., 1] += scale.flatten()[evidence.index].sum(1, keepdim=True)
    return laws, sizes


@cache
def _powers(dtype: torch.dtype) -> np.ndarray:
    """The powers 2^-2b, …, 2^b for the largest exponent b, in which the loops look powers up."""
    bound = MAX_EXPONENT[dtype]
    return torch.exp2(torch.arange(-2 * bound, bound + 1, dtype=dtype, device="cpu")).numpy()


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    """The tensors as arrays that are laid out row by row, so that the loops are compiled once for each dtype."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def latent_given_others(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T S"]:
    """P[H_i | X_{-i} = x_{-i}], (n, T, S); of a memory model P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}], (n, T, M*H).

    The latent at every position, given all other tokens. A `prompt` is conditioned on too; then the shape is
    (n, T + 1, …), and position i of x becomes i + 1. Where x_{-i} has probability zero, it is the zero vector.
    ValueError for tokens or a prompt that `prompted` does not take.
    """
    return _read(model, _evidence(model, tokens, prompt), slice(1, None), False, _latent(model))[0]


def possible_given_others(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Bool[Tensor, "n T S"]:
    """Whether each entry of `latent_given_others` is positive, from zeros alone: right also where floats underflow."""
    evidence, variable = _evidence(model, tokens, prompt), _latent(model)

    def support(values: Tensor) -> Tensor:
        return (values.detach() > 0).to(model.dtype)

    rows = support(evidence.rows)[evidence.index].unflatten(2, (-1, model.n_states)).unbind(1)  # T rows (n, K, S)
    prior = model.memory.reshape(-1, 1) if isinstance(model, MemoryHMM) else 1
    passes = both_passes(
        support(model.transition), support(prior * support(model.initial)), [torch.ones_like(rows[0]), *rows],
        lambda message, exponent: (support(message), exponent),
    )  # fmt: skip
    forward, backward = (torch.stack([message for message, _ in part[1:]], 1) for part in passes)
    return torch.einsum("gk,npks->npgs", variable.groups, forward * backward).flatten(2)[..., variable.entries] > 0


def masked_token_probs_from_embeddings(
    model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]
) -> Float[Tensor, "n T X"]:
    """Ḡ of appendices C and D.2: row i is W τ_i / ‖τ_i‖₁, or the zero vector if ‖τ_i‖₁ = 0.

    Args:
        embeddings: nonnegative, (n, T, S) for an HMM; (n, T, M*H) or lifted (n, T, M^N * H) for a memory model.

    Returns (n, T, X). Gradients with respect to `embeddings` are right at zeros too; if ‖τ_i‖₁ = 0 there is no
    derivative, and the gradient is zero. ValueError for a negative or non-finite entry, or another last axis.
    """
    evidence = as_evidence(model, embeddings)
    index = torch.arange(evidence[..., 0].numel(), device=model.device).reshape(evidence.shape[:2])
    return _read(model, _Evidence(evidence.flatten(0, 1), index), slice(1, None), False, _token(model))[0]


def masked_token_probs(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T X"]:
    """The ideal masked language model G of Section 2, (n, T, X): row i is P[X_i | X_{-i} = x_{-i}].

    Positions that hold MASK are not conditioned on. Where x_{-i} has probability zero, row i is the zero vector. With a
    `prompt`, it is Ḡ of `prompted(model, prompt, tokens)`, (n, T + 1, X), and position i of x becomes i + 1. ValueError
    for a bad prompt, and for tokens that are no integers, out of range, or not of shape (n, T) with T at least 1.
    """
    return _read(model, _evidence(model, tokens, prompt), slice(1, None), False, _token(model))[0]


def posteriors(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T+1 S"]:
    """P[H_i | X_{1:T} = x] for all i from 0 to T, (n, T + 1, S), of a memory model too: H_i is then (J_i, S_i).

    It is zero where x has probability zero.
    """
    return _read(model, _evidence(model, tokens), slice(None), True, _state(model))[0]


def posterior(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], at: int = 0) -> Float[Tensor, "n S"]:
    """P[H_at | X_{1:T} = x] for one `at` from 0 to T, (n, S), of a memory model too: H_at is then (J_at, S_at).

    It is zero where x has probability zero.
    """
    evidence = _evidence(model, tokens)
    length = evidence.index.shape[1]
    at = integer("at", at, 0, length)
    return _read(model, evidence, slice(at, at + 1), True, _state(model))[0].squeeze(1)


def memory_posterior(model: MemoryHMM, tokens: Int[ArrayLike, "n T"], cell: int = 0) -> Float[Tensor, "n M"]:
    """P[M_cell | X_{1:T} = x], (n, M); cells are counted from 0. It is zero where x has probability zero."""
    of_type("model", model, MemoryHMM)
    cell = integer("cell", cell, 0, model.n_cells - 1)
    return _read(model, _evidence(model, tokens), slice(1), True, _cell(model, cell))[0].squeeze(1)


def log_likelihood(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, " n"]:
    """log Pr(X_{1:T} = x) in nats, (n,); minus infinity where x has probability zero. MASK is summed over."""
    _, sizes = _read(model, _evidence(model, tokens), slice(1), True, _state(model), sized=True)
    mantissa, exponent = sizes.squeeze(1).unbind(-1)
    possible = mantissa > 0  # the logarithm of zero would make the gradient of all others NaN
    return torch.where(possible, torch.where(possible, mantissa, 1).log() + exponent * math.log(2), -torch.inf)
