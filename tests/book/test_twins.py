"""Text notebooks and their twins: plain Markdown, the same for the same source; what a reader does to one is kept."""

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import papermill
import portable
import pytest
from built_book import ROOT
from faults import no_longer_than

import notebooks as pipeline

REFUSED = {
    ":::{dropdown} More\ntext": "not closed: dropdown More",
    "see {doc}`3-hmm`": "a notebook can use the roles prf:ref",
    "by {prf:ref}`the head <paper-thm-3-3>`": "a notebook can use the roles prf:ref",
    "```{note}\nthis\n```": "a notebook can use boxes with colons only",
    "(a-target)=\n## Heading": "a notebook can use boxes with colons only",
}
OUTPUT = nbformat.v4.new_output("stream", text="seed 0\n")
EDITS = [
    lambda n: n.cells[0].update(source=n.cells[0].source + "!"),
    lambda n: n.cells.append(nbformat.v4.new_code_cell("1 + 1")),
    lambda n: n.cells.reverse(),
    lambda n: n.cells.__setitem__(0, nbformat.v4.new_raw_cell(n.cells[0].source, id=n.cells[0].id)),
    lambda n: n.cells[-1].update(outputs=[OUTPUT]),
]


def test_what_no_viewer_can_show_is_refused():
    for text, words in REFUSED.items():
        with pytest.raises(ValueError, match=words):
            portable.plain(text, "https://a.example", "main")


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_a_twin_is_what_its_source_gives_plain_and_listed_and_papermill_describes_its_parameters(source):
    twin = source.with_suffix(".ipynb")
    assert twin.read_text() == pipeline.twin(source), "run `make notebooks`"
    cells = nbformat.read(twin, 4).cells
    markdown = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    left = rf"\{{[a-z:]+\}}`|^:::|\\({'|'.join(portable.macros())})(?![A-Za-z])|\(paper-|\]\(\.\."
    assert not re.search(left, markdown, re.MULTILINE)
    title = re.escape(re.search("^# (.+)$", source.read_text(), re.MULTILINE)[1])
    link = rf"^- \[{title}\]\(\S+/notebooks/{source.stem}\.ipynb\)$"
    assert re.search(link, (ROOT / "book" / "reproduce.md").read_text(), re.MULTILINE), "its title, linked to Colab"
    _, _, code = [cell.source for cell in cells if cell.cell_type == "code"][:3]
    shown = papermill.inspect_notebook(str(twin))
    calls = [node for node in ast.walk(ast.parse(code)) if getattr(getattr(node, "func", None), "id", "") == "check"]
    assert {word.arg for word in calls[0].keywords} <= shown.keys()
    assert all(one["inferred_type_name"] not in (None, "None") and one["help"] for one in shown.values()), shown
    exercises = re.findall(r"\*\*Exercise (\d+)\.\*\*", markdown)
    assert exercises == re.findall(r"<summary>Solution (\d+)", markdown)


def kept(project) -> list[Path]:
    return sorted((project.root / "mine" / "edited").glob("*"))


def saved(twin: Path, change) -> bytes:
    """Change a notebook and save it, as an editor would."""
    notebook = nbformat.read(twin, 4)
    change(notebook)
    nbformat.write(notebook, twin)
    return twin.read_bytes()


def opened(notebook):
    """What JupyterLab changes in a notebook in which nothing is done."""
    notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
    notebook.cells[2].execution_count = 1


def test_each_edit_of_a_twin_is_kept_before_it_is_written_anew_and_nothing_else_is(project, capsys):
    twin, written, source = project.path, project.path.read_bytes(), project.path.with_suffix(".md")
    saved(twin, opened)
    assert pipeline.write_twins(check=False) == 1, "it is as its source gives it again"
    for word in ("claim", "lemma"), ("lemma", "claim"):  # as an author would
        source.write_text(source.read_text().replace(*word))
        assert pipeline.write_twins(check=False) == 1
    assert kept(project) == []
    broken, edits = [b"", b"\xff\xfe", b'{"cells": [3]}'], []  # what is no notebook any more
    for edit in (*EDITS, *broken):  # several within a second
        edits.append(edit if edit in broken else saved(twin, edit))
        twin.write_bytes(edits[-1])
        assert pipeline.write_twins(check=True) == 1
        assert "keeps its edits in mine/edited" in capsys.readouterr().err
        assert twin.read_bytes() == edits[-1], "a check changes nothing"
        assert pipeline.write_twins(check=False) == 1
        assert re.search(r"it is kept in mine/edited/a-\d{4}-.*\.ipynb\n$", capsys.readouterr().out)
        assert twin.read_bytes() == written
    assert sorted(copy.read_bytes() for copy in kept(project)) == sorted(edits)
    assert pipeline.write_twins(check=False) == 0


def test_where_no_copy_can_be_made_the_edit_stays_and_no_part_of_a_copy(project):
    mine = saved(project.path, EDITS[0])
    with no_longer_than(len(mine) // 2), pytest.raises(OSError, match="File too large"):
        pipeline.write_twins(check=False)
    assert (project.path.read_bytes(), kept(project)) == (mine, [])


def test_copies_to_work_in_are_made_once_and_jupytext_keeps_both_alike(project, capsys):
    def sync(*paths: Path) -> str:
        command = [sys.executable, "-m", "jupytext", "--sync", *paths]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    pipeline.write_copies()
    notebook = project.root / "mine" / "notebooks" / "a.ipynb"
    text = notebook.with_suffix(".md")
    assert jupytext.read(text).cells[0].source == nbformat.read(notebook, 4).cells[0].source
    assert "Updating" not in sync(notebook, project.path), "alike from the beginning; the project's own are no pair"
    text.write_text(text.read_text().replace("seed: int = ", "seed: int = 7"))
    os.utime(text, (time.time() + 600,) * 2)
    sync(text)
    assert "seed: int = 7" in notebook.read_text()
    text.unlink()
    mine = notebook.read_bytes()
    pipeline.write_copies()
    assert (notebook.read_bytes(), text.exists()) == (mine, False)
    assert "notebooks copied to mine/notebooks: 0; those that were there stay as they are: 1" in capsys.readouterr().out
