"""What made a result: versions, device, commit, date."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from hmmlib import __version__, device

ROOT = Path(__file__).resolve().parents[3]
"""The project's folder, where this lies in a checkout."""
SOURCES = ("hmmlib", "book/hmmbook")
"""The folders of the two packages in a checkout."""


@cache
def git_commit() -> str | None:
    """Return the commit of the checkout that the code lay in when this was first asked.

    A `+` at its end says that the sources differ from the commit. It is None where git does not track the code, for
    example where it is installed, or where git cannot be run.
    """
    try:
        _git("ls-files", "--error-unmatch", *SOURCES)
        commit = _git("rev-parse", "--short=12", "HEAD")
        changes = _git("status", "--porcelain", "--", *SOURCES)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changes else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    # A name that git prints in another encoding must not end a trial.
    done = subprocess.run(command, capture_output=True, encoding="utf8", errors="replace", check=True)
    return done.stdout.strip()


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
        "cpu": torch.backends.cpu.get_cpu_capability(),  # Sums are rounded in an order that its instructions decide.
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "hmmlib": __version__,
        "commit": git_commit(),
    }


def today() -> str:
    """Return the date, as 2026-01-31."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
