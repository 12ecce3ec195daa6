"""What mutation testing runs for a mutant, and what it stores."""

import json
import resource
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mutation
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """The limits that are set, instead of setting them: of time for computing, and of time."""
    found = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: found.append((kind, limit[0])))
    monkeypatch.setattr(signal, "alarm", lambda after: found.append(("waiting", after)))
    return found


def collected(tmp_path, monkeypatch, mutant, **seconds):
    """The tests that are left of those collected, and those that are not, by name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mutmut-stats.json").write_text(json.dumps({"duration_by_test": seconds}))
    monkeypatch.setenv("MUTANT_UNDER_TEST", mutant)
    items, gone = [SimpleNamespace(nodeid=name) for name in seconds], []
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
    mutation.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    return [[item.nodeid for item in part] for part in (items, gone)]


def test_a_mutant_gets_the_fastest_tests_first_and_those_that_fit(tmp_path, monkeypatch, limits):
    mutant, tests = "hmmlib.theory.heads.x__length__mutmut_3", dict(long=14, quick=0.2, brief=9, fair=8, longest=300)
    assert mutation.SECONDS == 20
    assert collected(tmp_path, monkeypatch, mutant, **tests) == [["quick", "fair", "brief"], ["long", "longest"]]
    used = time.process_time()
    waiting, (kind, computed) = limits
    assert waiting == ("waiting", 1000)
    assert kind == resource.RLIMIT_CPU
    assert used + 90 < computed < used + 102  # of itself, after which it counts as one that does not end


def test_only_the_limits_of_this_project_end_a_mutant():
    """mutmut's own would signal whoever has the number of a process that has ended, and be below ours."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    assert settings["timeout_constant"] >= 1_000_000


def test_no_test_that_mutants_meet_is_of_a_file_that_starts_processes_and_marks_none():
    """A process begun by a test sees mutmut's environment, and not its modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    folders = [word for word in settings["pytest_add_cli_args_test_selection"] if word.startswith("tests/")]
    texts = {path: path.read_text() for folder in folders for path in (ROOT / folder).glob("test_*.py")}
    assert len(texts) > 30
    assert not [path for path, text in texts.items() if "import subprocess" in text and "mark.outside" not in text]


def test_tests_that_have_noticed_other_mutants_of_the_function_come_first(tmp_path, monkeypatch):
    mutant, tests = "hmmlib.theory.heads.x__length__mutmut_3", dict(quick=0.2, fair=8, long=10, brief=2)
    monkeypatch.setenv("MUTANT_UNDER_TEST", mutant)
    monkeypatch.chdir(tmp_path)
    for name, failed in [("long", True), ("long", True), ("brief", True), ("fair", False)]:
        mutation.pytest_runtest_logreport(SimpleNamespace(nodeid=name, failed=failed))
    assert collected(tmp_path, monkeypatch, mutant, **tests) == [["long", "brief", "quick"], ["fair"]]
    other = "hmmlib.theory.heads.x__width__mutmut_3"
    assert collected(tmp_path, monkeypatch, other, **tests) == [["quick", "brief", "fair"], ["long"]]


def test_all_tests_run_where_nothing_is_mutated(tmp_path, monkeypatch, limits):
    tests = dict(slow=15, quick=0.1, longest=300)
    for mutant in ("", "stats", "fail"):
        assert collected(tmp_path, monkeypatch, mutant, **tests) == [["slow", "quick", "longest"], []]
    assert limits == []


def test_functions_with_a_decorator_are_left_out(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("@cache\ndef b(): ...\n\nclass C:\n    @property\n    def a(self): ...\n    def d(self): ...\n")
    assert mutation.left_out(path) == ["a", "b"]


def test_only_tests_that_failed_and_time_kill_a_mutant(monkeypatch):
    known = {0: "survived", 1: "killed", -signal.SIGXCPU: "timeout", None: "not checked"}
    ends = known | {code: f"exit code {code}" for code in (2, 3, 4, 5, 33, 255, -9, -11, -6)}
    path = ROOT / "hmmlib" / "theory" / "heads.py"
    data = SimpleNamespace(
        exit_code_by_key={f"hmmlib.theory.heads.x_b__mutmut_{code}": code for code in ends}, load=lambda: 0
    )
    for name, holds in {
        "mutmut.mutation.data": dict(SourceFileMutationData=lambda path: data),
        "mutmut.utils.file_utils": dict(walk_mutatable_files=lambda: [path]),
    }.items():
        module = ModuleType(name)
        vars(module).update(holds)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(mutation, "change", lambda mutant, path: mutant)
    assert mutation.ended() == {path: {f"hmmlib.theory.heads.x_b__mutmut_{code}": end for code, end in ends.items()}}
    found = mutation.results(mutation.ended(), {})["heads"]
    assert found["mutants"] == len(ends)
    assert {end: found[end] for end in ends.values()} == dict.fromkeys(ends.values(), 1)
    alive = ends.keys() - {1, -signal.SIGXCPU, None}
    assert {mutant["change"].rpartition("_")[2] for mutant in found["alive"]} == {str(code) for code in alive}


def test_what_nothing_has_survived_needs_a_run_without_a_change():
    ends = {"a__mutmut_1": "killed", "a__mutmut_2": "survived", "b__mutmut_1": "killed", "b__mutmut_2": "exit code 3"}
    more = {"c__mutmut_1": "not checked", "d__mutmut_1": "timeout", "d__mutmut_2": "not checked"}
    assert mutation.without_survivors({Path("a"): ends, Path("b"): more}) == ["b", "d"]


def test_results_are_of_a_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for name in ("hmmlib/theory/heads.py", "tests/theory/test_heads.py", "tests/results/mutants.json", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    for call in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *call], check=True)
    mutation.begin()
    commit = mutation.BEGUN.read_text()
    assert mutation.of_that_commit(commit)
    for name in ("tests/results/mutants.json", "README.md"):  # of these no mutant is made
        (tmp_path / name).write_text("2\n")
    assert mutation.of_that_commit(commit)
    (tmp_path / "tests/theory/test_heads.py").write_text("2\n")
    assert not mutation.of_that_commit(commit)
    subprocess.run([*git, "commit", "-qam", "second"], check=True)
    mutation.begin()  # goes on with what there is
    assert mutation.BEGUN.read_text() == commit
    assert not mutation.of_that_commit(commit)
    mutation.BEGUN.unlink()
    with pytest.raises(SystemExit, match="does not say of which commit it is: remove it"):
        mutation.begin()
