"""What the stored results say: tables for the terminal and the book's page, and the phrases of the page's sentences.

Imports nothing of the library: the page is built from the JSON files alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import learning
import waits
from records import Table, by_name, chosen, duration, number, power, size, the

RESULTS = Path(__file__).resolve().parent / "results"
FIRST = "hmmlib"
BOUNDS = ("bytes, fresh", "bytes, mapped", "operations")
"""Contestants that are no peers but what the machine allows."""
COMMANDS = {
    "learning-curves": "python benchmarks/learning_curves.py",
    "build": "python benchmarks/build_times.py",
}
"""What makes the results that `make bench` leaves alone, by their names."""


def load(name: str, folder: Path | None = None) -> dict:
    """A stored result. ValueError where there is none, or where it is no result of that benchmark."""
    path = (folder or RESULTS) / f"{name}.json"
    if not path.is_file():
        command = COMMANDS.get(name, f"make bench BENCH_ARGS={name}")
        raise ValueError(f"there is no {path}: run `{command}`")
    record = json.loads(path.read_text())
    if record.get("name") != name:
        raise ValueError(f"{path} holds {record.get('name')!r}, not {name!r}")
    return record


def peers(row: dict) -> dict[str, float]:
    """How many times as long as ours each peer takes that finished, per unit of work."""
    return {name: ratio for name, ratio in row["ratios"].items() if by_name(row)[name]["peer"]}


def best(row: dict) -> tuple[str, float] | None:
    """The fastest peer and its ratio."""
    return min(peers(row).items(), key=lambda item: item[1], default=None)


def compared(row: dict, name: str) -> str:
    """A cell: how many times our time a peer takes, how many times a bound's time we take, or why there is no number."""
    if name in row["ratios"]:
        ratio = row["ratios"][name]
        return number(1 / ratio if name in BOUNDS else ratio)
    return reason(by_name(row)[name]["failed"]) if name in by_name(row) else "–"


def reason(text: str) -> str:
    """Why a contestant is out, in the words of a cell."""
    return text if len(text) <= 80 else text[:77] + "…"


def rivals(rows: Iterable[dict]) -> list[str]:
    """All contestants but ours and the bounds, in the order of their first appearance."""
    found = dict.fromkeys(one["name"] for row in rows for one in row["contestants"])
    return [name for name in found if name not in (FIRST, *BOUNDS)]


def own(row: dict) -> dict:
    return by_name(row)[FIRST]


def seconds(one: dict) -> str:
    return duration(one["median"]) if "median" in one else reason(one["failed"])


def extra(one: dict | None) -> str:
    """Memory at the peak of a call beyond what the process holds between calls."""
    return size(one["peak"] - one["settled"]) if one and "peak" in one else "–"


def faster(ratio: float, name: str) -> str:
    return f"{number(ratio)} times as fast as {name}" if ratio >= 1 else f"{number(1 / ratio)} times slower than {name}"


def posteriors(record: dict) -> dict[str, Table]:
    """For posteriors and G in both precisions: peers beside ours, ours beside the bounds, differences, and memory."""
    tables = {}
    for what in ("posteriors", "G"):
        for dtype in ("float64", "float32"):
            rows = chosen(record["rows"], what=what, dtype=dtype)
            if not rows:
                continue
            title = f"{what}-{dtype}"
            tables[title] = against_ours(title, rows, rivals(rows))
            tables[f"{title}-bounds"] = against_ours(f"{title}: times a bound", rows, [*BOUNDS])
            rows = [row for row in rows if row["threads"] == rows[0]["threads"]]
            others = rivals(rows)
            tables[f"{title}-apart"] = by_states(f"{title}: largest difference", others, rows, apart)
            tables[f"{title}-peak"] = by_states(f"{title}: memory of a call", [FIRST, *others], rows, peak)
    return tables


def against_ours(title: str, rows: list[dict], others: list[str]) -> Table:
    """A line for each contest: our time, then each other's as a multiple of it, or it as a multiple of a bound's."""
    lines = [
        (f"{row['states']}", f"{row['threads']}", seconds(own(row)), *(compared(row, name) for name in others))
        for row in sorted(rows, key=lambda row: (row["states"], row["threads"]))
    ]
    return Table(title, ("states", "threads", FIRST, *others), lines)


def by_states(title: str, who: list[str], rows: list[dict], cell: Callable[[dict, str], str]) -> Table:
    """A line for each number of states, a column for each contestant."""
    return Table(title, ("states", *who), [(f"{row['states']}", *(cell(row, name) for name in who)) for row in rows])


def apart(row: dict, name: str) -> str:
    """A peer's largest difference from ours."""
    if name not in row["differences"]:
        return "–"
    value = row["differences"][name]
    return "not finite" if value is None else power(value)


def peak(row: dict, name: str) -> str:
    return extra(by_name(row).get(name))


def memory(record: dict) -> dict[str, Table]:
    rows = chosen(record["rows"], what="against flattened")
    others, lines = rivals(rows), []
    for row in rows:
        for name in (FIRST, *others):
            if one := by_name(row).get(name):
                lines.append((row["dtype"], f"{row['threads']}", name, *cost(row, one, name)))
    columns = ("dtype", "threads", "who", "sequences", "seconds", "a token", "times ours", "memory")
    return {"flattened": Table("a memory model and its flattened chain", columns, lines), "sizes": sizes(record)}


def cost(row: dict, one: dict, name: str) -> tuple[str, ...]:
    """Sequences done, seconds, seconds a token, ratio, memory; or the reason why there are none."""
    done = f"{round(one['work'] / row['length'])}"
    if "failed" in one:
        return done, reason(one["failed"]), "–", "–", "–"
    ratio = "1" if name == FIRST else number(row["ratios"].get(name, math.nan))
    return done, duration(one["median"]), duration(one["median"] / one["work"]), ratio, extra(one)


def sizes(record: dict) -> Table:
    """Our cost a token at other sizes, and against |M|^N·|H|."""
    lines = []
    for one in the(record["rows"], what="by size")["contestants"]:
        cells, values, states = map(int, one["name"].split("-"))
        if "failed" in one:
            lines.append((f"{cells}", f"{values}", f"{states}", "–", reason(one["failed"]), "–"))
            continue
        each, width = one["median"] / one["work"], values**cells * states
        entries = (f"{cells}", f"{values}", f"{states}", f"{width:,}")
        lines.append((*entries, duration(each), duration(each / width)))
    columns = ("cells", "values", "states", "|M|^N·|H|", "a token", "a token and entry")
    return Table("a memory model by size", columns, lines)


def sampling(record: dict) -> dict[str, Table]:
    lines = []
    for row in record["rows"]:
        for name, one in by_name(row).items():
            drawn = f"{one['options']['n']} × {one['options']['length']}"
            spent = duration(one["median"]) if "median" in one else "–"
            lines.append((f"{row['threads']}", name, drawn, spent, *rate(row, name, one)))
    columns = ("threads", "who", "drawn", "seconds", "tokens a second", "times ours", "memory")
    return {"sampling": Table("drawing sequences", columns, lines)}


def growth(record: dict) -> dict[str, Table]:
    lines = []
    for row in record["rows"]:
        if "grows" in row:
            done = [one for one in row["contestants"] if "median" in one]
            span = f"{row['grows']} {done[0]['name']} to {done[-1]['name']}"
            slopes = (f"{row['seconds'][part]:.2f}" for part in ("all", "last"))
            ends = f"{duration(done[0]['median'])} to {duration(done[-1]['median'])}"
            lines.append((row["what"], span, ends, *slopes, extra(done[-1]), f"{row['memory']['last']:.2f}"))
    columns = ("what", "grows", "seconds", "exponent", "last step", "memory", "last step")
    found = the(record["rows"], what="largest")
    kinds = [*next(iter(found["largest"].values()))]
    table = [(place, *(number(numbers[kind]) for kind in kinds)) for place, numbers in found["largest"].items()]
    assumed = [(name, number(value)) for name, value in found["assumed"].items()]
    return {
        "growth": Table("growth by tens", columns, lines),
        "largest": Table("the largest settings", ("where", *kinds), table),
        "assumed": Table("what that assumes", ("assumption", "value"), assumed),
    }


def pretraining(record: dict) -> dict[str, Table]:
    lines = []
    for row in chosen(record["rows"], what="step"):
        for name, one in by_name(row).items():
            lines.append((row["preset"], f"{row['threads']}", name, *rate(row, name, one)))
    columns = ("preset", "threads", "who", "tokens a second", "times ours", "memory")
    return {"step": Table("pretraining steps", columns, lines)}


def rate(row: dict, name: str, one: dict) -> tuple[str, ...]:
    """Units of work a second, seconds as a multiple of the first contestant's, memory; or why there are none."""
    if "failed" in one:
        return reason(one["failed"]), "–", "–"
    first = row["contestants"][0]["name"]
    return number(one["work"] / one["median"]), "1" if name == first else compared(row, name), extra(one)


def tuning(record: dict) -> dict[str, Table]:
    """Seconds for an example in a pass, and what all examples and passes of the preset take at that."""
    lines = []
    for row in record["rows"]:
        for name, one in by_name(row).items():
            each = one["median"] / one["work"] if "median" in one else math.nan
            times = (duration(each), duration(each * row["train"] * row["epochs"])) if "median" in one else ("–", "–")
            lines.append((row["preset"], row["what"], name, *times, rate(row, name, one)[1]))
    columns = ("preset", "what", "how", "an example", "the whole", "times the first")
    return {"tuning": Table("tuning", columns, lines)}


def curves(record: dict) -> dict[str, Table]:
    """Learning curves, with the seconds that steps take in the contest of one thread."""
    return learning.tables(record["rows"], step_seconds())


def step_seconds() -> dict[str, float]:
    """Seconds of a step in the contest with the Trainer, on one thread, by contestant."""
    row = the(load("pretraining")["rows"], what="step", preset=learning.PRESET, threads=1)
    return {name: one["median"] / one["options"]["count"] for name, one in by_name(row).items() if "median" in one}


def build(record: dict) -> dict[str, Table]:
    """Seconds of whole builds and of their parts, and of imports."""
    imports = [row for row in record["rows"] if "beyond_torch" in row]
    builds = [(row["what"], f"{row['seconds']:.1f}") for row in record["rows"] if row not in imports]
    added = [
        (row["what"].removeprefix("import: "), f"{row['seconds']:.2f}", f"{row['beyond_torch']:.2f}") for row in imports
    ]
    return {
        "builds": Table("building the book", ("what", "seconds"), builds),
        "imports": Table("imports", ("import", "seconds", "beyond torch alone"), added),
    }


TABLES = {
    "posteriors": posteriors,
    "memory": memory,
    "sampling": sampling,
    "pretraining": pretraining,
    "tuning": tuning,
    "growth": growth,
    "learning-curves": curves,
    "build": build,
}
"""For each benchmark, its tables by name, made from its record."""


def conditions(record: dict) -> str:
    """Machine and commit in a sentence."""
    m = record["machine"]
    caches = ", ".join(f"{name} {amount}" for name, amount in m["caches"].items())
    where = f"{m['processor']}, {m['processors']} processors, caches {caches}, {size(m['memory'])} of memory"
    return f"{where}; Python {m['python']}, torch {m['torch']}, commit {m['commit']}"


def versions(record: dict, names: tuple[str, ...]) -> str:
    """Of the peers' packages that are named."""
    return ", ".join(f"{name} {record['versions']['peers'][name]}" for name in names)


def slower(records: Iterable[dict]) -> Table:
    """Every contest in which a peer is faster than we are."""
    lines = []
    for record in records:
        for row in record["rows"]:
            if "ratios" in row and (found := best(row)) and found[1] < 1:
                lines.append((found[0], number(1 / found[1]), record["name"], setting(row)))
    return Table("where a peer is faster", ("peer", "times as fast", "benchmark", "setting"), lines)


def setting(row: dict) -> str:
    """A contest's key in words."""
    parts = {"what": "{}", "dtype": "{}", "states": "{} states", "n": "{} sequences", "length": "of {} tokens"}
    words = [text.format(row[key]) for key, text in parts.items() if key in row]
    return ", ".join([*words, f"{row['threads']} thread{'s' * (row['threads'] > 1)}"])


def against(row: dict) -> str:
    """Ours against every peer of a contest."""
    return ", ".join(faster(ratio, name) for name, ratio in peers(row).items()) or "no peer finished"


def furthest(rows: list[dict], name: str) -> str:
    """A peer's largest difference from ours in any posterior in float64."""
    rows = chosen(rows, what="posteriors", dtype="float64")
    found = [row["differences"][name] for row in rows if name in row["differences"]]
    return "not finite" if None in found else power(max(found))


def phrases() -> dict[str, str]:
    """The numbers in the sentences of the page, by name, from the stored results."""
    found, records = {}, {name: load(name) for name in TABLES}
    found["machine"] = conditions(records["posteriors"])
    found["versions"] = versions(records["posteriors"], ("dynamax", "jax", "hmmlearn", "pomegranate", "torch"))
    for threads in (1, 2):
        for states in (30, 256):
            key = dict(what="posteriors", dtype="float64", states=states, threads=threads)
            row = the(records["posteriors"]["rows"], **key)
            found[f"posteriors-{states}-{threads}"] = against(row)
            for bound in BOUNDS:
                found[f"{bound}-{states}-{threads}".replace(", ", "-")] = number(1 / row["ratios"][bound])
    slopes = the(records["memory"]["rows"], what="by size")["exponents"]
    found |= {f"memory-exponent-{name}": f"{slope:.2f}" for name, slope in slopes.items()}
    for threads in (1, 2):
        key = dict(what="against flattened", dtype="float64", threads=threads)
        found[f"memory-{threads}"] = against(the(records["memory"]["rows"], **key))
        longest = chosen(records["sampling"]["rows"], threads=threads)[-1]
        found[f"sampling-{threads}"] = against(longest)
        found[f"corpus-{threads}"] = seconds(own(longest))
        steps = chosen(records["pretraining"]["rows"], what="step", threads=threads)
        found[f"pretraining-{threads}"] = against(steps[-1])
    for name in ("hmmlearn, scaling", "dynamax", "dynamax, two filters"):
        found[f"apart-{name}".replace(",", "").replace(" ", "-")] = furthest(records["posteriors"]["rows"], name)
    found |= learning.phrases(records["learning-curves"]["rows"]) | waits.phrases(records)
    found["build"] = duration(the(records["build"]["rows"], what="from nothing: all")["seconds"])
    return found
