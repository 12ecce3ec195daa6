"""Checkpoints: a pretraining that was broken off goes on to the same weights, bit by bit, whatever befell it."""

import math
import os

import pytest
import torch
from safetensors import SafetensorError
from short_pretraining import NAMES, STEPS, Stopped, leave_two, stop_after, train, undisturbed

from hmmlib.training import checkpoints

pytestmark = pytest.mark.outside


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "one.safetensors"


# Broken off


def resumed(name, path):
    """A run goes on from its checkpoint and ends as an undisturbed one: the steps that are reported."""
    reports = []
    assert train(name, path, lambda now, loss: reports.append(now)) == undisturbed(name)
    return reports


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_broken_off_ends_with_the_same_weights(name, path):
    for step in range(STEPS):  # after every step, one time after the other
        torch.manual_seed(step)  # the global generator does not matter
        with pytest.raises(Stopped):
            train(name, path, stop_after(step))
    assert resumed(name, path) == []
    assert undisturbed(name) != train(name, seed=2)
    for step in (0, STEPS - 2):  # and once
        checkpoints.remove(path)
        with pytest.raises(Stopped):
            train(name, path, stop_after(step))
        assert resumed(name, path) == list(range(step + 1, STEPS))


@pytest.mark.parametrize("name", ["AdamW, dropout, documents", "Muon, dropout"])
@pytest.mark.parametrize("lost", ["network.", "optimiser.0.", "optimiser.1.", "draws", "dropout", "losses"])
def test_all_that_a_checkpoint_holds_is_needed(name, lost, path, monkeypatch):
    with pytest.raises(Stopped):
        train(name, path, stop_after(4))
    tensors, facts = checkpoints.load(path, {})
    damaged = {key: value.clone() for key, value in tensors.items()}
    for key in (key for key in damaged if key.startswith(lost)):
        if damaged[key].dtype == torch.uint8:
            damaged[key].copy_(torch.Generator().manual_seed(99).get_state())
        else:
            damaged[key] *= 0.5
    monkeypatch.setattr(checkpoints, "load", lambda *arguments: (damaged, facts))
    (losses, weights), (expected_losses, expected) = train(name, path), undisturbed(name)
    absent = lost == "optimiser.1." and name.startswith("AdamW")  # which has one optimiser
    assert (losses == expected_losses) == absent
    assert (weights == expected) == (absent or lost == "losses")


def test_a_step_that_was_cut_in_half_is_not_kept(path, monkeypatch):
    step, calls = torch.optim.AdamW.step, []

    def interrupted(self, *arguments, **options):
        calls.append(0)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return step(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)  # Muon's half of the step is done by then
    with pytest.raises(KeyboardInterrupt):
        train("Muon", path)
    assert not path.exists()
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        train("Muon", path, every=0)
    assert resumed("Muon", path) == list(range(5, STEPS))


def test_how_often_a_checkpoint_is_written(path, monkeypatch):
    written, save = [], checkpoints.save
    monkeypatch.setattr(checkpoints, "save", lambda *a: written.append(int(a[2]["done"])) or save(*a))
    for _ in range(2):  # a finished run has nothing to add
        assert train("Muon", path) == undisturbed("Muon")
        assert (written, os.listdir(path.parent)) == ([STEPS], ["one.safetensors"])
    checkpoints.remove(path)
    train("Muon", path, every=0)
    assert written[1 : STEPS + 1] == list(range(1, STEPS + 1))
    assert sorted(os.listdir(path.parent)) == ["one.previous.safetensors", "one.safetensors"]
    for _ in range(2):  # also where there is none
        checkpoints.remove(path)
        assert os.listdir(path.parent) == []


# Broken checkpoints


def test_a_checkpoint_cut_short_gives_way_to_the_one_before_or_to_a_fresh_start(path):
    """tests/faults cuts one at every byte."""
    before = checkpoints.previous(path)
    for broken, first in (([path], 3), ([path, before], 0)):
        leave_two(path)
        for one in broken:
            one.write_bytes(one.read_bytes()[: one.stat().st_size // 2])
        with pytest.warns(UserWarning, match=r"is no whole checkpoint and is passed over") as caught:
            assert resumed("Muon", path) == list(range(first, STEPS))
        assert [warning.message.args[0].split()[0] for warning in caught] == [str(one) for one in broken]
        checkpoints.remove(path)
    leave_two(path)
    path.unlink()  # the one before alone will do
    assert resumed("Muon", path) == list(range(3, STEPS))


def with_header(text, old, new):
    """A safetensors file with a part of its header replaced."""
    size = int.from_bytes(text[:8], "little")
    header = text[8 : 8 + size].replace(old, new, 1)
    assert header != text[8 : 8 + size]
    return len(header).to_bytes(8, "little") + header + text[8 + size :]


def test_a_checkpoint_with_another_fact_type_or_shape_gives_way_too(path):
    leave_two(path)
    text = path.read_bytes()
    for old, new in ((b'"done":"6"', b'"done":"4"'), (b'"F32"', b'"I32"'), (b'"shape":[8,8]', b'"shape":[4,16]')):
        path.write_bytes(with_header(text, old, new))
        with pytest.warns(UserWarning, match=r"one\.safetensors is no whole checkpoint and is passed over"):
            assert int(checkpoints.load(path, {})[1]["done"]) == 3


@pytest.mark.parametrize(
    ("name", "seed", "message"),
    [
        ("Muon", 2, r"one\.safetensors is the checkpoint of another run: its seed is 1, not 2"),
        ("AdamW", 1, r"one\.safetensors is the checkpoint of another run: its plan is .*'muon_rate': 0.04.*not .*0\.0"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(name, seed, message, path):
    leave_two(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        train(name, path, seed=seed)
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(ValueError, match=message.replace("one", "one.previous")):
        train(name, path, seed=seed)


def test_a_run_that_was_begun_elsewhere_begins_anew(path):
    leave_two(path)
    tensors, facts = checkpoints.load(path, {})
    assert facts["place"] == "cpu in torch.float32"
    checkpoints.save(path, tensors, {**facts, "place": "cuda in torch.float32"})
    with pytest.warns(UserWarning, match=r"made on cuda in torch\.float32, this is cpu in torch\.float32: begun anew"):
        assert resumed("Muon", path) == list(range(STEPS))


# Writing that fails


@pytest.mark.parametrize("every", [0, math.inf], ids=["while it runs", "when it is broken off"])
@pytest.mark.parametrize(
    ("module", "call", "moment", "error"),
    [
        (checkpoints, "save_file", 0, SafetensorError("No space left on device")),
        (checkpoints, "save_file", 0, PermissionError(13, "Permission denied")),
        (os, "replace", 0, OSError(30, "Read-only file system")),
        (os, "replace", 1, OSError(30, "Read-only file system")),
    ],
    ids=["full disk", "no permission", "no rename", "no second rename"],
)
def test_a_checkpoint_that_cannot_be_written_is_an_error_and_the_old_one_stays(
    module, call, moment, error, every, path, monkeypatch
):
    """tests/faults has files that may grow no further."""
    leave_two(path)
    plain, calls = getattr(module, call), []

    def failing(*arguments, **options):
        calls.append(0)
        if len(calls) > moment:
            raise error
        return plain(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, call, failing)
        with pytest.raises(OSError, match=rf"no checkpoint could be written to {path}: .*(space|denied|Read-only)"):
            train("Muon", path, stop_after(7), every)
    assert checkpoints.load(path, {})[1]["done"] == "6"
    assert not list(path.parent.glob("*.tmp"))
    assert train("Muon", path) == undisturbed("Muon")
