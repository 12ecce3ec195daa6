"""The workflow, as far as it can be judged without running it: what it calls is there, and what it may do."""

import os
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.fixture(scope="module")
def jobs() -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]


def test_what_it_calls_is_there(jobs):
    lines = re.findall(r"^([a-z -]+):", MAKEFILE, re.MULTILINE)
    targets = {name for names in lines for name in names.split()}
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = [run.split()[1] for run in runs if run.startswith("make ")]
    called += [row["target"].split()[0] for row in jobs["versions"]["strategy"]["matrix"]["include"]]
    assert {"test", "test-all", "executed", "lowest", "newest"} <= {*called} - {"$TARGET"} <= targets
    for script in (run.split()[0] for run in runs if run.startswith(".ci/")):
        assert os.access(ROOT / script, os.X_OK), script
    assert {"make lint", "make book", "make test"} <= {*(ROOT / ".ci" / "run").read_text().splitlines()}


def test_what_is_published_is_what_the_check_has_made(jobs):
    check, executed = (jobs[name]["steps"] for name in ("check", "executed"))
    (made,) = [s["with"] for s in check if s.get("with", {}).get("name") == "executed"]
    (taken,) = [s["with"] for s in executed if s.get("uses", "").startswith("actions/download-artifact@")]
    assert made == taken
    assert jobs["publish"]["needs"] == jobs["executed"]["needs"] == "check"


def test_only_two_jobs_that_run_nobody_elses_code_may_publish_and_no_other_keeps_a_token(jobs):
    permissions = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    assert permissions == {"publish": {"pages": "write", "id-token": "write"}, "executed": {"contents": "write"}}
    for name in permissions:
        assert jobs[name]["if"] == "github.ref == 'refs/heads/main' && github.event_name != 'pull_request'"
        assert {step["run"] for step in jobs[name]["steps"] if "run" in step} <= {".ci/publish-executed build/viewers"}
    steps = [step for name, job in jobs.items() if name not in permissions for step in job["steps"]]
    checkouts = [step.get("with") for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts == [{"persist-credentials": False}] * 3
    for step in (step for job in jobs.values() for step in job["steps"]):
        assert re.fullmatch(r"actions/[a-z-]+@v\d+(\.\d+)*", step.get("uses", "actions/none@v1")), step
        assert "${{" not in step.get("run", "")


def test_the_book_is_served_on_loopback_alone():
    assert "-m http.server 8000 --bind 127.0.0.1 " in MAKEFILE
