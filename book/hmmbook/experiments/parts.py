"""Make the parts of a trial: the model, the task, the network, and what is tuned on it."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hmmbook.experiments import labels
from hmmbook.experiments.environment import environment
from hmmbook.experiments.measurements import Split, over_tokens
from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.unchanged import unchanged
from hmmbook.files import absolute
from hmmlib.device import pick, stop_if_interrupted
from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training import bert, checkpoints, readers, tuning
from hmmlib.training.adapters import Tuned, tune
from hmmlib.training.pretraining import pretrain
from hmmlib.validation import of_type


def trial_seeds(seed: int) -> dict[str, int]:
    """Return a seed for each random draw of a trial. They are independent, and one seed determines them all."""
    names = ("model", "network", "pretraining", "task", "tuning", "evaluation")
    state = np.random.SeedSequence(seed).generate_state(len(names))
    return dict(zip(names, state.tolist(), strict=True))


def draw_model(spec: TrialSpec) -> HMM | MemoryHMM:
    """Draw the model of a trial, as appendix E does.

    Example:
        >>> draw_model(TrialSpec("smoke", n_states=4)).n_states
        4
    """
    seed = trial_seeds(of_type("spec", spec, TrialSpec).seed)["model"]
    if spec.n_memory == 1:
        return random_hmm(spec.n_states, spec.n_tokens, seed, spec.temperature)
    permutations = spec.size if spec.permutations == "joint" else None
    return random_memory_hmm(
        spec.n_memory,
        spec.n_states,
        spec.n_tokens,
        seed,
        temperature=spec.temperature,
        permutations=permutations,
    )


def draw_trial_task(spec: TrialSpec, model: HMM | MemoryHMM) -> labels.Task:
    """Draw the downstream task of a trial.

    Example:
        >>> spec = TrialSpec("smoke", n_states=4)
        >>> draw_trial_task(spec, draw_model(spec)).tokens.shape
        torch.Size([350, 17])
    """
    of_type("spec", spec, TrialSpec)
    sizes = (spec.train, spec.validation, spec.test)
    seed = trial_seeds(spec.seed)["task"]
    return labels.draw_task(model, spec.task_length, sizes, seed, spec.labels, spec.places)


def build_network(spec: TrialSpec) -> torch.nn.Module:
    """Build the network as it is before pretraining.

    If the spec's `weights` are "shared", all trials begin with the same weights. If they are "own", the trial's seed
    determines them.
    """
    seed = 0 if spec.weights == "shared" else spec.seed
    return bert.build(spec.shape(), spec.n_tokens, trial_seeds(seed)["network"])


@dataclass(frozen=True)
class Parts:
    """Functions of your own that make parts of a trial. For a part that you leave out, the library's function is used.

    You give such trials a name in the spec's field `own`, so that their results are stored apart. A function must not
    change what it is given.

    Raises:
        TypeError: a part is no function.

    Example:
        >>> from hmmlib import random_hmm
        >>> parts = Parts(model=lambda spec: random_hmm(spec.n_states, spec.n_tokens, seed=spec.seed))
        >>> spec = TrialSpec("smoke", n_states=4, own="seeds-of-mine")
    """

    model: Callable[[TrialSpec], HMM | MemoryHMM] | None = None
    """Called with the spec. It returns the model that writes the text."""
    network: Callable[[TrialSpec, HMM | MemoryHMM], torch.nn.Module | readers.Reader] | None = None
    """Called with the spec and the model. It returns a network that has learned from the model's text."""
    task: Callable[[TrialSpec, HMM | MemoryHMM], labels.Task] | None = None
    """Called with the spec and the model. It returns the task, with its texts, labels and posteriors."""
    tuner: Callable[[readers.Reader, Tensor, Tensor, tuning.Tuning, int, Callable[[], None]], Tuned] | None = None
    """Called with the network, tokens, labels, plan, seed and before_step. It returns what it has tuned, as
    `hmmlib.tune` does."""

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if isinstance(part, torch.nn.Module) or not (part is None or callable(part)):
                raise TypeError(f"{name} must be a function, not {type(part).__name__}")


class Trial:
    """One trial while it runs. Each of its parts is made when it is first asked for, and then kept.

    A measurement asks for a part by the name of a parameter, as `Measurement` explains.

    Args:
        spec: what fixes the trial.
        on_progress: called as on_progress(phase, share done). An exception that it raises ends the trial.
        device: where the network is, which is auto, cpu, cuda, cuda:N or mps.
        checkpoint: the file in which pretraining keeps a checkpoint.
        networks: a folder in which pretrained networks are kept for other trials.
        parts: functions that make parts in the place of the library's own.

    Raises:
        ValueError: there is no such device, or there are parts without a name in the spec's `own`, or the reverse.
    """

    def __init__(
        self,
        spec: TrialSpec,
        on_progress: Callable[[str, float], None] | None = None,
        device: str = "auto",
        checkpoint: Path | None = None,
        networks: Path | None = None,
        parts: Parts | None = None,
    ):
        self.spec = of_type("spec", spec, TrialSpec)
        self.parts = of_type("parts", parts or Parts(), Parts)
        self._check_name_of_parts()
        self.device = pick(device)
        self.checkpoint = checkpoint
        self.networks = absolute(networks) if networks else None
        self.on_progress = on_progress
        self.seeds = trial_seeds(spec.seed)
        self.seconds: dict[str, float] = {}
        self.phase = "pretraining"
        self._phase_began = time.perf_counter()

    def _check_name_of_parts(self) -> None:
        has_parts = self.parts != Parts()
        advice = "Pass parts=Parts(…) and a spec with own='a-name', or neither."
        if self.spec.own and not has_parts:
            raise ValueError(f"the spec's own is {self.spec.own!r}, but there are no parts. {advice}")
        if has_parts and not self.spec.own:
            raise ValueError(f"there are parts, but the spec's own is '' and gives them no name. {advice}")

    def report(self, phase: str, share: float) -> None:
        """Report how far the trial is.

        Args:
            phase: the name of the phase.
            share: the share of the phase that is done.

        Raises:
            KeyboardInterrupt: the trial was interrupted.
        """
        stop_if_interrupted()
        if self.on_progress:
            self.on_progress(phase, share)

    def before_step(self) -> None:
        """End the trial if its time is over. Long work calls this now and then."""
        self.report(self.phase, 1.0)

    def end_phase(self, phase: str) -> None:
        """End a phase, and add the seconds since the last phase ended to its time."""
        now = time.perf_counter()
        seconds = self.seconds.get(phase, 0.0) + now - self._phase_began
        self.seconds[phase] = round(seconds, 2)
        self._phase_began = now
        self.report(phase, 1.0)

    @cached_property
    def model(self) -> HMM | MemoryHMM:
        """The model that writes the text, in float64 on the CPU."""
        if not self.parts.model:
            return draw_model(self.spec).to("cpu", torch.float64)
        with unchanged("Parts.model"):
            model = self.parts.model(self.spec)
        of_type("what Parts.model gives", model, HMM, MemoryHMM)
        if model.n_tokens != self.spec.n_tokens:
            raise ValueError(
                f"what Parts.model gives has {model.n_tokens} tokens, but the spec's n_tokens is {self.spec.n_tokens}"
            )
        n_memory = model.n_memory if isinstance(model, MemoryHMM) else 1
        if n_memory != self.spec.n_memory:
            raise ValueError(
                f"what Parts.model gives has {n_memory} memory values, but the spec's n_memory is "
                f"{self.spec.n_memory}. A model without memory counts as 1."
            )
        if self.spec.n_states != model.n_states:
            raise ValueError(
                f"what Parts.model gives has {model.n_states} states, but the spec's n_states is {self.spec.n_states}. "
                "A state that HMM.from_rows or HMM.from_hmmlearn has added counts."
            )
        return model.to("cpu", torch.float64)

    @cached_property
    def task(self) -> labels.Task:
        """The downstream task."""
        if not self.parts.task:
            return draw_trial_task(self.spec, self.model)
        with unchanged("Parts.task", model=self.model):
            task = self.parts.task(self.spec, self.model)
        return of_type("what Parts.task gives", task, labels.Task)

    @cached_property
    def exact(self) -> Tensor:
        """The exact G on the task's texts, (n, T, X)."""
        return masked_token_probs(self.model, self.task.tokens)

    @cached_property
    def beliefs(self) -> Split:
        """The exact P[H_1 | X_{-1}] of a vanilla model on the training, validation and test texts, each (n, S)."""
        return self.task.split(posterior(self.model, self.task.tokens, at=1))

    @cached_property
    def network(self) -> torch.nn.Module | readers.Reader:
        """The pretrained network."""
        if self.parts.network:
            with unchanged("Parts.network", model=self.model):
                network = self.parts.network(self.spec, self.model)
            return readers.as_reader(network)
        network = build_network(self.spec).to(self.device)
        stored = self.stored_network()
        content = checkpoints.load(stored) if stored else None
        if content is None:
            self._pretrain(network, stored)
        else:
            with checkpoints.naming_damaged(stored):
                network.load_state_dict(content)
        return network

    def _pretrain(self, network: torch.nn.Module, stored: Path | None) -> None:
        """Pretrain a network.

        If a checkpoint or the network cannot be written after the last step, for example because the disk is full, the
        trial goes on.
        """
        plan = self.spec.pretraining()
        share_done = 0.0

        def on_step(step: int, loss: float) -> None:
            nonlocal share_done
            share_done = (step + 1) / plan.steps
            self.report("pretraining", share_done)

        try:
            pretrain(network, self.model, plan, self.seeds["pretraining"], on_step, self.checkpoint)
            share_done = 1.0  # A checkpoint of all steps leaves none to report.
            if stored:
                checkpoints.save(stored, network.state_dict())
        except checkpoints.CheckpointError as error:
            if share_done < 1:
                raise
            warnings.warn(f"{error}. The network is pretrained, so the trial goes on.", stacklevel=2)

    def stored_network(self) -> Path | None:
        """Return the path of the stored network, or None if networks are not kept.

        Its name is a hash of the spec, the code's version, and everything about the machine that can change numbers.
        """
        if not self.networks:
            return None
        facts = [self.spec.network_hash]
        made_by = environment(self.device, self.spec.precision)
        for name in ("device", "precision", "machine", "cpu", "threads", "torch", "transformers", "hmmlib", "commit"):
            facts.append(made_by[name])
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()
        return self.networks / f"{digest[:16]}.pt"

    @cached_property
    def tuned(self) -> Tuned:
        """What the spec's tuner tunes on the network, together with a head."""
        spec = self.spec
        texts = self.task.train
        arguments = (texts.tokens, texts.labels, spec.tuning(), self.seeds["tuning"])
        if self.parts.tuner:
            reader = readers.as_reader(self.network)
            with unchanged("Parts.tuner", network=reader, tokens=texts.tokens, labels=texts.labels):
                tuned = self.parts.tuner(reader, *arguments, self.before_step)
            return of_type("what Parts.tuner gives", tuned, Tuned)
        return tune(
            spec.tuner,
            self.network,
            *arguments,
            spec.prompt_length,
            spec.prompt_start,
            spec.rank,
            self.before_step,
        )

    @cached_property
    def tuned_head(self) -> LinearHead:
        """The head that was tuned together with a prompt, in float64, over the model's tokens alone."""
        weights = self.tuned.head.weights[: self.model.n_tokens]
        return LinearHead(weights.cpu().double())

    @cached_property
    def outputs(self) -> Tensor:
        """The network's distributions on the task's texts, (n, T, X and special ids)."""
        return self._by_batches(lambda texts: tuning.all_probs(self.network, texts))

    @cached_property
    def untuned(self) -> Split:
        """The network's distributions at the mask without what is tuned, in float64.

        They are split into those of the training, the validation and the test texts, each (n, X).
        """
        probs = self._by_batches(lambda texts: tuning.all_probs_at_mask(self.network, texts))
        return over_tokens(self.task, probs, self.model.n_tokens)

    @cached_property
    def prompted(self) -> Split:
        """The network's distributions at the mask with what the spec's tuner has tuned, in float64, split alike."""
        return over_tokens(self.task, self._by_batches(self.tuned.probs), self.model.n_tokens)

    def _by_batches(self, probs: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a network predicts on the task's texts. The trial can end before each batch."""
        batches = []
        for texts in self.task.tokens.split(tuning.TEXTS_AT_ONCE):
            self.before_step()
            batches.append(probs(texts))
        return torch.cat(batches)


PARTS_WITHOUT_NETWORK = {"spec", "seeds", "model", "task", "exact", "beliefs", "before_step"}
"""The parts that a trial has before its network is pretrained."""
