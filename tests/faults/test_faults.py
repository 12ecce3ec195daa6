"""Faults: checkpoints cut short, disks that are full or cannot be written. Nothing is lost or half believed."""

import math
import os
import shutil
import warnings

import pytest
import torch
from commands import one_line
from companion.figures.live import gather
from companion.pages import write_ledger
from faults import fill, no_longer_than
from runs import CHANGES, TINY, numbers, stored
from short_pretraining import STEPS, Stopped, leave_two, stop_after, train, undisturbed

from hmmlib.experiments import sweeps
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import Claim, checkpoint_path, is_stored, load_result, result_path, save_result
from hmmlib.experiments.sweeps import Outcome, run_missing
from hmmlib.experiments.trials import run_trial
from hmmlib.files import write_whole
from hmmlib.training import checkpoints

SPECS = [TrialSpec("smoke", seed=seed, **TINY) for seed in range(3)]
SMALL = ["trial", "--preset", "smoke", "--n-states", 3, *CHANGES, "--store"]
"""The command line's words for SPECS[0], before those for the store."""


@pytest.fixture(scope="module")
def results():
    return [run_trial(spec) for spec in SPECS]


def test_pretraining_killed_while_it_writes_checkpoints_ends_with_the_same_weights(tmp_path, monkeypatch, survived):
    """A kill before or behind a rename leaves what lies there then, the temporary file cut short in its midst."""
    path, rename = tmp_path / "run" / "one.safetensors", os.replace
    left, reports, begun = [], [], []

    def watched(*names):
        for act in (lambda: None, lambda: rename(*names)):
            act()
            left.append(shutil.copytree(path.parent, tmp_path / f"left {len(left)}"))
            for temporary in left[-1].glob("*.tmp"):
                os.truncate(temporary, temporary.stat().st_size // 3)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched)
        with pytest.raises(Stopped):
            train("Muon", path, stop_after(2), every=0.0)
    for folder in left:
        reports.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing half-written lies where a whole checkpoint should
            assert train("Muon", folder / path.name, lambda now, loss: reports.append(now)) == undisturbed("Muon")
        begun.append(reports[0])
    assert begun[:6] == [0, 1, 1, 1, 1, 2], "of two checkpoints, a kill costs the one that is being written"
    survived("pretraining killed", len(left))


def test_a_checkpoint_cut_short_at_any_length_is_never_believed(tmp_path, survived):
    """Cut at each of its bytes: the one before it is taken, with a warning that names the file; of two, none."""
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


@pytest.mark.parametrize(
    "write", [lambda path: write_whole(path, "0123456789" * 900), lambda path: write_ledger(path, [], 2, 0)]
)
def test_a_file_that_cannot_be_finished_is_not_begun(write, tmp_path, survived):
    """A disk that is full after n bytes, for many n: the old file stays, nothing is beside it, an error names it."""
    path, whole = tmp_path / "store" / "a.json", tmp_path / "whole.json"
    write(whole)
    write_whole(path, "old")
    sizes = range(0, whole.stat().st_size, 100)
    for size in sizes:
        with no_longer_than(size), pytest.raises(OSError, match=f"{path} could not be written: .*too large"):
            write(path)
        assert (path.read_text(), os.listdir(path.parent)) == ("old", ["a.json"])
    survived("write broken off", len(sizes))
    write(path)
    assert path.read_text() == whole.read_text()


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_costs_nothing(tmp_path, survived):
    path = tmp_path / "one.safetensors"
    leave_two(path)
    before, size, reports = path.read_bytes(), path.stat().st_size, []
    for share in (0.0, 0.3, 0.6, 0.99):
        with no_longer_than(int(share * size)), pytest.raises(OSError, match=f"could be written to {path}: .*too lar"):
            train("Muon", path, every=0)
        assert path.read_bytes() == before
        assert sorted(os.listdir(tmp_path)) == ["one.previous.safetensors", "one.safetensors"]
        survived("write broken off")
    assert train("Muon", path, lambda now, loss: reports.append(now)) == undisturbed("Muon")
    assert reports == list(range(6, STEPS))


def test_a_full_disk_ends_the_command_in_one_line_and_it_goes_on_when_there_is_room(results, call, disk, survived):
    store = disk(kib=4000)
    path, filler = checkpoint_path(SPECS[0], store), fill(store)
    one_line(call(*SMALL, store), f"no checkpoint could be written to {path}: ", "No space left on device")
    survived("disk full")
    assert list(path.parent.iterdir()) == []
    filler.unlink()
    code, _, err = call(*SMALL, store)
    assert (code, err, stored(store)) == (0, "", {f"{SPECS[0].hash}.json": numbers(results[0])})


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The system's temporary folder, not there yet."""
    monkeypatch.setattr(sweeps.tempfile, "gettempdir", lambda: str(tmp_path / "elsewhere"))
    return tmp_path / "elsewhere"


def until_full(store, phase):
    """Run a spec on a disk that fills up at the end of a phase; what was reports of the trial."""
    reports = []

    def watch(spec, *where):
        reports.append(where)
        if where == (phase, 1.0):
            fill(store)

    return run_missing(SPECS[:1], store, log=str, on_progress=watch), reports


def test_a_result_for_which_the_disk_has_no_room_takes_its_checkpoints(results, disk, elsewhere, survived):
    outcome, _ = until_full(store := disk(kib=8000), "prompt tuning")
    assert outcome == Outcome(ran=[SPECS[0].hash])
    assert stored(store) == {f"{SPECS[0].hash}.json": numbers(results[0])}
    assert not any(path.is_file() for path in elsewhere.rglob("*"))
    survived("disk full")


def test_a_result_that_can_be_kept_nowhere_leaves_its_network(results, disk, elsewhere, survived):
    """Both disks are full: the message says so of both, and the same call goes on behind the pretraining."""
    store = disk(kib=8000)
    elsewhere.write_text("a file, in place of a folder")
    said = rf"{result_path(SPECS[0], store)} could not be written: .*; nor could .* kept elsewhere: {elsewhere}"
    with pytest.raises(OSError, match=said):
        until_full(store, "prompt tuning")
    survived("disk full")
    (store / "filler").unlink()
    outcome, reports = until_full(store, "never")
    assert outcome == Outcome(ran=[SPECS[0].hash])
    assert {share for _, share in reports} == {1.0}, "it was pretrained again"
    assert stored(store) == {f"{SPECS[0].hash}.json": numbers(results[0])}
    assert not any((store / "smoke" / ".unfinished").iterdir())


@pytest.mark.parametrize("claims", [False, True], ids=["never used", "used before"])
def test_a_store_that_cannot_be_written_is_named_before_anything_is_computed(
    claims, results, call, disk, monkeypatch, survived, capsys
):
    """What is stored there can be read all the same."""
    store = disk()
    save_result(results[0], store)
    for spec in SPECS if claims else ():
        Claim.take(spec, store)
    disk.read_only()
    monkeypatch.setattr(sweeps, "run_trial", lambda *_: pytest.fail("a trial was begun"))
    for run in (run_missing, lambda *a, **k: gather(SPECS, math.inf, "cpu", store, str)):
        with pytest.raises(OSError, match=f"Read-only file system: '{store / 'smoke'}"):
            run(SPECS, store, log=str)
    assert run_missing(SPECS[:1], store, log=str) == Outcome(stored=[SPECS[0].hash])
    assert gather([SPECS[0]] * 2, math.inf, "cpu", store, str) == [results[0]], "an interval counts each trial once"
    capsys.readouterr()  # what was stored before
    one_line(call(*SMALL, store / "other"), "Read-only file system", str(store / "other"))
    survived("store read-only", 3)


def test_a_store_that_becomes_read_only_meanwhile_loses_no_result(results, disk, elsewhere, survived):
    store, reports = disk(kib=8000), []

    def watch(spec, *where):
        reports.append(where)
        if where == ("head tuning", 1.0) and reports.count(where) == 1:
            disk.read_only()

    with pytest.raises(OSError, match=f"Read-only file system.* is kept in {elsewhere}"):
        run_missing(SPECS, store, log=str, on_progress=watch)
    assert numbers(load_result(result_path(SPECS[0], elsewhere / "hmmlib-rescued"))) == numbers(results[0])
    assert is_stored(SPECS[0], store) is False
    disk.writable()
    assert run_missing(SPECS[:1], store, log=str) == Outcome(ran=[SPECS[0].hash])
    survived("store read-only")
