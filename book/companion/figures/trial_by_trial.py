"""Figure 3's left panel with every trial in it: the one that a reader chooses shows its chain and its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from companion.figures.interactive import Moving
from hmmlib.experiments.summaries import LEFT, as_results, learned, reference, size
from hmmlib.experiments.trials import draw_model, draw_trial_task

if TYPE_CHECKING:
    from hmmlib.experiments.trials import TrialResult


def _trial(result: TrialResult) -> dict:
    """What is drawn of a trial: its accuracies, and of each state the token that it favours and its weight in the task."""
    model = draw_model(result.spec)
    task = draw_trial_task(result.spec, model)
    return {
        "size": size(result),
        "seed": result.spec.seed,
        **{name.split()[0]: read(result) for name, read in LEFT.items()},
        "majority": result.majority_rate,
        "learned": learned(result),
        "states": list(zip(model.emission.argmax(0).tolist(), task.mu.tolist(), strict=True)),
    }


def trial_by_trial(results: Sequence[TrialResult], name: str = "trials") -> Moving:
    """Head and prompt of each trial as two marks joined by a line, the published means beside them.

    The chain of the chosen trial is drawn as its states, each above the token that it emits most often, by the sign of its
    weight in the task.

    ValueError where there is no trial of a vanilla HMM with a prompt, or for trials of different vocabularies.
    """
    chosen = [r for r in as_results(results) if r.prompt_accuracy is not None]
    tokens = {r.spec.n_tokens for r in chosen}
    if len(tokens) != 1:
        raise ValueError(f"results must hold trials with a prompt, of one number of tokens, not of {sorted(tokens)}")
    ordered = sorted(chosen, key=lambda r: (size(r), r.spec.seed))
    published = reference("left")
    data = {
        "tokens": tokens.pop(),
        "trials": [_trial(result) for result in ordered],
        "published": {
            name.split()[0]: [[n, point.mean] for n, point in points.items()] for name, points in published.items()
        },
    }
    return Moving("trials", name, data, "Every trial of the panel: its head, its prompt, its chain and its task.")
