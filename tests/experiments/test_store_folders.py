"""Where results are written and where they are looked for: the user's folder, the committed store, and reruns."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from runs import TINY

from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import (
    STORE,
    Claim,
    Store,
    checkpoint_path,
    is_stored,
    load_result,
    load_results,
    result_path,
    save_result,
)
from hmmlib.experiments.trials import run_trial, trial_seeds


@pytest.fixture(scope="module")
def result():
    torch.set_num_threads(1)
    return run_trial(TrialSpec("smoke", **TINY))


def test_a_store_is_written_to_in_one_folder_and_read_in_all(result, tmp_path):
    store = Store(tmp_path / "mine", (tmp_path / "theirs",))
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


@pytest.mark.outside
def test_in_a_checkout_new_results_are_the_users_and_git_ignores_them():
    code = "from hmmlib.experiments.store import PROJECT; print(*PROJECT.folders)"
    environment = {**os.environ, "PYTHONPATH": str(STORE.parent)}
    for mine in (None, "/somewhere"):
        changed = {**environment, "HMMLIB_MINE": mine} if mine else environment
        changed = changed if mine else {name: value for name, value in changed.items() if name != "HMMLIB_MINE"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=changed)
        assert done.stdout.split() == [mine or str(STORE.parent / "mine" / "results"), str(STORE)]
    ignored = subprocess.run(["git", "check-ignore", "--quiet", "mine/results/a.json"], cwd=STORE.parent, check=False)
    assert ignored.returncode == 0


@pytest.mark.outside
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
        "from hmmlib.experiments.store import PROJECT; from hmmlib.experiments.trials import git_commit;"
        "print(*PROJECT.folders, git_commit())"
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
