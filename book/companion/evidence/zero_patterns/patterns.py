"""Statements about supports, decided for every pattern of zeros of small models.

Which probabilities are zero depends only on the supports of A, P[M], u and μ, and on those of the rows of W for the
tokens of the input. So a statement about supports is decided for every model of a size by going through all supports:
every A, every P[M], every sequence of rows of W, whatever the vocabulary (a row for a token not in the input changes
nothing, and keeps columns of W from being zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from companion.evidence.exact import rational
from companion.evidence.zero_patterns.supports import (
    MaskTables,
    Rows,
    Size,
    World,
    bits,
    inside,
    into,
    latent_supports,
    members,
    possible,
    stays_full,
    subsets,
    without,
)  # fmt: skip

Failures = Iterator[dict | None]
"""For each instance that the hypotheses admit None, or how it fails."""
Check = Callable[[World, Rows], Failures]
"""For a model and the lifted rows of an input."""


# Section 3


def marginal(model: World, i: int) -> int:
    """The support of P[H̃_i]."""
    mask = model.prior
    for _ in range(i):
        mask = model.ahead[mask]
    return mask


def pattern_claim_b_1(model: World, rows: Rows) -> Failures:
    """P[H_i | X_{i+1:T+i} = x] and D P[H_0 | X_{1:T} = x] have one support, i = 1, 2, 3; so r_x is not 0 or infinite."""
    here = latent_supports(model, rows)[0]
    for i in (1, 2, 3):
        later = latent_supports(model, (model.tables.full,) * i + rows)[i]
        yield None if later == marginal(model, i) & here else {"i": i}


def path_supports(model: World, rows: Rows) -> list[int]:
    """The support of τ_1, …, τ_t by going through every path: one counts for position i if no other row rules it out."""
    reached, n = [0] * len(rows), model.tables.n_states
    for path in product(range(n), repeat=len(rows) + 1):
        if all(model.columns[a] >> b & 1 for a, b in pairwise(path)):
            broken = [i for i, row in enumerate(rows) if not row >> path[i + 1] & 1]
            for i in range(len(rows)) if not broken else broken if len(broken) == 1 else ():
                reached[i] |= 1 << path[i + 1]
    return reached


def message_supports(model: World, rows: Rows) -> list[int]:
    """The support of τ_1, …, τ_t by the messages (C.1), in floats with 1 for every entry that is not zero."""
    n = model.tables.n_states
    transition = np.array([bits(mask, n) for mask in into(model.columns)], float)
    chain = rational.Model(transition, np.ones((1, 1, n)), np.ones(n), np.ones(1))
    tau = rational.tau(chain, [np.array([bits(mask, n)], float) for mask in rows])
    return [sum(1 << h for h in np.flatnonzero(table)) for table in tau]


def pattern_lemma_c_1(model: World, rows: Rows) -> Failures:
    """For (u, ones, e(x)) and every u: the messages (C.1) are zero, and so Ḡ_i is, exactly where no path is left."""
    for prompt in range(1 << model.tables.n_states):
        masks = (prompt, model.tables.full, *rows)
        yield None if message_supports(model, masks) == path_supports(model, masks) else {"u": members(prompt)}


def prompt_joint(model: World, prompt: int) -> int:
    """The support of P[X̂_1 = z̃, H_2]."""
    return model.ahead[prompt & marginal(model, 1)]


def pattern_lemma_c_2(model: World, rows: Rows) -> Failures:
    """supp P[H_2, z̃, X̂_{3:T+2} = x] is supp P[X̂_1 = z̃, H_2] ∩ supp P[H_0 | x], for every u and possible x."""
    here = latent_supports(model, rows)[0]
    for prompt in range(1 << model.tables.n_states) if here else ():
        later = latent_supports(model, (prompt, model.tables.full, *rows))[2]
        yield None if later == prompt_joint(model, prompt) & here else {"u": members(prompt)}


def essential_states(model: World, block: int) -> int:
    """H* of Assumption 3.5: the states that B leads to."""
    return model.ahead[block]


def pattern_theorem_3_6(model: World, rows: Rows) -> Failures:
    """For every B and μ with support in H*, and possible x: Ḡ_2 sees only H*; if (z̃, x) is impossible, supp(μ) misses x."""
    here = latent_supports(model, rows)[0]
    for block in subsets(model.tables.full) if here else ():
        essential, masks = essential_states(model, block), (block, model.tables.full, *rows)
        seen, likely = latent_supports(model, masks)[2], possible(model, masks)
        for mu in subsets(essential):
            holds = inside(seen, essential) and (likely or not mu & here)
            yield None if holds else {"B": members(block), "supp(mu)": members(mu)}


# Section 4. By symmetry j* is the first cell, so that state (j*, s) has index s.


def prompt(tables: MaskTables, mu: int) -> int:
    """u of (D.6), lifted, for a set of values, supp(μ)."""
    return tables.having[mu]


def prompts(model: World, rows: Rows) -> Iterator[tuple[int, Rows, list[int]]]:
    """Every support of μ with ê(x) and the supports of P[H̃_i, x̂_-i]."""
    for mu in subsets((1 << model.tables.n_values) - 1):
        masks = (prompt(model.tables, mu), *rows)
        yield mu, masks, latent_supports(model, masks)


def syntax_sets(tables: MaskTables) -> list[int]:
    """Every H* = {j*} × S*, as masks of states."""
    return subsets((1 << tables.n_syntax) - 1)


@lru_cache
def entries(tables: MaskTables, values: int, states: int) -> int:
    """The mask of the (m, h) with m and h in the given sets."""
    return sum(1 << m * tables.n_states + h for m in members(values) for h in members(states))


def concentrated(tables: MaskTables, states: int, essential: int) -> bool:
    """Whether J_i is j* and S_i is in S*, as Î has it, from the support of H_i."""
    return tables.cells[states] == 1 and inside(tables.syntax[states], essential)


def value_support(model: World, latent: int, row: int, values: int, essential: int) -> int:
    """The (m, h) at which (Θ^(V) Ḡ_i) ⊙ φ(ê_i) is not zero, from the support of τ_i."""
    tables = model.tables
    return tables.looked_up[latent] & tables.looked_up[row] & entries(tables, values, essential)


def pattern_theorem_4_3(model: World, rows: Rows) -> Failures:
    """Where x is in R of (4.3), the value at each i of Î reads P[M_{j*} | x]: the same m are possible."""
    tables, latents = model.tables, latent_supports(model, rows)
    n, every = tables.n_states, (1 << tables.n_values) - 1
    for essential in syntax_sets(tables) if latents[0] else ():
        for i, latent in enumerate(latents[1:], start=1):
            if concentrated(tables, tables.states[latent], essential):
                read = value_support(model, latent, rows[i - 1], every, essential)
                values = sum(1 << m for m in range(tables.n_values) if read >> m * n & (1 << n) - 1)
                yield None if values == tables.value[latents[0]] else {"S*": members(essential), "i": i}


def pattern_proposition_d_11(model: World, rows: Rows) -> Failures:
    """supp P[M_{j*} | X̂_-i = x̂_-i] is inside supp(μ), for i > 1 and x̂_-i possible."""
    for mu, _, latents in prompts(model, rows):
        for i, latent in enumerate(latents[2:], start=2):
            if latent:
                yield None if inside(model.tables.value[latent], mu) else {"supp(mu)": members(mu), "i": i}


def unprompted(i: int) -> int:
    """The position in x of position i in x̂."""
    return i - 1


def pattern_claim_d_12(model: World, rows: Rows) -> Failures:
    """supp P[H_i | X̂_-i = x̂_-i] is inside supp P[H_{i-1} | X_-(i-1) = x_-(i-1)], for i > 1 and x̂_-i possible."""
    states, plain = model.tables.states, latent_supports(model, rows)
    for mu, _, latents in prompts(model, rows):
        for i, latent in enumerate(latents[2:], start=2):
            if latent:
                holds = inside(states[latent], states[plain[unprompted(i)]])
                yield None if holds else {"supp(mu)": members(mu), "i": i}


def pattern_lemma_d_13(model: World, rows: Rows) -> Failures:
    """If x̂ is impossible, every product that V sums, at every i > 1, is zero; with S* everything, so for every S*."""
    for mu, masks, latents in prompts(model, rows):
        for i, latent in enumerate(latents[2:] if not possible(model, masks) else (), start=2):
            read = value_support(model, latent, masks[i - 1], mu, (1 << model.tables.n_syntax) - 1)
            yield None if not read else {"supp(mu)": members(mu), "i": i}


def pattern_claim_d_15(model: World, rows: Rows) -> Failures:
    """x possible and x̂ not: then P[M_{j*} | x] misses supp(μ). And τ_i, so Ḡ_i, is zero exactly where x̂_-i is impossible."""
    here = latent_supports(model, rows)[0]
    for mu, masks, latents in prompts(model, rows):
        if here and not possible(model, masks):
            yield None if not model.tables.value[here] & mu else {"supp(mu)": members(mu)}
        for i, latent in enumerate(latents[1:], start=1):
            holds = (latent != 0) == possible(model, without(model, masks, i))
            yield None if holds else {"supp(mu)": members(mu), "i": i}


def attention(model: World, rows: Rows, right: Callable[[list[int], list[int]], bool]) -> Failures:
    """For x in Z: whether the positions Î of (D.8), if any, and those attended to, I, are as they should be."""
    tables, plain, positions = model.tables, latent_supports(model, rows), range(2, len(rows) + 2)
    for mu, masks, latents in prompts(model, rows):
        for essential in syntax_sets(tables) if all(latents[2:]) else ():
            printed = [i for i in positions if concentrated(tables, tables.states[plain[unprompted(i)]], essential)]
            if printed:
                attended = [i for i in positions if inside(tables.states[latents[i]], essential)]
                sets = {"supp(mu)": mu, "S*": essential}
                failure = {"I-hat": printed, "I": attended, "x-hat possible": latents[-1] & masks[-1] != 0}
                yield None if right(printed, attended) else {k: members(v) for k, v in sets.items()} | failure


def pattern_lemma_d_9(model: World, rows: Rows) -> Failures:
    """Î is inside I."""
    return attention(model, rows, lambda printed, attended: set(printed) <= set(attended))


def printed_pattern_lemma_d_9(model: World, rows: Rows) -> Failures:
    """Î = I."""
    return attention(model, rows, lambda printed, attended: printed == attended)


# Each statement with the sizes that it is decided for


@dataclass(frozen=True)
class Pattern:
    """`check` is the form that holds; `printed` that of the paper, where it fails."""

    check: Check
    sizes: tuple[Size, ...]
    printed: Check | None = None


@dataclass(frozen=True)
class Decision:
    """`patterns` pairs of a model's support and an input, `cases` instances in them that the hypotheses admit, all decided.

    `example` is the first failure; where the statement as printed fails, the smallest pattern on which the head in its
    proof departs from it.
    """

    patterns: int
    cases: int
    size: str
    failures: int
    example: dict | None


WIDE = tuple(Size(n, (1, 2, 3), wanted=stays_full) for n in (2, 3))
SMALL = (Size(2, (1, 2, 3)), Size(3, (1,)))
VANILLA = (Size(2, (1, 2, 3)), Size(3, (1, 2, 3)))
MEMORY = (
    Size(2, (1, 2, 3), n_values=2),
    Size(2, (1, 2), n_cells=2, n_values=2),
    Size(3, (1, 2), n_values=2, reduced=True),
)
PATTERNS: dict[str, Pattern] = {
    "Claim B.1": Pattern(pattern_claim_b_1, WIDE),
    "Lemma C.1": Pattern(pattern_lemma_c_1, SMALL),
    "Lemma C.2": Pattern(pattern_lemma_c_2, VANILLA),
    "Theorem 3.6": Pattern(pattern_theorem_3_6, VANILLA),
    "Theorem 4.3": Pattern(pattern_theorem_4_3, MEMORY),
    "Lemma D.9": Pattern(pattern_lemma_d_9, MEMORY, printed_pattern_lemma_d_9),
    "Proposition D.11": Pattern(pattern_proposition_d_11, MEMORY),
    "Claim D.12": Pattern(pattern_claim_d_12, MEMORY),
    "Lemma D.13": Pattern(pattern_lemma_d_13, MEMORY),
    "Claim D.15": Pattern(pattern_claim_d_15, MEMORY),
}
"""By the name that the paper prints."""


def describe(model: World, x: tuple[int, ...], failure: dict) -> dict:
    """A pattern to be read: supports as 0 and 1, A by rows, W by token and value of the cell, then what fails."""
    tables, tokens = model.tables, sorted(set(x))
    n = tables.n_states
    return {
        "A": [bits(mask, n) for mask in into(model.columns)],
        "P[M]": [model.prior >> k * n & 1 for k in range(len(tables.joint))],
        "W": [[bits(row >> m * n, n) for m in range(tables.n_values)] for row in tokens],
        "x": [tokens.index(row) for row in x],
        **failure,
    }


def complexity(description: dict) -> tuple[int, int, int]:
    """What makes one pattern smaller than another: fewer states, a shorter input, fewer zeros."""
    zeros = str([description[name] for name in ("A", "P[M]", "W")]).count("0")
    return len(description["A"]), len(description["x"]), zeros


def smallest_failure(check: Check, sizes: tuple[Size, ...]) -> dict | None:
    """The pattern of least complexity on which a statement fails."""
    best = None
    for size in sizes:
        inputs = size.inputs()
        for model in size.worlds():
            for x in inputs:
                if best and (size.n_states, len(x)) > complexity(best)[:2]:
                    break  # inputs only get longer
                for failure in filter(None, check(model, model.tables.lifted(x))):
                    best = min(filter(None, (best, describe(model, x, failure))), key=complexity)
    return best


def instances(check: Check, sizes: tuple[Size, ...]) -> Iterator[tuple[World, Rows, dict | None]]:
    """Every model, input and instance that the hypotheses admit, with None, or how the statement fails there."""
    for size in sizes:
        for model, x in product(size.worlds(), size.inputs()):
            for failure in check(model, model.tables.lifted(x)):
                yield model, x, failure


def decide(name: str) -> Decision:
    """Go through every pattern of a statement's sizes."""
    statement, cases, failures = PATTERNS[name], 0, 0
    example = smallest_failure(statement.printed, statement.sizes) if statement.printed else None
    for model, x, failure in instances(statement.check, statement.sizes):
        cases += 1
        if failure is not None:
            failures += 1
            example = describe(model, x, failure) if failures == 1 else example
    patterns = sum(sum(1 for _ in size.worlds()) * len(size.inputs()) for size in statement.sizes)
    return Decision(patterns, cases, "; ".join(map(str, statement.sizes)), failures, example)
