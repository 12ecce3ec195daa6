"""A pretraining that was broken off goes on from its checkpoint to the same weights, bit by bit, whatever befell it:
an error, a broken checkpoint, Ctrl-C, or a kill."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
import torch
from runs import CHANGES, TINY, command_at_step, numbers
from short_pretraining import NAMES, STEPS, Stopped, leave_two, stop_after, train, undisturbed

from hmmlib import backend
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import checkpoint_path, load_result, result_path
from hmmlib.experiments.trials import run_trial
from hmmlib.training import checkpoints, pretraining
from hmmlib.training.tuning import Tuning, tune_head

pytestmark = pytest.mark.outside
SPEC = TrialSpec("smoke", **TINY)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "one.safetensors"


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


def test_a_checkpoint_with_another_fact_type_or_shape_is_not_believed(path):
    """One that was cut short is met in tests/faults, at every byte."""
    leave_two(path)
    text = path.read_bytes()
    end = 8 + int.from_bytes(text[:8], "little")  # of the header of a safetensors file
    for old, new in ((b'"done":"6"', b'"done":"4"'), (b'"F32"', b'"I32"'), (b'"shape":[8,8]', b'"shape":[4,16]')):
        header = text[8:end].replace(old, new, 1)
        assert header != text[8:end]
        path.write_bytes(len(header).to_bytes(8, "little") + header + text[end:])
        with pytest.warns(UserWarning, match=r"one\.safetensors is no whole checkpoint and is passed over"):
            assert int(checkpoints.load(path, {})[1]["done"]) == 3


def test_the_checkpoint_of_another_run_is_refused_and_one_of_another_machine_begun_anew(path):
    leave_two(path)
    before, another = path.read_bytes(), r"\.safetensors is the checkpoint of another run: its "
    with pytest.raises(ValueError, match=rf"one{another}plan is .*'muon_rate': 0.04.*not .*0\.0"):
        train("AdamW", path)
    assert path.read_bytes() == before
    tensors, facts = checkpoints.load(path, {})
    path.unlink()
    with pytest.raises(ValueError, match=rf"one\.previous{another}seed is 1, not 2"):
        train("Muon", path, seed=2)
    assert facts["place"] == "cpu in torch.float32"
    checkpoints.save(path, tensors, {**facts, "place": "cuda in torch.float32"})
    with pytest.warns(UserWarning, match=r"made on cuda in torch\.float32, this is cpu in torch\.float32: begun anew"):
        assert resumed("Muon", path) == list(range(STEPS))


@pytest.fixture(autouse=True)
def ctrl_c_counts():
    """Whatever started the tests; and each test leaves it as it was."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert not backend.Interrupts.asked


@pytest.mark.parametrize(
    ("name", "step", "times"), [("AdamW, dropout, documents", 3, 1), ("Muon", STEPS - 1, 1), ("Muon", 3, 2)]
)
def test_an_interrupt_keeps_the_step_it_comes_in_and_a_second_ends_at_once(name, step, times, path, monkeypatch, capfd):
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


@pytest.mark.parametrize("tunes", [True, False])
def test_an_interrupt_that_an_import_would_swallow_ends_the_next_step_of_tuning_or_comes_at_the_end(tunes):
    @backend.interrupts_between_steps()
    def work(steps):
        with suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        steps.append("after the import")
        if tunes:
            tune_head(torch.rand(8, 3), torch.arange(8) > 3, Tuning(1, 4, 0.1, 0.1), 0)
            steps.append("tuned")

    with pytest.raises(KeyboardInterrupt):
        work(steps := [])
    assert steps == ["after the import"]


def test_in_other_threads_and_where_signals_are_ignored_nothing_is_changed():
    look = backend.interrupts_between_steps()(partial(signal.getsignal, signal.SIGINT))
    with ThreadPoolExecutor() as pool:
        assert pool.submit(look).result() is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert look() is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    assert not any(checkpoint_path(SPEC, tmp_path).parent.iterdir())
