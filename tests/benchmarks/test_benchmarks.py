"""The benchmarks are fair: contestants take turns on equal terms, failures are told, and both sides do the same. What
is stored is what the READMEs of benchmarks and tests show."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import soon

if sys.platform != "linux":
    pytest.skip("the benchmarks need Linux", allow_module_level=True)

import learning
import measures
import networks
import run
import tables
import tried
import with_trainer
from contest import GIB, Contestant, contest

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model, trial_seeds
from hmmlib.training import pretraining

ROOT = Path(__file__).resolve().parents[2]
FAKES = {"PYTHONPATH": str(ROOT / "tests" / "support")}
TRIAL = dict(preset="smoke", steps=8)
SPEC = TrialSpec(**TRIAL)


def fake(name: str, call: str = "sleeper", work: float = 1.0, **options) -> Contestant:
    return Contestant(name, f"fake_contestants:{call}", options, peer=False, work=work, env=FAKES)


def test_calls_are_timed_and_their_memory_and_results_compared():
    two = [fake("a", seconds=0.02, value=1.0), fake("b", seconds=0.06, value=1.25), fake("c", "hoarder", gib=0.25)]
    result = contest(two, threads=1, rounds=3, tolerance=0.5)
    rows = {row["name"]: row for row in result["contestants"]}
    for name, least in (("a", 0.02), ("b", 0.06), ("c", 0.0)):
        assert (len(rows[name]["seconds"]), rows[name]["versions"]["numpy"]) == (3, np.__version__)
        assert min(rows[name]["seconds"]) >= least
    assert rows["c"]["peak"] - rows["c"]["settled"] == pytest.approx(GIB / 4, rel=0.05)
    assert rows["a"]["peak"] - rows["a"]["settled"] < GIB / 100
    assert (result["differences"], result["agree"]) == ({"b": 0.25}, True)


def test_they_take_turns_on_one_processor_and_a_budget_ends_the_rounds_after_the_third(tmp_path):
    log = tmp_path / "log"
    two = [fake(name, "diarist", path=str(log), word=name) for name in "ab"]
    contest(two, threads=1, rounds=9, budget=0.0)
    assert log.read_text() == "ab" + "ab" * 3
    three = [fake("a", "processors"), fake("b", value=1.0), fake("c", value=float("nan"))]
    result = contest(three, threads=1, rounds=1, tolerance=0.1)
    assert (result["differences"]["b"], result["agree"]) == (0.0, False), "no number agrees with none"
    with pytest.raises(ValueError, match="threads must be 1 to"):
        contest(two, threads=10_000)


def test_who_fails_is_recorded_with_the_reason_and_the_others_go_on():
    failing = {
        "more than 3 s": fake("slow", seconds=30.0, first=0.0),
        "more than 0.25 GiB of memory": fake("hoarder", "hoarder", gib=1.0),
        "RuntimeError: no luck today": fake("faulty", "faulty", message="no luck today"),
        "ended with exit code 3": fake("quitter", "quitter", code=3),
    }
    result = contest([fake("good"), *failing.values()], threads=1, rounds=2, box=3.0, limit=GIB // 4, tolerance=0.1)
    good, *rows = result["contestants"]
    assert (len(good["seconds"]), result["agree"]) == (2, None), "nothing was compared"
    for row, reason in zip(rows, failing, strict=True):
        assert row["failed"].startswith(reason)
        assert "seconds" not in row


def test_a_stopped_worker_does_not_outlive_the_process_that_started_it(tmp_path):
    script = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from contest import *
one = Contestant("a", "fake_contestants:sleeper", peer=False, env={FAKES!r})
worker = Worker(one, 1, Path({str(tmp_path / "a")!r}))
worker.ask(10, GIB, **worker.first)
print(worker.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    stat = Path(f"/proc/{int(done.stdout)}/stat")
    assert soon(lambda: not stat.exists() or stat.read_text().split()[2] == "Z"), "the worker is still there"


def test_rows_are_made_once_until_something_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "BUILD", tmp_path)
    made, row = [], {"contestants": [{"name": "a", "peer": True, "versions": {"numpy": "2"}}]}
    for state, calls in (("one", 1), ("one", 1), ("two", 2)):
        rows = run.Rows("a", False, state)
        found = rows(lambda: made.append(1) or row, states=3)
        assert found == {"states": 3, "contestants": [{"name": "a", "peer": True}]}
        assert (len(made), rows.versions) == (calls, {"ours": {}, "peers": {"numpy": "2"}})


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """What the Trainer gets for the trial."""
    monkeypatch.setattr(measures, "INPUTS", tmp_path)
    inputs = str(measures.save_text(SPEC))
    return measures.trainer_settings(SPEC, 1e-2) | dict(inputs=inputs, optim="adamw_torch")


def test_both_sides_have_the_same_network_and_text_and_hide_as_many_tokens(settings):
    call, ours = networks.steps(4, TRIAL, settings["inputs"])
    np.testing.assert_allclose(ours(None), with_trainer.steps(1, **settings)[1](None), atol=1e-6)
    call()
    call()
    with pytest.raises(IndexError):  # after eight steps the text is at its end
        call()
    batches = list(with_trainer.build(**settings).get_train_dataloader())
    shown, labels = (torch.stack([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    assert shown.shape == (SPEC.steps, SPEC.batch, SPEC.length)
    hidden, share = labels != -100, round(SPEC.masked * SPEC.length) / SPEC.length
    assert hidden.double().mean() == pytest.approx(share, abs=5 * (share * (1 - share) / hidden.numel()) ** 0.5)
    assert (shown[hidden] == SPEC.n_tokens).all()
    seen = torch.where(hidden, labels, shown).reshape(-1, SPEC.length).tolist()
    text = np.load(settings["inputs"])
    assert sorted(seen) == sorted(text.astype(int).tolist())  # each sequence once
    np.save(settings["inputs"], 1 - text)
    with pytest.raises(RuntimeError, match="another text"):
        networks.steps(1, TRIAL, settings["inputs"])


def test_whole_runs_train_and_ours_is_the_librarys(settings, monkeypatch):
    monkeypatch.setattr(pretraining, "rate_at", pretraining.rate_at)  # put back afterwards
    network = build_network(SPEC)
    pretraining.pretrain(network, draw_model(SPEC), SPEC.pretraining(), trial_seeds(0)["pretraining"])
    weights = torch.nn.utils.parameters_to_vector(network.parameters()).detach().double().numpy()
    runs = {name: networks.trained(TRIAL, name)[0]() for name in ("linear", "cosine", "stable")}
    assert np.array_equal(runs["linear"][1:], weights)
    assert not np.array_equal(runs["cosine"], runs["stable"])
    seconds, *weights = with_trainer.trained(**settings)[0]()
    torch.nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), network.parameters())
    text = torch.from_numpy(np.load(settings["inputs"])).long()
    before, after = (one.eval()(text, labels=text).loss.item() for one in (build_network(SPEC), network))
    assert after < before - 0.05
    assert seconds > 0


def test_runs_of_the_curves_are_asked_for_once_each_trained_and_measured(monkeypatch):
    keys = []
    learning.learning_curves(lambda make, **key: keys.append(key) or key | {"excess": key["steps"]}, quick=False)
    assert len({str(key) for key in keys}) == len(keys) == len(tables.load("learning-curves")["rows"])
    monkeypatch.setattr(learning, "PRESET", "smoke")
    row = learning.train(learning.ours(4, 0, 5))
    assert (row["tokens"], row["excess"]) == (5 * 32 * 25, pytest.approx(row["loss"] - row["least"]))
    assert row["excess"] > 0.1
    assert row["least"] > 0


@pytest.mark.parametrize("module", [tables, tried], ids=["benchmarks", "tests"])
def test_the_readme_has_the_tables_of_what_is_stored(module):
    assert module.README.read_text(encoding="utf8") == module.readme()


def test_each_table_has_a_benchmark_and_in_the_stored_contests_all_results_agree():
    assert run.BENCHMARKS.keys() == tables.TABLES.keys()
    for name in ("posteriors", "memory", "sampling", "pretraining", "tuning"):
        assert {row["agree"] for row in tables.load(name)["rows"] if "agree" in row} <= {True, None}
