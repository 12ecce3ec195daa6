"""Conditional probabilities from the messages of appendices C and D.2, computed fast and at any length.

The module `reference` has the same formulas as the paper prints them, so read that first. A message sums up what the
evidence of all positions on one side of a position says of its state. The module `evidence` says what evidence is.

What is impossible has probability exactly 0. In float64 a probability of 1e-100 or more is right to 1e-12 of itself, at
any length, under two conditions:

1. No nonzero entry of A, of P[H_0], or of a row of evidence (relative to its largest) is below 1e-100.
2. The text does not contradict itself. That is, at every position the states that the text before it allows and those
   that the text after it needs overlap by 1e-100 or more of their weight.

Where A has no zeros, the second condition always holds. A text drawn from the model breaks it with a probability of
about 1e-100. If a condition does not hold, what is so unlikely may count as impossible, and a gradient may be NaN. In
float32 the bound is 1e-30 instead of 1e-100. `possible_given_others` is right in any case.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmmlib.device import without_autocast
from hmmlib.inference import variables
from hmmlib.inference.evidence import evidence_of_embeddings, evidence_of_tokens
from hmmlib.inference.forward_backward import Message, both_passes
from hmmlib.inference.laws import law_given_evidence
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import integer, of_type

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from numpy.typing import ArrayLike

EVERY_TOKEN = slice(1, None)
"""The positions 1, …, T of the chain H_0, …, H_T."""


def masked_token_probs(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T X"]:
    """Return the ideal masked language model G of Section 2, whose row i is P[X_i | X_{-i} = x_{-i}].

    Here x is a text, and x_{-i} are all its tokens but the i-th. Positions that hold MASK are not conditioned on. With
    a prompt the result is Ḡ of `prompted(model, prompt, tokens)`, and position i of x becomes i + 1.

    Args:
        model: the model.
        tokens: texts, (n, T), of integers from 0 to X - 1, or MASK.
        prompt: one vector that is put in front of every text, as `prompted` does it.

    Returns:
        Distributions, (n, T, X), or (n, T + 1, X) with a prompt. A row is zero where x_{-i} has probability zero.

    Raises:
        ValueError: the tokens are not integers, are out of range, or have another shape, or `prompted` does not take
            the prompt.

    Example:
        >>> from hmmlib import MASK, random_hmm
        >>> probs = masked_token_probs(random_hmm(2, 3), [[0, MASK, 1]])
        >>> probs.shape
        torch.Size([1, 3, 3])
    """
    evidence = evidence_of_tokens(model, tokens, prompt)
    probs, _ = law_given_evidence(model, evidence, variables.token(model), at=EVERY_TOKEN, with_own_evidence=False)
    return probs


def masked_token_probs_from_embeddings(
    model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]
) -> Float[Tensor, "n T X"]:
    """Return Ḡ of appendices C and D.2, whose row i is W τ_i / ‖τ_i‖₁, or the zero vector if ‖τ_i‖₁ = 0.

    Here τ_i is the product of the messages from both sides of position i, as `aggregated_messages` gives it. In a
    memory model it is reduced by φ of (D.4) first. Gradients with respect to `embeddings` are right at zeros too. If
    ‖τ_i‖₁ = 0 there is no derivative, and the gradient is zero.

    Args:
        model: the model.
        embeddings: nonnegative numbers, (n, T, S) for an HMM. For a memory model they are (n, T, M*H), or lifted,
            (n, T, M^N * H).

    Returns:
        Distributions, (n, T, X).

    Raises:
        ValueError: an entry is negative or not finite, or the last axis has another width.

    Example:
        >>> from hmmlib import random_hmm
        >>> model = random_hmm(2, 3)
        >>> masked_token_probs_from_embeddings(model, model.embed([[0, 2, 1]])).shape
        torch.Size([1, 3, 3])
    """
    evidence = evidence_of_embeddings(model, embeddings)
    probs, _ = law_given_evidence(model, evidence, variables.token(model), at=EVERY_TOKEN, with_own_evidence=False)
    return probs


def latent_given_others(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Float[Tensor, "n T S"]:
    """Return the distribution of the latent at every position, given all other tokens.

    The latent is what a token depends on. For an HMM the result is P[H_i | X_{-i} = x_{-i}]. For a memory model it is
    P[M_{J_i}, J_i, S_i | X_{-i} = x_{-i}].

    Args:
        model: the model.
        tokens: texts, (n, T).
        prompt: one vector that is conditioned on too. Then position i of x becomes i + 1.

    Returns:
        (n, T, S) or (n, T, M*H), or with T + 1 in the place of T. It is zero where x_{-i} has probability zero.

    Raises:
        ValueError: `prompted` does not take the tokens or the prompt.

    Example:
        >>> from hmmlib import random_hmm
        >>> latent_given_others(random_hmm(2, 3), [[0, 2, 1]]).shape
        torch.Size([1, 3, 2])
    """
    evidence = evidence_of_tokens(model, tokens, prompt)
    law, _ = law_given_evidence(model, evidence, variables.latent(model), at=EVERY_TOKEN, with_own_evidence=False)
    return law


@without_autocast()
def possible_given_others(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Bool[Tensor, "n T S"]:
    """Tell whether each entry of `latent_given_others` is positive, even if it is too small for a float.

    Only the places of the zeros in the model and in the evidence are used, so underflow does not matter.

    Args:
        model: the model.
        tokens: texts, (n, T).
        prompt: one vector that is conditioned on too.

    Returns:
        As `latent_given_others`, of dtype bool.

    Raises:
        ValueError: `prompted` does not take the tokens or the prompt.

    Example:
        >>> from hmmlib import random_hmm
        >>> possible_given_others(random_hmm(2, 3), [[0, 2, 1]]).all()
        tensor(True)
    """
    evidence = evidence_of_tokens(model, tokens, prompt)
    variable = variables.latent(model)
    initial = model.initial
    if isinstance(model, MemoryHMM):
        initial = model.memory.reshape(-1, 1) * support(initial)
    rows = support(evidence.rows)[evidence.index].unflatten(2, (-1, model.n_states)).unbind(1)
    rows = [torch.ones_like(rows[0]), *rows]  # H_0 emits nothing.
    forward, backward = both_passes(support(model.transition), support(initial), rows, _support_of_message)
    from_left = torch.stack([message for message, _ in forward[1:]], 1)
    from_right = torch.stack([message for message, _ in backward[1:]], 1)
    sums = torch.einsum("gk,npks->npgs", variable.groups, from_left * from_right).flatten(2)
    return sums[..., variable.entries] > 0


def support(values: Tensor) -> Tensor:
    """Return 1 where a value is positive, and 0 elsewhere."""
    return (values.detach() > 0).to(values.dtype)


def _support_of_message(message: Tensor, exponent: Tensor) -> Message:
    """Return the support of a message. This takes the place of `forward_backward.rescaled`."""
    return support(message), exponent


def posteriors(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, "n T+1 S"]:
    """Return P[H_i | X_{1:T} = x] for all i from 0 to T.

    In a memory model H_i is (J_i, S_i), and the probabilities are summed over the memory.

    Args:
        model: the model.
        tokens: texts, (n, T).

    Returns:
        (n, T + 1, S). It is zero where x has probability zero.

    Raises:
        ValueError: the tokens are not integers, are out of range, or have another shape.

    Example:
        >>> from hmmlib import random_hmm
        >>> posteriors(random_hmm(2, 3), [[0, 2, 1]]).shape
        torch.Size([1, 4, 2])
    """
    evidence = evidence_of_tokens(model, tokens)
    law, _ = law_given_evidence(model, evidence, variables.state(model), at=slice(None), with_own_evidence=True)
    return law


def posterior(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], at: int = 0) -> Float[Tensor, "n S"]:
    """Return P[H_at | X_{1:T} = x] for one position.

    Args:
        model: the model. In a memory model H_at is (J_at, S_at).
        tokens: texts, (n, T).
        at: a position of the chain, from 0 to T.

    Returns:
        (n, S). It is zero where x has probability zero.

    Raises:
        ValueError: the position or the tokens are out of range.

    Example:
        >>> from hmmlib import random_hmm
        >>> posterior(random_hmm(2, 3), [[0, 2, 1]], at=0).sum()
        tensor(1., dtype=torch.float64)
    """
    evidence = evidence_of_tokens(model, tokens)
    length = evidence.index.shape[1]
    at = integer("at", at, 0, length)
    law, _ = law_given_evidence(model, evidence, variables.state(model), at=slice(at, at + 1), with_own_evidence=True)
    return law.squeeze(1)


def memory_posterior(model: MemoryHMM, tokens: Int[ArrayLike, "n T"], cell: int = 0) -> Float[Tensor, "n M"]:
    """Return P[M_cell | X_{1:T} = x].

    Args:
        model: a memory model.
        tokens: texts, (n, T).
        cell: a memory cell, counted from 0.

    Returns:
        (n, M). It is zero where x has probability zero.

    Raises:
        ValueError: there is no such cell, or the tokens are out of range.

    Example:
        >>> from hmmlib import random_memory_hmm
        >>> memory_posterior(random_memory_hmm(2, 2, 3), [[0, 2, 1]]).shape
        torch.Size([1, 2])
    """
    of_type("model", model, MemoryHMM)
    cell = integer("cell", cell, 0, model.n_cells - 1)
    evidence = evidence_of_tokens(model, tokens)
    law, _ = law_given_evidence(
        model, evidence, variables.memory_cell(model, cell), at=slice(1), with_own_evidence=True
    )
    return law.squeeze(1)


def log_likelihood(model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"]) -> Float[Tensor, " n"]:
    """Return the natural logarithm of Pr(X_{1:T} = x), the probability of a text.

    Args:
        model: the model.
        tokens: texts, (n, T). Positions that hold MASK are summed over.

    Returns:
        (n,). It is minus infinity where x has probability zero.

    Raises:
        ValueError: the tokens are not integers, are out of range, or have another shape.

    Example:
        >>> from hmmlib import random_hmm
        >>> bool(log_likelihood(random_hmm(2, 3), [[0, 2, 1]]) < 0)
        True
    """
    evidence = evidence_of_tokens(model, tokens)
    _, likelihoods = law_given_evidence(
        model, evidence, variables.state(model), at=slice(1), with_own_evidence=True, with_likelihood=True
    )
    mantissa, exponent = likelihoods.squeeze(1).unbind(-1)
    possible = mantissa > 0
    # The logarithm of zero would make the gradient of all others NaN.
    log_mantissa = torch.where(possible, mantissa, 1).log()
    return torch.where(possible, log_mantissa + exponent * math.log(2), -torch.inf)
