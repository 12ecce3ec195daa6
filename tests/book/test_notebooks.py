"""Notebooks: parameters are checked before anything is run; each is run again only when something it depends on has
changed, and a failure is loud. What happens where a kernel or a build dies is in tests/faults/test_build_faults.py."""

import re
import sys
from pathlib import Path

import inputs
import nbformat
import pytest
from built_book import ROOT
from companion.pages import EQUATIONS
from record import tried

import notebooks as pipeline

pytestmark = pytest.mark.outside


def edited(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def command(monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["notebooks.py", *map(str, words)])
    pipeline.main()


@tried("files and folders")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("instancse: 3\n", "'instancse' is no parameter: 2-setting takes preset, seed, instances"),
        ('"seed\\nimport os\\nx": 1\n', r"no parameter can be named 'seed\nimport"),
        ("seed: 3\nseed: 4\n", "a parameter stands in it twice"),
        (b"preset: sm\xf6ke\n", "can't decode byte 0xf6"),
        ("seed: !!python/object:os.system {}\n", "could not determine a constructor"),
        ("- preset\n", "it must have lines `name: value`, not ['preset']"),
        (f"seed: {'[' * 5000}\n", "recursion"),
        (None, "No such file or directory"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_parameter_file_that_is_none_is_named_with_what_is_wrong_and_runs_nothing(
    content, words, tmp_path, monkeypatch, capsys
):
    path, out = tmp_path / "mine.yaml", tmp_path / "out.ipynb"
    out.write_text("mine")
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit, match="2"):
        command(monkeypatch, "run", "2-setting", path, "--out", out)
    assert re.search(f"{path} is no parameter file: .*{re.escape(words)}", capsys.readouterr().err)
    assert out.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} <= {"out.ipynb", "mine.yaml"}


def test_every_value_is_read_as_it_looks_and_every_notebook_takes_every_preset(tmp_path):
    lines = {
        "10": 10, "0": 0, "+5": 5, "-1": -1, ".5": 0.5, "1.5e+3": 1500.0, "1e3": 1000.0, "true": True, "False": False,
        "null": None, "": None, "'10'": "10", "smoke": "smoke", "[1, 2.5]": [1, 2.5],
        "010": "010", "1:30": "1:30", "no": "no", "on": "on", "2026-01-31": "2026-01-31", ".nan": ".nan",
    }  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text("".join(f"name_{k}: {text}\n" for k, text in enumerate(lines)))
    found = inputs.read_parameters(path).values()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in lines.values()]
    every = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in (ROOT / "parameters").glob("*.yaml"):
        assert inputs.read_parameters(path, every)["preset"] == path.stem


def test_the_command_line_names_what_is_wrong(monkeypatch, capsys):
    for words, message in (
        ("run 2-sett mine.yaml", "argument NAME: invalid choice: '2-sett' (choose from"),
        ("run 2-setting mine.yaml --out run.html", "--out must be a file *.ipynb, not run.html"),
        ("execute quick --jobs 0", "--jobs must be at least 1, not 0"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command(monkeypatch, *words.split())
        assert message in capsys.readouterr().err


def test_a_run_lands_whole_or_not_at_all(project, monkeypatch):
    out = project.root / "runs" / "out.ipynb"
    failed = out.with_name("out.failed.ipynb")
    project.values.write_text("seed: 7\n")
    with pytest.raises(SystemExit, match=rf"(?s)a.*too large.*how far it came is in {failed}"):
        command(monkeypatch, "run", "a", project.values, "--out", out)
    assert [*out.parent.iterdir()] == [failed]
    project.values.write_text("seed: 1\n")
    command(monkeypatch, "run", "a", project.values, "--out", out)
    assert [*out.parent.iterdir()] == [out]
    assert "\nseed = 1" in "".join(cell.source for cell in nbformat.read(out, 4).cells)


def test_a_notebook_is_run_once_and_new_text_reaches_its_page_and_a_copy_cut_short_is_none(project, survived):
    assert not pipeline.up_to_date(project.path, project.values)
    pipeline.execute(project.path, project.values)
    ran, before = nbformat.read(project.copy, 4), project.copy.stat().st_mtime_ns
    assert ran.cells[-1].outputs[-1].text.endswith("seed 3\nu = 3"), "a line that is sent in parts is one line"
    assert "remove-cell" in ran.cells[3].metadata.tags, "the page shows the notebook's own parameters"
    assert "{prf:ref}`paper-thm-3-3`" in ran.cells[0].source, "the page has the text of the source"
    assert pipeline.up_to_date(project.path, project.values)
    assert project.copy.stat().st_mtime_ns == before, "Sphinx would read the page again"
    for path in (project.path, project.path.with_suffix(".md")):
        edited(path, "A claim", "A theorem")
    assert pipeline.up_to_date(project.path, project.values)
    now = nbformat.read(project.copy, 4)
    assert ("# A theorem" in now.cells[0].source, now.cells[1:]) == (True, ran.cells[1:])
    content = project.copy.read_bytes().rstrip()
    for length in (lengths := range(0, len(content), 7)):  # as a machine's crash may leave it
        project.copy.write_bytes(content[:length])
        assert not pipeline.up_to_date(project.path, project.values)
    survived("copy cut short", len(lengths))


def test_the_key_follows_what_the_notebook_depends_on(project):
    def changed(name: str, old: str, new: str) -> bool:
        """Whether the notebook would be run again."""
        before = pipeline.key(project.path, project.values)
        edited(project.root / name, old, new)
        return pipeline.key(project.path, project.values) != before

    for name in ("folder/x.py", "folder/__init__.py", "y.py", "__init__.py", "moving/x.js", "../requirements.lock"):
        assert changed(f"hmmlib/{name}", "1", "2"), name
    assert changed("seed.yaml", "3", "4")
    assert changed("notebooks/a.ipynb", 'print(\\"seed', 'print(\\"the seed')
    assert changed("notebooks/a.ipynb", '"parameters"', '"other"')
    assert not changed("hmmlib/unread.py", "1", "2")
    assert not changed("notebooks/a.ipynb", "A claim", "Another claim")
    assert not changed("results/r.json", "{}", "[1]")
    edited(project.root / "hmmlib" / "y.py", "x", "import hmmlib.experiments.store; x")
    assert changed("results/r.json", "[1]", "[]"), "now it reads stored results"
    for code in ("from hmmlib import thing", "import hmmlib", "from hmmlib import *"):
        names = {path.name for path in inputs.reached(project.root, code)}
        assert names == {"__init__.py", "x.py", "y.py", "unread.py", "store.py", "x.js"}
    found = {path.parent.name for path in inputs.reached(ROOT, "from hmmlib import posterior") if path.suffix == ".py"}
    assert {"inference", "training", "experiments"} & found == {"inference"}, "a name stands for its own module"


def test_the_ledger_is_checked_once_and_again_after_a_failure_or_a_change(project, monkeypatch):
    lines = inputs.reached(ROOT, "import companion.__main__, companion.pages")
    assert {ROOT / equation.file for equation in EQUATIONS} <= set(lines), "lines that the ledger names"
    checker, main = project.root / "python", project.root / "book" / "companion" / "__main__.py"
    main.parent.mkdir(parents=True)
    main.write_text("x = 1\n")
    checker.write_text('#!/bin/sh\nshift 4\ntest -f fails && exit 3\necho ledger > "$1"\n')
    checker.chmod(0o755)
    monkeypatch.setattr(pipeline.sys, "executable", str(checker))
    for path in (project.root / "build" / "ledger.json", main):  # a reader has written one of fewer instances there
        assert not pipeline.ledger_up_to_date()
        pipeline.check_ledger(1)
        assert pipeline.ledger_up_to_date()
        path.write_text("another = 1\n")
    assert not pipeline.ledger_up_to_date()
    (project.root / "fails").touch()
    with pytest.raises(SystemExit, match="3"):
        pipeline.check_ledger(1)
    main.write_text("x = 1\n")
    assert not pipeline.ledger_up_to_date(), "as it was when it last went well, but it has failed since"
