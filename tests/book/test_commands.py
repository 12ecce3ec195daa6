"""Every command that README and pages show is one that the command line, or papermill, takes."""

import re
import shlex
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import jupytext
import pytest
import yaml
from pandas import DataFrame
from typer.testing import CliRunner

from hmmbook.__main__ import app
from hmmbook.evidence import ledger
from hmmbook.experiments import ray_sweep, results, sweeps
from hmmbook.experiments.sweeps import Outcome

ROOT = Path(__file__).resolve().parents[2]


def commands_by_page() -> list[str]:
    """What README and each page have for a shell. The blocks of a page are joined, as a reader's shell sees them."""
    commands = []
    for path in (ROOT / "README.md", *sorted((ROOT / "book").glob("*.md"))):
        blocks = re.findall(r"```(?:bash|ipython3)\n(.*?)```", path.read_text(), re.DOTALL)
        commands.append("\n".join(blocks))
    return commands


def written_out(commands: str) -> str:
    """Commands whose variables and functions are written out where they are used."""
    commands = commands.replace("\\\n", " ")
    for name, value in re.findall(r"^(\w+)=(\S+)$", commands, re.MULTILINE):
        commands = commands.replace(f"${name} ", f"{value} ")
    functions = re.findall(r'^(\w+)\(\) \{\s+(.*?) "\$@"[;\s]+\}', commands, re.MULTILINE)
    commands = re.sub(r"^\w+\(\) \{.*?\}$", "", commands, flags=re.MULTILINE | re.DOTALL)
    for name, body in reversed(functions):
        commands = re.sub(rf"^{name} ", f"{body} ", commands, flags=re.MULTILINE)
    return commands


def calls(program: str) -> list[list[str]]:
    """The arguments of each call of a program on the pages."""
    lines = []
    for commands in commands_by_page():
        begin = rf"^[ !]*(?:python -m )?{program} "
        lines += re.findall(rf'{begin}([^"&;\n]*(?:"[^"\n]*"[^"&;\n]*)*)', written_out(commands), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture
def accepted(monkeypatch, tmp_path):
    """Whether the command line takes a call. Nothing is run."""
    monkeypatch.setattr(sweeps, "run_missing", lambda *arguments, **options: Outcome())
    monkeypatch.setattr(ray_sweep, "run_with_ray", lambda *arguments: Outcome())
    monkeypatch.setattr(ray_sweep, "check_that_something_answers", lambda address: None)
    monkeypatch.setattr(ledger, "run_all", None)
    monkeypatch.setattr(results, "results", lambda *arguments: DataFrame())
    monkeypatch.setattr("hmmlib.device.pick", lambda name="auto": SimpleNamespace(type="cpu"))
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)

    def is_accepted(call: list[str]) -> bool:
        words = [word.replace("$k", "0").replace("$SLURM_ARRAY_TASK_ID", "1") for word in call]
        return CliRunner().invoke(app, words).exit_code != 2

    return is_accepted


def test_every_command_on_the_pages_is_accepted(accepted):
    shown = calls("hmmbook")
    assert {"trial", "sweep", "export", "ledger", "info"} <= {call[0] for call in shown}
    assert sum("tuner=prefix" in call for call in shown) == 1, "a function of a page is written out"
    for call in shown:
        assert accepted(call), call
    assert not accepted(["trial", "--n_states", "4"])


def parameters_of(notebook: Path) -> set[str]:
    for cell in jupytext.read(notebook.with_suffix(".md")).cells:
        if "parameters" in cell.metadata.get("tags", []):
            return set(re.findall(r"^(\w+): ", cell.source, re.MULTILINE))
    raise LookupError(notebook)


def test_every_rerun_on_the_pages_names_a_notebook_and_its_parameters():
    shown = calls("papermill")
    assert len(shown) > 3
    for call in shown:
        notebook = next(word for word in call if word.endswith(".ipynb")).removeprefix("mine/")
        names = set()
        for option, value in pairwise(call):
            if option == "-p":
                names.add(value)
            if option == "-f":
                names |= set(yaml.safe_load((ROOT / value).read_text()))
        assert names <= parameters_of(ROOT / notebook), call
