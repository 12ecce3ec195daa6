"""The equations of Section 4 and appendix D at random rational points: as `vanilla`, for models with memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hmmbook.evidence.enumeration import Joint, conditional, normalised
from hmmbook.evidence.exact import rational
from hmmbook.evidence.exact.rational import Model, latent_joints, possible_text, prediction, random_column
from hmmbook.evidence.exact.vanilla import Differences, draw_prompt, is_small, prompted_differences

GATE = 0
"""A token of every task that only one state emits. That state leads only into H*."""
OUTSIDE = 1
"""A token of every task under Assumption D.5. It comes only from cell j* with a value outside the support of μ."""


# Tasks


@dataclass(frozen=True)
class Task:
    """A memory model with what Theorems 4.3 and D.6 are about.

    The columns of W at H* and `values` are independent. The others, V̄, lie in a span of few dimensions. After a GATE
    the state is surely in H*, so that there is something to attend to.
    """

    model: Model
    cell: int  # j*
    mu: np.ndarray  # weights on the values of cell j*, (M,)
    essential: list[int]  # the recoverable states H* = {j*} × S*
    values: list[int]  # the values M* of Assumption 4.2, which are all, or of D.5, which are the support of μ

    @cached_property
    def inverses(self) -> tuple[np.ndarray, np.ndarray]:
        """A left inverse of the columns at M* × H* and of a basis of V̄: its rows for M* × H*, and for the basis."""
        emission = self.model.emission
        n_tokens, n_values, n_states = emission.shape
        recovered = emission[:, self.values][:, :, self.essential]
        in_basis = np.ones((n_values, n_states), bool)
        cell_of_state = np.arange(n_states) * self.model.memory.ndim // n_states
        in_basis[:, cell_of_state == self.cell] = False
        in_basis[self.values] = True
        in_basis[:, self.essential] = False
        spanned = emission[:, in_basis]
        basis = spanned[:, rational.echelon_form(spanned)[1]]
        inverse = rational.left_inverse(np.concatenate([recovered.reshape(n_tokens, -1), basis], 1))
        n_recovered = recovered[0].size
        return inverse[:n_recovered].reshape(*recovered.shape[1:], n_tokens), inverse[n_recovered:]


def draw_task(rng: random.Random, n_states: int, prompted: bool = False, cells: tuple[int, ...] = (1, 2, 3)) -> Task:
    """Draw a task. A and P[M] have random zeros.

    Args:
        rng: Its state moves on.
        n_states: |H|.
        prompted: Whether Assumption D.5 is satisfied rather than 4.2, and the start is stationary.
        cells: How many cells there may be. The number has to divide the states.
    """
    n_cells = rng.choice([n for n in cells if n_states % n == 0])
    n_values = rng.choice((2, 3))
    n_syntax = n_states // n_cells
    cell = rng.randrange(n_cells)
    in_cell = range(cell * n_syntax, (cell + 1) * n_syntax)
    n_essential = rng.randint(1, n_syntax - 1 if n_cells == 1 else n_syntax)
    essential = sorted(rng.sample(in_cell, n_essential))
    gate = rng.choice([h for h in range(n_states) if h not in essential])
    n_weighted = rng.randint(1, n_values - 1)
    weighted = sorted(rng.sample(range(n_values), n_weighted))
    values = weighted if prompted else list(range(n_values))

    columns = np.full((n_values, n_states), "spanned", object)
    columns[:, essential] = "recovered"
    for m in range(n_values):
        if m not in values:
            columns[m, in_cell] = "outside"
    columns[:, gate] = "gate"
    emission = draw_emission(rng, columns, 2 + len(values) * len(essential))
    transition = draw_transition(rng, n_states, essential, gate)
    initial = rational.stationary(transition) if prompted else random_column(rng, [1] * n_states)
    model = Model(transition, emission, initial, draw_memory(rng, n_values, n_cells))
    mu = rational.random_weights(rng, np.isin(range(n_values), weighted).astype(int))
    return Task(model, cell, mu, essential, values)


def draw_emission(rng: random.Random, columns: np.ndarray, n_plain: int) -> np.ndarray:
    """Draw W, (X, M, H), from the kind of each column, (M, H). Besides GATE and OUTSIDE there are `n_plain` tokens."""
    support = {
        "gate": [1, 0, *[0] * n_plain],
        "outside": [0, 1, *[1] * n_plain],
        "recovered": [0, 0, *[1] * n_plain],
    }
    spanning = rational.random_columns(rng, [support["recovered"]] * 2)
    emission = np.empty((2 + n_plain, *columns.shape), object)
    for m, h in np.ndindex(columns.shape):
        kind = columns[m, h]
        if kind == "spanned":
            emission[:, m, h] = spanning @ random_column(rng, [1, 1])
        else:
            emission[:, m, h] = random_column(rng, support[kind])
    return emission


def draw_transition(rng: random.Random, n_states: int, essential: list[int], gate: int) -> np.ndarray:
    """Draw A so that every state leads to the gate, and the gate only into H*."""
    patterns = []
    for h in range(n_states):
        pattern = [1] * n_states if h in essential else rational.random_pattern(rng, n_states, 0.3)
        pattern[gate] = 1
        patterns.append(pattern)
    patterns[gate] = np.isin(range(n_states), essential)
    return rational.random_columns(rng, patterns)


def draw_memory(rng: random.Random, n_values: int, n_cells: int) -> np.ndarray:
    """Draw P[M] so that each value of each cell is possible."""
    shape = (n_values,) * n_cells
    pattern = np.array(rational.random_pattern(rng, n_values**n_cells, 0.2)).reshape(shape)
    pattern[(np.arange(n_values),) * n_cells] = 1
    return random_column(rng, pattern.ravel()).reshape(shape)


# The constructions of the paper


def prompt(task: Task) -> np.ndarray:
    """Return u of (D.6), (K, H): 1 where m_{j*} is in supp(μ), 0 elsewhere."""
    is_weighted = task.mu != 0
    return task.model.ones * is_weighted[task.model.values[task.cell], None]


def theta_2(task: Task) -> np.ndarray:
    """Return Θ^(2,s) of Claims D.3 and D.10, (M, S*, X), which gives P[M_{j*}, H_i = h | …] for each h in H*."""
    theta = np.zeros((len(task.mu), len(task.essential), len(task.model.emission)), object)
    theta[task.values] = task.inverses[0]
    return theta


def key(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return the query q of Lemmas D.2 and D.9, which is 1 on H*, and Θ^(K) = Θ^(1).

    Θ^(1) has a row that gives Pr(H_i = h | …) for each h in H*, and one for all other states.
    """
    of_others = task.inverses[1].sum(0, keepdims=True)
    theta_1 = np.concatenate([theta_2(task).sum(0), of_others])
    query = np.array([*[1] * len(task.essential), 0], object)
    return query, theta_1


def value(task: Task, probs: np.ndarray, embedding: np.ndarray) -> object:
    """Return V of Lemmas D.4 and D.13: bᵀ((Θ^(V) Ḡ_i) ⊙ φ(e)), with b = Bᵀμ and B the sum over S*."""
    return task.mu @ (theta_2(task) @ probs * embedding[:, task.essential]).sum(1)


class TaskReading:
    """Read a text with a task's model and the parts of its head. Positions count from 0.

    Attributes:
        rows: The lifted evidence of each position. The first is the prompt (D.6) if there is one.
        likelihood: The probability of all evidence.
        leave_one_out: At each position the probability of all other evidence.
        target: μᵀP[M_{j*} | evidence].
        probs: Ḡ_i at each position.
        latents: P[M_{J_i}, H_i | all evidence but that of i] at each position, (M, H).
        values: V at each position.
        sure: The positions where P[H_i | evidence but that of i] exists and is supported in H*.
    """

    def __init__(self, task: Task, text: list[int], prompted: bool = False):
        model = task.model
        self.rows = model.rows(text)
        if prompted:
            self.rows.insert(0, prompt(task))
        self.at_start, *self.tables = latent_joints(model, self.rows)
        self.likelihood = self.at_start.sum()
        self.target = task.mu @ normalised(model.of_cell(self.at_start, task.cell))
        self.leave_one_out = np.zeros(len(self.rows), object)
        self.values = np.zeros(len(self.rows), object)
        self.probs = []
        self.latents = []
        sure = []
        for i, table in enumerate(self.tables):
            probs = prediction(model, table)
            latent = normalised(model.looked_up(table))
            self.probs.append(probs)
            self.latents.append(latent)
            self.leave_one_out[i] = table.sum()
            self.values[i] = value(task, probs, model.unlift(self.rows[i]))
            is_possible = self.leave_one_out[i] != 0
            is_elsewhere = np.delete(latent, task.essential, 1).any()
            if is_possible and not is_elsewhere:
                sure.append(i)
        self.sure = np.array(sure, int)


def read_twice(rng: random.Random, task: Task, length: int, excluded: bool = False) -> tuple[TaskReading, TaskReading]:
    """Draw a possible text, and read it behind the prompt (D.6) and alone.

    Args:
        rng: Its state moves on.
        task: A task.
        length: The length of the text.
        excluded: Whether the prompt excludes the text, because M_{j*} is surely outside supp(μ). If not, the text is
            possible behind the prompt too, and has a gate before its last position.
    """
    while True:
        text = possible_text(rng, task.model, length)
        is_candidate = OUTSIDE in text if excluded else GATE in text[:-1]
        if is_candidate:
            behind = TaskReading(task, text, prompted=True)
            if excluded or behind.likelihood:
                return behind, TaskReading(task, text)


# The identities


def identity_proposition_d_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[X_i | X_-i = x_-i] = W P[M_{J_i}, J_i, S_i | X_-i = x_-i], which is (D.1), by enumeration of all texts."""
    model = draw_task(rng, n_states).model
    while length > 1 and not is_small(model, length, length):
        length -= 1
    table = Joint(model.transition, model.emission, model.initial, [None] * length, model.memory)
    for i in range(1, length + 1):
        weights = conditional(table.cell_and_state(i))  # P[M_{J_i}, H_i | x_-i] for every text, (texts, M, H)
        yield conditional(table.token(i)) - np.tensordot(weights, model.emission, ((1, 2), (1, 2)))


def recovery_differences(task: Task, reading: TaskReading, first: int) -> Differences:
    """Compare what Θ^(1) and Θ^(2,s) give of Ḡ_i, from a first position on, with the exact probabilities."""
    _, theta_1 = key(task)
    for i in range(first, len(reading.rows)):
        exact = reading.latents[i][:, task.essential]
        states = exact.sum(0)
        yield theta_1 @ reading.probs[i] - np.array([*states, 1 - states.sum()], object)
        yield theta_2(task) @ reading.probs[i] - exact


def identity_claim_d_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """Θ^(1) G_i(x) has Pr(H_i = h | x_-i), h in H*, and sums to 1; Θ^(2,s) G_i(x) = P[M_{j*}, H_i = (j*, s) | x_-i]."""
    task = draw_task(rng, n_states)
    _, plain = read_twice(rng, task, length)
    yield from recovery_differences(task, plain, first=0)


def identity_claim_d_10(rng: random.Random, n_states: int, length: int) -> Differences:
    """Claim D.3 for Ḡ_i(ê(x)) with the prompt (D.6), i > 1, and with columns as in Assumption D.5."""
    task = draw_task(rng, n_states, prompted=True)
    behind, _ = read_twice(rng, task, length)
    yield from recovery_differences(task, behind, first=1)


def identity_lemma_d_4(rng: random.Random, n_states: int, length: int) -> Differences:
    """V(G_i(x), e(x_i)) = r_{x,i} μᵀP[M_{j*} | x], r_{x,i} = Pr(x) / Pr(x_-i), where the state is surely in H*."""
    _, plain = read_twice(rng, draw_task(rng, n_states), length)
    ratios = plain.likelihood / plain.leave_one_out
    yield (plain.values - ratios * plain.target)[plain.sure]


def identity_lemma_d_13(rng: random.Random, n_states: int, length: int) -> Differences:
    """V(Ḡ_i, ê_i) = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_-i = x̂_-i] = r_{x,i} μᵀP[M_{j*} | x] where the state is surely in H*.

    There without the prompt, that is in Î. And V = 0 at every i > 1 for another input, whose (z̃, x) is impossible.
    """
    task = draw_task(rng, n_states, prompted=True)
    behind, plain = read_twice(rng, task, length)
    positions = plain.sure + 1
    leave_one_out = behind.leave_one_out[positions]
    joints = task.mu @ task.model.of_cell(behind.at_start, task.cell) / leave_one_out
    yield behind.values[positions] - joints
    yield joints - plain.likelihood / leave_one_out * plain.target
    impossible, _ = read_twice(rng, task, length, excluded=True)
    yield impossible.values[1:]


def head_differences(task: Task, reading: TaskReading, plain: TaskReading, first: int) -> Differences:
    """Compare attention over the positions from `first`: to which it attends, and its score.

    qᵀK is the probability of H*, hence 1, the most there is, where the state is surely in H*. The score is the mean of
    r_{x,i} = Pr(x) / Pr(x̂_-i) over those positions, times μᵀP[M_{j*} | x].
    """
    query, theta_1 = key(task)
    attended = reading.sure[reading.sure >= first]
    for i in range(first, len(reading.rows)):
        inside = reading.latents[i][:, task.essential].sum()
        if i in attended:
            inside = 1
        yield query @ (theta_1 @ reading.probs[i]) - inside
    ratios = plain.likelihood / reading.leave_one_out[attended]
    yield (reading.values[attended] - ratios * plain.target).sum() / len(attended)


def identity_theorem_4_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """The attention head of Theorem 4.3 on G(x): the positions it attends to and its score."""
    task = draw_task(rng, n_states)
    _, plain = read_twice(rng, task, length)
    yield from head_differences(task, plain, plain, first=0)


def prompted_head_differences(rng: random.Random, task: Task, length: int) -> Differences:
    """Compare the head behind the prompt (D.6) on a possible (z̃, x), and on an x where (z̃, x) is impossible."""
    behind, plain = read_twice(rng, task, length)
    yield from head_differences(task, behind, plain, first=1)
    impossible, plain = read_twice(rng, task, length, excluded=True)
    yield impossible.values[1:]
    yield plain.target


def identity_theorem_4_6(rng: random.Random, n_states: int, length: int) -> Differences:
    """The head behind the prompt where (z̃, x) is possible; where it is not, its values and the target are 0."""
    yield from prompted_head_differences(rng, draw_task(rng, n_states, prompted=True, cells=(1,)), length)


def identity_theorem_d_6(rng: random.Random, n_states: int, length: int) -> Differences:
    """The same as for Theorem 4.6, with several cells."""
    yield from prompted_head_differences(rng, draw_task(rng, n_states, prompted=True, cells=(2, 3)), length)


def identity_lemma_d_7(rng: random.Random, n_states: int, length: int) -> Differences:
    """For (u, η(e(x))), u any lifted vector, at each position: τ_i = P[H̃_i, X̂_-i = x̂_-i], Ḡ_i the conditional."""
    model = draw_task(rng, n_states).model
    yield from prompted_differences(rng, model, [draw_prompt(rng, model)], length)


def identity_proposition_d_8(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[M, H_i, X_{i+1:i+t} = x] = P[M, H_0, X_{1:t} = x] from a stationary start, i from 1 to 3."""
    model = draw_task(rng, n_states, prompted=True).model
    rows = model.rows(possible_text(rng, model, length))
    i = rng.randint(1, 3)
    later = latent_joints(model, [model.ones] * i + rows)[i]
    yield later - latent_joints(model, rows)[0]


def identity_proposition_d_11(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[M_{j*} = m, X̂_-i = x̂_-i] = 0 for m outside supp(μ), at every i > 1."""
    task = draw_task(rng, n_states, prompted=True)
    behind = TaskReading(task, possible_text(rng, task.model, length), prompted=True)
    for table in behind.tables[1:]:
        yield task.model.of_cell(table, task.cell)[task.mu == 0]


def identity_claim_d_14(rng: random.Random, n_states: int, length: int) -> Differences:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(X̂_1 = z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | x]."""
    behind, plain = read_twice(rng, draw_task(rng, n_states, prompted=True), length)
    prompt_given_text = behind.likelihood / behind.leave_one_out[0]
    yield behind.target * prompt_given_text - plain.target


def identity_claim_d_15(rng: random.Random, n_states: int, length: int) -> Differences:
    """Where (z̃, x) is impossible, μᵀP[M_{j*} | x] = 0; and Ḡ_i = 0 wherever (z̃, x)_-i is impossible."""
    behind, plain = read_twice(rng, draw_task(rng, n_states, prompted=True), length, excluded=True)
    yield np.array([behind.likelihood, plain.target], object)
    yield np.array(behind.probs, object)[behind.leave_one_out == 0]
