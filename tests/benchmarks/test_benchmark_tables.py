"""What the stored benchmarks say: tables, phrases, and the book's page made of them."""

import io
import json
import re
from pathlib import Path

import contest as contests
import learning
import numpy as np
import pytest
import records
import run
import tables
import waits
from bs4 import BeautifulSoup
from sphinx.application import Sphinx

from hmmlib.experiments.specs import TrialSpec

ROOT = Path(__file__).resolve().parents[2]


def row(states: int = 30, **medians) -> dict:
    """A contest's row as it is stored; a text in place of seconds is the reason of a failure."""
    found, (first, *others) = [], medians
    for name, value in medians.items():
        part = {"failed": value} if isinstance(value, str) else {"median": value, "peak": 3e6, "settled": 1e6}
        peer = name != first and name not in tables.BOUNDS
        found.append({"name": name, "peer": peer, "work": 10.0, "options": {}, **part})
    ratios = {name: medians[name] / medians[first] for name in others if not isinstance(medians[name], str)}
    key = dict(what="posteriors", dtype="float64", threads=1, n=2, length=5, states=states)
    return key | {"contestants": found, "ratios": ratios, "differences": {name: 1e-9 for name in ratios}}


def plain(text: str) -> str:
    """With the narrow space that units have."""
    return text.replace(" ", records.NARROW)


def test_tables_show_ratios_bounds_and_failures():
    rows = [row(4, hmmlib=0.002, fast=0.001), row(30, hmmlib=0.02, fast="no room", slow=0.5, **{"bytes, fresh": 0.01})]
    record = {"name": "posteriors", "rows": rows}
    found = tables.posteriors(record)
    table = found["posteriors-float64"]
    assert table.columns == ("states", "threads", "hmmlib", "fast", "slow")
    assert table.rows == [("4", "1", plain("2.00 ms"), "0.500", "–"), ("30", "1", plain("20.0 ms"), "no room", "25.0")]
    bounds = found["posteriors-float64-bounds"]
    assert bounds.columns[3:] == tables.BOUNDS
    assert bounds.rows[1] == ("30", "1", plain("20.0 ms"), "2.00", "–", "–")
    assert found["posteriors-float64-apart"].rows == [("4", "1e-09", "–"), ("30", "–", "1e-09")]
    assert found["posteriors-float64-peak"].rows[1] == ("30", plain("2.00 MB"), "–", plain("2.00 MB"))
    lost = tables.slower([record])
    assert lost.rows == [
        ("fast", "2.00", "posteriors", "posteriors, float64, 4 states, 2 sequences, of 5 tokens, 1 thread")
    ]
    text = records.printed(table)
    assert "no room" in text
    assert len({len(line) for line in text.splitlines()[2:]}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.04211, "0.0421"),
        (4.712, "4.71"),
        (9.999, "10.0"),
        (321.4, "321"),
        (51_234_567, "51,200,000"),
        (2.41e10, "2.41·10¹⁰"),
        (0, "0"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert tables.number(value) == text


def test_times_and_sizes_have_units():
    durations = [tables.duration(value) for value in (2.5, 0.0123, 4.2e-6, 3e-9)]
    assert durations == [plain(text) for text in ("2.50 s", "12.3 ms", "4.20 µs", "3.00 ns")]
    sizes = [tables.size(value) for value in (2.5e9, 31e6, -1)]
    assert sizes == [plain(text) for text in ("2.50 GB", "31.0 MB", "0 MB")]
    assert tables.faster(4.0, "x") == "4.00 times as fast as x"
    assert tables.faster(0.25, "x") == "4.00 times slower than x"


def test_a_missing_or_foreign_result_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"run `make bench BENCH_ARGS=memory`"):
        tables.load("memory", tmp_path)
    with pytest.raises(ValueError, match=r"run `python benchmarks/build_times.py`"):
        tables.load("build", tmp_path)
    assert not set(run.NAMES) & set(tables.COMMANDS)
    (tmp_path / "memory.json").write_text('{"name": "sampling"}')
    with pytest.raises(ValueError, match="holds 'sampling', not 'memory'"):
        tables.load("memory", tmp_path)
    with pytest.raises(ValueError, match="0 rows with"):
        tables.the([row(hmmlib=1.0)], states=7)


def trained(side: str, seed: int, steps: int, excess: float, **changes) -> dict:
    """A row of the learning curves."""
    setting = learning.SETTING if side == "hmmlib" else {"learning_rate": 0.002, "batch": 64}
    return dict(side=side, states=10, seed=seed, steps=steps, excess=excess) | setting | changes


CURVES = [
    trained("Trainer", 0, 1100, 0.5, learning_rate=0.004),
    *(trained("Trainer", 0, steps, excess) for steps, excess in ((1100, 0.01), (550, 0.16))),
    *(trained("hmmlib", 0, steps, excess) for steps, excess in ((250, 0.3), (400, 0.04))),
    *(trained("Trainer", 1, steps, excess) for steps, excess in ((550, 2.0), (1100, 1.0))),
    trained("hmmlib", 1, 400, 0.04),
    *(trained("Trainer", 2, steps, excess) for steps, excess in ((550, 0.02), (1100, 0.01))),
    trained("hmmlib", 2, 400, 0.04),
    trained("hmmlib", 3, 400, 0.04),
]


def test_our_share_of_the_time_to_a_loss():
    found = learning.tables(CURVES, {"hmmlib": 0.05, "Trainer": 0.1})
    middle = 550 * 2**0.5  # 0.04 is halfway between 0.16 and 0.01
    assert found["time"].rows == [
        ("10", "0", "0.0400", f"{middle:.0f}", "25.7 %"),
        ("10", "1", "0.0400", "not in 1100 steps", "less than 18.2 %"),
        ("10", "2", "0.0400", "at most 550", "at least 36.4 %"),
        ("10", "3", "0.0400", "no run", "–"),
    ]
    assert len(found["runs"].rows) == len(CURVES)
    assert ("Trainer", "10", "0", "1100", "0.004", "0.500") in found["runs"].rows
    assert found["choices"].rows == []
    lines = list(learning.points(CURVES, {"hmmlib": 0.05, "Trainer": 0.1}, 10))
    assert lines[:2] == [("hmmlib", 0, [12.5, 20.0], [0.3, 0.04]), ("Trainer", 0, [55.0, 110.0], [0.16, 0.01])]


def test_other_choices_stand_beside_the_preset():
    others = [trained("hmmlib", 0, 400, 0.07, muon_rate=0.04), trained("hmmlib", 1, 800, 0.03, batch=32)]
    found = learning.tables([*CURVES, *others], {"hmmlib": 0.05, "Trainer": 0.1})
    assert found["choices"].rows == [
        ("10", "the preset", "400", "0.0400", "0.0400", "0.0400", "0.0400"),
        ("10", "muon rate 0.04", "400", "0.0700", "–", "–", "–"),
        ("10", "batch 32", "800", "–", "0.0300", "–", "–"),
    ]
    assert len(found["runs"].rows) == len(CURVES)


def sample_records() -> dict[str, dict]:
    """As the benchmarks store them, with few sizes and made-up seconds."""
    machine = {"processor": "X1", "processors": 2, "caches": {"L2": "1024K"}, "memory": 16e9}
    machine |= {"python": "3.11.7", "torch": "2.13.0", "commit": "abc"}
    of_peers = dict.fromkeys(("dynamax", "jax", "hmmlearn", "pomegranate", "torch"), "1.0")
    bounds = {"bytes, fresh": 0.01, "bytes, mapped": 0.005, "operations": 0.025}
    others = {"dynamax, two filters": 0.1, "hmmlearn, scaling": 0.2} | bounds
    found = {name: [] for name in tables.TABLES}
    for threads in (1, 2):
        for key in ({"dtype": "float64"}, {"dtype": "float32"}):
            for what in ("posteriors", "G"):
                for states in (30, 256):
                    one = row(states, hmmlib=0.02, dynamax=0.08 if states == 30 else 0.016, **others)
                    found["posteriors"].append(one | key | {"what": what, "threads": threads})
            flat = row(12, hmmlib=0.5, dynamax=50.0, **{"dynamax, all": "more than 10 GiB of memory"})
            found["memory"].append(flat | key | {"what": "against flattened", "threads": threads})
        drawn = row(30, hmmlib=0.5, hmmlearn=150.0) | {"threads": threads}
        for one in drawn["contestants"]:
            one["options"] = {"n": 5, "length": 7}
        found["sampling"].append(drawn)
        step = row(30, hmmlib=0.5, Trainer=0.75) | {"what": "step", "preset": "quick", "threads": threads}
        for one in step["contestants"]:
            one["options"] = {"count": 5}
        found["pretraining"].append(step)
    found["memory"].append(
        row(12, **{"1-5-12": 0.5, "2-5-12": 2.5}) | {"what": "by size", "exponents": {"values": 0.98, "states": 1.2}}
    )
    head = row(30, **{"outputs computed once": 0.1, "outputs computed in each pass": 0.4})
    found["tuning"].append(head | {"what": "head", "preset": "quick", "train": 4000, "epochs": 5})
    prompt = row(30, **{"float32": 0.2, "float64": 0.5})
    found["tuning"].append(prompt | {"what": "prompt", "preset": "quick", "train": 4000, "epochs": 5})
    curve = {"what": "posteriors", "grows": "n", "seconds": {"all": 0.9, "last": 1.0}, "memory": {"last": 1.0}}
    found["growth"].append(row(30, **{"10": 0.1, "100": 1.0}) | curve)
    found["growth"].append(
        {"what": "largest", "assumed": {"n": 1000}, "largest": {"one H100": {"states by time": 1e5, "cells": 12.5}}}
    )
    found["learning-curves"] = CURVES
    found["build"] = [
        {"what": "import: torch", "seconds": 1.5, "beyond_torch": 0.0},
        {"what": "import: trials", "seconds": 1.74, "beyond_torch": 0.24},
        {"what": "from nothing: prediction", "seconds": 41.3},
        {"what": "from nothing: all", "seconds": 181.0},
    ]
    return {
        name: {"name": name, "machine": machine, "versions": {"ours": {}, "peers": of_peers}, "rows": rows}
        for name, rows in found.items()
    }


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A function that builds the page and returns its HTML and the warnings, and the folder of the results behind it."""
    results, source = tmp_path / "results", tmp_path / "book"
    results.mkdir()
    source.mkdir()
    for name, record in sample_records().items():
        contests.write(results / f"{name}.json", record)
    monkeypatch.setattr(tables, "RESULTS", results)
    (source / "index.md").write_text((ROOT / "book" / "benchmarks.md").read_text())
    (source / "evidence.md").write_text("---\norphan: true\n---\n# Evidence\n")
    extensions = ["myst_parser", "sphinx_design", "benchmark_tables"]
    settings = {"extensions": extensions, "myst_enable_extensions": ["colon_fence", "dollarmath"]}

    def build() -> tuple[str, str]:
        warnings = io.StringIO()
        folders = (source, None, tmp_path / "html", tmp_path / "trees")
        Sphinx(*folders, "html", settings, status=None, warning=warnings).build()
        return (tmp_path / "html" / "index.html").read_text(), warnings.getvalue()

    return build, results


def test_the_page_is_made_of_the_stored_results(built):
    html, warnings = built[0]()
    assert warnings == ""
    page = BeautifulSoup(html, "html.parser")
    text = re.sub(r"\s+", " ", page.get_text(" "))
    assert "on one thread: 4.00 times as fast as dynamax, 5.00 times as fast as dynamax, two filters," in text
    assert "1.25 times slower than dynamax" in text
    assert "2.00 and 0.800 times as long on one thread" in text
    assert "100 times as fast as dynamax" in text
    assert "exponent of 0.98" in text
    assert "300 times as fast as hmmlearn" in text
    assert "on one thread: 1.50 times as fast as Trainer" in text
    assert ["quick", "head", "outputs computed in each pass", plain("40.0 ms"), plain("800 s"), "4.00"] in [
        [cell.get_text(strip=True) for cell in line.find_all("td")] for line in page.find_all("tr")
    ]
    assert "more than 10 GiB of memory" in text
    assert "256 states, 2 sequences, of 5 tokens, 2 threads" in text  # lost, and said so
    lines = [[cell.get_text(strip=True) for cell in line.find_all("td")] for line in page.find_all("tr")]
    assert ["10", "1", "0.0400", "not in 1100 steps", "less than 24.2 %"] in lines
    assert ["from nothing: prediction", "41.3"] in lines
    assert ["trials", "1.74", "0.24"] in lines
    assert "takes 181 s. The table has the seconds of its parts" in text
    assert "the best was 0.002 at 10 states" in text
    assert "at most 1e-09 for hmmlearn" in text
    assert len(page.find_all("table")) == 23
    assert "Other rates" not in text
    waiting, picture, curves = page.find_all("svg", class_="picture")
    assert "drawing 0 million tokens: 0.50 s, 2.5 min with hmmlearn" in waiting["aria-label"]
    assert waiting.find(string="2.5 min, hmmlearn")
    assert "takes 0.8 to 300 times as long" in text
    assert curves.find(string="Trainer")
    assert "against the number of hidden states" in picture["aria-label"]
    assert picture.find(string="dynamax")


def test_a_changed_result_writes_the_page_anew(built):
    build, results = built
    build()
    record = sample_records()["posteriors"]
    record["rows"][0]["ratios"]["dynamax"] = 7.0
    contests.write(results / "posteriors.json", record)
    assert "7.00 times as fast as dynamax" in build()[0]
    record = sample_records()["learning-curves"]
    record["rows"] = [*CURVES, trained("hmmlib", 0, 400, 0.07, schedule="cosine")]
    contests.write(results / "learning-curves.json", record)
    html = build()[0]
    assert "Other rates" in html
    assert "schedule cosine" in html
    (results / "growth.json").unlink()
    assert "run `make bench BENCH_ARGS=growth`" in build()[1]


def test_how_long_one_waits():
    found = {wait.what: wait for wait in waits.waits(sample_records())}
    assert (
        str(found["posteriors of 2 texts, 30 states"]) == "posteriors of 2 texts, 30 states: 20 ms, 80 ms with dynamax"
    )
    assert found["posteriors of 2 texts, 256 states"].theirs == pytest.approx(0.016)
    memory = found["G of 2 texts, memory model"]
    assert (memory.ours, memory.other, memory.theirs) == (0.5, "dynamax", 50.0)
    assert found["pretraining a network, 400 steps"].ours == 0.5 / 5 * 400
    tuned = found["tuning a prompt on it"]
    assert (tuned.ours, tuned.other) == (0.2 / 10 * 4000 * 5, "")
    assert str(found["this book, from nothing"]).endswith(": 3.0 min")
    assert TrialSpec("quick").steps == waits.STEPS
    broken = sample_records()
    broken["build"]["rows"] = []
    with pytest.raises(ValueError, match="0 rows with"):
        waits.waits(broken)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00412, "4.1 ms"), (0.0181, "18 ms"), (0.451, "0.45 s"), (6.26, "6.3 s"), (26, "26 s"), (91, "1.5 min")],
)
def test_a_wait_in_words(seconds, words):
    assert waits.in_words(seconds) == words


STORED = [path for name in tables.TABLES if (path := tables.RESULTS / f"{name}.json").is_file()]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_ratios_are_those_of_the_stored_seconds(path):
    for stored in json.loads(path.read_text())["rows"]:
        if "ratios" not in stored:
            continue
        first, *others = stored["contestants"]
        for one in others:
            if "failed" in one or "failed" in first:
                assert one["name"] not in stored["ratios"]
                continue
            cost = [np.median(who["seconds"]) / who["work"] for who in (one, first)]
            assert stored["ratios"][one["name"]] == pytest.approx(cost[0] / cost[1])
        assert stored["agree"] in (True, None), stored["differences"]


def test_the_page_names_only_tables_and_phrases_that_there_are():
    text = (ROOT / "book" / "benchmarks.md").read_text()
    assert len(STORED) == len(tables.TABLES)
    known = tables.phrases()
    for name in re.findall(r"\{measured\}`([^`]+)`", text):
        assert known[name]
    for benchmark, name in re.findall(r"\{benchmark-table\} (\S+) (\S+)", text):
        assert tables.TABLES[benchmark](tables.load(benchmark))[name].rows or name == "choices"
    # All numbers of measurement come by these names; what is left are sizes and settings.
    prose = re.sub(r"```.*?```|\{measured\}`[^`]+`|\$[^$]*\$", "", text, flags=re.DOTALL)
    assert not re.search(r"\d[\d.]* (times|ms|µs|GB|MB|s )", prose)


def test_what_the_page_says_of_other_choices():
    rows = tables.load("learning-curves")["rows"]

    def excess(states: int, **changes) -> float:
        setting = learning.SETTING | {"steps": learning.STEPS} | changes
        found = [row["excess"] for row in tables.chosen(rows, side="hmmlib", states=states, **setting)]
        assert len(found) == 3
        return float(np.mean(found))

    for states in (10, 30):
        assert min(excess(states, muon_rate=rate) for rate in (0.01, 0.04)) > excess(states)
    for better in ({"learning_rate": 0.0025}, {"schedule": "stable"}):
        assert excess(30, **better) < 0.6 * excess(30)
        assert abs(excess(10, **better) - excess(10)) < 0.01
