"""Measurements beyond the paper, made only on request: what a tuned prompt does, and what the network knows.

Of each text, p is the exact belief about the state at the mask, (n, S), and g the network's prediction there, (n, X).
Tables are by name; where a mean has no text to be over, it is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Module

from hmmlib.experiments import measurements
from hmmlib.experiments.labels import LABEL_RULES, Task, draw_mu
from hmmlib.experiments.measurements import Measurement, Seeds, Split, built_if_certain, ladder_plan
from hmmlib.experiments.specs import Amount, Count, Distance, DistanceL1, Explained, Share, TrialSpec, as_type
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import essential_states
from hmmlib.theory.certificates import alternate, certificate, nearest_head, nearest_prompt, separating_head
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible
from hmmlib.theory.theorems import lemma_c_2, theorem_3_6
from hmmlib.training import bert, readouts, tuning
from hmmlib.training.adapters import Tuned
from hmmlib.training.readers import as_reader
from hmmlib.training.readouts import total_variation
from hmmlib.validation import as_generator

FAMILIES = {
    "unchanged": ("emission", False),
    "translated": ("mapped", False),
    "reweighted": ("emission", True),
    "translated and reweighted": ("mapped", True),
    "relabelled": ("free", False),
    "relabelled and reweighted": ("free", True),
}
"""What a prompt may do to the belief, as `fit_readout` takes it."""
FAMILIES_WITHOUT_PROMPT = ("unchanged", "reweighted", "relabelled", "relabelled and reweighted")
FAMILIES_OF_CONTROLS = ("unchanged", "reweighted", "relabelled")
FITTED = 2000
"""The most training texts that a fit is made on."""
CERTAIN, SPREAD = 0.98, 0.8
"""A text is certain where the largest entry of p is above the first, and spread where it is below the second."""
NEAR_TIE = 0.01
"""A text is a near tie where |μᵀp| is at most this share of the largest entry of |μ|."""
ALIKE = 0.1
"""Two states look alike where the total variation between their columns of W is below this."""
LIKELY = 0.01
"""A state is likely where it is the likeliest on at least this share of the training texts."""
SLACKS = (0.0, 0.01, 0.03, 0.1, 0.3)
"""How much δ a head with a smaller κ may cost, as shares of the largest entry of |μ|."""

KINDS = ("certain", "spread", "near tie", "clear", "weighed", "not weighed")
"""The kinds of texts, as `kinds_of` gives them."""
BY_CERTAINTY = {"all": Distance, "certain": Distance | None, "spread": Distance | None}
GROUPS = ("weighed", "weighed and likely", "look-alikes", "not weighed but likely")
"""Groups of states, of which `votes` has how many there are, and how many are right."""
KNOWN = {"belief": Explained, "label": Share, "label by belief": Share}
"""What `probes` read off each layer."""
RIGHT = {"right": Share, "as behind the prompt": Share}
CERTIFIED_HEADS = ("nearest head", "tuned head", "tuned prompt, reweighting", "tuned prompt, relabelling")
CERTIFIED = dict.fromkeys(("certified", "right", "certified but wrong"), Share) | {"distance": DistanceL1}

requested = partial(Measurement, vanilla=True, on_request=True)
requested_of_prompts = partial(requested, prompts=True)


def fit_families(
    model: HMM, beliefs: Tensor, outputs: Tensor, families: Iterable[str], seed: int, before_step: Callable
) -> dict[str, readouts.Readout]:
    """The readout of each family that is nearest to the outputs on the first training texts."""
    fits, beliefs, outputs = {}, beliefs[:FITTED], outputs[:FITTED]
    for family in families:
        fits[family] = readouts.fit_readout(beliefs, outputs, model.emission, *FAMILIES[family], seed)
        before_step()
    return fits


def mean(values: Tensor) -> float | None:
    """The mean of values; None where there are none."""
    return values.double().mean().item() if len(values) else None


def means(values: Tensor, kinds: dict[str, Tensor]) -> dict[str, float | None]:
    """The mean over all texts, and over those of each kind."""
    return {"all": mean(values)} | {kind: mean(values[where]) for kind, where in kinds.items()}


def labels_on(fitted: dict[str, Tensor], head: LinearHead, task: Task, behind: Tensor) -> dict[str, dict[str, float]]:
    """For each fit of the predictions `behind` the prompt, the share of test labels of the tuned head that are right,
    and that are as on these themselves."""
    truths = {"right": task.test.labels, "as behind the prompt": head.label(behind)}
    given = {name: head.label(probs) for name, probs in fitted.items()}
    return {name: {what: mean(each == truth) for what, truth in truths.items()} for name, each in given.items()}


def by_certainty(beliefs: Tensor) -> dict[str, Tensor]:
    """Which texts are certain, and on which the belief is spread."""
    most = beliefs.amax(1)
    return {"certain": most > CERTAIN, "spread": most < SPREAD}


def kinds_of(task: Task, beliefs: Tensor) -> dict[str, Tensor]:
    """Which test texts are of which kind."""
    margin = (task.test.posteriors.to(task.mu) @ task.mu).abs() / task.mu.abs().max()
    weighed = task.mu[beliefs.argmax(1)] != 0
    ties = {"near tie": margin <= NEAR_TIE, "clear": margin > NEAR_TIE}
    return by_certainty(beliefs) | ties | {"weighed": weighed, "not weighed": ~weighed}


def label_of_each_state(task: Task, beliefs: Tensor) -> Tensor:
    """The label that most training texts have on which a state is the likeliest, (S,)."""
    labels = task.train.labels.float()
    return torch.zeros(beliefs.shape[1]).index_add_(0, beliefs.argmax(1), labels - 0.5) >= 0


@requested(
    text_kinds=dict.fromkeys(KINDS, Share),
    accuracies_by_kind=dict.fromkeys(("head", "prompt", "table"), {"all": Share} | dict.fromkeys(KINDS, Share | None)),
)
def kinds_of_text(
    spec: TrialSpec, task: Task, beliefs: Split, untuned: Split, prompted: Split, tuned_head: LinearHead, seeds: Seeds
) -> dict:
    """The share of test texts of each kind, and on each the accuracy of head, prompt, and `label_of_each_state`."""
    (labels, _, truth), kinds = task.split(task.labels), kinds_of(task, beliefs[2])
    found = {
        "head": tuning.tune_head(untuned[0], labels, spec.tuning(), seeds["tuning"]).label(untuned[2]),
        "prompt": tuned_head.label(prompted[2]),
        "table": label_of_each_state(task, beliefs[0])[beliefs[2].argmax(1)],
    }
    return dict(
        text_kinds={kind: mean(where) for kind, where in kinds.items()},
        accuracies_by_kind={who: means(labels == truth, kinds) for who, labels in found.items()},
    )


@requested(
    phase="readouts",
    readout_distances=dict.fromkeys((*FAMILIES, "free", "constant", "floor"), BY_CERTAINTY),
    readout_labels=dict.fromkeys((*FAMILIES, "free"), RIGHT),
    votes=dict.fromkeys((f"{group}{right}" for group in GROUPS for right in ("", ", right")), Count)
    | {"distance of look-alikes in R": Distance | None},
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
    """How near each family, fitted on training texts, comes to the predictions behind the tuned prompt on test texts.

    Distances are mean total variations: "free" is that of a network of p, "constant" that of the same prediction for
    every text, and the "floor" is how far the network is from W p without a prompt. Labels are those that the tuned
    head gives on the fit: the share that is right, and the share that is as on g itself.
    """
    (train, _, test), (behind, _, g) = beliefs, prompted
    fits = fit_families(model, train, behind, FAMILIES, seeds["evaluation"], before_step)
    fitted = {family: fit(test) for family, fit in fits.items()}
    fitted["free"] = readouts.free_readout(train, behind, seeds["evaluation"])(test)
    labels = labels_on(fitted, tuned_head, task, g)
    fitted["constant"] = behind.mean(0).expand_as(g)
    distances = {name: total_variation(probs, g) for name, probs in fitted.items()}
    distances["floor"] = total_variation(untuned[2], test @ model.emission.T)
    return dict(
        readout_distances={name: means(values, by_certainty(test)) for name, values in distances.items()},
        readout_labels=labels,
        votes=_states_right(model, task, train, fits["relabelled"].columns, tuned_head),
    )


@requested(plain_distances=dict.fromkeys(FAMILIES_WITHOUT_PROMPT, BY_CERTAINTY))
def plain_readouts(model: HMM, beliefs: Split, untuned: Split, seeds: Seeds, before_step: Callable) -> dict:
    """The same distances without a prompt: how much each family explains of the network's own error."""
    (train, _, test), (outputs, _, g) = beliefs, untuned
    fits = fit_families(model, train, outputs, FAMILIES_WITHOUT_PROMPT, seeds["evaluation"], before_step)
    distances = {family: total_variation(fit(test), g) for family, fit in fits.items()}
    return dict(plain_distances={family: means(values, by_certainty(test)) for family, values in distances.items()})


def _states_right(model: HMM, task: Task, train: Tensor, columns: Tensor, head: LinearHead) -> dict:
    """Of several groups of states, how many there are, and for how many the head's score of their column of R is right.

    It is right, for a state that the task weighs, where it has the sign of μ; for a likely state that the task does not
    weigh, where its label is that of `label_of_each_state`.
    """
    weighed, positive = task.mu != 0, task.mu > 0
    gap = (model.emission.unsqueeze(2) - model.emission.unsqueeze(1)).abs().sum(0) / 2
    pairs = (task.mu.sign().unsqueeze(1) * task.mu.sign() < 0) & (gap < ALIKE)
    likely = torch.bincount(train.argmax(1), minlength=model.n_states) >= LIKELY * len(train)
    members = weighed, weighed & likely, pairs.any(1), ~weighed & likely
    wanted = positive, positive, positive, label_of_each_state(task, train)
    table = {}
    for group, states, want in zip(GROUPS, members, wanted, strict=True):
        right = (head.weights @ columns >= 0) == want
        table |= {group: int(states.sum()), f"{group}, right": int(right[states].sum())}
    distances = (columns.unsqueeze(2) - columns.unsqueeze(1)).abs().sum(0) / 2
    return table | {"distance of look-alikes in R": mean(distances[pairs])}


@requested_of_prompts(
    control_distances=dict.fromkeys(
        ("untrained", "shuffled labels", "another task", "exact model"), dict.fromkeys(FAMILIES_OF_CONTROLS, Distance)
    )
)
def control_readouts(
    spec: TrialSpec, model: HMM, task: Task, network: Module, beliefs: Split, seeds: Seeds, before_step: Callable
) -> dict:
    """The same distances behind a prompt that was not trained, one tuned on shuffled labels, one of another task;
    and those of the exact model's predictions behind its one tuned vector, which is a reweighting."""
    tokens, labels = task.train.tokens, task.train.labels
    generator = as_generator(seeds["evaluation"])
    shuffled = labels[torch.randperm(len(labels), generator=generator)]
    other = task.train.posteriors.to(task.mu) @ draw_mu(len(task.mu), generator, spec.places) >= 0
    how = spec.prompt_length, spec.tuning(), seeds["tuning"], spec.prompt_start, before_step
    prompts = {
        "untrained": tuning.initial_prompt(network, spec.prompt_length, seeds["tuning"], spec.prompt_start),
        "shuffled labels": tuning.tune_prompt(network, tokens, shuffled, *how)[0],
        "another task": tuning.tune_prompt(network, tokens, other, *how)[0],
    }
    outputs = {
        name: measurements.over_tokens(task, tuning.all_probs_at_mask(network, task.tokens, prompt), model.n_tokens)
        for name, prompt in prompts.items()
    }
    origin = LABEL_RULES["masked"].origin(model)
    vector, _ = tuning.tune_exact_prompt(origin, beliefs[0], labels, ladder_plan(spec.preset), seeds["tuning"])
    outputs["exact model"] = [tuning.probs_behind_prompt(origin, part, vector) for part in beliefs]
    table = {}
    for name, (fitted, _, test) in outputs.items():
        fits = fit_families(model, beliefs[0], fitted, FAMILIES_OF_CONTROLS, seeds["evaluation"], before_step)
        table[name] = {family: mean(total_variation(fit(beliefs[2]), test)) for family, fit in fits.items()}
    return dict(control_distances=table)


@requested_of_prompts(prompt_cuts=dict[str, as_type({"accuracy": Share, "distance": Distance})])
def cuts(task: Task, network: Module, tuned: Tuned) -> dict:
    """What is left of the tuned prompt where no text attends to it in one layer, or in every layer: the accuracy of its
    head, and the mean distance of the predictions from those behind the whole prompt."""
    (_, prompt, head), masked_model = tuned, bert.as_network(as_reader(network).module)
    tokens, truth = task.test.tokens, task.test.labels
    whole = tuning.all_probs_at_mask(network, tokens, prompt)
    table = {"none": {"accuracy": tuning.accuracy(head, whole, truth), "distance": 0.0}}
    layers = range(1, len(masked_model.bert.encoder.layer) + 1)
    for name, cut in [*((f"layer {k}", [k]) for k in layers), ("every layer", [*layers])]:
        last = tuning.all_hidden_at_mask(network, tokens, prompt, cut)[-1]
        with torch.no_grad():
            probs = masked_model.cls(last)[:, :-1].softmax(-1)
        distance = total_variation(probs, whole).mean().item()
        table[name] = {"accuracy": tuning.accuracy(head, probs, truth), "distance": distance}
    return dict(prompt_cuts=table)


@requested_of_prompts(
    probes={
        f"{what}{where}": dict[str, kind]
        for where in ("", ", behind the prompt", ", fresh weights")
        for what, kind in KNOWN.items()
    }
    | {"guess": Share}
)
def probes(spec: TrialSpec, task: Task, network: Module, beliefs: Split, untuned: Split, tuned: Tuned) -> dict:
    """What linear probes read off the hidden state at the mask, by layer (0: before the first), on test texts.

    "belief" is the share of the belief's variance that a probe of it explains; "label" the share of labels that a probe
    of the label gets right, and "label by belief" the share that μ gets right on the probe of the belief. Each is
    measured without a prompt, behind the tuned prompt, and on a network with fresh weights. "guess" is the share of
    labels that a logistic probe on g gets right.
    """
    labels, _, truth = task.split(task.labels)
    untrained = bert.build(spec.shape(), spec.n_tokens, 0).to(network.device)

    def right(inputs: Tensor, test: Tensor) -> float:
        return mean((readouts.logistic_probe(inputs, labels)(test).squeeze(1) >= 0) == truth)

    table = {}
    for where, which, prompt in (
        ("", network, None),
        (", behind the prompt", network, tuned.prompt),
        (", fresh weights", untrained, None),
    ):
        for layer, hidden in enumerate(tuning.all_hidden_at_mask(which, task.tokens, prompt)):
            inputs, _, test = task.split(hidden)
            read = readouts.linear_probe(inputs, beliefs[0])(test)
            found = readouts.explained(read, beliefs[2]), right(inputs, test), mean((read @ task.mu >= 0) == truth)
            for what, value in zip(KNOWN, found, strict=True):
                table.setdefault(f"{what}{where}", {})[f"layer {layer}"] = value
    return dict(probes=table | {"guess": right(untuned[0], untuned[2])})


@requested(
    solvable=as_type(
        dict.fromkeys(("head", "prompt"), dict.fromkeys(("error", "spread", "spread at 1% more"), Amount))
        | {"votes apart": Annotated[float, Field(ge=0, le=1, multiple_of=1)] | None}
    )
    | None
)
def solvable(spec: TrialSpec, model: HMM, task: Task) -> dict:
    """The least δ of a head, and the δ that a prompt and a head reach, as shares of ‖μ‖∞; and their κ, at that δ and at
    one that is larger by 1% of ‖μ‖∞.

    Heads are found by linear programs; prompts and heads by turns from several starts, so that a smaller δ may exist.
    "votes apart" is 1 where a head can score the columns of W with the signs of μ, 0 where none can, and None where
    rounding leaves it open. All of it is None for a label rule without d.
    """
    rule, mu = LABEL_RULES[spec.labels], task.mu
    if rule.diagonal is None:
        return dict(solvable=None)
    origin, scale = rule.origin(model), mu.abs().max().item()
    separating, starts = separating_head(model, mu), [torch.ones_like(model.initial)]
    if isinstance(separating, LinearHead):
        with suppress(RuntimeError):  # the linear program is beyond its solver
            starts.append(nearest_prompt(origin, mu, separating)[0])
    if (states := essential_states(origin, mu)) and (built := built_if_certain(theorem_3_6, origin, mu, states)[0]):
        starts.append(built[0])
    ends = [alternate(origin, mu, start) for start in starts if start.max() > 0]
    best = min(ends, key=lambda end: end[2].error)
    table = {}
    for who, diagonal in (("head", rule.diagonal(model)), ("prompt", lemma_c_2(origin, best[0]))):
        least, loose = (nearest_head(model, mu, diagonal, slack * scale)[1] for slack in (0, 0.01))
        numbers = {"error": least.error, "spread": least.spread, "spread at 1% more": loose.spread}
        table[who] = {name: number / scale for name, number in numbers.items()}
    found = {LinearHead: 1.0, Impossible: 0.0}.get(type(separating))
    return dict(solvable=table | {"votes apart": found})


@requested(certified=as_type(dict.fromkeys(CERTIFIED_HEADS, CERTIFIED)) | None)
def certified(
    spec: TrialSpec,
    model: HMM,
    task: Task,
    beliefs: Split,
    untuned: Split,
    prompted: Split,
    tuned_head: LinearHead,
    seeds: Seeds,
    before_step: Callable,
) -> dict:
    """How many labels are certain to be right, from the network's L1 distance ε to Ḡ on each text, and how many are.

    This is asked of the head that linear programs find for the exact G, of the head tuned on the network, and of the
    tuned prompt with its head: once with the nearest reweighting as Ḡ, and once with the nearest relabelling R p, where
    R stands in the place of W. The slack and the scale of a head are chosen on training texts. None for labels that do
    not weigh the state at the mask.
    """
    if spec.labels != "masked":
        return dict(certified=None)
    (labels, _, truth), mu, scale = task.split(task.labels), task.mu, task.mu.abs().max().item()

    def row(chain: HMM, readout: Callable, outputs: Split, heads: list[LinearHead], d: Tensor) -> dict:
        """Of the head that certifies the most training texts: shares of test texts, and their mean distance."""
        far = [2 * total_variation(g, readout(p)) for g, p in zip(outputs, beliefs, strict=True)]
        certificates = [certificate(chain, mu, head, d) for head in heads]
        shares = [mean(one.holds(beliefs[0], far[0])) for one in certificates]
        best = shares.index(max(shares))
        holds, right = certificates[best].holds(beliefs[2], far[2]), heads[best].label(outputs[2]) == truth
        found = holds, right, holds & ~right, far[2]
        return dict(zip(CERTIFIED, map(mean, found), strict=True))

    def scaled(head: LinearHead) -> list[LinearHead]:
        return [LinearHead(head.weights * step * scale) for step in torch.logspace(-4, 1, 41, dtype=torch.float64)]

    families = "reweighted", "relabelled"
    fits = fit_families(model, beliefs[0], prompted[0], families, seeds["evaluation"], before_step)
    reweighted, relabelled = (fits[family] for family in families)
    other = HMM(model.transition, relabelled.columns, model.initial, columns=True)
    diagonal, behind = LABEL_RULES[spec.labels].diagonal(model), scaled(tuned_head)
    nearest = [nearest_head(model, mu, diagonal, slack * scale)[0] for slack in SLACKS]
    alone = scaled(tuning.tune_head(untuned[0], labels, spec.tuning(), seeds["tuning"]))
    rows = (
        row(model, lambda p: p @ model.emission.T, untuned, nearest, diagonal),
        row(model, lambda p: p @ model.emission.T, untuned, alone, diagonal),
        row(model, reweighted, prompted, behind, reweighted.weights),
        row(other, relabelled, prompted, behind, diagonal),
    )
    return dict(certified=dict(zip(CERTIFIED_HEADS, rows, strict=True)))
