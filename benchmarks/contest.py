"""Contests: the same work done by ours and by its peers, each in a process and an environment of its own, timed in turn.

Every contestant is prepared first (imports, compilation, one call outside the clock). Then A, B, A, B, … round after
round: while one is timed, the others are stopped by a signal, so that none of their threads can spin beside it. What
is reported is the ratio of the medians of such runs, and how far the contestants' results lie apart. A contestant that
fails, takes too long or needs too much memory is out, and its reason is part of the result.

Linux only: processor affinity, and resident memory from /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from hmmlib.experiments.trials import git_commit
from hmmlib.files import write_whole

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
PEERS = ROOT / "build" / "peers" / "bin" / "python"
RESULTS = FOLDER / "results"

GIB = 2**30
LEAST = 3
"""Rounds, where as many are asked for, whatever they take: a median of fewer says little."""
LOOK = 0.05
"""Seconds between two looks at a worker's memory and clock."""


class Failed(Exception):
    """A contestant is out; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """Who takes part: a function of benchmarks/contestants/, its options, and the Python that runs it.

    `call` is "module:function". `inputs` is a file that it gets besides its options, and that is not part of the result.
    `work` counts what one call does (tokens, say): ratios are of seconds per unit of work.
    """

    name: str
    call: str
    options: dict = field(default_factory=dict)
    inputs: Path | None = None
    peer: bool = True
    work: float = 1.0
    env: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return PEERS if self.peer else Path(sys.executable)


def thread_settings(threads: int) -> dict[str, str]:
    """What libraries read at their start. The worker's processor affinity holds even those that read nothing."""
    names = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")
    settings = {f"{name}_NUM_THREADS": str(threads) for name in names} | {"GOMP_SPINCOUNT": "1000"}
    if threads == 1:
        settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return settings


class Worker:
    """A contestant's process. `ask` sends an order and waits for the answer, with an eye on clock and memory."""

    def __init__(self, contestant: Contestant, threads: int, folder: Path):
        processors = map(str, sorted(os.sched_getaffinity(0))[:threads])
        self.log, self.answer = folder / "stderr", folder / "answer.npy"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [contestant.python, FOLDER / "worker.py", *processors],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **thread_settings(threads), **contestant.env},
                start_new_session=True,
            )

    def resident(self) -> int:
        """Bytes of memory that the process holds now; 0 once it has ended."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def _wait(self, box: float, limit: int) -> str:
        deadline = time.monotonic() + box
        while not select.select([self.process.stdout], [], [], LOOK)[0]:
            if self.resident() > limit:
                raise Failed(f"more than {limit / GIB:.3g} GiB of memory")
            if time.monotonic() > deadline:
                raise Failed(f"more than {box:g} s")
        return self.process.stdout.readline().decode()

    def ask(self, box: float, limit: int, **order) -> dict:
        """The answer to an order. Failed where the worker says so, ends, or goes beyond its time box or memory."""
        with contextlib.suppress(BrokenPipeError):
            os.killpg(self.process.pid, signal.SIGCONT)
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        try:
            line = self._wait(box, limit)
        except Failed:
            self.close()
            raise
        if not line:
            code = self.process.wait()
            last = (self.log.read_text(errors="replace").strip().splitlines() or ["nothing on stderr"])[-1]
            raise Failed(f"ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}: {last[:300]}")
        os.killpg(self.process.pid, signal.SIGSTOP)
        answer = json.loads(line)
        if "failed" in answer:
            self.close()
            raise Failed(answer["failed"])
        return answer

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Pool:
    """Workers that stay between contests, so that each library is imported once: one for each name and surroundings."""

    def __init__(self):
        self.workers: dict[tuple, Worker] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.count = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_) -> None:
        for worker in self.workers.values():
            worker.close()
        self.folder.cleanup()

    def worker(self, contestant: Contestant, threads: int) -> Worker:
        """One that waits, or a new one where there is none, or where it has ended."""
        key = (contestant.name, contestant.python, threads, *sorted(contestant.env.items()))
        if key not in self.workers or self.workers[key].process.poll() is not None:
            self.count += 1
            folder = Path(self.folder.name, str(self.count))
            folder.mkdir()
            self.workers[key] = Worker(contestant, threads, folder)
        self.workers[key].answer.unlink(missing_ok=True)
        return self.workers[key]


def contest(
    contestants: list[Contestant],
    threads: int,
    rounds: int = 5,
    box: float = 60.0,
    budget: float = 60.0,
    limit: int = 8 * GIB,
    tolerance: float | None = None,
    pool: Pool | None = None,
) -> dict:
    """Run it, first contestant first: ours, which the ratios and differences of the others are taken to.

    Args:
        threads: processors that each contestant may use, from 1 to those that there are.
        rounds: how often each is timed. From the fourth on, none is begun once `budget` seconds were timed in all.
        box: most seconds that a single call, or four times as many that preparing, may take.
        limit: most bytes of memory that each may hold.
        tolerance: largest absolute difference between results that counts as agreement; None: nothing is compared.
        pool: where workers stay between contests; None for workers of this contest alone.

    Returns:
        "threads"; "contestants", a list of name, call, options, peer, work and either "failed", the reason, or "seconds" of
        each round, "median", "least", "most", seconds to be "ready", "versions", and bytes of memory: "before" the first
        call, "settled" after it, and at the "peak" of the others; "ratios", of medians per unit of work, and
        "differences", each by name; "agree", None if not asked or if there was nothing to compare.

    ValueError for fewer than two contestants, two of one name, no environment, no rounds, or more threads than processors.
    """
    check(contestants, threads, rounds)
    rows = {c.name: dict(name=c.name, call=c.call, options=c.options, peer=c.peer, work=c.work) for c in contestants}
    workers: dict[str, Worker] = {}
    answers: dict[str, np.ndarray] = {}

    def ask(name: str, seconds: float, **order) -> dict | None:
        """The worker's answer; None for a contestant that fails, leaves, and keeps the reason instead of its times."""
        try:
            return workers[name].ask(seconds, limit, **order)
        except Failed as reason:
            workers.pop(name)
            rows[name]["failed"] = str(reason)
            return None

    with contextlib.ExitStack() as stack:
        pool = pool or stack.enter_context(Pool())
        for c in contestants:
            workers[c.name] = worker = pool.worker(c, threads)
            options = c.options | ({"inputs": str(c.inputs)} if c.inputs else {})
            order = dict(do="prepare", call=c.call, options=options, answer=str(worker.answer))
            if found := ask(c.name, 4 * box, **order):
                rows[c.name] |= found | {"seconds": []}
                if worker.answer.is_file():
                    answers[c.name] = np.load(worker.answer)
        for turn in range(rounds):
            if turn < LEAST or sum(sum(row.get("seconds", [])) for row in rows.values()) <= budget:
                for name in [*workers]:
                    if found := ask(name, box, do="time"):
                        rows[name]["seconds"].append(found["seconds"])
        for name in [*workers]:
            rows[name] |= ask(name, box, do="finish") or {}
    return {"threads": threads, "contestants": summarised(rows), **compared(rows, answers, tolerance)}


def check(contestants: list[Contestant], threads: int, rounds: int) -> None:
    """The ValueErrors of `contest`."""
    names = [contestant.name for contestant in contestants]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"a contest needs two contestants or more, each with a name of its own, not {names}")
    if missing := {str(contestant.python) for contestant in contestants if not contestant.python.is_file()}:
        raise ValueError(f"there is no {' or '.join(missing)}: run `make bench`, which makes the peers' environment")
    there = len(os.sched_getaffinity(0))
    if not 1 <= threads <= there:
        raise ValueError(f"threads must be 1 to {there}, the processors of this machine, not {threads!r}")
    if rounds < 1:
        raise ValueError(f"rounds must be 1 or more, not {rounds!r}")


def summarised(rows: dict[str, dict]) -> list[dict]:
    """The rows with median, least and most seconds of each contestant; none of one that has failed."""
    for row in rows.values():
        if "failed" in row:
            row.pop("seconds", None)
        else:
            seconds = row["seconds"]
            row |= {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
    return [*rows.values()]


def compared(rows: dict[str, dict], answers: dict[str, np.ndarray], tolerance: float | None) -> dict:
    """Ratios of medians per unit of work to the first contestant's, largest differences from its result, agreement."""
    first, *others = rows
    cost = {name: row["median"] / row["work"] for name, row in rows.items() if "failed" not in row}
    ratios = {name: cost[name] / cost[first] for name in others if name in cost and first in cost}
    both = [name for name in ratios if name in answers and first in answers]
    differences = {name: difference(answers[name], answers[first]) for name in both}
    agree = None
    if tolerance is not None and differences:
        agree = all(value is not None and value <= tolerance for value in differences.values())
    return {"ratios": ratios, "differences": differences, "tolerance": tolerance, "agree": agree}


def difference(one: np.ndarray, other: np.ndarray) -> float | None:
    """The largest absolute difference; None where the shapes differ or an entry is not finite."""
    if one.shape != other.shape:
        return None
    largest = float(np.abs(one - other).max(initial=0.0))
    return largest if np.isfinite(largest) else None


def caches() -> dict[str, str]:
    """Sizes of the first processor's caches, as the kernel writes them."""
    sizes = {}
    for path in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (path / "type").read_text().strip()
        if kind != "Instruction":
            sizes[f"L{(path / 'level').read_text().strip()}"] = (path / "size").read_text().strip()
    return sizes


def machine() -> dict:
    """What the numbers of this run depend on besides the work."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": git_commit(),
    }


def write(path: Path, record: dict) -> None:
    """JSON, whole or not at all."""
    write_whole(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
