"""One trial of Section 5: a random model, a network pretrained on its text, a task, and what tuning makes of it.

A trial is fixed by its `TrialSpec`. Exact quantities are computed on the CPU in float64, the network on any device.
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from hmmlib import backend
from hmmlib.experiments import labels
from hmmlib.experiments.ladder import ladder_plan, rung
from hmmlib.experiments.specs import CHOICES, TrialSpec
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert, tuning
from hmmlib.training.pretraining import pretrain
from hmmlib.validation import at_least, of_type, one_of


@dataclass(frozen=True)
class TrialResult:
    """What a trial measured. Losses and divergence in nats; accuracies and rates as shares; `seconds` by phase, in the call
    that finished it.

    Accuracies are on the test examples, after the last step of tuning. None stands where a quantity does not exist: prompts
    are tuned on vanilla models only, and a theorem builds a head or prompt only where its assumptions hold.

    - `head_accuracy`: a linear head on the network's distribution at the mask. `prompt_accuracy`: the same behind a tuned
      prompt; `untrained_prompt_accuracy`: behind one left as it was drawn. `attention_accuracy`: an attention head on the
      distributions at all positions.
    - `exact_…`: the same heads, tuned in the same way, on the exact G.
    - `ladder_…`: a head, and one prompt vector with a head, tuned on the exact Ḡ in more passes (`presets.LADDER`).
      `built_…`: the head of Theorem 3.3, prompt and head of Theorem 3.6, also on the exact Ḡ.
    - `divergence`: from the exact distribution at the mask to the network's. `backbone`: the network's fingerprint.
    """

    spec: TrialSpec
    head_accuracy: float
    prompt_accuracy: float | None
    attention_accuracy: float
    exact_head_accuracy: float
    exact_attention_accuracy: float
    ladder_head_accuracy: float | None
    ladder_prompt_accuracy: float | None
    built_head_accuracy: float | None
    built_prompt_accuracy: float | None
    untrained_prompt_accuracy: float | None
    validation_head_accuracy: float
    validation_prompt_accuracy: float | None
    validation_attention_accuracy: float
    majority_rate: float
    redraws: int
    best_loss: float
    network_loss: float
    divergence: float
    backbone: str
    seeds: dict[str, int]
    seconds: dict[str, float]
    environment: dict[str, str | int | None]

    @property
    def excess_loss(self) -> float:
        """How far the network's masked-token loss lies above the least there is, nats."""
        return self.network_loss - self.best_loss

    @property
    def one_class(self) -> bool:
        """Whether all test labels agree, so that there was nothing to tell apart."""
        return self.majority_rate == 1


def trial_seeds(seed: int) -> dict[str, int]:
    """Independent seeds for the parts of a trial, all from one."""
    names = ("model", "network", "pretraining", "task", "tuning", "evaluation")
    return dict(
        zip(names, np.random.SeedSequence(at_least("seed", seed, 0)).generate_state(len(names)).tolist(), strict=True)
    )


def draw_model(spec: TrialSpec) -> HMM | MemoryHMM:
    """The model of appendix E that a trial is about."""
    seed = trial_seeds(of_type("spec", spec, TrialSpec).seed)["model"]
    if spec.n_memory == 1:
        return random_hmm(spec.n_states, spec.n_tokens, seed, spec.temperature)
    count = spec.size if spec.permutations == "joint" else None
    return random_memory_hmm(
        spec.n_memory, spec.n_states, spec.n_tokens, seed, temperature=spec.temperature, permutations=count
    )


def build_network(spec: TrialSpec) -> torch.nn.Module:
    """The network before training; its weights are those of seed 0 in every trial if they are "shared"."""
    seed = trial_seeds(0 if of_type("spec", spec, TrialSpec).weights == "shared" else spec.seed)["network"]
    return bert.build(spec.shape(), spec.n_tokens, seed)


def draw_trial_task(spec: TrialSpec, model: HMM | MemoryHMM) -> labels.Task:
    """The downstream task of a trial."""
    sizes = (of_type("spec", spec, TrialSpec).train, spec.validation, spec.test)
    return labels.draw_task(model, spec.task_length, sizes, trial_seeds(spec.seed)["task"], spec.labels, spec.places)


def run_trial(
    spec: TrialSpec,
    report: Callable[[str, float], None] | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
) -> TrialResult:
    """Run one trial. The same spec gives the same numbers on the same machine (threads and versions included).

    Args:
        report: called as report(phase, share done) while it runs. What it raises ends the trial.
        device: for the network: auto, cpu, cuda, cuda:N or mps.
        checkpoint: where pretraining keeps a checkpoint, from which a broken-off trial goes on. It stays:
            the caller deletes it when the result is stored.

    Raises:
        FloatingPointError: pretraining diverges.
        ValueError: there is no such device, or the checkpoint is another run's.
    """
    tell = report or (lambda phase, share: None)
    place, seeds, clock = backend.pick(device), trial_seeds(of_type("spec", spec, TrialSpec).seed), _Clock(tell)

    model, network = draw_model(spec), build_network(spec).to(place)
    plan = spec.pretraining()
    pretrain(
        network,
        model,
        plan,
        seeds["pretraining"],
        lambda step, _: tell("pretraining", (step + 1) / plan.steps),
        checkpoint,
    )
    clock.lap("pretraining")

    network_loss, best_loss = bert.masked_losses(
        network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"]
    )
    task = draw_trial_task(spec, model)
    exact = masked_token_probs(model, task.tokens)
    clock.lap("exact model")

    how, backbone = spec.tuning(), bert.fingerprint(network)
    outputs = tuning.all_probs(network, task.tokens)
    measured = _heads(spec, task, exact, outputs, how, seeds["tuning"])
    clock.lap("head tuning")

    if isinstance(model, HMM):
        exactly = rung(model, task, exact[:, 0], ladder_plan(spec.preset), seeds["tuning"], spec.labels)
        measured |= dict(
            ladder_head_accuracy=exactly.head,
            ladder_prompt_accuracy=exactly.prompt_and_head,
            built_head_accuracy=exactly.theorem_3_3 and exactly.theorem_3_3.accuracy,
            built_prompt_accuracy=exactly.theorem_3_6 and exactly.theorem_3_6.accuracy,
        )
        clock.lap("exact ladder")
        measured |= _prompts(spec, network, task, how, seeds["tuning"], lambda: tell("prompt tuning", 1.0))
        clock.lap("prompt tuning")
    if bert.fingerprint(network) != backbone:
        raise RuntimeError("tuning changed the network, which must stay frozen")

    share = task.split(task.labels)[2].double().mean().item()
    test, exact_test = task.split(outputs[:, 0, : spec.n_tokens].cpu())[2], task.split(exact[:, 0])[2]
    result = TrialResult(
        spec=spec,
        **{name: measured.get(name) for name in TrialResult.__annotations__ if name.endswith("_accuracy")},
        majority_rate=max(share, 1 - share),
        redraws=task.redraws,
        best_loss=best_loss,
        network_loss=network_loss,
        divergence=torch.nn.functional.kl_div(test.double().log(), exact_test, reduction="batchmean").item(),
        backbone=backbone,
        seeds=seeds,
        seconds=clock.laps,
        environment=environment(place, spec.precision),
    )
    return result


class _Clock:
    """Seconds of each phase, one after the other; the end of each is told."""

    def __init__(self, tell: Callable[[str, float], None]):
        self.laps, self._last, self._tell = {}, time.perf_counter(), tell

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.laps[phase], self._last = round(now - self._last, 2), now
        self._tell(phase, 1.0)


def _heads(spec, task, exact, outputs, how, seed) -> dict[str, float]:
    """Accuracies of the linear and the attention head, on the network's distributions and on the exact ones."""
    train, validation, test = task.split(task.labels)
    place = spec.attention_positions == "learned"
    found = {}
    for kind, probs in (("", outputs), ("exact_", exact.float())):
        parts = task.split(probs)
        head = tuning.tune_head(parts[0][:, 0], train, how, seed)
        attention = tuning.tune_attention(parts[0], train, how, seed, spec.attention_heads, place)
        found[f"{kind}head_accuracy"] = tuning.accuracy(head, parts[2][:, 0], test)
        found[f"{kind}attention_accuracy"] = tuning.accuracy(attention, parts[2], test)
        if not kind:
            found["validation_head_accuracy"] = tuning.accuracy(head, parts[1][:, 0], validation)
            found["validation_attention_accuracy"] = tuning.accuracy(attention, parts[1], validation)
    return found


def _prompts(spec, network, task, how, seed, tick) -> dict[str, float]:
    """Accuracies behind a tuned prompt, and behind one left as it was drawn."""
    tokens, (train, validation, test) = task.split(task.tokens), task.split(task.labels)
    prompt, head = tuning.tune_prompt(network, tokens[0], train, spec.prompt_length, how, seed, spec.prompt_start, tick)
    behind = [tuning.all_probs_at_mask(network, part, prompt) for part in tokens[1:]]
    drawn = tuning.initial_prompt(network, spec.prompt_length, seed, spec.prompt_start)
    behind_drawn = [tuning.all_probs_at_mask(network, part, drawn) for part in (tokens[0], tokens[2])]
    untrained = tuning.tune_head(behind_drawn[0], train, how, seed)
    return dict(
        prompt_accuracy=tuning.accuracy(head, behind[1], test),
        validation_prompt_accuracy=tuning.accuracy(head, behind[0], validation),
        untrained_prompt_accuracy=tuning.accuracy(untrained, behind_drawn[1], test),
    )


@cache
def git_commit() -> str | None:
    """The commit of the checkout that this module lies in, with `+` where tracked files differ from it; None elsewhere.

    As it was when first asked for: a later commit is not what this process runs.
    """
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment(device: torch.device | None = None, precision: str = "single") -> dict[str, str | int | None]:
    """What a result depends on besides its spec."""
    device = backend.pick() if device is None else of_type("device", device, torch.device)
    kind = backend.half(device) if one_of("precision", precision, CHOICES["precision"]) == "half" else None
    return {
        "device": backend.name(device),
        "precision": str(kind or torch.float32).removeprefix("torch."),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "commit": git_commit(),
    }
