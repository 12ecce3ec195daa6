"""The assumptions as predicates: each against a ruling in exact arithmetic, and on models that break just it.

A check returns 1 where predicate and witness disagree. A predicate may rule that it cannot tell. A control returns 1
where a model that breaks only this assumption is refused. Mistakes show most in models near the edge, in which columns
are dependent but for a part of 2^-1 to 2^-30, zeros are replaced by the smallest float, or a start is off by a
millionth of a state's probability.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hmmbook.evidence.random_models.instances import Checked, draw_weights, refused
from hmmbook.evidence.random_models.memory_instances import Drawn, columns
from hmmlib.models import counterexamples, families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import assumptions as predicates
from hmmlib.theory.assumptions import Verdict
from hmmlib.theory.theorems import theorem_3_3, theorem_4_3, theorem_4_6

EVERY_TOKEN_APART = torch.eye(6, dtype=torch.float64).reshape(6, 2, 3)
"""W of two memory values and three states, each pair of which has a token of its own."""


def _judged(report: predicates.Report, truth: bool, nontrivial: bool) -> Checked:
    """1 where a predicate is wrong, 0 where it is right or cannot tell. The latter is trivial."""
    decided = report.verdict is not Verdict.CLOSE
    return Checked(float(decided and report.holds != truth), nontrivial and decided)


# Models near the edge


def _nudged(rng: np.random.Generator, table: Tensor) -> Tensor:
    """Columns (X, k) on a coarse grid, one of them moved to another but for a part of 2^-1 to 2^-30, exactly."""
    grid = families.on_a_grid(table)
    moved, source, target = rng.integers(grid.shape[1], size=3)
    part = 2.0 ** -int(rng.integers(1, 31))
    mixture = (1 - part) * grid[:, source] + part * grid[:, target]
    grid[:, moved] = mixture
    return grid


def _perhaps_nudged(rng: np.random.Generator, emission: Tensor) -> Tensor:
    return _nudged(rng, emission) if rng.random() < 0.7 else emission


def _smallest(rng: np.random.Generator, table: Tensor) -> Tensor:
    """A table in which some zeros are the smallest float instead."""
    chosen = torch.as_tensor(rng.random(tuple(table.shape)) < 0.15)
    smallest = torch.tensor(5e-324, dtype=torch.float64)
    return torch.where((table == 0) & chosen, smallest, table)


def _chain_in_turn(rng: np.random.Generator, n_states: int) -> Tensor:
    """A chain that visits one to three classes of states in turn: irreducible, and its period is their number."""
    classes = np.arange(n_states) % min(n_states, int(rng.integers(1, 4)))
    next_class = (classes + 1) % (classes.max() + 1)
    allowed = classes[:, None] == next_class[None, :]
    weights = allowed * rng.integers(1, 4, (n_states, n_states))
    return torch.as_tensor(weights / weights.sum(0))


def rank(matrix) -> int:
    """Return the rank of a matrix whose entries are the rational numbers that these floats are."""
    from sympy import QQ  # It is imported here because it takes long to load.
    from sympy.polys.matrices import DomainMatrix

    matrix = np.asarray(matrix)
    if matrix.size == 0:
        return 0
    rows = []
    for row in matrix:
        rows.append([QQ(*float(entry).as_integer_ratio()) for entry in row])
    return DomainMatrix(rows, matrix.shape, QQ).rank()


def _ergodic(model: HMM) -> bool:
    """Tell whether A is primitive. Then this power of it has no zero (Wielandt 1950)."""
    pattern = (model.transition.numpy() > 0).astype(object)
    exponent = (len(pattern) - 1) ** 2 + 1
    return bool((np.linalg.matrix_power(pattern, exponent) > 0).all())


# Section 3


def check_assumption_3_1(seed: int) -> Checked:
    """Independent columns of W: by singular values, and by rational elimination."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 6))
    n_tokens = int(rng.integers(1, 6))
    model = families.sparse_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.8)
    emission = _perhaps_nudged(rng, model.emission)
    report = predicates.assumption_3_1(HMM(model.transition, emission, model.initial, columns=True))
    return _judged(report, rank(emission.numpy()) == n_states, 1 < n_states <= n_tokens)


def control_assumption_3_1(seed: int) -> float:
    """A regular model in which one column of W is a mixture of others."""
    model = counterexamples.dependent_hmm(3 + seed % 3, 4, seed)
    return float(predicates.assumption_3_2(model).holds and not predicates.assumption_3_1(model))


def check_assumption_3_2(seed: int) -> Checked:
    """Ergodic by periods of cycles, and by a power of A without zeros; full support of P[H_0] by looking."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 7))
    model = families.sparse_hmm(n_states, 2, seed, zeros=0.3 + 0.6 * float(rng.random()))
    transition = model.transition
    if rng.random() < 0.5:
        transition = _chain_in_turn(rng, model.n_states)
    initial = model.initial
    if rng.random() < 0.7:
        initial = torch.full_like(initial, 1 / model.n_states)
    transition = _smallest(rng, transition)
    initial = _smallest(rng, initial)
    model = HMM(transition, model.emission, initial, columns=True)
    truth = _ergodic(model) and bool((model.initial > 0).all())
    nontrivial = model.n_states > 1 and bool((model.transition == 0).any())
    return _judged(predicates.assumption_3_2(model), truth, nontrivial)


def control_assumption_3_2(seed: int) -> float:
    """In turn: a chain that turns in a circle, one with a state it never returns to, a start that misses a state.

    Theorems 3.3 and 4.3 refuse it too, the latter with a memory that every token shows.
    """
    model = families.non_degenerate_hmm(3, 3, seed, zeros=0.0)
    transition = model.transition
    start = model.initial
    if seed % 3 == 0:
        transition = torch.eye(3, dtype=torch.float64).roll(1, 0)
    elif seed % 3 == 1:
        transition = torch.full((3, 3), 0.5, dtype=torch.float64)
        transition[2] = 0
    else:
        start = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    broken = HMM(transition, model.emission, start, columns=True)
    memory = MemoryHMM(transition, EVERY_TOKEN_APART, start, [0.5, 0.5])
    refuses_3_3 = refused(theorem_3_3, broken, [1.0, -1.0, 1.0])
    refuses_4_3 = refused(theorem_4_3, memory, [1.0, -1.0], 0, [0, 1, 2])
    only_this = bool(predicates.assumption_3_1(broken)) and not predicates.assumption_3_2(broken)
    return float(refuses_3_3 and refuses_4_3 and only_this)


def _unions_of_supports(model: HMM) -> set[frozenset[int]]:
    """All that a set 𝓑 of states reaches in one step, for every 𝓑 but the empty one."""
    unions = set()
    for column in model.transition.T:
        support = frozenset(column.nonzero().flatten().tolist())
        unions |= {support} | {union | support for union in unions}
    return unions


def check_assumption_3_5(seed: int) -> Checked:
    """Against every set 𝓑 of states, one by one; and `essential_states` finds a set exactly where there is one."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 5))
    n_tokens = int(rng.integers(1, 4))
    model = families.sparse_hmm(n_states, n_tokens, seed, zeros=0.3 + 0.5 * rng.random())
    emission = _perhaps_nudged(rng, model.emission)
    model = HMM(_smallest(rng, model.transition), emission, model.initial, columns=True)
    mu = draw_weights(rng, n_states)
    support = set(mu.nonzero().flatten().tolist())
    unions = _unions_of_supports(model)

    good_sets = []
    unsure = False
    for size in range(1, n_states + 1):
        for essential in itertools.combinations(range(n_states), size):
            independent = rank(model.emission[:, list(essential)].numpy()) == size
            holds = frozenset(essential) in unions and support <= set(essential) and independent
            if holds:
                good_sets.append(list(essential))
            report = predicates.assumption_3_5(model, mu, essential)
            unsure |= report.verdict is Verdict.CLOSE
            if _judged(report, holds, True).residual:
                return Checked(1.0, True)

    essential = predicates.essential_states(model, mu)
    missed = essential is None and bool(good_sets) and not unsure
    wrong = missed or (essential is not None and essential not in good_sets)
    return Checked(float(wrong), bool(good_sets) and n_states > 1)


def control_assumption_3_5(seed: int) -> float:
    """`essential_twins` with H* = {a, b}: all but independence holds; with H* = {a}: all but the way in."""
    model = counterexamples.essential_twins(seed)
    dependent = predicates.assumption_3_5(model, [1.0, -1.0, 0, 0], [0, 1])
    without_way_in = predicates.assumption_3_5(model, [-1.0, 0, 0, 0], [0])
    first = not dependent and not dependent.columns and not dependent.uncovered and not dependent.unreached
    second = (
        not without_way_in
        and bool(without_way_in.columns)
        and not without_way_in.uncovered
        and bool(without_way_in.unreached)
    )
    return float(first and second)


# Section 4: recoverable states


def _any_recoverable(seed: int, n_cells: int) -> tuple[Drawn, Tensor]:
    """Any sparse model and any H*, half of them made to satisfy Assumption D.5; then a column moved in two of three."""
    rng = np.random.default_rng(seed)
    n_memory = int(rng.integers(1, 4))
    n_syntax = int(rng.integers(1, 4))
    n_recoverable = int(rng.integers(1, n_syntax + 1))
    n_values = int(rng.integers(1, n_memory + 1))
    if seed % 2:
        drawn = Drawn(*families.recoverable_memory_hmm(n_cells, n_memory, n_syntax, n_recoverable, n_values, seed))
    else:
        n_tokens = int(rng.integers(2, 9))
        zeros = 0.3 + 0.4 * rng.random()
        model = families.sparse_memory_hmm(n_memory, n_cells * n_syntax, n_tokens, seed, zeros, n_cells)
        cell = int(rng.integers(n_cells))
        syntax = sorted(rng.choice(n_syntax, n_recoverable, replace=False).tolist())
        values = sorted(rng.choice(n_memory, n_values, replace=False).tolist())
        drawn = Drawn(model, cell, syntax, values)
    mu = draw_weights(rng, n_memory, support=drawn.values)
    if seed % 3:
        model = drawn.model
        nudged = _nudged(np.random.default_rng(seed), model.emission.flatten(1))
        emission = nudged.reshape(model.emission.shape)
        drawn = drawn._replace(model=MemoryHMM(model.transition, emission, model.initial, model.memory))
    return drawn, mu


def _against_ranks(
    seed: int,
    n_cells: int,
    every_value: bool,
    predicate: Callable[[Drawn, Tensor], predicates.Report],
) -> Checked:
    """A predicate against ranks in rational numbers. All memory values count, or those in supp(μ)."""
    drawn, mu = _any_recoverable(seed, n_cells)
    values = None if every_value else mu.nonzero().flatten().tolist()
    inside, outside = columns(drawn.model, drawn.cell, drawn.syntax, values)
    rank_of_all = rank(np.concatenate([inside, outside], 1).T)
    independent = rank(inside.T) == inside.shape[1]
    apart = rank_of_all == rank(inside.T) + rank(outside.T)
    nontrivial = drawn.model.n_memory * drawn.model.n_states > 2
    return _judged(predicate(drawn, mu), independent and apart, nontrivial)


def check_assumption_4_2(seed: int) -> Checked:
    """By singular values and an angle, and by ranks in rational numbers; one to three cells."""

    def decide(drawn: Drawn, mu: Tensor) -> predicates.Report:
        return predicates.assumption_4_2(drawn.model, drawn.cell, drawn.syntax)

    return _against_ranks(seed, 1 + seed % 3, True, decide)


def check_assumption_4_5(seed: int) -> Checked:
    """As for Assumption 4.2, with the memory values in supp(μ) only and one cell."""

    def decide(drawn: Drawn, mu: Tensor) -> predicates.Report:
        return predicates.assumption_4_5(drawn.model, mu, drawn.syntax)

    return _against_ranks(seed, 1, False, decide)


def check_assumption_d_5(seed: int) -> Checked:
    """As for Assumption 4.5, with one to three cells; of the other cells every value counts."""

    def decide(drawn: Drawn, mu: Tensor) -> predicates.Report:
        return predicates.assumption_d_5(drawn.model, mu, drawn.cell, drawn.syntax)

    return _against_ranks(seed, 1 + seed % 3, False, decide)


def control_assumption_4_2(seed: int) -> float:
    """`recoverable_twins`: independent columns whose span meets that of the others. `parity_memory_hmm`: dependent."""
    twins = predicates.assumption_4_2(counterexamples.recoverable_twins(seed), 0, [0, 2, 3])
    every_state = [0, 1, 2, 3]
    parity = predicates.assumption_4_2(counterexamples.parity_memory_hmm(2, 0.1), 0, every_state)
    spans_meet = not twins and bool(twins.columns) and twins.angle < 1e-9
    return float(spans_meet and not parity and not parity.columns)


def control_assumption_4_5(seed: int) -> float:
    """`recoverable_twins` with μ on both values: independent columns whose span meets that of the others."""
    model = counterexamples.recoverable_twins(seed)
    report = predicates.assumption_4_5(model, [1.0, -1.0], [0, 2, 3])
    return float(not report and bool(report.columns) and report.angle < 1e-9)


def control_assumption_d_5(seed: int) -> float:
    """A second cell in which a value outside supp(μ) emits like a recoverable state: the first alone is in order."""
    model, _, syntax, weighed = families.recoverable_memory_hmm(1, 2, 2, 1, 1, seed)
    recoverable = model.emission[:, weighed[0], syntax[0]]
    other_state = model.emission[:, weighed[0], 1 - syntax[0]]
    second_cell = other_state[:, None, None].repeat(1, 2, 2)
    second_cell[:, 1 - weighed[0], 0] = recoverable
    table = torch.cat([model.emission, second_cell], 2)
    transition = torch.full((4, 4), 0.25, dtype=torch.float64)
    prior = torch.full((2, 2), 0.25, dtype=torch.float64)
    both = MemoryHMM(transition, table, transition[0], prior)
    mu = draw_weights(np.random.default_rng(seed), 2, support=weighed)
    alone = predicates.assumption_4_5(model, mu, syntax)
    return float(bool(alone) and not predicates.assumption_d_5(both, mu, 0, syntax))


# Section 4: a stationary start


def check_assumption_4_4(seed: int) -> Checked:
    """P[H_0] = A P[H_0] against the null space of A - I; a quarter start beside it, by 10^-3 to 10^-6 of a state."""
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 6))
    model = families.regular_hmm(n_states, 2, seed, zeros=0.5)
    if rng.random() < 0.5:
        model = HMM(_chain_in_turn(rng, model.n_states), model.emission, model.initial, columns=True)
    kind = rng.random()
    if kind < 3 / 4:
        start = model.stationary()
        share = 10.0 ** -int(rng.integers(3, 7))
        if kind < 1 / 4:
            start[start.argmin()] *= 1 + share
        model = HMM(model.transition, model.emission, start / start.sum(), columns=True)
    _, _, vectors = np.linalg.svd(model.transition.numpy() - np.eye(n_states))
    fixed = vectors[-1] / vectors[-1].sum()  # The null space has one dimension, because the chain is irreducible.
    moves_by = abs(fixed - model.initial.numpy()).max()
    stays = n_states == 1 or bool(moves_by < 1e-12)
    nontrivial = kind < 3 / 4 and n_states > 1
    return _judged(predicates.assumption_4_4(model), stays and _ergodic(model), nontrivial)


def control_assumption_4_4(seed: int) -> float:
    """A regular chain with another start; and a reducible one that starts in a distribution that it keeps.

    Theorem 4.6's construction refuses the first, with a memory that every token shows.
    """
    model = families.regular_hmm(3, 2, seed, zeros=0.3)
    start = model.stationary() * torch.arange(1, 4)
    other_start = HMM(model.transition, model.emission, start / start.sum(), columns=True)
    staying = torch.eye(3, dtype=torch.float64)
    reducible = HMM(staying, model.emission, model.initial, columns=True)
    memory = MemoryHMM(model.transition, EVERY_TOKEN_APART, other_start.initial, [0.5, 0.5])
    refuses = refused(theorem_4_6, memory, [1.0, -1.0], 0, [0, 1, 2])
    regular = bool(predicates.assumption_3_2(other_start))
    both_fail = not predicates.assumption_4_4(other_start).holds and not predicates.assumption_4_4(reducible).holds
    return float(refuses and regular and both_fail)
