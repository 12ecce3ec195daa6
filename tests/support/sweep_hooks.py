"""What trials in other processes do at a named step: functions that can be sent there."""

import os
import signal
import time

from hmmlib import backend


def die(spec, phase, share):
    """The process of seed 1 is killed after the second of four steps, with its checkpoint not yet written."""
    if spec.seed == 1 and share == 0.5:
        os.kill(os.getpid(), signal.SIGKILL)


def interrupt_the_command(spec, phase, share):
    """Ctrl-C in the process that began the workers, after the second of four steps of seed 1."""
    if spec.seed == 1 and share == 0.5:
        os.kill(os.getppid(), signal.SIGINT)
        while not backend.Interrupts.asked:
            time.sleep(0.01)
