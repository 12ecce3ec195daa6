"""What a measurement may give, and what it may not do: it is stored as it is read, and changes nothing of a trial."""

import re
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from runs import TINY

from hmmbook import Parts, TrialSpec, draw_trial_task, load_result, run_missing, run_trial, save_result
from hmmbook.experiments import measurements, trials
from hmmbook.experiments.fields import Share
from hmmbook.experiments.measurements import MEASUREMENTS, Measurement
from hmmbook.experiments.results import as_table
from hmmbook.experiments.trials import measure
from hmmlib import tune

SPEC = TrialSpec("smoke", **TINY)
NAN = float("nan")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A list of measurements of the test's own, which begins with the library's."""
    own = list(MEASUREMENTS)
    for module in (measurements, trials):
        monkeypatch.setattr(module, "MEASUREMENTS", own)
    monkeypatch.setattr("hmmbook.experiments.store.MEASUREMENTS", own)
    return own


def rain_of(value, kind):
    """Register a measurement that gives this value."""

    @Measurement(rain=kind)
    def gives_rain(model):
        return {"rain": value}


STORED = [
    (np.float32(0.5), float, 0.5),
    (torch.tensor(0.5), Share, 0.5),
    (np.array(2), int, 2),
    ({"t": {"a": np.int64(1), "b": torch.tensor(True)}}, Any, {"t": {"a": 1, "b": True}}),
    ((0.25, np.float64(0.5)), tuple[float, float], [0.25, 0.5]),
    ([1, 2], list[int], [1, 2]),
    (torch.torch_version.TorchVersion("2.9"), str, "2.9"),
    ({"a.b": 1, "a": {"c": 2}}, Any, {"a.b": 1, "a": {"c": 2}}),
    (None, float | None, None),
]


@pytest.mark.parametrize(("value", "kind", "expected"), STORED, ids=str)
def test_what_is_measured_is_what_its_file_gives_back(value, kind, expected, result, tmp_path):
    rain_of(value, kind)
    measured = measure(result, ["rain"])
    loaded = load_result(save_result(measured, tmp_path))
    assert measured.rain == expected
    assert loaded == measured
    assert type(loaded.rain) is type(measured.rain)
    more = measure(loaded, ["exact_prompt_accuracy"])
    assert load_result(save_result(more, tmp_path)).rain == expected, "a later measurement can be added"


NOT_STORED = [
    (NAN, float, "rain: Input should be a finite number, or None where there is none, not nan"),
    (NAN, float | None, "rain: Input should be a finite number"),
    ({"a": NAN}, dict[str, float], "rain.a: Input should be a finite number"),
    ([float("inf")], Any, "rain: Input should be a finite number, or None where there is none, not inf"),
    (np.float32("nan"), Any, "rain: Input should be a finite number"),
    (10**400, Any, "rain: Input should be an integer of at most 64 bits"),
    (b"x", Any, "rain: Input should be a number, a text, None, or a list or dictionary of these, not bytes b'x'"),
    ({0.5}, Any, "not set {0.5}"),
    ({"a": 1j}, Any, "rain.a: Input should be a number"),
    (np.complex128(1j), Any, "not complex 1j"),
    (np.datetime64("2026-01-02"), Any, "not date datetime.date(2026, 1, 2)"),
    (date(2026, 1, 2), date, "not date datetime.date(2026, 1, 2)"),
    (np.longdouble(1), Any, "not longdouble"),
    (np.ones(2), Any, "not ndarray array([1., 1.])"),
    ("\ud800", Any, "rain: Input should be a text that UTF-8 can hold, not '\\ud800'"),
    ({"\ud800": 1.0}, Any, "Input should be a text that UTF-8 can hold"),
    ({1: 0.5}, Any, "rain: Keys should be texts, not 1"),
    ({"a.b": 1, "a": {"b": 2}}, Any, "rain.a.b: two numbers would have this name in the table of results"),
    (None, float, "rain: Input should be a valid number, not None"),
    ((0.5,), tuple[float, float], "rain"),
]


@pytest.mark.parametrize(("value", "kind", "message"), NOT_STORED, ids=str)
def test_what_no_file_can_hold_is_refused_when_it_is_measured(value, kind, message, result):
    rain_of(value, kind)
    expected = re.escape("gives_rain returned what cannot be stored: ") + ".*" + re.escape(message)
    with pytest.raises(ValueError, match=expected):
        measure(result, ["rain"])


def test_a_good_file_is_never_replaced_by_one_that_cannot_be_read(result, tmp_path):
    path = save_result(result, tmp_path)
    before = path.read_bytes()
    for changes in ({"added": {"rain": NAN}}, {"seconds": {"\udcff": 1.0}}, {"environment": {"torch": b"2"}}):
        with pytest.raises(ValueError, match=r"^this result cannot be stored: "):
            save_result(replace(result, **changes), tmp_path)
    assert path.read_bytes() == before


def test_numbers_that_differ_in_a_dot_alone_would_be_one_column():
    rain_of({"a.b": 1, "a": {"c": 2}}, Any)
    table = as_table([run_trial(SPEC)])
    assert table["rain.a.b"].tolist() == [1]
    assert table["rain.a.c"].tolist() == [2]


# What is refused where a measurement is defined


@pytest.mark.parametrize("kind", [3, [1], "Shares", {"a": 3}], ids=str)
def test_a_kind_that_is_no_type_is_refused_where_it_is_declared(kind):
    with pytest.raises(TypeError, match=r"^the kind of rain must be a type, or a dictionary of types, not "):
        Measurement(rain=kind)


@pytest.mark.parametrize("phase", [3, "\udcff", "a\n"], ids=ascii)
def test_a_phase_that_no_file_can_hold_is_refused_where_it_is_declared(phase):
    with pytest.raises(ValueError, match=r"^phase: "):
        Measurement("rain", phase=phase)


class Callable:
    def __call__(self, model):
        return {"rain": 1.0}


@pytest.mark.parametrize("function", [partial(max, 1), Callable(), 3], ids=["partial", "object", "number"])
def test_what_has_no_name_is_no_measurement(function):
    with pytest.raises(TypeError, match=r"^a measurement must be a function with a name, not \w+\. Write a def that"):
        Measurement("rain")(function)


# What a function raises


def raises_a_key_error(model):
    return {"rain": {}["x"]}


def raises_a_type_error(model):
    return {"rain": 1 + "x"}


def raises_an_os_error(model):
    raise FileNotFoundError("no such table")


FAILURES = [
    (raises_a_key_error, "KeyError: 'x', raised in the measurement raises_a_key_error"),
    (raises_a_type_error, "TypeError: unsupported operand .*, raised in the measurement raises_a_type_error"),
    (raises_an_os_error, "FileNotFoundError: no such table, raised in the measurement raises_an_os_error"),
]


@pytest.mark.parametrize(("function", "reason"), FAILURES)
def test_a_measurement_that_raises_fails_its_trial_alone(function, reason, tmp_path):
    @Measurement("rain")
    def only_seed_0(model, spec):
        return function(model) if spec.seed == 0 else {"rain": 1.0}

    specs = [SPEC.replace(seed=0), SPEC.replace(seed=1)]
    lines = []
    outcome = run_missing(specs, tmp_path, log=lines.append)
    assert outcome.ran == [specs[1].hash]
    expected = reason.replace(function.__name__, "only_seed_0")
    assert re.fullmatch(f"{expected}, at the line: (return|raise) .*", outcome.failed[specs[0].hash])
    assert "failed: " in lines[0]


def test_the_error_of_a_measurement_keeps_its_class_and_names_the_measurement(result):
    Measurement("rain")(raises_a_key_error)
    with pytest.raises(KeyError) as caught:
        measure(result, ["rain"])
    line = 'return {"rain": {}["x"]}'
    assert caught.value.__notes__ == [f"raised in the measurement raises_a_key_error, at the line: {line}"]


# What a function may not change


def changes_the_tokens(task):
    task.tokens[0, 1] = 3 - task.tokens[0, 1]


def changes_the_labels(task):
    task.labels.logical_not_()


def changes_the_posteriors(task):
    task.posteriors.zero_()


def changes_exact_through_numpy(exact):
    exact.numpy()[0] = 0


def changes_the_model(model):
    model.emission.mul_(0.5)


def changes_the_network(network):
    next(network.parameters()).data.zero_()


def changes_the_seeds(seeds):
    seeds["tuning"] = 0


def changes_the_beliefs(beliefs):
    beliefs[2].zero_()


CHANGES = [
    (changes_the_tokens, "task"),
    (changes_the_labels, "task"),
    (changes_the_posteriors, "task"),
    (changes_exact_through_numpy, "exact"),
    (changes_the_model, "model"),
    (changes_the_network, "network"),
    (changes_the_seeds, "seeds"),
    (changes_the_beliefs, "beliefs"),
]


@pytest.mark.parametrize(("change", "name"), CHANGES)
def test_a_measurement_that_changes_what_it_is_given_is_refused_by_name(change, name, result):
    measurement = Measurement("rain")
    measurement(change)
    measurement.function = lambda **arguments: [change(**arguments), {"rain": 1.0}][1]
    with pytest.raises(ValueError, match=f"must not change what it is given, but it has changed {name}. Change a copy"):
        measure(result, ["rain"])


def tuner_that_changes_labels(network, tokens, labels, plan, seed, before_step):
    labels.logical_not_()
    return tune("prompt", network, tokens, labels, plan, seed, 3, before_step=before_step)


def task_that_changes_the_model(spec, model):
    model.initial.fill_(0.25)
    return draw_trial_task(spec, model)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (Parts(tuner=tuner_that_changes_labels), "Parts.tuner must not change what it is given, .* labels"),
        (Parts(task=task_that_changes_the_model), "Parts.task must not change what it is given, .* model"),
    ],
    ids=["tuner", "task"],
)
def test_a_part_that_changes_what_it_is_given_is_refused_by_name(parts, message):
    with pytest.raises(ValueError, match=message):
        run_trial(SPEC.replace(own="mine"), parts=parts)
