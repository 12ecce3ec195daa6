"""Small random models, each of a family that satisfies one assumption of the paper, or breaks just that one."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from hmmlib.models.appendix_e import joint_shape, softmax_of_uniform
from hmmlib.models.hmm import HMM, MemoryHMM, chain_period
from hmmlib.validation import as_generator, integer, number

MOST_DRAWS = 10_000
"""Rejected draws after which a family gives up."""


def sparse_columns(shape: tuple[int, ...], zeros: float, generator: torch.Generator) -> Tensor:
    """Distributions over the first axis with about a share `zeros` of exact zeros, and ties: of small integers."""
    number("zeros", zeros, 0, 1)
    weights = torch.randint(1, 4, shape, generator=generator).double()
    weights = weights * (torch.rand(shape, generator=generator, dtype=torch.float64) >= zeros)
    spared = torch.randint(0, shape[0], (1, *shape[1:]), generator=generator)  # no column may vanish
    weights = torch.where(weights.any(0), weights, torch.zeros_like(weights).scatter(0, spared, 1.0))
    return weights / weights.sum(0)


def on_a_grid(columns: Tensor) -> Tensor:
    """Distributions over the first axis in units of 2^-10: sums of products of two are exact, also in float32."""
    units = (columns * 2**10).floor()
    return units.scatter_add(0, units.argmax(0, keepdim=True), 2**10 - units.sum(0, keepdim=True)) / 2**10


def sparse_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """An HMM with exact zeros and ties in A, W and P[H_0]; it may be reducible or periodic."""
    n_states, n_tokens = integer("n_states", n_states, 1), integer("n_tokens", n_tokens, 1)
    generator, shapes = as_generator(seed), ((n_states, n_states), (n_tokens, n_states), (n_states,))
    return HMM(*(sparse_columns(shape, zeros, generator) for shape in shapes), columns=True)


def sparse_memory_hmm(
    n_memory: int, n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4, n_cells: int = 1
) -> MemoryHMM:
    """A memory model with exact zeros and ties in A, W, P[H_0] and P[M]."""
    n_states, n_tokens = integer("n_states", n_states, 1), integer("n_tokens", n_tokens, 1)
    shape, generator = joint_shape(n_memory, n_cells), as_generator(seed)
    shapes = (n_states, n_states), (n_tokens, n_memory, n_states), (n_states,), (n_memory**n_cells,)
    *chain, memory = (sparse_columns(each, zeros, generator) for each in shapes)
    return MemoryHMM(*chain, memory.reshape(shape))


def _ergodic_transition(n_states: int, zeros: float, generator: torch.Generator) -> Tensor:
    """A sparse matrix made ergodic by a cycle through all states and one loop; zeros stay elsewhere."""
    eye = torch.eye(n_states, dtype=torch.float64)
    cycle = eye.roll(1, 0)
    cycle[:, 0] = (cycle[:, 0] + eye[:, 0]) / 2
    return (sparse_columns((n_states, n_states), zeros, generator) + cycle) / 2


def _in_equilibrium(transition: Tensor, emission: Tensor, memory: Tensor) -> MemoryHMM:
    """The memory model that starts in the stationary distribution."""
    uniform = torch.full_like(transition[0], 1 / len(transition))
    start = MemoryHMM(transition, emission, uniform, memory).stationary()
    return MemoryHMM(transition, emission, start, memory)


def regular_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """A model that satisfies Assumption 3.2 (ergodic, P[H_0] of full support), with zeros in A and W.

    Assumption 3.1 may hold or not: if `n_tokens` < `n_states`, and sometimes by chance, the columns of W are dependent.
    """
    n_states, n_tokens = integer("n_states", n_states, 1), integer("n_tokens", n_tokens, 1)
    generator = as_generator(seed)
    transition = _ergodic_transition(n_states, zeros, generator)
    emission = sparse_columns((n_tokens, n_states), zeros, generator)
    return HMM(transition, emission, sparse_columns((n_states,), 0.0, generator), columns=True)


def non_degenerate_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0, zeros: float = 0.4) -> HMM:
    """A model that satisfies Assumptions 3.1 and 3.2: `regular_hmm` until it does. Needs `n_tokens` ≥ `n_states`."""
    n_tokens, generator = integer("n_tokens", n_tokens, integer("n_states", n_states, 1)), as_generator(seed)
    for _ in range(MOST_DRAWS):
        model = regular_hmm(n_states, n_tokens, generator, zeros)
        if torch.linalg.matrix_rank(model.emission) == n_states:
            return model
    raise RuntimeError(f"no independent columns among {MOST_DRAWS} draws: take fewer zeros than {zeros}")


def nearly_dependent_hmm(n_states: int, n_tokens: int, gap: float, seed: int | torch.Generator = 0) -> HMM:
    """Assumptions 3.1 and 3.2 hold, but W's last column is within `gap` of its first: the condition is about 1/gap."""
    gap, model = number("gap", gap, 0, 1), non_degenerate_hmm(n_states, n_tokens, seed)
    emission = model.emission.clone()
    emission[:, -1] = (1 - gap) * emission[:, 0] + gap * emission[:, -1]
    return HMM(model.transition, emission, model.initial, columns=True)


def dependent_hmm(n_states: int, n_tokens: int, seed: int | torch.Generator = 0) -> HMM:
    """Assumption 3.2 holds and 3.1 fails: the last column of W is a mixture of two others (of two, a copy)."""
    model = regular_hmm(integer("n_states", n_states, 2), n_tokens, seed, zeros=0.0)
    emission = on_a_grid(model.emission)
    emission[:, -1] = (emission[:, 0] + emission[:, (n_states - 1) // 2]) / 2  # exactly
    return HMM(model.transition, emission, model.initial, columns=True)


def hidden_twins() -> HMM:
    """Four states α, β, γ, δ; α and β emit the same token. Assumption 3.2 holds and 3.1 fails.

    Token 1 can only follow α, and token 2 only β. So H_1 is surely α for the input (1), and β for the input (2); yet
    the token at the gap has the same distribution for both.
    """
    transition = [[0.5, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    emission = [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    return HMM(transition, emission, [0.25, 0.25, 0.25, 0.25], columns=True)


def essential_hmm(
    n_states: int, n_tokens: int, n_essential: int, seed: int | torch.Generator = 0, zeros: float = 0.4
) -> tuple[HMM, list[int]]:
    """A model that satisfies Assumptions 3.2 and 3.5, and its set H* of `n_essential` states.

    One to three states lead into H* only, and together into all of it. The columns of W at H* are independent; the
    others may repeat them. Needs `n_tokens` ≥ `n_essential`.
    """
    n_states, n_tokens = integer("n_states", n_states, 1), integer("n_tokens", n_tokens, 1)
    n_essential, generator = integer("n_essential", n_essential, 1, min(n_states, n_tokens)), as_generator(seed)
    for _ in range(MOST_DRAWS):
        essential = sorted(torch.randperm(n_states, generator=generator)[:n_essential].tolist())
        sources = torch.randperm(n_states, generator=generator)[: int(torch.randint(1, 4, (1,), generator=generator))]
        transition = sparse_columns((n_states, n_states), zeros, generator)
        inside = sparse_columns((n_essential, len(sources)), zeros / 2, generator)
        if not inside.any(1).all():
            continue
        transition[:, sources] = 0
        transition[torch.tensor(essential)[:, None], sources] = inside
        emission = sparse_columns((n_tokens, n_states), zeros, generator)
        independent = torch.linalg.matrix_rank(emission[:, essential]) == n_essential
        if independent and chain_period(transition) == (True, 1):
            initial = sparse_columns((n_states,), 0.0, generator)
            return HMM(transition, emission, initial, columns=True), essential
    raise RuntimeError(f"no model of this kind among {MOST_DRAWS} draws: take fewer zeros than {zeros}")


def recoverable_memory_hmm(
    n_cells: int, n_memory: int, n_syntax: int, n_recoverable: int, values: int, seed: int | torch.Generator = 0,
    zeros: float = 0.5, stationary: bool = False,
) -> tuple[MemoryHMM, int, list[int], list[int]]:  # fmt: skip
    """A memory model with a cell j*, syntax states S* and memory values M* that satisfy Assumptions 3.2 and D.5.

    If `values` = `n_memory`, M* is all of M, and Assumption 4.2 holds. The columns of W outside M* × H* are mixtures of
    one or two distributions, made without rounding; those at values outside M* in cell j* are free. P[M] may have
    zeros. Returns the model, j*, S* (`n_recoverable` of `n_syntax` states), M* (`values` of `n_memory` values).
    """
    generator, shape, n_syntax = as_generator(seed), joint_shape(n_memory, n_cells), integer("n_syntax", n_syntax, 1)
    n_recoverable, values = integer("n_recoverable", n_recoverable, 1, n_syntax), integer("values", values, 1, n_memory)
    cell = int(torch.randint(n_cells, (1,), generator=generator))
    syntax = sorted(torch.randperm(n_syntax, generator=generator)[:n_recoverable].tolist())
    weighted = sorted(torch.randperm(n_memory, generator=generator)[:values].tolist())
    n_states, n_inside = n_cells * n_syntax, n_recoverable * values
    n_rest = int(torch.randint(1, 3, (1,), generator=generator)) if n_states > n_recoverable else 0
    n_tokens = max(2, n_inside + n_rest)
    order = torch.randperm(n_states, generator=generator)
    transition = _ergodic_transition(n_states, zeros, generator)[order][:, order]
    rank = 0
    while rank < n_inside + n_rest:
        distinct = torch.eye(n_tokens, dtype=torch.float64)[:, torch.randperm(n_tokens, generator=generator)]
        columns = sparse_columns((n_tokens, n_inside + n_rest), zeros, generator) + distinct[:, : n_inside + n_rest]
        columns = columns / columns.sum(0)
        rank = int(torch.linalg.matrix_rank(columns))
    emission = sparse_columns((n_tokens, n_memory, n_states), zeros, generator)
    here, states = slice(cell * n_syntax, (cell + 1) * n_syntax), torch.tensor(syntax) + cell * n_syntax
    inside, free = torch.zeros(2, n_memory, n_states, dtype=torch.bool)
    inside[torch.tensor(weighted)[:, None], states] = True
    free[:, here], free[weighted, here] = True, False
    emission[:, inside] = columns[:, :n_inside]
    if n_rest:
        rest = ~(inside | free)
        shares = sparse_columns((n_rest, int(rest.sum())), zeros, generator)
        emission[:, rest] = on_a_grid(columns[:, n_inside:]) @ on_a_grid(shares)
    initial = sparse_columns((n_states,), 0.0, generator)
    memory = sparse_columns((n_memory**n_cells,), zeros / 2, generator).reshape(shape)
    if stationary:
        model = _in_equilibrium(transition, emission, memory)
    else:
        model = MemoryHMM(transition, emission, initial, memory)
    return model, cell, syntax, weighted


# Models that break one hypothesis


def _positive_where(allowed: list[list[int]], generator: torch.Generator) -> Tensor:
    """Random columns with exactly these zeros."""
    weights = torch.tensor(allowed, dtype=torch.float64)
    weights = weights * (0.2 + torch.rand(weights.shape, generator=generator, dtype=torch.float64))
    return weights / weights.sum(0)


def essential_twins(seed: int | torch.Generator = 0) -> HMM:
    """Four states a, b, c, d for which no prompt helps: what leads to a leads to b too, and both have one column of W.

    State c follows only a, and d only b. H* = {a, b} meets all of Assumption 3.5 but independence. H_0 is surely a for
    the input (1), and b for the input (2), but Ḡ_2 is the same for both.
    """
    generator = as_generator(seed)
    transition = _positive_where([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0]], generator)
    emission = [[1.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    return HMM(transition, emission, softmax_of_uniform((4,), 1.0, generator), columns=True)


def recoverable_twins(seed: int | torch.Generator = 0) -> MemoryHMM:
    """A stationary model of one cell, two values and states a, b, c, d: b emits like a, and S* = {a, c, d} omits b.

    The columns of W at M × S* are independent, but their span contains those of b. Tokens 0, 1 come from a and b, 2, 3
    from c, which follows only a, and 4, 5 from d, which follows only b. Between the inputs (0, 2) and (0, 4) no token
    distribution differs, though H_1 was a in one and b in the other.
    """
    generator = as_generator(seed)
    transition = _positive_where([[1, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0]], generator)
    emission = torch.zeros(6, 2, 4, dtype=torch.float64)
    for places in (((0, 0), (0, 1)), ((2, 2), (4, 3))):  # first token and state of two columns that are alike
        share = (torch.arange(2) + torch.rand(2, generator=generator, dtype=torch.float64)) / 2
        for token, state in places:
            emission[token : token + 2, :, state] = torch.stack([share, 1 - share])
    return _in_equilibrium(transition, emission, softmax_of_uniform((2,), 1.0, generator))


def parity_memory_hmm(n: int, noise: float) -> MemoryHMM:
    """A memory of `n` values that can be inferred only from pairs of tokens: each token, also given others, is uniform.

    The state is a symbol b and a phase that alternates; the token is b + m * phase modulo n. With probability `noise`
    the state is drawn afresh. For inputs of length 2, M = 0 is likely exactly where both tokens agree. With all states
    in S*, all of Assumption 4.2 holds but independence. The chain is ergodic and stationary.
    """
    n, noise = integer("n", n, 1), number("noise", noise, 0, 1)
    transition = torch.full((2 * n, 2 * n), noise / (2 * n), dtype=torch.float64)
    emission = torch.zeros(n, n, 2 * n, dtype=torch.float64)
    for phase, b in itertools.product((0, 1), range(n)):  # state phase * n + b
        transition[(1 - phase) * n + b, phase * n + b] += 1 - noise
        for m in range(n):
            emission[(b + m * phase) % n, m, phase * n + b] = 1
    uniform = torch.full((2 * n,), 1 / (2 * n), dtype=torch.float64)
    return MemoryHMM(transition, emission, uniform, torch.full((n,), 1 / n, dtype=torch.float64))


def shrinking_support(seed: int | torch.Generator | None = None) -> tuple[MemoryHMM, list[int]]:
    """Three states p → q → r → p or r and two memory values, for which no attention head can do what Lemma D.9 prints.

    The task weighs value 0, and S* = {p, q}. When M = 0, tokens 0 and 1 both come from p alone. When M = 1, token 1
    comes from p or r, and token 0 from nowhere. So after token 0 the next state is surely q, while after token 1 it may
    also be p or r. Behind a prompt for M = 0, the next state is q after either, and the outputs are equal.

    Returns the model and S*. A seed gives the same zeros with other probabilities. The start is stationary.
    """
    transition = torch.tensor([[0.0, 0, 0.5], [1, 0, 0], [0, 1, 0.5]], dtype=torch.float64)
    value_0 = torch.tensor([[0.5, 0, 0], [0.5, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.float64)
    value_1 = torch.tensor([[0.0, 0, 0], [1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=torch.float64)
    emission, memory = torch.stack([value_0, value_1], 1), torch.tensor([0.5, 0.5], dtype=torch.float64)
    if seed is None:
        return MemoryHMM(transition, emission, [0.25, 0.25, 0.5], memory), [0, 1]
    generator = as_generator(seed)
    parts = [part * torch.rand(part.shape, generator=generator) for part in (transition, emission, memory)]
    return _in_equilibrium(*(part / part.sum(0) for part in parts)), [0, 1]
