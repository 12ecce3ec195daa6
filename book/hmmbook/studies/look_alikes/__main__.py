"""Run the trials on chains of look-alikes that are missing, chain by chain.

python -m hmmbook.studies.look_alikes --seed 3000 --chains 20
python -m hmmbook.studies.look_alikes --seed 5000 --chains 20 --task-d
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from hmmbook import run_missing
from hmmbook.experiments.store import BEYOND
from hmmbook.studies.look_alikes.chains import decidable_seeds, limited_seeds
from hmmbook.studies.look_alikes.trials import PARTS, specs_of, specs_of_d

MEASURED = ["fit_distances", "label_follows", "label_follows_encoding", "text_kinds", "solvable", "probes"]
"""What is measured on tasks A and C."""
MEASURED_ON_D = ["fit_distances", "fake_token_accuracy", "fake_token_bound", "best_head_accuracy"]
"""What is measured on task D, with prompts of 20 vectors."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    seed: Annotated[int, typer.Option(min=0, help="the first seed that is tried")] = 3000,
    chains: Annotated[int, typer.Option(min=1, help="how many chains that can be decided")] = 20,
    task_d: Annotated[bool, typer.Option("--task-d", help="task D, on chains of its own")] = False,
    store: Annotated[Path | None, typer.Option(help="result store; if left out that of mine/results/beyond")] = None,
) -> None:
    """Run the trials that are missing, chain by chain."""
    store = store or BEYOND
    if task_d:
        for chain_seed in islice(limited_seeds(seed), chains):
            with_one_vector, with_twenty = specs_of_d(chain_seed)
            run_missing([with_one_vector], store, parts=PARTS)
            run_missing([with_twenty], store, also=MEASURED_ON_D, parts=PARTS)
        return
    for chain_seed in islice(decidable_seeds(seed), chains):
        *tasks, control = specs_of(chain_seed)
        run_missing(tasks, store, also=MEASURED, parts=PARTS)
        run_missing([control], store, also=["fit_distances"], parts=PARTS)


if __name__ == "__main__":
    app()
