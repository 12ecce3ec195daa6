"""What a study of one's own must not silently get wrong: its own model, labels and measurements in a trial."""

import dataclasses
import math

import pytest
import torch
from support.runs import TINY

from hmmlib import HMM, Parts, TrialSpec, draw_trial_task, random_hmm, run_trial
from hmmlib.experiments.results import as_table, share_learned
from hmmlib.experiments.store import load_results, save_result

SPEC = TrialSpec("smoke", own="mine", **TINY)
STEPS = torch.tensor([[0.9, 0.2, 0.1], [0.05, 0.7, 0.1], [0.05, 0.1, 0.8]], dtype=torch.float64)
TOKENS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 0.5], [0, 0, 0.5]], dtype=torch.float64)
START = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)


def own_model(spec=SPEC):
    return HMM(STEPS, TOKENS, START)


def test_the_share_learned_is_that_of_the_trial_s_own_model(tmp_path):
    result = run_trial(SPEC, parts=Parts(model=own_model))
    often = torch.stack([own_model().emission @ own_model().marginal(at) for at in range(1, SPEC.length + 1)]).mean(0)
    assert result.frequency_loss == pytest.approx(torch.special.entr(often).sum().item())
    save_result(result, tmp_path)
    table = as_table(load_results("smoke", tmp_path))
    gap = result.frequency_loss - result.best_loss
    shares = [share_learned(table.assign(evaluation=sequences))[0] for sequences in (1, 10**6)]
    assert shares == [pytest.approx(math.nan, nan_ok=True), pytest.approx(1 - result.excess_loss / gap)]
    assert share_learned(table.drop(columns="frequency_loss")).isna().all(), "another model would be drawn for it"
    shared = run_trial(TrialSpec("smoke", n_memory=2, **TINY))
    row = as_table([shared]).assign(evaluation=10**6)
    drawn = share_learned(row.drop(columns="frequency_loss"))
    assert share_learned(row).tolist() == pytest.approx(drawn.tolist())


def test_no_theorem_is_built_for_labels_that_are_not_those_of_mu():
    def by_first_token(spec, model):
        task = draw_trial_task(spec, model)
        return task._replace(labels=task.tokens[:, 1] > 0)

    result = run_trial(SPEC, parts=Parts(task=by_first_token))
    assert (result.built_head_accuracy, result.built_prompt_accuracy) == (None, None)
    assert run_trial(SPEC, parts=Parts(task=draw_trial_task)).built_head_accuracy is not None


def test_a_draw_needs_a_seed():
    model = random_hmm(3, 4, 0)
    for draw in (model.sample, model.stream):
        with pytest.raises(TypeError, match="seed"):
            next(iter(draw(2, 3)))


def test_a_spec_of_another_preset_has_its_numbers():
    spec = TrialSpec("smoke", 4, seed=3, epochs=7)
    assert spec.replace(preset="quick", seed=5) == TrialSpec("quick", 4, seed=5, epochs=7)
    with pytest.raises(ValueError, match=r"preset is 'quick', but .* smoke.*: use spec.replace\(preset='quick'\)"):
        dataclasses.replace(TrialSpec("smoke"), preset="quick")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_model_whose_start_never_comes_again_runs_a_trial(dtype, tmp_path):
    def fitted(spec):
        rows = [1.0, 0.0, 0.0], [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [[0.25] * 4] * 3
        return HMM.from_rows(*rows).to(dtype=dtype)

    assert fitted(SPEC).n_states == 4, "a state is added, which is H_0 alone"
    result = run_trial(SPEC, also=["exact_prompt_accuracy"], parts=Parts(model=fitted))
    assert result.ladder_prompt_accuracy is result.built_prompt_accuracy is result.exact_prompt_accuracy is None
    assert result.ladder_head_accuracy > 0
    assert result.prompt_accuracy > 0
    save_result(result, tmp_path)


def test_what_own_parts_give_is_checked_before_the_network_is_pretrained():
    def no_network(spec, model):
        raise AssertionError("it was asked for")

    for name, wanted in (("model", "HMM or MemoryHMM"), ("task", "Task")):
        with pytest.raises(TypeError, match=f"what Parts.{name} gives must be of type {wanted}, not int"):
            run_trial(SPEC, parts=Parts(**{"network": no_network, name: lambda *given: 3}))
    with pytest.raises(TypeError, match=r"what Parts.tuner gives must be of type Tuned, not int"):
        run_trial(SPEC, parts=Parts(tuner=lambda *given: 3))
