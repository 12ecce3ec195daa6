"""The page on trust: what the stored runs must hold, and that the page says what they say."""

import json
import re
import shutil
from pathlib import Path

import pytest
import trust_tables as trust
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]

if not (trust.RESULTS / "all.json").is_file():  # then the page is not in the book either
    pytest.skip("no stored run of all tests: run `make test-all`", allow_module_level=True)

PAGE = ROOT / "book" / "trust.md"
BUILT = ROOT / "_build" / "html" / "book" / "trust.html"
of_the_book = pytest.mark.skipif(not BUILT.is_file(), reason="no book here: run `make book`")
"""For tests that read the ledger, which the book's build writes, or the page itself."""
MODULES = [
    "assumptions", "heads", "labels", "measurements", "messages", "ranks", "separation", "theorems", "trials", "tuning",
]  # fmt: skip


@pytest.fixture
def altered(tmp_path, monkeypatch):
    """Copies of the stored runs: altered(name, change) applies `change` to one of them."""
    folder = tmp_path / "results"
    shutil.copytree(trust.RESULTS, folder)
    monkeypatch.setattr(trust, "RESULTS", folder)

    def alter(name, change):
        path = folder / f"{name}.json"
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))

    return alter


@pytest.mark.parametrize("name", trust.RUNS)
def test_a_stored_run_is_of_a_commit_and_everything_passed_that_was_not_left_out(name):
    run = trust.load(name)
    assert re.fullmatch("[0-9a-f]{12}", run["commit"])
    assert run["passed"] > 1000
    assert all(reason for reason in run["skipped"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", run["date"])


def test_the_stored_runs_have_tried_what_they_are_meant_to():
    run = trust.load("all")
    assert run["slow"]
    assert len(run["properties"]) >= 50
    assert min(run["properties"].values()) >= 1000
    assert sum(run["bad inputs"].values()) >= 60
    assert set(run["bad inputs"]) == {
        "arguments of functions",
        "command lines",
        "files and folders",
        "parameters of notebooks",
    }
    assert run["faults"]["pretraining killed"] == 80
    kinds = {
        "checkpoint cut short",
        "disk full",
        "write broken off",
        "store read-only",
        "kernel died",
        "build broken off",
        "clock jumps",
    }
    assert kinds <= run["faults"].keys()


def test_the_versions_of_the_stored_runs_differ_as_the_page_says():
    locked, lowest, newest = (trust.load(name)["versions"] for name in trust.RUNS)
    pins = dict(re.findall(r"^([a-z]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert all(locked[name].split("+")[0] == pins[name] for name in locked if name != "Python")
    declared = (ROOT / "pyproject.toml").read_text()
    for name in ("numpy", "scipy", "numba", "transformers", "typer"):
        least = re.search(rf'"{name}>=([\d.]+)', declared).group(1)
        assert (lowest[name] + ".0.0").startswith(least + "."), name
    assert lowest["torch"] == locked["torch"], "the page says that no other torch was tried there"
    numbers = [[int(part) for part in run["Python"].split(".")[:2]] for run in (locked, newest)]
    assert numbers[0] == [3, 11] < numbers[1]


def test_most_mutants_of_each_module_are_killed_and_there_is_a_reason_for_the_others():
    parts = trust.load("mutants")["modules"]
    assert sorted(parts) == MODULES
    for name, part in parts.items():
        dead, every = trust.killed(part)
        unclear = {"timeout", "survived", "exit code -6", "exit code -11"}
        assert part.keys() - unclear == {"mutants", "killed", "left out", "alive"}, name
        assert part["killed"] + part.get("timeout", 0) == dead, "an end that tells nothing counts as alive"
        since = sum(mutant["reason"].startswith("noticed since") for mutant in part["alive"])
        assert every > (100 if name == "measurements" else 200), name
        assert dead >= (0.85 if name == "separation" else 0.9) * every, name
        assert dead + since >= (0.9 if name in ("ranks", "separation") else 0.95) * every, name
        assert all(len(mutant["reason"]) > 10 and mutant["change"] for mutant in part["alive"]), name


def test_a_mutant_that_was_not_tried_counts_as_alive():
    part = {"mutants": 10, "killed": 7, "not checked": 2, "alive": [{}]}
    assert trust.killed(part) == (7, 10)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("- a = f(x)[:, 0]\n+ a = f(x)[:, 1]", "x)[:, 0] → x)[:, 1]"),
        ("- a = b + c\n+ a = b - c", "a = b + c → a = b - c"),
        (
            "- one two three four five < six seven eight nine ten\n+ one two three four five <= six seven eight nine ten",
            "four five < six seven eight → four five <= six seven eight",
        ),
        ("- return 3", "return 3 → nothing"),
    ],
)
def test_what_a_change_shows_is_what_it_replaces(change, shown):
    assert trust.fragment(change) == shown


def test_the_ledgers_instances_are_added_up():
    entry = dict(instances=300, control_instances=40, identity=None, patterns=None)
    other = entry | dict(identity=dict(points=20, sizes=[1, 2]), patterns=dict(cases=5000))
    assert list(trust.instances({"entries": [entry, other]}).values()) == [600, 80, 40, 5000]


@of_the_book
def test_numbers_and_tables_follow_the_stored_runs(altered):
    before, tables = trust.phrases(), {name: trust.TABLES[name]() for name in trust.TABLES}
    altered("all", lambda run: run["faults"].update({"disk full": run["faults"]["disk full"] + 1000}))
    altered("all", lambda run: run.update(passed=7))
    altered("mutants", lambda run: run["modules"]["heads"].update({"not checked": 100}))
    altered("lowest", lambda run: run["versions"].update(numpy="1.0"))
    after = trust.phrases()
    assert {name for name in before if before[name] != after[name]} == {"faults", "tests", "killed", "share", "alive"}
    assert after["tests"] == "7"
    changed = {name for name in tables if tables[name] != trust.TABLES[name]()}
    assert changed == {"faults", "mutants", "versions"}


@of_the_book
def test_survivors_are_counted_by_reason_with_one_of_each():
    rows = trust.TABLES["survivors"]().rows
    assert sum(int(times) for times, _, _ in rows) == int(trust.phrases()["alive"])
    assert len({reason for _, reason, _ in rows}) == len(rows)
    assert all(re.match(r"[\w.]+: .* → ", change) for _, _, change in rows)


@of_the_book
def test_the_page_types_no_number_of_its_own_and_asks_for_what_there_is():
    text, evidence = PAGE.read_text(), (PAGE.parent / "evidence.md").read_text()
    assert set(re.findall(r"\{trust-table\} (\S+)", text + evidence)) == trust.TABLES.keys()
    assert set(re.findall(r"\{tried\}`([^`]+)`", text + evidence)) == trust.phrases().keys()
    prose = re.sub(r"```.*?```|\{tried\}`[^`]*`|`[^`]*`|\([^)]*\)", "", text, flags=re.DOTALL)
    assert re.findall(r"\d+(?:\.\d+)?", prose) == ["2", "1", "0.05"], "exit codes, and the tolerance in test_repeat.py"


def test_a_missing_run_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "ROOT", tmp_path)
    monkeypatch.setattr(trust, "RESULTS", tmp_path / "tests" / "results")
    with pytest.raises(ValueError, match=r"tests/results/all\.json is missing"):
        trust.load("all")


@of_the_book
def test_the_built_page_has_the_numbers():
    text = " ".join(BeautifulSoup(BUILT.read_text(), "html.parser").text.split())
    missing = {name: said for name, said in trust.phrases().items() if said not in text}
    assert not missing, (
        "run `make book`: the page is older than the stored runs, or build/ledger.json is not the book's"
    )
