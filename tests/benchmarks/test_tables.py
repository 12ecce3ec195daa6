"""What the stored benchmarks say: tables, phrases, and the book's page made of them."""

import io
import json
import re
import shutil
from pathlib import Path

import phrases
import pytest
import tables
import units
from bs4 import BeautifulSoup
from pandas import DataFrame
from sphinx.application import Sphinx

from hmmlib.experiments.specs import TrialSpec

ROOT = Path(__file__).resolve().parents[2]


def of(text: str) -> str:
    """With the narrow space that units have."""
    return text.replace(" ", units.NARROW)


def contest(states: int, **seconds) -> dict:
    """A contest as it is stored; a text in place of seconds is the reason of a failure."""
    lines = []
    for name, value in seconds.items():
        part = {"failed": value} if isinstance(value, str) else {"seconds": [value] * 3, "peak": 3e6, "settled": 1e6}
        lines.append(dict(name=name, peer=name not in ("hmmlib", *tables.BOUNDS), work=10.0, options={}, **part))
    key = dict(what="posteriors", dtype="float64", threads=1, states=states)
    return key | dict(contestants=lines, differences={"fast": 1e-9, "slow": None})


def test_tables_show_ratios_bounds_differences_memory_and_failures():
    rows = [contest(4, hmmlib=0.002, fast=0.001)]
    rows.append(contest(30, hmmlib=0.02, fast="no room", slow=0.5, **{"bytes, fresh": 0.01}))
    found = tables.posteriors({"rows": rows})
    table = found["posteriors-float64"]
    assert [*table] == ["states", "threads", "hmmlib", "fast", "slow"]
    lines = [["4", "1", of("2.00 ms"), "0.500", "–"], ["30", "1", of("20.0 ms"), "no room", "25.0"]]
    assert table.to_numpy().tolist() == lines
    assert found["posteriors-float64-bounds"].iloc[1].tolist()[2:] == [of("20.0 ms"), "2.00", "–", "–"]
    assert found["posteriors-float64-apart"].to_numpy().tolist()[1] == ["30", "1e-09", "not finite"]
    assert found["posteriors-float64-peak"].iloc[1].tolist() == ["30", of("2.00 MB"), "–", of("2.00 MB")]


def test_numbers_times_and_sizes_have_three_digits_and_units():
    numbers = [units.number(x) for x in (0.04211, 4.712, 9.999, 321.4, 51_234_567, 2.41e10, 0)]
    assert numbers == ["0.0421", "4.71", "10.0", "321", "51,200,000", "2.41·10¹⁰", "0"]
    durations = [units.duration(x) for x in (2.5, 0.0123, 4.2e-6, 3e-9)]
    assert durations == [of(text) for text in ("2.50 s", "12.3 ms", "4.20 µs", "3.00 ns")]
    assert [units.size(x) for x in (2.5e9, 31e6, -1)] == [of(text) for text in ("2.50 GB", "31.0 MB", "0 MB")]
    waits = [phrases.in_words(x) for x in (0.00412, 0.451, 6.26, 26, 91)]
    assert waits == ["4.1 ms", "0.45 s", "6.3 s", "26 s", "1.5 min"]


def test_our_share_of_the_trainers_time_to_a_loss():
    runs = DataFrame({"steps": [550, 800, 1100, 1600], "excess": [1.0, 0.1, 0.01, 0.02]})
    between = (800 * 1100) ** 0.5
    for excess, steps in ((2.0, 550), (0.1, 800), (0.1**1.5, between), (0.001, None)):
        assert tables.needed(runs, excess) == (steps and pytest.approx(steps))
    ours = DataFrame({"steps": [400] * 3, "excess": [2.0, 0.1**1.5, 0.001]}).itertuples()
    assert [tables.time_beside(row, runs, 0.5) for row in ours] == [
        ("at most 550", "at least 36.4 %"),
        (f"{between:.0f}", "21.3 %"),
        ("not in 1600 steps", "less than 12.5 %"),
    ]


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A function that builds the page and returns its text and the warnings, and the folder of the results behind it."""
    source, results = tmp_path / "book", tmp_path / "results"
    shutil.copytree(tables.RESULTS, results)
    monkeypatch.setattr(tables, "RESULTS", results)
    source.mkdir()
    (source / "index.md").write_text((ROOT / "book" / "benchmarks.md").read_text())
    (source / "evidence.md").write_text("---\norphan: true\n---\n# Evidence\n")
    extensions = ["myst_parser", "sphinx_design", "benchmark_tables"]
    settings = {"extensions": extensions, "myst_enable_extensions": ["colon_fence", "dollarmath"]}

    def build() -> tuple[BeautifulSoup, str]:
        warnings = io.StringIO()
        Sphinx(source, None, tmp_path / "html", tmp_path / "trees", "html", settings, None, warnings).build()
        return BeautifulSoup((tmp_path / "html" / "index.html").read_text(), "html.parser"), warnings.getvalue()

    return build, results


def test_the_page_is_made_of_the_stored_results_and_follows_them(built):
    build, results = built
    page, warnings = build()
    assert warnings == ""
    shown = " ".join(page.get_text(" ").split())
    assert all(" ".join(phrase.split()) in shown for phrase in phrases.phrases().values())
    assert len(page.find_all("table")) == 24
    assert len(page.find_all("svg", class_="picture")) == 3
    text = (ROOT / "book" / "benchmarks.md").read_text()
    prose = re.sub(r"```.*?```|\{measured\}`[^`]+`|\$[^$]*\$", "", text, flags=re.DOTALL)
    assert not re.search(r"\d[\d.]* (times|ms|µs|GB|MB|s )", prose), "numbers of measurement come by their names"

    record = json.loads((results / "sampling.json").read_text())
    first = record["rows"][-1]["contestants"][0]
    first["seconds"] = [7.0] * 3
    (results / "sampling.json").write_text(json.dumps(record))
    (results / "growth.json").unlink()
    page, warnings = build()
    assert of("7.00 s") in page.get_text()
    assert "run `make bench BENCH_ARGS=growth`" in warnings


@pytest.mark.parametrize("name", phrases.CONTESTS)
def test_in_the_stored_contests_all_results_agree(name):
    assert {row["agree"] for row in tables.load(name)["rows"] if "agree" in row} <= {True, None}


def test_what_the_page_says_of_other_choices():
    rows = tables.load("learning-curves")["rows"]
    preset = TrialSpec(tables.PRESET)
    assert preset.steps == tables.STEPS
    assert all(getattr(preset, name, value) == value for name, value in tables.SETTING.items())

    def excess(states: int, **changes) -> float:
        setting = tables.SETTING | {"states": states, "steps": tables.STEPS} | changes
        found = tables.of_side(rows, "hmmlib", **setting)["excess"]
        assert len(found) == 3
        return found.mean()

    for states in (10, 30):
        assert min(excess(states, muon_rate=rate) for rate in (0.01, 0.04)) > excess(states)
    for better in ({"learning_rate": 0.0025}, {"schedule": "stable"}):
        assert excess(30, **better) < 0.6 * excess(30)
        assert abs(excess(10, **better) - excess(10)) < 0.01
