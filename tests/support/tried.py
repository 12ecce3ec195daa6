"""What was tried against the library, in tests/README.md, from stored runs: `python tests/support/tried.py` writes
it."""

import json
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
README = TESTS / "README.md"
MARK = "<!-- What follows is written by `python tests/support/tried.py`. -->\n"


def load(name: str) -> dict:
    return json.loads((TESTS / "results" / f"{name}.json").read_text(encoding="utf8"))


def table(names: list[str], rows) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines) + "\n"


def mutants() -> str:
    rows = []
    for name, module in load("mutants")["modules"].items():
        tried = module["mutants"] - module.get("not checked", 0)
        dead = tried - len(module["alive"])
        rows.append((name, tried, dead, f"{dead / max(tried, 1):.1%}", len(module["left out"])))
    return table(["module", "mutants", "killed", "share", "functions left out"], rows)


def damages() -> str:
    rows = []
    for one in load("damages")["damages"]:
        noticed = [*one["noticed"], *(f"{name} (stops)" for name in one["stopped"])]
        few = ", ".join(noticed[:4]) + f" and {len(noticed) - 4} more" * (len(noticed) > 4)
        rows.append((one["words"], f"`{one['file']}`", few or "none"))
    return table(["mistake", "in", "statements of another verdict"], rows)


def runs() -> str:
    rows = []
    for name in ("all", "lowest", "newest"):
        run = load(name)
        versions = ", ".join(f"{package} {number}" for package, number in run["versions"].items())
        rows.append((name, run["date"], run["commit"], run["passed"], f"{run['seconds'] / 60:.0f} min", versions))
    return table(["run", "date", "commit", "tests passed", "took", "versions"], rows)


def counts(kind: str) -> str:
    return table([kind, "times"], load("all")[kind].items())


def readme() -> str:
    """The README with the numbers that are stored."""
    made = load("mutants")["commit"][:12], load("damages")["instances"]
    parts = (
        ("Runs of the tests", runs()),
        (f"Mutants, at commit {made[0]}", mutants()),
        (f"Mistakes that the ledger alone was to notice, with {made[1]} models for each statement", damages()),
        ("Bad input that was refused", counts("bad inputs")),
        ("Faults that were survived", counts("faults")),
        ("Properties, and for how many examples each held", counts("properties")),
    )
    text = README.read_text(encoding="utf8").split(MARK)[0] + MARK
    return text + "".join(f"\n## {title}\n\n{made.strip()}\n" for title, made in parts)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf8")
