"""Contestants without work, for tests of the contest itself."""

from __future__ import annotations

import os
import time

import numpy as np


def sleeper(seconds: float = 0.01, value: float = 0.0, first: float | None = None):
    """Sleeps; the answer is `value`. The first call, outside the clock, may take another time."""
    turn = iter([seconds if first is None else first])

    def call() -> float:
        time.sleep(next(turn, seconds))
        return value

    return call, lambda result: [result]


def hoarder(gib: float, times: int = 1):
    """Fills memory, a little at a time."""

    def call():
        return [np.ones(int(gib * 2**27 / 64)) for _ in range(64 * times)]

    return call, lambda result: None


def faulty(message: str):
    raise RuntimeError(message)


def quitter(code: int = 3):
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
