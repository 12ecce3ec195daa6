"""Statements about supports: each is decided on every pattern, notices a damage, and stands on masks that are path sums."""

import random
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from companion.evidence.exact import rational
from companion.evidence.zero_patterns import patterns
from companion.evidence.zero_patterns.patterns import MEMORY, PATTERNS, decide
from companion.evidence.zero_patterns.supports import (
    Size,
    latent_supports,
    mask_tables,
    matrices,
    members,
    possible,
    stays_full,
    up_to_relabelling,
    without,
    world,
)

from hmmlib.theory.assumptions import independence
from hmmlib.validation import as_tensor

INSTANCES = {
    "Claim B.1": 3 * (7 * 84 + 265 * 584),
    "Lemma C.1": 4 * 3 * 84 + 8 * 139 * 8,
}
"""Cases of statements without hypotheses on the input: choices, times supports of A, times inputs."""


@pytest.mark.parametrize("name", PATTERNS)
def test_statement_is_decided_without_failure(name):
    found = decide(name)
    assert found.failures == 0
    assert found.cases == INSTANCES.get(name, found.cases)
    assert found.cases > found.patterns / 2
    assert found.size.count("states") == len(PATTERNS[name].sizes)
    if PATTERNS[name].printed:
        check_lemma_d_9(found.example)
    else:
        assert found.example is None


def marginal_from_one_state(model, i):
    return model.ahead[1]


def without_embedding(model, latent, row, values, essential):
    tables = model.tables
    return tables.looked_up[latent] & patterns.entries(tables, values, essential)


DAMAGES = [
    ("Claim B.1", patterns, "marginal", marginal_from_one_state),
    ("Lemma C.1", rational, "reverse_kernel", lambda transition, before, after: transition),
    ("Lemma C.2", patterns, "prompt_joint", lambda model, u: u),
    ("Theorem 3.6", patterns, "essential_states", lambda model, block: block),
    ("Theorem 4.3", patterns, "value_support", without_embedding),
    ("Lemma D.9", patterns, "unprompted", lambda i: i - 2),
    ("Proposition D.11", patterns, "prompt", lambda tables, mu: tables.full),
    ("Claim D.12", patterns, "unprompted", lambda i: i - 2),
    ("Lemma D.13", patterns, "value_support", without_embedding),
    ("Claim D.15", patterns, "prompt", lambda tables, mu: tables.full & ~tables.having[mu]),
    ("Claim D.15", patterns, "possible", lambda model, rows: model.ahead[model.prior] & rows[0] != 0),
]


@pytest.mark.parametrize(
    ("name", "module", "part", "damaged"), DAMAGES, ids=lambda value: getattr(value, "__name__", value)
)
def test_damage_is_noticed(name, module, part, damaged, monkeypatch):
    monkeypatch.setattr(module, part, damaged)
    found = patterns.instances(PATTERNS[name].check, PATTERNS[name].sizes)
    model, x, failure = next(one for one in found if one[2])
    assert {"A", "P[M]", "W", "x"} < set(patterns.describe(model, x, failure))


def test_every_statement_is_damaged():
    assert {damage[0] for damage in DAMAGES} == set(PATTERNS)


# Lemma D.9


def states_at(example, prompt, at, leave_out):
    """The support of P[H_at | x_-leave_out], positions from 1, after the fake token if `prompt`: by every path and value."""
    transition, emission, x = example["A"], example["W"], example["x"]
    n, found = len(transition), set()
    tokens = [None, *x] if prompt else x
    for m, path in product(range(len(example["P[M]"])), product(range(n), repeat=len(tokens) + 1)):
        weight = Fraction(example["P[M]"][m], n)  # P[H_0] uniform, and 1 / n or 0 for each step
        for i, token in enumerate(tokens, start=1):
            weight *= Fraction(transition[path[i]][path[i - 1]], n)
            if i != leave_out:
                weight *= (m in example["supp(mu)"]) if token is None else Fraction(emission[token][m][path[i]], 2)
        found |= {path[at]} if weight else set()
    return found


def check_lemma_d_9(example):
    """Î is strictly inside I on a model that Lemma D.9 admits: x is in Z, A ergodic, D.5 satisfied by further tokens."""
    n, length, star = len(example["A"]), len(example["x"]), set(example["S*"])
    assert len(example["P[M]"]) == 2  # one cell, so that a state is its syntax
    prompted = {i: states_at(example, True, i, i) for i in range(2, length + 2)}
    assert all(prompted.values())
    printed = [i + 1 for i in range(1, length + 1) if states_at(example, False, i, i) <= star]
    attended = [i for i, found in prompted.items() if found <= star]
    assert (printed, attended) == (example["I-hat"], example["I"])
    assert set(printed) < set(attended)
    assert (np.linalg.matrix_power(np.array(example["A"]), (n - 1) ** 2 + 1) > 0).all()
    rng = np.random.default_rng(0)
    rows = np.array(example["W"]).reshape(len(example["W"]), -1)
    emission = np.concatenate([rows * rng.random(rows.shape), 1 + rng.random((2 * n, rows.shape[1]))])
    assert independence("Assumption D.5", as_tensor("columns", emission / emission.sum(0)))


def test_no_smaller_pattern_breaks_lemma_d_9():
    least = patterns.smallest_failure(patterns.printed_pattern_lemma_d_9, MEMORY[:1])
    assert patterns.complexity(least)[:2] == (2, 2)
    ones = Size(1, (1, 2, 3), n_values=2)
    short = Size(2, (1,), n_values=2)
    for size in (ones, short):
        assert patterns.smallest_failure(patterns.printed_pattern_lemma_d_9, (size,)) is None


def test_lemma_d_9_fails_where_the_prompted_input_is_possible_too():
    def check(model, rows):
        return (found for found in patterns.printed_pattern_lemma_d_9(model, rows) if found and found["x-hat possible"])

    example = patterns.smallest_failure(check, MEMORY[:1])
    check_lemma_d_9(example)
    assert states_at(example, True, 1, None)


# Masks


@pytest.mark.parametrize("sizes", [(2, 1, 1), (3, 1, 1), (2, 1, 2), (3, 1, 2), (2, 2, 2)])
def test_masks_are_the_messages_and_the_paths(sizes):
    """Of a model of floats with 1 for every entry that is possible."""
    tables, rng = mask_tables(*sizes), random.Random(1)
    n, n_columns, shape = tables.n_states, tables.n_values * tables.n_states, (len(tables.joint), tables.n_states)
    for _ in range(60):
        columns = rng.choice(matrices(n, stays_full))
        found = world(tables, columns, rng.randrange(1, 1 << len(tables.joint)))
        transition = np.array([[columns[h] >> after & 1 for h in range(n)] for after in range(n)], float)
        memory = np.array([found.prior >> k * n & 1 for k in range(shape[0])], float)
        x = [rng.randrange(1 << n_columns) for _ in range(rng.randint(1, 3))]
        emission = np.array([patterns.bits(row, n_columns) for row in x], float).reshape(len(x), tables.n_values, n)
        model = rational.Model(transition, emission, np.ones(n), memory, tables.n_cells)
        rows = [rng.randrange(1 << tables.size), *tables.lifted(x)]
        listed = [np.array(patterns.bits(row, tables.size), float).reshape(shape) for row in rows]
        for row, table in zip(model.rows(range(len(x))), listed[1:], strict=True):
            assert (row == table).all()
        latents = latent_supports(found, rows)
        messages = [sum(1 << b for b in np.flatnonzero(table)) for table in rational.tau(model, listed)]
        assert latents[1:] == messages
        for i, latent in enumerate(latents[1:], start=1):
            assert (latent != 0) == possible(found, without(found, rows, i))
            vector = np.array(patterns.bits(latent, tables.size)).reshape(shape)
            assert patterns.bits(tables.looked_up[latent], n_columns) == (model.looked_up(vector) > 0).ravel().tolist()
            assert tables.states[latent] == sum(1 << h for h in {b % n for b in members(latent)})
            assert members(tables.value[latent]) == np.flatnonzero(model.of_cell(vector, 0)).tolist()
        at_start = [b for b in members(found.prior) if explains(found, b, rows)]
        assert members(latents[0]) == at_start


def explains(found, state, rows):
    """Whether a path from this lifted state at time 0 explains all rows."""
    n = found.tables.n_states
    here = {state}
    for row in rows:
        here = {b - b % n + after for b in here for after in members(found.columns[b % n])}
        here = {b for b in here if row >> b & 1}
    return bool(here)


def test_all_ergodic_chains_are_counted():
    assert [len(matrices(n)) for n in (1, 2, 3)] == [1, 3, 139]
    assert [len(matrices(n, stays_full)) for n in (1, 2, 3)] == [1, 7, 265]
    for n in (2, 3):
        for columns in matrices(n):
            matrix = np.array([[columns[h] >> after & 1 for h in range(n)] for after in range(n)])
            assert any((np.linalg.matrix_power(matrix, power) > 0).all() for power in range(1, 6))


def test_relabelling_reaches_every_chain_once():
    for n in (2, 3):
        reached = []
        for columns in up_to_relabelling(matrices(n)):
            matrix = np.array([patterns.bits(mask, n) for mask in columns])
            orbit = {
                tuple((matrix[np.ix_(order, order)] @ (1 << np.arange(n))).tolist()) for order in permutations(range(n))
            }
            reached += sorted(orbit)
        assert sorted(reached) == sorted(matrices(n))
