"""What the tests may cost, folder by folder (tests/budget.json), and what a run of all of them has cost.

Processor seconds of a test are those of its fixtures and of the processes that it has waited for too. They are divided
by how slow the machine is, as each process of the run finds with a fixed loop, so that they mean the same elsewhere.
`--budget print` prints it; with `--budget hold` the run fails where a folder takes more than 125% of a number. Who
needs more writes that number into the file.
"""

import json
import resource
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
FILE = TESTS / "budget.json"
ROOM = 1.25
LAUNCHES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}


def slowness() -> float:
    """Processor time of a fixed loop, in units of what it takes on one core of an Intel Xeon of 2024."""
    began, matrix = time.process_time(), torch.ones(300, 300, dtype=torch.float64)
    for _ in range(150):
        matrix = matrix @ matrix / 300
    sum(k * k % 7 for k in range(6_000_000))
    return (time.process_time() - began) / 0.37


def processor_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def lines() -> Counter[str]:
    """How many lines the files of each folder have; those beside the folders count as `support`."""
    found = Counter()
    for path in TESTS.rglob("*.py"):
        folder = path.relative_to(TESTS).parts[0]
        found["support" if folder.endswith(".py") else folder] += path.read_bytes().count(b"\n")
    return found


def exceeded(folder: str, spent: dict[str, float]) -> list[str]:
    """What of a folder's numbers is more than 125% of the budget's."""
    allowed = Counter(json.loads(FILE.read_text()).get(folder))
    more = [what for what, number in spent.items() if number > ROOM * allowed[what]]
    return [f"{what}: {spent[what]:,.0f}, not {allowed[what]:,}" for what in more]


class Budget:
    """The plugin: each process measures its tests, and the one that collects their reports adds up and judges."""

    def __init__(self, hold: bool):
        self.hold, self.launches, self.slow = hold, 0, slowness()
        self.spent = defaultdict(Counter)
        sys.addaudithook(self.count)

    def count(self, event: str, _: tuple) -> None:
        self.launches += event in LAUNCHES

    def pytest_runtest_logstart(self):
        self.before = processor_seconds(), self.launches

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown":  # fixtures have been set up and torn down
            seconds, launches = (processor_seconds() - self.before[0]) / self.slow, self.launches - self.before[1]
            item.user_properties.append(("budget", (item.path.parent.name, dict(seconds=seconds, launches=launches))))

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            folder, spent = dict(report.user_properties)["budget"]
            self.spent[folder].update(spent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        for folder, number in lines().items():
            self.spent[folder].update(lines=number)
        if self.hold and session.exitstatus == 0 and any(exceeded(*one) for one in self.spent.items()):
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter):
        for folder, spent in sorted(self.spent.items()):
            numbers = ", ".join(f"{number:,.0f} {what}" for what, number in spent.items())
            terminalreporter.write_line(f"tests/{folder}: {numbers}")
            for one in exceeded(folder, spent):
                terminalreporter.write_line(f"  more than 125% of tests/{FILE.name} in {one}", red=True)
