"""One trial of Section 5: a random model, a network pretrained on its text, a task, and what is measured of them.

A trial is fixed by its `TrialSpec`. Exact quantities are computed on the CPU in float64, the network on any device.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hmmlib import __version__, backend
from hmmlib.experiments import labels, provenance
from hmmlib.experiments.beyond import ON_REQUEST
from hmmlib.experiments.measurements import MEASUREMENTS, Measurement, measured_names, measurements_of
from hmmlib.experiments.specs import (
    Amount,
    Count,
    Hexadecimal,
    Seconds,
    ShareOfTest,
    ShareOfValidation,
    TrialSpec,
)
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert, checkpoints, readers, tuning
from hmmlib.training.adapters import Tuned, tune
from hmmlib.training.pretraining import pretrain
from hmmlib.training.tuning import Tuning
from hmmlib.validation import integer, of_type, one_of


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
    - `ladder_…`: a head, and one prompt vector with a head, tuned on the exact Ḡ in more passes
      (`presets.LADDER_NUMBERS`). `built_…`: the head of Theorem 3.3, prompt and head of Theorem 3.6, also on the exact Ḡ.
    - `divergence`: from the exact distribution at the mask to the network's. `backbone`: the network's fingerprint.
    - `added`: what later measurements gave, by name. Each is an attribute too, None in results that lack it.
    """

    spec: TrialSpec
    head_accuracy: ShareOfTest
    prompt_accuracy: ShareOfTest | None
    attention_accuracy: ShareOfTest
    exact_head_accuracy: ShareOfTest
    exact_attention_accuracy: ShareOfTest
    ladder_head_accuracy: ShareOfTest | None
    ladder_prompt_accuracy: ShareOfTest | None
    built_head_accuracy: ShareOfTest | None
    built_prompt_accuracy: ShareOfTest | None
    untrained_prompt_accuracy: ShareOfTest | None
    validation_head_accuracy: ShareOfValidation
    validation_prompt_accuracy: ShareOfValidation | None
    validation_attention_accuracy: ShareOfValidation
    majority_rate: ShareOfTest
    redraws: Count
    best_loss: Amount
    network_loss: Amount
    divergence: Amount
    backbone: Hexadecimal
    seeds: dict[str, int]
    seconds: dict[str, Seconds]
    environment: dict
    added: dict[str, float | int | str | dict | None] = field(default_factory=dict)

    def __getattr__(self, name: str) -> float | str | dict | None:
        """What a later measurement gave; None where this result lacks it."""
        if name in measured_names():
            return self.added.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def excess_loss(self) -> float:
        """How far the network's masked-token loss lies above the least there is, nats."""
        return self.network_loss - self.best_loss

    @property
    def one_class(self) -> bool:
        """Whether all test labels agree."""
        return self.majority_rate == 1


def trial_seeds(seed: int) -> dict[str, int]:
    """Independent seeds for the parts of a trial, all made from one seed."""
    names = ("model", "network", "pretraining", "task", "tuning", "evaluation")
    state = np.random.SeedSequence(integer("seed", seed, 0)).generate_state(len(names))
    return dict(zip(names, state.tolist(), strict=True))


def draw_model(spec: TrialSpec) -> HMM | MemoryHMM:
    """The model of appendix E that a trial is about."""
    seed = trial_seeds(of_type("spec", spec, TrialSpec).seed)["model"]
    if spec.n_memory == 1:
        return random_hmm(spec.n_states, spec.n_tokens, seed, spec.temperature)
    how = dict(temperature=spec.temperature, permutations=spec.size if spec.permutations == "joint" else None)
    return random_memory_hmm(spec.n_memory, spec.n_states, spec.n_tokens, seed, **how)


def build_network(spec: TrialSpec) -> torch.nn.Module:
    """The network before training; its weights are those of seed 0 in every trial if they are "shared"."""
    seed = trial_seeds(0 if spec.weights == "shared" else spec.seed)["network"]
    return bert.build(spec.shape(), spec.n_tokens, seed)


def draw_trial_task(spec: TrialSpec, model: HMM | MemoryHMM) -> labels.Task:
    """The downstream task of a trial."""
    sizes = (of_type("spec", spec, TrialSpec).train, spec.validation, spec.test)
    return labels.draw_task(model, spec.task_length, sizes, trial_seeds(spec.seed)["task"], spec.labels, spec.places)


def network_key(spec: TrialSpec, device: torch.device) -> str:
    """A key of all that a pretrained network depends on: spec, code, and the machine as far as it changes numbers."""
    here = environment(device, spec.precision)
    facts = [here[name] for name in ("device", "precision", "machine", "threads", "torch", "transformers")]
    words = repr((spec.network_hash, provenance.library_digest(provenance.OF_NETWORKS), facts))
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Parts:
    """Functions that make parts of a trial in the place of the library's own; what is None is the library's.

    - `model(spec)`: the model that writes the text.
    - `network(spec, model)`: a network that has learned from its text, as `readers.as_reader` takes it. None is pretrained.
    - `task(spec, model)`: inputs, labels and posteriors.
    - `tuner(network, tokens, labels, plan, seed, tick)`: what is tuned on the training examples, as `adapters.tune` gives it.

    The spec says in its field `own` by what name such a trial is stored. TypeError for a part that is no function.
    """

    model: Callable[[TrialSpec], HMM | MemoryHMM] | None = None
    network: Callable[[TrialSpec, HMM | MemoryHMM], torch.nn.Module | readers.Reader] | None = None
    task: Callable[[TrialSpec, HMM | MemoryHMM], labels.Task] | None = None
    tuner: Callable[[readers.Reader, Tensor, Tensor, Tuning, int, Callable[[], None]], Tuned] | None = None

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if isinstance(part, torch.nn.Module) or not (part is None or callable(part)):
                raise TypeError(f"{name} must be a function, not {type(part).__name__}")


class Trial:
    """What a trial has, stage by stage (`measurements.STAGES`): each is made when first asked for, and held from then on.

    With a folder `networks` the pretrained network is stored there, and is taken from there where the same code has made it
    on such a machine. Where `milestones` are wanted it is pretrained here all the same; where pretraining goes on from a
    checkpoint, only the milestones after it are had.
    """

    def __init__(
        self,
        spec: TrialSpec,
        report: Callable[[str, float], None] | None = None,
        device: str = "auto",
        checkpoint: Path | None = None,
        networks: Path | None = None,
        parts: Parts | None = None,
        measurements: Iterable[Measurement] = (),
    ):
        self.spec, self.parts = of_type("spec", spec, TrialSpec), of_type("parts", parts or Parts(), Parts)
        if (self.parts != Parts()) != bool(spec.own):
            found = "there are none" if spec.own else "it names none"
            raise ValueError(f"parts and the spec's own must go together: own is {spec.own!r}, and {found}")
        self.seeds, self.device = trial_seeds(spec.seed), backend.pick(device)
        self.checkpoint, self.on_report = checkpoint, report
        self.stored_network = networks and networks / f"{network_key(spec, self.device)}.safetensors"
        self.measurements = [one for one in measurements if one.has(spec)]
        self.stages = {stage for one in self.measurements for stage in one.stages}
        self.milestones: dict[int, dict[str, Tensor]] = {}
        self.seconds, self._begun, self.tick = {}, time.perf_counter(), lambda: None

    def report(self, phase: str, share: float) -> None:
        """Say how far the trial is; KeyboardInterrupt where it is to end."""
        backend.stop_if_interrupted()
        if self.on_report:
            self.on_report(phase, share)

    def end_phase(self, phase: str) -> None:
        """Note the seconds since the phase before ended."""
        now = time.perf_counter()
        self.seconds[phase], self._begun = round(now - self._begun, 2), now
        self.report(phase, 1.0)

    @cached_property
    def model(self) -> HMM | MemoryHMM:
        return (self.parts.model or draw_model)(self.spec)

    @cached_property
    def task(self) -> labels.Task:
        return (self.parts.task or draw_trial_task)(self.spec, self.model)

    @cached_property
    def exact(self) -> Tensor:
        return masked_token_probs(self.model, self.task.tokens)

    @cached_property
    def network(self) -> torch.nn.Module | readers.Reader:
        if self.parts.network:
            return readers.as_reader(self.parts.network(self.spec, self.model))
        network, plan, path = build_network(self.spec).to(self.device), self.spec.pretraining(), self.stored_network
        milestones, done = "milestones" in self.stages, None

        def report(step: int, loss: float) -> None:
            nonlocal done
            before, done = step if done is None else done, step + 1
            if milestones and before * 10 // plan.steps < done * 10 // plan.steps:
                self.milestones[done] = {name: t.detach().cpu().clone() for name, t in network.state_dict().items()}
            self.report("pretraining", done / plan.steps)

        if path and not milestones and (found := checkpoints.load(path, {})):
            network.load_state_dict(found[0])
            return network
        pretrain(network, self.model, plan, self.seeds["pretraining"], report, self.checkpoint)
        if path and not path.exists():
            checkpoints.save(path, network.state_dict(), {})
        return network

    @cached_property
    def tuned(self) -> Tuned:
        (tokens, *_), (truth, *_) = self.task.split(self.task.tokens), self.task.split(self.task.labels)
        spec, how = self.spec, (tokens, truth, self.spec.tuning(), self.seeds["tuning"])
        if self.parts.tuner:
            return self.parts.tuner(readers.as_reader(self.network), *how, self.tick)
        return tune(spec.tuner, self.network, *how, spec.prompt_length, spec.prompt_start, spec.rank, tick=self.tick)

    @cached_property
    def outputs(self) -> Tensor:
        return tuning.all_probs(self.network, self.task.tokens)

    def measure(self) -> dict[str, float | int | str | dict | None]:
        """What its measurements give, by name."""
        measured = {}
        for phase, group in groupby(self.measurements, key=lambda one: one.phase):
            self.tick = lambda phase=phase: self.report(phase, 1.0)
            for one in group:
                found = one.function(**{stage: getattr(self, stage) for stage in one.stages})
                if set(found) != set(one.names):
                    raise RuntimeError(f"{one.function.__name__} gives {', '.join(found)}, not {', '.join(one.names)}")
                measured |= found
            self.end_phase(phase)
        return measured


def on_request(also: Sequence[str]) -> list[str]:
    """Names of measurements on request. ValueError for another name."""
    return [one_of("each of also", name, ON_REQUEST) for name in also]


@backend.interrupts_between_steps()
def run_trial(
    spec: TrialSpec,
    report: Callable[[str, float], None] | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
    also: Sequence[str] = (),
    networks: Path | None = None,
    parts: Parts | None = None,
) -> TrialResult:
    """Run one trial: all measurements but those on request. The same spec gives the same numbers on the same machine (threads
    and versions included).

    Args:
        report: called as report(phase, share done) while it runs. What it raises ends the trial.
        device: for the network: auto, cpu, cuda, cuda:N or mps.
        checkpoint: where pretraining keeps a checkpoint, from which a broken-off trial goes on. It stays:
            the caller deletes it when the result is stored.
        also: names of measurements on request (`ON_REQUEST`).
        networks: a folder where pretrained networks are kept, for other trials that differ in their task alone.
        parts: what of the trial is one's own, for a spec with a name for it in its field `own`.

    Raises:
        KeyboardInterrupt: it was interrupted, and ended after a step.
        FloatingPointError: pretraining diverges.
        ValueError: there is no such device or measurement, or the checkpoint is another run's.
    """
    asked = {one.function for one in measurements_of(on_request(also))}
    wanted = [one for one in MEASUREMENTS if not one.on_request or one.function in asked]
    trial = Trial(spec, report, device, checkpoint, networks, parts, wanted)
    network = trial.network
    trial.end_phase("pretraining")
    _ = trial.exact  # its seconds are the exact model's
    measured = dict.fromkeys(name for one in wanted for name in one.names) | trial.measure()
    if bert.fingerprint(network) != measured["backbone"]:
        raise RuntimeError("tuning changed the network, which must stay frozen")
    return TrialResult(
        spec=spec,
        **{name: measured.pop(name) for name in ORIGINAL},
        seeds=trial.seeds,
        seconds=trial.seconds,
        environment=environment(trial.device, spec.precision) | {"date": _today()},
        added=measured,
    )


@backend.interrupts_between_steps()
def measure(
    result: TrialResult,
    names: Sequence[str],
    report: Callable[[str, float], None] | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
    networks: Path | None = None,
    parts: Parts | None = None,
) -> TrialResult:
    """The result with these measurements added. No more of the trial is run than they need; all else in the result stays.

    Args:
        names: those of measurements that came after the result was stored. The others are as `run_trial` takes them.

    ValueError for a name that no measurement gives, for one that every result has, and where a network is needed and the one
    that is pretrained here is not the result's, as other machines and versions make other networks.
    """
    wanted = measurements_of(names)
    if fixed := sorted(set(names) & set(ORIGINAL)):
        raise ValueError(f"names must be those of later measurements: every result has {', '.join(fixed)}")
    threads = torch.get_num_threads()
    torch.set_num_threads(
        of_type("result", result, TrialResult).environment["threads"]
    )  # with others the last digits differ
    try:
        trial = Trial(result.spec, report, device, checkpoint, networks, parts, wanted)
        if {"network", "outputs", "tuned"} & trial.stages:
            if (backbone := bert.fingerprint(trial.network)) != result.backbone:
                if checkpoint:
                    checkpoints.remove(checkpoint)
                made = ", ".join(f"{name} {result.environment.get(name)}" for name in ("device", "machine", "torch"))
                both = f"the network that is pretrained here is {backbone}, the result's is {result.backbone}"
                raise ValueError(f"{both}, from {made}")
            trial.end_phase("pretraining")
        measured = dict.fromkeys(name for one in wanted for name in one.names) | trial.measure()
    finally:
        torch.set_num_threads(threads)
    here = environment(trial.device, result.spec.precision)
    source = f"{_today()}, commit {here['commit']}, library {here['library']}"
    return dataclasses.replace(
        result,
        added=result.added | measured,
        seconds=result.seconds | trial.seconds | result.seconds,  # those of the first call count
        environment=result.environment | {f"{name} measured": source for name in measured},
    )


_NOT_MEASURED = {"spec", "seeds", "seconds", "environment", "added"}
ORIGINAL = tuple(one.name for one in dataclasses.fields(TrialResult) if one.name not in _NOT_MEASURED)
"""What every result holds, in the order of its file."""


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def environment(device: torch.device | None = None, precision: str = "single") -> dict[str, str | int | None]:
    """What a result depends on besides its spec."""
    device = backend.pick() if device is None else of_type("device", device, torch.device)
    bits = backend.sixteen_bits(device, precision)
    return {
        "device": backend.name(device),
        "precision": str(bits or torch.float32).removeprefix("torch."),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "hmmlib": __version__,
        "commit": provenance.git_commit(),
        "library": provenance.library_digest(),
    }
