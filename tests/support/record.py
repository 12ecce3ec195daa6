"""`pytest --record FILE`: what a run of the tests has tried, as JSON, if all of it passed. Counted are the tests; the
examples of each property; a bad input for each test of a table that is marked `tried`; and the faults that tests report
by `survived`. All of it comes with the tests' reports, also from xdist's processes."""

import json
import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path

import pytest
from side_by_side import cores

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["torch", "numpy", "scipy", "numba", "transformers", "typer"]
SLOW = os.environ.get("HMMLIB_SLOW", "0") not in ("", "0")
slow = pytest.mark.skipif(not SLOW, reason="takes minutes: set HMMLIB_SLOW=1")
tried = pytest.mark.tried
"""@tried("arguments of functions"): each test of this table is a bad input of that kind."""


def counted(reports: list) -> dict[str, dict[str, int]]:
    """Of reports of tests that passed: by kind, how many times what was tried."""
    found = defaultdict(Counter)
    for report in reports:
        for name, times in report.user_properties:
            kind, _, what = name.partition(": ")
            found[kind][what] += times
    return {kind: dict(sorted(counts.items())) for kind, counts in sorted(found.items())}


def commit() -> str | None:
    """The commit that is tested, with `+` where anything but stored runs differs from it; None where git knows none."""
    from hmmlib.experiments.provenance import git_commit

    if not (found := git_commit()):
        return None
    changed = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", ".", ":!tests/results"]
    return found.rstrip("+") + "+" * bool(subprocess.run(changed, capture_output=True, check=True).stdout)


class Record:
    """The plugin. What the numbers depend on is noted at the beginning."""

    def __init__(self, path: Path):
        self.path, self.began = path, time.monotonic()
        self.where = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit()}
        self.where |= {"system": platform.system(), "processors": cores(), "slow": SLOW}
        self.where["versions"] = {"Python": platform.python_version()} | {name: version(name) for name in PACKAGES}

    def pytest_terminal_summary(self, terminalreporter, exitstatus, config):
        ways = ("ignore", "ignore_glob", "collectonly", "keyword", "markexpr", "deselect", "lf")
        some = any(map(config.getoption, ways)) or config.args_source is config.ArgsSource.ARGS
        if some or exitstatus != 0:
            why = "only some tests were run" if some else "not everything passed"
            terminalreporter.write_line(f"{self.path} is left as it was: {why}")
            return
        passed, skipped = (terminalreporter.stats.get(how, []) for how in ("passed", "skipped"))
        reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
        found = {**self.where, "seconds": round(time.monotonic() - self.began), "passed": len(passed)}
        found |= {"skipped": dict(reasons), **counted(passed)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        terminalreporter.write_line(f"what was tried stands in {self.path}")
