"""The exact ladder: head and prompt tuning where the pretrained model is Ḡ itself, beside what the theorems build.

No network is pretrained, so what tuning falls short of here is not the network's fault.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hmmlib.experiments.labels import LABEL_RULES, Task, draw_task
from hmmlib.experiments.presets import LADDER_NUMBERS
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import AssumptionError, essential_states
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.theorems import theorem_3_6
from hmmlib.training.tuning import Tuning, accuracy, probs_behind_prompt, tune_exact_prompt, tune_head
from hmmlib.validation import one_of


@dataclass(frozen=True)
class Built:
    """Accuracy of a head that a theorem builds, on all inputs and on those that it decides.

    A score is exact to about the rounding unit times ‖b‖₁; `decided` is the share of inputs above 64 times that. On
    those the theorem should be right without exception. `condition` is that of the left inverse.
    """

    accuracy: float
    decided: float
    accuracy_decided: float
    condition: float

    @classmethod
    def judge(cls, head: LinearHead, probs: Tensor, labels: Tensor) -> Built:
        clear = head(probs).abs() > 64 * torch.finfo(probs.dtype).eps * head.weights.abs().sum()
        right = (head.label(probs) == labels).double()
        among = right[clear].mean().item() if clear.any() else 1.0
        return cls(right.mean().item(), clear.double().mean().item(), among, head.condition)


@dataclass(frozen=True)
class Rung:
    """Test accuracies at one size |H|: of the more frequent label, of what was trained, and of what a theorem builds.

    `theorem_3_3` and `theorem_3_6` are None where the assumption does not certainly hold; `refusal` is why.
    `n_essential` is the size of the set H* of Theorem 3.6. `prompt` is the trained u.
    """

    n_states: int
    seed: int
    majority: float
    head: float
    prompt_and_head: float
    theorem_3_3: Built | None
    theorem_3_6: Built | None
    n_essential: int | None
    refusal: str
    prompt: list[float]


def ladder_plan(preset: str) -> Tuning:
    """How heads and prompts are tuned on the exact Ḡ. ValueError for an unknown preset."""
    numbers = LADDER_NUMBERS[one_of("preset", preset, LADDER_NUMBERS)]
    return Tuning(numbers["epochs"], numbers["batch"], numbers["head_rate"], numbers["prompt_rate"])


def climb(n_states: int, seed: int, preset: str = "quick") -> Rung:
    """One rung: a model of appendix E, a task as in (3.1), a head on the exact G_1 and a prompt with a head on Ḡ_2.

    ValueError for a size below 1 or an unknown preset.
    """
    plan, numbers = ladder_plan(preset), LADDER_NUMBERS[preset]
    model = random_hmm(n_states, seed=seed)
    task = draw_task(model, numbers["length"], (numbers["train"], 0, numbers["test"]), seed, "before")
    return rung(model, task, masked_token_probs(model, task.tokens)[:, 0], plan, seed)


def built_if_certain(construct: Callable, *given) -> tuple[object | None, str]:
    """What a theorem's construction gives, and ""; None and the reason, where its assumption does not certainly hold.

    All stored results have it so: nothing of a construction where floats are too close to tell.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*too close to tell", UserWarning)
        try:
            return construct(*given), ""
        except (AssumptionError, UserWarning) as error:
            return None, str(error)


def rung(model: HMM, task: Task, probs: Tensor, plan: Tuning, seed: int, law: str = "before") -> Rung:
    """What can be had from the exact Ḡ on a task.

    The head of the theory and the chain from which a prompt is read as in (3.3) are those of the label rule.

    Args:
        probs: the exact distribution at the first token, (n, X).
        law: the rule by which the task was drawn, as in `draw_task`.
    """
    rule = LABEL_RULES[one_of("law", law, LABEL_RULES)]
    origin = rule.origin(model)
    (train_labels, _, labels), (train, _, test) = task.split(task.labels), task.split(probs)
    train_posteriors, _, posteriors = task.split(task.posteriors)
    head = tune_head(train, train_labels, plan, seed)
    prompt, behind = tune_exact_prompt(origin, train_posteriors, train_labels, plan, seed)
    essential = essential_states(origin, task.mu)
    linear, refusal = built_if_certain(rule.head, model, task.mu)
    prompted, _ = built_if_certain(theorem_3_6, origin, task.mu, essential) if essential else (None, "")
    share = labels.double().mean().item()
    return Rung(
        n_states=model.n_states,
        seed=seed,
        majority=max(share, 1 - share),
        head=accuracy(head, test, labels),
        prompt_and_head=accuracy(behind, probs_behind_prompt(origin, posteriors, prompt), labels),
        theorem_3_3=linear and Built.judge(linear, test, labels),
        theorem_3_6=prompted and Built.judge(prompted[1], probs_behind_prompt(origin, posteriors, prompted[0]), labels),
        n_essential=prompted and len(essential),
        refusal=refusal,
        prompt=prompt.tolist(),
    )
