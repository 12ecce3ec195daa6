"""Trials: the same spec gives the same numbers, and each is that of the trial's parts, put together here again."""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from runs import TINY, numbers

from hmmlib import TrialSpec, __version__, backend, masked_token_probs, pretrain, random_hmm
from hmmlib.experiments import labels, provenance, trials
from hmmlib.experiments.measurements import ladder_plan, tune_on_exact_outputs
from hmmlib.experiments.trials import build_network, draw_model, draw_trial_task, run_trial, trial_seeds
from hmmlib.models.appendix_e import random_memory_hmm
from hmmlib.training import bert, readers, tuning

OF_PROMPTS = ["prompt_accuracy", "untrained_prompt_accuracy", "validation_prompt_accuracy", "ladder_prompt_accuracy"]


@cache
def tried(**fields):
    """The result of a tiny trial that differs in these fields."""
    return run_trial(TrialSpec("smoke", **{**TINY, **fields}))


@pytest.mark.parametrize("n_memory", [1, 2])
def test_a_trial_gives_the_same_numbers_again_other_numbers_for_another_seed_and_tells_where_it_is(n_memory):
    result, other, reports = tried(n_memory=n_memory), tried(n_memory=n_memory, seed=1), []
    today = datetime.now(UTC).date().isoformat()
    assert result.environment == provenance.environment(torch.device("cpu"), "single") | {"date": today}
    assert result.excess_loss == result.network_loss - result.best_loss > 0
    assert [getattr(result, name) is None for name in OF_PROMPTS] == [n_memory == 2] * 4
    again = run_trial(result.spec, lambda phase, share: reports.append((phase, share)))
    assert numbers(again) == numbers(result)
    for name in ("network_loss", "best_loss", "divergence", "seeds", "backbone"):
        assert getattr(other, name) != getattr(result, name), name
    phases = ["pretraining", "exact model", "head tuning", "exact ladder", "prompt tuning"]
    assert list(result.seconds) == phases[: 5 if n_memory == 1 else 3]
    assert reports[:4] == [("pretraining", (step + 1) / 4) for step in range(4)]
    assert list(dict.fromkeys(reports[4:])) == [(phase, 1.0) for phase in result.seconds]  # the end of each


@pytest.mark.parametrize(
    "fields",
    [
        dict(epochs=2, tuning_batch=16),
        dict(labels="before", prompt_start="vocabulary"),
        dict(labels="stepped", n_states=12),
        dict(n_memory=2, attention_heads=3, attention_positions="none"),
    ],
    ids=str,
)
def test_the_numbers_are_those_of_the_parts(fields, monkeypatch):
    """Network, task and heads, put together here again, give what the trial says. A mean score on the side of the
    labels stands for the accuracy, which a small change of a head or a prompt may leave as it is."""

    def scored(head, probs, labels):
        return torch.where(labels, head(probs), -head(probs)).double().mean().item()

    monkeypatch.setattr(tuning, "accuracy", scored)
    found = run_trial(TrialSpec("smoke", **TINY | fields, temperature=0.2))
    spec, seeds, seed = found.spec, found.seeds, found.seeds["tuning"]
    model, network, how = draw_model(spec), build_network(spec), spec.tuning()
    pretrain(network, model, spec.pretraining(), seeds["pretraining"])
    losses = readers.masked_losses(network, model, spec.evaluation, spec.length, spec.masked, seeds["evaluation"])
    task = draw_trial_task(spec, model)
    (first, second, tokens), (train, validation, test) = task.split(task.tokens), task.split(task.labels)
    share = test.double().mean().item()
    wanted = dict(zip(("network_loss", "best_loss"), losses, strict=True), redraws=task.redraws)
    wanted |= dict(backbone=bert.fingerprint(network), majority_rate=max(share, 1 - share))
    exact, outputs = masked_token_probs(model, task.tokens), tuning.all_probs(network, task.tokens)
    law, log = exact[60:, 0], outputs[60:, 0, :4].double().log()
    divergence = (law * (law.clamp_min(1e-300).log() - log)).sum(1).mean().item()
    assert found.divergence == pytest.approx(divergence, rel=1e-6)
    positions = spec.attention_positions == "learned"
    for name, probs in (("", outputs), ("validation_", outputs), ("exact_", exact.float())):
        head = tuning.tune_head(probs[:40, 0], train, how, seed)
        attention = tuning.tune_attention(probs[:40], train, how, seed, spec.attention_heads, positions)
        part, truth = (probs[40:60], validation) if name == "validation_" else (probs[60:], test)
        wanted[f"{name}head_accuracy"] = scored(head, part[:, 0], truth)
        wanted[f"{name}attention_accuracy"] = scored(attention, part, truth)
    if spec.n_memory == 1:
        prompt, head = tuning.tune_prompt(network, first, train, spec.prompt_length, how, seed, spec.prompt_start)
        behind = [tuning.all_probs_at_mask(network, inputs, prompt) for inputs in (tokens, second)]
        wanted["prompt_accuracy"] = scored(head, behind[0], test)
        wanted["validation_prompt_accuracy"] = scored(head, behind[1], validation)
        drawn = tuning.initial_prompt(network, spec.prompt_length, seed, spec.prompt_start)
        behind = [tuning.all_probs_at_mask(network, inputs, drawn) for inputs in (first, tokens)]
        head = tuning.tune_head(behind[0], train, how, seed)
        wanted["untrained_prompt_accuracy"] = scored(head, behind[1], test)
        ladder, again = (
            tune_on_exact_outputs(model, task, exact[:, 0], plan, seed, spec.labels)
            for plan in (ladder_plan("smoke"), how)  # once with the network's budget
        )
        wanted |= dict(ladder_head_accuracy=ladder.head, ladder_prompt_accuracy=ladder.prompt_and_head)
        for name, built in (("head", ladder.theorem_3_3), ("prompt", ladder.theorem_3_6)):
            wanted[f"built_{name}_accuracy"] = built and built.accuracy
        assert trials.measure(found, ["exact_prompt_accuracy"]).exact_prompt_accuracy == again.prompt_and_head
        assert (found.built_head_accuracy is None) == (spec.n_states == 12), "more states than tokens: nothing recovers"
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_the_parts_of_a_trial_follow_its_spec():
    """Drawn here by the library's own parts, with the seeds of the trial."""
    spec = TrialSpec("smoke", **TINY, seed=3, temperature=0.2, labels="before", places="repeated")
    seeds, state = trial_seeds(3), np.random.SeedSequence(3).generate_state(6).tolist()
    assert seeds == dict(zip(["model", "network", "pretraining", "task", "tuning", "evaluation"], state, strict=True))
    of_memory, of_model = replace(spec, n_memory=2), ("transition", "emission", "initial")
    model, memory = draw_model(spec), draw_model(of_memory)
    how = spec.task_length, (40, 20, 60), seeds["task"], "before", "repeated"
    for found, want, parts in (
        (model, random_hmm(3, 4, seeds["model"], 0.2), of_model),
        (memory, random_memory_hmm(2, 3, 4, seeds["model"], temperature=0.2), (*of_model, "memory")),
        (draw_trial_task(spec, model), labels.draw_task(model, *how), ("tokens", "mu")),
    ):
        assert all(torch.equal(getattr(found, part), getattr(want, part)) for part in parts)
    assert not torch.equal(draw_model(replace(of_memory, permutations="joint")).transition, memory.transition)
    own = bert.fingerprint(bert.build(spec.shape(), 4, seeds["network"]))
    built = dict(weights="own", seed=3), dict(weights="shared", seed=0), dict(weights="shared", seed=3), dict(seed=0)
    first, *others = (bert.fingerprint(build_network(replace(spec, **fields))) for fields in built)
    assert first == own != others[0] == others[1] == others[2]


def test_seconds_are_those_since_the_phase_before(monkeypatch):
    ticks, reports = iter([10.0, 10.25, 13.0, 13.12345]), []
    monkeypatch.setattr(trials.time, "perf_counter", lambda: next(ticks))
    trial = trials.Trial(TrialSpec("smoke", **TINY), on_progress=lambda *what: reports.append(what))
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
    cpu, threads = torch.device("cpu"), torch.get_num_threads()
    here = dict(device="cpu", precision="float32", machine=os.uname().machine, threads=threads, hmmlib=__version__)
    here |= dict(python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__)
    here |= dict(commit=provenance.git_commit(), library=provenance.library_digest())
    environment = provenance.environment
    assert environment(cpu, "single") == environment(cpu, "half") == here, "there is no half on a CPU"
    monkeypatch.setattr(backend, "sixteen_bits", lambda device, precision: {"half": torch.bfloat16}.get(precision))
    assert environment(cpu, "half") == here | {"precision": "bfloat16"}
    assert environment(cpu, "single") == here


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (dict(places="repeated"), dict(n_states=8)),
        (dict(masking="bert", specials=5), {}),
        (dict(documents=3, document_length=60, dropout=0.1, clip=0.1), {}),
        (dict(labels="stepped"), dict(n_memory=2)),
        (dict(n_states=1), {}),
    ],
    ids=str,
)
def test_every_choice_runs_repeats_and_matters(choice, fields):
    found = tried(**fields, **choice)
    assert numbers(found) == numbers(run_trial(found.spec)) != numbers(tried(**fields))
    assert np.isfinite([found.divergence, found.network_loss, found.best_loss]).all()
