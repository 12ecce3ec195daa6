"""The equations of Section 4 and appendix D at random points modulo P: as `identities_hmm`, for models with memory."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hmmlib.evidence.finite_field import field
from hmmlib.evidence.finite_field.field import (
    BOOLEAN,
    MASK,
    Matrix,
    Model,
    P,
    Vector,
    apply,
    dot,
    mismatches,
    normalised,
    scaled,
    share,
    times,
)
from hmmlib.evidence.finite_field.vanilla import tau_mismatches


@dataclass(frozen=True)
class Task:
    """A memory model, a cell j*, weights μ on its values, and recoverable states H* = {j*} × S*.

    `values` are those of Assumption 4.2 (all) or D.5 (the support of μ). Of the other columns of W, those in V̄ lie in
    a span of few dimensions. One state outside H* emits only the last token, `gate`, and leads only into H*, so that
    the state after a gate is surely in H*. Under D.5 the token before it, `tell`, comes only from cell j* with a value
    outside the support of μ.
    """

    model: Model
    cell: int
    mu: Vector
    essential: list[int]
    values: list[int]

    @property
    def recovered(self) -> list[tuple[int, int]]:
        """The (m, h) whose columns of W are independent of each other and of V̄."""
        return [(m, h) for h in self.essential for m in self.values]

    @property
    def rest(self) -> list[tuple[int, int]]:
        """The (m, h) whose columns span V̄."""
        return [
            (m, h)
            for h in range(self.model.n_states)
            for m in range(self.model.n_values)
            if h not in self.essential and (h // self.model.n_syntax != self.cell or m in self.values)
        ]

    @property
    def gate(self) -> int:
        return self.model.n_tokens - 1

    @property
    def tell(self) -> int:
        return self.model.n_tokens - 2


def memory_columns(rng: random.Random, groups: dict[tuple[int, int], str], n_recovered: int) -> dict:
    """Columns of W by (m, h): `recovered` and `free` ones random, `rest` random mixtures of two, `gate` a point mass."""
    plain = [1] * (n_recovered + 2)
    bases = [field.random_column(rng, plain) for _ in range(2)]
    draw = {
        "recovered": lambda: [*field.random_column(rng, plain), 0, 0],
        "free": lambda: [*field.random_column(rng, [*plain, 1]), 0],
        "rest": lambda: [
            *apply([list(pair) for pair in zip(*bases, strict=True)], field.random_column(rng, [1, 1])),
            0,
            0,
        ],
        "gate": lambda: [0] * (len(plain) + 1) + [1],
    }
    return {key: draw[group]() for key, group in groups.items()}


def draw_task(rng: random.Random, n_states: int, n_cells: int, sparse: bool, at_rest: bool) -> Task:
    """A random task; `sparse` asks for Assumption D.5 rather than 4.2, `at_rest` for a stationary start.

    A and P[M] have random zeros.
    """
    n_values, n_syntax, cell = rng.choice((2, 3)), n_states // n_cells, rng.randrange(n_cells)
    in_cell = range(cell * n_syntax, (cell + 1) * n_syntax)
    essential = sorted(rng.sample(in_cell, rng.randint(1, n_syntax - (n_cells == 1))))
    outside = [h for h in range(n_states) if h not in essential]
    gate = rng.choice(outside)
    inside = sorted(rng.sample(range(n_values), rng.randint(1, n_values - 1)))
    values = inside if sparse else list(range(n_values))

    def group(m: int, h: int) -> str:
        if h == gate:
            return "gate"
        if h in in_cell and m not in values:
            return "free"
        return "recovered" if h in essential else "rest"

    keys = [(m, h) for m in range(n_values) for h in range(n_states)]
    columns = memory_columns(rng, {key: group(*key) for key in keys}, len(values) * len(essential))
    emission = [list(row) for row in zip(*(columns[key] for key in keys), strict=True)]
    patterns = [[1] * n_states if h in essential else field.random_pattern(rng, n_states, 0.3) for h in range(n_states)]
    for pattern in patterns:
        pattern[gate] = 1
    patterns[gate] = [int(h in essential) for h in range(n_states)]
    transition = field.random_columns(rng, patterns)
    start = field.stationary(transition) if at_rest else field.random_column(rng, [1] * n_states)
    joint = field.random_pattern(rng, n_values**n_cells, 0.2)
    for m in range(n_values):  # each value possible: the joint values with all cells equal are
        joint[sum(m * n_values**power for power in range(n_cells))] = 1
    model = Model(transition, emission, start, field.random_column(rng, joint), n_values, n_cells)
    return Task(model, cell, field.random_vector(rng, [int(m in inside) for m in range(n_values)]), essential, values)


def any_cells(rng: random.Random, n_states: int) -> int:
    """A number of cells, up to three, that divides the states."""
    return rng.choice([n for n in (1, 2, 3) if n_states % n == 0])


def conditional(model: Model, rows: Matrix, i: int) -> Vector:
    """P[M_{J_i}, H_i | all evidence but that of position i], (M*H,)."""
    return normalised(model.looked_up(field.joint(model, field.without(rows, i), i)))


def likelihood(model: Model, rows: Matrix) -> int:
    """The probability of the evidence."""
    return sum(field.joint(model, rows, 0)) % P


def label(task: Task, rows: Matrix) -> int:
    """μᵀP[M_{j*} | evidence]."""
    return dot(task.mu, normalised(task.model.of_cell(field.joint(task.model, rows, 0), task.cell)))


def prompt(task: Task) -> Vector:
    """u of (D.6): 1 where m_{j*} is in supp(μ), 0 elsewhere."""
    n, cells = task.model.n_values, task.model.n_cells
    power = n ** (cells - 1 - task.cell)
    return [int(task.mu[index // task.model.n_states // power % n] != 0) for index in range(len(task.model.lookup))]


def prompted(task: Task, x: list[int]) -> Matrix:
    """ê(x) = (u, η(e(x)))."""
    return [prompt(task), *task.model.evidence(x)]


def theta_2(task: Task) -> dict[int, Matrix]:
    """Θ^(2,s) of Claims D.3 and D.10, (M, X), for each h = (j*, s) in H*: to P[M_{j*}, H_i = h | …]."""
    recovered = [task.model.column(m, h) for m, h in task.recovered]
    inverse = field.left_inverse(recovered + field.basis([task.model.column(m, h) for m, h in task.rest]))
    rows = dict(zip(task.recovered, inverse[: len(recovered)], strict=True))
    zero = [0] * task.model.n_tokens
    return {h: [rows.get((m, h), zero) for m in range(task.model.n_values)] for h in task.essential}


def theta_1(task: Task) -> Matrix:
    """Θ^(1) of Claims D.3 and D.10: a row for each h in H*, to Pr(H_i = h | …), and one to the rest."""
    recovered = [task.model.column(m, h) for m, h in task.recovered]
    inverse = field.left_inverse(recovered + field.basis([task.model.column(m, h) for m, h in task.rest]))
    rest = [sum(column) % P for column in zip(*inverse[len(recovered) :], strict=True)]  # columns of W sum to 1
    return [[sum(column) % P for column in zip(*rows, strict=True)] for rows in theta_2(task).values()] + [rest]


def key(task: Task) -> tuple[Vector, Matrix]:
    """Query q and Θ^(K) of Lemmas D.2 and D.9: 1 on H*, and Θ^(1); qᵀK is the probability of H*."""
    return [1] * len(task.essential) + [0], theta_1(task)


def value(task: Task, probs: Vector, embedding: Vector) -> int:
    """V of Lemmas D.4 and D.13: bᵀ((Θ^(V) Ḡ_i) ⊙ φ(e)), with b = Bᵀμ and B the sum over S*."""
    n, blocks = task.model.n_states, theta_2(task)
    looked_up = [0] * len(embedding)
    for h, block in blocks.items():
        looked_up[h::n] = apply(block, probs)
    weights = [task.mu[column // n] * (column % n in blocks) for column in range(len(embedding))]
    return dot(weights, times(looked_up, embedding))


def values(task: Task, rows: Matrix) -> Vector:
    """V at every position."""
    probs = field.masked_token_probs(task.model, rows)
    return [value(task, p, task.model.unlift(row)) for p, row in zip(probs, rows, strict=True)]


def surely_recoverable(task: Task, rows: Matrix) -> list[int]:
    """The positions i, from 1, where P[H_i | evidence but that of i] exists and is supported in H*."""
    pattern, n = task.model.support(), task.model.n_states
    supports = field.tau(pattern, [[min(v, 1) for v in row] for row in rows], BOOLEAN)
    states = [{index % n for index, v in enumerate(vector) if v} for vector in supports]
    return [i for i, found in enumerate(states, start=1) if found and found <= set(task.essential)]


def possible(task: Task, rows: Matrix) -> bool:
    """Whether the evidence has positive probability."""
    return any(field.joint(task.model, rows, len(rows)))


def gated_input(rng: random.Random, task: Task, length: int, prompted_too: bool) -> list[int]:
    """A possible x with a gate before its last position; with `prompted_too` (z̃, x) is possible as well."""

    def wanted(x: list[int]) -> bool:
        return task.gate in x[:-1] and not (prompted_too and not possible(task, prompted(task, x)))

    return field.possible_input(rng, task.model, length, wanted)


def telling_input(rng: random.Random, task: Task, length: int) -> list[int]:
    """A possible x for which (z̃, x) is impossible: it tells that M_{j*} is outside supp(μ)."""
    return field.possible_input(rng, task.model, length, lambda x: task.tell in x)


def identity_proposition_d_1(rng: random.Random, n_states: int, length: int) -> int:
    """G_i(x) = W P[M_{J_i}, J_i, S_i | X_-i = x_-i], which is (D.1), at every position."""
    model = draw_task(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False).model
    rows = model.evidence(field.possible_input(rng, model, length))
    probs = field.masked_token_probs(model, rows)
    return sum(
        mismatches(probs[i - 1], apply(model.emission, conditional(model, rows, i))) for i in range(1, length + 1)
    )


def theta_mismatches(task: Task, rows: Matrix, positions: range) -> int:
    """How often Θ^(1) Ḡ_i and Θ^(2,s) Ḡ_i are not what Claims D.3 and D.10 say."""
    probs, n, differing = field.masked_token_probs(task.model, rows), task.model.n_states, 0
    first, second = theta_1(task), theta_2(task)
    for i in positions:
        expected = conditional(task.model, rows, i)
        states = [sum(expected[h::n]) for h in task.essential]
        differing += mismatches(apply(first, probs[i - 1]), [*states, 1 - sum(states)])
        for h, block in second.items():
            differing += mismatches(apply(block, probs[i - 1]), expected[h::n])
    return differing


def identity_claim_d_3(rng: random.Random, n_states: int, length: int) -> int:
    """Θ^(1) G_i(x) has Pr(H_i = h | x_-i) for h in H* and sums to 1; Θ^(2,s) G_i(x) = P[M_{j*}, H_i = (j*, s) | x_-i]."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False)
    x = field.possible_input(rng, task.model, length)
    return theta_mismatches(task, task.model.evidence(x), range(1, length + 1))


def ratios(task: Task, rows: Matrix, x: list[int], positions: list[int]) -> Vector:
    """r_{x,i} = Pr(X = x) / Pr(evidence but that of i)."""
    whole = likelihood(task.model, task.model.evidence(x))
    return [share(whole, likelihood(task.model, field.without(rows, i))) for i in positions]


def target(task: Task, x: list[int]) -> int:
    """μᵀP[M_{j*} | X_{1:T} = x]."""
    return label(task, task.model.evidence(x))


def identity_lemma_d_4(rng: random.Random, n_states: int, length: int) -> int:
    """V(G_i(x), e(x_i)) = r_{x,i} μᵀP[M_{j*} | x] at every position that is surely in H*."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False)
    x = gated_input(rng, task, length, prompted_too=False)
    rows = task.model.evidence(x)
    positions = surely_recoverable(task, rows)
    found = values(task, rows)
    return mismatches([found[i - 1] for i in positions], scaled(ratios(task, rows, x, positions), target(task, x)))


def head_mismatches(task: Task, rows: Matrix, x: list[int], first: int) -> int:
    """Attention over the positions from `first`: whom it attends to, and its score.

    qᵀK is the probability of H*, hence 1, the most there is, where the state is surely in H*. The score is the mean of
    r_{x,i} over those positions, times μᵀP[M_{j*} | x].
    """
    probs, n, differing = field.masked_token_probs(task.model, rows), task.model.n_states, 0
    attended = [i for i in surely_recoverable(task, rows) if i >= first]
    query, matrix = key(task)
    for i in range(first, len(rows) + 1):
        expected = conditional(task.model, rows, i)
        inside = 1 if i in attended else sum(sum(expected[h::n]) for h in task.essential)
        differing += mismatches([dot(query, apply(matrix, probs[i - 1]))], [inside])
    found, mean = values(task, rows), pow(len(attended), -1, P)
    score = sum(found[i - 1] for i in attended) * mean
    return differing + mismatches([score], [sum(ratios(task, rows, x, attended)) * mean * target(task, x)])


def identity_theorem_4_3(rng: random.Random, n_states: int, length: int) -> int:
    """The attention head of Theorem 4.3 on G(x): the positions it attends to and its score."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False)
    x = gated_input(rng, task, length, prompted_too=False)
    return head_mismatches(task, task.model.evidence(x), x, first=1)


def identity_lemma_d_7(rng: random.Random, n_states: int, length: int) -> int:
    """For (u, η(e(x))), u any lifted vector: τ_i = P[H̃_i, X̂_-i = x̂_-i], and Ḡ_i the conditional, at every position."""
    model = draw_task(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False).model
    free = field.random_vector(rng, field.random_pattern(rng, len(model.lookup), 0.3))
    return tau_mismatches(model, [free, *model.evidence(field.possible_input(rng, model, length))])


def identity_proposition_d_8(rng: random.Random, n_states: int, length: int) -> int:
    """P[M, H_i, X_{i+1:i+t} = x] = P[M, H_0, X_{1:t} = x] from a stationary start, i from 1 to 3."""
    model = draw_task(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True).model
    x = field.possible_input(rng, model, length)
    here, i = field.joint(model, model.evidence(x), 0), rng.randint(1, 3)
    return mismatches(field.joint(model, model.evidence([MASK] * i + x), i), here)


def identity_claim_d_10(rng: random.Random, n_states: int, length: int) -> int:
    """Claim D.3 for Ḡ_i(ê(x)) with the prompt (D.6), i > 1, columns as in Assumption D.5."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = gated_input(rng, task, length, prompted_too=True)
    return theta_mismatches(task, prompted(task, x), range(2, length + 2))


def identity_proposition_d_11(rng: random.Random, n_states: int, length: int) -> int:
    """P[M_{j*} = m, X̂_-i = x̂_-i] = 0 for m outside supp(μ), from τ_i, at every i > 1."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = field.possible_input(rng, task.model, length)
    found = [task.model.of_cell(vector, task.cell) for vector in field.tau(task.model, prompted(task, x))[1:]]
    return sum(v != 0 for vector in found for v, weight in zip(vector, task.mu, strict=True) if not weight)


def identity_lemma_d_13(rng: random.Random, n_states: int, length: int) -> int:
    """V(Ḡ_i, ê_i) = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_-i = x̂_-i] = r_{x,i} μᵀP[M_{j*} | x] where the state is surely in H*.

    There without the prompt, that is in Î. And V = 0 at every i > 1 for another input, whose (z̃, x) is impossible.
    """
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = gated_input(rng, task, length, prompted_too=True)
    rows = prompted(task, x)
    positions = [i + 1 for i in surely_recoverable(task, task.model.evidence(x))]
    found, whole = values(task, rows), dot(task.mu, task.model.of_cell(field.joint(task.model, rows, 0), task.cell))
    joints = [share(whole, likelihood(task.model, field.without(rows, i))) for i in positions]
    differing = mismatches([found[i - 1] for i in positions], joints)
    differing += mismatches(joints, scaled(ratios(task, rows, x, positions), target(task, x)))
    impossible = prompted(task, telling_input(rng, task, length))
    return differing + mismatches(values(task, impossible)[1:], [0] * length)


def identity_claim_d_14(rng: random.Random, n_states: int, length: int) -> int:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(X̂_1 = z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | x]."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = gated_input(rng, task, length, prompted_too=True)
    rows = prompted(task, x)
    fake = share(likelihood(task.model, rows), likelihood(task.model, field.without(rows, 1)))
    return mismatches([label(task, rows) * fake], [target(task, x)])


def identity_claim_d_15(rng: random.Random, n_states: int, length: int) -> int:
    """Where (z̃, x) is impossible, μᵀP[M_{j*} | x] = 0; and Ḡ_i = 0 wherever (z̃, x)_-i is impossible."""
    task = draw_task(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = telling_input(rng, task, length)
    rows = prompted(task, x)
    differing = mismatches([likelihood(task.model, rows), target(task, x)], [0, 0])
    for i, probs in enumerate(field.masked_token_probs(task.model, rows), start=1):
        if not possible(task, field.without(rows, i)):
            differing += mismatches(probs, [0] * len(probs))
    return differing


def attention_mismatches(task: Task, rng: random.Random, length: int) -> int:
    """The head of Theorems D.6 and 4.6 where (z̃, x) is possible, and its values, all 0, for an x where it is not."""
    x = gated_input(rng, task, length, prompted_too=True)
    unlikely = telling_input(rng, task, length)
    differing = mismatches([*values(task, prompted(task, unlikely))[1:], target(task, unlikely)], [0] * (length + 1))
    return differing + head_mismatches(task, prompted(task, x), x, first=2)


def identity_theorem_d_6(rng: random.Random, n_states: int, length: int) -> int:
    """The prompt (D.6) and the attention head of Theorem D.6, with two cells or three."""
    n_cells = rng.choice([n for n in (2, 3) if n_states % n == 0])
    return attention_mismatches(draw_task(rng, n_states, n_cells, sparse=True, at_rest=True), rng, length)


def identity_theorem_4_6(rng: random.Random, n_states: int, length: int) -> int:
    """The prompt (D.6) and the attention head of Theorem 4.6, with one cell."""
    return attention_mismatches(draw_task(rng, n_states, 1, sparse=True, at_rest=True), rng, length)
