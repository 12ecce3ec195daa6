"""Notebooks elsewhere. Colab opens a single one where nothing of the project is: each stands alone. GitHub and nbviewer
show executed ones, on a branch of their own: figures as pictures, outputs beside their code."""

import ast
import base64
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import colab
import inputs
import nbformat
import pytest
import viewers
from browser import ADVICE, executable
from built_book import ROOT
from companion.figures.interactive import Moving
from nbformat.v4 import new_code_cell, new_notebook, new_output
from packaging.requirements import Requirement
from PIL import Image
from small_project import write_files

import notebooks as pipeline

ADDRESS = "https://" + "example.invalid/someone/project"
PYPROJECT = """\
build-system = {requires = ["hatchling"], build-backend = "hatchling.build"}
project = {name = "hmmlib", version = "0.1.0"}
"""
NEEDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
THERE = {*sys.stdlib_module_names, *colab.COLAB, "hmmlib", "companion", *(Requirement(one).name for one in NEEDS)}
READERS = {"open", "read_text", "read_bytes", "read_csv", "read_json", "loadtxt", "imread", "listdir"}
SVG = (
    '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">'
    '<style>.a {fill: #ff0000}</style><rect class="a" width="15" height="20"/></svg>'
)


def test_every_notebook_stands_alone():
    """It takes nothing for granted that Colab does not have: no other packages, no folders, no files that it reads."""
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        nodes = list(ast.walk(ast.parse(code := inputs.code_of(nbformat.read(path, 4)))))
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
        asked_for = set(re.findall(r'^if find_spec\("(\w+)"\)', code, re.MULTILINE))
        assert {name.split(".")[0] for name in imported} <= THERE | asked_for, path.stem
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
        assert not [text for text in texts if re.search(r"\.\./|^[./~]+\w+/", text)], path.stem
        assert not READERS & {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}, path.stem


def base_without_hmmlib(folder: Path) -> None:
    """In the place of Colab's environment, one that is made in no time: links to our own packages, without hmmlib."""
    venv.create(folder, with_pip=False, symlinks=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.search(r"hmmlib|\.pth$", entry.name):
            (colab.site_packages(folder) / entry.name).symlink_to(entry)


def test_a_good_notebook_runs_with_the_tree_at_hand_and_one_that_finds_no_library_fails_by_name(
    tmp_path, monkeypatch, capsys
):
    """The library of the tree at hand has the value 2; of the tag of notebook b there is none."""
    files = {"hmmlib/__init__.py": "value = 2\n", "pyproject.toml": PYPROJECT, ".gitignore": "build/\n"}
    files |= {"_config.yml": f"repository: {{url: {ADDRESS}}}\n", "parameters/smoke.yaml": "preset: smoke\n"}
    sources = {"a": ("import hmmlib\nprint(preset, hmmlib.value)", pipeline.tag()), "b": ("import hmmlib", "v0.0.0")}
    for name, (source, tag) in sources.items():
        first = pipeline.BOOTSTRAP.format(address=ADDRESS, tag=tag)
        cells = [new_code_cell(text) for text in (first, "preset = 'none'", source)]
        cells[1].metadata.tags = ["parameters"]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        files[f"notebooks/{name}.ipynb"] = nbformat.writes(new_notebook(cells=cells, metadata={"kernelspec": kernel}))
    write_files(tmp_path, "", files)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(colab, "make_base", base_without_hmmlib)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the checkout, which a notebook must not find
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # it means: none; hatchling is among the links

    def main(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["colab.py", *arguments])
        with pytest.raises(SystemExit) as end:
            colab.main()
        return int(end.value.code), "".join(capsys.readouterr())

    code, said = main("--preset", "smoke")
    own = tmp_path / "build" / "colab" / "notebooks" / "a"
    assert "smoke 2\n" in [colab.printed(c) for c in nbformat.read(own / "a.ipynb", 4).cells]
    assert sorted(path.name for path in own.iterdir()) == ["a.ipynb", "empty"]
    assert (code, len(re.findall(r"^a: ran in \d+\.\d s\n  installed: hmmlib 0\.1\.0$", said, re.MULTILINE))) == (1, 1)
    why = r"hmmlib was not installed: is there a repository \S+ with the tag v0\.0\.0\?"  # not the newest instead
    assert re.search(rf"(?s)^b: FAILED in .*{why}", said, re.MULTILINE), said
    found = colab.judge(new_notebook(), "", tmp_path, {"hmmlib": "0.1.0", "torch": "2"}).splitlines()
    assert found == ["hmmlib was not installed by git", "installed although Colab has it: torch"]
    for refused, words in (["c"], "no such notebook: c; choose from a, b"), (["--folder", "."], "holds other things"):
        code, said = main(*refused)
        assert (code, words in said) == (2, True)


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
    table = new_output("display_data", {"text/html": "<table></table>"})
    assert viewers.shown(None, table) is table


def test_outputs_come_to_the_code_that_gave_them_and_a_run_of_other_code_is_refused():
    def notebook(*sources: str) -> nbformat.NotebookNode:
        cells = [new_code_cell(source, outputs=[new_output("stream", text=f"of {source}")]) for source in sources]
        for cell in cells:
            cell.metadata.tags = [pipeline.INJECTED] * (cell.source == "injected")
        return new_notebook(cells=cells)

    made = viewers.merged(notebook("a", "b"), notebook("a", "injected", "b"), None)
    assert [(cell.source, cell.outputs[0].text) for cell in made.cells] == [("a", "of a"), ("b", "of b")]
    with pytest.raises(ValueError, match="executed with other code"):
        viewers.merged(notebook("a", "b"), notebook("a", "seed = 3", "b"), None)


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
    def git(folder: Path, words: str) -> str:
        call = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@localhost", *words.split()]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()

    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    origin, checkout = tmp_path / "origin.git", tmp_path / "checkout"
    git(tmp_path, "init --bare origin.git")
    git(tmp_path, "init -b main checkout")
    (folder := checkout / "build" / "viewers").mkdir(parents=True)
    (checkout / ".gitignore").write_text("build/\n")
    for words in ("add .", "commit -m first", "remote add origin ../origin.git", "push origin main"):
        git(checkout, words)
    for names in ([], ["a.ipynb", "b.ipynb"], ["b.ipynb"]):
        (folder / "a.ipynb").unlink(missing_ok=True)
        for name in names:
            (folder / name).write_text(f"{name} of {len(names)}\n")
        done = subprocess.run([ROOT / ".ci" / "publish-executed", "build/viewers"], cwd=checkout, capture_output=True)
        assert (done.returncode == 0) == bool(names), done.stderr
        if names:
            assert git(origin, "ls-tree --name-only -r executed").split() == names
            assert git(origin, "show executed:b.ipynb") == f"b.ipynb of {len(names)}"
            assert git(origin, "rev-list --count executed") == git(origin, "rev-list --count main") == "1"
        assert git(checkout, "status --porcelain") + git(checkout, "branch --list") == "* main"
