"""The equations of Section 4 and appendix D at random rational points: as `vanilla`, for models with memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from companion.evidence.enumeration import Joint, conditional, normalised
from companion.evidence.exact import rational
from companion.evidence.exact.rational import Model, other_than, possible_text, prediction, random_column
from companion.evidence.exact.vanilla import Differences, draw_prompt, few_entries, prompted_differences

GATE, OUTSIDE = 0, 1
"""Two tokens of every task: of one state alone, and of values of cell j* that Assumption D.5 does not recover."""


@dataclass(frozen=True)
class Task:
    """A memory model, a cell j*, weights μ on its values, and recoverable states H* = {j*} × S*.

    `values` are those of Assumption 4.2 (all) or D.5 (the support of μ). Of the other columns of W, those in V̄ lie in
    a span of few dimensions. One state outside H* emits only GATE and leads only into H*, so that the state after a
    gate is surely in H*. Under D.5, OUTSIDE comes only from cell j* with a value outside the support of μ.
    """

    model: Model
    cell: int
    mu: np.ndarray
    essential: list[int]
    values: list[int]

    @cached_property
    def inverses(self) -> tuple[np.ndarray, np.ndarray]:
        """A left inverse of the columns at M* × H* and of a basis of V̄: its rows for M* × H*, and for the basis."""
        table = self.model.emission
        n_tokens, n_values, n_states = table.shape
        own = table[:, self.values][:, :, self.essential]
        rest = np.ones((n_values, n_states), bool)
        rest[:, np.arange(n_states) * self.model.memory.ndim // n_states == self.cell] = False
        rest[self.values] = True
        rest[:, self.essential] = False
        basis = table[:, rest][:, rational.reduced(table[:, rest])[1]]
        inverse = rational.left_inverse(np.concatenate([own.reshape(n_tokens, -1), basis], 1))
        n_own = own[0].size
        return inverse[:n_own].reshape(*own.shape[1:], n_tokens), inverse[n_own:]


def draw_task(rng: random.Random, n_states: int, prompted: bool = False, cells: tuple[int, ...] = (1, 2, 3)) -> Task:
    """A random task with one of these numbers of cells that divides the states; A and P[M] have random zeros.

    `prompted` asks for Assumption D.5 rather than 4.2 and for a stationary start.
    """
    n_cells = rng.choice([n for n in cells if n_states % n == 0])
    n_values, n_syntax, cell = rng.choice((2, 3)), n_states // n_cells, rng.randrange(n_cells)
    in_cell = range(cell * n_syntax, (cell + 1) * n_syntax)
    essential = sorted(rng.sample(in_cell, rng.randint(1, n_syntax - (n_cells == 1))))
    gate = rng.choice([h for h in range(n_states) if h not in essential])
    weighed = sorted(rng.sample(range(n_values), rng.randint(1, n_values - 1)))
    values = weighed if prompted else list(range(n_values))
    plain = [1] * (len(values) * len(essential) + 2)  # the tokens but GATE and OUTSIDE
    spanning = rational.random_columns(rng, [[0, 0, *plain]] * 2)

    def column(m: int, h: int) -> np.ndarray:
        if h == gate:
            return random_column(rng, [1, 0, *np.zeros_like(plain)])
        if h in in_cell and m not in values:
            return random_column(rng, [0, 1, *plain])
        return random_column(rng, [0, 0, *plain]) if h in essential else spanning @ random_column(rng, [1, 1])

    emission = np.stack([np.stack([column(m, h) for h in range(n_states)], 1) for m in range(n_values)], 1)
    recoverable = np.isin(range(n_states), essential)
    patterns = [[1] * n_states if inside else rational.random_pattern(rng, n_states, 0.3) for inside in recoverable]
    for pattern in patterns:
        pattern[gate] = 1
    patterns[gate] = recoverable
    transition = rational.random_columns(rng, patterns)
    law = rational.stationary(transition) if prompted else random_column(rng, [1] * n_states)
    joint = np.array(rational.random_pattern(rng, n_values**n_cells, 0.2)).reshape((n_values,) * n_cells)
    joint[(np.arange(n_values),) * n_cells] = 1  # so that each value is possible
    model = Model(transition, emission, law, random_column(rng, joint.ravel()).reshape(joint.shape))
    mu = rational.random_weights(rng, np.isin(range(n_values), weighed).astype(int))
    return Task(model, cell, mu, essential, values)


def prompt(task: Task) -> np.ndarray:
    """u of (D.6), (K, H): 1 where m_{j*} is in supp(μ), 0 elsewhere."""
    mine = task.model.values[task.cell]
    return task.model.ones * (task.mu != 0)[mine, None]


def theta_2(task: Task) -> np.ndarray:
    """Θ^(2,s) of Claims D.3 and D.10, (M, S*, X): to P[M_{j*}, H_i = h | …], for each h = (j*, s) in H*."""
    found = np.zeros((len(task.mu), len(task.essential), len(task.model.emission)), object)
    found[task.values] = task.inverses[0]
    return found


def key(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Query q of Lemmas D.2 and D.9, 1 on H*, and Θ^(K) = Θ^(1): rows to Pr(H_i = h | …), h in H*, and one."""
    theta_1 = np.concatenate([theta_2(task).sum(0), task.inverses[1].sum(0, keepdims=True)])
    return np.array([*[1] * len(task.essential), 0], object), theta_1


def value(task: Task, probs: np.ndarray, embedding: np.ndarray) -> object:
    """V of Lemmas D.4 and D.13: bᵀ((Θ^(V) Ḡ_i) ⊙ φ(e)), with b = Bᵀμ and B the sum over S*."""
    return task.mu @ (theta_2(task) @ probs * embedding[:, task.essential]).sum(1)


class Evidence:
    """What a task's model makes of a text, with the prompt (D.6) before it if `prompted`. Positions count from 0.

    `chance` is its probability, `left` that of all but position i, and `target` is μᵀP[M_{j*} | evidence]. At each
    position `probs` are Ḡ_i, `latents` P[M_{J_i}, H_i | all evidence but that of i], (M, H), and `values` V. The state
    is `sure` where P[H_i | evidence but that of i] exists and is supported in H*.
    """

    def __init__(self, task: Task, x: list[int], prompted: bool = False):
        model, self.rows = task.model, [prompt(task)] * prompted + task.model.rows(x)
        self.at_start, *self.tables = rational.others(model, self.rows)
        self.chance, self.left = self.at_start.sum(), np.array([table.sum() for table in self.tables], object)
        self.target = task.mu @ normalised(model.of_cell(self.at_start, task.cell))
        self.probs = [prediction(model, table) for table in self.tables]
        self.latents = [normalised(model.looked_up(table)) for table in self.tables]
        given = zip(self.probs, map(model.unlift, self.rows), strict=True)
        self.values = np.array([value(task, *pair) for pair in given], object)
        outside = [np.delete(latent, task.essential, 1).any() for latent in self.latents]
        self.sure = np.flatnonzero((self.left != 0) & ~np.array(outside, bool))


def texts(rng: random.Random, task: Task, length: int, excluded: bool = False) -> tuple[Evidence, Evidence]:
    """A possible text behind the prompt (D.6) and alone.

    Either with a gate before its last position and possible behind the prompt too, or `excluded` by the prompt, as
    M_{j*} is surely outside supp(μ).
    """
    while True:
        x = possible_text(rng, task.model, length)
        if (OUTSIDE in x) if excluded else (GATE in x[:-1]):
            text = Evidence(task, x, prompted=True)
            if excluded or text.chance:
                return text, Evidence(task, x)


def identity_proposition_d_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[X_i | X_-i = x_-i] = W P[M_{J_i}, J_i, S_i | X_-i = x_-i], which is (D.1), by enumeration of all texts."""
    model = draw_task(rng, n_states).model
    length = max([1] + [t for t in range(2, length + 1) if few_entries(model, t, t)])
    table = Joint(model.transition, model.emission, model.initial, [None] * length, model.memory)
    for i in range(1, length + 1):
        weights = conditional(table.cell_and_state(i))  # P[M_{J_i}, H_i | x_-i] for every text, (texts, M, H)
        yield conditional(table.token(i)) - np.tensordot(weights, model.emission, ((1, 2), (1, 2)))


def identity_claim_d_3(rng: random.Random, n_states: int, length: int, prompted: bool = False) -> Differences:
    """Θ^(1) G_i(x) has Pr(H_i = h | x_-i), h in H*, and sums to 1; Θ^(2,s) G_i(x) = P[M_{j*}, H_i = (j*, s) | x_-i].

    For Claim D.10 `prompted`: Ḡ_i(ê(x)) with the prompt (D.6), i > 1, columns as in Assumption D.5.
    """
    task = draw_task(rng, n_states, prompted)
    behind, plain = texts(rng, task, length)
    text = behind if prompted else plain
    for latent, probs in list(zip(text.latents, text.probs, strict=True))[prompted:]:
        exact = latent[:, task.essential]
        states = exact.sum(0)
        yield key(task)[1] @ probs - np.array([*states, 1 - states.sum()], object)
        yield theta_2(task) @ probs - exact


identity_claim_d_10 = partial(identity_claim_d_3, prompted=True)


def identity_lemma_d_4(rng: random.Random, n_states: int, length: int) -> Differences:
    """V(G_i(x), e(x_i)) = r_{x,i} μᵀP[M_{j*} | x], r_{x,i} = Pr(x) / Pr(x_-i), where the state is surely in H*."""
    _, text = texts(rng, draw_task(rng, n_states), length)
    yield (text.values - text.chance / text.left * text.target)[text.sure]


def identity_lemma_d_13(rng: random.Random, n_states: int, length: int) -> Differences:
    """V(Ḡ_i, ê_i) = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_-i = x̂_-i] = r_{x,i} μᵀP[M_{j*} | x] where the state is surely in H*.

    There without the prompt, that is in Î. And V = 0 at every i > 1 for another input, whose (z̃, x) is impossible.
    """
    task = draw_task(rng, n_states, prompted=True)
    text, plain = texts(rng, task, length)
    positions = plain.sure + 1
    joints = task.mu @ task.model.of_cell(text.at_start, task.cell) / text.left[positions]
    yield text.values[positions] - joints
    yield joints - plain.chance / text.left[positions] * plain.target
    yield texts(rng, task, length, excluded=True)[0].values[1:]


def head_differences(task: Task, text: Evidence, plain: Evidence, first: int) -> Differences:
    """Attention over the positions from `first`: to which it attends, and its score.

    qᵀK is the probability of H*, hence 1, the most there is, where the state is surely in H*. The score is the mean of
    r_{x,i} = Pr(x) / Pr(x̂_-i) over those positions, times μᵀP[M_{j*} | x].
    """
    attended, (query, matrix) = text.sure[text.sure >= first], key(task)
    for i in range(first, len(text.rows)):
        inside = 1 if i in attended else text.latents[i][:, task.essential].sum()
        yield query @ (matrix @ text.probs[i]) - inside
    yield (text.values[attended] - plain.chance / text.left[attended] * plain.target).sum() / len(attended)


def identity_theorem_4_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """The attention head of Theorem 4.3 on G(x): the positions it attends to and its score."""
    task = draw_task(rng, n_states)
    _, text = texts(rng, task, length)
    yield from head_differences(task, text, text, first=0)


def identity_theorem_d_6(
    rng: random.Random, n_states: int, length: int, cells: tuple[int, ...] = (2, 3)
) -> Differences:
    """The head behind the prompt (D.6) where (z̃, x) is possible, and its values, all 0, for an x where it is not."""
    task = draw_task(rng, n_states, prompted=True, cells=cells)
    yield from head_differences(task, *texts(rng, task, length), first=1)
    text, plain = texts(rng, task, length, excluded=True)
    yield text.values[1:]
    yield plain.target


identity_theorem_4_6 = partial(identity_theorem_d_6, cells=(1,))


def identity_lemma_d_7(rng: random.Random, n_states: int, length: int) -> Differences:
    """For (u, η(e(x))), u any lifted vector, at each position: τ_i = P[H̃_i, X̂_-i = x̂_-i], Ḡ_i the conditional."""
    model = draw_task(rng, n_states).model
    yield from prompted_differences(rng, model, [draw_prompt(rng, model)], length)


def identity_proposition_d_8(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[M, H_i, X_{i+1:i+t} = x] = P[M, H_0, X_{1:t} = x] from a stationary start, i from 1 to 3."""
    model = draw_task(rng, n_states, prompted=True).model
    rows, i = model.rows(possible_text(rng, model, length)), rng.randint(1, 3)
    yield other_than(model, [model.ones] * i + rows, i) - other_than(model, rows, 0)


def identity_proposition_d_11(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[M_{j*} = m, X̂_-i = x̂_-i] = 0 for m outside supp(μ), at every i > 1."""
    task = draw_task(rng, n_states, prompted=True)
    for table in Evidence(task, possible_text(rng, task.model, length), prompted=True).tables[1:]:
        yield task.model.of_cell(table, task.cell)[task.mu == 0]


def identity_claim_d_14(rng: random.Random, n_states: int, length: int) -> Differences:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(X̂_1 = z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | x]."""
    text, plain = texts(rng, draw_task(rng, n_states, prompted=True), length)
    yield text.target * text.chance / text.left[0] - plain.target


def identity_claim_d_15(rng: random.Random, n_states: int, length: int) -> Differences:
    """Where (z̃, x) is impossible, μᵀP[M_{j*} | x] = 0; and Ḡ_i = 0 wherever (z̃, x)_-i is impossible."""
    text, plain = texts(rng, draw_task(rng, n_states, prompted=True), length, excluded=True)
    yield np.array([text.chance, plain.target], object)
    yield np.array(text.probs, object)[text.left == 0]
