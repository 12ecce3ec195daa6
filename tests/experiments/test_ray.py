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

from hmmbook import TrialSpec, run_trial, save_result
from hmmbook.experiments.ray_sweep import RayCluster, run_with_ray, settle
from hmmbook.experiments.store import checkpoint_path
from hmmbook.experiments.sweeps import Outcome, Sweep, describe
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside
pytest.importorskip("ray")

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in (0, 1)]
DIVERGING = TrialSpec("smoke", seed=2, **TINY | {"learning_rate": 1e30})
INTERRUPTED = TrialSpec("smoke", seed=9, **TINY)

SWEEP = """
import json, os, signal, sys
from pathlib import Path

import psutil

from hmmbook.experiments import ray_sweep
from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.sweeps import Sweep

store = Path(sys.argv[1])
specs = [TrialSpec(**fields) for fields in json.loads(sys.argv[2])]
begun, died, waiting = store / "begun", store / "died", store / "waiting"
run_in_worker = ray_sweep.run_in_worker
lines = []
listening = set()


def die_or_wait(sweep, spec, threads, modules):
    '''The first worker that comes to its second step dies. One of seed 9 waits there until it is interrupted.'''
    import time
    from hmmbook.experiments import parts
    pretrain = parts.pretrain

    def pretrain_and_die_or_wait(network, model, plan, seed, on_step, checkpoint):
        def step_hook(step, loss):
            begun.touch()
            if spec.seed != 9 and step == 1 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if spec.seed == 9 and step == 1:
                waiting.touch()
                while True:
                    time.sleep(0.01)
                    on_step(step, loss)  # it raises KeyboardInterrupt once the trial is interrupted
            on_step(step, loss)

        return pretrain(network, model, plan, seed, step_hook, checkpoint)

    parts.pretrain = pretrain_and_die_or_wait
    try:
        return run_in_worker(sweep, spec, threads, modules)
    finally:
        parts.pretrain = pretrain


def look(state):
    '''Note who listens where. When all but seed 9 are done, send Ctrl-C.'''
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            connections = process.net_connections()
        except psutil.Error:
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                listening.add((process.name(), connection.laddr.ip))
    if waiting.exists() and len(lines) == len(specs) - 1:
        os.kill(os.getpid(), signal.SIGINT)


ray_sweep.run_in_worker = die_or_wait
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    ray_sweep.run_with_ray(Sweep(specs, store, "cpu", log=lines.append), ray_sweep.RayCluster(), on_status=look)
except KeyboardInterrupt as interrupt:
    print(json.dumps([lines, sorted(listening), getattr(interrupt, "__notes__", [])]))
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep in which a worker dies, a trial diverges, and the last trial is interrupted."""
    folder = tempfile.mkdtemp(prefix="r")  # Ray's sockets need a short name
    specs = json.dumps([asdict(spec) for spec in [*SPECS, DIVERGING, INTERRUPTED]])
    environment = {**ENVIRONMENT, "RAY_TMPDIR": folder}
    for _ in range(3):  # on a busy machine Ray itself may give up before a worker runs
        store = tmp_path_factory.mktemp("store")
        call = [sys.executable, "-c", SWEEP, str(store), specs]
        done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False, timeout=600)
        if (store / "begun").exists():
            break
    assert done.returncode == 0, done.stderr
    lines, listening, notes = json.loads(done.stdout.splitlines()[-1])
    yield SimpleNamespace(store=store, lines=lines, listening=listening, notes=notes, folder=folder)
    shutil.rmtree(folder)


def test_a_killed_workers_trial_is_run_again(sweep):
    assert (sweep.store / "died").exists()
    assert stored(sweep.store) == {f"{spec.hash}.json": numbers(run_trial(spec)) for spec in SPECS}


def test_a_trial_that_fails_is_reported(sweep):
    reason = "pretraining diverged: the loss at step 1 is nan"
    expected = f"{describe(DIVERGING, ['learning_rate'])}: failed: {reason}"
    assert any(line.startswith(expected) for line in sweep.lines)


def test_an_interrupted_trial_keeps_a_checkpoint(sweep):
    content = checkpoints.load(checkpoint_path(INTERRUPTED, sweep.store))
    assert content["done"] == 2
    kept = f"{describe(INTERRUPTED)} was broken off, but its network after 2 of 4 steps is kept"
    assert any(note.startswith(kept) for note in sweep.notes)


def test_all_of_ray_listens_on_loopback_and_ends_with_the_sweep(sweep):
    assert {"gcs_server", "raylet"} <= {name for name, _ in sweep.listening}
    assert {address for _, address in sweep.listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert soon(lambda: not relatives(sweep.folder), 150), relatives(sweep.folder)


def test_ray_is_not_started_where_nothing_is_missing(tmp_path, monkeypatch):
    result = run_trial(SPECS[0])
    save_result(result, tmp_path)
    monkeypatch.setattr(RayCluster, "connect", lambda *arguments: pytest.fail("Ray was started"))
    assert run_with_ray(Sweep(SPECS[:1], tmp_path), RayCluster()) == Outcome(stored=[SPECS[0].hash])


class FakeRay:
    """Stands in for the module ray of a machine with this address and these nodes."""

    def __init__(self, address, nodes=()):
        self.began = []
        self.util = SimpleNamespace(get_node_ip_address=lambda: address)
        self._nodes = nodes

    def init(self, **options):
        self.began.append(options)

    def shutdown(self):
        self.began.append("shut down")

    def nodes(self):
        return [{"Alive": True, "Resources": resources} for resources in self._nodes]


@pytest.fixture
def use(monkeypatch):
    """Put a stand-in in the place of the module ray."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return lambda fake: monkeypatch.setitem(sys.modules, "ray", fake)


def test_a_ray_that_would_listen_on_all_addresses_is_not_started(use):
    fake = FakeRay("10.0.0.1", [{"CPU": 2.0}])
    use(fake)
    with pytest.raises(OSError, match=r"Ray was imported before and would listen beyond this machine, as 10\.0\.0\.1"):
        RayCluster().connect("cpu")
    assert fake.began == []


@pytest.mark.parametrize(
    ("nodes", "cpus", "gpus", "fits"),
    [
        ([{"CPU": 2.0}], 1.5, 0, True),
        ([{"CPU": 2.0}, {"CPU": 2.0}], 3, 0, False),
        ([{"CPU": 8.0}, {"CPU": 8.0, "GPU": 2.0}], 1, 1, True),
        ([{"CPU": 16.0, "GPU": 1.0}], 1, 0.1, True),
        ([{"GPU": 3.0}], 1, 1, False),
    ],
)
def test_a_trial_must_fit_on_one_node(nodes, cpus, gpus, fits, use):
    fake = FakeRay("127.0.0.1", nodes)
    use(fake)
    if fits:
        assert RayCluster(None, cpus, gpus).connect("cpu") is fake
        assert fake.began[0]["include_dashboard"] is False
        return
    with pytest.raises(ValueError, match="no node has the "):
        RayCluster(None, cpus, gpus).connect("cpu")
    assert fake.began[-1] == "shut down"


def test_ray_is_told_of_the_cores_of_a_job_that_has_not_all(use, monkeypatch):
    fake = FakeRay("127.0.0.1", [{"CPU": 4.0}])
    use(fake)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    RayCluster(gpus=0).connect("cpu")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    RayCluster(gpus=0).connect("cpu")
    in_a_job, alone = fake.began
    assert in_a_job["num_cpus"] == 4
    assert "num_cpus" not in alone, "Ray counts itself"


class IdleRay(FakeRay):
    """Takes tasks and runs none."""

    exceptions = SimpleNamespace(TaskCancelledError=TimeoutError, RayError=ConnectionError)

    def remote(self, **options):
        return lambda function: SimpleNamespace(remote=lambda *arguments: object())

    def cancel(self, task):
        """Do nothing, because nothing runs."""

    def wait(self, tasks, **options):
        return [], tasks


def test_a_sweep_of_a_large_preset_without_a_gpu_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setattr(RayCluster, "connect", lambda *arguments: IdleRay("127.0.0.1"))
    lines = []
    outcome = run_with_ray(Sweep([TrialSpec("gpu")], tmp_path, log=lines.append), RayCluster(gpus=0), until=0.0)
    assert lines == ["gpu is for a GPU, but this runs on a CPU, where a trial takes hours or days"]
    assert outcome.left == [TrialSpec("gpu").hash]


def test_a_result_that_cannot_be_written_does_not_cost_those_that_finish_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    store = tmp_path / "store"
    store.mkdir()
    (store / "smoke").write_text("a file in place of a folder", encoding="utf8")
    results = [run_trial(spec) for spec in SPECS]
    ray = IdleRay("127.0.0.1")
    ray.get = results.__getitem__
    with pytest.raises(OSError, match="could not be written"):
        settle(ray, Sweep(SPECS, store), dict(enumerate(SPECS)), [0, 1])
    rescued = {}
    for folder in tmp_path.glob("hmmbook-rescued-*"):
        rescued |= stored(folder)
    assert rescued == {f"{result.spec.hash}.json": numbers(result) for result in results}


def test_an_error_of_a_measurement_fails_its_trial_alone(tmp_path):
    result = run_trial(SPECS[1])

    def get(task):
        if task == 1:
            return result
        error = KeyError("x")
        error.add_note("raised in the measurement rain")
        raise error

    ray = IdleRay("127.0.0.1")
    ray.get = get
    sweep = Sweep(SPECS[:2], tmp_path, log=lambda line: None)
    settle(ray, sweep, dict(enumerate(SPECS[:2])), [0, 1])
    reason = "KeyError: 'x', raised in the measurement rain"
    assert sweep.outcome == Outcome(ran=[SPECS[1].hash], failed={SPECS[0].hash: reason})


def test_a_time_to_stop_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^until must be a time as .*, not nan$"):
        run_with_ray(Sweep(SPECS, tmp_path), RayCluster(), until=float("nan"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cpus": 0}, "cpus must be more than 0, not 0"),
        ({"gpus": -0.5}, "gpus must be a number of 0 or more, not -0.5"),
        ({"address": "127.0.0.1:9"}, "no Ray cluster answers at 127.0.0.1:9"),
        ({"address": "nowhere"}, "address must be HOST:PORT or auto, not 'nowhere'"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises((ValueError, OSError), match=message):
        RayCluster(**arguments)
