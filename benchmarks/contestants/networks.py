"""Steps of a pretraining by hmmlib."""

from __future__ import annotations

import numpy as np
import torch

from hmmbook.experiments.parts import build_network, draw_model, trial_seeds
from hmmbook.experiments.specs import TrialSpec
from hmmlib.training.pretraining import Run


def steps(count: int, trial: dict, inputs: str):
    """A call is `count` steps of a trial, with the fields of a TrialSpec. Its text must be that of the file."""
    spec = TrialSpec(**trial)
    seed = trial_seeds(spec.seed)["pretraining"]
    run = Run(build_network(spec).train(), draw_model(spec), spec.pretraining(), seed)
    if not np.array_equal(run.text, np.load(inputs)):
        raise RuntimeError("this is another text")
    with torch.no_grad():
        logits = run.network.eval()(run.text[:4].long()).logits.numpy()
    run.network.train()

    def call() -> None:
        for _ in range(count):
            run.step()
        run.losses[run.done - 1].item()

    return call, lambda result: logits
