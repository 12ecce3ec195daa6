"""The page on trust: its tables, and the numbers in its sentences, from stored runs of the tests and from the ledger."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from benchmark_tables import FromResults, Measured, as_nodes
from ledger_tables import LEDGER
from records import Table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "results"
CODE = "one of them: where, and what it changes"
"""The name of a column that holds code."""
RUNS = {"all": "locked", "lowest": "lowest admitted", "newest": "newest"}
"""The stored runs of the tests, and the versions they were made with."""


def load(name: str) -> dict:
    """A stored run, or the ledger; ValueError where there is none."""
    path = ROOT / LEDGER if name == "ledger" else RESULTS / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"{path.relative_to(ROOT)} is missing")
    return json.loads(path.read_text())


def killed(module: dict) -> tuple[int, int]:
    """Of a module's mutants: those that tests noticed, and all. One that was not tried counts as not noticed."""
    return module["mutants"] - len(module["alive"]) - module.get("not checked", 0), module["mutants"]


RANDOM, CASES = "random models, against a witness", "patterns of zeros, with a task and an input"
"""The two kinds of instances that the page's first table has."""


def instances(ledger: dict) -> dict[str, int]:
    """What the ledger has checked: by kind, how many instances for all statements together."""
    entries = ledger["entries"]
    identities = [entry["identity"] for entry in entries if entry["identity"]]
    return {
        RANDOM: sum(entry["instances"] for entry in entries),
        "controls: random models whose hypothesis is broken": sum(entry["control_instances"] for entry in entries),
        "random rational points, without rounding": sum(found["points"] * len(found["sizes"]) for found in identities),
        CASES: sum(entry["patterns"]["cases"] for entry in entries if entry["patterns"]),
    }


def in_words(name: str) -> str:
    """The name of a test as a sentence."""
    return name.removeprefix("test_").replace("_", " ")


def counts(title: str, what: str, tally: dict[str, int], add_up: bool = True) -> Table:
    rows = [(name, f"{times:,}") for name, times in tally.items()]
    every = [("all", f"{sum(tally.values()):,}")] if add_up and len(rows) > 1 else []
    return Table(title, (what, "times"), rows + every)


def of_properties() -> Table:
    tally = {in_words(name): times for name, times in load("all")["properties"].items()}
    return counts("Properties", "property, and the examples for which it held", tally)


def of_mutants() -> Table:
    modules = load("mutants")["modules"]
    rows = []
    for name, module in modules.items():
        dead, every = killed(module)
        rows.append((name, f"{every:,}", f"{dead:,}", f"{dead / every:.1%}", str(len(module["left out"]))))
    return Table("Mutants", ("module", "mutants", "killed", "share", "functions left out"), rows)


def fragment(change: str, around: int = 6) -> str:
    """What a change replaces, and what it puts there, with so many words and signs before and after it."""
    lines = (next((line[2:] for line in change.splitlines() if line[0] == sign), "") for sign in "-+")
    old, new = (re.findall(r"\w+|\s+|[^\w\s]", line) for line in lines)

    def alike(one: list[str], other: list[str]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

    start = alike(old, new)
    end = alike(old[start:][::-1], new[start:][::-1])
    parts = ("".join(line[max(0, start - around) : len(line) - max(0, end - around)]) for line in (old, new))
    return " → ".join(part.strip() or "nothing" for part in parts)


def of_survivors() -> Table:
    """The reasons why mutants live, the most frequent first, each with one of those mutants."""
    alive = [mutant for part in load("mutants")["modules"].values() for mutant in part["alive"]]
    rows = []
    for reason, times in Counter(mutant["reason"] for mutant in alive).most_common():
        one = next(mutant for mutant in alive if mutant["reason"] == reason)
        rows.append((str(times), reason, f"{one['function']}: {fragment(one['change'])}"))
    return Table("Survivors", ("mutants", "why they live", CODE), rows)


def of_versions() -> Table:
    runs = {said: load(name) for name, said in RUNS.items()}
    names = list(next(iter(runs.values()))["versions"])
    rows = [(name, *(run["versions"][name].removesuffix("+cpu") for run in runs.values())) for name in names]
    rows.append(("commit", *(run["commit"][:7] for run in runs.values())))
    rows.append(("tests passed", *(f"{run['passed']:,}" for run in runs.values())))
    return Table("Versions", ("", *runs), rows)


def of_damages() -> Table:
    """Each of sixty damages to the library, and the statements whose verdict in the ledger it changes."""
    rows = []
    for one in load("damages")["damages"]:
        names = [*one["noticed"], *(f"{name} (stops)" for name in one["stopped"])]
        few = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        rows.append((one["words"], one["file"], few or "none"))
    return Table("Damages", ("what was changed", "in", "statements of another verdict"), rows)


TABLES: dict[str, Callable[[], Table]] = {
    "damages": of_damages,
    "instances": lambda: counts("Instances", "checked", instances(load("ledger")), add_up=False),
    "properties": of_properties,
    "mutants": of_mutants,
    "survivors": of_survivors,
    "bad-inputs": lambda: counts("Bad inputs", "bad input", load("all")["bad inputs"]),
    "faults": lambda: counts("Faults", "fault", load("all")["faults"]),
    "versions": of_versions,
    "skipped": lambda: counts("Skipped", "why", load("all")["skipped"]),
}


def phrases() -> dict[str, str]:
    """What the page's sentences quote, by name."""
    run, modules, checked = load("all"), load("mutants")["modules"], instances(load("ledger"))
    damages = load("damages")
    dead, every = map(sum, zip(*map(killed, modules.values()), strict=True))
    return {
        "tests": f"{run['passed']:,}",
        "minutes": f"{run['seconds'] / 60:.0f} minutes",
        "properties": str(len(run["properties"])),
        "examples": f"{sum(run['properties'].values()):,}",
        "bad-inputs": f"{sum(run['bad inputs'].values()):,}",
        "faults": f"{sum(run['faults'].values()):,}",
        "kills": str(run["faults"]["pretraining killed"]),
        "mutants": f"{every:,}",
        "killed": f"{dead:,}",
        "share": f"{dead / every:.1%}",
        "alive": str(every - dead),
        "mutants-commit": load("mutants")["commit"][:7],
        "damages": str(len(damages["damages"])),
        "damages-noticed": str(sum(bool(one["noticed"]) for one in damages["damages"])),
        "damages-instances": str(damages["instances"]),
        "instances": f"{checked[RANDOM]:,}",
        "cases": f"{checked[CASES]:,}",
        "machine": f"{run['system']}, {run['processors']} processors, Python {run['versions']['Python']}, "
        f"torch {run['versions']['torch'].removesuffix('+cpu')}, {run['date']}",
    }


def depend(env) -> None:
    """Write the page anew when what it is made of changes."""
    for path in (*(RESULTS / f"{name}.json" for name in (*RUNS, "mutants", "damages")), ROOT / LEDGER, Path(__file__)):
        env.note_dependency(str(path))


class TrustTable(FromResults):
    """One of the page's tables: `{trust-table} NAME`."""

    required_arguments = 1
    depend = staticmethod(depend)

    def made(self):
        found = TABLES[self.arguments[0]]()
        return [as_nodes(found, found.columns.index(CODE) if CODE in found.columns else None)]


def setup(app) -> dict[str, bool]:
    app.add_directive("trust-table", TrustTable)
    app.add_role("tried", Measured(phrases, depend))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
