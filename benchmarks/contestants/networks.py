"""What hmmlib trains: steps of a pretraining, or the whole with any schedule; a head or a prompt on a frozen network.

For tuning, the network is fresh: what it has learnt costs no time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from common import whole_training
from torch import nn

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, draw_trial_task, trial_seeds
from hmmlib.training import pretraining
from hmmlib.training.pretraining import Pretraining, Run
from hmmlib.training.tuning import all_probs_at_mask, fit, tune_head, tune_prompt


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


def parts(trial: dict, examples: int):
    """Spec, frozen network, tokens and labels of the first examples."""
    spec = TrialSpec(**trial)
    network, task = build_network(spec).eval().requires_grad_(False), draw_trial_task(spec, draw_model(spec))
    return spec, network, task.tokens[:examples], task.labels[:examples]


def head(trial: dict, examples: int, epochs: int, cached: bool):
    """A linear head: on outputs computed once, or with the network run again on each batch of each pass."""
    spec, network, tokens, labels = parts(trial, examples)
    how, seed = replace(spec.tuning(), epochs=epochs), trial_seeds(spec.seed)["tuning"]

    def once():
        return tune_head(all_probs_at_mask(network, tokens), labels, how, seed).weights

    def again():
        weights = nn.Parameter(torch.zeros(spec.n_tokens))
        fit(lambda batch: all_probs_at_mask(network, batch) @ weights, [weights], tokens, labels, how, seed)
        return weights.detach()

    return once if cached else again, lambda weights: weights.numpy()


def prompt(trial: dict, examples: int, dtype: str):
    """A prompt and a head: one pass over the first examples, with the network in that type."""
    spec, network, tokens, labels = parts(trial, examples)
    torch.set_default_dtype(getattr(torch, dtype))  # of the prompt and the head, which are made in `tune_prompt`
    network, how = network.to(torch.get_default_dtype()), replace(spec.tuning(), epochs=1)

    def call():
        return tune_prompt(network, tokens, labels, spec.prompt_length, how, trial_seeds(spec.seed)["tuning"])[0]

    return call, lambda found: None  # other random numbers are drawn in the other type
