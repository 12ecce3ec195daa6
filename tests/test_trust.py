"""What runs of the tests store, and the book's page that is made of it."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import record
from bs4 import BeautifulSoup
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "book" / "_ext")]
import trust_tables  # noqa: E402

MODULES = {"assumptions", "heads", "messages", "theorems", "trials", "tuning"}


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
        report(("faults: disk full", 5), outcome="failed"),
        report(when="setup", outcome="skipped", longrepr=("a.py", 3, "Skipped: no GPU")),
    ):
        found.pytest_runtest_logreport(one)
    everything, some = (SimpleNamespace(args_source=source, ArgsSource=SimpleNamespace(ARGS=1)) for source in (2, 1))
    reporter = SimpleNamespace(write_line=said.append, stats={})
    found.pytest_terminal_summary(reporter, 1, everything)
    found.pytest_terminal_summary(reporter, 0, some)
    found.pytest_terminal_summary(SimpleNamespace(write_line=said.append, stats={"deselected": [1]}), 0, everything)
    assert not (tmp_path / "new").exists()
    found.pytest_terminal_summary(reporter, 0, everything)
    stored = json.loads((tmp_path / "new" / "run.json").read_text())
    assert stored["bad inputs"] == {"calls": 1, "files": 2}
    assert stored["faults"] == {"disk full": 3}
    assert (stored["passed"], stored["skipped"]) == (3, {"Skipped: no GPU": 1})
    assert stored["versions"]["Python"] == sys.version.split()[0]
    ends = ["not everything passed", "only some tests were run", "only some tests were run", "run.json"]
    assert [line.endswith(end) for line, end in zip(said, ends, strict=True)] == [True] * 4


RUN = {
    "date": "2026-01-02",
    "system": "Linux",
    "processors": 2,
    "versions": {"Python": "3.11.7", "torch": "2.13.0+cpu"},
    "seconds": 1800,
    "passed": 2345,
    "skipped": {"Skipped: no GPU": 2},
    "properties": {"test_a_b_c": 1000, "test_d": 999},
    "bad inputs": {"files": 41, "calls": 1200},
    "faults": {"disk full": 7},
}
MUTANT = {"function": "f", "change": "- a\n+ b", "reason": "the same number"}
MUTANTS = {
    "modules": {
        "heads": {"mutants": 40, "killed": 37, "timeout": 2, "alive": [MUTANT]},
        "trials": {"mutants": 1000, "killed": 900, "alive": [MUTANT] * 100},
    }
}


def build(tmp_path: Path) -> tuple[BeautifulSoup, str]:
    """The page and what Sphinx warns of."""
    source, warnings = tmp_path / "book", io.StringIO()
    (source / "build").mkdir(parents=True, exist_ok=True)
    entries = [{"instances": 300, "control_instances": 30, "patterns": {"cases": 5}}] * 2 + [
        {"instances": 1, "control_instances": 2, "patterns": None}
    ]
    (source / "build" / "ledger.json").write_text(json.dumps({"entries": entries}))
    (source / "index.md").write_text((ROOT / "book" / "trust.md").read_text())
    for name in ("evidence", "ledger"):
        (source / f"{name}.md").write_text(f"---\norphan: true\n---\n# {name}\n")
    extensions = ["myst_parser", "sphinx_design", "trust_tables"]
    settings = {"extensions": extensions, "myst_enable_extensions": ["colon_fence", "dollarmath"]}
    folders = (source, None, tmp_path / "html", tmp_path / "trees")
    Sphinx(*folders, "html", settings, status=None, warning=warnings).build()
    return BeautifulSoup((tmp_path / "html" / "index.html").read_text(), "html.parser"), warnings.getvalue()


def test_the_page_is_made_of_the_stored_runs(tmp_path, monkeypatch):
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setattr(trust_tables, "RESULTS", results)
    for name, content in {"all": RUN, "lowest": RUN, "newest": RUN, "mutants": MUTANTS}.items():
        (results / f"{name}.json").write_text(json.dumps(content))
    page, warnings = build(tmp_path)
    assert warnings == ""
    text = " ".join(page.get_text(" ").split())
    assert "2,345 tests in 30 minutes on 2 processors, Linux, Python 3.11.7, torch 2.13.0+cpu (2026-01-02)" in text
    assert "Of 1,040 mutants 939 were killed; in the module that does worst, 90.0%" in text
    lines = [[cell.get_text(strip=True) for cell in line.find_all("td")] for line in page.find_all("tr")]
    for line in (
        ["random models on which statements were checked", "601"],
        ["models with a broken hypothesis, which a check must refuse", "62"],
        ["patterns of zeros, all of them for their sizes", "10"],
        ["properties, and examples drawn for them", "2, 1,999"],
        ["bad inputs", "1,241"],
        ["faults survived", "7"],
        ["heads", "40", "39", "1", "97.5%"],
        ["together", "1,040", "939", "101", "90.3%"],
        ["heads.f", "- a  + b", "the same number"],
        ["a b c", "1,000"],
        ["files", "41"],
        ["disk full", "7"],
        ["make lowest", "3.11.7", "2.13.0", "2,345", "2"],
        ["no GPU", "2"],
    ):
        assert line in lines, line
    (results / "all.json").write_text(json.dumps(RUN | {"faults": {"disk full": 8}}))
    assert ["disk full", "8"] in [
        [c.get_text(strip=True) for c in r.find_all("td")] for r in build(tmp_path)[0].find_all("tr")
    ]
    (results / "newest.json").unlink()
    assert "run `make newest`" in build(tmp_path)[1]


@pytest.fixture
def stored(request):
    """What is stored, by name; not while it is being replaced."""
    if request.config.getoption("record"):
        pytest.skip("what is stored is about to be replaced")
    return trust_tables.load


def test_at_least_nine_of_ten_mutants_are_killed_in_each_module_and_each_other_has_a_reason(stored):
    modules = stored("mutants")["modules"]
    assert modules.keys() == MODULES
    for name, module in modules.items():
        assert trust_tables.killed(module) + len(module["alive"]) == module["mutants"], f"{name}: some were not tried"
        assert trust_tables.killed(module) >= 0.9 * module["mutants"], name
        assert module["mutants"] > 300, name
        assert [mutant for mutant in module["alive"] if not mutant["reason"]] == [], name


@pytest.mark.parametrize("name", trust_tables.RUNS)
def test_a_stored_run_is_of_a_commit_with_nothing_changed(name, stored):
    run = stored(name)
    assert run["commit"]
    assert not run["commit"].endswith("+")
    assert run["slow"] == (name == "all")


def test_the_stored_run_of_everything_tried_as_much_as_the_page_says_there_is(stored):
    run = stored("all")
    assert sum(run["bad inputs"].values()) >= 60
    assert run["bad inputs"].keys() == {
        "arguments of functions",
        "command lines",
        "files and folders",
        "parameters of notebooks",
    }
    assert run["faults"]["pretraining killed"] >= 20
    kinds = {"build broken off", "checkpoint cut short", "clock jumps", "disk full", "kernel died", "store read-only"}
    assert kinds <= run["faults"].keys()
    assert min(run["properties"].values()) >= 200
