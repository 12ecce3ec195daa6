"""Faults: processes killed, disks that are full or cannot be written, clocks that jump. Nothing is lost or half believed."""

import json
import math
import os
import subprocess
import sys
import time

import pytest
import short_pretraining
import torch
from commands import one_line
from companion.figures.live import gather
from faults import fill, no_longer_than
from record import SLOW, slow
from runs import ENVIRONMENT, TINY, numbers, stored
from short_pretraining import STEPS, leave_two, train, undisturbed

from hmmlib.experiments import local
from hmmlib.experiments.cluster import GRACE, work
from hmmlib.experiments.local import Outcome, deadline, run_missing
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Claim, checkpoint_path, is_stored, load_result, result_path, save_result
from hmmlib.experiments.trials import run_trial
from hmmlib.files import write_whole
from hmmlib.training import checkpoints

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(3)]
YEAR, DAY = 365 * 86400, 86400
SMALL = ["trial", "--preset", "smoke", "--n-states", "3"]
SMALL += [part for name, value in TINY.items() if name != "n_states" for part in ("--set", f"{name}={value}")]
SMALL += ["--store"]
"""The command line's words for SPECS[0], before those for the store."""


@pytest.fixture(scope="module")
def results():
    torch.set_num_threads(1)
    return [run_trial(spec) for spec in SPECS]


# Pretraining that is killed.

KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
path, here, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.path.insert(0, here)
import torch
torch.set_num_threads(1)
from hmmlib.training import checkpoints
from short_pretraining import train
from hmmlib.training.bert import Shape, build
from hmmlib.models.appendix_e import random_hmm
build(Shape(1, 8, 2, 8), 4, 0), random_hmm(3, 4, 1).sample(2, 3, 0)  # imports once, not after each fork

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_while_writing(share):
    save = checkpoints.save_file
    def cut_short(tensors, file, facts):
        save(tensors, file, facts)
        os.truncate(file, int(share * os.path.getsize(file)))
        die()
    checkpoints.save_file = cut_short

def die_at_rename(number, before):
    rename, calls = os.replace, []
    def counted(*names):
        calls.append(names)
        if len(calls) == number and before:
            die()
        rename(*names)
        if len(calls) == number:
            die()
    os.replace = counted

draw = random.Random(seed)
moments = [(die_while_writing, share) for share in (0.0, draw.random() / 10, draw.random(), 0.999, 1.0)]
moments += [(die_at_rename, number, before) for number in (1, 2) for before in (True, False)]
moments += [None] * (20 - len(moments))  # from outside, at any moment
draw.shuffle(moments)
told, reports = [], []
for moment in moments:
    out, into = os.pipe()
    steps, pause, every = draw.randint(1, 4), draw.random() * 0.01, draw.choice([0.0, 0.0, 0.01])
    child = os.fork()
    if child == 0:
        os.close(out)
        said = []
        def report(step, loss):
            os.write(into, bytes([step]))
            said.append(step)
            if moment and len(said) == steps:
                moment[0](*moment[1:])
            if moment is None and len(said) > steps:
                time.sleep(0.01)  # it must not be done before it is killed
        train("longer", path, report, every)
        os._exit(0)
    os.close(into)
    seen = os.read(out, 1)
    if moment is None:
        for _ in range(steps - 1):
            seen += os.read(out, 1)
        time.sleep(pause)
        os.kill(child, signal.SIGKILL)
    while part := os.read(out, 256):
        seen += part
    os.close(out)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told.append([code, every, list(seen)])
print(json.dumps(told))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("seed", [1, *([2, 3, 4] if SLOW else [])])
def test_pretraining_killed_twenty_times_ends_with_the_same_weights(seed, tmp_path, survived):
    """Nine times in the midst of a checkpoint's writing, the others at random; each time it goes on where it was."""
    path = tmp_path / "runs" / "one.safetensors"
    here = os.path.dirname(short_pretraining.__file__)
    call = [sys.executable, "-W", "error", "-c", KILLS, str(path), here, str(seed)]
    done = subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [code for code, *_ in told] == [-9] * 20
    last, saved = -1, -1  # a step is told after it is saved, if it is; so one more may be saved than is told
    for _, every, steps in told:
        assert saved < steps[0] <= last + 2, "what was saved is done again, or what was not done is passed over"
        assert steps == list(range(steps[0], steps[0] + len(steps)))
        last, saved = steps[-1], steps[-1] if every == 0 else steps[0] - 1
    assert not list(path.parent.glob("*.broken")), "what was half written lay where a whole one should"
    reports = []
    assert train("longer", path, lambda step, loss: reports.append(step)) == undisturbed("longer")
    assert saved < reports[0] <= last + 2
    survived("pretraining killed", 20)


# Checkpoints cut short.


def test_a_checkpoint_cut_short_at_any_length_is_never_believed(tmp_path, survived):
    """Cut at each of its bytes: the one before it is taken, with a warning that names the file; where both are cut, none."""
    path = tmp_path / "one.safetensors"
    for done in "12":
        checkpoints.save(path, {"a": torch.arange(5.0), "b": torch.ones(2, dtype=torch.uint8)}, {"done": done})
    passed_over = r"{}\.safetensors is no whole checkpoint and is passed over"
    older, newer = checkpoints.previous(path).read_bytes(), path.read_bytes()
    for length in range(len(newer)):
        checkpoints.previous(path).write_bytes(older)
        path.write_bytes(newer[:length])
        with pytest.warns(UserWarning, match=passed_over.format("one")):
            tensors, facts = checkpoints.load(path, {})
        assert (facts["done"], tensors["a"].tolist()) == ("1", [0, 1, 2, 3, 4])
        for place, content in ((path, newer), (checkpoints.previous(path), older)):
            place.write_bytes(content[:length])
        with pytest.warns(UserWarning, match=passed_over.format("(one|previous)")) as caught:
            assert checkpoints.load(path, {}) is None
        assert len(caught) == 2
    survived("checkpoint cut short", 2 * len(newer))


# Disks that are full, and files that may be no longer than so many bytes.


def test_a_file_that_cannot_be_finished_is_not_begun(tmp_path, survived):
    """A disk that is full after n bytes, for many n: the old file stays, nothing lies beside it, the message names it."""
    path, text = tmp_path / "store" / "a.json", "0123456789" * 900
    write_whole(path, "old")
    for size in range(0, len(text), 100):
        with no_longer_than(size), pytest.raises(OSError, match=f"{path} could not be written: .*too large"):
            write_whole(path, text)
        assert (path.read_text(), os.listdir(path.parent)) == ("old", ["a.json"])
    survived("write broken off", len(range(0, len(text), 100)))
    write_whole(path, text)
    assert path.read_text() == text


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_a_disk_that_fills_up_while_a_checkpoint_is_written_costs_nothing(share, tmp_path, survived):
    path = tmp_path / "one.safetensors"
    leave_two(path)
    before, size = path.read_bytes(), path.stat().st_size
    with no_longer_than(int(share * size)), pytest.raises(OSError, match=f"could be written to {path}: .*too large"):
        train("Muon", path, every=0)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["one.previous.safetensors", "one.safetensors"]
    reports = []
    assert train("Muon", path, lambda now, loss: reports.append(now)) == undisturbed("Muon")
    assert reports == list(range(6, STEPS))
    survived("write broken off")


def test_a_full_disk_ends_the_command_in_one_line_and_it_goes_on_when_there_is_room(results, call, disk, survived):
    """A disk that is smaller than a checkpoint, then a larger one that is full, then one with room.

    First as a command of its own, then in this process.
    """
    store = disk(kib=100)
    path = checkpoint_path(SPECS[0], store)
    command = [sys.executable, "-m", "hmmlib", *SMALL, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=600)
    said = f"no checkpoint could be written to {path}: ", "No space left on device"
    one_line((done.returncode, done.stdout, done.stderr), *said)
    assert list(path.parent.iterdir()) == []
    survived("disk full")
    disk(kib=4000)
    filler = fill(store)
    one_line(call(*SMALL, store), *said)
    survived("disk full")
    filler.unlink()
    code, _, err = call(*SMALL, store)
    assert (code, err) == (0, "")
    assert stored(store) == {f"{SPECS[0].hash}.json": numbers(results[0])}


def until_full(store, phase, specs=SPECS[:1]):
    """Run specs on a disk that fills up at the end of a phase; what was told of the trial."""
    told = []

    def watch(spec, *where):
        told.append(where)
        if where == (phase, 1.0):
            fill(store)

    return run_missing(specs, store, say=str, on_progress=watch), told


def test_a_result_for_which_the_disk_has_no_room_takes_its_checkpoints(results, disk, tmp_path, monkeypatch, survived):
    store, elsewhere = disk(kib=8000), tmp_path / "elsewhere"
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(elsewhere))
    outcome, _ = until_full(store, "prompt tuning")
    assert outcome == Outcome(ran=[SPECS[0].hash])
    assert stored(store) == {f"{SPECS[0].hash}.json": numbers(results[0])}
    assert not any(path.is_file() for path in elsewhere.rglob("*"))
    survived("disk full")


def test_a_result_that_can_be_kept_nowhere_leaves_its_network(results, disk, tmp_path, monkeypatch, survived):
    """Both disks are full: the message says so of both, and the same call goes on behind the pretraining."""
    store, nowhere = disk(kib=8000), tmp_path / "nowhere"
    nowhere.write_text("a file, in place of the system's temporary folder")
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(nowhere))
    said = rf"{result_path(SPECS[0], store)} could not be written: .*; nor could .* kept elsewhere: {nowhere}"
    with pytest.raises(OSError, match=said):
        until_full(store, "prompt tuning")
    survived("disk full")
    (store / "filler").unlink()
    outcome, told = until_full(store, "never")
    assert outcome == Outcome(ran=[SPECS[0].hash])
    assert {share for _, share in told} == {1.0}, "it was pretrained again"
    assert stored(store) == {f"{SPECS[0].hash}.json": numbers(results[0])}
    assert not any((store / "smoke" / ".unfinished").iterdir())


def test_a_ledger_for_which_there_is_no_room_leaves_the_old_one(tmp_path, survived):
    from companion.pages import write_ledger

    path = tmp_path / "ledger.json"
    write_ledger(path, [], 1, 0)
    old = path.read_text()
    for size in (0, 100, len(old) // 2):
        with no_longer_than(size), pytest.raises(OSError, match=f"{path} could not be written"):
            write_ledger(path, [], 2, 0)
        assert path.read_text() == old
        survived("write broken off")


# Stores that cannot be written.


@pytest.mark.parametrize("claims", [pytest.param(False, marks=slow), True], ids=["never used", "used before"])
def test_a_store_that_cannot_be_written_is_named_before_anything_is_computed(
    claims,
    results,
    call,
    disk,
    monkeypatch,
    survived,
):
    """What is stored there can be read all the same."""
    store = disk()
    save_result(results[0], store)
    if claims:
        for spec in SPECS:
            Claim.take(spec, store)
    disk.read_only()
    monkeypatch.setattr(local, "run_trial", lambda *_: pytest.fail("a trial was begun"))
    for run in (run_missing, lambda *a, **k: gather(SPECS, math.inf, "cpu", store, str)):
        with pytest.raises(OSError, match=f"Read-only file system: '{store / 'smoke'}"):
            run(SPECS, store, say=str)
    assert run_missing(SPECS[:1], store, say=str) == Outcome(stored=[SPECS[0].hash])
    assert gather([SPECS[0], SPECS[0]], math.inf, "cpu", store, str) == [results[0]], (
        "an interval counts each trial once"
    )
    one_line(call(*SMALL, store / "other"), "Read-only file system", str(store / "other"))
    survived("store read-only", 3)


def test_a_store_that_becomes_read_only_meanwhile_loses_no_result(results, disk, tmp_path, monkeypatch, survived):
    store, elsewhere = disk(kib=8000), tmp_path / "elsewhere"
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(elsewhere))

    def watch(spec, *where):
        if where == ("head tuning", 1.0):
            disk.read_only()

    with pytest.raises(OSError, match=f"Read-only file system.* is kept in {elsewhere}"):
        run_missing(SPECS, store, say=str, on_progress=watch)
    assert numbers(load_result(result_path(SPECS[0], elsewhere / "hmmlib-rescued"))) == numbers(results[0])
    assert is_stored(SPECS[0], store) is False
    disk.writable()
    assert run_missing(SPECS[:1], store, say=str) == Outcome(ran=[SPECS[0].hash])
    survived("store read-only")


# Clocks that jump.


class Jumping:
    """A clock that is set again with every look at it, a year on or a day back; time.monotonic() goes on as it does."""

    def __init__(self, jump: float):
        self.now, self.jump = time.time(), jump

    def __call__(self) -> float:
        self.now += self.jump
        return self.now


@pytest.mark.parametrize("jump", [YEAR, -DAY], ids=["a year on", "a day back"])
def test_a_clock_that_jumps_neither_ends_a_time_box_nor_prolongs_it(jump, results, tmp_path, monkeypatch, survived):
    monkeypatch.setattr(time, "time", Jumping(jump))
    assert run_missing(SPECS, tmp_path, until=deadline(5), say=str).ran == [spec.hash for spec in SPECS]
    assert stored(tmp_path) == {f"{result.spec.hash}.json": numbers(result) for result in results}
    soon_over = deadline(1e-9)
    assert run_missing(SPECS[:1], tmp_path / "other", until=soon_over, say=str) == Outcome(left=[SPECS[0].hash])
    survived("clock jumps", 2)


@pytest.mark.parametrize("jump", [YEAR, -DAY], ids=["a year on", "a day back"])
def test_a_jump_neither_adds_checkpoints_nor_leaves_them_out(jump, tmp_path, monkeypatch, survived):
    written, save, path = [], checkpoints.save, tmp_path / "one.safetensors"
    monkeypatch.setattr(checkpoints, "save", lambda *a: written.append(a[2]["done"]) or save(*a))
    monkeypatch.setattr(time, "time", Jumping(jump))
    train("Muon", path, every=120)
    assert written == [str(STEPS)]
    written.clear()
    checkpoints.remove(path)
    train("Muon", path, every=0)
    assert written == [*map(str, range(1, STEPS + 1)), str(STEPS)]
    survived("clock jumps", 2)


@pytest.mark.parametrize("skew", [YEAR, -YEAR, -GRACE / 2], ids=["ahead", "behind", "a slow start"])
def test_a_worker_whose_clock_differs_keeps_to_its_time(skew, results, tmp_path, survived):
    """`sent` is by the clock of the machine that sends; what that says can shorten the worker's time by GRACE, no more."""
    sent = time.time() + skew
    assert work(SPECS[0], None, tmp_path, "cpu", GRACE + 300, sent, 1, [], None)[0] == "ran"
    assert work(SPECS[0], None, tmp_path, "cpu", 0.0, sent, 1, [], None) == ("left", None), "whatever the clock says"
    assert work(SPECS[0], None, tmp_path, "cpu", GRACE / 2, sent, 1, [], None)[0] == ("ran" if skew > 0 else "left")
    survived("clock jumps", 2)


def test_files_from_the_past_and_the_future_are_what_their_contents_are(results, tmp_path, survived):
    """Held claims stay held, results stored; and the newer checkpoint is the one that was written last."""
    save_result(results[0], tmp_path)
    claim, path = Claim.take(SPECS[1], tmp_path), tmp_path / "one.safetensors"
    leave_two(path)
    for moment in (0, time.time() - DAY, time.time() + YEAR):
        for file in tmp_path.rglob("*"):
            os.utime(file, (moment, moment))
        os.utime(checkpoints.previous(path), (moment + 60, moment + 60))
        assert Claim.take(SPECS[1], tmp_path) is None
        assert is_stored(SPECS[0], tmp_path)
        assert checkpoints.load(path, {})[1]["done"] == "6"
        survived("clock jumps")
    claim.release()
    assert run_missing(SPECS[:2], tmp_path, say=str) == Outcome(stored=[SPECS[0].hash], ran=[SPECS[1].hash])
