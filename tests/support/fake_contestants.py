"""Contestants without work, for tests of the contest itself."""

from __future__ import annotations

import os
import time

import numpy as np


def sleeper(seconds: float = 0.0, value: float = 0.0, first: float | None = None):
    """Sleeps; the answer is `value`. The first call, outside the clock, may take another time."""
    turn = iter([seconds if first is None else first])
    return lambda: time.sleep(next(turn, seconds)), lambda result: [value]


def hoarder(gib: float):
    """Fills memory, a little at a time."""
    return lambda: [np.ones(int(gib * 2**27 / 64)) for _ in range(64)], lambda result: None


def faulty(message: str):
    raise RuntimeError(message)


def quitter(code: int):
    raise SystemExit(code)


def diarist(path: str, word: str):
    """Writes its word at every call."""

    def call():
        with open(path, "a") as file:
            file.write(word)

    return call, lambda result: None


def processors():
    """Answers with the number of processors that it may use."""
    return lambda: [len(os.sched_getaffinity(0))], lambda result: result
