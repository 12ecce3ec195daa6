"""τ, G, Ḡ, posteriors and likelihood as the paper prints them (Section 2, appendices C and D.2): to be read.

`messages` computes the same fast, at any length; the tests hold it against this. Here the paper's own messages are passed,
by its letters: P[H_i], δ→ from i - 1 to i, δ← from i + 1 to i, and τ_i of them. A memory model is passed along as the chain
H̃_i = (M_1, …, M_N, H_i). Two things are added to the page: the messages go on to H_0, which emits nothing (v_0 is ones), and
0 / 0 is 0 wherever something is divided. The paper says so of (D.3) and of Ḡ; of the chain in reverse it then is true of
states that are never reached. The first and the last case of (C.1) are the middle one, where a message is P[H_i] itself.

For short sequences and small models only: float64 without any scaling, so that the probability of a text of some hundred
tokens is lost below the smallest float, and with it the result (zeros); and H̃ has |M|^N * |H| states, multiplied out.
Arguments and shapes are those of the functions of the same name in `messages`; results are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmlib.inference.messages import as_evidence, prompted
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import index_to, of_type


def _quotient(part: Tensor, total: Tensor) -> Tensor:
    """part / total, entry by entry; 0 where the total is 0."""
    return torch.where(total > 0, part / torch.where(total > 0, total, 1), 0)


def _normalised(vectors: Tensor) -> Tensor:
    """Each vector (last axis) divided by its 1-norm; the zero vector stays what it is."""
    return _quotient(vectors, vectors.sum(-1, keepdim=True))


def _chain(model: HMM | MemoryHMM) -> tuple[Tensor, Tensor]:
    """P[H_i | H_{i-1}] and P[H_0]; for a memory model those of H̃: a step changes h and leaves the memory as it is."""
    transition, initial = model.transition.double(), model.initial.double()
    if isinstance(model, HMM):
        return transition, initial
    memory = model.memory.double().flatten()
    return torch.kron(torch.eye(len(memory)).to(transition), transition), torch.kron(memory, initial)


def _tau(model: HMM | MemoryHMM, v: Tensor) -> Tensor:
    """τ_0(v), …, τ_t(v), (t + 1, S, n), where column k of each v_i belongs to sequence k: v is (t + 1, S, n)."""
    transition, initial = _chain(model)
    last = len(v) - 1
    marginal = [initial[:, None]]  # P[H_i]
    for _ in range(last):
        marginal.append(transition @ marginal[-1])
    right = [marginal[0].expand_as(v[0])]
    for i in range(last):
        right.append(transition @ (right[i] * v[i]))  # δ→ from i to i + 1
    left = [marginal[last].expand_as(v[0])]
    for i in range(last, 0, -1):
        reverse = _quotient(transition * marginal[i - 1].T, marginal[i]).T  # P[H_{i-1} | H_i], by Bayes' rule
        left.insert(0, reverse @ (left[0] * v[i]))  # δ← from i to i - 1
    return _quotient(torch.stack(left) * torch.stack(right), torch.stack(marginal))  # (C.1), (D.3)


def _from_start(model: HMM | MemoryHMM, embeddings) -> tuple[Tensor, Tensor]:
    """τ_0, …, τ_t and v_0, …, v_t of checked embeddings, lifted for a memory model: both (n, t + 1, S)."""
    v = as_evidence(model, embeddings).double()
    v = torch.cat([torch.ones_like(v[:, :1]), v], 1)  # H_0 emits nothing
    return _tau(model, v.permute(1, 2, 0)).permute(2, 0, 1), v


def _embedded(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    of_type("model", model, HMM, MemoryHMM)
    return model.embed(tokens) if prompt is None else prompted(model, prompt, tokens)


def tau(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """τ_i(v) of (C.1), or of (D.3) for a memory model: P[H_i, X_{-i} = x_{-i}] for embeddings of tokens.

    Args:
        embeddings: as `masked_token_probs_from_embeddings` takes them.

    Returns:
        (n, T, S), or (n, T, M^N * H). ValueError as `messages.masked_token_probs_from_embeddings` raises it.
    """
    return _from_start(model, embeddings)[0][:, 1:]


def _latents(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """τ_i / ‖τ_i‖₁, or φ(τ_i) / ‖φ(τ_i)‖₁ for a memory model."""
    found = tau(model, embeddings)
    return _normalised(found if isinstance(model, HMM) else model.unlift(found))


def masked_token_probs_from_embeddings(model: HMM | MemoryHMM, embeddings) -> Tensor:
    """Ḡ_i(v) = W τ_i(v) / ‖τ_i(v)‖₁, (n, T, X), with φ(τ_i) for τ_i in a memory model; zeros where ‖τ_i‖₁ = 0."""
    return _latents(model, embeddings) @ model.emission.double().flatten(1).T  # (D.1)


def masked_token_probs(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """G_i(x) = Ḡ_i(e(x)) = P[X_i | X_{-i} = x_{-i}], (n, T, X); Ḡ(ê(x)) behind a prompt, (n, T + 1, X)."""
    return masked_token_probs_from_embeddings(model, _embedded(model, tokens, prompt))


def latent_given_others(model: HMM | MemoryHMM, tokens, prompt=None) -> Tensor:
    """P[H_i | X_{-i} = x_{-i}], (n, T, S); P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}], (n, T, M*H), with memory."""
    return _latents(model, _embedded(model, tokens, prompt))


def posteriors(model: HMM | MemoryHMM, tokens) -> Tensor:
    """P[H_i | X_{1:T} = x] for i from 0 to T, (n, T + 1, n_states): τ_i ⊙ e(x_i), summed over the memory, and scaled."""
    found, v = _from_start(model, _embedded(model, tokens))
    return _normalised((found * v).unflatten(-1, (-1, model.n_states)).sum(-2))


def memory_posterior(model: MemoryHMM, tokens, cell: int = 0) -> Tensor:
    """P[M_cell | X_{1:T} = x], (n, n_memory): τ_0 summed over all other cells and over H_0, and scaled."""
    of_type("model", model, MemoryHMM)
    cell = index_to("cell", cell, model.n_cells - 1)
    found = _from_start(model, _embedded(model, tokens))[0][:, 0]
    by_cell = found.unflatten(-1, (*model.memory.shape, model.n_states)).movedim(1 + cell, 1)
    return _normalised(by_cell.flatten(2).sum(-1))


def log_likelihood(model: HMM | MemoryHMM, tokens) -> Tensor:
    """log Pr(X_{1:T} = x) in nats, (n,): ‖τ_0‖₁, for H_0 has no token to leave out."""
    return _from_start(model, _embedded(model, tokens))[0][:, 0].sum(-1).log()
