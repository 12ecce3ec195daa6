"""Commands that share a store and are killed, and one that ends with its time box: nothing is run twice, nothing is lost."""

import random
import re
import subprocess
import time

import pytest
from record import SLOW, slow
from runs import ENVIRONMENT, PANEL, claimed, command, kill_at_random, runs, stored, to_the_end

from hmmlib.experiments.local import describe, run_missing
from hmmlib.experiments.specs import panel_specs
from hmmlib.experiments.store import checkpoint_path, result_path
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

EAGER = (
    "import functools, runpy; from hmmlib.experiments import trials; "
    "trials.pretrain = functools.partial(trials.pretrain, every=0.0); runpy.run_module('hmmlib', run_name='__main__')"
)
"""The command line, with a checkpoint after every step."""


def test_kills_of_two_commands_on_one_store_change_nothing(tmp_path):
    """Two or ten times SIGKILL at random moments: in the end the same files with the same numbers as of one undisturbed run.

    Two commands run at a time, one of them with a checkpoint after every step. In the end both are left in peace, and
    run nothing twice.
    """
    trials, times = (2, 5) if SLOW else (1, 1)
    specs, store = panel_specs("smoke", "left", trials, **PANEL), tmp_path / "killed"
    start = time.time()
    run_missing(specs, tmp_path / "undisturbed", say=str)
    trial = (time.time() - start) / len(specs)
    plain = command("trial", store, "--missing", "--trials", str(trials))
    calls, draw = [plain, [plain[0], "-c", EAGER, *plain[3:]]], random.Random(2)
    assert sum(kill_at_random(calls, store, draw, trial) for _ in range(times)) == 2 * times
    left = {describe(spec) for spec in specs if not result_path(spec, store).exists()}
    assert left
    said = to_the_end(calls)
    assert sorted(runs(said)) == sorted(left)
    for out in said:  # each has accounted for every spec
        assert sum(int(n) for n in re.findall(r"(\d+) (?:run|were|are|failed)", out.splitlines()[-1])) == len(specs)
    assert stored(store) == stored(tmp_path / "undisturbed")
    others = {path.name for path in (store / "smoke").iterdir() if path.suffix != ".json"}
    assert {name for name in others if not name.endswith(".tmp")} <= {".claims", ".unfinished"}
    assert all(name.startswith(".") for name in others)


@slow  # tests/experiments/test_local.py has the same of the call
def test_the_command_ends_with_its_time_box_and_leaves_a_checkpoint(tmp_path):
    long = dict(steps=100_000, batch=8, documents=20, document_length=2500)
    call = command("trial", tmp_path, "--missing", "--trials", "1", "--max-minutes", "0.05", **long)
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    while process.poll() is None and not claimed(tmp_path, 0):
        time.sleep(0.05)
    start = time.time()
    out, _ = process.communicate(timeout=300)
    assert time.time() - start < 0.05 * 60 + 30
    assert process.returncode == 0
    assert "0 run, 0 were stored" in out
    assert "6 are left" in " ".join(out.split())
    first, *rest = panel_specs("smoke", "left", 1, **{**PANEL, **long})
    _, facts = checkpoints.load(checkpoint_path(first, tmp_path), {})
    assert 0 < int(facts["done"]) < 100_000
    assert not any(checkpoint_path(spec, tmp_path).exists() for spec in rest)
