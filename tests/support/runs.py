"""What tests of trials, of the store and of sweeps share: tiny trials, the numbers in a store, commands and their death."""

import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from hmmlib.experiments.measurements import MEASUREMENTS
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.store import load_result
from hmmlib.experiments.trials import TrialResult, trial_seeds

TINY = dict(n_states=3, n_tokens=4, steps=4, batch=8, train=40, validation=20, test=60, evaluation=20, epochs=1)
"""A trial of a tenth of a second."""
PANEL = dict(n_tokens=4, steps=40, train=100, validation=20, test=60, evaluation=20)
"""What makes a trial of a panel a matter of half a second."""
MEASURED = [
    field.name for field in dataclasses.fields(TrialResult) if field.name not in ("spec", "seconds", "environment")
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
"""One thread, as in the tests' own process, so that numbers are the same to the last bit."""
ENVIRONMENT.pop("RAY_ADDRESS", None)


def numbers(result: TrialResult) -> dict:
    """All of a result but what may differ from run to run."""
    return {name: getattr(result, name) for name in MEASURED}


def with_memory(result: TrialResult, spec: TrialSpec) -> TrialResult:
    """The result of a vanilla model as a memory model's of that spec could be: without what those do not have."""
    has = [one for one in MEASUREMENTS if one.has(spec)]
    names, phases = {name for one in has for name in one.names}, {"pretraining", *(one.phase for one in has)}
    lost = dict.fromkeys({name for one in MEASUREMENTS for name in one.names if name in MEASURED} - names)
    seconds = {phase: value for phase, value in result.seconds.items() if phase in phases}
    return dataclasses.replace(result, spec=spec, seeds=trial_seeds(spec.seed), seconds=seconds, **lost)


def stored(store: Path) -> dict[str, dict]:
    """The numbers of all smoke trials in a store, by file name."""
    return {path.name: numbers(load_result(path)) for path in (store / "smoke").glob("*.json")}


def command(name: str, store: Path, *more: str, **changes) -> list[str]:
    """A call of the command line on the left panel of small trials; `more` are its further arguments."""
    changed = [part for field, value in {**PANEL, **changes}.items() for part in ("--set", f"{field}={value}")]
    start = [sys.executable, "-m", "hmmlib", name, "--preset", "smoke", "--panel", "left", "--store", str(store)]
    return [*start, *changed, *more]


def claimed(store: Path, since: int) -> bool:
    """Whether a spec has been claimed since then (nanoseconds, as time.time_ns() gives them)."""
    return any(path.stat().st_mtime_ns > since for path in (store / "smoke" / ".claims").glob("*.lock"))


def kill_at_random(
    calls: list[list[str]], store: Path, draw: random.Random, longest: float, environment=ENVIRONMENT
) -> int:
    """Start commands, wait until one has claimed a spec, and kill each at a random moment of the next `longest` seconds.

    One time in five they are killed while they start. How many were still running.
    """
    start, early = time.time_ns(), draw.random() < 0.2
    streams = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    running = [subprocess.Popen(call, **streams) for call in calls]
    while not early and all(process.poll() is None for process in running) and not claimed(store, start):
        time.sleep(0.01)
    kills, slept = 0, 0.0
    for moment, process in sorted((draw.uniform(0, longest), k) for k in range(len(running))):
        time.sleep(moment - slept)
        slept = moment
        running[process].kill()
        kills += running[process].wait() == -signal.SIGKILL
    return kills


def to_the_end(calls: list[list[str]], environment=ENVIRONMENT) -> list[str]:
    """Let commands run at the same time until all have ended well; what each wrote."""
    streams = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    running = [subprocess.Popen(call, **streams) for call in calls]
    said = [process.communicate(timeout=600) for process in running]
    assert [process.returncode for process in running] == [0] * len(calls), said
    return [out for out, _ in said]


def runs(said: list[str]) -> list[str]:
    """The trials that commands say they have run, described in words."""
    return re.findall(r"^smoke .*, seed \d+(?=: head)", "\n".join(said), re.MULTILINE)


def relatives(mark: str) -> list[str]:
    """Numbers and command lines of the running processes that have `mark` in their environment: "1: init"."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_text().replace("\0", " ")
                found.append(f"{folder.name}: {words}")
        except OSError:
            continue
    return found


def soon(condition, seconds: float = 20.0) -> bool:
    """Whether something becomes true within so many seconds."""
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return bool(true)
