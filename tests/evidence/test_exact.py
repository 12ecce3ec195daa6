"""Identities at random rational points: each confirmed, and each damage caught."""

import numpy as np
import pytest
from damages import Damage, instead, result

from hmmbook.evidence.enumeration import Joint
from hmmbook.evidence.exact import memory, rational, vanilla
from hmmbook.evidence.exact.identities import IDENTITIES, confirm


def dependent_table(rng, n_u, n_v, n_z):
    return rational.random_column(rng, [1] * (n_u * n_v * n_z)).reshape(n_u, n_v, n_z)


def ones_for_d(model, i):
    return np.ones_like(model.initial)


def not_reversed(transition, before, after):
    return transition.T


def times_the_initial_law(diagonal_c_2, model, prompt):
    return diagonal_c_2(model, prompt) * model.initial**2


def without_the_first_weight(head_3_6, model, block, essential, mu):
    return head_3_6(model, block, essential, mu * (np.arange(len(mu)) != essential[0]))


def at_the_first_position(cell_and_state, table, i):
    return cell_and_state(table, 1)


def asking_for_every_state(query_and_key):
    query, theta_1 = query_and_key
    return np.ones_like(query), theta_1


def uniform(transition):
    n_states = len(transition)
    return rational.fractions(np.ones(n_states, int)) / n_states


DAMAGES = [
    Damage(["Proposition 3.4"], "U depends on V", vanilla, "joint_table", instead(dependent_table)),
    Damage(["Claim B.1", "Theorem 3.3"], "D dropped", vanilla, "diagonal_b_1", instead(ones_for_d)),
    Damage(["Lemma C.1", "Lemma D.7"], "not reversed", rational, "reverse_kernel", instead(not_reversed)),
    Damage(["Lemma C.2"], "P[H_0] for 1 / P[H_0]", vanilla, "diagonal_c_2", times_the_initial_law),
    Damage(["Theorem 3.6"], "a weight dropped", vanilla, "head_3_6", without_the_first_weight),
    Damage(["Proposition D.1"], "the first position", Joint, "cell_and_state", at_the_first_position),
    Damage(["Claim D.3", "Lemma D.4"], "values in reverse", memory, "theta_2", result(lambda theta: theta[::-1])),
    Damage(["Theorem 4.3"], "asks for every state", memory, "key", result(asking_for_every_state)),
    Damage(["Proposition D.8", "Lemma D.13", "Claim D.14", "Theorem 4.6"], "not stationary", rational, "stationary",
        instead(uniform)),
    Damage(["Claim D.10", "Proposition D.11", "Claim D.15", "Theorem D.6"], "no prompt", memory, "prompt",
        result(np.ones_like)),
]  # fmt: skip
DAMAGE_OF = {name: damage for damage in DAMAGES for name in damage.statements}


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_is_confirmed_and_a_damage_to_what_it_rests_on_is_caught(name, monkeypatch):
    confirmation = confirm(name, points=1, seed=1)
    assert confirmation.failures == 0
    assert confirmation.sizes == IDENTITIES[name].sizes
    DAMAGE_OF[name].apply(monkeypatch)
    assert confirm(name, points=1, seed=1).failures > 0
