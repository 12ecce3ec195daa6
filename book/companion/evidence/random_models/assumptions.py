"""The assumptions as predicates: each against a ruling in exact arithmetic, and on models that break just it.

A check returns 1 where predicate and witness disagree (it may rule that it cannot tell), a control 1 where a model that
breaks only this assumption is refused. Mistakes show most in models near the edge: columns that a part of 2^-1 to 2^-30
keeps from being dependent, zeros that are the smallest float instead, a start that is off by a millionth of a state.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from companion.evidence.exact.rational import rank
from companion.evidence.random_models.instances import Checked, draw_weights, refused
from companion.evidence.random_models.memory_instances import columns
from companion.evidence.zero_patterns import ergodic
from hmmlib.models import families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory import assumptions as predicates
from hmmlib.theory.assumptions import Verdict
from hmmlib.theory.theorems import theorem_3_3, theorem_4_3, theorem_4_6

EVERY_TOKEN_APART = torch.eye(6, dtype=torch.float64).reshape(6, 2, 3)
"""W of two memory values and three states, each pair of which has a token of its own."""


def _judged(report: predicates.Report, truth: bool, nontrivial: bool) -> Checked:
    """1 where a predicate is wrong, 0 where it is right or cannot tell; the latter is trivial."""
    decided = report.verdict is not Verdict.CLOSE
    return Checked(float(decided and report.holds != truth), nontrivial and decided)


def _nudged(rng: np.random.Generator, columns: Tensor) -> Tensor:
    """Columns (X, k) on a coarse grid, one of them moved to another but for a part of 2^-1 to 2^-30, exactly."""
    wide = families.on_a_grid(columns)
    into, one, other = rng.integers(wide.shape[1], size=3)
    part = 2.0 ** -int(rng.integers(1, 31))
    wide[:, into] = (1 - part) * wide[:, one] + part * wide[:, other]
    return wide


def _smallest(rng: np.random.Generator, table: Tensor) -> Tensor:
    """A table in which some zeros are the smallest float instead."""
    some = torch.as_tensor(rng.random(tuple(table.shape)) < 0.15)
    return torch.where((table == 0) & some, torch.tensor(5e-324, dtype=torch.float64), table)


def _chain_in_turn(rng: np.random.Generator, n_states: int) -> Tensor:
    """A chain that visits one to three classes of states in turn: irreducible, and its period is their number."""
    classes = np.arange(n_states) % min(n_states, int(rng.integers(1, 4)))
    allowed = classes[:, None] == (classes[None, :] + 1) % (classes.max() + 1)
    weights = allowed * rng.integers(1, 4, (n_states, n_states))
    return torch.as_tensor(weights / weights.sum(0))


def _ergodic(model: HMM) -> bool:
    return bool(ergodic((model.transition.numpy() > 0).astype(object)))


def check_assumption_3_1(seed: int) -> Checked:
    """Independent columns of W: by singular values, and by rational elimination."""
    rng = np.random.default_rng(seed)
    n_states, n_tokens = (int(rng.integers(1, 6)) for _ in range(2))
    model = families.sparse_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.8)
    emission = _nudged(rng, model.emission) if rng.random() < 0.7 else model.emission
    report = predicates.assumption_3_1(HMM(model.transition, emission, model.initial, columns=True))
    return _judged(report, rank(emission.numpy()) == n_states, 1 < n_states <= n_tokens)


def control_assumption_3_1(seed: int) -> float:
    """A regular model in which one column of W is a mixture of others."""
    model = families.dependent_hmm(3 + seed % 3, 4, seed)
    return float(predicates.assumption_3_2(model).holds and not predicates.assumption_3_1(model))


def check_assumption_3_2(seed: int) -> Checked:
    """Ergodic by periods of cycles, and by a power of A without zeros; full support of P[H_0] by looking."""
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 7)), 2, seed, zeros=0.3 + 0.6 * float(rng.random()))
    transition = _chain_in_turn(rng, model.n_states) if rng.random() < 0.5 else model.transition
    initial = torch.full_like(model.initial, 1 / model.n_states) if rng.random() < 0.7 else model.initial
    model = HMM(_smallest(rng, transition), model.emission, _smallest(rng, initial), columns=True)
    truth = _ergodic(model) and bool((model.initial > 0).all())
    return _judged(predicates.assumption_3_2(model), truth, model.n_states > 1 and bool((model.transition == 0).any()))


def control_assumption_3_2(seed: int) -> float:
    """In turn: a chain that turns in a circle, one with a state it never returns to, a start that misses a state.

    Theorems 3.3 and 4.3 refuse it too, the latter with a memory that every token shows.
    """
    model = families.non_degenerate_hmm(3, 3, seed, zeros=0.0)
    turn = torch.eye(3, dtype=torch.float64).roll(1, 0)
    leave = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 0]], dtype=torch.float64)
    missing = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    transition, start = [(turn, model.initial), (leave, model.initial), (model.transition, missing)][seed % 3]
    broken = HMM(transition, model.emission, start, columns=True)
    memory = MemoryHMM(transition, EVERY_TOKEN_APART, start, [0.5, 0.5])
    refuses = refused(theorem_3_3, broken, [1.0, -1.0, 1.0]) and refused(theorem_4_3, memory, [1.0, -1.0], 0, [0, 1, 2])
    return float(refuses and bool(predicates.assumption_3_1(broken)) and not predicates.assumption_3_2(broken))


def check_assumption_3_5(seed: int) -> Checked:
    """Against every set 𝓑 of states, one by one; and `essential_states` finds a set exactly where there is one."""
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 5)), int(rng.integers(1, 4)), seed, zeros=0.3 + 0.5 * rng.random())
    emission = _nudged(rng, model.emission) if rng.random() < 0.7 else model.emission
    model = HMM(_smallest(rng, model.transition), emission, model.initial, columns=True)
    mu = draw_weights(rng, model.n_states)
    wanted = set(mu.nonzero().squeeze(-1).tolist())
    supports = [set(column.nonzero().squeeze(-1).tolist()) for column in model.transition.T]
    sizes = range(1, model.n_states + 1)
    subsets = [subset for size in sizes for subset in itertools.combinations(range(model.n_states), size)]
    unions = [set().union(*(supports[h] for h in sources)) for sources in subsets]
    good, unsure = set(), False
    for essential in subsets:
        independent = rank(model.emission[:, list(essential)].numpy()) == len(essential)
        holds = set(essential) in unions and wanted <= set(essential) and independent
        good |= {essential} if holds else set()
        report = predicates.assumption_3_5(model, mu, essential)
        unsure |= report.verdict is Verdict.CLOSE
        if _judged(report, holds, True).residual:
            return Checked(1.0, True)
    essential = predicates.essential_states(model, mu)
    wrong = tuple(essential) not in good if essential else bool(good) and not unsure
    return Checked(float(wrong), bool(good) and model.n_states > 1)


def control_assumption_3_5(seed: int) -> float:
    """`essential_twins` with H* = {a, b}: all but independence holds; with H* = {a}: all but the way in."""
    model = families.essential_twins(seed)
    both = predicates.assumption_3_5(model, [1.0, -1.0, 0, 0], [0, 1])
    one = predicates.assumption_3_5(model, [-1.0, 0, 0, 0], [0])
    first = not both and not both.columns and not both.uncovered and not both.unreached
    second = not one and bool(one.columns) and not one.uncovered and bool(one.unreached)
    return float(first and second)


def _any_recoverable(seed: int, n_cells: int) -> tuple[MemoryHMM, int, list[int], Tensor]:
    """Any sparse model and any H*, half of them made to satisfy Assumption D.5; then a column moved in two of three."""
    rng = np.random.default_rng(seed)
    n_memory, n_syntax = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    sizes = n_recoverable, n_values = int(rng.integers(1, n_syntax + 1)), int(rng.integers(1, n_memory + 1))
    if seed % 2:
        model, cell, syntax, weighed = families.recoverable_memory_hmm(n_cells, n_memory, n_syntax, *sizes, seed)
    else:
        n_tokens, zeros = int(rng.integers(2, 9)), 0.3 + 0.4 * rng.random()
        model = families.sparse_memory_hmm(n_memory, n_cells * n_syntax, n_tokens, seed, zeros, n_cells)
        cell = int(rng.integers(n_cells))
        syntax = sorted(rng.choice(n_syntax, n_recoverable, replace=False).tolist())
        weighed = sorted(rng.choice(n_memory, n_values, replace=False).tolist())
    mu = draw_weights(rng, n_memory, support=weighed)
    if seed % 3:
        emission = _nudged(np.random.default_rng(seed), model.emission.flatten(1)).reshape(model.emission.shape)
        model = MemoryHMM(model.transition, emission, model.initial, model.memory)
    return model, cell, syntax, mu


def _against_ranks(seed: int, n_cells: int, every_value: bool, predicate: Callable[..., predicates.Report]) -> Checked:
    """`predicate(model, mu, cell, syntax)` against ranks in rational numbers; all values count, or those in supp(μ)."""
    model, cell, syntax, mu = _any_recoverable(seed, n_cells)
    values = range(model.n_memory) if every_value else mu.nonzero().squeeze(-1).tolist()
    inside, rest = columns(model, cell, syntax, values)
    ranks = [rank(part.T) for part in (inside, rest, np.concatenate([inside, rest], 1))]
    truth = ranks[0] == inside.shape[1] and ranks[2] == ranks[0] + ranks[1]
    return _judged(predicate(model, mu, cell, syntax), truth, model.n_memory * model.n_states > 2)


def check_assumption_4_2(seed: int) -> Checked:
    """By singular values and an angle, and by ranks in rational numbers; one to three cells."""
    return _against_ranks(seed, 1 + seed % 3, True, lambda model, _, *place: predicates.assumption_4_2(model, *place))


def control_assumption_4_2(seed: int) -> float:
    """`recoverable_twins`: independent columns whose span meets that of the others. `parity_memory_hmm`: dependent."""
    twins = predicates.assumption_4_2(families.recoverable_twins(seed), 0, [0, 2, 3])
    parity = predicates.assumption_4_2(families.parity_memory_hmm(2, 0.1), 0, [0, 1, 2, 3])
    return float(not twins and bool(twins.columns) and twins.angle < 1e-9 and not parity and not parity.columns)


def check_assumption_4_4(seed: int) -> Checked:
    """P[H_0] = A P[H_0] against the null space of A - I; a quarter start beside it, by 10^-3 to 10^-6 of a state."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(int(rng.integers(1, 6)), 2, seed, zeros=0.5)
    if rng.random() < 0.5:
        model = HMM(_chain_in_turn(rng, model.n_states), model.emission, model.initial, columns=True)
    start = rng.random()
    if start < 3 / 4:
        law = model.stationary()
        law[law.argmin()] *= 1 + 10.0 ** -int(rng.integers(3, 7)) * (start < 1 / 4)
        model = HMM(model.transition, model.emission, law / law.sum(), columns=True)
    _, _, rows = np.linalg.svd(model.transition.numpy() - np.eye(model.n_states))
    fixed = rows[-1] / rows[-1].sum()
    stays = model.n_states == 1 or bool(abs(fixed - model.initial.numpy()).max() < 1e-12)
    return _judged(predicates.assumption_4_4(model), stays and _ergodic(model), start < 3 / 4 and model.n_states > 1)


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
    holding = [predicates.assumption_4_4(model).holds for model in (start, keeps)]
    return float(refuses and not any(holding) and bool(predicates.assumption_3_2(start)))


def check_assumption_4_5(seed: int) -> Checked:
    """As for Assumption 4.2, with the memory values in supp(μ) only and one cell."""
    return _against_ranks(seed, 1, False, lambda model, mu, cell, syntax: predicates.assumption_4_5(model, mu, syntax))


def control_assumption_4_5(seed: int) -> float:
    """`recoverable_twins` with μ on both values: independent columns whose span meets that of the others."""
    report = predicates.assumption_4_5(families.recoverable_twins(seed), [1.0, -1.0], [0, 2, 3])
    return float(not report and bool(report.columns) and report.angle < 1e-9)


def check_assumption_d_5(seed: int) -> Checked:
    """As for Assumption 4.5, with one to three cells; of the other cells every value counts."""
    return _against_ranks(seed, 1 + seed % 3, False, predicates.assumption_d_5)


def control_assumption_d_5(seed: int) -> float:
    """A second cell in which a value outside supp(μ) emits like a recoverable state: the first alone is in order."""
    model, _, syntax, weighed = families.recoverable_memory_hmm(1, 2, 2, 1, 1, seed)
    table = torch.cat([model.emission, torch.zeros_like(model.emission)], 2)  # the states of the second cell
    table[:, :, 2:] = model.emission[:, weighed, 1 - syntax[0]][:, :, None]
    table[:, 1 - weighed[0], 2] = model.emission[:, weighed[0], syntax[0]]
    transition = torch.full((4, 4), 0.25, dtype=torch.float64)
    both = MemoryHMM(transition, table, transition[0], torch.full((2, 2), 0.25, dtype=torch.float64))
    mu = draw_weights(np.random.default_rng(seed), 2, support=weighed)
    alone = predicates.assumption_4_5(model, mu, syntax)
    return float(bool(alone) and not predicates.assumption_d_5(both, mu, 0, syntax))
