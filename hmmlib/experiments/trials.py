"""One trial of Section 5: a random model, a network pretrained on its text, a task, and what is measured of them.

A trial is fixed by its `TrialSpec`. Exact quantities are computed on the CPU in float64, the network on any device.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hmmlib import backend
from hmmlib.experiments import labels, measurements, provenance
from hmmlib.experiments.measurements import Measurement, Split
from hmmlib.experiments.movement import ON_REQUEST
from hmmlib.experiments.specs import Amount, Count, Hexadecimal, Seconds, Share, TrialSpec
from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training import bert, checkpoints, readers, tuning
from hmmlib.training.adapters import Tuned, tune
from hmmlib.training.pretraining import pretrain
from hmmlib.validation import of_type, one_of


@dataclass(frozen=True, repr=False)
class TrialResult:
    """What a trial measured. Losses and divergence in nats; accuracies and rates as shares; `seconds` by phase, in the
    call that finished it.

    Accuracies are on the test examples, after the last step of tuning. None stands where a quantity does not exist:
    prompts are tuned on vanilla models only, and a theorem builds a head or prompt only where its assumptions hold.

    - `head_accuracy`: a linear head on the network's distribution at the mask. `prompt_accuracy`: the same behind a
      tuned prompt; `untrained_prompt_accuracy`: behind one left as it was drawn. `attention_accuracy`: an attention
      head on the distributions at all positions.
    - `exact_…`: the same heads, tuned in the same way, on the exact G.
    - `ladder_…`: a head, and one prompt vector with a head, tuned on the exact Ḡ in more passes
      (`presets.LADDER_NUMBERS`). `built_…`: the head of Theorem 3.3, prompt and head of Theorem 3.6, also on that Ḡ.
    - `divergence`: from the exact distribution at the mask to the network's. `backbone`: the network's fingerprint.
    - `added`: what later measurements gave, by name. Each is an attribute, and a column of the table, too.
    """

    spec: TrialSpec
    head_accuracy: Share
    prompt_accuracy: Share | None
    attention_accuracy: Share
    exact_head_accuracy: Share
    exact_attention_accuracy: Share
    ladder_head_accuracy: Share | None
    ladder_prompt_accuracy: Share | None
    built_head_accuracy: Share | None
    built_prompt_accuracy: Share | None
    untrained_prompt_accuracy: Share | None
    validation_head_accuracy: Share
    validation_prompt_accuracy: Share | None
    validation_attention_accuracy: Share
    majority_rate: Share
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
        if name in measurements.measured_names():
            return self.added.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        names = "head_accuracy", "prompt_accuracy", "attention_accuracy", "majority_rate"
        shares = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"TrialResult({self.spec.preset}, n_states={self.spec.n_states}, seed={self.spec.seed}: {shares}, …)"

    @property
    def excess_loss(self) -> float:
        """How far the network's masked-token loss lies above the least there is, nats."""
        return self.network_loss - self.best_loss


OTHERS = ("spec", "seeds", "seconds", "environment", "added")
ORIGINAL = tuple(one.name for one in dataclasses.fields(TrialResult) if one.name not in OTHERS)
"""What every result has measured, in the order of its file."""
WITHOUT_NETWORK = {"spec", "seeds", "model", "task", "exact", "beliefs", "before_step"}
"""What a trial has before its network is pretrained."""


def trial_seeds(seed: int) -> dict[str, int]:
    """Independent seeds for the parts of a trial, all made from one seed."""
    names = ("model", "network", "pretraining", "task", "tuning", "evaluation")
    state = np.random.SeedSequence(seed).generate_state(len(names))
    return dict(zip(names, state.tolist(), strict=True))


def draw_model(spec: TrialSpec) -> HMM | MemoryHMM:
    """The model of appendix E that a trial is about."""
    seed = trial_seeds(of_type("spec", spec, TrialSpec).seed)["model"]
    sizes, joint = (spec.n_states, spec.n_tokens), spec.size if spec.permutations == "joint" else None
    if spec.n_memory == 1:
        return random_hmm(*sizes, seed, spec.temperature)
    return random_memory_hmm(spec.n_memory, *sizes, seed, temperature=spec.temperature, permutations=joint)


def build_network(spec: TrialSpec) -> torch.nn.Module:
    """The network before training; its weights are those of seed 0 in every trial if they are "shared"."""
    seed = trial_seeds(0 if spec.weights == "shared" else spec.seed)["network"]
    return bert.build(spec.shape(), spec.n_tokens, seed)


def draw_trial_task(spec: TrialSpec, model: HMM | MemoryHMM) -> labels.Task:
    """The downstream task of a trial."""
    sizes = (of_type("spec", spec, TrialSpec).train, spec.validation, spec.test)
    return labels.draw_task(model, spec.task_length, sizes, trial_seeds(spec.seed)["task"], spec.labels, spec.places)


@dataclass(frozen=True)
class Parts:
    """Functions that make parts of a trial in the place of the library's own; what is None is the library's.

    - `model(spec)`: the model that writes the text. `task(spec, model)`: inputs, labels and posteriors.
    - `network(spec, model)`: a network that has learned from its text, as `readers.as_reader` takes it.
    - `tuner(network, tokens, labels, plan, seed, before_step)`: what is tuned on the training examples,
      as by `adapters.tune`.

    Such a trial is stored under the name in its spec's field `own`. TypeError for a part that is no function.
    """

    model: Callable[[TrialSpec], HMM | MemoryHMM] | None = None
    network: Callable[[TrialSpec, HMM | MemoryHMM], torch.nn.Module | readers.Reader] | None = None
    task: Callable[[TrialSpec, HMM | MemoryHMM], labels.Task] | None = None
    tuner: Callable[[readers.Reader, Tensor, Tensor, tuning.Tuning, int, Callable[[], None]], Tuned] | None = None

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if isinstance(part, torch.nn.Module) or not (part is None or callable(part)):
                raise TypeError(f"{name} must be a function, not {type(part).__name__}")


class Trial:
    """What a trial has, which is what measurements may ask for: each part is made when first needed, and then held.

    With a folder `networks` the pretrained network is stored there, and is taken from there where the same code has
    made it on such a machine; but where `milestones` are wanted, it is pretrained here all the same. These are the
    network's weights after each tenth of its pretraining, by the number of steps: where that goes on from a
    checkpoint, only those after it. `seeds` are those of each random draw, by name.
    """

    def __init__(
        self,
        spec: TrialSpec,
        to_measure: Sequence[Measurement] = (),
        on_progress: Callable[[str, float], None] | None = None,
        device: str = "auto",
        checkpoint: Path | None = None,
        networks: Path | None = None,
        parts: Parts | None = None,
    ):
        self.spec, self.parts = of_type("spec", spec, TrialSpec), of_type("parts", parts or Parts(), Parts)
        if (self.parts != Parts()) != bool(spec.own):
            found = "there are none" if spec.own else "it names none"
            both = "pass parts=Parts(…) and a spec with own='a-name', or neither"
            raise ValueError(f"parts and the spec's own must go together: own is {spec.own!r}, and {found}; {both}")
        self.seeds, self.device = trial_seeds(spec.seed), backend.pick(device)
        self.checkpoint, self.networks, self.to_measure = checkpoint, networks, to_measure
        self.on_progress = on_progress or (lambda phase, share: None)
        self.stages = {stage for one in to_measure if one.has(spec) for stage in one.stages}
        self.milestones, self.seconds, self.phase, self._begun = {}, {}, "pretraining", time.perf_counter()
        if unknown := self.stages - {*dir(self)}:
            raise TypeError(f"a measurement asks for {', '.join(sorted(unknown))}, which no trial has: see Measurement")

    def report(self, phase: str, share: float) -> None:
        """Report how far the trial is; KeyboardInterrupt where it is to end."""
        backend.stop_if_interrupted()
        self.on_progress(phase, share)

    def before_step(self) -> None:
        """To be called now and then by what takes long: it ends the trial where its time is over."""
        self.report(self.phase, 1.0)

    def end_phase(self, phase: str) -> None:
        """Count the seconds since this was last called to a phase."""
        now = time.perf_counter()
        self.seconds[phase], self._begun = round(self.seconds.get(phase, 0.0) + now - self._begun, 2), now
        self.report(phase, 1.0)

    @cached_property
    def model(self) -> HMM | MemoryHMM:
        model = (self.parts.model or draw_model)(self.spec)
        of_type("what Parts.model gives", model, HMM, MemoryHMM)
        if model.n_tokens != self.spec.n_tokens:
            raise ValueError(f"what Parts.model gives has {model.n_tokens} tokens, n_tokens is {self.spec.n_tokens}")
        return model.to("cpu", torch.float64)

    @cached_property
    def task(self) -> labels.Task:
        task = (self.parts.task or draw_trial_task)(self.spec, self.model)
        return of_type("what Parts.task gives", task, labels.Task)

    @cached_property
    def exact(self) -> Tensor:
        """The exact G on the task's inputs, (n, T, X)."""
        return masked_token_probs(self.model, self.task.tokens)

    @cached_property
    def beliefs(self) -> Split:
        """The exact P[H_1 | X_{-1}] of a vanilla model, (n, S)."""
        return self.task.split(posterior(self.model, self.task.tokens, at=1))

    @cached_property
    def network(self) -> torch.nn.Module | readers.Reader:
        """The pretrained network."""
        if self.parts.network:
            return readers.as_reader(self.parts.network(self.spec, self.model))
        network, plan, stored = build_network(self.spec).to(self.device), self.spec.pretraining(), self.stored_network()
        milestones, done = "milestones" in self.stages, None

        def on_step(step: int, loss: float) -> None:
            nonlocal done
            before, done = step if done is None else done, step + 1
            if milestones and before * 10 // plan.steps < done * 10 // plan.steps:
                self.milestones[done] = {name: t.detach().cpu().clone() for name, t in network.state_dict().items()}
            self.report("pretraining", done / plan.steps)

        if stored and not milestones and (found := checkpoints.load(stored, {})):
            network.load_state_dict(found[0])
            return network
        pretrain(network, self.model, plan, self.seeds["pretraining"], on_step, self.checkpoint)
        if stored and not stored.exists():
            checkpoints.save(stored, network.state_dict(), {})
        return network

    def stored_network(self) -> Path | None:
        """A file named by all that the network depends on: spec, code, and the machine as far as it changes numbers."""
        if not self.networks:
            return None
        here = provenance.environment(self.device, self.spec.precision)
        facts = [here[name] for name in ("device", "precision", "machine", "threads", "torch", "transformers")]
        words = repr((self.spec.network_hash, provenance.library_digest(provenance.OF_NETWORKS), facts))
        return self.networks / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.safetensors"

    @cached_property
    def tuned(self) -> Tuned:
        """What is tuned on the network by the spec's tuner, and the head tuned with it."""
        spec, train = self.spec, self.task.train
        how = train.tokens, train.labels, spec.tuning(), self.seeds["tuning"]
        if self.parts.tuner:
            tuned = self.parts.tuner(readers.as_reader(self.network), *how, self.before_step)
            return of_type("what Parts.tuner gives", tuned, Tuned)
        return tune(spec.tuner, self.network, *how, spec.prompt_length, spec.prompt_start, spec.rank, self.before_step)

    @cached_property
    def tuned_head(self) -> LinearHead:
        """That head, in float64 over the model's tokens alone."""
        return LinearHead(self.tuned.head.weights[: self.model.n_tokens].cpu().double())

    @cached_property
    def outputs(self) -> Tensor:
        """The network's distributions on the task's inputs, (n, T, X and special ids)."""
        return tuning.all_probs(self.network, self.task.tokens)

    @cached_property
    def untuned(self) -> Split:
        """The network's distributions at the mask, without what is tuned, (n, X), in float64."""
        return measurements.over_tokens(
            self.task, tuning.all_probs_at_mask(self.network, self.task.tokens), self.model.n_tokens
        )

    @cached_property
    def prompted(self) -> Split:
        """The same with the tuned prompt, or what else the spec's tuner has tuned."""
        return measurements.over_tokens(self.task, self.tuned.probs(self.task.tokens), self.model.n_tokens)

    def run_measurements(self) -> dict[str, float | int | str | dict | None]:
        """What its measurements give, by name; None for those that such trials do not have."""
        measured = {}
        for one in self.to_measure:
            measured |= dict.fromkeys(one.names)
            if one.has(self.spec):
                self.phase = one.phase
                given = {stage: getattr(self, stage) for stage in one.stages}
                measured |= one.with_its_names(one.function(**given))
                self.end_phase(one.phase)
        return measured


def on_request(also: Sequence[str]) -> list[str]:
    """Names of measurements on request, or of later ones, such as a reader's own. ValueError for another name."""
    later = sorted(measurements.measured_names() - {*ORIGINAL, *ON_REQUEST})
    return [one_of("each of also", name, (*ON_REQUEST, *later)) for name in also]


@backend.interrupts_between_steps()
def run_trial(
    spec: TrialSpec,
    on_progress: Callable[[str, float], None] | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
    also: Sequence[str] = (),
    networks: Path | None = None,
    parts: Parts | None = None,
) -> TrialResult:
    """Run one trial: all measurements but those on request. The same spec gives the same numbers on the same machine
    (threads and versions included).

    Args:
        on_progress: called as on_progress(phase, share done) while it runs. What it raises ends the trial.
        device: for the network: auto, cpu, cuda, cuda:N or mps.
        checkpoint: where pretraining keeps a checkpoint, from which a broken-off trial goes on. It stays:
            the caller deletes it when the result is stored.
        also: names of measurements on request (`ON_REQUEST`, and a reader's own).
        networks: a folder where pretrained networks are kept, for other trials that differ in their task alone.
        parts: what of the trial is one's own, for a spec with a name for it in its field `own`.

    Raises:
        KeyboardInterrupt: it was interrupted, and ended after a step.
        FloatingPointError: pretraining diverges.
        ValueError: there is no such device or measurement, or the checkpoint is another run's.
    """
    asked = measurements.measurements_of(on_request(also))
    to_measure = [one for one in measurements.MEASUREMENTS if one in asked or not one.on_request]
    trial = Trial(spec, to_measure, on_progress, device, checkpoint, networks, parts)
    _ = trial.exact  # where model and task do not fit each other, that is an error before the network is pretrained
    network = trial.network
    trial.end_phase("pretraining")
    measured = trial.run_measurements()
    if bert.fingerprint(network) != measured["backbone"]:
        raise RuntimeError("tuning changed the network, which must stay frozen")
    return TrialResult(
        spec=spec,
        **{name: measured.pop(name) for name in ORIGINAL},
        seeds=trial.seeds,
        seconds=trial.seconds,
        environment=provenance.environment(trial.device, spec.precision) | {"date": f"{datetime.now(UTC):%Y-%m-%d}"},
        added=measured,
    )


@backend.interrupts_between_steps()
def measure(result: TrialResult, names: Sequence[str], checkpoint: Path | None = None, **how) -> TrialResult:
    """The result with these measurements added. No more of the trial is run than they need; all else in it stays.

    Args:
        names: those of measurements that came after the result was stored.
        checkpoint, how: on_progress, device, networks and parts, as `run_trial` takes them.

    ValueError for a name that no later measurement gives, and where a network is needed and the one that is pretrained
    here is not the result's, as other machines and versions make other networks.
    """
    for name in names:
        one_of("each of names", name, sorted(measurements.measured_names() - set(ORIGINAL)))
    threads = torch.get_num_threads()
    torch.set_num_threads(of_type("result", result, TrialResult).environment["threads"])  # or the last digits differ
    try:
        trial = Trial(result.spec, measurements.measurements_of(names), checkpoint=checkpoint, **how)
        if trial.stages - WITHOUT_NETWORK:
            if (backbone := bert.fingerprint(trial.network)) != result.backbone:
                if checkpoint:
                    checkpoints.remove(checkpoint)
                made = ", ".join(f"{name} {result.environment.get(name)}" for name in ("device", "machine", "torch"))
                other = f"the network that is pretrained here is {backbone}, the result's is {result.backbone}"
                raise ValueError(f"{other}, from {made}")
            trial.end_phase("pretraining")
        measured = trial.run_measurements()
    finally:
        torch.set_num_threads(threads)
    here = provenance.environment(trial.device, result.spec.precision)
    source = f"{datetime.now(UTC):%Y-%m-%d}, commit {here['commit']}, library {here['library']}"
    return dataclasses.replace(
        result,
        added=result.added | measured,
        seconds=result.seconds | trial.seconds | result.seconds,  # those of the first call count
        environment=result.environment | {f"{name} measured": source for name in measured},
    )
