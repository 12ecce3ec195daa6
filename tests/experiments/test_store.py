"""The result store: files that survive, files that are refused, claims; and what is committed."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from record import slow
from runs import TINY, with_memory

from hmmlib.experiments import store as of_store
from hmmlib.experiments.results import results
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import (
    FORMAT,
    ROOT,
    STORE,
    Claim,
    check_result,
    checkpoint_path,
    is_stored,
    load_result,
    load_results,
    result_path,
    save_result,
)
from hmmlib.experiments.trials import TrialResult, run_trial, trial_seeds

pytestmark = pytest.mark.outside

TYPES = {field.name: field.type for field in dataclasses.fields(TrialResult) if field.name != "spec"}


@pytest.fixture(scope="module")
def result():
    torch.set_num_threads(1)
    return run_trial(TrialSpec("smoke", **TINY))


def test_a_result_survives_the_store(result, tmp_path, monkeypatch):
    assert not is_stored(result.spec, tmp_path)
    path = save_result(result, tmp_path)
    assert path == result_path(result.spec, tmp_path) == tmp_path / "smoke" / f"{result.spec.hash}.json"
    assert load_result(path) == result
    assert is_stored(result.spec, tmp_path)
    assert not is_stored(replace(result.spec, seed=1), tmp_path)
    assert json.loads(path.read_text())["format"] == FORMAT == 2
    assert os.listdir(path.parent) == [path.name]
    assert save_result(replace(result, redraws=3), tmp_path) == path  # overwrites
    assert load_result(path).redraws == 3
    nothing = dict.fromkeys((name for name in TYPES if TYPES[name].endswith("None")), None)
    assert len(nothing) == 7
    memory = with_memory(result, replace(result.spec, n_memory=2))  # a vanilla model always has a prompt
    assert {name: getattr(memory, name) for name in nothing} == nothing
    assert load_result(save_result(memory, tmp_path)) == memory
    monkeypatch.chdir(path.parent)
    assert load_result(path.name).redraws == 3, "it is read from where it lies"


SPOILED = {
    "Expecting value": lambda path: path.write_text(""),
    "Expecting property name": lambda path: path.write_text("{"),
    "Field required": lambda path: path.write_text('{"format": 2}'),
    "it is no regular file": lambda path: (path.unlink(), os.mkfifo(path)),  # nobody waits for it
    "edited or renamed": lambda path: path.write_text(path.read_text().replace('"seed": 0', '"seed": 1')),
}


@pytest.mark.parametrize("words", SPOILED)
def test_a_spoiled_file_is_refused_by_name_whoever_reads_it_and_left_alone(words, result, tmp_path):
    path = save_result(result, tmp_path)
    SPOILED[words](path)
    content = path.is_file() and path.read_bytes()
    for read in (
        lambda: load_result(path),
        lambda: load_results("smoke", tmp_path),
        lambda: results("smoke", tmp_path),
        lambda: is_stored(result.spec, tmp_path),
        lambda: Claim.take(result.spec, tmp_path),
    ):
        with pytest.raises(ValueError, match=f"{path.name} is no readable result: .*{words}") as caught:
            read()
    assert (path.is_file() and path.read_bytes()) == content
    path.unlink()
    assert Claim.take(result.spec, tmp_path) is not None, f"{caught} has kept its claim"


def test_a_file_is_refused_in_the_folder_of_another_preset(result, tmp_path):
    path = save_result(result, tmp_path)
    path.parent.rename(tmp_path / "quick")
    with pytest.raises(ValueError, match=f"quick/{path.name} is no readable result: its preset is smoke"):
        load_results("quick", tmp_path)


def test_what_is_no_folder_is_no_empty_store(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "smoke").write_text("mine")
    for place in ("file", "link", "store"):
        message = f"store must be a folder, or not yet there; .*{place}.* is something"
        with pytest.raises(NotADirectoryError, match=message):
            load_results("smoke", tmp_path / place)
    assert load_results("smoke", tmp_path / "nothing yet") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is forked")
def test_what_a_killed_writer_leaves_is_hidden_and_not_believed(result, tmp_path):
    if (child := os.fork()) == 0:
        os.replace = lambda *_: os.kill(os.getpid(), 9)
        try:
            save_result(result, tmp_path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert not is_stored(result.spec, tmp_path)
    assert load_results("smoke", tmp_path) == []
    (left,) = os.listdir(tmp_path / "smoke")
    assert re.fullmatch(rf"\.{result.spec.hash}\.\w+\.tmp", left)


def test_results_come_ordered_by_memory_states_then_seed(result, tmp_path):
    order = [(m, n, seed) for m in (1, 2) for n in (2, 3, 10) for seed in (0, 1, 12)]
    for n_memory, n_states, seed in reversed(order):
        changed = replace(result.spec, n_memory=n_memory, n_states=n_states, seed=seed)
        save_result(with_memory(result, changed), tmp_path)
    (tmp_path / "smoke" / "left-over.tmp").write_text("")
    found = load_results("smoke", tmp_path)
    assert [(r.spec.n_memory, r.spec.n_states, r.spec.seed) for r in found] == order
    assert load_results("quick", tmp_path) == []


HOLDER = """
import sys
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire(timeout=0)
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time_holds_a_claim_and_its_death_gives_it_up(result, tmp_path):
    take = partial(Claim.take, result.spec, tmp_path)
    (mine := take()).release()
    call = [sys.executable, "-c", HOLDER, mine.lock_file]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert take() is None
        free = Claim.take(replace(result.spec, seed=1), tmp_path)
        assert free is not None
        other.kill()
    claim = take()
    assert claim is not None
    assert take() is None, "not twice in one process either"
    claim.release()
    save_result(result, tmp_path)
    assert take() is None, "nothing is left to do"


def test_a_store_is_written_to_in_one_folder_and_read_in_all(result, tmp_path):
    store = (tmp_path / "mine", tmp_path / "theirs")
    other = replace(result, spec=replace(result.spec, seed=1), seeds=trial_seeds(1))
    theirs = save_result(result, tmp_path / "theirs")
    assert result_path(result.spec, store) == theirs
    assert result_path(other.spec, store) == tmp_path / "mine" / "smoke" / f"{other.spec.hash}.json"
    assert is_stored(result.spec, store)
    assert Claim.take(result.spec, store) is None
    assert checkpoint_path(result.spec, store).is_relative_to(tmp_path / "mine")
    assert save_result(other, store).is_relative_to(tmp_path / "mine")
    assert load_results("smoke", store) == [result, other]
    newer = replace(result, redraws=3)
    assert save_result(newer, store) == result_path(result.spec, store) != theirs
    assert load_results("smoke", store) == [newer, other]
    assert load_result(theirs) == result
    theirs.write_text("{")
    assert load_results("smoke", store) == [newer, other]  # what lies behind is not read


def test_new_results_are_the_users_and_never_lie_where_the_library_is_installed(tmp_path, monkeypatch):
    """What is installed may be replaced; what lies beside a copied folder is still looked at where another is named."""
    for beside, mine, theirs, with_named in (
        ("pyproject.toml", "mine/results", ["results"], ["results"]),
        ("hmmlib-9.9.dist-info", "data/hmmlib/results", [], []),
        ("a copy", "results", [], ["results"]),
    ):
        root = tmp_path / f"with {beside}"
        root.mkdir()
        (root / beside).touch()
        monkeypatch.setattr(of_store, "ROOT", root)
        monkeypatch.setattr(of_store, "STORE", root / "results")
        monkeypatch.setenv("XDG_DATA_HOME", str(root / "data"))
        monkeypatch.delenv("HMMLIB_MINE", raising=False)
        assert of_store._of_project() == (root / mine, *(root / name for name in theirs))
        monkeypatch.setenv("HMMLIB_MINE", "/somewhere")
        assert of_store._of_project() == (Path("/somewhere"), *(root / name for name in with_named))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone: git ignores nothing here")
def test_git_ignores_what_is_the_users_and_what_is_no_result(result, tmp_path):
    Claim.take(result.spec, tmp_path).release()
    (lock,) = tmp_path.rglob("*.lock")
    hidden = STORE / lock.relative_to(tmp_path), checkpoint_path(result.spec, STORE)
    assert all(path.parent.name.startswith(".") for path in hidden)
    for path in (*hidden, ROOT / "mine" / "results" / "a.json", result_path(result.spec, STORE)):
        done = subprocess.run(["git", "check-ignore", "--quiet", str(path)], cwd=ROOT, check=False)
        assert done.returncode == (path == result_path(result.spec, STORE)), path


# The committed results.


@pytest.fixture(scope="module")
def committed() -> dict[Path, TrialResult]:
    return {path: load_result(path) for path in sorted(STORE.rglob("*.json"))}


@pytest.mark.parametrize("some", [slice(0, None, 9), pytest.param(slice(None), marks=slow)], ids=["two", "all"])
def test_a_stored_trial_is_what_its_spec_gives(some):
    """Exact quantities to rounding; what a trained network gives, to what another machine's rounding may change.

    In short: one of each kind of model."""
    chosen = load_results("smoke", STORE)[some]
    assert {result.spec.n_memory > 1 for result in chosen} == {False, True}
    for result in chosen:
        again = run_trial(result.spec)
        for name in ("redraws", "majority_rate", "seeds"):
            assert getattr(again, name) == getattr(result, name), name
        for name in ("built_head_accuracy", "built_prompt_accuracy"):  # a score below rounding decides nothing
            assert (getattr(again, name) is None) == (getattr(result, name) is None), name
        assert again.best_loss == pytest.approx(result.best_loss, rel=1e-9)
        for name in (name for name in TYPES if name.startswith(("exact_", "ladder_"))):
            assert getattr(again, name) == pytest.approx(getattr(result, name), abs=0.02), name
        assert again.network_loss == pytest.approx(result.network_loss, abs=0.1)
        assert again.divergence == pytest.approx(result.divergence, abs=0.1)


def test_quick_has_all_trials_of_the_panels(committed):
    specs = {result.spec for path, result in committed.items() if path.parent == STORE / "quick"}
    for panel, trials in (("left", 20), ("right", 5)):
        missing = set(panel_specs("quick", panel, trials)) - specs
        assert not missing, f"{len(missing)} are missing: python -m hmmlib trial --panel {panel} --missing"


def test_each_committed_file_makes_sense_and_is_saved_to_the_same_bytes_and_none_is_astray(committed, tmp_path):
    assert len(committed) > 1800
    files = [path.relative_to(STORE).as_posix() for path in STORE.rglob("*") if path.is_file()]
    pattern = r"((beyond|choices)/)?[a-z-]+/([0-9a-f]{16}\.json|\.(claims|unfinished)/.*)"
    assert [name for name in files if not re.fullmatch(pattern, name)] == []
    for path, result in committed.items():
        check_result(result)
        assert re.fullmatch(r"[0-9a-f]{12}", result.environment["commit"] or ""), "a tree with uncommitted changes"
        assert result.excess_loss > -0.02
        again = save_result(result, tmp_path)
        assert (again.name, again.read_bytes()) == (path.name, path.read_bytes())


def test_no_trial_by_which_a_setting_was_chosen_is_among_those_that_are_shown(committed):
    chosen = {result.spec.seed for path, result in committed.items() if "choices" in path.parts}
    shown = {result.spec.seed for path, result in committed.items() if "choices" not in path.parts}
    assert min(chosen) >= 1000 > max(shown)
    models = [{trial_seeds(seed)["model"] for seed in seeds} for seeds in (chosen, shown)]
    assert models[0].isdisjoint(models[1])
