"""What tests of trials, stores and sweeps share: a tiny trial, its numbers, and commands that end at a step."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hmmbook.experiments.store import load_result
from hmmbook.experiments.trials import TrialResult

TINY = {
    "n_states": 3,
    "n_tokens": 4,
    "steps": 4,
    "batch": 8,
    "train": 40,
    "validation": 20,
    "test": 60,
    "evaluation": 20,
    "epochs": 1,
}
"""The fields of a trial of a tenth of a second."""
CHANGES: list[str] = []
"""The same fields as words of a command, besides --n-states."""
for _name, _value in TINY.items():
    if _name != "n_states":
        CHANGES.extend(["--set", f"{_name}={_value}"])

# One thread, as in the tests' own process, so that numbers are the same to the last bit. Ray's workers are as nice as
# other processes, because at Ray's own niceness of 15 they would hardly run beside busy ones.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "RAY_worker_niceness": "0"}
ENVIRONMENT.pop("RAY_ADDRESS", None)

AT_STEP = """
import os, runpy, signal, sys
from hmmbook.experiments import parts

last_step, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
pretrain = parts.pretrain

def pretrain_and_signal(network, model, plan, seed, on_step, checkpoint):
    def signal_at_step(step, loss):
        if step + 1 == last_step:
            os.kill(os.getpid(), number)
        on_step(step, loss)

    return pretrain(network, model, plan, seed, signal_at_step, checkpoint, every=0.0)  # a checkpoint at every step

parts.pretrain = pretrain_and_signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # the background of a shell ignores it
runpy.run_module("hmmbook", run_name="__main__", alter_sys=True)
"""


def numbers(result: TrialResult) -> dict:
    """All of a result that is the same in every run of its spec."""
    varying = ("spec", "seconds", "environment")
    return {name: value for name, value in vars(result).items() if name not in varying}


def stored(store: Path) -> dict[str, dict]:
    """The numbers of all smoke trials in a store, by file name."""
    return {path.name: numbers(load_result(path)) for path in (store / "smoke").glob("*.json")}


def command_at_step(step: int, sent: signal.Signals, *words: object) -> subprocess.CompletedProcess:
    """Run a command that sends itself a signal after a step of its pretraining."""
    call = [sys.executable, "-c", AT_STEP, str(step), str(int(sent)), *map(str, words)]
    return subprocess.run(call, capture_output=True, encoding="utf8", env=ENVIRONMENT, check=False, timeout=300)


def relatives(mark: str) -> list[str]:
    """The running processes that have `mark` in their environment, each as "1: init"."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if mark.encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_text(encoding="utf8").replace("\0", " ")
                processes.append(f"{folder.name}: {command}")
    return processes


def soon(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition becomes true within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
