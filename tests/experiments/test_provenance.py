"""What code made a result: the sources that count, whether they have changed since, and what is said of it."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from runs import ENVIRONMENT, TINY

from hmmlib.experiments import provenance
from hmmlib.experiments.provenance import LIBRARY, SOURCES, has_changed, library_digest, stored_by
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import STORE, load_results
from hmmlib.experiments.trials import run_trial

pytestmark = pytest.mark.outside  # git and the files of the checkout: a copy of the library has neither
NOT_COMPUTING = {"__init__.py", "validation.py", "files.py", "experiments/fields.py", "experiments/provenance.py"}
"""What trials import and their numbers do not hang on: checks, files, and what says where a result comes from."""


@pytest.fixture(scope="module")
def result():
    torch.set_num_threads(1)
    return run_trial(TrialSpec("smoke", **TINY))


def test_the_sources_that_count_are_those_that_a_trial_runs():
    code = (
        "import json, sys; from hmmlib.experiments.specs import TrialSpec; from hmmlib.experiments.trials import run_trial\n"
        f"for m in (1, 2): run_trial(TrialSpec('smoke', n_memory=m, **{TINY!r}))\n"
        "print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'hmmlib']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    run = {file.removeprefix(f"{LIBRARY}/") for file in json.loads(done.stdout)}
    run = {file for file in run if not file.endswith("__init__.py")}
    counted = {
        file.relative_to(LIBRARY).as_posix()
        for source in SOURCES
        for file in ((LIBRARY / source).rglob("*.py") if (LIBRARY / source).is_dir() else [LIBRARY / source])
    }
    assert run - NOT_COMPUTING <= counted
    assert all((LIBRARY / source).exists() for source in SOURCES)
    assert not any(source.startswith("companion") for source in SOURCES)


def test_comments_docstrings_and_blank_lines_are_no_change():
    source = (
        '"""Old."""\n\nx = 1  # why\n\n\ndef f(y):\n    """Words\n    of two lines."""\n    # more\n    return y + 1\n'
    )
    assert provenance.code_of(source) == "x = 1\ndef f(y):\n    return y + 1"
    assert provenance.code_of(source.replace("Words", "Other words").replace("why", "for that")) == provenance.code_of(
        source
    )
    assert provenance.code_of(source.replace("y + 1", "y + 2")) != provenance.code_of(source)
    assert provenance.code_of("x = '# no comment'\n") == "x = '# no comment'"


def library_at(monkeypatch, folder):
    """Take another folder for the library."""
    for cached in (library_digest, provenance._changed_since_commit, provenance._commit_date):
        cached.cache_clear()
        monkeypatch.setattr(provenance, cached.__name__, provenance.cache(cached.__wrapped__))
    monkeypatch.setattr(provenance, "LIBRARY", folder)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A small library in a repository of its own: its folder, and the commit that it is at."""

    def git(*words: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *names, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    for name in (*SOURCES, "notebook"):
        path = tmp_path / name if name.endswith(".py") else tmp_path / name / "it.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "all", "--date", "2020-01-02T12:00:00")
    library_at(monkeypatch, tmp_path)
    return tmp_path, git("rev-parse", "--short=12", "HEAD").strip()


def of(result, **environment):
    """A result that names this commit or digest and no other."""
    kept = {name: value for name, value in result.environment.items() if name not in ("library", "date")}
    return replace(result, environment=kept | environment)


@pytest.mark.parametrize(
    ("edited", "changed"),
    [(None, False), ("notebook/it.py", False), ("models/it.py", True), ("experiments/labels.py", True)],
)
def test_an_older_result_is_judged_by_its_commit(edited, changed, repository, result):
    folder, commit = repository
    if edited:
        (folder / edited).write_text("2\n")
    assert has_changed(of(result, commit=commit)) is changed
    assert has_changed(of(result, commit=f"{commit}+")) is (True if changed else None), "it was no clean tree"
    since = "the library has changed since" if changed else "by the library as it is"
    assert stored_by(of(result, commit=commit)).endswith(f" by {commit}{';' if changed else ','} {since}")


@pytest.mark.parametrize("edited", [None, "training/it.py", "notebook/it.py"])
def test_a_newer_result_is_judged_by_its_digest(edited, repository, result, monkeypatch):
    folder, _ = repository
    made = of(result, library=library_digest(), date="2026-01-02", commit="0123456789ab")
    library_at(monkeypatch, folder)
    if edited:
        (folder / edited).write_text("2\n")
    changed = edited == "training/it.py"
    assert has_changed(made) is changed
    since = "; the library has changed since" if changed else ", by the library as it is"
    assert stored_by(made) == f"stored on 2026-01-02 by 0123456789ab{since}"


@pytest.mark.parametrize("commit", [None, "0123456789ab", "HEAD", "--output=made", 7])
def test_where_the_commit_is_not_at_hand_it_cannot_be_told(commit, repository, result):
    made = of(result, commit=commit)
    known = "0123456789ab" if commit == "0123456789ab" else "7" if commit == 7 else "an unknown commit"
    assert has_changed(made) is None
    assert stored_by(made) == f"stored by {known}; whether the library has changed since cannot be told here"
    assert not (repository[0] / "made").exists()


def test_what_lies_in_another_repository_is_not_judged_by_it(repository, result, monkeypatch):
    folder, commit = repository
    (folder / "environment").mkdir()
    library_at(monkeypatch, folder / "environment")
    assert has_changed(of(result, commit=commit)) is None


def test_without_git_it_cannot_be_told(result, monkeypatch):
    monkeypatch.setenv("PATH", "")
    library_at(monkeypatch, LIBRARY)
    assert has_changed(of(result, commit="0123456789ab")) is None
    assert has_changed(result) is False


def test_a_new_result_says_when_and_by_what_library(result):
    assert result.environment["library"] == library_digest()
    assert has_changed(result) is False
    assert stored_by(result) == (
        f"stored on {result.environment['date']} by {result.environment['commit']}, by the library as it is"
    )


def test_the_committed_results_are_called_stored():
    for made in load_results("smoke", STORE):
        assert stored_by(made).startswith("stored ")
        assert made.environment["commit"] in stored_by(made)
