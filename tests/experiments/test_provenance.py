"""What code made a result: the sources that count, and what is said of it."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from runs import ENVIRONMENT, TINY

from hmmlib.experiments import provenance
from hmmlib.experiments.provenance import (
    LIBRARY,
    OF_NETWORKS,
    SOURCES,
    files_of,
    has_changed,
    library_digest,
    stored_by,
)
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import run_trial

pytestmark = pytest.mark.outside  # git and the files of the checkout: a copy of the library has neither


@pytest.fixture(scope="module")
def result():
    torch.set_num_threads(1)
    return run_trial(TrialSpec("smoke", **TINY))


def test_the_sources_that_count_are_those_that_a_trial_runs():
    code = (
        "import json, sys; from hmmlib import TrialSpec, run_trial\n"
        f"for m in (1, 2): run_trial(TrialSpec('smoke', n_memory=m, **{TINY!r}))\n"
        "print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'hmmlib']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    run = {file.removeprefix(f"{LIBRARY}/") for file in json.loads(done.stdout)}
    uncounted = {file for file in run - files_of(SOURCES).keys() if not file.endswith("__init__.py")}
    assert uncounted <= {"validation.py", "files.py", *provenance.NOT_COMPUTING}
    assert all((LIBRARY / source).exists() for source in (*SOURCES, *provenance.NOT_COMPUTING, *OF_NETWORKS))
    assert files_of(OF_NETWORKS).keys() < files_of(SOURCES).keys()


def test_comments_docstrings_and_blank_lines_are_no_change():
    source = (
        '"""Old."""\n\nx = 1  # why\n\n\ndef f(y):\n    """Words\n    of two lines."""\n    # more\n    return y + 1\n'
    )
    code = provenance.code_of("x = 1\ndef f(y):\n    return (y\n        + 1)\n")
    assert provenance.code_of(source) == code
    assert provenance.code_of(source.replace("Words", "Other words").replace("why", "for that")) == code
    assert provenance.code_of(source.replace("y + 1", "y + 2")) != code
    assert provenance.code_of("x = 'a'\n") != provenance.code_of("x = 'b'\n")


@pytest.mark.parametrize(
    ("edited", "changes"), [("models/hmm.py", True), ("experiments/labels.py", True), ("experiments/store.py", False)]
)
def test_a_result_is_judged_by_the_digest_of_the_library(edited, changes, result, tmp_path, monkeypatch):
    for name in {*files_of(SOURCES), "experiments/store.py"}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((LIBRARY / name).read_text())
    monkeypatch.setattr(provenance, "LIBRARY", tmp_path)
    monkeypatch.setattr(provenance, "library_digest", library_digest.__wrapped__)
    assert has_changed(result) is False
    (tmp_path / edited).write_text("x = 2\n")
    assert has_changed(result) is changes
    old = {name: value for name, value in result.environment.items() if name != "library"}
    assert has_changed(replace(result, environment=old)) is None, "the oldest results have no digest"


def test_what_is_said_of_where_results_come_from(result):
    def of(date, commit):
        return replace(result, environment=result.environment | {"date": date, "commit": commit})

    one, other, third = of("2026-01-02", "0123456789ab"), of("2026-01-04", "0123456789ab"), of("2026-01-03", "ab+")
    assert stored_by(one) == "stored on 2026-01-02 by 0123456789ab"
    assert stored_by(one, other, third) == "stored from 2026-01-02 to 2026-01-04 by 0123456789ab and 1 other commit"
    assert stored_by(of(None, None)) == stored_by(of(None, "--output=x")) == "stored by an unknown commit"
