"""Ctrl-C in the midst of a step: it waits for the step's end, a checkpoint is kept, and the next run goes on from there."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress

import pytest
from runs import ENVIRONMENT, PANEL, command
from short_pretraining import NAMES, STEPS, train, undisturbed

from hmmlib import backend
from hmmlib.experiments.local import run_missing, what_is_kept
from hmmlib.experiments.specs import panel_specs
from hmmlib.experiments.store import checkpoint_path, is_stored
from hmmlib.training import checkpoints, pretraining

pytestmark = pytest.mark.outside


def heeding_ctrl_c():
    """In a new process: what the background of a shell ignores counts again."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def ctrl_c_counts():
    """Whatever started the tests, or ran before in this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def in_the_midst(monkeypatch):
    """Makes Ctrl-C come, once or more often, while the gradients of a step are being computed."""
    whole = pretraining.Gradients.compute

    def at(step, times=1):
        done = []

        def compute(self, *inputs):
            done.append(True)
            for _ in range(times if len(done) == step + 1 else 0):
                signal.raise_signal(signal.SIGINT)
            return whole(self, *inputs)

        monkeypatch.setattr(pretraining.Gradients, "compute", compute)

    yield at
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("step", "times"), [(0, 1), (3, 1), (3, 2), (STEPS - 1, 1)])
def test_an_interrupt_within_a_step_keeps_what_was_done(name, step, times, tmp_path, in_the_midst, capfd):
    path = tmp_path / "one.safetensors"
    in_the_midst(step, times)
    with pytest.raises(KeyboardInterrupt):
        train(name, path)
    assert capfd.readouterr().err == "stopping after this step\n"
    assert checkpoints.kept(path)["done"] == str(step + 1)
    reports = []
    assert train(name, path, lambda now, loss: reports.append(now)) == undisturbed(name)
    assert reports == list(range(step + 1, STEPS))


def test_without_the_wait_an_interrupt_within_a_step_keeps_nothing(tmp_path, in_the_midst, monkeypatch):
    """The control: a step that was cut short is none to go on from."""
    monkeypatch.setattr(backend, "current_thread", lambda: None)
    in_the_midst(3)
    with pytest.raises(KeyboardInterrupt):
        train(NAMES[0], tmp_path / "one.safetensors")
    assert checkpoints.kept(tmp_path / "one.safetensors") == {}


def test_where_signals_do_not_arrive_or_are_ignored_nothing_is_changed():
    seen = []

    def elsewhere():
        with backend.interrupts_held() as let_through:
            let_through()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with backend.interrupts_held() as let_through:
            seen.append(signal.getsignal(signal.SIGINT))
            signal.raise_signal(signal.SIGINT)
            let_through()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.default_int_handler, signal.SIG_IGN]


@pytest.mark.parametrize("swallowed", [True, False])
def test_an_interrupt_that_another_library_swallows_ends_the_trial_at_its_next_step(swallowed, tmp_path):
    """As an import does that catches everything; the control: where none came, the trial is run to its end."""
    (spec,) = panel_specs("smoke", "left", 1, sizes=[4], **PANEL)
    asked = backend.heed_one_interrupt()
    try:
        if swallowed:
            with suppress(BaseException):
                signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt) if swallowed else nullcontext():
            run_missing([spec], tmp_path, say=str)
    finally:
        asked.clear()
    assert is_stored(spec, tmp_path) != swallowed
    assert checkpoints.kept(checkpoint_path(spec, tmp_path)).get("done") == ("1" if swallowed else None)


@pytest.mark.parametrize("other", [None, ValueError("told")])
def test_an_interrupt_in_a_finaliser_is_kept_and_shows_no_traceback(other, monkeypatch, capfd):
    """The control: any other error in a finaliser is told as Python tells it."""

    class Finalised:
        def __del__(self):
            if other:
                raise other
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    asked = backend.heed_one_interrupt()
    try:
        Finalised()
        assert asked == ([] if other else [True])
    finally:
        asked.clear()
    assert ("Traceback" in capfd.readouterr().err) == bool(other)


def test_an_interrupt_after_the_last_step_is_heeded_when_the_work_is_done():
    done = []

    def work():
        with backend.interrupts_held():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done


def test_the_command_line_says_what_is_kept_and_how_to_go_on(tmp_path):
    (spec,) = panel_specs("smoke", "left", 1, sizes=[4], **PANEL | {"steps": 100_000})
    call = command("trial", tmp_path, "--missing", "--trials", "1", "--size", "4", "--workers", "2", steps=100_000)
    streams = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    running = subprocess.Popen(call, preexec_fn=heeding_ctrl_c, start_new_session=True, **streams)
    try:
        lock = tmp_path / "smoke" / ".claims" / f"{spec.hash}.lock"
        while not lock.exists() and running.poll() is None:
            time.sleep(0.05)
        time.sleep(4)  # it is drawing its text, or training
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does, to all of the group
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "interrupted; what is finished is kept: run it again to go on" in errors
    assert what_is_kept(spec, tmp_path) in errors
    assert "Traceback" not in errors
