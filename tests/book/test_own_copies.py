"""What a reader does to a notebook is kept: edits of a twin, and copies to work in, which Jupytext keeps in step."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import own_copies
import pytest

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """\
---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A claim

By {prf:ref}`paper-thm-3-3`.

```{code-cell} ipython3
:tags: [parameters]

# Parameters: here
seed: int = 0  # of the draw
```

```{code-cell} ipython3
print("seed", seed)
```
"""


@pytest.fixture
def twin(tmp_path, monkeypatch):
    """The twin of the one notebook of a project."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "_config.yml").write_text((ROOT / "_config.yml").read_text())
    source = tmp_path / "notebooks" / "a.md"
    source.write_text(SOURCE)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    assert pipeline.write_twins(check=False) == 1
    return source.with_suffix(".ipynb")


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
    "a value": lambda n: n.cells[2].update(source="# Parameters: here\nseed: int = 7  # of the draw"),
    "a cell more": lambda n: n.cells.append(nbformat.v4.new_code_cell("1 + 1")),
    "a cell in between": lambda n: n.cells.insert(1, nbformat.v4.new_markdown_cell("Mine.")),
    "a cell twice": lambda n: n.cells.append(nbformat.v4.new_code_cell(n.cells[-1].source)),
    "one cell fewer": lambda n: n.cells.pop(0),
    "the last cell left out": lambda n: n.cells.pop(),
    "another order": lambda n: n.cells.reverse(),
    "a kind": lambda n: n.cells.__setitem__(0, nbformat.v4.new_raw_cell(n.cells[0].source, id=n.cells[0].id)),
    "outputs": with_an_output,
    "all cells gone": lambda n: n.cells.clear(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_twin_is_kept_before_it_is_written_anew(edit, twin, capsys):
    written = twin.read_bytes()
    saved(twin, EDITS[edit])
    mine = twin.read_bytes()
    assert own_copies.edited(twin)
    assert pipeline.write_twins(check=True) == 1
    assert "keeps its edits in mine/edited" in capsys.readouterr().err
    assert (twin.read_bytes(), kept(twin)) == (mine, []), "a check changes nothing"
    assert pipeline.write_twins(check=False) == 1
    (copy,) = kept(twin)
    assert copy.read_bytes() == mine
    assert twin.read_bytes() == written
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(f"it is kept in mine/edited/{copy.name}")
    assert copy.name.startswith(time.strftime("a-%Y-"))
    assert pipeline.write_twins(check=False) == 0
    assert kept(twin) == [copy]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"3", b"\xff\xfe", b"<<<<<<< ours\n", b'{"cells": [3]}', b'{"cells": 3}']
)
def test_what_is_no_notebook_any_more_is_kept_too(content, twin):
    twin.write_bytes(content)
    assert pipeline.write_twins(check=False) == 1
    assert [copy.read_bytes() for copy in kept(twin)] == [content]


def test_without_an_edit_nothing_is_kept(twin, capsys):
    saved(twin, opened_and_saved)
    assert not own_copies.edited(twin)
    assert pipeline.write_twins(check=True) == 1
    assert "keeps" not in capsys.readouterr().err
    assert pipeline.write_twins(check=False) == 1, "it is as its source gives it again"
    source = twin.with_suffix(".md")
    for word in ("A lemma", "A proof"):  # twice, as an author would, without a commit between
        source.write_text(SOURCE.replace("A claim", word))
        assert pipeline.write_twins(check=False) == 1
    assert kept(twin) == []
    assert "kept" not in capsys.readouterr().out
    source.write_text(SOURCE)
    saved(twin, EDITS["a word"])
    assert pipeline.write_twins(check=False) == 1
    first = nbformat.read(kept(twin)[0], 4).cells[0].source
    assert (first[:9], first[-1]) == ("# A proof", "!"), "source and twin have both changed"


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_no_committed_twin_counts_as_edited(source):
    assert not own_copies.edited(source.with_suffix(".ipynb"))


def test_two_edits_within_a_second_are_two_copies(twin):
    for edit in ("a word", "a value", "outputs"):
        saved(twin, EDITS[edit])
        pipeline.write_twins(check=False)
    assert len({copy.read_bytes() for copy in kept(twin)}) == 3


def test_where_no_copy_can_be_kept_the_edit_stays(twin):
    saved(twin, EDITS["a word"])
    mine = twin.read_bytes()
    (twin.parents[1] / "mine").write_text("a file")
    with pytest.raises(OSError, match="mine"):
        pipeline.write_twins(check=False)
    assert twin.read_bytes() == mine


def test_a_copy_that_is_cut_short_is_none(twin, monkeypatch):
    def full(path, copy):
        copy.write_bytes(path.read_bytes()[:10])
        raise OSError("no space left")

    monkeypatch.setattr(own_copies.shutil, "copy2", full)
    with pytest.raises(OSError, match="no space left"):
        own_copies.keep(twin, twin.parent / "kept")
    assert list((twin.parent / "kept").iterdir()) == []


def test_copies_to_work_in_are_made_once(twin, capsys):
    pipeline.write_copies()
    folder = twin.parents[1] / "mine" / "notebooks"
    assert sorted(path.name for path in folder.iterdir()) == ["a.ipynb", "a.md"]
    copy = nbformat.read(folder / "a.ipynb", 4)
    assert [cell.source for cell in copy.cells] == [cell.source.strip() for cell in nbformat.read(twin, 4).cells]
    assert [cell.source for cell in jupytext.read(folder / "a.md").cells] == [cell.source for cell in copy.cells]
    for theirs, other in (("a.ipynb", "a.md"), ("a.md", "a.ipynb")):
        (folder / theirs).write_text("mine")
        (folder / other).unlink()
        pipeline.write_copies()
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(theirs, "mine")]
        (folder / theirs).unlink()
        pipeline.write_copies()
        assert len(list(folder.iterdir())) == 2
    made = "notebooks copied to mine/notebooks: "
    stays = f"{made}0; those that were there stay as they are: 1"
    assert capsys.readouterr().out.splitlines() == [f"{made}1", *2 * [stays, f"{made}1"]]


def sync(path: Path) -> str:
    call = [sys.executable, "-m", "jupytext", "--sync", path.name]
    return subprocess.run(call, cwd=path.parent, capture_output=True, text=True, check=True).stdout


def test_jupytext_keeps_a_copy_and_its_text_alike(twin):
    pipeline.write_copies()
    notebook = twin.parents[1] / "mine" / "notebooks" / "a.ipynb"
    text, later = notebook.with_suffix(".md"), time.time()
    assert "Updating a.ipynb" not in sync(notebook), "they are alike from the beginning"
    for newer, older, value in ((text, notebook, "7"), (notebook, text, "8")):
        newer.write_text(newer.read_text().replace("seed: int = ", f"seed: int = {value}"))
        later += 10
        os.utime(newer, (later, later))
        assert f"seed: int = {value}" not in older.read_text()
        assert f"Updating {older.name}" in sync(newer)
        assert f"seed: int = {value}" in older.read_text()
    before, source = twin.read_bytes(), twin.with_suffix(".md").read_bytes()
    assert "Updating" not in sync(twin), "the project's own are no pair for Jupytext, as their text has more in it"
    assert (twin.read_bytes(), twin.with_suffix(".md").read_bytes()) == (before, source)


def test_make_lab_makes_the_copies_and_opens_them():
    planned = subprocess.run(["make", "-n", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    *before, lab = (line for line in planned.strip().splitlines() if not line.startswith("make["))
    assert any(line.endswith("book/notebooks.py copies") for line in before)
    assert lab.split()[1:] == ["lab", "--FileContentsManager.preferred_dir=mine/notebooks"]
    page = (ROOT / "book" / "work-in-notebooks.md").read_text()
    for target in set(re.findall(r"(?:`|^)make ([a-z]+)", page, re.MULTILINE)):
        assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE), target
