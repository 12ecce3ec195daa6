"""Colab opens a single notebook where nothing of the project is: each stands alone, and the proof of it can fail."""

import ast
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from types import SimpleNamespace

import colab
import inputs
import nbformat
import pytest
from built_book import ROOT
from nbformat.v4 import new_code_cell, new_notebook
from packaging.requirements import Requirement
from record import slow

import notebooks as pipeline

ADDRESS = "https://" + "example.invalid/someone/project"
PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "hmmlib"
version = "0.1.0"
"""
NEEDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
THERE = {*sys.stdlib_module_names, *colab.COLAB, "hmmlib", "companion", *(Requirement(one).name for one in NEEDS)}
READERS = {"open", "read_text", "read_bytes", "read_csv", "read_json", "loadtxt", "imread", "listdir"}


def leaning(code: str) -> set[str]:
    """What code takes for granted that Colab does not have: packages, folders, files that it reads."""
    nodes = list(ast.walk(ast.parse(code)))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
    found = {name for name in found if name.split(".")[0] not in THERE}
    texts = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    found |= {text for text in texts if re.search(r"\.\./|^[./~]+\w+/", text)}
    return found | READERS & {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}


def test_every_notebook_stands_alone_and_one_that_leans_on_the_checkout_is_noticed():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert leaning(inputs.code_of(nbformat.read(path, 4))) == set(), path.stem
    for line, word in (
        ("import hmmlib.models.hmm, jupytext", "jupytext"),
        ("def f():\n    from tests.witness import g", "tests.witness"),
        ("from . import witness", "."),
        ("p = '../results/quick'", "../results/quick"),
        ("text = open(name)", "open"),
    ):
        assert leaning(f"import torch\n{line}") == {word}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A committed project with one notebook and a library that has the value 1. In the place of Colab's environment is
    one made in no time: links to our own packages, without hmmlib."""
    files = {
        "_config.yml": f"repository: {{url: {ADDRESS}}}\n",
        ".gitignore": "build/\n",
        "parameters/smoke.yaml": "preset: smoke\n",
        "hmmlib/__init__.py": "value = 1\n",
        "pyproject.toml": PYPROJECT,
        "notebooks/a.ipynb": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def base(folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not re.search(r"hmmlib|\.pth$", entry.name):
                (colab.site_packages(folder) / entry.name).symlink_to(entry)

    def write(name: str, source: str, tag: str = pipeline.tag()) -> None:
        first = pipeline.BOOTSTRAP.format(address=ADDRESS, tag=tag)
        cells = [new_code_cell(text) for text in (first, "preset = 'none'", source)]
        cells[1].metadata.tags = ["parameters"]
        spec = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(new_notebook(cells=cells, metadata=spec), tmp_path / "notebooks" / f"{name}.ipynb")

    def main(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["colab.py", *arguments])
        with pytest.raises(SystemExit) as end:
            colab.main()
        return int(end.value.code)

    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(colab, "make_base", base)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the checkout, which a notebook must not find
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # it means: none; hatchling is among the links
    return SimpleNamespace(root=tmp_path, write=write, main=main)


def test_a_good_notebook_runs_with_the_tree_at_hand_and_one_that_finds_no_library_fails_by_name(project, capsys):
    project.write("a", "import hmmlib\nprint(preset, hmmlib.value)")
    project.write("b", "import hmmlib", tag="v0.0.0")
    (project.root / "hmmlib" / "__init__.py").write_text("value = 2\n")
    index = (project.root / ".git" / "index").read_bytes()
    assert project.main("--preset", "smoke") == 1
    own = project.root / "build" / "colab" / "notebooks" / "a"
    assert "smoke 2\n" in [colab.printed(c) for c in nbformat.read(own / "a.ipynb", 4).cells]
    assert (project.root / ".git" / "index").read_bytes() == index
    assert sorted(path.name for path in own.iterdir()) == ["a.ipynb", "empty"]
    out = capsys.readouterr().out
    assert re.search(r"^a: ran in \d+\.\d s\n  installed: hmmlib 0\.1\.0$", out, re.MULTILINE), out
    why = r"in this cell:\nimport hmmlib\n.*No module named 'hmmlib'.*no hmmlib was installed"  # not the newest instead
    assert re.search(rf"(?s)^b: FAILED in .*{why}", out, re.MULTILINE), out


@slow
def test_a_notebook_whose_kernel_dies_fails_by_name(project, capsys):
    """The quick one: a notebook that finds no library, above. The kernel has a second to say at which cell it is."""
    project.write("a", "import os\nimport time\nos._exit(time.sleep(1) or 1)")
    assert project.main() == 1
    assert re.search(r"(?s)^a: FAILED in .*os\._exit\(.*died", capsys.readouterr().out, re.MULTILINE)


def test_other_installs_unknown_names_and_a_folder_with_other_things_are_refused(project, capsys, tmp_path):
    packages = {"hmmlib": "0.1.0", "torch": "2"}
    found = colab.judge(new_notebook(), "", tmp_path, packages).splitlines()
    assert found == ["hmmlib was not installed by git", "installed although Colab has it: torch"]
    assert project.main("b") == 2
    assert "no such notebook: b; choose from a" in capsys.readouterr().err
    assert project.main("--folder", str(project.root)) == 2
    assert "holds other things" in capsys.readouterr().err
    assert (project.root / "notebooks" / "a.ipynb").is_file()


@slow
def test_a_notebook_of_the_book_runs_as_in_colab():
    """The quick one: the good notebook, above."""
    call = [sys.executable, ROOT / "book" / "colab.py", "2-setting", "--preset", "smoke"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    executed = nbformat.read(ROOT / "build" / "colab" / "notebooks" / "2-setting" / "2-setting.ipynb", 4)
    assert "injected-parameters" in json.dumps(executed)
