"""How long the book takes to build, from an empty build folder and again, and what imports add to torch's own.

Builds are of a copy of the checkout's files, changes included, in a temporary folder, with this checkout's environment.
"""

from __future__ import annotations

import os
import re
import shutil
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
        folder = Path(name)
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for file in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
            if (ROOT / file).is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, folder / file)
        first = make_book(folder)
        for phase, seconds in first.items():
            row(lambda seconds=seconds: dict(seconds=seconds), what=f"from nothing: {phase}")
        row(lambda: dict(seconds=make_book(folder)["all"]), what="nothing changed")


def seconds_of(code: str) -> float:
    """Wall-clock seconds of a Python process that runs `code`, its start included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def make_book(folder: Path) -> dict[str, float]:
    """`make book`: seconds of each job, of Sphinx, and in all."""
    command = ["make", "book", f"VENV={Path(sys.prefix)}"]
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'book'}"}  # hmmlib and companion of the copy
    start, output, pages = time.perf_counter(), "", 0.0
    streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with subprocess.Popen(command, cwd=folder, env=environment, **streams) as process:
        for line in process.stdout:
            output += line
            if "jupyter-book build" in line:
                pages = time.perf_counter()
    if process.returncode:
        raise RuntimeError(f"make book failed:\n{output}")
    end = time.perf_counter()
    jobs = {found["name"]: float(found["seconds"]) for found in JOB.finditer(output)}
    return jobs | {"sphinx": round(end - pages, 1), "all": round(end - start, 1)}
