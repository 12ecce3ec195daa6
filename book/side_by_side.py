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
from typing import IO


@dataclass(frozen=True)
class Job:
    """A function to call, and how many of the slots it fills while it runs: no more than there are."""

    name: str
    call: Callable[[], None]
    slots: int = 1


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_child(job: Job, log: IO[bytes]) -> None:
    """The job in a process group of its own, which ends with the build: the next must find nobody at work."""

    def watch() -> None:
        parent_process().join()
        os.killpg(os.getpid(), signal.SIGKILL)

    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=watch, daemon=True).start()
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    job.call()


def run(jobs: Sequence[Job], slots: int) -> list[str]:
    """Run jobs in their order, as many at a time as fill the slots, and print how each ended; the names that failed.

    A job that fails stops no other. An interrupt, or a SIGTERM, ends all that are running, and what they have started
    (kernels are in sessions of their own, and end when their parent is gone).
    """
    context, waiting, running, failed = get_context("fork"), list(jobs), {}, []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        while waiting or running:
            while waiting and waiting[0].slots <= slots - sum(job.slots for job, *_ in running.values()):
                job, log = waiting.pop(0), tempfile.TemporaryFile()  # noqa: SIM115, closed when the job has ended
                process = context.Process(target=_in_child, args=(job, log))
                process.start()
                running[process.sentinel] = (job, process, log, time.perf_counter())
            for ended in connection.wait(list(running)):
                job, process, log, start = running.pop(ended)
                process.join()
                failed += [job.name] if process.exitcode else []
                report(job.name, process.exitcode, time.perf_counter() - start, log)
    finally:
        for _, process, *_ in running.values():
            for kill in (os.killpg, os.kill):  # the second for a process that is not yet its group's leader
                with suppress(ProcessLookupError, PermissionError):
                    kill(process.pid, signal.SIGKILL)
            process.join()
        signal.signal(signal.SIGTERM, before)
    return failed


def report(name: str, code: int, seconds: float, log: IO[bytes]) -> None:
    """Print how a job has ended, with what it wrote if it failed."""
    with log:
        log.seek(0)
        wrote = log.read().decode(errors="replace").rstrip()
    failed = f"failed after {seconds:.1f} s (exit code {code})\n{wrote}"
    print(f"  {name}: {failed if code else f'{seconds:.1f} s'}", flush=True)
