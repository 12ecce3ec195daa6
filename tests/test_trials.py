"""Trials: what fixes one, that the same spec gives the same numbers, and the store of results."""

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

from hmmlib.presets import PRESETS
from hmmlib.trials import (
    FORMAT,
    TrialResult,
    TrialSpec,
    load_result,
    load_results,
    result_path,
    run_trial,
    save_result,
    trial_seeds,
)

TINY = dict(n_states=3, n_tokens=4, steps=4, batch=8, train=40, validation=20, test=60, evaluation=20, epochs=1)
MEASURED = [
    field.name for field in dataclasses.fields(TrialResult) if field.name not in ("spec", "seconds", "environment")
]

EXPLICIT = TrialSpec(
    preset="smoke", n_states=10, seed=0, n_tokens=10, layers=1, width=32, heads=2, steps=60, batch=32, length=25,
    masked=0.15, learning_rate=0.01, muon_rate=0.04, warmup=10, task_length=17, train=200, validation=50, test=100,
    epochs=3, tuning_batch=32, head_rate=0.1, prompt_rate=0.1, prompt_length=8, evaluation=100,
)  # fmt: skip
"""Every field, so that its hash does not hang on what the preset holds."""


@pytest.fixture(scope="module")
def result():
    return run_trial(TrialSpec("smoke", **TINY))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_spec_takes_from_its_preset_what_is_not_given(preset):
    spec = TrialSpec(preset)
    assert (spec.n_states, spec.seed, spec.n_tokens) == (10, 0, 10)
    assert {name: getattr(spec, name) for name in PRESETS[preset]} == PRESETS[preset]
    assert set(asdict(spec)) == {"preset", "n_states", "seed", "n_tokens", *PRESETS[preset]}
    other = TrialSpec(preset, steps=7)
    assert asdict(other) == {**asdict(spec), "steps": 7}


def test_the_hash_changes_with_every_field():
    spec = TrialSpec("smoke", prompt_length=4)
    hashes = {spec.hash, replace(spec, preset="quick").hash}
    changes = {"width": 64, "heads": 4, "masked": 0.5}
    for field in dataclasses.fields(spec)[1:]:
        value = getattr(spec, field.name)
        changed = changes.get(field.name, value + 1 if isinstance(value, int) else value * 2)
        hashes.add(replace(spec, **{field.name: changed}).hash)
    assert len(hashes) == len(dataclasses.fields(spec)) + 1


def test_the_hash_is_the_same_in_every_process():
    assert EXPLICIT.hash == "b6564857f3a56e72"
    code = f"from hmmlib.trials import TrialSpec; print({EXPLICIT!r}.hash)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == EXPLICIT.hash


def test_equal_specs_have_equal_hashes():
    whole, real = TrialSpec("smoke", head_rate=1), TrialSpec("smoke", head_rate=1.0)
    assert whole == real
    assert whole.hash == real.hash


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(preset="huge"), f"preset must be one of {', '.join(PRESETS)}, not 'huge'"),
        (dict(preset=None), f"preset must be one of {', '.join(PRESETS)}, not None"),
        (dict(n_states=0), "n_states must be 1 or more, not 0"),
        (dict(n_tokens=1), "n_tokens must be 2 or more, not 1"),
        (dict(seed=-1), "seed must be 0 or more, not -1"),
        (dict(prompt_length=-1), "prompt_length must be 0 or more"),
        (dict(warmup=-1), "warmup must be 0 or more"),
        *((dict([(name, 0)]), f"{name} must be 1 or more, not 0") for name in ("steps", "batch", "epochs", "train")),
        (dict(seed=True), "seed must be an integer, not True"),
        (dict(n_states=3.0), r"n_states must be an integer, not 3\.0"),
        (dict(steps="10"), "steps must be an integer, not '10'"),
        (dict(masked=True), "masked must be a number, not True"),
        (dict(masked="0.1"), r"masked must be a number, not '0\.1'"),
        (dict(masked=0.0), "masked must be positive and finite"),
        (dict(masked=1.5), r"masked must be at most 1, not 1\.5"),
        *((dict(head_rate=rate), "head_rate must be positive and finite") for rate in (-1.0, np.inf, np.nan)),
        (dict(heads=3), "width must be a multiple of heads, but 32 is none of 3"),
        (dict(task_length=1), "task_length must be 2 or more"),
        (dict(prompt_length=9), r"length must be at least task_length \+ prompt_length = 26, .* it is 25"),
        (dict(length=24), r"length must be at least task_length \+ prompt_length = 25, .* it is 24"),
    ],
)
def test_specs_that_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TrialSpec(**{"preset": "smoke", **fields})


def test_the_seeds_of_a_trial_differ_from_each_other_and_from_the_next():
    seeds = [trial_seeds(seed) for seed in range(50)]
    assert len({value for part in seeds for value in part.values()}) == 50 * 6
    assert all(type(value) is int for value in seeds[0].values())
    assert trial_seeds(3) == trial_seeds(3)


def test_a_trial_gives_the_same_numbers_again_and_other_numbers_for_another_seed(result):
    again, other = run_trial(result.spec), run_trial(TrialSpec("smoke", seed=1, **TINY))
    for name in MEASURED:
        assert getattr(again, name) == getattr(result, name), name
    for name in ("network_loss", "best_loss", "divergence", "seeds"):
        assert getattr(other, name) != getattr(result, name), name


def test_what_a_trial_measures(result):
    steps = []
    run_trial(result.spec, lambda step, loss: steps.append(step))
    assert steps == list(range(4))
    shares = [getattr(result, name) for name in MEASURED if "accuracy" in name]
    assert len(shares) == 6
    assert all(0 <= share <= 1 for share in shares)
    whole = [60 * result.head_accuracy, 60 * result.prompt_accuracy, 20 * result.validation_head_accuracy]
    np.testing.assert_allclose(whole, np.round(whole), atol=1e-9)  # counts of test and validation examples
    assert 0.5 <= result.majority_rate <= 1
    assert result.excess_loss == result.network_loss - result.best_loss > 0
    assert result.divergence > 0
    assert set(result.seconds) == {"pretraining", "exact model", "head tuning", "prompt tuning", "untrained prompt"}
    assert {"device", "threads", "python", "torch", "transformers", "commit"} <= set(result.environment)


def test_without_a_prompt_prompt_tuning_is_head_tuning():
    result = run_trial(TrialSpec("smoke", prompt_length=0, **TINY))
    assert result.prompt_accuracy == result.untrained_prompt_accuracy == result.head_accuracy


def test_a_result_survives_the_store(result, tmp_path):
    path = save_result(result, tmp_path)
    assert path == result_path(result.spec, tmp_path) == tmp_path / "smoke" / f"{result.spec.hash}.json"
    assert load_result(path) == result
    assert json.loads(path.read_text())["format"] == FORMAT
    assert os.listdir(path.parent) == [path.name]
    assert save_result(replace(result, redraws=3), tmp_path) == path  # overwrites
    assert load_result(path).redraws == 3


def drop(content, *names):
    for name in names:
        del content[name]


SPOILED = {
    "truncated": lambda text, content: text[: len(text) // 2],
    "empty": lambda text, content: "",
    "not JSON": lambda text, content: "accuracy: 0.9",
    "not an object": lambda text, content: "[1, 2]",
    "edited spec": lambda text, content: content["spec"].update(n_states=4),
    "impossible spec": lambda text, content: content["spec"].update(heads=3),
    "other format": lambda text, content: content.update(format=FORMAT + 1),
    "no format": lambda text, content: drop(content, "format"),
    "no spec": lambda text, content: drop(content, "spec"),
    "missing field": lambda text, content: drop(content, "head_accuracy"),
    "extra field": lambda text, content: content.update(bonus=1),
    "extra field in the spec": lambda text, content: content["spec"].update(bonus=1),
}


@pytest.mark.parametrize("how", SPOILED)
def test_spoiled_files_are_refused_by_name(how, result, tmp_path):
    path = save_result(result, tmp_path)
    text = path.read_text()
    content = json.loads(text)
    spoiled = SPOILED[how](text, content)
    path.write_text(spoiled if isinstance(spoiled, str) else json.dumps(content))
    with pytest.raises(ValueError, match=f"{path.name} is no readable result"):
        load_result(path)
    with pytest.raises(ValueError, match=path.name):
        load_results("smoke", tmp_path)


def test_misnamed_files_are_refused_by_name(result, tmp_path):
    path = save_result(result, tmp_path)
    other = path.rename(path.with_name("0123456789abcdef.json"))
    with pytest.raises(ValueError, match=r"0123456789abcdef\.json is no readable result: .* edited or renamed"):
        load_result(other)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(result, tmp_path, monkeypatch):
    path = save_result(result, tmp_path)
    for call in ("replace", "chmod", "fdopen"):
        with monkeypatch.context() as broken:

            def fail(*arguments):
                raise OSError("no space left")

            broken.setattr(os, call, fail)
            with pytest.raises(OSError, match="no space left"):
                save_result(replace(result, redraws=9), tmp_path)
        assert os.listdir(path.parent) == [path.name]
        assert load_result(path) == result


def test_results_come_ordered_by_states_then_seed(result, tmp_path):
    order = [(n_states, seed) for n_states in (2, 3, 10) for seed in (0, 1, 12)]
    for n_states, seed in reversed(order):
        save_result(replace(result, spec=TrialSpec("smoke", **{**TINY, "n_states": n_states, "seed": seed})), tmp_path)
    (tmp_path / "smoke" / "left-over.tmp").write_text("")
    assert [(found.spec.n_states, found.spec.seed) for found in load_results("smoke", tmp_path)] == order
    assert list(load_results("quick", tmp_path)) == []
