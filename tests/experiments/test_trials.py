"""Trials: the same spec gives the same numbers, and each is that of the trial's parts put together here again."""

import dataclasses
import math
import os
import sys
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from runs import TINY, numbers

from hmmbook import TrialSpec, draw_model, draw_task, draw_trial_task, load_results, run_trial
from hmmbook.experiments import environment as environment_module
from hmmbook.experiments import parts as parts_module
from hmmbook.experiments.environment import environment, git_commit
from hmmbook.experiments.exact_ladder import ladder_plan, tune_on_exact_outputs
from hmmbook.experiments.parts import Trial, build_network, trial_seeds
from hmmbook.experiments.store import STORE
from hmmbook.experiments.sweeps import stored_by
from hmmbook.experiments.trials import measure
from hmmlib import __version__, device, masked_token_probs, pretrain, random_hmm, random_memory_hmm
from hmmlib.training import bert, readers, tuning

CPU = torch.device("cpu")


@cache
def tiny_trial(**fields):
    return run_trial(TrialSpec("smoke", **{**TINY, **fields}))


def test_a_trial_repeats_its_numbers():
    result = tiny_trial()
    again = run_trial(result.spec)
    assert numbers(again) == numbers(result)


def test_another_seed_changes_every_draw():
    result = tiny_trial()
    other = tiny_trial(seed=1)
    for name in ("network_loss", "best_loss", "divergence", "seeds", "backbone"):
        assert getattr(other, name) != getattr(result, name), name


def test_a_memory_model_has_no_prompts():
    result = tiny_trial(n_memory=2)
    assert result.prompt_accuracy is None
    assert result.untrained_prompt_accuracy is None
    assert result.validation_prompt_accuracy is None
    assert result.ladder_prompt_accuracy is None
    assert list(result.seconds) == ["pretraining", "exact model", "head tuning"]


def test_a_trial_reports_its_progress_and_the_seconds_of_each_phase():
    reports = []
    result = run_trial(TrialSpec("smoke", **TINY), lambda phase, share: reports.append((phase, share)))
    assert reports[0] == ("drawing", 0.0)
    assert reports[1:5] == [("pretraining", share) for share in (0.25, 0.5, 0.75, 1.0)]
    assert reports[-1] == ("prompt tuning", 1.0)
    assert set(result.seconds) == {"pretraining", "exact model", "head tuning", "exact ladder", "prompt tuning"}


def test_a_trial_whose_time_is_over_draws_nothing(monkeypatch):
    monkeypatch.setattr(parts_module, "draw_model", lambda spec: pytest.fail("a model was drawn"))

    def end(phase, share):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run_trial(TrialSpec("smoke", **TINY), end)


def test_a_preset_for_a_gpu_on_a_cpu_is_warned_of(monkeypatch):
    def end(spec):
        raise TimeoutError

    monkeypatch.setattr(parts_module, "draw_model", end)
    warned = pytest.warns(UserWarning, match=r"^gpu is for a GPU, and on a CPU this trial takes hours or days$")
    with warned, pytest.raises(TimeoutError):
        run_trial(TrialSpec("gpu"), device="cpu")


def test_a_result_notes_what_made_it():
    result = tiny_trial()
    today = datetime.now(UTC).date().isoformat()
    assert result.environment == environment(CPU, "single") | {"date": today}
    assert result.excess_loss == result.network_loss - result.best_loss > 0


@pytest.mark.parametrize("index", [0, 5, 9])
def test_a_stored_trial_is_what_its_spec_gives(index):
    """Editing the code must not move numbers. Another processor rounds otherwise, which a trained network amplifies."""
    stored = load_results("smoke", STORE)[index]
    threads = torch.get_num_threads()
    torch.set_num_threads(stored.environment["threads"])
    try:
        again = run_trial(stored.spec, device="cpu")
    finally:
        torch.set_num_threads(threads)
    if again.backbone == stored.backbone:
        assert_close(numbers(again), numbers(stored), 1e-9)
        return
    for name in ("redraws", "majority_rate"):
        assert getattr(again, name) == getattr(stored, name), name
    assert again.best_loss == pytest.approx(stored.best_loss, abs=1e-9)
    for name in ("exact_head_accuracy", "exact_attention_accuracy", "ladder_head_accuracy", "ladder_prompt_accuracy"):
        assert getattr(again, name) == pytest.approx(getattr(stored, name), abs=0.02), name
    assert again.network_loss == pytest.approx(stored.network_loss, abs=0.1)
    assert again.divergence == pytest.approx(stored.divergence, abs=0.1)


def assert_close(values, expected, tolerance):
    assert values.keys() == expected.keys()
    for name, value in values.items():
        if isinstance(value, float):
            assert value == pytest.approx(expected[name], abs=tolerance), name
        elif isinstance(value, dict):
            assert_close(value, expected[name], tolerance)
        else:
            assert value == expected[name], name


def mean_score(head, probs, labels):
    """The mean score on the side of the labels. Unlike an accuracy it shows every small change of a head or prompt."""
    scores = head(probs)
    return torch.where(labels, scores, -scores).double().mean().item()


VARIANTS = [
    {"epochs": 2, "tuning_batch": 16},
    {"labels": "before", "prompt_start": "vocabulary"},
    {"labels": "stepped", "n_states": 12},
    {"n_memory": 2, "attention_heads": 3, "attention_positions": "none"},
]


@pytest.fixture(params=VARIANTS, ids=str)
def assembled(request, monkeypatch):
    """A trial with scores in place of accuracies, and its parts, drawn and trained here again."""
    monkeypatch.setattr(tuning, "accuracy", mean_score)
    result = run_trial(TrialSpec("smoke", **TINY | request.param, temperature=0.2))
    spec = result.spec
    model = draw_model(spec)
    network = build_network(spec)
    pretrain(network, model, spec.pretraining(), result.seeds["pretraining"])
    task = draw_trial_task(spec, model)
    return result, model, network, task


def test_losses_and_divergence_are_those_of_the_parts(assembled):
    result, model, network, task = assembled
    spec = result.spec
    losses = readers.masked_losses(
        network, model, spec.evaluation, spec.length, spec.masked, result.seeds["evaluation"]
    )
    assert (result.network_loss, result.best_loss) == losses
    assert result.backbone == bert.fingerprint(network)
    assert result.redraws == task.redraws
    share = task.test.labels.double().mean().item()
    assert result.majority_rate == max(share, 1 - share)
    exact = masked_token_probs(model, task.test.tokens)[:, 0]
    predicted = tuning.all_probs(network, task.tokens)[60:, 0, :4].double()
    divergence = (exact * (exact.clamp_min(1e-300).log() - predicted.log())).sum(1).mean().item()
    assert result.divergence == pytest.approx(divergence, rel=1e-6)


def test_accuracies_of_heads_are_those_of_the_parts(assembled):
    result, model, network, task = assembled
    outputs = tuning.all_probs(network, task.tokens)
    exact = masked_token_probs(model, task.tokens).float()

    head, attention = heads_tuned_on(result, task, outputs)
    assert result.head_accuracy == mean_score(head, outputs[60:, 0], task.test.labels)
    assert result.attention_accuracy == mean_score(attention, outputs[60:], task.test.labels)
    assert result.validation_head_accuracy == mean_score(head, outputs[40:60, 0], task.validation.labels)
    assert result.validation_attention_accuracy == mean_score(attention, outputs[40:60], task.validation.labels)

    head, attention = heads_tuned_on(result, task, exact)
    assert result.exact_head_accuracy == mean_score(head, exact[60:, 0], task.test.labels)
    assert result.exact_attention_accuracy == mean_score(attention, exact[60:], task.test.labels)


def heads_tuned_on(result, task, probs):
    spec = result.spec
    seed = result.seeds["tuning"]
    labels = task.train.labels
    learned = spec.attention_positions == "learned"
    head = tuning.tune_head(probs[:40, 0], labels, spec.tuning(), seed)
    attention = tuning.tune_attention(probs[:40], labels, spec.tuning(), seed, spec.attention_heads, learned)
    return head, attention


def test_accuracies_behind_prompts_are_those_of_the_parts(assembled):
    result, _, network, task = assembled
    spec = result.spec
    seed = result.seeds["tuning"]
    if spec.n_memory > 1:
        assert result.prompt_accuracy is None
        return
    train, validation, test = task.train, task.validation, task.test
    prompt, head = tuning.tune_prompt(
        network, train.tokens, train.labels, spec.prompt_length, spec.tuning(), seed, spec.prompt_start
    )
    behind = tuning.all_probs_at_mask(network, test.tokens, prompt)
    assert result.prompt_accuracy == mean_score(head, behind, test.labels)
    behind = tuning.all_probs_at_mask(network, validation.tokens, prompt)
    assert result.validation_prompt_accuracy == mean_score(head, behind, validation.labels)

    drawn = tuning.initial_prompt(network, spec.prompt_length, seed, spec.prompt_start)
    behind = tuning.all_probs_at_mask(network, train.tokens, drawn)
    head = tuning.tune_head(behind, train.labels, spec.tuning(), seed)
    behind = tuning.all_probs_at_mask(network, test.tokens, drawn)
    assert result.untrained_prompt_accuracy == mean_score(head, behind, test.labels)


def test_the_exact_ladder_is_that_of_the_parts(assembled):
    result, model, _, task = assembled
    spec = result.spec
    seed = result.seeds["tuning"]
    if spec.n_memory > 1:
        assert result.ladder_head_accuracy is None
        return
    probs = masked_token_probs(model, task.tokens)[:, 0]
    ladder = tune_on_exact_outputs(model, task, probs, ladder_plan("smoke"), seed, spec.labels)
    assert result.ladder_head_accuracy == ladder.head
    assert result.ladder_prompt_accuracy == ladder.prompt_and_head
    if spec.n_states == 12:
        assert result.built_head_accuracy is None, "with more states than tokens nothing recovers the state"
    else:
        assert result.built_head_accuracy == ladder.theorem_3_3.accuracy
    if ladder.theorem_3_6:
        assert result.built_prompt_accuracy == ladder.theorem_3_6.accuracy
    as_long_as_the_network = tune_on_exact_outputs(model, task, probs, spec.tuning(), seed, spec.labels)
    more = measure(result, ["exact_prompt_accuracy"])
    assert more.exact_prompt_accuracy == as_long_as_the_network.prompt_and_head


def test_seeds_are_independent_and_follow_from_one():
    state = np.random.SeedSequence(3).generate_state(6).tolist()
    names = ["model", "network", "pretraining", "task", "tuning", "evaluation"]
    assert trial_seeds(3) == dict(zip(names, state, strict=True))


def test_model_and_task_are_the_librarys_with_the_seeds_of_the_trial():
    spec = TrialSpec("smoke", **TINY, seed=3, temperature=0.2, labels="before", places="repeated")
    seeds = trial_seeds(3)

    model = draw_model(spec)
    assert torch.equal(model.transition, random_hmm(3, 4, seeds["model"], 0.2).transition)
    assert torch.equal(model.emission, random_hmm(3, 4, seeds["model"], 0.2).emission)

    memory_model = draw_model(spec.replace(n_memory=2))
    expected = random_memory_hmm(2, 3, 4, seeds["model"], temperature=0.2)
    assert torch.equal(memory_model.transition, expected.transition)
    assert torch.equal(memory_model.memory, expected.memory)
    joint = draw_model(spec.replace(n_memory=2, permutations="joint"))
    assert not torch.equal(joint.transition, expected.transition)

    task = draw_trial_task(spec, model)
    expected_task = draw_task(model, spec.task_length, (40, 20, 60), seeds["task"], "before", "repeated")
    assert torch.equal(task.tokens, expected_task.tokens)
    assert torch.equal(task.mu, expected_task.mu)


def test_shared_weights_are_those_of_seed_0():
    spec = TrialSpec("smoke", **TINY, seed=3)
    own = bert.fingerprint(build_network(spec))
    assert own == bert.fingerprint(bert.build(spec.shape(), 4, trial_seeds(3)["network"]))
    seed_0 = bert.fingerprint(build_network(spec.replace(seed=0)))
    assert bert.fingerprint(build_network(spec.replace(weights="shared"))) == seed_0 != own


def test_seconds_are_those_since_the_phase_before(monkeypatch):
    ticks = iter([10.0, 10.25, 13.0, 13.12345])
    monkeypatch.setattr(parts_module.time, "perf_counter", lambda: next(ticks))
    trial = Trial(TrialSpec("smoke", **TINY))
    for phase in ("first", "second", "third"):
        trial.end_phase(phase)
    assert trial.seconds == {"first": 0.25, "second": 2.75, "third": 0.12}


def test_a_network_that_tuning_changed_is_an_error(monkeypatch):
    fingerprints = iter(["before", "after"])
    monkeypatch.setattr(bert, "fingerprint", lambda network: next(fingerprints))
    with pytest.raises(RuntimeError, match=r"^tuning changed the network, which must stay frozen$"):
        run_trial(TrialSpec("smoke", n_memory=2, **TINY))


def test_the_environment_by_its_values(monkeypatch):
    expected = {
        "device": "cpu",
        "precision": "float32",
        "machine": os.uname().machine,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "hmmlib": __version__,
        "commit": git_commit(),
    }
    assert environment(CPU, "single") == expected
    assert environment(CPU, "half") == expected, "there is no half precision on a CPU"
    monkeypatch.setattr(device, "sixteen_bits", lambda on, precision: torch.bfloat16)
    assert environment(CPU, "half") == expected | {"precision": "bfloat16"}


def test_code_that_git_does_not_track_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(environment_module, "ROOT", tmp_path)
    assert git_commit.__wrapped__() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit.__wrapped__() is None, "nor without git"


def test_what_git_prints_in_another_encoding_ends_no_trial(tmp_path, monkeypatch):
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nprintf 'caf\\351'\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert git_commit.__wrapped__() == "caf\N{REPLACEMENT CHARACTER}+"


def test_what_is_said_of_where_results_come_from():
    result = tiny_trial()
    first = made_on(result, "2026-01-02", "0123456789ab")
    second = made_on(result, "2026-01-04", "0123456789ab")
    third = made_on(result, "2026-01-03", "ab+")
    odd = made_on(result, None, "--output=x")
    assert stored_by(first) == "stored on 2026-01-02 by 0123456789ab"
    assert stored_by(first, second, third) == "stored from 2026-01-02 to 2026-01-04 by 0123456789ab and 1 other commit"
    assert stored_by(odd) == "stored by an unknown commit"


def made_on(result, date, commit):
    return dataclasses.replace(result, environment={"date": date, "commit": commit})


CHOICES = [
    ({"places": "repeated"}, {"n_states": 8}),
    ({"masking": "bert", "specials": 5}, {}),
    ({"documents": 3, "document_length": 60, "dropout": 0.1, "clip": 0.1}, {}),
    ({"labels": "stepped"}, {"n_memory": 2}),
]


@pytest.mark.parametrize(("choice", "fields"), CHOICES, ids=str)
def test_every_choice_runs_repeats_and_matters(choice, fields):
    result = tiny_trial(**fields, **choice)
    assert numbers(result) == numbers(run_trial(result.spec))
    assert numbers(result) != numbers(tiny_trial(**fields))
    assert math.isfinite(result.divergence)
