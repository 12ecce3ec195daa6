"""Draw downstream tasks, which are texts that begin with a mask, with a label for each text.

A label is 1 where μᵀ(posterior) ≥ 0, with weights μ as in appendix E. A label rule says which hidden state the
posterior is about. To add a rule, write a `LabelRule` and put it into `LABEL_RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmlib.device import own_settings
from hmmlib.inference.messages import memory_posterior, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import assumption_3_1
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.theorems import claim_b_1, theorem_3_3
from hmmlib.validation import MASK, as_generator, integer, of_type, one_of

PLACES = ("distinct", "repeated")
"""How `draw_mu` can draw the places of nonzero entries. They are drawn without replacement, or with replacement."""
NONZERO = 6
"""How many entries of the two rows of weights are not zero (appendix E)."""
REDRAWS = 20
"""How often μ is drawn again, at most, while all training labels agree."""


class Task(NamedTuple):
    """A labelled data set of training, validation and test texts, in this order.

    `task.train`, `task.validation` and `task.test` are its parts. Each of them is a `Task` again.
    """

    tokens: Tensor
    """The texts, (n, T). Each begins with MASK."""
    labels: Tensor
    """The labels, (n,), bool."""
    mu: Tensor
    """The weights μ, (S,), or (|M|,) for a memory model."""
    redraws: int
    """How often μ was drawn again because all training labels agreed."""
    sizes: tuple[int, int, int]
    """How many texts are in each part. They sum to n."""
    posteriors: Tensor
    """The posteriors that μ weighs in the labels. For an HMM they are those of the label rule, (n, S). For a memory
    model they are P[M | text], (n, |M|)."""

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split values into those of the training, the validation and the test texts.

        Args:
            values: an entry for each text, (n, …).
        """
        return values.split(self.sizes)

    def part(self, index: int) -> Self:
        """Return one part alone.

        Args:
            index: 0 for training, 1 for validation, 2 for test.
        """
        sizes = [0, 0, 0]
        sizes[index] = self.sizes[index]
        return self._replace(
            tokens=self.split(self.tokens)[index],
            labels=self.split(self.labels)[index],
            posteriors=self.split(self.posteriors)[index],
            sizes=tuple(sizes),
        )

    @property
    def train(self) -> Self:
        """The training part."""
        return self.part(0)

    @property
    def validation(self) -> Self:
        """The validation part."""
        return self.part(1)

    @property
    def test(self) -> Self:
        """The test part."""
        return self.part(2)

    def has_labels_of_mu(self) -> bool:
        """Tell whether every label is 1 exactly where μᵀ(posterior) ≥ 0.

        A task that you make yourself may have other labels. The theorems say nothing about those.
        """
        if self.mu.shape != self.posteriors.shape[1:]:
            return False
        labels_of_mu = self.posteriors.to(self.mu) @ self.mu >= 0
        return bool((labels_of_mu == self.labels).all())


@own_settings()
def draw_mu(n: int, generator: torch.Generator | int, places: str = "distinct") -> Tensor:
    """Draw the task weights μ of appendix E.

    The paper draws a 2 × n matrix, in which six entries are standard normal and the others are zero. Each row gives a
    text a score, and the larger score decides the label. Only the sign of the difference of the scores matters, so μ is
    the difference of the two rows.

    Args:
        n: the number of weights.
        generator: a generator or a seed.
        places: "distinct" draws the places of the six entries without replacement among all 2n. If there are fewer
            than six places, it takes all of them. "repeated" draws with replacement, so that fewer than six entries may
            differ from zero.

    Returns:
        μ, (n,).

    Raises:
        ValueError: n is below 1, or places is neither of these words.

    Example:
        >>> draw_mu(4, 0).shape
        torch.Size([4])
    """
    n = integer("n", n, 1)
    generator = as_generator(generator)
    if one_of("places", places, PLACES) == "repeated":
        chosen = torch.randint(2 * n, (NONZERO,), generator=generator).unique()
    else:
        chosen = torch.randperm(2 * n, generator=generator)[:NONZERO]
    weights = torch.zeros(2 * n, dtype=torch.float64)
    weights[chosen] = torch.randn(len(chosen), generator=generator, dtype=torch.float64)
    return weights[:n] - weights[n:]


@dataclass(frozen=True)
class LabelRule:
    """How texts are drawn and labelled, and what the theory says about such labels of a vanilla HMM."""

    hides_first_token: bool
    """Whether the mask hides the first token of a sampled text. Otherwise the mask stands before the text."""
    posterior: Callable[[HMM, Tensor], Tensor]
    """Called with a model and its observed texts, (n, T). It returns the posterior that the labels weigh, (n, S). It is
    not called for a memory model, whose labels weigh P[M | text] by every rule."""
    head: Callable[[HMM, Tensor], LinearHead]
    """Called with a model and μ. It returns the head that the theory constructs, or raises AssumptionError."""
    origin: Callable[[HMM], HMM]
    """Called with a model. It returns the chain whose H_0 is the state that labels weigh. With this chain, (3.3) gives
    the predictions behind a prompt."""
    diagonal: Callable[[HMM], Tensor] | None = None
    """Called with a model. It returns the d, (S,), for which G at the mask is W (d ⊙ p) / dᵀp, where W is the emission
    matrix and p the posterior that the labels weigh. It is None for a rule that has no such d."""


def posterior_at_mask(model: HMM, observed: Tensor) -> Tensor:
    """Return P[H_1 | X_{-1}], as in Section 5."""
    return posterior(model, observed, at=1)


def posterior_before_text(model: HMM, observed: Tensor) -> Tensor:
    """Return P[H_0 | X_{1:T} = x], as in (3.1)."""
    return posterior(model, observed, at=0)


def posterior_of_scripts(model: HMM, observed: Tensor) -> Tensor:
    """Return Aᵀ P[H_1 | X_{1:T} = x], as the released scripts compute it."""
    return posterior(model, observed, at=1) @ model.transition


def head_at_mask(model: HMM, mu: Tensor) -> LinearHead:
    """Return the head with weights (W†)ᵀμ, for labels that weigh the state at the mask itself.

    The head of Theorem 3.3 also undoes the step from H_0 to H_1. Here there is no such step.

    Raises:
        AssumptionError: the columns of the emission matrix W are linearly dependent, against Assumption 3.1.
    """
    columns = assumption_3_1(model)
    columns.require()
    return LinearHead.by_left_inverse(model.emission, mu, columns.condition)


def chain_from_mask(model: HMM) -> HMM:
    """Return the chain begun one step later, so that its H_0 has the law of H_1."""
    return HMM(model.transition, model.emission, model.marginal(1), columns=True)


def chain_itself(model: HMM) -> HMM:
    """Return the model's own chain."""
    return model


def no_reweighting(model: HMM) -> Tensor:
    """Return ones, (S,), because G at the mask is W p if p is the posterior of the state at the mask."""
    return torch.ones_like(model.initial)


def reweighting_of_one_step(model: HMM) -> Tensor:
    """Return the diagonal of the matrix D of Claim B.1, (S,), for the one step from H_0 to H_1."""
    return claim_b_1(model, 1)


LABEL_RULES = {
    "masked": LabelRule(
        hides_first_token=True,
        posterior=posterior_at_mask,
        head=head_at_mask,
        origin=chain_from_mask,
        diagonal=no_reweighting,
    ),
    "before": LabelRule(
        hides_first_token=False,
        posterior=posterior_before_text,
        head=theorem_3_3,
        origin=chain_itself,
        diagonal=reweighting_of_one_step,
    ),
    "stepped": LabelRule(
        hides_first_token=False,
        posterior=posterior_of_scripts,
        head=theorem_3_3,
        origin=chain_itself,
    ),
}
"""The label rules by name. `draw_task` and a spec's field `labels` take such a name."""


@own_settings()
def draw_task(
    model: HMM | MemoryHMM,
    length: int,
    sizes: tuple[int, int, int],
    seed: int,
    rule: str = "masked",
    places: str = "distinct",
) -> Task:
    """Draw texts that begin with MASK, and label them by μᵀ(posterior) ≥ 0, as in Section 5.

    If all training labels agree, μ is drawn again, at most REDRAWS times. If they still agree after that, the task
    keeps a single class.

    Args:
        model: the model that writes the text. For a memory model the posterior is that of the memory in its first cell.
        length: the number of tokens, the mask included.
        sizes: how many training, validation and test texts there are.
        seed: the seed of the texts and of μ.
        rule: a name in LABEL_RULES. "masked" hides the first token of a sampled text and weighs P[H_1 | X_{-1}], as
            Section 5 does. "before" puts the mask before the text and weighs P[H_0 | X_{1:T} = x], as (3.1) does.
            "stepped" also puts it before the text, but weighs Aᵀ P[H_1 | X_{1:T} = x], as the released scripts do.
        places: how the places of the entries of μ are drawn. `draw_mu` explains the two ways.

    Returns:
        The texts with their labels, the μ and the posteriors that gave the labels.

    Raises:
        ValueError: length is below 2, there is no training text, or rule or places is a word that is not known.

    Example:
        >>> from hmmlib import random_hmm
        >>> task = draw_task(random_hmm(4, 10, seed=0), 9, (6, 2, 2), seed=1)
        >>> task.train.tokens.shape, task.test.labels.shape
        (torch.Size([6, 9]), torch.Size([2]))
    """
    of_type("model", model, HMM, MemoryHMM)
    label_rule = LABEL_RULES[one_of("rule", rule, LABEL_RULES)]
    length = integer("length", length, 2)
    sizes = tuple(integer("each of sizes", size, 0) for size in of_type("sizes", sizes, tuple, list))
    if len(sizes) != 3 or not sizes[0]:
        raise ValueError(f"sizes must be three numbers of texts, of which the first is at least 1, not {sizes}")
    generator = as_generator(seed)

    if label_rule.hides_first_token:
        observed = model.sample(sum(sizes), length, generator).tokens
        observed[:, 0] = MASK
        tokens = observed
    else:
        observed = model.sample(sum(sizes), length - 1, generator).tokens
        tokens = F.pad(observed, (1, 0), value=MASK)
    if isinstance(model, MemoryHMM):
        posteriors = memory_posterior(model, observed)
    else:
        posteriors = label_rule.posterior(model, observed)

    for redraws in range(REDRAWS + 1):
        mu = draw_mu(posteriors.shape[1], generator, places)
        labels = posteriors.to(mu) @ mu >= 0
        if 0 < labels[: sizes[0]].sum() < sizes[0]:
            break
    return Task(tokens, labels, mu, redraws, sizes, posteriors)
