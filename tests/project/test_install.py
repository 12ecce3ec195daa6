"""`make install` takes no file whose hash is not in the lock, and builds nothing. On empty wheels, without network.

In `make test`, test_a_file_with_another_hash_is_refused_and_nothing_installed stands for the slow ones.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from record import slow

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
OTHER = "0" * 64
"""The hash of no file."""
GPU = {"nvidia-cublas": ("1.0", OTHER), "triton": ("1.0", OTHER)}


def wheel(folder: Path, name: str, version: str) -> str:
    """Make a wheel of no content; its hash."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def install(files, tmp_path):
    """Install from `files` what a lock of these names, versions and hashes has: (how it ended, what is there)."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    own |= dict(
        PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(files), PIP_TARGET=str(tmp_path / "to")
    )

    def run(lock: dict[str, tuple[str, str]], **also: str):
        lines = [f"{name}=={version} \\\n    --hash=sha256:{found}\n" for name, (version, found) in lock.items()]
        (tmp_path / "requirements.lock").write_text("".join(lines))
        call = [ROOT / ".ci" / "install", BIN / "pip"]
        done = subprocess.run(call, cwd=tmp_path, env=own | also, capture_output=True, text=True, check=False)
        return done, sorted(path.name.removesuffix(".dist-info") for path in (tmp_path / "to").glob("*.dist-info"))

    return run


def test_a_file_with_another_hash_is_refused_and_nothing_installed(install, files):
    b, torch = wheel(files, "b", "1.0"), wheel(files, "torch", "2.13.0+cpu")
    wheel(files, "a", "1.0")
    done, there = install({"a": ("1.0", OTHER), "b": ("1.0", b), "torch": ("2.13.0", torch)})
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "a==1.0" in done.stderr
    assert there == []


@slow
@pytest.mark.parametrize("build", ["", "+cpu"])
def test_torch_comes_by_its_hash_or_where_the_lock_cannot_know_the_build_by_its_version_and_alone(
    build, install, files
):
    a, torch = wheel(files, "a", "1.0"), wheel(files, "torch", f"2.13.0{build}")
    done, there = install({"a": ("1.0", a), "torch": ("2.13.0", OTHER if build else torch), **(GPU if build else {})})
    assert done.returncode == 0, done.stderr
    assert there == ["a-1.0", f"torch-2.13.0{build}"]


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has no packages for GPUs")
def test_torch_for_cpus_comes_by_uv_and_all_else_by_its_hash(install, files, tmp_path):
    """uv is here a program that notes what it is given."""
    program, notes = tmp_path / "bin" / "uv", tmp_path / "told.txt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$UV_TORCH_BACKEND: $*" > {notes}\n')
    program.chmod(0o755)
    also = {"UV_TORCH_BACKEND": "cpu", "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    a, others = wheel(files, "a", "1.0"), {"torch": ("2.13.0", OTHER), **GPU}
    done, there = install({"a": ("1.0", OTHER), **others}, **also)
    assert done.returncode
    assert (there, notes.exists()) == ([], False), "with a wrong hash nothing comes, not even torch"
    done, there = install({"a": ("1.0", a), **others}, **also)
    assert (done.returncode, there) == (0, ["a-1.0"]), done.stderr
    python = BIN / "python"
    assert notes.read_text() == f"cpu: pip install --quiet --python {python} --only-binary :all: torch==2.13.0\n"


@slow
def test_nothing_is_built_even_with_the_right_hash(install, files):
    torch, source = wheel(files, "torch", "2.13.0"), files / "a-1.0.tar.gz"
    source.write_bytes(b"what would be unpacked")
    a = hashlib.sha256(source.read_bytes()).hexdigest()
    done, there = install({"a": ("1.0", a), "torch": ("2.13.0", torch)})
    assert done.returncode != 0
    assert "No matching distribution found for a==1.0" in done.stderr
    assert there == []
