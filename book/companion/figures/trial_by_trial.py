"""Figure 3's left panel with every trial in it: the one that a reader chooses shows its chain and its task."""

from __future__ import annotations

from pandas import DataFrame

from companion.figures.figure_3 import LEFT
from companion.figures.interactive import Moving
from hmmlib.experiments.results import published, share_learned, spec_of
from hmmlib.experiments.trials import draw_model, draw_trial_task


def _trial(row) -> dict:
    """What is drawn of a trial: its accuracies, and of each state the token that it favours and its weight in the task."""
    spec = spec_of(row)
    model = draw_model(spec)
    task = draw_trial_task(spec, model)
    return {
        "size": spec.size,
        "seed": spec.seed,
        **{name.split()[0]: row[column] for name, column in LEFT.items()},
        "majority": row.majority_rate,
        "learned": row.learned,
        "states": list(zip(model.emission.argmax(0).tolist(), task.mu.tolist(), strict=True)),
    }


def trial_by_trial(results: DataFrame, name: str = "trials") -> Moving:
    """Head and prompt of each trial with a prompt as two marks joined by a line, the published means beside them.

    The chain of the chosen trial is drawn as its states, each above the token that it emits most often, by the sign of its
    weight in the task. The trials have one vocabulary.
    """
    trials = results[results.prompt_accuracy.notna()].sort_values(["size", "seed"], kind="stable")
    trials = trials.assign(learned=share_learned(trials))
    data = {
        "tokens": int(trials.n_tokens.iloc[0]),
        "trials": [_trial(row) for _, row in trials.iterrows()],
        "published": {
            series.split()[0]: [[n, point.mean] for n, point in points.items()]
            for series, points in published("left").items()
        },
    }
    return Moving("trials", name, data, "Every trial of the panel: its head, its prompt, its chain and its task.")
