"""The executed notebooks for GitHub and nbviewer: pictures in place of what these do not draw, and a branch of their own."""

import base64
import io
import os
import subprocess
from pathlib import Path

import browser
import nbformat
import pytest
import viewers
from companion.figures.interactive import Moving
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
SVG = (
    '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">'
    '<style>.a {fill: #ff0000}</style><rect class="a" width="15" height="20"/></svg>'
)


@pytest.fixture(scope="module")
def page():
    if browser.executable() is None:
        pytest.skip(browser.ADVICE)
    with browser.chromium() as program:
        yield program.new_page()


def drawn(output) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"]))).convert("RGB")


def result(**data) -> nbformat.NotebookNode:
    return new_output("display_data", {kind.replace("_", "/"): value for kind, value in data.items()})


def test_a_drawing_becomes_a_picture_with_its_styles(page):
    shown = viewers.shown(page, new_output("display_data", {"image/svg+xml": SVG, "text/plain": "a figure of mine"}))
    assert set(shown["data"]) == {"image/png", "text/plain"}
    assert shown["data"]["text/plain"] == "a figure of mine"
    assert shown.metadata["image/png"] == {"width": 30, "height": 20}
    image = drawn(shown)
    assert image.size == (30, 20)
    assert image.getpixel((5, 10)) == (255, 0, 0)
    assert image.getpixel((25, 10)) == (255, 255, 255)


def test_a_figure_that_moves_becomes_a_picture_of_how_it_begins(page):
    script = 'document.querySelector(".moving").innerHTML = "<p style=\'background: #0000ff; height: 40px\'></p>"'
    figure = f'{viewers.MOVING} id="moving-a">\n<p class="still">words</p>\n<script>\n{script}\n</script>\n</div>'
    image = drawn(viewers.shown(page, result(text_html=figure)))
    assert image.getpixel((image.width // 2, image.height // 2)) == (0, 0, 255), "the script has run"
    assert Moving("prompt", "prompt", {"a": 1}, "words")._repr_html_().startswith(viewers.MOVING)


@pytest.mark.parametrize(
    "output", [new_output("stream", text="5\n"), result(text_html="<table></table>"), result(text_plain="7")]
)
def test_all_else_stays_as_it_is(output):
    assert viewers.shown(None, output) is output


def notebook(*sources: str, tags: str = "") -> nbformat.NotebookNode:
    cells = [new_code_cell(source, execution_count=k, outputs=[]) for k, source in enumerate(sources, 1)]
    for cell in cells:
        cell.outputs = [new_output("stream", text=f"of {cell.source}")]
        cell.metadata.tags = [pipeline.INJECTED] if cell.source == tags else []
    return new_notebook(cells=[new_markdown_cell("# Text"), *cells])


def test_outputs_come_to_the_code_that_gave_them():
    twin = notebook("a", "b")
    for cell in twin.cells[1:]:
        cell.outputs = []
    made = viewers.merged(twin, notebook("a", "seed = 3", "b", tags="seed = 3"), None)
    assert [cell.source for cell in made.cells] == ["# Text", "a", "b"]
    assert [cell.outputs[0].text for cell in made.cells[1:]] == ["of a", "of b"]
    assert [cell.execution_count for cell in made.cells[1:]] == [1, 3]


@pytest.mark.parametrize(
    "other", [notebook("a"), notebook("a", "c"), notebook("b", "a"), notebook("a", "seed = 3", "b")]
)
def test_a_run_of_other_code_is_refused(other):
    with pytest.raises(ValueError, match="executed with other code"):
        viewers.merged(notebook("a", "b"), other, None)


def test_what_is_not_executed_is_told_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path)
    with pytest.raises(SystemExit, match=r"^in-pictures: .*No such file.*; run `make book`"):
        viewers.collect(None)


def test_all_notebooks_are_collected_and_lead_to_each_other(monkeypatch, tmp_path):
    """On copies whose outputs are words: each as its twin, with links to those beside it, and a list in the book's order."""
    for source in pipeline.sources():
        run = nbformat.read(source.with_suffix(".ipynb"), 4)
        for cell in (cell for cell in run.cells if cell.cell_type == "code"):
            cell.outputs = [new_output("stream", text="said\n")]
        nbformat.write(run, tmp_path / f"{source.stem}.ipynb")
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path)
    files = viewers.collect(None)
    stems = {source.stem for source in pipeline.sources()}
    assert {*files} == {"README.md", *(f"{stem}.ipynb" for stem in stems)}
    listed = [
        line.split("](")[1].removesuffix(".ipynb)") for line in files["README.md"].splitlines() if line[:2] == "- "
    ]
    assert sorted(listed) == sorted(stems)
    assert listed[:2] == ["in-pictures", "2-setting"]
    for stem in stems:
        cells = nbformat.reads(files[f"{stem}.ipynb"], 4).cells
        assert all(cell.outputs[0].text == "said\n" for cell in cells if cell.cell_type == "code")
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        assert "colab.research" not in text
    assert "](3-1-prompt.ipynb" in files["3-hmm.ipynb"] + files["in-pictures.ipynb"]


def git(folder: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    call = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
    return subprocess.run(call, env=own, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one commit on main, whose origin is a bare repository beside it."""
    origin, checkout = tmp_path / "origin.git", tmp_path / "checkout"
    for words in (["init", "--quiet", "--bare", str(origin)], ["init", "--quiet", "-b", "main", str(checkout)]):
        git(tmp_path, *words)
    (checkout / ".gitignore").write_text("build/\n")
    (checkout / "own.txt").write_text("mine\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    git(checkout, "remote", "add", "origin", str(origin))
    git(checkout, "push", "--quiet", "origin", "main")
    return checkout


def publish(checkout: Path) -> subprocess.CompletedProcess:
    call = [str(ROOT / ".ci" / "publish-executed"), "build/viewers"]
    return subprocess.run(call, cwd=checkout, capture_output=True, text=True, check=False)


@pytest.mark.outside
def test_the_branch_is_what_the_folder_holds_and_nothing_else_changes(checkout):
    folder, origin = checkout / "build" / "viewers", checkout.parent / "origin.git"
    folder.mkdir(parents=True)
    for names in (["a.ipynb", "b.ipynb", "README.md"], ["b.ipynb", "README.md"]):
        for path in folder.iterdir():
            path.unlink()
        for name in names:
            (folder / name).write_text(f"{name} of {len(names)}\n")
        done = publish(checkout)
        assert done.returncode == 0, done.stderr
        assert git(origin, "ls-tree", "--name-only", "-r", "executed").split() == sorted(names)
        assert git(origin, "show", "executed:b.ipynb") == f"b.ipynb of {len(names)}"
        assert git(origin, "rev-list", "--count", "executed") == "1"
        assert git(origin, "rev-list", "--count", "main") == "1"
        assert git(checkout, "status", "--porcelain") == ""
        assert git(checkout, "branch", "--list").split() == ["*", "main"]
    assert git(checkout, "rev-parse", "--short", "main") in git(origin, "log", "-1", "--format=%s", "executed")


@pytest.mark.outside
def test_an_empty_folder_is_not_published(checkout):
    (checkout / "build" / "viewers").mkdir(parents=True)
    assert publish(checkout).returncode != 0
    assert git(checkout.parent / "origin.git", "branch", "--list").split() == ["main"]
