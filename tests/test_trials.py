"""Trials: the same spec gives the same numbers, these are what they are called, and more steps bring the exact G nearer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from runs import MEASURED, TINY

from hmmlib import bert, tuning
from hmmlib.generate import random_hmm
from hmmlib.hmm import HMM, MASK, MemoryHMM
from hmmlib.ladder import ladder_plan, rung
from hmmlib.messages import masked_token_probs
from hmmlib.pretraining import Pretraining, pretrain
from hmmlib.specs import TrialSpec
from hmmlib.trials import build_network, draw_model, draw_trial_task, run_trial, trial_seeds

PROMPTED = dict(n_states=4, n_tokens=4, steps=150, train=200, test=200, epochs=3, seed=1)
ATTENTIVE = dict(n_states=8, n_tokens=8, steps=40, train=200, test=200, epochs=5, seed=1)
"""Enough for a prompt, and for an attention head, to make a difference."""
ACCURACIES = [name for name in MEASURED if name.endswith("accuracy")]
ON_VANILLA_ONLY = {name for name in ACCURACIES if "prompt" in name or name.startswith(("ladder", "built"))}
BUILT = {"built_head_accuracy", "built_prompt_accuracy"}


@pytest.fixture(scope="module")
def result():
    return run_trial(TrialSpec("smoke", **TINY))


@pytest.fixture(scope="module")
def memory_result():
    return run_trial(TrialSpec("smoke", n_memory=2, **TINY))


def test_the_seeds_of_a_trial_differ_from_each_other_and_from_the_next():
    seeds = [trial_seeds(seed) for seed in range(50)]
    assert len({value for part in seeds for value in part.values()}) == 50 * 6
    assert all(type(value) is int for value in seeds[0].values())
    assert trial_seeds(3) == trial_seeds(3)


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
        assert found.one_class == (found.majority_rate == 1)
        assert found.excess_loss == found.network_loss - found.best_loss > 0
        assert found.divergence > 0
    phases = ["pretraining", "exact model", "head tuning", "exact ladder", "prompt tuning"]
    assert list(result.seconds) == phases
    assert list(memory_result.seconds) == phases[:3]
    names = {"device", "precision", "machine", "threads", "python", "torch", "transformers", "commit"}
    assert set(result.environment) == names
    assert result.environment["precision"] == "float32"


def test_where_a_theorem_builds_nothing_there_is_none(result):
    """More states than tokens: no head recovers them, so Theorem 3.3 refuses; with fewer it builds one."""
    many = run_trial(TrialSpec("smoke", **{**TINY, "n_states": 6}))
    assert many.built_head_accuracy is None
    assert many.ladder_head_accuracy is not None
    assert result.built_head_accuracy is not None


def test_progress_is_told_in_order(result):
    told = []
    run_trial(result.spec, lambda phase, share: told.append((phase, share)))
    assert told[:4] == [("pretraining", (step + 1) / 4) for step in range(4)]
    assert list(dict.fromkeys(told[4:])) == [(phase, 1.0) for phase in result.seconds]  # the end of each
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
    assert bert.masked_losses(network, model, 20, spec.length, spec.masked, seeds["evaluation"]) == (
        found.network_loss,
        found.best_loss,
    )
    task, how = draw_trial_task(spec, model), spec.tuning()
    assert task.redraws == found.redraws
    _, _, tokens = task.split(task.tokens)
    train, _, test = task.split(task.labels)
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
    if n_memory == 1:
        prompt, head = tuning.tune_prompt(network, task.split(task.tokens)[0], train, 8, how, seeds["tuning"])
        behind = tuning.all_probs_at_mask(network, tokens, prompt)
        assert found.prompt_accuracy == (head.label(behind) == test).double().mean().item()
        ladder = rung(model, task, exact[:, 0], ladder_plan("smoke"), seeds["tuning"], "masked")
        assert (found.ladder_head_accuracy, found.ladder_prompt_accuracy) == (ladder.head, ladder.prompt_and_head)


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
        (dict(prompt_start="vocabulary"), PROMPTED),
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
