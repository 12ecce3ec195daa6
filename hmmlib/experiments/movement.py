"""Measurements on request of how a tuned prompt moves a network's predictions, and of what moves the label.

Of each text, p is the exact belief about the state at the mask, (n, S), g the network's prediction there behind its
tuned prompt, and g₀ that without one, both (n, X). Distances are mean total variations on test texts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Module

from hmmlib.experiments import measurements
from hmmlib.experiments.beyond import FITTED, RIGHT, labels_on, mean, means, requested_of_prompts
from hmmlib.experiments.labels import Task
from hmmlib.experiments.measurements import Seeds, Split
from hmmlib.experiments.specs import Distance, Explained, Share, as_type
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training import bert, readouts, tuning
from hmmlib.training.adapters import Tuned
from hmmlib.training.readers import as_reader
from hmmlib.training.readouts import fit_readout, free_readout, linear_probe, softmax_readout, total_variation
from hmmlib.validation import as_generator

OPENNESS = {"below 0.1": (0.0, 0.1), "0.1 to 0.5": (0.1, 0.5), "0.5 to 1": (0.5, 1.0), "above 1": (1.0, torch.inf)}
"""How open a text leaves the state: the entropy of p, nats, from the first number to below the second."""
FITS = {
    "unchanged": ("emission", False),
    "weights": ("emission", True),
    "relabelled": ("free", False),
    "both": ("free", True),
}
"""W p, W (c ⊙ p) / cᵀp, R p and R (c ⊙ p) / cᵀp, as `fit_readout` takes them."""
OTHERS = "softmax of p", "softmax of log g0", "any function"
"""softmax(L p + b), softmax(M log g₀ + b), and a network of log p."""
WEIGHED = "weights", "both"
BY_OPENNESS = {"all": Distance} | dict.fromkeys(OPENNESS, Distance | None)
SWAPS = ("belief without the prompt", "rest without the prompt", "all without the prompt")
DONATED = ("belief of another text", "rest of another text", "random part of another text")
READ = ("posterior, without the prompt", "posterior", "reweighted posterior")


def by_openness(beliefs: Tensor) -> dict[str, Tensor]:
    """Which texts leave the state how open."""
    entropy = torch.special.entr(beliefs).sum(1)
    return {name: (entropy >= low) & (entropy < high) for name, (low, high) in OPENNESS.items()}


def free_numbers(n_states: int, n_tokens: int) -> dict[str, int]:
    """How many numbers of each fit are free."""
    columns = n_states * (n_tokens - 1)
    counts = 0, n_states - 1, columns, columns + n_states - 1, columns, n_tokens**2 - 1
    return dict(zip((*FITS, *OTHERS), counts, strict=False))


def fit_predictions(
    model: HMM, beliefs: Split, plain: Split, wanted: Tensor, seed: int, before_step: Callable
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What each fit, made on the first training texts, predicts on test texts, (n, X); and the weights c of those
    that have some, (S,)."""
    (train, _, test), (train_g0, _, test_g0), wanted = beliefs, plain, wanted[:FITTED]
    predicted, weights = {}, {}
    for name, family in FITS.items():
        fit = fit_readout(train[:FITTED], wanted, model.emission, *family, seed)
        predicted[name], weights[name] = fit(test), fit.weights
        before_step()
    logs = [part.clamp(min=readouts.LEAST).log() for part in (train[:FITTED], test, train_g0[:FITTED], test_g0)]
    predicted["softmax of p"] = softmax_readout(train[:FITTED], wanted)(test)
    predicted["softmax of log g0"] = softmax_readout(logs[2], wanted)(logs[3])
    before_step()
    predicted["any function"] = free_readout(logs[0], wanted, seed)(logs[1])
    return predicted, {name: weights[name] for name in WEIGHED}


@requested_of_prompts(
    phase="movement",
    fit_distances=dict.fromkeys((*FITS, *OTHERS), BY_OPENNESS),
    fit_distances_without_prompt=dict.fromkeys((*FITS, *OTHERS), BY_OPENNESS),
    fit_labels=dict.fromkeys((*FITS, *OTHERS), RIGHT),
    fit_weights=dict.fromkeys(WEIGHED, dict[str, Share]),
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
    """How near each fit comes to g, and to g₀ without a prompt, on all texts and by how open they leave the state.

    The labels are those that the tuned head gives on each fit of g: the share that is right, and that is as on g. The
    weights are c by state, the largest 1. `openness` is the share of texts of each kind.
    """
    kinds, found, how = by_openness(beliefs[2]), {}, (seeds["evaluation"], before_step)
    for name, outputs in (("fit_distances_without_prompt", untuned), ("fit_distances", prompted)):
        predicted, weights = fit_predictions(model, beliefs, untuned, outputs[0], *how)
        found[name] = {fit: means(total_variation(probs, outputs[2]), kinds) for fit, probs in predicted.items()}
    return found | dict(
        fit_labels=labels_on(predicted, tuned_head, task, prompted[2]),
        fit_weights={name: {f"state {h}": c for h, c in enumerate(each.tolist())} for name, each in weights.items()},
        openness={kind: mean(where) for kind, where in kinds.items()},
    )


def projector(directions: Tensor) -> Tensor:
    """The orthogonal projector (d, d) onto the span of columns (d, k), without directions of rounding."""
    basis, sizes, _ = torch.linalg.svd(directions, full_matrices=False)
    basis = basis[:, sizes > 1e-6 * sizes.max()]
    return basis @ basis.T


def shared_variance(read: Tensor, wanted: Tensor) -> float:
    """The share of the variance of values (n, k) that `read` (n, k) explains after the best shift and scale."""
    read, wanted = read - read.mean(0), wanted - wanted.mean(0)
    return readouts.explained(read * ((read * wanted).sum() / read.square().sum()), wanted)


FOLLOWS = dict[str, as_type(dict.fromkeys((*SWAPS, *DONATED), Share | None))]
READS = dict[str, as_type(dict.fromkeys(READ, Explained))]


@requested_of_prompts(
    label_follows=FOLLOWS,
    label_follows_encoding=FOLLOWS,
    probe_reads=READS,
)
def swapped_beliefs(
    model: HMM, task: Task, network: Module, beliefs: Split, tuned: Tuned, prompted: Split, seeds: Seeds
) -> dict:
    """Which part of the hidden state at the mask the label behind the prompt follows, after each layer.

    The part for the belief is a projection, fitted without a prompt: in `label_follows` on the directions that a linear
    probe of p reads, in `label_follows_encoding` on those along which the hidden state varies with p, which need not
    be the same. The rest is what is left. With one of them taken from the same text without the prompt, or all of it,
    the tables have the share of test texts whose label is as behind the prompt; and with a part taken from another text
    whose label differs, both behind the prompt, the share that takes the other's label. A random part has as many
    directions.

    `probe_reads` has the `shared_variance` of this probe with p, without and behind the prompt, and behind it with the
    belief reweighted by the nearest weights c.
    """
    reader, generator = as_reader(network), as_generator(seeds["evaluation"])
    (_, prompt, head), masked_model, tokens = tuned, bert.as_network(reader.module), task.test.tokens
    (train, _, test), embedded = beliefs, reader.embed(tokens, prompt)
    states = [tuning.all_hidden_at_mask(network, task.tokens, each) for each in (None, prompt)]
    weights = fit_readout(train[:FITTED], prompted[0][:FITTED], model.emission, "emission", True, seeds["evaluation"])
    reweighted = test * weights.weights / (test @ weights.weights).unsqueeze(1)
    other = torch.randperm(len(tokens), generator=generator)
    tables = {"label_follows": {}, "label_follows_encoding": {}, "probe_reads": {}}
    for depth in range(1, len(states[0])):
        (inputs, _, without), (_, _, behind) = (task.split(each[depth].cpu().double()) for each in states)
        probe, every = linear_probe(inputs, train), torch.eye(inputs.shape[1], dtype=torch.float64)

        @torch.no_grad()
        def labels_with(part: Tensor, donor: Tensor, behind: Tensor = behind, depth: int = depth) -> Tensor:
            """The labels where a part of the hidden states behind the prompt is the donor's."""
            changed = (behind + (donor - behind) @ part).to(embedded.vectors)
            logits = bert.logits_with(masked_model, embedded.vectors, embedded.first, depth, changed)
            return head.label(logits.softmax(-1)).cpu()

        own = labels_with(0 * every, behind)
        differ = own != own[other]
        read = probe.weights / probe.scale.unsqueeze(1)
        varies = (torch.linalg.pinv(train - train.mean(0), rcond=1e-6) @ (inputs - inputs.mean(0))).T
        for name, directions in (("label_follows", read), ("label_follows_encoding", varies)):
            belief = projector(directions)
            among = torch.randn(len(belief), round(belief.trace().item()), generator=generator, dtype=torch.float64)
            swaps, donated = (belief, every - belief, every), (belief, every - belief, projector(among))
            row = {which: mean(labels_with(part, without) == own) for which, part in zip(SWAPS, swaps, strict=True)}
            for which, part in zip(DONATED, donated, strict=True):
                row[which] = mean((labels_with(part, behind[other]) == own[other])[differ])
            tables[name][f"layer {depth}"] = row
        pairs = (probe(without), test), (probe(behind), test), (probe(behind), reweighted)
        shares = (shared_variance(*pair) for pair in pairs)
        tables["probe_reads"][f"layer {depth}"] = dict(zip(READ, shares, strict=True))
    return tables


ON_REQUEST = tuple(name for one in measurements.MEASUREMENTS if one.on_request for name in one.names)
"""The names that a result holds only where they were asked for."""
