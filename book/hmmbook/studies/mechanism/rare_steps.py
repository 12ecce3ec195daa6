"""How much of a prompt's lead on the exact model is due to the prompt of Theorem 3.6, once rare steps are ignored.

With many states each state of a random chain can be followed by more states than there are tokens, so Theorem 3.6 has
no prompt. But most of these steps are rare. Taken as zero, they leave a chain for which the theorem often has a prompt.
Here this prompt is put before the texts of the true chain, and a head is fitted to the exact predictions behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.exact_ladder import built_if_certain, ladder_plan
from hmmbook.experiments.fields import Share, Size
from hmmbook.experiments.labels import LABEL_RULES
from hmmbook.experiments.measurements import Seeds, Split
from hmmbook.studies.least_loss import least_loss_head
from hmmlib import HMM, LinearHead, essential_states, theorem_3_6, tune_exact_prompt
from hmmlib.theory.heads import share_right
from hmmlib.training.tuning import probs_behind_prompt
from hmmlib.validation import as_generator

THRESHOLDS = {"0.001": 1e-3, "0.01": 1e-2}
"""Steps of a smaller probability are rare."""
RANDOM_PROMPTS = 10
"""How many random prompts the mean is over."""
WITH_A_SET = ("theorem's prompt and head", "theorem's prompt, fitted head", "random prompts, fitted heads")
"""What there is only where the chain without rare steps has a set H*."""
ALWAYS = ("fitted head alone", "tuned prompt, tuned head", "tuned prompt, fitted head")


def without_rare_steps(model: HMM, threshold: float) -> HMM:
    """The chain with steps of a probability below `threshold` taken as zero."""
    steps = torch.where(model.transition < threshold, 0, model.transition)
    return HMM(steps / steps.sum(0), model.emission, model.initial, columns=True)


class Built(NamedTuple):
    """The prompt, (S,), and the head of Theorem 3.6, and the set of states that it is for."""

    prompt: Tensor
    head: LinearHead
    essential: list[int]


def theorem_prompt(model: HMM, mu: Tensor, threshold: float) -> Built | None:
    """What Theorem 3.6 gives for the chain without rare steps; None where it gives no prompt."""
    sparse = without_rare_steps(model, threshold)
    essential = essential_states(sparse, mu)
    if not essential:
        return None
    construction, _ = built_if_certain(theorem_3_6, sparse, mu, essential)
    if construction is None:
        return None
    prompt, head = construction
    return Built(prompt, head, list(essential))


def random_prompt(prompt: Tensor, generator: torch.Generator) -> Tensor:
    """A prompt, (S,), with as many ones as another, at random states."""
    drawn = torch.zeros_like(prompt)
    drawn[torch.randperm(len(prompt), generator=generator)[: int(prompt.sum())]] = 1
    return drawn


def fitted_accuracy(model: HMM, task: Task, beliefs: Split, prompt: Tensor) -> float:
    """The test accuracy of a fully fitted head on exact predictions behind `prompt`, (S,)."""
    train = probs_behind_prompt(model, beliefs[0], prompt)
    test = probs_behind_prompt(model, beliefs[2], prompt)
    return share_right(test @ least_loss_head(train, task.train.labels) >= 0, task.test.labels)


AT_THRESHOLD = dict.fromkeys(WITH_A_SET, Share | None) | {"states in the set": Size | None}


@Measurement(
    on_request=True,
    phase="rare steps",
    vanilla=True,
    rare_steps=dict.fromkeys(THRESHOLDS, AT_THRESHOLD) | dict.fromkeys(ALWAYS, Share),
)
def rare_steps(spec: TrialSpec, model: HMM, task: Task, beliefs: Split, seeds: Seeds, before_step: Callable) -> dict:
    """Measure test accuracies on the exact model, with the theorem's prompt and others.

    For each threshold those of WITH_A_SET, which are None where the chain without rare steps has no set H*. A random
    prompt has as many ones as the theorem's.
    """
    origin = LABEL_RULES[spec.labels].origin(model)  # the chain whose H_0 is the state that the task weighs
    labels = task.test.labels
    generator = as_generator(seeds["evaluation"])
    plan = ladder_plan(spec.preset)
    tuned, tuned_head = tune_exact_prompt(origin, beliefs[0], task.train.labels, plan, seeds["tuning"])
    behind_tuned = probs_behind_prompt(origin, beliefs[2], tuned)
    table = {
        "fitted head alone": fitted_accuracy(origin, task, beliefs, torch.ones_like(origin.initial)),
        "tuned prompt, tuned head": share_right(tuned_head.label(behind_tuned), labels),
        "tuned prompt, fitted head": fitted_accuracy(origin, task, beliefs, tuned),
    }
    for name, threshold in THRESHOLDS.items():
        before_step()
        table[name] = dict.fromkeys(AT_THRESHOLD)
        built = theorem_prompt(origin, task.mu, threshold)
        if built is None:
            continue
        behind = probs_behind_prompt(origin, beliefs[2], built.prompt)
        accuracies = []
        for _ in range(RANDOM_PROMPTS):
            accuracies.append(fitted_accuracy(origin, task, beliefs, random_prompt(built.prompt, generator)))
        table[name] = {
            "theorem's prompt and head": share_right(built.head.label(behind), labels),
            "theorem's prompt, fitted head": fitted_accuracy(origin, task, beliefs, built.prompt),
            "random prompts, fitted heads": sum(accuracies) / len(accuracies),
            "states in the set": len(built.essential),
        }
    return {"rare_steps": table}
