"""Identities at random points modulo P: each is confirmed, each damage is caught, and the messages are the sums they say."""

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from companion.evidence.finite_field import field, memory, vanilla
from companion.evidence.finite_field.field import BOOLEAN, MASK, Arithmetic, Model, P
from companion.evidence.finite_field.identities import IDENTITIES, confirm

from hmmlib.inference.messages import masked_token_probs_from_embeddings
from hmmlib.models.hmm import HMM, MemoryHMM

EXACT = Arithmetic(lambda v: v, lambda v: 1 / Fraction(v) if v else 0)


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_is_confirmed(name):
    found = confirm(name, points=2, seed=1)
    assert found.failures == 0
    assert found.sizes == IDENTITIES[name].sizes
    assert 0 < found.error_bound < 2**-50


def test_the_same_seed_draws_the_same_points(monkeypatch):
    drawn, draw = [], field.random_column

    def recorded(rng, pattern):
        drawn.append(draw(rng, pattern))
        return drawn[-1]

    def points(seed):
        drawn.clear()
        confirm("Claim B.1", points=1, seed=seed)
        return list(drawn)

    monkeypatch.setattr(field, "random_column", recorded)
    assert points(3) == points(3) != points(4)


def dependent_table(rng, n_u, n_v, n_z):
    return [[field.random_column(rng, [1] * n_z) for _ in range(n_v)] for _ in range(n_u)]


def shuffled_blocks(task):
    return {h: block[::-1] for h, block in THETA_2(task).items()}


def everything_asked_for(task):
    query, matrix = KEY(task)
    return [1] * len(query), matrix


def value_without_embedding(task, probs, embedding):
    return VALUE(task, probs, [1] * len(embedding))


def sign_lost(model, mu):
    return [-b for b in HEAD_3_3(model, mu)]


def first_weight_lost(model, block, essential, mu):
    return HEAD_3_6(model, block, essential, [0 if h == essential[0] else m for h, m in enumerate(mu)])


def prompt_not_constant(task):
    return [u * (index + 1) for index, u in enumerate(PROMPT(task))]


def as_printed(model, rows, i):
    return model.looked_up(field.joint(model, field.without(rows, i), i))


def not_reversed(transition, before, after, ring=field.FIELD):
    return [list(column) for column in zip(*transition, strict=True)]


def uniform(transition):
    return [pow(len(transition), -1, P)] * len(transition)


def everywhere(task):
    return [1] * len(PROMPT(task))


def squared_head(model, mu):
    """With a scale that the task gives it."""
    return field.scaled(HEAD_3_3(model, mu), mu[0])


HEAD_3_3, HEAD_3_6 = vanilla.head_3_3, vanilla.head_3_6
THETA_2, KEY = memory.theta_2, memory.key
VALUE, PROMPT = memory.value, memory.prompt
DAMAGES = [
    ("Proposition 3.4", vanilla, "joint_table", dependent_table),
    ("Claim B.1", vanilla, "diagonal_b_1", lambda model, i: field.marginals(model, i)[i]),
    (
        "Claim B.1",
        vanilla,
        "diagonal_b_1",
        lambda model, i: field.over(model.initial, field.marginals(model, i)[i]),
    ),
    ("Theorem 3.3", vanilla, "diagonal_b_1", lambda model, i: [1] * model.n_states),
    ("Theorem 3.3", vanilla, "head_3_3", sign_lost),
    ("Lemma C.1", field, "reverse_kernel", not_reversed),
    ("Lemma C.2", vanilla, "diagonal_c_2", lambda model: model.initial),
    ("Lemma C.2", vanilla, "prompt_joint", lambda model, u: field.times(u, field.marginals(model, 1)[1])),
    ("Theorem 3.6", vanilla, "prompt_3_6", lambda block: [1] * len(block)),
    ("Theorem 3.6", vanilla, "head_3_6", first_weight_lost),
    ("Proposition D.1", memory, "conditional", as_printed),
    ("Claim D.3", memory, "theta_2", shuffled_blocks),
    ("Claim D.3", memory, "conditional", as_printed),
    ("Lemma D.4", memory, "value", value_without_embedding),
    ("Lemma D.4", memory, "theta_2", shuffled_blocks),
    ("Theorem 4.3", memory, "key", everything_asked_for),
    ("Theorem 4.3", memory, "value", value_without_embedding),
    ("Lemma D.7", field, "reverse_kernel", not_reversed),
    ("Proposition D.8", field, "stationary", uniform),
    ("Claim D.10", memory, "theta_2", shuffled_blocks),
    ("Claim D.10", memory, "prompt", everywhere),
    ("Proposition D.11", memory, "prompt", everywhere),
    ("Lemma D.13", memory, "prompt", everywhere),
    ("Lemma D.13", field, "stationary", uniform),
    ("Claim D.14", memory, "prompt", prompt_not_constant),
    ("Claim D.14", field, "stationary", uniform),
    ("Claim D.15", memory, "prompt", everywhere),
    ("Theorem D.6", memory, "prompt", everywhere),
    ("Theorem D.6", memory, "prompt", prompt_not_constant),
    ("Theorem D.6", memory, "key", everything_asked_for),
    ("Theorem 4.6", memory, "prompt", everywhere),
    ("Theorem 4.6", memory, "value", value_without_embedding),
    ("Theorem 4.6", field, "stationary", uniform),
    ("Exactness", vanilla, "scores", lambda model, head, reach: reach),
    ("Exactness", vanilla, "diagonal_c_2", lambda model: model.initial),
    ("Separable votes", vanilla, "prompt_for_reach", lambda model, reach: reach),
    ("Several classes", vanilla, "head_3_3", squared_head),
]


@pytest.mark.parametrize(
    ("name", "module", "part", "damaged"), DAMAGES, ids=lambda value: getattr(value, "__name__", value)
)
def test_damage_is_caught(name, module, part, damaged, monkeypatch):
    monkeypatch.setattr(module, part, damaged)
    assert confirm(name, points=1, seed=1).failures > 0


def test_every_identity_is_damaged():
    assert {damage[0] for damage in DAMAGES} == set(IDENTITIES)


# The messages


def rational(seed, n_cells, n_values, n_states, n_tokens, zeros=0.3):
    """A model of small fractions."""
    rng = random.Random(seed)

    def columns(rows, count):
        patterns = [field.random_pattern(rng, rows, zeros) for _ in range(count)]
        weights = [[rng.randint(1, 9) * free for free in pattern] for pattern in patterns]
        return [[Fraction(w[r], sum(w)) for w in weights] for r in range(rows)]

    start, joint = columns(n_states, 1), columns(n_values**n_cells, 1)
    transition, emission = columns(n_states, n_states), columns(n_tokens, n_values * n_states)
    return Model(transition, emission, [row[0] for row in start], [row[0] for row in joint], n_values, n_cells)


def residues(vector):
    return [v.numerator * pow(v.denominator, -1, P) % P for v in map(Fraction, vector)]


def modulo(model):
    def part(rows):
        return [residues(row) for row in rows]

    start, joint = part([model.initial, model.memory])
    return Model(part(model.transition), part(model.emission), start, joint, model.n_values, model.n_cells)


def path_sums(model, rows, at):
    """P[M, H_at, evidence], one path after the other."""
    n = model.n_states
    total = [0] * len(model.lookup)
    for k, path in product(range(len(model.memory)), product(range(n), repeat=len(rows) + 1)):
        weight = model.memory[k] * model.initial[path[0]]
        for i, row in enumerate(rows, start=1):
            weight *= model.transition[path[i]][path[i - 1]] * row[k * n + path[i]]
        total[k * n + path[at]] += weight
    return total


SHAPES = [(1, 1, 3, 3), (1, 2, 2, 3), (2, 2, 2, 3)]


def prompted_rows(model, seed, length):
    """A random prompt, nothing, and random tokens."""
    rng = random.Random(seed)
    prompt = [Fraction(rng.randint(0, 3), 3) for _ in model.lookup]
    return [prompt, *model.evidence([MASK, *(rng.randrange(model.n_tokens) for _ in range(length))])]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_messages_are_path_sums(shape, seed):
    model = rational(seed, *shape)
    rows = prompted_rows(model, seed, 2)
    model_p, rows_p = modulo(model), [residues(row) for row in rows]
    exact, found = field.tau(model, rows, EXACT), field.tau(model_p, rows_p)
    support = field.tau(model_p.as_pattern(), [[min(v, 1) for v in row] for row in rows_p], BOOLEAN)
    for i in range(1, len(rows) + 1):
        expected = path_sums(model, field.without(rows, i), i)
        assert exact[i - 1] == expected
        assert found[i - 1] == residues(expected)
        assert support[i - 1] == [int(v > 0) for v in expected]
        assert field.joint(model_p, field.without(rows_p, i), i) == residues(expected)
    assert field.joint(model_p, rows_p, 0) == residues(path_sums(model, rows, 0))


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_agree_with_the_library(shape):
    for seed in range(4):
        model = rational(seed, *shape)
        n_cells, n_values, n_states, n_tokens = shape
        as_floats = [np.array(part, float) for part in (model.transition, model.emission, model.initial, model.memory)]
        transition, emission, initial, memory = as_floats
        if n_values == 1:
            witness = HMM(transition, emission, initial)
        else:
            emission = emission.reshape(n_tokens, n_values, n_states)
            witness = MemoryHMM(transition, emission, initial, memory.reshape((n_values,) * n_cells))
        rows = prompted_rows(model, seed, 6)
        expected = masked_token_probs_from_embeddings(witness, torch.tensor([[list(map(float, row)) for row in rows]]))[
            0
        ]
        for vector, probs in zip(field.tau(model, rows, EXACT), expected, strict=True):
            read = model.unlift(vector, EXACT)
            share = [v / sum(read) if any(read) else 0 for v in read]
            found = [sum(w * v for w, v in zip(row, share, strict=True)) for row in model.emission]
            np.testing.assert_allclose([float(v) for v in found], probs, atol=1e-14)


# The arithmetic


def test_linear_algebra():
    rng = random.Random(0)
    columns = [field.random_column(rng, [1] * 6) for _ in range(4)]
    inverse = field.left_inverse(columns)
    assert [[field.dot(row, column) for column in columns] for row in inverse] == np.eye(4, dtype=int).tolist()
    mixture = [sum(column) * pow(4, -1, P) % P for column in zip(*columns, strict=True)]
    assert field.basis([columns[0], columns[1], mixture, columns[2], columns[3]]) == [
        columns[0],
        columns[1],
        mixture,
        columns[2],
    ]
    with pytest.raises(ValueError, match="dependent"):
        field.left_inverse([*columns, mixture])
    with pytest.raises(ValueError, match="dependent"):
        field.left_inverse([column[:3] for column in columns])
    transition = field.random_columns(rng, field.full(5, 5))
    found = field.stationary(transition)
    assert field.apply(transition, found) == found
    assert sum(found) % P == 1
    with pytest.raises(ValueError, match="not unique"):
        field.stationary([[1, 0], [0, 1]])


def test_random_points_are_on_their_support():
    rng = random.Random(0)
    for size in range(1, 6):
        pattern = field.random_pattern(rng, size, 0.5)
        column = field.random_column(rng, pattern)
        assert sum(column) % P == 1
        assert [int(v != 0) for v in column] == pattern
    model = modulo(rational(5, 2, 2, 4, 3, zeros=0.6))
    for _ in range(20):
        x = field.possible_input(rng, model, 6)
        assert any(field.joint(model, model.evidence(x), 0))


@pytest.mark.parametrize("sparse", [False, True])
def test_instances_are_what_the_assumptions_ask_for(sparse):
    for seed in range(20):
        rng = random.Random(seed)
        case = memory.draw_field_instance(rng, 6, rng.choice((1, 2, 3)), sparse=sparse, at_rest=True)
        model = case.model
        assert field.apply(model.transition, model.initial) == model.initial
        for matrix in (model.transition, model.emission):
            assert {sum(column) % P for column in zip(*matrix, strict=True)} == {1}
        recovered = [model.column(m, h) for m, h in case.recovered]
        rest = [model.column(m, h) for m, h in case.rest]
        assert len(field.basis(recovered + rest)) == len(recovered) + len(field.basis(rest))
        x = memory.gated_input(rng, case, 8, prompted_too=sparse)
        assert memory.surely_recoverable(case, model.evidence(x))
        if sparse:
            unlikely = memory.prompted(case, memory.telling_input(rng, case, 8))
            assert not memory.possible(case, unlikely)
