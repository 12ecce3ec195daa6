"""The project's own files agree with each other: lock, environment, twins, notebooks, layers, tests of mutants."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import importlinter  # noqa: F401, without it these tests are left out
import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

import hmmlib
import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
each_source = pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)


def test_the_lock_has_exact_versions_with_hashes_within_each_requirements_range_and_conda_the_same():
    text = (ROOT / "requirements.lock").read_text()
    locked = [line.removesuffix(" \\") for line in text.splitlines() if line[0].isalnum()]
    _, *parts = re.split(r"^(?=\w)", text, flags=re.MULTILINE)
    assert len(parts) == len(locked) > 150
    version, hashes = r"[a-z0-9.-]+==[A-Za-z0-9.]+( ; [^\\]+)?", r"( \\\n    --hash=sha256:[0-9a-f]{64})+"
    assert not [part for part in parts if not re.fullmatch(version + hashes + r"\n", part)]
    assert yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][-1]["pip"] == locked
    versions = dict(line.split(" ")[0].split("==") for line in locked)
    extras = SETTINGS["project"]["optional-dependencies"]
    assert set(extras) == {"adapters", "book", "lab", "sweep", "dev"}
    for text in [*SETTINGS["project"]["dependencies"], *chain.from_iterable(extras.values())]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(versions[requirement.name.lower().replace("_", "-")]), text


def test_tests_that_mutants_meet_start_no_processes_unless_they_are_marked_as_outside():
    chosen = SETTINGS["tool"]["mutmut"]["pytest_add_cli_args_test_selection"]
    texts = {path: path.read_text() for folder in chosen[:-2] for path in (ROOT / folder).glob("test_*.py")}
    assert any("import subprocess" in text for text in texts.values()), "else there is nothing to notice"
    assert not [path for path, text in texts.items() if "import subprocess" in text and "mark.outside" not in text]


@each_source
def test_twin_is_what_its_source_gives(source):
    assert source.with_suffix(".ipynb").read_text() == pipeline.twin(source), "run `make notebooks`"


def test_drift_is_noticed(tmp_path, monkeypatch):
    source = tmp_path / "notebooks" / "a.md"
    source.parent.mkdir()
    shutil.copy(ROOT / "notebooks" / "2-setting.md", source)
    shutil.copy(ROOT / "_config.yml", tmp_path)
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    assert pipeline.write_twins(check=False) == 1
    assert pipeline.write_twins(check=True) == 0
    source.write_text(source.read_text().replace("two states", "three states", 1) + "\nmore\n")
    assert pipeline.write_twins(check=True) == 1


@each_source
def test_a_notebook_begins_with_installation_and_parameters_and_its_exercises_have_solutions_that_assert(source):
    cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert "find_spec" in code[0].source
    assert f"git+{pipeline.address()}@v{hmmlib.__version__}" in code[0].source
    assert "parameters" in code[1].metadata.tags
    assert code[1].source.startswith("# Parameters:")
    assert re.search(r"\bcheck\(\s*globals\(\)", code[2].source)
    for cell in code:
        assert not cell.get("outputs")
        drawn = re.search(r"^(figures|drawings|appendices)\.(?!use_style|rulings)", cell.source, re.MULTILINE)
        if drawn or cell.source.strip().endswith("\nfigure"):
            assert len(cell.metadata["mystnb"]["image"]["alt"]) > 20, f"no alternative text: {cell.source}"
    if source.stem in {"gallery", "in-pictures", "open-questions"}:
        return
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown").split("## Checks and exercises")[1]
    solutions = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    numbers = re.findall(r"\*\*Exercise (\d+)\.\*\*", text)
    assert numbers == re.findall(r"<summary>Solution (\d+)", text) == [str(k + 1) for k in range(len(solutions))]
    assert solutions
    assert all(any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))) for code in solutions)


def test_what_a_user_makes_has_a_place_that_git_ignores():
    """papermill makes no folder, so a fresh clone must have it."""
    (out,) = re.findall(r"^papermill \S+ (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert (ROOT / out).parent.is_dir()
    tracked = subprocess.run(["git", "ls-files", "mine"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("git does not know this copy")
    assert tracked.stdout.split() == ["mine/.gitignore"]
    made = [out, "mine/ledger.json", "mine/results/quick/x.json"]
    ignored = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout.split() == made


def test_every_notebook_is_in_the_list_that_opens_them_in_colab():
    page = (ROOT / "book" / "reproduce.md").read_text()
    listed = re.findall(r"^- \[.+\]\(https://colab\.\S+/notebooks/(\S+)\.ipynb\)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(source.stem for source in pipeline.sources())
    assert "\n## Colab\n" in page
    assert "](book/reproduce.md#colab)" in (ROOT / "README.md").read_text()


PLANTED = {
    "No import upwards": ("hmmlib/theory/heads.py", "from hmmlib.training import bert"),
    "The library never imports the companion": ("hmmlib/experiments/labels.py", "from companion import pages"),
    "Witnesses import nothing that they are to check": (
        "companion/evidence/enumeration.py",
        "import hmmlib.inference.messages",
    ),
}
"""For each contract of import-linter, a line that breaks it, and a file where it would."""


def test_each_room_imports_only_what_it_may_and_each_breach_is_caught(tmp_path):
    for package in (ROOT / "hmmlib", ROOT / "book" / "companion"):
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def lint_imports() -> str:
        call, own = [Path(sys.executable).parent / "lint-imports", "--no-cache"], {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(call, cwd=tmp_path, env=own, capture_output=True, text=True).stdout

    assert f"Contracts: {len(PLANTED)} kept, 0 broken." in lint_imports()
    for file, line in PLANTED.values():
        with (tmp_path / file).open("a") as module:
            module.write(f"\n\ndef planted():\n    {line}\n")
    found = lint_imports()
    assert f"Contracts: 0 kept, {len(PLANTED)} broken." in found
    assert all(f"{contract} BROKEN" in found for contract in PLANTED)
