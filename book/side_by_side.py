"""Jobs side by side, each in a process of its own; what one writes is shown whole, and only if it fails."""

from __future__ import annotations

import os
import signal
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


USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""What Python does when it is asked to end."""


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
    for number, usual in USUAL.items():
        signal.signal(number, usual)
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
    asked: list[BaseException] = []

    def end(number, frame):
        asked.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit("terminated"))
        raise asked[0]

    heard = [number for number in USUAL if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        while waiting or running:
            while waiting and (
                not running or sum(job.slots for job, *_ in running.values()) + waiting[0].slots <= slots
            ):
                job, log = waiting.pop(0), tempfile.TemporaryFile()  # noqa: SIM115, closed when the job has ended
                process = context.Process(target=_alone, args=(job, log))
                process.start()
                running[process.sentinel] = (job, process, log, time.perf_counter())
            for ended in connection.wait(list(running), timeout=1):
                job, *rest = running.pop(ended)
                if not _told(job, *rest):
                    failed.append(job.name)
            if asked:  # in the midst of a fork, Python drops what a signal raises
                raise asked[0]
    finally:
        for _, process, *_ in running.values():
            _stop(process)
        for number, handler in before.items():
            signal.signal(number, handler)
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
