"""Contestants without work, for tests of the contest itself."""

from __future__ import annotations

import os
import time

import numpy as np


def sleeper(seconds: float = 0.0, value: float = 0.0, first: float | None = None):
    """Sleeps, and answers with `value`. The first call, outside the clock, may take another time."""
    durations = [seconds if first is None else first]

    def call():
        time.sleep(durations.pop() if durations else seconds)

    return call, lambda result: [value]


def hoarder(gib: float):
    """Fills memory, a little at a time."""
    pieces = 64
    doubles = int(gib * 2**30 / 8 / pieces)

    def call():
        return [np.ones(doubles) for _ in range(pieces)]

    return call, lambda result: None


def faulty(message: str):
    raise RuntimeError(message)


def quitter(code: int):
    raise SystemExit(code)


def diarist(path: str, word: str):
    """Writes its word at every call."""

    def call():
        with open(path, "a", encoding="utf8") as file:
            file.write(word)

    return call, lambda result: None


def processors():
    """Answers with the number of processors that it may use."""

    def call():
        return [len(os.sched_getaffinity(0))]

    return call, lambda result: result
