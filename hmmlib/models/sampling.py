"""Draws from a chain: first the states, one by one, then a token for each, by inverting distribution functions.

The compiled loops (`compiled`) and torch take the same random numbers in the same order, so that they draw the same.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from hmmlib import backend

BLOCK = 2**20
"""Random numbers drawn at a time."""


def compiled_loops():
    """The loops of `models.compiled`, or None where there is no numba."""
    return backend.loops("hmmlib.models.compiled")


def choose(cumulative: Tensor, uniform: Tensor) -> Tensor:
    """Invert distribution functions (…, K), one a row, at numbers (…,); what has probability zero is never chosen."""
    return torch.searchsorted(cumulative, uniform.unsqueeze(-1).contiguous(), right=True).squeeze(-1)


def cumulative_rows(columns: Tensor) -> Tensor:
    """Distribution functions of the columns, as rows that end in exactly 1."""
    rows = columns.detach().movedim(0, -1).cumsum(-1)
    return (rows / rows[..., -1:]).contiguous()


def draw(
    transition: Tensor, emission: Tensor, initial: Tensor, memory: Tensor, length: int, generator: torch.Generator,
    states: bool, dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Draw tokens (n, length), and states (n, length + 1) or None.

    Args:
        transition, initial: A, (S, S); P[H_0], (S,).
        emission: (X, M * S), index m * S + h.
        memory: (n, N), the values that each sequence remembers; state h looks up that of cell h // (S / N).
        states: whether the states are wanted.
    """
    rows = [cumulative_rows(columns) for columns in (transition, emission, initial.unsqueeze(1))]
    way = _in_torch if memory.device.type != "cpu" or compiled_loops() is None else _in_loops
    return way(*rows, memory, length, generator, states, dtype)


def _in_torch(step, emission, first, memory, length, generator, states, dtype):
    n, n_states = len(memory), len(step)
    uniforms = partial(torch.rand, generator=generator, dtype=step.dtype, device=step.device)
    drawn, uniform = torch.empty(n, length + 1, dtype=torch.int64, device=step.device), uniforms(length + 1, n)
    drawn[:, 0] = choose(first.expand(n, -1).contiguous(), uniform[0])
    for i in range(1, length + 1):
        drawn[:, i] = choose(step[drawn[:, i - 1]], uniform[i])
    cell = drawn[:, 1:] // (n_states // memory.shape[1])
    column = memory.gather(1, cell) * n_states + drawn[:, 1:]
    blocks = zip(column.split(64, dim=1), uniforms(n, length).split(64, dim=1), strict=True)
    tokens = torch.cat([choose(emission[row], u) for row, u in blocks], dim=1)
    return tokens.to(dtype), drawn.to(dtype) if states else None


def _in_loops(step, emission, first, memory, length, generator, states, dtype):
    loops, n, n_states = compiled_loops(), len(memory), len(step)
    small = torch.uint8 if n_states <= 256 else torch.int32
    drawn = backend.uninitialized(n, length + 1, dtype=small)
    tokens = backend.uninitialized(n, length, dtype=dtype)
    starts = [(rows.numpy(), loops.guide(rows.numpy())) for rows in (first, step, emission)]
    current, memory = torch.zeros(n, dtype=torch.int64, device="cpu").numpy(), memory.contiguous().numpy()
    threads = torch.get_num_threads() if n * length > BLOCK else 1

    def walk(i: int, uniform: Tensor, part: slice) -> None:
        loops.walk(*starts[1 if i else 0], uniform.numpy()[:, part], current[part], drawn.numpy()[part, i:])

    def emit(begin: int, uniform: Tensor, part: slice) -> None:
        here = slice(begin + part.start, begin + part.stop)
        numbers, seen = uniform.numpy()[part], drawn.numpy()[here, 1:]
        loops.emit(*starts[2], numbers, seen, memory[here], n_states, tokens.numpy()[here])

    def overlapped(work: Callable[[int, Tensor, slice], None], rows: range, columns: int, across: bool) -> None:
        """Call work(first row, random numbers, part) for blocks of rows, while the next block's numbers are drawn.

        The threads share the columns of a block if `across`, else its rows.
        """
        some = max(1, BLOCK // columns)
        buffers = [torch.empty(min(some, len(rows)), columns, dtype=step.dtype, device="cpu") for _ in range(2)]
        running = iter(())
        with ThreadPoolExecutor(threads) as pool:
            for k, begin in enumerate(rows[::some]):
                uniform = buffers[k % 2][: rows.stop - begin]
                torch.rand(uniform.shape, generator=generator, out=uniform)
                list(running)  # the block before is done
                running = pool.map(partial(work, begin, uniform), backend.shares(uniform.shape[across], threads))
            list(running)

    overlapped(walk, range(1), n, True)
    overlapped(walk, range(1, length + 1), n, True)
    overlapped(emit, range(n), length, False)
    return tokens, drawn.to(dtype) if states else None
