"""Identities at random rational points: each confirmed, each damage caught, and the recursion gives sums over paths."""

import random
from itertools import product

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, Joint
from companion.evidence.exact import memory, rational, vanilla
from companion.evidence.exact.identities import IDENTITIES, confirm
from companion.evidence.exact.rational import fractions, others, random_columns, tau

from hmmlib.inference.messages import masked_token_probs_from_embeddings
from hmmlib.models.hmm import MemoryHMM


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_is_confirmed(name):
    found = confirm(name, points=1, seed=1)
    assert found.failures == 0
    assert found.sizes == IDENTITIES[name].sizes
    assert 0 < found.error_bound < 2**-50


def test_the_same_seed_draws_the_same_points(monkeypatch):
    drawn, draw = [], rational.random_column

    def points(seed):
        drawn.clear()
        confirm("Claim B.1", points=1, seed=seed)
        return list(map(tuple, drawn))

    monkeypatch.setattr(rational, "random_column", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    assert points(3) == points(3) != points(4)


def dependent_table(rng, n_u, n_v, n_z):
    return random_columns(rng, [[1] * n_u * n_v * n_z]).reshape(n_u, n_v, n_z)


HEAD_3_3, HEAD_3_6, REACH, RELAXED = vanilla.head_3_3, vanilla.head_3_6, vanilla.diagonal_c_2, vanilla.relaxed
KEY, PROMPT, THETA_2, VALUE = memory.key, memory.prompt, memory.theta_2, memory.value
CELL_AND_STATE = Joint.cell_and_state


def shuffled_blocks(task):
    return THETA_2(task)[::-1]


def asks_for_everything(task):
    return np.ones_like(KEY(task)[0]), KEY(task)[1]


def value_without_embedding(task, probs, embedding):
    return VALUE(task, probs, np.ones_like(embedding))


def first_weight_lost(model, block, essential, mu):
    return HEAD_3_6(model, block, essential, mu * (np.arange(len(mu)) != essential[0]))


def block_of_all_states(rng, n_states):
    model, block, essential = RELAXED(rng, n_states)
    return model, np.ones_like(block), essential


def prompt_not_constant(task):
    return PROMPT(task) * (1 + np.arange(task.model.lookup.size).reshape(task.model.lookup.shape))


def everywhere(task):
    return np.ones_like(PROMPT(task))


def not_reversed(transition, before, after):
    return transition.T


def uniform(transition):
    return fractions(np.ones(len(transition), int)) / len(transition)


DAMAGES = [
    ("Proposition 3.4", vanilla, "joint_table", dependent_table),
    ("Claim B.1", vanilla, "diagonal_b_1", lambda model, i: rational.marginals(model, i)[i]),
    ("Claim B.1", vanilla, "diagonal_b_1", lambda model, i: model.initial / rational.marginals(model, i)[i]),
    ("Theorem 3.3", vanilla, "diagonal_b_1", lambda model, i: np.ones_like(model.initial)),
    ("Theorem 3.3", vanilla, "head_3_3", lambda model, mu: -HEAD_3_3(model, mu)),
    ("Lemma C.1", rational, "reverse_kernel", not_reversed),
    ("Lemma C.2", vanilla, "diagonal_c_2", lambda model, u: REACH(model, u) * model.initial**2),
    ("Lemma C.2", vanilla, "diagonal_c_2", lambda model, u: u * rational.marginals(model, 1)[1] / model.initial),
    ("Theorem 3.6", vanilla, "relaxed", block_of_all_states),
    ("Theorem 3.6", vanilla, "head_3_6", first_weight_lost),
    ("Proposition D.1", Joint, "cell_and_state", lambda table, i: CELL_AND_STATE(table, 1)),
    ("Claim D.3", memory, "theta_2", shuffled_blocks),
    ("Claim D.3", memory, "normalised", lambda table: table),
    ("Lemma D.4", memory, "value", value_without_embedding),
    ("Lemma D.4", memory, "theta_2", shuffled_blocks),
    ("Theorem 4.3", memory, "key", asks_for_everything),
    ("Theorem 4.3", memory, "value", value_without_embedding),
    ("Lemma D.7", rational, "reverse_kernel", not_reversed),
    ("Proposition D.8", rational, "stationary", uniform),
    ("Claim D.10", memory, "theta_2", shuffled_blocks),
    ("Claim D.10", memory, "prompt", everywhere),
    ("Proposition D.11", memory, "prompt", everywhere),
    ("Lemma D.13", memory, "prompt", everywhere),
    ("Lemma D.13", rational, "stationary", uniform),
    ("Claim D.14", memory, "prompt", prompt_not_constant),
    ("Claim D.14", rational, "stationary", uniform),
    ("Claim D.15", memory, "prompt", everywhere),
    ("Theorem D.6", memory, "prompt", everywhere),
    ("Theorem D.6", memory, "prompt", prompt_not_constant),
    ("Theorem D.6", memory, "key", asks_for_everything),
    ("Theorem 4.6", memory, "prompt", everywhere),
    ("Theorem 4.6", memory, "value", value_without_embedding),
    ("Theorem 4.6", rational, "stationary", uniform),
    ("Exactness", vanilla, "diagonal_c_2", lambda model, u: REACH(model, u) * model.initial**2),
    ("Separable signs", vanilla, "prompt_for_diagonal", lambda model, reach: reach),
    ("Several classes", vanilla, "head_3_3", lambda model, mu: HEAD_3_3(model, mu) * mu[0]),
]


@pytest.mark.parametrize(("name", "module", "part", "damaged"), DAMAGES, ids=[f"{d[0]}: {d[2]}" for d in DAMAGES])
def test_damage_is_caught(name, module, part, damaged, monkeypatch):
    monkeypatch.setattr(module, part, damaged)
    assert confirm(name, points=1, seed=1).failures > 0


def test_every_identity_is_damaged():
    assert {damage[0] for damage in DAMAGES} == set(IDENTITIES)


def drawn(seed):
    """A task with one to three cells, a prompt, and the rows behind it of a text with a gap."""
    rng = random.Random(seed)
    task = memory.draw_task(rng, 6 if seed % 3 else 2, prompted=bool(seed % 2))
    prompt = vanilla.draw_prompt(rng, task.model)
    return task.model, [prompt, task.model.ones, *task.model.rows(rational.possible_text(rng, task.model, 4))]


@pytest.mark.parametrize("seed", range(0, 9, 3))
def test_recursion_and_messages_are_sums_over_paths(seed):
    model, rows = drawn(seed)
    rows = rows[:4]
    names = [f"m{j}" for j in range(model.memory.ndim)]
    for i, (recursion, messages) in enumerate(zip(others(model, rows), [None, *tau(model, rows)], strict=True)):
        left_out = [*rows[: i - 1], model.ones, *rows[i:]] if i else rows
        exact = Joint(model.transition, model.emission, model.initial, left_out, model.memory).of(*names, f"h{i}")
        assert (recursion == exact.reshape(recursion.shape)).all()
        assert i == 0 or (messages == recursion).all()


@pytest.mark.parametrize("seed", range(6))
def test_predictions_are_those_of_the_library(seed):
    model, rows = drawn(seed)
    parts = [np.array(part, float) for part in (model.transition, model.emission, model.initial, model.memory)]
    witness = MemoryHMM(*parts)
    lifted = torch.tensor(np.array(rows, float)).flatten(1)
    expected = masked_token_probs_from_embeddings(witness, lifted[None])[0]
    np.testing.assert_allclose(
        np.array([rational.prediction(model, table) for table in list(others(model, rows))[1:]], float),
        expected,
        atol=1e-14,
    )


def test_enumeration_of_fractions_is_that_of_floats():
    model, _ = drawn(3)
    embeddings = [model.emission[x].ravel() for x in (0, 1, 0)]
    parts = model.transition, model.emission, model.initial, embeddings, model.memory
    exact, found = (Enumeration(*(np.array(part, kind) for part in parts)) for kind in (object, float))
    for call in (lambda e: e.likelihood(), lambda e: e.state(1, 2), lambda e: e.of("m0"), lambda e: e.masked_token(2)):
        np.testing.assert_allclose(np.array(call(exact), float), call(found), rtol=1e-14)
    assert exact.n_paths == found.n_paths == model.n_states**4 * model.memory.size


def test_linear_algebra():
    rng = random.Random(0)
    columns = random_columns(rng, np.ones((4, 6)))
    assert (rational.left_inverse(columns) @ columns == np.eye(4, dtype=int)).all()
    mixture = columns.sum(1, keepdims=True) / 4
    assert rational.reduced(np.concatenate([columns[:, :2], mixture, columns[:, 2:]], 1))[1] == [0, 1, 2, 3]
    transition = random_columns(rng, np.ones((5, 5)))
    found = rational.stationary(transition)
    assert (transition @ found == found).all()
    assert found.sum() == 1


@pytest.mark.parametrize("prompted", [False, True])
def test_tasks_are_what_the_assumptions_ask_for(prompted):
    for seed in range(10):
        rng = random.Random(seed)
        task = memory.draw_task(rng, 6, prompted)
        model = task.model
        assert not prompted or (model.transition @ model.initial == model.initial).all()
        for distribution in (model.transition, model.emission, model.initial, model.memory.ravel()):
            assert np.all(distribution.sum(0) == 1)
            assert (distribution >= 0).all()
        assert [len(part) > 0 for part in task.inverses] == [True, True]
        assert len(memory.texts(rng, task, 8)[1].sure)
        if prompted:
            assert [text.chance > 0 for text in memory.texts(rng, task, 8, excluded=True)] == [False, True]


def test_free_entries_are_drawn_on_their_support():
    rng = random.Random(0)
    for size, _ in product(range(1, 6), range(5)):
        pattern = rational.random_pattern(rng, size, 0.5)
        column, weights = rational.random_column(rng, pattern), rational.random_weights(rng, pattern)
        assert column.sum() == 1
        assert [int(v > 0) for v in column] == [int(v != 0) for v in weights] == pattern
