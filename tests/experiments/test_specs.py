"""Specs: what they take from a preset, what they refuse, their hash, and the specs of a panel."""

import re
from dataclasses import asdict, replace
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from companion.figures.live import changed

from hmmlib import Pretraining, Shape, Tuning
from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.specs import TYPES, TrialSpec, as_field, grid, panel_specs

CHOICES = {name: get_args(of) for name, of in TYPES.items() if get_origin(of) is Literal}
"""What the fields that are words can be."""
INTEGERS, NUMBERS = ([name for name in TYPES if get_args(TYPES[name])[0] is of] for of in (int, float))
LEAST = dict(n_tokens=2, task_length=2, seed=0, prompt_length=0, warmup=0, documents=0, document_length=0)
"""Smallest value an integer field takes, where that is not 1."""
MAY_BE_ZERO = {"dropout", "muon_rate", "clip", "tuning_warmup"}
"""Numbers that switch something off when they are 0; all others must be positive."""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_spec_takes_from_its_preset_what_is_not_given_and_hands_it_on(preset):
    spec = TrialSpec(preset)
    own = dict(n_states=10, seed=0, n_memory=1, n_tokens=10, temperature=0.01, tuner="prompt", rank=8, own="")
    assert asdict(spec) == own | PRESETS[preset] | {"preset": preset}
    assert asdict(TrialSpec(preset, steps=7)) == {**asdict(spec), "steps": 7}
    renamed = {"batch": "tuning_batch", "warmup": "tuning_warmup"}, {"max_length": "length"}, {}
    plans = spec.tuning(), spec.shape(), spec.pretraining()
    for plan, names in zip(plans, renamed, strict=True):
        for name, value in asdict(plan).items():
            assert value == getattr(spec, names.get(name, name)), name
    assert ((Tuning(), Shape(), Pretraining()) == plans) == (preset == "quick"), "sizes that are left out"


def test_the_hash_is_always_the_same_and_changes_with_every_field():
    """As it was when the first results were stored, without three fields that were added later and have their default;
    Python's own hashes are others in each process."""
    spec = TrialSpec("smoke", prompt_length=4, documents=10, document_length=30)
    assert (TrialSpec("smoke").hash, len(TrialSpec("smoke").content())) == ("8691b9210da5ff58", 41)
    others = {"preset": "quick", "width": 64, "heads": 4, "masked": 0.5, "document_length": 50, "own": "mine"}
    for name in TYPES.keys() - others:
        value = getattr(spec, name)
        words = [word for word in CHOICES.get(name, ()) if word != value]
        others[name] = words[0] if words else value + (1 if name in INTEGERS else 0.5)
    assert len({spec.hash, *(replace(spec, **{name: other}).hash for name, other in others.items())}) == len(TYPES) + 1
    for first, second in (
        (dict(head_rate=1), dict(head_rate=1.0)),
        (dict(seed=np.int64(3), masked=np.float64(0.25)), dict(seed=3, masked=0.25)),
        (dict(), PRESETS["smoke"]),
    ):
        one, same = TrialSpec("smoke", **first), TrialSpec("smoke", **second)
        assert (one, one.hash) == (same, same.hash)


@pytest.mark.parametrize("name", [name for name in TYPES if name != "own"])
def test_a_field_refuses_all_else_by_name(name):
    least, message = LEAST.get(name, 1), "Input should be "
    if name in INTEGERS:
        bad = True, 3.0, "3", [3], np.float64(3), least - 1, -(10**30), 10**30
        needs = {"length": dict(task_length=2, prompt_length=0, length=2), "width": dict(width=2)}
        good = needs.get(name, {name: least})
    elif name in NUMBERS:
        bad = (True, "0.1", [0.1], 1j, -1, -1e-9, np.inf, np.nan, *([] if name in MAY_BE_ZERO else [0, 0.0]))
        good = {name: 0.0 if name in MAY_BE_ZERO else 0.5}
    else:
        *_, word = CHOICES.get(name, PRESETS)
        bad, good, message = ("huge", "", word.upper(), 3, True, ["masked"]), {name: word}, f".*{word}.*, not "
    for value in bad:
        with pytest.raises(ValueError, match=f"^{name}.*{message}"):
            TrialSpec(**{"preset": "smoke", name: value})
    assert getattr(TrialSpec(**{"preset": "smoke", **good}), name) == good[name]


def test_values_that_are_too_large_or_do_not_go_together():
    for fields, message in (
        (dict(masked=1.5), "masked: Input should be less than or equal to 1, not 1.5"),
        (dict(tuning_warmup=1.01), "tuning_warmup: Input should be less than or equal to 1, not 1.01"),
        (dict(dropout=1.0), "dropout: Input should be less than 1, not 1.0"),
        (dict(prompt_length=51, length=200), "prompt_length: Input should be less than or equal to 50, not 51"),
        (dict(own="Mine"), "own: String should match pattern"),
        (dict(heads=3), "width must be a multiple of heads, but 32 is none of 3"),
        (dict(prompt_length=9), "length must be at least task_length + prompt_length = 26, not 25"),
        (dict(documents=4, document_length=24), "document_length must be at least length = 25, not 24"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            TrialSpec("smoke", **fields)
    edge = dict(masked=1, tuning_warmup=1, dropout=0.999, prompt_length=50, length=67, documents=1, document_length=67)
    assert asdict(TrialSpec("smoke", **edge)).items() >= edge.items()


def test_a_spec_of_another_preset_has_its_numbers():
    spec = TrialSpec("smoke", 4, seed=3, epochs=7)
    assert spec.replace(preset="quick", seed=5) == TrialSpec("quick", 4, seed=5, epochs=7)
    with pytest.raises(ValueError, match=r"preset is 'quick', but .* smoke.*: use spec.replace\(preset='quick'\)"):
        replace(TrialSpec("smoke"), preset="quick")


def test_panels_are_those_of_the_paper_and_one_trial_of_each_point_comes_before_the_second_of_any():
    right = [(2, 4), (1, 8), (3, 4), (1, 12), (5, 4), (1, 20), (7, 4), (1, 28)]
    for panel, sizes in (("left", [(1, n) for n in (4, 8, 10, 15, 25, 30)]), ("right", right)):
        for first, fields in ((0, {}), (1000, dict(steps=7))):
            rounds = [TrialSpec("smoke", n, first + k, m, **fields) for k in range(3) for m, n in sizes]
            assert panel_specs("smoke", panel, 3, first_seed=first, **fields) == rounds
    every = [(n, steps) for n in (2, 3) for steps in (5, 7)]
    rounds = [TrialSpec("smoke", n, seed, steps=steps) for seed in (4, 5) for n, steps in every]
    assert grid("smoke", 2, first_seed=4, n_states=[2, 3], steps=[5, 7]) == rounds
    assert panel_specs("smoke", "left", 1, sizes=[4], steps=[5, 7]) == grid("smoke", n_states=4, steps=[5, 7])
    beside = [8, 8, 12, 12, 20, 20, 28, 28]  # a memory model beside a vanilla one
    assert [spec.size for spec in panel_specs("smoke", "right", 1)] == beside


def test_fields_from_text_and_from_a_notebooks_parameters():
    """What is refused is tried on the command line."""
    given = [("steps", "7"), ("masked", "0.5"), ("masked", "1"), ("labels", "before")]
    assert repr([as_field(name, text) for name, text in given]) == "[7, 0.5, 1.0, 'before']"
    assert TrialSpec("smoke", **changed("smoke")) == TrialSpec("smoke")
    assert changed("smoke", 0, 30, 7, n_tokens=5) == dict(prompt_length=0, train=30, steps=7, n_tokens=5, length=25)
    assert TrialSpec("smoke", **changed("smoke", prompt_length=50)).length == 67, "room for task and prompt"
