"""Trials of one's own parts: measured like the library's, stored under a name of their own, and never taken for its own."""

from dataclasses import replace

import peft
import pytest
import torch
import transformers
from record import slow
from runs import TINY, numbers

from hmmlib.experiments.beyond import ON_REQUEST
from hmmlib.experiments.labels import draw_task
from hmmlib.experiments.parts import Parts
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import is_stored, load_result, load_results, save_result
from hmmlib.experiments.trials import build_network, draw_trial_task, measure, run_trial, trial_seeds
from hmmlib.models.appendix_e import random_hmm
from hmmlib.training.adapters import tune, tune_with_peft
from hmmlib.training.readers import FromTransformers

SPEC = TrialSpec("smoke", **TINY, own="mine")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def someone_elses(spec, model):
    """A small DistilBERT with random weights and a vocabulary of its own."""
    config = transformers.DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    torch.manual_seed(spec.seed)
    return FromTransformers(transformers.DistilBertForMaskedLM(config), range(5, 5 + spec.n_tokens), mask=3)


def lora(network, tokens, labels, plan, seed, tick):
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, target_modules=["q_lin"])
    return tune_with_peft(network, tokens, labels, config, plan, seed, tick)


def test_a_trial_of_another_network_and_tuner_is_measured_and_stored(tmp_path):
    ticks = []
    result = run_trial(SPEC, lambda phase, share: ticks.append(phase), parts=Parts(network=someone_elses, tuner=lora))
    task = draw_trial_task(SPEC, random_hmm(3, 4, trial_seeds(0)["model"]))
    reader = someone_elses(SPEC, None)
    said = torch.cat([reader.probs(block) for block in task.tokens.split(512)])
    assert said.shape == (120, 4)
    assert {"head tuning", "prompt tuning"} <= set(result.seconds)
    assert ticks.count("prompt tuning") == 3, "before each of two batches, and at the end"
    assert 0 <= result.prompt_accuracy <= 1
    assert result.network_loss > result.best_loss, "a network that has learned nothing"
    assert load_result(save_result(result, tmp_path)) == result
    assert is_stored(SPEC, tmp_path)
    plain = TrialSpec("smoke", **TINY)
    assert not is_stored(plain, tmp_path)
    assert plain.hash != SPEC.hash
    assert "own" not in plain.content()
    assert [r.spec.own for r in load_results("smoke", tmp_path)] == ["mine"]


def test_the_librarys_own_parts_given_as_ones_own_change_nothing():
    parts = Parts(
        model=lambda spec: random_hmm(spec.n_states, spec.n_tokens, trial_seeds(spec.seed)["model"], spec.temperature),
        task=lambda spec, model: draw_trial_task(spec, model),
        tuner=lambda network, tokens, labels, plan, seed, tick: tune(
            "prompt", network, tokens, labels, plan, seed, SPEC.prompt_length, tick=tick
        ),
    )
    assert numbers(run_trial(SPEC, parts=parts)) == numbers(run_trial(replace(SPEC, own="")))
    untrained = run_trial(SPEC, parts=Parts(network=lambda spec, model: build_network(spec)))
    assert untrained.backbone != run_trial(replace(SPEC, own="")).backbone


def test_a_data_set_of_ones_own_is_what_is_judged():
    def lopsided(spec, model):
        task = draw_task(model, spec.task_length, (40, 20, 60), 7)
        return task._replace(labels=torch.arange(120) % 4 == 0)

    result = run_trial(SPEC, parts=Parts(task=lopsided))
    assert result.majority_rate == 0.75


def test_a_measurement_is_added_to_a_trial_of_ones_own_parts():
    parts = Parts(network=someone_elses, tuner=lora)
    result = run_trial(SPEC, parts=parts)
    more = measure(result, ["readout_distances", "solvable"], parts=parts)
    assert set(more.readout_distances) >= {"reweighted", "relabelled", "floor"}
    with pytest.raises(ValueError, match=r"own is 'mine', and there are none"):
        measure(result, ["readout_distances"])
    with pytest.raises(TypeError, match="network must be of type BertForMaskedLM, as build makes it, not DistilBert"):
        measure(result, ["prompt_cuts"], parts=parts)


def test_parts_and_name_go_together_and_are_checked():
    with pytest.raises(ValueError, match=r"own is 'mine', and there are none"):
        run_trial(SPEC)
    with pytest.raises(ValueError, match=r"own is '', and it names none"):
        run_trial(replace(SPEC, own=""), parts=Parts(network=someone_elses))
    with pytest.raises(TypeError, match=r"^network must be a function, not BertForMaskedLM$"):
        Parts(network=build_network(TrialSpec("smoke", **TINY)))
    with pytest.raises(ValueError, match=r"own: String should match pattern .* not 'My Own'"):
        TrialSpec("smoke", own="My Own")
    with pytest.raises(TypeError, match="parts must be of type Parts, not str"):
        run_trial(SPEC, parts="mine")


@pytest.mark.parametrize("tuner", ["prefix", "lora"])
def test_the_spec_names_tuners_of_peft(tuner):
    spec = TrialSpec("smoke", **TINY, tuner=tuner, rank=3)
    result = run_trial(spec, also=["readout_distances", "probes"])
    plain = run_trial(TrialSpec("smoke", **TINY))
    assert result.backbone == plain.backbone
    assert result.head_accuracy == plain.head_accuracy
    assert result.untrained_prompt_accuracy is None
    assert result.probes is None, "only trials that tune a prompt have what is read behind it"
    assert result.readout_distances["floor"]["all"] > 0
    assert spec.network_hash == TrialSpec("smoke", **TINY).network_hash


def on_other_examples(spec, model):
    return draw_task(model, spec.task_length, (37, 19, 53), 7)._replace(redraws=31)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        pytest.param(dict(own="mine"), Parts(model=lambda spec: random_hmm(5, 4, 3)), marks=slow),
        pytest.param(dict(own="mine"), Parts(task=on_other_examples), marks=slow),
        (dict(own="mine"), Parts(network=lambda spec, model: build_network(replace(spec, own="", layers=3)))),
        (dict(tuner="prefix", rank=3), None),
        pytest.param(dict(tuner="lora", rank=3), None, marks=slow),
        (dict(tuner="lora", n_memory=2), None),
        pytest.param(dict(labels="stepped"), None, marks=slow),
    ],
    ids=["a model", "a task", "a network", "prefix", "LoRA", "LoRA with memory", "other labels"],
)
def test_all_that_can_be_asked_of_such_a_trial_can_be_stored_and_read(fields, parts, tmp_path):
    result = run_trial(TrialSpec("smoke", **TINY, **fields), also=ON_REQUEST, parts=parts)
    assert {*ON_REQUEST} <= {*result.added}
    assert load_result(save_result(result, tmp_path)) == result
