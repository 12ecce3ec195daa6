"""Statements about supports: each decided on every pattern and noticing a damage, on supports that are path sums."""

import random
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from companion.evidence import zero_patterns as patterns
from companion.evidence.enumeration import Joint
from companion.evidence.exact import rational
from companion.evidence.zero_patterns import MEMORY, PATTERNS, Size, decide, matrices, stays_full, up_to_relabelling
from damages import instead

from hmmlib.theory.assumptions import independence
from hmmlib.validation import as_tensor

CASES = {"Claim B.1": 3 * (7 * 84 + 265 * 584), "Lemma C.1": 4 * 3 * 84 + 8 * 139 * 8}
"""Of statements without hypotheses on the input: choices, times supports of A, times inputs."""
marginals_from_one_state = instead(
    patterns, "marginals", lambda f: lambda model, length: [model.transition[:, 0]] * (length + 1)
)
without_embedding = instead(
    patterns, "value_support", lambda f: lambda model, latent, row, kept: (model.looked_up(latent) > 0) & kept
)
one_further_back = instead(patterns, "unprompted", lambda f: lambda i: i - 2)
DAMAGES = {
    **dict.fromkeys(("Claim B.1", "Lemma C.2"), marginals_from_one_state),
    "Lemma C.1": instead(rational, "reverse_kernel", lambda f: lambda transition, before, after: transition),
    "Theorem 3.6": instead(patterns, "essential_states", lambda f: lambda model, block: block),
    **dict.fromkeys(("Theorem 4.3", "Lemma D.13"), without_embedding),
    **dict.fromkeys(("Lemma D.9", "Claim D.12"), one_further_back),
    "Proposition D.11": instead(patterns, "prompt", lambda f: lambda model, mu: model.ones),
    "Claim D.15": instead(patterns, "prompt", lambda f: lambda model, mu: f(model, ~mu)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_statement_is_decided_without_failure_and_a_damage_to_what_it_rests_on_is_noticed(name, monkeypatch):
    found = decide(name)
    assert found.failures == 0
    assert found.cases == CASES.get(name, found.cases)
    assert found.cases > found.patterns / 2
    assert found.size.count("states") == len(PATTERNS[name].sizes)
    if PATTERNS[name].printed:
        check_lemma_d_9(found.example)
    else:
        assert found.example is None
    DAMAGES[name](monkeypatch)
    damaged = patterns.instances(PATTERNS[name].check, PATTERNS[name].sizes)
    failure = next(failures for _, failures in damaged if failures)[0]
    assert {"A", "P[M]", "W", "x"} < set(failure)


def states_at(example, prompt, at, leave_out):
    """supp P[H_at | x_-leave_out], positions from 1, after the fake token if `prompt`: by every path and value."""
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
    """Î is strictly inside I on a model that Lemma D.9 admits: x in Z, A ergodic, D.5 satisfied by further tokens."""
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


def test_no_smaller_pattern_breaks_lemma_d_9_and_one_does_where_the_prompted_input_is_possible_too():
    printed = PATTERNS["Lemma D.9"].printed
    least = patterns.smallest_failure(printed, MEMORY[:1])
    assert (len(least["A"]), len(least["x"])) == (2, 2)
    for size in (Size(1, (1, 2, 3), n_values=2), Size(2, (1,), n_values=2)):
        assert patterns.smallest_failure(printed, (size,)) is None
    found = patterns.instances(printed, MEMORY[:1])
    example = next(failure for _, failures in found for failure in failures if failure["x-hat possible"])
    check_lemma_d_9(example)
    assert states_at(example, True, 1, None)


@pytest.mark.parametrize("sizes", [(2, 1, 1), (3, 1, 1), (2, 1, 2), (3, 1, 2), (2, 2, 2)])
def test_supports_are_those_of_sums_over_paths(sizes):
    """Of every input of two tokens, behind a random prompt."""
    n_states, n_cells, n_values = sizes
    size, rng = Size(n_states, (2,), n_cells, n_values, stays_full), np.random.default_rng(1)
    (x,), names = size.inputs(), [f"m{j}" for j in range(n_cells)]
    for model in random.Random(1).sample(list(size.models()), 7):
        prompt = rng.integers(0, 2, model.lookup.shape)
        rows = [prompt, *model.rows(x)]
        table = Joint(model.transition, model.emission, model.initial, [prompt, None, None], model.memory)
        exact = [table.given_input(*names, "h0"), *(table.left_out(i, *names, f"h{i}") for i in (2, 3))]
        found, messages = patterns.supports(model, rows), rational.tau(model, rows)
        for latent, paths in zip([found[0], *found[2:]], exact, strict=True):
            assert (latent == (paths > 0).reshape(latent.shape)).all()
            assert (patterns.memory_values(model, latent) == latent.reshape(len(paths), n_values, -1).any(-1)).all()
        assert all(((tau > 0) == latent).all() for tau, latent in zip(messages, found[1:], strict=True))
        assert (patterns.possible(model, rows) == (table.given_input() > 0)).all()


def test_all_ergodic_chains_are_there_and_each_is_reached_by_relabelling():
    assert [len(matrices(n)) for n in (1, 2, 3)] == [1, 3, 139]
    assert [len(matrices(n, stays_full)) for n in (1, 2, 3)] == [1, 7, 265]
    for n in (2, 3):
        orders, every = list(permutations(range(n))), matrices(n)
        assert all((np.linalg.matrix_power(matrix, 5) > 0).all() for matrix in every)
        reached = [one for a in up_to_relabelling(every) for one in {a[np.ix_(o, o)].tobytes() for o in orders}]
        assert sorted(reached) == sorted(matrix.copy().tobytes() for matrix in every)
