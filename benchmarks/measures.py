"""What is measured: one function for each benchmark, which asks `row(make, **key)` for each of its rows.

`row` returns the row `key | make()`. It was made now, or by an earlier run that was interrupted. With `quick`, sizes
are small.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from contest import FOLDER, GIB, Contestant, contest
from torch import Tensor

from hmmbook.experiments.parts import build_network, draw_model, trial_seeds
from hmmbook.experiments.specs import TrialSpec
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training.pretraining import corpus
from hmmlib.validation import as_generator

INPUTS = FOLDER.parent / "build" / "bench" / "inputs"
TOKENS = 10
"""Tokens of every model, |X|."""
QUICK = dict(rounds=3, budget=1.0)
"""Rules of a contest of inference with --quick."""
TOLERANCE = {"float64": 1e-5, "float32": 1e-3}
"""Probabilities that differ by no more than this count as the same. dynamax's smoother needs it at 256 states."""


def thread_counts(quick: bool) -> tuple[int, ...]:
    """With how many threads each contest is run."""
    return (1,) if quick else (1, 2)


def save(name: str, model: HMM | MemoryHMM, tokens: Tensor) -> Path:
    """Write model and tokens to a file that every contestant can read."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    path = INPUTS / f"{name}.npz"
    arrays = {"tokens": tokens.numpy()}
    for part in ("transition", "emission", "initial", "memory"):
        if hasattr(model, part):
            arrays[part] = getattr(model, part).numpy()
    np.savez(path, **arrays)
    return path


def hmmlib(call: str, name: str = "hmmlib", **fields) -> Contestant:
    """A contestant that runs our library."""
    return Contestant(name, call, peer=False, **fields)


def dynamax(call: str, dtype: str, name: str = "dynamax", **fields) -> Contestant:
    """A contestant that runs dynamax in that precision."""
    env = {"JAX_ENABLE_X64": "1" if dtype == "float64" else "0", "JAX_PLATFORMS": "cpu"}
    return Contestant(name, f"with_dynamax:{call}", env=env, **fields)


def posteriors(row, quick: bool) -> None:
    """All P[H_i | x], and all G, of 1000 sequences of 129 tokens, by ours and the peers."""
    n, length = (100, 33) if quick else (1000, 129)
    sizes = (30,) if quick else (4, 30, 64, 256)
    rules = QUICK if quick else dict(rounds=9, budget=6.0, box=30.0)
    for threads, dtype, states in product(thread_counts(quick), TOLERANCE, sizes):
        model = random_hmm(states, TOKENS, seed=states)
        tokens = model.sample(n, length, seed=1).tokens
        inputs = save(f"hmm-{states}-{n}-{length}", model, tokens)
        size = dict(states=states, n=n, length=length, dtype=dtype)
        sides = {"posteriors": smoothers(inputs, threads, **size), "G": maskers(inputs, **size)}
        for what, contestants in sides.items():
            make = partial(contest, contestants, threads=threads, tolerance=TOLERANCE[dtype], **rules)
            row(make, what=what, threads=threads, **size, tokens=TOKENS)
    few_tokens(row, quick)


def few_tokens(row, quick: bool) -> None:
    """All P[H_i | x] of few or short sequences, where much of a call is spent outside the passes along the texts."""
    shapes = [(10, 10)] if quick else [(10, 10), (100, 10), (10, 100)]
    rules = QUICK if quick else dict(rounds=9, budget=6.0, box=30.0)
    rules = rules | dict(threads=1, calls=50, tolerance=TOLERANCE["float64"])
    for (n, length), states in product(shapes, (4, 30)):
        model = random_hmm(states, TOKENS, seed=states)
        tokens = model.sample(n, length, seed=1).tokens
        inputs = save(f"hmm-{states}-{n}-{length}", model, tokens)
        size = dict(states=states, n=n, length=length, dtype="float64")
        contestants = smoothers(inputs, threads=1, **size)
        row(partial(contest, contestants, **rules), what="few tokens", threads=1, **size, tokens=TOKENS)


def smoothers(inputs: Path, threads: int, states: int, n: int, length: int, dtype: str) -> list[Contestant]:
    """Who computes P[H_i | x], ours first. hmmlearn does it in float64 on one thread, pomegranate in float32."""
    text = dict(inputs=inputs, work=n * length)
    contestants = [
        hmmlib("ours:posteriors", options=dict(dtype=dtype), **text),
        dynamax("posteriors", dtype, **text),
        dynamax("posteriors", dtype, "dynamax, two filters", options=dict(smoother="two filters"), **text),
    ]
    if dtype == "float64":
        few = few_sequences(n, states, up_to=64)
        contestants.append(peer("hmmlearn, scaling", "with_hmmlearn:posteriors", inputs, few, length))
    if dtype == "float64" and threads == 1:
        few = few_sequences(n, states, up_to=15)
        options = dict(implementation="log")
        contestants.append(peer("hmmlearn, log", "with_hmmlearn:posteriors", inputs, few, length, **options))
    if dtype == "float32":
        few = few_sequences(n, states, up_to=8)
        contestants.append(peer("pomegranate", "with_pomegranate:posteriors", inputs, few, length, dtype=dtype))
    return contestants


def maskers(inputs: Path, states: int, n: int, length: int, dtype: str) -> list[Contestant]:
    """Who computes G, ours first."""
    text = dict(inputs=inputs, work=n * length)
    contestants = [hmmlib("ours:masked", options=dict(dtype=dtype), **text), dynamax("masked", dtype, **text)]
    if dtype == "float64":
        few = few_sequences(n, states, up_to=64)
        contestants.append(peer("hmmlearn, scaling", "with_hmmlearn:masked", inputs, few, length))
    return contestants


def few_sequences(n: int, states: int, up_to: int) -> int:
    """All n sequences of a chain that has no more than `up_to` states, and fewer of larger chains."""
    share = (up_to / states) ** 2
    return max(5, min(n, int(n * share)))


def peer(name: str, call: str, inputs: Path, n: int, length: int, **options) -> Contestant:
    """A peer that is given the first n sequences, because its cost for each token is what counts."""
    return Contestant(name, call, dict(n=n, **options), inputs=inputs, work=n * length)


def memory(row, quick: bool) -> None:
    """G of a model with a memory. Ours uses its structure, and the peers get the flattened chain, the same model."""
    n, length = (50, 17) if quick else (1000, 129)
    cells, values, states = (2, 3, 4) if quick else (3, 5, 12)
    rules = QUICK if quick else dict(rounds=3, budget=2.0, box=20.0, limit=10 * GIB)
    model = random_memory_hmm(values, states, TOKENS, seed=1, n_cells=cells)
    tokens = model.sample(n, length, seed=1).tokens
    structured = save("memory", model, tokens)
    flat = save("flattened", model.flatten(), tokens)
    size = dict(cells=cells, values=values, states=states, n=n, length=length, tokens=TOKENS)
    for threads, dtype in product(thread_counts(quick), TOLERANCE):
        few = min(n, 20)
        contestants = [
            hmmlib("ours:masked", options=dict(dtype=dtype), inputs=structured, work=n * length),
            dynamax("masked", dtype, options=dict(n=few), inputs=flat, work=few * length),
        ]
        if dtype == "float64" and threads == 2:  # one try with all sequences is enough
            contestants.append(dynamax("masked", dtype, "dynamax, all", inputs=flat, work=n * length))
        if dtype == "float64":
            contestants.append(peer("hmmlearn, scaling", "with_hmmlearn:masked", flat, min(n, 5), length))
        make = partial(contest, contestants, threads=threads, tolerance=TOLERANCE[dtype], **rules)
        row(make, what="against flattened", threads=threads, dtype=dtype, **size)


def sampling(row, quick: bool) -> None:
    """Drawing sequences: ours, hmmlearn's `sample`, and dynamax's, mapped and compiled."""
    # The last size is the corpus of appendix E.
    sizes = [(100, 129)] if quick else [(1000, 129), (5000, 10240)]
    rules = QUICK if quick else dict(rounds=3, budget=5.0, box=30.0, limit=10 * GIB)
    states = 30
    model = random_hmm(states, TOKENS, seed=1)
    inputs = save("sampling", model, model.sample(1, 1, seed=1).tokens)

    def sized(n: int, length: int, **options) -> dict:
        return dict(options=dict(n=n, length=length, **options), inputs=inputs, work=n * length)

    for threads, (n, length) in product(thread_counts(quick), sizes):
        contestants = [
            hmmlib("ours:sample", **sized(n, length)),
            hmmlib("ours:sample", "hmmlib, states too", **sized(n, length, states=True)),
            hmmlib("ours:sample", "hmmlib, a byte a token", **sized(n, length, dtype="uint8")),
            # dynamax would take minutes for the corpus, and hmmlearn draws one token at a time.
            dynamax("sample", "float64", **sized(min(n, 2_560_000 // length), length)),
            Contestant("hmmlearn", "with_hmmlearn:sample", **sized(max(1, 12_900 // length), length)),
        ]
        # What is compared is the share of each token, and the smallest sample has a few thousand tokens.
        make = partial(contest, contestants, threads=threads, tolerance=0.05, **rules)
        row(make, threads=threads, n=n, length=length, states=states, tokens=TOKENS)


TRAINERS = {
    "Trainer": dict(optim="adamw_torch_fused"),
    "Trainer, AdamW not fused": dict(optim="adamw_torch"),
    "Trainer, a process to load": dict(optim="adamw_torch_fused", workers=1),
}
"""Settings of the Trainer that were tried. The first is the best on two processors."""


def save_text(spec: TrialSpec) -> Path:
    """Write the text that a trial pretrains on to a file."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    path = INPUTS / f"text-{spec.hash}.npy"
    generator = as_generator(trial_seeds(spec.seed)["pretraining"])
    np.save(path, corpus(draw_model(spec), spec.pretraining(), generator))
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


def pretraining(row, quick: bool) -> None:
    """Steps of ours, beside Hugging Face's Trainer on the same network, text and number of tokens a batch."""
    preset = "smoke" if quick else "quick"
    count = 3 if quick else 15  # steps in one call
    rounds = 2 if quick else 5
    trial = dict(preset=preset, steps=count * (rounds + 3))
    spec = TrialSpec(**trial)
    text = dict(inputs=save_text(spec), work=count * spec.batch * spec.length)
    options = dict(count=count, trial=trial)
    without_muon = dict(count=count, trial=dict(trial, muon_rate=0.0))
    contestants = [
        hmmlib("networks:steps", options=options, **text),
        hmmlib("networks:steps", "hmmlib, AdamW alone", options=without_muon, **text),
    ]
    settings = dict(count=count, **trainer_settings(spec, spec.learning_rate))
    for name, choice in TRAINERS.items():
        contestants.append(Contestant(name, "with_trainer:steps", settings | choice, **text))
    for threads in thread_counts(quick):
        make = partial(contest, contestants, threads=threads, rounds=rounds, tolerance=1e-4, budget=120.0)
        row(make, what="step", preset=preset, threads=threads)
