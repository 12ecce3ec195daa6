"""Run benchmarks and print their tables.

python benchmarks/run.py [NAMES…] [--quick]

Results go to benchmarks/results/, and their tables to benchmarks/README.md; with --quick, which takes seconds and
measures little, to build/bench/. An interrupted run goes on where it stopped, as long as nothing that the rows depend
on has changed. Learning curves, which take hours, and builds of the book are run only where they are named.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Annotated

import building
import learning
import measures
import typer
from contest import FOLDER, PEERS, machine
from tables import RESULTS, TABLES

from hmmlib.files import write_whole

BUILD = FOLDER.parent / "build" / "bench"
USUAL = {name: getattr(measures, name) for name in TABLES if hasattr(measures, name)}
BENCHMARKS = USUAL | {"learning-curves": learning.learning_curves, "build": building.build}


def digest() -> str:
    """Of all that rows depend on: the library, the benchmarks, the versions of both sides."""
    paths = [*(FOLDER.parent / "hmmlib").rglob("*.py"), *FOLDER.rglob("*.py"), FOLDER / "peers.txt"]
    paths.append(FOLDER.parent / "requirements.lock")
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()


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
        if not path.is_file():
            print(", ".join(f"{k} {v}" for k, v in key.items()), flush=True)
            write_whole(path, json.dumps(key | make(), allow_nan=False))
        row = json.loads(path.read_text())
        for contestant in row.get("contestants", []):
            self.versions["peers" if contestant["peer"] else "ours"] |= contestant.pop("versions", {})
        self.rows.append(row)
        return row


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(BENCHMARKS)}")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="small sizes, nothing stored")] = False,
) -> None:
    if unknown := {*(names or [])} - BENCHMARKS.keys():
        raise typer.BadParameter(f"there is no benchmark {unknown.pop()!r}; there are {', '.join(BENCHMARKS)}")
    if sys.platform != "linux" or not PEERS.is_file():
        raise typer.BadParameter(f"these benchmarks need Linux and {PEERS}, which `make bench` makes")
    for name in names or USUAL:
        rows = Rows(name, quick, digest())
        BENCHMARKS[name](rows, quick)
        record = {"name": name, "machine": machine(), "versions": rows.versions, "rows": rows.rows}
        write_whole((BUILD if quick else RESULTS) / f"{name}.json", json.dumps(record, indent=1) + "\n")
        for title, table in TABLES[name](record).items():
            print(f"\n{name}: {title}\n{table.to_string(index=False)}")


if __name__ == "__main__":
    typer.run(main)
