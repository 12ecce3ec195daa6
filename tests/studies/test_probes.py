"""Linear probes, against other ways to the same least squares and the same logistic regression."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from hmmbook.studies.hidden_states import explained, linear_probe, logistic_probe

DRAW = np.random.default_rng(0)


def normal(*shape):
    return torch.as_tensor(DRAW.normal(size=shape))


SCALES = torch.tensor([1, 5, 0.1, 1, 1, 0], dtype=torch.float64)  # The last one does not vary.
HIDDEN = normal(400, 6) * SCALES + 3
VALUES = HIDDEN @ normal(6, 3) + normal(400, 3)
SPREAD = HIDDEN.std(0, correction=0)
INPUTS = (HIDDEN - HIDDEN.mean(0)) / torch.where(SPREAD > 0, SPREAD, 1)
DECAY = 1e-4


def test_the_linear_probe_is_least_squares_with_rows_for_the_decay():
    mean = VALUES.mean(0)
    decay_rows = (400 * DECAY) ** 0.5 * torch.eye(6).double()
    inputs = torch.cat([INPUTS, decay_rows])
    targets = torch.cat([VALUES - mean, torch.zeros(6, 3)])
    weights, *_ = np.linalg.lstsq(inputs, targets, rcond=None)
    expected = INPUTS @ weights + mean
    read = linear_probe(HIDDEN, VALUES)(HIDDEN)
    assert read.numpy() == pytest.approx(expected.numpy(), abs=1e-9)


def test_the_share_of_the_variance_that_is_explained():
    mean = VALUES.mean(0)
    assert explained(VALUES, VALUES) == pytest.approx(1)
    assert explained(mean.expand_as(VALUES), VALUES) == pytest.approx(0)
    assert explained(2 * mean - VALUES, VALUES) == pytest.approx(-3)
    with pytest.raises(ValueError, match="values must vary"):
        explained(mean, mean.expand(2, -1))


def test_the_logistic_probe_is_where_another_minimiser_ends():
    labels = HIDDEN[:, 0] + normal(400) > 3.2
    inputs = INPUTS.numpy()
    signs = np.where(labels, 1.0, -1.0)

    def loss(parameters):
        *weights, bias = parameters
        losses = np.logaddexp(0, -signs * (inputs @ weights + bias))
        return losses.mean() + DECAY * np.square(weights).sum()

    *weights, bias = minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-9}).x
    expected = inputs @ weights + bias
    scores = logistic_probe(HIDDEN, labels)(HIDDEN).squeeze(1)
    assert scores.numpy() == pytest.approx(expected, abs=1e-3)
