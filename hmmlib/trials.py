"""One trial of Section 5: a random HMM, a network pretrained on it, a task, head and prompt tuning. And the result store.

A trial is fixed by its `TrialSpec`. Its result is one small JSON file, `results/PRESET/HASH.json`, where HASH is that of
the spec; figures read these files and never train.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import transformers

from hmmlib import bert, tuning
from hmmlib.generate import random_hmm
from hmmlib.messages import masked_token_probs
from hmmlib.presets import PRESETS

FORMAT = 1
STORE = Path(__file__).resolve().parent.parent / "results"
"""Where results lie in a checkout of the project."""

LEAST = dict(n_states=1, n_tokens=2, seed=0, prompt_length=0, warmup=0)
"""Smallest value an integer field takes, where that is not 1."""


@dataclass(frozen=True)
class TrialSpec:
    """Everything that fixes a trial. What is left None is taken from the preset.

    ValueError for an unknown preset or an impossible value; the message names the field and what it takes.
    """

    preset: str = "quick"
    n_states: int = 10
    seed: int = 0
    n_tokens: int = 10
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    steps: int | None = None
    batch: int | None = None
    length: int | None = None
    masked: float | None = None
    learning_rate: float | None = None
    muon_rate: float | None = None
    warmup: int | None = None
    task_length: int | None = None
    train: int | None = None
    validation: int | None = None
    test: int | None = None
    epochs: int | None = None
    tuning_batch: int | None = None
    head_rate: float | None = None
    prompt_rate: float | None = None
    prompt_length: int | None = None
    evaluation: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if value is None:
                value = PRESETS[self.preset][field.name]
            if isinstance(value, np.integer | np.floating):
                value = value.item()
            object.__setattr__(self, field.name, value)
            _check_field(field.name, "float" in field.type, value)
            if "float" in field.type:
                object.__setattr__(self, field.name, float(value))  # 1 and 1.0 are one spec
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, but {self.width} is none of {self.heads}")
        if self.masked > 1:
            raise ValueError(f"masked must be at most 1, not {self.masked}")
        if self.task_length < 2:
            raise ValueError("task_length must be 2 or more: the first token is [MASK], and something must follow it")
        if self.length < self.task_length + self.prompt_length:
            raise ValueError(
                f"length must be at least task_length + prompt_length = {self.task_length + self.prompt_length}, "
                f"so that every position has been trained; it is {self.length}"
            )

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that the spec's content gives."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def _check_field(name: str, is_float: bool, value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float if is_float else int):
        raise ValueError(f"{name} must be {'a number' if is_float else 'an integer'}, not {value!r}")
    if is_float and not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, not {value}")
    if not is_float and value < LEAST.get(name, 1):
        raise ValueError(f"{name} must be {LEAST.get(name, 1)} or more, not {value}")


@dataclass(frozen=True)
class TrialResult:
    """What a trial measured. Losses and divergence in nats; accuracies and rates as shares; `seconds` by phase.

    `exact_head_accuracy` is that of the same head tuned on the exact G instead of the network, and
    `untrained_prompt_accuracy` that of a head tuned behind a prompt left as it was drawn: what the prompt's mere
    presence is worth.
    """

    spec: TrialSpec
    head_accuracy: float
    prompt_accuracy: float
    exact_head_accuracy: float
    untrained_prompt_accuracy: float
    validation_head_accuracy: float
    validation_prompt_accuracy: float
    majority_rate: float
    redraws: int
    best_loss: float
    network_loss: float
    divergence: float
    seeds: dict[str, int]
    seconds: dict[str, float]
    environment: dict[str, str | int | None]

    @property
    def excess_loss(self) -> float:
        """How far the network's masked-token loss lies above the least there is, nats."""
        return self.network_loss - self.best_loss


def trial_seeds(seed: int) -> dict[str, int]:
    """Independent seeds for the parts of a trial, all from one."""
    names = ("model", "network", "pretraining", "task", "tuning", "evaluation")
    return dict(zip(names, np.random.SeedSequence(seed).generate_state(len(names)).tolist(), strict=True))


def run_trial(spec: TrialSpec, report: Callable[[int, float], None] | None = None) -> TrialResult:
    """Run one trial. The same spec gives the same numbers on the same machine (threads and versions included).

    `report(step, loss)` is called after each pretraining step. FloatingPointError where pretraining diverges.
    """
    seeds, seconds, clock = trial_seeds(spec.seed), {}, time.perf_counter

    start = clock()
    model = random_hmm(spec.n_states, spec.n_tokens, seeds["model"])
    network = bert.build(bert.Shape(spec.layers, spec.width, spec.heads, spec.length), spec.n_tokens, seeds["network"])
    plan = bert.Pretraining(
        spec.steps, spec.batch, spec.length, spec.masked, spec.learning_rate, spec.muon_rate, spec.warmup
    )
    bert.pretrain(network, model, plan, seeds["pretraining"], report)
    seconds["pretraining"] = clock() - start

    start = clock()
    network_loss, best_loss = bert.masked_losses(
        network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"]
    )
    task = tuning.draw_task(model, spec.task_length, (spec.train, spec.validation, spec.test), seeds["task"])
    exact = masked_token_probs(model, task.tokens)[:, 0].float()
    seconds["exact model"] = clock() - start

    start = clock()
    how = tuning.Tuning(spec.epochs, spec.tuning_batch, spec.head_rate, spec.prompt_rate)
    train, validation, test = task.split(task.labels)
    probs, exact_probs = task.split(tuning.all_probs_at_mask(network, task.tokens)), task.split(exact)
    head = tuning.tune_head(probs[0], train, how, seeds["tuning"])
    exact_head = tuning.tune_head(exact_probs[0], train, how, seeds["tuning"])
    seconds["head tuning"] = clock() - start

    start = clock()
    tokens = task.split(task.tokens)
    prompt, prompt_head = tuning.tune_prompt(network, tokens[0], train, spec.prompt_length, how, seeds["tuning"])
    prompted = [tuning.all_probs_at_mask(network, part, prompt) for part in tokens[1:]]
    seconds["prompt tuning"] = clock() - start

    start = clock()
    untrained = tuning.initial_prompt(network, spec.prompt_length, seeds["tuning"])
    behind = [tuning.all_probs_at_mask(network, part, untrained) for part in (tokens[0], tokens[2])]
    untrained_head = tuning.tune_head(behind[0], train, how, seeds["tuning"])
    seconds["untrained prompt"] = clock() - start

    share = test.double().mean().item()
    return TrialResult(
        spec=spec,
        head_accuracy=tuning.accuracy(head, probs[2], test),
        prompt_accuracy=tuning.accuracy(prompt_head, prompted[1], test),
        exact_head_accuracy=tuning.accuracy(exact_head, exact_probs[2], test),
        untrained_prompt_accuracy=tuning.accuracy(untrained_head, behind[1], test),
        validation_head_accuracy=tuning.accuracy(head, probs[1], validation),
        validation_prompt_accuracy=tuning.accuracy(prompt_head, prompted[0], validation),
        majority_rate=max(share, 1 - share),
        redraws=task.redraws,
        best_loss=best_loss,
        network_loss=network_loss,
        divergence=torch.nn.functional.kl_div(probs[2].log(), exact_probs[2], reduction="batchmean").item(),
        seeds=seeds,
        seconds={phase: round(value, 2) for phase, value in seconds.items()},
        environment=environment(),
    )


def git_commit() -> str | None:
    """The commit of the checkout that this module lies in, with `+` where tracked files differ from it; None elsewhere."""
    command = ["git", "-C", str(STORE.parent), "describe", "--always", "--abbrev=12", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def environment() -> dict[str, str | int | None]:
    """What a result depends on besides its spec."""
    return {
        "device": "cpu",
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": git_commit(),
    }


def result_path(spec: TrialSpec, store: Path = STORE) -> Path:
    """Where the result of a spec lies."""
    return Path(store) / spec.preset / f"{spec.hash}.json"


def save_result(result: TrialResult, store: Path = STORE) -> Path:
    """Write a result under a temporary name and rename it, so that no half-written file is ever read as a result."""
    path = result_path(result.spec, store)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **asdict(result)}, indent=1) + "\n"
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def load_result(path: Path) -> TrialResult:
    """Read one result. ValueError that names the file where it is no JSON, of another format, incomplete, or misnamed."""
    try:
        content = json.loads(Path(path).read_text())
        version = content.pop("format")
        if version != FORMAT:
            raise ValueError(f"its format is {version}, and this version of hmmlib reads {FORMAT}")
        given = content.pop("spec")
        spec = TrialSpec(**given)
        if given != asdict(spec):
            raise ValueError(f"its spec lacks {', '.join(sorted(asdict(spec).keys() - given.keys()))}")
        result = TrialResult(spec=spec, **content)
        for field in dataclasses.fields(result):
            value = getattr(result, field.name)
            if field.type == "float" and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ValueError(f"{field.name} must be a number, not {value!r}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no readable result: {error}") from error
    if Path(path).parent.name != spec.preset:
        raise ValueError(f"{path} is no readable result: its preset is {spec.preset}, not that of its folder")
    if spec.hash != Path(path).stem:
        raise ValueError(f"{path} is no readable result: its spec hashes to {spec.hash}, so it was edited or renamed")
    return result


def load_results(preset: str, store: Path = STORE) -> Iterator[TrialResult]:
    """All stored results of a preset, ordered by hidden states, then seed."""
    results = (load_result(path) for path in sorted((Path(store) / preset).glob("*.json")))
    return iter(sorted(results, key=lambda result: (result.spec.n_states, result.spec.seed)))
