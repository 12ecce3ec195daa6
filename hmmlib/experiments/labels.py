"""Downstream tasks: texts that begin with a mask, the posterior that the labels weigh, and the weights μ of appendix E."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmlib.inference.messages import memory_posterior, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.validation import (
    MASK,
    as_generator,
    at_least,
    dense,
    of_type,
    one_of,
)

if TYPE_CHECKING:
    pass


LABELS = ("masked", "before", "stepped")
PLACES = ("distinct", "repeated")
NONZERO = 6
"""Nonzero entries of μ (appendix E)."""


REDRAWS = 20
"""How often μ is drawn again, at most, while all training labels agree."""


class Task(NamedTuple):
    """A labelled data set. `tokens` (n, T) begin with MASK; `labels` (n,) bool; `mu`; `redraws` of μ; `sizes` sum to n.

    `posteriors` are P[H_1 | X_{-1}], P[H_0 | X_{1:T}] or P[M | …], whichever the labels weigh: (n, S) or (n, |M|).
    """

    tokens: Tensor
    labels: Tensor
    mu: Tensor
    redraws: int
    sizes: tuple[int, int, int]
    posteriors: Tensor

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Training, validation and test part of anything that has one entry for each sequence. ValueError for all else."""
        if dense("values", of_type("values", values, Tensor)).shape[:1] != (sum(self.sizes),):
            raise ValueError(
                f"values must have {sum(self.sizes)} entries, as the task has, not shape {tuple(values.shape)}"
            )
        return values.split(self.sizes)


def draw_mu(n: int, generator: torch.Generator, places: str = "distinct") -> Tensor:
    """Task weights μ, (n,): the difference of the two rows of a 2 × n matrix with six standard normal entries.

    Appendix E labels by the larger of two scores, which is the sign of their difference. The positions of the six are
    uniform over the 2n entries: distinct (with fewer entries than six, all are drawn), or drawn with replacement if
    `places` is "repeated", so that fewer than six may differ from zero.
    """
    at_least("n", n, 1)
    of_type("generator", generator, torch.Generator)
    one_of("places", places, PLACES)
    rows = torch.zeros(2 * n, dtype=torch.float64)
    if places == "repeated":
        chosen = torch.randint(2 * n, (NONZERO,), generator=generator).unique()
    else:
        chosen = torch.randperm(2 * n, generator=generator)[:NONZERO]
    rows[chosen] = torch.randn(len(chosen), generator=generator, dtype=torch.float64)
    return rows[:n] - rows[n:]


def _inputs(model: HMM | MemoryHMM, n: int, length: int, law: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences (n, length) that begin with MASK, and the posteriors that `law` means."""
    if law == "masked":
        tokens = model.sample(n, length, generator).tokens
        tokens[:, 0] = MASK
        seen = tokens
    else:
        seen = model.sample(n, length - 1, generator).tokens
        tokens = F.pad(seen, (1, 0), value=MASK)
    if isinstance(model, MemoryHMM):
        return tokens, memory_posterior(model, seen)
    if law == "stepped":
        return tokens, posterior(model, seen, at=1) @ model.transition
    return tokens, posterior(model, seen, at=int(law == "masked"))


def draw_task(
    model: HMM | MemoryHMM,
    length: int,
    sizes: tuple[int, int, int],
    seed: int,
    law: str = "masked",
    places: str = "distinct",
) -> Task:
    """Sequences of `length` whose first token is MASK, labelled by μᵀ(posterior) ≥ 0: of M for a memory model (Section 5).

    While all training labels agree, μ is drawn again, at most REDRAWS times; after that the one-class task stays.

    Args:
        law: "masked": the first token of a sampled text is hidden, and the posterior is P[H_1 | X_{-1}] (Section 5);
            "before": the text behind the mask is sampled from the start, and the posterior is P[H_0 | X_{1:T} = x], as in
            (3.1); "stepped": the same, with Aᵀ P[H_1 | X_{1:T} = x] for it, as the released scripts compute it.
        places: as in `draw_mu`.

    ValueError for a length below 2, sizes without a sequence to train on, or another word for law or places.
    """
    of_type("model", model, HMM, MemoryHMM)
    at_least("length", length, 2)
    one_of("law", law, LABELS)
    sizes = tuple(at_least("each of sizes", size, 0) for size in of_type("sizes", sizes, tuple, list))
    if len(sizes) != 3 or not sizes[0]:
        raise ValueError(f"sizes must be three, for training, validation and test, the first 1 or more, not {sizes}")
    generator = as_generator(seed)
    tokens, posteriors = _inputs(model, sum(sizes), length, law, generator)
    for redraws in range(REDRAWS + 1):
        mu = draw_mu(posteriors.shape[1], generator, places)
        labels = posteriors.to(mu) @ mu >= 0
        if 0 < labels[: sizes[0]].sum() < sizes[0]:
            break
    return Task(tokens, labels, mu, redraws, sizes, posteriors)
