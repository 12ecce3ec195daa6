"""What made a result: versions, device, commit, date."""

from __future__ import annotations

import platform
import re
import subprocess
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hmmlib import __version__, device

if TYPE_CHECKING:
    from hmmbook.experiments.trials import TrialResult

ROOT = Path(__file__).resolve().parents[3]
"""The project's folder, where this lies in a checkout."""
SOURCES = ("hmmlib", "book/hmmbook")
"""The folders of the two packages in a checkout."""


@cache
def git_commit() -> str | None:
    """Return the commit of the checkout that the code lay in when this was first asked.

    A `+` at its end says that the sources differ from the commit. It is None where git does not track the code, for
    example where it is installed.
    """
    try:
        _git("ls-files", "--error-unmatch", *SOURCES)
        commit = _git("rev-parse", "--short=12", "HEAD")
        changes = _git("status", "--porcelain", "--", *SOURCES)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changes else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def environment(on: torch.device, precision: str) -> dict[str, str | int | None]:
    """Return what a result depends on besides its spec.

    Args:
        on: the device of the network.
        precision: the spec's precision.
    """
    dtype = device.sixteen_bits(on, precision) or torch.float32
    return {
        "device": device.name(on),
        "precision": str(dtype).removeprefix("torch."),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "hmmlib": __version__,
        "commit": git_commit(),
    }


def today() -> str:
    """Return the date, as 2026-01-31."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def stored_by(*results: TrialResult) -> str:
    """Say when results were stored, and by which commit most of them."""
    days = []
    commits = Counter()
    for result in results:
        if result.environment.get("date"):
            days.append(result.environment["date"])
        commits[str(result.environment.get("commit"))] += 1

    days.sort()
    if not days:
        when = ""
    elif days[0] == days[-1]:
        when = f" on {days[0]}"
    else:
        when = f" from {days[0]} to {days[-1]}"

    commit, _ = commits.most_common(1)[0]
    if not re.fullmatch(r"[0-9a-f]+\+?", commit):
        commit = "an unknown commit"
    if len(commits) == 1:
        return f"stored{when} by {commit}"
    if len(commits) == 2:
        return f"stored{when} by {commit} and 1 other commit"
    return f"stored{when} by {commit} and {len(commits) - 1} other commits"
