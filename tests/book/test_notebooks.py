"""Notebooks are executed again only when something they depend on has changed, and a page shows its own run.

Most tests call `make book` with stand-ins for what takes long. What happens where a kernel or a build dies is in
tests/faults/test_build_faults.py."""

import os
from types import SimpleNamespace

import book_setup
import nbformat
import pytest
import yaml
from built_book import ROOT
from small_project import replace_in

import execute
import notebooks as pipeline

pytestmark = pytest.mark.outside
EVERYTHING = ["a", "b", "book", "ledger"]


def edit(project, name: str, old: str, new: str) -> list[str]:
    """Edit a file, build the book, and list what was called for."""
    replace_in(project.root / name, old, new)
    pipeline.write_twins()
    done = project.make("book")
    assert done.returncode == 0, done.stdout + done.stderr
    return project.new_calls()


def test_a_notebook_is_executed_again_only_after_a_change_of_what_it_depends_on(project):
    project.make("book")
    assert project.new_calls() == EVERYTHING
    project.make("book")
    assert project.new_calls() == ["book"]
    assert edit(project, "notebooks/a.md", "A claim", "A theorem") == ["book"], "only its text"
    assert edit(project, "notebooks/a.md", 'print("seed', 'print("the seed') == ["a", "book"]
    assert edit(project, "notebooks/a.md", "of the draw", "of all draws") == ["a", "book"]
    assert edit(project, "results/quick/r.json", "{}", "[1]") == ["a", "b", "book"]
    assert edit(project, "parameters/quick.yaml", "3", "4") == ["a", "b", "book"]
    for name in ("hmmlib/x.py", "requirements.lock"):
        assert edit(project, name, "1", "2") == EVERYTHING
    os.utime(project.root / "hmmlib" / "x.py")
    (project.root / "results" / "quick" / ".r.lock").touch()
    project.make("book")
    assert project.new_calls() == ["book"], "a checkout or a lock changes nothing that is read"
    (project.root / "hmmlib" / "x.py").unlink()
    project.make("book")
    assert project.new_calls() == EVERYTHING


def test_another_preset_is_executed_and_an_unknown_one_is_named(project):
    project.make("book")
    project.new_calls()
    project.make("book", "PRESET=large")
    assert project.new_calls() == ["a", "b", "book"]
    unknown = project.make("book", "PRESET=qiuck")
    assert unknown.returncode == 2
    assert "No rule to make target 'parameters/qiuck.yaml'" in unknown.stderr
    assert project.new_calls() == []


def test_a_ledger_or_a_book_that_fails_stops_the_build_and_is_made_again(project):
    for step in ("ledger", "book"):
        switch = project.root / f"{step}-fails"
        switch.touch()
        assert project.make("book").returncode == 2
        assert step in project.new_calls()
        switch.unlink()
        assert project.make("book").returncode == 0
        assert step in project.new_calls()
    assert not (project.root / "_build" / "unfinished").exists()


def test_after_a_book_that_failed_all_pages_are_read_anew(project):
    pages_read = project.root / "_build" / ".doctrees" / "a"
    pages_read.parent.mkdir(parents=True)
    pages_read.touch()
    (project.root / "book-fails").touch()
    project.make("book")
    assert pages_read.exists()
    project.make("book")
    assert not pages_read.exists()


def test_results_of_the_users_own_do_not_enter_the_book(project):
    project.make("book")
    assert (project.root / "users-results").read_text() == f"{project.root}/build/results\n"


def test_copies_to_work_in_are_made_once(project):
    copy = project.root / "mine" / "notebooks" / "a.ipynb"
    project.make("copies")
    assert copy.read_bytes() == (project.root / "notebooks" / "a.ipynb").read_bytes()
    copy.write_text("the reader's")
    (project.root / "mine" / "notebooks" / "b.ipynb").unlink()
    replace_in(project.root / "notebooks" / "a.md", "A claim", "A theorem")
    pipeline.write_twins()
    project.make("copies")
    assert copy.read_text() == "the reader's"
    assert (project.root / "mine" / "notebooks" / "b.ipynb").exists()


def executed(project, monkeypatch) -> nbformat.NotebookNode:
    """Execute notebook a as `make book` does."""
    monkeypatch.chdir(project.root)
    code = project.root / "build" / "code" / "a.ipynb"
    return execute.execute(code, project.root / "parameters" / "quick.yaml")


def test_a_page_has_the_text_of_its_source_the_parameters_of_its_text_and_the_outputs_of_its_run(project, monkeypatch):
    source = project.root / "notebooks" / "a.md"
    with pytest.raises(FileNotFoundError):
        pipeline.page(source)
    copy = project.executed / "a.ipynb"
    copy.parent.mkdir(parents=True)
    copy.write_text(nbformat.writes(executed(project, monkeypatch)))
    replace_in(source, "A claim", "A theorem")
    text, parameters, result = pipeline.page(source).cells
    assert text.source.startswith("# A theorem")
    assert "{prf:ref}`paper-thm-3-3`" in text.source
    assert "seed: int = 0" in parameters.source
    assert [output.text for output in result.outputs] == ["seed 3\nu = 3"], "a line that is sent in parts is one line"
    replace_in(source, 'print("seed', 'print("the seed')
    with pytest.raises(ValueError, match="executed with other code"):
        pipeline.page(source)


def test_a_notebook_that_is_not_executed_is_a_warning(project, monkeypatch):
    warnings = []
    monkeypatch.setattr(book_setup.log, "warning", lambda message, *values, location: warnings.append(message % values))
    app = SimpleNamespace(srcdir=project.root, env=SimpleNamespace(note_dependency=lambda path: None))
    source = ["the twin"]
    book_setup.show_executed(app, "notebooks/a", source)
    assert source == ["the twin"]
    assert len(warnings) == 1
    assert "notebooks/a is not executed" in warnings[0]
    assert "run `make book`" in warnings[0]


def test_every_preset_has_a_file_of_parameters_that_names_it_and_seed_0():
    for path in (ROOT / "parameters").glob("*.yaml"):
        assert yaml.safe_load(path.read_text()) == {"preset": path.stem, "seed": 0}
