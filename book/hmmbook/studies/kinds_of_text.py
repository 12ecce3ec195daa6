"""On which texts does a prompt help?

Texts differ in how open they leave the state at the mask. Of each text, p is the exact belief about it, (S,). This
study measures heads, prompts and a simple table on each kind of text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.fields import Share
from hmmbook.experiments.measurements import Seeds, Split
from hmmlib import LinearHead, tune_head

CERTAIN = 0.98
"""A text is certain where the largest entry of p is above this."""
SPREAD = 0.8
"""The belief is spread where the largest entry of p is below this."""
NEAR_TIE = 0.01
"""A text is a near tie where |μᵀp| is at most this share of the largest entry of |μ|."""
KINDS = ("certain", "spread", "near tie", "clear", "weighed", "not weighed")
"""The kinds of texts, as `kinds_of` gives them."""
ACCURACIES = {"all": Share} | dict.fromkeys(KINDS, Share | None)


def mean(values: Tensor) -> float | None:
    """Return the mean of values, or None if there are none."""
    return values.double().mean().item() if len(values) else None


def means(values: Tensor, kinds: dict[str, Tensor]) -> dict[str, float | None]:
    """Return the mean over all texts, and over those of each kind.

    Args:
        values: A number for each text, (n,).
        kinds: For each kind, which texts are of it, (n,) bool.
    """
    table = {"all": mean(values)}
    for kind, members in kinds.items():
        table[kind] = mean(values[members])
    return table


def by_certainty(beliefs: Tensor) -> dict[str, Tensor]:
    """Tell which texts are certain, and on which the belief is spread."""
    largest = beliefs.amax(1)
    return {"certain": largest > CERTAIN, "spread": largest < SPREAD}


def kinds_of(texts: Task, beliefs: Tensor) -> dict[str, Tensor]:
    """Tell which texts are of each of KINDS. "weighed" are those whose likeliest state the task weighs."""
    mu = texts.mu
    margin = (texts.posteriors.to(mu) @ mu).abs() / mu.abs().max()
    weighed = mu[beliefs.argmax(1)] != 0
    kinds = by_certainty(beliefs)
    kinds["near tie"] = margin <= NEAR_TIE
    kinds["clear"] = margin > NEAR_TIE
    kinds["weighed"] = weighed
    kinds["not weighed"] = ~weighed
    return kinds


def label_of_each_state(texts: Task, beliefs: Tensor) -> Tensor:
    """Return the label that most texts have on which a state is the likeliest, for each state, (S,)."""
    votes = texts.labels.float() - 0.5
    return torch.zeros(beliefs.shape[1]).index_add_(0, beliefs.argmax(1), votes) >= 0


@Measurement(
    on_request=True,
    vanilla=True,
    text_kinds=dict.fromkeys(KINDS, Share),
    accuracies_by_kind={"head": ACCURACIES, "prompt": ACCURACIES, "table": ACCURACIES},
)
def kinds_of_text(
    spec: TrialSpec, task: Task, beliefs: Split, untuned: Split, prompted: Split, tuned_head: LinearHead, seeds: Seeds
) -> dict:
    """Measure the share of test texts of each kind, and the accuracies of head, prompt and table on each.

    The table labels a text by `label_of_each_state` of its likeliest state.
    """
    head = tune_head(untuned[0], task.train.labels, spec.tuning(), seeds["tuning"])
    table = label_of_each_state(task.train, beliefs[0])
    labels = {
        "head": head.label(untuned[2]),
        "prompt": tuned_head.label(prompted[2]),
        "table": table[beliefs[2].argmax(1)],
    }
    test = task.test
    kinds = kinds_of(test, beliefs[2])
    shares = {kind: mean(members) for kind, members in kinds.items()}
    accuracies = {name: means(predicted == test.labels, kinds) for name, predicted in labels.items()}
    return {"text_kinds": shares, "accuracies_by_kind": accuracies}
