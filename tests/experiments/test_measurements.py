"""What is measured of a trial: only what is asked for, and of parts of one's own as well."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import peft
import pytest
import torch
import transformers
from runs import TINY, numbers

from hmmbook import (
    Parts,
    TrialSpec,
    draw_task,
    draw_trial_task,
    is_stored,
    load_result,
    results,
    run_trial,
    save_result,
)
from hmmbook.experiments import measurements, parts, trials
from hmmbook.experiments.fields import Anything, Count
from hmmbook.experiments.measurements import (
    MEASUREMENTS,
    PARTS_OF_TRIALS,
    Measurement,
    measured_names,
    over_tokens,
)
from hmmbook.experiments.parts import Trial, build_network, trial_seeds
from hmmbook.experiments.trials import measure
from hmmbook.studies import names_for_every_trial
from hmmlib import FromTransformers, random_hmm, tune
from hmmlib.training import adapters

SPEC = TrialSpec("smoke", **TINY)
MINE = SPEC.replace(own="mine")


@pytest.fixture
def registry(monkeypatch):
    """A list of measurements of the test's own, which begins with the library's."""
    own = list(MEASUREMENTS)
    monkeypatch.setattr(measurements, "MEASUREMENTS", own)
    monkeypatch.setattr(trials, "MEASUREMENTS", own)
    return own


def test_a_name_may_hold_anything_unless_its_kind_is_given():
    assert Measurement("first", second=Count).kinds == {"first": Anything, "second": Count}


@pytest.mark.parametrize(
    ("limits", "in_memory_trials", "in_lora_trials"),
    [({}, True, True), ({"vanilla": True}, False, True), ({"prompts": True}, True, False)],
    ids=str,
)
def test_which_trials_have_a_measurement(limits, in_memory_trials, in_lora_trials):
    measurement = Measurement("mine", **limits)
    assert measurement.exists_for(SPEC.replace(n_memory=2)) == in_memory_trials
    assert measurement.exists_for(SPEC.replace(tuner="lora")) == in_lora_trials


def test_a_distribution_over_special_ids_too_becomes_one_over_the_tokens():
    probs = torch.tensor([[0.2, 0.6, 0.2], [0.125, 0.125, 0.75]])
    task = SimpleNamespace(split=torch.clone)
    expected = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(over_tokens(task, probs, 2), expected, atol=1e-7, rtol=0)


def test_a_new_measurement_is_made_in_every_trial_and_can_be_added_to_a_stored_result(registry, result):
    @Measurement("weight", "above")
    def size_of_the_task(task):
        return {"weight": task.mu.abs().sum().item(), "above": None}

    with_weight = run_trial(SPEC)
    later = measure(result, ["weight"])

    assert with_weight.weight > 0
    assert "size of the task" in with_weight.seconds
    assert result.weight is None
    assert later.added == result.added | {"weight": with_weight.weight, "above": None}
    assert numbers(later) == numbers(with_weight)
    assert later.environment["weight measured"].endswith(f"commit {later.environment['commit']}")


def test_a_trial_that_does_not_have_a_measurement_holds_none(registry):
    @Measurement("mine", vanilla=True)
    def mine(task):
        pytest.fail("it was measured")

    assert run_trial(SPEC.replace(n_memory=2)).added["mine"] is None


def test_only_what_a_measurement_needs_is_made(registry, result, monkeypatch):
    begun = []

    class RememberedTrial(Trial):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            begun.append(self)

    monkeypatch.setattr(trials, "Trial", RememberedTrial)
    Measurement("states")(lambda model: {"states": float(model.n_states)})
    Measurement("n_weights")(lambda network: {"n_weights": network.num_parameters()})
    assert measure(result, ["states"]).states == 3
    assert measure(result, ["n_weights"]).n_weights > 0
    made = [vars(trial).keys() & {"model", "task", "exact", "network", "outputs"} for trial in begun]
    assert made == [{"model"}, {"model", "network"}]


def test_device_checkpoint_and_progress_are_handed_on(registry, result, monkeypatch, tmp_path):
    checkpoints = []
    pretrain = parts.pretrain

    def remember(*arguments):
        checkpoints.append(arguments[-1])
        return pretrain(*arguments)

    monkeypatch.setattr(parts, "pretrain", remember)
    Measurement("n_weights", phase="counting")(lambda network: {"n_weights": network.num_parameters()})
    reports = []
    path = tmp_path / "trial.pt"
    measure(result, ["n_weights"], path, on_progress=lambda *report: reports.append(report), device="cpu")
    assert checkpoints == [path]
    assert reports[-2:] == [("pretraining", 1.0), ("counting", 1.0)]


def test_another_machines_network_is_not_measured(registry, result):
    Measurement("n_weights")(lambda network: {"n_weights": network.num_parameters()})
    other = replace(result, backbone="0123456789abcdef")
    with pytest.raises(ValueError, match=r"the network .* here is .*, but the result's is 0123456789abcdef"):
        measure(other, ["n_weights"])


def gives_another_name(model):
    return {"snow": 1.0}


def gives_a_tensor(model):
    return {"rain": torch.ones(2)}


def gives_no_dictionary(model):
    return 1.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (gives_another_name, "the measurement gives_another_name must return a dict with rain, not {'snow': 1.0}"),
        (
            gives_a_tensor,
            "gives_a_tensor returned what cannot be stored: rain: Input should be a number",
        ),
        (gives_no_dictionary, "must return a dict with rain, not 1.0"),
    ],
)
def test_what_a_measurement_gives_wrongly_is_an_error_that_names_it(function, message, registry, result):
    Measurement("rain")(function)
    with pytest.raises(ValueError, match=re.escape(message)):
        measure(result, ["rain"])


def test_wrong_uses_of_a_measurement_are_refused(registry, result):
    with pytest.raises(TypeError, match="Measurement takes the names of what is measured"):
        Measurement(gives_a_tensor)
    with pytest.raises(TypeError, match=r"Measurement takes each name with its kind, for example .*my_share=Share"):
        Measurement(kinds={"my_share": Count})
    with pytest.raises(ValueError, match="the measurement heads gives head_accuracy already"):
        Measurement("head_accuracy")(gives_a_tensor)
    with pytest.raises(ValueError, match=r"each of also must be one of .*, not 'rain'"):
        measure(result, ["rain"])
    with pytest.raises(TypeError, match="the measurement <lambda> asks for weather, which no trial has"):
        Measurement("rain")(lambda weather: {"rain": 1.0})


def test_a_trial_has_what_measurements_can_ask_for_and_help_names_it():
    assert set(PARTS_OF_TRIALS) <= set(dir(Trial(SPEC)))
    for name in PARTS_OF_TRIALS:
        assert f"`{name}`" in Measurement.__doc__


def test_a_parameter_with_a_default_is_not_asked_for(registry, result):
    def rain(model, states=3, *, share=0.5):
        return {"rain": share * states}

    Measurement("rain")(rain)
    assert measure(result, ["rain"]).rain == 1.5


def test_a_function_defined_again_replaces_the_earlier_one(registry, result):
    for value in (1.0, 2.0):

        @Measurement("rain")
        def rain(model, value=value):
            return {"rain": value}

    names = [measurement.names for measurement in registry]
    assert names.count(("rain",)) == 1


FACTS = ("device", "precision", "machine", "cpu", "threads", "torch", "transformers", "hmmlib", "commit")


def test_a_stored_network_is_named_by_all_that_changes_its_numbers(monkeypatch, tmp_path):
    made_by = dict.fromkeys([*FACTS, "python"], "a")
    monkeypatch.setattr(parts, "environment", lambda on, precision: made_by)
    trial = Trial(SPEC, device="cpu", networks=tmp_path)
    first = trial.stored_network()
    for fact in FACTS:
        monkeypatch.setitem(made_by, fact, "b")
        assert trial.stored_network() != first, fact
        monkeypatch.setitem(made_by, fact, "a")
    monkeypatch.setitem(made_by, "python", "b")
    assert trial.stored_network() == first
    assert Trial(SPEC.replace(prompt_length=1), device="cpu", networks=tmp_path).stored_network() == first
    assert Trial(SPEC.replace(steps=5), device="cpu", networks=tmp_path).stored_network() != first


# Parts of one's own


def small_distilbert(spec, model):
    """A small DistilBERT with random weights and a vocabulary of its own."""
    config = transformers.DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    torch.manual_seed(spec.seed)
    network = transformers.DistilBertForMaskedLM(config)
    return FromTransformers(network, range(5, 5 + spec.n_tokens), mask=3)


def lora(network, tokens, labels, plan, seed, before_step):
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, target_modules=["q_lin"])
    return adapters.tune_with_peft(network, tokens, labels, config, plan, seed, before_step)


def test_a_trial_of_another_network_and_tuner_is_measured_and_stored_under_its_own_name(tmp_path):
    own = Parts(network=small_distilbert, tuner=lora)
    result = run_trial(MINE, parts=own)
    assert result.network_loss > result.best_loss, "a network that has learned nothing"
    more = measure(result, ["readout_distances", "solvable"], parts=own)
    assert set(more.readout_distances) >= {"reweighted", "relabelled", "floor"}
    assert load_result(save_result(more, tmp_path)) == more
    assert is_stored(MINE, tmp_path)
    assert not is_stored(SPEC, tmp_path)


def test_the_librarys_own_parts_given_as_ones_own_change_nothing(result):
    def model(spec):
        return random_hmm(spec.n_states, spec.n_tokens, trial_seeds(spec.seed)["model"], spec.temperature)

    def tuner(network, tokens, labels, plan, seed, before_step):
        return tune("prompt", network, tokens, labels, plan, seed, MINE.prompt_length, before_step=before_step)

    own = Parts(model=model, task=draw_trial_task, tuner=tuner)
    assert numbers(run_trial(MINE, parts=own)) == numbers(result)


def test_parts_and_their_name_go_together():
    with pytest.raises(ValueError, match="the spec's own is 'mine', but there are no parts"):
        run_trial(MINE)
    with pytest.raises(ValueError, match="there are parts, but the spec's own is '' and gives them no name"):
        run_trial(SPEC, parts=Parts(network=small_distilbert))
    with pytest.raises(TypeError, match="network must be a function, not BertForMaskedLM"):
        Parts(network=build_network(MINE))
    with pytest.raises(TypeError, match="spec must be of type"):
        run_trial("smoke")
    with pytest.raises(TypeError, match="parts must be of type"):
        run_trial(SPEC, parts=3)


def task_of_other_sizes(spec, model):
    task = draw_task(model, spec.task_length, (37, 19, 53), 7)
    return task._replace(redraws=31, labels=torch.arange(109) % 4 == 0)


OTHER_SIZES = Parts(
    model=lambda spec: random_hmm(5, 4, 3),
    task=task_of_other_sizes,
    network=lambda spec, model: build_network(SPEC.replace(layers=3)),
)


@pytest.mark.parametrize(
    "fields", [{"own": "mine", "n_states": 5}, {"tuner": "prefix"}, {"tuner": "lora", "n_memory": 2}], ids=str
)
def test_every_measurement_of_such_a_trial_can_be_stored_and_read(fields, tmp_path):
    spec = SPEC.replace(**fields)
    on_request = names_for_every_trial()
    result = run_trial(spec, also=on_request, parts=OTHER_SIZES if spec.own else None)
    assert result.added.keys() >= set(on_request)
    assert load_result(save_result(result, tmp_path)) == result
    if spec.own:
        assert result.majority_rate == pytest.approx(39 / 53)
    if spec.tuner == "prefix":
        assert result.probes is None, "only trials that tune a prompt have what is read behind it"


def test_a_name_that_every_result_or_every_table_has_is_refused(result, tmp_path):
    content = json.loads(save_result(result, tmp_path).read_text(encoding="utf8"))
    columns = [column.partition(".")[0] for column in results()]
    taken = {*vars(result), *content, *columns, "excess_loss"} - measured_names()
    assert len(taken) > 50
    for name in taken:
        with pytest.raises(ValueError, match=f"{name} is a name that every result has already"):
            Measurement(name)


@pytest.mark.parametrize("name", ["", "seconds.pretraining", "my share", "1st", "class", "__dict__", "_mine", "a\n"])
def test_a_name_that_cannot_be_an_attribute_is_refused(name):
    with pytest.raises(ValueError, match="the name of a measurement must be a Python identifier"):
        Measurement(name)
