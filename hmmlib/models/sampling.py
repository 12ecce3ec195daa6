"""How sequences are drawn from a chain.

The states are drawn first, one after the other, and then a token for each state. Every draw inverts a distribution
function at a random number from [0, 1). The compiled loops (`compiled`) and torch take the same random numbers in the
same order, so they draw the same sequences.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from hmmlib import device as backend

BLOCK = 2**20
"""How many random numbers the compiled loops take at a time."""
POSITIONS = 64
"""At how many positions torch draws tokens at a time."""


def compiled_loops():
    """Return the loops of `models.compiled`, or None where there is no numba."""
    return backend.loops("hmmlib.models.compiled")


def choose(cumulative: Tensor, uniform: Tensor) -> Tensor:
    """Return the values that numbers (…,) draw from the distribution functions `cumulative` (…, K).

    A value of probability zero is never drawn.
    """
    numbers = uniform.unsqueeze(-1).contiguous()
    return torch.searchsorted(cumulative, numbers, right=True).squeeze(-1)


def cumulative_rows(columns: Tensor) -> Tensor:
    """Return the distribution function of each column, as a row that ends in exactly 1."""
    sums = columns.detach().movedim(0, -1).cumsum(-1)
    return (sums / sums[..., -1:]).contiguous()


def draw(
    transition: Tensor,
    emission: Tensor,
    initial: Tensor,
    memory: Tensor,
    length: int,
    generator: torch.Generator,
    states: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:
    """Draw tokens, and the states that emit them.

    Args:
        transition: A, (S, S).
        emission: W, (X, M * S). Column m * S + h is the distribution of the token of state h if its cell holds m.
        initial: P[H_0], (S,).
        memory: (n, N), the value of each memory cell in each sequence. State h looks up cell h // (S / N).
        length: the number of tokens of a sequence.
        generator: the source of random numbers, on the device of the tables.
        states: whether to return the states. Otherwise they are None.
        dtype: the type of tokens and states.

    Returns:
        The tokens, (n, length), and the states, (n, length + 1), or None.
    """
    step = cumulative_rows(transition)
    emissions = cumulative_rows(emission)
    first = cumulative_rows(initial.unsqueeze(1))
    in_torch = memory.device.type != "cpu" or compiled_loops() is None
    draw_all = _in_torch if in_torch else _in_loops
    tokens, drawn = draw_all(first, step, emissions, memory, length, generator, dtype)
    if not states:
        return tokens, None
    return tokens, drawn.to(dtype)


def _in_torch(first, step, emissions, memory, length, generator, dtype) -> tuple[Tensor, Tensor]:
    """Draw by operations of torch, on any device."""
    n = len(memory)
    n_states = len(step)
    options = dict(generator=generator, dtype=step.dtype, device=step.device)
    drawn = torch.empty(n, length + 1, dtype=torch.int64, device=step.device)
    uniform = torch.rand(length + 1, n, **options)
    drawn[:, 0] = choose(first.expand(n, -1).contiguous(), uniform[0])
    for i in range(1, length + 1):
        before = drawn[:, i - 1]
        drawn[:, i] = choose(step[before], uniform[i])
    emitting = drawn[:, 1:]
    cell = emitting // (n_states // memory.shape[1])
    row = memory.gather(1, cell) * n_states + emitting
    uniform = torch.rand(n, length, **options)
    tokens = []
    for rows, numbers in zip(row.split(POSITIONS, dim=1), uniform.split(POSITIONS, dim=1), strict=True):
        tokens.append(choose(emissions[rows], numbers))
    return torch.cat(tokens, dim=1).to(dtype), drawn


def _in_loops(first, step, emissions, memory, length, generator, dtype) -> tuple[Tensor, Tensor]:
    """Draw by compiled loops."""
    loops = compiled_loops()
    n = len(memory)
    n_states = len(step)
    threads = torch.get_num_threads() if n * length > BLOCK else 1
    options = dict(generator=generator, dtype=step.dtype, device="cpu")
    # All states are kept until their tokens are drawn. The smallest type that holds them saves memory.
    state_dtype = torch.uint8 if n_states <= 256 else torch.int32
    drawn = backend.uninitialized(n, length + 1, dtype=state_dtype)
    initial = choose(first.expand(n, -1).contiguous(), torch.rand(n, **options))
    drawn[:, 0] = initial
    states = drawn.numpy()[:, 1:]
    current = initial.numpy()  # The loops keep the present state of each chain here.
    step = step.numpy()
    step_guide = loops.guide(step)

    def walk(begin: int, uniform: np.ndarray, part: slice) -> None:
        loops.walk(step, step_guide, uniform[:, part], current[part], states[part, begin:])

    steps_at_once = max(1, BLOCK // n)
    for begin in range(0, length, steps_at_once):
        uniform = torch.rand(min(steps_at_once, length - begin), n, **options).numpy()
        backend.side_by_side(partial(walk, begin, uniform), n, threads)

    tokens = backend.uninitialized(n, length, dtype=dtype)
    emitted = tokens.numpy()
    cells = memory.contiguous().numpy()
    emissions = emissions.numpy()
    emission_guide = loops.guide(emissions)

    def emit(begin: int, uniform: np.ndarray, part: slice) -> None:
        texts = slice(begin + part.start, begin + part.stop)
        loops.emit(emissions, emission_guide, uniform[part], states[texts], cells[texts], n_states, emitted[texts])

    texts_at_once = max(1, BLOCK // length)
    for begin in range(0, n, texts_at_once):
        size = min(texts_at_once, n - begin)
        uniform = torch.rand(size, length, **options).numpy()
        backend.side_by_side(partial(emit, begin, uniform), size, threads)
    return tokens, drawn
