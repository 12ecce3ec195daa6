"""Faults of the book's build: cells that fail, kernels that die, builds that are killed. The next build ends right."""

import os
import signal
import subprocess
import sys
from functools import partial

import nbformat
import pytest
from record import slow
from runs import relatives, soon
from small_project import REALLY, Project

import notebooks as pipeline

WAIT = "import time\nopen('../waiting', 'w').close()\ntime.sleep(120)"
SIGNALS = [
    pytest.param(signal.SIGINT, id="interrupt"),
    pytest.param(signal.SIGKILL, id="kill"),
    pytest.param(signal.SIGTERM, id="terminate", marks=slow),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two notebooks, a and b, each of which does what the file NAME.act says."""
    project = Project(tmp_path / "project", REALLY)
    monkeypatch.setattr(pipeline, "ROOT", project.root)
    pipeline.write_twins()
    yield project
    for process in relatives(str(project.root)):
        os.kill(int(process.split(":")[0]), signal.SIGKILL)


def printed(project) -> dict[str, str]:
    """Give what each notebook prints of which there is an executed copy."""
    texts = {}
    for path in project.executed.glob("*.ipynb"):
        texts[path.stem] = nbformat.read(path, 4).cells[-1].outputs[-1].text
    return texts


def ends_right(project, done: subprocess.CompletedProcess) -> None:
    """The build has made everything, and nothing is left over: neither files nor processes."""
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(project) == {"a": "seed 3\nu = 3", "b": "seed 3\nu = 3"}
    assert sorted(os.listdir(project.executed)) == ["a.ipynb", "b.ipynb"]
    assert soon(lambda: not relatives(str(project.root))), relatives(str(project.root))


def test_a_cell_that_fails_and_a_kernel_that_dies_are_named_and_only_these_notebooks_run_again(project, survived):
    (project.root / "notebooks" / "a.act").write_text("seed = 7")
    failed = project.make("book")
    assert failed.returncode == 2
    assert "a.ipynb stopped:" in failed.stderr
    assert "AssertionError: too large" in failed.stderr
    assert "book" not in project.new_calls(), "a page would be shown without its run"
    assert printed(project) == {"b": "seed 3\nu = 3"}, "the other notebook is executed all the same"
    (project.root / "notebooks" / "a.act").write_text("import os; os.kill(os.getpid(), 9)")
    died = project.make("book")
    assert died.returncode == 2
    assert project.new_calls() == ["a"]
    assert "a.ipynb stopped: Kernel died" in died.stderr
    (project.root / "notebooks" / "a.act").unlink()
    ends_right(project, project.make("book"))
    survived("kernel died")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_build_that_is_broken_off_leaves_nobody_at_work_and_the_next_ends_right(number, project, survived):
    """Notebook a is at work in a cell that waits. The next build begins at once, as an impatient reader's does."""
    (project.root / "notebooks" / "a.act").write_text(WAIT)
    heed_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # The background of a shell ignores them.
    running = subprocess.Popen(
        project.command("book"),
        env=project.environment,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert soon((project.root / "waiting").exists, 120)
    if number == signal.SIGTERM:
        running.terminate()
    else:
        os.killpg(running.pid, number)  # as a terminal does
    assert running.wait(timeout=90) != 0
    assert not (project.executed / "a.ipynb").exists()
    (project.root / "notebooks" / "a.act").unlink()
    ends_right(project, project.make("book"))
    survived("build broken off")
