"""Trials: the same spec gives the same numbers, named as they are, and more steps bring the exact G nearer."""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import torch
import transformers
from runs import MEASURED, TINY

import hmmlib
from hmmlib import backend
from hmmlib.experiments import labels, measurements, provenance, trials
from hmmlib.experiments.measurements import ladder_plan, tune_on_exact_outputs
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import (
    Trial,
    build_network,
    draw_model,
    draw_trial_task,
    environment,
    run_trial,
    trial_seeds,
)
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert, readers, tuning
from hmmlib.training.pretraining import Pretraining, pretrain
from hmmlib.validation import MASK

ATTENTIVE = dict(n_states=8, n_tokens=8, steps=40, train=200, test=200, epochs=5, seed=1)
"""Enough for an attention head to make a difference."""
ACCURACIES = [name for name in MEASURED if name.endswith("accuracy")]
ON_VANILLA_ONLY = {name for name in ACCURACIES if "prompt" in name or name.startswith(("ladder", "built"))}
BUILT = {"built_head_accuracy", "built_prompt_accuracy"}


@pytest.fixture
def result():
    return run_trial(TrialSpec("smoke", **TINY))


@pytest.fixture
def memory_result():
    return run_trial(TrialSpec("smoke", n_memory=2, **TINY))


@pytest.mark.parametrize("kind", ["result", "memory_result"])
def test_a_trial_gives_the_same_numbers_again_and_other_numbers_for_another_seed(kind, request):
    result = request.getfixturevalue(kind)
    again, other = run_trial(result.spec), run_trial(replace(result.spec, seed=1))
    for name in MEASURED:
        assert getattr(again, name) == getattr(result, name), name
    for name in ("network_loss", "best_loss", "divergence", "seeds", "backbone"):
        assert getattr(other, name) != getattr(result, name), name


def test_what_a_trial_measures(result, memory_result):
    for found, lacking in ((result, set()), (memory_result, ON_VANILLA_ONLY)):
        measured = {name: getattr(found, name) for name in ACCURACIES}
        assert {name for name in measured if measured[name] is None} - BUILT == lacking - BUILT
        for name, share in measured.items():
            if share is not None:  # counts of validation or test examples
                count = share * (20 if name.startswith("validation") else 60)
                assert 0 <= share <= 1
                assert count == pytest.approx(round(count), abs=1e-9), name
        assert 0.5 <= found.majority_rate <= 1
        assert found.excess_loss == found.network_loss - found.best_loss > 0
        assert found.divergence > 0
    phases = ["pretraining", "exact model", "head tuning", "exact ladder", "prompt tuning"]
    assert list(result.seconds) == phases
    assert list(memory_result.seconds) == phases[:3]
    assert result.environment == environment() | {"date": datetime.now(UTC).date().isoformat()}


def test_where_a_theorem_builds_nothing_there_is_none(result):
    """More states than tokens: no head recovers them, so Theorem 3.3 refuses; with fewer it builds one."""
    many = run_trial(TrialSpec("smoke", **{**TINY, "n_states": 6}))
    assert many.built_head_accuracy is None
    assert many.ladder_head_accuracy is not None
    assert result.built_head_accuracy is not None


def test_progress_is_reported_in_order(result):
    reports = []
    run_trial(result.spec, lambda phase, share: reports.append((phase, share)))
    assert reports[:4] == [("pretraining", (step + 1) / 4) for step in range(4)]
    assert list(dict.fromkeys(reports[4:])) == [(phase, 1.0) for phase in result.seconds]  # the end of each
    batches = result.spec.epochs * -(-result.spec.train // result.spec.tuning().batch)
    assert reports.count(("prompt tuning", 1.0)) == batches + 2  # before each, and after each of two measurements
    with pytest.raises(KeyError, match="enough"):
        run_trial(result.spec, lambda phase, share: {}["enough"])


@pytest.mark.parametrize("n_memory", [1, 2])
def test_the_numbers_are_those_of_the_parts(n_memory, result, memory_result):
    """Network, task and heads, put together here again, give what the trial says."""
    found = result if n_memory == 1 else memory_result
    spec, seeds = found.spec, found.seeds
    model, network = draw_model(spec), build_network(spec)
    assert isinstance(model, HMM if n_memory == 1 else MemoryHMM)
    pretrain(network, model, spec.pretraining(), seeds["pretraining"])
    assert bert.fingerprint(network) == found.backbone
    assert readers.masked_losses(network, model, 20, spec.length, spec.masked, seeds["evaluation"]) == (
        found.network_loss,
        found.best_loss,
    )
    task, how = draw_trial_task(spec, model), spec.tuning()
    assert task.redraws == found.redraws
    _, _, tokens = task.split(task.tokens)
    train, validation, test = task.split(task.labels)
    share = test.double().mean().item()
    assert found.majority_rate == max(share, 1 - share)
    exact = masked_token_probs(model, task.tokens)
    outputs = tuning.all_probs(network, task.tokens)
    law = outputs[-60:, 0, :4].double()
    expected = (exact[-60:, 0] * (exact[-60:, 0].clamp_min(1e-300).log() - law.log())).sum(1).mean().item()
    assert found.divergence == pytest.approx(expected, rel=1e-6)
    for name, probs in (("", outputs), ("exact_", exact.float())):
        head = tuning.tune_head(probs[:40, 0], train, how, seeds["tuning"])
        assert getattr(found, f"{name}head_accuracy") == (head.label(probs[-60:, 0]) == test).double().mean().item()
        attention = tuning.tune_attention(probs[:40], train, how, seeds["tuning"])
        accuracy = (attention.label(probs[-60:]) == test).double().mean().item()
        assert getattr(found, f"{name}attention_accuracy") == accuracy
        if not name:
            agrees = head.label(probs[40:60, 0]) == validation
            assert found.validation_head_accuracy == agrees.double().mean().item()
            agrees = attention.label(probs[40:60]) == validation
            assert found.validation_attention_accuracy == agrees.double().mean().item()
    if n_memory == 1:
        first, second, _ = task.split(task.tokens)
        prompt, head = tuning.tune_prompt(network, first, train, 8, how, seeds["tuning"])
        behind = tuning.all_probs_at_mask(network, tokens, prompt)
        assert found.prompt_accuracy == (head.label(behind) == test).double().mean().item()
        agrees = head.label(tuning.all_probs_at_mask(network, second, prompt)) == validation
        assert found.validation_prompt_accuracy == agrees.double().mean().item()
        drawn = tuning.initial_prompt(network, 8, seeds["tuning"])
        head = tuning.tune_head(tuning.all_probs_at_mask(network, first, drawn), train, how, seeds["tuning"])
        agrees = head.label(tuning.all_probs_at_mask(network, tokens, drawn)) == test
        assert found.untrained_prompt_accuracy == agrees.double().mean().item()
        ladder = tune_on_exact_outputs(model, task, exact[:, 0], ladder_plan("smoke"), seeds["tuning"], "masked")
        assert (found.ladder_head_accuracy, found.ladder_prompt_accuracy) == (ladder.head, ladder.prompt_and_head)
        for mine, built in (("built_head", ladder.theorem_3_3), ("built_prompt", ladder.theorem_3_6)):
            assert getattr(found, f"{mine}_accuracy") == (built and built.accuracy)


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_heads_are_tuned_and_judged_at_the_mask(positions, monkeypatch):
    """Labels that follow the distributions at the first position, of which those at the second know nothing."""
    spec = TrialSpec("smoke", **{**TINY, "train": 300, "test": 200, "epochs": 20}, attention_positions=positions)
    task, generator = draw_trial_task(spec, draw_model(spec)), torch.Generator().manual_seed(0)
    probs = torch.rand(len(task.tokens), 9, 4, generator=generator).softmax(-1)
    task = task._replace(labels=probs[:, 0, 0] >= probs[:, 0, 1])
    asked, tune = [], tuning.tune_attention
    monkeypatch.setattr(tuning, "tune_attention", lambda *given: (asked.append(given[-1]), tune(*given))[1])
    assert spec.head_rate == 0.1
    found = measurements.heads(spec, task, probs, {"tuning": 0})
    found |= measurements.exact_heads(spec, task, probs, {"tuning": 0})
    assert found["head_accuracy"] == found["exact_head_accuracy"] > 0.95
    assert found["validation_head_accuracy"] >= 0.9
    assert asked == [positions == "learned"] * 2


@pytest.mark.parametrize(("start", "other"), [("uniform", "vocabulary"), ("vocabulary", "uniform")])
def test_what_is_judged_behind_a_prompt_is_read_behind_it(start, other, monkeypatch):
    spec = TrialSpec("smoke", **{**TINY, "train": 200, "epochs": 3}, prompt_start=start)
    seen, ticks = [], []
    network, task, seed = build_network(spec), draw_trial_task(spec, draw_model(spec)), spec.seed
    read = tuning.all_probs_at_mask
    monkeypatch.setattr(tuning, "all_probs_at_mask", lambda *what: (seen.append(what[1:]), read(*what))[1])
    trial = Trial(spec)
    trial.network, trial.task, trial.seeds, trial.before_step = network, task, {"tuning": seed}, lambda: ticks.append(1)
    measurements.tuned_prompt(task, trial.tuned)
    measurements.untrained_prompt(spec, network, task, {"tuning": seed})
    train, validation, test = task.split(task.tokens)
    how = spec.prompt_length, spec.tuning(), seed, start
    prompt, _ = tuning.tune_prompt(network, train, task.split(task.labels)[0], *how)
    drawn = tuning.initial_prompt(network, spec.prompt_length, seed, start)
    assert not torch.equal(prompt, drawn)
    assert not torch.equal(drawn, tuning.initial_prompt(network, spec.prompt_length, seed, other))
    expected = [(validation, prompt), (test, prompt), (train, drawn), (test, drawn)]
    assert len(seen) == len(expected)
    for found, wanted in zip(seen, expected, strict=True):
        assert torch.equal(found[0], wanted[0])
        assert torch.equal(found[1], wanted[1])
    assert len(ticks) == 3 * 7, "before each batch of each pass"


def test_the_parts_of_a_trial_follow_its_spec():
    """Drawn here by the library's own parts, with the seeds of the trial."""
    spec = TrialSpec("smoke", **TINY, seed=3, temperature=0.2, labels="before", places="repeated")
    seeds = trial_seeds(3)
    state = np.random.SeedSequence(3).generate_state(6).tolist()
    assert seeds == dict(zip(["model", "network", "pretraining", "task", "tuning", "evaluation"], state, strict=True))
    model, same = draw_model(spec), random_hmm(3, 4, seeds["model"], 0.2)
    task = draw_trial_task(spec, model)
    again = labels.draw_task(model, spec.task_length, (40, 20, 60), seeds["task"], "before", "repeated")
    memory = draw_model(replace(spec, n_memory=2))
    plain = random_memory_hmm(2, 3, 4, seeds["model"], temperature=0.2)
    for found, want in [
        *((getattr(model, part), getattr(same, part)) for part in ("transition", "emission", "initial")),
        *((getattr(memory, part), getattr(plain, part)) for part in ("transition", "emission", "initial", "memory")),
        (task.tokens, again.tokens),
        (task.mu, again.mu),
    ]:
        assert torch.equal(found, want)
    network = bert.build(spec.shape(), 4, seeds["network"])
    assert bert.fingerprint(build_network(spec)) == bert.fingerprint(network)


def test_seconds_are_those_since_the_phase_before(monkeypatch):
    ticks, reports = iter([10.0, 10.25, 13.0, 13.12345]), []
    monkeypatch.setattr(trials.time, "perf_counter", lambda: next(ticks))
    trial = Trial(TrialSpec("smoke", **TINY), on_progress=lambda *what: reports.append(what))
    for phase in ("first", "second", "third"):
        trial.end_phase(phase)
    assert trial.seconds == {"first": 0.25, "second": 2.75, "third": 0.12}
    assert reports == [("first", 1.0), ("second", 1.0), ("third", 1.0)]


def test_a_network_that_tuning_changed_is_an_error(monkeypatch):
    prints = iter(["before", "after"])
    monkeypatch.setattr(bert, "fingerprint", lambda network: next(prints))
    with pytest.raises(RuntimeError, match=r"^tuning changed the network, which must stay frozen$"):
        run_trial(TrialSpec("smoke", n_memory=2, **TINY))


def test_the_environment_by_its_values():
    found = environment(torch.device("cpu"))
    assert found == environment(torch.device("cpu"), "half")  # there is no half on a CPU
    assert found == {
        "device": "cpu",
        "precision": "float32",
        "machine": os.uname().machine,
        "threads": 1,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "hmmlib": hmmlib.__version__,
        "commit": provenance.git_commit(),
        "library": provenance.library_digest(),
    }


def test_a_trial_of_what_is_no_spec_is_none():
    with pytest.raises(TypeError, match=r"^spec must be of type TrialSpec, not str$"):
        run_trial("smoke")


@pytest.mark.parametrize("labels", ["masked", "before", "stepped"])
def test_the_ladder_is_that_of_the_labels(labels, monkeypatch):
    asked = []
    monkeypatch.setattr(
        measurements, "tune_on_exact_outputs", lambda *given: (asked.append(given), tune_on_exact_outputs(*given))[1]
    )
    spec = TrialSpec("smoke", labels=labels, **TINY)
    run_trial(spec)
    ((model, task, probs, _, _, rule),) = asked
    assert rule == labels
    assert torch.equal(probs, masked_token_probs(model, task.tokens)[:, 0])


def test_a_half_of_a_gpu_is_named(monkeypatch):
    monkeypatch.setattr(backend, "sixteen_bits", lambda device, precision: {"half": torch.bfloat16}.get(precision))
    assert environment(torch.device("cpu"), "half")["precision"] == "bfloat16"
    assert environment(torch.device("cpu"))["precision"] == "float32"


def test_without_a_prompt_prompt_tuning_is_head_tuning():
    result = run_trial(TrialSpec("smoke", prompt_length=0, **TINY))
    assert result.prompt_accuracy == result.untrained_prompt_accuracy == result.head_accuracy


def test_shared_weights_are_those_of_seed_0():
    def weights(**fields):
        return bert.fingerprint(build_network(TrialSpec("smoke", **{**TINY, **fields})))

    assert weights(weights="shared", seed=5) == weights(seed=0) == weights(weights="shared", seed=0)
    assert weights(seed=5) != weights(seed=0)


def test_joint_permutations_make_another_memory_model():
    own, joint = (draw_model(TrialSpec("smoke", n_memory=3, permutations=kind, **TINY)) for kind in ("states", "joint"))
    assert not torch.equal(own.transition, joint.transition)
    assert torch.equal(own.transition, draw_model(TrialSpec("smoke", n_memory=3, **TINY)).transition)


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (dict(labels="before"), {}),
        (dict(labels="stepped"), dict(n_memory=2)),
        (dict(places="repeated"), dict(n_states=8)),
        (dict(masking="bert"), {}),
        (dict(specials=5), {}),
        (dict(documents=3, document_length=60), {}),
        (dict(dropout=0.1), {}),
        (dict(clip=0.1), {}),
        (dict(muon_rate=0.0), {}),
        (dict(attention_heads=3), ATTENTIVE),
        (dict(attention_positions="none"), ATTENTIVE),
        (dict(n_states=1), {}),
    ],
    ids=str,
)
def test_every_choice_runs_repeats_and_matters(choice, fields):
    base = {**TINY, **fields}
    first, second, without = (run_trial(TrialSpec("smoke", **{**base, **c})) for c in (choice, choice, {}))
    numbers = [[getattr(found, name) for name in MEASURED] for found in (first, second, without)]
    assert numbers[0] == numbers[1] != numbers[2]
    assert np.isfinite([first.divergence, first.network_loss, first.best_loss]).all()


@pytest.mark.outside
def test_more_steps_bring_the_network_nearer_to_the_exact_law():
    """Mean divergence at the mask over seeds; the control is the law of another chain, from which it moves away."""
    own, other = [], []
    for steps in (20, 100, 400):
        divergences = []
        for seed in range(2):
            model, stranger = random_hmm(3, 4, seed), random_hmm(3, 4, seed + 100)
            network = bert.build(bert.Shape(1, 32, 2, 8), 4, seed)
            pretrain(network, model, Pretraining(steps, 32, 8, 0.15, 1e-2, 0.04, 10), seed)
            tokens = model.sample(200, 8, seed + 1000).tokens.clone()
            tokens[:, 0] = MASK
            output = tuning.all_probs_at_mask(network, tokens).double().log()
            laws = (masked_token_probs(law, tokens)[:, 0] for law in (model, stranger))
            divergences.append([torch.nn.functional.kl_div(output, p, reduction="batchmean").item() for p in laws])
        for means, values in zip((own, other), zip(*divergences, strict=True), strict=True):
            means.append(np.mean(values))
    assert own[0] > 2 * own[1] > 4 * own[2], own
    assert own[2] < 0.1
    assert min(other) == other[0] > own[0], other
