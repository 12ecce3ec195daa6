"""All P[H_i | x] and all G of 1000 sequences of 129 tokens: ours, the peers, and what the machine allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from contest import ROOT, Contestant, Pool, contest

from hmmlib.models.appendix_e import random_hmm

INPUTS = ROOT / "build" / "bench" / "inputs"
TOKENS = 10
TOLERANCE = {"float64": 1e-5, "float32": 1e-3}
"""Largest difference of probabilities that counts as the same result: what dynamax's smoother needs at 256 states."""
PRODUCT = 1024
"""Size of the matrices whose product says how many operations a second the machine does."""


def save(name: str, model, tokens) -> Path:
    """Model and tokens as a file that every contestant can read."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    path = INPUTS / f"{name}.npz"
    parts = ("transition", "emission", "initial", "memory")
    arrays = {part: getattr(model, part).numpy() for part in parts if hasattr(model, part)}
    np.savez(path, tokens=tokens.numpy(), **arrays)
    return path


def dynamax(name: str, call: str, dtype: str, **rest) -> Contestant:
    env = {"JAX_ENABLE_X64": "1" if dtype == "float64" else "0", "JAX_PLATFORMS": "cpu"}
    return Contestant(name, f"with_dynamax:{call}", env=env, **rest)


def bounds(n: int, length: int, width: int, operations: float, dtype: str) -> list[Contestant]:
    """Writing `width` numbers a token, once; and `operations` a token at the rate of a large matrix product."""
    fill, work = dict(entries=n * length * width, dtype=dtype), n * length
    product = dict(size=PRODUCT, dtype=dtype)
    # With it, the C library asks the system for each large array anew.
    anew = {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
    return [
        Contestant("bytes, fresh", "bounds:fill", fill | {"fresh": True}, peer=False, work=work, env=anew),
        Contestant("bytes, mapped", "bounds:fill", fill | {"fresh": False}, peer=False, work=work),
        Contestant("operations", "bounds:product", product, peer=False, work=2 * PRODUCT**3 / operations),
    ]


def measure(rows, quick: bool) -> None:
    n, length = (100, 33) if quick else (1000, 129)
    sizes = (30,) if quick else (4, 30, 64, 256)
    settings = dict(rounds=3, budget=1.0) if quick else dict(rounds=9, budget=6.0, box=30.0)
    for threads in (1,) if quick else (1, 2):
        with Pool() as pool:
            for dtype in ("float64", "float32"):
                for states in sizes:
                    model = random_hmm(states, TOKENS, seed=states)
                    inputs = save(f"hmm-{states}-{n}-{length}", model, model.sample(n, length, seed=1).tokens)
                    for what in ("posteriors", "G"):
                        size = dict(states=states, n=n, length=length, tokens=TOKENS, dtype=dtype)
                        who = contestants(inputs, what, threads=threads, **size)
                        rows(
                            lambda: contest(who, threads, tolerance=TOLERANCE[dtype], pool=pool, **settings),
                            what=what, threads=threads, **size,
                        )  # fmt: skip


def contestants(
    inputs: Path, what: str, states: int, n: int, length: int, tokens: int, dtype: str, threads: int
) -> list[Contestant]:
    """Ours first. hmmlearn is float64 and uses one thread, pomegranate is float32; both do fewer sequences of large chains."""
    call, work = {"posteriors": "posteriors", "G": "masked"}[what], n * length

    def part(least: float) -> int:
        """How many sequences are enough where all take long: all up to `least` states."""
        return max(5, min(n, int(n * (least / states) ** 2)))

    found = [
        Contestant("hmmlib", f"ours:{call}", dict(dtype=dtype), inputs, False, work),
        dynamax("dynamax", call, dtype, inputs=inputs, work=work),
    ]
    if what == "posteriors":
        two = dict(smoother="two filters")
        found.append(dynamax("dynamax, two filters", call, dtype, options=two, inputs=inputs, work=work))
    if dtype == "float64":
        few = part(64)
        found.append(Contestant("hmmlearn, scaling", f"with_hmmlearn:{call}", dict(n=few), inputs, work=few * length))
    if dtype == "float64" and what == "posteriors" and threads == 1:
        few = part(15)
        options = dict(n=few, implementation="log")
        found.append(Contestant("hmmlearn, log", f"with_hmmlearn:{call}", options, inputs, work=few * length))
    if dtype == "float32" and what == "posteriors":
        few = part(8)
        options = dict(n=few, dtype=dtype)
        found.append(Contestant("pomegranate", f"with_pomegranate:{call}", options, inputs, work=few * length))
    operations = 4 * states**2 + (2 * states * tokens if what == "G" else 0)
    return found + bounds(n, length, states if what == "posteriors" else tokens, operations, dtype)
