"""Jobs side by side, each in a process of its own; what one writes is shown whole, and only if it fails."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import IO


@dataclass(frozen=True)
class Job:
    """A function to call, and how many of the slots it fills while it runs."""

    name: str
    call: Callable[[], None]
    slots: int = 1


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _alone(job: Job, log: IO[bytes]) -> None:
    """The job in its child process: a process group of its own, so that it ends with all that it has started.

    Also where the build itself is killed: the next one must find nobody at work on its files.
    """

    def watch() -> None:
        parent_process().join()
        os.killpg(os.getpid(), signal.SIGKILL)

    with suppress(PermissionError):
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=watch, daemon=True).start()
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    job.call()


def _stop(process: BaseProcess) -> None:
    """Kill a job and what it has started. Kernels are in sessions of their own, and end when their parent is gone."""
    for kill in (os.killpg, os.kill):  # the second for a process that is not yet its group's leader
        with suppress(ProcessLookupError, PermissionError):
            kill(process.pid, signal.SIGKILL)
    process.join()


def run(jobs: Sequence[Job], slots: int) -> list[str]:
    """Run jobs in their order, as many at a time as fill the slots, and say how each ended.

    A job that fails stops no other. An interrupt, or a SIGTERM, ends all that are running.

    Returns:
        The names of those that failed.
    """
    context, waiting, running, failed = get_context("fork"), list(jobs), {}, []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        while waiting or running:
            while waiting and (
                not running or sum(job.slots for job, *_ in running.values()) + waiting[0].slots <= slots
            ):
                job, log = waiting.pop(0), tempfile.TemporaryFile()  # noqa: SIM115, closed when the job has ended
                process = context.Process(target=_alone, args=(job, log))
                process.start()
                running[process.sentinel] = (job, process, log, time.perf_counter())
            for ended in connection.wait(list(running)):
                job, *rest = running.pop(ended)
                if not _told(job, *rest):
                    failed.append(job.name)
    finally:
        for _, process, *_ in running.values():
            _stop(process)
        signal.signal(signal.SIGTERM, before)
    return failed


def _told(job: Job, process: BaseProcess, log: IO[bytes], start: float) -> bool:
    """Say how a job has ended, with what it wrote if it failed. Whether it went well."""
    process.join()
    seconds = f"{time.perf_counter() - start:.1f} s"
    if process.exitcode == 0:
        print(f"  {job.name}: {seconds}", flush=True)
    else:
        log.seek(0)
        said = log.read().decode(errors="replace").rstrip()
        print(f"  {job.name}: failed after {seconds} (exit code {process.exitcode})\n{said}", flush=True)
    log.close()
    return process.exitcode == 0
