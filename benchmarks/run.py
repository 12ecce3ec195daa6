"""Run benchmarks and print their tables.

python benchmarks/run.py [NAMES…] [--quick]

Results go to benchmarks/results/, which the book's page reads; with --quick, which takes seconds and says little, to
build/bench/. An interrupted run goes on where it stopped, as long as nothing that the rows depend on has changed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from contest import PEERS, RESULTS, ROOT, machine, write  # noqa: E402
from records import printed  # noqa: E402
from tables import COMMANDS, TABLES  # noqa: E402

BUILD = ROOT / "build" / "bench"
NAMES = tuple(name for name in TABLES if name not in COMMANDS)
"""Modules beside this one, each with `measure(rows, quick)`, which calls `rows` for each of its rows."""


def digest(name: str) -> str:
    """Of all that a benchmark's rows depend on: the library, the contest, what takes part, the versions of both sides."""
    own = [FOLDER / f"{part}.py" for part in ("contest", "worker", "posteriors", name)]
    versions = [FOLDER / "peers.txt", ROOT / "requirements.lock"]
    content = hashlib.sha256()
    for path in sorted({*(ROOT / "hmmlib").rglob("*.py"), *(FOLDER / "contestants").glob("*.py"), *own, *versions}):
        content.update(path.read_bytes())
    return content.hexdigest()


class Rows:
    """The rows of a benchmark, in the order in which they are asked for; those that were made before are read."""

    def __init__(self, name: str, quick: bool, state: str):
        self.folder, self.state = BUILD / "rows" / f"{name}{'-quick' * quick}", state
        self.rows: list[dict] = []
        self.versions: dict[str, dict[str, str]] = {"ours": {}, "peers": {}}

    def __call__(self, make: Callable[[], dict], **key) -> dict:
        """The row `key | make()`. Versions of contestants are collected in one place."""
        name = hashlib.sha256(json.dumps([key, self.state]).encode()).hexdigest()[:16]
        path = self.folder / f"{name}.json"
        row = json.loads(path.read_text()) if path.is_file() else key | make()
        if not path.is_file():
            write(path, row)
            print(", ".join(f"{k} {v}" for k, v in key.items()), *self.words(row), flush=True)
        for contestant in row.get("contestants", []):
            self.versions["peers" if contestant["peer"] else "ours"] |= contestant.pop("versions", {})
        self.rows.append(row)
        return row

    @staticmethod
    def words(row: dict):
        """The row's contestants on a line each, while one waits for the table."""
        for one in row.get("contestants", []):
            yield f"\n  {one['name']}: " + one.get("failed", f"{one.get('median', 0):.4g} s")


def main(
    names: Annotated[list[str] | None, typer.Argument(help="all if none is given")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="small sizes, nothing stored")] = False,
) -> None:
    for name in names or []:
        if name not in NAMES:
            raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(NAMES)}")
    if sys.platform != "linux":
        raise typer.BadParameter("these benchmarks need Linux: they set processor affinity and read /proc")
    if not PEERS.is_file():
        raise typer.BadParameter(f"there is no {PEERS}: `make bench` makes the environment of the peers")
    for name in names or NAMES:
        rows = Rows(name, quick, digest(name))
        importlib.import_module(name).measure(rows, quick)
        record = {"name": name, "machine": machine(), "versions": rows.versions, "rows": rows.rows}
        write((BUILD if quick else RESULTS) / f"{name}.json", record)
        for table in TABLES[name](record).values():
            print(printed(table))


if __name__ == "__main__":
    typer.run(main)
