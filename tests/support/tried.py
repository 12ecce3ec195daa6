"""`python tests/support/tried.py` writes into tests/README.md what the stored runs have tried."""

import json
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
README = TESTS / "README.md"
TRIED = {
    "bad inputs": "Bad input that was refused",
    "faults": "Faults that were survived",
    "properties": "Properties, and for how many examples each held",
}
MARK = "<!-- What follows is written by `python tests/support/tried.py`. -->\n"


def load(name: str) -> dict:
    return json.loads((TESTS / "results" / f"{name}.json").read_text(encoding="utf8"))


def table(title: str, names: list[str], rows) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return f"\n## {title}\n\n" + "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def run(name: str) -> tuple:
    found = load(name)
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    return name, found["date"], found["commit"], found["passed"], f"{found['seconds'] / 60:.0f} min", versions


def mutants(found: dict) -> list[tuple]:
    rows = []
    for name, module in found["modules"].items():
        tried = module["mutants"] - module.get("not checked", 0)
        dead = tried - len(module["alive"])
        rows.append((name, module["commit"][:12], tried, dead, f"{dead / max(tried, 1):.1%}", len(module["left out"])))
    return rows


def damage(one: dict) -> tuple:
    noticed = [*one["noticed"], *(f"{name} (stops)" for name in one["stopped"])]
    few = ", ".join(noticed[:4]) + f" and {len(noticed) - 4} more" * (len(noticed) > 4)
    return one["words"], f"`{one['file']}`", few or "none"


def readme() -> str:
    """The README with the numbers that are stored."""
    tried, changed, broken = load("all"), load("mutants"), load("damages")
    modules = ["module", "commit", "mutants", "killed", "share", "functions left out"]
    mistakes = f"Mistakes that the ledger alone was to notice, with {broken['instances']} models for each statement"
    runs = map(run, ("all", "lowest", "newest"))
    parts = [
        table("Runs of the tests", ["run", "date", "commit", "tests passed", "took", "versions"], runs),
        table("Mutants", modules, mutants(changed)),
        table(mistakes, ["mistake", "in", "statements of another verdict"], map(damage, broken["damages"])),
    ]
    parts += [table(title, [kind, "times"], tried[kind].items()) for kind, title in TRIED.items()]
    return README.read_text(encoding="utf8").split(MARK)[0] + MARK + "".join(parts)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf8")
