"""Measurements beyond the paper, made only where they are asked for: what a tuned prompt does, and what the network knows.

Of each text, p is the exact belief about the state at the mask, (n, S), and g the network's prediction there, (n, X). Tables
are by name; where a mean has no text to be over, it is None.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from hmmlib.experiments.labels import LABEL_RULES, Task, draw_mu
from hmmlib.experiments.ladder import ladder_plan, only_where_floats_can_tell
from hmmlib.experiments.measurements import MEASUREMENTS, measurement
from hmmlib.experiments.network_outputs import (
    BY_CERTAINTY,
    FAMILIES,
    KINDS,
    SHARES,
    beliefs_of,
    by_certainty,
    fit_families,
    kinds_of,
    mean,
    network_outputs,
    predictions,
)
from hmmlib.experiments.specs import (
    Amount,
    CountOfStates,
    Distance,
    DistanceL1,
    Explained,
    ShareOfTest,
    TrialSpec,
    as_type,
    by_layer,
    each,
)
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import AssumptionError, essential_states
from hmmlib.theory.certificates import (
    Certificate,
    alternate,
    certificate,
    nearest_head,
    nearest_prompt,
    separating_head,
)
from hmmlib.theory.heads import LinearHead
from hmmlib.theory.separation import Impossible
from hmmlib.theory.theorems import lemma_c_2, theorem_3_6
from hmmlib.training import bert, tuning
from hmmlib.training.adapters import Tuned
from hmmlib.training.probes import explained, linear_probe, logistic_probe
from hmmlib.training.readers import as_reader
from hmmlib.training.readouts import free_readout, total_variation
from hmmlib.validation import as_generator

ALIKE = 0.1
"""Two states look alike where the total variation between their columns of W is below this."""
LIKELY = 0.01
"""A state is likely where it is the likeliest on at least this share of the training texts."""
SLACKS = (0.0, 0.01, 0.03, 0.1, 0.3)
"""How much δ a head with a smaller κ may cost, as shares of the largest entry of |μ|."""
PLAIN = ("unchanged", "reweighted", "relabelled", "relabelled and reweighted")
"""The families that are fitted to the predictions without a prompt."""
CONTROLS, CONTROLLED = ("untrained", "shuffled labels", "another task", "exact model"), PLAIN[:3]
"""The prompts that were not tuned for the task, and the families that are fitted to the predictions behind them."""
CERTIFIED = ("nearest head", "tuned head", "tuned prompt, reweighting", "tuned prompt, relabelling")
CERTIFICATES = each(("certified", "right", "certified but wrong"), ShareOfTest) | {"distance": DistanceL1}
"""Whose labels are certified, and what is measured of each."""


KNOWN = {"belief": Explained, "label": ShareOfTest, "label by belief": ShareOfTest}
"""What `probes` reads off each layer, three times."""
PROBES = {
    f"{what}{where}": by_layer(kind)
    for where in ("", ", behind the prompt", ", fresh weights")
    for what, kind in KNOWN.items()
} | {"guess": ShareOfTest}
GROUPS = ("weighed", "weighed and likely", "look-alikes", "not weighed but likely")
"""Of whose states `votes` gives how many there are, and how many are right."""
VOTES = each([name for group in GROUPS for name in (group, f"{group}, right")], CountOfStates)
SOLVED = each(("head", "prompt"), each(("error", "spread", "spread at 1% more"), Amount))


@measurement(
    vanilla=True,
    on_request=True,
    text_kinds=each(KINDS, ShareOfTest),
    accuracies_by_kind=each(("head", "prompt", "table"), SHARES),
)
def kinds_of_text(
    spec: TrialSpec, model: HMM, task: Task, network: torch.nn.Module, tuned: Tuned, seeds: dict[str, int]
) -> dict:
    """The share of test texts of each kind, and the accuracy of head, prompt, and a table of the likeliest state on each.

    The table gives each state the label that most training texts have of which it is the likeliest.
    """
    train, _, beliefs = beliefs_of(model, task)
    (labels, _, truth), kinds = task.split(task.labels), kinds_of(task, beliefs)
    votes = torch.zeros(model.n_states).index_add_(0, train.argmax(1), labels.float() - 0.5)
    behind, plain, prompt_head = network_outputs(network, model, task, tuned)
    head = tuning.tune_head(plain[0], labels, spec.tuning(), seeds["tuning"])
    right = {
        "head": head.label(plain[2]) == truth,
        "prompt": prompt_head.label(behind[2]) == truth,
        "table": (votes[beliefs.argmax(1)] >= 0) == truth,
    }
    return dict(
        text_kinds={kind: mean(where) for kind, where in kinds.items()},
        accuracies_by_kind={
            who: {"all": mean(ones)} | {kind: mean(ones, where) for kind, where in kinds.items()}
            for who, ones in right.items()
        },
    )


@measurement(
    vanilla=True,
    on_request=True,
    readout_distances=each((*FAMILIES, "free", "constant", "floor"), BY_CERTAINTY),
    readout_labels=each((*FAMILIES, "free"), {"right": ShareOfTest, "as behind the prompt": ShareOfTest}),
    votes=VOTES | {"distance of look-alikes in R": Distance | None},
)
def readouts(
    model: HMM, task: Task, network: torch.nn.Module, tuned: Tuned, seeds: dict[str, int], tick: Callable
) -> dict:
    """How near each family comes to the predictions behind the tuned prompt; fitted on training texts, judged on test texts.

    Distances are mean total variations: "free" is that of a network of p, "constant" that of the same prediction for every
    text, and the "floor" is how far the network is from W p without a prompt. Labels are those that the tuned head gives on
    the fit: the share that is right, and the share that is as on g itself.
    """
    behind, plain, head = network_outputs(network, model, task, tuned)
    (train, _, beliefs), (_, _, truth) = beliefs_of(model, task), task.split(task.labels)
    fits, labels = fit_families(model, train, behind[0], FAMILIES, seeds["evaluation"], tick), {}
    outputs = {family: fit(beliefs) for family, fit in fits.items()}
    outputs["free"] = free_readout(train, behind[0], seeds["evaluation"])(beliefs)
    for family, fitted in outputs.items():
        found = head.label(fitted)
        labels[family] = {"right": mean(found == truth), "as behind the prompt": mean(found == head.label(behind[2]))}
    outputs["constant"] = behind[0].mean(0).expand_as(behind[2])
    distances = {name: total_variation(fitted, behind[2]) for name, fitted in outputs.items()}
    distances["floor"] = total_variation(plain[2], beliefs @ model.emission.T)
    return dict(
        readout_distances={name: by_certainty(values, beliefs) for name, values in distances.items()},
        readout_labels=labels,
        votes=_states_right(model, task, train, fits["relabelled"].columns, head),
    )


@measurement(vanilla=True, on_request=True, plain_distances=each(PLAIN, BY_CERTAINTY))
def plain_readouts(model: HMM, task: Task, network: torch.nn.Module, seeds: dict[str, int], tick: Callable) -> dict:
    """The same distances without a prompt: how much each family explains of the network's own error."""
    (train, _, beliefs), outputs = beliefs_of(model, task), predictions(network, task, model.n_tokens)
    fits = fit_families(model, train, outputs[0], PLAIN, seeds["evaluation"], tick)
    distances = {family: total_variation(fit(beliefs), outputs[2]) for family, fit in fits.items()}
    return dict(plain_distances={family: by_certainty(values, beliefs) for family, values in distances.items()})


def _states_right(
    model: HMM, task: Task, train: Tensor, columns: Tensor, head: LinearHead
) -> dict[str, float | int | None]:
    """Of several groups of states, how many there are, and of how many the head's score of their column of R is right.

    It is right, for a state that the task weighs, where it has the sign of μ; for a likely state that the task does not
    weigh, where its label is the one that most training texts have on which the state is the likeliest.
    """
    scores, weighed = head.weights @ columns >= 0, task.mu != 0
    gap = (model.emission.unsqueeze(2) - model.emission.unsqueeze(1)).abs().sum(0) / 2
    opposite = task.mu.sign().unsqueeze(1) * task.mu.sign() < 0
    pairs = opposite & (gap < ALIKE)
    likeliest, labels = train.argmax(1), task.split(task.labels)[0].float()
    likely = torch.bincount(likeliest, minlength=model.n_states) >= LIKELY * len(train)
    mostly = torch.zeros(model.n_states).index_add_(0, likeliest, labels - 0.5) >= 0
    groups = {
        "weighed": (weighed, task.mu > 0),
        "weighed and likely": (weighed & likely, task.mu > 0),
        "look-alikes": (pairs.any(1), task.mu > 0),
        "not weighed but likely": (~weighed & likely, mostly),
    }
    table = {}
    for name, (states, want) in groups.items():
        table |= {name: int(states.sum()), f"{name}, right": int((scores == want)[states].sum())}
    distances = (columns.unsqueeze(2) - columns.unsqueeze(1)).abs().sum(0) / 2
    return table | {"distance of look-alikes in R": mean(distances, pairs)}


@measurement(
    vanilla=True,
    prompts=True,
    on_request=True,
    control_distances=each(CONTROLS, each(CONTROLLED, Distance)),
)
def control_readouts(
    spec: TrialSpec, model: HMM, task: Task, network: torch.nn.Module, seeds: dict[str, int], tick: Callable
) -> dict:
    """The same distances behind a prompt that was not trained, one tuned on shuffled labels, and one tuned for another task;
    and those of the exact model's predictions behind its one tuned vector, which is a reweighting."""
    tokens, (labels, *_) = task.split(task.tokens)[0], task.split(task.labels)
    train, _, beliefs = beliefs_of(model, task)
    generator = as_generator(seeds["evaluation"])
    shuffled = labels[torch.randperm(len(labels), generator=generator)]
    other = task.split(task.posteriors)[0].to(task.mu) @ draw_mu(len(task.mu), generator, spec.places) >= 0
    how = spec.prompt_length, spec.tuning(), seeds["tuning"], spec.prompt_start, tick
    prompts = {
        "untrained": tuning.initial_prompt(network, spec.prompt_length, seeds["tuning"], spec.prompt_start),
        "shuffled labels": tuning.tune_prompt(network, tokens, shuffled, *how)[0],
        "another task": tuning.tune_prompt(network, tokens, other, *how)[0],
    }
    outputs = {name: predictions(network, task, model.n_tokens, prompt) for name, prompt in prompts.items()}
    origin = LABEL_RULES["masked"].origin(model)
    vector, _ = tuning.tune_exact_prompt(origin, train, labels, ladder_plan(spec.preset), seeds["tuning"])
    outputs["exact model"] = [tuning.probs_behind_prompt(origin, part, vector) for part in (train, train[:0], beliefs)]
    table = {}
    for name, (fitted, _, test) in outputs.items():
        fits = fit_families(model, train, fitted, CONTROLLED, seeds["evaluation"], tick)
        table[name] = {family: mean(total_variation(fit(beliefs), test)) for family, fit in fits.items()}
    return dict(control_distances=table)


@measurement(
    vanilla=True,
    prompts=True,
    on_request=True,
    prompt_cuts=by_layer({"accuracy": ShareOfTest, "distance": Distance}, 1, ("none", "every layer")),
)
def cuts(model: HMM, task: Task, network: torch.nn.Module, tuned: Tuned) -> dict:
    """What is left of the tuned prompt where no text attends to it in one layer, or in every layer: the accuracy of its head,
    and the mean distance of the predictions from those behind the whole prompt."""
    (_, prompt, head), masked_model = tuned, bert.as_network(as_reader(network).module)
    tokens, truth = task.split(task.tokens)[2], task.split(task.labels)[2]
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


@measurement(vanilla=True, prompts=True, on_request=True, probes=PROBES)
def probes(spec: TrialSpec, model: HMM, task: Task, network: torch.nn.Module, tuned: Tuned) -> dict:
    """What linear probes read off the hidden state at the mask, by layer (0: before the first), on test texts.

    "belief" is the share of the belief's variance that a probe of it explains; "label" the share of labels that a probe of
    the label gets right, and "label by belief" the share that μ gets right on the probe of the belief. Each is measured
    without a prompt, behind the tuned prompt, and on a network with fresh weights. "guess" is the share of labels that a
    logistic probe on g gets right.
    """
    (labels, _, truth), (train, _, beliefs) = task.split(task.labels), beliefs_of(model, task)
    untrained = bert.build(spec.shape(), spec.n_tokens, 0).to(network.device)

    def right(inputs: Tensor, test: Tensor) -> float:
        return mean((logistic_probe(inputs, labels)(test).squeeze(1) >= 0) == truth)

    table = {}
    for where, which, prompt in (
        ("", network, None),
        (", behind the prompt", network, tuned.prompt),
        (", fresh weights", untrained, None),
    ):
        rows = [table.setdefault(f"{what}{where}", {}) for what in ("belief", "label", "label by belief")]
        for layer, hidden in enumerate(tuning.all_hidden_at_mask(which, task.tokens, prompt)):
            inputs, _, test = task.split(hidden)
            read = linear_probe(inputs, train)(test)
            found = explained(read, beliefs), right(inputs, test), mean((read @ task.mu >= 0) == truth)
            for row, value in zip(rows, found, strict=True):
                row[f"layer {layer}"] = value
    inputs, _, test = predictions(network, task, model.n_tokens)
    return dict(probes=table | {"guess": right(inputs, test)})


@measurement(
    vanilla=True,
    on_request=True,
    solvable=as_type(SOLVED | {"votes apart": Annotated[float, Field(ge=0, le=1, multiple_of=1)] | None}) | None,
)
def solvable(spec: TrialSpec, model: HMM, task: Task) -> dict:
    """The least δ of a head, and the δ that a prompt and a head reach, as shares of ‖μ‖∞; and their κ, at that δ and at one
    that is larger by 1% of ‖μ‖∞.

    Heads are found by linear programs; prompts and heads by turns from several starts, so that a smaller δ may exist. "votes
    apart" is 1 where a head can score the columns of W with the signs of μ, 0 where none can, and None where rounding leaves
    it open. All of it is None for a label rule without d.
    """
    rule, mu = LABEL_RULES[spec.labels], task.mu
    if rule.reach is None:
        return dict(solvable=None)
    origin, scale = rule.origin(model), mu.abs().max().item()

    def entry(reach: Tensor) -> dict[str, float]:
        (_, least), (_, loose) = (nearest_head(model, mu, reach, slack * scale) for slack in (0, 0.01))
        kappas = {"spread": least.spread / scale, "spread at 1% more": loose.spread / scale}
        return {"error": least.error / scale} | kappas

    separating, starts = separating_head(model, mu), [torch.ones_like(model.initial)]
    if isinstance(separating, LinearHead):
        with suppress(RuntimeError):  # the linear program is beyond its solver
            starts.append(nearest_prompt(origin, mu, separating)[0])
    if (states := essential_states(origin, mu)) is not None:
        with suppress(AssumptionError, UserWarning), only_where_floats_can_tell():
            starts.append(theorem_3_6(origin, mu, states)[0])
    ends = [alternate(origin, mu, start) for start in starts if start.max() > 0]
    best = min(ends, key=lambda end: end[2].error)
    decided = isinstance(separating, LinearHead | Impossible)
    table = {"head": entry(rule.reach(model)), "prompt": entry(lemma_c_2(origin, best[0]))}
    return dict(solvable=table | {"votes apart": float(isinstance(separating, LinearHead)) if decided else None})


def _certified(
    certificates: list[Certificate], heads: list[LinearHead], beliefs, distances, outputs: Tensor, truth: Tensor
) -> dict:
    """Of the head, among several, that certifies the most training texts: the share of test texts that it certifies, the share
    that it gets right, and the share that it certifies and gets wrong."""
    shares = [mean(one.holds(beliefs[0], distances[0])) for one in certificates]
    best = max(range(len(shares)), key=lambda k: shares[k])
    holds, right = certificates[best].holds(beliefs[2], distances[2]), heads[best].label(outputs) == truth
    return {
        "certified": mean(holds),
        "right": mean(right),
        "certified but wrong": mean(holds & ~right),
        "distance": mean(distances[2]),
    }


@measurement(
    vanilla=True,
    on_request=True,
    certified=as_type(each(CERTIFIED, CERTIFICATES)) | None,
)
def certified(
    spec: TrialSpec,
    model: HMM,
    task: Task,
    network: torch.nn.Module,
    tuned: Tuned,
    seeds: dict[str, int],
    tick: Callable,
) -> dict:
    """How many labels are certain to be right, from the network's L1 distance ε to Ḡ on each text, and how many are right.

    This is asked of the head that linear programs find for the exact G, of the head tuned on the network, and of the tuned
    prompt with its head: once with the nearest reweighting as Ḡ, and once with the nearest relabelling R p, where R stands
    in the place of W. The slack and the scale of a head are chosen on training texts. None for labels that do not weigh the
    state at the mask.
    """
    rule, mu = LABEL_RULES[spec.labels], task.mu
    if spec.labels != "masked":
        return dict(certified=None)
    (labels, _, truth), beliefs, scale = task.split(task.labels), beliefs_of(model, task), mu.abs().max().item()
    behind, plain, prompt_head = network_outputs(network, model, task, tuned)
    fits = fit_families(model, beliefs[0], behind[0], ("reweighted", "relabelled"), seeds["evaluation"], tick)
    relabelled = HMM(model.transition, fits["relabelled"].columns, model.initial, columns=True)

    def distances(outputs: tuple[Tensor, ...], readout: Callable[[Tensor], Tensor]) -> list[Tensor]:
        return [2 * total_variation(g, readout(p)) for g, p in zip(outputs, beliefs, strict=True)]

    near, reach = distances(plain, lambda p: p @ model.emission.T), rule.reach(model)
    heads, found = zip(*(nearest_head(model, mu, reach, slack * scale) for slack in SLACKS), strict=True)
    table = {"nearest head": _certified(found, heads, beliefs, near, plain[2], truth)}
    alone = tuning.tune_head(plain[0], labels, spec.tuning(), seeds["tuning"])
    for name, chain, head, d, far, outputs in (
        ("tuned head", model, alone, reach, near, plain[2]),
        ("tuned prompt, reweighting", model, prompt_head, fits["reweighted"].weights,
         distances(behind, fits["reweighted"]), behind[2]),
        ("tuned prompt, relabelling", relabelled, prompt_head, reach,
         distances(behind, fits["relabelled"]), behind[2]),
    ):  # fmt: skip
        heads = [LinearHead(head.weights * step * scale) for step in torch.logspace(-4, 1, 41, dtype=torch.float64)]
        table[name] = _certified([certificate(chain, mu, one, d) for one in heads], heads, beliefs, far, outputs, truth)
    return dict(certified=table)


ON_REQUEST = tuple(name for one in MEASUREMENTS if one.on_request for name in one.names)
"""The names that a result holds only where they were asked for."""
