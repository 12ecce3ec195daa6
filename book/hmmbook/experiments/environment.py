"""Record what made a result: versions, device, commit and date."""

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
"""The project's folder, if this file lies in a checkout of the project."""
SOURCES = ("hmmlib", "book/hmmbook")
"""The folders of the two packages in a checkout."""


@cache
def git_commit() -> str | None:
    """Return the commit of the checkout that this code lies in, as 12 hexadecimal digits.

    A `+` at its end says that the sources differ from the commit. The first answer is kept, because a later commit does
    not change the code that this process has imported. The answer is None if git cannot be run or does not track the
    code, for example because the package is installed.
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

    Returns:
        The facts by name, for example the device, the number of threads and the version of torch.
    """
    dtype = device.sixteen_bits(on, precision) or torch.float32
    return {
        "device": device.name(on),
        "precision": str(dtype).removeprefix("torch."),
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),  # Its instructions decide in which order sums are rounded.
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "hmmlib": __version__,
        "commit": git_commit(),
    }


def today() -> str:
    """Return today's date in the form 2026-01-31."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
