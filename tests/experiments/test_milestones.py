"""A network on its way: what it, a head and a prompt are worth after each tenth of the pretraining, and on the exact model."""

from dataclasses import replace

import pytest
import torch
from runs import TINY

from hmmlib.experiments.labels import LABEL_RULES
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, draw_trial_task, measure, run_trial, trial_seeds
from hmmlib.training import checkpoints, readers
from hmmlib.training.tuning import accuracy, probs_behind_prompt, tune_exact_prompt

SPEC = TrialSpec("smoke", **TINY | dict(n_states=4, steps=30, train=200, epochs=2), temperature=0.2)


@pytest.fixture(scope="module")
def result():
    torch.set_num_threads(1)
    return run_trial(SPEC, also=["on_the_way", "exact_prompt_accuracy"])


class Broken(Exception):
    """What a report raises."""


def broken_off(at):
    def report(phase, share):
        if share >= at:
            raise Broken

    return report


def test_the_last_milestone_is_the_result(result):
    assert list(result.on_the_way) == [str(3 * k) for k in range(1, 11)]
    last = result.on_the_way["30"]
    assert last == dict(loss=result.network_loss, head=result.head_accuracy, prompt=result.prompt_accuracy)


def test_a_milestone_is_the_network_that_was_there(result, tmp_path):
    """Against one whose pretraining was broken off there, as its checkpoint has it."""
    path = tmp_path / "trial.safetensors"
    with pytest.raises(Broken):
        run_trial(SPEC, broken_off(0.5), checkpoint=path)
    network, seeds = build_network(SPEC), trial_seeds(SPEC.seed)
    tensors, facts = checkpoints.load(path, {})
    assert facts["done"] == "15"
    weights = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    network.load_state_dict(weights)
    how = SPEC.evaluation, SPEC.length, SPEC.masked, seeds["evaluation"]
    assert readers.masked_losses(network, draw_model(SPEC), *how)[0] == result.on_the_way["15"]["loss"]
    resumed = run_trial(SPEC, checkpoint=path, also=["on_the_way"])
    assert resumed.on_the_way == {k: found for k, found in result.on_the_way.items() if int(k) > 15}


def test_a_kept_network_is_pretrained_again_for_its_milestones(result, tmp_path):
    bare = run_trial(SPEC, networks=tmp_path)
    assert bare.on_the_way is None
    assert measure(bare, ["on_the_way"], networks=tmp_path).on_the_way == result.on_the_way


def test_the_prompt_on_the_exact_model_has_the_networks_budget(result):
    task = draw_trial_task(SPEC, draw_model(SPEC))
    origin = LABEL_RULES[SPEC.labels].origin(draw_model(SPEC))
    (train, _, test), (labels, _, truth) = task.split(task.posteriors), task.split(task.labels)

    def tuned(spec):
        prompt, head = tune_exact_prompt(origin, train, labels, spec.tuning(), trial_seeds(SPEC.seed)["tuning"])
        return accuracy(head, probs_behind_prompt(origin, test, prompt), truth)

    assert result.exact_prompt_accuracy == tuned(SPEC)
    longer = replace(SPEC, epochs=40, head_rate=0.3)
    assert measure(run_trial(longer), ["exact_prompt_accuracy"]).exact_prompt_accuracy == tuned(longer) != tuned(SPEC)
