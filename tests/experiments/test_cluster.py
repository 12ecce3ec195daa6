"""Sweeps with Ray: what is killed is begun again, a node may go, two sweeps share a store, and nothing is left running.

Ray runs in processes of its own, never in that of the tests; HMMLIB_SLOW=1 adds the tests that take minutes.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import psutil
import pytest
import torch
from record import SLOW, slow
from runs import (
    ENVIRONMENT,
    PANEL,
    TINY,
    claimed,
    command,
    kill_at_random,
    numbers,
    relatives,
    runs,
    soon,
    stored,
    to_the_end,
)

from hmmlib.experiments.cluster import reachable, slots, sweep
from hmmlib.experiments.local import Outcome, describe, run_missing
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import checkpoint_path, result_path
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside

pytest.importorskip("ray")
STEPS = dict(steps=100)
"""Trials of about a second."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The numbers of the panel's trials, from one process that nobody disturbs."""
    torch.set_num_threads(1)
    store = tmp_path_factory.mktemp("undisturbed")
    run_missing(panel_specs("smoke", "left", 1, **{**PANEL, **STEPS}), store, say=str)
    return stored(store)


def using(folder: Path) -> list[str]:
    """Processes that have a file of this folder open, or name it in their command. On Linux; none elsewhere."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().replace("\0", " ")
            files = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue  # it has just ended
        if str(folder) in words or any(name.startswith(str(folder)) for name in files):
            found.append(f"{process.name}: {words[:100]}")
    return found


def wait_for_end(folder: Path, seconds: float, but: str = "") -> list[str]:
    """Processes that still use the folder after so many seconds; those whose command has `but` in it do not count."""
    end = time.time() + seconds
    while left := [line for line in using(folder) if not (but and but in line)]:
        if time.time() > end:
            break
        time.sleep(0.5)
    return left


@contextmanager
def sessions() -> Iterator[Path]:
    """A folder for Ray's sessions, with a name short enough for a socket. In the end no process may use it.

    Two agents of Ray, which run no trials, notice only after a minute that all else is gone: they are waited for where
    tests may be slow, and killed where not.
    """
    folder = Path(tempfile.mkdtemp(prefix="r"))
    yield folder
    agents = "" if SLOW else "Agent"
    left = wait_for_end(folder, 30 if agents else 150, but=agents)
    for line in using(folder):
        with suppress(ProcessLookupError):
            os.kill(int(line.split(":")[0]), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    with sessions() as folder:
        yield folder


def environment(ray_folder: Path) -> dict[str, str]:
    return {**ENVIRONMENT, "RAY_TMPDIR": str(ray_folder)}


def with_kills(times: int, at_once: int, trials: int, store: Path, ray_folder: Path) -> None:
    """Kill sweeps several times, then let two run to the end at once; each must have run nothing that the other ran."""
    specs = panel_specs("smoke", "left", trials, **{**PANEL, **STEPS})
    call, draw = command("sweep", store, "--trials", str(trials), "--device", "cpu", **STEPS), random.Random(2)
    kills = sum(kill_at_random([call] * at_once, store, draw, 5.0, environment(ray_folder)) for _ in range(times))
    assert kills == times * at_once or len(stored(store)) == len(specs), kills
    left = {describe(spec) for spec in specs if not result_path(spec, store).exists()}
    said = to_the_end([call, call], environment(ray_folder))
    assert sorted(runs(said)) == sorted(left)
    assert sum(int(re.search(r"(\d+) run, ", out)[1]) for out in said) == len(left)
    visible = {path.name for path in (store / "smoke").iterdir() if not path.name.startswith(".")}
    assert visible == {f"{spec.hash}.json" for spec in specs}


def listening(mark: str) -> dict[str, set[str]]:
    """By name of a process with `mark` in its environment: the addresses where it listens."""
    found: dict[str, set[str]] = {}
    for line in relatives(mark):
        with suppress(psutil.Error):
            process = psutil.Process(int(line.split(":")[0]))
            ends = [end.laddr.ip for end in process.net_connections() if end.status == psutil.CONN_LISTEN]
            found.setdefault(process.name(), set()).update(ends)
    return found


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A sweep that is killed, and `run_missing` on the same store before and after: both outcomes, the store, and who
    listened where meanwhile."""
    store, specs = tmp_path_factory.mktemp("killed"), panel_specs("smoke", "left", 1, **{**PANEL, **STEPS})
    call = command("sweep", store, "--trials", "1", "--device", "cpu", **STEPS)
    with sessions() as folder:
        sweeps = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(folder))
        assert soon(lambda: sweeps.poll() is not None or claimed(store, 0), 120)
        beside, listened = run_missing(specs[-2:], store, say=str), listening(f"RAY_TMPDIR={folder}")
        sweeps.kill()
        assert sweeps.communicate() == (None, b"")
        return beside, run_missing(specs, store, say=str), store, listened


def test_a_sweep_takes_what_is_free_and_what_it_held_when_it_was_killed_is_free(killed, undisturbed):
    beside, after, store, _ = killed
    specs = panel_specs("smoke", "left", 1, **{**PANEL, **STEPS})
    assert beside.ran
    assert set(beside.ran) <= set(after.stored)
    assert sorted(after.ran + after.stored) == sorted(spec.hash for spec in specs)
    assert stored(store) == undisturbed
    assert {path.name for path in (store / "smoke").glob("[!.]*")} == {f"{spec.hash}.json" for spec in specs}


def test_a_sweep_on_this_machine_listens_on_loopback_alone(killed):
    *_, listened = killed
    assert {"gcs_server", "raylet"} < {name for name, addresses in listened.items() if addresses}
    assert {*chain.from_iterable(listened.values())} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@slow
def test_kills_of_sweeps_on_one_store_change_nothing(undisturbed, ray_folder, tmp_path):
    with_kills(2, 2, 1, tmp_path, ray_folder)
    assert stored(tmp_path) == undisturbed


@slow
def test_ten_kills_of_a_sweep_change_nothing(ray_folder, tmp_path):
    run_missing(panel_specs("smoke", "left", 6, **{**PANEL, **STEPS}), tmp_path / "undisturbed", say=str)
    start = time.time()
    with_kills(10, 1, 6, tmp_path / "killed", ray_folder)
    print(f"ten kills and the end: {time.time() - start:.0f} s")
    assert stored(tmp_path / "killed") == stored(tmp_path / "undisturbed")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray listens on loopback by itself")
def test_a_ray_that_would_listen_on_all_addresses_is_not_started(ray_folder):
    call = [sys.executable, "-c", "import ray\nfrom hmmlib.experiments.cluster import connect\nconnect(None)"]
    done = subprocess.run(call, capture_output=True, text=True, env=environment(ray_folder), check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "OSError: Ray was imported before and would listen beyond this machine"
    )
    assert not any(ray_folder.iterdir())


CLUSTER = """
import json, os, shutil, sys, time
for name, value in dict(initial_delay_ms=0, period_ms=1000, timeout_ms=5000, failure_threshold=4).items():
    os.environ[f"RAY_health_check_{name}"] = str(value)
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.cluster import sweep

report, store = {}, Path(sys.argv[1])
bad, specs, long = ([TrialSpec(**fields) for fields in part] for part in json.loads(sys.argv[2]))
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False))
worker = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
for cpus in (64, 1.5):
    try:
        sweep(specs, store, address=cluster.address, cpus=cpus)
    except ValueError as error:
        report[f"cpus={cpus}"] = str(error)
lines, gone = [], []

def remove_a_busy_node(state):
    done = len(list((store / "smoke").glob("*.json")))
    if done and not gone and ray.available_resources().get("CPU", 0) == 0:
        cluster.remove_node(worker, allow_graceful=False)
        gone.append(done)

work, first = [*bad, *specs], []
say = lambda line: (lines.append(line), first.append(time.monotonic()))
start = time.monotonic()
outcome = sweep(work, store, address=cluster.address, device="cpu", say=say, show=remove_a_busy_node)
report["outcome"], report["lines"], report["removed after"] = vars(outcome), lines, gone
until = time.monotonic() + 3 + 1.3 * (first[0] - start)  # a busy machine needs longer to begin
report["boxed"] = vars(sweep([*long, *specs], store, until, cluster.address, device="cpu", say=str))
report["late"] = time.monotonic() - until
again = store.with_name("again")
shutil.copytree(store / "smoke", again / "smoke")
path = again / "smoke" / f"{specs[0].hash}.json"
before, asked = json.loads(path.read_text()), dict(also=["prompt_cuts"], networks=again / "networks")
outcome = sweep(specs[:1], again, address=cluster.address, device="cpu", say=str, **asked)
after, networks = json.loads(path.read_text()), list((again / "networks").iterdir())
report["asked"] = vars(outcome), before, after, len(networks)
cluster.shutdown()
print(json.dumps(report))
"""
FAULTS = (dict(learning_rate=1e30), dict(learning_rate=1e3), dict(width=2_000_000))
BAD = [TrialSpec("smoke", **{**TINY, **fault}) for fault in FAULTS]
LONG = dict(steps=100_000, batch=8, documents=20, document_length=2500)
BOXED = [TrialSpec("smoke", seed=9, **TINY), *(TrialSpec("smoke", seed=s, **{**TINY, **LONG}) for s in range(20))]
"""A short trial, and others of many minutes."""


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """What happened on a cluster of two nodes, of which one was taken away, then in a time box; store and specs."""
    store, specs = tmp_path_factory.mktemp("two-nodes"), panel_specs("smoke", "left", 1, **{**PANEL, **STEPS})
    work = json.dumps([[asdict(spec) for spec in part] for part in (BAD, specs, BOXED)])
    call = [sys.executable, "-c", CLUSTER, str(store), work]
    with sessions() as folder:
        done = subprocess.run(call, capture_output=True, text=True, env=environment(folder), check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), store, specs


def test_every_result_arrives_once_when_a_node_goes_in_mid_sweep(two_nodes, undisturbed):
    report, store, specs = two_nodes
    (after,) = report["removed after"]
    assert 0 < after < len(specs)
    assert sorted(report["outcome"]["ran"]) == sorted(spec.hash for spec in specs)
    assert not any(report["outcome"][name] for name in ("stored", "taken", "left"))
    arrived = [line.split(":")[0] for line in report["lines"] if ": head " in line]
    assert sorted(arrived) == sorted(describe(spec) for spec in specs)
    assert {name: values for name, values in stored(store).items() if name != f"{BOXED[0].hash}.json"} == undisturbed


def test_a_sweep_ends_with_its_time_box_keeps_what_is_finished_and_leaves_checkpoints(two_nodes):
    report, store, specs = two_nodes
    assert report["late"] < 30
    assert report["boxed"]["stored"] == [spec.hash for spec in specs]
    assert report["boxed"]["ran"] == [BOXED[0].hash]
    assert sorted(report["boxed"]["left"]) == sorted(spec.hash for spec in BOXED[1:])
    assert stored(store)[f"{BOXED[0].hash}.json"] == numbers(run_trial(BOXED[0]))
    begun = [spec for spec in BOXED if checkpoint_path(spec, store).exists()]
    assert begun == BOXED[1:2], "one at a time, on the node that is left"
    assert int(checkpoints.load(checkpoint_path(begun[0], store), {})[1]["done"]) > 0


def test_a_stored_result_is_given_what_is_asked_for_and_keeps_all_else(two_nodes):
    report, _, specs = two_nodes
    outcome, before, after, networks = report["asked"]
    assert outcome["ran"] == [specs[0].hash]
    assert "prompt_cuts" not in before
    assert 0 <= after["prompt_cuts"]["layer 1"]["accuracy"] <= 1
    for name, value in before.items():
        if name not in ("environment", "seconds"):
            assert after[name] == value, name
    assert networks == 1, "the network is kept for other tasks"


def test_a_trial_must_fit_on_one_node(two_nodes):
    report, *_ = two_nodes
    for cpus in ("64", "1.5"):
        assert report[f"cpus={cpus}"] == (
            f"no trial fits: it asks for {cpus} cores and 0 GPUs, and a node has 1 cores and 0 GPUs"
        )


def test_trials_that_fail_say_why(two_nodes):
    report, store, _ = two_nodes
    failed = report["outcome"]["failed"]
    assert set(failed) == {spec.hash for spec in BAD}
    assert failed[BAD[0].hash] == "pretraining diverged: the loss at step 1 is nan"
    assert failed[BAD[1].hash] == "a result that cannot be stored: divergence is inf"
    assert re.match(r"RuntimeError: .*memory", failed[BAD[2].hash])
    said = [line for line in report["lines"] if " failed: " in line]
    assert sorted(said) == sorted(f"{describe(spec)} failed: {failed[spec.hash]}" for spec in BAD)
    assert not any(f"{spec.hash}.json" in stored(store) for spec in BAD)


def accept(server: socket.socket) -> None:
    """Take all who call, and say nothing, until the server is closed."""
    calls = []
    with suppress(OSError):
        while True:
            calls.append(server.accept())


@slow
def test_a_port_where_something_else_answers_is_refused_within_a_minute(tmp_path, ray_folder):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        call, start = command("sweep", tmp_path, "--address", address), time.time()
        done = subprocess.run(call, capture_output=True, text=True, env=environment(ray_folder), check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"hmmlib: no Ray cluster answers at {address}: ")
    assert "Traceback" not in done.stderr
    assert time.time() - start < 60


# What needs no Ray.


@pytest.mark.parametrize(
    ("nodes", "cpus", "gpus", "expected"),
    [
        ([{"CPU": 4.0}], 1, 0, 4),
        ([{"CPU": 4.0}], 1.5, 0, 2),
        ([{"CPU": 2.0}, {"CPU": 2.0}], 1.5, 0, 2),
        ([{"CPU": 2.0}, {"CPU": 2.0}], 3, 0, 0),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}], 1, 1, 2),
        ([{"CPU": 8.0, "GPU": 1.0}], 1, 0.1, 8),
        ([{"CPU": 16.0, "GPU": 1.0}], 1, 0.1, 10),
        ([{"GPU": 3.0}], 1, 1, 0),
        ([], 1, 0, 0),
    ],
)
def test_how_many_trials_fit(nodes, cpus, gpus, expected):
    assert slots(nodes, cpus, gpus) == expected


@pytest.mark.parametrize(("cpus", "gpus"), [(0, None), (-1, None), (float("nan"), None), (1, -0.5), (1, float("nan"))])
def test_shares_that_are_refused(cpus, gpus, tmp_path):
    with pytest.raises(ValueError, match="cpus must be positive and gpus not negative"):
        sweep([TrialSpec("smoke", **TINY)], tmp_path, cpus=cpus, gpus=gpus)
    assert not any(tmp_path.iterdir())


def test_what_is_stored_needs_no_ray_and_what_is_damaged_starts_none(tmp_path, monkeypatch):
    specs = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(2)]
    run_missing(specs, tmp_path, say=str)
    monkeypatch.setattr("hmmlib.experiments.cluster.connect", lambda address: pytest.fail("Ray was started"))
    assert sweep([*specs, *specs], tmp_path) == Outcome(stored=[spec.hash for spec in specs])
    damaged = tmp_path / "smoke" / f"{specs[1].hash}.json"
    damaged.write_text(damaged.read_text()[:100])
    with pytest.raises(ValueError, match=f"{damaged} is no readable result"):
        sweep(specs, tmp_path)
    assert len(damaged.read_text()) == 100


@pytest.mark.parametrize(
    "address", ["nowhere", "", ":", "host:", ":6379", "host:port", "http://", "ray://host:1", "http://host:80"]
)
def test_an_address_must_be_one(address):
    with pytest.raises(ValueError, match=f"address must be HOST:PORT or auto, not '{address}'"):
        reachable(address)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "localhost:9", "127.0.0.1:99999"])
def test_an_address_that_does_not_answer_is_refused_fast(address, tmp_path):
    start = time.time()
    with pytest.raises(OSError, match=f"no Ray cluster answers at {address}"):
        sweep([TrialSpec("smoke", **TINY)], tmp_path, address=address)
    assert time.time() - start < 10
