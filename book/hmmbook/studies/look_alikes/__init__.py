"""Does a tuned prompt do what a fake token does? Chains on which this can be decided, and the trials on them.

The page *tuned-prompts* shows the answers. Six states emit six tokens, pairs of states look alike, and most texts
leave the state open. Task A, μ = e₀ - e₂, is solved for every belief by one fake token, which excludes
states 1 and 3 (Theorem 3.6). Task C weighs the look-alikes with opposite signs, which no fake token and head can solve
for every belief. But C turned out to be solvable on most of the texts that occur (`hmmbook.studies.fake_tokens`). So
task D asks which of two look-alikes the state was, on chains with three pairs of them for which a fake token is proven
to be wrong on many texts. As a control, a prompt has nothing to learn where the labels of A are shuffled.

    python -m hmmbook.studies.look_alikes --seed 3000 --chains 20
    python -m hmmbook.studies.look_alikes --seed 5000 --chains 20 --task-d
"""

from hmmbook.studies.look_alikes.chains import is_decidable, limited_mu, look_alike_chain, masked_texts
from hmmbook.studies.look_alikes.trials import (
    PARTS,
    TASK_D,
    TASKS,
    accuracies,
    chain_of,
    draw_task,
    specs_of,
    specs_of_d,
)

__all__ = [
    "PARTS",
    "TASKS",
    "TASK_D",
    "accuracies",
    "chain_of",
    "draw_task",
    "is_decidable",
    "limited_mu",
    "look_alike_chain",
    "masked_texts",
    "specs_of",
    "specs_of_d",
]
