"""How long the book takes to build: from an empty build folder, after edits, and what imports add to torch's own.

python benchmarks/build_times.py [--jobs N] [--imports-only]

Builds are of a copy of the checkout's files, changes included, in a temporary folder, with this checkout's environment.
The table is printed; all rows go to benchmarks/results/build.json.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from contest import RESULTS, ROOT, machine, write

from hmmlib.experiments.trials import git_commit

IMPORTS = {
    "hmmlib": "import hmmlib",
    "models and messages": "from hmmlib import random_hmm, masked_token_probs",
    "theorems": "import hmmlib.theory.theorems",
    "trials": "import hmmlib.experiments.trials",
    "statements": "import companion.evidence.ledger",
}
"""What a user imports; each is timed after torch, in a process of its own, against torch alone."""
SPHINX = "sphinx"
JOB = re.compile(r"^  (?P<name>\S+): (?P<seconds>[\d.]+) s$")


def seconds_of(code: str) -> float:
    """Wall-clock seconds of a Python process that runs `code`, its start included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def imports(times: int) -> list[dict]:
    """Medians over rounds, each of which times every import once; what an import adds is the median of differences."""
    rounds = [
        {name: seconds_of(f"import torch\n{code}") for name, code in {"torch": "", **IMPORTS}.items()}
        for _ in range(times)
    ]
    return [
        {
            "what": f"import: {name}",
            "seconds": round(statistics.median(one[name] for one in rounds), 3),
            "beyond_torch": round(statistics.median(one[name] - one["torch"] for one in rounds), 3),
        }
        for name in rounds[0]
    ]


def copied(folder: Path) -> None:
    """The checkout's files, as they are now, without anything that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def build(folder: Path, jobs: int | None) -> dict[str, float]:
    """`make book`: seconds of each job and of Sphinx, and in all. RuntimeError with its output if it fails."""
    command = ["make", "book", f"VENV={Path(sys.prefix)}", *([f"JOBS={jobs}"] if jobs else [])]
    environment = {**os.environ, "PYTHONPATH": str(folder)}  # hmmlib of the copy
    start, phases, lines, pages = time.perf_counter(), {}, [], None
    streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with subprocess.Popen(command, cwd=folder, env=environment, **streams) as process:
        for line in process.stdout:
            lines.append(line)
            if found := JOB.match(line):
                phases[found["name"]] = float(found["seconds"])
            if "jupyter-book build" in line:
                pages = time.perf_counter()
    if process.returncode:
        raise RuntimeError(f"make book failed:\n{''.join(lines)}")
    end = time.perf_counter()
    return phases | {SPHINX: round(end - pages, 1), "all": round(end - start, 1)}


def edit(folder: Path, name: str, code: bool) -> None:
    """Another line in the last code cell of a notebook, or another sentence at its end."""
    path = folder / "notebooks" / f"{name}.md"
    text = path.read_text().rstrip("\n")
    if code:
        before, fence, after = text.rpartition("\n```")
        text = f"{before}\nprint('edited')\n{fence}{after}"
    else:
        text = f"{text}\n\nOne more sentence."
    path.write_text(text + "\n")


def builds(jobs: int | None) -> list[dict]:
    """A build from nothing, one where nothing has changed, and one after each kind of edit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        first = build(folder, jobs)
        rows = [{"what": f"from nothing: {phase}", "seconds": seconds} for phase, seconds in first.items()]
        notebooks = {
            phase: seconds for phase, seconds in first.items() if (folder / "notebooks" / f"{phase}.md").is_file()
        }
        usual = sorted(notebooks, key=notebooks.get)[len(notebooks) // 2]
        longest = max(notebooks, key=notebooks.get)
        rows.append({"what": "nothing changed", "seconds": build(folder, jobs)["all"]})
        for notebook, code in ((usual, False), (usual, True), (longest, False), (longest, True)):
            edit(folder, notebook, code)
            what = f"after an edit of {'code' if code else 'text'} in {notebook}"
            rows.append({"what": what, "seconds": build(folder, jobs)["all"]})
        return rows


def main(
    jobs: Annotated[int | None, typer.Option(min=1, help="notebooks at a time; as many as cores if left out")] = None,
    times: Annotated[int, typer.Option(min=1, help="rounds of imports")] = 5,
    imports_only: bool = False,
) -> None:
    """Print the table, and write benchmarks/results/build.json unless only imports are timed."""
    rows = imports(times) + ([] if imports_only else builds(jobs))
    for row in rows:
        beyond = f", {row['beyond_torch']:+.2f} s beyond torch" if "beyond_torch" in row else ""
        print(f"{row['what']:58}{row['seconds']:7.1f} s{beyond}")
    if not imports_only:
        commit = git_commit()
        write(
            RESULTS / "build.json",
            {"name": "build", "machine": machine(), "commit": commit, "jobs": jobs, "rows": rows},
        )


if __name__ == "__main__":
    typer.run(main)
