"""The benchmarks of training: both sides train one network on one text, and the curves' rows are what they say."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

if sys.platform != "linux":
    pytest.skip("the benchmarks need Linux", allow_module_level=True)

import learning
import learning_curves
import pretraining as contests
import steps
import tunings
import with_trainer

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.training import pretraining
from hmmlib.training.bert import fingerprint
from hmmlib.training.pretraining import rate_at
from hmmlib.training.tuning import all_probs_at_mask, tune_head

ROOT = Path(__file__).resolve().parents[2]

TRIAL = dict(preset="smoke", steps=8)
SPEC = TrialSpec(**TRIAL)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """What the Trainer gets for the trial."""
    monkeypatch.setattr(contests, "INPUTS", tmp_path)
    inputs = str(contests.save_text(SPEC))
    return contests.trainer_settings(SPEC, 1e-2) | dict(inputs=inputs, optim="adamw_torch")


# The contest with the Trainer


def test_both_sides_start_from_the_same_network_and_text(settings):
    _, ours = steps.steps(1, TRIAL, settings["inputs"])
    _, theirs = with_trainer.steps(1, **settings)
    np.testing.assert_allclose(ours(None), theirs(None), atol=1e-6)
    assert ours(None).shape == (4, SPEC.length, SPEC.n_tokens + 1)
    other = settings | {"seed": settings["seed"] + 1}
    assert np.abs(with_trainer.steps(1, **other)[1](None) - ours(None)).max() > 0.01


def test_another_text_is_refused(settings):
    np.save(settings["inputs"], 1 - np.load(settings["inputs"]))
    with pytest.raises(RuntimeError, match="another text"):
        steps.steps(1, TRIAL, settings["inputs"])


def test_the_trainer_reads_batches_of_as_many_tokens_and_hides_as_many(settings):
    long = with_trainer.build(**settings)
    batches = list(long.get_train_dataloader())
    text = np.load(settings["inputs"])
    assert len(batches) == SPEC.steps == long.args.max_steps
    shown, labels = (torch.stack([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    assert shown.shape == (SPEC.steps, SPEC.batch, SPEC.length)
    hidden = labels != -100
    count, share = hidden.numel(), round(SPEC.masked * SPEC.length) / SPEC.length
    assert hidden.double().mean() == pytest.approx(share, abs=5 * (share * (1 - share) / count) ** 0.5)
    assert (shown[hidden] == SPEC.n_tokens).all()
    assert (shown[~hidden] < SPEC.n_tokens).all()
    seen = torch.where(hidden, labels, shown).reshape(-1, SPEC.length).numpy()
    assert sorted(map(tuple, seen)) == sorted(map(tuple, text.astype(int)))  # each sequence once


def test_the_work_of_a_call_is_its_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(contests, "INPUTS", tmp_path)
    found = contests.contestants(TRIAL, 3)
    assert {one.work for one in found} == {3 * 32 * 25}
    assert [one.peer for one in found] == [False, False, True, True, True]
    assert found[1].options["trial"]["muon_rate"] == 0


def test_a_call_is_so_many_steps(settings):
    call, _ = with_trainer.steps(3, **settings)
    call()
    call()  # six of eight
    call, _ = steps.steps(4, TRIAL, settings["inputs"])
    call()
    call()
    with pytest.raises(IndexError):  # the text is at its end
        call()


# Whole runs


def test_a_whole_run_of_ours_is_pretraining(settings):
    call, pick = steps.trained(TRIAL)
    seconds, *weights = pick(call())
    network, again = build_network(SPEC), build_network(SPEC)
    pretraining.pretrain(network, draw_model(SPEC), SPEC.pretraining(), trial_seeds(0)["pretraining"])
    torch.nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), again.parameters())
    assert fingerprint(again) == fingerprint(network)
    assert seconds > 0


def test_a_whole_run_of_the_trainer_learns(settings):
    seconds, *weights = with_trainer.trained(**settings)[0]()
    network, fresh = build_network(SPEC), build_network(SPEC)
    torch.nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), network.parameters())
    text = torch.from_numpy(np.load(settings["inputs"])).long()
    before, after = (one.eval()(text, labels=text).loss.item() for one in (fresh, network))
    assert after < before - 0.05
    assert seconds > 0


@pytest.mark.parametrize("name", steps.SCHEDULES)
def test_schedules_rise_to_the_full_rate_and_fall_to_nothing(name):
    plan = TrialSpec("quick").pretraining()
    rates = [steps.SCHEDULES[name](step, plan) for step in range(plan.steps)]
    assert all(b > a for a, b in pairwise(rates[: plan.warmup]))
    assert max(rates) == pytest.approx(1)
    assert all(b <= a for a, b in pairwise(rates[plan.warmup :]))
    assert 0 < rates[-1] < 0.01
    middle = {"linear": 0.5, "cosine": 0.5, "stable": 1.0}[name]
    assert rates[(plan.steps + plan.warmup) // 2] == pytest.approx(middle, abs=0.01)


def test_another_schedule_trains_another_network(monkeypatch):
    monkeypatch.setattr(pretraining, "rate_at", rate_at)  # put back afterwards
    trial = TRIAL | {"warmup": 2}
    runs = [steps.trained(trial, name)[0]()[1:] for name in ("linear", "cosine", "linear")]
    assert np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0], runs[1])


# Curves


def test_no_run_is_listed_twice_and_each_is_a_trial(monkeypatch):
    monkeypatch.setattr(learning_curves, "best_rate", lambda rows, states: 2e-3)
    keys = [key for listed in learning_curves.SETS.values() for key in listed()]
    texts = [json.dumps(key, sort_keys=True) for key in keys if key not in list(learning_curves.search())]
    assert len(texts) == len(set(texts))
    preset = TrialSpec("quick")
    own = learning_curves.ours(10, 0, preset.steps)
    assert own == dict(side="hmmlib", states=10, seed=0, steps=400, warmup=preset.warmup, schedule="linear",
                       learning_rate=preset.learning_rate, muon_rate=preset.muon_rate, batch=preset.batch)  # fmt: skip
    assert own in keys
    assert own.items() >= ({"steps": learning.STEPS} | learning.SETTING).items()
    whole = {key["steps"] * key["batch"] for key in learning_curves.choices()}
    assert whole == {preset.steps * preset.batch}, "the choices see equally many tokens"


def test_the_best_rate_is_that_of_the_lowest_excess(monkeypatch):
    monkeypatch.setattr(learning_curves, "RATES", (1e-3, 2e-3, 4e-3))
    rows = [learning_curves.theirs(10, 0, learning_curves.SEARCHED, rate) for rate in learning_curves.RATES]
    with pytest.raises(ValueError, match="not done: run the set rates"):
        learning_curves.best_rate([rows[0] | {"excess": 0.1}], 10)
    rows = [row | {"excess": excess} for row, excess in zip(rows, (0.3, 0.1, 0.2), strict=True)]
    assert learning_curves.best_rate(rows, 10) == learning_curves.RATES[1]


def test_the_steps_to_an_excess_lie_between_the_lengths_around_it():
    one, two, three, four = lengths = (550, 800, 1100, 1600)
    pairs = zip(lengths, (1.0, 0.1, 0.01, 0.02), strict=True)
    rows = [learning_curves.theirs(10, 0, steps, 2e-3) | {"excess": excess} for steps, excess in pairs]
    rows.append(learning_curves.theirs(10, 0, four, 4e-3) | {"excess": 0.5})  # another rate, and a worse one
    assert learning.needed(rows, 10, 0, 2.0) == one
    assert learning.needed(rows, 10, 0, 0.1) == pytest.approx(two)
    assert learning.needed(rows, 10, 0, 0.1**1.5) == pytest.approx((two * three) ** 0.5)
    assert learning.needed(rows, 10, 0, 0.001) is None
    assert learning.needed(rows, 10, 1, 0.1) is None
    with pytest.raises(ValueError, match="no run of the Trainer at 30 states"):
        learning.needed(rows, 30, 0, 0.1)


def test_rows_are_kept_and_found(tmp_path, monkeypatch):
    monkeypatch.setattr(learning_curves, "PATH", tmp_path / "curves.json")
    keys = [learning_curves.ours(10, seed, 550) for seed in (0, 1)]
    assert learning_curves.stored() == []
    for key in keys:
        learning_curves.keep(key | {"excess": 0.5})
    assert [learning_curves.find(learning_curves.stored(), key) for key in keys] == [k | {"excess": 0.5} for k in keys]
    assert learning_curves.find(learning_curves.stored(), keys[0] | {"batch": 1}) is None


def test_a_run_is_trained_and_measured(monkeypatch):
    monkeypatch.setattr(learning_curves, "PRESET", "smoke")
    row = learning_curves.train(learning_curves.ours(4, 0, 5))
    assert row["tokens"] == 5 * 32 * 25
    assert row["excess"] == pytest.approx(row["loss"] - row["least"])
    assert row["least"] > 0
    assert row["excess"] > 0.1


@pytest.mark.parametrize(
    ("words", "message"),
    [(["rats"], "there is no set 'rats'"), (["--part", "3/2"], "part must be"), (["--part", "half"], "part must be")],
)
def test_bad_input_is_refused(words, message):
    app = learning_curves.typer.Typer()
    app.command()(learning_curves.main)
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 2
    assert message in " ".join(found.output.replace("│", " ").split())


# Tuning


def test_both_ways_to_tune_a_head_find_the_same_weights():
    trial = dict(preset="smoke", train=64)
    spec, network, tokens, labels = tunings.parts(trial, 64)
    expected = tune_head(all_probs_at_mask(network, tokens), labels, spec.tuning(), trial_seeds(0)["tuning"]).weights
    for cached in (True, False):
        call, pick = tunings.head(trial, 64, spec.epochs, cached)
        np.testing.assert_allclose(pick(call()), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_prompt_is_tuned_in_the_type_asked_for(dtype):
    try:
        call, _ = tunings.prompt(dict(preset="smoke", train=64), 64, dtype)
        assert call().dtype == getattr(torch, dtype)
    finally:
        torch.set_default_dtype(torch.float32)
