"""The paper's equations without memory, and of ours, at random rational points.

Each `identity_…(rng, n_states, length)` draws a model and a text and yields the differences between both sides of the
statement: zeros confirm it there. What `rational.others` gives is compared with the sums over all paths in Lemmas C.1
and D.7.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import numpy as np

from companion.evidence.enumeration import Joint, normalised, over
from companion.evidence.exact import rational
from companion.evidence.exact.rational import Model, left_inverse, marginals, other_than, possible_text, prediction

Differences = Iterator[np.ndarray]
MOST_ENTRIES = 3000
"""Of a joint table; Lemmas C.1 and D.7 are also checked on all texts, by enumeration, where they have no more."""


def vanilla(rng: random.Random, n_states: int, n_tokens: int) -> Model:
    """A random model without memory and without zeros."""
    transition, emission = (rational.random_columns(rng, np.ones((n_states, n))) for n in (n_states, n_tokens))
    return Model(transition, emission[:, None], rational.random_column(rng, [1] * n_states), rational.fractions([1]))


def beside(model: Model, before: list[np.ndarray], x: list[int]) -> tuple[np.ndarray, np.ndarray, object]:
    """P[H_0 | x], (H,); P[H_i, evidence], (1, H), i the number of rows `before` x; and r_x = Pr(x) / Pr(evidence)."""
    rows = model.rows(x)
    here, later = other_than(model, rows, 0)[0], other_than(model, [*before, *rows], len(before))
    return normalised(here), later, here.sum() / later.sum()


def joint_table(rng: random.Random, n_u: int, n_v: int, n_z: int) -> np.ndarray:
    """Pr(u, v, z) with U ⊥ V | Z."""
    u_given_z, v_given_z = (rational.random_columns(rng, np.ones((n_z, n))) for n in (n_u, n_v))
    return rational.random_column(rng, [1] * n_z) * u_given_z[:, None] * v_given_z[None]


def identity_proposition_3_4(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[U | V=v] = P[U|Z] P[Z | V=v], and back by a left inverse; `n_states` values of Z, `length` of V."""
    table = joint_table(rng, n_states + 1, length, n_states)
    u_given_z = table.sum(1) / table.sum((0, 1))
    inverse = left_inverse(u_given_z)
    for given in table.transpose(1, 0, 2):
        u_given_v, z_given_v = normalised(given.sum(1)), normalised(given.sum(0))
        yield u_given_v - u_given_z @ z_given_v
        yield z_given_v - inverse @ u_given_v


def diagonal_b_1(model: Model, i: int) -> np.ndarray:
    """The diagonal of D in Claim B.1: P[H_i] / P[H_0]."""
    return marginals(model, i)[i] / model.initial


def identity_claim_b_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x], with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x)."""
    model, i = vanilla(rng, n_states, 3), rng.randint(1, 3)
    belief, later, ratio = beside(model, [model.ones] * i, possible_text(rng, model, length))
    yield normalised(later) - ratio * diagonal_b_1(model, i) * belief


def head_3_3(model: Model, mu: np.ndarray) -> np.ndarray:
    """b = W†ᵀ D⁻¹ μ of Theorem 3.3, for a left inverse W† of W."""
    return left_inverse(model.emission[:, 0]).T @ (mu / diagonal_b_1(model, 1))


def identity_theorem_3_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """bᵀG_1(∅, x) = r_x μᵀP[H_0 | x]."""
    model = vanilla(rng, n_states, n_states + 1)
    mu = rational.random_weights(rng, [1] * n_states)
    belief, later, ratio = beside(model, [model.ones], possible_text(rng, model, length))
    yield head_3_3(model, mu) @ prediction(model, later) - ratio * mu @ belief


def few_entries(model: Model, length: int, n_tokens: int) -> bool:
    """Whether the joint table of this length, `n_tokens` of its positions free, has no more than MOST_ENTRIES."""
    return model.memory.size * len(model.emission) ** n_tokens * model.n_states ** (length + 1) <= MOST_ENTRIES


def enumerated_differences(model: Model, before: list[np.ndarray], length: int) -> Differences:
    """How far both recursions are from sums over all paths, for every text of a length behind the rows `before`."""
    rows = [*before, *model.rows(np.indices((len(model.emission),) * length).reshape(length, -1))]
    names, shape = [f"m{j}" for j in range(model.memory.ndim)], (-1, *model.lookup.shape)
    table = Joint(model.transition, model.emission, model.initial, [*before, *[None] * length], model.memory)
    yield other_than(model, rows, 0) - table.given_input(*names, "h0").reshape(shape)
    for i, found in enumerate(rational.tau(model, rows)[len(before) :], len(before) + 1):
        yield found - table.left_out(i, *names, f"h{i}").reshape(shape)


def prompted_differences(rng: random.Random, model: Model, before: list[np.ndarray], length: int) -> Differences:
    """Lemma C.1 or D.7 behind the rows `before`, on one text, and on all of them where they are few."""
    if few_entries(model, length + len(before), length):
        yield from enumerated_differences(model, before, length)
    rows = [*before, *model.rows(possible_text(rng, model, length))]
    for found, table in zip(rational.tau(model, rows), islice(rational.others(model, rows), 1, None), strict=True):
        yield found - table
        weights = model.looked_up(table)  # of (m, h), where Ḡ_i is printed with their mean over the other cells
        yield prediction(model, found) - np.tensordot(model.emission, normalised(weights), 2)


def draw_prompt(rng: random.Random, model: Model) -> np.ndarray:
    """A lifted vector with zeros, (K, H)."""
    pattern = rational.random_pattern(rng, model.lookup.size, 0.3)
    return rational.random_weights(rng, pattern, signed=False).reshape(model.lookup.shape)


def identity_lemma_c_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """For (u, ones, e(x)), at every position: τ_i = P[H_i, X̂_-i = x̂_-i], Ḡ_i = W P[H_i | X̂_-i = x̂_-i]."""
    model = vanilla(rng, n_states, 3)
    yield from prompted_differences(rng, model, [draw_prompt(rng, model), model.ones], length)


def diagonal_c_2(model: Model, prompt: np.ndarray) -> np.ndarray:
    """d = D P[X̂_1 = z̃, H_2] = A (u ⊙ P[H_1]) / P[H_0], (H,), with the D of Lemma C.2."""
    return model.transition @ (prompt * marginals(model, 1)[1]) / model.initial


def identity_lemma_c_2(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[H_2 | z̃, X̂_{3:T+2} = x] = r_x D (P[z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, X̂_{3:T+2} = x)."""
    model = vanilla(rng, n_states, 3)
    x, prompt = possible_text(rng, model, length), draw_prompt(rng, model)[0]
    belief, later, ratio = beside(model, [prompt, model.ones], x)
    yield normalised(later) - ratio * diagonal_c_2(model, prompt) * belief


def relaxed(rng: random.Random, n_states: int) -> tuple[Model, np.ndarray, list[int]]:
    """A model for Assumption 3.5 with H* a proper subset and more states than tokens; the indicator of B; and H*."""
    essential, block = (sorted(rng.sample(range(n_states), rng.randint(1, n_states - 1))) for _ in range(2))
    inside = np.isin(range(n_states), essential)
    patterns = np.ones((n_states, n_states))
    for h in block:
        patterns[h] = inside * rational.random_pattern(rng, n_states, 0.4)
        patterns[h, rng.choice(essential)] = 1
    patterns[block[-1]] = inside
    emission = rational.random_columns(rng, np.ones((n_states, max(2, len(essential)))))
    transition, law = rational.random_columns(rng, patterns), rational.random_column(rng, [1] * n_states)
    model = Model(transition, emission[:, None], law, rational.fractions([1]))
    return model, np.isin(range(n_states), block).astype(int), essential


def head_3_6(model: Model, block: np.ndarray, essential: list[int], mu: np.ndarray) -> np.ndarray:
    """b of Theorem 3.6, from a left inverse of the columns of W in H* alone."""
    return left_inverse(model.emission[:, 0, essential]).T @ over(mu, diagonal_c_2(model, block))[essential]


def identity_theorem_3_6(rng: random.Random, n_states: int, length: int) -> Differences:
    """bᵀḠ_2(u, ones, e(x)) = r_x μᵀP[H_0 | x], with the r_x of Lemma C.2 and supp(μ) inside H*."""
    model, block, essential = relaxed(rng, n_states)
    mu = rational.random_weights(rng, np.isin(range(n_states), essential).astype(int))
    belief, later, ratio = beside(model, [block, model.ones], possible_text(rng, model, length))
    yield head_3_6(model, block, essential, mu) @ prediction(model, later) - ratio * mu @ belief


def identity_exactness(rng: random.Random, n_states: int, length: int) -> Differences:
    """bᵀḠ_2 dᵀp = νᵀp, for any model, prompt and head, with d = A (u ⊙ P[H_1]) / P[H_0] and p = P[H_0 | x]."""
    model = vanilla(rng, n_states, 3)
    prompt, head = rational.random_weights(rng, [1] * n_states, signed=False), rational.random_weights(rng, [1] * 3)
    belief, later, _ = beside(model, [prompt, model.ones], possible_text(rng, model, length))
    reached = diagonal_c_2(model, prompt)
    yield head @ prediction(model, later) * (reached @ belief) - reached * (head @ model.emission[:, 0]) @ belief


def prompt_for_diagonal(model: Model, diagonal: np.ndarray) -> np.ndarray:
    """u with A (u ⊙ P[H_1]) / P[H_0] = d, for a permutation A, whose inverse is Aᵀ."""
    return model.transition.T @ (diagonal * model.initial) / marginals(model, 1)[1]


def identity_separable_signs(rng: random.Random, n_states: int, length: int) -> Differences:
    """bᵀḠ_2 dᵀp = μᵀp behind the prompt with d = μ / Wᵀb, for a permutation A and any μ and b."""
    plain, order = vanilla(rng, n_states, 3), rng.sample(range(n_states), n_states)
    model = Model(rational.fractions(np.eye(n_states, dtype=int)[order]), plain.emission, plain.initial, plain.memory)
    mu, head = (rational.random_weights(rng, [1] * size) for size in (n_states, 3))
    reached = mu / (head @ model.emission[:, 0])
    rows = [prompt_for_diagonal(model, reached), model.ones]
    belief, later, _ = beside(model, rows, possible_text(rng, model, length))
    yield head @ prediction(model, later) * (reached @ belief) - mu @ belief


def identity_several_classes(rng: random.Random, n_states: int, length: int) -> Differences:
    """The scores of two classes' heads are in the proportion of their μ_kᵀP[H_0 | x]."""
    model = vanilla(rng, n_states, n_states + 1)
    tasks = [rational.random_weights(rng, [1] * n_states) for _ in range(2)]
    belief, later, _ = beside(model, [model.ones], possible_text(rng, model, length))
    one, other = (head_3_3(model, mu) @ prediction(model, later) for mu in tasks)
    yield one * (tasks[1] @ belief) - other * (tasks[0] @ belief)
