"""One contestant of a contest: prepared once, then asked again and again for the seconds that its call takes.

Started by `contest.py` in the contestant's own environment, so it imports nothing but the standard library and numpy.
JSON lines come in on stdin, one answer each goes out; whatever a library prints is sent to stderr. The arguments are the
processors that the process may use.

A contestant is a function in benchmarks/contestants/: given its options it returns (call, answer). `call()` does the
work, down to the last byte of its result; `answer(result)` picks an array of numbers to compare with the others', or
None.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import signal
import sys
import time
from importlib import metadata
from pathlib import Path

CONTESTANTS = Path(__file__).resolve().parent / "contestants"


def memory(field: str) -> int:
    """Bytes of this process: "VmRSS", resident now, or "VmHWM", the most since `forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Count the peak of resident memory from now on, where the kernel lets us."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Let go of memory that nothing uses, as far as Python and the C library know."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


owners = functools.cache(metadata.packages_distributions)


def versions() -> dict[str, str]:
    """Of Python and of every distribution that was imported."""
    found = {name for module in {module.split(".")[0] for module in sys.modules} for name in owners().get(module, [])}
    return {"python": sys.version.split()[0]} | {name: metadata.version(name) for name in sorted(found, key=str.lower)}


class Contestant:
    """The orders that a worker follows, any number of times; each returns what is answered."""

    call = None

    def prepare(self, call: str, options: dict, answer: str) -> dict:
        """Import, build, and run once outside the clock (compilers run now); the result's sample goes to a file."""
        import numpy as np

        start = time.perf_counter()
        module, _, name = call.partition(":")
        self.call, pick = getattr(importlib.import_module(module), name)(**options)
        before = memory("VmRSS")
        result = self.call()
        picked = pick(result)
        if picked is not None:
            np.save(answer, np.asarray(picked, dtype=np.float64))
        del result, picked
        give_back()
        seconds = time.perf_counter() - start
        forget_peak()
        return {"ready": seconds, "before": before, "settled": memory("VmRSS")}

    def time(self) -> dict:
        start = time.perf_counter()
        result = self.call()
        seconds = time.perf_counter() - start
        del result
        return {"seconds": seconds}

    def finish(self) -> dict:
        """What is left to say; then what the call holds is given back to the system, for who comes next."""
        peak = memory("VmHWM")
        self.call = None
        give_back()
        return {"peak": peak, "versions": versions()}


def main(processors: list[str]) -> None:
    os.sched_setaffinity(0, map(int, processors))  # before any library starts a thread: threads inherit it
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a stopped worker must not outlive the contest
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, str(CONTESTANTS))
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
