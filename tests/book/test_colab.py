"""Colab opens a single notebook where nothing of the project is: each stands alone, and the script that proves it can fail."""

import ast
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace

import colab
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from packaging.requirements import Requirement
from record import slow

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]

ADDRESS = "https://" + "example.invalid/someone/project"
NOWHERE = f"{ADDRESS}/nowhere"
READERS = {"open", "read_text", "read_bytes", "read_csv", "read_json", "loadtxt", "imread", "listdir"}
BACKEND = '''
import zipfile
def build_wheel(folder, *settings):
    """A wheel without tools, so that a test needs no network."""
    name = "hmmlib-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("hmmlib/__init__.py")
        wheel.writestr("hmmlib-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: hmmlib\\nVersion: 0.1.0\\n")
        wheel.writestr("hmmlib-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("hmmlib-0.1.0.dist-info/RECORD", "")
    return name
'''


def leaning(notebook: nbformat.NotebookNode) -> list[str]:
    """What a notebook takes for granted that Colab does not have: its install, packages, files beside it."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    found = [] if code[0] == pipeline.bootstrap() else ["its first cell"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    there = {*sys.stdlib_module_names, *colab.COLAB, "hmmlib", *(Requirement(d).name for d in project["dependencies"])}
    for node in ast.walk(ast.parse(re.sub(r"(?m)^( *)[%!].*$", r"\1pass", "\n".join(code[1:])))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] not in there]
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.split(".")[0] not in there):
            found.append(node.module or ".")
        if isinstance(node, ast.Constant) and re.search(r"\.\./|^[./~]+\w+/", str(node.value)):
            found.append(node.value)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found += [name] if name in READERS else []
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_notebook_stands_alone(path):
    assert leaning(nbformat.read(path, 4)) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("import hmmlib.models.hmm, jupytext", "jupytext"),
        ("def f():\n    from tests.witness import g", "tests.witness"),
        ("from . import witness", "."),
        ("p = '../results/quick'", "../results/quick"),
        ("p = '/content/results'", "/content/results"),
        ("text = open(name)", "open"),
        ("frame = pandas.read_csv(name)", "read_csv"),
    ],
)
def test_a_notebook_that_leans_on_the_checkout_is_noticed(line, word):
    first = new_code_cell(pipeline.bootstrap())
    cells = [first, new_code_cell(f"import torch\n{line}")]
    assert leaning(new_notebook(cells=cells)) == [word]
    assert leaning(new_notebook(cells=cells[::-1]))[0] == "its first cell"


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A stand-in for Colab's environment, made in no time: links to our own packages, without hmmlib; and a package `lent`."""
    base = tmp_path_factory.mktemp("colab") / "base"
    venv.create(base, with_pip=False, symlinks=True)
    packages = colab.site_packages(base)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.search(r"hmmlib|\.pth$", entry.name):
            (packages / entry.name).symlink_to(entry)
    wheel(packages.parent, "lent", "1.0")
    with zipfile.ZipFile(packages.parent / "lent-1.0-py3-none-any.whl") as file:
        file.extractall(packages)
    return base


def run(python: Path, *arguments: str | Path) -> str:
    call = [str(python), *map(str, arguments)]
    return subprocess.run(call, env=colab.surroundings(), capture_output=True, text=True, check=True).stdout.strip()


def test_a_layer_sees_the_base_and_keeps_what_it_installs(base, tmp_path, monkeypatch):
    wheel(tmp_path, "own", "1.0", "Requires-Dist: lent>=1\n")
    wheel(tmp_path, "lent", "2.0")
    first, second = (colab.make_layer(tmp_path / name, base) for name in ("first", "second"))
    install = ("-m", "pip", "install", "--quiet", "--no-index", "--find-links", tmp_path)
    version = ("-c", "import lent; print(lent.version, lent.__file__)")

    run(first, *install, "own")
    assert colab.installed(tmp_path / "first") == {"own": "1.0"}, "lent is there already: pip must not bring it again"
    assert run(first, *version) == f"1.0 {colab.site_packages(base) / 'lent.py'}"
    assert colab.installed(tmp_path / "second") == {}
    missing = subprocess.run([second, "-c", "import own"], capture_output=True, text=True, check=False)
    assert "No module named 'own'" in missing.stderr

    run(second, *install, "lent==2.0")
    assert run(second, *version).startswith("2.0")
    assert run(first, *version).startswith("1.0"), "the base has changed"
    monkeypatch.setattr(colab, "COLAB", ("torch", "lent"))
    told = colab.judge([], "", tmp_path / "second", {"hmmlib": "0.1.0"} | colab.installed(tmp_path / "second"))
    assert told == ["hmmlib was not installed by git", "installed although Colab has it: lent"]


def test_the_base_is_made_once_for_a_list(tmp_path, monkeypatch):
    installs = []

    def call(*command, **options):
        (tmp_path / "b").mkdir(exist_ok=True)
        installs.extend([command[5:]] if "pip" in command else [])

    monkeypatch.setattr(colab, "call", call)
    for wanted in (["a==1"], ["a==1"], ["a==1", "b"]):
        colab.make_base(tmp_path / "b", wanted)
    assert installs == [("a==1",), ("a==1", "b")]


def test_the_base_has_the_locks_versions():
    lock = (ROOT / "requirements.lock").read_text().split()
    assert [name.split("==")[0] for name in colab.requirements()] == list(colab.COLAB)
    assert {*colab.requirements()} - {*lock} <= {"pandas"}


@pytest.fixture
def project(base, tmp_path, monkeypatch):
    """A committed project with one notebook and a library that says 1, run with the stand-in for a base."""
    files = {
        "_config.yml": f"repository: {{url: {ADDRESS}}}\n",
        "requirements.lock": "numpy==1\n",
        ".gitignore": "build/\n",
        "parameters/smoke.yaml": "preset: smoke\n",
        "hmmlib/__init__.py": "said = 1\n",
        "backend.py": BACKEND,
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    (tmp_path / "notebooks").mkdir()

    def write(*sources: str, address: str = ADDRESS, tag: str = "") -> None:
        texts = [pipeline.BOOTSTRAP.format(address=address, tag=tag or pipeline.tag()), "preset = 'none'", *sources]
        cells = [new_code_cell(text) for text in texts]
        cells[1].metadata.tags = ["parameters"]
        spec = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(new_notebook(cells=cells, metadata=spec), tmp_path / "notebooks" / "a.ipynb")

    write("import hmmlib\nprint(preset, hmmlib.said)")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], check=True)

    def link(folder: Path, wanted: list[str]) -> None:
        folder.symlink_to(base)

    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(colab, "make_base", link)
    monkeypatch.setattr(colab, "device", lambda folder: "")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the checkout, which a notebook must not find
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def main(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["colab.py", *arguments])
        with pytest.raises(SystemExit) as end:
            colab.main()
        return int(end.value.code)

    return SimpleNamespace(root=tmp_path, write=write, main=main, own=tmp_path / "build" / "colab" / "notebooks" / "a")


def test_a_good_notebook_runs_with_the_tree_at_hand(project, capsys):
    (project.root / "hmmlib" / "__init__.py").write_text("said = 2\n")
    index = (project.root / ".git" / "index").read_bytes()
    assert project.main("a", "--preset", "smoke") == 0
    assert "smoke 2\n" in [colab.printed(c) for c in nbformat.read(project.own / "a.ipynb", 4).cells]
    assert (project.root / ".git" / "index").read_bytes() == index
    assert sorted(path.name for path in project.own.iterdir()) == ["a.ipynb", "empty"]
    assert [path.name for path in (project.own / "empty").iterdir()] == ["a.ipynb"]
    said = capsys.readouterr().out
    assert re.search(r"^a +\d+\.\d +\d+\.\d +hmmlib and 0 more +ran$", said, re.MULTILINE), said
    assert "1 files in it are not as committed" in said
    assert "installed by each: hmmlib 0.1.0\n" in said


@pytest.mark.parametrize(
    ("cell", "address", "words"),
    [
        ("import hmmlib", NOWHERE, ["\na: ", "No module named 'hmmlib'", "no hmmlib was installed", NOWHERE]),
        ("import hmmlib\nassert hmmlib.said > 1, 'too small'", ADDRESS, ["the cell `assert hmmlib.said", "too small"]),
        # the kernel dies a second later, so that it has time to say which cell it was at
        ("import os\nimport time\nos._exit(time.sleep(1) or 1)", ADDRESS, ["the cell `os._exit(", "died"]),
    ],
    ids=["nowhere", "wrong", "dead"],
)
def test_a_bad_notebook_fails_by_name(project, capsys, cell, address, words):
    project.write(cell, address=address)
    assert project.main() == 1
    said = capsys.readouterr().out
    assert re.search("^a .*FAILED$", said, re.MULTILINE), said
    assert all(word in said for word in words), said


def test_a_version_without_a_tag_is_not_replaced_by_the_newest(project, capsys):
    project.write("import hmmlib", tag="v0.0.0")
    assert project.main() == 1
    assert "no hmmlib was installed" in capsys.readouterr().out


def test_cells_that_were_passed_over_are_told(tmp_path):
    error = new_output("error", ename="ValueError", evalue="", traceback=[])
    begun = new_code_cell("one()", execution_count=1, outputs=[error])
    told = colab.judge([begun, new_code_cell("import x\ntwo()"), new_code_cell("")], "", tmp_path, {})
    assert told[:2] == ["an error, and the run went on: the cell `one()`", "not run: the cell `two()`"]


def test_a_library_from_elsewhere_is_told(tmp_path):
    inside = str(colab.site_packages(tmp_path) / "hmmlib" / "__init__.py")
    assert colab.judge_probe({"python": str(tmp_path), "hmmlib": inside}, tmp_path) == []
    checkout = str(ROOT / "hmmlib" / "__init__.py")
    told = colab.judge_probe({"python": sys.prefix, "hmmlib": checkout}, tmp_path)
    assert [word in line for word, line in zip((sys.prefix, checkout), told, strict=True)] == [True, True]
    assert "imported from None" in colab.judge_probe({"python": str(tmp_path), "hmmlib": None}, tmp_path)[0]


def test_an_unknown_name_is_refused(project, capsys):
    assert project.main("b") == 2
    assert "no such notebook: b; choose from a" in capsys.readouterr().err


def test_a_folder_with_other_things_is_left_alone(project, capsys):
    assert project.main("--folder", str(project.root)) == 2
    assert "holds other things" in capsys.readouterr().err
    assert (project.root / "notebooks" / "a.ipynb").is_file()


@slow
def test_a_notebook_of_the_book_runs_as_in_colab():
    call = [sys.executable, ROOT / "book" / "colab.py", "2-setting", "--preset", "smoke"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^2-setting .* hmmlib and [1-9]\d* more +ran$", done.stdout, re.MULTILINE)
    executed = nbformat.read(ROOT / "build" / "colab" / "notebooks" / "2-setting" / "2-setting.ipynb", 4)
    assert "injected-parameters" in json.dumps(executed)
