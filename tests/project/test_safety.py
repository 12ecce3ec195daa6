"""Data stay data: nothing is unpickled, no text is run, nobody else is let in, and `make install` checks hashes."""

import hashlib
import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
import yaml
from record import ROOT, slow

from hmmbook.experiments.store import load_result, load_results

BIN = Path(sys.executable).parent
RULES = "S102,S301,S302,S307,S403,S506,S602,S604,S605"
"""ruff's rules on pickles and their like, on text that is run as code or by a shell, and on YAML that makes objects."""
DANGEROUS_NAMES = re.compile(
    r"allow_pickle=(?!False)|weights_only=(?!True)|\b(cloudpickle|joblib|run_path|getoutput|yaml\.(full|unsafe)_load)\b"
)
"""What no rule of ruff is about."""
LOADS_WEIGHTS = re.compile(r"\btorch\.load\((?!.*weights_only=True)")
"""A call of torch.load that would unpickle whatever it finds."""
DANGERS = [
    "import shelve",
    "import marshal as m\nm.loads(a)",
    "exec(a)",
    "import joblib",
    "torch.load(a)",
    "import subprocess\nsubprocess.run(a, shell=True)",
    "import yaml\nyaml.load(a, yaml.Loader)",
]
OTHER_HASH = "0" * 64
"""The hash of no file."""


def dangerous(*folders: Path) -> set[Path]:
    """The programs and notebooks that have one of the dangers above."""
    command = [BIN / "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache", "--exit-zero", "--preview"]
    command += ["--select", RULES, "--output-format", "json", *folders]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = {Path(finding["filename"]) for finding in json.loads(process.stdout)}
    for folder in folders:
        for path in [*folder.rglob("*.py"), *folder.rglob("*.ipynb")]:
            text = path.read_text()
            if DANGEROUS_NAMES.search(text) or LOADS_WEIGHTS.search(text):
                paths.add(path)
    return paths


@pytest.mark.skipif(not (BIN / "ruff").is_file(), reason="there is no ruff")
def test_nothing_is_unpickled_and_no_text_is_run():
    folders = [ROOT / name for name in ("hmmlib", "book", "benchmarks", "tests", "notebooks")]
    # This file makes the files that must be refused, and two run cells of the notebooks.
    exceptions = {"project/test_safety.py", "project/test_project.py", "support/lessons.py"}
    assert dangerous(*folders) == {ROOT / "tests" / name for name in exceptions}


@pytest.mark.skipif(not (BIN / "ruff").is_file(), reason="there is no ruff")
def test_a_danger_is_found(tmp_path):
    paths = set()
    for number, program in enumerate(DANGERS):
        path = tmp_path / f"{number}.py"
        path.write_text(f"{program}\n")
        paths.add(path)
    assert dangerous(tmp_path) == paths


class MakesFolder:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, folder: Path):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def write_pickle(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value))


def write_torch_file(path: Path, value: object) -> None:
    torch.save({"w": value}, path)


@pytest.mark.parametrize("write", [write_pickle, write_torch_file])
def test_a_result_with_a_pickle_inside_is_refused_by_name(write, tmp_path):
    folder = tmp_path / "made"
    path = tmp_path / "smoke" / f"{'0' * 16}.json"
    path.parent.mkdir()
    write(path, MakesFolder(folder))
    with pytest.raises(ValueError, match=path.name):
        load_result(path)
    with pytest.raises(ValueError, match=path.name):
        load_results("smoke", tmp_path)
    assert not folder.exists(), "it was unpickled"


def test_only_two_jobs_that_run_nobody_elses_code_may_publish():
    permissions = {"publish": {"pages": "write", "id-token": "write"}, "executed": {"contents": "write"}}
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    for name, job in workflow["jobs"].items():
        commands = {step["run"] for step in job["steps"] if "run" in step}
        actions = [step["uses"] for step in job["steps"] if "uses" in step]
        assert job.get("permissions") == permissions.get(name)
        assert all(action.startswith("actions/") for action in actions)
        assert not any("${{" in command for command in commands)
        if name in permissions:
            assert job["if"] == "github.ref == 'refs/heads/main' && github.event_name != 'pull_request'"
            assert commands <= {".ci/publish-executed build/viewers"}
        else:
            assert job["steps"][0]["with"] == {"persist-credentials": False}


def test_the_book_is_served_on_loopback_alone():
    assert "-m http.server 8000 --bind 127.0.0.1 " in (ROOT / "Makefile").read_text()


def make_wheel(folder: Path, name: str, version: str) -> str:
    """Make a wheel of no content. Gives its hash."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("build", "known", "installed"),
    [
        ("2.13.0", True, ["a-1.0"]),
        ("2.13.0+cpu", False, []),
        pytest.param("2.13.0+cpu", True, ["a-1.0", "torch-2.13.0+cpu"], marks=slow),
    ],
)
def test_no_file_of_another_hash_is_installed_but_a_build_of_torch_by_its_version(build, known, installed, tmp_path):
    """The lock cannot know the hashes of builds for one kind of machine, nor what only other builds need."""
    make_wheel(tmp_path, "torch", build)
    hash_of_a = make_wheel(tmp_path, "a", "1.0")
    hashes = {"a==1.0": hash_of_a if known else OTHER_HASH, "torch==2.13.0": OTHER_HASH}
    if "+" in build:
        hashes["triton==1.0"] = OTHER_HASH
    lock = [f"{name} \\\n    --hash=sha256:{digest}\n" for name, digest in hashes.items()]
    (tmp_path / "requirements.lock").write_text("".join(lock))
    target = tmp_path / "to"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    environment["PIP_CONFIG_FILE"] = os.devnull
    environment["PIP_NO_INDEX"] = "1"
    environment["PIP_FIND_LINKS"] = str(tmp_path)
    environment["PIP_TARGET"] = str(target)
    pip = tmp_path / "bin" / "pip"  # Beside it there is no uv, which would not take these settings.
    pip.parent.mkdir()
    pip.write_text(f'#!/bin/sh\nexec "{BIN / "pip"}" "$@"\n')
    pip.chmod(0o755)
    command = [ROOT / ".ci" / "install", pip]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert sorted(path.name.removesuffix(".dist-info") for path in target.glob("*.dist-info")) == installed
    is_complete = any(name.startswith("torch") for name in installed)
    assert (process.returncode == 0) == is_complete
    assert ("DO NOT MATCH THE HASHES" in process.stderr) == (not is_complete)


def stand_in(path, text):
    """Write an executable script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize(
    ("system", "has_gpu", "backend", "expected"),
    [
        ("Linux", False, "", "cpu"),
        ("Linux", True, "", "of the lock"),
        ("Linux", True, "rocm7.1", "rocm7.1"),
        ("Darwin", False, "", "of the lock"),
        ("Darwin", False, "cpu", "of the lock"),
    ],
)
def test_the_build_of_torch_suits_the_machine(system, has_gpu, backend, expected, tmp_path):
    (tmp_path / "requirements.lock").write_text("torch==2.13.0 \\\n    --hash=sha256:0\n")
    stand_in(tmp_path / "bin" / "pip", """echo '"version": "2.13.0"'""")
    stand_in(tmp_path / "bin" / "uv", f'echo "$@" >> {shlex.quote(str(tmp_path / "log"))}')
    stand_in(tmp_path / "commands" / "uname", f"echo {system}")
    if has_gpu:
        stand_in(tmp_path / "commands" / "nvidia-smi", "")
    environment = {"PATH": f"{tmp_path / 'commands'}:/usr/bin:/bin", "UV_TORCH_BACKEND": backend}
    command = [ROOT / ".ci" / "install", tmp_path / "bin" / "pip"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    last_call = (tmp_path / "log").read_text().splitlines()[-1]
    named = re.search(r"--torch-backend (\S+) torch==2.13.0$", last_call)
    assert (named[1] if named else "of the lock") == expected
    assert ("--require-hashes" in last_call) == (expected == "of the lock")
