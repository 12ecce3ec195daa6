"""The benchmarks: contests of tiny contestants, rows that are kept, tables, and what the book's page says of them."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import contest as contests
import growth
import numpy as np
import posteriors
import pytest
import run
import sampling
import tables
import typer
from contest import GIB, Contestant, Pool, contest
from record import slow
from typer.testing import CliRunner

from hmmlib.models.appendix_e import random_hmm, random_memory_hmm

ROOT = Path(__file__).resolve().parents[2]

if sys.platform != "linux":
    pytest.skip("the benchmarks need Linux", allow_module_level=True)

FAKES = {"PYTHONPATH": str(ROOT / "tests" / "support")}


def fake(name: str, call: str = "sleeper", work: float = 1.0, **options) -> Contestant:
    return Contestant(name, f"fake_contestants:{call}", options, peer=False, work=work, env=FAKES)


def by_name(result: dict) -> dict[str, dict]:
    return {row["name"]: row for row in result["contestants"]}


def test_a_contest_takes_ratios_of_medians_for_each_unit_of_work():
    two = [fake("a", seconds=0.02, value=1.0), fake("b", seconds=0.06, value=1.25, work=2)]
    result = contest(two, threads=1, rounds=3, tolerance=0.5)
    for name, least in (("a", 0.02), ("b", 0.06)):
        row = by_name(result)[name]
        assert len(row["seconds"]) == 3
        assert least <= row["least"] <= row["median"] <= row["most"]
        assert row["peak"] > 0.9 * row["settled"] > 0
        assert row["versions"]["numpy"] == np.__version__
    medians = [by_name(result)[name]["median"] for name in "ab"]
    assert result["ratios"]["b"] == pytest.approx(medians[1] / 2 / medians[0])
    assert 1.2 < result["ratios"]["b"] < 1.7
    assert result["differences"] == {"b": 0.25}
    assert result["agree"] is True


def test_they_take_turns_and_the_others_stand_still(tmp_path):
    log = tmp_path / "log"
    two = [fake(name, "diarist", path=str(log), word=name) for name in "ab"]
    contest(two, threads=1, rounds=3)
    assert log.read_text() == "ab" + "ab" * 3


def test_memory_is_that_of_a_call_at_its_peak():
    hoarder, sleeper = contest([fake("a", "hoarder", gib=0.25), fake("b", seconds=0)], threads=1, rounds=1)[
        "contestants"
    ]
    assert hoarder["peak"] - hoarder["settled"] == pytest.approx(GIB / 4, rel=0.05)
    assert sleeper["peak"] - sleeper["settled"] < GIB / 100


def test_disagreement_is_noticed():
    two = [fake("a", seconds=0, value=1.0), fake("b", seconds=0, value=1.25)]
    assert contest(two, threads=1, rounds=1, tolerance=0.1)["agree"] is False
    two[1] = fake("b", seconds=0, value=float("nan"))
    result = contest(two, threads=1, rounds=1, tolerance=0.1)
    assert result["differences"] == {"b": None}
    assert result["agree"] is False
    assert contest(two, threads=1, rounds=1)["agree"] is None


def test_who_fails_is_recorded_with_the_reason_and_the_others_go_on():
    result = contest(
        [
            fake("good", seconds=0),
            fake("slow", seconds=30.0, first=0.0),
            fake("hoarder", "hoarder", gib=1.0),
            fake("faulty", "faulty", message="no luck today"),
            fake("quitter", "quitter", code=3),
        ],
        threads=1, rounds=2, box=1.0, limit=GIB // 4, tolerance=0.1,
    )  # fmt: skip
    rows = by_name(result)
    assert rows["slow"]["failed"] == "more than 1 s"
    assert rows["hoarder"]["failed"] == "more than 0.25 GiB of memory"
    assert rows["faulty"]["failed"] == "RuntimeError: no luck today"
    assert rows["quitter"]["failed"].startswith("ended with exit code 3")
    assert len(rows["good"]["seconds"]) == 2
    assert not any("seconds" in row for name, row in rows.items() if name != "good")
    assert result["ratios"] == {}
    assert result["agree"] is None, "nothing was compared"


def test_one_thread_means_one_processor():
    one = fake("a", "processors")
    result = contest([one, fake("b", "processors")], threads=1, rounds=1, tolerance=0)
    assert result["differences"] == {"b": 0.0}
    with Pool() as pool:
        worker = pool.worker(one, 1)
        worker.ask(10, GIB, do="prepare", call=one.call, options={}, answer=str(worker.answer))
        assert np.load(worker.answer).tolist() == [1.0]
        worker.ask(10, GIB, do="finish")


def test_a_budget_ends_the_rounds_after_the_third():
    two = [fake(name, seconds=0.05) for name in "ab"]
    assert [len(row["seconds"]) for row in contest(two, threads=1, rounds=9, budget=0.0)["contestants"]] == [3, 3]


def test_workers_stay_between_contests_and_end_with_their_pool():
    two = [fake(name, seconds=0) for name in "ab"]
    with Pool() as pool:
        contest(two, threads=1, rounds=1, pool=pool)
        first = [worker.process.pid for worker in pool.workers.values()]
        contest(two, threads=1, rounds=1, pool=pool)
        assert [worker.process.pid for worker in pool.workers.values()] == first
        os.kill(first[0], signal.SIGKILL)
        pool.workers[next(iter(pool.workers))].process.wait()
        again = contest(two, threads=1, rounds=1, pool=pool)
        assert "failed" not in by_name(again)["a"]
    for pid in first:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_stopped_worker_does_not_outlive_the_process_that_started_it(tmp_path):
    script = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from contest import *
pool = Pool()
who = Contestant("a", "fake_contestants:sleeper", {{}}, peer=False, env={FAKES!r})
worker = pool.worker(who, 1)
worker.ask(10, GIB, do="prepare", call=who.call, options={{}}, answer=str(worker.answer))
print(worker.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the worker is still there"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        ("a", {}, "two contestants or more"),
        ("aa", {}, "a name of its own"),
        ("ab", {"threads": 0}, "threads must be 1 to"),
        ("ab", {"threads": 10_000}, "threads must be 1 to"),
        ("ab", {"rounds": 0}, "rounds must be 1 or more"),
    ],
)
def test_bad_settings_are_refused(names, settings, message):
    with pytest.raises(ValueError, match=message):
        contest([fake(name) for name in names], **{"threads": 1} | settings)


def test_a_missing_environment_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(contests, "PEERS", tmp_path / "python")
    with pytest.raises(ValueError, match="run `make bench`"):
        contest([fake("a"), Contestant("b", "with_hmmlearn:posteriors")], threads=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["posterior"], "there is no benchmark 'posterior'; there are posteriors"), (["--fast"], "No such option")],
)
def test_the_command_line_refuses_what_it_does_not_know(arguments, message):
    app = typer.Typer()
    app.command()(run.main)
    done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, arguments)
    assert done.exit_code == 2
    assert message in re.sub(r"\s+", " ", done.stderr)


def test_rows_are_made_once_until_something_changes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "BUILD", tmp_path)
    made = []

    def make():
        made.append(1)
        return {"contestants": [{"name": "a", "peer": True, "median": 1.0, "versions": {"numpy": "2"}}]}

    for state, calls in (("one", 1), ("one", 1), ("two", 2)):
        rows = run.Rows("a", False, state)
        row = rows(make, states=3)
        assert len(made) == calls
        assert rows.versions == {"ours": {}, "peers": {"numpy": "2"}}
        assert row == {"states": 3, "contestants": [{"name": "a", "peer": True, "median": 1.0}]}
    assert capsys.readouterr().out.count("states 3") == 2


def here(contestant: Contestant) -> Contestant:
    """A peer that the tests' own environment has as well."""
    return dataclasses.replace(contestant, peer=False)


@slow  # tests/inference/test_messages.py lays the same peers beside the library
def test_the_contestants_compute_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(posteriors, "INPUTS", tmp_path)
    model, flat = random_hmm(4, 3, seed=1, temperature=0.3), random_memory_hmm(2, 4, 3, seed=1, n_cells=2)
    size = dict(n=20, length=9, tokens=3, dtype="float64", threads=1)
    with Pool() as pool:
        for what in ("posteriors", "G"):
            inputs = posteriors.save(what, model, model.sample(20, 9, seed=2).tokens)
            who = posteriors.contestants(inputs, what, states=4, **size)
            assert [one.name for one in who[-3:]] == [*tables.BOUNDS]
            who = [*map(here, who[:-3])]
            result = contest(who, threads=1, rounds=1, tolerance=1e-9, pool=pool)
            assert not any("failed" in row for row in result["contestants"])
            assert len(result["differences"]) == {"posteriors": 4, "G": 2}[what]
            assert result["agree"], result["differences"]
        tokens = flat.sample(20, 9, seed=2).tokens
        own, flattened = posteriors.save("own", flat, tokens), posteriors.save("flat", flat.flatten(), tokens)
        who = [posteriors.dynamax("dynamax", "masked", "float64", options=dict(n=10), inputs=flattened)]
        who = [Contestant("hmmlib", "ours:masked", dict(dtype="float64"), own, peer=False), *map(here, who)]
        result = contest(who, threads=1, rounds=1, tolerance=1e-9, pool=pool)
        assert result["agree"], result
        assert result["differences"].keys() == {"dynamax"}
        inputs = posteriors.save("sampling", model, tokens)
        kinds = [sampling.ours("hmmlib", inputs, 100, 30)]
        kinds.append(here(posteriors.dynamax("dynamax", "sample", "float64", **sampling.sized(inputs, 100, 30))))
        kinds.append(here(Contestant("hmmlearn", "with_hmmlearn:sample", **sampling.sized(inputs, 30, 30))))
        result = contest(kinds, threads=1, rounds=1, tolerance=0.1, pool=pool)
        assert result["agree"], result
        assert len(result["differences"]) == 2


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "b.json"
    contests.write(path, {"x": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        contests.write(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"x": 1}
    assert [file.name for file in path.parent.iterdir()] == ["b.json"]


def test_exponents_and_largest_settings():
    sizes = [3.0, 30.0, 300.0]
    assert growth.exponent(sizes, [7 * x**1.7 for x in sizes]) == pytest.approx(1.7)

    def last(name, **rest):
        return {"contestants": [{"name": name, **rest}, {"name": "bigger", "failed": "no"}]}

    found = growth.largest(
        {
            ("posteriors", "states"): last("300", median=36.0),
            ("memory", "values"): last("625", median=36.0, work=129_000),
            ("sampling", "n"): last("10", median=2.0, work=100.0),
        }
    )
    here = found["this machine"]
    assert here["states by time"] == pytest.approx(3000)
    assert here["cells"] == pytest.approx(4 + np.log(100) / np.log(5))
    assert here["tokens drawn"] == pytest.approx(50 * 3600)
    assert found["100 H100"]["tokens drawn"] == pytest.approx(100 * found["one H100"]["tokens drawn"])
    assert found["one H100"]["states by time"] == pytest.approx((3600 * 67e12 * 0.4 / 4 / 129_000) ** 0.5)
