"""What the page's sentences and its first picture quote of the stored results."""

from __future__ import annotations

import math

from pandas import DataFrame
from tables import BOUNDS, STEPS, best_rate, contestants, load, memory_exponents, of_side
from units import duration, number, power, size

CONTESTS = ("posteriors", "memory", "sampling", "pretraining", "tuning")
"""The results in which ours stands beside others."""


def slower() -> DataFrame:
    """Every contest in which a peer is faster than we are, and the fastest peer."""
    forms = {"what": "{}", "dtype": "{}", "states": "{:g} states", "n": "{:g} sequences", "length": "of {:g} tokens"}
    lines = []
    for benchmark in CONTESTS:
        found = contestants(load(benchmark))
        found = found[found["peer"] & (found["ratio"] < 1)].sort_values("ratio").drop_duplicates("contest")
        for one in found.sort_values("contest").to_dict("records"):
            words = [form.format(one[name]) for name, form in forms.items() if name in one]
            setting = ", ".join([*words, f"{one['threads']} thread{'s' * (one['threads'] > 1)}"])
            lines.append((one["name"], number(1 / one["ratio"]), benchmark, setting))
    return DataFrame(lines, columns=["peer", "times as fast", "benchmark", "setting"])


def one_contest(benchmark: str, **key) -> DataFrame:
    """The last contest with that key, by contestants' names; ValueError where there is none."""
    found = contestants(load(benchmark), **key)
    if found.empty:
        raise ValueError(f"{benchmark} has no contest with {key}")
    return found[found["contest"] == found["contest"].max()].set_index("name")


def against(found: DataFrame) -> str:
    """Ours against every peer of a contest."""
    ratios = found.loc[found["peer"], "ratio"].dropna().items()
    words = (
        f"{number(ratio)} times as fast as {name}" if ratio >= 1 else f"{number(1 / ratio)} times slower than {name}"
        for name, ratio in ratios
    )
    return ", ".join(words) or "no peer finished"


def in_words(seconds: float) -> str:
    """A duration with two digits, as one says it: 18 ms, 0.58 s, 6.3 s, 26 s, 3.0 min."""
    if seconds >= 90:
        return f"{seconds / 60:.1f} min"
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def waits() -> DataFrame:
    """How long some whole pieces of work take, on two threads and, where the library is exact, in float64.

    A line for each: "what", our seconds, and the name and seconds of the fastest "other" library that does it, if any.
    """
    lines = []

    def beside(what: str, found: DataFrame, ours: float) -> None:
        """A contest as a piece of work that takes us so many seconds: the fastest peer takes as many times as long."""
        peers = found.loc[found["peer"], "ratio"].dropna()
        other = peers.idxmin().split(",")[0] if len(peers) else ""
        lines.append((what, ours, other, ours * peers.min()))

    for states in (30, 256):
        found = one_contest("posteriors", what="posteriors", dtype="float64", threads=2, states=states)
        what = f"posteriors of {found['n'].iloc[0]:,} texts, {states} states"
        beside(what, found, found.loc["hmmlib", "median"])
    found = one_contest("memory", what="against flattened", dtype="float64", threads=2)
    beside(f"G of {found['n'].iloc[0]:,} texts, memory model", found, found.loc["hmmlib", "median"])
    found = one_contest("sampling", threads=2)
    beside(f"drawing {found.loc['hmmlib', 'work'] / 1e6:.0f} million tokens", found, found.loc["hmmlib", "median"])
    found = one_contest("pretraining", what="step", preset="quick", threads=2)
    step = found.loc["hmmlib", "median"] / found.loc["hmmlib", "options"]["count"]
    beside(f"pretraining a network, {STEPS} steps", found, step * STEPS)
    found = one_contest("tuning", what="prompt", preset="quick")
    first = found.loc["float32"]
    beside("tuning a prompt on it", found, first["each"] * first["train"] * first["epochs"])
    lines.append(("this book, from nothing", whole_build(), "", math.nan))
    found = DataFrame(lines, columns=["what", "ours", "other", "theirs"])
    beside_it = ", " + found["theirs"].map(in_words) + " with " + found["other"]
    found["words"] = found["what"] + ": " + found["ours"].map(in_words) + beside_it.where(found["other"] != "", "")
    return found


def whole_build() -> float:
    return next(row["seconds"] for row in load("build")["rows"] if row["what"] == "from nothing: all")


def phrases() -> dict[str, str]:
    """The numbers in the sentences of the page, by name."""
    record = load("posteriors")
    m, peers = record["machine"], record["versions"]["peers"]
    caches = ", ".join(f"{name} {amount}" for name, amount in m["caches"].items())
    found = {
        "machine": f"{m['processor']}, {m['processors']} processors, caches {caches}, {size(m['memory'])} of memory; "
        f"Python {m['python']}, torch {m['torch']}, commit {m['commit']}",
        "versions": ", ".join(
            f"{name} {peers[name]}" for name in ("dynamax", "jax", "hmmlearn", "pomegranate", "torch")
        ),
        "build": duration(whole_build()),
    }
    for threads in (1, 2):
        for states in (30, 256):
            key = dict(what="posteriors", dtype="float64", states=states, threads=threads)
            row = one_contest("posteriors", **key)
            found[f"posteriors-{states}-{threads}"] = against(row)
            for bound in BOUNDS:
                found[f"{bound}-{states}-{threads}".replace(", ", "-")] = number(1 / row.loc[bound, "ratio"])
        row = one_contest("memory", what="against flattened", dtype="float64", threads=threads)
        found[f"memory-{threads}"] = against(row)
        row = one_contest("sampling", threads=threads)
        found |= {f"sampling-{threads}": against(row), f"corpus-{threads}": duration(row.loc["hmmlib", "median"])}
        found[f"pretraining-{threads}"] = against(one_contest("pretraining", what="step", threads=threads))
    found |= {f"memory-exponent-{k}": f"{slope:.2f}" for k, slope in memory_exponents(load("memory")).items()}
    differences = contestants(record, what="posteriors", dtype="float64").groupby("name")["difference"].max()
    for name in ("hmmlearn, scaling", "dynamax", "dynamax, two filters"):
        found[f"apart-{name}".replace(",", "").replace(" ", "-")] = power(differences[name])
    rows = load("learning-curves")["rows"]
    theirs, states = of_side(rows, "Trainer"), sorted({row["states"] for row in rows})
    for name in ("seed", "learning_rate"):
        found[f"learning-{name.split('_')[-1]}s"] = ", ".join(map(str, sorted(theirs[name].unique().tolist())))
    found["learning-best"] = ", ".join(f"{best_rate(rows, n)} at {n} states" for n in states)
    times = (waits()["theirs"] / waits()["ours"]).dropna()
    return found | {"waits-least": f"{times.min():.1f}", "waits-most": f"{times.max():.0f}"}
