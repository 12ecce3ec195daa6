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

import nbformat
import pytest
from browser import ADVICE, executable
from built_book import ROOT
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_notebook, new_output
from packaging.requirements import Requirement
from PIL import Image
from small_project import write_files

import colab
import notebooks as pipeline
import viewers
from hmmbook.figures.interactive import Moving

ADDRESS = "https://" + "example.invalid/someone/project"
PYPROJECT = """\
build-system = {requires = ["hatchling"], build-backend = "hatchling.build"}
project = {name = "hmmlib", version = "0.1.0"}
"""
SVG = (
    '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">'
    '<style>.a {fill: #ff0000}</style><rect class="a" width="15" height="20"/></svg>'
)
FILE_READERS = {"open", "read_text", "read_bytes", "read_csv", "read_json", "loadtxt", "imread", "listdir"}


# Colab


def code_of(path: Path) -> str:
    """Give what a notebook runs, as plain Python."""
    code = ""
    for cell in filter(pipeline.is_code, nbformat.read(path, 4).cells):
        code += TransformerManager().transform_cell(cell.source) + "\n"
    return code


def imported_packages(tree: ast.Module) -> set[str]:
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                packages.add(alias.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or ".").split(".")[0])
    return packages


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_a_notebook_takes_nothing_for_granted_that_colab_does_not_have(source):
    """It asks for no other packages, no folders, and no files that it reads."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = [Requirement(line).name for line in project["dependencies"]]
    code = code_of(source.with_suffix(".ipynb"))
    tree = ast.parse(code)
    installed_by_itself = re.findall(r'^if find_spec\("(\w+)"\)', code, re.MULTILINE)
    present = {*sys.stdlib_module_names, *colab.COLAB, "hmmlib", "hmmbook", *dependencies, *installed_by_itself}
    assert imported_packages(tree) <= present
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            assert not re.search(r"\.\./|^[./~]+\w+/", str(node.value))
        assert getattr(node, "attr", getattr(node, "id", "")) not in FILE_READERS


def base_without_hmmlib(folder: Path) -> None:
    """Make, in no time, what stands for Colab's environment: links to our own packages, without hmmlib."""
    venv.create(folder, with_pip=False, symlinks=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.search(r"hmmlib|\.pth$", entry.name):
            (colab.site_packages(folder) / entry.name).symlink_to(entry)


def notebook_with(source: str, tag: str) -> str:
    """Write a notebook that installs a tag of the library, sets a parameter, and runs a line."""
    install = new_code_cell(pipeline.BOOTSTRAP.format(address=ADDRESS, tag=tag))
    parameters = new_code_cell("preset = 'none'", metadata={"tags": ["parameters"]})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = new_notebook(cells=[install, parameters, new_code_cell(source)], metadata={"kernelspec": kernel})
    return nbformat.writes(notebook)


@pytest.fixture
def call_colab(tmp_path, monkeypatch, capsys):
    """Call colab.py in a project of two notebooks: its exit code, and what it printed.

    The library of the tree at hand has the value 2. There is no tag for notebook b.
    """
    files = {
        "hmmlib/__init__.py": "value = 2\n",
        "pyproject.toml": PYPROJECT,
        ".gitignore": "build/\n",
        "_config.yml": f"repository: {{url: {ADDRESS}}}\n",
        "parameters/smoke.yaml": "preset: smoke\n",
        "notebooks/a.ipynb": notebook_with("import hmmlib\nprint(preset, hmmlib.value)", pipeline.tag()),
        "notebooks/b.ipynb": notebook_with("import hmmlib", "v0.0.0"),
    }
    write_files(tmp_path, files)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(colab, "make_base", base_without_hmmlib)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the checkout, which a notebook must not find
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # It means that there is none; hatchling is among the links.

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["colab.py", *arguments])
        with pytest.raises(SystemExit) as end:
            colab.main()
        return int(end.value.code), "".join(capsys.readouterr())

    return call


def test_a_good_notebook_runs_with_the_tree_at_hand_and_one_that_finds_no_library_fails_by_name(call_colab, tmp_path):
    code, output = call_colab("--preset", "smoke")
    assert code == 1
    assert re.search(r"^a: ran in \d+\.\d s\n  installed: hmmlib 0\.1\.0$", output, re.MULTILINE), output
    reason = r"hmmlib was not installed: is there a repository \S+ with the tag v0\.0\.0\?"  # not the newest instead
    assert re.search(rf"(?s)^b: FAILED in .*{reason}", output, re.MULTILINE), output
    results = tmp_path / "build" / "colab" / "notebooks" / "a"
    assert sorted(path.name for path in results.iterdir()) == ["a.ipynb", "empty"]
    last_cell = nbformat.read(results / "a.ipynb", 4).cells[-1]
    assert colab.printed(last_cell) == "smoke 2\n"


def test_a_wrong_name_is_refused(call_colab):
    code, output = call_colab("c")
    assert code == 2
    assert "no such notebook: c; choose from a, b" in output


def test_a_library_from_elsewhere_and_a_package_that_colab_has_are_told(tmp_path):
    problem = colab.judge(new_notebook(), "", tmp_path, {"hmmlib": "0.1.0", "torch": "2"})
    assert problem == "hmmlib was not installed by git\ninstalled although Colab has it: torch"


# Viewers


def as_picture(output) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"]))).convert("RGB")


@pytest.mark.skipif(executable() is None, reason=ADVICE)
def test_figures_become_pictures_with_their_styles(browser):
    page = browser.new_page()
    drawn = viewers.shown(page, new_output("display_data", {"image/svg+xml": SVG, "text/plain": "a figure of mine"}))
    picture = as_picture(drawn)
    assert picture.size == (30, 20)
    assert picture.getpixel((5, 10)) == (255, 0, 0)
    assert picture.getpixel((25, 10)) == (255, 255, 255)
    assert drawn["data"]["text/plain"] == "a figure of mine"
    script = 'document.querySelector(".moving").innerHTML = "<p style=\'background: #0000ff; height: 40px\'></p>"'
    figure = f'{viewers.MOVING} id="moving-a">\n<p class="still">words</p>\n<script>\n{script}\n</script>\n</div>'
    picture = as_picture(viewers.shown(page, new_output("display_data", {"text/html": figure})))
    assert picture.getpixel((picture.width // 2, picture.height // 2)) == (0, 0, 255), "the script has run"


def test_a_figure_that_moves_is_known_and_a_table_stays_as_it_is():
    assert Moving("prompt", {"a": 1}, "words")._repr_html_().startswith(viewers.MOVING)
    table = new_output("display_data", {"text/html": "<table></table>"})
    assert viewers.shown(None, table) is table


def notebook_of(*sources: str) -> nbformat.NotebookNode:
    """A notebook with an output to each cell that names it."""
    cells = []
    for source in sources:
        output = new_output("stream", text=f"of {source}")
        cells.append(new_code_cell(source, outputs=[output]))
    return new_notebook(cells=cells)


def test_outputs_come_to_the_code_that_gave_them_and_a_run_of_other_code_is_refused():
    notebook = new_notebook(cells=[new_code_cell("a"), new_code_cell("b")])
    pipeline.with_outputs(notebook, notebook_of("a", "injected", "b"))
    first, second = notebook.cells
    assert first.outputs[0].text == "of a"
    assert second.outputs[0].text == "of b"
    for other in (notebook_of("a", "injected", "c"), notebook_of("b", "a"), notebook_of("a")):
        with pytest.raises(ValueError, match="executed with other code"):
            pipeline.with_outputs(notebook, other)


def test_all_notebooks_are_collected_in_the_books_order_and_lead_to_each_other(monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "executed_copy", lambda name: tmp_path / f"{name}.ipynb")
    with pytest.raises(SystemExit, match=r"^in-pictures: .*No such file.*; run `make book`"):
        viewers.collect(None)
    for source in pipeline.sources():
        shutil.copy(source.with_suffix(".ipynb"), tmp_path)
    files = viewers.collect(None)
    top = files.pop("README.md")
    assert set(files) == {f"{source.stem}.ipynb" for source in pipeline.sources()}
    assert re.findall(r"^- .*\]\((.+)\)$", top, re.MULTILINE) == list(files)
    assert "colab.research" not in "".join(files.values())
    assert "](3-1-prompt.ipynb" in files["3-hmm.ipynb"] + files["in-pictures.ipynb"]


def git(folder: Path, words: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    command = ["git", "-C", str(folder), *author, *words.split()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A checkout with one commit, and an empty folder build/viewers."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "checkout"
    git(tmp_path, "init --bare origin.git")
    git(tmp_path, "init -b main checkout")
    (folder / "build" / "viewers").mkdir(parents=True)
    (folder / ".gitignore").write_text("build/\n")
    for words in ("add .", "commit -m first", "remote add origin ../origin.git", "push origin main"):
        git(folder, words)
    return folder


def publish(checkout: Path) -> int:
    command = [ROOT / ".ci" / "publish-executed", "build/viewers"]
    return subprocess.run(command, cwd=checkout, capture_output=True).returncode


@pytest.mark.outside
def test_the_branch_is_what_the_folder_holds_and_nothing_else_changes(checkout, tmp_path):
    folder = checkout / "build" / "viewers"
    origin = tmp_path / "origin.git"
    assert publish(checkout) != 0, "there is nothing to publish"
    (folder / "a.ipynb").write_text("first")
    (folder / "b.ipynb").write_text("first")
    assert publish(checkout) == 0
    assert git(origin, "ls-tree --name-only -r executed").split() == ["a.ipynb", "b.ipynb"]
    (folder / "a.ipynb").unlink()
    (folder / "b.ipynb").write_text("second")
    assert publish(checkout) == 0
    assert git(origin, "ls-tree --name-only -r executed") == "b.ipynb"
    assert git(origin, "show executed:b.ipynb") == "second"
    assert git(origin, "rev-list --count executed") == "1"
    assert git(origin, "rev-list --count main") == "1"
    assert git(checkout, "status --porcelain") == ""
    assert git(checkout, "branch --list") == "* main"
