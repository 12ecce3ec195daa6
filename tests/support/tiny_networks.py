"""A network of one layer whose output hangs on its input, and inputs for it."""

import torch

from hmmlib.training.bert import Shape, build
from hmmlib.validation import MASK


def lively(dropout=0.0):
    """A network whose output hangs on its input; that of fresh weights, which are small, hardly does."""
    network = build(Shape(layers=1, width=16, heads=2, max_length=10, dropout=dropout), 4, 0)
    with torch.no_grad():
        for matrix in (p for p in network.parameters() if p.ndim == 2):
            matrix *= 20
    return network.eval()


def inputs(n=40, length=6, seed=0):
    tokens = torch.randint(0, 4, (n, length), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0] = MASK
    return tokens
