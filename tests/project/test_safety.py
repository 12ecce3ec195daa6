"""Data stay data: nothing is unpickled, no text is run, nobody else is let in, and `make install` checks hashes."""

import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
import yaml
from record import ROOT, slow

from hmmlib.experiments.store import load_result, load_results
from hmmlib.training import checkpoints

BIN = Path(sys.executable).parent
RULES = "S102,S301,S302,S307,S403,S506,S602,S604,S605"
"""ruff's, of pickles and their like, of text that is run as code or by a shell, and of YAML that makes objects."""
WORDS = re.compile(
    r"allow_pickle=(?!False)|\b(cloudpickle|joblib|run_path|getoutput|yaml\.(full|unsafe)_load|torch\.(load|save))\b"
)
"""What no rule of ruff is about."""
DANGERS = [
    *("import shelve", "import marshal as m\nm.loads(a)", "exec(a)", "import joblib", "torch.load(a)"),
    *("import subprocess\nsubprocess.run(a, shell=True)", "import yaml\nyaml.load(a, yaml.Loader)"),
]
OTHER = "0" * 64
"""The hash of no file."""


def dangerous(*folders: Path) -> set[Path]:
    """Which programs and notebooks have one of the dangers above."""
    call = [BIN / "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache", "--exit-zero", "--preview"]
    call += ["--select", RULES, "--output-format", "json", *folders]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    programs = [path for folder in folders for kind in ("*.py", "*.ipynb") for path in folder.rglob(kind)]
    found = {Path(one["filename"]) for one in json.loads(done.stdout)}
    return found | {path for path in programs if WORDS.search(path.read_text())}


@pytest.mark.skipif(not (BIN / "ruff").is_file(), reason="there is no ruff")
def test_nothing_is_unpickled_and_no_text_is_run(tmp_path):
    """But for this file, which makes the files that must be refused, and two that run cells of the notebooks."""
    folders = [ROOT / name for name in ("hmmlib", "book", "benchmarks", "tests", "notebooks")]
    cells = {ROOT / "tests" / name for name in ("book/test_readers_parameters.py", "project/test_project.py")}
    assert dangerous(*folders) == {Path(__file__), *cells}
    for number, text in enumerate(DANGERS):
        (tmp_path / f"{number}.py").write_text(f"{text}\n")
    assert dangerous(tmp_path) == {*tmp_path.iterdir()}


@pytest.mark.parametrize(
    "write", [lambda path, mark: path.write_bytes(pickle.dumps(mark)), lambda path, mark: torch.save({"w": mark}, path)]
)
def test_a_checkpoint_or_a_result_with_a_pickle_inside_is_refused_by_name(write, tmp_path):
    made = tmp_path / "made"
    mark = type("Mark", (), {"__reduce__": lambda _: (os.mkdir, (str(made),))})()  # unpickled, it makes a folder
    path = tmp_path / "one.safetensors"
    write(path, mark)
    with pytest.warns(UserWarning, match=r"one\.safetensors is no whole checkpoint and is passed over: ."):
        assert checkpoints.load(path, {}) is None
    assert checkpoints.broken(path).exists()
    path = tmp_path / "smoke" / f"{'0' * 16}.json"
    path.parent.mkdir()
    write(path, mark)
    for load in (lambda: load_result(path), lambda: load_results("smoke", tmp_path)):
        with pytest.raises(ValueError, match=f"{path.name} is no readable result: ."):
            load()
    assert not made.exists(), "it was unpickled"


def test_only_two_jobs_that_run_nobody_elses_code_may_publish_and_the_book_is_served_on_loopback_alone():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    may = {"publish": {"pages": "write", "id-token": "write"}, "executed": {"contents": "write"}}
    for name, job in jobs.items():
        commands = {step["run"] for step in job["steps"] if "run" in step}
        assert job.get("permissions") == may.get(name)
        assert "${{" not in "".join(commands)
        assert all(step.get("uses", "actions/").startswith("actions/") for step in job["steps"])
        if name in may:
            assert job["if"] == "github.ref == 'refs/heads/main' && github.event_name != 'pull_request'"
            assert commands <= {".ci/publish-executed build/viewers"}
        else:
            assert job["steps"][0]["with"] == {"persist-credentials": False}
    assert "-m http.server 8000 --bind 127.0.0.1 " in (ROOT / "Makefile").read_text()


def wheel(folder: Path, name: str, version: str) -> str:
    """Make a wheel of no content; its hash."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("build", "known", "installed"),
    [
        ("2.13.0", True, []),
        ("2.13.0+cpu", False, []),
        pytest.param("2.13.0+cpu", True, ["a-1.0", "torch-2.13.0+cpu"], marks=slow),
    ],
)
def test_no_file_of_another_hash_is_installed_but_a_build_of_torch_by_its_version(build, known, installed, tmp_path):
    """The lock cannot know the hashes of builds for one kind of machine, nor what only other builds need."""
    wheel(tmp_path, "torch", build)
    a = wheel(tmp_path, "a", "1.0")
    hashes = {"a==1.0": a if known else OTHER, "torch==2.13.0": OTHER}
    hashes |= {"triton==1.0": OTHER} if "+" in build else {}
    lock, target = tmp_path / "requirements.lock", tmp_path / "to"
    lock.write_text("".join(f"{one} \\\n    --hash=sha256:{found}\n" for one, found in hashes.items()))
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    own |= dict(PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path), PIP_TARGET=str(target))
    call = [ROOT / ".ci" / "install", BIN / "pip"]
    done = subprocess.run(call, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    there = sorted(path.name.removesuffix(".dist-info") for path in target.glob("*.dist-info"))
    assert (done.returncode == 0, there) == (bool(installed), installed)
    assert ("DO NOT MATCH THE HASHES" in done.stderr) == (not installed)
