"""Text notebooks and their twins: plain Markdown, the same for the same source; what a reader does to one is kept."""

import ast
import re
from pathlib import Path

import nbformat
import papermill
import pytest
from built_book import ROOT
from faults import no_longer_than
from small_project import replace_in

import notebooks as pipeline
import portable

REFUSED = [
    (":::{dropdown} More\ntext", "not closed: dropdown More"),
    ("see {doc}`3-hmm`", "a notebook can use the roles prf:ref"),
    ("by {prf:ref}`the head <paper-thm-3-3>`", "a notebook can use the roles prf:ref"),
    ("```{note}\nthis\n```", "a notebook can use boxes with colons only"),
    ("(a-target)=\n## Heading", "a notebook can use boxes with colons only"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_no_viewer_can_show_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        portable.plain(text, "https://a.example", "main")


@pytest.fixture(params=pipeline.sources(), ids=lambda path: path.stem)
def source(request) -> Path:
    return request.param


def test_a_twin_is_what_its_source_gives(source):
    text = source.with_suffix(".ipynb").read_text()
    assert text == pipeline.as_text(pipeline.twin(source)), "run `make notebooks`"


def test_a_twin_is_plain_markdown_with_a_solution_to_each_exercise(source):
    markdown = ""
    for cell in pipeline.twin(source).cells:
        if cell.cell_type == "markdown":
            markdown += cell.source + "\n"
    macros = "|".join(portable.macros())
    myst = rf"\{{[a-z:]+\}}`|^:::|\\({macros})(?![A-Za-z])|\(paper-|\]\(\.\."
    assert not re.search(myst, markdown, re.MULTILINE)
    exercises = re.findall(r"\*\*Exercise (\d+)\.\*\*", markdown)
    assert exercises == re.findall(r"<summary>Solution (\d+)", markdown)


def test_a_twin_is_listed_by_its_title_with_a_link_to_colab(source):
    title = re.search("^# (.+)$", source.read_text(), re.MULTILINE)[1]
    link = rf"^- \[{re.escape(title)}\]\(\S+/notebooks/{source.stem}\.ipynb\), \d+ s$"
    assert re.search(link, (ROOT / "book" / "reproduce.md").read_text(), re.MULTILINE)


def test_papermill_describes_the_parameters_of_a_twin_which_its_code_checks(source):
    parameters = papermill.inspect_notebook(str(source.with_suffix(".ipynb")))
    assert {"preset", "seed"} <= parameters.keys()
    for parameter in parameters.values():
        assert parameter["inferred_type_name"] not in (None, "None"), parameter
        assert parameter["help"], parameter
    code = list(filter(pipeline.is_code, pipeline.twin(source).cells))
    behind_the_parameters = code[2].source
    for node in ast.walk(ast.parse(behind_the_parameters)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check":
            checked = {keyword.arg for keyword in node.keywords}
    assert checked <= parameters.keys()


# What a reader does to a twin


def change_text(notebook):
    notebook.cells[0].source += "!"


def add_a_cell(notebook):
    notebook.cells.append(nbformat.v4.new_code_cell("1 + 1"))


def reverse_the_cells(notebook):
    notebook.cells.reverse()


def change_a_cells_kind(notebook):
    first = notebook.cells[0]
    notebook.cells[0] = nbformat.v4.new_raw_cell(first.source, id=first.id)


def run_a_cell(notebook):
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="seed 0\n")]


def only_open_it(notebook):
    notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
    notebook.cells[2].execution_count = 1


EDITS = [change_text, add_a_cell, reverse_the_cells, change_a_cells_kind, run_a_cell]
NO_NOTEBOOKS = [b"", b"\xff\xfe", b'{"cells": [3]}']


def save(path: Path, edit) -> bytes:
    """Change a notebook and save it, as an editor would."""
    notebook = nbformat.read(path, 4)
    edit(notebook)
    nbformat.write(notebook, path)
    return path.read_bytes()


def saved_edits(project) -> list[bytes]:
    return [path.read_bytes() for path in sorted((project.root / "mine" / "edited").glob("*"))]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_a_twin_is_kept_before_the_twin_is_written_anew(edit, project, capsys):
    twin = project.root / "notebooks" / "a.ipynb"
    written = twin.read_bytes()
    edited = save(twin, edit)
    capsys.readouterr()
    assert pipeline.write_twins() == 1
    assert "wrote notebooks/a.ipynb anew. Your edits are kept in mine/edited/a-" in capsys.readouterr().out
    assert twin.read_bytes() == written
    assert saved_edits(project) == [edited]
    assert pipeline.write_twins() == 0


@pytest.mark.parametrize("content", NO_NOTEBOOKS)
def test_a_file_that_is_no_notebook_any_more_is_kept(content, project):
    (project.root / "notebooks" / "a.ipynb").write_bytes(content)
    assert pipeline.write_twins() == 1
    assert saved_edits(project) == [content]


def test_what_nobody_edited_is_written_anew_and_not_kept(project):
    twin = project.root / "notebooks" / "a.ipynb"
    save(twin, only_open_it)
    assert pipeline.write_twins() == 1
    replace_in(twin.with_suffix(".md"), "claim", "lemma")
    assert pipeline.write_twins() == 1
    assert saved_edits(project) == []


def test_where_no_copy_can_be_made_the_edit_stays_and_no_part_of_a_copy(project):
    twin = project.root / "notebooks" / "a.ipynb"
    edited = save(twin, change_text)
    with no_longer_than(len(edited) // 2), pytest.raises(OSError, match="File too large"):
        pipeline.write_twins()
    assert twin.read_bytes() == edited
    assert saved_edits(project) == []
