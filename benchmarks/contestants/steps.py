"""hmmlib's pretraining, to be timed beside the Trainer's: some steps of it, or the whole, with any schedule."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from common import whole_training

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.training import pretraining
from hmmlib.training.pretraining import Pretraining, Run


def steps(count: int, trial: dict, inputs: str):
    """A call is `count` steps of a trial, with the fields of a TrialSpec, whose text must be that of the file."""
    spec = TrialSpec(**trial)
    run = Run(build_network(spec).train(), draw_model(spec), spec.pretraining(), trial_seeds(spec.seed)["pretraining"])
    if not np.array_equal(run.text, np.load(inputs)):
        raise RuntimeError("this is another text")
    with torch.no_grad():
        first = run.network.eval()(run.text[:4].long()).logits.numpy()
    run.network.train()

    def call() -> None:
        for _ in range(count):
            run.step()
        run.losses[run.done - 1].item()

    return call, lambda result: first


def cosine(step: int, plan: Pretraining) -> float:
    """Linear warm-up, then half a cosine to zero."""
    past = (step - plan.warmup) / max(1, plan.steps - plan.warmup)
    return min((step + 1) / max(1, plan.warmup), (1 + math.cos(math.pi * max(0.0, past))) / 2)


def stable(step: int, plan: Pretraining) -> float:
    """Linear warm-up, then the full rate until the last third, which falls linearly to zero."""
    return min((step + 1) / max(1, plan.warmup), 1.0, (plan.steps - step) / (plan.steps / 3))


SCHEDULES = {"linear": pretraining.rate_at, "cosine": cosine, "stable": stable}


def trained(trial: dict, schedule: str = "linear"):
    """A call is a trial's whole pretraining."""
    spec = TrialSpec(**trial)

    def built():
        pretraining.rate_at = SCHEDULES[schedule]
        network, parts = build_network(spec), (spec.pretraining(), trial_seeds(spec.seed)["pretraining"])
        return network, partial(pretraining.pretrain, network, draw_model(spec), *parts)

    return whole_training(built)
