"""The equations of Section 4 and appendix D at random points modulo P: as `vanilla`, for models with memory."""

from __future__ import annotations

import random
from dataclasses import dataclass

from companion.evidence.finite_field import field
from companion.evidence.finite_field.field import (
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
from companion.evidence.finite_field.vanilla import tau_mismatches


@dataclass(frozen=True)
class FieldInstance:
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


def draw_field_instance(rng: random.Random, n_states: int, n_cells: int, sparse: bool, at_rest: bool) -> FieldInstance:
    """A random instance; `sparse` asks for Assumption D.5 rather than 4.2, `at_rest` for a stationary start.

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
    return FieldInstance(
        model, cell, field.random_vector(rng, [int(m in inside) for m in range(n_values)]), essential, values
    )


def any_cells(rng: random.Random, n_states: int) -> int:
    """A number of cells, up to three, that divides the states."""
    return rng.choice([n for n in (1, 2, 3) if n_states % n == 0])


def conditional(model: Model, rows: Matrix, i: int) -> Vector:
    """P[M_{J_i}, H_i | all evidence but that of position i], (M*H,)."""
    return normalised(model.looked_up(field.joint(model, field.without(rows, i), i)))


def likelihood(model: Model, rows: Matrix) -> int:
    """The probability of the evidence."""
    return sum(field.joint(model, rows, 0)) % P


def label(case: FieldInstance, rows: Matrix) -> int:
    """μᵀP[M_{j*} | evidence]."""
    return dot(case.mu, normalised(case.model.of_cell(field.joint(case.model, rows, 0), case.cell)))


def prompt(case: FieldInstance) -> Vector:
    """u of (D.6): 1 where m_{j*} is in supp(μ), 0 elsewhere."""
    n, cells = case.model.n_values, case.model.n_cells
    power = n ** (cells - 1 - case.cell)
    return [int(case.mu[index // case.model.n_states // power % n] != 0) for index in range(len(case.model.lookup))]


def prompted(case: FieldInstance, x: list[int]) -> Matrix:
    """ê(x) = (u, η(e(x)))."""
    return [prompt(case), *case.model.evidence(x)]


def theta_2(case: FieldInstance) -> dict[int, Matrix]:
    """Θ^(2,s) of Claims D.3 and D.10, (M, X), for each h = (j*, s) in H*: to P[M_{j*}, H_i = h | …]."""
    recovered = [case.model.column(m, h) for m, h in case.recovered]
    inverse = field.left_inverse(recovered + field.basis([case.model.column(m, h) for m, h in case.rest]))
    rows = dict(zip(case.recovered, inverse[: len(recovered)], strict=True))
    zero = [0] * case.model.n_tokens
    return {h: [rows.get((m, h), zero) for m in range(case.model.n_values)] for h in case.essential}


def theta_1(case: FieldInstance) -> Matrix:
    """Θ^(1) of Claims D.3 and D.10: a row for each h in H*, to Pr(H_i = h | …), and one to the rest."""
    recovered = [case.model.column(m, h) for m, h in case.recovered]
    inverse = field.left_inverse(recovered + field.basis([case.model.column(m, h) for m, h in case.rest]))
    rest = [sum(column) % P for column in zip(*inverse[len(recovered) :], strict=True)]  # columns of W sum to 1
    return [[sum(column) % P for column in zip(*rows, strict=True)] for rows in theta_2(case).values()] + [rest]


def key(case: FieldInstance) -> tuple[Vector, Matrix]:
    """Query q and Θ^(K) of Lemmas D.2 and D.9: 1 on H*, and Θ^(1); qᵀK is the probability of H*."""
    return [1] * len(case.essential) + [0], theta_1(case)


def value(case: FieldInstance, probs: Vector, embedding: Vector) -> int:
    """V of Lemmas D.4 and D.13: bᵀ((Θ^(V) Ḡ_i) ⊙ φ(e)), with b = Bᵀμ and B the sum over S*."""
    n, blocks = case.model.n_states, theta_2(case)
    looked_up = [0] * len(embedding)
    for h, block in blocks.items():
        looked_up[h::n] = apply(block, probs)
    weights = [case.mu[column // n] * (column % n in blocks) for column in range(len(embedding))]
    return dot(weights, times(looked_up, embedding))


def values(case: FieldInstance, rows: Matrix) -> Vector:
    """V at every position."""
    probs = field.masked_token_probs(case.model, rows)
    return [value(case, p, case.model.unlift(row)) for p, row in zip(probs, rows, strict=True)]


def surely_recoverable(case: FieldInstance, rows: Matrix) -> list[int]:
    """The positions i, from 1, where P[H_i | evidence but that of i] exists and is supported in H*."""
    pattern, n = case.model.as_pattern(), case.model.n_states
    supports = field.tau(pattern, [[min(v, 1) for v in row] for row in rows], BOOLEAN)
    possible_states = [{index % n for index, v in enumerate(vector) if v} for vector in supports]
    return [i for i, states in enumerate(possible_states, start=1) if states and states <= set(case.essential)]


def possible(case: FieldInstance, rows: Matrix) -> bool:
    """Whether the evidence has positive probability."""
    return any(field.joint(case.model, rows, len(rows)))


def gated_input(rng: random.Random, case: FieldInstance, length: int, prompted_too: bool) -> list[int]:
    """A possible x with a gate before its last position; with `prompted_too` (z̃, x) is possible as well."""

    def wanted(x: list[int]) -> bool:
        return case.gate in x[:-1] and not (prompted_too and not possible(case, prompted(case, x)))

    return field.possible_input(rng, case.model, length, wanted)


def telling_input(rng: random.Random, case: FieldInstance, length: int) -> list[int]:
    """A possible x for which (z̃, x) is impossible: it tells that M_{j*} is outside supp(μ)."""
    return field.possible_input(rng, case.model, length, lambda x: case.tell in x)


def identity_proposition_d_1(rng: random.Random, n_states: int, length: int) -> int:
    """G_i(x) = W P[M_{J_i}, J_i, S_i | X_-i = x_-i], which is (D.1), at every position."""
    model = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False).model
    rows = model.evidence(field.possible_input(rng, model, length))
    probs = field.masked_token_probs(model, rows)
    return sum(
        mismatches(probs[i - 1], apply(model.emission, conditional(model, rows, i))) for i in range(1, length + 1)
    )


def theta_mismatches(case: FieldInstance, rows: Matrix, positions: range) -> int:
    """How often Θ^(1) Ḡ_i and Θ^(2,s) Ḡ_i are not what Claims D.3 and D.10 say."""
    probs, n, differing = field.masked_token_probs(case.model, rows), case.model.n_states, 0
    first, second = theta_1(case), theta_2(case)
    for i in positions:
        expected = conditional(case.model, rows, i)
        states = [sum(expected[h::n]) for h in case.essential]
        differing += mismatches(apply(first, probs[i - 1]), [*states, 1 - sum(states)])
        for h, block in second.items():
            differing += mismatches(apply(block, probs[i - 1]), expected[h::n])
    return differing


def identity_claim_d_3(rng: random.Random, n_states: int, length: int) -> int:
    """Θ^(1) G_i(x) has Pr(H_i = h | x_-i) for h in H* and sums to 1; Θ^(2,s) G_i(x) = P[M_{j*}, H_i = (j*, s) | x_-i]."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False)
    x = field.possible_input(rng, case.model, length)
    return theta_mismatches(case, case.model.evidence(x), range(1, length + 1))


def ratios(case: FieldInstance, rows: Matrix, x: list[int], positions: list[int]) -> Vector:
    """r_{x,i} = Pr(X = x) / Pr(evidence but that of i)."""
    chance = likelihood(case.model, case.model.evidence(x))
    return [share(chance, likelihood(case.model, field.without(rows, i))) for i in positions]


def target(case: FieldInstance, x: list[int]) -> int:
    """μᵀP[M_{j*} | X_{1:T} = x]."""
    return label(case, case.model.evidence(x))


def identity_lemma_d_4(rng: random.Random, n_states: int, length: int) -> int:
    """V(G_i(x), e(x_i)) = r_{x,i} μᵀP[M_{j*} | x] at every position that is surely in H*."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False)
    x = gated_input(rng, case, length, prompted_too=False)
    rows = case.model.evidence(x)
    positions = surely_recoverable(case, rows)
    read = values(case, rows)
    return mismatches([read[i - 1] for i in positions], scaled(ratios(case, rows, x, positions), target(case, x)))


def head_mismatches(case: FieldInstance, rows: Matrix, x: list[int], first: int) -> int:
    """Attention over the positions from `first`: whom it attends to, and its score.

    qᵀK is the probability of H*, hence 1, the most there is, where the state is surely in H*. The score is the mean of
    r_{x,i} over those positions, times μᵀP[M_{j*} | x].
    """
    probs, n, differing = field.masked_token_probs(case.model, rows), case.model.n_states, 0
    attended = [i for i in surely_recoverable(case, rows) if i >= first]
    query, matrix = key(case)
    for i in range(first, len(rows) + 1):
        expected = conditional(case.model, rows, i)
        inside = 1 if i in attended else sum(sum(expected[h::n]) for h in case.essential)
        differing += mismatches([dot(query, apply(matrix, probs[i - 1]))], [inside])
    read, mean = values(case, rows), pow(len(attended), -1, P)
    score = sum(read[i - 1] for i in attended) * mean
    return differing + mismatches([score], [sum(ratios(case, rows, x, attended)) * mean * target(case, x)])


def identity_theorem_4_3(rng: random.Random, n_states: int, length: int) -> int:
    """The attention head of Theorem 4.3 on G(x): the positions it attends to and its score."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False)
    x = gated_input(rng, case, length, prompted_too=False)
    return head_mismatches(case, case.model.evidence(x), x, first=1)


def identity_lemma_d_7(rng: random.Random, n_states: int, length: int) -> int:
    """For (u, η(e(x))), u any lifted vector: τ_i = P[H̃_i, X̂_-i = x̂_-i], and Ḡ_i the conditional, at every position."""
    model = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=False, at_rest=False).model
    free = field.random_vector(rng, field.random_pattern(rng, len(model.lookup), 0.3))
    return tau_mismatches(model, [free, *model.evidence(field.possible_input(rng, model, length))])


def identity_proposition_d_8(rng: random.Random, n_states: int, length: int) -> int:
    """P[M, H_i, X_{i+1:i+t} = x] = P[M, H_0, X_{1:t} = x] from a stationary start, i from 1 to 3."""
    model = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True).model
    x = field.possible_input(rng, model, length)
    here, i = field.joint(model, model.evidence(x), 0), rng.randint(1, 3)
    return mismatches(field.joint(model, model.evidence([MASK] * i + x), i), here)


def identity_claim_d_10(rng: random.Random, n_states: int, length: int) -> int:
    """Claim D.3 for Ḡ_i(ê(x)) with the prompt (D.6), i > 1, columns as in Assumption D.5."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = gated_input(rng, case, length, prompted_too=True)
    return theta_mismatches(case, prompted(case, x), range(2, length + 2))


def identity_proposition_d_11(rng: random.Random, n_states: int, length: int) -> int:
    """P[M_{j*} = m, X̂_-i = x̂_-i] = 0 for m outside supp(μ), from τ_i, at every i > 1."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = field.possible_input(rng, case.model, length)
    memory = [case.model.of_cell(vector, case.cell) for vector in field.tau(case.model, prompted(case, x))[1:]]
    return sum(v != 0 for vector in memory for v, weight in zip(vector, case.mu, strict=True) if not weight)


def identity_lemma_d_13(rng: random.Random, n_states: int, length: int) -> int:
    """V(Ḡ_i, ê_i) = μᵀP[X̂_i = x̂_i, M_{j*} | X̂_-i = x̂_-i] = r_{x,i} μᵀP[M_{j*} | x] where the state is surely in H*.

    There without the prompt, that is in Î. And V = 0 at every i > 1 for another input, whose (z̃, x) is impossible.
    """
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = gated_input(rng, case, length, prompted_too=True)
    rows = prompted(case, x)
    positions = [i + 1 for i in surely_recoverable(case, case.model.evidence(x))]
    read, weight = values(case, rows), dot(case.mu, case.model.of_cell(field.joint(case.model, rows, 0), case.cell))
    joints = [share(weight, likelihood(case.model, field.without(rows, i))) for i in positions]
    differing = mismatches([read[i - 1] for i in positions], joints)
    differing += mismatches(joints, scaled(ratios(case, rows, x, positions), target(case, x)))
    impossible = prompted(case, telling_input(rng, case, length))
    return differing + mismatches(values(case, impossible)[1:], [0] * length)


def identity_claim_d_14(rng: random.Random, n_states: int, length: int) -> int:
    """μᵀP[M_{j*} | X̂ = x̂] Pr(X̂_1 = z̃ | X̂_{2:T+1} = x) = μᵀP[M_{j*} | x]."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = gated_input(rng, case, length, prompted_too=True)
    rows = prompted(case, x)
    fake = share(likelihood(case.model, rows), likelihood(case.model, field.without(rows, 1)))
    return mismatches([label(case, rows) * fake], [target(case, x)])


def identity_claim_d_15(rng: random.Random, n_states: int, length: int) -> int:
    """Where (z̃, x) is impossible, μᵀP[M_{j*} | x] = 0; and Ḡ_i = 0 wherever (z̃, x)_-i is impossible."""
    case = draw_field_instance(rng, n_states, any_cells(rng, n_states), sparse=True, at_rest=True)
    x = telling_input(rng, case, length)
    rows = prompted(case, x)
    differing = mismatches([likelihood(case.model, rows), target(case, x)], [0, 0])
    for i, probs in enumerate(field.masked_token_probs(case.model, rows), start=1):
        if not possible(case, field.without(rows, i)):
            differing += mismatches(probs, [0] * len(probs))
    return differing


def attention_mismatches(case: FieldInstance, rng: random.Random, length: int) -> int:
    """The head of Theorems D.6 and 4.6 where (z̃, x) is possible, and its values, all 0, for an x where it is not."""
    x = gated_input(rng, case, length, prompted_too=True)
    unlikely = telling_input(rng, case, length)
    differing = mismatches([*values(case, prompted(case, unlikely))[1:], target(case, unlikely)], [0] * (length + 1))
    return differing + head_mismatches(case, prompted(case, x), x, first=2)


def identity_theorem_d_6(rng: random.Random, n_states: int, length: int) -> int:
    """The prompt (D.6) and the attention head of Theorem D.6, with two cells or three."""
    n_cells = rng.choice([n for n in (2, 3) if n_states % n == 0])
    return attention_mismatches(draw_field_instance(rng, n_states, n_cells, sparse=True, at_rest=True), rng, length)


def identity_theorem_4_6(rng: random.Random, n_states: int, length: int) -> int:
    """The prompt (D.6) and the attention head of Theorem 4.6, with one cell."""
    return attention_mismatches(draw_field_instance(rng, n_states, 1, sparse=True, at_rest=True), rng, length)
