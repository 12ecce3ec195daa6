"""Ctrl-C sets a flag that steps read: a checkpoint is kept, and the next run goes on from there to the same end."""

import signal
import threading
from contextlib import suppress

import pytest
import torch
from record import slow
from runs import CHANGES, TINY, command_at_step, numbers
from short_pretraining import STEPS, train, undisturbed

from hmmlib import backend
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import checkpoint_path, load_result, result_path
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints, pretraining
from hmmlib.training.tuning import Tuning, tune_head

pytestmark = pytest.mark.outside
SPEC = TrialSpec("smoke", **TINY)


@pytest.fixture(autouse=True)
def ctrl_c_counts():
    """Whatever started the tests; and each test leaves it as it was."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert not backend.Interrupts.asked


@pytest.fixture
def within_step(monkeypatch):
    """Makes Ctrl-C come, once or more often, while the gradients of a step are computed."""
    compute, calls = pretraining.Gradients.compute, []

    def at(step, times=1):
        def interrupted(self, *inputs):
            calls.append(True)
            for _ in range(times if len(calls) == step + 1 else 0):
                signal.raise_signal(signal.SIGINT)
            return compute(self, *inputs)

        monkeypatch.setattr(pretraining.Gradients, "compute", interrupted)

    return at


@pytest.mark.parametrize(
    ("name", "step", "times"),
    [("Muon, dropout", 0, 1), ("AdamW, dropout, documents", 3, 1), ("Muon", STEPS - 1, 1), ("Muon", 3, 2)],
)
def test_an_interrupt_within_a_step_keeps_what_was_done_and_a_second_ends_at_once(
    name, step, times, tmp_path, within_step, capfd
):
    path, reports = tmp_path / "one.safetensors", []
    within_step(step, times)
    with pytest.raises(KeyboardInterrupt):
        train(name, path)
    assert capfd.readouterr().err == "stopping after this step\n"
    done = step + 1 if times == 1 else 0  # a step that was cut short is none to go on from
    assert checkpoints.facts_at(path) == {} if times == 2 else checkpoints.facts_at(path)["done"] == str(done)
    assert train(name, path, lambda now, loss: reports.append(now)) == undisturbed(name)
    assert reports == list(range(done, STEPS))


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
