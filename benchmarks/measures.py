"""What is measured: a function for each benchmark, which asks `row(make, **key)` for each of its rows.

`row` returns the row `key | make()`, made now or by an earlier run that was interrupted. With `quick`, sizes are small.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from contest import FOLDER, GIB, Contestant, contest

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.training.pretraining import corpus
from hmmlib.validation import as_generator

INPUTS = FOLDER.parent / "build" / "bench" / "inputs"
TOKENS = 10
TOLERANCE = {"float64": 1e-5, "float32": 1e-3}
"""Largest difference of probabilities that counts as the same result: what dynamax's smoother needs at 256 states."""


def save(name: str, model, tokens) -> Path:
    """Model and tokens as a file that every contestant can read."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    path = INPUTS / f"{name}.npz"
    parts = ("transition", "emission", "initial", "memory")
    arrays = {part: getattr(model, part).numpy() for part in parts if hasattr(model, part)}
    np.savez(path, tokens=tokens.numpy(), **arrays)
    return path


def hmmlib(call: str, name: str = "hmmlib", **rest) -> Contestant:
    return Contestant(name, call, peer=False, **rest)


def dynamax(call: str, dtype: str, name: str = "dynamax", **rest) -> Contestant:
    env = {"JAX_ENABLE_X64": "1" if dtype == "float64" else "0", "JAX_PLATFORMS": "cpu"}
    return Contestant(name, f"with_dynamax:{call}", env=env, **rest)


def posteriors(row, quick: bool) -> None:
    """All P[H_i | x], and all G, of 1000 sequences of 129 tokens, by ours and the peers."""
    n, length = (100, 33) if quick else (1000, 129)
    settings = dict(rounds=3, budget=1.0) if quick else dict(rounds=9, budget=6.0, box=30.0)
    sizes = ((1,), (30,)) if quick else ((1, 2), (4, 30, 64, 256))
    for threads, dtype, states in product(sizes[0], TOLERANCE, sizes[1]):
        model = random_hmm(states, TOKENS, seed=states)
        inputs = save(f"hmm-{states}-{n}-{length}", model, model.sample(n, length, seed=1).tokens)
        for what in ("posteriors", "G"):
            key = dict(what=what, threads=threads, states=states, n=n, length=length, dtype=dtype)
            who = smoothers(inputs, **key)
            row(partial(contest, who, threads, tolerance=TOLERANCE[dtype], **settings), **key, tokens=TOKENS)


def smoothers(inputs: Path, what: str, threads: int, states: int, n: int, length: int, dtype: str) -> list[Contestant]:
    """Ours first. hmmlearn is float64 on one thread, pomegranate float32; both do fewer sequences of large chains."""
    call = {"posteriors": "posteriors", "G": "masked"}[what]
    whole = dict(inputs=inputs, work=n * length)

    def part(up_to: float, **options) -> dict:  # all sequences up to so many states
        few = max(5, min(n, int(n * (up_to / states) ** 2)))
        return dict(options=dict(n=few, **options), inputs=inputs, work=few * length)

    found = [hmmlib(f"ours:{call}", options=dict(dtype=dtype), **whole), dynamax(call, dtype, **whole)]
    if what == "posteriors":
        found.append(dynamax(call, dtype, "dynamax, two filters", options=dict(smoother="two filters"), **whole))
    if dtype == "float64":
        found.append(Contestant("hmmlearn, scaling", f"with_hmmlearn:{call}", **part(64)))
    if dtype == "float64" and what == "posteriors" and threads == 1:
        found.append(Contestant("hmmlearn, log", f"with_hmmlearn:{call}", **part(15, implementation="log")))
    if dtype == "float32" and what == "posteriors":
        found.append(Contestant("pomegranate", f"with_pomegranate:{call}", **part(8, dtype=dtype)))
    return found


def memory(row, quick: bool) -> None:
    """G of a model with a memory: ours on its own structure, the peers on the flattened chain, the same model."""
    n, length = (50, 17) if quick else (1000, 129)
    cells, values, states = (2, 3, 4) if quick else (3, 5, 12)
    settings = dict(rounds=3, budget=1.0) if quick else dict(rounds=3, budget=2.0, box=20.0, limit=10 * GIB)
    model = random_memory_hmm(values, states, TOKENS, seed=1, n_cells=cells)
    tokens = model.sample(n, length, seed=1).tokens
    size = dict(cells=cells, values=values, states=states, n=n, length=length, tokens=TOKENS)
    own, flat = save("memory", model, tokens), save("flattened", model.flatten(), tokens)

    def part(few: int) -> dict:  # for a peer that cannot do all in a call: its cost for each token is what counts
        return dict(options=dict(n=min(n, few)), inputs=flat, work=min(n, few) * length)

    for threads, dtype in product((1,) if quick else (1, 2), TOLERANCE):
        who = [hmmlib("ours:masked", options=dict(dtype=dtype), inputs=own, work=n * length)]
        who.append(dynamax("masked", dtype, **part(20)))
        if dtype == "float64" and threads == 2:  # one try is enough
            who.append(dynamax("masked", dtype, "dynamax, all", inputs=flat, work=n * length))
        if dtype == "float64":
            who.append(Contestant("hmmlearn, scaling", "with_hmmlearn:masked", **part(5)))
        make = partial(contest, who, threads, tolerance=TOLERANCE[dtype], **settings)
        row(make, what="against flattened", threads=threads, dtype=dtype, **size)


def sampling(row, quick: bool) -> None:
    """Drawing sequences: ours, hmmlearn's `sample`, dynamax's mapped and compiled; up to the paper's whole corpus."""
    settings = dict(rounds=3, budget=1.0) if quick else dict(rounds=3, budget=5.0, box=30.0, limit=10 * GIB)
    settings["tolerance"] = 0.05  # of the share of a token; the smallest sample is a few thousand tokens
    states = 30
    model = random_hmm(states, TOKENS, seed=1)
    inputs = save("sampling", model, model.sample(1, 1, seed=1).tokens)

    def sized(n: int, length: int, **options) -> dict:
        return dict(options=dict(n=n, length=length, **options), inputs=inputs, work=n * length)

    for threads in (1,) if quick else (1, 2):
        for n, length in [(100, 129)] if quick else [(1000, 129), (5000, 10240)]:  # the second: appendix E's corpus
            who = [
                hmmlib("ours:sample", **sized(n, length)),
                hmmlib("ours:sample", "hmmlib, states too", **sized(n, length, states=True)),
                hmmlib("ours:sample", "hmmlib, a byte a token", **sized(n, length, dtype="uint8")),
                # dynamax would take minutes for the corpus, and hmmlearn draws one token at a time
                dynamax("sample", "float64", **sized(min(n, 2_560_000 // length), length)),
                Contestant("hmmlearn", "with_hmmlearn:sample", **sized(max(1, 12_900 // length), length)),
            ]
            key = dict(threads=threads, n=n, length=length, states=states, tokens=TOKENS)
            row(partial(contest, who, threads, **settings), **key)


LOADERS = {
    "Trainer": dict(optim="adamw_torch_fused"),
    "Trainer, AdamW not fused": dict(optim="adamw_torch"),
    "Trainer, a process to load": dict(optim="adamw_torch_fused", workers=1),
}
"""Settings of the Trainer that were tried, the best on two processors first."""


def save_text(spec: TrialSpec) -> Path:
    """The text that a trial pretrains on, as a file."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    path = INPUTS / f"text-{spec.hash}.npy"
    np.save(path, corpus(draw_model(spec), spec.pretraining(), as_generator(trial_seeds(spec.seed)["pretraining"])))
    return path


def trainer_settings(spec: TrialSpec, rate: float) -> dict:
    """What the Trainer has to know of a trial: the same network, as many tokens a batch, as many of them hidden."""
    config, seed = build_network(spec).config.to_diff_dict(), trial_seeds(spec.seed)["network"]
    return dict(config=config, seed=seed, hidden=max(1, round(spec.masked * spec.length)), batch=spec.batch, rate=rate)


def pretraining(row, quick: bool) -> None:
    """Steps of ours, beside Hugging Face's Trainer on the same network, text and number of tokens a batch."""
    preset, count, rounds = ("smoke", 3, 2) if quick else ("quick", 15, 5)
    trial = dict(preset=preset, steps=count * (rounds + 3))
    spec = TrialSpec(**trial)
    rest = dict(inputs=save_text(spec), work=count * spec.batch * spec.length)
    settings = dict(count=count, **trainer_settings(spec, spec.learning_rate))
    alone = dict(count=count, trial=trial | {"muon_rate": 0.0})
    who = [
        hmmlib("networks:steps", options=dict(count=count, trial=trial), **rest),
        hmmlib("networks:steps", "hmmlib, AdamW alone", options=alone, **rest),
        *(Contestant(name, "with_trainer:steps", settings | own, **rest) for name, own in LOADERS.items()),
    ]
    for threads in (1,) if quick else (1, 2):
        make = partial(contest, who, threads, rounds, tolerance=1e-4, budget=120.0)
        row(make, what="step", preset=preset, threads=threads)


CACHED = {"outputs computed once": True, "outputs computed in each pass": False}


def tuning(row, quick: bool) -> None:
    """A head on outputs computed once beside one that runs the network again, and a prompt in single precision.

    A few batches are timed, for appendix E's sizes take hours on a CPU; a unit of work is an example in a pass.
    """
    settings = dict(threads=1 if quick else 2, rounds=2 if quick else 3, box=120.0, budget=15.0)
    for preset, examples in ({"smoke": 64} if quick else {"quick": 1280, "paper": 8}).items():
        spec, given = TrialSpec(preset), dict(trial=dict(preset=preset), examples=examples)
        key = dict(preset=preset, examples=examples, train=spec.train, epochs=spec.epochs, batch=spec.tuning_batch)
        ways = {name: given | dict(epochs=spec.epochs, cached=cached) for name, cached in CACHED.items()}
        heads = [hmmlib("networks:head", name, options=own, work=examples * spec.epochs) for name, own in ways.items()]
        row(partial(contest, heads, tolerance=1e-3, **settings), what="head", **key)
        options = {dtype: given | dict(dtype=dtype) for dtype in ("float32", "float64")}
        prompts = [hmmlib("networks:prompt", dtype, options=own, work=examples) for dtype, own in options.items()]
        row(partial(contest, prompts, **settings), what="prompt", prompt_length=spec.prompt_length, **key)


CURVES = {
    ("posteriors", "n"): dict(n=(10, 100, 1000, 10_000), length=129, states=30),
    ("posteriors", "length"): dict(n=100, length=(13, 129, 1290, 12_900), states=30),
    ("posteriors", "states"): dict(n=1000, length=129, states=(3, 30, 300)),
    ("memory", "n"): dict(n=(10, 100, 1000), length=129, states=12, values=5, cells=3),
    ("memory", "states"): dict(n=10, length=129, states=(3, 30, 300), values=5, cells=3),
    ("memory", "values"): dict(n=100, length=129, states=12, values=(1, 10, 100, 1000), cells=1),
    ("sampling", "n"): dict(n=(100, 1000, 10_000, 100_000), length=129, states=30),
    ("sampling", "length"): dict(n=100, length=(129, 1290, 12_900, 129_000), states=30),
    ("sampling", "states"): dict(n=1000, length=129, states=(3, 30, 300)),
}


def growth(row, quick: bool) -> None:
    """How seconds and memory of our own code grow with the work, one size at a time by tens, in float64."""
    settings = dict(rounds=2, budget=1.0) if quick else dict(rounds=3, budget=3.0, limit=12 * GIB)
    for (what, grows), sizes in CURVES.items():
        at = list(sizes[grows])[: 2 if quick else None]
        who = [of_size(what, sizes | {grows: value}, str(value)) for value in at]
        row(partial(contest, who, 1 if quick else 2, **settings), what=what, grows=grows, at=at, sizes=sizes)


def of_size(what: str, size: dict, name: str) -> Contestant:
    n, length = size["n"], size["length"]
    if what == "memory":
        model = random_memory_hmm(size["values"], size["states"], TOKENS, seed=1, n_cells=size["cells"])
    else:
        model = random_hmm(size["states"], TOKENS, seed=1)
    tokens = model.sample(*((1, 1) if what == "sampling" else (n, length)), seed=1).tokens
    options = dict(n=n, length=length) if what == "sampling" else dict(dtype="float64")
    call = {"posteriors": "posteriors", "memory": "masked", "sampling": "sample"}[what]
    inputs = save(f"growth-{what}-{'-'.join(map(str, size.values()))}", model, tokens)
    return hmmlib(f"ours:{call}", name, options=options, inputs=inputs, work=n * length)
