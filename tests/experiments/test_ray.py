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
from runs import ENVIRONMENT, TINY, numbers, relatives, soon, stored

from hmmlib import TrialSpec, run_trial
from hmmlib.experiments.executors import RayCluster
from hmmlib.experiments.store import Claim, checkpoint_path
from hmmlib.experiments.sweeps import describe
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

pytest.importorskip("ray")
*SPECS, LAST = (TrialSpec("smoke", seed=seed, **TINY) for seed in (0, 1, 9))
FAULT = TrialSpec("smoke", seed=2, **TINY | {"learning_rate": 1e30})

SWEEP = """
import json, os, signal, sys
from pathlib import Path
import psutil
from hmmlib.experiments import executors
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.sweeps import run_missing

store, specs = Path(sys.argv[1]), [TrialSpec(**fields) for fields in json.loads(sys.argv[2])]
begun, died, waiting = (store / name for name in ("begun", "died", "waiting"))
attempt, lines, listening = executors._run_in_worker, [], set()

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
    '''Who listens where; and when all but seed 9 are done, Ctrl-C.'''
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            ends = process.net_connections()
        except psutil.Error:
            continue
        listening.update((process.name(), end.laddr.ip) for end in ends if end.status == psutil.CONN_LISTEN)
    if waiting.exists() and len(lines) == len(specs) - 1:
        os.kill(os.getpid(), signal.SIGINT)

executors._run_in_worker = at_step_2
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    run_missing(specs, store, "cpu", log=lines.append, cluster=executors.RayCluster(), on_status=look)
except KeyboardInterrupt:
    print(json.dumps([lines, sorted(listening)]))
"""


def test_a_killed_workers_trial_is_run_again_an_interrupt_keeps_checkpoints_and_all_listens_on_loopback(tmp_path):
    folder, specs = tempfile.mkdtemp(prefix="r"), [*SPECS, FAULT, LAST]  # a name short enough for Ray's sockets
    environment, fields = {**ENVIRONMENT, "RAY_TMPDIR": folder}, json.dumps([asdict(spec) for spec in specs])
    for store in (tmp_path / str(k) for k in range(3)):  # on a busy machine Ray itself may give up before a worker runs
        store.mkdir()
        call = [sys.executable, "-c", SWEEP, str(store), fields]
        done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False, timeout=600)
        if (store / "begun").exists():
            break
    assert done.returncode == 0, done.stderr
    lines, listening = json.loads(done.stdout.splitlines()[-1])
    assert (store / "died").exists()
    assert stored(store) == {f"{spec.hash}.json": numbers(run_trial(spec)) for spec in SPECS}
    assert f"{describe(FAULT, ['learning_rate'])} failed: pretraining diverged: the loss at step 1 is nan" in lines
    assert checkpoints.facts_at(checkpoint_path(LAST, store))["done"] == "2"
    assert all(Claim.take(spec, store) for spec in (FAULT, LAST))
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address for _, address in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert soon(lambda: not relatives(folder), 150), relatives(folder)
    shutil.rmtree(folder)


def test_a_ray_that_would_listen_on_all_addresses_or_has_no_node_that_is_large_enough_is_not_used(monkeypatch):
    began, util = [], SimpleNamespace()
    fake = dict(init=lambda **how: began.append(how["include_dashboard"]), nodes=list, shutdown=str, util=util)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=SimpleNamespace(RayError=OSError), **fake))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for address, said, started in (("10.0.0.1", "Ray was imported before", []), ("127.0.0.1", "no node has ", [False])):
        util.get_node_ip_address = lambda address=address: address
        with pytest.raises((OSError, ValueError), match=said):
            RayCluster(cpus=5).connect("cpu")
        assert began == started


def test_how_many_trials_fit_on_the_nodes_of_a_cluster():
    for nodes, cpus, gpus, expected in (
        ([{"CPU": 2.0}, {"CPU": 2.0}], 1.5, 0, 2),
        ([{"CPU": 2.0}, {"CPU": 2.0}], 3, 0, 0),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}], 1, 1, 2),
        ([{"CPU": 16.0, "GPU": 1.0}], 1, 0.1, 10),
        ([{"GPU": 3.0}], 1, 1, 0),
    ):
        cluster, alive = RayCluster(None, cpus, gpus), [{"Alive": True, "Resources": node} for node in nodes]
        dead = {"Alive": False, "Resources": {"CPU": 9.0}}
        cluster.ray = SimpleNamespace(nodes=lambda known=(*alive, dead): known)
        assert cluster.workers == expected
