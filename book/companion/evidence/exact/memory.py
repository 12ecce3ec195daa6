"""The equations of Section 4 and appendix D at random rational points: as `vanilla`, for models with memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from companion.evidence.enumeration import Joint
from companion.evidence.enumeration import conditional as conditionals
from companion.evidence.exact.rational import (
    MASK,
    Model,
    fractions,
    left_inverse,
    normalised,
    others,
    possible_text,
    predictions,
    random_column,
    random_columns,
    random_pattern,
    random_weights,
    reduced,
    stationary,
)
from companion.evidence.exact.vanilla import (
    MOST_ENTRIES,
    Differences,
    draw_prompt,
    entries,
    full,
    prompted_differences,
)

Rows = list[np.ndarray]


@dataclass(frozen=True)
class Task:
    """A memory model, a cell j*, weights μ on its values, and recoverable states H* = {j*} × S*.

    `values` are those of Assumption 4.2 (all) or D.5 (the support of μ). Of the other columns of W, those in V̄ lie in
    a span of few dimensions. One state outside H* emits only the last token, `gate`, and leads only into H*, so that
    the state after a gate is surely in H*. Under D.5 the token before it, `outside`, comes only from cell j* with a value
    outside the support of μ.
    """

    model: Model
    cell: int
    mu: np.ndarray
    essential: list[int]
    values: list[int]

    @property
    def gate(self) -> int:
        return len(self.model.emission) - 1

    @property
    def outside(self) -> int:
        return len(self.model.emission) - 2

    @property
    def rest(self) -> list[tuple[int, int]]:
        """The (m, h) whose columns span V̄."""
        n, cells = self.model.n_states, self.model.n_cells
        return [
            (m, h)
            for h in range(n)
            for m in range(self.model.n_values)
            if h not in self.essential and (h * cells // n != self.cell or m in self.values)
        ]

    @cached_property
    def inverse(self) -> np.ndarray:
        """A left inverse of the columns at M* × H*, by state, then value, beside a basis of V̄."""
        table = self.model.emission
        own = [table[:, m, h] for h in self.essential for m in self.values]
        rest = np.stack([table[:, m, h] for m, h in self.rest], 1)
        return left_inverse(np.concatenate([np.stack(own, 1), rest[:, reduced(rest)[1]]], 1))


def draw_task(rng: random.Random, n_states: int, n_cells: int, sparse: bool, at_rest: bool) -> Task:
    """A random task; `sparse` asks for Assumption D.5 rather than 4.2, `at_rest` for a stationary start.

    A and P[M] have random zeros.
    """
    n_values, n_syntax, cell = rng.choice((2, 3)), n_states // n_cells, rng.randrange(n_cells)
    in_cell = range(cell * n_syntax, (cell + 1) * n_syntax)
    essential = sorted(rng.sample(in_cell, rng.randint(1, n_syntax - (n_cells == 1))))
    gate = rng.choice([h for h in range(n_states) if h not in essential])
    weighed = sorted(rng.sample(range(n_values), rng.randint(1, n_values - 1)))
    values = weighed if sparse else list(range(n_values))
    plain = full(len(values) * len(essential) + 2)  # the tokens but `outside` and `gate`
    spanning = random_columns(rng, [[*plain, 0, 0]] * 2)

    def column(m: int, h: int) -> np.ndarray:
        if h == gate:
            return random_column(rng, [*np.zeros_like(plain), 0, 1])
        if h in in_cell and m not in values:
            return random_column(rng, [*plain, 1, 0])
        return random_column(rng, [*plain, 0, 0]) if h in essential else spanning @ random_column(rng, [1, 1])

    emission = np.stack([np.stack([column(m, h) for h in range(n_states)], 1) for m in range(n_values)], 1)
    patterns = [full(n_states) if h in essential else random_pattern(rng, n_states, 0.3) for h in range(n_states)]
    for pattern in patterns:
        pattern[gate] = 1
    patterns[gate] = np.isin(range(n_states), essential)
    transition = random_columns(rng, patterns)
    law = stationary(transition) if at_rest else random_column(rng, full(n_states))
    joint = np.array(random_pattern(rng, n_values**n_cells, 0.2)).reshape((n_values,) * n_cells)
    joint[(np.arange(n_values),) * n_cells] = 1  # so that each value is possible
    model = Model(transition, emission, law, random_column(rng, joint.ravel()), n_cells)
    return Task(model, cell, random_weights(rng, np.isin(range(n_values), weighed).astype(int)), essential, values)


def some_task(rng: random.Random, n_states: int, sparse: bool, at_rest: bool, cells=(1, 2, 3)) -> Task:
    """A task with one of these numbers of cells, as far as they divide the states."""
    return draw_task(rng, n_states, rng.choice([n for n in cells if n_states % n == 0]), sparse, at_rest)


def conditional(model: Model, rows: Rows, i: int) -> np.ndarray:
    """P[M_{J_i}, H_i | all evidence but that of i], (M, H)."""
    return normalised(model.looked_up(others(model, rows)[i]))


def chance(model: Model, rows: Rows) -> object:
    """The probability of the evidence."""
    return others(model, rows)[0].sum()


def target(task: Task, rows: Rows) -> object:
    """μᵀP[M_{j*} | evidence]."""
    return task.mu @ normalised(task.model.of_cell(others(task.model, rows)[0], task.cell))


def prompt(task: Task) -> np.ndarray:
    """u of (D.6): 1 where m_{j*} is in supp(μ), 0 elsewhere."""
    n, cells = task.model.n_values, task.model.n_cells
    mine = np.indices((n,) * cells)[task.cell].ravel()
    return np.repeat(fractions((task.mu != 0)[mine].astype(int))[:, None], task.model.n_states, 1)


def prompted(task: Task, x: list[int]) -> Rows:
    """ê(x) = (u, η(e(x)))."""
    return [prompt(task), *task.model.rows(x)]


def theta_2(task: Task) -> np.ndarray:
    """Θ^(2,s) of Claims D.3 and D.10, (S*, M, X): to P[M_{j*}, H_i = h | …], for each h = (j*, s) in H*."""
    found = fractions(np.zeros((len(task.essential), task.model.n_values, len(task.model.emission)), int))
    n_own = len(task.essential) * len(task.values)
    found[:, task.values] = task.inverse[:n_own].reshape(len(task.essential), len(task.values), -1)
    return found


def theta_1(task: Task) -> np.ndarray:
    """Θ^(1) of Claims D.3 and D.10: a row for each h in H*, to Pr(H_i = h | …), and one to the rest."""
    n_own = len(task.essential) * len(task.values)
    return np.concatenate([theta_2(task).sum(1), task.inverse[n_own:].sum(0, keepdims=True)])


def key(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Query q and Θ^(K) of Lemmas D.2 and D.9: 1 on H*, and Θ^(1); qᵀK is the probability of H*."""
    return np.array([*full(len(task.essential)), 0], object), theta_1(task)


def value(task: Task, probs: np.ndarray, embedding: np.ndarray) -> object:
    """V of Lemmas D.4 and D.13: bᵀ((Θ^(V) Ḡ_i) ⊙ φ(e)), with b = Bᵀμ and B the sum over S*."""
    read = (theta_2(task) @ probs).T * embedding[:, task.essential]  # (M, S*)
    return task.mu @ read.sum(1)


def values(task: Task, rows: Rows) -> np.ndarray:
    """V at every position."""
    probs = predictions(task.model, rows)
    return np.array([value(task, p, task.model.unlift(row)) for p, row in zip(probs, rows, strict=True)], object)


def surely_recoverable(task: Task, rows: Rows) -> list[int]:
    """The positions i, from 1, where P[H_i | evidence but that of i] exists and is supported in H*."""
    laws = [table.sum(0) for table in others(task.model, rows)]
    return [i for i, law in enumerate(laws) if i and law.any() and not np.delete(law, task.essential).any()]


def gated_text(rng: random.Random, task: Task, length: int, prompted_too: bool) -> list[int]:
    """A possible x with a gate before its last position; with `prompted_too` (z̃, x) is possible as well."""

    def wanted(x: list[int]) -> bool:
        return task.gate in x[:-1] and (not prompted_too or bool(chance(task.model, prompted(task, x))))

    return possible_text(rng, task.model, length, wanted)


def excluded_text(rng: random.Random, task: Task, length: int) -> list[int]:
    """A possible x for which (z̃, x) is impossible: M_{j*} is surely outside supp(μ)."""
    return possible_text(rng, task.model, length, lambda x: task.outside in x)


def ratios(task: Task, rows: Rows, x: list[int], positions: list[int]) -> np.ndarray:
    """r_{x,i} = Pr(X = x) / Pr(evidence but that of i)."""
    tables = others(task.model, rows)
    return chance(task.model, task.model.rows(x)) / np.array([tables[i].sum() for i in positions], object)


def identity_proposition_d_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[X_i | X_-i = x_-i] = W P[M_{J_i}, J_i, S_i | X_-i = x_-i], which is (D.1), by enumeration of all texts."""
    model = some_task(rng, n_states, sparse=False, at_rest=False).model
    length = max([1] + [t for t in range(2, length + 1) if entries(model, t, t) <= MOST_ENTRIES])
    prior = model.memory.reshape((model.n_values,) * model.n_cells)
    table = Joint(model.transition, model.emission, model.initial, [None] * length, prior)
    for i in range(1, length + 1):
        weights = mixed(table, i).reshape(len(model.emission) ** length, -1)
        yield conditionals(table.token(i)) - weights @ model.emission.reshape(len(model.emission), -1).T


def mixed(table: Joint, i: int) -> np.ndarray:
    """P[M_{J_i}, H_i | x_-i] for every text, (texts, M, H)."""
    return conditionals(table.cell_and_state(i))


def theta_differences(task: Task, rows: Rows, first: int) -> Differences:
    """How far Θ^(1) Ḡ_i and Θ^(2,s) Ḡ_i are from what Claims D.3 and D.10 say, from position `first`."""
    probs = predictions(task.model, rows)
    for i in range(first, len(rows) + 1):
        exact = conditional(task.model, rows, i)[:, task.essential]
        states = exact.sum(0)
        yield theta_1(task) @ probs[i - 1] - np.array([*states, 1 - states.sum()], object)
        yield theta_2(task) @ probs[i - 1] - exact.T


def identity_claim_d_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """Θ^(1) G_i(x) has Pr(H_i = h | x_-i) for h in H* and sums to 1; Θ^(2,s) G_i(x) = P[M_{j*}, H_i = (j*, s) | x_-i]."""
    task = some_task(rng, n_states, sparse=False, at_rest=False)
    yield from theta_differences(task, task.model.rows(possible_text(rng, task.model, length)), 1)


def identity_lemma_d_4(rng: random.Random, n_states: int, length: int) -> Differences:
    """V(G_i(x), e(x_i)) = r_{x,i} μᵀP[M_{j*} | x] at every position that is surely in H*."""
    task = some_task(rng, n_states, sparse=False, at_rest=False)
    x = gated_text(rng, task, length, prompted_too=False)
    rows = task.model.rows(x)
    positions = surely_recoverable(task, rows)
    yield values(task, rows)[np.array(positions) - 1] - ratios(task, rows, x, positions) * target(task, rows)


def head_differences(task: Task, rows: Rows, x: list[int], first: int) -> Differences:
    """Attention over the positions from `first`: to which it attends, and its score.

    qᵀK is the probability of H*, hence 1, the most there is, where the state is surely in H*. The score is the mean of
    r_{x,i} over those positions, times μᵀP[M_{j*} | x].
    """
    attended, (query, matrix) = [i for i in surely_recoverable(task, rows) if i >= first], key(task)
    probs = predictions(task.model, rows)
    for i in range(first, len(rows) + 1):
        inside = 1 if i in attended else conditional(task.model, rows, i)[:, task.essential].sum()
        yield query @ (matrix @ probs[i - 1]) - inside
    score = values(task, rows)[np.array(attended) - 1].sum() / len(attended)
    mean = ratios(task, rows, x, attended).sum() / len(attended)
    yield score - mean * target(task, task.model.rows(x))


def identity_theorem_4_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """The attention head of Theorem 4.3 on G(x): the positions it attends to and its score."""
    task = some_task(rng, n_states, sparse=False, at_rest=False)
    x = gated_text(rng, task, length, prompted_too=False)
    yield from head_differences(task, task.model.rows(x), x, first=1)


def identity_lemma_d_7(rng: random.Random, n_states: int, length: int) -> Differences:
    """For (u, η(e(x))), u any lifted vector: τ_i = P[H̃_i, X̂_-i = x̂_-i], and Ḡ_i the conditional, at every position."""
    model = some_task(rng, n_states, sparse=False, at_rest=False).model
    yield from prompted_differences(rng, model, [draw_prompt(rng, model)], length)


def identity_proposition_d_8(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[M, H_i, X_{i+1:i+t} = x] = P[M, H_0, X_{1:t} = x] from a stationary start, i from 1 to 3."""
    model = some_task(rng, n_states, sparse=True, at_rest=True).model
    x, i = possible_text(rng, model, length), rng.randint(1, 3)
    yield others(model, model.rows([MASK] * i + x))[i] - others(model, model.rows(x))[0]


def identity_claim_d_10(rng: random.Random, n_states: int, length: int) -> Differences:
    """Claim D.3 for Ḡ_i(ê(x)) with the prompt (D.6), i > 1, columns as in Assumption D.5."""
    task = some_task(rng, n_states, sparse=True, at_rest=True)
    yield from theta_differences(task, prompted(task, gated_text(rng, task, length, prompted_too=True)), 2)


def identity_proposition_d_11(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[M_{j*} = m, X̂_-i = x̂_-i] = 0 for m outside supp(μ), at every i > 1."""
    task = some_task(rng, n_states, sparse=True, at_rest=True)
    for table in others(task.model, prompted(task, possible_text(rng, task.model, length)))[2:]:
        yield task.model.of_cell(table, task.cell)[task.mu == 0]


def identity_lemma_d_13(rng: random.Random, n_states: int, length: int) -> Differences:
    """V(Ḡ_i, ê_i) = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_-i = x̂_-i] = r_{x,i} μᵀP[M_{j*} | x] where the state is surely in H*.

    There without the prompt, that is in Î. And V = 0 at every i > 1 for another input, whose (z̃, x) is impossible.
    """
    task = some_task(rng, n_states, sparse=True, at_rest=True)
    x = gated_text(rng, task, length, prompted_too=True)
    rows, plain = prompted(task, x), task.model.rows(x)
    positions = [i + 1 for i in surely_recoverable(task, plain)]
    tables = others(task.model, rows)
    weight = task.mu @ task.model.of_cell(tables[0], task.cell)
    joints = weight / np.array([tables[i].sum() for i in positions], object)
    yield values(task, rows)[np.array(positions) - 1] - joints
    yield joints - ratios(task, rows, x, positions) * target(task, plain)
    yield values(task, prompted(task, excluded_text(rng, task, length)))[1:]


def identity_claim_d_14(rng: random.Random, n_states: int, length: int) -> Differences:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(X̂_1 = z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | x]."""
    task = some_task(rng, n_states, sparse=True, at_rest=True)
    x = gated_text(rng, task, length, prompted_too=True)
    rows = prompted(task, x)
    tables = others(task.model, rows)
    yield target(task, rows) * tables[0].sum() / tables[1].sum() - target(task, task.model.rows(x))


def identity_claim_d_15(rng: random.Random, n_states: int, length: int) -> Differences:
    """Where (z̃, x) is impossible, μᵀP[M_{j*} | x] = 0; and Ḡ_i = 0 wherever (z̃, x)_-i is impossible."""
    task = some_task(rng, n_states, sparse=True, at_rest=True)
    x = excluded_text(rng, task, length)
    rows = prompted(task, x)
    yield np.array([chance(task.model, rows), target(task, task.model.rows(x))], object)
    for table, probs in zip(others(task.model, rows)[1:], predictions(task.model, rows), strict=True):
        yield probs * (table.sum() == 0)


def attention_differences(rng: random.Random, task: Task, length: int) -> Differences:
    """The head of Theorems D.6 and 4.6 where (z̃, x) is possible, and its values, all 0, for an x where it is not."""
    x, excluded = gated_text(rng, task, length, prompted_too=True), excluded_text(rng, task, length)
    yield np.array([*values(task, prompted(task, excluded))[1:], target(task, task.model.rows(excluded))], object)
    yield from head_differences(task, prompted(task, x), x, first=2)


def identity_theorem_d_6(rng: random.Random, n_states: int, length: int) -> Differences:
    """The prompt (D.6) and the attention head of Theorem D.6, with two cells or three."""
    yield from attention_differences(rng, some_task(rng, n_states, True, True, cells=(2, 3)), length)


def identity_theorem_4_6(rng: random.Random, n_states: int, length: int) -> Differences:
    """The prompt (D.6) and the attention head of Theorem 4.6, with one cell."""
    yield from attention_differences(rng, some_task(rng, n_states, True, True, cells=(1,)), length)
