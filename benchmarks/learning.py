"""Excess loss against time: whole pretrainings by ours and by Hugging Face's Trainer, of several lengths; takes hours.

As the learning rate falls to zero over a run, each length is a run of its own, and a curve is made of many. The excess
is the network's masked-token loss minus that of the exact conditionals, on the same fresh sequences for all. A run uses
one thread. Seconds of such runs are those of a machine with other work; for a curve against time, take steps times what
a step costs in the contest (results/pretraining.json).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from contest import GIB, Contestant, Worker
from measures import save_text, trainer_settings

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.training.readers import masked_losses

PRESET = "quick"
OURS, THEIRS = (250, 400, 550), (550, 1100)
"""Steps of our runs, the preset's own among them, and of the Trainer's."""
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
"""Learning rates of the Trainer that are tried, in its longest run of the first seed."""
LONGEST = 900.0
"""Seconds that a run may take."""


def ours(states: int, seed: int, steps: int, schedule: str = "linear", **changes) -> dict:
    """A run of ours: the preset but for `changes`, with its share of warm-up."""
    own = TrialSpec(PRESET)
    changes = dict(learning_rate=own.learning_rate, muon_rate=own.muon_rate, batch=own.batch) | changes
    warmup = max(1, round(own.warmup * steps / own.steps))
    return dict(side="hmmlib", states=states, seed=seed, steps=steps, warmup=warmup, schedule=schedule, **changes)


def theirs(states: int, seed: int, steps: int, rate: float) -> dict:
    """A run of the Trainer, with AdamW."""
    batch = TrialSpec(PRESET).batch
    return dict(side="Trainer", states=states, seed=seed, steps=steps, learning_rate=rate, batch=batch)


def choices() -> Iterator[tuple[int, dict]]:
    """What else the preset could be: other rates, other schedules, other batches of as many tokens in all."""
    own = TrialSpec(PRESET)
    for factor in (0.5, 2):
        yield own.steps, dict(muon_rate=own.muon_rate * factor)
        yield own.steps, dict(learning_rate=own.learning_rate * factor)
    yield own.steps, dict(muon_rate=own.muon_rate / 2, learning_rate=own.learning_rate / 2)
    yield from ((own.steps, dict(schedule=name)) for name in ("cosine", "stable"))
    yield own.steps * 2, dict(batch=own.batch // 2)
    yield own.steps // 2, dict(batch=own.batch * 2)


def learning_curves(row, quick: bool) -> None:
    """The Trainer's learning rate first; then both sides in several lengths; then other choices of ours."""
    torch.set_num_threads(1)
    sizes, seeds, lengths = ((4,), (0,), (5,)) if quick else ((10, 30), (0, 1, 2), THEIRS)

    def run(key: dict) -> dict:
        return row(partial(train, key), **key)

    rates = {}
    for states in sizes:
        tried = [run(theirs(states, seeds[0], lengths[-1], rate)) for rate in RATES]
        rates[states] = min(tried, key=lambda row: row["excess"])["learning_rate"]
    for seed in seeds:
        for states in sizes:
            for steps in (5,) if quick else OURS:
                run(ours(states, seed, steps))
            for steps in lengths:
                if (seed, steps) != (seeds[0], lengths[-1]):  # that was run in the search
                    run(theirs(states, seed, steps, rates[states]))
            for steps, changes in () if quick else choices():
                run(ours(states, seed, steps, **changes))


def train(key: dict) -> dict:
    """Of a run: its tokens, seconds, and losses on fresh sequences."""
    changes = {name: key[name] for name in ("learning_rate", "muon_rate", "batch", "warmup") if name in key}
    trial = dict(preset=PRESET, n_states=key["states"], seed=key["seed"], steps=key["steps"], **changes)
    spec = TrialSpec(**trial)
    if key["side"] == "hmmlib":
        who = Contestant("hmmlib", "networks:trained", dict(trial=trial, schedule=key["schedule"]), peer=False)
    else:
        settings = trainer_settings(spec, key["learning_rate"]) | dict(optim="adamw_torch_fused")
        who = Contestant("Trainer", "with_trainer:trained", settings, inputs=save_text(spec))
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(who, 1, Path(folder, "run"))
        try:
            worker.ask(LONGEST, 8 * GIB, **worker.first)
            seconds, *weights = np.load(worker.answer)
        finally:
            worker.close()
    network = build_network(spec)
    torch.nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), network.parameters())
    seed = trial_seeds(spec.seed)["evaluation"]
    loss, least = masked_losses(network, draw_model(spec), spec.evaluation, spec.length, spec.masked, seed)
    tokens = spec.steps * spec.batch * spec.length
    return dict(tokens=tokens, seconds=seconds.item(), loss=loss, least=least, excess=loss - least)
