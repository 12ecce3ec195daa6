"""Deciding the statements about supports: every model of a size, every input, every instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hmmbook.evidence.exact.rational import Model
from hmmbook.evidence.zero_patterns import supports
from hmmbook.evidence.zero_patterns.models import Size, stays_full
from hmmbook.evidence.zero_patterns.supports import Check, members

WIDE = (Size(2, (1, 2, 3), condition=stays_full), Size(3, (1, 2, 3), condition=stays_full))
SMALL = (Size(2, (1, 2, 3)), Size(3, (1,)))
VANILLA = (Size(2, (1, 2, 3)), Size(3, (1, 2, 3)))
MEMORY = (
    Size(2, (1, 2, 3), n_values=2),
    Size(2, (1, 2), n_cells=2, n_values=2),
    Size(3, (1, 2), n_values=2, reduced=True),
)


class Pattern(NamedTuple):
    """A statement and the sizes that it is decided for."""

    check: Check  # the form that holds
    sizes: tuple[Size, ...]
    printed: Check | None = None  # the form as printed, where it fails


PATTERNS = {
    "Claim B.1": Pattern(supports.pattern_claim_b_1, WIDE),
    "Lemma C.1": Pattern(supports.pattern_lemma_c_1, SMALL),
    "Lemma C.2": Pattern(supports.pattern_lemma_c_2, VANILLA),
    "Theorem 3.6": Pattern(supports.pattern_theorem_3_6, VANILLA),
    "Theorem 4.3": Pattern(supports.pattern_theorem_4_3, MEMORY),
    "Lemma D.9": Pattern(supports.pattern_lemma_d_9, MEMORY, supports.printed_lemma_d_9),
    "Proposition D.11": Pattern(supports.pattern_proposition_d_11, MEMORY),
    "Claim D.12": Pattern(supports.pattern_claim_d_12, MEMORY),
    "Lemma D.13": Pattern(supports.pattern_lemma_d_13, MEMORY),
    "Claim D.15": Pattern(supports.pattern_claim_d_15, MEMORY),
}
"""By the paper's name."""


@dataclass(frozen=True)
class Decision:
    """What came of going through every pattern of a statement's sizes."""

    patterns: int  # pairs of a model's support and an input
    cases: int  # instances that the hypotheses admit, all of them decided
    size: str  # the sizes in words
    failures: int  # instances that fail
    example: dict | None  # the first failure, or else the smallest pattern on which the printed form fails


def describe(model: Model, x: np.ndarray, details: dict) -> dict:
    """Describe a pattern: supports as 0 and 1, A by rows, W by token and value of the cell, then what fails."""
    tokens, positions = np.unique(x, return_inverse=True)
    return {
        "A": model.transition.astype(int).tolist(),
        "P[M]": model.memory.astype(int).ravel().tolist(),
        "W": model.emission[tokens].tolist(),
        "x": positions.tolist(),
        **details,
    }


def decided_cases(check: Check, sizes: tuple[Size, ...]) -> Iterator[tuple[int, list[dict]]]:
    """Yield, for every model, length and instance, how many inputs the hypotheses admit, and every failure."""
    for size in sizes:
        for model in size.models():
            for x in size.inputs():
                for case in check(model, model.rows(x)):
                    admitted, holds, _ = np.broadcast_arrays(case.admitted, case.holds, x[0])
                    failures = []
                    for k in members(admitted & ~holds):
                        failures.append(describe(model, x[:, k], case.choice | case.details(k)))
                    yield int(admitted.sum()), failures


def smallest_failure(check: Check, sizes: tuple[Size, ...]) -> dict | None:
    """Return a failing pattern of fewest states, and among these of the shortest input, then of fewest zeros."""

    def zeros(failure: dict) -> int:
        return str([failure["A"], failure["P[M]"], failure["W"]]).count("0")

    by_extent: dict[tuple[int, int], list[Size]] = {}
    for size in sizes:
        for length in size.lengths:
            by_extent.setdefault((size.n_states, length), []).append(replace(size, lengths=(length,)))
    for extent in sorted(by_extent):
        failures = []
        for _, failures_of_case in decided_cases(check, tuple(by_extent[extent])):
            failures += failures_of_case
        if failures:
            return min(failures, key=zeros)
    return None


def decide(name: str) -> Decision:
    """Go through every pattern of a statement's sizes.

    Args:
        name: The name of a statement in PATTERNS, for example "Lemma D.9".

    Returns:
        The numbers of patterns, cases and failures, and an example of a failure.
    """
    statement = PATTERNS[name]
    cases = 0
    failures = []
    for admitted, failures_of_case in decided_cases(statement.check, statement.sizes):
        cases += admitted
        failures += failures_of_case
    example = None
    if failures:
        example = failures[0]
    elif statement.printed:
        example = smallest_failure(statement.printed, statement.sizes)
    patterns = sum(map(Size.n_patterns, statement.sizes))
    return Decision(patterns, cases, "; ".join(map(str, statement.sizes)), len(failures), example)
