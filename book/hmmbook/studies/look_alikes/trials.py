"""Tasks on chains of look-alikes, and the trials on them."""

from __future__ import annotations

from functools import lru_cache

import torch
from pandas import DataFrame, Series
from torch.nn import Module

from hmmbook import Parts, Task, TrialSpec
from hmmbook.experiments.parts import build_network, trial_seeds
from hmmbook.studies.look_alikes.chains import limited_mu, look_alike_chain, masked_texts
from hmmlib import HMM, pretrain
from hmmlib.validation import as_generator

TASKS = {
    "look-alikes-a": (1.0, 0.0, -1.0, 0.0, 0.0, 0.0),
    "look-alikes-c": (1.0, -1.0, 0.5, -0.5, 0.0, 0.0),
}
"""μ of each task, by the name that its trials have in their field `own`."""
SHUFFLED = "look-alikes-shuffled"
"""The name of trials whose labels are those of A, shuffled over all texts."""
TASK_D = "look-alikes-d"
"""The name of trials of task D."""
LENGTHS = (1, 20)
"""Lengths of prompts."""
CHANGED = {"n_states": 6, "n_tokens": 6, "steps": 2000, "muon_rate": 0.01, "learning_rate": 0.001}
"""What these trials have in the place of the preset's."""


def specs_of(seed: int) -> list[TrialSpec]:
    """Return the four trials of a chain with tasks A and C, and the control last."""
    specs = []
    for task in TASKS:
        for length in LENGTHS:
            specs.append(TrialSpec("quick", seed=seed, own=task, prompt_length=length, **CHANGED))
    specs.append(TrialSpec("quick", seed=seed, own=SHUFFLED, prompt_length=20, **CHANGED))
    return specs


def specs_of_d(seed: int) -> list[TrialSpec]:
    """Return the two trials of a chain with task D."""
    return [TrialSpec("quick", seed=seed, own=TASK_D, prompt_length=length, **CHANGED) for length in LENGTHS]


def chain_of(spec: TrialSpec) -> HMM:
    """Return the chain of a trial."""
    return look_alike_chain(spec.seed, three=spec.own == TASK_D)


def draw_task(spec: TrialSpec, chain: HMM) -> Task:
    """Draw the task that the spec's `own` names, on texts whose first token is masked."""
    sizes = (spec.train, spec.validation, spec.test)
    tokens, beliefs = masked_texts(chain, sum(sizes), spec.task_length, trial_seeds(spec.seed)["task"])
    if spec.own == TASK_D:
        weights = limited_mu(spec.seed)
    elif spec.own == SHUFFLED:
        weights = TASKS["look-alikes-a"]
    else:
        weights = TASKS[spec.own]
    mu = torch.tensor(weights, dtype=torch.float64)
    labels = beliefs @ mu >= 0
    if spec.own == SHUFFLED:
        labels = labels[torch.randperm(len(labels), generator=as_generator(spec.seed))]
    return Task(tokens, labels, mu, 0, sizes, beliefs)


@lru_cache(maxsize=1)
def _pretrained(spec: TrialSpec) -> Module:
    network = build_network(spec)
    pretrain(network, chain_of(spec), spec.pretraining(), trial_seeds(spec.seed)["pretraining"])
    return network


def network_of(spec: TrialSpec, chain: HMM) -> Module:
    """Return the network of a chain, pretrained once for all its tasks and prompts."""
    chains = TASK_D if spec.own == TASK_D else "look-alikes"
    return _pretrained(spec.replace(own=chains, prompt_length=1))


PARTS = Parts(model=chain_of, network=network_of, task=draw_task)


def accuracies(results: DataFrame) -> dict[str, dict[str, Series]]:
    """Collect test accuracies of heads and prompts, and the most that a fake token can do, from stored results.

    Args:
        results: The table of results.

    Returns:
        For task A and for task D, columns by chain. A task without results is left out.
    """
    tasks = {
        "solvable by\na fake token": ("look-alikes-a", "built_prompt_accuracy"),
        "not solvable by\na fake token": (TASK_D, "fake_token_bound"),
    }
    table = {}
    for name, (task, most) in tasks.items():
        trials = results[results.own == task]
        if len(trials):
            with_one = trials[trials.prompt_length == 1]
            with_twenty = trials[trials.prompt_length == 20]
            table[name] = {
                "tuned head": with_twenty.head_accuracy,
                "prompt of one vector": with_one.prompt_accuracy,
                "prompt of 20 vectors": with_twenty.prompt_accuracy,
                "a fake token and linear head, at most": with_twenty[most],
            }
    return table
