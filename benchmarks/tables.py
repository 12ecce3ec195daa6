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


def load(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def number(value: float) -> str:
    """Three digits, and thousands with commas: 0.0421, 4.71, 321, 51,200,000."""
    if not np.isfinite(value):
        return "–"
    rounded = f"{value:.2e}"
    return f"{float(rounded):,.{max(0, 2 - int(rounded.split('e')[1]))}f}"


def seconds(value: float) -> str:
    unit, size = next((one for one in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)) if value >= one[1]), ("ns", 1e-9))
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
        shared = {name: value for name, value in row.items() if not isinstance(value, (dict, list))}
        for one in row.get("contestants", []):
            median = float(np.median(one.get("seconds", np.nan)))
            extra = one.get("peak", np.nan) - one.get("settled", np.nan)
            lines.append(shared | one | dict(contest=place, median=median, each=median / one["work"], extra=extra))
    found = DataFrame(lines)
    if lines:
        found["ratio"] = found["each"] / found.groupby("contest")["each"].transform("first")
    return found


def of_contests(record: dict, *columns: str, **key) -> DataFrame:
    """Each contestant of some contests: the contest's key, its name, seconds, their ratio to ours, its memory."""
    found = contestants(record, **key)
    reasons = found.get("failed", pd.Series(index=found.index, dtype=object))
    memory = (found["extra"].clip(lower=0) / 1e6).map(lambda size: f"{number(size)} MB", na_action="ignore")
    return found[[*columns]].assign(
        who=found["name"],
        seconds=found["median"].map(seconds, na_action="ignore").fillna(reasons),
        times_ours=found["ratio"].map(number),
        memory=memory.fillna("–"),
    )


def by_states(record: dict, what: str, dtype: str) -> DataFrame:
    """Our seconds by states and threads, and beside them how many times as long each other library takes."""
    found = contestants(record, what=what, dtype=dtype)
    ours = found["name"] == "hmmlib"
    cells = found["median"].map(seconds, na_action="ignore").where(ours, found["ratio"].map(number))
    names = [name for name in found["name"].unique() if name not in ("bytes, fresh", "bytes, mapped", "operations")]
    table = found.assign(cells=cells).pivot(index=["states", "threads"], columns="name", values="cells")
    return table[names].fillna("–").reset_index()


def growth(record: dict) -> DataFrame:
    """Exponents are slopes of a line through the logarithms: 1 where ten times the size costs ten times as much."""
    lines = []
    for _, curve in contestants(record).dropna(subset="each").groupby("contest"):
        first, last, logs = curve.iloc[0], curve.iloc[-1], np.log(curve[["name", "median"]].astype(float))
        span = f"{first['grows']} {first['name']} to {last['name']}"
        took = f"{seconds(first['median'])} to {seconds(last['median'])}"
        slopes = (f"{np.polyfit(*logs[-k:].T.to_numpy(), 1)[0]:.2f}" for k in (0, 2))
        lines.append((first["what"], span, took, *slopes))
    return DataFrame(lines, columns=["what", "grows", "seconds", "exponent", "of the last step"])


def learning(record: dict) -> DataFrame:
    """The mean excess loss, nats, over the seeds, by side, states and setting."""
    found = DataFrame(record["rows"]).astype(object).fillna("–")
    setting = ["states", "side", "steps", "batch", "learning_rate", "muon_rate", "schedule"]
    means = found.groupby(setting, sort=False)["excess"].agg(["mean", "count"]).reset_index()
    means = means.sort_values(["states", "side", "steps"], kind="stable")
    means["mean"] = means["mean"].astype(float).map(number)
    return means.rename(columns={"mean": "excess loss", "count": "seeds"})


TABLES = {
    "posteriors": lambda record: {
        f"{what}, {dtype}": by_states(record, what, dtype)
        for what in ("posteriors", "G")
        for dtype in ("float64", "float32")
    },
    "memory": lambda record: {"G of a memory model": of_contests(record, "dtype", "threads", what="against flattened")},
    "sampling": lambda record: {"sampling": of_contests(record, "threads", "n", "length")},
    "pretraining": lambda record: {"pretraining steps": of_contests(record, "preset", "threads", what="step")},
    "tuning": lambda record: {"tuning": of_contests(record, "preset", "what")},
    "growth": lambda record: {"growth of our seconds": growth(record)},
    "learning-curves": lambda record: {"excess loss after whole pretrainings": learning(record)},
    "build": lambda record: {
        "seconds of the book's build, and of imports": DataFrame(record["rows"]).astype(object).fillna("")
    },
}
"""For each benchmark, its tables by title, made from its record."""


def markdown(table: DataFrame) -> str:
    """A table in Markdown; underscores in the names of columns become spaces."""
    lines = [[name.replace("_", " ") for name in table.columns], ["---"] * len(table.columns)]
    lines += table.astype(str).to_numpy().tolist()
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def readme() -> str:
    """The README with the tables of what is stored."""
    parts = [README.read_text(encoding="utf8").split(MARK)[0], MARK]
    for name, tables in TABLES.items():
        record = load(name)
        m, versions = record["machine"], record.get("versions", {}).get("peers", {})
        peers = ", ".join(f"{peer} {versions[peer]}" for peer in sorted(versions) if peer in PEERS)
        where = f"{m['processor']}, {m['processors']} processors, torch {m['torch']}, commit {m['commit']}"
        parts.append(f"\n## {name}\n\n*{where}{'; ' * bool(peers)}{peers}*\n")
        parts += [f"\n**{title}**\n\n{markdown(table)}" for title, table in tables(record).items()]
    return "".join(parts)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf8")
