"""Specs: what they take from a preset, what they refuse, their hash, and the specs of a panel."""

import dataclasses
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from companion.figures.live import changed

from hmmlib.experiments.presets import PANELS, PRESETS
from hmmlib.experiments.specs import ADDED_LATER, TYPES, TrialSpec, as_field, panel_specs
from hmmlib.training.pretraining import Pretraining

EXPLICIT = TrialSpec(
    preset="smoke", n_states=10, seed=0, n_memory=1, n_tokens=10, temperature=0.01, permutations="states", layers=1,
    width=32, heads=2, dropout=0.0, specials=1, weights="own", documents=0, document_length=0, steps=60, batch=32,
    length=25, masked=0.15, masking="always", learning_rate=0.01, muon_rate=0.04, clip=0.0, warmup=10,
    precision="single", labels="masked", places="distinct", task_length=17, train=200, validation=50, test=100,
    epochs=3, tuning_batch=32, tuning_warmup=0.1, head_rate=0.1, prompt_rate=0.1, prompt_length=8,
    prompt_start="uniform", attention_heads=1, attention_positions="learned", evaluation=100,
)  # fmt: skip
"""Every field, so that its hash does not hang on what the preset holds."""
WORDS = {name: get_args(of) for name, of in TYPES.items() if get_origin(of) is Literal}
"""What the fields that are words can be."""
CHOICES = {name: words for name, words in WORDS.items() if name != "preset"}
INTEGERS, NUMBERS = ([name for name in TYPES if get_args(TYPES[name])[0] is of] for of in (int, float))
LEAST = dict(n_tokens=2, task_length=2, seed=0, prompt_length=0, warmup=0, documents=0, document_length=0)
"""Smallest value an integer field takes, where that is not 1."""
MAY_BE_ZERO = {"dropout", "muon_rate", "clip", "tuning_warmup"}
"""Numbers that switch something off when they are 0; all others must be positive."""
ADDED = {field.name for field in dataclasses.fields(TrialSpec) if ADDED_LATER in field.metadata}
ORIGINAL = set(TYPES) - ADDED
OWN = {"preset", "n_states", "seed", "n_memory", "n_tokens", "temperature"}
"""What no preset fixes."""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_spec_takes_from_its_preset_what_is_not_given(preset):
    spec = TrialSpec(preset)
    assert (spec.n_states, spec.seed, spec.n_memory, spec.n_tokens, spec.temperature) == (10, 0, 1, 10, 0.01)
    assert {name: getattr(spec, name) for name in PRESETS[preset]} == PRESETS[preset]
    assert set(asdict(spec)) - ADDED == (OWN | set(PRESETS[preset])) - ADDED
    assert asdict(TrialSpec(preset, steps=7)) == {**asdict(spec), "steps": 7}


@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_spec_hands_on_is_what_it_says(preset):
    spec = TrialSpec(preset)
    plan, tuning, shape = spec.pretraining(), spec.tuning(), spec.shape()
    for name in (field.name for field in dataclasses.fields(Pretraining)):
        assert getattr(plan, name) == getattr(spec, name), name
    assert (tuning.epochs, tuning.batch, tuning.warmup) == (spec.epochs, spec.tuning_batch, spec.tuning_warmup)
    assert (tuning.head_rate, tuning.prompt_rate) == (spec.head_rate, spec.prompt_rate)
    assert (shape.layers, shape.width, shape.heads, shape.max_length) == (
        spec.layers,
        spec.width,
        spec.heads,
        spec.length,
    )
    assert (shape.dropout, shape.specials) == (spec.dropout, spec.specials)


def other_value(spec: TrialSpec, name: str):
    """Another value that the field takes."""
    value = getattr(spec, name)
    if name in CHOICES:
        return next(choice for choice in CHOICES[name] if choice != value)
    given = {"preset": "quick", "width": 64, "heads": 4, "masked": 0.5, "document_length": 50, "own": "mine"}
    return given[name] if name in given else value + (1 if name in INTEGERS else 0.5)


def test_the_hash_changes_with_every_field():
    spec = TrialSpec("smoke", prompt_length=4, documents=10, document_length=30)
    hashes = {spec.hash, *(replace(spec, **{name: other_value(spec, name)}).hash for name in TYPES)}
    assert len(hashes) == len(TYPES) + 1


@pytest.mark.outside
def test_the_hash_is_the_same_in_every_process():
    assert set(EXPLICIT.content()) == ORIGINAL
    assert len(ORIGINAL) == 41
    assert EXPLICIT.hash == "8691b9210da5ff58"
    code = f"from hmmlib.experiments.specs import TrialSpec; print({EXPLICIT!r}.hash)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == EXPLICIT.hash


def test_equal_specs_have_equal_hashes():
    for first, second in (
        (dict(head_rate=1), dict(head_rate=1.0)),
        (dict(seed=np.int64(3), masked=np.float64(0.25)), dict(seed=3, masked=0.25)),
        (dict(), PRESETS["smoke"]),
    ):
        assert TrialSpec("smoke", **first) == TrialSpec("smoke", **second)
        assert TrialSpec("smoke", **first).hash == TrialSpec("smoke", **second).hash


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_field_refuses_all_else_by_name(name):
    least = LEAST.get(name, 1)
    for bad in (True, 3.0, "3", [3], np.float64(3), least - 1, -(10**30), 10**30):
        with pytest.raises(ValueError, match=f"^{name}: Input should be "):
            TrialSpec("smoke", **{name: bad})
    fields = {"length": dict(task_length=2, prompt_length=0, length=2), "width": dict(width=2)}.get(name, {name: least})
    assert getattr(TrialSpec("smoke", **fields), name) == fields[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_field_refuses_all_else_by_name(name):
    for bad in (True, "0.1", [0.1], 1j, -1, -1e-9, np.inf, np.nan, *([] if name in MAY_BE_ZERO else [0, 0.0])):
        with pytest.raises(ValueError, match=f"^{name}: Input should be "):
            TrialSpec("smoke", **{name: bad})
    if name in MAY_BE_ZERO:
        assert getattr(TrialSpec("smoke", **{name: 0}), name) == 0.0


@pytest.mark.parametrize("name", ["preset", *CHOICES])
def test_a_word_field_names_what_it_takes(name):
    choices = CHOICES.get(name, tuple(PRESETS))
    for good in choices:
        assert getattr(TrialSpec(**{"preset": "smoke", name: good}), name) == good
    for bad in ("huge", "", choices[0].upper(), 3, True, ["masked"], *([None] if name == "preset" else [])):
        with pytest.raises(ValueError, match=rf"^{name}.*{choices[-1]}.*, not {re.escape(repr(bad))}"):
            TrialSpec(**{"preset": "smoke", name: bad})


def test_every_field_has_been_tried():
    assert {*INTEGERS, *NUMBERS, "preset", "own", *CHOICES} == set(TYPES)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(masked=1.5), "masked: Input should be less than or equal to 1, not 1.5"),
        (dict(tuning_warmup=1.01), "tuning_warmup: Input should be less than or equal to 1, not 1.01"),
        (dict(dropout=1.0), "dropout: Input should be less than 1, not 1.0"),
        (dict(prompt_length=51, length=200), "prompt_length: Input should be less than or equal to 50, not 51"),
        (dict(own="Mine"), "own: String should match pattern"),
        (dict(heads=3), "width must be a multiple of heads, but 32 is none of 3"),
        (dict(prompt_length=9), "length must be at least task_length + prompt_length = 26, not 25"),
        (dict(length=24), "length must be at least task_length + prompt_length = 25, not 24"),
        (dict(documents=4), "document_length must be at least length = 25, not 0"),
        (dict(documents=4, document_length=24), "document_length must be at least length = 25, not 24"),
    ],
)
def test_values_that_do_not_go_together(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        TrialSpec("smoke", **fields)


def test_values_at_the_edge_are_taken():
    edge = dict(masked=1, tuning_warmup=1, dropout=0.999, prompt_length=50, length=67, documents=1, document_length=67)
    spec = TrialSpec("smoke", **edge)
    assert {name: getattr(spec, name) for name in edge} == edge


def test_the_size_of_a_model():
    assert TrialSpec("smoke", n_states=4, n_memory=5).size == 20
    assert TrialSpec("smoke", n_states=20).size == 20


def test_panels_are_those_of_the_paper():
    assert PANELS["left"] == [dict(n_states=n, n_memory=1) for n in (4, 8, 10, 15, 25, 30)]
    right = [TrialSpec("smoke", **point) for point in PANELS["right"]]
    assert [(spec.n_memory, spec.n_states) for spec in right] == [
        (2, 4), (1, 8), (3, 4), (1, 12), (5, 4), (1, 20), (7, 4), (1, 28),
    ]  # fmt: skip
    assert sorted(spec.size for spec in right if spec.n_memory > 1) == sorted(s.size for s in right if s.n_memory == 1)
    assert list(PANELS) == ["left", "right"]


@pytest.mark.parametrize("panel", PANELS)
def test_one_trial_of_each_point_comes_before_the_second_of_any(panel):
    specs, points = panel_specs("smoke", panel, 3), PANELS[panel]
    assert [spec.seed for spec in specs] == [seed for seed in range(3) for _ in points]
    for seed in range(3):
        part = specs[seed * len(points) : (seed + 1) * len(points)]
        assert [
            {name: getattr(spec, name) for name in point} for spec, point in zip(part, points, strict=True)
        ] == points
    assert panel_specs("smoke", panel, 2) == specs[: 2 * len(points)]
    assert len({spec.hash for spec in specs}) == len(specs)
    assert {spec.steps for spec in panel_specs("smoke", panel, 2, steps=7)} == {7}
    later = panel_specs("smoke", panel, 2, first_seed=1000)
    assert [spec.seed for spec in later] == [1000] * len(points) + [1001] * len(points)


def test_the_panels_share_the_vanilla_model_that_both_have():
    left, right = (set(panel_specs("quick", panel, 2)) for panel in PANELS)
    assert {(spec.n_states, spec.n_memory, spec.seed) for spec in left & right} == {(8, 1, 0), (8, 1, 1)}
    assert left & set(panel_specs("quick", "right", 2, steps=100)) == set()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("smoke", "middle", 1), "panel must be one of left, right, not 'middle'"),
        (("huge", "left", 1), "preset must be one of smoke, quick, laptop, gpu, paper, released-code, not 'huge'"),
        *(
            (("smoke", "left", bad), f"trials must be an integer from 1 to 10000, not {bad!r}")
            for bad in (0, -1, True, 1.0, "1", 10**9)
        ),
    ],
)
def test_panels_that_are_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        panel_specs(*call)


@pytest.mark.parametrize("name", ["seed", "n_states", "n_memory"])
def test_a_panel_keeps_its_models_and_seeds(name):
    with pytest.raises(TypeError, match=f"multiple values for keyword argument '{name}'"):
        panel_specs("smoke", "left", 1, **{name: 5})


def test_fields_from_text():
    given = [("steps", "7"), ("masked", "0.5"), ("masked", "1"), ("labels", "before")]
    assert [as_field(name, text) for name, text in given] == [7, 0.5, 1.0, "before"]
    assert isinstance(as_field("masked", "1"), float)
    for name, text, message in (
        ("step", "7", f"field must be one of {', '.join(TYPES)}, not 'step'"),
        ("steps", "7.5", "steps: Input should be a valid integer, unable to parse"),
        ("steps", "", "steps: Input should be a valid integer, unable to parse"),
        ("masked", "half", "masked: Input should be a valid number, unable to parse"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            as_field(name, text)


def test_a_notebooks_parameters_as_fields():
    assert TrialSpec("smoke", **changed("smoke")) == TrialSpec("smoke")
    assert changed("smoke", 0, 30, 7, n_tokens=5) == dict(prompt_length=0, train=30, steps=7, n_tokens=5, length=25)
    spec = TrialSpec("smoke", **changed("smoke", prompt_length=50))
    assert spec.length == spec.task_length + spec.prompt_length == 67
