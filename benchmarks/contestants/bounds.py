"""What the machine allows: to write as many bytes as a result has, and to multiply matrices."""

from __future__ import annotations

import numpy as np
import torch


def fill(entries: int, dtype: str, fresh: bool):
    """Write an array once; a fresh one that the system has yet to map, or the same one again."""

    def new() -> torch.Tensor:
        # As the library takes memory for results: numpy asks the system for large pages, torch does not.
        return torch.from_numpy(np.empty(entries, dtype))

    if fresh:
        return lambda: new().fill_(1), lambda result: None
    old = new().fill_(0)
    return lambda: old.fill_(1), lambda result: None


def product(size: int, dtype: str):
    """A product of two square matrices, 2 size³ operations, into memory that is there."""
    a, b = (torch.rand(size, size, dtype=getattr(torch, dtype)) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out), lambda result: None
