"""The trials that tell how a tuned prompt helps: one command for each sweep. What is stored is not run again.

    python -m hmmbook.studies.mechanism theorem       # 1 minute: the theorem's prompt without rare steps, no network
    python -m hmmbook.studies.mechanism task-d        # 2 hours: heads by size, changed prompts, controls on task D
    python -m hmmbook.studies.mechanism left-panel    # 1¼ hours: heads by size on the left panel of Figure 3
    python -m hmmbook.studies.mechanism changes       # 40 minutes: changed prompts of 20 vectors and of 1, 30 states

Times are for one of two cores, with another sweep on the other, where the trials themselves are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hmmbook import TrialSpec, results, run_missing
from hmmbook.experiments.store import BEYOND, REFITS
from hmmbook.studies import look_alikes

SIZES = (30, 25, 15, 10, 8, 4)
"""The numbers of states of the left panel, the largest first."""
THEOREM = ["rare_steps", "chosen_prompts"]
"""What is measured of the theorem's prompt."""
HEADS = ["heads_by_size"]
"""What is measured of heads."""
CHANGES = ["prompt_changes", "constant_vectors"]
"""What is measured of changed prompts."""
CONTROLS = ["readable_with_noise", "tuned_constants"]
"""What is measured as a control."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Seeds = Annotated[int, typer.Option(min=1, help="how many seeds of each size, from 0")]
StoreOption = Annotated[Path | None, typer.Option(help="result store; if left out that of mine/results")]


def left_panel(sizes: Sequence[int], trials: int, **fields) -> list[TrialSpec]:
    """The trials of these sizes with the seeds 0, 1, …, in the order of sizes."""
    return [TrialSpec("quick", size, seed, **fields) for size in sizes for seed in range(trials)]


def chains_of_task_d() -> list[int]:
    """The seeds of the chains of task D, as they are stored."""
    stored = results("quick", BEYOND)
    return sorted(stored[stored.own == look_alikes.TASK_D].seed.unique().tolist())


@app.command()
def theorem(trials: Seeds = 20, store: StoreOption = None) -> None:
    """Measure how far the prompt of Theorem 3.6 for the chain without rare steps goes on the true chain."""
    run_missing(left_panel((15, 25, 30), trials), store or REFITS, also=THEOREM)


@app.command()
def task_d(store: StoreOption = None, first: int = 0, chains: int = 20) -> None:
    """Measure heads by size and changed prompts on the chains of task D, from the FIRST of them in order."""
    for seed in chains_of_task_d()[first : first + chains]:
        one_vector, many_vectors = look_alikes.specs_of_d(seed)
        run_missing([one_vector], store or BEYOND, also=HEADS + CHANGES, parts=look_alikes.PARTS)
        run_missing([many_vectors], store or BEYOND, also=HEADS + CHANGES + CONTROLS, parts=look_alikes.PARTS)


@app.command(name="left-panel")
def measure_left_panel(trials: Seeds = 20, store: StoreOption = None) -> None:
    """Measure heads by size on the left panel of Figure 3."""
    run_missing(left_panel(SIZES, trials), store or REFITS, also=HEADS)


@app.command()
def changes(trials: Seeds = 20, store: StoreOption = None, vector: StoreOption = None) -> None:
    """Measure changed prompts at 30 states: of 20 vectors in STORE, and of 1 in VECTOR."""
    run_missing(left_panel((30,), trials), store or REFITS, also=HEADS + CHANGES)
    run_missing(left_panel((30,), trials, prompt_length=1), vector or BEYOND, also=HEADS + CHANGES)


if __name__ == "__main__":
    app()
