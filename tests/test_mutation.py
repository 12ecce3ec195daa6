"""What mutation testing runs for a mutant, and what it stores."""

import json
import resource
import time
from types import SimpleNamespace

import mutation
import pytest


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """The limits that are set, instead of setting them."""
    found = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: found.append((kind, limit[0])))
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
    mutant, tests = "hmmlib.heads.x__length__mutmut_3", dict(long=14, quick=0.2, brief=9, fair=8, longest=300)
    assert mutation.SECONDS == 20
    assert collected(tmp_path, monkeypatch, mutant, **tests) == [["quick", "fair", "brief"], ["long", "longest"]]
    used = time.process_time()
    assert [kind for kind, _ in limits] == [resource.RLIMIT_CPU]
    assert used + 90 < limits[0][1] < used + 102  # of itself, after which it counts as one that does not end


def test_tests_that_have_noticed_other_mutants_of_the_function_come_first(tmp_path, monkeypatch):
    mutant, tests = "hmmlib.heads.x__length__mutmut_3", dict(quick=0.2, fair=8, long=10, brief=2)
    monkeypatch.setenv("MUTANT_UNDER_TEST", mutant)
    monkeypatch.chdir(tmp_path)
    for name, failed in [("long", True), ("long", True), ("brief", True), ("fair", False)]:
        mutation.pytest_runtest_logreport(SimpleNamespace(nodeid=name, failed=failed))
    assert collected(tmp_path, monkeypatch, mutant, **tests) == [["long", "brief", "quick"], ["fair"]]
    other = "hmmlib.heads.x__width__mutmut_3"
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
