"""Sweeps with Ray, in a process of their own: a worker that dies, an interrupt, and who can reach what listens."""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict

import pytest
from runs import ENVIRONMENT, TINY, numbers, relatives, soon, stored

from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Claim, checkpoint_path
from hmmlib.experiments.sweeps import Outcome, run_missing
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

pytest.importorskip("ray")
SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(2)]
FAULTS = [TrialSpec("smoke", seed=2, **{**TINY, "learning_rate": rate}) for rate in (1e30, 1e3)]

SWEEPS = """
import json, os, signal, sys
from pathlib import Path
import psutil
from hmmlib.experiments import executors
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.sweeps import run_missing

store, specs = Path(sys.argv[1]), [TrialSpec(**fields) for fields in json.loads(sys.argv[2])]
died, waiting, attempt = store / "died", store / "waiting", executors._run_in_worker

def at_step_2(*job):
    '''The first worker that comes to its second step dies; one of seed 9 waits there until it is asked to end.'''
    import time
    from hmmlib import backend
    from hmmlib.training import pretraining
    step, seed = pretraining.Run.step, job[3].seed

    def signalling(run):
        if run.done == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        step(run)
        if run.done == 2 and seed == 9:
            waiting.touch()
            while not backend.Interrupts.asked:
                time.sleep(0.01)

    pretraining.Run.step = signalling
    return attempt(*job)

executors._run_in_worker = at_step_2
report, listening = {}, set()

def look(state):
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            ends = process.net_connections()
        except psutil.Error:
            continue
        listening.update((process.name(), end.laddr.ip) for end in ends if end.status == psutil.CONN_LISTEN)

try:
    run_missing(specs, store, cluster=executors.RayCluster(cpus=4096))
except ValueError as error:
    report["too large"] = str(error)
report["outcome"] = vars(run_missing(specs, store, "cpu", log=str, cluster=executors.RayCluster(), on_status=look))
report["listening"] = sorted(listening)
try:
    long = TrialSpec(**{**json.loads(sys.argv[2])[0], "seed": 9})
    interrupt = lambda state: waiting.exists() and os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_missing([long], store, "cpu", log=str, cluster=executors.RayCluster(), on_status=interrupt)
except KeyboardInterrupt:
    report["interrupted"] = True
print(json.dumps(report))
"""


def environment(folder: str) -> dict[str, str]:
    return {**ENVIRONMENT, "RAY_TMPDIR": folder}


@pytest.fixture(scope="module")
def folder():
    """For Ray's sessions, with a name short enough for a socket. In the end nothing of Ray's runs any more."""
    name = tempfile.mkdtemp(prefix="r")
    yield name
    assert soon(lambda: not relatives(f"RAY_TMPDIR={name}"), 150), relatives(f"RAY_TMPDIR={name}")
    shutil.rmtree(name)


@pytest.fixture(scope="module")
def swept(folder, tmp_path_factory):
    """What happened in three sweeps: a report, and the store."""
    fields = json.dumps([asdict(spec) for spec in (*SPECS, *FAULTS)])
    for _ in range(3):  # on a busy machine Ray itself gives up after 30 seconds
        store = tmp_path_factory.mktemp("store")
        call = [sys.executable, "-c", SWEEPS, str(store), fields]
        done = subprocess.run(call, capture_output=True, text=True, env=environment(folder), check=False, timeout=600)
        if "timed out during startup" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), store


def test_a_killed_workers_trial_is_run_again_and_each_result_arrives_once(swept):
    report, store = swept
    assert (store / "died").exists()
    assert sorted(report["outcome"]["ran"]) == sorted(spec.hash for spec in SPECS)
    assert stored(store) == {f"{spec.hash}.json": numbers(run_trial(spec)) for spec in SPECS}


def test_trials_that_fail_say_why(swept):
    reasons = [
        "pretraining diverged: the loss at step 1 is nan",
        "a result that cannot be stored: divergence: Input should be a finite number, not inf",
    ]
    assert swept[0]["outcome"]["failed"] == dict(zip((spec.hash for spec in FAULTS), reasons, strict=True))


def test_a_trial_must_fit_on_one_node(swept):
    assert swept[0]["too large"].startswith("no trial fits: no node has the 4096 cores and 0 GPUs")


def test_an_interrupt_ends_the_workers_with_checkpoints(swept):
    report, store = swept
    spec = TrialSpec("smoke", seed=9, **TINY)
    assert report["interrupted"]
    assert checkpoints.facts_at(checkpoint_path(spec, store))["done"] == "2"
    assert Claim.take(spec, store) is not None


def test_a_sweep_on_this_machine_listens_on_loopback_alone(swept):
    listening = swept[0]["listening"]
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address for _, address in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray listens on loopback by itself")
def test_a_ray_that_would_listen_on_all_addresses_is_not_started(folder):
    call = [
        sys.executable,
        "-c",
        "import ray\nfrom hmmlib.experiments.executors import RayCluster\nRayCluster().connect('cpu')",
    ]
    done = subprocess.run(call, capture_output=True, text=True, env=environment(folder), check=False, timeout=60)
    assert done.returncode == 1
    assert "OSError: Ray was imported before and would listen beyond this machine" in done.stderr


def test_what_is_stored_needs_no_ray(tmp_path, monkeypatch):
    run_missing(SPECS, tmp_path, log=str)
    monkeypatch.setattr(RayCluster, "connect", lambda *_: pytest.fail("Ray was started"))
    assert run_missing([*SPECS, *SPECS], tmp_path, cluster=RayCluster()) == Outcome(
        stored=[spec.hash for spec in SPECS]
    )
