"""Functions of beliefs, or of predictions, that no readout is: a softmax, and a small network."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmbook.studies.readouts.readout import total_variation
from hmmbook.studies.readouts.search import descend, minimise, nearest, standardise
from hmmlib.validation import as_generator, as_seed

TINY = torch.finfo(torch.float64).tiny


class SoftmaxReadout(NamedTuple):
    """The prediction softmax(L f + b) from features f."""

    weights: Tensor
    """L, (X, d)."""
    bias: Tensor
    """b, (X,)."""

    def __call__(self, features: Tensor) -> Tensor:
        """Return predictions, (n, X), from features, (n, d)."""
        return (features.to(self.weights) @ self.weights.mT + self.bias.unsqueeze(-2)).softmax(-1)


def softmax_readout(features: Tensor, predictions: Tensor) -> SoftmaxReadout:
    """Find the softmax readout that is nearest to predictions, in mean total variation.

    The search has three starts: zero, the readout that changes nothing if the features are logarithms of predictions,
    and the one of least cross-entropy, which is a convex problem.

    Args:
        features: f, (n, d).
        predictions: The predictions, (n, X).
    """
    centre, scale, inputs = standardise(features)
    predictions = predictions.double()
    identity = torch.eye(predictions.shape[1], len(centre), dtype=torch.float64)
    weights = torch.zeros_like(identity).requires_grad_()
    bias = torch.zeros_like(identity[:, 0]).requires_grad_()
    minimise([weights, bias], lambda: F.cross_entropy(inputs @ weights.mT + bias, predictions))
    weights = weights.detach()
    bias = bias.detach()

    starting_weights = torch.stack([0 * weights, identity * scale, weights])
    starting_biases = torch.stack([0 * bias, identity @ centre, bias])

    def predict(inputs: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        return SoftmaxReadout(weights, bias)(inputs)

    weights, bias = nearest(predict, [starting_weights, starting_biases], inputs, predictions)
    weights = weights / scale
    return SoftmaxReadout(weights, bias - weights @ centre)


def free_readout(inputs: Tensor, predictions: Tensor, seed: int = 0, width: int = 64, steps: int = 1000) -> nn.Module:
    """Fit a network with two hidden layers, to see how much its inputs can explain at all.

    Adam fits it to the least cross-entropy, and in the second half of the steps to the least mean total variation.

    Args:
        inputs: Beliefs or their logarithms, (n, d).
        predictions: The predictions, (n, X).
        seed: The seed of the weights and the batches.
        width: The width of the hidden layers.
        steps: The steps of Adam.

    Returns:
        A network that takes inputs, (n, d), in float64, and gives predictions, (n, X).
    """
    inputs = inputs.double()
    predictions = predictions.double()
    generator = as_generator(seed)
    sizes = (inputs.shape[1], width, width, predictions.shape[1])
    with torch.random.fork_rng():
        torch.manual_seed(as_seed(seed))
        layers = [nn.Linear(n_in, n_out, dtype=torch.float64) for n_in, n_out in pairwise(sizes)]
    first, second, last = layers
    network = nn.Sequential(first, nn.GELU(), second, nn.GELU(), last, nn.Softmax(1))

    def loss(step: int) -> Tensor:
        batch = torch.randint(len(inputs), (256,), generator=generator)
        probs = network(inputs[batch])
        targets = predictions[batch]
        if step < steps / 2:
            return -(targets * probs.clamp(min=TINY).log()).sum(1).mean()
        return total_variation(probs, targets).mean()

    descend(network.parameters(), 1e-2, steps, loss)
    return network.requires_grad_(False)
