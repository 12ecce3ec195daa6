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
import inputs
import jupytext
import nbformat
import pytest
import side_by_side
from faults import heeding
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from runs import soon

import hmmlib
import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one notebook that prints its seed, or fails where it is too large."""
    cells = [
        new_markdown_cell("A claim: Theorem 3.3", id="t"),
        new_code_cell("# Parameters: here\nseed = 0", metadata={"tags": ["parameters"]}, id="a"),
        new_code_cell(
            "%time\nif False:\n    from hmmlib.folder import x\nprint('seed', seed)\nassert seed < 5, 'too large'",
            id="b",
        ),
    ]
    files = {"requirements.lock": "a==1\n", "seed.yaml": "seed: 3\n", "results/r.json": "{}"}
    files |= {"hmmlib/folder/x.py": "def f():\n    import hmmlib.y\n", "hmmlib/moving/x.js": "1"}
    for name in ("__init__", "folder/__init__", "y", "unread", "experiments/store"):
        files[f"hmmlib/{name}.py"] = "x = 1\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    path = tmp_path / "notebooks" / "a.ipynb"
    path.parent.mkdir()
    (tmp_path / "build").mkdir()
    spec = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = new_notebook(cells=cells, metadata=spec)
    nbformat.write(notebook, path)
    cells[0].source = "A claim: {prf:ref}`paper-thm-3-3`"
    jupytext.write(notebook, path.with_suffix(".md"), fmt="md:myst")
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path / "build" / "executed" / "notebooks")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    return SimpleNamespace(root=tmp_path, path=path, copy=pipeline.EXECUTED / "a.ipynb", values=tmp_path / "seed.yaml")


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_notebook_is_run_once_and_new_text_reaches_its_page_without_a_run(project):
    assert not pipeline.up_to_date(project.path, project.values)
    pipeline.execute(project.path, project.values)
    ran = nbformat.read(project.copy, 4)
    assert ran.cells[-1].outputs[-1].text.endswith("seed 3\n")
    assert "remove-cell" in ran.cells[2].metadata.tags, "the page shows the notebook's own parameters"
    assert ran.cells[0].source == "A claim: {prf:ref}`paper-thm-3-3`"  # the page has the text of the source
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.ipynb"]
    before = project.copy.stat().st_mtime_ns
    assert pipeline.up_to_date(project.path, project.values)
    assert project.copy.stat().st_mtime_ns == before, "Sphinx would read the page again"
    for path in (project.path, project.path.with_suffix(".md")):
        edited(path, "A claim:", "A theorem:")
    assert pipeline.up_to_date(project.path, project.values)
    now = nbformat.read(project.copy, 4)
    assert now.cells[0].source == "A theorem: {prf:ref}`paper-thm-3-3`"
    assert now.cells[1:] == ran.cells[1:]


def test_the_key_follows_what_the_notebook_depends_on(project):
    seen = [pipeline.key(project.path, project.values)]
    for name, old, new in (
        ("hmmlib/folder/x.py", "f()", "g()"),
        ("hmmlib/folder/__init__.py", "1", "2"),
        ("hmmlib/y.py", "1", "2"),
        ("hmmlib/__init__.py", "1", "2"),
        ("hmmlib/moving/x.js", "1", "2"),
        ("requirements.lock", "1", "2"),
        ("seed.yaml", "3", "4"),
        ("notebooks/a.ipynb", "print('seed'", "print('the seed'"),
        ("notebooks/a.ipynb", '"parameters"', '"other"'),
    ):
        edited(project.root / name, old, new)
        seen.append(pipeline.key(project.path, project.values))
    assert len(set(seen)) == 10
    edited(project.root / "hmmlib" / "unread.py", "1", "2")
    edited(project.path, "A claim", "Another claim")
    edited(project.root / "results" / "r.json", "{}", "[1]")
    assert pipeline.key(project.path, project.values) == seen[-1], "neither text, nor what it cannot read"
    edited(project.root / "hmmlib" / "y.py", "x", "import hmmlib.experiments.store; x")
    reads = pipeline.key(project.path, project.values)
    edited(project.root / "results" / "r.json", "[1]", "[]")
    assert pipeline.key(project.path, project.values) != reads, "now it reads stored results"
    for code in ("from hmmlib import thing", "import hmmlib", "from hmmlib import *"):
        names = {path.name for path in inputs.reached(project.root, code)}
        assert names == {"__init__.py", "x.py", "y.py", "unread.py", "store.py", "x.js"}


def test_a_name_of_the_library_itself_reaches_the_module_where_it_is_made():
    for name in hmmlib.__all__:
        files, module = inputs.reached(ROOT, f"from hmmlib import {name}"), hmmlib._MODULE[name]
        assert inputs.module_file(ROOT, f"hmmlib.{module}") in files
        if name != "MASK":
            assert Path(inspect.getsourcefile(inspect.unwrap(getattr(hmmlib, name)))) in files, name
    names = inputs.reached(ROOT, "from hmmlib import theorem_3_6, posterior")
    rooms = {path.relative_to(ROOT / "hmmlib").parts[0] for path in names if path.suffix == ".py"}
    assert {"models", "inference", "theory"} <= rooms
    assert not {"training", "experiments"} & rooms


def test_the_ledger_is_checked_once_and_again_after_a_failure(project, monkeypatch):
    from companion.pages import EQUATIONS

    lines = inputs.reached(ROOT, "import companion.__main__, companion.pages")
    assert {ROOT / equation.file for equation in EQUATIONS} <= set(lines), "lines that the ledger names"
    command, main = project.root / "python", project.root / "book" / "companion" / "__main__.py"
    main.parent.mkdir(parents=True)
    main.write_text("")
    command.write_text('#!/bin/sh\nshift 4\ntest -f fails && exit 3\necho ledger > "$1"\n')
    command.chmod(0o755)
    monkeypatch.setattr(pipeline.sys, "executable", str(command))
    assert not pipeline.ledger_up_to_date()
    pipeline.check_ledger(1)
    assert pipeline.ledger_up_to_date()
    edited(project.root / "build" / "ledger.json", "ledger", "another")
    assert not pipeline.ledger_up_to_date(), "a reader has written one of fewer instances there"
    edited(project.root / "build" / "ledger.json", "another", "ledger")
    main.write_text("x = 1")
    assert not pipeline.ledger_up_to_date()
    (project.root / "fails").touch()
    with pytest.raises(SystemExit, match="3"):
        pipeline.check_ledger(1)
    main.write_text("")
    assert not pipeline.ledger_up_to_date(), "as it was when it last went well, but it has failed since"


def test_a_failing_cell_stops_the_build_and_leaves_no_copy(project):
    """What happens where a kernel dies is in tests/faults/test_build_faults.py."""
    pipeline.execute(project.path, project.values)
    edited(project.path, "seed < 5", "seed < 3")
    with pytest.raises(SystemExit, match="too large"):
        pipeline.execute(project.path, project.values)
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.failed.ipynb"]
    parts = "import time\\nfor part in ['u =', ' 3']:\\n    print(part, end='', flush=True)\\n    time.sleep(1)"
    edited(project.path, "assert seed < 3, 'too large'", parts)
    pipeline.execute(project.path, project.values)
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.ipynb"]
    *_, last = nbformat.read(project.copy, 4).cells[-1].outputs
    assert last.text.endswith("seed 3\nu = 3"), "a line that the kernel sends in parts is one line"


def say(words: str, code: int = 0) -> None:
    for word in words.split():
        subprocess.run(["echo", word], check=True)
        time.sleep(0.1)
    sys.exit(code)


def test_jobs_run_side_by_side_and_a_failure_stops_no_other(capfd):
    jobs = [
        side_by_side.Job("one", partial(say, "a1 a2 a3", 3)),
        side_by_side.Job("killed", lambda: os.kill(os.getpid(), signal.SIGKILL)),
        side_by_side.Job("other", partial(say, "b1 b2 b3", 1)),
        side_by_side.Job("good", partial(say, "not shown")),
    ]
    assert sorted(side_by_side.run(jobs, 2)) == ["killed", "one", "other"]
    out = capfd.readouterr().out
    assert re.search(r"^  one: failed after \d+\.\d s \(exit code 3\)\na1\na2\na3$", out, re.MULTILINE)
    assert re.search(r"^  other: failed after \d+\.\d s \(exit code 1\)\nb1\nb2\nb3$", out, re.MULTILINE)
    assert re.search(r"^  good: \d+\.\d s$", out, re.MULTILINE)
    assert "exit code -9" in out
    assert "not shown" not in out


@pytest.mark.parametrize("wide", [1, 2])
def test_no_more_jobs_at_a_time_than_slots(wide, tmp_path):
    def job(k):
        (tmp_path / f"{k}").touch()
        counts, end = [], time.monotonic() + 1  # time for another to begin
        while time.monotonic() < end and max(counts, default=0) < 2:
            time.sleep(0.1)
            counts.append(len(list(tmp_path.glob("?"))))
        (tmp_path / f"saw {k}").write_text(str(max(counts)))
        (tmp_path / f"{k}").unlink()

    jobs = [side_by_side.Job(f"{k}", partial(job, k), slots) for k, slots in enumerate((wide, 1, 1, 1))]
    assert side_by_side.run(jobs, 2) == []
    seen = [int((tmp_path / f"saw {k}").read_text()) for k in range(4)]
    assert max(seen) <= 2
    assert seen[0] == 1 or wide == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_job_and_its_kernel(how, project):
    """The notebook writes its kernel's process id and waits; then the build is interrupted."""
    wait = "import os, time\\nopen('../kernel', 'w').write(str(os.getpid()))\\ntime.sleep(60)"
    edited(project.path, "%time", wait)
    build = f"""
import os, signal, sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {str(ROOT / "book")!r})
import notebooks, side_by_side
notebooks.ROOT = Path({str(project.root)!r})
notebooks.EXECUTED = Path({str(project.copy.parent)!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
job = partial(notebooks.execute, Path({str(project.path)!r}), Path({str(project.values)!r}))
side_by_side.run([side_by_side.Job("a", job)], 1)
"""
    call, ends = [sys.executable, "-c", build], {signal.SIGINT: "KeyboardInterrupt", signal.SIGTERM: "terminated"}[how]
    running = subprocess.Popen(call, stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    kernel = project.root / "kernel"
    assert soon(lambda: kernel.is_file() and kernel.read_text(), 60)
    running.send_signal(how)
    assert running.communicate(timeout=20)[1].rstrip().endswith(ends)
    stat = Path("/proc") / kernel.read_text() / "stat"
    assert soon(lambda: not stat.exists() or "Z" in stat.read_text().split()[2], 60), "the kernel is still running"
    assert not project.copy.exists()


def test_a_page_shows_the_executed_copy_and_warns_where_there_is_none(tmp_path):
    noted = []
    app = SimpleNamespace(srcdir=tmp_path, env=SimpleNamespace(note_dependency=noted.append))
    source = ["committed"]
    book_setup.show_executed(app, "notebooks/a", source)
    assert source == ["committed"]
    executed = tmp_path / "build" / "executed" / "notebooks" / "a.ipynb"
    executed.parent.mkdir(parents=True)
    executed.write_text("executed")
    book_setup.show_executed(app, "notebooks/a", source)
    assert (source, noted) == (["executed"], [str(executed)] * 2)


def test_the_workflows_repository_wins(monkeypatch):
    config = SimpleNamespace(html_theme_options={"repository_url": "X"})
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    book_setup.repository_from_environment(None, config)
    assert config.html_theme_options["repository_url"] == "X"
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/fork")
    book_setup.repository_from_environment(None, config)
    assert config.html_theme_options["repository_url"] == "https://" + "github.com/someone/fork"
