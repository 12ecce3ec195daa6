"""Run benchmarks and print their tables.

python benchmarks/run.py [NAMES…] [--quick]

Results go to benchmarks/results/, and their tables to benchmarks/README.md. With --quick, which takes seconds and
measures little, they go to build/bench/. An interrupted run goes on where it stopped, as long as nothing has changed
that the rows depend on.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Annotated

import measures
import typer
from contest import FOLDER, PEERS, machine
from tables import RESULTS, TABLES

from hmmbook.files import write_whole

BUILD = FOLDER.parent / "build" / "bench"
BENCHMARKS = {
    "posteriors": measures.posteriors,
    "memory": measures.memory,
    "sampling": measures.sampling,
    "pretraining": measures.pretraining,
}


def digest() -> str:
    """A digest of all that rows depend on: the library, the benchmarks, the versions of both sides."""
    paths = [FOLDER / "peers.txt", FOLDER.parent / "requirements.lock"]
    paths += (FOLDER.parent / "hmmlib").rglob("*.py")
    paths += FOLDER.rglob("*.py")
    content = b"".join(path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(content).hexdigest()


class Rows:
    """The rows of a benchmark, in the order in which they are asked for. Rows that exist already are read."""

    def __init__(self, name: str, quick: bool, state: str):
        self.folder = BUILD / "rows" / (f"{name}-quick" if quick else name)
        self.state = state
        self.rows: list[dict] = []
        self.versions: dict[str, dict[str, str]] = {"ours": {}, "peers": {}}

    def __call__(self, make: Callable[[], dict], **key) -> dict:
        """The row `key | make()`. The versions of its contestants are collected in one place."""
        name = hashlib.sha256(json.dumps([key, self.state]).encode()).hexdigest()[:16]
        path = self.folder / f"{name}.json"
        if not path.is_file():
            print(", ".join(f"{field} {value}" for field, value in key.items()), flush=True)
            write_whole(path, json.dumps(key | make(), allow_nan=False))
        row = json.loads(path.read_text(encoding="utf8"))
        for contestant in row.get("contestants", []):
            side = "peers" if contestant["peer"] else "ours"
            self.versions[side].update(contestant.pop("versions", {}))
        self.rows.append(row)
        return row


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(BENCHMARKS)}")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="small sizes, nothing stored")] = False,
) -> None:
    for name in names or []:
        if name not in BENCHMARKS:
            raise typer.BadParameter(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    if sys.platform != "linux" or not PEERS.is_file():
        raise typer.BadParameter(f"these benchmarks need Linux and {PEERS}, which `make bench` makes")
    folder = BUILD if quick else RESULTS
    for name in names or BENCHMARKS:
        rows = Rows(name, quick, digest())
        BENCHMARKS[name](rows, quick)
        record = {"name": name, "machine": machine(), "versions": rows.versions, "rows": rows.rows}
        write_whole(folder / f"{name}.json", json.dumps(record, indent=1) + "\n")
        for title, table in TABLES[name](record).items():
            print(f"\n{name}: {title}\n{table.to_string(index=False)}")


if __name__ == "__main__":
    typer.run(main)
