"""The result store: files that survive, files that are refused, claims; and what is committed."""

import dataclasses
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from record import slow
from runs import TINY, with_memory

from hmmlib.experiments.presets import PRESETS
from hmmlib.experiments.results import results
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import (
    FORMAT,
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
NUMBERS = [name for name in TYPES if TYPES[name].startswith(("Share", "Amount"))]


@pytest.fixture(scope="module")
def result():
    torch.set_num_threads(1)
    return run_trial(TrialSpec("smoke", **TINY))


def test_a_result_survives_the_store(result, tmp_path):
    path = save_result(result, tmp_path)
    assert path == result_path(result.spec, tmp_path) == tmp_path / "smoke" / f"{result.spec.hash}.json"
    assert load_result(path) == result
    assert json.loads(path.read_text())["format"] == FORMAT == 2
    assert os.listdir(path.parent) == [path.name]
    assert save_result(replace(result, redraws=3), tmp_path) == path  # overwrites
    assert load_result(path).redraws == 3
    nothing = dict.fromkeys((name for name in TYPES if TYPES[name].endswith("None")), None)
    assert len(nothing) == 7
    assert len(NUMBERS) == 17
    memory = with_memory(result, replace(result.spec, n_memory=2))  # a vanilla model always has a prompt
    assert {name: getattr(memory, name) for name in nothing} == nothing
    assert load_result(save_result(memory, tmp_path)) == memory


def test_what_is_stored(result, tmp_path):
    assert not is_stored(result.spec, tmp_path)
    path = save_result(result, tmp_path)
    assert is_stored(result.spec, tmp_path)
    assert not is_stored(replace(result.spec, seed=1), tmp_path)
    path.write_text("")
    with pytest.raises(ValueError, match=path.name):
        is_stored(result.spec, tmp_path)


@pytest.mark.parametrize("spoiled", ["", "{", "[1, 2]", '{"format": 2}'])
def test_a_spoiled_file_is_refused_by_name_and_left_alone(spoiled, result, tmp_path):
    path = save_result(result, tmp_path)
    path.write_text(spoiled)
    for read in (
        lambda: load_result(path),
        lambda: load_results("smoke", tmp_path),
        lambda: results("smoke", tmp_path),
        lambda: Claim.take(result.spec, tmp_path),
    ):
        with pytest.raises(ValueError, match=f"{path.name} is no readable result: ."):
            read()
    assert path.read_text() == spoiled


def test_a_result_is_read_from_where_it_lies(result, tmp_path, monkeypatch):
    path = save_result(result, tmp_path)
    monkeypatch.chdir(path.parent)
    assert load_result(path.name) == result


def test_a_pipe_is_no_result_and_nobody_waits_for_it(result, tmp_path):
    path = save_result(result, tmp_path)
    path.unlink()
    os.mkfifo(path)
    for read in (lambda: load_result(path), lambda: is_stored(result.spec, tmp_path)):
        with pytest.raises(ValueError, match=f"{path.name} is no readable result: it is no regular file"):
            read()


def test_what_is_no_folder_is_no_empty_store(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "smoke").write_text("mine")
    for place in ("file", "link", "store"):
        with pytest.raises(
            NotADirectoryError, match=f"store must be a folder, or not yet there; .*{place}.* is something"
        ):
            load_results("smoke", tmp_path / place)
    assert load_results("smoke", tmp_path / "nothing yet") == []


def test_a_file_is_refused_under_another_name_or_preset(result, tmp_path):
    path = save_result(result, tmp_path)
    other = tmp_path / "quick" / path.name
    other.parent.mkdir()
    other.write_text(path.read_text())
    with pytest.raises(ValueError, match=f"quick/{path.name} is no readable result: its preset is smoke"):
        load_results("quick", tmp_path)
    moved = path.rename(path.with_name("0123456789abcdef.json"))
    with pytest.raises(ValueError, match=r"0123456789abcdef\.json is no readable result: .* edited or renamed"):
        load_result(moved)


@pytest.mark.parametrize("name", NUMBERS)
def test_no_result_is_written_that_could_not_be_read(name, result, tmp_path):
    with pytest.raises(ValueError, match=f"{name}: Input should be"):
        save_result(replace(result, **{name: float("inf")}), tmp_path)
    assert not (tmp_path / "smoke").exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(result, tmp_path, monkeypatch):
    path = save_result(result, tmp_path)
    for call in ("replace", "chmod", "fdopen"):
        with monkeypatch.context() as broken:

            def fail(*arguments, **options):
                raise OSError("no space left")

            broken.setattr(os, call, fail)
            with pytest.raises(OSError, match="no space left"):
                save_result(replace(result, redraws=9), tmp_path)
        assert os.listdir(path.parent) == [path.name]
        assert load_result(path) == result


def test_what_a_killed_writer_leaves_is_hidden_and_not_believed(result, tmp_path):
    code = (
        "import os, signal, sys; from hmmlib.experiments.store import load_result, save_result; "
        "result = load_result(sys.argv[1]); os.replace = lambda *a: os.kill(os.getpid(), signal.SIGKILL); "
        "save_result(result, sys.argv[2])"
    )
    path = save_result(result, tmp_path / "first")
    call = [sys.executable, "-c", code, str(path), str(tmp_path / "second")]
    assert subprocess.run(call, check=False).returncode == -9
    assert not is_stored(result.spec, tmp_path / "second")
    assert load_results("smoke", tmp_path / "second") == []
    left = os.listdir(tmp_path / "second" / "smoke")
    assert [name for name in left if not re.fullmatch(rf"\.{result.spec.hash}\.\w+\.tmp", name)] == []
    assert len(left) == 1


def test_results_come_ordered_by_memory_states_then_seed(result, tmp_path):
    order = [(m, n, seed) for m in (1, 2) for n in (2, 3, 10) for seed in (0, 1, 12)]
    for n_memory, n_states, seed in reversed(order):
        changed = replace(result.spec, n_memory=n_memory, n_states=n_states, seed=seed)
        save_result(with_memory(result, changed), tmp_path)
    (tmp_path / "smoke" / "left-over.tmp").write_text("")
    found = load_results("smoke", tmp_path)
    assert [(r.spec.n_memory, r.spec.n_states, r.spec.seed) for r in found] == order
    assert load_results("quick", tmp_path) == []


def hold(spec, store, pipe):
    claim = Claim.take(spec, store)
    pipe.send(claim is not None)
    pipe.recv()


def test_one_process_at_a_time_holds_a_claim_and_its_death_gives_it_up(result, tmp_path):
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=hold, args=(result.spec, tmp_path, there), daemon=True)
    other.start()
    assert here.recv()
    assert Claim.take(result.spec, tmp_path) is None
    free = Claim.take(replace(result.spec, seed=1), tmp_path)
    assert free is not None
    free.release()
    other.kill()
    other.join()
    claim = Claim.take(result.spec, tmp_path)
    assert claim is not None
    assert Claim.take(result.spec, tmp_path) is None  # not twice in one process either
    claim.release()
    save_result(result, tmp_path)
    assert Claim.take(result.spec, tmp_path) is None  # nothing left to do


def test_a_claim_on_a_damaged_file_is_given_back(result, tmp_path):
    path = save_result(result, tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match=path.name) as caught:
        Claim.take(result.spec, tmp_path)
    path.unlink()
    claim = Claim.take(result.spec, tmp_path)  # while the error is still at hand
    assert claim is not None, caught
    claim.release()


def test_what_is_no_result_lies_in_hidden_folders(result, tmp_path):
    Claim.take(result.spec, tmp_path).release()
    paths = [*tmp_path.rglob("*.lock"), checkpoint_path(result.spec, tmp_path)]
    assert len(paths) == 2
    for path in paths:
        assert path.parent.name.startswith(".")
        ignored = subprocess.run(
            ["git", "check-ignore", "--quiet", str(STORE / path.relative_to(tmp_path))], cwd=STORE.parent, check=False
        )
        assert ignored.returncode == 0
    kept = subprocess.run(
        ["git", "check-ignore", "--quiet", str(result_path(result.spec, STORE))], cwd=STORE.parent, check=False
    )
    assert kept.returncode == 1


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


def test_a_rerun_counts_what_another_state_of_the_library_has_stored_as_missing(result, tmp_path):
    environment = result.environment | {"library": "0123456789abcdef"}
    save_result(replace(result, environment=environment), tmp_path)
    assert is_stored(result.spec, tmp_path)
    assert not is_stored(result.spec, tmp_path, rerun=True)
    claim = Claim.take(result.spec, tmp_path, rerun=True)
    assert claim is not None
    claim.release()
    save_result(result, tmp_path)
    assert is_stored(result.spec, tmp_path, rerun=True)
    assert Claim.take(result.spec, tmp_path, rerun=True) is None


def test_in_a_checkout_new_results_are_the_users_and_git_ignores_them():
    code = "from hmmlib.experiments.store import PROJECT; print(*PROJECT)"
    environment = {**os.environ, "PYTHONPATH": str(STORE.parent)}
    for mine in (None, "/somewhere"):
        changed = {**environment, "HMMLIB_MINE": mine} if mine else environment
        changed = changed if mine else {name: value for name, value in changed.items() if name != "HMMLIB_MINE"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=changed)
        assert done.stdout.split() == [mine or str(STORE.parent / "mine" / "results"), str(STORE)]
    ignored = subprocess.run(["git", "check-ignore", "--quiet", "mine/results/a.json"], cwd=STORE.parent, check=False)
    assert ignored.returncode == 0


@pytest.mark.parametrize("named", [None, "/somewhere"])
@pytest.mark.parametrize("installed", [True, False], ids=["installed", "copied"])
def test_outside_a_checkout_results_never_lie_where_the_library_is_installed(installed, named, tmp_path):
    """What is installed may be replaced; and the repository that it lies in is not the one that made its results."""
    shutil.copytree(STORE.parent / "hmmlib", tmp_path / "hmmlib", ignore=shutil.ignore_patterns("__pycache__"))
    if installed:
        (tmp_path / "hmmlib-9.9.dist-info").mkdir()
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "c"],
    ):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    code = (
        "from hmmlib.experiments.store import PROJECT; from hmmlib.experiments.provenance import git_commit;"
        "print(*PROJECT, git_commit())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "HMMLIB_MINE"} | (
        {"HMMLIB_MINE": named} if named else {}
    )
    environment |= {"PYTHONPATH": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    folder = tmp_path / "data" / "hmmlib" / "results" if installed else tmp_path / "results"
    theirs = [str(folder)] if named and not installed else []  # what lies beside a copied folder is still looked at
    assert done.stdout.split() == [named or str(folder), *theirs, "None"]


# The committed results.


@pytest.mark.parametrize(
    "result",
    [pytest.param(result, marks=slow if k % 4 else ()) for k, result in enumerate(load_results("smoke", STORE))],
    ids=lambda r: f"{r.spec.n_memory}-{r.spec.n_states}-{r.spec.seed}",
)
def test_a_stored_trial_is_what_its_spec_gives(result):
    """Exact quantities to rounding; what a trained network gives, to what another machine's rounding may change."""
    again = run_trial(result.spec)
    for name in ("redraws", "majority_rate", "seeds"):
        assert getattr(again, name) == getattr(result, name), name
    for name in (
        "built_head_accuracy",
        "built_prompt_accuracy",
    ):  # where a built score is below rounding, it decides nothing
        assert (getattr(again, name) is None) == (getattr(result, name) is None), name
    assert again.best_loss == pytest.approx(result.best_loss, rel=1e-9)
    for name in (name for name in TYPES if name.startswith(("exact_", "ladder_"))):
        assert getattr(again, name) == pytest.approx(getattr(result, name), abs=0.02), name
    assert again.network_loss == pytest.approx(result.network_loss, abs=0.1)
    assert again.divergence == pytest.approx(result.divergence, abs=0.1)


def test_there_are_smoke_trials_of_both_kinds_to_rerun():
    assert {result.spec.n_memory > 1 for result in load_results("smoke", STORE)} == {False, True}


@pytest.mark.parametrize(("panel", "trials"), [("left", 20), ("right", 5)])
def test_quick_has_all_trials_of_a_panel(panel, trials):
    wanted = panel_specs("quick", panel, trials)
    stored = {result.spec for result in load_results("quick", STORE)}
    missing = [spec.hash for spec in wanted if spec not in stored]
    assert missing == [], (
        f"{len(missing)} of {len(wanted)} are missing: python -m hmmlib trial --panel {panel} --missing"
    )


def test_each_committed_file_makes_sense_and_is_saved_to_the_same_bytes(tmp_path):
    paths = sorted(STORE.rglob("*.json"))
    assert len(paths) > 1800
    for path in paths:
        result = load_result(path)
        check_result(result)
        assert re.fullmatch(r"[0-9a-f]{12}", result.environment["commit"] or ""), "a tree with uncommitted changes"
        assert result.excess_loss > -0.02
        assert (result.prompt_accuracy is None) == (result.spec.n_memory > 1)
        again = save_result(result, tmp_path)
        assert (again.name, again.read_bytes()) == (path.name, path.read_bytes())


def test_no_trial_by_which_a_setting_was_chosen_is_among_those_that_are_shown():
    chosen = [r.spec for preset in PRESETS for r in load_results(preset, STORE / "choices")]
    shown = [r.spec for store in (STORE, STORE / "beyond") for preset in PRESETS for r in load_results(preset, store)]
    assert min(spec.seed for spec in chosen) >= 1000 > max(spec.seed for spec in shown)
    assert {trial_seeds(spec.seed)["model"] for spec in chosen}.isdisjoint(
        trial_seeds(spec.seed)["model"] for spec in shown
    )


def test_no_stray_files_in_the_store():
    files = [path.relative_to(STORE) for path in STORE.rglob("*") if path.is_file()]
    visible = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    assert all(re.fullmatch(r"((beyond|choices)/)?[a-z-]+/[0-9a-f]{16}\.json", path.as_posix()) for path in visible), (
        visible
    )
    hidden = {path.parts[-2] for path in files if path not in visible}
    assert hidden <= {".claims", ".unfinished"}
