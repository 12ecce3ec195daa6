"""Contests: several libraries do the same work, and each is timed in a process and an environment of its own.

All contestants are prepared first. They import, compile, and make one call that is not timed. Then they take turns,
round after round: A, B, A, B, … While one contestant is timed, the others are stopped by a signal, so that none of
their threads can spin beside it. A contestant that fails, takes too long or needs too much memory is out, and the
result says why.

This needs Linux, because it sets processor affinity and reads resident memory from /proc.
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

from hmmbook.experiments.environment import git_commit

FOLDER = Path(__file__).resolve().parent
PEERS = FOLDER.parent / "build" / "peers" / "bin" / "python"
GIB = 2**30
MINIMUM_ROUNDS = 3
"""So many rounds are run whatever they take, because a median of fewer is not worth much."""
POLL = 0.05
"""Seconds between two looks at a worker's memory and clock."""
THREAD_SETTINGS = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")
"""Libraries that read their number of threads from a variable such as OMP_NUM_THREADS."""
KERNEL_SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Environment variables that workers do not get. OpenBLAS then chooses its kernels for the processor, as JAX does."""


class Failed(Exception):
    """A contestant is out, and the message gives the reason."""


@dataclass(frozen=True)
class Contestant:
    """One side of a contest."""

    name: str
    call: str
    """A function of benchmarks/contestants/, written "module:function"."""
    options: dict = field(default_factory=dict)
    """What the function is called with."""
    inputs: Path | None = None
    """A file that the function gets besides its options. It is no part of the result."""
    peer: bool = True
    """Whether it runs in the environment of the peers, or in ours."""
    work: float = 1.0
    """What one call does, in tokens for example. Costs are seconds per unit of work."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of its process."""


@dataclass(frozen=True)
class Rules:
    """What all contestants of a contest are held to."""

    threads: int
    """Processors that each may use."""
    rounds: int = 5
    """How often each is timed."""
    calls: int = 1
    """How many calls are timed together, as one call that is over at once cannot be timed alone."""
    box: float = 60.0
    """Seconds that a call may take. Preparing may take four times as long."""
    budget: float = 60.0
    """After MINIMUM_ROUNDS, no round begins once so many seconds were timed in all."""
    limit: int = 8 * GIB
    """Bytes of memory that a contestant may hold."""
    tolerance: float | None = None
    """Results agree if they differ by this at most. With None, nobody compares them."""

    def __post_init__(self):
        available = len(os.sched_getaffinity(0))
        if not 1 <= self.threads <= available:
            raise ValueError(f"threads must be 1 to {available}, the processors of this machine, not {self.threads}")


class Worker:
    """A contestant's process, which is stopped whenever nothing is asked of it."""

    def __init__(self, contestant: Contestant, threads: int, folder: Path):
        folder.mkdir()
        self.log = folder / "stderr"
        self.answer = folder / "answer.npy"
        options = dict(contestant.options)
        if contestant.inputs:
            options["inputs"] = str(contestant.inputs)
        self.preparation = dict(do="prepare", call=contestant.call, options=options, answer=str(self.answer))
        # Affinity also holds those libraries that read no setting for threads.
        processors = sorted(os.sched_getaffinity(0))[:threads]
        python = PEERS if contestant.peer else sys.executable
        environment = {name: value for name, value in os.environ.items() if name not in KERNEL_SETTINGS}
        with self.log.open("w", encoding="utf8") as log:
            self.process = subprocess.Popen(
                [python, FOLDER / "worker.py", *map(str, processors)],
                encoding="utf8",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment, **thread_settings(threads), **contestant.env},
                start_new_session=True,
            )

    def ask(self, box: float, limit: int, **order) -> dict:
        """Give an order, and wait for the answer.

        Raises:
            Failed: the contestant reports an error, its process ends, or it exceeds `box` seconds or `limit` bytes.
        """
        with contextlib.suppress(BrokenPipeError):
            os.killpg(self.process.pid, signal.SIGCONT)
            print(json.dumps(order), file=self.process.stdin, flush=True)
        self.wait(box, limit)
        line = self.process.stdout.readline()
        if not line:
            raise Failed(self.last_words())
        os.killpg(self.process.pid, signal.SIGSTOP)
        answer = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def wait(self, box: float, limit: int) -> None:
        """Wait until the process has written something or has ended."""
        deadline = time.monotonic() + box
        while not select.select([self.process.stdout], [], [], POLL)[0]:
            if self.resident() > limit:
                raise Failed(f"more than {limit / GIB:.3g} GiB of memory")
            if time.monotonic() > deadline:
                raise Failed(f"more than {box:g} s")

    def last_words(self) -> str:
        """How the process ended, and the last line that it wrote."""
        code = self.process.wait()
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        lines = self.log.read_text(encoding="utf8", errors="replace").strip().splitlines()
        last_line = lines[-1] if lines else "nothing on stderr"
        return f"ended with {end}: {last_line[:300]}"

    def resident(self) -> int:
        """Bytes of memory that the process holds now, or 0 once it has ended."""
        with contextlib.suppress(OSError):
            pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="utf8").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def close(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def thread_settings(threads: int) -> dict[str, str]:
    """Environment variables that allow so many threads."""
    settings = {f"{name}_NUM_THREADS": str(threads) for name in THREAD_SETTINGS}
    settings["GOMP_SPINCOUNT"] = "1000"
    if threads == 1:
        settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return settings


class Contest:
    """A contest while it runs: a worker for each contestant that is still in, and a row for each that began."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.workers: dict[str, Worker] = {}
        self.rows: dict[str, dict] = {}
        self.answers: dict[str, np.ndarray] = {}

    def prepare(self, contestant: Contestant, folder: Path) -> None:
        """Start a contestant's process, and keep the numbers that its first call gives."""
        name = contestant.name
        self.rows[name] = dict(
            name=name,
            call=contestant.call,
            options=contestant.options,
            peer=contestant.peer,
            work=contestant.work,
            seconds=[],
        )
        worker = Worker(contestant, self.rules.threads, folder)
        self.workers[name] = worker
        self.rows[name] |= self.ask(name, 4 * self.rules.box, **worker.preparation)
        if worker.answer.is_file():
            self.answers[name] = np.load(worker.answer)

    def ask(self, name: str, box: float, **order) -> dict:
        """What a worker answers. If it is out now, that is nothing, and its row gets the reason."""
        try:
            return self.workers[name].ask(box, self.rules.limit, **order)
        except Failed as reason:
            self.workers.pop(name).close()
            self.rows[name]["failed"] = str(reason)
            del self.rows[name]["seconds"]
            return {}

    def run_round(self) -> None:
        """Time each contestant once."""
        for name in list(self.workers):
            answer = self.ask(name, self.rules.box, do="time", calls=self.rules.calls)
            if answer:
                self.rows[name]["seconds"].append(answer["seconds"])

    def seconds(self) -> float:
        """All seconds that were timed so far."""
        return sum(sum(row.get("seconds", [])) for row in self.rows.values())

    def finish(self) -> None:
        """Ask each contestant for its memory and its versions."""
        for name in list(self.workers):
            self.rows[name] |= self.ask(name, self.rules.box, do="finish")

    def comparison(self) -> dict:
        """How far the results of the contestants are from those of the first."""
        first, *peers = self.rows
        differences = {}
        for name in peers:
            if {name, first} <= self.workers.keys() & self.answers.keys():
                differences[name] = difference(self.answers[name], self.answers[first])
        tolerance = self.rules.tolerance
        agree = None
        if differences and tolerance is not None:
            agree = all(value is not None and value <= tolerance for value in differences.values())
        return dict(differences=differences, tolerance=tolerance, agree=agree)

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers.values():
            worker.close()


def contest(contestants: list[Contestant], **rules) -> dict:
    """Run a contest. The first contestant is ours, and the results of all others are compared with its result.

    Args:
        contestants: Who takes part. Names must differ.
        rules: The fields of `Rules`.

    Returns:
        "threads"; "contestants", a list; "differences" from the first one's result, by name; "tolerance"; and "agree",
        which is None if nothing was compared. Each contestant has its name, call, options, peer, work, and either the
        reason why it "failed", or: the "seconds" of each round, "ready", the seconds to prepare, its "versions", and
        two numbers of bytes, the memory "settled" between calls and the "peak" in a call.
    """
    running = Contest(Rules(**rules))
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, contestant in enumerate(contestants):
                running.prepare(contestant, Path(folder, str(number)))
            for turn in range(running.rules.rounds):
                if turn < MINIMUM_ROUNDS or running.seconds() <= running.rules.budget:
                    running.run_round()
            running.finish()
        finally:
            running.close()
    return dict(threads=running.rules.threads, contestants=list(running.rows.values()), **running.comparison())


def difference(result: np.ndarray, reference: np.ndarray) -> float | None:
    """The largest absolute difference, or None where the shapes differ or an entry is not finite."""
    if result.shape != reference.shape:
        return None
    largest = float(np.abs(result - reference).max(initial=0.0))
    return largest if np.isfinite(largest) else None


def machine() -> dict:
    """What the numbers of this run depend on besides the work."""
    processor = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    return {
        "processor": processor,
        "processors": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "commit": git_commit(),
    }
