"""Excess loss against time: whole pretrainings by ours and by Hugging Face's Trainer, of several lengths.

python benchmarks/learning_curves.py [SETS…] [--part 1/2]

As the learning rate falls to zero over a run, each length is a run of its own, and a curve is made of many. The excess
is the network's masked-token loss minus that of the exact conditionals, on the same fresh sequences for all. A run uses
one thread. Runs that benchmarks/results/learning-curves.json has are not done again; two processes on one processor each
(`taskset -c 0 … --part 1/2`) share the work. Seconds of such runs are those of a machine with other work; for a curve
against time, take steps times what a step costs in the contest (results/pretraining.json).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import learning
from contest import GIB, RESULTS, Contestant, Worker, machine, write
from pretraining import INPUTS, save_text, trainer_settings
from records import chosen

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.training.readers import masked_losses

PATH = RESULTS / "learning-curves.json"
PRESET = learning.PRESET
STATES, SEEDS = (10, 30), (0, 1, 2)
OURS = (250, 400, 550)
"""Steps of our runs, the preset's own among them."""
SEARCHED, RATES = 1100, (1e-3, 2e-3, 4e-3, 8e-3)
"""Steps of the runs that look for the Trainer's best learning rate, and the rates tried."""
THEIRS = (550, 1100)
"""Steps of the Trainer's runs."""
LONGEST = 900.0
"""Seconds that a run may take."""


def ours(states: int, seed: int, steps: int, schedule: str = "linear", **changes) -> dict:
    """A run of ours: the preset but for `changes`. Warm-up is a share of the run, as in the preset."""
    own = TrialSpec(PRESET)
    changes = dict(learning_rate=own.learning_rate, muon_rate=own.muon_rate, batch=own.batch) | changes
    warmup = max(1, round(own.warmup * steps / own.steps))
    return dict(side="hmmlib", states=states, seed=seed, steps=steps, warmup=warmup, schedule=schedule, **changes)


def theirs(states: int, seed: int, steps: int, rate: float) -> dict:
    """A run of the Trainer, with AdamW."""
    own = TrialSpec(PRESET)
    return dict(side="Trainer", states=states, seed=seed, steps=steps, learning_rate=rate, batch=own.batch)


def best_rate(rows: list[dict], states: int) -> float:
    """The Trainer's learning rate with the lowest excess among the runs of the search. ValueError before they are done."""
    searched = [theirs(states, SEEDS[0], SEARCHED, rate) for rate in RATES]
    found = {key["learning_rate"]: find(rows, key) for key in searched}
    if None in found.values():
        raise ValueError(f"the search for a learning rate at {states} states is not done: run the set rates first")
    return learning.best_rate(rows, states)


def search() -> Iterator[dict]:
    """The Trainer's learning rate."""
    yield from (theirs(states, SEEDS[0], SEARCHED, rate) for rate in RATES for states in STATES)


def curves() -> Iterator[dict]:
    """Ours and the Trainer's at its best rate, in several lengths."""
    rates = {states: best_rate(stored(), states) for states in STATES}
    for seed in SEEDS:
        for steps in sorted({*OURS, *THEIRS}):
            if steps in OURS:
                yield from (ours(states, seed, steps) for states in STATES)
            if steps in THEIRS:
                yield from (theirs(states, seed, steps, rates[states]) for states in STATES)


def choices() -> Iterator[dict]:
    """What else the preset could be: lower and higher rates, other schedules, other batches of as many tokens in all."""
    own = TrialSpec(PRESET)
    changes = [dict(muon_rate=own.muon_rate * f) for f in (0.5, 2)]
    changes += [dict(learning_rate=own.learning_rate * f) for f in (0.5, 2)]
    changes += [dict(muon_rate=own.muon_rate / 2, learning_rate=own.learning_rate / 2)]
    changes += [dict(schedule=name) for name in ("cosine", "stable")]
    runs = [(own.steps, change) for change in changes]
    runs += [(own.steps * 2, dict(batch=own.batch // 2)), (own.steps // 2, dict(batch=own.batch * 2))]
    for seed in SEEDS:
        for steps, change in runs:
            yield from (ours(states, seed, steps, **change) for states in STATES)


SETS = {"rates": search, "curves": curves, "choices": choices}


def stored() -> list[dict]:
    """The rows there are."""
    return json.loads(PATH.read_text())["rows"] if PATH.is_file() else []


def find(rows: list[dict], key: dict) -> dict | None:
    """The row of a run; None if there is none."""
    return next(iter(chosen(rows, **key)), None)


def keep(row: dict) -> None:
    """Add a row; several processes may."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    with FileLock(INPUTS / f"{PATH.stem}.lock"):
        write(PATH, {"name": "learning-curves", "preset": PRESET, "machine": machine(), "rows": [*stored(), row]})


def train(key: dict) -> dict:
    """The row of a run: its key, its tokens, seconds, and losses on fresh sequences."""
    changes = {name: key[name] for name in ("learning_rate", "muon_rate", "batch", "warmup") if name in key}
    trial = dict(preset=PRESET, n_states=key["states"], seed=key["seed"], steps=key["steps"], **changes)
    spec = TrialSpec(**trial)
    if key["side"] == "hmmlib":
        who = Contestant("hmmlib", "steps:trained", dict(trial=trial, schedule=key["schedule"]), peer=False)
    else:
        settings = trainer_settings(spec, key["learning_rate"]) | dict(optim="adamw_torch_fused")
        who = Contestant("Trainer", "with_trainer:trained", settings | {"inputs": str(save_text(spec))})
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(who, 1, Path(folder))
        try:
            worker.ask(LONGEST, 8 * GIB, do="prepare", call=who.call, options=who.options, answer=str(worker.answer))
            answer = np.load(worker.answer)
        finally:
            worker.close()
    network = build_network(spec)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(answer[1:]).float(), network.parameters())
    seed = trial_seeds(spec.seed)["evaluation"]
    loss, least = masked_losses(network, draw_model(spec), spec.evaluation, spec.length, spec.masked, seed)
    tokens = spec.steps * spec.batch * spec.length
    return key | dict(tokens=tokens, seconds=answer[0].item(), loss=loss, least=least, excess=loss - least)


def summary(rows: list[dict]) -> Iterator[str]:
    """For each model and seed: our excess at the preset's length, and the Trainer's steps to the same."""
    own = TrialSpec(PRESET).steps
    for states in STATES:
        for seed in SEEDS:
            row = find(rows, ours(states, seed, own))
            if row:
                steps = learning.needed(rows, states, seed, row["excess"])
                trainer = f"after about {steps:.0f} steps" if steps else f"not in {max(THEIRS)} steps"
                yield f"{states} states, seed {seed}: ours {row['excess']:.3g} after {own} steps, the Trainer {trainer}"


def said(value: float | int | str) -> str:
    """A value as it is printed."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(
    sets: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(SETS)}; all if none is given")] = None,
    part: Annotated[str, typer.Option(help="k/n: every n-th run from the k-th on")] = "1/1",
    most: Annotated[int, typer.Option(help="stop after so many runs; 0: do all")] = 0,
) -> None:
    for name in sets or []:
        if name not in SETS:
            raise typer.BadParameter(f"there is no set {name!r}; there are {', '.join(SETS)}")
    k, n = (int(text) if text.isdigit() else 0 for text in f"{part}/".split("/")[:2])
    if not 1 <= k <= n:
        raise typer.BadParameter(f"part must be k/n with 1 ≤ k ≤ n, not {part!r}")
    torch.set_num_threads(1)
    done = 0
    for name in sets or SETS:
        for index, key in enumerate(SETS[name]()):
            if index % n != k - 1 or find(stored(), key):
                continue
            row = train(key)
            keep(row)
            print(", ".join(f"{name} {said(value)}" for name, value in row.items()), flush=True)
            done += 1
            if done == most:
                return
    print("\n".join(summary(stored())))


if __name__ == "__main__":
    typer.run(main)
