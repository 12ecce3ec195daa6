"""How long the book takes to build, from a new clone of what is committed, and what imports add to torch's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from contest import FOLDER

ROOT = FOLDER.parent
IMPORTS = {
    "torch": "",
    "hmmlib": "import hmmlib",
    "models and messages": "from hmmlib import random_hmm, masked_token_probs",
    "theorems": "import hmmlib.theory.theorems",
    "trials": "import hmmlib.experiments.trials",
    "statements": "import companion.evidence.ledger",
}
"""What a user imports; each is timed after torch, in a process of its own, against torch alone."""
JOB = re.compile(r"^  (?P<name>\S+): (?P<seconds>[\d.]+) s$", re.MULTILINE)


def build(row, quick: bool) -> None:
    """Imports; then a build from nothing, and one where nothing has changed."""
    rounds = [{name: seconds_of(f"import torch\n{code}") for name, code in IMPORTS.items()} for _ in range(5)]
    for name in IMPORTS:
        beyond = round(median(one[name] - one["torch"] for one in rounds), 3)
        seconds = round(median(one[name] for one in rounds), 3)
        row(lambda seconds=seconds, beyond=beyond: dict(seconds=seconds, beyond_torch=beyond), what=f"import: {name}")
    if quick:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "clone")
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        for phase, seconds in make_book(folder).items():
            row(lambda seconds=seconds: dict(seconds=seconds), what=f"from nothing: {phase}")
        row(lambda: dict(seconds=make_book(folder)["all"]), what="nothing changed")


def seconds_of(code: str) -> float:
    """Wall-clock seconds of a Python process that runs `code`, its start included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def make_book(folder: Path) -> dict[str, float]:
    """`make book` with this environment's packages and the clone's own: seconds of each notebook, and of all."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'book'}"}
    start = time.perf_counter()
    command = ["make", "book", f"VENV={Path(sys.prefix)}"]
    output = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    jobs = {found["name"]: float(found["seconds"]) for found in JOB.finditer(output)}
    return jobs | {"all": round(time.perf_counter() - start, 1)}
