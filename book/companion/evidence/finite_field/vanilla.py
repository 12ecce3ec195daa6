"""The equations of Section 3 and appendices B and C at random points modulo P.

Each `identity_…(rng, n_states, length)` draws a model and an input and returns in how many entries the two sides of the
statement differ: 0 confirms it there. The probabilities a statement speaks of come from `field.joint`, what the model
puts out from `field.masked_token_probs`.
"""

from __future__ import annotations

import random

from companion.evidence.finite_field import field
from companion.evidence.finite_field.field import (
    MASK,
    Matrix,
    Model,
    P,
    Vector,
    apply,
    dot,
    mismatches,
    normalised,
    over,
    scaled,
    share,
    times,
)


def vanilla(rng: random.Random, n_states: int, n_tokens: int) -> Model:
    """A random vanilla model without zeros."""
    transition = field.random_columns(rng, field.full(n_states, n_states))
    emission = field.random_columns(rng, field.full(n_tokens, n_states))
    return Model(transition, emission, field.random_column(rng, [1] * n_states), [1])


def joint_table(rng: random.Random, n_u: int, n_v: int, n_z: int) -> list[Matrix]:
    """Pr(u, v, z), index [u][v][z], with U ⊥ V | Z."""
    prior = field.random_column(rng, [1] * n_z)
    u_given_z = field.random_columns(rng, field.full(n_u, n_z))
    v_given_z = field.random_columns(rng, field.full(n_v, n_z))
    return [[times(times(a, b), prior) for b in v_given_z] for a in u_given_z]


def identity_proposition_3_4(rng: random.Random, n_states: int, length: int) -> int:
    """P[U | V=v] = P[U|Z] P[Z | V=v], and back by a left inverse; `n_states` values of Z, `length` of V."""
    table = joint_table(rng, n_states + 1, length, n_states)
    p_uz = [[sum(entry) % P for entry in zip(*slab, strict=True)] for slab in table]
    p_z = [sum(column) % P for column in zip(*p_uz, strict=True)]
    u_given_z = [over(row, p_z) for row in p_uz]
    inverse = field.left_inverse([list(column) for column in zip(*u_given_z, strict=True)])
    differing = 0
    for v in range(length):
        p_uz_v = [slab[v] for slab in table]
        u_given_v = normalised([sum(row) % P for row in p_uz_v])
        z_given_v = normalised([sum(column) % P for column in zip(*p_uz_v, strict=True)])
        differing += mismatches(u_given_v, apply(u_given_z, z_given_v))
        differing += mismatches(z_given_v, apply(inverse, u_given_v))
    return differing


def diagonal_b_1(model: Model, i: int) -> Vector:
    """The diagonal of D in Claim B.1: P[H_i] / P[H_0]."""
    return over(field.marginals(model, i)[i], model.initial)


def identity_claim_b_1(rng: random.Random, n_states: int, length: int) -> int:
    """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x], with r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x)."""
    model, i = vanilla(rng, n_states, 3), rng.randint(1, 3)
    x = field.possible_input(rng, model, length)
    here = field.joint(model, model.evidence(x), 0)
    later = field.joint(model, model.evidence([MASK] * i + x), i)
    ratio = share(sum(here), sum(later))
    return mismatches(normalised(later), scaled(times(diagonal_b_1(model, i), normalised(here)), ratio))


def head_3_3(model: Model, mu: Vector) -> Vector:
    """b = W†ᵀ D⁻¹ μ of Theorem 3.3, for a left inverse W† of W."""
    inverse = field.left_inverse([model.column(0, h) for h in range(model.n_states)])
    weights = over(mu, diagonal_b_1(model, 1))
    return [dot(list(column), weights) for column in zip(*inverse, strict=True)]


def identity_theorem_3_3(rng: random.Random, n_states: int, length: int) -> int:
    """bᵀG_1(∅, x) = r_x μᵀP[H_0 | x]."""
    model = vanilla(rng, n_states, n_states + 1)
    mu, x = field.random_vector(rng, [1] * n_states), field.possible_input(rng, model, length)
    rows = model.evidence([MASK, *x])
    here = field.joint(model, rows[1:], 0)
    ratio = share(sum(here), sum(field.joint(model, rows, 1)))
    score = dot(head_3_3(model, mu), field.masked_token_probs(model, rows)[0])
    return mismatches([score], [ratio * dot(mu, normalised(here))])


def tau_mismatches(model: Model, rows: Matrix) -> int:
    """Lemma C.1 and Lemma D.7: τ_i = P[H̃_i, X̂_-i = x̂_-i] for every i, and Ḡ_i = W P[M_{J_i}, H_i | X̂_-i = x̂_-i]."""
    differing, probs = 0, field.masked_token_probs(model, rows)
    for i, vector in enumerate(field.tau(model, rows), start=1):
        expected = field.joint(model, field.without(rows, i), i)
        differing += mismatches(vector, expected)
        differing += mismatches(probs[i - 1], apply(model.emission, normalised(model.looked_up(expected))))
    return differing


def identity_lemma_c_1(rng: random.Random, n_states: int, length: int) -> int:
    """For the embeddings (u, ones, e(x)): τ_i = P[H_i, X̂_-i = x̂_-i], Ḡ_i = W P[H_i | X̂_-i = x̂_-i], at every position."""
    model = vanilla(rng, n_states, 3)
    prompt = field.random_vector(rng, field.random_pattern(rng, n_states, 0.3))
    return tau_mismatches(model, [prompt, *model.evidence([MASK, *field.possible_input(rng, model, length)])])


def diagonal_c_2(model: Model) -> Vector:
    """The diagonal of D in Lemma C.2: 1 / P[H_0]."""
    return over([1] * model.n_states, model.initial)


def prompt_joint(model: Model, prompt: Vector) -> Vector:
    """P[X̂_1 = z̃, H_2] = A (u ⊙ P[H_1])."""
    return apply(model.transition, times(prompt, field.marginals(model, 1)[1]))


def identity_lemma_c_2(rng: random.Random, n_states: int, length: int) -> int:
    """P[H_2 | X̂_1 = z̃, X̂_{3:T+2} = x] = r_x D (P[X̂_1 = z̃, H_2] ⊙ P[H_0 | x]), r_x = Pr(x) / Pr(z̃, X̂_{3:T+2} = x)."""
    model = vanilla(rng, n_states, 3)
    x = field.possible_input(rng, model, length)
    prompt = field.random_vector(rng, field.random_pattern(rng, n_states, 0.3))
    here = field.joint(model, model.evidence(x), 0)
    prompted = field.joint(model, [prompt, *model.evidence([MASK, *x])], 2)
    ratio = share(sum(here), sum(prompted))
    right = times(diagonal_c_2(model), times(prompt_joint(model, prompt), normalised(here)))
    return mismatches(normalised(prompted), scaled(right, ratio))


def relaxed(rng: random.Random, n_states: int) -> tuple[Model, Vector, list[int]]:
    """A model for Assumption 3.5 with H* a proper subset and more states than tokens; the indicator of B; and H*."""
    essential = sorted(rng.sample(range(n_states), rng.randint(1, n_states - 1)))
    block = sorted(rng.sample(range(n_states), rng.randint(1, n_states - 1)))
    inside = [int(h in essential) for h in range(n_states)]
    patterns = field.full(n_states, n_states)
    for h in block[:-1]:
        patterns[h] = [a * b for a, b in zip(inside, field.random_pattern(rng, n_states, 0.4), strict=True)]
        patterns[h][rng.choice(essential)] = 1
    patterns[block[-1]] = inside
    tokens = max(2, len(essential))
    emission = field.random_columns(rng, field.full(tokens, n_states))
    start = field.random_column(rng, [1] * n_states)
    model = Model(field.random_columns(rng, patterns), emission, start, [1])
    return model, [int(h in block) for h in range(n_states)], essential


def prompt_3_6(block: Vector) -> Vector:
    """u of Theorem 3.6: the indicator of B."""
    return list(block)


def head_3_6(model: Model, block: Vector, essential: list[int], mu: Vector) -> Vector:
    """b of Theorem 3.6, from a left inverse of the columns of W in H* alone."""
    inverse = field.left_inverse([model.column(0, h) for h in essential])
    weights = over(mu, times(diagonal_c_2(model), prompt_joint(model, block)))
    return [dot(list(column), [weights[h] for h in essential]) for column in zip(*inverse, strict=True)]


def identity_theorem_3_6(rng: random.Random, n_states: int, length: int) -> int:
    """bᵀḠ_2(u, ones, e(x)) = r_x μᵀP[H_0 | x], with the r_x of Lemma C.2 and supp(μ) inside H*."""
    model, block, essential = relaxed(rng, n_states)
    mu = field.random_vector(rng, [int(h in essential) for h in range(n_states)])
    x = field.possible_input(rng, model, length)
    rows = [prompt_3_6(block), *model.evidence([MASK, *x])]
    here = field.joint(model, model.evidence(x), 0)
    ratio = share(sum(here), sum(field.joint(model, rows, 2)))
    score = dot(head_3_6(model, block, essential, mu), field.masked_token_probs(model, rows)[1])
    return mismatches([score], [ratio * dot(mu, normalised(here))])


# Beyond the paper


def scores(model: Model, head: Vector, reach: Vector) -> Vector:
    """ν = d ⊙ Wᵀb."""
    return times(reach, [dot(head, model.column(0, h)) for h in range(model.n_states)])


def identity_exactness(rng: random.Random, n_states: int, length: int) -> int:
    """bᵀḠ_2 dᵀp = νᵀp, for any model, prompt and head, with d = A (u ⊙ P[H_1]) / P[H_0] and p = P[H_0 | x]."""
    model = vanilla(rng, n_states, 3)
    prompt, head = (field.random_vector(rng, [1] * size) for size in (n_states, 3))
    x = field.possible_input(rng, model, length)
    reach = times(diagonal_c_2(model), prompt_joint(model, prompt))
    belief = normalised(field.joint(model, model.evidence(x), 0))
    score = dot(head, field.masked_token_probs(model, [prompt, *model.evidence([MASK, *x])])[1])
    return mismatches([score * dot(reach, belief)], [dot(scores(model, head, reach), belief)])


def prompt_for_reach(model: Model, reach: Vector) -> Vector:
    """u with A (u ⊙ P[H_1]) / P[H_0] = d, for a permutation A, whose inverse is Aᵀ."""
    before = [list(column) for column in zip(*model.transition, strict=True)]
    return over(apply(before, times(reach, model.initial)), field.marginals(model, 1)[1])


def identity_separable_votes(rng: random.Random, n_states: int, length: int) -> int:
    """bᵀḠ_2 dᵀp = μᵀp behind the prompt with d = μ / Wᵀb, for a permutation A and any μ and b."""
    order = rng.sample(range(n_states), n_states)
    plain = vanilla(rng, n_states, 3)
    model = Model(
        [[int(order[h] == k) for h in range(n_states)] for k in range(n_states)], plain.emission, plain.initial, [1]
    )
    mu, head = (field.random_vector(rng, [1] * size) for size in (n_states, 3))
    x = field.possible_input(rng, model, length)
    reach = over(mu, [dot(head, model.column(0, h)) for h in range(n_states)])
    belief = normalised(field.joint(model, model.evidence(x), 0))
    rows = [prompt_for_reach(model, reach), *model.evidence([MASK, *x])]
    score = dot(head, field.masked_token_probs(model, rows)[1])
    return mismatches([score * dot(reach, belief)], [dot(mu, belief)])


def identity_several_classes(rng: random.Random, n_states: int, length: int) -> int:
    """The scores of two classes' heads are in the proportion of their μ_kᵀP[H_0 | x]."""
    model = vanilla(rng, n_states, n_states + 1)
    tasks, x = [field.random_vector(rng, [1] * n_states) for _ in range(2)], field.possible_input(rng, model, length)
    rows = model.evidence([MASK, *x])
    belief, guess = field.joint(model, rows[1:], 0), field.masked_token_probs(model, rows)[0]
    one, other = (dot(head_3_3(model, mu), guess) for mu in tasks)
    return mismatches([one * dot(tasks[1], belief)], [other * dot(tasks[0], belief)])
