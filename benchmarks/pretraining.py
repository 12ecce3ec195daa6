"""Pretraining steps: ours beside Hugging Face's Trainer on the same network, text and number of tokens a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from contest import ROOT, Contestant, contest
from growth import exponent

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.training.pretraining import corpus
from hmmlib.validation import as_generator

INPUTS = ROOT / "build" / "bench" / "inputs"
TOLERANCE = 1e-4
"""Between what the two fresh networks say of the same text."""
LOADERS = {
    "Trainer": dict(optim="adamw_torch_fused"),
    "Trainer, AdamW not fused": dict(optim="adamw_torch"),
    "Trainer, a process to load": dict(optim="adamw_torch_fused", workers=1),
}
"""Settings of the Trainer that were tried, the best on two processors first."""

GROWTH = {"batch": (4, 40, 400), "width": (16, 64, 256, 1024)}
"""Sizes of the preset's step that grow, one at a time; the width at a batch of 8, as the largest takes long."""


def save_text(spec: TrialSpec) -> Path:
    """The text that a trial pretrains on, as a file."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    path = INPUTS / f"text-{spec.hash}.npy"
    np.save(path, corpus(draw_model(spec), spec.pretraining(), as_generator(trial_seeds(spec.seed)["pretraining"])))
    return path


def trainer_settings(spec: TrialSpec, rate: float) -> dict:
    """What the Trainer has to know of a trial: the same network, as many tokens a batch, as many of them hidden."""
    return dict(
        config=build_network(spec).config.to_diff_dict(),
        seed=trial_seeds(spec.seed)["network"],
        hidden=max(1, round(spec.masked * spec.length)),
        batch=spec.batch,
        rate=rate,
    )


def contestants(trial: dict, count: int) -> list[Contestant]:
    """Ours, ours with the Trainer's optimiser, and the Trainer in each of its settings; `count` steps a call."""
    spec = TrialSpec(**trial)
    rest = dict(inputs=save_text(spec), work=count * spec.batch * spec.length)
    alone = trial | {"muon_rate": 0.0}
    settings = dict(count=count, **trainer_settings(spec, spec.learning_rate))
    return [
        Contestant("hmmlib", "steps:steps", dict(count=count, trial=trial), peer=False, **rest),
        Contestant("hmmlib, AdamW alone", "steps:steps", dict(count=count, trial=alone), peer=False, **rest),
        *(Contestant(name, "with_trainer:steps", settings | own, **rest) for name, own in LOADERS.items()),
    ]


def grown(preset: str, grows: str, at: tuple[int, ...], threads: int, rounds: int) -> dict:
    """A contest of our step at several sizes, with the exponent of its seconds: over all sizes, and over the last two."""
    who, count = [], 3
    for value in at:
        sizes = {"batch": 8, grows: value}
        trial = dict(preset=preset, steps=count * (rounds + 1)) | sizes
        spec, options = TrialSpec(**trial), dict(count=count, trial=trial)
        work = count * spec.batch * spec.length
        who.append(Contestant(str(value), "steps:steps", options, save_text(spec), peer=False, work=work))
    result = contest(who, threads, rounds)
    seconds = [one["median"] for one in result["contestants"]]
    return result | {"seconds": {"all": exponent(at, seconds), "last": exponent(at[-2:], seconds[-2:])}}


def measure(rows, quick: bool) -> None:
    preset, count, rounds = ("smoke", 3, 2) if quick else ("quick", 15, 5)
    for threads in (1,) if quick else (1, 2):
        trial = dict(preset=preset, steps=count * (rounds + 3))
        rows(
            lambda: contest(contestants(trial, count), threads, rounds, tolerance=TOLERANCE, budget=120.0),
            what="step", preset=preset, threads=threads,
        )  # fmt: skip
    for grows, sizes in GROWTH.items():
        at = sizes[: 2 if quick else None]
        rows(
            lambda: grown(preset, grows, at, 1 if quick else 2, rounds),
            what="growth", preset=preset, grows=grows, at=list(at),
        )  # fmt: skip
