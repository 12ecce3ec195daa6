"""`make install` takes no file whose hash is not in the lock, and builds nothing. On empty wheels, without network.

In `make test`, test_a_file_with_another_hash_is_refused_and_nothing_installed stands for the slow ones.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from record import slow

ROOT = Path(__file__).resolve().parents[2]
PIP = Path(sys.executable).parent / "pip"
OTHER = "0" * 64
"""The hash of no file."""


def wheel(folder: Path, name: str, version: str) -> str:
    """Make a wheel of no content; its hash."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source(folder: Path, name: str, mark: Path) -> str:
    """Make a source distribution whose set-up leaves a mark; its hash."""
    path, text = folder / f"{name}-1.0.tar.gz", f"open({str(mark)!r}, 'w').close()\n".encode()
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo(f"{name}-1.0/setup.py")
        member.size = len(text)
        file.addfile(member, io.BytesIO(text))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def install(tmp_path):
    """Install from tmp_path / "files" what a lock of these names, versions and hashes has: (how it ended, what is
    there)."""
    (tmp_path / "files").mkdir()
    settings = dict(
        CONFIG_FILE=os.devnull, NO_INDEX="1", FIND_LINKS=str(tmp_path / "files"), TARGET=str(tmp_path / "to")
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}

    def run(also: dict[str, str] | None = None, **lock: tuple[str, str]):
        lines = [f"{name}=={version} \\\n    --hash=sha256:{found}\n" for name, (version, found) in lock.items()]
        (tmp_path / "requirements.lock").write_text("".join(lines).replace("_", "-"))
        environment = own | {f"PIP_{name}": value for name, value in settings.items()} | (also or {})
        call = [ROOT / ".ci" / "install", PIP]
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done, sorted(path.name.removesuffix(".dist-info") for path in (tmp_path / "to").glob("*.dist-info"))

    return run


@slow
def test_files_with_the_locks_hashes_are_installed(install, tmp_path):
    a, torch = wheel(tmp_path / "files", "a", "1.0"), wheel(tmp_path / "files", "torch", "2.13.0")
    done, there = install(a=("1.0", a), torch=("2.13.0", torch))
    assert done.returncode == 0, done.stderr
    assert there == ["a-1.0", "torch-2.13.0"]


def test_a_file_with_another_hash_is_refused_and_nothing_installed(install, tmp_path):
    b, torch = wheel(tmp_path / "files", "b", "1.0"), wheel(tmp_path / "files", "torch", "2.13.0+cpu")
    wheel(tmp_path / "files", "a", "1.0")
    done, there = install(a=("1.0", OTHER), b=("1.0", b), torch=("2.13.0", torch))
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "a==1.0" in done.stderr
    assert there == []


@slow
def test_a_build_of_torch_that_the_lock_cannot_know_comes_by_its_version_without_the_packages_for_gpus(
    install, tmp_path
):
    a = wheel(tmp_path / "files", "a", "1.0")
    wheel(tmp_path / "files", "torch", "2.13.0+cpu")
    done, there = install(a=("1.0", a), nvidia_cublas=("1.0", OTHER), torch=("2.13.0", OTHER), triton=("1.0", OTHER))
    assert done.returncode == 0, done.stderr
    assert there == ["a-1.0", "torch-2.13.0+cpu"]


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has no packages for GPUs")
def test_torch_for_cpus_comes_by_uv_and_all_else_by_its_hash(install, tmp_path):
    """uv is here a program that notes what it is given."""
    program, notes = tmp_path / "bin" / "uv", tmp_path / "told.txt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$UV_TORCH_BACKEND: $*" > {notes}\n')
    program.chmod(0o755)
    also = {"UV_TORCH_BACKEND": "cpu", "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    a = wheel(tmp_path / "files", "a", "1.0")
    others = dict(nvidia_cublas=("1.0", OTHER), torch=("2.13.0", OTHER), triton=("1.0", OTHER))
    done, there = install(also, a=("1.0", OTHER), **others)
    assert done.returncode
    assert (there, notes.exists()) == ([], False), "with a wrong hash nothing comes, not even torch"
    done, there = install(also, a=("1.0", a), **others)
    assert (done.returncode, there) == (0, ["a-1.0"]), done.stderr
    python = Path(sys.executable).parent / "python"
    assert notes.read_text() == f"cpu: pip install --quiet --python {python} --only-binary :all: torch==2.13.0\n"


@slow
def test_nothing_is_built_even_with_the_right_hash(install, tmp_path):
    torch, a = wheel(tmp_path / "files", "torch", "2.13.0"), source(tmp_path / "files", "a", tmp_path / "mark")
    done, there = install(a=("1.0", a), torch=("2.13.0", torch))
    assert done.returncode != 0
    assert "No matching distribution found for a==1.0" in done.stderr
    assert there == []
    assert not (tmp_path / "mark").exists()
