"""What the stored results mean to somebody who waits: how long some whole pieces of work take, ours and the fastest other's.

Imports nothing of the library: the page is built from the JSON files alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from records import by_name, chosen, the

STEPS = 400
"""Of the pretraining whose time is told: those of the preset `quick`."""


@dataclass(frozen=True)
class Wait:
    """A piece of work, our seconds for it, and the name and the seconds of the fastest other library that does it."""

    what: str
    ours: float
    other: str = ""
    theirs: float = 0.0

    def __str__(self) -> str:
        beside = f", {in_words(self.theirs)} with {self.other}" if self.other else ""
        return f"{self.what}: {in_words(self.ours)}{beside}"


def in_words(seconds: float) -> str:
    """A duration with two digits, as one says it: 18 ms, 0.58 s, 6.3 s, 26 s, 3.0 min."""
    if seconds >= 90:
        return f"{seconds / 60:.1f} min"
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def beside(what: str, row: dict, ours: float) -> Wait:
    """A contest as a piece of work that takes us `ours` seconds: the fastest peer takes as many times as long as there."""
    others = {name: ratio for name, ratio in row["ratios"].items() if by_name(row)[name]["peer"]}
    name = min(others, key=others.get, default="")
    return Wait(what, ours, name.split(",")[0], ours * others[name] if name else 0.0)


def waits(records: dict[str, dict]) -> list[Wait]:
    """On two threads and, where the library is exact, in float64. ValueError where a result lacks one of them."""
    found = []
    for states in (30, 256):
        key = dict(what="posteriors", dtype="float64", threads=2, states=states)
        row = the(records["posteriors"]["rows"], **key)
        what = f"posteriors of {row['n']:,} texts, {states} states"
        found.append(beside(what, row, by_name(row)["hmmlib"]["median"]))
    row = the(records["memory"]["rows"], what="against flattened", dtype="float64", threads=2)
    found.append(beside(f"G of {row['n']:,} texts, memory model", row, by_name(row)["hmmlib"]["median"]))
    row = chosen(records["sampling"]["rows"], threads=2)[-1]
    first = by_name(row)["hmmlib"]
    found.append(beside(f"drawing {first['work'] / 1e6:.0f} million tokens", row, first["median"]))
    row = the(records["pretraining"]["rows"], what="step", preset="quick", threads=2)
    first = by_name(row)["hmmlib"]
    found.append(
        beside(f"pretraining a network, {STEPS} steps", row, first["median"] / first["options"]["count"] * STEPS)
    )
    row = the(records["tuning"]["rows"], what="prompt", preset="quick")
    first = by_name(row)["float32"]
    found.append(Wait("tuning a prompt on it", first["median"] / first["work"] * row["train"] * row["epochs"]))
    found.append(Wait("this book, from nothing", the(records["build"]["rows"], what="from nothing: all")["seconds"]))
    return found


def phrases(records: dict[str, dict]) -> dict[str, str]:
    """How many times as long the fastest other library takes, at least and at most."""
    times = [wait.theirs / wait.ours for wait in waits(records) if wait.other]
    return {"waits-least": f"{min(times):.1f}", "waits-most": f"{max(times):.0f}"}
