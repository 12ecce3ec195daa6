"""The tables of benchmarks/README.md, from the stored results.

python benchmarks/tables.py    write them into the README anew
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from pandas import DataFrame

RESULTS = Path(__file__).resolve().parent / "results"
README = RESULTS.parent / "README.md"
MARK = "<!-- What follows is written by `python benchmarks/tables.py`. -->\n"
PEERS = ("dynamax", "hmmlearn", "jax", "pomegranate", "transformers")
UNITS = [("s", 1), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)]


def load(name: str) -> dict:
    """The stored record of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf8"))


def number(value: float) -> str:
    """Three digits, and thousands with commas: 0.0421, 4.71, 321, 51,200,000."""
    if not np.isfinite(value):
        return "–"
    rounded = f"{value:.2e}"
    exponent = int(rounded.split("e")[1])
    decimals = max(0, 2 - exponent)
    return f"{float(rounded):,.{decimals}f}"


def seconds(value: float) -> str:
    """A duration in the largest unit of which it has at least one: 6.69 ms."""
    unit, size = UNITS[-1]
    for larger_unit, larger_size in UNITS:
        if value >= larger_size:
            unit, size = larger_unit, larger_size
            break
    return f"{number(value / size)} {unit}"


def contestants(record: dict, **key) -> DataFrame:
    """A line for each contestant of the contests with that key.

    Columns: the contest's key and the contestant's own fields; "median" of its seconds, "each" for a unit of work,
    "ratio" of that to the first contestant's, and "extra", the bytes that a call needs beyond what is there between
    calls.
    """
    lines = []
    for place, row in enumerate(record["rows"]):
        if any(row.get(name) != value for name, value in key.items()):
            continue
        numbers = {name: value for name, value in row.items() if not isinstance(value, (dict, list))}
        for contestant in row.get("contestants", []):
            line = {**numbers, **contestant, "contest": place}
            line["median"] = float(np.median(contestant.get("seconds", np.nan)))
            line["each"] = line["median"] / contestant["work"]
            line["extra"] = contestant.get("peak", np.nan) - contestant.get("settled", np.nan)
            lines.append(line)
    table = DataFrame(lines)
    if lines:
        table["ratio"] = table["each"] / table.groupby("contest")["each"].transform("first")
    return table


def megabytes(size: float) -> str:
    return f"{number(size / 1e6)} MB"


def of_contests(record: dict, *columns: str, **key) -> DataFrame:
    """Each contestant of some contests: the contest's key, its name, seconds, their ratio to ours, its memory."""
    lines = contestants(record, **key)
    reasons = lines.get("failed", pd.Series(index=lines.index, dtype=object))
    memory = lines["extra"].clip(lower=0).map(megabytes, na_action="ignore")
    table = lines[list(columns)].copy()
    table["who"] = lines["name"]
    table["seconds"] = lines["median"].map(seconds, na_action="ignore").fillna(reasons)
    table["times_ours"] = lines["ratio"].map(number)
    table["memory"] = memory.fillna("–")
    return table


def by_size(record: dict, *columns: str, **key) -> DataFrame:
    """Our seconds by some sizes, and beside them how many times as long each other library takes."""
    lines = contestants(record, **key)
    durations = lines["median"].map(seconds, na_action="ignore")
    ratios = lines["ratio"].map(number)
    lines["cell"] = durations.where(lines["name"] == "hmmlib", ratios)
    table = lines.pivot(index=list(columns), columns="name", values="cell")
    return table[lines["name"].unique()].fillna("–").reset_index()


# For each benchmark, a function from its record to its tables by title.


def posterior_tables(record: dict) -> dict[str, DataFrame]:
    tables = {}
    for what in ("posteriors", "G"):
        for dtype in ("float64", "float32"):
            tables[f"{what}, {dtype}"] = by_size(record, "states", "threads", what=what, dtype=dtype)
    tables["posteriors of few tokens, float64"] = by_size(record, "n", "length", "states", what="few tokens")
    return tables


def memory_tables(record: dict) -> dict[str, DataFrame]:
    return {"G of a memory model": of_contests(record, "dtype", "threads", what="against flattened")}


def sampling_tables(record: dict) -> dict[str, DataFrame]:
    return {"sampling": of_contests(record, "threads", "n", "length")}


def pretraining_tables(record: dict) -> dict[str, DataFrame]:
    return {"pretraining steps": of_contests(record, "preset", "threads", what="step")}


TABLES = {
    "posteriors": posterior_tables,
    "memory": memory_tables,
    "sampling": sampling_tables,
    "pretraining": pretraining_tables,
}


def markdown(table: DataFrame) -> str:
    """A table in Markdown. Underscores in the names of columns become spaces."""
    names = [name.replace("_", " ") for name in table.columns]
    lines = [names, ["---"] * len(names)]
    lines += table.astype(str).to_numpy().tolist()
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def origin(record: dict) -> str:
    """Where and with which versions a record was made."""
    machine = record["machine"]
    text = f"{machine['processor']}, {machine['processors']} processors, "
    text += f"torch {machine['torch']}, commit {machine['commit']}"
    versions = record.get("versions", {}).get("peers", {})
    peers = [f"{name} {versions[name]}" for name in sorted(versions) if name in PEERS]
    if peers:
        text += "; " + ", ".join(peers)
    return text


def readme() -> str:
    """The README with the tables of what is stored."""
    parts = [README.read_text(encoding="utf8").split(MARK)[0], MARK]
    for name, tables_of in TABLES.items():
        record = load(name)
        parts.append(f"\n## {name}\n\n*{origin(record)}*\n")
        for title, table in tables_of(record).items():
            parts.append(f"\n**{title}**\n\n{markdown(table)}")
    return "".join(parts)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf8")
