"""The assumptions as predicates: each against an independent ruling in exact arithmetic, and on models that break just it.

A check returns 1 where the predicate and the witness disagree, a control 1 where a model that breaks only this assumption
is refused.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch

from hmmlib.evidence.enumeration import rational_rank
from hmmlib.evidence.random_models.instances import chain_in_turn, draw_weights
from hmmlib.evidence.random_models.memory_instances import any_recoverable
from hmmlib.models import families
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import (
    assumption_3_1,
    assumption_3_2,
    assumption_3_5,
    assumption_4_2,
    assumption_4_4,
    assumption_4_5,
    assumption_d_5,
    essential_states,
)


def check_assumption_3_1(seed: int) -> float:
    """Independent columns of W: by singular values, and by elimination in rational numbers."""
    rng = np.random.default_rng(seed)
    n_states, n_tokens = (int(rng.integers(1, 6)) for _ in range(2))
    model = families.sparse_hmm(n_states, n_tokens, seed, zeros=float(rng.random()) * 0.8)
    return float(assumption_3_1(model).holds != (rational_rank(model.emission.numpy()) == n_states))


def control_assumption_3_1(seed: int) -> float:
    """A regular model in which one column of W is a mixture of others."""
    model = families.dependent_hmm(3 + seed % 3, 4, seed)
    return float(assumption_3_2(model).holds and not assumption_3_1(model))


def check_assumption_3_2(seed: int) -> float:
    """Ergodic by periods of cycles, and by a power of A without zeros; full support of P[H_0] by looking."""
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 7)), 2, seed, zeros=0.3 + 0.6 * float(rng.random()))
    transition = chain_in_turn(rng, model.n_states) if rng.random() < 0.5 else model.transition
    initial = torch.full_like(model.initial, 1 / model.n_states) if rng.random() < 0.7 else model.initial
    model = HMM(transition, model.emission, initial)
    steps = np.linalg.matrix_power((model.transition.numpy() > 0).astype(object), (model.n_states - 1) ** 2 + 1)
    return float(assumption_3_2(model).holds != (bool((steps > 0).all()) and bool((model.initial > 0).all())))


def control_assumption_3_2(seed: int) -> float:
    """In turn: a chain that turns in a circle, one with a state it never returns to, a start that misses a state."""
    model = families.non_degenerate_hmm(3, 3, seed, zeros=0.0)
    turn = torch.eye(3, dtype=torch.float64).roll(1, 0)
    leave = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 0]], dtype=torch.float64)
    transition, start = [
        (turn, model.initial),
        (leave, model.initial),
        (model.transition, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)),
    ][seed % 3]
    broken = HMM(transition, model.emission, start)
    return float(bool(assumption_3_1(broken)) and not assumption_3_2(broken))


def check_assumption_3_5(seed: int) -> float:
    """Against every set 𝓑 of states, one by one; and `essential_states` finds a set exactly where some set satisfies it."""
    rng = np.random.default_rng(seed)
    model = families.sparse_hmm(int(rng.integers(1, 5)), int(rng.integers(1, 4)), seed, zeros=0.3 + 0.5 * rng.random())
    mu = draw_weights(rng, model.n_states)
    wanted = set(mu.nonzero().squeeze(-1).tolist())
    supports = [set(column.nonzero().squeeze(-1).tolist()) for column in model.transition.T]
    unions = {
        frozenset(set().union(*(supports[h] for h in chosen)))
        for size in range(1, model.n_states + 1)
        for chosen in itertools.combinations(range(model.n_states), size)
    }
    good = set()
    for size in range(1, model.n_states + 1):
        for essential in itertools.combinations(range(model.n_states), size):
            independent = rational_rank(model.emission[:, list(essential)].numpy()) == size
            holds = frozenset(essential) in unions and wanted <= set(essential) and independent
            good |= {essential} if holds else set()
            if assumption_3_5(model, mu, essential).holds != holds:
                return 1.0
    essential = essential_states(model, mu)
    return float((tuple(essential) not in good) if essential else bool(good))


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
    own = [cell * model.n_syntax + s for s in range(model.n_syntax)]
    inside = [(m, own[s]) for s in syntax for m in values]
    outside = [(m, h) for h in own if h not in [own[s] for s in syntax] for m in values]
    outside += [(m, h) for h in range(model.n_states) if h not in own for m in others]
    left, right = (np.array([table[:, m, h] for m, h in part]).reshape(-1, len(table)) for part in (inside, outside))
    ranks = [rational_rank(part) for part in (left, right, np.concatenate([left, right]))]
    return ranks[0] == len(inside) and ranks[2] == ranks[0] + ranks[1]


def check_assumption_4_2(seed: int) -> float:
    """By singular values and an angle, and by ranks in rational numbers; one to three cells."""
    model, cell, syntax, _ = any_recoverable(seed, 1 + seed % 3)
    every = list(range(model.n_memory))
    return float(assumption_4_2(model, cell, syntax).holds != _recoverable_by_ranks(model, cell, syntax, every, every))


def control_assumption_4_2(seed: int) -> float:
    """`recoverable_twins`: independent columns whose span meets that of the others. `parity_memory_hmm`: dependent ones."""
    twins = assumption_4_2(families.recoverable_twins(seed), 0, [0, 2, 3])
    parity = assumption_4_2(families.parity_memory_hmm(2, 0.1), 0, [0, 1, 2, 3])
    return float(not twins and bool(twins.columns) and twins.angle < 1e-9 and not parity and not parity.columns)


def check_assumption_4_4(seed: int) -> float:
    """P[H_0] = A P[H_0] against the null space of A - I; two thirds start there, half of the chains may be periodic."""
    rng = np.random.default_rng(seed)
    model = families.regular_hmm(int(rng.integers(1, 6)), 2, seed, zeros=0.5)
    if rng.random() < 0.5:
        model = HMM(chain_in_turn(rng, model.n_states), model.emission, model.initial)
    steps = np.linalg.matrix_power((model.transition.numpy() > 0).astype(object), (model.n_states - 1) ** 2 + 1)
    if rng.random() < 2 / 3:
        model = HMM(model.transition, model.emission, model.stationary())
    _, _, rows = np.linalg.svd(model.transition.numpy() - np.eye(model.n_states))
    fixed = rows[-1] / rows[-1].sum()
    stays = bool(abs(fixed - model.initial.numpy()).max() < 1e-8)
    return float(assumption_4_4(model).holds != (stays and bool((steps > 0).all())))


def control_assumption_4_4(seed: int) -> float:
    """A regular chain with another start; and a reducible one that starts in a distribution that it keeps."""
    model = families.regular_hmm(3, 2, seed, zeros=0.3)
    other = model.stationary() * torch.arange(1, 4)
    start = HMM(model.transition, model.emission, other / other.sum())
    keeps = HMM(torch.eye(3, dtype=torch.float64), model.emission, model.initial)
    return float(not assumption_4_4(start) and bool(assumption_3_2(start)) and not assumption_4_4(keeps))


def check_assumption_4_5(seed: int) -> float:
    """As for Assumption 4.2, with the memory values in supp(μ) only and one cell."""
    model, _, syntax, mu = any_recoverable(seed, 1)
    values = mu.nonzero().squeeze(-1).tolist()
    return float(assumption_4_5(model, mu, syntax).holds != _recoverable_by_ranks(model, 0, syntax, values, values))


def control_assumption_4_5(seed: int) -> float:
    """`recoverable_twins` with μ on both values: independent columns whose span meets that of the others."""
    report = assumption_4_5(families.recoverable_twins(seed), [1.0, -1.0], [0, 2, 3])
    return float(not report and bool(report.columns) and report.angle < 1e-9)


def check_assumption_d_5(seed: int) -> float:
    """As for Assumption 4.5, with one to three cells; of the other cells every value counts."""
    model, cell, syntax, mu = any_recoverable(seed, 1 + seed % 3)
    values, every = mu.nonzero().squeeze(-1).tolist(), list(range(model.n_memory))
    return float(
        assumption_d_5(model, mu, cell, syntax).holds != _recoverable_by_ranks(model, cell, syntax, values, every)
    )


def control_assumption_d_5(seed: int) -> float:
    """A second cell in which a value outside supp(μ) emits like a recoverable state: one cell alone would be in order."""
    model, _, syntax, kept = families.recoverable_memory_hmm(1, 2, 2, 1, 1, seed)
    table = torch.cat([model.emission, torch.zeros_like(model.emission)], 2)  # the states of the second cell
    table[:, :, 2:] = model.emission[:, kept, 1 - syntax[0]][:, :, None]
    table[:, 1 - kept[0], 2] = model.emission[:, kept[0], syntax[0]]
    transition = torch.full((4, 4), 0.25, dtype=torch.float64)
    both = MemoryHMM(transition, table, transition[0], torch.full((2, 2), 0.25, dtype=torch.float64))
    mu = draw_weights(np.random.default_rng(seed), 2, support=kept)
    alone = assumption_4_5(model, mu, syntax)
    return float(bool(alone) and not assumption_d_5(both, mu, 0, syntax))
