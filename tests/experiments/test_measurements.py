"""Measurements: each name is given once, each needs stages that a trial has, and no more is run than they need."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import torch
from runs import TINY

from hmmlib.experiments import measurements, trials
from hmmlib.experiments.measurements import MEASUREMENTS, STAGES, giving, measured_names, measurement
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import STORE, load_result, load_results, save_result
from hmmlib.experiments.trials import ORIGINAL, Trial, measure, run_trial


@pytest.fixture
def registry(monkeypatch):
    """A list of measurements of the test's own, that begins with the library's."""
    mine = list(MEASUREMENTS)
    monkeypatch.setattr(measurements, "MEASUREMENTS", mine)
    monkeypatch.setattr(trials, "MEASUREMENTS", mine)
    return mine


def test_each_name_of_a_result_is_given_once():
    names = [name for one in MEASUREMENTS for name in one.names]
    assert len(set(names)) == len(names)
    assert set(names) == measured_names() >= set(ORIGINAL)
    assert len(ORIGINAL) == 19
    phases = [one.phase for one in MEASUREMENTS]
    assert phases == sorted(phases, key=phases.index), "the measurements of a phase follow each other"


def test_a_measurement_needs_stages_and_says_which(registry):
    assert giving(["redraws"])[0].stages == ("task",)
    assert giving(["best_loss", "network_loss"]) == giving(["best_loss"])
    assert {stage for one in MEASUREMENTS for stage in one.stages} == set(STAGES)

    with pytest.raises(ValueError, match=r"each parameter of weather must be one of spec, .*, not 'sky'"):

        @measurement("rain")
        def weather(sky):
            return dict(rain=0.5)

    with pytest.raises(ValueError, match="again gives head_accuracy, as another measurement does"):

        @measurement("head_accuracy")
        def again(task):
            return dict(head_accuracy=0.5)

    assert registry == MEASUREMENTS
    with pytest.raises(ValueError, match=r"each of names must be one of accuracies_by_kind, .*, not 'rain'"):
        giving(["rain"])


def test_only_a_result_can_be_measured_again():
    with pytest.raises(TypeError, match=r"^result must be of type TrialResult, not TrialSpec$"):
        measure(TrialSpec("smoke", **TINY), [])


def test_a_later_measurement_is_an_attribute_and_none_where_it_is_missing(registry, tmp_path):
    torch.set_num_threads(1)
    spec = TrialSpec("smoke", **TINY)
    before, stored = run_trial(spec), load_results("smoke", STORE)[0]
    assert before.added == {}
    with pytest.raises(AttributeError, match="'TrialResult' object has no attribute 'weight'"):
        _ = before.weight

    @measurement("weight", "above", vanilla=True)
    def size_of_the_task(task):
        return dict(weight=task.mu.abs().sum().item(), above=None)

    assert before.weight is None
    assert stored.weight is None
    result = run_trial(spec)
    assert result.weight > 0
    assert result.added == {"weight": result.weight, "above": None}
    assert replace(result, added={}, seconds={}, environment={}) == replace(before, seconds={}, environment={})
    assert "size of the task" in result.seconds
    assert load_result(save_result(result, tmp_path)) == result
    assert run_trial(replace(spec, n_memory=2)).added == {"weight": None, "above": None}

    later = measure(before, ["weight"])
    assert later.added == result.added
    assert later.environment["weight measured"].endswith(f"library {later.environment['library']}")
    assert replace(later, added={}, seconds=before.seconds, environment=before.environment) == before
    assert load_result(save_result(later, tmp_path)) == later


def test_a_measurement_that_gives_other_names_is_an_error(registry):
    @measurement("weight", "size")
    def heavy(task):
        return dict(height=1.0, width=2.0)

    with pytest.raises(RuntimeError, match=r"^heavy gives height, width, not weight, size$"):
        run_trial(TrialSpec("smoke", **TINY))


def test_only_what_a_measurement_needs_is_run(registry, monkeypatch):
    spec, ran = TrialSpec("smoke", **TINY), []
    before = run_trial(spec)
    for stage in ("model", "task", "exact", "network", "outputs"):
        made = vars(Trial)[stage].func

        def noted(trial, stage=stage, made=made):
            ran.append(stage)
            return made(trial)

        monkeypatch.setattr(Trial, stage, property(noted))

    @measurement("states")
    def states(model):
        return dict(states=float(model.n_states))

    @measurement("largest")
    def largest(network):
        return dict(largest=max(weights.abs().max().item() for weights in network.parameters()))

    assert measure(before, ["states"]).states == 3
    assert ran == ["model"]
    assert measure(before, ["largest"]).largest > 0
    assert "network" in ran
    with pytest.raises(
        ValueError, match=f"the network that is pretrained here is {before.backbone}, the result's is 7"
    ):
        measure(replace(before, backbone="7"), ["largest"])


def test_a_later_measurement_takes_device_checkpoint_and_report_and_tells_its_phases(registry, monkeypatch, tmp_path):
    spec, told, asked, made = TrialSpec("smoke", **TINY), [], [], []
    before = run_trial(spec, device="cpu")
    environment, pretrain = trials.environment, trials.pretrain
    monkeypatch.setattr(trials, "environment", lambda *given: asked.append(given) or environment(*given))
    monkeypatch.setattr(trials, "pretrain", lambda *given: made.append(given) or pretrain(*given))

    @measurement("largest")
    def largest_weight(network):
        return dict(largest=max(weights.abs().max().item() for weights in network.parameters()))

    stripped = replace(before, seconds={})
    path = tmp_path / "trial.safetensors"
    later = measure(stripped, ["largest"], lambda phase, share: told.append((phase, share)), "cpu", path)
    assert list(later.seconds) == ["pretraining", "largest weight"]
    assert ("pretraining", 1.0) in told
    assert told[-1] == ("largest weight", 1.0)
    assert asked == [(torch.device("cpu"), "single")]
    assert made[0][-1] == path
    assert measure(before, ["largest"]).seconds["pretraining"] == before.seconds["pretraining"]
    with pytest.raises(ValueError, match=r"every result has head_accuracy, prompt_accuracy$"):
        measure(before, ["prompt_accuracy", "head_accuracy"])


def test_a_trial_says_on_which_device_and_day_it_ran(monkeypatch):
    asked, environment = [], trials.environment
    monkeypatch.setattr(trials, "environment", lambda *given: asked.append(given) or environment(*given))
    result = run_trial(TrialSpec("smoke", **TINY), device="cpu")
    assert asked == [(torch.device("cpu"), "single")]
    assert result.environment["date"] == datetime.now(UTC).date().isoformat()
