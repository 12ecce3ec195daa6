"""How seconds and memory of our own code grow with the work: exponents, and what the largest feasible settings are."""

from __future__ import annotations

import os

import numpy as np
from contest import GIB, Contestant, contest
from posteriors import TOKENS, save

from hmmlib.models.appendix_e import random_hmm, random_memory_hmm

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
"""Sizes; the one named in the key grows, by tens. All in float64; the results of "memory" are G."""
CALLS = {"posteriors": "posteriors", "memory": "masked", "sampling": "sample"}

HOUR = 3600.0
ASSUMED = {
    "n": 1000,
    "length": 129,
    "seconds": HOUR,
    "values of a cell": 5,
    "states beside the memory": 12,
    "share of a machine's memory for results": 0.5,
    "GPUs of a cluster": 100,
    "H100, float64 operations a second": 67e12,
    "H100, fraction of them reached": 0.4,
    "H100, bytes of memory": 80e9,
    "H100, bytes a second": 3.35e12,
    "bytes moved for a drawn token": 24,
}
"""What the largest settings are worked out from, besides our measured seconds. The H100's numbers are its data sheet's
(SXM, tensor cores); sequences are independent, so that a cluster shares them without talking. A token is 8 bytes, and
so are the number that it is drawn with and the state that it comes from."""


def exponent(x: list[float], y: list[float]) -> float:
    """The slope of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def measure(rows, quick: bool) -> None:
    threads = 1 if quick else 2
    settings = dict(rounds=2, budget=1.0) if quick else dict(rounds=3, budget=3.0, box=60.0, limit=12 * GIB)
    curves = {}
    for (what, grows), sizes in CURVES.items():
        at = list(sizes[grows])[: 2 if quick else None]
        curves[what, grows] = rows(
            lambda: curve(what, grows, sizes, at, threads, settings), what=what, grows=grows, at=at, sizes=sizes
        )
    rows(lambda: {"assumed": ASSUMED, "largest": largest(curves)}, what="largest")


def curve(what: str, grows: str, sizes: dict, at: list[int], threads: int, settings: dict) -> dict:
    """One contest of the same call at sizes ten times apart, and the exponents of its seconds and memory."""
    result = contest([contestant(what, sizes | {grows: value}, value) for value in at], threads, **settings)
    done = [one for one in result["contestants"] if "failed" not in one]
    x, seconds = [float(one["name"]) for one in done], [one["median"] for one in done]
    more = [max(one["peak"] - one["settled"], 1) for one in done]
    return result | {
        "seconds": {"all": exponent(x, seconds), "last": exponent(x[-2:], seconds[-2:])},
        "memory": {"last": exponent(x[-2:], more[-2:])},
    }


def contestant(what: str, size: dict, value: int) -> Contestant:
    n, length = size["n"], size["length"]
    if what == "memory":
        model = random_memory_hmm(size["values"], size["states"], TOKENS, seed=1, n_cells=size["cells"])
    else:
        model = random_hmm(size["states"], TOKENS, seed=1)
    tokens = model.sample(*((1, 1) if what == "sampling" else (n, length)), seed=1).tokens
    options = dict(n=n, length=length) if what == "sampling" else dict(dtype="float64")
    inputs = save(f"growth-{what}-{'-'.join(map(str, size.values()))}", model, tokens)
    return Contestant(str(value), f"ours:{CALLS[what]}", options, inputs, peer=False, work=n * length)


def end(row: dict) -> dict:
    """The largest size of a curve that was done."""
    return [one for one in row["contestants"] if "failed" not in one][-1]


def largest(curves: dict) -> dict[str, dict[str, float]]:
    """What is done in an hour: on this machine by its measured seconds, on GPUs by what is assumed of them.

    States of an HMM whose posteriors of 1000 sequences of 129 tokens are kept; cells of a memory model whose G is; tokens
    drawn. On this machine seconds go on from the largest size measured: with the square of the states, and in proportion to
    the joint values of the memory and to tokens, as the operations do.
    """
    a = ASSUMED
    tokens, share = a["n"] * a["length"], a["share of a machine's memory for results"]
    rate = a["H100, float64 operations a second"] * a["H100, fraction of them reached"]
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    calls = (("posteriors", "states"), ("memory", "values"), ("sampling", "n"))
    last, joint, drawn = (end(curves[name]) for name in calls)
    room = {"this machine": here, "one H100": a["H100, bytes of memory"]}
    room["100 H100"] = room["one H100"] * a["GPUs of a cluster"]
    by_memory = {machine: share * size / (8 * tokens) for machine, size in room.items()}
    by_time = {"this machine": float(last["name"]) * (HOUR / last["median"]) ** 0.5}
    a_lane = 4 * a["states beside the memory"] ** 2  # operations for a token and a joint value of the memory
    lanes = {"this machine": float(joint["name"]) * HOUR / joint["median"] * joint["work"] / tokens}
    a_second = {"this machine": drawn["work"] / drawn["median"]}
    for machine, count in (("one H100", 1), ("100 H100", a["GPUs of a cluster"])):
        by_time[machine] = (HOUR * rate * count / (4 * tokens)) ** 0.5
        lanes[machine] = HOUR * rate * count / (a_lane * tokens)
        a_second[machine] = a["H100, bytes a second"] * count / a["bytes moved for a drawn token"]
    return {
        machine: {
            "states by time": by_time[machine],
            "states by memory": by_memory[machine],
            "cells": float(np.log(lanes[machine]) / np.log(a["values of a cell"])),
            "tokens drawn": a_second[machine] * HOUR,
        }
        for machine in room
    }
