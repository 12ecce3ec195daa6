"""From notebook to executed copy: run once, run again only when something it depends on has changed, fail loudly."""

import inspect
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import book_setup
import jupytext
import nbformat
import pytest
import side_by_side
from faults import heeding
from record import slow

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]

REACHES = "%time\nif False:\n    from hmmlib.folder import x"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one notebook that prints its seed, or fails if told to."""
    for folder in ("notebooks", "hmmlib", "results", "build"):
        (tmp_path / folder).mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("A claim: Theorem 3.3", id="t"),
        nbformat.v4.new_code_cell("# Parameters: here\nseed = 0", metadata={"tags": ["parameters"]}, id="a"),
        nbformat.v4.new_code_cell(f"{REACHES}\nprint('seed', seed)\nassert seed < 5, 'seed too large'", id="b"),
    ]
    path = tmp_path / "notebooks" / "a.ipynb"
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, path)
    cells[0].source = "A claim: {prf:ref}`paper-thm-3-3`"
    jupytext.write(notebook, path.with_suffix(".md"), fmt="md:myst")
    for folder in ("moving", "folder", "experiments"):
        (tmp_path / "hmmlib" / folder).mkdir()
    (tmp_path / "requirements.lock").write_text("a==1\n")
    (tmp_path / "hmmlib" / "folder" / "x.py").write_text("def f():\n    import hmmlib.y\n")
    for name in ("__init__", "folder/__init__", "y", "unread", "experiments/store"):
        (tmp_path / "hmmlib" / f"{name}.py").write_text("x = 1\n")
    (tmp_path / "seed.yaml").write_text("seed: 3\n")
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path / "build" / "executed" / "notebooks")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    return SimpleNamespace(root=tmp_path, path=path, copy=pipeline.EXECUTED / "a.ipynb", values=tmp_path / "seed.yaml")


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_notebook_is_run_once_and_its_injected_cell_hidden(project):
    assert not pipeline.up_to_date(project.path, project.values)
    pipeline.execute(project.path, project.values)
    cells = nbformat.read(project.copy, 4).cells
    assert cells[-1].outputs[-1].text.endswith("seed 3\n")
    assert "remove-cell" in cells[2].metadata.tags
    assert cells[0].source == "A claim: {prf:ref}`paper-thm-3-3`"  # the page has the text of the source
    assert nbformat.read(project.path, 4).cells[0].source == "A claim: Theorem 3.3"
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.ipynb"]
    before = project.copy.stat().st_mtime_ns
    assert pipeline.up_to_date(project.path, project.values)
    assert project.copy.stat().st_mtime_ns == before, "Sphinx would read the page again"


def test_new_text_reaches_the_page_without_a_run(project):
    pipeline.execute(project.path, project.values)
    ran = nbformat.read(project.copy, 4)
    for path in (project.path, project.path.with_suffix(".md")):
        edited(path, "A claim:", "A theorem:")
    assert pipeline.up_to_date(project.path, project.values)
    now = nbformat.read(project.copy, 4)
    assert now.cells[0].source == "A theorem: {prf:ref}`paper-thm-3-3`"
    assert now.cells[1:] == ran.cells[1:]
    assert now.metadata == ran.metadata
    notebook = nbformat.read(project.path, 4)
    notebook.cells.append(nbformat.v4.new_markdown_cell("More."))
    nbformat.write(notebook, project.path)
    jupytext.write(notebook, project.path.with_suffix(".md"), fmt="md:myst")
    assert pipeline.up_to_date(project.path, project.values)
    assert [c.source for c in nbformat.read(project.copy, 4).cells][-1] == "More."


def test_the_key_follows_what_the_notebook_depends_on(project):
    seen = [pipeline.key(project.path, project.values)]
    for name, old, new in (
        ("hmmlib/folder/x.py", "f()", "g()"),
        ("hmmlib/folder/__init__.py", "1", "2"),
        ("hmmlib/y.py", "1", "2"),
        ("hmmlib/__init__.py", "1", "2"),
        ("requirements.lock", "1", "2"),
        ("seed.yaml", "3", "4"),
        ("notebooks/a.ipynb", "print('seed'", "print('the seed'"),
        ("notebooks/a.ipynb", '"parameters"', '"other"'),
    ):
        edited(project.root / name, old, new)
        seen.append(pipeline.key(project.path, project.values))
    (project.root / "hmmlib" / "moving" / "x.js").write_text("1")
    seen.append(pipeline.key(project.path, project.values))
    assert len(set(seen)) == 10
    edited(project.root / "hmmlib" / "unread.py", "1", "2")
    edited(project.path, "A claim", "Another claim")
    (project.root / "results" / "r.json").write_text("{}")
    assert pipeline.key(project.path, project.values) == seen[-1], "neither text, nor what it cannot read"
    edited(project.root / "hmmlib" / "y.py", "x", "import hmmlib.experiments.store; x")
    reads = pipeline.key(project.path, project.values)
    edited(project.root / "results" / "r.json", "{}", "[]")
    assert pipeline.key(project.path, project.values) != reads, "now it reads stored results"


@pytest.mark.parametrize("code", ["from hmmlib import thing", "import hmmlib", "from hmmlib import *"])
def test_what_the_library_itself_does_not_name_may_come_from_anywhere(project, code):
    names = {path.name for path in pipeline.reached(code)}
    assert names == {"__init__.py", "x.py", "y.py", "unread.py", "store.py"}
    assert {path.name for path in pipeline.reached("import os, numpy")} == {"__init__.py"}


def test_a_name_of_the_library_itself_reaches_the_module_where_it_is_made():
    import hmmlib

    for name in hmmlib.__all__:
        files, module = pipeline.reached(f"from hmmlib import {name}"), hmmlib._MODULE[name]
        assert pipeline.module_file(f"hmmlib.{module}") in files
        assert set(files) == set(pipeline.reached(f"import hmmlib.{module}"))
        value = getattr(hmmlib, name)
        if name != "MASK":
            assert Path(inspect.getsourcefile(value)) in files, name
    reads = [
        path.relative_to(ROOT / "hmmlib") for path in pipeline.reached("from hmmlib import theorem_3_6, posterior")
    ]
    rooms = {path.parts[0] for path in reads if path.suffix == ".py"}
    assert rooms == {"__init__.py", "validation.py", "backend.py", "models", "inference", "theory"}


def test_the_ledger_is_checked_again_when_a_line_that_it_names_may_have_moved():
    from companion.pages import EQUATIONS

    files = set(pipeline.reached("import companion.pages"))
    assert {ROOT / "hmmlib" / equation.file for equation in EQUATIONS} <= files
    assert ROOT / "hmmlib" / "bert.py" not in files


def test_the_ledger_is_checked_once_and_again_after_a_failure(project, monkeypatch):
    (project.root / "hmmlib" / "__main__.py").write_text("")
    command = project.root / "python"
    command.write_text('#!/bin/sh\nshift 4\ntest -f fails && exit 3\necho ledger > "$1"\n')
    command.chmod(0o755)
    monkeypatch.setattr(pipeline.sys, "executable", str(command))
    assert not pipeline.ledger_up_to_date()
    pipeline.check_ledger(1)
    assert pipeline.ledger_up_to_date()
    edited(project.root / "build" / "ledger.json", "ledger", "another")
    assert not pipeline.ledger_up_to_date(), "a reader has written one of fewer instances there"
    edited(project.root / "build" / "ledger.json", "another", "ledger")
    edited(project.root / "hmmlib" / "__main__.py", "", "x = 1")
    assert not pipeline.ledger_up_to_date()
    (project.root / "fails").touch()
    with pytest.raises(SystemExit, match="3"):
        pipeline.check_ledger(1)
    edited(project.root / "hmmlib" / "__main__.py", "x = 1", "")
    assert not pipeline.ledger_up_to_date(), "as it was when it last went well, but it has failed since"


def test_a_line_that_the_kernel_sends_in_parts_is_one_line(project):
    notebook, parts = nbformat.read(project.path, 4), ["u =", " 3"]
    say = f"for part in {parts}:\n    print(part, end='', flush=True)\n    time.sleep(1)"
    notebook.cells[-1].source = f"import time\n{say}"
    nbformat.write(notebook, project.path)
    pipeline.execute(project.path, project.values)
    outputs = nbformat.read(pipeline.EXECUTED / project.path.name, 4).cells[-1].outputs
    assert [output.text for output in outputs] == ["u = 3"]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("assert seed < 3, 'seed too large'", "seed too large"),
        pytest.param("import os; os.kill(os.getpid(), 9)", "Kernel died", marks=slow),  # as in test_build_faults.py
    ],
)
def test_a_failing_cell_stops_the_build_and_leaves_no_copy(project, cell, reason):
    pipeline.execute(project.path, project.values)
    edited(project.path, "assert seed < 5, 'seed too large'", cell)
    with pytest.raises(SystemExit, match=reason):
        pipeline.execute(project.path, project.values)
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.failed.ipynb"]
    edited(project.path, cell, "seed")
    pipeline.execute(project.path, project.values)
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.ipynb"]


def say(words: str, code: int = 0, seconds: float = 0.0) -> None:
    for word in words.split():
        subprocess.run(["echo", word], check=True)
        time.sleep(seconds)
    sys.exit(code)


def test_jobs_run_side_by_side_and_a_failure_stops_no_other(capfd):
    jobs = [
        side_by_side.Job("one", partial(say, "a1 a2 a3", 3, 0.1)),
        side_by_side.Job("killed", lambda: os.kill(os.getpid(), signal.SIGKILL)),
        side_by_side.Job("other", partial(say, "b1 b2 b3", 1, 0.1)),
        side_by_side.Job("good", partial(say, "not shown")),
    ]
    assert sorted(side_by_side.run(jobs, 2)) == ["killed", "one", "other"]
    said = capfd.readouterr().out
    assert re.search(r"^  one: failed after \d\.\d s \(exit code 3\)\na1\na2\na3$", said, re.MULTILINE)
    assert re.search(r"^  other: failed after \d\.\d s \(exit code 1\)\nb1\nb2\nb3$", said, re.MULTILINE)
    assert re.search(r"^  good: \d\.\d s$", said, re.MULTILINE)
    assert "exit code -9" in said
    assert "not shown" not in said


@pytest.mark.parametrize("wide", [1, 2, 5])
def test_no_more_jobs_at_a_time_than_slots(wide, tmp_path):
    def job(k):
        (tmp_path / f"{k}").touch()
        counts, end = [], time.monotonic() + 1  # time for another to begin
        while time.monotonic() < end and max(counts, default=0) < 2:
            time.sleep(0.1)
            counts.append(len(list(tmp_path.glob("?"))))
        (tmp_path / f"saw {k}").write_text(str(max(counts)))
        (tmp_path / f"{k}").unlink()

    jobs = [
        side_by_side.Job("wide", partial(job, 0), wide),
        *(side_by_side.Job("", partial(job, k)) for k in (1, 2, 3)),
    ]
    assert side_by_side.run(jobs, 2) == []
    seen = [int((tmp_path / f"saw {k}").read_text()) for k in range(4)]
    assert max(seen) == 2
    assert seen[0] == 1 or wide == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_counts_in_the_midst_of_a_fork(how):
    """Where Python says of it no more than "Exception ignored"."""
    build = f"""
import os, signal, sys, time
sys.path.insert(0, {str(ROOT / "book")!r})
import side_by_side
signal.signal(signal.SIGINT, signal.default_int_handler)  # which the background of a shell ignores
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), {int(how)}))
side_by_side.run([side_by_side.Job("a", lambda: time.sleep(60))], 1)
"""
    ended = subprocess.run([sys.executable, "-c", build], stderr=subprocess.PIPE, text=True, timeout=30)
    assert ended.returncode != 0
    assert "Exception ignored" in ended.stderr
    assert ended.stderr.rstrip().endswith({signal.SIGINT: "KeyboardInterrupt", signal.SIGTERM: "terminated"}[how])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_job_and_its_kernel(project, how):
    """The notebook writes its kernel's process id and waits; the build is interrupted; nothing is left running."""
    wait = "import os, time\nopen('../kernel', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    notebook = nbformat.read(project.path, 4)
    notebook.cells[-1].source = wait
    nbformat.write(notebook, project.path)
    build = f"""
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {str(ROOT / "book")!r})
import notebooks, side_by_side
notebooks.ROOT = Path({str(project.root)!r})
notebooks.EXECUTED = Path({str(project.copy.parent)!r})
job = partial(notebooks.execute, Path({str(project.path)!r}), Path({str(project.values)!r}))
side_by_side.run([side_by_side.Job("a", job)], 1)
"""
    running = subprocess.Popen([sys.executable, "-c", build], stderr=subprocess.PIPE, preexec_fn=heeding)
    told = project.root / "kernel"
    until = time.monotonic() + 60
    while not (told.is_file() and told.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(how)
    assert running.wait(timeout=10) != 0
    kernel = Path("/proc") / told.read_text()
    while kernel.is_dir() and "Z" not in (kernel / "stat").read_text().split()[2] and time.monotonic() < until:
        time.sleep(0.05)
    assert time.monotonic() < until, "the kernel is still running"
    assert not project.copy.exists()


def test_a_missing_copy_is_a_warning_on_its_page(tmp_path, caplog):
    told = []
    env = SimpleNamespace(note_dependency=told.append)
    app = SimpleNamespace(srcdir=tmp_path, env=env)
    source = ["committed"]
    book_setup.show_executed(app, "notebooks/a", source)
    assert source == ["committed"]
    assert told == [str(tmp_path / "build" / "executed" / "notebooks" / "a.ipynb")]
    executed = Path(told[0])
    executed.parent.mkdir(parents=True)
    executed.write_text("executed")
    book_setup.show_executed(app, "notebooks/a", source)
    assert source == ["executed"]


def test_the_workflows_repository_wins(monkeypatch):
    config = SimpleNamespace(html_theme_options={"repository_url": "X"})
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    book_setup.repository_from_environment(None, config)
    assert config.html_theme_options["repository_url"].endswith("X")
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/fork")
    book_setup.repository_from_environment(None, config)
    assert config.html_theme_options["repository_url"] == "https://" + "github.com/someone/fork"


@pytest.mark.parametrize(
    ("label", "number"),
    [("paper-thm-3-3", "3.3"), ("paper-claim-B-1", "B.1"), ("paper-eq-b-1", "B.1"), ("own-remark", None)],
)
def test_labels_carry_the_papers_numbers(label, number):
    found = book_setup.PAPER_LABEL.match(label)
    assert (found and found["number"].upper().replace("-", ".")) == number


def test_a_bad_number_of_jobs_is_refused():
    call = [sys.executable, str(ROOT / "book" / "notebooks.py"), "execute", "quick", "--jobs", "0"]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--jobs must be at least 1, not 0" in done.stderr
