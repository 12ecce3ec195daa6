"""Checkpoints: a pretraining that was broken off goes on to the same weights, bit by bit, whatever befell it."""

import math
import os
import resource

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
    torch.manual_seed(0)  # the global generator does not matter
    assert train(name, path, lambda now, loss: reports.append(now)) == undisturbed(name)
    return reports


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_broken_off_ends_with_the_same_weights(name, path):
    for step in (0, 4, STEPS - 2, STEPS - 1):
        with pytest.raises(Stopped):
            train(name, path, stop_after(step))
        assert resumed(name, path) == list(range(step + 1, STEPS))
        checkpoints.remove(path)
    for step in range(STEPS):  # and after every step, one time after the other
        with pytest.raises(Stopped):
            train(name, path, stop_after(step))
    assert resumed(name, path) == []
    assert undisturbed(name) == train(name)
    assert undisturbed(name) != train(name, seed=2)


PARTS = ["network.", "optimiser.0.", "draws", "dropout", "losses"]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        *(("AdamW, dropout, documents", part) for part in PARTS),
        *(("Muon, dropout", part) for part in (*PARTS, "optimiser.1.")),
    ],
)
def test_all_that_a_checkpoint_holds_is_needed(name, lost, path, monkeypatch):
    with pytest.raises(Stopped):
        train(name, path, stop_after(4))
    load = checkpoints.load

    def damaged(*arguments):
        tensors, facts = load(*arguments)
        tensors = {name: value.clone() for name, value in tensors.items()}
        for key, value in tensors.items():
            if key.startswith(lost) and value.dtype == torch.uint8:
                value.copy_(torch.Generator().manual_seed(99).get_state())
            elif key.startswith(lost):
                value *= 0.5
        return tensors, facts

    monkeypatch.setattr(checkpoints, "load", damaged)
    (losses, weights), (expected_losses, expected) = train(name, path), undisturbed(name)
    assert losses != expected_losses
    assert (weights == expected) == (lost == "losses")


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
    monkeypatch.setattr(checkpoints, "save", lambda *a: written.append(a[2]["done"]) or save(*a))
    for _ in range(2):  # a finished run has nothing to add
        assert train("Muon", path) == undisturbed("Muon")
        assert written == [str(STEPS)]
        assert os.listdir(path.parent) == ["one.safetensors"]
    checkpoints.remove(path)
    written.clear()
    train("Muon", path, every=0)
    assert written[:STEPS] == [str(step + 1) for step in range(STEPS)]
    assert sorted(os.listdir(path.parent)) == ["one.previous.safetensors", "one.safetensors"]
    checkpoints.remove(path)
    assert os.listdir(path.parent) == []
    checkpoints.remove(path)


# Broken checkpoints


def cut(path, share):
    """Cut a file short."""
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.05, 0.5, 0.9999])
def test_a_checkpoint_cut_short_gives_way_to_the_one_before_or_to_a_fresh_start(share, path):
    """tests/faults cuts one at every byte."""
    for broken in ([path], [path, checkpoints.previous(path)]):
        leave_two(path)
        for one in broken:
            cut(one, share)
        with pytest.warns(UserWarning, match=r"is no whole checkpoint and is passed over") as caught:
            assert resumed("Muon", path) == list(range(3 if len(broken) == 1 else 0, STEPS))
        assert [warning.message.args[0].split()[0] for warning in caught] == [str(one) for one in broken]
        checkpoints.remove(path)


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


def test_the_one_before_alone_will_do(path):
    leave_two(path)
    path.unlink()
    assert resumed("Muon", path) == [3, 4, 5, 6, 7, 8]


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


def raises(error):
    def call(*_):
        raise error

    return call


READ_ONLY, REPLACE = raises(OSError(30, "Read-only file system")), os.replace
FAILURES = {
    "full disk": lambda path: (checkpoints, "save_file", raises(SafetensorError("No space left on device"))),
    "no permission": lambda path: (checkpoints, "save_file", raises(PermissionError(13, "Permission denied"))),
    "no rename": lambda path: (os, "replace", READ_ONLY),
    "no second rename": lambda path: (
        os, "replace", lambda one, other: (READ_ONLY if other == path else REPLACE)(one, other)
    ),
}  # fmt: skip


def whole(path):
    """The newest whole checkpoint's number of steps, read without regard to whose it is."""
    return int(checkpoints.load(path, {})[1]["done"])


@pytest.mark.parametrize("failure", FAILURES)
def test_a_checkpoint_that_cannot_be_written_is_an_error_and_the_old_one_stays(failure, path, monkeypatch):
    leave_two(path)
    done = whole(path)
    for every in (0, math.inf):  # while it runs, and when it is broken off
        with monkeypatch.context() as patched:
            patched.setattr(*FAILURES[failure](path))
            with pytest.raises(OSError, match=rf"no checkpoint could be written to {path}: .*(space|denied|Read-only)"):
                train("Muon", path, stop_after(7), every)
        assert whole(path) == done
        assert not list(path.parent.glob("*.tmp"))
    assert train("Muon", path) == undisturbed("Muon")


def test_a_file_that_may_not_grow_is_an_error_and_the_old_one_stays(path):
    leave_two(path)
    done, limits = whole(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    assert path.stat().st_size > 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=f"no checkpoint could be written to {path}"):
            train("Muon", path, every=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert whole(path) == done
    assert train("Muon", path) == undisturbed("Muon")
