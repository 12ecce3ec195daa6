"""Tune heads and prompts on the exact Ḡ in the place of a network, and compare them with what the theorems build.

We call this the exact ladder. Its rungs are four accuracies on one task: of a tuned head, of a head behind a tuned
prompt, of the head of Theorem 3.3, and of the prompt and head of Theorem 3.6. No network is pretrained here. So where
tuning falls short, no network is to blame.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hmmbook.experiments.fields import Share
from hmmbook.experiments.labels import LABEL_RULES, Task, draw_task
from hmmbook.experiments.measurements import Measurement, Seeds
from hmmbook.experiments.presets import LADDER_NUMBERS
from hmmbook.experiments.specs import TrialSpec
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import AssumptionError, essential_states
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.theorems import theorem_3_6
from hmmlib.training import tuning
from hmmlib.validation import one_of

CLEAR_UNITS = 64
"""How many times larger than its rounding error a score must be to count as decided.

The rounding error of a score bᵀp is about the rounding unit times ‖b‖₁, because the entries of p sum to 1.
"""


@dataclass(frozen=True)
class Built:
    """How well a head that a theorem builds does on the test texts.

    A text is decided if its score is so far from zero that rounding cannot have changed the label. On decided texts the
    theorem should always be right.
    """

    accuracy: float
    """The accuracy on all texts."""
    decided: float
    """The share of texts that are decided."""
    accuracy_decided: float
    """The accuracy on the decided texts. It is 1 if there are none."""
    condition: float
    """The condition number of the left inverse from which the head is built. Rounding grows with it."""

    @classmethod
    def judge(cls, head: LinearHead, probs: Tensor, labels: Tensor) -> Built:
        """Judge a head by how it labels texts.

        Args:
            head: the head.
            probs: the distribution that the head reads for each text, (n, X).
            labels: the true labels, (n,).
        """
        rounding = torch.finfo(probs.dtype).eps * head.weights.abs().sum()
        decided = head(probs).abs() > CLEAR_UNITS * rounding
        right = (head.label(probs) == labels).double()
        accuracy_decided = right[decided].mean().item() if decided.any() else 1.0
        return cls(right.mean().item(), decided.double().mean().item(), accuracy_decided, head.condition)


@dataclass(frozen=True)
class ExactTrial:
    """The test accuracies of one trial on the exact Ḡ, of what is tuned and of what the theorems build."""

    n_states: int
    """|H|."""
    seed: int
    """The seed of the model, the task and the tuning."""
    majority: float
    """The share of the more frequent label."""
    head: float
    """The accuracy of a tuned head."""
    prompt_and_head: float | None
    """The accuracy of a tuned prompt with its head. It is None if some state has P[H_0] = 0, as (3.3) divides by it."""
    theorem_3_3: Built | None
    """How the head of Theorem 3.3 does. It is None if its assumption is not sure to hold, or labels do not follow μ."""
    theorem_3_6: Built | None
    """How the prompt and head of Theorem 3.6 do. It is None in the same two cases."""
    n_essential: int | None
    """The size of the set H* of Theorem 3.6. It is None where `theorem_3_6` is."""
    refusal: str
    """Why there is no head of Theorem 3.3. It is empty if there is one."""
    prompt: list[float] | None
    """The tuned prompt u, (S,), or None if none was tuned."""


def ladder_plan(preset: str) -> tuning.Tuning:
    """Return the plan by which heads and prompts are tuned on the exact Ḡ.

    Args:
        preset: the name of a preset.

    Raises:
        ValueError: the preset is unknown.
    """
    numbers = LADDER_NUMBERS[one_of("preset", preset, LADDER_NUMBERS)]
    return tuning.Tuning(numbers["epochs"], numbers["batch"], numbers["head_rate"], numbers["prompt_rate"])


def exact_trial(n_states: int, seed: int, preset: str = "quick") -> ExactTrial:
    """Run a trial without a network, on an HMM of appendix E and a task that is labelled as in (3.1).

    A head is tuned on the exact G_1, the distribution at the mask. A prompt takes position 1 and moves the mask to
    position 2, so a prompt and its head are tuned on the exact Ḡ_2.

    Args:
        n_states: |H|.
        seed: the seed of the model, the task and the tuning.
        preset: the preset that says how many texts there are, and how often tuning passes over them.

    Returns:
        The test accuracies of what is tuned and of what the theorems build.

    Raises:
        ValueError: n_states is below 1, or the preset is unknown.

    Example:
        >>> trial = exact_trial(4, seed=0, preset="smoke")
        >>> trial.theorem_3_3.accuracy
        1.0
    """
    plan = ladder_plan(preset)
    numbers = LADDER_NUMBERS[preset]
    model = random_hmm(n_states, seed=seed)
    sizes = (numbers["train"], 0, numbers["test"])
    task = draw_task(model, numbers["length"], sizes, seed, "before")
    probs_at_mask = masked_token_probs(model, task.tokens)[:, 0]
    return tune_on_exact_outputs(model, task, probs_at_mask, plan, seed)


def built_if_certain(construct: Callable, *arguments) -> tuple[object | None, str]:
    """Return what a theorem constructs, or the reason why there is no construction.

    There is none if the theorem's assumption fails. We also leave it out if floats are too close to tell whether the
    assumption holds. In both cases a stored result has None in its place.

    Args:
        construct: the function that constructs, for example `theorem_3_3`.
        arguments: what it is called with.

    Returns:
        The construction and "", or None and the reason.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*too close to tell", UserWarning)
        try:
            return construct(*arguments), ""
        except (AssumptionError, UserWarning) as error:
            return None, str(error)


def tune_on_exact_outputs(
    model: HMM, task: Task, probs: Tensor, plan: tuning.Tuning, seed: int, rule: str = "before"
) -> ExactTrial:
    """Tune heads and prompts on the exact Ḡ of a task, and build those of the theorems.

    Args:
        model: the model that wrote the text.
        task: texts and labels.
        probs: the exact distribution at the first token, (n, X).
        plan: how to tune.
        seed: the seed of the tuning.
        rule: the name of the label rule by which the task was drawn. The rule says which head the theory builds, and
            with which chain (3.3) gives the predictions behind a prompt.
    """
    theory = LABEL_RULES[one_of("rule", rule, LABEL_RULES)]
    origin = theory.origin(model)
    train_labels, _, test_labels = task.split(task.labels)
    train_probs, _, test_probs = task.split(probs)
    train_posteriors, _, test_posteriors = task.split(task.posteriors)

    head = tuning.tune_head(train_probs, train_labels, plan, seed)
    prompt = None
    prompt_accuracy = None
    if origin.initial.all():
        prompt, head_behind = tuning.tune_exact_prompt(origin, train_posteriors, train_labels, plan, seed)
        behind = tuning.probs_behind_prompt(origin, test_posteriors, prompt)
        prompt_accuracy = tuning.accuracy(head_behind, behind, test_labels)

    built_head = None
    built_prompt = None
    n_essential = None
    refusal = "the labels are not those of the task's μ"
    if task.has_labels_of_mu():
        linear, refusal = built_if_certain(theory.head, model, task.mu)
        if linear is not None:
            built_head = Built.judge(linear, test_probs, test_labels)
        essential = essential_states(origin, task.mu)
        construction = None
        if essential:
            construction, _ = built_if_certain(theorem_3_6, origin, task.mu, essential)
        if construction is not None:
            theorem_prompt, theorem_head = construction
            behind = tuning.probs_behind_prompt(origin, test_posteriors, theorem_prompt)
            built_prompt = Built.judge(theorem_head, behind, test_labels)
            n_essential = len(essential)

    share = test_labels.double().mean().item()
    return ExactTrial(
        n_states=model.n_states,
        seed=seed,
        majority=max(share, 1 - share),
        head=tuning.accuracy(head, test_probs, test_labels),
        prompt_and_head=prompt_accuracy,
        theorem_3_3=built_head,
        theorem_3_6=built_prompt,
        n_essential=n_essential,
        refusal=refusal,
        prompt=None if prompt is None else prompt.tolist(),
    )


@Measurement(
    "ladder_head_accuracy",
    "ladder_prompt_accuracy",
    "built_head_accuracy",
    "built_prompt_accuracy",
    phase="exact ladder",
    vanilla=True,
)
def exact_ladder(spec: TrialSpec, model: HMM, task: Task, exact: Tensor, seeds: Seeds) -> dict:
    """Measure on the exact Ḡ what tuning in more passes reaches, and what the theorems build."""
    trial = tune_on_exact_outputs(model, task, exact[:, 0], ladder_plan(spec.preset), seeds["tuning"], spec.labels)
    return {
        "ladder_head_accuracy": trial.head,
        "ladder_prompt_accuracy": trial.prompt_and_head,
        "built_head_accuracy": trial.theorem_3_3 and trial.theorem_3_3.accuracy,
        "built_prompt_accuracy": trial.theorem_3_6 and trial.theorem_3_6.accuracy,
    }


@Measurement(vanilla=True, on_request=True, exact_prompt_accuracy=Share | None)
def exact_prompt(spec: TrialSpec, model: HMM, task: Task, exact: Tensor, seeds: Seeds) -> dict:
    """Measure the accuracy behind one prompt vector on the exact Ḡ, tuned as the network's prompt is."""
    trial = tune_on_exact_outputs(model, task, exact[:, 0], spec.tuning(), seeds["tuning"], spec.labels)
    return {"exact_prompt_accuracy": trial.prompt_and_head}
