"""What tests of trials, stores and sweeps share: tiny trials, their numbers, and commands that end at a step."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hmmlib import backend
from hmmlib.experiments.store import is_stored, load_result
from hmmlib.experiments.trials import TrialResult

TINY = dict(n_states=3, n_tokens=4, steps=4, batch=8, train=40, validation=20, test=60, evaluation=20, epochs=1)
"""A trial of a tenth of a second."""
CHANGES = [part for name, value in TINY.items() if name != "n_states" for part in ("--set", f"{name}={value}")]
"""The same as TINY for a command, but for --n-states."""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "RAY_worker_niceness": "0"}
"""One thread, as in the tests' own process, so that numbers are the same to the last bit; and Ray's workers as nice as
others: at 15, as Ray has it, they would hardly run beside busy processes."""
ENVIRONMENT.pop("RAY_ADDRESS", None)
AT_STEP = """
import os, runpy, signal, sys
from functools import partial
from hmmlib.experiments import trials
from hmmlib.training import pretraining
step, last, number = pretraining.Run.step, int(sys.argv.pop(1)), int(sys.argv.pop(1))

def signalling(run):
    if run.done + 1 == last:
        os.kill(os.getpid(), number)
    step(run)

signal.signal(signal.SIGINT, signal.default_int_handler)  # the background of a shell ignores it
pretraining.Run.step = signalling
trials.pretrain = partial(trials.pretrain, every=0.0)  # a checkpoint after every step
runpy.run_module("hmmlib", run_name="__main__", alter_sys=True)
"""


def numbers(result: TrialResult) -> dict:
    """All of a result but what may differ from run to run."""
    return {name: value for name, value in vars(result).items() if name not in ("spec", "seconds", "environment")}


def stored(store: Path) -> dict[str, dict]:
    """The numbers of all smoke trials in a store, by file name."""
    return {path.name: numbers(load_result(path)) for path in (store / "smoke").glob("*.json")}


def command_at_step(step: int, sent: signal.Signals, *words: object) -> subprocess.CompletedProcess:
    """A command that sends itself a signal at a step of its pretraining, with a checkpoint after each step."""
    call = [sys.executable, "-c", AT_STEP, str(step), str(int(sent)), *map(str, words)]
    return subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)


def relatives(mark: str) -> list[str]:
    """Numbers and command lines of the running processes that have `mark` in their environment: "1: init"."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(f"{folder.name}: {(folder / 'cmdline').read_text().replace(chr(0), ' ')}")
    return found


def soon(condition, seconds: float = 20.0) -> bool:
    """Whether something becomes true within so many seconds."""
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return bool(true)


def die_or_interrupt(store, spec, phase, share):
    """What two processes do after the second of their four steps. That of seed 1 is killed, with its checkpoint not yet
    written; that of seed 3 waits until seed 0 is stored, and sends Ctrl-C to the process that began it."""
    if share == 0.5 and spec.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if share == 0.5 and spec.seed == 3 and soon(lambda: is_stored(replace(spec, seed=0), store), 300):
        os.kill(os.getppid(), signal.SIGINT)
        soon(lambda: backend.Interrupts.asked, 300)
