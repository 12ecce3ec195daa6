"""The result store: files that survive, files that are refused, claims; what is committed; what code made a result."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from record import slow
from runs import CHANGES, ENVIRONMENT, TINY, numbers, stored

from hmmlib import TrialSpec, is_stored, load_result, load_results, panel_specs, result_path, save_result
from hmmlib.experiments import provenance
from hmmlib.experiments import store as of_store
from hmmlib.experiments.provenance import LIBRARY, SOURCES, files_of, has_changed, stored_by
from hmmlib.experiments.store import STORE, Claim, checkpoint_path
from hmmlib.experiments.trials import run_trial, trial_seeds

pytestmark = pytest.mark.outside

SPEC = TrialSpec("smoke", **TINY)
HOLDER = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(0); print('held', flush=True)"
REFUSED = ["jaxtyping", "matplotlib", "numba", "pandas", "peft", "platformdirs", "ray", "threadpoolctl"]
BARE = f"""
import json, runpy, sys
sys.modules.update(dict.fromkeys({REFUSED}))  # no import of these finds anything
sys.argv[1:] = ["trial", "--preset", "smoke", "--n-states", "3", "--store", sys.argv[1], *{CHANGES}]
try:
    runpy.run_module("hmmlib", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
assert not any(sys.modules[name] for name in {REFUSED})
print(json.dumps([module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "hmmlib"]))
"""


def test_a_result_survives_the_store(result, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"store must be a folder .* there is no .*nothing yet"):
        load_results("smoke", tmp_path / "nothing yet")
    path = save_result(result, tmp_path)
    assert path == result_path(SPEC, tmp_path) == tmp_path / "smoke" / f"{SPEC.hash}.json"
    assert load_result(path) == result
    assert [is_stored(spec, tmp_path) for spec in (SPEC, replace(SPEC, seed=1))] == [True, False]
    assert os.listdir(path.parent) == [path.name]
    assert save_result(replace(result, redraws=3), tmp_path) == path  # overwrites
    monkeypatch.chdir(path.parent)
    assert load_result(path.name).redraws == 3, "it is read from where it lies"


def test_what_is_no_result_is_refused_by_name_whoever_reads_it_and_no_claim_is_kept(result, tmp_path):
    """Each way to be none is tried in tests/bad_input."""
    path = save_result(result, tmp_path)
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    for call in (is_stored, Claim.take):
        with pytest.raises(ValueError, match=f"{path.name} is no readable result: .*edited or renamed") as caught:
            call(SPEC, tmp_path)
    path.unlink()
    assert Claim.take(SPEC, tmp_path) is not None, f"{caught} has kept its claim"
    save_result(result, tmp_path).parent.rename(tmp_path / "quick")
    with pytest.raises(ValueError, match=f"quick/{path.name} is no readable result: its preset is smoke"):
        load_results("quick", tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "smoke").write_text("mine")
    for store in (tmp_path / "link", tmp_path):
        with pytest.raises(NotADirectoryError, match=r"store must be a folder, or not yet there; .*/(link|smoke) is"):
            load_results("smoke", store)


def test_results_come_ordered_and_what_a_killed_writer_leaves_is_none(result, tmp_path):
    """That a file has its name only when it is whole is tried in tests/faults."""
    specs = [replace(SPEC, n_states=n, seed=seed) for n in (2, 3, 10) for seed in (0, 1, 12)]
    order = [replace(result, spec=spec, seeds=trial_seeds(spec.seed)) for spec in specs]
    order.append(run_trial(replace(SPEC, n_states=2, n_memory=2)))
    for one in reversed(order):
        path = save_result(one, tmp_path)
    path.rename(path.with_name(f".{path.stem}.x.tmp"))
    assert load_results("smoke", tmp_path) == order[1:]
    assert load_results("quick", tmp_path) == []


def test_one_process_at_a_time_holds_a_claim_and_its_death_gives_it_up(result, tmp_path):
    take = partial(Claim.take, SPEC, tmp_path)
    (mine := take()).release()
    call = [sys.executable, "-c", f"{HOLDER}; sys.stdin.read()", mine.lock_file]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert take() is None
        assert Claim.take(replace(SPEC, seed=1), tmp_path) is not None
        other.kill()
    claim = take()
    assert claim is not None
    assert take() is None, "not twice in one process either"
    claim.release()
    save_result(result, tmp_path)
    assert take() is None, "nothing is left to do"


def test_a_store_is_written_to_in_one_folder_and_read_in_all(result, tmp_path):
    mine, store = tmp_path / "mine", (tmp_path / "mine", tmp_path / "theirs")
    other = replace(result, spec=replace(SPEC, seed=1), seeds=trial_seeds(1))
    theirs = save_result(result, store[1])
    assert result_path(SPEC, store) == theirs
    assert is_stored(SPEC, store)
    assert checkpoint_path(SPEC, store).is_relative_to(mine)
    assert save_result(other, store) == result_path(other.spec, mine)
    assert load_results("smoke", store) == [result, other]
    newer = replace(result, redraws=3)
    assert save_result(newer, store) == result_path(SPEC, store) != theirs
    assert load_result(theirs) == result
    theirs.write_text("{")
    assert load_results("smoke", store) == [newer, other], "what lies behind is not read"


def test_new_results_are_the_users_and_never_lie_where_the_library_is_installed(tmp_path, monkeypatch):
    """What is installed may be replaced; what lies beside a copied folder is still looked at where another is named."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for beside, named, folders in (
        ("pyproject.toml", "", ["mine/results", "results"]),
        ("pyproject.toml", "/somewhere", ["/somewhere", "results"]),
        ("hmmlib-9.9.dist-info", "", [tmp_path / "data/hmmlib/results", of_store.PACKAGED]),
        ("hmmlib-9.9.dist-info", "/somewhere", ["/somewhere", of_store.PACKAGED]),
        ("a copy", "", ["results"]),
        ("a copy", "/somewhere", ["/somewhere", "results"]),
    ):
        root = tmp_path / f"with {beside}"
        root.mkdir(exist_ok=True)
        (root / beside).touch()
        monkeypatch.setattr(of_store, "ROOT", root)
        monkeypatch.setattr(of_store, "STORE", root / "results")
        monkeypatch.setenv("HMMLIB_MINE", named)
        assert of_store._of_project() == tuple(root / folder for folder in folders)


@pytest.mark.parametrize("some", [slice(0, None, 9), pytest.param(slice(None), marks=slow)], ids=["two", "all"])
def test_a_stored_trial_is_what_its_spec_gives(some):
    """Exact quantities to rounding; what a trained network gives, to what another machine's rounding may change.

    In short: one of each kind of model."""
    chosen = load_results("smoke", STORE)[some]
    assert {one.spec.n_memory > 1 for one in chosen} == {False, True}
    for one in chosen:
        again = vars(run_trial(one.spec))
        bounds = dict.fromkeys((name for name in again if name.startswith(("exact_", "ladder_"))), 0.02)
        bounds |= dict(redraws=0, majority_rate=0, best_loss=1e-9, network_loss=0.1, divergence=0.1)
        for name, bound in bounds.items():
            assert again[name] == pytest.approx(getattr(one, name), abs=bound), name
        for name in ("built_head_accuracy", "built_prompt_accuracy"):  # a score below rounding decides nothing
            assert (again[name] is None) == (getattr(one, name) is None), name


def test_each_committed_file_makes_sense_and_is_saved_to_the_same_bytes_and_none_is_astray_or_missing(tmp_path):
    """Trials by which a setting was chosen have seeds of their own: none of them is among those that are shown."""
    files = [path for path in STORE.rglob("*") if path.is_file() and not {".claims", ".unfinished"} & {*path.parts}]
    assert len(files) > 1800
    quick = set()
    for path in files:
        name, one = path.relative_to(STORE).as_posix(), load_result(path)
        assert re.fullmatch(r"((beyond|choices|refits)/)?[a-z-]+/[0-9a-f]{16}\.json", name)
        assert re.fullmatch(r"[0-9a-f]{12}", one.environment["commit"] or ""), "a tree with uncommitted changes"
        assert one.excess_loss > -0.02
        again = save_result(one, tmp_path)
        assert (again.name, again.read_bytes()) == (path.name, path.read_bytes())
        assert ("choices" in path.parts) == (1000 <= one.spec.seed < 3000)
        quick |= {one.spec} if name.startswith("quick/") else set()
    missing = {*panel_specs("quick", "left", 20), *panel_specs("quick", "right", 5)} - quick
    assert not missing, f"{len(missing)} are missing: python -m hmmlib trial --panel left --missing"


def test_little_more_than_torch_is_enough_for_a_trial_and_what_it_imports_counts_as_its_source(result, tmp_path):
    call = [sys.executable, "-c", BARE, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    (found,), expected = stored(tmp_path).values(), numbers(result)
    for name in ("best_loss", "divergence"):  # exact ones are summed in another order
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=1e-12)
    assert found == expected
    files = {file.removeprefix(f"{LIBRARY}/") for file in json.loads(done.stdout.splitlines()[-1])}
    uncounted = {file for file in files - files_of(SOURCES).keys() if not file.endswith("__init__.py")}
    assert uncounted <= {"validation.py", "files.py", "terminal.py", *provenance.NOT_COMPUTING}
    assert all((LIBRARY / source).exists() for source in (*SOURCES, *provenance.NOT_COMPUTING, *provenance.OF_NETWORKS))
    assert files_of(provenance.OF_NETWORKS).keys() < files_of(SOURCES).keys()


def test_a_result_is_judged_by_the_code_of_what_computes_and_the_oldest_not_at_all(result, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "LIBRARY", copy := shutil.copytree(LIBRARY, tmp_path / "hmmlib"))
    monkeypatch.setattr(provenance, "library_digest", provenance.library_digest.__wrapped__)
    assert has_changed(result) is False
    for edited, changes in (("experiments/store.py", False), ("models/hmm.py", True), ("experiments/labels.py", True)):
        before = (copy / edited).read_text()
        (copy / edited).write_text("x = 2\n")
        assert has_changed(result) is changes, edited
        (copy / edited).write_text(before)
    old = {name: value for name, value in result.environment.items() if name != "library"}
    assert has_changed(replace(result, environment=old)) is None


def test_comments_docstrings_and_layout_do_not_count_as_code():
    code = provenance.code_of("x = 1\ndef f(y):\n    return (y\n        + 1)\n")
    assert code.endswith("decorator_list=[])], type_ignores=[])")  # in any Python
    same = '"""Old."""\n\nx = 1  # why\n\ndef f(y):\n    """Words\n    of two lines."""\n    # more\n    return y + 1\n'
    assert provenance.code_of(same) == code
    for other in (same.replace("y + 1", "y + 2"), same.replace("x = 1", "x = 'a'"), same.replace("x = 1", "x = 'b'")):
        assert provenance.code_of(other) != code


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_a_library_that_git_does_not_track_has_no_commit(tmp_path, monkeypatch):
    """Such as one in another repository, which is not the one that made its results; nor has any without git."""
    commit = provenance.git_commit.__wrapped__
    assert commit() is not None or not (LIBRARY.parent / ".git").exists()
    for words in ("init -q", "-c user.name=a -c user.email=b commit -q --allow-empty -m c"):
        subprocess.run(["git", "-C", tmp_path, *words.split()], check=True)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(provenance, "LIBRARY", tmp_path)
        assert commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None


def test_what_is_said_of_where_results_come_from(result):
    """Of one result, and of several of one commit, it is said on the command line and in the notebooks."""
    noted = ("2026-01-02", "0123456789ab"), ("2026-01-04", "0123456789ab"), ("2026-01-03", "ab+"), (None, "--output=x")
    *known, odd = (replace(result, environment=dict(date=date, commit=commit)) for date, commit in noted)
    assert stored_by(*known) == "stored from 2026-01-02 to 2026-01-04 by 0123456789ab and 1 other commit"
    assert stored_by(odd) == "stored by an unknown commit"
