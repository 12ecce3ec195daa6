"""A measurement on request: which change of the belief, or of the columns, moves predictions as a tuned prompt does.

It asks like `measured`, of fewer families, but by how open a text leaves the state, and beside functions that no
readout is. Of each text, p is the exact belief about the state at the mask, (S,), g the network's prediction there
behind its tuned prompt, and g₀ that without one, both (X,). Distances are mean total variations on test texts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hmmbook import Measurement, Task
from hmmbook.experiments.fields import Distance, Share
from hmmbook.experiments.measurements import Seeds, Split
from hmmbook.studies.kinds_of_text import mean, means
from hmmbook.studies.readouts.families import FAMILIES, FITTED, LEAST, fit_readout
from hmmbook.studies.readouts.measured import RIGHT, labels_on
from hmmbook.studies.readouts.other_functions import free_readout, softmax_readout
from hmmbook.studies.readouts.readout import total_variation
from hmmlib import HMM, LinearHead

OPENNESS = {
    "below 0.1": (0.0, 0.1),
    "0.1 to 0.5": (0.1, 0.5),
    "0.5 to 1": (0.5, 1.0),
    "above 1": (1.0, torch.inf),
}
"""How open a text leaves the state: the entropy of p in nats, from the first number to below the second."""
FITS = {
    "unchanged": FAMILIES["unchanged"],
    "weights": FAMILIES["reweighted"],
    "relabelled": FAMILIES["relabelled"],
    "both": FAMILIES["relabelled and reweighted"],
}
"""W p, W (c ⊙ p) / cᵀp, R p and R (c ⊙ p) / cᵀp."""
WITH_WEIGHTS = ("weights", "both")
NO_READOUTS = ("softmax of p", "softmax of log g0", "any function")
"""softmax(L p + b), softmax(M log g₀ + b), and a small network of log p."""
ALL_FITS = (*FITS, *NO_READOUTS)
BY_OPENNESS = {"all": Distance} | dict.fromkeys(OPENNESS, Distance | None)


def by_openness(beliefs: Tensor) -> dict[str, Tensor]:
    """Tell which texts leave the state how open."""
    entropy = torch.special.entr(beliefs).sum(1)
    kinds = {}
    for name, (low, high) in OPENNESS.items():
        kinds[name] = (entropy >= low) & (entropy < high)
    return kinds


def fit_predictions(
    model: HMM, beliefs: Split, plain: Split, target: Tensor, seed: int, before_step: Callable
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Make each fit on the first training texts.

    Args:
        model: The model.
        beliefs: p.
        plain: g₀.
        target: What is to be predicted, on the training texts, (n, X).
        seed: The seed of the searches.
        before_step: What to call now and then.

    Returns:
        What each fit predicts on test texts, (n, X), and the weights c, (S,), of those that have some.
    """
    target = target[:FITTED]
    train = beliefs[0][:FITTED]
    test = beliefs[2]
    plain_train = plain[0][:FITTED]
    plain_test = plain[2]
    predicted = {}
    weights = {}
    for name, family in FITS.items():
        fit = fit_readout(train, target, model.emission, family, seed)
        predicted[name] = fit(test)
        if name in WITH_WEIGHTS:
            weights[name] = fit.weights
        before_step()
    predicted["softmax of p"] = softmax_readout(train, target)(test)
    predicted["softmax of log g0"] = softmax_readout(log(plain_train), target)(log(plain_test))
    before_step()
    predicted["any function"] = free_readout(log(train), target, seed)(log(test))
    return predicted, weights


def log(probs: Tensor) -> Tensor:
    """Logarithms of probabilities that may be 0."""
    return probs.clamp(min=LEAST).log()


@Measurement(
    phase="movement",
    on_request=True,
    vanilla=True,
    prompts=True,
    fit_distances=dict.fromkeys(ALL_FITS, BY_OPENNESS),
    fit_distances_without_prompt=dict.fromkeys(ALL_FITS, BY_OPENNESS),
    fit_labels=dict.fromkeys(ALL_FITS, RIGHT),
    fit_weights=dict.fromkeys(WITH_WEIGHTS, dict[str, Share]),
    openness=dict.fromkeys(OPENNESS, Share),
)
def fits_of_movement(
    model: HMM,
    task: Task,
    beliefs: Split,
    untuned: Split,
    prompted: Split,
    tuned_head: LinearHead,
    seeds: Seeds,
    before_step: Callable,
) -> dict:
    """Measure how near each fit comes to g, and to g₀ without a prompt, by how open texts leave the state.

    `fit_labels` has `labels_on` each fit of g with the tuned head. `fit_weights` has c by state, the largest 1.
    `openness` is the share of texts of each kind.
    """
    kinds = by_openness(beliefs[2])
    seed = seeds["evaluation"]

    def distances(predicted: dict[str, Tensor], target: Tensor) -> dict[str, dict]:
        return {name: means(total_variation(probs, target), kinds) for name, probs in predicted.items()}

    without_prompt, _ = fit_predictions(model, beliefs, untuned, untuned[0], seed, before_step)
    predicted, weights = fit_predictions(model, beliefs, untuned, prompted[0], seed, before_step)
    weights_by_state = {}
    for name, values in weights.items():
        weights_by_state[name] = {f"state {state}": weight for state, weight in enumerate(values.tolist())}
    return {
        "fit_distances_without_prompt": distances(without_prompt, untuned[2]),
        "fit_distances": distances(predicted, prompted[2]),
        "fit_labels": labels_on(predicted, tuned_head, task, prompted[2]),
        "fit_weights": weights_by_state,
        "openness": {kind: mean(members) for kind, members in kinds.items()},
    }
