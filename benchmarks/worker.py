"""One contestant of a contest. It is prepared once, then timed as often as `contest.py`, which starts it, asks.

This runs in the contestant's own environment, so it imports nothing but the standard library and numpy. It reads orders
as lines of JSON from stdin and answers each with one line. Whatever a library prints goes to stderr. The arguments are
the processors that the process may use.

A contestant is a function in benchmarks/contestants/. Given its options it returns two functions. `call()` does the
work, down to the last byte of its result. `answer(result)` picks an array of numbers to compare with the others', or
returns None.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

PR_SET_PDEATHSIG = 1
"""The option of Linux's prctl that sends a signal to a process when the one that started it ends."""


def memory(field: str) -> int:
    """Bytes of this process: "VmRSS", resident now, or "VmHWM", the most since the peak was reset."""
    for line in Path("/proc/self/status").read_text(encoding="utf8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def versions() -> dict[str, str]:
    """Versions of Python and of every distribution that was imported."""
    distributions = metadata.packages_distributions()
    imported = set()
    for module in list(sys.modules):
        imported.update(distributions.get(module.split(".")[0], []))
    numbers = {"python": sys.version.split()[0]}
    for name in sorted(imported, key=str.lower):
        numbers[name] = metadata.version(name)
    return numbers


class Contestant:
    """The orders that a worker follows. Each method returns the answer to one of them."""

    def prepare(self, call: str, options: dict, answer: str) -> dict:
        """Import, build, and run once outside the clock, so that compilers run now. Write the answer to a file."""
        start = time.perf_counter()
        module, _, function = call.partition(":")
        self.call, pick = getattr(importlib.import_module(module), function)(**options)
        numbers = pick(self.call())
        if numbers is not None:
            np.save(answer, np.asarray(numbers, dtype=np.float64))
        del numbers
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # the C library gives its unused memory back to the system
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_bytes(b"5")  # the peak of resident memory counts from now on
        return {"ready": time.perf_counter() - start, "settled": memory("VmRSS")}

    def time(self, calls: int) -> dict:
        """Time so many calls, and answer with the seconds of one."""
        start = time.perf_counter()
        for _ in range(calls):
            result = self.call()
        seconds = time.perf_counter() - start
        del result
        return {"seconds": seconds / calls}

    def finish(self) -> dict:
        return {"peak": memory("VmHWM"), "versions": versions()}


def main(processors: list[str]) -> None:
    # Threads inherit the affinity, so it is set before any library starts one.
    os.sched_setaffinity(0, map(int, processors))
    # A stopped worker must not outlive the contest.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, str(Path(__file__).resolve().parent / "contestants"))
    contestant = Contestant()
    for line in sys.stdin:
        order = json.loads(line)
        follow = getattr(contestant, order.pop("do"))
        try:
            answer = follow(**order)
        except Exception as error:  # this is the reason why the contestant is out
            first_line = f"{type(error).__name__}: {error}".split("\n")[0]
            answer = {"failed": first_line[:300]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
