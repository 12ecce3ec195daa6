"""Identities at random rational points: each confirmed, each damage caught, and the recursion gives sums over paths."""

import math
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

no_diagonal = instead(vanilla, "diagonal_b_1", lambda f: lambda model, i: np.ones_like(model.initial))
not_reversed = instead(rational, "reverse_kernel", lambda f: lambda transition, before, after: transition.T)
uniform = instead(rational, "stationary", lambda f: lambda a: rational.fractions(np.ones(len(a), int)) / len(a))
d_c_2 = instead(vanilla, "diagonal_c_2", lambda f: lambda model, u: f(model, u) * model.initial**2)
blocks_shuffled = instead(memory, "theta_2", lambda f: lambda task: f(task)[::-1])
asks_for_everything = instead(memory, "key", lambda f: lambda task: (np.ones_like(f(task)[0]), f(task)[1]))
dependent = instead(
    vanilla, "joint_table", lambda f: lambda rng, *n: random_columns(rng, [[1] * math.prod(n)]).reshape(n)
)
first_weight_lost = instead(
    vanilla, "head_3_6", lambda f: lambda m, block, kept, mu: f(m, block, kept, mu * (np.arange(len(mu)) != kept[0]))
)
no_prompt = instead(memory, "prompt", lambda f: lambda task: np.ones_like(f(task)))


DAMAGES = {
    "Proposition 3.4": dependent,
    **dict.fromkeys(("Claim B.1", "Theorem 3.3"), no_diagonal),
    **dict.fromkeys(("Lemma C.1", "Lemma D.7"), not_reversed),
    **dict.fromkeys(("Lemma C.2", "Exactness"), d_c_2),
    "Theorem 3.6": first_weight_lost,
    "Proposition D.1": instead(Joint, "cell_and_state", lambda f: lambda table, i: f(table, 1)),
    **dict.fromkeys(("Claim D.3", "Lemma D.4"), blocks_shuffled),
    "Theorem 4.3": asks_for_everything,
    **dict.fromkeys(("Proposition D.8", "Lemma D.13", "Claim D.14", "Theorem 4.6"), uniform),
    **dict.fromkeys(("Claim D.10", "Proposition D.11", "Claim D.15", "Theorem D.6"), no_prompt),
    "Separable signs": instead(vanilla, "prompt_for_diagonal", lambda f: lambda model, reach: reach),
    "Several classes": instead(vanilla, "head_3_3", lambda f: lambda model, mu: f(model, mu) * mu[0]),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_is_confirmed_and_a_damage_to_what_it_rests_on_is_caught(name, monkeypatch):
    found = confirm(name, points=1, seed=1)
    assert (found.failures, found.sizes) == (0, IDENTITIES[name].sizes)
    assert 0 < found.error_bound < 2**-50
    DAMAGES[name](monkeypatch)
    assert confirm(name, points=1, seed=1).failures > 0


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
