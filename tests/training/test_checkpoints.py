"""A pretraining that was broken off goes on from its checkpoint and ends with the same weights, bit by bit."""

import math
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
import torch
from faults import no_longer_than
from runs import CHANGES, TINY, command_at_step, numbers

from hmmbook.experiments.specs import TrialSpec
from hmmbook.experiments.store import checkpoint_path, load_result, result_path
from hmmbook.experiments.trials import run_trial
from hmmlib import Tuning, device, random_hmm, tune_head
from hmmlib.training import checkpoints
from hmmlib.training.bert import Shape, build, fingerprint
from hmmlib.training.gradients import Gradients
from hmmlib.training.pretraining import Pretraining, pretrain

pytestmark = pytest.mark.outside

STEPS = 9
PLAN = Pretraining(STEPS, batch=4, length=8, masked=0.25, learning_rate=1e-2, muon_rate=0.04, warmup=3)
DOCUMENTS = replace(PLAN, documents=5, document_length=20)
ADAMW = replace(PLAN, muon_rate=0.0, clip=0.1)
PLANS_AND_DROPOUT = [
    (PLAN, 0.0),
    (ADAMW, 0.0),
    (PLAN, 0.2),
    (replace(DOCUMENTS, muon_rate=0.0), 0.2),
    (replace(DOCUMENTS, masking="bert"), 0.2),
]


class Stopped(Exception):
    """What a report raises to end the training."""


def stop_after(step):
    def report(now, loss):
        if now == step:
            raise Stopped

    return report


def train(plan=PLAN, dropout=0.0, path=None, report=None, every=math.inf, seed=1):
    """Pretrain a fresh network: the losses, and the fingerprint of its weights."""
    shape = Shape(layers=1, width=8, heads=2, max_length=8, dropout=dropout)
    network = build(shape, 4, 0)
    losses = pretrain(network, random_hmm(3, 4, 1), plan, seed, report, path, every)
    return losses, fingerprint(network)


undisturbed = cache(train)


def reported_steps_of_resumed(path, plan=PLAN, dropout=0.0):
    """Go on from a checkpoint. The end must be that of an undisturbed run."""
    steps = []

    def report(step, loss):
        steps.append(step)

    assert train(plan, dropout, path, report) == undisturbed(plan, dropout)
    return steps


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "one.pt"


@pytest.fixture
def after_six_steps(path):
    """The path of a checkpoint of PLAN."""
    with pytest.raises(Stopped):
        train(path=path, report=stop_after(5))
    return path


@pytest.mark.parametrize(("plan", "dropout"), PLANS_AND_DROPOUT)
def test_a_run_broken_off_after_every_step_ends_with_the_same_weights(plan, dropout, path):
    for step in range(STEPS):
        torch.manual_seed(step)  # The global generator does not matter.
        with pytest.raises(Stopped):
            train(plan, dropout, path, stop_after(step))
    assert reported_steps_of_resumed(path, plan, dropout) == []
    assert undisturbed(plan, dropout) != train(plan, dropout, seed=2)


def test_a_kill_before_or_after_a_rename_costs_only_the_steps_since_the_last_checkpoint(path, tmp_path, monkeypatch):
    rename = os.replace
    left_behind = []

    def leave_a_copy():
        copy = shutil.copytree(path.parent, tmp_path / f"copy {len(left_behind)}")
        for temporary in copy.glob("*.tmp"):
            os.truncate(temporary, temporary.stat().st_size // 3)  # Killed while it was written.
        left_behind.append(copy / path.name)

    def watched_rename(*names):
        leave_a_copy()
        rename(*names)
        leave_a_copy()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched_rename)
        with pytest.raises(Stopped):
            train(path=path, report=stop_after(2), every=0.0)

    first_steps = [reported_steps_of_resumed(copy)[0] for copy in left_behind[:6]]
    assert first_steps == [0, 1, 1, 2, 2, 3]


def test_a_file_cut_short_at_any_length_is_refused_by_name_and_stays(path, survived):
    checkpoints.save(path, {"a": torch.arange(5.0), "done": 1})
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"one\.pt is no checkpoint that can be read"):
            checkpoints.load(path)
        assert path.read_bytes() == content[:length]
        survived("checkpoint cut short")


def test_a_disk_that_fills_up_keeps_the_old_checkpoint(after_six_steps, survived):
    path = after_six_steps
    before = path.read_bytes()
    for share in (0.0, 0.3, 0.99):
        size = int(share * len(before))
        with no_longer_than(size), pytest.raises(checkpoints.CheckpointError, match=f"could be written to {path}: "):
            train(path=path, every=0.0)
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == [path.name]
        survived("write broken off")
    assert reported_steps_of_resumed(path) == list(range(6, STEPS))


def test_the_checkpoint_of_another_run_is_refused_and_stays(after_six_steps):
    path = after_six_steps
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"one\.pt is the checkpoint of another run: its plan is .*not .*"):
        train(ADAMW, path=path)
    with pytest.raises(ValueError, match=r"one\.pt is the checkpoint of another run: its seed is 1, not 2"):
        train(path=path, seed=2)
    assert path.read_bytes() == before
    checkpoints.save(path, {"weights": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"one\.pt is no checkpoint of a pretraining"):
        train(path=path)
    torch.save(torch.zeros(2), path)
    with pytest.raises(ValueError, match=r"one\.pt is no checkpoint, but holds a Tensor"):
        train(path=path)


UNFIT = [
    ({"done": 10**6}, "done must be an integer from 0 to"),
    ({"done": -5}, "done must be an integer from 0 to"),
    ({"done": 1.5}, "done must be an integer from 0 to"),
    ({"losses": torch.zeros(1)}, "losses must have shape"),
    ({"losses": None}, "TypeError: losses must be of type Tensor"),
    ({"network": {}}, "RuntimeError: Error"),
    ({"optimisers": []}, "ValueError: zip"),
    ({"masks": torch.zeros(2)}, "masks|RuntimeError|TypeError"),
]


@pytest.mark.parametrize(("changes", "reason"), UNFIT, ids=str)
def test_a_checkpoint_that_does_not_fit_its_plan_is_refused_by_name_and_stays(changes, reason, after_six_steps):
    path = after_six_steps
    checkpoints.save(path, checkpoints.load(path) | changes)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"one\.pt is no checkpoint that can be used, so move it away: .*({reason})"):
        train(path=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["done", "losses", "network", "optimisers", "masks", "dropout", "scaler"])
def test_a_checkpoint_that_lacks_something_is_refused_by_name(name, after_six_steps):
    path = after_six_steps
    content = checkpoints.load(path)
    del content[name]
    checkpoints.save(path, content)
    with pytest.raises(ValueError, match=rf"one\.pt is no checkpoint that can be used, .*: KeyError: '{name}'"):
        train(path=path)


def test_a_checkpoint_of_another_kind_of_hardware_is_begun_anew(after_six_steps):
    path = after_six_steps
    content = checkpoints.load(path)
    assert content["hardware"] == "cpu in torch.float32"
    checkpoints.save(path, content | {"hardware": "cuda in torch.float32"})
    with pytest.warns(UserWarning, match=r"made on cuda in torch\.float32, not cpu in torch\.float32, so the run"):
        assert reported_steps_of_resumed(path) == list(range(STEPS))


@pytest.fixture(autouse=True)
def ctrl_c_counts():
    """Ctrl-C raises KeyboardInterrupt, whatever started the tests. Each test leaves it so."""
    handler_before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, handler_before) is signal.default_int_handler
    assert not device.Interrupts.asked


def interrupt_at(step, times, monkeypatch):
    """Press Ctrl-C so many times while the gradients of a step are computed."""
    compute = Gradients.compute
    calls = []

    def interrupted(self, *inputs):
        calls.append(self)
        if len(calls) == step + 1:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return compute(self, *inputs)

    monkeypatch.setattr(Gradients, "compute", interrupted)


@pytest.mark.parametrize("step", [3, STEPS - 1])
def test_an_interrupt_keeps_the_step_it_comes_in(step, path, monkeypatch, capfd):
    interrupt_at(step, 1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(path=path)
    assert capfd.readouterr().err == "stopping after this step\n"
    assert checkpoints.load(path)["done"] == step + 1
    assert reported_steps_of_resumed(path) == list(range(step + 1, STEPS))


def test_a_second_interrupt_ends_at_once_and_keeps_no_half_step(path, monkeypatch):
    interrupt_at(3, 2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(path=path)
    assert checkpoints.load(path) is None


@pytest.mark.parametrize("tunes", [True, False])
def test_an_interrupt_that_an_import_would_swallow_ends_the_next_step_of_tuning_or_comes_at_the_end(tunes):
    steps = []

    @device.interrupts_between_steps()
    def work():
        with suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        steps.append("after the import")
        if tunes:
            labels = torch.arange(8) > 3
            tune_head(torch.rand(8, 3), labels, Tuning(epochs=1, batch=4), 0)
            steps.append("tuned")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["after the import"]


def test_in_other_threads_and_where_signals_are_ignored_nothing_is_changed():
    @device.interrupts_between_steps()
    def handler():
        return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor() as pool:
        assert pool.submit(handler).result() is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert handler() is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=lambda sent: sent.name)
def test_a_command_that_is_broken_off_goes_on_to_the_same_result(sent, tmp_path, call):
    spec = TrialSpec("smoke", **TINY)
    command = ["trial", "--preset", "smoke", "--n-states", "3", "--store", tmp_path, *CHANGES]
    process = command_at_step(3, sent, *command)
    assert checkpoints.load(checkpoint_path(spec, tmp_path))["done"] == 3
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert "its network after 3 of 4 steps is kept. Run it again to go on.\n" in process.stderr
    else:
        assert process.returncode == -signal.SIGKILL
    assert call(*command)[0] == 0
    assert numbers(load_result(result_path(spec, tmp_path))) == numbers(run_trial(spec))
    assert not any(checkpoint_path(spec, tmp_path).parent.iterdir())
