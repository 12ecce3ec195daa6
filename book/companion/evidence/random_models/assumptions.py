"""The assumptions as predicates: each against an independent ruling in exact arithmetic, and on models that break just it.

A check returns 1 where the predicate and the witness disagree (it may say that it cannot tell), a control 1 where a model
that breaks only this assumption is refused. Mistakes show most in models near the edge: columns that a part of 2^-1 to 2^-30
keeps from being dependent, or that leave a span by as little, zeros that are the smallest float instead, a start that
is off by a millionth in its rarest state.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from companion.evidence.exact.rational import rank
from companion.evidence.random_models.instances import chain_in_turn, draw_weights
from companion.evidence.random_models.memory_instances import any_recoverable
from companion.evidence.random_models.residuals import Checked, refused
from hmmlib.models import families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import (
    Report,
    assumption_3_1,
    assumption_3_2,
    assumption_3_5,
    assumption_4_2,
    assumption_4_4,
    assumption_4_5,
    assumption_d_5,
    essential_states,
)
from hmmlib.theory.ranks import Verdict
from hmmlib.theory.theorems import theorem_3_3, theorem_4_3, theorem_4_6

EVERY_TOKEN_APART = torch.eye(6, dtype=torch.float64).reshape(6, 2, 3)
"""W of two memory values and three states, each pair of which has a token of its own."""


def _judged(report: Report, truth: bool, nontrivial: bool) -> Checked:
    """1 where a predicate is wrong, 0 where it is right or cannot tell; the latter is trivial."""
    decided = report.verdict is not Verdict.CLOSE
    return Checked(float(decided and report.holds != truth), nontrivial and decided)


def _nudged(rng: np.random.Generator, columns: Tensor) -> Tensor:
    """Columns (X, k) on a coarse grid, of which one is moved to another, but for a part of 2^-1 to 2^-30, without rounding."""
    wide = families.on_a_grid(columns)
    into, one, other = rng.integers(wide.shape[1], size=3)
    part = 2.0 ** -int(rng.integers(1, 31))
    wide[:, into] = (1 - part) * wide[:, one] + part * wide[:, other]
    return wide


def _smallest(rng: np.random.Generator, table: Tensor) -> Tensor:
    """A table in which some zeros are the smallest float instead."""
    some = torch.as_tensor(rng.random(tuple(table.shape)) < 0.15)
    return torch.where((table == 0) & some, torch.tensor(5e-324, dtype=torch.float64), table)


def check_assumption_3_1(seed: int) -> Checked:
    """Independent columns of W: by singular values, and by elimination in rational numbers. Not trivial up to X columns."""
    rng = np.random.default_rng(seed)
    n_states, n_tokens = (int(rng.integers(1, 6)) for _ in range(2))
    model = families.sparse_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.8)
    emission = _nudged(rng, model.emission) if rng.random() < 0.7 else model.emission
    report = assumption_3_1(HMM(model.transition, emission, model.initial, columns=True))
    return _judged(report, rank(emission.numpy()) == n_states, 1 < n_states <= n_tokens)


def control_assumption_3_1(seed: int) -> float:
    """A regular model in which one column of W is a mixture of others."""
    model = families.dependent_hmm(3 + seed % 3, 4, seed)
    return float(assumption_3_2(model).holds and not assumption_3_1(model))


def check_assumption_3_2(seed: int) -> Checked:
    """Ergodic by periods of cycles, and by a power of A without zeros; full support of P[H_0] by looking."""
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 7)), 2, seed, zeros=0.3 + 0.6 * float(rng.random()))
    transition = chain_in_turn(rng, model.n_states) if rng.random() < 0.5 else model.transition
    initial = torch.full_like(model.initial, 1 / model.n_states) if rng.random() < 0.7 else model.initial
    model = HMM(_smallest(rng, torch.as_tensor(transition)), model.emission, _smallest(rng, initial), columns=True)
    steps = np.linalg.matrix_power((model.transition.numpy() > 0).astype(object), (model.n_states - 1) ** 2 + 1)
    truth = bool((steps > 0).all()) and bool((model.initial > 0).all())
    return _judged(assumption_3_2(model), truth, model.n_states > 1 and bool((model.transition == 0).any()))


def control_assumption_3_2(seed: int) -> float:
    """In turn: a chain that turns in a circle, one with a state it never returns to, a start that misses a state.

    The constructions of Theorems 3.3 and 4.3 refuse it too, the latter with a memory that every token shows.
    """
    model = families.non_degenerate_hmm(3, 3, seed, zeros=0.0)
    turn = torch.eye(3, dtype=torch.float64).roll(1, 0)
    leave = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 0]], dtype=torch.float64)
    transition, start = [
        (turn, model.initial),
        (leave, model.initial),
        (model.transition, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)),
    ][seed % 3]
    broken = HMM(transition, model.emission, start, columns=True)
    memory = MemoryHMM(transition, EVERY_TOKEN_APART, start, [0.5, 0.5])
    refuses = refused(theorem_3_3, broken, [1.0, -1.0, 1.0]) and refused(theorem_4_3, memory, [1.0, -1.0], 0, [0, 1, 2])
    return float(refuses and bool(assumption_3_1(broken)) and not assumption_3_2(broken))


def check_assumption_3_5(seed: int) -> Checked:
    """Against every set 𝓑 of states, one by one; and `essential_states` finds a set exactly where some set satisfies it.

    Not trivial where one of several states does.
    """
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 5)), int(rng.integers(1, 4)), seed, zeros=0.3 + 0.5 * rng.random())
    emission = _nudged(rng, model.emission) if rng.random() < 0.7 else model.emission
    model = HMM(_smallest(rng, model.transition), emission, model.initial, columns=True)
    mu = draw_weights(rng, model.n_states)
    wanted = set(mu.nonzero().squeeze(-1).tolist())
    supports = [set(column.nonzero().squeeze(-1).tolist()) for column in model.transition.T]
    unions = {
        frozenset(set().union(*(supports[h] for h in chosen)))
        for size in range(1, model.n_states + 1)
        for chosen in itertools.combinations(range(model.n_states), size)
    }
    good, unsure = set(), False
    for size in range(1, model.n_states + 1):
        for essential in itertools.combinations(range(model.n_states), size):
            independent = rank(model.emission[:, list(essential)].numpy()) == size
            holds = frozenset(essential) in unions and wanted <= set(essential) and independent
            good |= {essential} if holds else set()
            report = assumption_3_5(model, mu, essential)
            unsure |= report.verdict is Verdict.CLOSE
            if _judged(report, holds, True).residual:
                return Checked(1.0, True)
    essential = essential_states(model, mu)
    wrong = tuple(essential) not in good if essential else bool(good) and not unsure
    return Checked(float(wrong), bool(good) and model.n_states > 1)


def control_assumption_3_5(seed: int) -> float:
    """`essential_twins` with H* = {a, b}: all but independence holds; with H* = {a}: all but the way in."""
    model = families.essential_twins(seed)
    both, one = assumption_3_5(model, [1.0, -1.0, 0, 0], [0, 1]), assumption_3_5(model, [-1.0, 0, 0, 0], [0])
    first = not both and not both.columns and not both.uncovered and not both.unreached
    second = not one and bool(one.columns) and not one.uncovered and bool(one.unreached)
    return float(first and second)


def _recoverable_by_ranks(model: MemoryHMM, cell: int, syntax: list[int], values: list[int], others: list[int]) -> bool:
    """Independent columns, and a span apart from the rest, by three ranks in rational numbers."""
    table = model.emission.numpy()
    in_cell = [cell * model.n_syntax + s for s in range(model.n_syntax)]
    inside = [(m, in_cell[s]) for s in syntax for m in values]
    outside = [(m, h) for h in in_cell if h not in [in_cell[s] for s in syntax] for m in values]
    outside += [(m, h) for h in range(model.n_states) if h not in in_cell for m in others]
    left, right = (np.array([table[:, m, h] for m, h in part]).reshape(-1, len(table)) for part in (inside, outside))
    ranks = [rank(part) for part in (left, right, np.concatenate([left, right]))]
    return ranks[0] == len(inside) and ranks[2] == ranks[0] + ranks[1]


def _near_the_edge(seed: int, n_cells: int) -> tuple[MemoryHMM, int, list[int], Tensor]:
    """`any_recoverable`, two times in three with a column that is moved."""
    model, cell, syntax, mu = any_recoverable(seed, n_cells)
    if seed % 3:
        emission = _nudged(np.random.default_rng(seed), model.emission.flatten(1)).reshape(model.emission.shape)
        model = MemoryHMM(model.transition, emission, model.initial, model.memory)
    return model, cell, syntax, mu


def _several(model: MemoryHMM) -> bool:
    return model.n_memory * model.n_states > 2


def check_assumption_4_2(seed: int) -> Checked:
    """By singular values and an angle, and by ranks in rational numbers; one to three cells. Not trivial from three."""
    model, cell, syntax, _ = _near_the_edge(seed, 1 + seed % 3)
    every = list(range(model.n_memory))
    truth = _recoverable_by_ranks(model, cell, syntax, every, every)
    return _judged(assumption_4_2(model, cell, syntax), truth, _several(model))


def control_assumption_4_2(seed: int) -> float:
    """`recoverable_twins`: independent columns whose span meets that of the others. `parity_memory_hmm`: dependent ones."""
    twins = assumption_4_2(families.recoverable_twins(seed), 0, [0, 2, 3])
    parity = assumption_4_2(families.parity_memory_hmm(2, 0.1), 0, [0, 1, 2, 3])
    return float(not twins and bool(twins.columns) and twins.angle < 1e-9 and not parity and not parity.columns)


def check_assumption_4_4(seed: int) -> Checked:
    """P[H_0] = A P[H_0] against the null space of A - I; half of the chains may be periodic.

    Half start there, a quarter beside it, by 10^-3 to 10^-6 of the rarest state. Not trivial in both of these.
    """
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(int(rng.integers(1, 6)), 2, seed, zeros=0.5)
    if rng.random() < 0.5:
        model = HMM(chain_in_turn(rng, model.n_states), model.emission, model.initial, columns=True)
    steps = np.linalg.matrix_power((model.transition.numpy() > 0).astype(object), (model.n_states - 1) ** 2 + 1)
    start = rng.random()
    if start < 3 / 4:
        law = model.stationary()
        law[law.argmin()] *= 1 + 10.0 ** -int(rng.integers(3, 7)) * (start < 1 / 4)
        model = HMM(model.transition, model.emission, law / law.sum(), columns=True)
    _, _, rows = np.linalg.svd(model.transition.numpy() - np.eye(model.n_states))
    fixed = rows[-1] / rows[-1].sum()
    stays = bool(abs(fixed - model.initial.numpy()).max() < 1e-12) if model.n_states > 1 else True
    truth = stays and bool((steps > 0).all())
    return _judged(assumption_4_4(model), truth, start < 3 / 4 and model.n_states > 1)


def control_assumption_4_4(seed: int) -> float:
    """A regular chain with another start; and a reducible one that starts in a distribution that it keeps.

    Theorem 4.6's construction refuses the first, with a memory that every token shows.
    """
    model = families.regular_hmm(3, 2, seed, zeros=0.3)
    other = model.stationary() * torch.arange(1, 4)
    start = HMM(model.transition, model.emission, other / other.sum(), columns=True)
    keeps = HMM(torch.eye(3, dtype=torch.float64), model.emission, model.initial, columns=True)
    memory = MemoryHMM(model.transition, EVERY_TOKEN_APART, start.initial, [0.5, 0.5])
    refuses = refused(theorem_4_6, memory, [1.0, -1.0], 0, [0, 1, 2])
    return float(refuses and not assumption_4_4(start) and bool(assumption_3_2(start)) and not assumption_4_4(keeps))


def check_assumption_4_5(seed: int) -> Checked:
    """As for Assumption 4.2, with the memory values in supp(μ) only and one cell."""
    model, _, syntax, mu = _near_the_edge(seed, 1)
    values = mu.nonzero().squeeze(-1).tolist()
    return _judged(
        assumption_4_5(model, mu, syntax), _recoverable_by_ranks(model, 0, syntax, values, values), _several(model)
    )


def control_assumption_4_5(seed: int) -> float:
    """`recoverable_twins` with μ on both values: independent columns whose span meets that of the others."""
    report = assumption_4_5(families.recoverable_twins(seed), [1.0, -1.0], [0, 2, 3])
    return float(not report and bool(report.columns) and report.angle < 1e-9)


def check_assumption_d_5(seed: int) -> Checked:
    """As for Assumption 4.5, with one to three cells; of the other cells every value counts."""
    model, cell, syntax, mu = _near_the_edge(seed, 1 + seed % 3)
    values, every = mu.nonzero().squeeze(-1).tolist(), list(range(model.n_memory))
    truth = _recoverable_by_ranks(model, cell, syntax, values, every)
    return _judged(assumption_d_5(model, mu, cell, syntax), truth, _several(model))


def control_assumption_d_5(seed: int) -> float:
    """A second cell in which a value outside supp(μ) emits like a recoverable state: one cell alone would be in order."""
    model, _, syntax, weighed = families.recoverable_memory_hmm(1, 2, 2, 1, 1, seed)
    table = torch.cat([model.emission, torch.zeros_like(model.emission)], 2)  # the states of the second cell
    table[:, :, 2:] = model.emission[:, weighed, 1 - syntax[0]][:, :, None]
    table[:, 1 - weighed[0], 2] = model.emission[:, weighed[0], syntax[0]]
    transition = torch.full((4, 4), 0.25, dtype=torch.float64)
    both = MemoryHMM(transition, table, transition[0], torch.full((2, 2), 0.25, dtype=torch.float64))
    mu = draw_weights(np.random.default_rng(seed), 2, support=weighed)
    alone = assumption_4_5(model, mu, syntax)
    return float(bool(alone) and not assumption_d_5(both, mu, 0, syntax))
