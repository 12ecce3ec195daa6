"""Words, states and texts of the weather on the page on the prompt of Theorem 4.6, and scores behind a prompt."""

import itertools

import torch

from hmmlib import AttentionHead, MemoryHMM, concentrated, ground_truth, log_likelihood, masked_token_probs, prompted

ROUNDING = 1e-12
THE = 0
SUN = 1
RAIN = 2
NOUN = 1  # the state
BRIGHT = 0
DULL = 1
STORM = 2
HEAT = 3


def in_r(model: MemoryHMM, length: int, syntax: list[int]) -> torch.Tensor:
    """All texts of a length that have a sure position, (n, length)."""
    texts = torch.tensor(list(itertools.product(range(model.n_tokens), repeat=length)))
    texts = texts[log_likelihood(model, texts) > -torch.inf]
    return texts[concentrated(model, texts, 0, syntax).any(1)]


def labels(model: MemoryHMM, mu: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    return ground_truth(model, mu, texts) >= 0


def score(model: MemoryHMM, prompt: torch.Tensor, head: AttentionHead, texts: torch.Tensor) -> torch.Tensor:
    """The score that a head gives behind a prompt."""
    return head(masked_token_probs(model, texts, prompt), prompted(model, prompt, texts))


def nonempty_sets(count: int) -> list[tuple[int, ...]]:
    """All nonempty sets of so many things."""
    sets = []
    for size in range(1, count + 1):
        sets += itertools.combinations(range(count), size)
    return sets
