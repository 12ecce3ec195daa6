"""The examples on the pages about running: the Slurm script does its work, and every command is accepted."""

import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import pytest
import yaml
from record import slow
from runs import relatives, soon
from typer.testing import CliRunner

from hmmlib.__main__ import app
from hmmlib.experiments import sweeps
from hmmlib.experiments.specs import panel_specs
from hmmlib.experiments.store import load_results
from hmmlib.experiments.sweeps import Outcome

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "book" / "slurm" / "sweep.sbatch"
BIN = Path(sys.executable).parent
TINY = dict(steps=4, batch=8, train=40, validation=20, test=60, evaluation=20, epochs=1)

SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames tux[1-2]" ] && printf 'tux1\\ntux2\\n'
"""
SRUN = """#!/bin/sh
# Runs on this machine what it is told to run on a node, and notes it.
echo "$*" >> "$NOTES"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


def free_job() -> int:
    """A job number whose port is free."""
    while True:
        number = secrets.randbelow(10_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.2", 20_000 + number)):
                return number


@pytest.fixture
def job(tmp_path):
    """Run the script as Slurm would, with stand-ins: (return code, output, what srun was asked, store, mark)."""
    mark = tempfile.mkdtemp(prefix="ray")  # Ray's own folder: its sockets need a short path

    def run(srun: str = SRUN, *arguments: str):
        programs, notes, store = tmp_path / "programs", tmp_path / "notes", tmp_path / "store"
        programs.mkdir()
        for name, text in {"scontrol": SCONTROL, "srun": srun}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "NOTES": str(notes),
            "BIN": str(BIN),
            "ADDRESS": "127.0.0.2",
            "RAY_TMPDIR": mark,
            "SLURM_JOB_NODELIST": "tux[1-2]",
            "SLURM_JOB_ID": str(free_job()),
            "SLURM_CPUS_PER_TASK": "1",
            "OMP_NUM_THREADS": "1",
        }
        call = ["bash", str(SCRIPT), "--store", str(store), *arguments]
        with subprocess.Popen(
            call, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert soon(lambda: relatives(mark))
            try:
                output = process.communicate(timeout=400)[0]
            except subprocess.TimeoutExpired:
                process.terminate()
                raise
        return process.returncode, output, notes.read_text().splitlines(), store, mark

    yield run
    shutil.rmtree(mark)


@slow
def test_the_slurm_script_starts_ray_on_all_nodes_and_the_results_arrive(job):
    changes = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    code, output, asked, store, mark = job(SRUN, "--panel", "left", "--preset", "smoke", "--trials", "1", *changes)
    assert code == 0, output
    assert "6 run" in output
    assert {r.spec for r in load_results("smoke", store)} == set(panel_specs("smoke", "left", 1, **TINY))
    nodes = {re.search(r"--nodelist=(\S+)", line)[1]: line for line in asked}
    assert set(nodes) == {"tux1", "tux2"}
    assert "--head" in nodes["tux1"]
    assert "--head" not in nodes["tux2"]
    assert "--address=127.0.0.2:" in nodes["tux2"]
    assert soon(lambda: not relatives(mark))


def test_the_slurm_script_ends_where_the_head_does_not_start(job):
    code, output, asked, store, mark = job('#!/bin/sh\necho "$*" >> "$NOTES"\nexit 3\n', "--panel", "left")
    assert code != 0
    assert "stored" not in output, "the sweep was begun"
    assert len(asked) == 1
    assert not store.exists()
    assert soon(lambda: not relatives(mark))


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "book" / f"{page}.md").read_text(), re.DOTALL)


def commands(page: str, program: str) -> list[list[str]]:
    """The arguments of each call of a program in a page's code blocks, in a shell or behind the ! of a notebook."""
    text = "\n".join(blocks(page, "bash") + blocks(page, "ipython3")).replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        for call in re.findall(rf'{re.escape(program)} ([^"&;]*(?:"[^"]*"[^"&;]*)*)', line):
            found.append(shlex.split(call, comments=True))
    return found


CALLS = [call for page in ("reproduce", "protocol-and-code") for call in commands(page, "python -m hmmlib")]
RERUNS = commands("reproduce", "papermill")


def accepted(call: list[str], monkeypatch) -> bool:
    """Whether the command line takes a call, without running anything."""
    from companion.evidence import ledger

    from hmmlib import backend

    def nothing(*_, **__):
        raise OSError("accepted")

    monkeypatch.setattr(sweeps, "run_missing", lambda *_, **__: Outcome())
    monkeypatch.setattr(ledger, "run_all", nothing)
    monkeypatch.setattr(backend, "pick", lambda name="auto": None)
    done = CliRunner().invoke(app, [part.replace("$k", "0") for part in call])
    return done.exit_code != 2


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_command_is_accepted(call, monkeypatch):
    assert accepted(call, monkeypatch)


def parameters(notebook: Path) -> set[str]:
    """Names in a notebook's parameter cell."""
    cell = next(c for c in jupytext.read(notebook).cells if "parameters" in c.metadata.get("tags", []))
    return set(re.findall(r"^(\w+): ", cell.source, re.MULTILINE))


@pytest.mark.parametrize("call", RERUNS, ids=" ".join)
def test_every_rerun_names_a_notebook_and_its_parameters(call):
    notebook = ROOT / Path(call[0]).with_suffix(".md")
    assert notebook.is_file()
    own = parameters(notebook)
    for k, part in enumerate(call):
        if part == "-p":
            assert call[k + 1] in own
        if part == "-f":
            assert set(yaml.safe_load((ROOT / call[k + 1]).read_text())) <= own


def test_the_parameter_files_are_those_of_the_presets():
    from hmmlib.experiments.presets import PRESETS

    files = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "parameters").glob("*.yaml")}
    assert files == {preset: {"preset": preset, "seed": 0} for preset in PRESETS}
