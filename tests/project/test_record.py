"""What a run of the tests stores of what it has tried."""

import json
import sys
from types import SimpleNamespace

import record


def report(*properties, when="call", outcome="passed", longrepr=None):
    states = {"passed": outcome == "passed", "skipped": outcome == "skipped"}
    return SimpleNamespace(when=when, longrepr=longrepr, user_properties=list(properties), **states)


def test_a_record_has_what_was_tried_by_tests_that_passed(tmp_path):
    found = record.Record(tmp_path / "new" / "run.json")
    said = []
    for one in (
        report(("bad inputs: files", 1)),
        report(("bad inputs: files", 1), when="teardown"),
        report(("bad inputs: calls", 1)),
        report(("faults: disk full", 3), ("bad inputs: files", 1)),
        report(("properties: test_a", 25)),
        report(("faults: disk full", 5), outcome="failed"),
        report(when="setup", outcome="skipped", longrepr=("a.py", 3, "Skipped: no GPU")),
    ):
        found.pytest_runtest_logreport(one)
    found.pytest_collectreport(report(when="collect"))
    found.pytest_collectreport(report(when="collect", outcome="skipped", longrepr=("b.py", 1, "Skipped: no book")))

    def config(source=2, **options):
        return SimpleNamespace(args_source=source, ArgsSource=SimpleNamespace(ARGS=1), getoption=options.get)

    everything = config()
    reporter = SimpleNamespace(write_line=said.append)
    found.pytest_terminal_summary(reporter, 1, everything)
    chosen = [dict(ignore=["a.py"]), dict(ignore_glob=["*"]), dict(collectonly=True), dict(keyword="a"), dict(lf=True)]
    for some in (config(source=1), *(config(**options) for options in chosen)):
        found.pytest_terminal_summary(reporter, 0, some)
    assert not (tmp_path / "new").exists()
    found.pytest_terminal_summary(reporter, 0, everything)
    stored = json.loads((tmp_path / "new" / "run.json").read_text())
    assert stored["bad inputs"] == {"calls": 1, "files": 2}
    assert stored["faults"] == {"disk full": 3}
    assert stored["properties"] == {"test_a": 25}
    assert (stored["passed"], stored["skipped"]) == (4, {"no GPU": 1, "no book": 1})
    assert stored["versions"]["Python"] == sys.version.split()[0]
    ends = ["not everything passed", *["only some tests were run"] * 6, "run.json"]
    assert all(line.endswith(end) for line, end in zip(said, ends, strict=True))
