"""Statements about supports, decided for every pattern of zeros of small models.

Which probabilities are zero depends only on the supports of A, P[M], u and μ, and on those of the rows of W for the
tokens of the input. So a statement about supports is decided for every model of a size by going through all supports:
every A, every P[M], every sequence of rows of W, whatever the vocabulary. 1 stands for every entry that is positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from companion.evidence.enumeration import Joint
from companion.evidence.exact.rational import Model, marginals, others, tau

Rows = list[np.ndarray]
"""For each position of an input its lifted evidence, (n, K, H) for n inputs."""
Cases = Iterator[tuple[np.ndarray, np.ndarray, Callable[[int], dict]]]
"""An instance of a statement for n inputs: which its hypotheses admit, where it holds, the choice for input k."""
Check = Callable[[Model, Rows], Cases]


def supports(model: Model, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Where P[H̃_i, evidence but that of i] > 0, for i = 0, …, t and n inputs at once, (n, K, H) each."""
    return [table > 0 for table in np.broadcast_arrays(*others(model, rows))]


def anywhere(tables: np.ndarray) -> np.ndarray:
    """Of tables (…, A, B), those with an entry that is not zero."""
    return tables.any((-2, -1))


def binary(size: int) -> np.ndarray:
    """All patterns of this size, (2^size, size), pattern k with bit b of k at b."""
    return np.arange(1 << size)[:, None] >> np.arange(size) & 1


def subsets(allowed: np.ndarray) -> np.ndarray:
    """The nonempty subsets of a set, each as an indicator, the whole set first."""
    every = binary(len(allowed))[:0:-1].astype(bool)
    return every[~(every & ~allowed).any(1)]


def members(indicator: np.ndarray) -> list[int]:
    return np.flatnonzero(indicator).tolist()


def ergodic(transition: np.ndarray) -> bool:
    """Whether A is primitive: then this power of it has no zero (Wielandt 1950)."""
    return (np.linalg.matrix_power(transition, (len(transition) - 1) ** 2 + 1) > 0).all()


def stays_full(transition: np.ndarray) -> bool:
    """Whether every P[H_i] has full support when P[H_0] has: no row of A is zero."""
    return transition.any(1).all()


def matrices(n_states: int, wanted: Callable[[np.ndarray], bool] = ergodic) -> list[np.ndarray]:
    """All supports of A that are `wanted`; none of their columns is zero."""
    columns = 1 + np.indices(((1 << n_states) - 1,) * n_states).reshape(n_states, -1)
    return [matrix.T for matrix in binary(n_states)[columns.T] if wanted(matrix.T)]


def up_to_relabelling(matrices: list[np.ndarray]) -> list[np.ndarray]:
    """One support of A for each class of those that a permutation of the states takes into each other."""

    def code(matrix: np.ndarray) -> tuple[int, ...]:
        return tuple((1 << np.arange(len(matrix))) @ matrix)

    orders = list(permutations(range(len(matrices[0]))))
    return [a for a in matrices if code(a) == min(code(a[np.ix_(order, order)]) for order in orders)]


@dataclass(frozen=True)
class Size:
    """All models of one size and all inputs of some lengths; `reduced`: A up to relabelling, P[M] of full support."""

    n_states: int
    lengths: tuple[int, ...]
    n_cells: int = 1
    n_values: int = 1
    wanted: Callable[[np.ndarray], bool] = ergodic
    reduced: bool = False

    def models(self) -> Iterator[Model]:
        """Every A and P[M], of ones and zeros; P[H_0] is full, and each possible row of W is a token's."""
        shape = (self.n_values,) * self.n_cells
        rows = binary(self.n_values * self.n_states).reshape(-1, self.n_values, self.n_states)
        transitions = matrices(self.n_states, self.wanted)
        memories = subsets(np.ones(shape, bool).ravel()).astype(float)
        for transition in up_to_relabelling(transitions) if self.reduced else transitions:
            for memory in memories[:1] if self.reduced else memories:
                yield Model(transition.astype(float), rows, np.ones(self.n_states), memory.reshape(shape))

    def inputs(self) -> list[np.ndarray]:
        """For each length every sequence of rows of W, (length, n)."""
        return [np.indices((1 << self.n_values * self.n_states,) * t).reshape(t, -1) for t in self.lengths]

    def __str__(self) -> str:
        chain = "ergodic A" if self.wanted is ergodic else "A without a zero row or column"
        cells = f", {self.n_cells} cell{'s' * (self.n_cells > 1)} of {self.n_values} values" * (self.n_values > 1)
        some = ", A up to relabelling and P[M] of full support" * self.reduced
        lengths = f"1 to {max(self.lengths)}" if len(self.lengths) > 1 else "1"
        return f"{self.n_states} states{cells}, every {chain}{some}, any rows of W, length {lengths}"


def possible(model: Model, rows: Rows) -> np.ndarray:
    """Whether the evidence has positive probability."""
    return anywhere(supports(model, rows)[0])


def pattern_claim_b_1(model: Model, rows: Rows) -> Cases:
    """P[H_i | X_{i+1:T+i} = x] and D P[H_0 | X_{1:T} = x] have one support, i = 1, 2, 3; so 0 < r_x < ∞."""
    here = supports(model, rows)[0]
    for i in (1, 2, 3):
        later, law = supports(model, [model.ones] * i + rows)[i], np.outer(model.memory, marginals(model, i)[i]) > 0
        yield True, ~anywhere(later ^ law & here), lambda k: {"i": i}


def pattern_lemma_c_1(model: Model, rows: Rows) -> Cases:
    """For (u, ones, e(x)) and every u: the messages (C.1) are zero, and so Ḡ_i is, exactly where no path is left."""
    n_rows, length = len(model.emission), len(rows) + 2
    table = Joint(model.transition, model.emission[:, 0], model.initial, [None] * length)
    paths = [table.left_out(i, f"h{i}") > 0 for i in range(1, length + 1)]
    for u, prompt in enumerate(model.emission):  # the last of all rows is of ones
        left = [path.reshape(n_rows, n_rows, -1, 1, model.n_states)[u, -1] for path in paths]
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


def pattern_lemma_d_9(model: Model, rows: Rows, right: np.ufunc = np.less_equal) -> Cases:
    """For x in Z, Î of (D.8) not empty: Î is inside I, the positions attended to; or `right` of both, as indicators."""
    plain = supports(model, rows)
    for mu, behind, latents in prompts(model, rows):
        in_z = np.all([anywhere(latent) for latent in latents[2:]], 0)
        likely = possible(model, behind)
        for essential in essential_sets(model):
            printed = np.array([concentrated(plain[unprompted(i)], essential) for i in range(2, len(latents))])
            attended = np.array([concentrated(latent, essential) for latent in latents[2:]])

            def choice(k: int) -> dict:
                positions = (("I-hat", printed), ("I", attended))
                found = {name: [i + 2 for i in members(where[:, k])] for name, where in positions}
                return {"supp(mu)": members(mu), "S*": members(essential), **found, "x-hat possible": bool(likely[k])}

            yield in_z & printed.any(0), right(printed, attended).all(0), choice


class Pattern(NamedTuple):
    """A statement and the sizes it is decided for: the form that holds, and as printed where that fails."""

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
    "Lemma D.9": Pattern(pattern_lemma_d_9, MEMORY, partial(pattern_lemma_d_9, right=np.equal)),
    "Proposition D.11": Pattern(pattern_proposition_d_11, MEMORY),
    "Claim D.12": Pattern(pattern_claim_d_12, MEMORY),
    "Lemma D.13": Pattern(pattern_lemma_d_13, MEMORY),
    "Claim D.15": Pattern(pattern_claim_d_15, MEMORY),
}
"""By the paper's name."""


def describe(model: Model, x: np.ndarray, failure: dict) -> dict:
    """A pattern to be read: supports as 0 and 1, A by rows, W by token and value of the cell, then what fails."""
    tokens, positions = np.unique(x, return_inverse=True)
    transition, memory = model.transition.astype(int).tolist(), model.memory.astype(int).ravel().tolist()
    return {"A": transition, "P[M]": memory, "W": model.emission[tokens].tolist(), "x": positions.tolist(), **failure}


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
