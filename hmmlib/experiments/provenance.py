"""What code made a result, and whether it has changed since: a digest of the sources that the numbers of a trial hang on."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hmmlib.validation import not_empty

if TYPE_CHECKING:
    from hmmlib.experiments.trials import TrialResult

LIBRARY = Path(__file__).resolve().parents[1]
SOURCES = (
    "backend.py",
    "models",
    "inference",
    "theory/assumptions.py",
    "theory/certificates.py",
    "theory/heads.py",
    "theory/ranks.py",
    "theory/separation.py",
    "theory/theorems.py",
    "training",
    *(
        f"experiments/{name}.py"
        for name in ("beyond", "labels", "ladder", "measurements", "network_outputs", "presets", "specs", "trials")
    ),
)
"""The part of the library that computes a trial, below `hmmlib`; the rest checks, stores, shows or proves."""
OF_NETWORKS = (
    "backend.py",
    "models",
    *(f"training/{name}.py" for name in ("bert", "muon", "pretraining")),
    *(f"experiments/{name}.py" for name in ("presets", "specs", "trials")),
)
"""The part that a pretrained network hangs on."""


def code_of(source: str) -> str:
    """The lines of a module without comments, docstrings and blank lines: no number hangs on these."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


@cache
def library_digest(sources: Sequence[str] = SOURCES) -> str:
    """16 hexadecimal digits of the names and the code of these sources, as they are when first asked for."""
    digest = hashlib.sha256()
    for source in sources:
        path = LIBRARY / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(LIBRARY).as_posix()}\n{code_of(file.read_text())}\n".encode())
    return digest.hexdigest()[:16]


def git(*words: str) -> subprocess.CompletedProcess | None:
    """A command of git in the library's folder; None where there is no git."""
    try:
        return subprocess.run(["git", "-C", str(LIBRARY), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None


def in_checkout() -> bool:
    """Whether git tracks the library where it lies: not where it is installed, be that within some other repository."""
    tracked = git("ls-files", "--error-unmatch", *SOURCES)
    return tracked is not None and not tracked.returncode


@cache
def _changed_since_commit(commit: str) -> bool | None:
    """Whether SOURCES are not what they were at a commit; None where git or the commit is not at hand."""
    if not in_checkout():
        return None
    done = git("diff", "--quiet", commit, "--", *SOURCES)
    return None if done.returncode not in (0, 1) else bool(done.returncode)


@cache
def _commit_date(commit: str) -> str | None:
    """The date of a commit, as its author's clock had it; None where git or the commit is not at hand."""
    done = git("show", "--no-patch", "--format=%cs", commit)
    return done.stdout.strip() if done is not None and done.returncode == 0 else None


def _commit(result: TrialResult) -> tuple[str | None, bool]:
    """The commit that a result names, and whether tracked files differed from it (`+`)."""
    commit = str(result.environment.get("commit"))
    return (commit.removesuffix("+") if re.fullmatch(r"[0-9a-f]+\+?", commit) else None), commit.endswith("+")


def has_changed(result: TrialResult) -> bool | None:
    """Whether the library has changed since it made a result; None where that cannot be told.

    Results have the digest of the library since version 0.2.0; older ones the commit alone.
    """
    digest, (commit, edited) = result.environment.get("library"), _commit(result)
    if digest is not None:
        return digest != library_digest()
    changed = _changed_since_commit(commit) if commit else None
    return changed or (None if edited else changed)


def added_elsewhere(result: TrialResult, name: str) -> bool:
    """Whether a measurement was added to a result by another state of the library."""
    source = result.environment.get(f"{name} measured")
    return source is not None and not str(source).endswith(f"library {library_digest()}")


def _origin(result: TrialResult) -> tuple[str | None, str]:
    """When a result was stored, and by what commit."""
    commit, edited = _commit(result)
    date = result.environment.get("date") or (commit and _commit_date(commit))
    return date, commit + "+" * edited if commit else "an unknown commit"


def stored_by(*results: TrialResult) -> str:
    """In words, when results were stored, by what commits, of which the commonest is named, and whether the library has changed
    since. In this last the results must be alike.
    """
    dates, commits = zip(*map(_origin, not_empty("results", results)), strict=True)
    dates, commits, changed = sorted({d for d in dates if d}), Counter(commits), has_changed(results[0])
    first, others = commits.most_common(1)[0][0], len(commits) - 1
    days = f" on {dates[0]}" if len(dates) == 1 else f" from {dates[0]} to {dates[-1]}" if dates else ""
    origin = f"stored{days} by {first}" + f" and {others} other commit{'s' * (others > 1)}" * bool(others)
    if changed is None:
        return f"{origin}; whether the library has changed since cannot be told here"
    return f"{origin}; the library has changed since" if changed else f"{origin}, by the library as it is"
