"""What a run says before it begins: papermill names each parameter's type and meaning, and no package warns."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import nbformat
import papermill
import pytest
from companion import parameters

import notebooks as pipeline

ROOT = Path(__file__).resolve().parents[2]


def type_name(kind) -> str:
    """How a parameter cell writes a type that `check` is given."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_name(parts[0])
    if origin is list:
        return f"list[{type_name(parts[0])}]"
    return type(parts[0]).__name__ if origin is Literal else kind.__name__


def declared(code: str) -> dict[str, str]:
    """The parameters of a notebook's call of `check`, with their types."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    (call,) = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "check"]
    return {word.arg: type_name(getattr(parameters, word.value.id)) for word in call.keywords}


def faults(path: Path) -> list[str]:
    """Where papermill's help on a notebook's parameters lacks a type or a meaning, or has another type than `check`."""
    told = papermill.inspect_notebook(str(path))
    _, cell, code = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"][:3]
    types = {name: parameter["inferred_type_name"] for name, parameter in told.items()}
    wrong = [f"{name} is {types.get(name)}" for name, kind in declared(code).items() if types.get(name) != kind]
    wrong += [f"{name} has no help" for name, parameter in told.items() if not parameter["help"]]
    return wrong + [f"too wide: {line}" for line in cell.splitlines() if len(line) > 78]


@pytest.mark.parametrize("source", pipeline.sources(), ids=lambda path: path.stem)
def test_papermill_says_of_each_parameter_its_type_and_what_it_is(source):
    assert faults(source.with_suffix(".ipynb")) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("seed = 0  # of the trial that runs live", "seed is None"),
        ("seed: float = 0  # of the trial that runs live", "seed is float"),
        ("seed: int = 0", "seed has no help"),
        ("seed: int = 0  # " + 63 * "x", "too wide"),
        ("", "seed is None"),
    ],
)
def test_a_parameter_without_type_or_help_is_noticed(line, fault, tmp_path):
    notebook = nbformat.read(ROOT / "notebooks" / "5-2-head-vs-prompt.ipynb", 4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    cell.source, changed = re.subn(r"^seed: int = 0 .*$", line, cell.source, flags=re.MULTILINE)
    nbformat.write(notebook, tmp_path / "a.ipynb")
    assert changed == 1
    (found,) = faults(tmp_path / "a.ipynb")
    assert found.startswith(fault)


KERNEL = """
import os, sys
sys.prefix = sys.argv[1]  # as if this were the environment
from ipykernel.kernelapp import IPKernelApp
IPKernelApp().initialize(["-f", sys.argv[2]])
sys.stderr.flush()
os._exit(0)
"""
"""Starts a kernel, up to where it would wait for its first cell."""


@pytest.mark.parametrize("settings", ["of make install", "of make book", "none"])
def test_a_kernel_starts_without_a_warning(settings, tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    environment = tmp_path / "environment"
    if settings == "of make install":
        (recipe,) = re.findall(r"^\t@?(mkdir .*etc/ipython.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        subprocess.run(["sh", "-c", recipe.replace("$(VENV)", str(environment))], cwd=ROOT, check=True)
    if settings == "of make book":
        monkeypatch.setattr(pipeline, "ROOT", tmp_path)
        pipeline.quiet_kernels()
    call = [sys.executable, "-c", KERNEL, environment, tmp_path / "connection.json"]
    said = subprocess.run(call, capture_output=True, text=True, check=True, env=dict(os.environ)).stderr
    assert ("WARNING" in said) == (settings == "none"), said


def test_both_extras_with_notebooks_have_what_draws_progress():
    """Where it lacks, tqdm, which transformers imports, warns in the first cell that trains."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in ("book", "lab"):
        assert any(requirement.startswith("ipywidgets>=") for requirement in extras[name])


@pytest.mark.parametrize("there", [True, False])
def test_importing_what_draws_progress_warns_of_nothing(there, tmp_path, monkeypatch):
    if there:
        pytest.importorskip("ipywidgets")
    hide = "" if there else "import sys; sys.modules['ipywidgets'] = None\n"
    cells = [nbformat.v4.new_code_cell(f"{hide}import tqdm.auto")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, tmp_path / "a.ipynb")
    run = papermill.execute_notebook(
        tmp_path / "a.ipynb", tmp_path / "out.ipynb", kernel_name="python3", progress_bar=False
    )
    said = "".join(output.get("text", "") for output in run.cells[0].outputs)
    assert ("IProgress not found" in said) is not there
    assert bool(said) is not there
