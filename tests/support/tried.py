"""`python tests/support/tried.py` writes into tests/README.md what the stored runs have tried."""

import json
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
README = TESTS / "README.md"
MARK = "<!-- What follows is written by `python tests/support/tried.py`. -->\n"
SHOWN = 4
"""So many statements are named beside each mistake, and the others are counted."""


def load(name: str) -> dict:
    """A stored run."""
    return json.loads((TESTS / "results" / f"{name}.json").read_text(encoding="utf8"))


def table(title: str, columns: list[str], rows: list[list]) -> str:
    """A section of the README that consists of a table."""
    lines = [f"\n## {title}\n", as_line(columns), as_line(["---"] * len(columns))]
    for row in rows:
        lines.append(as_line(row))
    return "\n".join(lines) + "\n"


def as_line(cells: list) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def runs_table() -> str:
    """Whole runs of the tests."""
    rows = []
    for name in ("all", "lowest", "newest"):
        run = load(name)
        versions = ", ".join(f"{package} {number}" for package, number in run["versions"].items())
        minutes = f"{run['seconds'] / 60:.0f} min"
        rows.append([name, run["date"], run["commit"], run["passed"], minutes, versions])
    return table("Runs of the tests", ["run", "date", "commit", "tests passed", "took", "versions"], rows)


def mutants_table() -> str:
    """For each module, how many of its mutants were killed."""
    rows = []
    for name, module in load("mutants")["modules"].items():
        tested = module["mutants"] - module.get("not checked", 0)
        killed = tested - len(module["alive"])
        share = f"{killed / max(tested, 1):.1%}"
        rows.append([name, module["commit"][:12], tested, killed, share, len(module["left out"])])
    return table("Mutants", ["module", "commit", "mutants", "killed", "share", "functions left out"], rows)


def mistakes_table() -> str:
    """For each mistake in the library, the statements of the ledger that notice it."""
    run = load("damages")
    rows = []
    for mistake in run["damages"]:
        statements = mistake["noticed"] + [f"{name} (stops)" for name in mistake["stopped"]]
        text = ", ".join(statements[:SHOWN]) or "none"
        if len(statements) > SHOWN:
            text += f" and {len(statements) - SHOWN} more"
        rows.append([mistake["words"], f"`{mistake['file']}`", text])
    title = f"Mistakes that the ledger alone was to notice, with {run['instances']} models for each statement"
    return table(title, ["mistake", "in", "statements of another verdict"], rows)


def counts_table(kind: str, title: str) -> str:
    """How many times something was tried in the run of all tests."""
    rows = [[name, times] for name, times in load("all")[kind].items()]
    return table(title, [kind, "times"], rows)


def readme() -> str:
    """The README with the numbers that are stored."""
    text = README.read_text(encoding="utf8").split(MARK)[0]
    parts = [
        text + MARK,
        runs_table(),
        mutants_table(),
        mistakes_table(),
        counts_table("bad inputs", "Bad input that was refused"),
        counts_table("faults", "Faults that were survived"),
        counts_table("properties", "Properties, and for how many examples each held"),
    ]
    return "".join(parts)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf8")
