"""The project's own files agree with each other: lock, environment, twins, addresses, layers."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

import hmmlib
import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]


def locked() -> list[str]:
    """The lines of the lock that name a version, without what follows on the next lines."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [line.removesuffix(" \\") for line in lines if line[0].isalnum()]


def test_lock_pins_every_requirement_within_its_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, versions = project["optional-dependencies"], dict(line.split(" ")[0].split("==") for line in locked())
    assert set(extras) == {"adapters", "book", "lab", "sweep", "dev"}
    for text in [*project["dependencies"], *chain.from_iterable(extras.values())]:
        requirement = Requirement(text)
        version = versions[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(version), (text, version)


def test_lock_has_only_exact_versions_each_with_its_hashes():
    _, *parts = re.split(r"^(?=\w)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    assert len(parts) == len(locked()) > 150
    for part in parts:
        version, hashes = r"[a-z0-9.-]+==[A-Za-z0-9.]+( ; [^\\]+)?", r"( \\\n    --hash=sha256:[0-9a-f]{64})+"
        assert re.fullmatch(version + hashes + r"\n", part), part


def test_conda_environment_has_the_same_versions():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert dependencies[-1]["pip"] == locked()


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_twin_is_what_its_source_gives(source):
    assert source.with_suffix(".ipynb").read_text() == pipeline.twin(source), "run `make notebooks`"


def test_drift_is_noticed(tmp_path, monkeypatch):
    source = tmp_path / "notebooks" / "a.md"
    source.parent.mkdir()
    source.write_text((ROOT / "notebooks" / "2-setting.md").read_text())
    (tmp_path / "_config.yml").write_text((ROOT / "_config.yml").read_text())
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    assert pipeline.write_twins(check=False) == 1
    assert pipeline.write_twins(check=True) == 0
    source.write_text(source.read_text().replace("two states", "three states", 1) + "\nmore\n")
    assert pipeline.write_twins(check=True) == 1


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_every_notebook_begins_with_its_installation_and_parameters(source):
    cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert "find_spec" in code[0].source
    assert f"git+{pipeline.address()}@v{hmmlib.__version__}" in code[0].source
    assert "parameters" in code[1].metadata.tags
    assert code[1].source.startswith("# Parameters:")
    assert re.search(r"\bcheck\(\s*globals\(\)", code[2].source)
    assert not any(cell.get("outputs") for cell in code)


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_every_notebook_has_exercises_whose_solutions_run(source):
    if source.stem in {"gallery", "in-pictures", "open-questions"}:
        return
    cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown").split("## Checks and exercises")[1]
    solutions = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    numbers = re.findall(r"\*\*Exercise (\d+)\.\*\*", text)
    assert numbers == re.findall(r"<summary>Solution (\d+)", text) == [str(k + 1) for k in range(len(solutions))]
    assert solutions
    for code in solutions:
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code)))


def test_every_figure_has_alternative_text():
    for source in pipeline.sources():
        for cell in nbformat.read(source.with_suffix(".ipynb"), 4).cells:
            last = cell.source.strip().splitlines()[-1] if cell.source.strip() else ""
            drawn = re.search(r"^(figures|drawings|appendices)\.(?!use_style|rulings)", cell.source, re.MULTILINE)
            if cell.cell_type == "code" and (drawn or last == "figure"):
                assert len(cell.metadata["mystnb"]["image"]["alt"]) > 20, (source.name, cell.source)


def test_one_address():
    address = pipeline.address()
    assert address in (ROOT / "CITATION.cff").read_text()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("git does not know this copy, and its files cannot be listed")
    for name in tracked.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".cff", ".ipynb", ".yml"} and path.is_file():
            for other in re.findall(r"https://github\.com/[A-Za-z0-9_./-]+", path.read_text()):
                assert other.startswith(address), (name, other)
            for other in re.findall(r"(?:google\.com|nbviewer\.org)/github/([\w.-]+/[\w.-]+)", path.read_text()):
                assert address.endswith(f"/{other}"), (name, other)


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        ("import hmmlib", "torch numpy matplotlib"),
        (
            "from hmmlib import random_hmm, masked_token_probs; import hmmlib.theory.theorems",
            "transformers scipy numba pydantic",
        ),
        (
            "import hmmlib.experiments.sweeps, hmmlib.training.bert",
            "transformers matplotlib ray numba",
        ),
    ],
)
def test_imports_bring_no_more_than_they_need(code, left_out):
    """Each of these takes up to seconds to import; who does not use it does not wait for it."""
    check = f"{code}\nimport sys\nprint(*set({left_out.split()}) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
