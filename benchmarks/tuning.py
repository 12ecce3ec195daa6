"""Tuning: a head on outputs computed once beside one that runs the network again, and a prompt in single precision.

Appendix E's sizes (a network 768 wide with 6 layers, 5000 examples of 129 tokens, a prompt of 20) take hours on a CPU: a
few batches are timed, and what the whole would take is their time multiplied.
"""

from __future__ import annotations

from contest import Contestant, contest

from hmmlib.experiments.specs import TrialSpec


def head(trial: dict, examples: int, epochs: int) -> list[Contestant]:
    """`examples` examples in `epochs` passes; a unit of work is an example in a pass."""
    rest = dict(peer=False, work=examples * epochs)
    options = dict(trial=trial, examples=examples, epochs=epochs)
    return [
        Contestant("outputs computed once", "tunings:head", options | dict(cached=True), **rest),
        Contestant("outputs computed in each pass", "tunings:head", options | dict(cached=False), **rest),
    ]


def prompt(trial: dict, examples: int) -> list[Contestant]:
    """One pass over `examples` examples; a unit of work is an example in a pass."""
    options, rest = dict(trial=trial, examples=examples), dict(peer=False, work=examples)
    return [
        Contestant(dtype, "tunings:prompt", options | dict(dtype=dtype), **rest) for dtype in ("float32", "float64")
    ]


def measure(rows, quick: bool) -> None:
    presets = {"smoke": 64} if quick else {"quick": 1280, "paper": 8}
    for preset, examples in presets.items():
        spec = TrialSpec(preset)
        whole = dict(examples=examples, train=spec.train, epochs=spec.epochs, batch=spec.tuning_batch)
        trial = dict(preset=preset)
        settings = dict(threads=1 if quick else 2, rounds=2 if quick else 3, box=120.0, budget=15.0)
        rows(
            lambda: contest(head(trial, examples, spec.epochs), tolerance=1e-3, **settings),
            what="head", preset=preset, **whole,
        )  # fmt: skip
        rows(
            lambda: contest(prompt(trial, examples), **settings),
            what="prompt", preset=preset, prompt_length=spec.prompt_length, **whole,
        )  # fmt: skip
