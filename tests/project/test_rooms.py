"""The rooms of the library, which import-linter holds, each contract with a breach of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import importlinter  # noqa: F401, without it these tests are left out
import pytest

ROOT = Path(__file__).resolve().parents[2]
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
