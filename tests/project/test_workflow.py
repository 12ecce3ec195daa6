"""The workflow, as far as it can be judged without running it: what it calls is there, and it does not undo its own work."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
LEAST = {
    "cache": 6,
    "checkout": 7,
    "deploy-pages": 5,
    "download-artifact": 8,
    "setup-python": 7,
    "upload-artifact": 7,
    "upload-pages-artifact": 5,
}
"""The majors of actions that were current in November 2026."""


@pytest.fixture
def workflow() -> dict:
    return yaml.safe_load(SOURCE)


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def kept_in_vain(workflow: dict, makefile: str) -> list[str]:
    """The folders of caches that `make clean`, with which .ci/run begins, would delete."""
    cleaned = re.search(r"^clean:.*\n\trm -rf (.*)$", makefile, re.MULTILINE)[1].split()
    paths = [s["with"]["path"] for s in steps(workflow) if s.get("uses", "").startswith("actions/cache@")]
    return [path for text in paths for path in text.split() if path.split("/")[0] in cleaned]


def outdated(workflow: dict) -> list[str]:
    """The actions that are used at an older major than LEAST."""
    uses = [re.fullmatch(r"actions/([a-z-]+)@v(\d+).*", step["uses"]) for step in steps(workflow) if "uses" in step]
    return [found[0] for found in uses if int(found[2]) < LEAST[found[1]]]


def test_no_cache_is_kept_that_the_run_itself_deletes(workflow):
    assert "make clean" in (ROOT / ".ci" / "run").read_text()
    assert kept_in_vain(workflow, MAKEFILE) == []
    in_vain = {"uses": "actions/cache@v6", "with": {"path": "build/executed\n~/.cache/x"}}
    workflow["jobs"]["check"]["steps"].append(in_vain)
    assert kept_in_vain(workflow, MAKEFILE) == ["build/executed"]


def test_actions_are_current(workflow):
    assert outdated(workflow) == []
    workflow["jobs"]["publish"]["steps"].append({"uses": "actions/checkout@v4"})
    assert outdated(workflow) == ["actions/checkout@v4"]


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


def test_only_a_pull_requests_run_is_cancelled_and_no_deployment(workflow):
    assert workflow["concurrency"]["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    assert workflow["jobs"]["publish"]["concurrency"] == {"group": "pages", "cancel-in-progress": False}


def test_two_systems_try_the_library_and_a_week_does_not_pass_without_lowest_and_newest(workflow):
    library, versions = workflow["jobs"]["library"], workflow["jobs"]["versions"]
    assert library["strategy"]["matrix"]["system"] == ["ubuntu-latest", "macos-latest"]
    assert {"run": "make test PYTEST_ARGS=--library"} in library["steps"]
    assert re.fullmatch(r"\d+ \d+ \* \* \d", workflow[True]["schedule"][0]["cron"])
    assert "github.event_name == 'schedule'" in versions["if"]
    rows = [(row["python"], row["target"]) for row in versions["strategy"]["matrix"]["include"]]
    assert rows == [("3.11", "lowest"), ("3.14", "newest TORCH=torch")]
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


def test_a_runner_without_a_gpu_gets_torch_for_cpus(workflow):
    assert workflow["env"] == {"UV_TORCH_BACKEND": "cpu"}
    runs = [step.get("run") for step in workflow["jobs"]["check"]["steps"]]
    assert runs.index("pipx install uv") < runs.index(".ci/run")
    assert "UV_TORCH_BACKEND" in (ROOT / ".ci" / "install").read_text()


def test_what_has_to_be_done_by_hand_is_said_first():
    assert re.match(r"# Before the first run .*Pages", SOURCE)
