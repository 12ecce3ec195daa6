"""Statements about supports: each decided on every pattern and noticing a damage, on supports that are path sums."""

import random
from itertools import permutations

import numpy as np
import pytest
from damages import Damage, instead

from hmmbook.evidence.enumeration import Joint
from hmmbook.evidence.exact import rational
from hmmbook.evidence.zero_patterns import PATTERNS, decide, supports
from hmmbook.evidence.zero_patterns.decision import decided_cases, smallest_failure
from hmmbook.evidence.zero_patterns.models import Size, matrices, stays_full, up_to_relabelling

CASES = {"Claim B.1": 3 * (7 * 84 + 265 * 584), "Lemma C.1": 4 * 3 * 84 + 8 * 139 * 8}
"""Of statements without hypotheses on the input: choices, times supports of A, times inputs."""


def from_one_state(model, length):
    return [model.transition[:, 0]] * (length + 1)


def without_embedding(model, latent, row, essential):
    return (model.looked_up(latent) > 0) & essential


def of_the_other_values(prompt, model, mu):
    return prompt(model, ~mu)


DAMAGES = [
    Damage(["Claim B.1", "Lemma C.2"], "another start", supports, "marginals", instead(from_one_state)),
    Damage(["Lemma C.1"], "A transposed", rational, "reverse_kernel", instead(lambda transition, *laws: transition)),
    Damage(["Theorem 3.6"], "B for H*", supports, "essential_states", instead(lambda model, block: block)),
    Damage(["Theorem 4.3", "Lemma D.13"], "no embedding", supports, "value_support", instead(without_embedding)),
    Damage(["Lemma D.9", "Claim D.12"], "one further back", supports, "unprompted", instead(lambda i: i - 2)),
    Damage(["Proposition D.11"], "no prompt", supports, "prompt", instead(lambda model, mu: model.ones)),
    Damage(["Claim D.15"], "prompt of the other values", supports, "prompt", of_the_other_values),
]
DAMAGE_OF = {name: damage for damage in DAMAGES for name in damage.statements}


def first_failure(check, sizes):
    return next(failures[0] for _, failures in decided_cases(check, sizes) if failures)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_statement_is_decided_without_failure_and_a_damage_to_what_it_rests_on_is_noticed(name, monkeypatch):
    statement = PATTERNS[name]
    decision = decide(name)
    assert decision.failures == 0
    assert decision.cases == CASES.get(name, decision.cases)
    assert decision.cases > decision.patterns / 2
    assert decision.size.count("states") == len(statement.sizes)
    assert (decision.example is None) == (statement.printed is None)
    DAMAGE_OF[name].apply(monkeypatch)
    assert set(first_failure(statement.check, statement.sizes)) > {"A", "P[M]", "W", "x"}


def test_the_smallest_pattern_that_breaks_lemma_d_9_as_printed_has_two_states_and_two_tokens():
    """There Î is a proper subset of the positions that the head attends to."""
    printed = PATTERNS["Lemma D.9"].printed
    example = smallest_failure(printed, PATTERNS["Lemma D.9"].sizes)
    assert (len(example["A"]), len(example["x"])) == (2, 2)
    assert set(example["I-hat"]) < set(example["I"])
    assert smallest_failure(printed, (Size(1, (1, 2, 3), n_values=2),)) is None
    assert smallest_failure(printed, (Size(2, (1,), n_values=2),)) is None


@pytest.mark.parametrize(("n_states", "n_cells", "n_values"), [(2, 1, 1), (3, 1, 1), (2, 1, 2), (3, 1, 2), (2, 2, 2)])
def test_supports_are_those_of_sums_over_paths(n_states, n_cells, n_values):
    """Of every input of two tokens, behind a random prompt."""
    size = Size(n_states, (2,), n_cells, n_values, stays_full)
    (x,) = size.inputs()
    rng = np.random.default_rng(1)
    for model in random.Random(1).sample(list(size.models()), 7):
        prompt = rng.integers(0, 2, model.lookup.shape)
        rows = [prompt, *model.rows(x)]
        table = Joint(model.transition, model.emission, model.initial, [prompt, None, None], model.memory)
        latents = supports.supports(model, rows)
        messages = rational.tau(model, rows)
        assert (supports.possible(model, rows) == (table.given_input() > 0)).all()
        sums = {
            0: table.given_input(*table.cells, "h0"),
            2: table.left_out(2, *table.cells, "h2"),
            3: table.left_out(3, *table.cells, "h3"),
        }
        for i, paths in sums.items():
            has_path = (paths > 0).reshape(latents[i].shape)
            assert (latents[i] == has_path).all()
            values = has_path.reshape(len(paths), n_values, -1).any(-1)
            assert (supports.memory_values(model, latents[i]) == values).all()
        for tau, latent in zip(messages, latents[1:], strict=True):
            assert ((tau > 0) == latent).all()


def test_all_ergodic_chains_are_there_and_each_is_reached_by_relabelling():
    assert (len(matrices(1)), len(matrices(2)), len(matrices(3))) == (1, 3, 139)
    assert (len(matrices(2, stays_full)), len(matrices(3, stays_full))) == (7, 265)
    for n in (2, 3):
        every_matrix = matrices(n)
        reached = []
        for matrix in up_to_relabelling(every_matrix):
            relabelled = {matrix[np.ix_(order, order)].tobytes() for order in permutations(range(n))}
            reached += relabelled
        assert (np.linalg.matrix_power(every_matrix, 5) > 0).all()
        assert sorted(reached) == sorted(matrix.copy().tobytes() for matrix in every_matrix)
