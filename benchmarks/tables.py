"""What the stored results say: tables for the terminal and the book's page, and the phrases of the page's sentences.

A table is a DataFrame of text. Imports nothing of the library: the page is built from the JSON files alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pandas import DataFrame
from units import duration, number, power, size

RESULTS = Path(__file__).resolve().parent / "results"
BOUNDS = ("bytes, fresh", "bytes, mapped", "operations")
"""Contestants that are no peers but what the machine allows."""


def load(name: str) -> dict:
    """A stored result. ValueError where there is none."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"there is no {path}: run `make bench BENCH_ARGS={name}`")
    return json.loads(path.read_text())


def contestants(record: dict, **key) -> DataFrame:
    """A line for each contestant of the contests with that key.

    Columns: the contest's number and key; the contestant's own fields; "first", the name that others are compared with;
    "median" of its seconds and "each", those for a unit of work; "ratio" to the first one's; "extra", the bytes at the peak
    of a call beyond what it holds between calls; "difference" from the first one's result.
    """
    lines = []
    for place, row in enumerate(record["rows"]):
        if "contestants" not in row or any(row.get(name) != value for name, value in key.items()):
            continue
        shared = {name: value for name, value in row.items() if not isinstance(value, (dict, list))}
        differences = {name: math.inf if value is None else value for name, value in row["differences"].items()}
        for one in row["contestants"]:
            seconds = float(np.median(one["seconds"])) if "seconds" in one else math.nan
            extra = one["peak"] - one["settled"] if "peak" in one else math.nan
            more = dict(
                median=seconds, each=seconds / one["work"], extra=extra, difference=differences.get(one["name"])
            )
            failed = one.get("failed", "")
            failed = failed if len(failed) <= 80 else failed[:77] + "…"
            first = row["contestants"][0]["name"]
            lines.append(shared | one | more | dict(contest=place, first=first, failed=failed))
    found = DataFrame(lines)
    if lines:
        found["ratio"] = found["each"] / found.groupby("contest")["each"].transform("first")
    return found


def shown(found: DataFrame, column: str, form: Callable[[float], str], failed: bool = False) -> pd.Series:
    """A column as text: a dash where there is no number, or with `failed` the reason why there is none."""
    missing = found["failed"].where(found["failed"] != "", "–") if failed else "–"
    return found[column].map(form, na_action="ignore").where(found[column].notna(), missing).astype(object)


def times_first(found: DataFrame) -> pd.Series:
    """Seconds for a unit of work as a multiple of the first contestant's; 1 for that one itself."""
    return shown(found, "ratio", number).where(found["name"] != found["first"], "1")


def wide(found: DataFrame, index: list[str], cells: pd.Series, names: Iterable[str]) -> DataFrame:
    """A column for each of these contestants, a line for each contest."""
    table = found.assign(cells=cells).pivot(index=index, columns="name", values="cells")
    return table.reindex(columns=[*names]).astype(object).fillna("–").reset_index().astype(str)


def of(found: DataFrame, **columns: str | pd.Series) -> DataFrame:
    """A table with these columns, by their names or values; underscores in the columns' names become spaces."""
    made = {name: found[value] if isinstance(value, str) else value for name, value in columns.items()}
    return DataFrame(made).rename(columns=lambda name: name.replace("_", " ")).astype(str)


def posteriors(record: dict) -> dict[str, DataFrame]:
    """For posteriors and G in both precisions: peers beside ours, ours beside the bounds, differences, and memory."""
    tables = {}
    for what in ("posteriors", "G"):
        for dtype in ("float64", "float32"):
            found, title = contestants(record, what=what, dtype=dtype), f"{what}-{dtype}"
            if found.empty:
                continue
            own = shown(found, "median", duration)
            ratios, bounds = (shown(found.assign(x=x), "x", number, True) for x in (found["ratio"], 1 / found["ratio"]))
            who, first = [name for name in found["name"].unique() if name not in BOUNDS], found["name"] == "hmmlib"
            index = ["states", "threads"]
            tables[title] = wide(found, index, own.where(first, ratios), who)
            tables[f"{title}-bounds"] = wide(found, index, own.where(first, bounds), ["hmmlib", *BOUNDS])
            few = found[found["threads"] == found["threads"].iloc[0]]
            who = [name for name in few["name"].unique() if name not in BOUNDS]
            apart = few["difference"].map(lambda x: "not finite" if math.isinf(x) else power(x), na_action="ignore")
            tables[f"{title}-apart"] = wide(few, ["states"], apart, who[1:])
            tables[f"{title}-peak"] = wide(few, ["states"], shown(few, "extra", size), who)
    return tables


def memory(record: dict) -> dict[str, DataFrame]:
    found = contestants(record, what="against flattened")
    ranks = {name: rank for rank, name in enumerate(found["name"].unique())}
    found = found.assign(rank=found["name"].map(ranks)).sort_values(["contest", "rank"])
    flattened = of(
        found,
        dtype="dtype",
        threads="threads",
        who="name",
        sequences=(found["work"] / found["length"]).round().astype(int),
        seconds=shown(found, "median", duration, True),
        a_token=shown(found, "each", duration),
        times_ours=times_first(found),
        memory=shown(found, "extra", size),
    )
    found = by_size(record)
    sizes = of(
        found,
        cells="cells",
        values="values_",
        states="states",
        width=found["width"].map("{:,}".format),
        a_token=shown(found, "each", duration, True),
        a_token_and_entry=shown(found, "entry", duration),
    ).rename(columns={"width": "|M|^N·|H|"})
    return {"flattened": flattened, "sizes": sizes}


def by_size(record: dict) -> DataFrame:
    """Our cost of a token at models of other sizes, and against |M|^N·|H|."""
    found = contestants(record, what="by size")
    parts = found["name"].str.split("-", expand=True).astype(int)
    found = found.assign(cells=parts[0], values_=parts[1], states=parts[2])
    found["width"] = found["values_"] ** found["cells"] * found["states"]
    return found.assign(entry=found["each"] / found["width"])


def exponent(x: Iterable[float], y: Iterable[float]) -> float:
    """The slope of log y against log x, by least squares."""
    return float(np.polyfit(np.log(np.array(x, dtype=float)), np.log(np.array(y, dtype=float)), 1)[0])


def memory_exponents(record: dict) -> dict[str, float]:
    """Of seconds a token in |M|^N and in |H|, the other being as in the contest with the peers."""
    found = by_size(record).dropna(subset="each")
    states = found[(found["cells"] == 3) & (found["values_"] == 5)]
    found = found[found["states"] == 12]
    values = exponent(found["values_"] ** found["cells"], found["each"])
    return {"values": values, "states": exponent(states["states"], states["each"])}


def sampling(record: dict) -> dict[str, DataFrame]:
    found = contestants(record)
    drawn = found["options"].map("{0[n]} × {0[length]}".format)
    seconds = shown(found, "median", duration)
    return {
        "sampling": of(found, threads="threads", who="name", drawn=drawn, seconds=seconds, **rates(found, "tokens"))
    }


def rates(found: DataFrame, what: str) -> dict[str, pd.Series]:
    """Units of work a second, seconds as a multiple of the first contestant's, memory."""
    rate = shown(found.assign(rate=1 / found["each"]), "rate", number, True)
    return {f"{what}_a_second": rate, "times_ours": times_first(found), "memory": shown(found, "extra", size)}


def pretraining(record: dict) -> dict[str, DataFrame]:
    found = contestants(record, what="step")
    return {"step": of(found, preset="preset", threads="threads", who="name", **rates(found, "tokens"))}


def tuning(record: dict) -> dict[str, DataFrame]:
    """Seconds for an example in a pass, and what all examples and passes of the preset take at that."""
    found = contestants(record)
    whole = shown(found.assign(whole=found["each"] * found["train"] * found["epochs"]), "whole", duration)
    each, first = shown(found, "each", duration), times_first(found)
    columns = dict(preset="preset", what="what", how="name", an_example=each, the_whole=whole, times_the_first=first)
    return {"tuning": of(found, **columns)}


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


def growth(record: dict) -> dict[str, DataFrame]:
    lines = []
    for _, curve in contestants(record).dropna(subset="each").groupby("contest"):
        sizes, seconds, extra = curve["name"].astype(float), curve["median"], curve["extra"].clip(lower=1)
        ends = [curve.iloc[0], curve.iloc[-1]]
        slopes = (exponent(sizes, seconds), exponent(sizes[-2:], seconds[-2:]), exponent(sizes[-2:], extra[-2:]))
        grows, *takes = (f"{slope:.2f}" for slope in slopes)
        span = f"{ends[0]['grows']} {ends[0]['name']} to {ends[1]['name']}"
        times = f"{duration(ends[0]['median'])} to {duration(ends[1]['median'])}"
        lines.append((ends[0]["what"], span, times, grows, takes[0], size(ends[1]["extra"]), takes[1]))
    columns = ["what", "grows", "seconds", "exponent", "last step", "memory", "last step"]
    settings = [{"where": where} | {k: number(v) for k, v in most.items()} for where, most in largest(record).items()]
    assumed = DataFrame([(name, number(value)) for name, value in ASSUMED.items()], columns=["assumption", "value"])
    return {"growth": DataFrame(lines, columns=columns), "largest": DataFrame(settings), "assumed": assumed}


def largest(record: dict) -> dict[str, dict[str, float]]:
    """What is done in an hour: on this machine by its measured seconds, on GPUs by what is assumed of them.

    States of an HMM whose posteriors of 1000 sequences of 129 tokens are kept; cells of a memory model whose G is; tokens
    drawn. On this machine seconds go on from the largest size measured: with the square of the states, and in proportion to
    the joint values of the memory and to tokens, as the operations do.
    """
    a = ASSUMED
    tokens, count = a["n"] * a["length"], {"one H100": 1, "100 H100": a["GPUs of a cluster"]}
    rate = a["H100, float64 operations a second"] * a["H100, fraction of them reached"]
    found = contestants(record).dropna(subset="each").groupby(["what", "grows"]).last()
    states, joint, drawn = (found.loc[k] for k in (("posteriors", "states"), ("memory", "values"), ("sampling", "n")))

    def settings(states: float, memory: float, lanes: float, drawn: float) -> dict[str, float]:
        most = a["share of a machine's memory for results"] * memory / (8 * tokens)
        cells = math.log(lanes) / math.log(a["values of a cell"])
        return {"states by time": states, "states by memory": most, "cells": cells, "tokens drawn": drawn * HOUR}

    here = settings(
        float(states["name"]) * (HOUR / states["median"]) ** 0.5,
        record["machine"]["memory"],
        float(joint["name"]) * HOUR / joint["median"] * joint["work"] / tokens,
        drawn["work"] / drawn["median"],
    )
    return {"this machine": here} | {
        where: settings(
            (HOUR * rate * n / (4 * tokens)) ** 0.5,
            a["H100, bytes of memory"] * n,
            HOUR * rate * n / (4 * a["states beside the memory"] ** 2 * tokens),
            a["H100, bytes a second"] * n / a["bytes moved for a drawn token"],
        )
        for where, n in count.items()
    }


def build(record: dict) -> dict[str, DataFrame]:
    """Seconds of whole builds and of their parts, and of imports."""
    found = DataFrame(record["rows"])
    imports, builds = (found[found["what"].str.startswith("import: ") == whether] for whether in (True, False))
    named = imports["what"].str.removeprefix("import: ")
    seconds, beyond = (imports[name].map("{:.2f}".format) for name in ("seconds", "beyond_torch"))
    return {
        "builds": of(builds, what="what", seconds=builds["seconds"].map("{:.1f}".format)),
        "imports": DataFrame({"import": named, "seconds": seconds, "beyond torch alone": beyond}),
    }


# Learning curves

PRESET = "quick"
STEPS = 400
SETTING = {"learning_rate": 0.005, "muon_rate": 0.02, "schedule": "linear", "batch": 64}
"""The preset's steps and settings, by which its runs are told from those of other choices."""
LEAST = 1e-4
"""An excess below this, nats, is taken as this: it is an estimate from a sample, and may be negative."""


def of_side(rows: list[dict], side: str, **key) -> DataFrame:
    """The runs of one side that are as in the key, by states, seed and steps."""
    found = DataFrame(rows).query("side == @side")
    for name, value in key.items():
        found = found[found[name] == value]
    return found.sort_values(["states", "seed", "steps", "learning_rate"], kind="stable")


def best_rate(rows: list[dict], states: int) -> float:
    """The Trainer's learning rate with the lowest excess in its longest runs of the first seed. ValueError without runs."""
    found = of_side(rows, "Trainer", states=states)
    if found.empty:
        raise ValueError(f"there is no run of the Trainer at {states} states")
    found = found[found["seed"] == found["seed"].min()]
    found = found[found["steps"] == found["steps"].max()]
    return float(found.loc[found["excess"].idxmin(), "learning_rate"])


def needed(runs: DataFrame, excess: float) -> float | None:
    """Steps after which runs are down to an excess: between the lengths around it, on a line in both logarithms.

    None where none of them comes so low; the length of the shortest where that does.
    """
    steps, excesses = np.log(runs["steps"].to_numpy(dtype=float)), np.log(runs["excess"].clip(lower=LEAST).to_numpy())
    low = np.flatnonzero(excesses <= math.log(max(excess, LEAST)))
    if not len(low):
        return None
    if not (k := low[0]):
        return float(runs["steps"].iloc[0])
    return float(np.exp(np.interp(-math.log(max(excess, LEAST)), -excesses[k - 1 : k + 1], steps[k - 1 : k + 1])))


def learning_curves(record: dict) -> dict[str, DataFrame]:
    """Time to our loss, all runs of the curves, and other choices."""
    rows, step = record["rows"], step_seconds()
    ours, theirs = of_side(rows, "hmmlib", **SETTING), of_side(rows, "Trainer")
    preset, lines = ours[ours["steps"] == STEPS], []
    for row in preset.itertuples():
        same = dict(states=row.states, seed=row.seed, learning_rate=best_rate(rows, row.states))
        beside = time_beside(row, of_side(rows, "Trainer", **same), step["hmmlib"] / step["Trainer"])
        lines.append((f"{row.states}", f"{row.seed}", number(row.excess), *beside))
    columns = [
        "states",
        "seed",
        f"excess loss after {STEPS} steps",
        "the Trainer's steps to it",
        "our share of its time",
    ]
    runs = pd.concat([ours, theirs])
    excess = runs["excess"].map(number)
    parts = dict(who="side", states="states", seed="seed", steps="steps", learning_rate="learning_rate")
    every = of_side(rows, "hmmlib").assign(changed=lambda all: all.apply(changed, axis=1))
    others = pd.concat([preset.assign(changed="the preset"), every[every["changed"] != ""].sort_index()])
    index = ["states", "changed", "steps"]
    table = others.pivot_table(index=index, columns="seed", values="excess", sort=False).sort_index(axis="columns")
    table = table.map(number, na_action="ignore").fillna("–").rename(columns="seed {}".format).reset_index()
    return {
        "time": DataFrame(lines, columns=columns),
        "runs": of(runs, **parts, excess_loss=excess),
        "choices": table.sort_values("states", kind="stable").astype(str)[
            : None if (every["changed"] != "").any() else 0
        ],
    }


def time_beside(row, theirs: DataFrame, cost: float) -> tuple[str, str]:
    """The Trainer's steps to the excess of a run of ours, and our share of its time; `cost`: our step in steps of its."""
    if theirs.empty:
        return "no run", "–"
    steps, shortest, longest = needed(theirs, row.excess), theirs["steps"].min(), theirs["steps"].max()
    share = f"{number(100 * cost * row.steps / (steps or longest))} %"
    if steps is None:
        return f"not in {longest} steps", f"less than {share}"
    if steps == shortest:
        return f"at most {steps:.0f}", f"at least {share}"
    return f"{steps:.0f}", share


def changed(row) -> str:
    """What sets a run of ours apart from the preset but its steps: muon rate 0.04."""
    parts = (f"{name.replace('_', ' ')} {row[name]}" for name, value in SETTING.items() if row[name] != value)
    return ", ".join(parts)


def step_seconds() -> dict[str, float]:
    """Seconds of a step in the contest with the Trainer, on one thread, by contestant."""
    found = contestants(load("pretraining"), what="step", preset=PRESET, threads=1).dropna(subset="each")
    return {one.name: one.median / one.options["count"] for one in found.itertuples(index=False)}


def points(rows: list[dict], step: dict[str, float], states: int) -> Iterator[tuple[str, pd.Series, pd.Series]]:
    """For each seed and side: its name, the runs' seconds and their excess losses, for a picture."""
    for seed in sorted({row["seed"] for row in rows}):
        sides = {"hmmlib": SETTING, "Trainer": {"learning_rate": best_rate(rows, states)}}
        for name, setting in sides.items():
            found = of_side(rows, name, states=states, seed=seed, **setting)
            yield name, found["steps"] * step[name], found["excess"].clip(lower=LEAST)


TABLES = {
    "posteriors": posteriors,
    "memory": memory,
    "sampling": sampling,
    "pretraining": pretraining,
    "tuning": tuning,
    "growth": growth,
    "learning-curves": learning_curves,
    "build": build,
}
"""For each benchmark, its tables by name, made from its record."""
