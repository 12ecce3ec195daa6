"""A pretraining that was broken off goes on from its checkpoint to the same weights, bit by bit, whatever befell it:
an error, a broken checkpoint, Ctrl-C, or a kill."""

import math
import os
import signal
import threading
from contextlib import suppress

import pytest
import torch
from record import slow
from runs import CHANGES, TINY, command_at_step, numbers
from safetensors import SafetensorError
from short_pretraining import NAMES, STEPS, Stopped, leave_two, stop_after, train, undisturbed

from hmmlib import backend
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import checkpoint_path, load_result, result_path
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints, pretraining
from hmmlib.training.tuning import Tuning, tune_head

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


def broken_off(name, path, step):
    with pytest.raises(Stopped):
        train(name, path, stop_after(step))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_broken_off_ends_with_the_same_weights(name, path):
    for step in range(STEPS):  # after every step, one time after the other
        torch.manual_seed(step)  # the global generator does not matter
        broken_off(name, path, step)
    assert resumed(name, path) == []
    assert undisturbed(name) != train(name, seed=2)
    for step in (0, STEPS - 2):  # and once
        checkpoints.remove(path)
        broken_off(name, path, step)
        assert resumed(name, path) == list(range(step + 1, STEPS))


@pytest.mark.parametrize("lost", ["network.", "optimiser.0.", "optimiser.1.", "draws", "dropout", "losses"])
def test_all_that_a_checkpoint_holds_is_needed(lost, path, monkeypatch):
    broken_off("Muon, dropout", path, 4)
    tensors, facts = checkpoints.load(path, {})
    for key in (key for key in tensors if key.startswith(lost)):
        other = torch.Generator().manual_seed(99).get_state()
        tensors[key] = other if tensors[key].dtype == torch.uint8 else tensors[key] * 0.5
    monkeypatch.setattr(checkpoints, "load", lambda *arguments: (tensors, facts))
    (losses, weights), (expected_losses, expected) = train("Muon, dropout", path), undisturbed("Muon, dropout")
    assert losses != expected_losses
    assert (weights == expected) == (lost == "losses")


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
    for broken, first in (([path], 3), ([path, checkpoints.previous(path)], 0)):
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


def test_a_checkpoint_with_another_fact_type_or_shape_gives_way_too(path):
    leave_two(path)
    text = path.read_bytes()
    end = 8 + int.from_bytes(text[:8], "little")  # of the header of a safetensors file
    for old, new in ((b'"done":"6"', b'"done":"4"'), (b'"F32"', b'"I32"'), (b'"shape":[8,8]', b'"shape":[4,16]')):
        header = text[8:end].replace(old, new, 1)
        assert header != text[8:end]
        path.write_bytes(len(header).to_bytes(8, "little") + header + text[end:])
        with pytest.warns(UserWarning, match=r"one\.safetensors is no whole checkpoint and is passed over"):
            assert int(checkpoints.load(path, {})[1]["done"]) == 3


def test_the_checkpoint_of_another_run_is_refused_and_stays(path):
    leave_two(path)
    before, another = path.read_bytes(), r"\.safetensors is the checkpoint of another run: its "
    with pytest.raises(ValueError, match=rf"one{another}plan is .*'muon_rate': 0.04.*not .*0\.0"):
        train("AdamW", path)
    with pytest.raises(ValueError, match=rf"one{another}seed is 1, not 2"):
        train("Muon", path, seed=2)
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(ValueError, match=rf"one\.previous{another}seed is 1, not 2"):
        train("Muon", path, seed=2)


def test_a_run_that_was_begun_elsewhere_begins_anew(path):
    leave_two(path)
    tensors, facts = checkpoints.load(path, {})
    assert facts["place"] == "cpu in torch.float32"
    checkpoints.save(path, tensors, {**facts, "place": "cuda in torch.float32"})
    with pytest.warns(UserWarning, match=r"made on cuda in torch\.float32, this is cpu in torch\.float32: begun anew"):
        assert resumed("Muon", path) == list(range(STEPS))


# Writing that fails


@pytest.mark.parametrize(
    ("every", "module", "call", "moment", "error"),
    [
        (0, checkpoints, "save_file", 0, SafetensorError("No space left on device")),
        (math.inf, checkpoints, "save_file", 0, PermissionError(13, "Permission denied")),
        (math.inf, os, "replace", 0, OSError(30, "Read-only file system")),
        (0, os, "replace", 1, OSError(30, "Read-only file system")),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_an_error_and_the_old_one_stays(
    every, module, call, moment, error, path, monkeypatch
):
    """While training runs, and when it is broken off. tests/faults has files that may grow no further."""
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


# Ctrl-C sets a flag that steps read

SPEC = TrialSpec("smoke", **TINY)


@pytest.fixture(autouse=True)
def ctrl_c_counts():
    """Whatever started the tests; and each test leaves it as it was."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert not backend.Interrupts.asked


@pytest.mark.parametrize(
    ("name", "step", "times"),
    [("Muon, dropout", 0, 1), ("AdamW, dropout, documents", 3, 1), ("Muon", STEPS - 1, 1), ("Muon", 3, 2)],
)
def test_an_interrupt_within_a_step_keeps_what_was_done_and_a_second_ends_at_once(
    name, step, times, path, monkeypatch, capfd
):
    """Ctrl-C comes while the gradients of that step are computed, so many times."""
    compute, calls = pretraining.Gradients.compute, []

    def interrupted(self, *inputs):
        calls.append(True)
        for _ in range(times if len(calls) == step + 1 else 0):
            signal.raise_signal(signal.SIGINT)
        return compute(self, *inputs)

    monkeypatch.setattr(pretraining.Gradients, "compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(name, path)
    assert capfd.readouterr().err == "stopping after this step\n"
    done = step + 1 if times == 1 else 0  # a step that was cut short is none to go on from
    assert checkpoints.facts_at(path) == {} if times == 2 else checkpoints.facts_at(path)["done"] == str(done)
    assert resumed(name, path) == list(range(done, STEPS))


def test_an_interrupt_that_an_import_would_swallow_ends_the_next_step_of_tuning_or_comes_at_the_end():
    steps = []

    @backend.interrupts_between_steps()
    def work(tunes):
        with suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        steps.append("after the import")
        if tunes:
            tune_head(torch.rand(8, 3), torch.arange(8) > 3, Tuning(1, 4, 0.1, 0.1), 0)
            steps.append("tuned")

    for tunes in (True, False):
        with pytest.raises(KeyboardInterrupt):
            work(tunes)
    assert steps == ["after the import"] * 2


def test_in_other_threads_and_where_signals_are_ignored_nothing_is_changed():
    seen = []

    def look():
        with backend.interrupts_between_steps():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert seen == [signal.default_int_handler, signal.SIG_IGN]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=lambda sent: sent.name)
def test_a_command_that_is_broken_off_goes_on_to_the_same_result(sent, tmp_path, call):
    words = ["trial", "--preset", "smoke", "--n-states", "3", "--store", tmp_path, *CHANGES]
    undisturbed_trial = numbers(run_trial(SPEC))
    done = command_at_step(3, sent, *words)
    facts = checkpoints.facts_at(checkpoint_path(SPEC, tmp_path))
    if sent == signal.SIGINT:
        assert (done.returncode, facts["done"]) == (130, "3"), done.stderr
        assert done.stderr.splitlines() == [
            "stopping after this step",
            "hmmlib: smoke |H| = 3, seed 0 was broken off, and its network after 3 of 4 steps is kept: "
            "run it again to go on",
            "hmmlib: interrupted; what is finished is kept: run it again to go on",
        ]
    else:
        assert (done.returncode, done.stderr, facts["done"]) == (-9, "", "2")
    assert call(*words)[0] == 0
    assert numbers(load_result(result_path(SPEC, tmp_path))) == undisturbed_trial
    assert not checkpoint_path(SPEC, tmp_path).exists()


@slow
def test_an_interrupt_of_a_notebooks_kernel_ends_the_trial_in_it(tmp_path):
    from jupyter_client.manager import start_new_kernel

    path = tmp_path / "one.safetensors"
    code = f"""
import os, pathlib, signal
from hmmlib import TrialSpec, run_trial
interrupt = lambda phase, share: os.kill(os.getpid(), signal.SIGINT) if share == 0.5 else None
run_trial(TrialSpec("smoke", **{TINY}), interrupt, checkpoint=pathlib.Path({str(path)!r}))
"""
    manager, client = start_new_kernel()
    try:
        reply = client.execute_interactive(code, output_hook=lambda message: None, timeout=120)
    finally:
        manager.shutdown_kernel(now=True)
    assert reply["content"].get("ename") == "KeyboardInterrupt"
    assert checkpoints.facts_at(path)["done"] == "3"
