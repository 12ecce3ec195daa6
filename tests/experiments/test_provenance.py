"""What code made a result, what is said of it, and how little a trial needs."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from runs import CHANGES, ENVIRONMENT, TINY, numbers, stored

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

pytestmark = pytest.mark.outside  # git and the files of the checkout: a copy of the library has neither


def needed(*names: str) -> set[str]:
    """The distributions that these need, themselves included."""
    found, queue = set(), list(names)
    while queue:
        name = queue.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        requirements = map(Requirement, metadata.distribution(name).requires or [])
        queue += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


BARE = """
import json, runpy, sys
sys.modules.update(dict.fromkeys(REFUSED))  # no import of these finds anything
from hmmlib import TrialSpec, run_trial
run_trial(TrialSpec("smoke", n_memory=2, **TINY))
files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "hmmlib"]
sys.argv[1:] = ["trial", "--preset", "smoke", "--n-states", "3", "--store", sys.argv[1], *CHANGES]
try:
    runpy.run_module("hmmlib", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
assert not any(sys.modules[name] for name in REFUSED)
print(json.dumps(files))
"""


def test_little_more_than_torch_is_enough_for_a_trial_and_what_it_imports_counts_as_its_source(result, tmp_path):
    """Typer, and what it needs, come with transformers."""
    allowed = needed("torch", "transformers", "numpy", "scipy", "safetensors", "pydantic", "filelock")
    modules = metadata.packages_distributions().items()
    names = {name for name, owners in modules if not {o.lower().replace("_", "-") for o in owners} & allowed}
    assert names >= {"pandas", "matplotlib", "pytest", "hypothesis"}
    code = f"REFUSED, TINY, CHANGES = {names - {'hmmlib'}!r}, {TINY!r}, {CHANGES!r}\n{BARE}"
    call = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    (found,), expected = stored(tmp_path).values(), numbers(result)
    for name in ("best_loss", "divergence"):  # exact ones are summed in another order
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=1e-12)
    assert found == expected
    files = {file.removeprefix(f"{LIBRARY}/") for file in json.loads(done.stdout.splitlines()[-1])}
    uncounted = {file for file in files - files_of(SOURCES).keys() if not file.endswith("__init__.py")}
    assert uncounted <= {"validation.py", "files.py", *provenance.NOT_COMPUTING}
    assert all((LIBRARY / source).exists() for source in (*SOURCES, *provenance.NOT_COMPUTING, *OF_NETWORKS))
    assert files_of(OF_NETWORKS).keys() < files_of(SOURCES).keys()


def test_a_result_is_judged_by_the_digest_of_the_library_where_comments_and_layout_do_not_count(
    result, tmp_path, monkeypatch
):
    copy = shutil.copytree(LIBRARY, tmp_path / "hmmlib")
    monkeypatch.setattr(provenance, "LIBRARY", copy)
    monkeypatch.setattr(provenance, "library_digest", library_digest.__wrapped__)
    assert has_changed(result) is False
    for edited, changes in (("experiments/store.py", False), ("models/hmm.py", True), ("experiments/labels.py", True)):
        before = (copy / edited).read_text()
        (copy / edited).write_text("x = 2\n")
        assert has_changed(result) is changes, edited
        (copy / edited).write_text(before)
    old = {name: value for name, value in result.environment.items() if name != "library"}
    assert has_changed(replace(result, environment=old)) is None, "the oldest results have no digest"
    code = provenance.code_of("x = 1\ndef f(y):\n    return (y\n        + 1)\n")
    same = '"""Old."""\n\nx = 1  # why\n\ndef f(y):\n    """Words\n    of two lines."""\n    # more\n    return y + 1\n'
    assert provenance.code_of(same) == code
    for other in (same.replace("y + 1", "y + 2"), same.replace("x = 1", "x = 'a'"), same.replace("x = 1", "x = 'b'")):
        assert provenance.code_of(other) != code


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_a_library_that_git_does_not_track_has_no_commit(tmp_path, monkeypatch):
    """Such as one in another repository, which is not the one that made its results; nor has any without git."""
    commit = provenance.git_commit.__wrapped__
    assert commit() is not None or not (LIBRARY.parent / ".git").exists()
    (tmp_path / "hmmlib").mkdir()
    for words in ("init -q", "-c user.name=a -c user.email=b commit -q --allow-empty -m c"):
        subprocess.run(["git", "-C", tmp_path, *words.split()], check=True)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(provenance, "LIBRARY", tmp_path / "hmmlib")
        assert commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None


def test_what_is_said_of_where_results_come_from(result):
    def of(date, commit):
        return replace(result, environment=result.environment | {"date": date, "commit": commit})

    one, other, third = of("2026-01-02", "0123456789ab"), of("2026-01-04", "0123456789ab"), of("2026-01-03", "ab+")
    assert stored_by(one) == "stored on 2026-01-02 by 0123456789ab"
    assert stored_by(one, other, third) == "stored from 2026-01-02 to 2026-01-04 by 0123456789ab and 1 other commit"
    assert stored_by(of(None, None)) == stored_by(of(None, "--output=x")) == "stored by an unknown commit"
