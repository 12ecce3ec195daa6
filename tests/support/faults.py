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

    def report(kind: str, times: int = 1) -> None:
        request.node.user_properties.append((f"faults: {kind}", times))

    return report


class Disk:
    """A small disk in a folder. disk(kib=…) mounts it or gives it another size, and skips the test where it cannot."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()

    def __call__(self, kib: int = 1000) -> Path:
        options = f"size={kib}k"
        if os.path.ismount(self.folder):
            options = f"remount,{options}"
        self.mount("-t", "tmpfs", "-o", options, "tmpfs")
        return self.folder

    def read_only(self) -> None:
        """From now on nothing can be written, not even to open files."""
        self.mount("--bind", str(self.folder))
        self.mount("-o", "remount,bind,ro")

    def writable(self) -> None:
        """Undo the last mount: that of read_only(), or the disk itself."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def mount(self, *arguments: str) -> None:
        """Run `mount`, which needs root, and in a container its permission."""
        command = ["mount", *arguments, str(self.folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            pytest.skip(f"no disk can be mounted: {process.stderr.strip()}")


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    """A Disk that is taken away after the test."""
    small_disk = Disk(tmp_path / "disk")
    yield small_disk
    while os.path.ismount(small_disk.folder):
        small_disk.writable()


def fill(folder: Path) -> Path:
    """Leave no room on a disk. Gives the file that takes it."""
    filler = folder / "filler"
    filler.unlink(missing_ok=True)
    filler.write_bytes(bytes(shutil.disk_usage(folder).free))
    return filler


@contextmanager
def no_longer_than(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes. What is written up to there stays, as on a full disk."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard_limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft_limit, hard_limit))
