"""Conditional probabilities read off the messages (appendices C and D.2).

Inference sees *evidence*, not tokens: `sweeps` says how messages are passed and kept exact. What is read off them is done in
one of two ways. Where no gradient is asked for, on a CPU, compiled loops (`compiled`) go through all sequences without a
temporary; what they cannot be sure of, and everything else, goes through torch (`aggregated_messages`).

A memory model is run as the |M|^N hidden Markov models that it is once its memory is given, all with the same A; the
lifted chain is never multiplied out, and the cost is |M|^N * |H|^2 a token.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hmmlib import backend
from hmmlib.backend import fresh
from hmmlib.inference.forward_backward import (
    EVERY,
    LARGEST,
    chain_weights,
    exponent_of,
    flushed,
    scaled,
    smallest,
    sweep_chain,
)
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK, as_tensor, as_tokens, at_least, of_type, of_width

BLOCK = 2**22
"""Entries of evidence worked on at a time in torch: bounds the memory in use."""
SMALL = 2**16
"""Entries of evidence below which a second thread costs more than it brings."""


def compiled_loops():
    """The loops of `inference.compiled`, or None where there is no numba."""
    return backend.loops("hmmlib.inference.compiled")


def aggregated_messages(
    model: HMM | MemoryHMM, evidence: Tensor, at: slice = slice(1, None), own: bool = False
) -> tuple[Tensor, Tensor]:
    """τ_i of (C.1), or of (D.3) for a memory model, at the positions `at` of the chain H_0, …, H_T.

    Args:
        evidence: embeddings (n, T, S), or lifted, (n, T, M^N * H).
        own: whether the evidence of position i itself counts too; then the result is P[H_i, v], or P[M, H_i, v].

    Returns:
        Mantissas (n, positions, S) or (n, positions, M^N * H) and exponents of two (n, positions, 1).
    """
    evidence = of_width("evidence", evidence, lifted_size(model), 3).to(model.dtype)
    if isinstance(model, HMM):
        return chain_weights(model.transition, model.initial, evidence, at, own)
    n, prior = len(evidence), model.memory.reshape(-1)
    # One chain for each joint value of the memory.
    rows = evidence.transpose(0, 1).unflatten(2, (len(prior), model.n_states)).flatten(1, 2)
    scale = exponent_of(evidence.amax(-1, keepdim=True)).transpose(0, 1).repeat_interleave(len(prior), 1)
    tau, exponent = sweep_chain(model.transition, model.initial, rows, scale, at, own)
    tau, exponent = tau.unflatten(1, (n, len(prior))), exponent.unflatten(1, (n, len(prior)))
    size = exponent + exponent_of(prior)[:, None]
    possible = (tau.detach().amax(-1, keepdim=True) > 0) & (prior[:, None] > 0)
    never = torch.iinfo(torch.int64).min // 2
    top = torch.where(possible, size, never).amax(2, keepdim=True)
    top = torch.where(top == never, 0, top)
    share = scaled(scaled(prior, -exponent_of(prior))[:, None], size - top)
    return (tau * share).flatten(2).transpose(0, 1), top.squeeze(2).transpose(0, 1)  # (D.3)


def _evidence(model: HMM | MemoryHMM, embeddings: Tensor) -> Tensor:
    return (
        embeddings if isinstance(model, HMM) or embeddings.shape[-1] == lifted_size(model) else model.lift(embeddings)
    )


def lifted_size(model: HMM | MemoryHMM) -> int:
    """Entries of a message: S, or |M|^N * |H| for a memory model."""
    of_type("model", model, HMM, MemoryHMM)
    return model.n_states if isinstance(model, HMM) else model.memory.numel() * model.n_states


def _as_prompt(model: HMM | MemoryHMM, prompt) -> Tensor:
    """A prompt as a vector (S,), or (M*H,) or lifted for a memory model. ValueError for another shape or a bad entry."""
    of_type("model", model, HMM, MemoryHMM)
    prompt = as_tensor("prompt", prompt, 1, like=model.initial)
    if len(prompt) not in _widths(model):
        raise ValueError(f"prompt must have {_choice(model)} entries, not {len(prompt)}")
    return prompt


def _widths(model: HMM | MemoryHMM) -> set[int]:
    """How long an embedding may be."""
    return {lifted_size(model)} if isinstance(model, HMM) else {model.n_memory * model.n_states, lifted_size(model)}


def _choice(model: HMM | MemoryHMM) -> str:
    return " or ".join(map(str, sorted(_widths(model))))


def prompted(model: HMM | MemoryHMM, prompt, tokens) -> Tensor:
    """ê(x) = (u, e(x_1), …, e(x_T)) of (4.4), or of (3.2) where `tokens` begin with MASK.

    Args:
        prompt: u, one vector: (S,) for an HMM; (M*H,) or lifted, (M^N * H,), for a memory model.
        tokens: (n, T).

    Returns:
        Embeddings (n, T + 1, S), (n, T + 1, M*H) or (n, T + 1, M^N * H), as wide as the prompt.

    ValueError for a prompt or tokens of the wrong shape or with a bad entry.
    """
    prompt, embeddings = _as_prompt(model, prompt), model.embed(tokens)
    if embeddings.shape[-1] != len(prompt):
        embeddings = model.lift(embeddings)
    return torch.cat([prompt.expand(len(embeddings), 1, -1), embeddings], 1)  # (3.2), (4.4)


class _Rows(NamedTuple):
    """Evidence by number: each position of each sequence has one of R rows, lifted."""

    table: Tensor  # (R, K * S)
    index: Tensor  # (n, T); -1 is the last row


class _Sums(NamedTuple):
    """What is read off a lifted message: sums over the memory's values that belong together, and W times that if asked for."""

    groups: Tensor  # (G, K), zeros and ones: the values that are added up
    take: Tensor  # (D,), which of the G * S sums are the result
    readout: Tensor | None = None  # (X, D)


def _rows(model: HMM | MemoryHMM, tokens, prompt=None) -> _Rows:
    """The evidence of tokens, or of `prompted(model, prompt, tokens)`: a row for each token, the prompt's, ones for MASK."""
    of_type("model", model, HMM, MemoryHMM)
    tokens = as_tokens(tokens, model.n_tokens, model.device)
    words = torch.tensor([*range(model.n_tokens), MASK], device=model.device)[:, None]
    if prompt is None:
        return _Rows(_evidence(model, model.embed(words)[:, 0]), tokens)
    table = prompted(model, prompt, words).transpose(0, 1).reshape(2 * len(words), -1)
    own = torch.full_like(tokens[:, :1], len(words) - 1)  # the table begins with the prompt, once for each word
    numbers = torch.where(tokens == MASK, -1, tokens + len(words))
    return _Rows(_evidence(model, table), torch.cat([own, numbers], 1))


def _latents(model: HMM | MemoryHMM) -> _Sums:
    """The entries of H_i; of (M_{J_i}, J_i, S_i), index m * H + h, for a memory model."""
    if isinstance(model, HMM):
        return _states(model)
    states = torch.arange(model.n_states, device=model.device)
    groups = one_hot(model.joint_values(), model.n_memory).flatten(1).T  # row j * M + m: cell j has value m
    rows = states // model.n_syntax * model.n_memory + torch.arange(model.n_memory, device=model.device)[:, None]
    return _Sums(groups.to(model.dtype), (rows * model.n_states + states).flatten())


def _predicted(model: HMM | MemoryHMM) -> _Sums:
    return _latents(model)._replace(readout=model.emission.reshape(model.n_tokens, -1))


def _states(model: HMM | MemoryHMM) -> _Sums:
    """The entries of H_i, whatever the memory."""
    states = torch.arange(model.n_states, device=model.device)
    return _Sums(model.initial.new_ones(1, lifted_size(model) // model.n_states), states)


def _read(
    model: HMM | MemoryHMM, rows: _Rows, at: slice, own: bool, sums: _Sums, sized: bool = False
) -> tuple[Tensor, Tensor]:
    """P[H̃_i | v] at the positions `at`, summed up as `sums` says; v leaves out the position itself unless `own`.

    Returns:
        (n, positions, D) or (n, positions, X), zeros where v has probability zero; and P[v], its mantissa and exponent
        of two, (n, positions, 2), if `sized` (and `own`), else without meaning.
    """
    parts = [model.transition, model.initial, model.emission, rows.table]
    parts += [model.memory] if isinstance(model, MemoryHMM) else []
    moving = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
    if moving or model.device.type != "cpu" or compiled_loops() is None or not rows.index.numel():
        return _in_torch(model, rows, at, own, sums)
    found, size, doubtful = _in_loops(model, rows, at, own, sums, sized)
    if len(doubtful) > 1:
        _, _, among = _in_loops(model, rows._replace(index=rows.index[doubtful]), at, own, sums, sized, alone=True)
        doubtful = doubtful[among]
    if len(doubtful):
        again, exact = _in_torch(model, rows._replace(index=rows.index[doubtful]), at, own, sums)
        found[doubtful] = again
        if sized:
            size[doubtful] = exact
    return found, size


def _in_torch(model: HMM | MemoryHMM, rows: _Rows, at: slice, own: bool, sums: _Sums) -> tuple[Tensor, Tensor]:
    found, sizes = [], []
    for index in rows.index.split(max(1, BLOCK // (rows.index.shape[1] * rows.table.shape[1]))):
        tau, exponent = aggregated_messages(model, rows.table[index], at, own)
        lanes = tau.unflatten(-1, (-1, model.n_states))
        weights = torch.einsum("gk,npks->npgs", sums.groups, lanes).flatten(2)[..., sums.take]
        total = weights.sum(-1, keepdim=True)
        probs = weights / torch.where(total > 0, total, 1)
        found.append(probs if sums.readout is None else probs @ sums.readout.T)  # (D.1)
        sizes.append(torch.cat([total, exponent.to(total.dtype)], -1))
    return torch.cat(found), torch.cat(sizes)


def _in_loops(
    model: HMM | MemoryHMM, rows: _Rows, at: slice, own: bool, sums: _Sums, sized: bool, alone: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """`_read`, and the sequences in which some product may have underflowed: their results count for nothing.

    Unless `alone`, what may have underflowed in one sequence makes others doubtful too: those of its block.
    """
    compiled, kind, (n, length) = compiled_loops(), model.dtype, rows.index.shape
    prior = model.memory.flatten() if isinstance(model, MemoryHMM) else torch.ones(1, dtype=kind, device="cpu")
    scale = exponent_of(rows.table.amax(-1, keepdim=True))
    table = scaled(rows.table, -scale)
    readout = fresh(0, 0, dtype=kind) if sums.readout is None else sums.readout
    first, stop, _ = at.indices(length + 1)
    found = fresh(n, stop - first, len(readout) or len(sums.take), dtype=kind)
    size, least = fresh(n, stop - first, 2 * sized, dtype=kind), fresh(n * (kind == torch.float64), dtype=kind)
    powers = torch.exp2(torch.arange(-2 * LARGEST[kind], LARGEST[kind] + 1, dtype=kind, device="cpu"))
    take = sums.take[: 0 if isinstance(model, HMM) else None]
    before = _arrays(
        model.transition.T, model.transition, model.initial, *torch.frexp(prior), powers, table, smallest(table)
    )
    (index,), after, written = _arrays(rows.index), _arrays(sums.groups, take, readout.T), _arrays(found, size, least)

    def work(part: slice) -> None:
        results = [whole[part] for whole in written]
        compiled.run_chain(*before, index[part], *after, first, own, EVERY[kind], LARGEST[kind], alone, *results)

    backend.side_by_side(work, n, torch.get_num_threads() if n * length * rows.table.shape[1] > SMALL else 1)
    if sized:
        size[..., 1] += scale[rows.index].sum((1, 2))[:, None]
    if kind != torch.float64:
        return found, size, fresh(0, dtype=torch.int64)
    lost = flushed(rows.table[None], scale[None])
    lost = lost[rows.index].any(1) if lost.any() else lost.new_zeros(n)
    tiny = torch.finfo(kind).tiny
    lost |= (least * smallest(model.transition.flatten()) < tiny) | (smallest(model.initial) < tiny)
    return found, size, lost.nonzero().squeeze(-1)


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    """Laid out row by row, so that the loops are compiled once for each dtype."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def latent_given_others(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """P[H_i | X_{-i} = x_{-i}] at every position, (n, T, S); P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}], (n, T, M*H), with memory.

    With a `prompt`, (n, T + 1, …) and everything conditioned on the fake token too: position i of x is i + 1 then.
    The zero vector where x_{-i} has probability zero. ValueError as `prompted` raises it.
    """
    return _read(model, _rows(model, tokens, prompt), slice(1, None), False, _latents(model))[0]


def masked_token_probs_from_embeddings(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """Ḡ of appendices C and D.2: row i is W τ_i / ‖τ_i‖₁, the zero vector where ‖τ_i‖₁ = 0.

    Args:
        embeddings: nonnegative, (n, T, S) for an HMM; (n, T, M*H) or lifted (n, T, M^N * H) for a memory model.

    Returns:
        (n, T, X), differentiable in `embeddings` (backwards).

    Raises:
        ValueError: a negative or non-finite entry, or a last axis of another length.
    """
    of_type("model", model, HMM, MemoryHMM)
    embeddings = as_tensor("embeddings", embeddings, 3, empty=True, like=model.initial)
    if embeddings.shape[1] == 0:
        raise ValueError(f"embeddings must have at least one position, not shape {tuple(embeddings.shape)}")
    if embeddings.shape[-1] not in _widths(model):
        raise ValueError(f"embeddings must have {_choice(model)} entries on the last axis, not {embeddings.shape[-1]}")
    table = _evidence(model, embeddings).flatten(0, 1)
    index = torch.arange(len(table), device=model.device).unflatten(0, embeddings.shape[:2])
    return _read(model, _Rows(table, index), slice(1, None), False, _predicted(model))[0]


def masked_token_probs(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """G of Section 2: (n, T) tokens to (n, T, X); row i is P[X_i | X_{-i} = x_{-i}], whatever token stands at i.

    Positions that hold MASK are not conditioned on. Where x_{-i} has probability zero, row i is the zero vector.
    With a `prompt`, Ḡ of `prompted(model, prompt, tokens)`, (n, T + 1, X).
    ValueError for tokens that are no integers, out of range, or not of shape (n, T) with T at least 1, or a bad prompt.
    """
    return _read(model, _rows(model, tokens, prompt), slice(1, None), False, _predicted(model))[0]


def posteriors(model: HMM | MemoryHMM, tokens) -> Tensor:
    """P[H_i | X_{1:T} = x] for all i from 0 to T, (n, T + 1, n_states); the zero vector where x has probability zero."""
    return _read(model, _rows(model, tokens), slice(None), True, _states(model))[0]


def posterior(model: HMM | MemoryHMM, tokens, at: int = 0) -> Tensor:
    """P[H_at | X_{1:T} = x], (n, n_states), for `at` from 0 to T; the zero vector where x has probability zero."""
    rows = _rows(model, tokens)
    length = rows.index.shape[1]
    if (at := at_least("at", at, 0)) > length:
        raise ValueError(f"at must be 0 to {length} for sequences of length {length}, not {at}")
    return _read(model, rows, slice(at, at + 1), True, _states(model))[0][:, 0]


def memory_posterior(model: MemoryHMM, tokens, cell: int = 0) -> Tensor:
    """P[M_cell | X_{1:T} = x], (n, n_memory), cells counted from 0; the zero vector where x has probability zero."""
    of_type("model", model, MemoryHMM)
    if (cell := at_least("cell", cell, 0)) >= model.n_cells:
        raise ValueError(f"cell must be 0 to {model.n_cells - 1}, not {cell}")
    groups = one_hot(model.joint_values()[:, cell], model.n_memory).T.to(model.dtype)
    values = torch.eye(model.n_memory, dtype=model.dtype, device=model.device).repeat_interleave(model.n_states, 1)
    sums = _Sums(groups, torch.arange(values.shape[1], device=model.device), values)
    return _read(model, _rows(model, tokens), slice(0, 1), True, sums)[0][:, 0]


def log_likelihood(model: HMM | MemoryHMM, tokens) -> Tensor:
    """log Pr(X_{1:T} = x) in nats, (n,); minus infinity where x has probability zero. MASK positions are summed over."""
    _, size = _read(model, _rows(model, tokens), slice(0, 1), True, _states(model), sized=True)
    mantissa, exponent = size[:, 0].unbind(-1)
    possible = mantissa > 0  # the logarithm of zero would make the gradient of all others NaN
    return torch.where(possible, torch.where(possible, mantissa, 1).log() + exponent * math.log(2), -torch.inf)


__all__ = [
    "MASK", "aggregated_messages", "chain_weights", "latent_given_others", "lifted_size", "log_likelihood",
    "masked_token_probs", "masked_token_probs_from_embeddings", "memory_posterior", "posterior", "posteriors", "prompted",
]  # fmt: skip
