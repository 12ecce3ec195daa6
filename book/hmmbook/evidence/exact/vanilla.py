"""The paper's equations without memory, at random rational points.

Each `identity_…(rng, n_states, length)` draws a model and a text, and yields the differences between both sides of the
statement. Zeros confirm it there. Lemmas C.1 and D.7 also compare `rational.latent_joints` with sums over all paths.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hmmbook.evidence.enumeration import Joint, normalised, over
from hmmbook.evidence.exact import rational
from hmmbook.evidence.exact.rational import Model, latent_joints, left_inverse, marginals, possible_text, prediction

Differences = Iterator[np.ndarray]
MOST_ENTRIES = 3000
"""The largest joint table by which Lemmas C.1 and D.7 are also checked on all texts."""


def random_vanilla_model(rng: random.Random, n_states: int, n_tokens: int) -> Model:
    """Draw a model without memory and without zeros."""
    transition = rational.random_columns(rng, np.ones((n_states, n_states)))
    emission = rational.random_columns(rng, np.ones((n_states, n_tokens)))
    initial = rational.random_column(rng, [1] * n_states)
    return Model(transition, emission[:, None], initial, rational.fractions([1]))


class Reading(NamedTuple):
    """What a text x says of H_0, and of the state just before it when rows of evidence stand in front."""

    belief: np.ndarray  # P[H_0 | x], (H,)
    later: np.ndarray  # P[H_i, rows in front, x], (1, H), where i is the number of rows in front
    ratio: object  # r_x = Pr(x) / Pr(rows in front, x)


def read(model: Model, in_front: list[np.ndarray], text: list[int]) -> Reading:
    """Read a text alone, and behind rows of evidence."""
    rows = model.rows(text)
    start = latent_joints(model, rows)[0][0]
    later = latent_joints(model, [*in_front, *rows])[len(in_front)]
    return Reading(normalised(start), later, start.sum() / later.sum())


def joint_table(rng: random.Random, n_u: int, n_v: int, n_z: int) -> np.ndarray:
    """Draw Pr(u, v, z) with U ⊥ V | Z."""
    u_given_z = rational.random_columns(rng, np.ones((n_z, n_u)))
    v_given_z = rational.random_columns(rng, np.ones((n_z, n_v)))
    return rational.random_column(rng, [1] * n_z) * u_given_z[:, None] * v_given_z[None]


def identity_proposition_3_4(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[U | V=v] = P[U|Z] P[Z | V=v], and back by a left inverse; `n_states` values of Z, `length` of V."""
    table = joint_table(rng, n_states + 1, length, n_states)
    u_given_z = table.sum(1) / table.sum((0, 1))
    inverse = left_inverse(u_given_z)
    for at_v in table.transpose(1, 0, 2):
        u_given_v = normalised(at_v.sum(1))
        z_given_v = normalised(at_v.sum(0))
        yield u_given_v - u_given_z @ z_given_v
        yield z_given_v - inverse @ u_given_v


def diagonal_b_1(model: Model, i: int) -> np.ndarray:
    """Return the diagonal of D in Claim B.1: P[H_i] / P[H_0]."""
    return marginals(model, i)[i] / model.initial


def identity_claim_b_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x], with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x)."""
    model = random_vanilla_model(rng, n_states, 3)
    i = rng.randint(1, 3)
    reading = read(model, [model.ones] * i, possible_text(rng, model, length))
    yield normalised(reading.later) - reading.ratio * diagonal_b_1(model, i) * reading.belief


def head_3_3(model: Model, mu: np.ndarray) -> np.ndarray:
    """Return b = W†ᵀ D⁻¹ μ of Theorem 3.3, for a left inverse W† of W."""
    return left_inverse(model.emission[:, 0]).T @ (mu / diagonal_b_1(model, 1))


def identity_theorem_3_3(rng: random.Random, n_states: int, length: int) -> Differences:
    """bᵀG_1(∅, x) = r_x μᵀP[H_0 | x]."""
    model = random_vanilla_model(rng, n_states, n_states + 1)
    mu = rational.random_weights(rng, [1] * n_states)
    reading = read(model, [model.ones], possible_text(rng, model, length))
    score = head_3_3(model, mu) @ prediction(model, reading.later)
    yield score - reading.ratio * mu @ reading.belief


def is_small(model: Model, length: int, n_tokens: int) -> bool:
    """Whether a joint table of this length, where `n_tokens` of the positions are free, is small enough to be made."""
    paths = model.memory.size * model.n_states ** (length + 1)
    return paths * len(model.emission) ** n_tokens <= MOST_ENTRIES


def enumerated_differences(model: Model, in_front: list[np.ndarray], length: int) -> Differences:
    """Compare both recursions with sums over all paths, for every text of a length behind rows of evidence."""
    n_tokens = len(model.emission)
    every_text = np.indices((n_tokens,) * length).reshape(length, -1)
    rows = [*in_front, *model.rows(every_text)]
    table = Joint(model.transition, model.emission, model.initial, [*in_front, *[None] * length], model.memory)
    lifted = (-1, *model.lookup.shape)
    yield latent_joints(model, rows)[0] - table.given_input(*table.cells, "h0").reshape(lifted)
    messages = rational.tau(model, rows)
    for i in range(len(in_front) + 1, len(rows) + 1):
        yield messages[i - 1] - table.left_out(i, *table.cells, f"h{i}").reshape(lifted)


def prompted_differences(rng: random.Random, model: Model, in_front: list[np.ndarray], length: int) -> Differences:
    """Yield those of Lemma C.1 or D.7 behind rows of evidence, on one text, and on all of them where they are few."""
    if is_small(model, length + len(in_front), length):
        yield from enumerated_differences(model, in_front, length)
    rows = [*in_front, *model.rows(possible_text(rng, model, length))]
    tables = latent_joints(model, rows)[1:]
    for message, table in zip(rational.tau(model, rows), tables, strict=True):
        yield message - table
        # The paper prints Ḡ_i with the mean of these weights over the other cells. A sum has the same direction.
        weights = normalised(model.looked_up(table))
        yield prediction(model, message) - np.tensordot(model.emission, weights, 2)


def draw_prompt(rng: random.Random, model: Model) -> np.ndarray:
    """Draw a lifted vector with zeros, (K, H)."""
    pattern = rational.random_pattern(rng, model.lookup.size, 0.3)
    return rational.random_weights(rng, pattern, signed=False).reshape(model.lookup.shape)


def identity_lemma_c_1(rng: random.Random, n_states: int, length: int) -> Differences:
    """For (u, ones, e(x)), at every position: τ_i = P[H_i, X̂_-i = x̂_-i], Ḡ_i = W P[H_i | X̂_-i = x̂_-i]."""
    model = random_vanilla_model(rng, n_states, 3)
    yield from prompted_differences(rng, model, [draw_prompt(rng, model), model.ones], length)


def diagonal_c_2(model: Model, prompt: np.ndarray) -> np.ndarray:
    """Return d = D P[X̂_1 = z̃, H_2] = A (u ⊙ P[H_1]) / P[H_0], (H,), with the D of Lemma C.2."""
    return model.transition @ (prompt * marginals(model, 1)[1]) / model.initial


def identity_lemma_c_2(rng: random.Random, n_states: int, length: int) -> Differences:
    """P[H_2 | z̃, X̂_{3:T+2} = x] = r_x D (P[z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, X̂_{3:T+2} = x)."""
    model = random_vanilla_model(rng, n_states, 3)
    text = possible_text(rng, model, length)
    prompt = draw_prompt(rng, model)[0]
    reading = read(model, [prompt, model.ones], text)
    yield normalised(reading.later) - reading.ratio * diagonal_c_2(model, prompt) * reading.belief


def draw_essential_model(rng: random.Random, n_states: int) -> tuple[Model, np.ndarray, list[int]]:
    """Draw a model for Assumption 3.5 that Assumption 3.1 excludes, as it has more states than tokens.

    Returns:
        The model, the indicator of B, and H*, which is a proper subset of the states.
    """
    essential = sorted(rng.sample(range(n_states), rng.randint(1, n_states - 1)))
    block = sorted(rng.sample(range(n_states), rng.randint(1, n_states - 1)))
    is_essential = np.isin(range(n_states), essential)
    patterns = np.ones((n_states, n_states))  # of the columns of A
    for h in block:
        patterns[h] = is_essential * rational.random_pattern(rng, n_states, 0.4)
        patterns[h, rng.choice(essential)] = 1
    patterns[block[-1]] = is_essential
    emission = rational.random_columns(rng, np.ones((n_states, max(2, len(essential)))))
    transition = rational.random_columns(rng, patterns)
    initial = rational.random_column(rng, [1] * n_states)
    model = Model(transition, emission[:, None], initial, rational.fractions([1]))
    return model, np.isin(range(n_states), block).astype(int), essential


def head_3_6(model: Model, block: np.ndarray, essential: list[int], mu: np.ndarray) -> np.ndarray:
    """Return b of Theorem 3.6, from a left inverse of the columns of W in H* alone."""
    weights = over(mu, diagonal_c_2(model, block))[essential]
    return left_inverse(model.emission[:, 0, essential]).T @ weights


def identity_theorem_3_6(rng: random.Random, n_states: int, length: int) -> Differences:
    """bᵀḠ_2(u, ones, e(x)) = r_x μᵀP[H_0 | x], with the r_x of Lemma C.2 and supp(μ) inside H*."""
    model, block, essential = draw_essential_model(rng, n_states)
    mu = rational.random_weights(rng, np.isin(range(n_states), essential).astype(int))
    reading = read(model, [block, model.ones], possible_text(rng, model, length))
    score = head_3_6(model, block, essential, mu) @ prediction(model, reading.later)
    yield score - reading.ratio * mu @ reading.belief
