"""The exact ladder: head and prompt tuning where the pretrained model is Ḡ itself, beside what the theorems build.

Its rungs are four accuracies on one task: of a tuned head, of a tuned prompt, and of what Theorems 3.3 and 3.6 build.
No network is pretrained here, so where tuning falls short, the network is not to blame.
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
"""A score is exact to about the rounding unit times ‖b‖₁. A score that is larger than 64 of these is decided."""


@dataclass(frozen=True)
class Built:
    """How a head that a theorem builds does on the test texts. On decided texts the theorem should always be right."""

    accuracy: float
    """Accuracy on all texts."""
    decided: float
    """The share of texts whose score is larger than rounding may move it."""
    accuracy_decided: float
    """Accuracy on these."""
    condition: float
    """The condition number of the left inverse."""

    @classmethod
    def judge(cls, head: LinearHead, probs: Tensor, labels: Tensor) -> Built:
        """Judge a head by distributions, (n, X), and labels, (n,)."""
        rounding = torch.finfo(probs.dtype).eps * head.weights.abs().sum()
        decided = head(probs).abs() > CLEAR_UNITS * rounding
        right = (head.label(probs) == labels).double()
        accuracy_decided = right[decided].mean().item() if decided.any() else 1.0
        return cls(right.mean().item(), decided.double().mean().item(), accuracy_decided, head.condition)


@dataclass(frozen=True)
class ExactTrial:
    """Test accuracies at one size |H| on the exact Ḡ: what tuning reaches, and what the theorems build."""

    n_states: int
    """|H|."""
    seed: int
    """The seed of the model, the task and the tuning."""
    majority: float
    """The share of the more frequent label."""
    head: float
    """Accuracy of a tuned head."""
    prompt_and_head: float | None
    """Accuracy of a tuned prompt with its head. None where P[H_0] is zero in some state, as (3.3) divides by it."""
    theorem_3_3: Built | None
    """The head of Theorem 3.3. None where its assumption does not certainly hold, or labels are not those of μ."""
    theorem_3_6: Built | None
    """The prompt and head of Theorem 3.6. None in the same cases."""
    n_essential: int | None
    """The size of the set H* of Theorem 3.6."""
    refusal: str
    """Why there is no head of Theorem 3.3, if there is none."""
    prompt: list[float] | None
    """The tuned prompt u, (S,)."""


def ladder_plan(preset: str) -> tuning.Tuning:
    """Return the plan by which heads and prompts are tuned on the exact Ḡ.

    Raises:
        ValueError: the preset is unknown.
    """
    numbers = LADDER_NUMBERS[one_of("preset", preset, LADDER_NUMBERS)]
    return tuning.Tuning(numbers["epochs"], numbers["batch"], numbers["head_rate"], numbers["prompt_rate"])


def exact_trial(n_states: int, seed: int, preset: str = "quick") -> ExactTrial:
    """Run a trial without a network, on a model of appendix E and a task as in (3.1).

    A head is tuned on the exact G_1, and a prompt with a head on the exact Ḡ_2.

    Args:
        n_states: |H|.
        seed: the seed of the model, the task and the tuning.
        preset: the preset that says how many texts and passes.

    Raises:
        ValueError: the size is below 1, or the preset is unknown.

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
    """Return what a theorem's construction gives, or the reason why there is none.

    There is none where the assumption fails, and where floats are too close to tell. Stored results hold nothing of a
    construction then.

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
    """Tune and build heads and prompts on the exact Ḡ of a task.

    Args:
        model: the model that wrote the text.
        task: texts and labels.
        probs: the exact distribution at the first token, (n, X).
        plan: how to tune.
        seed: the seed of the tuning.
        rule: the label rule by which the task was drawn. It gives the head of the theory and the chain off which a
            prompt is read as in (3.3).
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
    """Measure what the exact Ḡ gives by tuning in more passes, and by what the theorems build."""
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
