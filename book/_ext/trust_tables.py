"""The page on trust: its tables, and the numbers in its sentences, from stored runs of the tests and from the ledger."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path

from benchmark_tables import FromResults, Measured, as_nodes
from ledger_tables import LEDGER
from pandas import DataFrame

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "results"
CODE = "one of them: where, and what it changes"
"""The name of a column that holds code."""
RUNS = {"all": "locked", "lowest": "lowest admitted", "newest": "newest"}
"""The stored runs of the tests, and the versions they were made with."""
RANDOM, CASES = "random models, against a witness", "patterns of zeros, with a task and an input"
"""The two kinds of instances that the page's first table has."""


def load(name: str) -> dict:
    """A stored run, or the ledger; ValueError where there is none."""
    path = ROOT / LEDGER if name == "ledger" else RESULTS / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"{path.relative_to(ROOT)} is missing")
    return json.loads(path.read_text())


def sources() -> list[Path]:
    return [*(RESULTS / f"{name}.json" for name in (*RUNS, "mutants", "damages")), ROOT / LEDGER, Path(__file__)]


def instances() -> dict[str, int]:
    """What the ledger has checked: by kind, how many instances for all statements together."""
    entries = load("ledger")["entries"]
    identities = [entry["identity"] for entry in entries if entry["identity"]]
    return {
        RANDOM: sum(entry["instances"] for entry in entries),
        "controls: random models whose hypothesis is broken": sum(entry["control_instances"] for entry in entries),
        "random rational points, without rounding": sum(found["points"] * len(found["sizes"]) for found in identities),
        CASES: sum(entry["patterns"]["cases"] for entry in entries if entry["patterns"]),
    }


def counts(what: str, tally: dict[str, int], add_up: bool = True) -> DataFrame:
    tally = tally | ({"all": sum(tally.values())} if add_up and len(tally) > 1 else {})
    return DataFrame([(name, f"{times:,}") for name, times in tally.items()], columns=[what, "times"])


def properties() -> DataFrame:
    tally = load("all")["properties"].items()
    words = {name.removeprefix("test_").replace("_", " "): times for name, times in tally}
    return counts("property, and the examples for which it held", words)


def modules() -> DataFrame:
    """Of each module's mutants, how many there are, and how many tests noticed; one that was not tried is not noticed."""
    found = DataFrame.from_dict(load("mutants")["modules"], orient="index")
    found["killed"] = found["mutants"] - found["alive"].map(len)
    if "not checked" in found:
        found["killed"] -= found["not checked"].fillna(0).astype(int)
    return found


def mutants() -> DataFrame:
    found = modules()
    table = found[["mutants", "killed"]].map("{:,}".format).rename_axis("module").reset_index()
    table["share"] = (found["killed"] / found["mutants"]).map("{:.1%}".format).to_numpy()
    return table.assign(**{"functions left out": found["left out"].map(len).astype(str).to_numpy()})


def fragment(change: str, around: int = 6) -> str:
    """What a change replaces, and what it puts there, with so many words and signs before and after it."""
    lines = (next((line[2:] for line in change.splitlines() if line[0] == sign), "") for sign in "-+")
    old, new = (re.findall(r"\w+|\s+|[^\w\s]", line) for line in lines)
    found = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    differing = [code for code in found if code[0] != "equal"]
    (_, start, _, start_new, _), (_, _, end, _, end_new) = differing[0], differing[-1]
    parts = old[max(0, start - around) : end + around], new[max(0, start_new - around) : end_new + around]
    return " → ".join("".join(part).strip() or "nothing" for part in parts)


def survivors() -> DataFrame:
    """The reasons why mutants live, the most frequent first, each with one of those mutants."""
    found = DataFrame([mutant for module in load("mutants")["modules"].values() for mutant in module["alive"]])
    one = found["function"] + ": " + found["change"].map(fragment)
    groups = found.assign(one=one).groupby("reason", sort=False)["one"].agg(["size", "first"])
    groups = groups.sort_values("size", ascending=False, kind="stable").reset_index().astype(str)
    return groups[["size", "reason", "first"]].set_axis(["mutants", "why they live", CODE], axis="columns")


def versions() -> DataFrame:
    runs = {words: load(name) for name, words in RUNS.items()}
    columns = {
        words: {name: version.removesuffix("+cpu") for name, version in run["versions"].items()}
        | {"commit": run["commit"][:7], "tests passed": f"{run['passed']:,}"}
        for words, run in runs.items()
    }
    return DataFrame(columns).rename_axis("").reset_index()


def damages() -> DataFrame:
    """Each of sixty damages to the library, and the statements whose verdict in the ledger it changes."""
    lines = []
    for one in load("damages")["damages"]:
        names = [*one["noticed"], *(f"{name} (stops)" for name in one["stopped"])]
        few = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        lines.append((one["words"], one["file"], few or "none"))
    return DataFrame(lines, columns=["what was changed", "in", "statements of another verdict"])


TABLES = {
    "damages": damages,
    "instances": lambda: counts("checked", instances(), add_up=False),
    "properties": properties,
    "mutants": mutants,
    "survivors": survivors,
    "bad-inputs": lambda: counts("bad input", load("all")["bad inputs"]),
    "faults": lambda: counts("fault", load("all")["faults"]),
    "versions": versions,
    "skipped": lambda: counts("why", load("all")["skipped"]),
}


def phrases() -> dict[str, str]:
    """What the page's sentences quote, by name."""
    run, checked, tried = load("all"), instances(), load("damages")
    every, dead = modules()[["mutants", "killed"]].sum()
    sums = {name.replace(" ", "-"): sum(run[name].values()) for name in ("bad inputs", "faults")}
    return {name: f"{times:,}" for name, times in sums.items()} | {
        "tests": f"{run['passed']:,}",
        "minutes": f"{run['seconds'] / 60:.0f} minutes",
        "properties": str(len(run["properties"])),
        "examples": f"{sum(run['properties'].values()):,}",
        "kills": str(run["faults"]["pretraining killed"]),
        "mutants": f"{every:,}",
        "killed": f"{dead:,}",
        "share": f"{dead / every:.1%}",
        "alive": str(every - dead),
        "mutants-commit": load("mutants")["commit"][:7],
        "damages": str(len(tried["damages"])),
        "damages-noticed": str(sum(bool(one["noticed"]) for one in tried["damages"])),
        "damages-instances": str(tried["instances"]),
        "instances": f"{checked[RANDOM]:,}",
        "cases": f"{checked[CASES]:,}",
        "machine": f"{run['system']}, {run['processors']} processors, Python {run['versions']['Python']}, "
        f"torch {run['versions']['torch'].removesuffix('+cpu')}, {run['date']}",
    }


class TrustTable(FromResults):
    """One of the page's tables: `{trust-table} NAME`."""

    required_arguments = 1
    sources = staticmethod(sources)

    def made(self):
        return [as_nodes(TABLES[self.arguments[0]](), CODE)]


def setup(app) -> dict[str, bool]:
    app.add_directive("trust-table", TrustTable)
    app.add_role("tried", Measured(phrases, sources))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
