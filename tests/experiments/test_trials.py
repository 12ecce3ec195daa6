"""Trials: the same spec gives the same numbers, named as they are, and more steps bring the exact G nearer."""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from runs import MEASURED, TINY, numbers

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
    measure,
    run_trial,
    trial_seeds,
)
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import bert, readers, tuning
from hmmlib.training.pretraining import Pretraining, pretrain
from hmmlib.validation import MASK

LIVELY = dict(n_states=6, n_tokens=8, steps=40, train=200, validation=20, test=200, epochs=5, temperature=0.2)
"""Enough for a change of a head or a prompt to make a difference."""
ACCURACIES = [name for name in MEASURED if name.endswith("accuracy")]
ON_VANILLA_ONLY = {name for name in ACCURACIES if "prompt" in name or name.startswith(("ladder", "built"))}


@cache
def tried(**fields):
    """The result of a tiny trial that differs in these fields."""
    torch.set_num_threads(1)
    return run_trial(TrialSpec("smoke", **{**TINY, **fields}))


@pytest.mark.parametrize("n_memory", [1, 2])
def test_a_trial_gives_the_same_numbers_again_other_numbers_for_another_seed_and_tells_where_it_is(n_memory):
    result, other, reports = tried(n_memory=n_memory), tried(n_memory=n_memory, seed=1), []
    again = run_trial(result.spec, lambda phase, share: reports.append((phase, share)))
    assert numbers(again) == numbers(result)
    for name in ("network_loss", "best_loss", "divergence", "seeds", "backbone"):
        assert getattr(other, name) != getattr(result, name), name
    phases = ["pretraining", "exact model", "head tuning", "exact ladder", "prompt tuning"]
    assert list(result.seconds) == phases[: 5 if n_memory == 1 else 3]
    assert reports[:4] == [("pretraining", (step + 1) / 4) for step in range(4)]
    assert list(dict.fromkeys(reports[4:])) == [(phase, 1.0) for phase in result.seconds]  # the end of each
    batches = result.spec.epochs * -(-result.spec.train // result.spec.tuning().batch)
    told = batches + 2 if n_memory == 1 else 0  # before each, and after each of two measurements
    assert reports.count(("prompt tuning", 1.0)) == told
    with pytest.raises(KeyError, match="enough"):
        run_trial(result.spec, lambda phase, share: {}["enough"])


def test_what_a_trial_measures():
    for found, lacking in ((tried(), set()), (tried(n_memory=2), ON_VANILLA_ONLY)):
        measured = {name: getattr(found, name) for name in ACCURACIES}
        none, may_be = {name for name in measured if measured[name] is None}, {"built_prompt_accuracy"}
        assert none | may_be == lacking | may_be
        for name, share in measured.items():
            if share is not None:  # counts of validation or test examples
                count = share * (20 if name.startswith("validation") else 60)
                assert 0 <= share <= 1
                assert count == pytest.approx(round(count), abs=1e-9), name
        assert 0.5 <= found.majority_rate <= 1
        assert found.excess_loss == found.network_loss - found.best_loss > 0
        assert found.divergence > 0
    assert tried().environment == environment() | {"date": datetime.now(UTC).date().isoformat()}
    bare = tried(prompt_length=0)
    assert bare.prompt_accuracy == bare.untrained_prompt_accuracy == bare.head_accuracy


@pytest.mark.parametrize(
    "fields",
    [
        dict(epochs=2),
        dict(labels="before", prompt_start="vocabulary"),
        dict(labels="stepped", n_states=12),
        dict(n_memory=2, attention_heads=3, attention_positions="none"),
    ],
    ids=str,
)
def test_the_numbers_are_those_of_the_parts(fields):
    """Network, task and heads, put together here again, give what the trial says."""
    found = tried(**LIVELY | fields)
    spec, seeds, seed = found.spec, found.seeds, found.seeds["tuning"]
    model, network, how = draw_model(spec), build_network(spec), spec.tuning()
    assert isinstance(model, HMM if spec.n_memory == 1 else MemoryHMM)
    pretrain(network, model, spec.pretraining(), seeds["pretraining"])
    assert bert.fingerprint(network) == found.backbone
    losses = readers.masked_losses(network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"])
    assert losses == (found.network_loss, found.best_loss)
    task = draw_trial_task(spec, model)
    assert task.redraws == found.redraws
    first, second, tokens = task.split(task.tokens)
    train, validation, test = task.split(task.labels)
    share = test.double().mean().item()
    assert found.majority_rate == max(share, 1 - share)
    exact, outputs = masked_token_probs(model, task.tokens), tuning.all_probs(network, task.tokens)
    law = outputs[220:, 0, :8].double()
    expected = (exact[220:, 0] * (exact[220:, 0].clamp_min(1e-300).log() - law.log())).sum(1).mean().item()
    assert found.divergence == pytest.approx(expected, rel=1e-6)
    positions = spec.attention_positions == "learned"
    for name, probs in (("", outputs), ("exact_", exact.float())):
        head = tuning.tune_head(probs[:200, 0], train, how, seed)
        attention = tuning.tune_attention(probs[:200], train, how, seed, spec.attention_heads, positions)
        for part, rows, truth in (("", slice(220, None), test), ("validation_", slice(200, 220), validation)):
            if not (name and part):
                accuracies = (
                    tuning.accuracy(head, probs[rows, 0], truth),
                    tuning.accuracy(attention, probs[rows], truth),
                )
                names = [f"{part}{name}{kind}_accuracy" for kind in ("head", "attention")]
                assert tuple(getattr(found, one) for one in names) == accuracies
    if spec.n_memory > 1:
        return
    prompt, head = tuning.tune_prompt(network, first, train, 8, how, seed, spec.prompt_start)
    for name, inputs, truth in (("", tokens, test), ("validation_", second, validation)):
        behind = tuning.all_probs_at_mask(network, inputs, prompt)
        assert getattr(found, f"{name}prompt_accuracy") == tuning.accuracy(head, behind, truth)
    drawn = tuning.initial_prompt(network, 8, seed, spec.prompt_start)
    head = tuning.tune_head(tuning.all_probs_at_mask(network, first, drawn), train, how, seed)
    behind = tuning.all_probs_at_mask(network, tokens, drawn)
    assert found.untrained_prompt_accuracy == tuning.accuracy(head, behind, test)
    ladder = tune_on_exact_outputs(model, task, exact[:, 0], ladder_plan("smoke"), seed, spec.labels)
    assert (found.ladder_head_accuracy, found.ladder_prompt_accuracy) == (ladder.head, ladder.prompt_and_head)
    again = tune_on_exact_outputs(model, task, exact[:, 0], how, seed, spec.labels)  # with the network's budget
    assert measure(found, ["exact_prompt_accuracy"]).exact_prompt_accuracy == again.prompt_and_head
    for mine, built in (("built_head", ladder.theorem_3_3), ("built_prompt", ladder.theorem_3_6)):
        assert getattr(found, f"{mine}_accuracy") == (built and built.accuracy)
    assert (found.built_head_accuracy is None) == (spec.n_states == 12), "more states than tokens: none recovers them"


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
    joint = draw_model(replace(spec, n_memory=2, permutations="joint"))
    assert not torch.equal(joint.transition, memory.transition)
    network = bert.build(spec.shape(), 4, seeds["network"])
    assert bert.fingerprint(build_network(spec)) == bert.fingerprint(network)
    zero, three = (bert.fingerprint(build_network(replace(spec, weights="shared", seed=seed))) for seed in (0, 3))
    assert zero == three == bert.fingerprint(build_network(replace(spec, seed=0))) != bert.fingerprint(network)


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


def test_the_environment_by_its_values(monkeypatch):
    cpu = torch.device("cpu")
    found = environment(cpu)
    assert found == environment(cpu, "half")  # there is no half on a CPU
    assert found == {
        "device": "cpu",
        "precision": "float32",
        "machine": os.uname().machine,
        "threads": torch.get_num_threads(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "hmmlib": hmmlib.__version__,
        "commit": provenance.git_commit(),
        "library": provenance.library_digest(),
    }
    monkeypatch.setattr(backend, "sixteen_bits", lambda device, precision: {"half": torch.bfloat16}.get(precision))
    assert environment(cpu, "half") == found | {"precision": "bfloat16"}
    assert environment(cpu) == found


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (dict(places="repeated"), dict(n_states=8)),
        (dict(masking="bert"), {}),
        (dict(specials=5), {}),
        (dict(documents=3, document_length=60), {}),
        (dict(dropout=0.1), {}),
        (dict(clip=0.1), {}),
        (dict(muon_rate=0.0), {}),
        (dict(labels="stepped"), dict(n_memory=2)),
        (dict(n_states=1), {}),
    ],
    ids=str,
)
def test_every_choice_runs_repeats_and_matters(choice, fields):
    found = tried(**fields, **choice)
    assert numbers(found) == numbers(run_trial(found.spec)) != numbers(tried(**fields))
    assert np.isfinite([found.divergence, found.network_loss, found.best_loss]).all()


@pytest.mark.outside
def test_more_steps_bring_the_network_nearer_to_the_exact_law():
    """Divergence at the mask; the control is the law of another chain, from which it moves away."""
    own, other = [], []
    for steps in (20, 100, 300):
        model, stranger = random_hmm(3, 4, 0), random_hmm(3, 4, 100)
        network = bert.build(bert.Shape(1, 32, 2, 8), 4, 0)
        pretrain(network, model, Pretraining(steps, 32, 8, 0.15, 1e-2, 0.04, 10), 0)
        tokens = model.sample(200, 8, 1000).tokens.clone()
        tokens[:, 0] = MASK
        output = tuning.all_probs_at_mask(network, tokens).double().log()
        for law, divergences in ((model, own), (stranger, other)):
            exact = masked_token_probs(law, tokens)[:, 0]
            divergences.append(torch.nn.functional.kl_div(output, exact, reduction="batchmean").item())
    assert own[0] > 2 * own[1] > 4 * own[2], own
    assert own[2] < 0.1
    assert min(other) == other[0] > own[0], other
