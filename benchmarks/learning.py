"""What the stored learning curves say: steps and time to a given loss, ours beside the Trainer's.

Imports nothing of the library: the page is built from the JSON files alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from records import Table, chosen, number

PRESET = "quick"
STEPS = 400
SETTING = {"learning_rate": 0.005, "muon_rate": 0.02, "schedule": "linear", "batch": 64}
"""The preset's steps and settings, by which its runs are told from those of other choices."""
LEAST = 1e-4
"""An excess below this, nats, is taken as this: it is an estimate from a sample, and may be negative."""


def best_rate(rows: list[dict], states: int) -> float:
    """The Trainer's learning rate with the lowest excess in its longest runs of the first seed. ValueError without runs."""
    found = chosen(rows, side="Trainer", states=states)
    if not found:
        raise ValueError(f"there is no run of the Trainer at {states} states")
    searched = max((-row["seed"], row["steps"]) for row in found)
    longest = [row for row in found if (-row["seed"], row["steps"]) == searched]
    return min(longest, key=lambda row: row["excess"])["learning_rate"]


def at_best_rate(rows: list[dict], states: int, seed: int) -> list[dict]:
    """The Trainer's runs with one seed at the best rate, by their steps."""
    key = dict(side="Trainer", states=states, seed=seed, learning_rate=best_rate(rows, states))
    return sorted(chosen(rows, **key), key=lambda row: row["steps"])


def needed(rows: list[dict], states: int, seed: int, excess: float) -> float | None:
    """Steps after which the Trainer is down to an excess: between the lengths around it, on a line in both logarithms.

    Its runs at the best rate count. None where none of them comes so low; the length of the shortest where that does.
    """
    before, excess = None, max(excess, LEAST)
    for row in at_best_rate(rows, states, seed):
        steps, value = row["steps"], max(row["excess"], LEAST)
        if value <= excess:
            if before is None:
                return float(steps)
            share = math.log(before[1] / excess) / math.log(before[1] / value)
            return before[0] * (steps / before[0]) ** share
        before = (steps, value)
    return None


def sides(rows: list[dict]) -> dict[str, list[dict]]:
    """The curves' runs: ours in the preset's setting, and all of the Trainer's. By states, seed and steps."""
    order = sorted(rows, key=lambda row: (row["states"], row["seed"], row["steps"], row["learning_rate"]))
    return {"hmmlib": chosen(order, side="hmmlib", **SETTING), "Trainer": chosen(order, side="Trainer")}


def tables(rows: list[dict], step: dict[str, float]) -> dict[str, Table]:
    """Time to our loss, all runs of the curves, and other choices; `step` has the seconds of a step of both sides."""
    preset = chosen(sides(rows)["hmmlib"], steps=STEPS)
    lines = [
        (
            f"{row['states']}",
            f"{row['seed']}",
            number(row["excess"]),
            *beside(rows, row, step["hmmlib"] / step["Trainer"]),
        )
        for row in preset
    ]
    runs = [
        (name, *(f"{row[part]}" for part in ("states", "seed", "steps", "learning_rate")), number(row["excess"]))
        for name, found in sides(rows).items()
        for row in found
    ]
    columns = (
        "states",
        "seed",
        f"excess loss after {STEPS} steps",
        "the Trainer's steps to it",
        "our share of its time",
    )
    return {
        "time": Table("time to a given loss", columns, lines),
        "runs": Table("runs", ("who", "states", "seed", "steps", "learning rate", "excess loss"), runs),
        "choices": choices(rows),
    }


def beside(rows: list[dict], row: dict, cost: float) -> tuple[str, str]:
    """The Trainer's steps to the excess of a run of ours, and our share of its time; `cost`: our step in steps of its."""
    lengths = [run["steps"] for run in at_best_rate(rows, row["states"], row["seed"])]
    if not lengths:
        return "no run", "–"
    steps = needed(rows, row["states"], row["seed"], row["excess"])
    share = f"{number(100 * cost * row['steps'] / (steps or lengths[-1]))} %"
    if steps is None:
        return f"not in {lengths[-1]} steps", f"less than {share}"
    if steps == lengths[0]:
        return f"at most {steps:.0f}", f"at least {share}"
    return f"{steps:.0f}", share


def choices(rows: list[dict]) -> Table:
    """Excess loss under other rates, schedules and batches, beside the preset's; no rows where none was tried."""
    own = chosen(rows, side="hmmlib")
    others = [row for row in own if changed(row)]
    excesses = {}
    for row in [*chosen(sides(rows)["hmmlib"], steps=STEPS), *others]:
        excesses.setdefault((row["states"], changed(row) or "the preset", row["steps"]), {})[row["seed"]] = row[
            "excess"
        ]
    seeds = sorted({row["seed"] for row in own})
    lines = [
        (f"{states}", change, f"{steps}", *(number(excess[seed]) if seed in excess else "–" for seed in seeds))
        for (states, change, steps), excess in sorted(excesses.items(), key=lambda item: item[0][0])
    ]
    columns = ("states", "changed", "steps", *(f"seed {seed}" for seed in seeds))
    return Table("other choices", columns, lines if others else [])


def changed(row: dict) -> str:
    """What sets a run of ours apart from the preset but its steps: muon rate 0.04."""
    parts = (f"{name.replace('_', ' ')} {row[name]}" for name, value in SETTING.items() if row[name] != value)
    return ", ".join(parts)


def points(
    rows: list[dict], step: dict[str, float], states: int
) -> Iterator[tuple[str, int, list[float], list[float]]]:
    """For each side and seed: its name, the seed, the runs' seconds and their excess losses, for a picture."""
    for seed in sorted({row["seed"] for row in rows}):
        own = chosen(sides(rows)["hmmlib"], states=states, seed=seed)
        for name, found in (("hmmlib", own), ("Trainer", at_best_rate(rows, states, seed))):
            if found:
                seconds = [row["steps"] * step[name] for row in found]
                yield name, seed, seconds, [max(row["excess"], LEAST) for row in found]


def phrases(rows: list[dict]) -> dict[str, str]:
    """The seeds, the rates that the Trainer was tried with, and its best ones."""
    theirs = chosen(rows, side="Trainer")
    seeds, rates, states = (sorted({row[name] for row in theirs}) for name in ("seed", "learning_rate", "states"))
    best = [f"{best_rate(rows, size)} at {size} states" for size in states]
    listed = {"learning-seeds": seeds, "learning-rates": rates, "learning-best": best}
    return {name: ", ".join(map(str, values)) for name, values in listed.items()}
