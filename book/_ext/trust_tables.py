"""The tables and numbers of the page on trust, from what runs of the tests have stored in tests/results/."""

from __future__ import annotations

import json
from pathlib import Path

from benchmark_tables import as_nodes
from docutils import nodes
from records import Table
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

log = logging.getLogger(__name__)

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "results"
RUNS = {"all": "make test-all", "lowest": "make lowest", "newest": "make newest"}
"""Runs of the tests that are stored, and the commands behind them."""


def load(name: str) -> dict:
    """What is stored of a run; ValueError, with the command that makes it, where there is none."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"{path} is missing: run `{RUNS.get(name, 'make mutants')}`")
    return json.loads(path.read_text(encoding="utf8"))


def killed(module: dict) -> int:
    """Mutants for which a test failed, or never ended."""
    return module.get("killed", 0) + module.get("timeout", 0)


def mutants() -> Table:
    modules = load("mutants")["modules"]
    rows = [(name, one["mutants"], killed(one), len(one["alive"])) for name, one in modules.items()]
    rows.append(("together", *(sum(row[k] for row in rows) for k in (1, 2, 3))))
    lines = [(name, *(f"{n:,}" for n in counts), f"{counts[1] / counts[0]:.1%}") for name, *counts in rows]
    return Table("mutants", ("module", "mutants", "killed", "alive", "killed of all"), lines)


def survivors() -> Table:
    modules = load("mutants")["modules"]
    rows = [
        (f"{module}.{one['function']}", one["change"].replace("\n", "  "), one["reason"])
        for module, found in modules.items()
        for one in found["alive"]
    ]
    return Table("survivors", ("function", "change", "why no test fails"), rows)


def counts(kind: str, columns: tuple[str, str]) -> Table:
    found = load("all")[kind]
    return Table(kind, columns, [(name, f"{times:,}") for name, times in found.items()])


def properties() -> Table:
    found = load("all")["properties"]
    said = {name.removeprefix("test_").replace("_", " "): times for name, times in found.items()}
    return Table("properties", ("property", "examples"), [(name, f"{times:,}") for name, times in said.items()])


def versions() -> Table:
    """A row for each run, with the packages that the tests import."""
    runs = {name: load(name) for name in RUNS}
    packages = list(runs["all"]["versions"])
    rows = []
    for name, run in runs.items():
        found = [run["versions"][package].split("+")[0] for package in packages]
        rows.append((RUNS[name], *found, f"{run['passed']:,}", f"{sum(run['skipped'].values()):,}"))
    return Table("versions", ("command", *packages, "tests passed", "left out"), rows)


def skipped() -> Table:
    found = load("all")["skipped"]
    return Table("skipped", ("why", "tests"), [(why.removeprefix("Skipped: "), f"{n}") for why, n in found.items()])


TABLES = {
    "mutants": mutants,
    "survivors": survivors,
    "properties": properties,
    "bad inputs": lambda: counts("bad inputs", ("where", "tried")),
    "faults": lambda: counts("faults", ("fault", "survived")),
    "versions": versions,
    "skipped": skipped,
}


def phrases(ledger: Path) -> dict[str, str]:
    """The numbers in the page's sentences."""
    run, modules = load("all"), load("mutants")["modules"].values()
    entries = json.loads(ledger.read_text(encoding="utf8"))["entries"]
    amounts = {
        "tests": run["passed"],
        "properties": len(run["properties"]),
        "examples": sum(run["properties"].values()),
        "bad inputs": sum(run["bad inputs"].values()),
        "faults": sum(run["faults"].values()),
        "mutants": sum(one["mutants"] for one in modules),
        "killed": sum(map(killed, modules)),
        "alive": sum(len(one["alive"]) for one in modules),
        "instances": sum(one["instances"] for one in entries),
        "controls": sum(one["control_instances"] for one in entries),
        "patterns": sum((one["patterns"] or {}).get("cases", 0) for one in entries),
        "minutes": round(run["seconds"] / 60),
    }
    of = run["versions"]
    machine = f"{run['processors']} processors, {run['system']}, Python {of['Python']}, torch {of['torch']}"
    worst = min(killed(one) / one["mutants"] for one in modules)
    return {
        **{name: f"{amount:,}" for name, amount in amounts.items()},
        "machine": machine,
        "worst": f"{worst:.1%}",
        "date": run["date"],
    }


def depend(env) -> None:
    for path in (*(RESULTS / f"{name}.json" for name in (*RUNS, "mutants")), Path(__file__)):
        env.note_dependency(str(path))


class TrustTable(SphinxDirective):
    """One of TABLES, by its name."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        depend(self.env)
        try:
            return [as_nodes(TABLES[self.arguments[0]]())]
        except (KeyError, ValueError) as error:
            log.warning("trust-table %s: %s", self.arguments[0], error, location=self.get_location())
            return []


class Tried(SphinxRole):
    """A number from the stored runs, or from the ledger of this build, by its name in `phrases`."""

    def run(self):
        depend(self.env)
        ledger = Path(self.env.app.srcdir, "build", "ledger.json")
        self.env.note_dependency(str(ledger))
        try:
            return [nodes.Text(phrases(ledger)[self.text])], []
        except (KeyError, ValueError, OSError) as error:
            log.warning("nothing tried as %s: %s", self.text, error, location=self.get_location())
            return [], []


def setup(app) -> dict[str, bool]:
    app.add_directive("trust-table", TrustTable)
    app.add_role("tried", Tried())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
