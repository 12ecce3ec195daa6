"""One contestant of a contest: prepared once, then timed as often as it is asked. Started by `contest.py`.

It runs in the contestant's own environment, and imports nothing but the standard library and numpy. JSON lines come in
on stdin, one answer each goes out; whatever a library prints is sent to stderr. The arguments are the processors that
the process may use.

A contestant is a function in benchmarks/contestants/: given its options it returns (call, answer). `call()` does the
work, down to the last byte of its result; `answer(result)` picks an array of numbers to compare with the others', or
None.
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


def memory(field: str) -> int:
    """Bytes of this process: "VmRSS", resident now, or "VmHWM", the most since the peak was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def versions() -> dict[str, str]:
    """Of Python and of every distribution that was imported."""
    owners, modules = metadata.packages_distributions(), {module.split(".")[0] for module in sys.modules}
    found = sorted({name for module in modules for name in owners.get(module, [])}, key=str.lower)
    return {"python": sys.version.split()[0]} | {name: metadata.version(name) for name in found}


class Contestant:
    """The orders that a worker follows; each returns what is answered."""

    def prepare(self, call: str, options: dict, answer: str) -> dict:
        """Import, build, and run once outside the clock (compilers run now); the result's sample goes to a file."""
        start = time.perf_counter()
        module, _, name = call.partition(":")
        self.call, pick = getattr(importlib.import_module(module), name)(**options)
        picked = pick(self.call())
        if picked is not None:
            np.save(answer, np.asarray(picked, dtype=np.float64))
        del picked
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # the C library's unused memory goes back to the system
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak of resident memory counts from now on
        return {"ready": time.perf_counter() - start, "settled": memory("VmRSS")}

    def time(self) -> dict:
        start = time.perf_counter()
        result = self.call()
        seconds = time.perf_counter() - start
        del result
        return {"seconds": seconds}

    def finish(self) -> dict:
        return {"peak": memory("VmHWM"), "versions": versions()}


def main(processors: list[str]) -> None:
    os.sched_setaffinity(0, map(int, processors))  # before any library starts a thread: threads inherit it
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a stopped worker must not outlive the contest
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, str(Path(__file__).resolve().parent / "contestants"))
    contestant = Contestant()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(contestant, order.pop("do"))(**order)
        except Exception as error:  # recorded as the reason why this contestant is out
            answer = {"failed": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
        out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
