"""What trials in other processes do at a named step: a function that can be sent there."""

import os
import signal
from dataclasses import replace

from runs import soon

from hmmlib import backend
from hmmlib.experiments.store import is_stored


def die_or_interrupt(store, spec, phase, share):
    """After the second of four steps, the process of seed 1 is killed, with its checkpoint not yet written; that of
    seed 3 waits until seed 0 is stored, and sends Ctrl-C to the process that began it."""
    if share == 0.5 and spec.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if share == 0.5 and spec.seed == 3 and soon(lambda: is_stored(replace(spec, seed=0), store), 300):
        os.kill(os.getppid(), signal.SIGINT)
        soon(lambda: backend.Interrupts.asked, 300)
