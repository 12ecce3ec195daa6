"""Trials side by side, of which a worker or the command itself is killed: nothing goes on unseen, the rest is kept."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
import torch
from record import slow
from runs import ENVIRONMENT, PANEL, TINY, command, relatives, soon, stored

from hmmlib.experiments.local import describe, run_missing, run_side_by_side
from hmmlib.experiments.specs import TrialSpec, panel_specs
from hmmlib.experiments.store import Claim, checkpoint_path
from hmmlib.training import checkpoints

LONG = dict(steps=100_000, batch=8, documents=20, document_length=2500)
"""A trial of many minutes."""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")


class Enough(Exception):
    pass


def goes_on(spec, store) -> bool:
    """Begin a trial, which must be free: whether pretraining goes on from the step that its checkpoint, if any, holds."""
    kept, told = checkpoints.load(checkpoint_path(spec, store), {}), []

    def stop(_, phase, share):
        told.append(share)
        raise Enough

    with pytest.raises(Enough):
        run_missing([spec], store, say=str, on_progress=stop)
    done = int(kept[1]["done"]) if kept else 0
    return told[0] == (done + 1) / spec.steps


def test_a_killed_workers_trial_is_named_and_can_be_run_again(tmp_path, survived):
    torch.set_num_threads(1)
    specs = [TrialSpec("smoke", seed=9, **{**TINY, **LONG}), *(TrialSpec("smoke", seed=s, **TINY) for s in range(2))]

    def kill_the_last():
        """Who is alone is at work on the long trial: the other has done the rest, and left that one to it."""
        if soon(lambda: len(multiprocessing.active_children()) == 2, 60):
            soon(lambda: len(multiprocessing.active_children()) < 2, 120)
        for process in multiprocessing.active_children():
            process.kill()

    killer = threading.Thread(target=kill_the_last)
    killer.start()
    said = rf"^1 of 2 processes died; the rest is kept\. Run again what is missing: {describe(specs[0])}$".replace(
        "|", r"\|"
    )
    with pytest.raises(RuntimeError, match=said):
        run_side_by_side(specs, 2, tmp_path)
    killer.join()
    assert set(stored(tmp_path)) == {f"{spec.hash}.json" for spec in specs[1:]}
    assert goes_on(specs[0], tmp_path)
    survived("worker killed")


@linux
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGTERM, marks=slow)], ids=lambda how: how.name
)
def test_workers_end_with_the_command_that_began_them_and_keep_their_work(how, tmp_path, survived):
    """Two workers are in the midst of a trial; what they leave is whole, free, and where they were."""
    mark = f"HMMLIB_FAULT={tmp_path}"
    call = command("trial", tmp_path, "--missing", "--trials", "1", "--workers", "2", **LONG)
    environment = {**ENVIRONMENT, "HMMLIB_FAULT": str(tmp_path)}
    running = subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    specs = panel_specs("smoke", "left", 1, **{**PANEL, **LONG})
    try:
        locks = tmp_path / "smoke" / ".claims"
        assert soon(lambda: len(list(locks.glob("*.lock"))) == 2, 120)
        time.sleep(2)  # some steps, unless the machine is very busy
        if how == signal.SIGINT:  # as Ctrl-C does
            os.killpg(running.pid, how)
        else:
            running.send_signal(how)
        assert running.wait(timeout=60) != 0
        assert soon(lambda: not relatives(mark), 60), relatives(mark)
        assert "Traceback" not in running.stderr.read()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    for spec in specs[:2]:
        assert goes_on(spec, tmp_path)
        assert Claim.take(spec, tmp_path) is not None
    survived("command killed")
