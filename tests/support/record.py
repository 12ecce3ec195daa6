"""`pytest --record FILE` writes what a run of the tests has tried, as JSON, if all of it passed.

It counts the tests, the examples of each property, and the faults that tests report by the fixture `survived`. Each
test that is marked `tried` counts as a bad input. All of it comes with the tests' reports, so it also works with xdist.
"""

import json
import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["torch", "numpy", "scipy", "numba", "transformers", "typer"]
SELECTING = ["ignore", "ignore_glob", "collectonly", "keyword", "markexpr", "deselect", "lf"]
"""Options of pytest with which only some tests are run."""
SLOW = os.environ.get("HMMLIB_SLOW", "0") not in ("", "0")
slow = pytest.mark.skipif(not SLOW, reason="takes minutes: set HMMLIB_SLOW=1")
tried = pytest.mark.tried
"""@tried("arguments of functions") says that each test of this table is a bad input of that kind."""


def counted(reports: list) -> dict[str, dict[str, int]]:
    """Count what the tests behind these reports have tried, by kind and name. They have all passed."""
    counts = defaultdict(Counter)
    for report in reports:
        for label, times in report.user_properties:
            kind, _, name = label.partition(": ")
            counts[kind][name] += times
    return {kind: dict(sorted(counts[kind].items())) for kind in sorted(counts)}


def commit() -> str | None:
    """The commit that is tested, or None where git knows none.

    A `+` at its end says that a file differs from the commit. Stored runs of the tests are left out.
    """
    from hmmbook.experiments.environment import git_commit

    tested = git_commit()
    if tested is None:
        return None
    tested = tested.rstrip("+")
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", ".", ":!tests/results"]
    changes = subprocess.run(command, capture_output=True, check=True).stdout
    return f"{tested}+" if changes else tested


class Record:
    """The plugin. It notes at the beginning what the numbers depend on."""

    def __init__(self, path: Path):
        self.path = path
        self.start = time.monotonic()
        self.circumstances = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "commit": commit(),
            "system": platform.system(),
            "processors": os.cpu_count(),
            "slow": SLOW,
            "versions": {"Python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        }

    def pytest_terminal_summary(self, terminalreporter, exitstatus, config):
        selected = config.args_source is config.ArgsSource.ARGS or any(map(config.getoption, SELECTING))
        if selected:
            terminalreporter.write_line(f"{self.path} is left as it was: only some tests were run")
            return
        if exitstatus != 0:
            terminalreporter.write_line(f"{self.path} is left as it was: not everything passed")
            return
        passed = terminalreporter.stats.get("passed", [])
        reasons = Counter()
        for report in terminalreporter.stats.get("skipped", []):
            reason = str(report.longrepr[2])
            reasons[reason.removeprefix("Skipped: ")] += 1
        content = {
            **self.circumstances,
            "seconds": round(time.monotonic() - self.start),
            "passed": len(passed),
            "skipped": dict(reasons),
            **counted(passed),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
        terminalreporter.write_line(f"{self.path} says what was tried")
