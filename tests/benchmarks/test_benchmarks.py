"""The benchmarks are fair: contestants take turns on equal terms, failures are told, and both sides do the same. The
READMEs of benchmarks and tests show what is stored."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import soon

if sys.platform != "linux":
    pytest.skip("the benchmarks need Linux", allow_module_level=True)

import measures
import networks
import run
import tables
import tried
import with_trainer
from contest import GIB, Contestant, contest

from hmmbook.experiments.specs import TrialSpec

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
TRIAL = dict(preset="smoke", steps=8)
SPEC = TrialSpec(**TRIAL)


def fake(name: str, call: str = "sleeper", **options) -> Contestant:
    """A contestant that does no work, from tests/support/fake_contestants.py."""
    return Contestant(name, f"fake_contestants:{call}", options, peer=False, env={"PYTHONPATH": str(SUPPORT)})


def test_calls_are_timed_and_their_memory_and_results_compared():
    fast = fake("fast", seconds=0.02, value=1.0)
    slow = fake("slow", seconds=0.06, value=1.25)
    large = fake("large", "hoarder", gib=0.25)
    result = contest([fast, slow, large], threads=1, rounds=3, tolerance=0.5)
    rows = {row["name"]: row for row in result["contestants"]}
    for row in rows.values():
        assert len(row["seconds"]) == 3
        assert row["versions"]["numpy"] == np.__version__
    assert min(rows["fast"]["seconds"]) >= 0.02
    assert min(rows["slow"]["seconds"]) >= 0.06
    assert rows["fast"]["peak"] - rows["fast"]["settled"] < GIB / 100
    assert rows["large"]["peak"] - rows["large"]["settled"] == pytest.approx(GIB / 4, rel=0.05)
    assert result["differences"] == {"slow": 0.25}
    assert result["agree"] is True


def test_they_take_turns_and_a_budget_ends_the_rounds_after_the_third(tmp_path):
    log = tmp_path / "log"
    diarists = [fake(name, "diarist", path=str(log), word=name) for name in "ab"]
    contest(diarists, threads=1, rounds=9, budget=0.0)
    assert log.read_text() == "abababab"


def test_each_has_its_processors_and_a_number_does_not_agree_with_none():
    result = contest(
        [fake("a", "processors"), fake("b", value=1.0), fake("c", value=float("nan"))],
        threads=1,
        rounds=1,
        tolerance=0.1,
    )
    assert result["differences"]["b"] == 0.0
    assert result["agree"] is False
    with pytest.raises(ValueError, match="threads must be 1 to"):
        contest([fake("a")], threads=10_000)


def test_who_fails_is_recorded_with_the_reason_and_the_others_go_on():
    failing = {
        "more than 3 s": fake("slow", seconds=30.0, first=0.0),
        "more than 0.25 GiB of memory": fake("hoarder", "hoarder", gib=1.0),
        "RuntimeError: no luck today": fake("faulty", "faulty", message="no luck today"),
        "ended with exit code 3": fake("quitter", "quitter", code=3),
    }
    result = contest([fake("good"), *failing.values()], threads=1, rounds=2, box=3.0, limit=GIB // 4, tolerance=0.1)
    good, *rows = result["contestants"]
    assert len(good["seconds"]) == 2
    assert result["agree"] is None, "nothing was compared"
    for row, reason in zip(rows, failing, strict=True):
        assert row["failed"].startswith(reason)
        assert "seconds" not in row


def test_a_stopped_worker_does_not_outlive_the_process_that_started_it(tmp_path):
    script = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from contest import GIB, Contestant, Worker
sleeper = Contestant("a", "fake_contestants:sleeper", peer=False, env={{"PYTHONPATH": {str(SUPPORT)!r}}})
worker = Worker(sleeper, 1, Path({str(tmp_path / "a")!r}))
worker.ask(10, GIB, **worker.preparation)
print(worker.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    stat = Path(f"/proc/{int(process.stdout)}/stat")

    def has_ended() -> bool:
        return not stat.exists() or stat.read_text(encoding="utf8").split()[2] == "Z"

    assert soon(has_ended), "the worker is still there"


def test_rows_are_made_once_until_something_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "BUILD", tmp_path)
    calls = []

    def make():
        calls.append("made")
        return {"contestants": [{"name": "a", "peer": True, "versions": {"numpy": "2"}}]}

    for state, times_made in [("before", 1), ("before", 1), ("after", 2)]:
        rows = run.Rows("a", quick=False, state=state)
        assert rows(make, states=3) == {"states": 3, "contestants": [{"name": "a", "peer": True}]}
        assert len(calls) == times_made
        assert rows.versions == {"ours": {}, "peers": {"numpy": "2"}}


@pytest.fixture
def settings(tmp_path, monkeypatch) -> dict:
    """What the Trainer gets for the trial."""
    monkeypatch.setattr(measures, "INPUTS", tmp_path)
    inputs = str(measures.save_text(SPEC))
    return dict(measures.trainer_settings(SPEC, 1e-2), inputs=inputs, optim="adamw_torch")


def test_both_sides_start_from_the_same_network_and_text(settings):
    call, our_logits = networks.steps(4, TRIAL, settings["inputs"])
    _, trainer_logits = with_trainer.steps(1, **settings)
    np.testing.assert_allclose(our_logits(None), trainer_logits(None), atol=1e-6)
    call()
    call()
    with pytest.raises(IndexError):  # after eight steps the text is at its end
        call()
    text = np.load(settings["inputs"])
    np.save(settings["inputs"], 1 - text)
    with pytest.raises(RuntimeError, match="another text"):
        networks.steps(1, TRIAL, settings["inputs"])


def test_the_trainer_sees_each_sequence_once_and_hides_as_many_tokens(settings):
    batches = list(with_trainer.build(**settings).get_train_dataloader())
    shown = torch.stack([batch["input_ids"] for batch in batches])
    labels = torch.stack([batch["labels"] for batch in batches])
    assert shown.shape == (SPEC.steps, SPEC.batch, SPEC.length)
    hidden = labels != -100
    share = round(SPEC.masked * SPEC.length) / SPEC.length
    deviation = (share * (1 - share) / hidden.numel()) ** 0.5
    assert hidden.double().mean() == pytest.approx(share, abs=5 * deviation)
    mask = SPEC.n_tokens
    assert (shown[hidden] == mask).all()
    sequences = torch.where(hidden, labels, shown).reshape(-1, SPEC.length)
    text = np.load(settings["inputs"]).astype(int)
    assert sorted(sequences.tolist()) == sorted(text.tolist())


@pytest.mark.parametrize("module", [tables, tried], ids=["benchmarks", "tests"])
def test_the_readme_has_the_tables_of_what_is_stored(module):
    assert module.README.read_text(encoding="utf8") == module.readme()


def test_each_table_has_a_benchmark_and_in_the_stored_contests_all_results_agree():
    assert run.BENCHMARKS.keys() == tables.TABLES.keys()
    for name in tables.TABLES:
        for row in tables.load(name)["rows"]:
            assert row.get("agree") in (True, None)
