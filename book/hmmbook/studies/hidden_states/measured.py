"""Measurements on request: what probes read off each layer, and what is left of a prompt that a layer does not see."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from hmmbook import Measurement, Task, TrialSpec
from hmmbook.experiments.fields import Distance, Explained, Share, as_type
from hmmbook.experiments.measurements import Split
from hmmbook.studies.hidden_states.probes import explained, linear_probe, logistic_probe
from hmmbook.studies.kinds_of_text import mean
from hmmbook.studies.readouts.readout import total_variation
from hmmlib import Tuned, accuracy
from hmmlib.training import bert, tuning
from hmmlib.training.readers import as_reader

READ_OFF = {"belief": Explained, "label": Share, "label by belief": Share}
"""What probes read off each layer."""
NETWORKS = ("", ", behind the prompt", ", fresh weights")
"""What follows in the names of their tables: nothing for the network without a prompt."""
PROBES = {f"{name}{network}": dict[str, kind] for network in NETWORKS for name, kind in READ_OFF.items()}


@Measurement(
    on_request=True,
    vanilla=True,
    prompts=True,
    prompt_cuts=dict[str, as_type({"accuracy": Share, "distance": Distance})],
)
def cuts(task: Task, network: Module, tuned: Tuned) -> dict:
    """Measure what is left of the tuned prompt where no text attends to it in one layer, or in every layer.

    "accuracy" is that of the prompt's own head, and "distance" the mean total variation of the predictions from those
    behind the whole prompt.
    """
    masked_model = bert.as_network(as_reader(network).module)
    n_layers = len(masked_model.bert.encoder.layer)
    cut_layers = {f"layer {layer}": [layer] for layer in range(1, n_layers + 1)}
    cut_layers["every layer"] = list(range(1, n_layers + 1))
    tokens = task.test.tokens
    labels = task.test.labels
    uncut = tuning.all_probs_at_mask(network, tokens, tuned.prompt)
    table = {"none": {"accuracy": accuracy(tuned.head, uncut, labels), "distance": 0.0}}
    for name, layers in cut_layers.items():
        last_states = tuning.all_hidden_at_mask(network, tokens, tuned.prompt, layers)[-1]
        with torch.no_grad():
            probs = masked_model.cls(last_states)[:, :-1].softmax(-1)
        table[name] = {
            "accuracy": accuracy(tuned.head, probs, labels),
            "distance": total_variation(probs, uncut).mean().item(),
        }
    return {"prompt_cuts": table}


@Measurement(on_request=True, vanilla=True, prompts=True, probes=PROBES | {"guess": Share})
def probes(spec: TrialSpec, task: Task, network: Module, beliefs: Split, untuned: Split, tuned: Tuned) -> dict:
    """Measure what linear probes read off the hidden state at the mask, by layer (0: before the first), on test texts.

    "belief" is the share of the belief's variance that a probe of it explains, "label" the share of labels that a probe
    of the label gets right, and "label by belief" the share that μ gets right on the probe of the belief. Each is
    measured without a prompt, behind the tuned prompt, and on a network with fresh weights. "guess" is the share of
    labels that a logistic probe of the prediction gets right.
    """
    train_labels, _, test_labels = task.split(task.labels)

    def label_accuracy(inputs: Tensor, test: Tensor) -> float:
        scores = logistic_probe(inputs, train_labels)(test).squeeze(1)
        return mean((scores >= 0) == test_labels)

    fresh = bert.build(spec.shape(), spec.n_tokens, 0).to(network.device)
    states_of = {
        "": tuning.all_hidden_at_mask(network, task.tokens),
        ", behind the prompt": tuning.all_hidden_at_mask(network, task.tokens, tuned.prompt),
        ", fresh weights": tuning.all_hidden_at_mask(fresh, task.tokens),
    }
    table = {name: {} for name in PROBES}
    for network_name, states in states_of.items():
        for layer, hidden in enumerate(states.cpu()):
            train, _, test = task.split(hidden)
            read = linear_probe(train, beliefs[0])(test)
            column = f"layer {layer}"
            table[f"belief{network_name}"][column] = explained(read, beliefs[2])
            table[f"label{network_name}"][column] = label_accuracy(train, test)
            table[f"label by belief{network_name}"][column] = mean((read @ task.mu >= 0) == test_labels)
    table["guess"] = label_accuracy(untuned[0], untuned[2])
    return {"probes": table}
