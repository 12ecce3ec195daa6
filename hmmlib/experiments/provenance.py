"""What code made a result: its commit, its date, and a digest of the sources that the numbers of a trial hang on."""

from __future__ import annotations

import ast
import hashlib
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hmmlib import __version__, backend

if TYPE_CHECKING:
    from hmmlib.experiments.trials import TrialResult

LIBRARY = Path(__file__).resolve().parents[1]
SOURCES = ("backend.py", "models", "inference", "theory", "training", "experiments")
"""The part of the library that computes a trial, below `hmmlib`, but for these files:"""
NOT_COMPUTING = [f"experiments/{name}.py" for name in ("executors", "provenance", "results", "store", "sweeps")]
OF_NETWORKS = (
    "backend.py", "models", "training", "experiments/presets.py", "experiments/specs.py", "experiments/trials.py"
)  # fmt: skip
"""The part that a pretrained network hangs on."""


def code_of(source: str) -> str:
    """What the code of a module does, without comments, docstrings and layout: no number hangs on these.

    Alike in Python 3.11, 3.12 and 3.13: 3.12 has one more field, and 3.13 leaves out what is empty.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
        if not getattr(node, "type_params", True):
            del node.type_params
    return ast.dump(tree, **{"show_empty": True} if sys.version_info >= (3, 13) else {})


def files_of(sources: Sequence[str]) -> dict[str, Path]:
    """The files of these sources that compute, by their names below `hmmlib`."""
    files = [file for source in sources for file in sorted((LIBRARY / source).rglob("*.py")) or [LIBRARY / source]]
    names = {file.relative_to(LIBRARY).as_posix(): file for file in files}
    return {name: file for name, file in names.items() if name not in NOT_COMPUTING}


@cache
def library_digest(sources: Sequence[str] = SOURCES) -> str:
    """16 hexadecimal digits of the names and the code of these sources, as they are when first asked for."""
    words = (f"{name}\n{code_of(file.read_text())}\n" for name, file in files_of(sources).items())
    return hashlib.sha256("".join(words).encode()).hexdigest()[:16]


@cache
def git_commit() -> str | None:
    """The commit of the checkout that the library lay in when first asked, `+` where the sources differ from it.

    None where git does not track the library: where it is installed, be that within some other repository.
    """

    def git(*words: str, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run(["git", "-C", LIBRARY, *words], capture_output=True, text=True, check=check)

    try:
        git("ls-files", "--error-unmatch", *SOURCES)
        differ = git("diff", "--quiet", "HEAD", "--", *SOURCES, check=False).returncode
        return git("rev-parse", "--short=12", "HEAD").stdout.strip() + "+" * (differ != 0)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None


def environment(device: torch.device, precision: str) -> dict[str, str | int | None]:
    """What a result depends on besides its spec."""
    return {
        "device": backend.name(device),
        "precision": str(backend.sixteen_bits(device, precision) or torch.float32).removeprefix("torch."),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "hmmlib": __version__,
        "commit": git_commit(),
        "library": library_digest(),
    }


def has_changed(result: TrialResult) -> bool | None:
    """Whether the library has changed since it made a result; None for the oldest results, which have no digest."""
    digest = result.environment.get("library")
    return None if digest is None else digest != library_digest()


def added_elsewhere(result: TrialResult, name: str) -> bool:
    """Whether a measurement was added to a result by another state of the library."""
    source = result.environment.get(f"{name} measured")
    return source is not None and not source.endswith(f"library {library_digest()}")


def stored_by(*results: TrialResult) -> str:
    """In words, when results were stored, and by what commits, of which the commonest is named."""
    days = sorted(filter(None, (result.environment.get("date") for result in results)))
    when = f" on {days[0]}" if len({*days}) == 1 else f" from {days[0]} to {days[-1]}" if days else ""
    commits = Counter(str(result.environment.get("commit")) for result in results)
    commit, others = commits.most_common(1)[0][0], len(commits) - 1
    by = commit if re.fullmatch(r"[0-9a-f]+\+?", commit) else "an unknown commit"
    return f"stored{when} by {by}" + f" and {others} other commit{'s' * (others > 1)}" * bool(others)
