"""Statements about supports, decided for every pattern of zeros of small models.

Which probabilities are zero depends only on the supports of A, P[M], u and μ, and on those of the rows of W for the
tokens of the input. So a statement about supports is decided for every model of a size by going through all supports:
every A, every P[M], every sequence of rows of W, whatever the vocabulary (a row for a token not in the input changes
nothing, and keeps columns of W from being zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from companion.evidence.enumeration import Joint
from companion.evidence.exact.rational import Model, marginals, tau
from companion.evidence.zero_patterns.supports import Size, anywhere, members, stays_full, subsets, supports

Rows = list[np.ndarray]
"""For each position of an input its lifted evidence, (n, K, H) for n inputs."""
Cases = Iterator[tuple[np.ndarray, np.ndarray, Callable[[int], dict]]]
"""An instance of a statement for n inputs: which its hypotheses admit, where it holds, the choice for input k."""
Check = Callable[[Model, Rows], Cases]


def possible(model: Model, rows: Rows) -> np.ndarray:
    """Whether the evidence has positive probability."""
    return anywhere(supports(model, rows)[0])


# Section 3


def pattern_claim_b_1(model: Model, rows: Rows) -> Cases:
    """P[H_i | X_{i+1:T+i} = x] and D P[H_0 | X_{1:T} = x] have one support, i = 1, 2, 3; so 0 < r_x < ∞."""
    here = supports(model, rows)[0]
    for i in (1, 2, 3):
        later, law = supports(model, [model.ones] * i + rows)[i], np.outer(model.memory, marginals(model, i)[i]) > 0
        yield True, ~anywhere(later ^ law & here), lambda k: {"i": i}


def path_supports(model: Model, length: int) -> list[np.ndarray]:
    """The support of τ_1, …, τ_t for every input of a length, (inputs, 1, H), by going through every path."""
    table = Joint(model.transition, model.emission[:, 0], model.initial, [None] * length)
    return [table.left_out(i, f"h{i}")[:, None] > 0 for i in range(1, length + 1)]


def pattern_lemma_c_1(model: Model, rows: Rows) -> Cases:
    """For (u, ones, e(x)) and every u: the messages (C.1) are zero, and so Ḡ_i is, exactly where no path is left."""
    n_rows, paths = len(model.emission), path_supports(model, len(rows) + 2)
    for u, prompt in enumerate(model.emission):  # the last of all rows is of ones
        left = [table.reshape(n_rows, n_rows, -1, 1, model.n_states)[u, -1] for table in paths]
        messages = tau(model, [prompt, model.ones, *rows])
        differ = [anywhere((a > 0) ^ b) for a, b in zip(messages, left, strict=True)]
        yield True, ~np.any(differ, 0), lambda k: {"u": members(prompt)}


def pattern_lemma_c_2(model: Model, rows: Rows) -> Cases:
    """supp P[H_2, z̃, X̂_{3:T+2} = x] is supp P[X̂_1 = z̃, H_2] ∩ supp P[H_0 | x], for every u and possible x."""
    here = supports(model, rows)[0]
    for (prompt,) in model.emission:
        later = supports(model, [prompt, model.ones, *rows])[2]
        joint = model.transition @ (prompt * marginals(model, 1)[1]) > 0
        yield anywhere(here), ~anywhere(later ^ joint & here), lambda k: {"u": members(prompt)}


def essential_states(model: Model, block: np.ndarray) -> np.ndarray:
    """H* of Assumption 3.5: the states that B leads to."""
    return model.transition @ block > 0


def pattern_theorem_3_6(model: Model, rows: Rows) -> Cases:
    """For B, μ with support in H*, possible x: Ḡ_2 sees only H*; if (z̃, x) is impossible, supp(μ) misses x."""
    here = supports(model, rows)[0]
    for block in subsets(np.ones(model.n_states, bool)):
        essential, behind = essential_states(model, block), [block, model.ones, *rows]
        seen, likely = ~anywhere(supports(model, behind)[2] & ~essential), possible(model, behind)
        for mu in subsets(essential):
            holds = seen & (likely | ~anywhere(mu & here))
            yield anywhere(here), holds, lambda k: {"B": members(block), "supp(mu)": members(mu)}


# Section 4. By symmetry j* is the first cell, so that state (j*, s) has index s.


def prompt(model: Model, mu: np.ndarray) -> np.ndarray:
    """u of (D.6), (K, H), for a set of values, supp(μ)."""
    return model.ones * mu[model.values[0], None]


def prompts(model: Model, rows: Rows) -> Iterator[tuple[np.ndarray, Rows, list[np.ndarray]]]:
    """Every support of μ with ê(x) and the supports of P[H̃_i, x̂_-i]."""
    for mu in subsets(np.ones(len(model.memory), bool)):
        behind = [prompt(model, mu), *rows]
        yield mu, behind, supports(model, behind)


def essential_sets(model: Model) -> np.ndarray:
    """Every H* = {j*} × S*, as indicators of states; the whole cell first."""
    return subsets(np.arange(model.n_states) < model.n_states // model.memory.ndim)


def concentrated(latent: np.ndarray, essential: np.ndarray) -> np.ndarray:
    """Whether the support of H̃_i is not empty and H_i is in H* there: J_i is j* and S_i in S*, as Î has it."""
    return anywhere(latent) & ~anywhere(latent & ~essential)


def memory_values(model: Model, latent: np.ndarray) -> np.ndarray:
    """The support of M_{j*}, (n, M)."""
    return model.of_cell(latent, 0) > 0


def value_support(model: Model, latent: np.ndarray, row: np.ndarray, essential: np.ndarray) -> np.ndarray:
    """The (m, h), h in H*, at which (Θ^(V) Ḡ_i) ⊙ φ(ê_i) is not zero, from the support of τ_i."""
    return (model.looked_up(latent) > 0) & (model.looked_up(row) > 0) & essential


def pattern_theorem_4_3(model: Model, rows: Rows) -> Cases:
    """Where x is in R of (4.3), the value at each i of Î reads P[M_{j*} | x]: the same m are possible."""
    here, *latents = supports(model, rows)
    for essential in essential_sets(model):
        for i, (latent, row) in enumerate(zip(latents, rows, strict=True), 1):
            read = value_support(model, latent, row, essential).any(-1)
            holds = (read == memory_values(model, here)).all(-1)
            yield anywhere(here) & concentrated(latent, essential), holds, lambda k: {"S*": members(essential), "i": i}


def pattern_proposition_d_11(model: Model, rows: Rows) -> Cases:
    """supp P[M_{j*} | X̂_-i = x̂_-i] is inside supp(μ), for i > 1 and x̂_-i possible."""
    for mu, _, latents in prompts(model, rows):
        for i, latent in enumerate(latents[2:], 2):
            holds = ~(memory_values(model, latent) & ~mu).any(-1)
            yield anywhere(latent), holds, lambda k: {"supp(mu)": members(mu), "i": i}


def unprompted(i: int) -> int:
    """The position in x of position i in x̂."""
    return i - 1


def pattern_claim_d_12(model: Model, rows: Rows) -> Cases:
    """supp P[H_i | X̂_-i = x̂_-i] is inside supp P[H_{i-1} | X_-(i-1) = x_-(i-1)], for i > 1 and x̂_-i possible."""
    plain = supports(model, rows)
    for mu, _, latents in prompts(model, rows):
        for i, latent in enumerate(latents[2:], 2):
            holds = ~(latent.any(1) & ~plain[unprompted(i)].any(1)).any(-1)
            yield anywhere(latent), holds, lambda k: {"supp(mu)": members(mu), "i": i}


def pattern_lemma_d_13(model: Model, rows: Rows) -> Cases:
    """If x̂ is impossible, every product that V sums, at every i > 1, is zero; with S* everything, so for every S*."""
    for mu, behind, latents in prompts(model, rows):
        excluded = ~possible(model, behind)
        for i, (latent, row) in enumerate(zip(latents[2:], rows, strict=True), 2):
            read = value_support(model, latent, row, essential_sets(model)[0])[:, mu]
            yield excluded, ~anywhere(read), lambda k: {"supp(mu)": members(mu), "i": i}


def pattern_claim_d_15(model: Model, rows: Rows) -> Cases:
    """For x possible and x̂ not, P[M_{j*} | x] misses supp(μ); τ_i, so Ḡ_i, is zero just where x̂_-i is impossible."""
    here = supports(model, rows)[0]
    for mu, behind, latents in prompts(model, rows):
        excluded = anywhere(here) & ~possible(model, behind)
        yield excluded, ~(memory_values(model, here) & mu).any(-1), lambda k: {"supp(mu)": members(mu)}
        for i, latent in enumerate(latents[1:], 1):
            left = possible(model, [*behind[: i - 1], model.ones, *behind[i:]])
            yield True, anywhere(latent) == left, lambda k: {"supp(mu)": members(mu), "i": i}


def attention(model: Model, rows: Rows, right: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Cases:
    """For x in Z: whether the positions Î of (D.8), if any, and those attended to, I, are as they should be."""
    plain = supports(model, rows)
    for mu, behind, latents in prompts(model, rows):
        in_z = np.all([anywhere(latent) for latent in latents[2:]], 0)
        likely = possible(model, behind)
        for essential in essential_sets(model):
            printed = np.array([concentrated(plain[unprompted(i)], essential) for i in range(2, len(latents))])
            attended = np.array([concentrated(latent, essential) for latent in latents[2:]])
            yield (
                in_z & printed.any(0),
                right(printed, attended).all(0),
                lambda k: {
                    "supp(mu)": members(mu),
                    "S*": members(essential),
                    "I-hat": [i + 2 for i in members(printed[:, k])],
                    "I": [i + 2 for i in members(attended[:, k])],
                    "x-hat possible": bool(likely[k]),
                },
            )


def pattern_lemma_d_9(model: Model, rows: Rows) -> Cases:
    """Î is inside I."""
    return attention(model, rows, lambda printed, attended: ~printed | attended)


def printed_pattern_lemma_d_9(model: Model, rows: Rows) -> Cases:
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
    """`patterns` pairs of a model's support and an input, `cases` instances that the hypotheses admit, all decided.

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


def describe(model: Model, x: np.ndarray, failure: dict) -> dict:
    """A pattern to be read: supports as 0 and 1, A by rows, W by token and value of the cell, then what fails."""
    tokens, positions = np.unique(x, return_inverse=True)
    return {
        "A": model.transition.astype(int).tolist(),
        "P[M]": model.memory.astype(int).ravel().tolist(),
        "W": model.emission[tokens].tolist(),
        "x": positions.tolist(),
        **failure,
    }


def instances(check: Check, sizes: tuple[Size, ...]) -> Iterator[tuple[int, list[dict]]]:
    """For every model, length and instance: how many inputs the hypotheses admit, and every failure."""
    for size in sizes:
        for model in size.models():
            for x in size.inputs():
                for admitted, holds, failure in check(model, model.rows(x)):
                    admitted, holds, _ = np.broadcast_arrays(admitted, holds, x[0])
                    failing = members(admitted & ~holds)
                    yield int(admitted.sum()), [describe(model, x[:, k], failure(k)) for k in failing]


def smallest_failure(check: Check, sizes: tuple[Size, ...]) -> dict | None:
    """A pattern on which a statement fails, of fewest states, then of the shortest input, then of fewest zeros."""
    for n_states, length in sorted({(size.n_states, length) for size in sizes for length in size.lengths}):
        alike = [size for size in sizes if size.n_states == n_states and length in size.lengths]
        found = instances(check, [replace(size, lengths=(length,)) for size in alike])
        failures = [failure for _, some in found for failure in some]
        if failures:
            return min(failures, key=lambda failure: str([failure[name] for name in ("A", "P[M]", "W")]).count("0"))
    return None


def decide(name: str) -> Decision:
    """Go through every pattern of a statement's sizes."""
    statement = PATTERNS[name]
    example = smallest_failure(statement.printed, statement.sizes) if statement.printed else None
    cases, failures = 0, []
    for count, some in instances(statement.check, statement.sizes):
        cases += count
        failures += some
    patterns = sum(sum(1 for _ in size.models()) * sum(x.shape[1] for x in size.inputs()) for size in statement.sizes)
    example = failures[0] if failures else example
    return Decision(patterns, cases, "; ".join(map(str, statement.sizes)), len(failures), example)
