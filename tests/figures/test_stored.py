"""A page shows the trials that it asks for, or else the largest that are stored, and says so."""

import pytest

from hmmbook.experiments.presets import PRESETS
from hmmbook.experiments.store import BEYOND, load_results
from hmmbook.figures import stored
from hmmbook.figures.stored import measured_or_stored, stored_trials

ALSO = ["solvable", "certified"]


@pytest.fixture(scope="module")
def everything():
    return load_results("quick", BEYOND)


@pytest.fixture
def two_trials(monkeypatch, everything):
    monkeypatch.setattr(stored, "load_results", lambda preset, store: everything)
    return stored_trials("quick", 1, ALSO)[:2]


def in_store(monkeypatch, results):
    """Pretend that these results are stored, by preset, and that none can be measured in time."""
    monkeypatch.setattr(stored, "measured", lambda *arguments: [])
    monkeypatch.setattr(stored, "load_results", lambda preset, store: results.get(preset, []))


def test_trials_that_are_measured_in_time_are_shown(monkeypatch, two_trials, capsys):
    monkeypatch.setattr(stored, "measured", lambda *arguments: two_trials[:1])

    table = measured_or_stored("smoke", 1, 0.0, "cpu", ALSO)

    assert len(table) == 1
    assert capsys.readouterr().out == ""


def test_where_there_are_none_the_largest_preset_that_has_any_is_shown_and_named(monkeypatch, two_trials, capsys):
    in_store(monkeypatch, {"quick": two_trials})

    table = measured_or_stored("gpu", 1, 0.0, "cpu", ALSO)

    assert list(table.preset) == ["quick", "quick"]
    assert "the stored trials of quick" in capsys.readouterr().out
    assert list(reversed(PRESETS)).index("quick") > list(reversed(PRESETS)).index("gpu")


def test_where_nothing_is_stored_that_is_said(monkeypatch):
    in_store(monkeypatch, {})

    with pytest.raises(LookupError, match="there are no such trials of any preset"):
        measured_or_stored("smoke", 1, 0.0, "cpu", ALSO)


def test_trials_that_lack_a_measurement_or_are_of_no_panel_are_left_out(monkeypatch, everything):
    monkeypatch.setattr(stored, "load_results", lambda preset, store: everything)

    assert len(everything) > 120
    assert len(stored_trials("quick", 1, ALSO)) == 6
    assert stored_trials("quick", 1, [*ALSO, "another measurement"]) == []
