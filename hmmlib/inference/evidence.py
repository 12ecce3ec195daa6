"""Evidence: what is known of each position of a text.

Inference takes evidence, not tokens. The evidence of position i is a vector v_i with a nonnegative number for each
state, which says how well what is known of the position fits the state. For a token it is the token's row of W. For a
masked position it is a row of ones, because nothing is known. For a prompt it is any vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import MASK, as_tensor, as_tokens, of_type

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike


class Evidence(NamedTuple):
    """The evidence of texts, as a table of the different vectors and an index of where they occur.

    Texts repeat tokens, so there are usually far fewer different vectors than positions.
    """

    rows: Tensor
    """The different vectors, one in each row, (R, S). For a memory model they are lifted, (R, M^N * H)."""
    index: Tensor
    """The row of each position of each text, (n, T). -1 is the last row."""


def lifted_size(model: HMM | MemoryHMM) -> int:
    """Return how many entries a message has: S, or M^N * H for a memory model."""
    if isinstance(model, HMM):
        return model.n_states
    return model.memory.numel() * model.n_states


def as_embeddings(name: str, model: HMM | MemoryHMM, values: ArrayLike, ndim: int) -> Tensor:
    """Return embeddings or a prompt as a tensor, after a check.

    Args:
        name: what they are called in the message of an error.
        model: the model.
        values: nonnegative numbers. The last axis is as wide as the embedding of a token, or as a lifted one.
        ndim: how many axes they must have.

    Raises:
        ValueError: an entry is negative or not finite, or the shape does not fit.
    """
    of_type("model", model, HMM, MemoryHMM)
    values = as_tensor(name, values, ndim, empty=ndim > 1, like=model.initial)
    widths = sorted({model.emission[0].numel(), lifted_size(model)})
    if values.shape[-1] not in widths or 0 in values.shape[1:]:
        width = " or ".join(map(str, widths))
        raise ValueError(
            f"{name} must have {width} entries on the last axis, and one position or more, "
            f"not shape {tuple(values.shape)}"
        )
    return values


def lifted(model: HMM | MemoryHMM, embeddings: Tensor) -> Tensor:
    """Return η(v), the lifted embeddings of a memory model. Lifted ones, and those of an HMM, stay as they are."""
    if embeddings.shape[-1] == lifted_size(model):
        return embeddings
    return model.lift(embeddings)


def as_evidence(model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]) -> Float[Tensor, "n T S"]:
    """Check embeddings and return them lifted, (n, T, S), or (n, T, M^N * H) for a memory model.

    Raises:
        ValueError: an entry is negative or not finite, or the last axis has another width.
    """
    return lifted(model, as_embeddings("embeddings", model, embeddings, 3))


def evidence_of_embeddings(model: HMM | MemoryHMM, embeddings: Float[ArrayLike, "n T S"]) -> Evidence:
    """Return embeddings as evidence that has a row of its own for each position."""
    vectors = as_evidence(model, embeddings)
    n, length, _ = vectors.shape
    index = torch.arange(n * length, device=model.device).reshape(n, length)
    return Evidence(vectors.flatten(0, 1), index)


def evidence_of_tokens(
    model: HMM | MemoryHMM, tokens: Int[ArrayLike, "n T"], prompt: Float[ArrayLike, " S"] | None = None
) -> Evidence:
    """Return the evidence of tokens, or of `prompted(model, prompt, tokens)`.

    If there is a prompt, it is the first row. Then there is a row for each of the tokens 0, …, X - 1, and one for MASK.
    """
    of_type("model", model, HMM, MemoryHMM)
    tokens = as_tokens(tokens, model.n_tokens, model.device)
    vocabulary = torch.tensor([*range(model.n_tokens), MASK], device=model.device)[:, None]
    if prompt is None:
        rows = model.embed(vocabulary)[:, 0]
        return Evidence(lifted(model, rows), tokens)
    # `prompted` makes (u, e(z)) for each token z. Both are as wide as the prompt u, which may be lifted.
    pairs = prompted(model, prompt, vocabulary)  # (X + 1, 2, width)
    rows = torch.cat([pairs[:1, 0], pairs[:, 1]])  # These are the prompt, the tokens 0, …, X - 1, and MASK.
    index = torch.where(tokens == MASK, -1, tokens + 1)  # The prompt is row 0, so token z is row z + 1.
    prompt_index = torch.zeros_like(tokens[:, :1])
    return Evidence(lifted(model, rows), torch.cat([prompt_index, index], 1))


def prompted(
    model: HMM | MemoryHMM, prompt: Float[ArrayLike, " S"], tokens: Int[ArrayLike, "n T"]
) -> Float[Tensor, "n T+1 S"]:
    """Return embeddings with a prompt in front, ê(x) = (u, e(x_1), …, e(x_T)).

    This is (4.4) of the paper. For (3.2), pass `tokens` that begin with MASK.

    Args:
        model: the model.
        prompt: the vector u, of nonnegative numbers. It is (S,) for an HMM. For a memory model it is (M*H,), or lifted,
            (M^N * H,).
        tokens: texts, (n, T).

    Returns:
        Embeddings as wide as the prompt, (n, T + 1, S), (n, T + 1, M*H) or (n, T + 1, M^N * H).

    Raises:
        ValueError: the prompt has a negative or infinite entry, a token is out of range, or a shape does not fit.

    Example:
        >>> from hmmlib import random_hmm
        >>> prompted(random_hmm(2, 3), [0.5, 1.0], [[0, 2, 1]]).shape
        torch.Size([1, 4, 2])
    """
    prompt = as_embeddings("prompt", model, prompt, 1)
    embeddings = model.embed(tokens)
    if embeddings.shape[-1] != len(prompt):
        embeddings = model.lift(embeddings)
    return torch.cat([prompt.expand(len(embeddings), 1, -1), embeddings], 1)  # (3.2), (4.4)
