"""What is measured of a trial: only what is asked for, also of parts of one's own; and the exact ladder."""

from dataclasses import replace
from types import SimpleNamespace

import peft
import pytest
import torch
import transformers
from runs import TINY, numbers

from hmmlib import HMM, FromTransformers, LinearHead, Parts, TrialSpec, Tuning, draw_task, random_hmm, run_trial, tune
from hmmlib.experiments import measurements, provenance, trials
from hmmlib.experiments.measurements import MEASUREMENTS, Built, Measurement, ladder_plan, tune_on_exact_outputs
from hmmlib.experiments.movement import ON_REQUEST
from hmmlib.experiments.presets import LADDER_NUMBERS
from hmmlib.experiments.specs import Anything, Count
from hmmlib.experiments.store import is_stored, load_result, save_result
from hmmlib.experiments.trials import Trial, build_network, draw_trial_task, measure, trial_seeds
from hmmlib.inference.messages import masked_token_probs
from hmmlib.training import adapters, tuning

SPEC = TrialSpec("smoke", **TINY)
MINE = replace(SPEC, own="mine")


@pytest.fixture
def registry(monkeypatch):
    """A list of measurements of the test's own, that begins with the library's."""
    mine = list(MEASUREMENTS)
    monkeypatch.setattr(measurements, "MEASUREMENTS", mine)
    return mine


def test_a_measurement_holds_anything_of_any_trial_unless_it_is_said():
    memory, lora = replace(SPEC, n_memory=2), replace(SPEC, tuner="lora")
    assert Measurement("one", two=Count).kinds == {"one": Anything, "two": Count}
    for limits, expected in (({}, [1, 1]), ({"vanilla": True}, [0, 1]), ({"prompts": True}, [1, 0])):
        assert [Measurement("one", **limits).has(spec) for spec in (memory, lora)] == expected


def test_a_distribution_over_special_ids_too_becomes_one_over_the_tokens():
    probs = torch.tensor([[0.2, 0.6, 0.2], [0.125, 0.125, 0.75]])
    found = measurements.over_tokens(SimpleNamespace(split=torch.clone), probs, 2)
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64), atol=1e-7, rtol=0)


def test_a_stored_network_is_named_by_all_that_changes_its_numbers(monkeypatch, tmp_path):
    here = dict.fromkeys(("device", "precision", "machine", "threads", "torch", "transformers", "python"), "a")
    monkeypatch.setattr(provenance, "environment", lambda *of: here | {"of": asked.append(of)})
    asked, trial = [], Trial(SPEC, device="cpu", networks=tmp_path)
    names = [trial.stored_network()]
    for fact in here:
        monkeypatch.setitem(here, fact, "b")
        names.append(trial.stored_network())
    assert len(set(names)) == 7 == len(names) - 1, "each fact but the version of Python"
    assert set(asked) == {(torch.device("cpu"), SPEC.precision)}


def test_a_measurement_that_asks_for_what_is_not_there_or_gives_other_names_is_an_error(registry, result):
    for names in (["rain"], ["prompt_accuracy", "head_accuracy"]):
        with pytest.raises(ValueError, match=rf"each of names must be one of .*, not '{names[0]}'"):
            measure(result, names)
    Measurement("rain")(lambda sky: dict(rain=0.5))
    with pytest.raises(TypeError, match="a measurement asks for sky, which no trial has"):
        measure(result, ["rain"])
    with pytest.raises(ValueError, match="head_accuracy: another measurement gives that"):
        Measurement("head_accuracy")(lambda task: None)
    with pytest.raises(TypeError, match="Measurement takes the names"):
        Measurement(measure)
    registry.pop()

    @Measurement("weight", "size")
    def sizes(task):
        return found

    for found, words in (
        (dict(height=1.0, width=2.0), r"the measurement sizes must give a dict with weight, size, not \{'height'"),
        (3.0, "must give a dict with weight, size, not 3.0"),
        (dict(weight=torch.tensor(1.0), size=1.0), r"must give numbers, not a tensor: weight needs .item\(\)"),
    ):
        Measurement("weight", "size")(sizes)  # again, as a mended one would
        with pytest.raises(ValueError, match=words):
            run_trial(SPEC)
    found = dict(weight=1.0, size=2.0)
    assert run_trial(SPEC, also=["size"]).size == 2.0


def test_a_later_measurement_is_an_attribute_and_none_where_it_is_missing(registry, result):
    with pytest.raises(AttributeError, match="'TrialResult' object has no attribute 'weight'"):
        _ = result.weight

    @Measurement("weight", "above", vanilla=True)
    def size_of_the_task(task):
        return dict(weight=task.mu.abs().sum().item(), above=None)

    found, later = run_trial(SPEC), measure(result, ["weight"])
    assert result.weight is None
    assert later.added == result.added | {"weight": found.weight, "above": None}
    assert found.weight > 0
    assert numbers(found) == numbers(later)
    assert "size of the task" in found.seconds
    assert run_trial(replace(SPEC, n_memory=2)).added.items() >= {"weight": None, "above": None}.items()
    assert later.environment["weight measured"].endswith(f"library {later.environment['library']}")
    assert replace(later, added=result.added, seconds=result.seconds, environment=result.environment) == result


def test_only_what_a_measurement_needs_is_run_with_device_checkpoint_and_report(
    registry, result, monkeypatch, tmp_path
):
    told, made, begun, pretrain = [], [], [], trials.pretrain
    monkeypatch.setattr(trials, "Trial", lambda *given, **how: begun.append(Trial(*given, **how)) or begun[-1])
    monkeypatch.setattr(trials, "pretrain", lambda *given: made.append(given[-1]) or pretrain(*given))
    Measurement("states")(lambda model: dict(states=float(model.n_states)))
    Measurement("weights", phase="counting")(lambda network: dict(weights=network.num_parameters()))
    path, how = tmp_path / "trial.safetensors", dict(on_progress=lambda *what: told.append(what), device="cpu")
    assert measure(result, ["states"]).states == 3
    later = measure(replace(result, seconds={}), ["weights"], path, **how)
    stages = {"model", "task", "exact", "network", "outputs"}
    assert [vars(trial).keys() & stages for trial in begun] == [{"model"}, {"model", "network"}]
    assert (made, begun[1].device) == ([path], torch.device("cpu"))
    assert later.weights > 0
    assert list(later.seconds) == ["pretraining", "counting"]
    assert told[-2:] == [("pretraining", 1.0), ("counting", 1.0)]
    assert measure(result, ["weights"]).seconds["pretraining"] == result.seconds["pretraining"]


def someone_elses(spec, model):
    """A small DistilBERT with random weights and a vocabulary of its own."""
    config = transformers.DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    torch.manual_seed(spec.seed)
    return FromTransformers(transformers.DistilBertForMaskedLM(config), range(5, 5 + spec.n_tokens), mask=3)


def lora(network, tokens, labels, plan, seed, tick):
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, target_modules=["q_lin"])
    return adapters.tune_with_peft(network, tokens, labels, config, plan, seed, tick)


def test_a_trial_of_another_network_and_tuner_is_measured_and_stored_under_its_own_name(tmp_path):
    phases, parts = [], Parts(network=someone_elses, tuner=lora)
    result = run_trial(MINE, lambda phase, share: phases.append(phase), parts=parts)
    assert phases.count("prompt tuning") == 4, "before each of two batches, and after each of two measurements"
    assert result.network_loss > result.best_loss, "a network that has learned nothing"
    more = measure(result, ["readout_distances", "solvable"], parts=parts)
    assert set(more.readout_distances) >= {"reweighted", "relabelled", "floor"}
    assert load_result(save_result(more, tmp_path)) == more
    assert [is_stored(spec, tmp_path) for spec in (MINE, SPEC)] == [True, False]
    with pytest.raises(TypeError, match="network must be of type BertForMaskedLM, as build makes it, not DistilBert"):
        measure(result, ["prompt_cuts"], parts=parts)


def test_the_librarys_own_parts_given_as_ones_own_change_nothing(result):
    parts = Parts(
        model=lambda spec: random_hmm(spec.n_states, spec.n_tokens, trial_seeds(spec.seed)["model"], spec.temperature),
        task=draw_trial_task,
        tuner=lambda network, tokens, labels, plan, seed, tick: tune(
            "prompt", network, tokens, labels, plan, seed, MINE.prompt_length, before_step=tick
        ),
    )
    assert numbers(run_trial(MINE, parts=parts)) == numbers(result)


def test_parts_and_name_go_together_and_are_checked():
    for call, message in (
        (lambda: run_trial(MINE), "parts and the spec's own must go together: own is 'mine', and there are none"),
        (lambda: run_trial(SPEC, parts=Parts(network=someone_elses)), ".*own is '', and it names none"),
        (lambda: Parts(network=build_network(MINE)), "network must be a function, not BertForMaskedLM"),
        (lambda: run_trial("smoke"), "spec must be of type"),
        (lambda: run_trial(SPEC, parts=3), "parts must be of type"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            call()


def other_examples(spec, model):
    task = draw_task(model, spec.task_length, (37, 19, 53), 7)
    return task._replace(redraws=31, labels=torch.arange(109) % 4 == 0)


OTHERS = Parts(
    model=lambda spec: random_hmm(5, 4, 3),
    task=other_examples,
    network=lambda spec, model: build_network(replace(SPEC, layers=3)),
)


@pytest.mark.parametrize("fields", [dict(own="mine"), dict(tuner="prefix"), dict(tuner="lora", n_memory=2)])
def test_all_that_can_be_asked_of_such_a_trial_can_be_stored_and_read(fields, tmp_path):
    spec = replace(SPEC, **fields)
    result = run_trial(spec, also=ON_REQUEST, parts=OTHERS if spec.own else None)
    assert {*ON_REQUEST} <= {*result.added}
    assert load_result(save_result(result, tmp_path)) == result
    if spec.own:
        assert result.majority_rate == pytest.approx(39 / 53)
    if spec.tuner == "prefix":
        assert spec.network_hash == SPEC.network_hash
        assert result.probes is None, "only trials that tune a prompt have what is read behind it"


def skewed(n_states, seed):
    """A model of appendix E but for its start and its temperature: the law of the labels then makes a difference."""
    chain = random_hmm(n_states, 10, seed, temperature=0.1)
    weights = torch.arange(1, n_states + 1, dtype=torch.float64) ** 2
    return HMM(chain.transition, chain.emission, weights / weights.sum(), columns=True)


@pytest.mark.parametrize(("law", "other"), [("masked", "before"), ("before", "masked")])
def test_what_the_theorems_build_is_right_for_the_law_of_the_labels_and_not_for_the_other(law, other):
    wrong, plan = [], Tuning(epochs=5, batch=64, head_rate=0.3, prompt_rate=0.1)
    for seed in range(6):
        model = skewed(4, seed)
        task = draw_task(model, 9, (300, 0, 400), seed, law)
        given = model, task, masked_token_probs(model, task.tokens)[:, 0], plan, seed
        right, mistaken = (tune_on_exact_outputs(*given, assumed) for assumed in (law, other))
        assert right.refusal == ""
        for built in (right.theorem_3_3, right.theorem_3_6):
            assert built.accuracy_decided == 1
            assert built.decided > 0.9
        wrong += [mistaken.theorem_3_3.accuracy_decided, mistaken.theorem_3_6.accuracy_decided]
    assert min(wrong) < 0.9


def test_a_rung_is_that_of_its_parts_and_its_prompt_separates_what_a_head_alone_cannot():
    """With labels at the mask, the prompt is read one state later."""
    model, behind, plan = skewed(20, 5), [], Tuning(15, 128, 0.3, 0.1)
    task = draw_task(model, 17, (1500, 0, 500), 5, "masked")
    probs = masked_token_probs(model, task.tokens)[:, 0]
    (train, _, test), (labels, _, truth) = task.split(probs), task.split(task.labels)
    beliefs, _, posteriors = task.split(task.posteriors)
    for start in (model.marginal(1), [1 / 20] * 20):
        origin = HMM(model.transition, model.emission, start, columns=True)
        prompt, head = tuning.tune_exact_prompt(origin, beliefs, labels, plan, 1)
        read = tuning.probs_behind_prompt(origin, posteriors, prompt)
        behind.append((tuning.accuracy(head, read, truth), prompt.tolist()))
    found = tune_on_exact_outputs(model, task, probs, plan, 1, "masked")
    assert (found.prompt_and_head, found.prompt) == behind[0] != behind[1]
    assert found.head == tuning.accuracy(tuning.tune_head(train, labels, plan, 1), test, truth)
    assert found.majority + 0.03 < found.head < found.prompt_and_head - 0.1


def test_exact_trialing_is_a_rung_on_a_task_of_its_own():
    plan, sizes = ladder_plan("smoke"), LADDER_NUMBERS["smoke"]
    assert plan == Tuning(5, 128, 0.3, 0.1) == replace(ladder_plan("paper"), epochs=5)
    model = random_hmm(4, seed=3)
    task = draw_task(model, sizes["length"], (sizes["train"], 0, sizes["test"]), 3, "before")
    found = measurements.exact_trial(4, 3, "smoke")
    assert found == tune_on_exact_outputs(model, task, masked_token_probs(model, task.tokens)[:, 0], plan, 3)
    labels = task.test.labels.double().mean().item()
    assert (found.majority, found.n_states, found.seed) == (max(labels, 1 - labels), 4, 3)
    assert (found.theorem_3_3.accuracy_decided, found.refusal, found.n_essential) == (1, "", 4)
    given = model, task._replace(labels=~task.labels), masked_token_probs(model, task.tokens)[:, 0], plan, 3
    assert tune_on_exact_outputs(*given).refusal == "the labels are not those of the task's μ"
    with pytest.raises(ValueError, match="rule must be one of"):
        tune_on_exact_outputs(*given, "warm")
    refused = measurements.exact_trial(12, 0, "smoke")  # more states than tokens
    assert refused.theorem_3_3 is None
    assert "Assumption 3.1" in refused.refusal


def test_scores_within_rounding_decide_nothing():
    probs = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    head = LinearHead(torch.tensor([1.0, -1.0], dtype=torch.float64), condition=7.0)
    assert Built.judge(head, probs, torch.tensor([False, True, True])) == Built(1 / 3, 2 / 3, 0.5, 7.0)
    eps, half = torch.finfo(torch.float64).eps, torch.tensor([[0.5, 0.5]] * 3, dtype=torch.float64)
    scores = torch.tensor([64, 128, 129]) * eps  # 64 eps ‖b‖₁ is the second
    near = half + torch.stack([scores, -scores], 1) / 2
    assert torch.equal(head(near), scores)
    assert Built.judge(head, near, torch.tensor([True] * 3)) == Built(1.0, 1 / 3, 1.0, 7.0)
    assert Built.judge(head, half, torch.tensor([False] * 3)) == Built(0.0, 0.0, 1.0, 7.0)
