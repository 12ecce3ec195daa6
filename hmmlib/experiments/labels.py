"""Downstream tasks: texts that begin with a mask, the rule that labels them, and the weights μ of appendix E."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmlib.inference.messages import memory_posterior, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_3_1
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.theorems import claim_b_1, theorem_3_3
from hmmlib.validation import MASK, as_generator, integer, of_type, one_of

PLACES = ("distinct", "repeated")
NONZERO = 6
"""Nonzero entries of μ (appendix E)."""
REDRAWS = 20
"""How often, at most, μ is drawn again while all training labels agree."""


class Task(NamedTuple):
    """A labelled data set: `tokens`, (n, T), which begin with MASK; `labels`, (n,), bool; `redraws` of `mu`.

    `posteriors` are what the labels weigh: those of the label rule, (n, S), or of a memory model P[M | …], (n, |M|).
    `sizes` of its parts `train`, `validation` and `test` sum to n; each is a task too, as in `task.train.tokens`.
    """

    tokens: Tensor
    labels: Tensor
    mu: Tensor
    redraws: int
    sizes: tuple[int, int, int]
    posteriors: Tensor

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Training, validation and test part of what has one entry for each sequence."""
        return values.split(self.sizes)

    def part(self, k: int) -> Self:
        """The k-th part alone: its tokens, labels and posteriors."""
        values = {name: self.split(getattr(self, name))[k] for name in ("tokens", "labels", "posteriors")}
        return self._replace(**values, sizes=tuple(n * (i == k) for i, n in enumerate(self.sizes)))

    train = property(lambda self: self.part(0))
    validation = property(lambda self: self.part(1))
    test = property(lambda self: self.part(2))

    def has_labels_of_mu(self) -> bool:
        """Whether the labels are those of μ, where μᵀ(posterior) ≥ 0: of others, what theory builds says nothing."""
        fits = self.mu.shape == self.posteriors.shape[1:]
        return fits and bool(((self.posteriors.to(self.mu) @ self.mu >= 0) == self.labels).all())


def draw_mu(n: int, generator: torch.Generator | int, places: str = "distinct") -> Tensor:
    """Task weights μ, (n,): the difference of the two rows of a 2 × n matrix with six standard normal entries.

    Appendix E labels by the larger of two scores, which is the sign of their difference. The positions of the six are
    uniform over the 2n entries: distinct (with fewer entries than six, all are drawn), or drawn with replacement if
    `places` is "repeated", so that fewer than six may differ from zero. `generator` may be a seed.
    """
    rows, generator = torch.zeros(2 * integer("n", n, 1), dtype=torch.float64), as_generator(generator)
    if one_of("places", places, PLACES) == "repeated":
        chosen = torch.randint(2 * n, (NONZERO,), generator=generator).unique()
    else:
        chosen = torch.randperm(2 * n, generator=generator)[:NONZERO]
    rows[chosen] = torch.randn(len(chosen), generator=generator, dtype=torch.float64)
    return rows[:n] - rows[n:]


def _head_at_mask(model: HMM, mu: Tensor) -> LinearHead:
    """(W†)ᵀμ, for labels that weigh the state at the mask itself: there is no step from H_0 to undo."""
    columns = assumption_3_1(model)
    columns.require()
    return LinearHead.by_left_inverse(model.emission, mu, columns.condition)


class LabelRule(NamedTuple):
    """How inputs are drawn, which posterior their labels weigh, and what the theory gives for a vanilla HMM then.

    - `hidden`: whether the mask hides the first token of the text that is observed; otherwise it stands before it.
    - `posterior(model, observed)`: the distribution of the state that the labels weigh, (n, S). The labels of a memory
      model weigh P[M | observed] by every rule.
    - `head(model, mu)`: the head that the theory gives; AssumptionError where it gives none.
    - `origin(model)`: the chain whose H_0 is that state, from which a prompt is read as in (3.3).
    - `diagonal(model)`: the d, (S,), with which G at the mask is W (d ⊙ p) / dᵀp, p being that posterior; None where
      there is none.
    """

    hidden: bool
    posterior: Callable[[HMM, Tensor], Tensor]
    head: Callable[[HMM, Tensor], LinearHead]
    origin: Callable[[HMM], HMM]
    diagonal: Callable[[HMM], Tensor] | None = None


LABEL_RULES = {
    "masked": LabelRule(
        hidden=True,
        posterior=lambda model, observed: posterior(model, observed, at=1),  # P[H_1 | X_{-1}], Section 5
        head=_head_at_mask,
        origin=lambda model: HMM(model.transition, model.emission, model.marginal(1), columns=True),
        diagonal=lambda model: torch.ones_like(model.initial),
    ),
    "before": LabelRule(
        hidden=False,
        posterior=lambda model, observed: posterior(model, observed, at=0),  # P[H_0 | X_{1:T} = x]
        head=theorem_3_3,
        origin=lambda model: model,
        diagonal=lambda model: claim_b_1(model, 1),
    ),
    "stepped": LabelRule(
        hidden=False,
        posterior=lambda model, observed: posterior(model, observed, at=1) @ model.transition,
        head=theorem_3_3,
        origin=lambda model: model,
    ),
}
"""What the word of `draw_task` and of a spec's field `labels` means."""


def draw_task(
    model: HMM | MemoryHMM,
    length: int,
    sizes: tuple[int, int, int],
    seed: int,
    rule: str = "masked",
    places: str = "distinct",
) -> Task:
    """Sequences of `length` whose first token is MASK, labelled by μᵀ(posterior) ≥ 0, that of M for a memory model.

    While all training labels agree, μ is drawn again, at most REDRAWS times; after that the one-class task stays.

    Args:
        sizes: of the training, validation and test part.
        rule: a row of LABEL_RULES. "masked": the first token of a sampled text is hidden, and the posterior is
            P[H_1 | X_{-1}] (Section 5); "before": the text behind the mask is sampled from the start, and the posterior
            is P[H_0 | X_{1:T} = x], as in (3.1); "stepped": the same, with Aᵀ P[H_1 | X_{1:T} = x] for it, as the
            released scripts compute it.
        places: as in `draw_mu`.

    ValueError for a length below 2, sizes without a sequence to train on, or another word for rule or places.
    """
    of_type("model", model, HMM, MemoryHMM)
    drawn, generator = LABEL_RULES[one_of("rule", rule, LABEL_RULES)], as_generator(seed)
    sizes = tuple(integer("each of sizes", size, 0) for size in of_type("sizes", sizes, tuple, list))
    if len(sizes) != 3 or not sizes[0]:
        raise ValueError(f"sizes must be three, for training, validation and test, the first 1 or more, not {sizes}")
    observed = model.sample(sum(sizes), integer("length", length, 2) - (not drawn.hidden), generator).tokens
    if drawn.hidden:
        observed[:, 0] = MASK
    tokens = observed if drawn.hidden else F.pad(observed, (1, 0), value=MASK)
    posteriors = (memory_posterior if isinstance(model, MemoryHMM) else drawn.posterior)(model, observed)
    for redraws in range(REDRAWS + 1):
        mu = draw_mu(posteriors.shape[1], generator, places)
        labels = posteriors.to(mu) @ mu >= 0
        if 0 < labels[: sizes[0]].sum() < sizes[0]:
            break
    return Task(tokens, labels, mu, redraws, sizes, posteriors)
