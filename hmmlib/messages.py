"""Forward and backward messages (appendices C and D.2), and the conditional probabilities read off them.

Inference never sees tokens, only *evidence*: a nonnegative array v of shape (n, T, S), one row for each position. A
token contributes its row of W, a masked position a row of ones, a prompt any vector. Two verbs carry everything:
*condition* (multiply a message by a row of evidence) and *predict* (carry it one step along the chain).

Probabilities of long sequences are far below the smallest float, and real zeros must stay zeros. So a message is a
pair: a mantissa, and an exponent of two. Scaling by powers of two rounds nothing. One exponent for a whole message is
enough for almost every sequence; where some entry sinks so low that a product could underflow, the sequence is run
again with an exponent for each entry (`_sweep_each`). In float32 this guard is off: what lies 1e-38 below the largest
entry of a message may be lost there.

A memory model is run as the |M|^N hidden Markov models that it is once its memory is given, all with the same A; the
lifted chain is never multiplied out, and the cost is |M|^N * |H|^2 a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from hmmlib.hmm import HMM, MASK, MemoryHMM, as_tensor, as_tokens, at_least

Result = TypeVar("Result")

BLOCK = 2**22
"""Entries of evidence worked on at a time where tokens are given: bounds the memory in use."""

LARGEST = {torch.float64: 1000, torch.float32: 120}
"""Exponents of two that a float surely has, and its inverse too."""

EVERY = {torch.float64: 4, torch.float32: 1}
"""After how many steps a message is scaled. A float64 has room for some steps, and what sinks too low is noticed."""


def _exponent(values: Tensor) -> Tensor:
    """The power of two just above each value, kept where its inverse is a float too; 0 for a zero."""
    largest = LARGEST[values.dtype]
    return torch.frexp(values.detach())[1].clamp(-largest, largest)


def _scale(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2**exponent, in the dtype of `values` (torch.ldexp works out the power in float32)."""
    return values * torch.exp2(exponent.clamp(max=LARGEST[values.dtype]).to(values.dtype))


def _sweep(transition: Tensor, first: Tensor, rows: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Messages before, between and after L rows of evidence: condition, predict, condition, …, from `first` (S,).

    Each row is (R, S). Returns L + 1 mantissas (R, S), and one exponent for each message, (R, 1).
    """
    message = first.expand(rows[0].shape) if rows else first
    exponent = torch.zeros(len(message), 1, dtype=torch.int64, device=first.device)
    messages, exponents = [message], [exponent]
    carry = transition.T.contiguous()
    every = EVERY[first.dtype]
    for k, row in enumerate(rows):
        message = (message * row) @ carry
        if k % every == 0:
            shift = _exponent(message.amax(-1, keepdim=True))
            message, exponent = _scale(message, -shift), exponent + shift
        messages.append(message)
        exponents.append(exponent)
    return messages, exponents


def _sweep_each(transition: Tensor, first: Tensor, rows: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """`_sweep` with an exponent for each entry, so that none can underflow: exponents (R, S). Slower, S^2 a step."""
    message = first.expand(rows[0].shape)
    exponent = torch.zeros(message.shape, dtype=torch.int64, device=first.device)
    messages, exponents = [message], [exponent]
    never = torch.iinfo(torch.int64).min // 2
    for row in rows:
        message = message * row
        shift = _exponent(message)
        message, exponent = _scale(message, -shift), exponent + shift
        terms = transition * message.unsqueeze(-2)  # (R, S, S): into state h' from state h
        size = torch.where(terms.detach() > 0, _exponent(terms) + exponent.unsqueeze(-2), never)
        top = size.amax(-1)
        top = torch.where(top == never, 0, top)
        relative = exponent.unsqueeze(-2) - top.unsqueeze(-1)
        message, exponent = _scale(terms, relative).sum(-1), top
        messages.append(message)
        exponents.append(exponent)
    return messages, exponents


def _smallest(values: Tensor) -> Tensor:
    """The smallest positive entry of each row; 1 for a row of zeros."""
    values = values.detach()
    return torch.where(values > 0, values, 1).amin(-1).clamp(max=1)


class _Passed(NamedTuple):
    """Both sweeps over one chain, position by position: lists of T + 1 messages."""

    forward: list[Tensor]
    backward: list[Tensor]
    exponents: list[Tensor]

    @classmethod
    def over(cls, sweep, transition: Tensor, initial: Tensor, rows: list[Tensor]) -> _Passed:
        forward, exponents = sweep(transition, initial, rows[:-1])
        # Message k of the sweep from the end, after conditioning and predicting backwards, is P[X_{i+1:T} | H_i].
        backward, from_end = sweep(transition.T, torch.ones_like(initial), rows[:0:-1])
        both = [a + b for a, b in zip(exponents, from_end[::-1], strict=True)]
        return cls(forward, backward[::-1], both)

    def weights(self, rows: list[Tensor], at: slice, own: bool) -> tuple[Tensor, Tensor]:
        """τ at the positions `at`, times their own evidence if `own`: mantissas and exponents, stacked."""
        parts = zip(self.forward[at], self.backward[at], rows[at], strict=True)
        tau = torch.stack([f * b * row if own else f * b for f, b, row in parts])
        return tau, torch.stack(self.exponents[at])

    def doubtful(self, transition: Tensor, rows: list[Tensor]) -> Tensor:
        """Rows in which some product may have underflowed, (R,)."""
        # All rows as one first: that is three times as fast, and mostly ends the matter.
        whole = self._doubtful(transition, rows, lambda values: _smallest(values.reshape(1, -1)))
        return self._doubtful(transition, rows, _smallest) if whole.any() else whole.expand(len(rows[0]))

    def _doubtful(self, transition: Tensor, rows: list[Tensor], smallest: Callable[[Tensor], Tensor]) -> Tensor:
        # While no positive entry is below `safe`, no product of the next step underflows; so zeros are real.
        tiny = torch.finfo(transition.dtype).tiny
        evidence = torch.stack([smallest(row) for row in rows]).amin(0)
        safe = tiny / (_smallest(transition.reshape(-1)) * evidence)
        pairs = zip(self.forward, self.backward, strict=True)
        least = torch.stack([smallest(f) * smallest(b) for f, b in pairs]).amin(0)
        return (least < safe) | (evidence < tiny)


def _align(tau: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """One exponent for each row: mantissas (…, S) with largest entry from 1/2 to 1, exponents (…, 1)."""
    if exponent.shape[-1] == 1:
        top = _exponent(tau.amax(-1, keepdim=True))
        return _scale(tau, -top), exponent + top
    shift = _exponent(tau)
    size = torch.where(tau.detach() > 0, shift + exponent, torch.iinfo(torch.int64).min // 2)
    top = size.amax(-1, keepdim=True)
    top = torch.where(top < -(2**60), 0, top)
    return _scale(tau, (exponent - top)), top


def _chain(
    transition: Tensor, initial: Tensor, evidence: Tensor, scale: Tensor, at: slice, own: bool
) -> tuple[Tensor, Tensor]:
    """`chain_weights` with positions first: evidence (T, R, S) to (positions, R, S) and (positions, R, 1).

    Each row of evidence is first divided by two to the power `scale`, (T, R, 1), which is put back in the end.
    """
    nothing = torch.ones_like(evidence[:1])  # H_0 emits nothing
    rows = [*nothing, *_scale(evidence, -scale)]
    passed = _Passed.over(_sweep, transition, initial, rows)
    tau, exponent = _align(*passed.weights(rows, at, own))
    scale = torch.cat([torch.zeros_like(scale[:1]), scale]).to(torch.int64)
    exponent = exponent + scale.sum(0) - (0 if own else scale[at])
    if initial.dtype == torch.float64 and tau.numel():
        redo = (passed.doubtful(transition, rows) | _flushed(evidence, scale[1:])).nonzero().squeeze(-1)
        if len(redo):
            rows = [*nothing[:, redo], *evidence[:, redo]]
            again = _align(*_Passed.over(_sweep_each, transition, initial, rows).weights(rows, at, own))
            tau, exponent = tau.index_copy(1, redo, again[0]), exponent.index_copy(1, redo, again[1])
    return tau, exponent


def _flushed(evidence: Tensor, scale: Tensor) -> Tensor:
    """Rows whose evidence had to be scaled down, (R,), where a positive entry may have become zero: embeddings above 1."""
    least = torch.finfo(evidence.dtype).tiny * torch.exp2(scale[..., 0].to(evidence.dtype))
    return ((scale[..., 0] > 0) & (_smallest(evidence) < least)).any(0)


def chain_weights(transition: Tensor, initial: Tensor, evidence: Tensor, at: slice, own: bool) -> tuple[Tensor, Tensor]:
    """The joint P[H_i, v] for the positions `at` of the chain H_0, …, H_T, up to a power of two.

    Args:
        transition: A, (S, S).
        initial: P[H_0], (S,).
        evidence: (R, T, S), nonnegative; R independent rows.
        at: which of the T + 1 positions.
        own: whether the evidence of the position itself counts; without it, the result is τ_i of (C.1).

    Returns:
        Mantissas (R, positions, S) and exponents of two (R, positions, 1): the joint is mantissa * 2**exponent.
    """
    scale = _exponent(evidence.amax(-1, keepdim=True))
    tau, exponent = _chain(transition, initial, evidence.transpose(0, 1), scale.transpose(0, 1), at, own)
    return tau.transpose(0, 1), exponent.transpose(0, 1)


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
    if isinstance(model, HMM):
        return chain_weights(model.transition, model.initial, evidence, at, own)
    n, prior = len(evidence), model.memory.reshape(-1)
    # One chain for each joint value of the memory.
    rows = evidence.transpose(0, 1).unflatten(2, (len(prior), model.n_states)).flatten(1, 2)
    scale = _exponent(evidence.amax(-1, keepdim=True)).transpose(0, 1).repeat_interleave(len(prior), 1)
    tau, exponent = _chain(model.transition, model.initial, rows, scale, at, own)
    tau, exponent = tau.unflatten(1, (n, len(prior))), exponent.unflatten(1, (n, len(prior)))
    size = exponent + _exponent(prior)[:, None]
    possible = (tau.detach().amax(-1, keepdim=True) > 0) & (prior[:, None] > 0)
    never = torch.iinfo(torch.int64).min // 2
    top = torch.where(possible, size, never).amax(2, keepdim=True)
    top = torch.where(top == never, 0, top)
    share = _scale(_scale(prior, -_exponent(prior))[:, None], size - top)
    return (tau * share).flatten(2).transpose(0, 1), top.squeeze(2).transpose(0, 1)


def _normalise(weights: Tensor) -> Tensor:
    """Divide by the sum over the last axis; a zero vector stays zero."""
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1)


def _evidence(model: HMM | MemoryHMM, embeddings: Tensor) -> Tensor:
    return (
        embeddings if isinstance(model, HMM) or embeddings.shape[-1] == lifted_size(model) else model.lift(embeddings)
    )


def lifted_size(model: HMM | MemoryHMM) -> int:
    """Entries of a message: S, or |M|^N * |H| for a memory model."""
    return model.n_states if isinstance(model, HMM) else model.memory.numel() * model.n_states


def _as_prompt(model: HMM | MemoryHMM, prompt) -> Tensor:
    """A prompt as a vector (S,), or (M*H,) or lifted for a memory model. ValueError for another shape or a bad entry."""
    prompt = as_tensor("prompt", prompt, 1).to(device=model.device, dtype=model.dtype)
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
    return torch.cat([prompt.expand(len(embeddings), 1, -1), embeddings], 1)


def _blocks(model: HMM | MemoryHMM, tokens) -> tuple[Tensor, ...]:
    tokens = as_tokens(tokens, model.n_tokens, model.device)
    return tokens.split(max(1, BLOCK // (tokens.shape[1] * lifted_size(model))))


def _latents(model: HMM | MemoryHMM, embeddings: Tensor) -> Tensor:
    """τ_i / ‖τ_i‖₁ of (C.1), (n, T, S); for a memory model φ(τ_i) / ‖φ(τ_i)‖₁ of (D.3) and (D.4), (n, T, M*H)."""
    tau, _ = aggregated_messages(model, _evidence(model, embeddings), slice(1, None), own=False)
    return _normalise(model.unlift(tau) if isinstance(model, MemoryHMM) else tau)


def _over_blocks(call: Callable[[Tensor], Result], model: HMM | MemoryHMM, tokens) -> list[Result]:
    """`call` of each block of tokens, in order; two at a time where a second core would idle, as a step is small."""
    parts, grad = _blocks(model, tokens), torch.is_grad_enabled()
    if len(parts) == 1 or torch.get_num_threads() == 1 or model.device.type != "cpu":
        return [call(part) for part in parts]

    def work(part: Tensor) -> Result:
        with torch.set_grad_enabled(grad):  # a thread begins with its own setting
            return call(part)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, parts))


def latent_given_others(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """P[H_i | X_{-i} = x_{-i}] at every position, (n, T, S); P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}], (n, T, M*H), with memory.

    With a `prompt`, (n, T + 1, …) and everything conditioned on the fake token too: position i of x is i + 1 then.
    The zero vector where x_{-i} has probability zero. ValueError as `prompted` raises it.
    """
    embed = model.embed if prompt is None else partial(prompted, model, prompt)
    return torch.cat(_over_blocks(lambda part: _latents(model, embed(part)), model, tokens))


def masked_token_probs_from_embeddings(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """Ḡ of appendices C and D.2: row i is W τ_i / ‖τ_i‖₁, the zero vector where ‖τ_i‖₁ = 0.

    Args:
        embeddings: nonnegative, (n, T, S) for an HMM; (n, T, M*H) or lifted (n, T, M^N * H) for a memory model.

    Returns:
        (n, T, X), differentiable in `embeddings`.

    Raises:
        ValueError: a negative or non-finite entry, or a last axis of another length.
    """
    embeddings = as_tensor("embeddings", embeddings, 3, empty=True).to(device=model.device, dtype=model.dtype)
    if embeddings.shape[1] == 0:
        raise ValueError(f"embeddings must have at least one position, not shape {tuple(embeddings.shape)}")
    if embeddings.shape[-1] not in _widths(model):
        raise ValueError(f"embeddings must have {_choice(model)} entries on the last axis, not {embeddings.shape[-1]}")
    return _latents(model, embeddings) @ model.emission.reshape(model.n_tokens, -1).T


def masked_token_probs(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """G of Section 2: (n, T) tokens to (n, T, X); row i is P[X_i | X_{-i} = x_{-i}], whatever token stands at i.

    Positions that hold MASK are not conditioned on. Where x_{-i} has probability zero, row i is the zero vector.
    With a `prompt`, Ḡ of `prompted(model, prompt, tokens)`, (n, T + 1, X), worked on in blocks.
    ValueError for tokens that are no integers, out of range, or not of shape (n, T) with T at least 1, or a bad prompt.
    """
    latents = latent_given_others(model, tokens, prompt)
    return latents @ model.emission.reshape(model.n_tokens, -1).T


def _posteriors(model: HMM | MemoryHMM, tokens, at: int) -> tuple[Tensor, Tensor]:
    """P[H̃_at, X = x] for every sequence: mantissas (n, K * S), exponents (n, 1)."""
    tokens = as_tokens(tokens, model.n_tokens, model.device)
    if at_least("at", at, 0) > tokens.shape[1]:
        raise ValueError(f"at must be 0 to {tokens.shape[1]} for sequences of length {tokens.shape[1]}, not {at}")

    def joint(part: Tensor) -> tuple[Tensor, Tensor]:
        return aggregated_messages(model, _evidence(model, model.embed(part)), slice(at, at + 1), own=True)

    parts = _over_blocks(joint, model, tokens)
    return torch.cat([tau[:, 0] for tau, _ in parts]), torch.cat([exponent[:, 0] for _, exponent in parts])


def posterior(model: HMM | MemoryHMM, tokens, at: int = 0) -> Tensor:
    """P[H_at | X_{1:T} = x], (n, n_states), for `at` from 0 to T; the zero vector where x has probability zero."""
    weights, _ = _posteriors(model, tokens, at)
    return _normalise(weights.unflatten(1, (-1, model.n_states)).sum(1))


def memory_posterior(model: MemoryHMM, tokens, cell: int = 0) -> Tensor:
    """P[M_cell | X_{1:T} = x], (n, n_memory), cells counted from 0; the zero vector where x has probability zero."""
    if not isinstance(model, MemoryHMM):
        raise TypeError(f"memory_posterior needs a MemoryHMM, not {type(model).__name__}")
    if at_least("cell", cell, 0) >= model.n_cells:
        raise ValueError(f"cell must be 0 to {model.n_cells - 1}, not {cell}")
    weights, _ = _posteriors(model, tokens, 0)
    table = weights.reshape(len(weights), *model.memory.shape, model.n_states)
    return _normalise(table.movedim(1 + cell, 1).flatten(2).sum(-1))


def log_likelihood(model: HMM | MemoryHMM, tokens) -> Tensor:
    """log Pr(X_{1:T} = x) in nats, (n,); minus infinity where x has probability zero. MASK positions are summed over."""
    weights, exponent = _posteriors(model, tokens, 0)
    return weights.sum(-1).log() + exponent.squeeze(-1).to(weights.dtype) * math.log(2)


__all__ = [
    "MASK", "aggregated_messages", "chain_weights", "latent_given_others", "lifted_size", "log_likelihood",
    "masked_token_probs", "masked_token_probs_from_embeddings", "memory_posterior", "posterior", "prompted",
]  # fmt: skip
