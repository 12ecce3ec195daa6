"""The examples on the pages about running: the Slurm script does its work, and every command is accepted."""

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import pytest
import yaml
from companion.evidence import ledger
from pandas import DataFrame
from record import slow
from runs import CHANGES, TINY, relatives, soon
from typer.testing import CliRunner

from hmmlib import backend
from hmmlib.__main__ import app
from hmmlib.experiments import results as table
from hmmlib.experiments import sweeps
from hmmlib.experiments.specs import panel_specs
from hmmlib.experiments.store import load_results
from hmmlib.experiments.sweeps import Outcome

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
STAND_INS = {
    "scontrol": """#!/bin/sh
[ "$*" = "show hostnames tux[1-2]" ] && printf 'tux1\\ntux2\\n'
""",
    "srun": """#!/bin/sh
echo "srun $*" >> "$NOTES"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
""",
    "ray": f"""#!{sys.executable}
import os, signal, socket, sys
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
server = "head" in options and socket.create_server((options["node-ip-address"], int(options["port"])))
with open(os.environ["NOTES"], "a") as notes:
    notes.write("process\\n")
signal.pause()
""",
    "python": f"""#!/bin/sh
[ "$1" = -c ] && exec {sys.executable} "$@"
until [ "$(grep -c ^process "$NOTES")" = 2 ]; do sleep 0.05; done
echo "sweep $RAY_AUTH_MODE ${{#RAY_AUTH_TOKEN}} $*" >> "$NOTES"
""",
}
"""Of Slurm, which runs here what is to run on a node; of Ray; of a sweep that waits until Ray is on both nodes."""


@pytest.fixture
def job(tmp_path):
    """Run the script as Slurm would, with stand-ins: (return code, output, what they noted). It leaves nobody."""
    mark = tempfile.mkdtemp(prefix="ray")  # Ray's own folder: its sockets need a short path

    def run(programs: dict[str, str], *arguments: object):
        folder, notes = tmp_path / "programs", tmp_path / "notes"
        folder.mkdir()
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        own = dict(NOTES=notes, ADDRESS="127.0.0.2", RAY_TMPDIR=mark, OMP_NUM_THREADS=1)
        own |= dict(SLURM_JOB_NODELIST="tux[1-2]", SLURM_JOB_ID=secrets.randbelow(10_000), SLURM_CPUS_PER_TASK=1)
        own |= dict(PATH=f"{folder}:{os.environ['PATH']}", BIN=folder if "ray" in programs else BIN)
        call = ["bash", ROOT / "book" / "slurm" / "sweep.sbatch", *map(str, arguments)]
        streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        environment = os.environ | {name: str(value) for name, value in own.items()}
        done = subprocess.run(call, cwd=ROOT, env=environment, check=False, **streams)
        return done.returncode, done.stdout, notes.read_text().splitlines()

    yield run
    assert soon(lambda: not relatives(mark)), relatives(mark)
    shutil.rmtree(mark)


def test_the_slurm_script_starts_ray_on_all_nodes_and_then_the_sweep_and_leaves_nobody(job):
    code, output, noted = job(STAND_INS, "--panel", "left")
    assert code == 0, output
    head, other = sorted((line for line in noted if line.startswith("srun")), key=lambda line: "tux2" in line)
    assert ("--nodelist=tux1 " in head, "--head" in head) == (True, True)
    assert ("--nodelist=tux2 " in other, "--head" in other) == (True, False)
    address = re.search(r"--address=(127\.0\.0\.2:2\d{4})$", other)[1]
    assert noted[-1] == f"sweep token 64 -m hmmlib sweep --address {address} --panel left"


def test_the_slurm_script_ends_where_the_head_does_not_start(job):
    code, _, noted = job(STAND_INS | {"ray": "#!/bin/sh\nexit 3\n"}, "--panel", "left")
    assert code != 0
    assert ["--head" in line for line in noted] == [True], "nobody was asked for after the head"


@slow
def test_with_the_slurm_script_and_ray_the_results_arrive(job, tmp_path):
    """In short: the script with stand-ins, above, and the sweep in test_ray."""
    words = ["--panel", "left", "--preset", "smoke", "--trials", 1, *CHANGES, "--store", tmp_path / "store"]
    code, output, _ = job({name: STAND_INS[name] for name in ("scontrol", "srun")}, *words)
    assert code == 0, output
    assert "6 run" in output
    changes = {name: value for name, value in TINY.items() if name != "n_states"}
    found = {result.spec for result in load_results("smoke", tmp_path / "store")}
    assert found == set(panel_specs("smoke", "left", 1, **changes))


def calls(program: str) -> list[list[str]]:
    """The arguments of each call of a program in the code blocks of README and pages, in a shell or behind the ! of a
    notebook; calls of the functions that a block defines are written out, and its variables."""
    found = []
    for path in (ROOT / "README.md", *(ROOT / "book").glob("*.md")):
        for block in re.findall(r"```(?:bash|ipython3)\n(.*?)```", path.read_text(), re.DOTALL):
            block = re.sub(r"^ *hmmlib ", "python -m hmmlib ", block.replace("\\\n", " "), flags=re.MULTILINE)
            for name, value in re.findall(r"^(\w+)=(\S+)$", block, re.MULTILINE):
                block = block.replace(f"${name} ", f"{value} ")
            defined = re.findall(r'^(\w+)\(\) \{\s+(.*?) "\$@"[;\s]+\}', block, re.MULTILINE)
            block = re.sub(r"^\w+\(\) \{.*?\}$", "", block, flags=re.MULTILINE | re.DOTALL)
            for name, body in reversed(defined):
                block = re.sub(rf"^{name} ", f"{body} ", block, flags=re.MULTILINE)
            found += re.findall(rf'{re.escape(program)} ([^"&;\n]*(?:"[^"\n]*"[^"&;\n]*)*)', block)
    return [shlex.split(call, comments=True) for call in found]


def test_every_command_on_the_pages_is_accepted(monkeypatch, tmp_path):
    """The command line takes it; nothing is run."""

    def accepted(call):
        return CliRunner().invoke(app, [part.replace("$k", "0") for part in call]).exit_code != 2

    monkeypatch.setattr(sweeps, "run_missing", lambda *_, **__: Outcome())
    monkeypatch.setattr(ledger, "run_all", None)
    monkeypatch.setattr(table, "results", lambda *_: DataFrame())
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backend, "pick", lambda name="auto": None)
    found = calls("python -m hmmlib")
    assert {"trial", "sweep", "export"} <= {call[0] for call in found}
    assert ["tuner=prefix" in call for call in found].count(True) == 1, "a function of a block is written out"
    assert [call for call in found if not accepted(call)] == []
    assert not accepted(["trial", "--n_states", "4"])


def test_every_rerun_on_the_pages_names_a_notebook_and_its_parameters():
    found = calls("papermill")
    assert len(found) > 3
    for call in found:
        name = next(word for word in call if word.endswith(".ipynb")).removeprefix("mine/")
        cells = jupytext.read((ROOT / name).with_suffix(".md")).cells
        cell = next(one for one in cells if "parameters" in one.metadata.get("tags", []))
        given = {call[k + 1] for k, part in enumerate(call) if part == "-p"}
        for file in (call[k + 1] for k, part in enumerate(call) if part == "-f"):
            given |= set(yaml.safe_load((ROOT / file).read_text()))
        assert given <= set(re.findall(r"^(\w+): ", cell.source, re.MULTILINE)), call
