"""Executed notebooks for GitHub and nbviewer: figures as pictures, outputs beside their code, a branch of its own."""

import base64
import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import viewers
from browser import ADVICE, executable
from built_book import ROOT
from companion.figures.interactive import Moving
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

import notebooks as pipeline

SVG = (
    '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">'
    '<style>.a {fill: #ff0000}</style><rect class="a" width="15" height="20"/></svg>'
)


@pytest.mark.skipif(executable() is None, reason=ADVICE)
def test_figures_become_pictures_with_their_styles_and_all_else_stays(browser):
    script = 'document.querySelector(".moving").innerHTML = "<p style=\'background: #0000ff; height: 40px\'></p>"'
    figure = f'{viewers.MOVING} id="moving-a">\n<p class="still">words</p>\n<script>\n{script}\n</script>\n</div>'
    page, pictures = browser.new_page(), []
    for data in ({"image/svg+xml": SVG, "text/plain": "a figure of mine"}, {"text/html": figure}):
        shown = viewers.shown(page, new_output("display_data", data))
        pictures.append(Image.open(io.BytesIO(base64.b64decode(shown["data"].pop("image/png")))).convert("RGB"))
        assert shown["data"] == {"text/plain": data.get("text/plain", "a figure")}
    drawn, moved = pictures
    assert (drawn.size, drawn.getpixel((5, 10)), drawn.getpixel((25, 10))) == ((30, 20), (255, 0, 0), (255,) * 3)
    assert moved.getpixel((moved.width // 2, moved.height // 2)) == (0, 0, 255), "the script has run"
    assert Moving("prompt", {"a": 1}, "words")._repr_html_().startswith(viewers.MOVING)
    for output in (new_output("stream", text="5\n"), new_output("display_data", {"text/html": "<table></table>"})):
        assert viewers.shown(None, output) is output


def test_outputs_come_to_the_code_that_gave_them_and_a_run_of_other_code_is_refused():
    def notebook(*sources: str) -> nbformat.NotebookNode:
        cells = [new_code_cell(source, outputs=[new_output("stream", text=f"of {source}")]) for source in sources]
        for cell in cells:
            cell.metadata.tags = [pipeline.INJECTED] * (cell.source == "injected")
        return new_notebook(cells=[new_markdown_cell("# Text"), *cells])

    made = viewers.merged(notebook("a", "b"), notebook("a", "injected", "b"), None)
    assert [cell.source for cell in made.cells] == ["# Text", "a", "b"]
    assert [cell.outputs[0].text for cell in made.cells[1:]] == ["of a", "of b"]
    for other in (("a",), ("a", "c"), ("b", "a"), ("a", "seed = 3", "b")):
        with pytest.raises(ValueError, match="executed with other code"):
            viewers.merged(notebook("a", "b"), notebook(*other), None)


def test_all_notebooks_are_collected_and_lead_to_each_other(monkeypatch, tmp_path):
    """On copies without outputs: links to those beside it, and a list in the book's order."""
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path)
    with pytest.raises(SystemExit, match=r"^in-pictures: .*No such file.*; run `make book`"):
        viewers.collect(None)
    for source in pipeline.sources():
        shutil.copy(source.with_suffix(".ipynb"), tmp_path)
    files = viewers.collect(None)
    top = files.pop("README.md")
    assert {*files} == {f"{source.stem}.ipynb" for source in pipeline.sources()}
    assert re.findall(r"^- .*\]\((.+)\)$", top, re.MULTILINE) == [*files]
    assert "colab.research" not in "".join(files.values())
    assert "](3-1-prompt.ipynb" in files["3-hmm.ipynb"] + files["in-pictures.ipynb"]


@pytest.mark.outside
def test_the_branch_is_what_the_folder_holds_and_nothing_else_changes(tmp_path, monkeypatch):
    def git(folder: Path, *words: str) -> str:
        call = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()

    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    origin, checkout = tmp_path / "origin.git", tmp_path / "checkout"
    (folder := checkout / "build" / "viewers").mkdir(parents=True)
    (checkout / ".gitignore").write_text("build/\n")
    for words in ("init --bare origin.git", "init -b main checkout"):
        git(tmp_path, *words.split())
    for words in ("add .", "commit -m first", "remote add origin ../origin.git", "push origin main"):
        git(checkout, *words.split())
    for names in ([], ["README.md", "a.ipynb", "b.ipynb"], ["README.md", "b.ipynb"]):
        (folder / "a.ipynb").unlink(missing_ok=True)
        for name in names:
            (folder / name).write_text(f"{name} of {len(names)}\n")
        done = subprocess.run([ROOT / ".ci" / "publish-executed", "build/viewers"], cwd=checkout, capture_output=True)
        assert (done.returncode == 0) == bool(names), done.stderr
        if names:
            assert git(origin, "ls-tree", "--name-only", "-r", "executed").split() == names
            assert git(origin, "show", "executed:b.ipynb") == f"b.ipynb of {len(names)}"
            assert git(origin, "rev-list", "--count", "executed") == git(origin, "rev-list", "--count", "main") == "1"
        assert git(checkout, "status", "--porcelain") == ""
        assert git(checkout, "branch", "--list").split() == ["*", "main"]
    assert git(checkout, "rev-parse", "--short", "main") in git(origin, "log", "-1", "--format=%s", "executed")
