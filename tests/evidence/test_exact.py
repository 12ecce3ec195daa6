"""Identities at random rational points: each confirmed, each damage caught, and the recursion gives sums over paths."""

import random

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Joint
from companion.evidence.exact import memory, rational, vanilla
from companion.evidence.exact.identities import IDENTITIES, confirm
from companion.evidence.exact.rational import others, random_columns, tau
from damages import instead

from hmmlib.inference.messages import masked_token_probs_from_embeddings
from hmmlib.models.hmm import MemoryHMM


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_is_confirmed(name):
    found = confirm(name, points=1, seed=1)
    assert (found.failures, found.sizes) == (0, IDENTITIES[name].sizes)
    assert 0 < found.error_bound < 2**-50


def test_the_same_seed_draws_the_same_points(monkeypatch):
    drawn, draw = [], rational.random_column
    monkeypatch.setattr(rational, "random_column", lambda *given: drawn.append(draw(*given)) or drawn[-1])

    def points(seed):
        drawn.clear()
        confirm("Claim B.1", points=1, seed=seed)
        return list(map(tuple, drawn))

    assert points(3) == points(3) != points(4)


# Damages


def dependent_table(rng, n_u, n_v, n_z):
    return random_columns(rng, [[1] * n_u * n_v * n_z]).reshape(n_u, n_v, n_z)


def block_of_all_states(honest):
    def relaxed(rng, n_states):
        model, block, essential = honest(rng, n_states)
        return model, np.ones_like(block), essential

    return relaxed


def first_weight_lost(honest):
    return lambda m, block, kept, mu: honest(m, block, kept, mu * (np.arange(len(mu)) != kept[0]))


def prompt_not_constant(honest):
    return lambda task: honest(task) * (1 + np.arange(task.model.lookup.size).reshape(task.model.lookup.shape))


not_reversed = instead(rational, "reverse_kernel", lambda f: lambda transition, before, after: transition.T)
uniform = instead(rational, "stationary", lambda f: lambda a: rational.fractions(np.ones(len(a), int)) / len(a))
d_c_2 = instead(vanilla, "diagonal_c_2", lambda f: lambda model, u: f(model, u) * model.initial**2)
blocks_shuffled = instead(memory, "theta_2", lambda f: lambda task: f(task)[::-1])
asks_for_everything = instead(memory, "key", lambda f: lambda task: (np.ones_like(f(task)[0]), f(task)[1]))
no_embedding = instead(memory, "value", lambda f: lambda task, probs, row: f(task, probs, np.ones_like(row)))
no_prompt = instead(memory, "prompt", lambda f: lambda task: np.ones_like(f(task)))
prompt_tilted = instead(memory, "prompt", prompt_not_constant)
DAMAGES = {
    "Proposition 3.4": [instead(vanilla, "joint_table", lambda f: dependent_table)],
    "Claim B.1": [instead(vanilla, "diagonal_b_1", lambda f: lambda model, i: model.initial)],
    "Theorem 3.3": [instead(vanilla, "diagonal_b_1", lambda f: lambda model, i: np.ones_like(model.initial))],
    "Lemma C.1": [not_reversed],
    "Lemma C.2": [d_c_2],
    "Theorem 3.6": [instead(vanilla, "relaxed", block_of_all_states), instead(vanilla, "head_3_6", first_weight_lost)],
    "Proposition D.1": [instead(Joint, "cell_and_state", lambda f: lambda table, i: f(table, 1))],
    "Claim D.3": [blocks_shuffled, instead(memory, "normalised", lambda f: lambda table: table)],
    "Lemma D.4": [no_embedding, blocks_shuffled],
    "Theorem 4.3": [asks_for_everything, no_embedding],
    "Lemma D.7": [not_reversed],
    "Proposition D.8": [uniform],
    "Claim D.10": [blocks_shuffled, no_prompt],
    "Proposition D.11": [no_prompt],
    "Lemma D.13": [no_prompt, uniform],
    "Claim D.14": [prompt_tilted, uniform],
    "Claim D.15": [no_prompt],
    "Theorem D.6": [no_prompt, prompt_tilted, asks_for_everything],
    "Theorem 4.6": [no_prompt, no_embedding, uniform],
    "Exactness": [d_c_2],
    "Separable signs": [instead(vanilla, "prompt_for_diagonal", lambda f: lambda model, reach: reach)],
    "Several classes": [instead(vanilla, "head_3_3", lambda f: lambda model, mu: f(model, mu) * mu[0])],
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_each_damage_is_caught(name):
    for damage in DAMAGES[name]:
        with pytest.MonkeyPatch.context() as patch:
            damage(patch)
            assert confirm(name, points=1, seed=1).failures > 0


# What the identities are computed with


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
    lifted = torch.tensor(np.array(rows, float)).flatten(1)
    expected = masked_token_probs_from_embeddings(MemoryHMM(*parts), lifted[None])[0]
    found = [rational.prediction(model, table) for table in list(others(model, rows))[1:]]
    np.testing.assert_allclose(np.array(found, float), expected, atol=1e-14)


@pytest.mark.parametrize("prompted", [False, True])
def test_tasks_are_what_the_assumptions_ask_for(prompted):
    for seed in range(4):
        rng = random.Random(seed)
        task = memory.draw_task(rng, 6, prompted)
        model = task.model
        assert not prompted or (model.transition @ model.initial == model.initial).all()
        for distribution in (model.transition, model.emission, model.initial, model.memory.ravel()):
            assert np.all(distribution.sum(0) == 1)
            assert (distribution >= 0).all()
        assert len(memory.texts(rng, task, 8)[1].sure)
        if prompted:
            assert [text.chance > 0 for text in memory.texts(rng, task, 8, excluded=True)] == [False, True]
