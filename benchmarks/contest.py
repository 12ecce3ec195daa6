"""Contests: the same work done by ours and by its peers, each in a process and an environment of its own, in turn.

Every contestant is prepared first (imports, compilation, one call outside the clock). Then A, B, A, B, … round after
round: while one is timed, the others are stopped by a signal, so that none of their threads can spin beside it. A
contestant that fails, takes too long or needs too much memory is out, and its reason is part of the result.

Linux only: processor affinity, and resident memory from /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from hmmlib.experiments.provenance import git_commit

FOLDER = Path(__file__).resolve().parent
PEERS = FOLDER.parent / "build" / "peers" / "bin" / "python"
GIB = 2**30
MINIMUM_ROUNDS = 3
"""Rounds, where as many are asked for, whatever they take: a median of fewer is not worth much."""
POLL = 0.05
"""Seconds between two looks at a worker's memory and clock."""


class Failed(Exception):
    """A contestant is out; the message gives the reason."""


@dataclass(frozen=True)
class Contestant:
    """Who takes part: a function of benchmarks/contestants/ as "module:function", its options, and which Python.

    `inputs` is a file that it gets besides its options, and that is not part of the result. `work` counts what one call
    does (tokens, say): costs are seconds per unit of work.
    """

    name: str
    call: str
    options: dict = field(default_factory=dict)
    inputs: Path | None = None
    peer: bool = True
    work: float = 1.0
    env: dict[str, str] = field(default_factory=dict)


class Worker:
    """A contestant's process, stopped while it is not asked. `first` is the order that it gets before all others."""

    def __init__(self, contestant: Contestant, threads: int, folder: Path):
        folder.mkdir()
        self.log, self.answer = folder / "stderr", folder / "answer.npy"
        options = contestant.options | ({"inputs": str(contestant.inputs)} if contestant.inputs else {})
        self.first = dict(do="prepare", call=contestant.call, options=options, answer=str(self.answer))
        processors = map(str, sorted(os.sched_getaffinity(0))[:threads])  # holds even those that read no settings
        names = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")
        settings = {f"{name}_NUM_THREADS": str(threads) for name in names} | {"GOMP_SPINCOUNT": "1000"}
        if threads == 1:
            settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        with self.log.open("w") as log:
            command = [PEERS if contestant.peer else sys.executable, FOLDER / "worker.py", *processors]
            pipes = dict(text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
            environment = {**os.environ, **settings, **contestant.env}
            self.process = subprocess.Popen(command, **pipes, env=environment, start_new_session=True)

    def ask(self, box: float, limit: int, **order) -> dict:
        """The answer to an order. Failed where it has none, where the worker ends, and beyond a limit."""
        with contextlib.suppress(BrokenPipeError):
            os.killpg(self.process.pid, signal.SIGCONT)
            print(json.dumps(order), file=self.process.stdin, flush=True)
        deadline = time.monotonic() + box
        while not select.select([self.process.stdout], [], [], POLL)[0]:
            if self.resident() > limit:
                raise Failed(f"more than {limit / GIB:.3g} GiB of memory")
            if time.monotonic() > deadline:
                raise Failed(f"more than {box:g} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            last = (self.log.read_text(errors="replace").strip().splitlines() or ["nothing on stderr"])[-1]
            raise Failed(f"ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}: {last[:300]}")
        os.killpg(self.process.pid, signal.SIGSTOP)
        answer = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def resident(self) -> int:
        """Bytes of memory that the process holds now; 0 once it has ended."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def contest(
    contestants: list[Contestant],
    threads: int,
    rounds: int = 5,
    box: float = 60.0,
    budget: float = 60.0,
    limit: int = 8 * GIB,
    tolerance: float | None = None,
) -> dict:
    """Run it, on so many processors for each, first ours, with which the others' results are compared.

    Each is timed `rounds` times; from the fourth on, no round is begun once `budget` seconds were timed in all. A call
    may take `box` seconds, preparing four times as many, and hold `limit` bytes of memory. Results agree that differ by
    `tolerance` at most.

    Returns "threads"; "contestants", a list of name, call, options, peer, work and either "failed", the reason, or
    "seconds" of each round, "ready", the seconds to prepare, "versions", and bytes of memory: "settled" between calls,
    and at the "peak" of one; "differences" from the first by name; "agree", None if nothing was compared.
    """
    if not 1 <= threads <= (there := len(os.sched_getaffinity(0))):
        raise ValueError(f"threads must be 1 to {there}, the processors of this machine, not {threads}")
    rows, workers, answers = {}, {}, {}

    def asked(name: str, box: float, **order) -> dict:
        """What a worker answers; nothing, and the reason in its row, where it is out."""
        try:
            return workers[name].ask(box, limit, **order)
        except Failed as reason:
            workers.pop(name).close()
            rows[name]["failed"] = str(reason)
            rows[name].pop("seconds")
            return {}

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for c in contestants:
            rows[c.name] = dict(name=c.name, call=c.call, options=c.options, peer=c.peer, work=c.work, seconds=[])
            workers[c.name] = worker = Worker(c, threads, folder / str(len(rows)))
            stack.callback(worker.close)
            rows[c.name] |= asked(c.name, 4 * box, **worker.first)
            if worker.answer.is_file():
                answers[c.name] = np.load(worker.answer)
        for turn in range(rounds):
            if turn < MINIMUM_ROUNDS or sum(sum(row.get("seconds", [])) for row in rows.values()) <= budget:
                for name in [*workers]:
                    rows[name].get("seconds", []).extend(asked(name, box, do="time").values())
        for name in [*workers]:
            rows[name] |= asked(name, box, do="finish")
    first, *others = rows
    both = [name for name in others if {name, first} <= workers.keys() & answers.keys()]
    differences = {name: difference(answers[name], answers[first]) for name in both}
    near = [] if tolerance is None else [value is not None and value <= tolerance for value in differences.values()]
    found = dict(differences=differences, tolerance=tolerance, agree=all(near) if near else None)
    return dict(threads=threads, contestants=[*rows.values()]) | found


def difference(one: np.ndarray, other: np.ndarray) -> float | None:
    """The largest absolute difference; None where the shapes differ or an entry is not finite."""
    if one.shape != other.shape:
        return None
    largest = float(np.abs(one - other).max(initial=0.0))
    return largest if np.isfinite(largest) else None


def machine() -> dict:
    """What the numbers of this run depend on besides the work."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0].split(":", 1)[1].strip() if names else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "commit": git_commit(),
    }
