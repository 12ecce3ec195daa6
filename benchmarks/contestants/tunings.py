"""Tuning a head or a prompt on a frozen network, in hmmlib. The network is fresh: what it has learnt costs no time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, draw_trial_task, trial_seeds
from hmmlib.training.tuning import all_probs_at_mask, fit, tune_head, tune_prompt


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
