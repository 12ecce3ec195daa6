"""What is measured of a trial: functions from what a trial has to named numbers.

A new measurement is one more function. Its parameters are the stages of a trial that it needs, of those in STAGES; a stage
that none of the measurements asked for needs is not computed. A result holds the numbers under the names that the
measurement declares.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmlib.experiments.labels import Task
from hmmlib.experiments.ladder import ladder_plan, rung
from hmmlib.experiments.specs import Amount, Anything, ShareOfTest, TrialSpec, by_step
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert, readers, tuning
from hmmlib.training.adapters import Tuned
from hmmlib.validation import one_of

STAGES = {
    "spec": "the TrialSpec",
    "seeds": "the seed of each of the trial's random draws, by name",
    "model": "the random model",
    "task": "inputs, labels and posteriors",
    "exact": "the exact G on the task's inputs, (n, T, X)",
    "network": "the pretrained network",
    "milestones": "the network's weights after each tenth of its pretraining, by the number of steps",
    "tuned": "what is tuned on the network by the spec's tuner, and the head tuned with it",
    "outputs": "the network's distributions on the task's inputs, (n, T, X and special ids)",
    "tick": "to be called now and then by what takes long: it ends the trial where its time is over",
}
"""What a trial has, roughly from what takes no time to what takes long."""


class Measurement(NamedTuple):
    """A function that measures, the names that it gives, the phase to which its seconds are counted, and which trials have it.

    `vanilla` is whether only trials of vanilla models have it, and `prompts` whether only those that tune a prompt: in the
    others its names are None. `on_request` is whether a trial makes it only where one of its names is asked for.

    `kinds` is what each name may hold where a trial has it: a type of `fields`, or a dict of kinds, for a table with just these
    names.
    """

    function: Callable[..., dict[str, float | int | str | dict | None]]
    names: tuple[str, ...]
    phase: str
    vanilla: bool
    prompts: bool
    on_request: bool
    kinds: dict[str, object]

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of a trial that it needs."""
        return tuple(inspect.signature(self.function).parameters)

    def has(self, spec: TrialSpec) -> bool:
        """Whether trials of such a spec have it."""
        return (spec.n_memory == 1 or not self.vanilla) and (spec.tuner == "prompt" or not self.prompts)


MEASUREMENTS: list[Measurement] = []
"""In the order in which a trial makes them."""


def measurement(
    *names: str,
    phase: str | None = None,
    vanilla: bool = False,
    prompts: bool = False,
    on_request: bool = False,
    **kinds,
) -> Callable[[Callable], Callable]:
    """Add the decorated function to MEASUREMENTS: it gives these names, and those of `kinds`, where NAME=KIND says what the
    name may hold. Its phase is its own name if left out.

    ValueError for a name that another measurement gives, or a parameter that is no stage.
    """
    names = (*names, *kinds)

    def register(function: Callable) -> Callable:
        words = phase or function.__name__.replace("_", " ")
        new = Measurement(function, names, words, vanilla, prompts, on_request, dict.fromkeys(names, Anything) | kinds)
        if taken := set(names) & measured_names():
            raise ValueError(f"{function.__name__} gives {', '.join(sorted(taken))}, as another measurement does")
        for stage in new.stages:
            one_of(f"each parameter of {function.__name__}", stage, STAGES)
        MEASUREMENTS.append(new)
        return function

    return register


def measured_names() -> set[str]:
    """The names that all measurements together give."""
    return {name for one in MEASUREMENTS for name in one.names}


def measurements_of(names: Sequence[str]) -> list[Measurement]:
    """The measurements that give these names. ValueError for a name that none gives."""
    for name in names:
        one_of("each of names", name, sorted(measured_names()))
    return [one for one in MEASUREMENTS if set(one.names) & set(names)]


@measurement("backbone", phase="exact model")
def fingerprint(network: torch.nn.Module) -> dict:
    """The network's fingerprint."""
    return dict(backbone=bert.fingerprint(network))


@measurement("network_loss", "best_loss", phase="exact model")
def masked_losses(spec: TrialSpec, model: HMM | MemoryHMM, network: torch.nn.Module, seeds: dict[str, int]) -> dict:
    """Masked-token losses on fresh text, nats: the network's, and the least that there is."""
    losses = readers.masked_losses(network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"])
    return dict(zip(("network_loss", "best_loss"), losses, strict=True))


@measurement("majority_rate", "redraws", phase="exact model")
def balance(task: Task) -> dict:
    """The share of the more frequent test label, and how often μ was drawn again."""
    share = task.split(task.labels)[2].double().mean().item()
    return dict(majority_rate=max(share, 1 - share), redraws=task.redraws)


@measurement("divergence", phase="head tuning")
def divergence(spec: TrialSpec, task: Task, exact: Tensor, outputs: Tensor) -> dict:
    """KL divergence from the exact distribution at the mask to the network's, nats, mean over test inputs."""
    network, exact = (task.split(probs[:, 0].cpu())[2] for probs in (outputs, exact))
    logs = network[:, : spec.n_tokens].double().log()
    return dict(divergence=F.kl_div(logs, exact, reduction="batchmean").item())


def _tuned_heads(spec: TrialSpec, task: Task, probs: Tensor, seed: int) -> dict[str, tuple[float, float]]:
    """Accuracies on validation and test inputs of a linear head at the mask and of an attention head, tuned on `probs`."""
    (train, *rest), (labels, *truths), plan = task.split(probs), task.split(task.labels), spec.tuning()
    learned = spec.attention_positions == "learned"
    head = tuning.tune_head(train[:, 0], labels, plan, seed)
    attention = tuning.tune_attention(train, labels, plan, seed, spec.attention_heads, learned)
    judged = list(zip(rest, truths, strict=True))
    return {
        "head": tuple(tuning.accuracy(head, inputs[:, 0], truth) for inputs, truth in judged),
        "attention": tuple(tuning.accuracy(attention, inputs, truth) for inputs, truth in judged),
    }


@measurement(
    "head_accuracy",
    "attention_accuracy",
    "validation_head_accuracy",
    "validation_attention_accuracy",
    phase="head tuning",
)
def heads(spec: TrialSpec, task: Task, outputs: Tensor, seeds: dict[str, int]) -> dict:
    """Accuracies of the heads on the network's distributions."""
    tuned = _tuned_heads(spec, task, outputs, seeds["tuning"])
    measured = {f"{name}_accuracy": test for name, (_, test) in tuned.items()}
    return measured | {f"validation_{name}_accuracy": validation for name, (validation, _) in tuned.items()}


@measurement("exact_head_accuracy", "exact_attention_accuracy", phase="head tuning")
def exact_heads(spec: TrialSpec, task: Task, exact: Tensor, seeds: dict[str, int]) -> dict:
    """Accuracies of the same heads on the exact G."""
    tuned = _tuned_heads(spec, task, exact.float(), seeds["tuning"])
    return {f"exact_{name}_accuracy": test for name, (_, test) in tuned.items()}


@measurement(
    "ladder_head_accuracy",
    "ladder_prompt_accuracy",
    "built_head_accuracy",
    "built_prompt_accuracy",
    phase="exact ladder",
    vanilla=True,
)
def exact_ladder(spec: TrialSpec, model: HMM, task: Task, exact: Tensor, seeds: dict[str, int]) -> dict:
    """What can be had from the exact Ḡ: by tuning in more passes, and by what the theorems build."""
    highest = rung(model, task, exact[:, 0], ladder_plan(spec.preset), seeds["tuning"], spec.labels)
    return dict(
        ladder_head_accuracy=highest.head,
        ladder_prompt_accuracy=highest.prompt_and_head,
        built_head_accuracy=highest.theorem_3_3 and highest.theorem_3_3.accuracy,
        built_prompt_accuracy=highest.theorem_3_6 and highest.theorem_3_6.accuracy,
    )


@measurement(vanilla=True, on_request=True, exact_prompt_accuracy=ShareOfTest)
def exact_prompt(spec: TrialSpec, model: HMM, task: Task, exact: Tensor, seeds: dict[str, int]) -> dict:
    """Accuracy behind one prompt vector on the exact Ḡ, tuned with the passes, batches and rates of the network's prompt."""
    highest = rung(model, task, exact[:, 0], spec.tuning(), seeds["tuning"], spec.labels)
    return dict(exact_prompt_accuracy=highest.prompt_and_head)


@measurement("prompt_accuracy", "validation_prompt_accuracy", phase="prompt tuning", vanilla=True)
def tuned_prompt(task: Task, tuned: Tuned) -> dict:
    """Accuracies behind a tuned prompt, or with what else the spec's tuner has tuned."""
    (_, *rest), (_, *truths) = task.split(task.tokens), task.split(task.labels)
    validation, test = (
        tuning.accuracy(tuned.head, tuned.probs(tokens), truth) for tokens, truth in zip(rest, truths, strict=True)
    )
    return dict(prompt_accuracy=test, validation_prompt_accuracy=validation)


@measurement("untrained_prompt_accuracy", phase="prompt tuning", vanilla=True, prompts=True)
def untrained_prompt(spec: TrialSpec, network: torch.nn.Module, task: Task, seeds: dict[str, int]) -> dict:
    """The accuracy of a head behind a prompt left as it was drawn."""
    (train, _, tokens), (labels, _, truth) = task.split(task.tokens), task.split(task.labels)
    prompt = tuning.initial_prompt(network, spec.prompt_length, seeds["tuning"], spec.prompt_start)
    behind = [tuning.all_probs_at_mask(network, inputs, prompt) for inputs in (train, tokens)]
    head = tuning.tune_head(behind[0], labels, spec.tuning(), seeds["tuning"])
    return dict(untrained_prompt_accuracy=tuning.accuracy(head, behind[1], truth))


@measurement(
    vanilla=True,
    prompts=True,
    on_request=True,
    on_the_way=by_step({"loss": Amount, "head": ShareOfTest, "prompt": ShareOfTest}),
)
def on_the_way(
    spec: TrialSpec,
    model: HMM,
    task: Task,
    network: torch.nn.Module,
    milestones: dict[int, dict[str, Tensor]],
    seeds: dict[str, int],
    tick: Callable[[], None],
) -> dict:
    """Masked-token loss (nats), and accuracies of a head and of a tuned prompt, after each tenth of the pretraining."""
    (train, _, tokens), (labels, _, truth) = task.split(task.tokens), task.split(task.labels)
    on_its_way, plan, table = copy.deepcopy(network), spec.tuning(), {}
    for step, weights in milestones.items():
        on_its_way.load_state_dict(weights)
        loss, _ = readers.masked_losses(
            on_its_way, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"]
        )
        head = tuning.tune_head(tuning.all_probs_at_mask(on_its_way, train), labels, plan, seeds["tuning"])
        how = spec.prompt_length, plan, seeds["tuning"], spec.prompt_start
        prompt, behind = tuning.tune_prompt(on_its_way, train, labels, *how, tick)
        table[str(step)] = dict(
            loss=loss,
            head=tuning.accuracy(head, tuning.all_probs_at_mask(on_its_way, tokens), truth),
            prompt=tuning.accuracy(behind, tuning.all_probs_at_mask(on_its_way, tokens, prompt), truth),
        )
    return dict(on_the_way=table)
