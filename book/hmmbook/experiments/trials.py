"""Run one trial of Section 5: draw a model and a task, pretrain a network on the model's text, tune, and measure.

A `TrialSpec` fixes a trial. Exact quantities are computed on the CPU in float64. The network runs on any device.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hmmbook.experiments import exact_ladder, section_5
from hmmbook.experiments.environment import environment, today
from hmmbook.experiments.fields import Amount, Count, Hexadecimal, Seconds, Share
from hmmbook.experiments.measurements import MEASUREMENTS, Measurement, measured_names, measurements_of
from hmmbook.experiments.parts import PARTS_WITHOUT_NETWORK, Parts, Trial
from hmmbook.experiments.presets import FOR_GPUS
from hmmbook.experiments.specs import TrialSpec
from hmmlib.device import interrupts_between_steps, own_settings
from hmmlib.training import bert, checkpoints
from hmmlib.validation import of_type

MEASURED_IN_EVERY_TRIAL = (section_5, exact_ladder)
"""The modules whose measurements every trial makes. Importing them registers the measurements."""


@dataclass(frozen=True, repr=False)
class TrialResult:
    """The numbers that a trial measured.

    Losses and the divergence are in nats. Accuracies and rates are shares. Unless a field says otherwise, an accuracy
    is on the test texts, after the last step of tuning. A number that does not exist is None. For example, prompts are
    tuned only on vanilla models, and a theorem builds a head or prompt only if its assumptions hold.
    """

    spec: TrialSpec
    """What fixed the trial."""

    # On the network's predictions
    head_accuracy: Share
    """The accuracy of a linear head on the network's prediction at the mask."""
    prompt_accuracy: Share | None
    """The accuracy of a linear head behind a prompt that was tuned together with it."""
    attention_accuracy: Share
    """The accuracy of an attention head on the network's predictions at all positions."""

    # On the exact G, by the same tuning
    exact_head_accuracy: Share
    """The accuracy of a linear head tuned on the exact G at the mask."""
    exact_attention_accuracy: Share
    """The accuracy of an attention head tuned on the exact G at all positions."""

    # On the exact Ḡ, by tuning in more passes (`presets.LADDER_NUMBERS`) and by what the theorems build
    ladder_head_accuracy: Share | None
    """The accuracy of a linear head tuned on the exact Ḡ in more passes."""
    ladder_prompt_accuracy: Share | None
    """The accuracy of a linear head behind one prompt vector, both tuned on the exact Ḡ in more passes."""
    built_head_accuracy: Share | None
    """The accuracy of the head that Theorem 3.3 builds."""
    built_prompt_accuracy: Share | None
    """The accuracy of the prompt and head that Theorem 3.6 builds."""

    untrained_prompt_accuracy: Share | None
    """The accuracy, on the network, of a linear head behind a prompt that was left as it was drawn."""
    validation_head_accuracy: Share
    """The same as `head_accuracy` on the validation texts."""
    validation_prompt_accuracy: Share | None
    """The same as `prompt_accuracy` on the validation texts."""
    validation_attention_accuracy: Share
    """The same as `attention_accuracy` on the validation texts."""
    majority_rate: Share
    """The share of the more frequent test label."""
    redraws: Count
    """How often μ was drawn again because all training labels agreed."""
    best_loss: Amount
    """The least possible masked-token loss on the evaluation text."""
    network_loss: Amount
    """The network's masked-token loss on the same text."""
    divergence: Amount
    """The KL divergence from the exact distribution at the mask to the network's, a mean over the test texts."""
    backbone: Hexadecimal
    """The fingerprint of the pretrained network, 16 hexadecimal digits that its weights determine."""

    seeds: dict[str, int]
    """The seed of each random draw."""
    seconds: dict[str, Seconds]
    """The seconds that each phase took in the call that finished it."""
    environment: dict
    """Versions, device, commit and date."""
    added: dict[str, Any] = field(default_factory=dict)
    """The numbers of further measurements, by name. Each is also an attribute, and a column of the table of results."""

    def __getattr__(self, name: str) -> Any:
        """Return a further number, or None if this result lacks it."""
        added = vars(self).get("added", {})
        if name in added:
            return added[name]
        if name in measured_names():
            return None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return (
            f"TrialResult({self.spec.preset}, n_states={self.spec.n_states}, seed={self.spec.seed}: "
            f"head_accuracy={self.head_accuracy}, prompt_accuracy={self.prompt_accuracy}, "
            f"attention_accuracy={self.attention_accuracy}, majority_rate={self.majority_rate}, …)"
        )

    @property
    def excess_loss(self) -> float:
        """How far the network's masked-token loss lies above the least possible one, in nats."""
        return self.network_loss - self.best_loss


NOT_MEASURED = {"spec", "seeds", "seconds", "environment", "added"}
ORIGINAL = tuple(field.name for field in dataclasses.fields(TrialResult) if field.name not in NOT_MEASURED)
"""The numbers that every result has, in the order of its file."""


@interrupts_between_steps()
@own_settings()
def run_trial(
    spec: TrialSpec,
    on_progress: Callable[[str, float], None] | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
    also: Sequence[str] = (),
    networks: Path | None = None,
    parts: Parts | None = None,
) -> TrialResult:
    """Run one trial of Section 5, and make all measurements except those on request.

    The same spec gives the same numbers on the same machine, with the same threads and versions.

    Args:
        spec: what fixes the trial.
        on_progress: called as on_progress(phase, share done) while it runs. An exception that it raises ends the trial.
        device: where the network is, which is auto, cpu, cuda, cuda:N or mps.
        checkpoint: a file in which pretraining keeps a checkpoint. A trial that was broken off goes on from it. The
            file stays, so delete it when the result is stored.
        also: names of measurements on request.
        networks: a folder in which pretrained networks are kept for other trials that differ only in their task.
        parts: functions of your own that make parts of the trial. The spec's field `own` names them.

    Returns:
        The result, which `save_result` can store.

    Raises:
        KeyboardInterrupt: it was interrupted, and ended after a step.
        FloatingPointError: pretraining diverged.
        ValueError: there is no such device or measurement, or the checkpoint is another trial's.
        Exception: a measurement raised it. A note on it names the measurement.

    Warns:
        UserWarning: a preset for a GPU runs on a CPU. There is no warning if you pass `on_progress`, because it shows
            you how long the trial takes.

    Example:
        >>> result = run_trial(TrialSpec("smoke", n_states=4, seed=1), device="cpu")
        >>> 0 <= result.head_accuracy <= 1
        True
    """
    trial = Trial(spec, on_progress, device, checkpoint, networks, parts)
    requested = measurements_of(check_requested(also))
    measurements = []
    for measurement in MEASUREMENTS:
        if measurement in requested or not measurement.on_request:
            measurements.append(measurement)
    if on_progress is None and trial.device.type == "cpu" and spec.preset in FOR_GPUS:
        warnings.warn(f"{spec.preset} is for a GPU, and on a CPU this trial takes hours or days", stacklevel=4)
    trial.report("drawing", 0.0)  # The time may be over already, and drawing takes a while.

    # Draw. If model and task do not fit each other, this is an error before a network is pretrained.
    _ = trial.model
    _ = trial.task
    _ = trial.exact

    # Pretrain.
    network = trial.network
    trial.end_phase("pretraining")

    # Tune and measure. The first measurement that needs a tuned prompt has it tuned.
    values = make_measurements(trial, measurements)
    if bert.fingerprint(network) != values["backbone"]:
        raise RuntimeError("tuning changed the network, which must stay frozen")

    original = {name: values.pop(name) for name in ORIGINAL}
    made_by = environment(trial.device, spec.precision) | {"date": today()}
    return TrialResult(
        spec=spec, **original, seeds=trial.seeds, seconds=trial.seconds, environment=made_by, added=values
    )


def make_measurements(trial: Trial, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Make measurements of a trial, and count the seconds of each.

    Args:
        trial: the trial.
        measurements: the measurements. If such trials do not have one, it is not made.

    Returns:
        All numbers by name. A number that such trials do not have is None.
    """
    values = {}
    for measurement in measurements:
        values |= dict.fromkeys(measurement.names)
        if measurement.exists_for(trial.spec):
            trial.phase = measurement.phase
            values |= measurement.values(trial)
            trial.end_phase(measurement.phase)
    return values


def check_requested(names: Sequence[str]) -> list[str]:
    """Check that further measurements give these names, and return the names.

    Raises:
        TypeError: it is a text in the place of a list.
        ValueError: no further measurement gives one of the names.
    """
    if isinstance(names, str):
        raise TypeError(f"also must be a list of names, not the text {names!r}")
    further = sorted(measured_names() - set(ORIGINAL))
    for name in names:
        if name not in further:
            raise ValueError(
                f"each of also must be one of {', '.join(further)}, not {name!r}. "
                "To have the measurements of our studies too, import hmmbook.studies."
            )
    return list(names)


@interrupts_between_steps()
@own_settings()
def measure(
    result: TrialResult,
    names: Sequence[str],
    checkpoint: Path | None = None,
    on_progress: Callable[[str, float], None] | None = None,
    device: str = "auto",
    networks: Path | None = None,
    parts: Parts | None = None,
) -> TrialResult:
    """Add further measurements to a result.

    Only what the measurements need of the trial is run. All other numbers of the result stay as they are.

    Args:
        result: a result, as `load_result` returns it.
        names: the names of further measurements.
        checkpoint: as in `run_trial`.
        on_progress: as in `run_trial`.
        device: as in `run_trial`.
        networks: as in `run_trial`.
        parts: as in `run_trial`.

    Returns:
        The result with the further numbers.

    Raises:
        ValueError: no further measurement gives one of the names. Or your parts give another model or task than the
            result's. Or a measurement needs the network, but the network that is pretrained here differs from the
            result's, because other machines and versions make other networks.
        Exception: a measurement raised it. A note on it names the measurement.
    """
    of_type("result", result, TrialResult)
    measurements = measurements_of(check_requested(names))
    trial = Trial(result.spec, on_progress, device, checkpoint, networks, parts)
    trial.report("drawing", 0.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(result.environment["threads"])  # With other threads the last digits differ.
    try:
        if parts:
            check_parts(trial, result, measurements)
        if any(needs_network(measurement, result.spec) for measurement in measurements):
            check_backbone(trial, result)
            trial.end_phase("pretraining")
        values = make_measurements(trial, measurements)
    finally:
        torch.set_num_threads(threads)
    made_by = environment(trial.device, result.spec.precision)
    notes = {}
    for name in values:
        notes[f"{name} measured"] = f"{today()}, commit {made_by['commit']}"
    return dataclasses.replace(
        result,
        added=result.added | values,
        seconds=trial.seconds | result.seconds,  # A phase that was timed before keeps its time.
        environment=result.environment | notes,
    )


def check_parts(trial: Trial, result: TrialResult, measurements: Sequence[Measurement]) -> None:
    """Raise ValueError if a user's parts do not give the model and the task of the result.

    Two numbers of the result show this, one of the model alone and one of the labels. The second is compared only if a
    measurement needs more than the model.
    """
    numbers = section_5.frequency_loss(trial.spec, trial.model)
    if any(not {"spec", "seeds", "model"}.issuperset(measurement.needs) for measurement in measurements):
        numbers |= {"majority_rate": section_5.balance(trial.task)["majority_rate"]}
    for name, here in numbers.items():
        stored = getattr(result, name)
        if stored is not None and not math.isclose(here, stored, rel_tol=1e-9):
            raise ValueError(
                f"the parts give another model or task than those of the result: {name} is {here:.6f}, not "
                f"{stored:.6f}. If you have changed your functions, take a new name in the spec's own. "
                "What they draw must follow from the spec's seed."
            )


def needs_network(measurement: Measurement, spec: TrialSpec) -> bool:
    """Tell whether a measurement of such a trial needs its network."""
    return measurement.exists_for(spec) and not PARTS_WITHOUT_NETWORK.issuperset(measurement.needs)


def check_backbone(trial: Trial, result: TrialResult) -> None:
    """Raise ValueError if the network that is pretrained here is not that of the result."""
    backbone = bert.fingerprint(trial.network)
    if backbone == result.backbone:
        return
    if trial.checkpoint:
        checkpoints.remove(trial.checkpoint)
    made_by = result.environment
    raise ValueError(
        f"the network that is pretrained here is {backbone}, but the result's is {result.backbone}, made on device "
        f"{made_by['device']}, machine {made_by['machine']}, with torch {made_by['torch']}. Measure it there, or run "
        "the trial again."
    )
