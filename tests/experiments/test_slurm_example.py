"""The Slurm script of the book does its work, with stand-ins for Slurm's programs."""

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from record import slow
from runs import CHANGES, TINY, relatives, soon

from hmmbook import load_results, panel_specs

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames tux[1-2]" ] && printf 'tux1\\ntux2\\n'
"""
SRUN = """#!/bin/sh
echo "srun $*" >> "$NOTES"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""
RAY = f"""#!/bin/sh
exec "{sys.executable}" "$0.py" "$@"
"""
RAY_IN_PYTHON = """
import os, signal, socket, sys
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
server = "head" in options and socket.create_server((options["node-ip-address"], int(options["port"])))
with open(os.environ["NOTES"], "a") as notes:
    notes.write("process\\n")
signal.pause()
"""
PYTHON = f"""#!/bin/sh
[ "$1" = -c ] && exec "{sys.executable}" "$@"
until [ "$(grep -c ^process "$NOTES")" = 2 ]; do sleep 0.05; done
echo "sweep $RAY_AUTH_MODE ${{#RAY_AUTH_TOKEN}} $*" >> "$NOTES"
"""
STAND_INS = {"scontrol": SCONTROL, "srun": SRUN, "ray": RAY, "ray.py": RAY_IN_PYTHON, "python": PYTHON}
"""srun runs here what is to run on a node. The sweep waits until Ray is on both nodes."""


@pytest.fixture
def job(tmp_path):
    """Run the script as Slurm would. It returns the exit code, the output, and what the stand-ins noted."""
    ray_folder = tempfile.mkdtemp(prefix="ray")  # Ray's sockets need a short path

    def run(programs: dict[str, str], *arguments: object) -> tuple[int, str, list[str]]:
        folder = tmp_path / "programs"
        notes = tmp_path / "notes"
        folder.mkdir()
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        environment = {
            **os.environ,
            "NOTES": str(notes),
            "ADDRESS": "127.0.0.2",
            "RAY_TMPDIR": ray_folder,
            "OMP_NUM_THREADS": "1",
            "SLURM_JOB_NODELIST": "tux[1-2]",
            "SLURM_JOB_ID": str(secrets.randbelow(10_000)),
            "SLURM_CPUS_PER_TASK": "1",
            "PATH": f"{folder}:{os.environ['PATH']}",
            "BIN": str(folder if "ray" in programs else BIN),
        }
        call = ["bash", str(ROOT / "book" / "slurm" / "sweep.sbatch"), *map(str, arguments)]
        done = subprocess.run(
            call,
            cwd=ROOT,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        return done.returncode, done.stdout, notes.read_text().splitlines()

    yield run
    assert soon(lambda: not relatives(ray_folder)), relatives(ray_folder)
    shutil.rmtree(ray_folder)


def test_the_script_starts_ray_on_all_nodes_and_then_the_sweep(job):
    code, output, notes = job(STAND_INS, "--panel", "left")
    assert code == 0, output
    head, other = sorted([note for note in notes if note.startswith("srun")], key=lambda note: "tux2" in note)
    assert "--nodelist=tux1 " in head
    assert "--head" in head
    assert "--nodelist=tux2 " in other
    assert "--head" not in other
    address = re.search(r"--address=(127\.0\.0\.2:2\d{4})$", other)[1]
    assert notes[-1] == f"sweep token 64 -m hmmbook sweep --address {address} --panel left"


def test_the_script_ends_where_the_head_does_not_start(job):
    failing = STAND_INS | {"ray": "#!/bin/sh\nexit 3\n"}
    code, _, notes = job(failing, "--panel", "left")
    assert code != 0
    assert len(notes) == 1, "nobody was asked for after the head"


@slow
def test_with_the_script_and_ray_the_results_arrive(job, tmp_path):
    words = ["--panel", "left", "--preset", "smoke", "--trials", 1, *CHANGES, "--store", tmp_path / "store"]
    code, output, _ = job({"scontrol": SCONTROL, "srun": SRUN}, *words)
    assert code == 0, output
    assert "6 were run now" in output
    changes = {name: value for name, value in TINY.items() if name != "n_states"}
    specs = {result.spec for result in load_results("smoke", tmp_path / "store")}
    assert specs == set(panel_specs("smoke", "left", 1, **changes))
