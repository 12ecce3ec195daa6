"""What the paper's statements say about supports, for one pattern of zeros and many inputs at once.

Each `pattern_…` function yields the instances of a statement as a `Case`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from hmmbook.evidence.enumeration import Joint
from hmmbook.evidence.exact.rational import Model, latent_joints, marginals, tau
from hmmbook.evidence.zero_patterns.models import subsets

Rows = list[np.ndarray]
"""For each position of an input its lifted evidence, (n, K, H) for n inputs."""


class Case(NamedTuple):
    """An instance of a statement for n inputs."""

    admitted: np.ndarray | bool  # which inputs the hypotheses admit, (n,)
    holds: np.ndarray  # for which inputs the conclusion holds, (n,)
    choice: dict  # what the instance is chosen by, such as H* or supp(μ)
    details: Callable[[int], dict] = lambda k: {}  # what else there is to say of input k


Check = Callable[[Model, Rows], Iterator[Case]]


def supports(model: Model, rows: Rows) -> list[np.ndarray]:
    """Return where P[H̃_i, evidence but that of i] > 0, for i = 0, …, t and n inputs at once, (n, K, H) each."""
    return [table > 0 for table in np.broadcast_arrays(*latent_joints(model, rows))]


def anywhere(tables: np.ndarray) -> np.ndarray:
    """Of tables (…, A, B), mark those with an entry that is not zero."""
    return tables.any((-2, -1))


def members(indicator: np.ndarray) -> list[int]:
    """Return the set that an indicator marks."""
    return np.flatnonzero(indicator).tolist()


def possible(model: Model, rows: Rows) -> np.ndarray:
    """Whether the evidence has positive probability, (n,)."""
    return anywhere(supports(model, rows)[0])


# Section 3 and its appendices


def pattern_claim_b_1(model: Model, rows: Rows) -> Iterator[Case]:
    """P[H_i | X_{i+1:T+i} = x] and D P[H_0 | X_{1:T} = x] have one support, i = 1, 2, 3; so 0 < r_x < ∞."""
    at_start = supports(model, rows)[0]
    for i in (1, 2, 3):
        later = supports(model, [model.ones] * i + rows)[i]
        law = np.outer(model.memory, marginals(model, i)[i]) > 0
        yield Case(True, ~anywhere(later ^ (law & at_start)), {"i": i})


def pattern_lemma_c_1(model: Model, rows: Rows) -> Iterator[Case]:
    """For (u, ones, e(x)) and every u: the messages (C.1) are zero, and so Ḡ_i is, exactly where no path is left."""
    n_rows = len(model.emission)
    length = len(rows) + 2
    table = Joint(model.transition, model.emission[:, 0], model.initial, [None] * length)
    has_path = [table.left_out(i, f"h{i}") > 0 for i in range(1, length + 1)]
    row_of_ones = n_rows - 1
    for u, prompt in enumerate(model.emission):
        messages = tau(model, [prompt, model.ones, *rows])
        differs = False
        for message, paths in zip(messages, has_path, strict=True):
            behind_u = paths.reshape(n_rows, n_rows, -1, 1, model.n_states)[u, row_of_ones]
            differs = differs | anywhere((message > 0) ^ behind_u)
        yield Case(True, ~differs, {"u": members(prompt)})


def pattern_lemma_c_2(model: Model, rows: Rows) -> Iterator[Case]:
    """supp P[H_2, z̃, X̂_{3:T+2} = x] is supp P[X̂_1 = z̃, H_2] ∩ supp P[H_0 | x], for every u and possible x."""
    at_start = supports(model, rows)[0]
    for (prompt,) in model.emission:
        later = supports(model, [prompt, model.ones, *rows])[2]
        behind_prompt = model.transition @ (prompt * marginals(model, 1)[1]) > 0
        yield Case(anywhere(at_start), ~anywhere(later ^ (behind_prompt & at_start)), {"u": members(prompt)})


def essential_states(model: Model, block: np.ndarray) -> np.ndarray:
    """H* of Assumption 3.5: the states that B leads to."""
    return model.transition @ block > 0


def pattern_theorem_3_6(model: Model, rows: Rows) -> Iterator[Case]:
    """For B, μ with support in H*, possible x: Ḡ_2 sees only H*; if (z̃, x) is impossible, supp(μ) misses x."""
    at_start = supports(model, rows)[0]
    for block in subsets(np.ones(model.n_states, bool)):
        essential = essential_states(model, block)
        prompted = [block, model.ones, *rows]
        sees_only_essential = ~anywhere(supports(model, prompted)[2] & ~essential)
        likely = possible(model, prompted)
        for mu in subsets(essential):
            holds = sees_only_essential & (likely | ~anywhere(mu & at_start))
            yield Case(anywhere(at_start), holds, {"B": members(block), "supp(mu)": members(mu)})


# Section 4. By symmetry j* is the first cell, so that state (j*, s) has index s.


def prompt(model: Model, mu: np.ndarray) -> np.ndarray:
    """u of (D.6), (K, H), for a set of values, supp(μ)."""
    return model.ones * mu[model.values[0], None]


def prompts(model: Model, rows: Rows) -> Iterator[tuple[np.ndarray, Rows, list[np.ndarray]]]:
    """Yield every support of μ with ê(x) and the supports of P[H̃_i, x̂_-i]."""
    for mu in subsets(np.ones(len(model.memory), bool)):
        prompted = [prompt(model, mu), *rows]
        yield mu, prompted, supports(model, prompted)


def essential_sets(model: Model) -> np.ndarray:
    """Every H* = {j*} × S*, as indicators of states, with the whole cell first."""
    states_of_a_cell = model.n_states // model.memory.ndim
    return subsets(np.arange(model.n_states) < states_of_a_cell)


def concentrated(latent: np.ndarray, essential: np.ndarray) -> np.ndarray:
    """Whether the support of H̃_i is not empty and H_i is in H* there: J_i is j* and S_i in S*, as Î has it."""
    return anywhere(latent) & ~anywhere(latent & ~essential)


def memory_values(model: Model, latent: np.ndarray) -> np.ndarray:
    """The support of M_{j*}, (n, M)."""
    return model.of_cell(latent, 0) > 0


def value_support(model: Model, latent: np.ndarray, row: np.ndarray, essential: np.ndarray) -> np.ndarray:
    """The (m, h), h in H*, at which (Θ^(V) Ḡ_i) ⊙ φ(ê_i) is not zero, from the support of τ_i."""
    return (model.looked_up(latent) > 0) & (model.looked_up(row) > 0) & essential


def pattern_theorem_4_3(model: Model, rows: Rows) -> Iterator[Case]:
    """Where x is in R of (4.3), the value at each i of Î reads P[M_{j*} | x]: the same m are possible."""
    at_start, *latents = supports(model, rows)
    for essential in essential_sets(model):
        for i, row in enumerate(rows, 1):
            latent = latents[i - 1]
            values_read = value_support(model, latent, row, essential).any(-1)
            holds = (values_read == memory_values(model, at_start)).all(-1)
            admitted = anywhere(at_start) & concentrated(latent, essential)
            yield Case(admitted, holds, {"S*": members(essential), "i": i})


def pattern_proposition_d_11(model: Model, rows: Rows) -> Iterator[Case]:
    """supp P[M_{j*} | X̂_-i = x̂_-i] is inside supp(μ), for i > 1 and x̂_-i possible."""
    for mu, _, latents in prompts(model, rows):
        for i in range(2, len(latents)):
            outside = memory_values(model, latents[i]) & ~mu
            yield Case(anywhere(latents[i]), ~outside.any(-1), {"supp(mu)": members(mu), "i": i})


def unprompted(i: int) -> int:
    """The position in x of position i in x̂."""
    return i - 1


def pattern_claim_d_12(model: Model, rows: Rows) -> Iterator[Case]:
    """supp P[H_i | X̂_-i = x̂_-i] is inside supp P[H_{i-1} | X_-(i-1) = x_-(i-1)], for i > 1 and x̂_-i possible."""
    plain_latents = supports(model, rows)
    for mu, _, latents in prompts(model, rows):
        for i in range(2, len(latents)):
            plain_states = plain_latents[unprompted(i)].any(1)
            added_states = latents[i].any(1) & ~plain_states
            yield Case(anywhere(latents[i]), ~added_states.any(-1), {"supp(mu)": members(mu), "i": i})


def pattern_lemma_d_13(model: Model, rows: Rows) -> Iterator[Case]:
    """If x̂ is impossible, every product that V sums, at every i > 1, is zero; with S* everything, so for every S*."""
    every_state = essential_sets(model)[0]
    for mu, prompted, latents in prompts(model, rows):
        impossible = ~possible(model, prompted)
        for i in range(2, len(latents)):
            products = value_support(model, latents[i], prompted[i - 1], every_state)[:, mu]
            yield Case(impossible, ~anywhere(products), {"supp(mu)": members(mu), "i": i})


def pattern_claim_d_15(model: Model, rows: Rows) -> Iterator[Case]:
    """For x possible and x̂ not, P[M_{j*} | x] misses supp(μ); τ_i, so Ḡ_i, is zero just where x̂_-i is impossible."""
    at_start = supports(model, rows)[0]
    for mu, prompted, latents in prompts(model, rows):
        excluded = anywhere(at_start) & ~possible(model, prompted)
        shared_values = memory_values(model, at_start) & mu
        yield Case(excluded, ~shared_values.any(-1), {"supp(mu)": members(mu)})
        for i in range(1, len(latents)):
            without_i = [*prompted[: i - 1], model.ones, *prompted[i:]]
            holds = anywhere(latents[i]) == possible(model, without_i)
            yield Case(True, holds, {"supp(mu)": members(mu), "i": i})


def pattern_lemma_d_9(model: Model, rows: Rows) -> Iterator[Case]:
    """For x in Z, Î of (D.8) not empty: Î is inside I, the positions attended to."""
    yield from _attended_positions(model, rows, np.less_equal)


def printed_lemma_d_9(model: Model, rows: Rows) -> Iterator[Case]:
    """The same as printed: Î is I."""
    yield from _attended_positions(model, rows, np.equal)


def _attended_positions(model: Model, rows: Rows, relation: np.ufunc) -> Iterator[Case]:
    """Whether the indicators of Î and I are in a relation."""
    plain_latents = supports(model, rows)
    for mu, prompted, latents in prompts(model, rows):
        positions = np.arange(2, len(latents))
        plain_by_position = np.array([plain_latents[unprompted(i)] for i in positions])
        by_position = np.array(latents[2:])
        in_z = anywhere(by_position).all(0)
        likely = possible(model, prompted)
        for essential in essential_sets(model):
            i_hat = concentrated(plain_by_position, essential)
            attended = concentrated(by_position, essential)

            def details(k: int, i_hat=i_hat, attended=attended, likely=likely, positions=positions) -> dict:
                return {
                    "I-hat": positions[i_hat[:, k]].tolist(),
                    "I": positions[attended[:, k]].tolist(),
                    "x-hat possible": bool(likely[k]),
                }

            choice = {"supp(mu)": members(mu), "S*": members(essential)}
            yield Case(in_z & i_hat.any(0), relation(i_hat, attended).all(0), choice, details)
