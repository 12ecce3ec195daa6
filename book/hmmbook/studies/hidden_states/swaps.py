"""A measurement on request: which part of the hidden state at the mask the label behind a tuned prompt follows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module

from hmmbook import Measurement, Task
from hmmbook.experiments.fields import Explained, Share, as_type
from hmmbook.experiments.measurements import Seeds, Split
from hmmbook.studies.hidden_states.probes import explained, linear_probe
from hmmbook.studies.kinds_of_text import mean
from hmmbook.studies.readouts.families import FAMILIES, FITTED, fit_readout
from hmmlib import HMM, LinearHead, Tuned
from hmmlib.training import bert, tuning
from hmmlib.training.readers import Embedded, as_reader
from hmmlib.validation import as_generator

SWAPS = ("belief without the prompt", "rest without the prompt", "all without the prompt")
"""What is taken from the same text without the prompt."""
DONATED = ("belief of another text", "rest of another text", "random part of another text")
"""What is taken from another text, behind the prompt too."""
READ = ("posterior, without the prompt", "posterior", "reweighted posterior")
FOLLOWS = dict[str, as_type(dict.fromkeys((*SWAPS, *DONATED), Share | None))]
READS = dict[str, as_type(dict.fromkeys(READ, Explained))]


def projector(directions: Tensor) -> Tensor:
    """Return the orthogonal projector, (d, d), onto the span of columns, (d, k), without directions of rounding."""
    basis, sizes, _ = torch.linalg.svd(directions, full_matrices=False)
    basis = basis[:, sizes > 1e-6 * sizes.max()]
    return basis @ basis.T


def shared_variance(read: Tensor, values: Tensor) -> float:
    """Return the share of the variance of values that `read` explains after the best shift and scale, both (n, k)."""
    read = read - read.mean(0)
    values = values - values.mean(0)
    scale = (read * values).sum() / read.square().sum()
    return explained(read * scale, values)


@dataclass(frozen=True)
class ChangedLayer:
    """A network behind its tuned prompt, whose hidden states at the mask are replaced after one layer."""

    network: Module
    embedded: Embedded
    """The test texts behind the prompt."""
    head: LinearHead
    depth: int
    """The number of the layer, 1 for the first."""
    states: Tensor
    """Its hidden states at the mask, (n, width)."""

    @torch.no_grad()
    def labels(self, part: Tensor | None = None, donors: Tensor | None = None) -> Tensor:
        """The labels where a part of the states, given by a projector, is that of the donors, (n, width)."""
        states = self.states
        if part is not None:
            states = states + (donors - states) @ part
        vectors = self.embedded.vectors
        logits = bert.logits_with(self.network, vectors, self.embedded.first, self.depth, states.to(vectors))
        return self.head.label(logits.softmax(-1)).cpu()


def follows(layer: ChangedLayer, without: Tensor, others: Tensor, directions: Tensor, generator) -> dict:
    """How often the label follows the part of the hidden state along some directions, and the rest of it.

    Args:
        layer: The layer.
        without: The states of the same texts without the prompt, (n, width).
        others: For each text, the index of another one, (n,).
        directions: The directions, (width, k).
        generator: The generator of a random part of as many directions.
    """
    everything = torch.eye(without.shape[1], dtype=torch.float64)
    belief = projector(directions)
    n_directions = round(belief.trace().item())
    random_directions = torch.randn(len(belief), n_directions, generator=generator, dtype=torch.float64)
    swapped_parts = (belief, everything - belief, everything)
    donated_parts = (belief, everything - belief, projector(random_directions))
    unchanged = layer.labels()
    labels_of_others = unchanged[others]
    row = {}
    for name, part in zip(SWAPS, swapped_parts, strict=True):
        row[name] = mean(layer.labels(part, without) == unchanged)
    for name, part in zip(DONATED, donated_parts, strict=True):
        follows_other = layer.labels(part, layer.states[others]) == labels_of_others
        row[name] = mean(follows_other[unchanged != labels_of_others])
    return row


@Measurement(
    on_request=True,
    vanilla=True,
    prompts=True,
    label_follows=FOLLOWS,
    label_follows_encoding=FOLLOWS,
    probe_reads=READS,
)
def swapped_beliefs(
    model: HMM, task: Task, network: Module, beliefs: Split, tuned: Tuned, prompted: Split, seeds: Seeds
) -> dict:
    """Measure which part of the hidden state at the mask the label behind the prompt follows, after each layer.

    The part for the belief is a projection, fitted without a prompt. In `label_follows` it is on the directions that a
    linear probe of p reads, and in `label_follows_encoding` on those along which the hidden state varies with p. They
    need not be the same. The rest is what remains.

    A part, the rest, or all of it is taken from the same text without the prompt. The tables then have the share of
    test texts whose label is as behind the prompt. Or a part is taken from another text whose label differs, both
    behind the prompt. The tables then have the share of texts that take the other's label. A random part has as many
    directions.

    `probe_reads` has the `shared_variance` of this probe with p, without and behind the prompt, and behind it with the
    belief reweighted by the nearest weights c.
    """
    reader = as_reader(network)
    masked_model = bert.as_network(reader.module)
    embedded = reader.embed(task.test.tokens, tuned.prompt)
    states_without = tuning.all_hidden_at_mask(network, task.tokens)
    states_behind = tuning.all_hidden_at_mask(network, task.tokens, tuned.prompt)

    train, _, test = beliefs
    fit = fit_readout(train[:FITTED], prompted[0][:FITTED], model.emission, FAMILIES["reweighted"], seeds["evaluation"])
    reweighted = test * fit.weights / (test @ fit.weights).unsqueeze(1)
    generator = as_generator(seeds["evaluation"])
    others = torch.randperm(len(test), generator=generator)

    tables = {"label_follows": {}, "label_follows_encoding": {}, "probe_reads": {}}
    for depth in range(1, len(states_without)):
        inputs, _, without = task.split(states_without[depth].cpu().double())
        _, _, behind = task.split(states_behind[depth].cpu().double())
        probe = linear_probe(inputs, train)
        read_directions = probe.weights / probe.scale.unsqueeze(1)
        left_inverse = torch.linalg.pinv(train - train.mean(0), rcond=1e-6)
        beliefs_to_states = left_inverse @ (inputs - inputs.mean(0))
        layer = ChangedLayer(masked_model, embedded, tuned.head, depth, behind)
        column = f"layer {depth}"
        tables["label_follows"][column] = follows(layer, without, others, read_directions, generator)
        tables["label_follows_encoding"][column] = follows(layer, without, others, beliefs_to_states.T, generator)
        tables["probe_reads"][column] = {
            "posterior, without the prompt": shared_variance(probe(without), test),
            "posterior": shared_variance(probe(behind), test),
            "reweighted posterior": shared_variance(probe(behind), reweighted),
        }
    return tables
