"""Sweeps with Ray, in a process of their own: a worker that dies, an interrupt, and who can reach what listens."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from record import slow
from runs import ENVIRONMENT, TINY, numbers, relatives, soon, stored

from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Claim, checkpoint_path
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

pytest.importorskip("ray")
*SPECS, LAST = (TrialSpec("smoke", seed=seed, **TINY) for seed in (0, 1, 9))
FAULT = TrialSpec("smoke", seed=2, **TINY | {"learning_rate": 1e30})

START = """
import json, os, signal, sys
from pathlib import Path
import psutil
from hmmlib.experiments import executors
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.sweeps import run_missing

store, specs = Path(sys.argv[1]), [TrialSpec(**fields) for fields in json.loads(sys.argv[2])]
begun, died, waiting = (store / name for name in ("begun", "died", "waiting"))
attempt, report, listening = executors._run_in_worker, {}, set()

def at_step_2(*job):
    '''The first worker that comes to its second step dies; one of seed 9 waits there until it is asked to end.'''
    import time
    from hmmlib import backend
    from hmmlib.training import pretraining
    step, seed = pretraining.Run.step, job[3].seed

    def signalling(run):
        begun.touch()
        if seed != 9 and run.done == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        step(run)
        if seed == 9 and run.done == 2:
            waiting.touch()
            while not backend.Interrupts.asked:
                time.sleep(0.01)

    pretraining.Run.step = signalling
    return attempt(*job)

def look(state):
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            ends = process.net_connections()
        except psutil.Error:
            continue
        listening.update((process.name(), end.laddr.ip) for end in ends if end.status == psutil.CONN_LISTEN)

def interrupt(state):
    if waiting.exists():
        os.kill(os.getpid(), signal.SIGINT)

executors._run_in_worker = at_step_2
signal.signal(signal.SIGINT, signal.default_int_handler)
how = dict(device="cpu", log=str, cluster=executors.RayCluster())
"""
SWEEP = """
report["outcome"] = vars(run_missing(specs, store, on_status=look, **how))
print(json.dumps(report | {"listening": sorted(listening)}))
"""
MORE = """
try:
    run_missing(specs, store, cluster=executors.RayCluster(cpus=4096))
except ValueError as error:
    report["too large"] = str(error)
try:
    run_missing(specs, store, on_status=interrupt, **how)
except KeyboardInterrupt:
    print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def with_ray(tmp_path_factory):
    """Run code in a process with a folder for Ray's sessions, in which nothing of Ray's runs any more in the end: what
    it reports, and its store."""
    folder = tempfile.mkdtemp(prefix="r")  # a name short enough for a socket
    environment = {**ENVIRONMENT, "RAY_TMPDIR": folder}

    def run(code, *specs):
        fields = json.dumps([asdict(spec) for spec in specs])
        for _ in range(3):  # on a busy machine Ray itself may give up before it or a worker has started
            store = tmp_path_factory.mktemp("store")
            call = [sys.executable, "-c", START + code, str(store), fields]
            done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False, timeout=600)
            if (store / "begun").exists():
                break
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), store

    yield run
    assert soon(lambda: not relatives(f"RAY_TMPDIR={folder}"), 150), relatives(f"RAY_TMPDIR={folder}")
    shutil.rmtree(folder)


def test_a_killed_workers_trial_is_run_again_failures_say_why_and_all_listens_on_loopback_alone(with_ray):
    report, store = with_ray(SWEEP, *SPECS, FAULT)
    assert (store / "died").exists()
    assert sorted(report["outcome"]["ran"]) == sorted(spec.hash for spec in SPECS)
    assert stored(store) == {f"{spec.hash}.json": numbers(run_trial(spec)) for spec in SPECS}
    assert report["outcome"]["failed"] == {FAULT.hash: "pretraining diverged: the loss at step 1 is nan"}
    assert {"gcs_server", "raylet"} <= {name for name, _ in report["listening"]}
    assert {address for _, address in report["listening"]} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@slow
def test_a_trial_must_fit_on_one_node_and_an_interrupt_ends_the_workers_with_checkpoints(with_ray):
    """In short: `test_how_many_trials_fit_on_the_nodes_of_a_cluster`, and the interrupt of processes in test_sweeps."""
    report, store = with_ray(MORE, LAST)
    assert report["too large"].startswith("no trial fits: no node has the 4096 cores and 0 GPUs")
    assert checkpoints.facts_at(checkpoint_path(LAST, store))["done"] == "2"
    assert Claim.take(LAST, store) is not None


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray listens on loopback by itself")
def test_a_true_ray_that_would_listen_on_all_addresses_is_not_started():
    """In short: with another Ray, in the test below."""
    code = "import ray\nfrom hmmlib.experiments.executors import RayCluster\nRayCluster().connect('cpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert "OSError: Ray was imported before and would listen beyond this machine" in done.stderr


def test_a_ray_that_would_listen_on_all_addresses_is_not_started(monkeypatch):
    def start(include_dashboard, **_):
        raise InterruptedError(f"started, with a dashboard: {include_dashboard}")

    monkeypatch.setattr(os, "environ", dict(os.environ))
    for address, said in (("10.0.0.1", "Ray was imported before"), ("127.0.0.1", "started, with a dashboard: False")):
        util = SimpleNamespace(get_node_ip_address=lambda address=address: address)
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=util, init=start))
        with pytest.raises(OSError, match=said):
            RayCluster().connect("cpu")


def test_how_many_trials_fit_on_the_nodes_of_a_cluster():
    for nodes, cpus, gpus, expected in (
        ([{"CPU": 2.0}, {"CPU": 2.0}], 1.5, 0, 2),
        ([{"CPU": 2.0}, {"CPU": 2.0}], 3, 0, 0),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}], 1, 1, 2),
        ([{"CPU": 16.0, "GPU": 1.0}], 1, 0.1, 10),
        ([{"GPU": 3.0}], 1, 1, 0),
        ([], 1, 0, 0),
    ):
        cluster = RayCluster(None, cpus, gpus)
        alive = [{"Alive": True, "Resources": node} for node in nodes]
        cluster.ray = SimpleNamespace(nodes=lambda: [*alive, {"Alive": False, "Resources": {"CPU": 9.0}}])
        assert cluster.workers == expected
