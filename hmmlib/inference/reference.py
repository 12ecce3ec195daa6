"""τ, G, Ḡ, posteriors and likelihood as the paper prints them (Section 2, appendices C and D.2), written to be read.

The module `messages` computes the same fast and at any length, and the tests compare it with this one. Here the paper's
own messages are passed, and they have its letters. They are P[H_i], δ← from i + 1 to i, and δ→ from i - 1 to i, and
τ_i is made of these three. A memory model is run as the chain H̃_i = (M_1, …, M_N, H_i), with all its |M|^N * |H|
states.

Two things are added to what is printed. First, the messages go on to H_0, which emits nothing, so v_0 is ones. Second,
0 / 0 is 0 wherever something is divided, as the paper says of (D.3) and Ḡ. The first and the last case of (C.1) need no
code of their own, because they are its middle case with P[H_i] in the place of a message.

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
    """Divide each vector by its sum. A vector of zeros stays as it is."""
    return _quotient(vectors, vectors.sum(-1, keepdim=True))


def _chain(model: HMM | MemoryHMM) -> tuple[Tensor, Tensor]:
    """Return P[H_i | H_{i-1}] and P[H_0], or the same of H̃ for a memory model. A step leaves the memory as it is."""
    transition = model.transition.double()
    initial = model.initial.double()
    if isinstance(model, HMM):
        return transition, initial
    memory = model.memory.double().flatten()
    no_step = torch.eye(len(memory), dtype=transition.dtype, device=transition.device)
    return torch.kron(no_step, transition), torch.kron(memory, initial)


def _from_start(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """Return the lifted evidence v_0, …, v_t, (t + 1, S, n), with a column for each sequence."""
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
    """Return τ_i(v) of (C.1), (n, T, S), or for a memory model that of (D.3), (n, T, M^N * H).

    If v are the embeddings of tokens x, it is P[H_i, X_{-i} = x_{-i}], or P[H̃_i, X_{-i} = x_{-i}].
    """
    return _tau_from_start(model, embeddings)[1:].permute(2, 0, 1)


def _phi(model: HMM | MemoryHMM, taus: Tensor) -> Tensor:
    """Return τ_i itself, (n, T, S), or φ(τ_i) of (D.4) for a memory model, (n, T, M*H)."""
    if isinstance(model, HMM):
        return taus
    return unlift(taus, model.n_cells, model.n_memory)  # MemoryHMM.unlift would round to the model's dtype.


def masked_token_probs_from_embeddings(
    model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]
) -> Float[Tensor, "n T X"]:
    """Return Ḡ_i(v) = W τ_i(v) / ‖τ_i(v)‖₁, (n, T, X), with φ(τ_i(v)) in a memory model.

    It is zero where ‖τ_i(v)‖₁ = 0.
    """
    W = model.emission.double().flatten(1)
    return _normalised(_phi(model, tau(model, embeddings))) @ W.T  # (D.1)


def _embedded(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """Return e(x), or ê(x) if there is a prompt."""
    of_type("model", model, HMM, MemoryHMM)
    if prompt is None:
        return model.embed(tokens)
    return prompted(model, prompt, tokens)


def masked_token_probs(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T X"]:
    """Return G_i(x) = Ḡ_i(e(x)) = P[X_i | X_{-i} = x_{-i}], (n, T, X).

    With a prompt it is Ḡ(ê(x)), (n, T + 1, X).
    """
    return masked_token_probs_from_embeddings(model, _embedded(model, tokens, prompt))


def latent_given_others(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T S"]:
    """Return P[H_i | X_{-i} = x_{-i}], (n, T, S).

    For a memory model it is P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}], (n, T, M*H).
    """
    return _normalised(_phi(model, tau(model, _embedded(model, tokens, prompt))))


def posteriors(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T+1 S"]:
    """Return P[H_i | X_{1:T} = x] for i from 0 to T, (n, T + 1, S).

    It is τ_i ⊙ e(x_i), summed over the memory, and divided by its sum.
    """
    embeddings = _embedded(model, tokens)
    joint = _tau_from_start(model, embeddings) * _from_start(model, embeddings)
    by_memory = joint.permute(2, 0, 1).unflatten(-1, (-1, model.n_states))
    return _normalised(by_memory.sum(-2))


def memory_posterior(model: MemoryHMM, tokens: Int[ArrayLike, "n T"], cell: int = 0) -> Float[Tensor, "n M"]:
    """Return P[M_cell | X_{1:T} = x], (n, M).

    It is τ_0, summed over all other cells and over H_0, and divided by its sum.
    """
    of_type("model", model, MemoryHMM)
    cell = integer("cell", cell, 0, model.n_cells - 1)
    joint = _tau_from_start(model, _embedded(model, tokens))[0].T
    by_cell = joint.unflatten(-1, (*model.memory.shape, model.n_states)).movedim(1 + cell, 1)
    return _normalised(by_cell.flatten(2).sum(-1))


def log_likelihood(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, " n"]:
    """Return the natural logarithm of Pr(X_{1:T} = x), (n,).

    The probability is ‖τ_0‖₁. This τ leaves out no token, because H_0 has none.
    """
    return _tau_from_start(model, _embedded(model, tokens))[0].sum(0).log()
