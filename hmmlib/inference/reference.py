"""τ, G, Ḡ, posteriors and likelihood as the paper prints them (Section 2, appendices C and D.2), written to be read.

`messages` computes the same fast and at any length, and the tests compare it with this module. Here the paper's own
messages are passed, by its letters: P[H_i], δ← from i + 1 to i, δ→ from i - 1 to i, and τ_i made of them. A memory
model is run as the chain H̃_i = (M_1, …, M_N, H_i), with all its |M|^N * |H| states.

Two things are added to what is printed. The messages go on to H_0, which emits nothing, so v_0 is ones. And 0 / 0 is 0
wherever something is divided, as the paper says of (D.3) and Ḡ. The first and last case of (C.1) are the middle one,
where a message is P[H_i].

This is for short sequences and small models. It computes in float64 without any scaling, so the probability of a text
of some hundred tokens becomes zero. Arguments and shapes are those of the functions of the same name in `messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.inference.evidence import as_evidence, prompted
from hmmlib.models.hmm import HMM, MemoryHMM, unlift
from hmmlib.validation import integer, of_type

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike


def _quotient(part: Tensor, total: Tensor) -> Tensor:
    """Divide part by total, entry by entry. The quotient is 0 where the total is 0."""
    divisor = torch.where(total > 0, total, 1)
    return torch.where(total > 0, part / divisor, 0)


def _normalised(vectors: Tensor) -> Tensor:
    return _quotient(vectors, vectors.sum(-1, keepdim=True))


def _chain(model: HMM | MemoryHMM) -> tuple[Tensor, Tensor]:
    """Return P[H_i | H_{i-1}] and P[H_0], or those of H̃. A step of H̃ leaves the memory as it is."""
    transition = model.transition.double()
    initial = model.initial.double()
    if isinstance(model, HMM):
        return transition, initial
    memory = model.memory.double().flatten()
    no_step = torch.eye(len(memory), dtype=transition.dtype, device=transition.device)
    return torch.kron(no_step, transition), torch.kron(memory, initial)


def _from_start(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """Return the evidence v_0, …, v_t, lifted, (t + 1, S, n), with a column for each sequence."""
    v = as_evidence(model, embeddings).double().permute(1, 2, 0)
    return torch.cat([torch.ones_like(v[:1]), v])


def left_and_right(model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]) -> tuple[Tensor, ...]:
    """Return P[H_i] and the messages δ← from i + 1 and δ→ from i - 1, for i = 0, …, t.

    Returns:
        P[H_i], (t + 1, S, 1), and both messages, (t + 1, S, n).

    Raises:
        ValueError: as `masked_token_probs_from_embeddings` raises it.
    """
    v = _from_start(model, embeddings)
    A, start = _chain(model)
    t = len(v) - 1
    p = [start[:, None]]
    for i in range(t):
        p.append(A @ p[i])
    right = [p[0].expand_as(v[0])]
    for i in range(t):
        right.append(A @ (right[i] * v[i]))
    left = [p[t].expand_as(v[0])]
    for i in range(t, 0, -1):
        back = _quotient(A * p[i - 1].T, p[i]).T  # P[H_{i-1} | H_i], by Bayes' rule
        left.insert(0, back @ (left[0] * v[i]))
    return torch.stack(p), torch.stack(left), torch.stack(right)


def _tau_from_start(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """Return τ_0, …, τ_t, (t + 1, S, n)."""
    p, left, right = left_and_right(model, embeddings)
    return _quotient(left * right, p)  # (C.1), (D.3)


def tau(model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]) -> Float[Tensor, "n T S"]:
    """Return τ_i(v) of (C.1), or of (D.3), (n, T, S) or (n, T, M^N * H).

    For tokens it is P[H_i, X_{-i} = x_{-i}].
    """
    return _tau_from_start(model, embeddings)[1:].permute(2, 0, 1)


def _phi(model: HMM | MemoryHMM, taus: Tensor) -> Tensor:
    """Return τ_i itself, (n, T, S), or φ(τ_i) of (D.4) for a memory model, (n, T, M*H)."""
    if isinstance(model, HMM):
        return taus
    return unlift(taus, model.n_cells, model.n_memory)  # The model's own method would round to the model's dtype.


def masked_token_probs_from_embeddings(
    model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]
) -> Float[Tensor, "n T X"]:
    """Return Ḡ_i(v) = W τ_i(v) / ‖τ_i(v)‖₁, (n, T, X), with φ(τ_i(v)) in a memory model.

    It is zero where ‖τ_i(v)‖₁ = 0.
    """
    W = model.emission.double().flatten(1)
    return _normalised(_phi(model, tau(model, embeddings))) @ W.T  # (D.1)


def _embedded(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    of_type("model", model, HMM, MemoryHMM)
    if prompt is None:
        return model.embed(tokens)
    return prompted(model, prompt, tokens)


def masked_token_probs(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T X"]:
    """Return G_i(x) = Ḡ_i(e(x)) = P[X_i | X_{-i} = x_{-i}], (n, T, X), or Ḡ(ê(x)) with a prompt, (n, T + 1, X)."""
    return masked_token_probs_from_embeddings(model, _embedded(model, tokens, prompt))


def latent_given_others(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T S"]:
    """Return P[H_i | X_{-i} = x_{-i}], (n, T, S), or P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}], (n, T, M*H)."""
    return _normalised(_phi(model, tau(model, _embedded(model, tokens, prompt))))


def posteriors(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T+1 S"]:
    """Return P[H_i | X_{1:T} = x] for i from 0 to T, (n, T + 1, S): τ_i ⊙ e(x_i), summed over the memory, scaled."""
    embeddings = _embedded(model, tokens)
    joint = _tau_from_start(model, embeddings) * _from_start(model, embeddings)
    by_memory = joint.permute(2, 0, 1).unflatten(-1, (-1, model.n_states))
    return _normalised(by_memory.sum(-2))


def memory_posterior(model: MemoryHMM, tokens: Int[ArrayLike, "n T"], cell: int = 0) -> Float[Tensor, "n M"]:
    """Return P[M_cell | X_{1:T} = x], (n, M): τ_0 summed over all other cells and over H_0, and scaled."""
    of_type("model", model, MemoryHMM)
    cell = integer("cell", cell, 0, model.n_cells - 1)
    joint = _tau_from_start(model, _embedded(model, tokens))[0].T
    by_cell = joint.unflatten(-1, (*model.memory.shape, model.n_states)).movedim(1 + cell, 1)
    return _normalised(by_cell.flatten(2).sum(-1))


def log_likelihood(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, " n"]:
    """Return log Pr(X_{1:T} = x) in nats, (n,). Pr is ‖τ_0‖₁, because H_0 has no token that could be left out."""
    return _tau_from_start(model, _embedded(model, tokens))[0].sum(0).log()
