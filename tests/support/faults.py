"""What tests of faults share: counting them, small disks that can be read-only, and files that may not grow."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def survived(request) -> Callable[[str, int], None]:
    """Call it as survived(kind, times) when so many faults have been survived, for `pytest --record`."""
    return lambda kind, times=1: request.node.user_properties.append((f"faults: {kind}", times))


class Disk:
    """A small disk in a folder: disk(kib=…) mounts it, or gives it another size, or skips where nobody can."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()

    def __call__(self, kib: int = 1000) -> Path:
        again = "remount," if os.path.ismount(self.folder) else ""
        self.mount("-t", "tmpfs", "-o", f"{again}size={kib}k", "tmpfs")
        return self.folder

    def read_only(self) -> None:
        """From now on, also while files on it are open."""
        self.mount("--bind", str(self.folder))
        self.mount("-o", "remount,bind,ro")

    def writable(self) -> None:
        """End what read_only() began, or the disk."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words, str(self.folder)], capture_output=True, text=True, check=False)
        if done.returncode:  # it needs root, and in a container its permission
            pytest.skip(f"no disk can be mounted: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    """A Disk that is taken away after the test."""
    made = Disk(tmp_path / "disk")
    yield made
    while os.path.ismount(made.folder):
        made.writable()


def fill(folder: Path) -> Path:
    """Leave no room on a disk: the file that takes it."""
    filler = folder / "filler"
    filler.unlink(missing_ok=True)
    filler.write_bytes(bytes(shutil.disk_usage(folder).free))
    return filler


@contextmanager
def no_longer_than(size: int) -> Iterator[None]:
    """While this lasts, no file grows beyond so many bytes: what is written up to there stays, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
