"""What is measured of a trial: functions from what a trial has to named numbers.

A new measurement is one more function. Its parameters are names of what a `trials.Trial` has; what none of the
measurements needs is not computed. A result holds the numbers under the names that the measurement declares.
"""

from __future__ import annotations

import copy
import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F

from hmmlib.experiments.labels import LABEL_RULES, Task, draw_task
from hmmlib.experiments.presets import LADDER_NUMBERS
from hmmlib.experiments.specs import Amount, Anything, Share, TrialSpec, as_type
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.assumptions import AssumptionError, essential_states
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.theorems import theorem_3_6
from hmmlib.training import bert, readers, tuning
from hmmlib.training.adapters import Tuned
from hmmlib.validation import one_of

Seeds = dict[str, int]
Split = tuple[Tensor, Tensor, Tensor]
"""Something of training, validation and test texts."""


class Measurement:
    """A function that measures, the phase to which its seconds are counted, and which trials have it.

    As a decorator, it adds the function to MEASUREMENTS: that gives a dict of these names, and those of `kinds`, and
    asks by the names of its parameters for what a trial has: spec, seeds, model, task, exact (the exact G, (n, T, X)),
    beliefs, network, outputs (its predictions, (n, T, X)), untuned and prompted (those at the mask, without and with
    what is tuned), tuned and tuned_head. A function of the same name takes the place of an earlier one.

    Args:
        phase: the function's own name if left out.
        vanilla: whether only trials of vanilla models have it; in the others its names are None.
        prompts: whether only trials that tune a prompt have it.
        on_request: whether a trial makes it only where one of its names is asked for.
        kinds: NAME=KIND is what a name may hold where a trial has it: a type of `specs`, or a dict of kinds, for a
            table with just these names.

    TypeError for a decorator without names, ValueError for a name that another measurement gives.
    """

    def __init__(self, *names: str, phase="", vanilla=False, prompts=False, on_request=False, **kinds):
        if not all(isinstance(name, str) for name in names):
            raise TypeError('Measurement takes the names of what is measured: @Measurement("my_share")')
        self.kinds = dict.fromkeys(names, Anything) | {name: as_type(kind) for name, kind in kinds.items()}
        self.names = tuple(self.kinds)
        self.phase, self.vanilla, self.prompts, self.on_request = phase, vanilla, prompts, on_request

    def __call__(self, function: Callable[..., dict[str, float | int | str | dict | None]]) -> Callable:
        self.function, self.stages = function, tuple(inspect.signature(function).parameters)
        self.phase = self.phase or function.__name__.replace("_", " ")
        called = function.__module__, function.__qualname__.replace("<lambda>", repr(function))
        others = [one for one in MEASUREMENTS if (one.function.__module__, one.function.__qualname__) != called]
        if taken := {name for one in others for name in one.names}.intersection(self.names):
            raise ValueError(f"{', '.join(sorted(taken))}: another measurement gives that, so take another name")
        MEASUREMENTS[:] = [*others, self]
        return function

    def with_its_names(self, found: dict) -> dict:
        """What the function gave. ValueError, which names the function, for other names and for tensors."""
        who = f"the measurement {self.function.__name__}"
        if not isinstance(found, dict) or found.keys() != {*self.names}:
            raise ValueError(f"{who} must give a dict with {', '.join(self.names)}, not {reprlib.repr(found)}")
        for name, value in found.items():
            if isinstance(value, Tensor):
                raise ValueError(f"{who} must give numbers, not a tensor: {name} needs .item()")
        return found

    def has(self, spec: TrialSpec) -> bool:
        """Whether trials of such a spec have it."""
        return (spec.n_memory == 1 or not self.vanilla) and (spec.tuner == "prompt" or not self.prompts)


MEASUREMENTS: list[Measurement] = []
"""In the order in which a trial makes them."""


def measured_names() -> set[str]:
    """The names that all measurements together give."""
    return {name for one in MEASUREMENTS for name in one.names}


def measurements_of(names: Iterable[str]) -> list[Measurement]:
    """The measurements that give these names."""
    return [one for one in MEASUREMENTS if not set(names).isdisjoint(one.names)]


def over_tokens(task: Task, probs: Tensor, n_tokens: int) -> Split:
    """A network's distributions, (n, X and special ids), in float64 over the model's tokens alone."""
    probs = probs[:, :n_tokens].cpu().double()
    return task.split(probs / probs.sum(1, keepdim=True))


@Measurement("backbone", phase="exact model")
def fingerprint(network: Module) -> dict:
    """The network's fingerprint."""
    return dict(backbone=bert.fingerprint(network))


@Measurement("network_loss", "best_loss", phase="exact model")
def masked_losses(spec: TrialSpec, model: HMM | MemoryHMM, network: Module, seeds: Seeds) -> dict:
    """Masked-token losses on fresh text, nats: the network's, and the least that there is."""
    losses = readers.masked_losses(network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"])
    return dict(zip(("network_loss", "best_loss"), losses, strict=True))


@Measurement(phase="exact model", frequency_loss=Amount)
def frequency_loss(spec: TrialSpec, model: HMM | MemoryHMM) -> dict:
    """The loss of always predicting a token by its frequency, nats: who has learned no more than that has this one."""
    return dict(frequency_loss=entropy_of_frequencies(model, spec.document_length or spec.length))


def entropy_of_frequencies(model: HMM | MemoryHMM, length: int) -> float:
    """The entropy of the frequencies of tokens in texts of that length, nats."""
    states = torch.stack([model.marginal(at) for at in range(1, length + 1)]).mean(0)
    values = torch.ones(1, 1, dtype=model.dtype)  # P[M_j = m], (cells, |M|)
    if isinstance(model, MemoryHMM):
        joint = (model.memory.movedim(cell, 0) for cell in range(model.n_cells))
        values = torch.stack([table.reshape(len(table), -1).sum(1) for table in joint])
    weights = values.repeat_interleave(model.n_states // len(values), 0).T * states
    return torch.special.entr(model.emission.flatten(1) @ weights.flatten()).sum().item()


@Measurement("majority_rate", "redraws", phase="exact model")
def balance(task: Task) -> dict:
    """The share of the more frequent test label, and how often μ was drawn again."""
    share = task.test.labels.double().mean().item()
    return dict(majority_rate=max(share, 1 - share), redraws=task.redraws)


@Measurement("divergence", phase="head tuning")
def divergence(spec: TrialSpec, task: Task, exact: Tensor, outputs: Tensor) -> dict:
    """KL divergence from the exact distribution at the mask to the network's, nats, mean over test inputs."""
    network, exact = (task.split(probs[:, 0].cpu())[2] for probs in (outputs, exact))
    logs = network[:, : spec.n_tokens].double().log()
    return dict(divergence=F.kl_div(logs, exact, reduction="batchmean").item())


def _tuned_heads(spec: TrialSpec, task: Task, probs: Tensor, seed: int) -> dict[str, float]:
    """Validation and test accuracies of a linear head at the mask and of an attention head, tuned on `probs`."""
    (train, *rest), (labels, *truths), plan = task.split(probs), task.split(task.labels), spec.tuning()
    learned = spec.attention_positions == "learned"
    head = tuning.tune_head(train[:, 0], labels, plan, seed)
    attention = tuning.tune_attention(train, labels, plan, seed, spec.attention_heads, learned)
    accuracies = {}
    for part, inputs, truth in zip(("validation_", ""), rest, truths, strict=True):
        accuracies[f"{part}head_accuracy"] = tuning.accuracy(head, inputs[:, 0], truth)
        accuracies[f"{part}attention_accuracy"] = tuning.accuracy(attention, inputs, truth)
    return accuracies


HEADS = "head_accuracy", "attention_accuracy"


@Measurement(*HEADS, *(f"validation_{name}" for name in HEADS), phase="head tuning")
def heads(spec: TrialSpec, task: Task, outputs: Tensor, seeds: Seeds) -> dict:
    """Accuracies of the heads on the network's distributions."""
    return _tuned_heads(spec, task, outputs, seeds["tuning"])


@Measurement(*(f"exact_{name}" for name in HEADS), phase="head tuning")
def exact_heads(spec: TrialSpec, task: Task, exact: Tensor, seeds: Seeds) -> dict:
    """Test accuracies of the same heads on the exact G."""
    found = _tuned_heads(spec, task, exact.float(), seeds["tuning"])
    return {f"exact_{name}": found[name] for name in HEADS}


# The exact ladder: head and prompt tuning where the pretrained model is Ḡ itself, beside what the theorems build. No
# network is pretrained, so what tuning falls short of here is not the network's fault.


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
class ExactTrial:
    """Test accuracies at one size |H|: of the more frequent label, of what was trained, and of what a theorem builds.

    `theorem_3_3` and `theorem_3_6` are None where the assumption does not certainly hold, and where the labels are not
    those of the task's μ; `refusal` is why. `n_essential` is the size of the set H* of Theorem 3.6. `prompt` is the
    trained u: None, with its accuracy, where P[H_0] is zero in some state, as (3.3) divides by it.
    """

    n_states: int
    seed: int
    majority: float
    head: float
    prompt_and_head: float | None
    theorem_3_3: Built | None
    theorem_3_6: Built | None
    n_essential: int | None
    refusal: str
    prompt: list[float] | None


def ladder_plan(preset: str) -> tuning.Tuning:
    """How heads and prompts are tuned on the exact Ḡ. ValueError for an unknown preset."""
    numbers = LADDER_NUMBERS[one_of("preset", preset, LADDER_NUMBERS)]
    return tuning.Tuning(numbers["epochs"], numbers["batch"], numbers["head_rate"], numbers["prompt_rate"])


def exact_trial(n_states: int, seed: int, preset: str = "quick") -> ExactTrial:
    """A trial without a network, on a model of appendix E and a task as in (3.1): a head on the exact G_1, and a prompt
    with a head on Ḡ_2.

    ValueError for a size below 1 or an unknown preset.
    """
    plan, numbers = ladder_plan(preset), LADDER_NUMBERS[preset]
    model = random_hmm(n_states, seed=seed)
    task = draw_task(model, numbers["length"], (numbers["train"], 0, numbers["test"]), seed, "before")
    return tune_on_exact_outputs(model, task, masked_token_probs(model, task.tokens)[:, 0], plan, seed)


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


def tune_on_exact_outputs(
    model: HMM, task: Task, probs: Tensor, plan: tuning.Tuning, seed: int, rule: str = "before"
) -> ExactTrial:
    """What can be had from the exact Ḡ on a task.

    The head of the theory and the chain from which a prompt is read as in (3.3) are those of the label rule.

    Args:
        probs: the exact distribution at the first token, (n, X).
        rule: the label rule by which the task was drawn, as in `draw_task`.
    """
    theory = LABEL_RULES[one_of("rule", rule, LABEL_RULES)]
    origin = theory.origin(model)
    (train_labels, _, labels), (train, _, test) = task.split(task.labels), task.split(probs)
    train_posteriors, _, posteriors = task.split(task.posteriors)

    def behind(prompt: Tensor) -> Tensor:
        return tuning.probs_behind_prompt(origin, posteriors, prompt)

    head = tuning.tune_head(train, train_labels, plan, seed)
    prompt = linear = prompted = None
    if origin.initial.all():
        prompt, head_behind = tuning.tune_exact_prompt(origin, train_posteriors, train_labels, plan, seed)
    refusal = "the labels are not those of the task's μ"
    if task.has_labels_of_mu():
        essential = essential_states(origin, task.mu)
        linear, refusal = built_if_certain(theory.head, model, task.mu)
        prompted, _ = built_if_certain(theorem_3_6, origin, task.mu, essential) if essential else (None, "")
    share = labels.double().mean().item()
    return ExactTrial(
        n_states=model.n_states,
        seed=seed,
        majority=max(share, 1 - share),
        head=tuning.accuracy(head, test, labels),
        prompt_and_head=None if prompt is None else tuning.accuracy(head_behind, behind(prompt), labels),
        theorem_3_3=linear and Built.judge(linear, test, labels),
        theorem_3_6=prompted and Built.judge(prompted[1], behind(prompted[0]), labels),
        n_essential=prompted and len(essential),
        refusal=refusal,
        prompt=None if prompt is None else prompt.tolist(),
    )


LADDER = "ladder_head_accuracy", "ladder_prompt_accuracy", "built_head_accuracy", "built_prompt_accuracy"


@Measurement(*LADDER, phase="exact ladder", vanilla=True)
def exact_ladder(spec: TrialSpec, model: HMM, task: Task, exact: Tensor, seeds: Seeds) -> dict:
    """What can be had from the exact Ḡ: by tuning in more passes, and by what the theorems build."""
    found = tune_on_exact_outputs(model, task, exact[:, 0], ladder_plan(spec.preset), seeds["tuning"], spec.labels)
    built = (one and one.accuracy for one in (found.theorem_3_3, found.theorem_3_6))
    return dict(zip(LADDER, (found.head, found.prompt_and_head, *built), strict=True))


@Measurement(vanilla=True, on_request=True, exact_prompt_accuracy=Share | None)
def exact_prompt(spec: TrialSpec, model: HMM, task: Task, exact: Tensor, seeds: Seeds) -> dict:
    """Accuracy behind one prompt vector on the exact Ḡ, tuned with the passes, batches and rates of the network's."""
    found = tune_on_exact_outputs(model, task, exact[:, 0], spec.tuning(), seeds["tuning"], spec.labels)
    return dict(exact_prompt_accuracy=found.prompt_and_head)


# Tuned prompts


@Measurement("prompt_accuracy", "validation_prompt_accuracy", phase="prompt tuning", vanilla=True)
def tuned_prompt(task: Task, tuned: Tuned) -> dict:
    """Accuracies behind a tuned prompt, or with what else the spec's tuner has tuned."""
    (_, *rest), (_, *truths) = task.split(task.tokens), task.split(task.labels)
    names = ("validation_prompt_accuracy", "prompt_accuracy")
    return {
        name: tuning.accuracy(tuned.head, tuned.probs(tokens), truth)
        for name, tokens, truth in zip(names, rest, truths, strict=True)
    }


def _accuracy_behind(network: Module, task: Task, spec: TrialSpec, seed: int, prompt: Tensor | None = None) -> float:
    """Test accuracy of a linear head at the mask, tuned behind a prompt that stays as it is, or without one."""
    (train, _, test), (labels, _, truth) = task.split(task.tokens), task.split(task.labels)
    behind = [tuning.all_probs_at_mask(network, tokens, prompt) for tokens in (train, test)]
    return tuning.accuracy(tuning.tune_head(behind[0], labels, spec.tuning(), seed), behind[1], truth)


@Measurement("untrained_prompt_accuracy", phase="prompt tuning", vanilla=True, prompts=True)
def untrained_prompt(spec: TrialSpec, network: Module, task: Task, seeds: Seeds) -> dict:
    """The accuracy of a head behind a prompt left as it was drawn."""
    prompt = tuning.initial_prompt(network, spec.prompt_length, seeds["tuning"], spec.prompt_start)
    return dict(untrained_prompt_accuracy=_accuracy_behind(network, task, spec, seeds["tuning"], prompt))


AT_A_STEP = as_type({"loss": Amount, "head": Share, "prompt": Share})


@Measurement(vanilla=True, prompts=True, on_request=True, on_the_way=dict[str, AT_A_STEP])
def on_the_way(
    spec: TrialSpec,
    model: HMM,
    task: Task,
    network: Module,
    milestones: dict[int, dict],
    seeds: Seeds,
    before_step: Callable,
) -> dict:
    """Masked-token loss (nats), and accuracies of a head and of a tuned prompt, after each tenth of the pretraining."""
    (train, _, tokens), (labels, _, truth) = task.split(task.tokens), task.split(task.labels)
    on_its_way, seed, table = copy.deepcopy(network), seeds["tuning"], {}
    how = spec.prompt_length, spec.tuning(), seed, spec.prompt_start, before_step
    for step, weights in milestones.items():
        on_its_way.load_state_dict(weights)
        prompt, head = tuning.tune_prompt(on_its_way, train, labels, *how)
        table[str(step)] = dict(
            loss=masked_losses(spec, model, on_its_way, seeds)["network_loss"],
            head=_accuracy_behind(on_its_way, task, spec, seed),
            prompt=tuning.accuracy(head, tuning.all_probs_at_mask(on_its_way, tokens, prompt), truth),
        )
    return dict(on_the_way=table)
