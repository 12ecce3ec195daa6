"""How often is the head of Theorem 4.3 right where the predictions that it reads have errors?"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmlib import AttentionHead, MemoryHMM, masked_token_probs
from hmmlib.theory.heads import share_right


def add_noise(probs: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Add normal noise to each entry of predictions. Negative entries become 0.

    Args:
        probs: Predictions, (n, T, X).
        size: The standard deviation of the noise.
        generator: Where the noise is drawn from.

    Returns:
        The noisy predictions, (n, T, X), whose rows need not sum to 1.
    """
    noise = size * torch.randn(probs.shape, generator=generator, dtype=probs.dtype)
    return (probs + noise).clamp(min=0)


def accuracy_with_noise(
    model: MemoryHMM,
    head: AttentionHead,
    inputs: Tensor,
    labels: Tensor,
    size: float,
    generator: torch.Generator,
    draws: int = 50,
) -> float:
    """Return the mean share of labels that an attention head gets right from predictions with noise.

    Args:
        model: The model whose exact predictions get the noise.
        head: The head.
        inputs: Texts, (n, T).
        labels: Their labels, (n,) bool.
        size: The standard deviation of the noise in each entry.
        generator: Where the noise is drawn from.
        draws: How often all predictions get new noise.
    """
    exact = masked_token_probs(model, inputs)
    embeddings = model.embed(inputs)
    total = 0.0
    for _ in range(draws):
        noisy = add_noise(exact, size, generator)
        total += share_right(head(noisy, embeddings) >= 0, labels)
    return total / draws
