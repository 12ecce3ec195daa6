"""Faults of the book's build: kernels that die, and builds that are killed. The next build ends right."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import nbformat
import pytest
from record import ROOT, slow
from runs import ENVIRONMENT, relatives, soon
from small_project import write_files

import notebooks as pipeline

LEDGER = "import sys\nopen(sys.argv[sys.argv.index('--out') + 1], 'w').write('{}')\n"
WAIT = "import time\nopen('../waiting', 'w').close()\ntime.sleep(120)"
SAID = {"SIGINT": "interrupted; what has been executed is kept\n", "SIGTERM": "terminated\n", "SIGKILL": ""}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two notebooks, a and b, each of which does what the file NAME.act says, and the build's tools."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "book", root / "book", ignore=shutil.ignore_patterns("companion", "_*", "*.md"))
    files = {"parameters/quick.yaml": "seed: 3\n", "requirements.lock": "a==1\n", "companion/__main__.py": LEDGER}
    files |= {f"{package}/__init__.py": "" for package in ("hmmlib", "companion", "results", "build")}
    write_files(root, "ab", files | {"_config.yml": (ROOT / "_config.yml").read_text()})
    made = SimpleNamespace(
        root=root,
        executed=root / "build" / "executed" / "notebooks",
        mark=f"HMMLIB_FAULT={root}",
        environment={**ENVIRONMENT, "HMMLIB_FAULT": str(root), "PYTHONPATH": str(ROOT)},
        call=[sys.executable, str(root / "book" / "notebooks.py"), "execute", "--jobs", "2"],
    )
    monkeypatch.setattr(pipeline, "ROOT", root)
    pipeline.write_twins(check=False)
    yield made
    for process in relatives(made.mark):
        os.kill(int(process.split(":")[0]), signal.SIGKILL)


def build(project) -> subprocess.CompletedProcess:
    return subprocess.run(project.call, env=project.environment, capture_output=True, text=True, timeout=600)


def whole(project) -> dict[str, str]:
    """What the notebooks print of which there are whole copies."""
    copies = project.executed.glob("?.ipynb")
    return {path.stem: nbformat.read(path, 4).cells[-1].outputs[-1].text for path in copies}


def ends_right(project, done: subprocess.CompletedProcess) -> None:
    """The build has made everything, and nothing is left over: neither files nor processes."""
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert whole(project) == dict.fromkeys("ab", "seed 3\nu = 3")
    assert {path.name for path in project.executed.iterdir()} == {"a.ipynb", "b.ipynb"}
    assert json.loads((project.root / "build" / "ledger.json").read_text()) == {}
    assert soon(lambda: not relatives(project.mark)), relatives(project.mark)


def test_a_kernel_that_dies_is_named_and_only_its_notebook_is_run_again(project, survived):
    (project.root / "b.act").write_text("import os; os.kill(os.getpid(), 9)")
    done = build(project)
    assert done.returncode == 1
    assert re.search(r"b: failed after .* \(exit code 1\)\n(.*\n)*b\.ipynb: Kernel died\n", done.stdout), done.stdout
    assert done.stderr == "failed: b\n"
    assert whole(project) == {"a": "seed 3\nu = 3"}
    (project.root / "b.act").unlink()
    again = build(project)
    assert "a: unchanged" in again.stdout
    ends_right(project, again)
    survived("kernel died")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")
@pytest.mark.parametrize("how", [pytest.param("SIGINT", marks=slow), "SIGTERM", "SIGKILL"])
def test_a_build_that_is_broken_off_leaves_nobody_at_work_and_the_next_ends_right(how, project, survived):
    """Two jobs are at work, a in a cell that waits. The next build begins at once, as an impatient reader's does.
    The others stand in `make test` for the slow interrupt."""
    (project.root / "a.act").write_text(WAIT)
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # the background of a shell ignores an interrupt
    how_run = dict(env=project.environment, text=True, preexec_fn=heeding, stderr=subprocess.PIPE)
    running = subprocess.Popen(project.call, stdout=subprocess.DEVNULL, **how_run)
    assert soon((project.root / "waiting").exists, 120)
    running.send_signal(signal.Signals[how])
    _, errors = running.communicate(timeout=90)
    assert running.returncode != 0
    assert errors == SAID[how]
    assert not (project.executed / "a.ipynb").exists()
    unchanged = (project.executed / "b.ipynb").exists()
    (project.root / "a.act").unlink()
    again = build(project)
    ends_right(project, again)
    assert ("b: unchanged" in again.stdout) == unchanged
    survived("build broken off")
