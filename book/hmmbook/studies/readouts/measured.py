"""Measurements on request: how near each family of readouts comes to a network's predictions.

Of each text, p is the exact belief about the state at the mask, (S,), and g the network's prediction there, (X,).
Distances are mean total variations on test texts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Module

from hmmbook import Measurement, Task, TrialSpec, draw_mu
from hmmbook.experiments.exact_ladder import ladder_plan
from hmmbook.experiments.fields import Count, Distance, Share
from hmmbook.experiments.labels import LABEL_RULES
from hmmbook.experiments.measurements import Seeds, Split, over_tokens
from hmmbook.studies.kinds_of_text import by_certainty, label_of_each_state, mean, means
from hmmbook.studies.readouts.families import FAMILIES, fit_families
from hmmbook.studies.readouts.other_functions import free_readout
from hmmbook.studies.readouts.readout import total_variation
from hmmlib import HMM, LinearHead, tune_exact_prompt, tune_prompt
from hmmlib.training import tuning
from hmmlib.validation import as_generator

WITHOUT_PROMPT = ("unchanged", "reweighted", "relabelled", "relabelled and reweighted")
"""The families that are fitted to predictions without a prompt."""
OF_CONTROLS = ("unchanged", "reweighted", "relabelled")
"""The families that are fitted behind each prompt of a control."""
CONTROLS = ("untrained", "shuffled labels", "another task", "exact model")
ALIKE = 0.1
"""Two states look alike where the total variation between their columns of W is below this."""
LIKELY = 0.01
"""A state is likely where it is the likeliest on at least this share of the training texts."""
GROUPS = ("weighed", "weighed and likely", "look-alikes", "not weighed but likely")
"""Groups of states."""
LOOK_ALIKES_APART = "distance of look-alikes in R"

BY_CERTAINTY = {"all": Distance, "certain": Distance | None, "spread": Distance | None}
RIGHT = {"right": Share, "as behind the prompt": Share}
VOTES = dict.fromkeys([*GROUPS, *(f"{group}, right" for group in GROUPS)], Count)


def labels_on(fitted: dict[str, Tensor], head: LinearHead, task: Task, behind: Tensor) -> dict[str, dict[str, float]]:
    """Return how often a head's labels on fits of predictions are right, and how often as on the predictions.

    Args:
        fitted: By the name of the fit, what it predicts on test texts, (n, X).
        head: The head.
        task: The task.
        behind: The predictions that were fitted, those behind the prompt, (n, X).
    """
    labels_behind = head.label(behind)
    table = {}
    for name, probs in fitted.items():
        labels = head.label(probs)
        table[name] = {
            "right": mean(labels == task.test.labels),
            "as behind the prompt": mean(labels == labels_behind),
        }
    return table


@Measurement(
    phase="readouts",
    on_request=True,
    vanilla=True,
    readout_distances=dict.fromkeys((*FAMILIES, "free", "constant", "floor"), BY_CERTAINTY),
    readout_labels=dict.fromkeys((*FAMILIES, "free"), RIGHT),
    votes=VOTES | {LOOK_ALIKES_APART: Distance | None},
)
def families_of_readouts(
    model: HMM,
    task: Task,
    beliefs: Split,
    untuned: Split,
    prompted: Split,
    tuned_head: LinearHead,
    seeds: Seeds,
    before_step: Callable,
) -> dict:
    """Measure how near each family comes to the predictions behind the tuned prompt.

    "free" is the distance of a small network of p, "constant" that of the same prediction for every text, and "floor"
    that of W p from the network's predictions without a prompt. `readout_labels` has `labels_on` each fit with the
    tuned head.
    """
    train, _, test = beliefs
    behind, _, g = prompted
    fits = fit_families(model, train, behind, FAMILIES, seeds["evaluation"], before_step)
    fitted = {family: fit(test) for family, fit in fits.items()}
    fitted["free"] = free_readout(train, behind, seeds["evaluation"])(test)
    labels = labels_on(fitted, tuned_head, task, g)
    fitted["constant"] = behind.mean(0).expand_as(g)
    kinds = by_certainty(test)
    distances = {}
    for name, probs in fitted.items():
        distances[name] = means(total_variation(probs, g), kinds)
    distances["floor"] = means(total_variation(untuned[2], test @ model.emission.T), kinds)
    return {
        "readout_distances": distances,
        "readout_labels": labels,
        "votes": states_right(model, task, train, fits["relabelled"].columns, tuned_head),
    }


def states_right(model: HMM, task: Task, beliefs: Tensor, columns: Tensor, head: LinearHead) -> dict:
    """Of GROUPS of states, how many there are, and for how many the head's score of their column of R is right.

    The score is right if it has the sign of μ, or, for a state that the task does not weigh, if its label is that of
    `label_of_each_state`.
    """
    mu = task.mu
    weighed = mu != 0
    likely = torch.bincount(beliefs.argmax(1), minlength=model.n_states) >= LIKELY * len(beliefs)
    opposite = mu.sign().unsqueeze(1) * mu.sign() < 0
    look_alikes = opposite & (distances_between(model.emission) < ALIKE)
    groups = {
        "weighed": weighed,
        "weighed and likely": weighed & likely,
        "look-alikes": look_alikes.any(1),
        "not weighed but likely": ~weighed & likely,
    }
    votes = head.weights @ columns >= 0
    usual_labels = label_of_each_state(task.train, beliefs)
    table = {}
    for group, states in groups.items():
        labels = usual_labels if group == "not weighed but likely" else mu > 0
        table[group] = int(states.sum())
        table[f"{group}, right"] = int((votes == labels)[states].sum())
    table[LOOK_ALIKES_APART] = mean(distances_between(columns)[look_alikes])
    return table


def distances_between(columns: Tensor) -> Tensor:
    """The total variation between any two columns, (S, S)."""
    return (columns.unsqueeze(2) - columns.unsqueeze(1)).abs().sum(0) / 2


@Measurement(on_request=True, vanilla=True, plain_distances=dict.fromkeys(WITHOUT_PROMPT, BY_CERTAINTY))
def plain_readouts(model: HMM, beliefs: Split, untuned: Split, seeds: Seeds, before_step: Callable) -> dict:
    """Measure the same distances without a prompt: how much each family explains of the network's own error."""
    train, _, test = beliefs
    outputs, _, g = untuned
    fits = fit_families(model, train, outputs, WITHOUT_PROMPT, seeds["evaluation"], before_step)
    distances = {}
    for family, fit in fits.items():
        distances[family] = means(total_variation(fit(test), g), by_certainty(test))
    return {"plain_distances": distances}


@Measurement(
    on_request=True,
    vanilla=True,
    prompts=True,
    control_distances=dict.fromkeys(CONTROLS, dict.fromkeys(OF_CONTROLS, Distance)),
)
def control_readouts(
    spec: TrialSpec, model: HMM, task: Task, network: Module, beliefs: Split, seeds: Seeds, before_step: Callable
) -> dict:
    """Measure the same distances behind prompts that cannot have learned the task.

    They are a prompt that was not trained, one tuned on shuffled labels, and one of another task. The fourth is the
    exact model's own tuned vector, whose predictions are a reweighting.
    """
    generator = as_generator(seeds["evaluation"])
    train = task.train
    shuffled = train.labels[torch.randperm(len(train.labels), generator=generator)]
    other_mu = draw_mu(len(task.mu), generator, spec.places)
    other_labels = train.posteriors.to(task.mu) @ other_mu >= 0

    seed = seeds["tuning"]
    prompts = {"untrained": tuning.initial_prompt(network, spec.prompt_length, seed, spec.prompt_start)}
    for name, labels in (("shuffled labels", shuffled), ("another task", other_labels)):
        prompts[name], _ = tune_prompt(
            network, train.tokens, labels, spec.prompt_length, spec.tuning(), seed, spec.prompt_start, before_step
        )
    outputs = {}
    for name, prompt in prompts.items():
        probs = tuning.all_probs_at_mask(network, task.tokens, prompt)
        outputs[name] = over_tokens(task, probs, model.n_tokens)

    origin = LABEL_RULES["masked"].origin(model)
    vector, _ = tune_exact_prompt(origin, beliefs[0], train.labels, ladder_plan(spec.preset), seed)
    outputs["exact model"] = tuple(tuning.probs_behind_prompt(origin, part, vector) for part in beliefs)

    table = {}
    for name, (behind, _, test) in outputs.items():
        fits = fit_families(model, beliefs[0], behind, OF_CONTROLS, seeds["evaluation"], before_step)
        table[name] = {}
        for family, fit in fits.items():
            table[name][family] = mean(total_variation(fit(beliefs[2]), test))
    return {"control_distances": table}
