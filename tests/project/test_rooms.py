"""The rooms of the library, which import-linter holds, each contract with a breach of it; and the size of files."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import importlinter  # noqa: F401, without it these tests are left out
import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("hmmlib", "book", "benchmarks", "tests")
PLANTED = {
    "No import upwards": ("hmmlib/theory/heads.py", "from hmmlib.training import bert"),
    "The library never imports the companion": ("hmmlib/experiments/labels.py", "from companion import pages"),
    "Witnesses import nothing that they are to check": (
        "companion/evidence/enumeration.py",
        "import hmmlib.inference.messages",
    ),
}
"""For each contract, a line that breaks it and no other, and a file where it would."""


def lint_imports(folder: Path) -> subprocess.CompletedProcess:
    """import-linter on the library in a folder, wherever else one may be installed."""
    call = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    return subprocess.run(
        call, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(tmp_path):
    """The library and its contracts, to be changed."""
    for package in (ROOT / "hmmlib", ROOT / "book" / "companion"):
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_rooms_keep_their_order(copy):
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout
    assert f"Contracts: {len(PLANTED)} kept, 0 broken." in done.stdout


@pytest.mark.parametrize("contract", PLANTED)
def test_a_breach_of_a_contract_is_caught(contract, copy):
    file, line = PLANTED[contract]
    with (copy / file).open("a") as module:
        module.write(f"\n\ndef planted():\n    {line}\n")
    done = lint_imports(copy)
    assert done.returncode == 1, done.stdout
    assert f"{contract} BROKEN" in done.stdout
    assert f"Contracts: {len(PLANTED) - 1} kept, 1 broken." in done.stdout


def test_no_file_is_longer_than_400_lines_and_no_function_than_60():
    sources = {path: path.read_text() for folder in CODE for path in (ROOT / folder).rglob("*.py")}
    assert len(sources) > 150
    for path, text in sources.items():
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 60, (path, node.name)


def test_no_test_that_mutants_meet_starts_processes():
    """A process begun by a test sees mutmut's environment, and not its modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    folders = [word for word in settings["pytest_add_cli_args_test_selection"] if word.startswith("tests/")]
    texts = {path: path.read_text() for folder in folders for path in (ROOT / folder).glob("test_*.py")}
    assert len(texts) > 20
    assert not [path for path, text in texts.items() if "import subprocess" in text and "mark.outside" not in text]
