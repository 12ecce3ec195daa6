"""Notebooks: parameters are checked before anything is run; each is run again only when something it
depends on has changed, and a failure is loud."""

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
import nbformat
import pytest
import side_by_side
from built_book import ROOT
from faults import heeding
from record import slow, tried
from runs import soon

import hmmlib
import notebooks as pipeline

pytestmark = pytest.mark.outside


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# Parameters

TAKES = "2-setting takes preset, seed, instances"

REFUSED = {
    "a name of Python": ("globals: 3\n", f"'globals' is no parameter: {TAKES}"),
    "a name of IPython": ("In: 3\n", f"'In' is no parameter: {TAKES}"),
    "a name of another notebook": ("hidden_size: 3\n", f"'hidden_size' is no parameter: {TAKES}"),
    "a slip": ("instancse: 3\n", f"'instancse' is no parameter: {TAKES}"),
    "a number for a name": ("3: 3\n", "no parameter can be named 3"),
    "code for a name": ("import os; seed: 3\n", "no parameter can be named 'import os; seed'"),
    "a name twice": ("seed: 3\nseed: 4\n", "a parameter stands in it twice"),
    "Latin 1": (b"preset: sm\xf6ke\n", "can't decode byte 0xf6"),
    "no YAML": ("seed: [3\n", "expected ',' or ']'"),
    "an object": ("seed: !!python/object:os.system {}\n", "could not determine a constructor"),
    "a list": ("- preset\n", "it must have lines `name: value`, not ['preset']"),
    "nothing": ("", "it must have lines `name: value`, not None"),
    "a line break in a name": ('"seed\\nimport os\\nx": 1\n', r"no parameter can be named 'seed\nimport"),
    "no truth value": ("seed: !!bool maybe\n", "maybe"),
    "too many digits": (f"seed: {'9' * 5000}\n", "4300 digits"),
    "too deep": (f"seed: {'[' * 5000}\n", "recursion"),
    "no file": (None, "No such file or directory"),
}


def command(monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["notebooks.py", *map(str, words)])
    pipeline.main()


@tried("files and folders")
@pytest.mark.parametrize("how", REFUSED)
def test_a_parameter_file_that_is_none_is_named_with_what_is_wrong_and_runs_nothing(how, tmp_path, monkeypatch, capsys):
    content, words = REFUSED[how]
    path, out = tmp_path / "mine.yaml", tmp_path / "out.ipynb"
    out.write_text("mine")
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"{path} is no parameter file: " in message
    assert words in message
    assert out.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} <= {"out.ipynb", "mine.yaml"}


def test_every_value_is_read_as_it_looks(tmp_path):
    lines = {
        "10": 10, "0": 0, "+5": 5, "-1": -1, ".5": 0.5, "1.5e+3": 1500.0, "1e3": 1000.0, "true": True, "False": False,
        "null": None, "": None, "'10'": "10", "smoke": "smoke", "[1, 2.5]": [1, 2.5],
        "010": "010", "1:30": "1:30", "no": "no", "on": "on", "2026-01-31": "2026-01-31", ".nan": ".nan",
    }  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text("".join(f"name_{k}: {text}\n" for k, text in enumerate(lines)))
    found = inputs.read_parameters(path).values()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in lines.values()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run 2-sett mine.yaml", "argument NAME: invalid choice: '2-sett' (choose from"),
        ("run 2-setting mine.yaml --out run.html", "--out must be a file *.ipynb, not run.html"),
        ("execute quik", "argument PRESET: invalid choice: 'quik' (choose from"),
        ("execute quick --jobs 0", "--jobs must be at least 1, not 0"),
        ("execute mine", r"'instances' is no parameter: "),
    ],
)
def test_the_command_line_names_what_is_wrong(words, message, monkeypatch, capsys, tmp_path):
    every = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in (ROOT / "parameters").glob("*.yaml"):
        assert inputs.read_parameters(path, every)["preset"] == path.stem
    if words == "execute mine":  # a preset with a parameter that not every notebook has
        (tmp_path / "parameters").mkdir()
        (tmp_path / "parameters" / "mine.yaml").write_text("preset: smoke\ninstances: 3\n")
        (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
        monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    with pytest.raises(SystemExit):
        command(monkeypatch, *words.split())
    assert message in capsys.readouterr().err


def test_a_run_lands_whole_or_not_at_all(project, monkeypatch):
    out = project.root / "runs" / "out.ipynb"
    failed = out.with_name("out.failed.ipynb")
    for seed, there in ((7, failed), (1, out)):
        project.values.write_text(f"seed: {seed}\n")
        if there == failed:
            with pytest.raises(SystemExit, match=rf"(?s)a.*too large.*how far it came is in {failed}"):
                command(monkeypatch, "run", "a", project.values, "--out", out)
        else:
            command(monkeypatch, "run", "a", project.values, "--out", out)
        assert [one.name for one in out.parent.iterdir()] == [there.name]
    assert "seed = 1" in [line for cell in nbformat.read(out, 4).cells for line in cell.source.splitlines()]


KERNEL = """
import os, sys
sys.prefix = sys.argv[1]  # as if this were the environment
from ipykernel.kernelapp import IPKernelApp
IPKernelApp().initialize(["-f", sys.argv[2]])
sys.stderr.flush()
os._exit(0)
"""
"""Starts a kernel, up to where it would wait for its first cell."""


@pytest.mark.parametrize("settings", [pytest.param("of make install", marks=slow), "of make book", "none"])
def test_a_kernel_starts_without_a_warning(settings, tmp_path, monkeypatch):
    """The quick ones: the settings of `make book`, and none."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    environment = tmp_path / "environment"
    if settings == "of make install":
        (recipe,) = re.findall(r"^\t@?(mkdir .*etc/ipython.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        subprocess.run(["sh", "-c", recipe.replace("$(VENV)", str(environment))], cwd=ROOT, check=True)
    if settings == "of make book":
        monkeypatch.setattr(pipeline, "ROOT", tmp_path)
        pipeline.quiet_kernels()
    call = [sys.executable, "-c", KERNEL, environment, tmp_path / "connection.json"]
    warned = subprocess.run(call, capture_output=True, text=True, check=True).stderr
    assert ("WARNING" in warned) == (settings == "none"), warned


# From notebook to executed copy


def test_a_notebook_is_run_once_and_new_text_reaches_its_page_but_a_failure_leaves_no_copy(project):
    """What happens where a kernel dies is in tests/faults/test_build_faults.py."""
    assert not pipeline.up_to_date(project.path, project.values)
    pipeline.execute(project.path, project.values)
    ran = nbformat.read(project.copy, 4)
    *_, last = ran.cells[-1].outputs
    assert last.text.endswith("seed 3\nu = 3"), "a line that the kernel sends in parts is one line"
    assert "remove-cell" in ran.cells[3].metadata.tags, "the page shows the notebook's own parameters"
    assert "{prf:ref}`paper-thm-3-3`" in ran.cells[0].source, "the page has the text of the source"
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.ipynb"]
    before = project.copy.stat().st_mtime_ns
    assert pipeline.up_to_date(project.path, project.values)
    assert project.copy.stat().st_mtime_ns == before, "Sphinx would read the page again"
    for path in (project.path, project.path.with_suffix(".md")):
        edited(path, "A claim", "A theorem")
    assert pipeline.up_to_date(project.path, project.values)
    now = nbformat.read(project.copy, 4)
    assert "# A theorem" in now.cells[0].source
    assert now.cells[1:] == ran.cells[1:]
    edited(project.path, "seed < 5", "seed < 3")
    with pytest.raises(SystemExit, match="too large"):
        pipeline.execute(project.path, project.values)
    assert [path.name for path in project.copy.parent.iterdir()] == ["a.failed.ipynb"]


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
        ("notebooks/a.ipynb", 'print(\\"seed', 'print(\\"the seed'),
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


def test_no_more_jobs_at_a_time_than_slots(tmp_path):
    def job(k):
        (tmp_path / f"{k}").touch()
        counts, end = [], time.monotonic() + 1  # time for another to begin
        while time.monotonic() < end and max(counts, default=0) < 2:
            time.sleep(0.1)
            counts.append(len(list(tmp_path.glob("?"))))
        (tmp_path / f"saw {k}").write_text(str(max(counts)))
        (tmp_path / f"{k}").unlink()

    jobs = [side_by_side.Job(f"{k}", partial(job, k), slots) for k, slots in enumerate((2, 1, 1, 1))]
    assert side_by_side.run(jobs, 2) == []
    seen = [int((tmp_path / f"saw {k}").read_text()) for k in range(4)]
    assert seen[0] == 1
    assert max(seen) <= 2


@slow
def test_a_request_to_end_ends_every_job_and_its_kernel(project):
    """The notebook writes its kernel's process id and waits. The quick one: an interrupt, in tests/faults."""
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
    running = subprocess.Popen([sys.executable, "-c", build], stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    kernel = project.root / "kernel"
    assert soon(lambda: kernel.is_file() and kernel.read_text(), 60)
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=20)[1].rstrip().endswith("terminated")
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
