"""Drawing sequences: ours, hmmlearn's `sample`, dynamax's `sample` mapped and compiled, and the paper's whole corpus."""

from __future__ import annotations

from contest import GIB, Contestant, contest
from posteriors import dynamax, save

from hmmlib.models.appendix_e import random_hmm

STATES, TOKENS = 30, 10
CORPUS = (5000, 10240)
"""Documents of the paper's corpus, and tokens of each."""
TOLERANCE = 0.05
"""Largest difference between the shares of a token in two samples that counts as agreement; the smallest sample is
hmmlearn's, a few thousand tokens."""


def measure(rows, quick: bool) -> None:
    settings = dict(rounds=3, budget=1.0) if quick else dict(rounds=3, budget=5.0, box=30.0, limit=10 * GIB)
    model = random_hmm(STATES, TOKENS, seed=1)
    inputs = save("sampling", model, model.sample(1, 1, seed=1).tokens)
    shapes = [(100, 129)] if quick else [(1000, 129), CORPUS]
    for threads in (1,) if quick else (1, 2):
        for n, length in shapes:
            few = max(1, 12_900 // length)  # sequences for hmmlearn, which draws one token at a time
            part = min(n, 2_560_000 // length)  # and for dynamax, which would take minutes for the corpus
            who = [
                ours("hmmlib", inputs, n, length),
                ours("hmmlib, states too", inputs, n, length, states=True),
                ours("hmmlib, a byte a token", inputs, n, length, dtype="uint8"),
                dynamax("dynamax", "sample", "float64", **sized(inputs, part, length)),
                Contestant("hmmlearn", "with_hmmlearn:sample", **sized(inputs, few, length)),
            ]
            rows(
                lambda: contest(who, threads, tolerance=TOLERANCE, **settings),
                threads=threads, n=n, length=length, states=STATES, tokens=TOKENS,
            )  # fmt: skip


def sized(inputs, n: int, length: int, **options) -> dict:
    return dict(options=dict(n=n, length=length, **options), inputs=inputs, work=n * length)


def ours(name: str, inputs, n: int, length: int, **options) -> Contestant:
    return Contestant(name, "ours:sample", peer=False, **sized(inputs, n, length, **options))
