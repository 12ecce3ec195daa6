"""The workflow, as far as it can be judged without running it: what it calls is there, and it does not undo its own
work."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.fixture
def workflow() -> dict:
    return yaml.safe_load(SOURCE)


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_what_it_calls_is_there(workflow):
    targets = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", MAKEFILE, re.MULTILINE))
    targets = {name for names in targets for name in names.split()}
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    called = [run.split()[1] for run in runs if run.startswith("make ")]
    matrix = [row["target"] for row in workflow["jobs"]["versions"]["strategy"]["matrix"]["include"]]
    called += [target.split()[0] for target in matrix]
    assert {"test", "executed", "lowest", "newest"} <= {*called} - {"$TARGET"} <= targets
    for script in (run.split()[0] for run in runs if run.startswith(".ci/")):
        assert (ROOT / script).stat().st_mode & 0o111, script
    for name, job in workflow["jobs"].items():
        needs = job.get("needs", [])
        assert ({needs} if isinstance(needs, str) else {*needs}) <= {*workflow["jobs"]} - {name}


def test_two_systems_try_the_library_and_a_week_does_not_pass_without_lowest_and_newest(workflow):
    library, versions = workflow["jobs"]["library"], workflow["jobs"]["versions"]
    assert library["strategy"]["matrix"]["system"] == ["ubuntu-latest", "macos-latest"]
    assert {"run": "make test PYTEST_ARGS=--library"} in library["steps"]
    assert re.fullmatch(r"\d+ \d+ \* \* \d", workflow[True]["schedule"][0]["cron"])
    assert "github.event_name == 'schedule'" in versions["if"]
    rows = [(row["python"], row["target"]) for row in versions["strategy"]["matrix"]["include"]]
    assert rows == [("3.11", "lowest"), ("3.14", "newest TORCH=torch"), ("3.11", "test-all")]
    for name in ("check", "library"):
        assert workflow["jobs"][name]["if"] == "github.event_name != 'schedule'"


def test_what_is_published_is_what_the_check_has_made(workflow):
    check, executed = (workflow["jobs"][name]["steps"] for name in ("check", "executed"))
    runs = [step.get("run") for step in check]
    assert runs.index(".ci/run") < runs.index("make executed")
    (made,) = [s["with"] for s in check if s.get("with", {}).get("name") == "executed"]
    (taken,) = [s["with"] for s in executed if s.get("uses", "").startswith("actions/download-artifact@")]
    assert made == taken == {"name": "executed", "path": "build/viewers"}
    for name in ("publish", "executed"):
        assert workflow["jobs"][name]["needs"] == "check"
        assert not workflow["jobs"][name]["concurrency"]["cancel-in-progress"]
