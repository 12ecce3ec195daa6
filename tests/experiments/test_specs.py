"""Specs: what they take from a preset, what they refuse, their hash, and the specs of a panel."""

import re
from dataclasses import asdict, replace
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch

from hmmbook import TrialSpec, grid, panel_specs
from hmmbook.experiments.presets import PRESETS
from hmmbook.experiments.specs import FIELD_TYPES, as_field
from hmmbook.figures.live import changed
from hmmlib import Pretraining, Shape, Tuning

CHOICES = {name: get_args(kind) for name, kind in FIELD_TYPES.items() if get_origin(kind) is Literal}
"""The words that a field can be."""
INTEGERS = [name for name, kind in FIELD_TYPES.items() if get_args(kind)[0] is int]
NUMBERS = [name for name, kind in FIELD_TYPES.items() if get_args(kind)[0] is float]
LEAST = {
    "n_tokens": 2,
    "task_length": 2,
    "seed": 0,
    "prompt_length": 0,
    "warmup": 0,
    "documents": 0,
    "document_length": 0,
}
"""The smallest value of an integer field, if that is not 1."""
MAY_BE_ZERO = {"dropout", "muon_rate", "clip", "tuning_warmup"}
"""Numbers that switch something off when they are 0. All others must be positive."""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_spec_takes_from_its_preset_what_is_left_out(preset):
    spec = TrialSpec(preset)
    defaults = {
        "n_states": 10,
        "seed": 0,
        "n_memory": 1,
        "n_tokens": 10,
        "temperature": 0.01,
        "tuner": "prompt",
        "rank": 8,
        "own": "",
    }
    assert asdict(spec) == defaults | PRESETS[preset] | {"preset": preset}
    assert asdict(TrialSpec(preset, steps=7)) == asdict(spec) | {"steps": 7}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_spec_hands_its_numbers_on_to_the_plans(preset):
    spec = TrialSpec(preset)
    shape = spec.shape()
    assert (shape.layers, shape.width, shape.heads) == (spec.layers, spec.width, spec.heads)
    assert (shape.max_length, shape.dropout, shape.specials) == (spec.length, spec.dropout, spec.specials)
    for name, value in asdict(spec.pretraining()).items():
        assert value == getattr(spec, name), name
    renamed = {"batch": "tuning_batch", "warmup": "tuning_warmup"}
    for name, value in asdict(spec.tuning()).items():
        assert value == getattr(spec, renamed.get(name, name)), name


def test_the_defaults_of_the_library_are_those_of_quick():
    spec = TrialSpec("quick")
    assert (spec.tuning(), spec.shape(), spec.pretraining()) == (Tuning(), Shape(), Pretraining())


def test_the_hash_is_that_under_which_the_first_results_were_stored():
    """Three fields were added later, so at their defaults the hash leaves them out."""
    spec = TrialSpec("smoke")
    assert spec.hash == "8691b9210da5ff58"
    assert len(spec.content()) == 41


def another_value(spec, name):
    value = getattr(spec, name)
    for word in CHOICES.get(name, ()):
        if word != value:
            return word
    return value + (1 if name in INTEGERS else 0.5)


def test_the_hash_changes_with_every_field():
    spec = TrialSpec("smoke", prompt_length=4, documents=10, document_length=30)
    changes = {"preset": "quick", "width": 64, "heads": 4, "masked": 0.5, "document_length": 50, "own": "mine"}
    hashes = {spec.hash}
    for name in FIELD_TYPES:
        value = changes.get(name) or another_value(spec, name)
        hashes.add(replace(spec, **{name: value}).hash)
    assert len(hashes) == len(FIELD_TYPES) + 1


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"head_rate": 1}, {"head_rate": 1.0}),
        ({"seed": np.int64(3), "masked": np.float64(0.25)}, {"seed": 3, "masked": 0.25}),
        ({"dropout": -0.0, "muon_rate": -0.0}, {"dropout": 0.0, "muon_rate": 0.0}),
        ({}, PRESETS["smoke"]),
    ],
)
def test_the_same_values_in_other_types_are_the_same_spec(fields, same):
    spec = TrialSpec("smoke", **fields)
    other = TrialSpec("smoke", **same)
    assert spec == other
    assert spec.hash == other.hash


def test_trials_that_differ_in_their_task_alone_share_a_network():
    spec = TrialSpec("smoke")
    assert spec.replace(prompt_length=1, labels="before").network_hash == spec.network_hash
    assert spec.replace(steps=7).network_hash != spec.network_hash
    assert spec.replace(seed=1).network_hash != spec.network_hash


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_field_refuses_all_else_by_name(name):
    least = LEAST.get(name, 1)
    for value in (True, 3.0, "3", [3], np.float64(3), least - 1, -(10**30), 10**30):
        with pytest.raises(ValueError, match=f"^{name}.*Input should be "):
            TrialSpec("smoke", **{name: value})
    needed = {"length": {"task_length": 2, "prompt_length": 0, "length": 2}, "width": {"width": 2}}
    fields = needed.get(name, {name: least})
    assert getattr(TrialSpec("smoke", **fields), name) == fields[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_field_refuses_all_else_by_name(name):
    values = [True, "0.1", [0.1], 1j, -1, -1e-9, np.inf, np.nan]
    least = 0.0
    if name not in MAY_BE_ZERO:
        values.append(0.0)
        least = 0.5
    for value in values:
        with pytest.raises(ValueError, match=f"^{name}.*Input should be "):
            TrialSpec("smoke", **{name: value})
    assert getattr(TrialSpec("smoke", **{name: least}), name) == least


@pytest.mark.parametrize("name", CHOICES)
def test_a_field_of_words_refuses_all_else_by_name(name):
    *_, word = CHOICES[name]
    for value in ("huge", "", word.upper(), 3, True, ["masked"]):
        with pytest.raises(ValueError, match=f"^{name}.*{word}.*, not "):
            TrialSpec(**{"preset": "smoke", name: value})
    assert getattr(TrialSpec(**{"preset": "smoke", name: word}), name) == word


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"masked": 1.5}, "masked: Input should be less than or equal to 1, not 1.5"),
        ({"tuning_warmup": 1.01}, "tuning_warmup: Input should be less than or equal to 1, not 1.01"),
        ({"dropout": 1.0}, "dropout: Input should be less than 1, not 1.0"),
        ({"prompt_length": 51, "length": 200}, "prompt_length: Input should be less than or equal to 50, not 51"),
        ({"own": "Mine"}, "own: it must be at most 40 characters, which are lower-case letters"),
        ({"head_rate": float("nan")}, "head_rate: Input should be a finite number, not nan"),
        ({"muon_rate": float("inf")}, "muon_rate: Input should be a finite number, not inf"),
        ({"heads": 3}, "width must be a multiple of heads, but 32 is no multiple of 3"),
        ({"prompt_length": 9}, "length must be at least task_length + prompt_length = 26, not 25"),
        ({"documents": 4, "document_length": 24}, "document_length must be at least length = 25, not 24"),
    ],
)
def test_values_that_are_too_large_or_do_not_go_together(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        TrialSpec("smoke", **fields)


def test_the_largest_values_are_accepted():
    largest = {
        "masked": 1.0,
        "tuning_warmup": 1.0,
        "dropout": 0.999,
        "prompt_length": 50,
        "length": 67,
        "documents": 1,
        "document_length": 67,
    }
    assert asdict(TrialSpec("smoke", **largest)).items() >= largest.items()


def test_a_spec_of_another_preset_has_its_numbers():
    spec = TrialSpec("smoke", 4, seed=3, epochs=7)
    assert spec.changes() == {"n_states": 4, "seed": 3, "epochs": 7}
    assert spec.replace(preset="quick", seed=5) == TrialSpec("quick", 4, seed=5, epochs=7)


def test_the_numbers_of_one_preset_do_not_pass_under_the_name_of_another():
    with pytest.raises(ValueError, match=r"preset is 'quick', but .* 'smoke'.*\. Use spec.replace\(preset='quick'\)"):
        replace(TrialSpec("smoke"), preset="quick")


LEFT = [(1, 4), (1, 8), (1, 10), (1, 15), (1, 25), (1, 30)]
RIGHT = [(2, 4), (1, 8), (3, 4), (1, 12), (5, 4), (1, 20), (7, 4), (1, 28)]


@pytest.mark.parametrize(("panel", "points"), [("left", LEFT), ("right", RIGHT)])
def test_panels_are_those_of_the_paper_and_one_trial_of_each_point_comes_before_the_second(panel, points):
    expected = []
    for seed in (1000, 1001, 1002):
        for n_memory, n_states in points:
            expected.append(TrialSpec("smoke", n_states, seed, n_memory, steps=7))
    assert panel_specs("smoke", panel, 3, first_seed=1000, steps=7) == expected


def test_the_right_panel_has_a_memory_model_beside_a_vanilla_one():
    assert [spec.size for spec in panel_specs("smoke", "right", 1)] == [8, 8, 12, 12, 20, 20, 28, 28]


def test_a_panel_can_be_asked_for_some_of_its_sizes():
    assert panel_specs("smoke", "left", 1, sizes=[4], steps=[5, 7]) == grid("smoke", n_states=4, steps=[5, 7])
    assert panel_specs("smoke", "left", 1, sizes=4) == panel_specs("smoke", "left", 1, sizes=torch.tensor([4]))
    with pytest.raises(ValueError, match="sizes must have at least one value"):
        panel_specs("smoke", "left", 1, sizes=[])
    with pytest.raises(TypeError, match=r"seed is fixed by the panel and by first_seed\. Use grid for other trials"):
        panel_specs("smoke", "left", 1, seed=3)
    with pytest.raises(ValueError, match="sizes of panel left are 4, 8, 10, 15, 25, 30, not 7"):
        panel_specs("smoke", "left", 1, sizes=[4, 7])
    with pytest.raises(ValueError, match="panel must be one of left, right"):
        panel_specs("smoke", "middle", 1)


def test_a_grid_has_all_combinations():
    expected = []
    for seed in (4, 5):
        for n_states in (2, 3):
            for steps in (5, 7):
                expected.append(TrialSpec("smoke", n_states, seed, steps=steps))
    assert grid("smoke", 2, first_seed=4, n_states=[2, 3], steps=[5, 7]) == expected


@pytest.mark.parametrize("steps", [(5, 7), range(5, 8, 2), iter([5, 7]), np.array([5, 7]), torch.tensor([5, 7])])
def test_the_values_of_a_grid_come_in_any_iterable(steps):
    assert grid("smoke", steps=steps) == grid("smoke", steps=[5, 7])


def test_a_single_value_of_a_grid_may_be_an_array_without_axes():
    assert grid("smoke", steps=torch.tensor(5)) == grid("smoke", steps=np.int64(5)) == grid("smoke", steps=[5])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_state": 2}, "field must be one of"),
        ({"steps": []}, "steps must have at least one value"),
        ({"steps": {5: 7}}, "steps: Input should be a valid integer"),
        ({"seed": [1, 2]}, "seed is counted up from first_seed"),
        ({"trials": 0}, "trials must be an integer"),
        ({"first_seed": -1}, "first_seed must be an integer of 0 or more"),
    ],
    ids=str,
)
def test_what_is_no_grid_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        grid("smoke", **fields)


def test_fields_from_a_command_line():
    assert as_field("steps", "7") == 7
    assert repr(as_field("masked", "1")) == "1.0"
    assert as_field("labels", "before") == "before"
    with pytest.raises(ValueError, match=r"steps: Input should be a valid integer, .*not 'few'"):
        as_field("steps", "few")
    with pytest.raises(ValueError, match=r"field must be one of .*, not 'step'\. Did you mean 'steps'\?"):
        as_field("step", "7")


def test_fields_from_a_notebooks_parameters():
    assert TrialSpec("smoke", **changed("smoke")) == TrialSpec("smoke")
    fields = changed("smoke", 0, 30, 7, n_tokens=5)
    assert fields == {"prompt_length": 0, "train": 30, "steps": 7, "n_tokens": 5, "length": 25}
    assert TrialSpec("smoke", **changed("smoke", prompt_length=50)).length == 67, "room for task and prompt"
