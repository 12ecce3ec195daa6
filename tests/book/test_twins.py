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

import notebooks as pipeline

GITHUB, COLAB = (
    "https://" + "github.com/someone/something",
    "https://colab.research.google." + "com/github/someone/something",
)


def plain(text: str) -> str:
    return portable.plain(text, GITHUB, "main")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by {prf:ref}`paper-thm-3-3` and {eq}`paper-eq-B-1`", "by Theorem 3.3 and (B.1)"),
        ("read {cite}`lester2021power`", "read (Lester et al., 2021)"),
        ("{cite:t}`lester2021power`", "Lester et al. (2021)"),
        ("a {term}`left inverse`, {term}`heads <head>`", "a left inverse, heads"),
        (r"$\P[X] + \Pr(x)$, $\supp(\mu)$", r"$\mathrm{P}[X] + \Pr(x)$, $\operatorname{supp}(\mu)$"),
        ("$$\nx\n$$ (paper-eq-3-1)", "$$\nx\n\\tag{3.1}\n$$"),
        (
            ":::{prf:theorem} A name\n:label: paper-thm-3-3\n\nIt holds.\n:::",
            "> **Theorem 3.3** (A name).\n>\n> It holds.",
        ),
        (
            "::::{dropdown} A\n:::{prf:proof}\nB\n:::\n::::",
            "<details>\n<summary>A</summary>\n\n**Proof.** B ∎\n\n</details>",
        ),
        ("[p](../book/notation.md)", f"[p]({GITHUB}/blob/main/book/notation.md)"),
        ("[h](3-hmm.ipynb#x)", f"[h]({COLAB}/blob/main/notebooks/3-hmm.ipynb#x)"),
    ],
)
def test_markdown_that_any_viewer_shows(text, expected):
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (":::{dropdown} More\ntext", "not closed: dropdown More"),
        ("see {doc}`3-hmm`", "a notebook can use the roles prf:ref"),
        ("by {prf:ref}`the head <paper-thm-3-3>`", "a notebook can use the roles prf:ref"),
        ("```{note}\nthis\n```", "a notebook can use boxes with colons only"),
        ("(a-target)=\n## Heading", "a notebook can use boxes with colons only"),
    ],
)
def test_what_a_viewer_cannot_show_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        plain(text)


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_a_twin_is_plain_deterministic_and_not_edited_and_papermill_describes_its_parameters(source):
    text = pipeline.twin(source)
    assert pipeline.twin(source) == text
    cells = nbformat.reads(text, 4).cells
    markdown = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    macros = "|".join(portable.macros())
    left = rf"\{{[a-z:]+\}}`|^:::|\\({macros})(?![A-Za-z])|\(paper-|\]\(\.\."
    assert not re.search(left, markdown, re.MULTILINE)
    first, parameters, code = [cell.source for cell in cells if cell.cell_type == "code"][:3]
    assert first == pipeline.bootstrap()
    assert not pipeline.is_edited(source.with_suffix(".ipynb"))
    shown = papermill.inspect_notebook(str(source.with_suffix(".ipynb")))
    calls = [node for node in ast.walk(ast.parse(code)) if getattr(getattr(node, "func", None), "id", "") == "check"]
    assert {word.arg for word in calls[0].keywords} <= shown.keys()
    assert all(one["inferred_type_name"] not in (None, "None") and one["help"] for one in shown.values()), shown
    assert all(len(line) <= 78 for line in parameters.splitlines())


def kept(twin: Path) -> list[Path]:
    return sorted((twin.parents[1] / "mine" / "edited").glob("*"))


def saved(twin: Path, change) -> None:
    """Change a notebook and save it, as an editor would."""
    notebook = nbformat.read(twin, 4)
    change(notebook)
    nbformat.write(notebook, twin)


def opened_and_saved(notebook):
    """What JupyterLab writes of a notebook in which nothing was done."""
    notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
    notebook.metadata.language_info = {"name": "python", "version": "3.11.7", "pygments_lexer": "ipython3"}
    notebook.cells[2].execution_count = 1


def with_an_output(notebook):
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="seed 0\n")]


EDITS = {
    "a word": lambda n: n.cells[0].update(source=n.cells[0].source + "!"),
    "a cell more": lambda n: n.cells.append(nbformat.v4.new_code_cell("1 + 1")),
    "the last cell left out": lambda n: n.cells.pop(),
    "another order": lambda n: n.cells.reverse(),
    "a kind": lambda n: n.cells.__setitem__(0, nbformat.v4.new_raw_cell(n.cells[0].source, id=n.cells[0].id)),
    "outputs": with_an_output,
    "all cells gone": lambda n: n.cells.clear(),
}


def test_each_edit_of_a_twin_is_kept_before_it_is_written_anew_and_nothing_else_is(project, capsys):
    twin, edits = project.path, []
    written, source = twin.read_bytes(), twin.with_suffix(".md").read_text()
    saved(twin, opened_and_saved)
    assert pipeline.write_twins(check=False) == 1, "it is as its source gives it again"
    for word in ("A lemma", "A claim"):  # twice, as an author would, without a commit between
        twin.with_suffix(".md").write_text(source.replace("A claim", word))
        assert pipeline.write_twins(check=False) == 1
    assert kept(twin) == []
    capsys.readouterr()
    for edit in EDITS.values():  # several within a second
        saved(twin, edit)
        edits.append(twin.read_bytes())
        assert pipeline.write_twins(check=True) == 1
        assert "keeps its edits in mine/edited" in capsys.readouterr().err
        assert twin.read_bytes() == edits[-1], "a check changes nothing"
        assert pipeline.write_twins(check=False) == 1
        assert re.search(r"it is kept in mine/edited/a-\d{4}-.*\.ipynb\n$", capsys.readouterr().out)
        assert twin.read_bytes() == written
    for content in (b"", b"3", b"\xff\xfe", b"<<<<<<< ours\n", b'{"cells": [3]}'):  # no notebook any more
        twin.write_bytes(content)
        edits.append(content)
        assert pipeline.write_twins(check=False) == 1
    assert sorted(copy.read_bytes() for copy in kept(twin)) == sorted(edits)
    assert pipeline.write_twins(check=False) == 0


def test_where_no_copy_can_be_made_the_edit_stays_and_no_part_of_a_copy(project, monkeypatch):
    def full(path, copy):
        copy.write_bytes(path.read_bytes()[:10])
        raise OSError("no space left")

    saved(project.path, EDITS["a word"])
    mine = project.path.read_bytes()
    monkeypatch.setattr(pipeline.shutil, "copy2", full)
    with pytest.raises(OSError, match="no space left"):
        pipeline.write_twins(check=False)
    assert (project.path.read_bytes(), kept(project.path)) == (mine, [])


def test_copies_to_work_in_are_made_once_and_jupytext_keeps_both_alike(project, capsys):
    def sync(path: Path) -> str:
        command = [sys.executable, "-m", "jupytext", "--sync", path.name]
        return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True).stdout

    pipeline.write_copies()
    notebook = project.root / "mine" / "notebooks" / "a.ipynb"
    text = notebook.with_suffix(".md")
    assert jupytext.read(text).cells[0].source == nbformat.read(notebook, 4).cells[0].source
    assert "Updating a.ipynb" not in sync(notebook), "they are alike from the beginning"
    for newer, older, value in ((text, notebook, "7"), (notebook, text, "8")):
        newer.write_text(newer.read_text().replace("seed: int = ", f"seed: int = {value}"))
        os.utime(newer, (time.time() + 600 * int(value),) * 2)
        assert f"Updating {older.name}" in sync(newer)
        assert f"seed: int = {value}" in older.read_text()
    assert "Updating" not in sync(project.path), "the project's own are no pair for Jupytext: their text has more in it"
    text.unlink()
    mine = notebook.read_bytes()
    pipeline.write_copies()
    assert (notebook.read_bytes(), text.exists()) == (mine, False)
    assert "notebooks copied to mine/notebooks: 0; those that were there stay as they are: 1" in capsys.readouterr().out
