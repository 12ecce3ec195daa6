"""What a study of one's own must not silently get wrong: its own model, task and tuner in a trial."""

from dataclasses import replace

import pytest
import torch
from runs import TINY

from hmmbook import Parts, TrialSpec, draw_trial_task, run_missing, run_trial, save_result
from hmmbook.experiments.trials import measure
from hmmlib import HMM, random_hmm, random_memory_hmm

SPEC = TrialSpec("smoke", own="mine", **TINY)


def own_model(spec):
    return random_hmm(3, 4, seed=7)


def labels_by_first_token(spec, model):
    task = draw_trial_task(spec, model)
    return task._replace(labels=task.tokens[:, 1] > 0)


def test_theorems_are_built_for_labels_of_mu_only():
    with_mu = run_trial(SPEC, parts=Parts(task=draw_trial_task))
    assert with_mu.built_head_accuracy is not None
    assert with_mu.built_prompt_accuracy is not None
    without_mu = run_trial(SPEC, parts=Parts(task=labels_by_first_token))
    assert without_mu.built_head_accuracy is None
    assert without_mu.built_prompt_accuracy is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_model_whose_start_never_comes_again_runs_a_trial(dtype, tmp_path):
    def model(spec):
        transition = [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
        return HMM.from_rows([1.0, 0.0, 0.0], transition, [[0.25] * 4] * 3).to(dtype=dtype)

    assert model(SPEC).n_states == 4, "a state is added, which is H_0 alone"
    result = run_trial(SPEC.replace(n_states=4), also=["exact_prompt_accuracy"], parts=Parts(model=model))
    assert result.ladder_prompt_accuracy is None, "a prompt on the exact model would divide by zero"
    assert result.built_prompt_accuracy is None
    assert result.exact_prompt_accuracy is None
    assert result.ladder_head_accuracy > 0
    assert result.prompt_accuracy > 0
    save_result(result, tmp_path)


def test_what_own_parts_give_is_checked_before_the_network_is_pretrained():
    def no_network(spec, model):
        pytest.fail("it was asked for")

    def three(*arguments):
        return 3

    with pytest.raises(TypeError, match=r"what Parts.model gives must be of type HMM or MemoryHMM, not int"):
        run_trial(SPEC, parts=Parts(network=no_network, model=three))
    with pytest.raises(TypeError, match=r"what Parts.task gives must be of type Task, not int"):
        run_trial(SPEC, parts=Parts(network=no_network, task=three))
    with pytest.raises(TypeError, match=r"what Parts.tuner gives must be of type Tuned, not int"):
        run_trial(SPEC, parts=Parts(tuner=three))


def own_memory_model(spec):
    return random_memory_hmm(3, 3, 4, seed=7)


@pytest.mark.parametrize(("model", "n_memory"), [(own_memory_model, 1), (own_memory_model, 2), (own_model, 2)])
def test_a_model_with_another_memory_is_refused(model, n_memory):
    with pytest.raises(ValueError, match=rf"what Parts.model gives has \d memory values, .* n_memory is {n_memory}"):
        run_trial(SPEC.replace(n_memory=n_memory), parts=Parts(model=model))


def test_a_model_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"what Parts.model gives has 4 tokens, but the spec's n_tokens is 5"):
        run_trial(SPEC.replace(n_tokens=5), parts=Parts(model=own_model))


@pytest.mark.parametrize("n_states", [2, 4])
def test_a_model_with_another_number_of_states_is_refused(n_states):
    with pytest.raises(ValueError, match=rf"Parts.model gives has 3 states, but the spec's n_states is {n_states}"):
        run_trial(SPEC.replace(n_states=n_states), parts=Parts(model=own_model))


@torch.no_grad()  # Its own lines are not the user's.
def raises(spec, model=None):
    return {}[spec.width]


@pytest.mark.parametrize("part", ["model", "task", "network"])
def test_an_error_in_a_part_names_the_part_and_its_line(part, tmp_path):
    outcome = run_missing([SPEC], tmp_path, parts=Parts(**{part: raises}), log=lambda line: None)
    reason = f"KeyError: {SPEC.width}, raised in Parts.{part}, at the line: return {{}}[spec.width]"
    assert outcome.failed == {SPEC.hash: reason}


def test_a_result_is_measured_only_with_the_model_and_the_task_that_it_was_made_with():
    def other_chain(spec):
        return random_hmm(3, 4, seed=8)

    def other_labels(spec, model):
        task = draw_trial_task(spec, model)
        return task._replace(labels=torch.zeros_like(task.labels))

    names = ["exact_prompt_accuracy"]
    result = run_trial(SPEC, parts=Parts(model=own_model))
    assert measure(result, names, parts=Parts(model=own_model)).majority_rate == result.majority_rate
    with pytest.raises(ValueError, match="another model or task than those of the result: frequency_loss is"):
        measure(result, names, parts=Parts(model=other_chain))
    older = replace(result, added={})  # It has no frequency_loss.
    assert measure(older, names, parts=Parts(model=own_model)).majority_rate == result.majority_rate
    with pytest.raises(ValueError, match="another model or task than those of the result: majority_rate is 1"):
        measure(result, names, parts=Parts(model=own_model, task=other_labels))
    # A measurement of the model alone asks for no task.
    measure(older, ["frequency_loss"], parts=Parts(model=own_model, task=other_labels))
