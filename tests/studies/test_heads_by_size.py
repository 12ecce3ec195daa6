"""Heads of least loss with a penalty, and classifiers that are not linear, where the answer is known."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from hmmbook.studies.least_loss import least_loss_head
from hmmbook.studies.mechanism.heads_by_size import PENALTIES, heads_on, nearest_neighbours, small_network
from hmmlib.theory.heads import share_right


def planted(error, n=1500, seed=0):
    """Predictions of three tokens that hardly depend on a label, and the label.

    The label is carried linearly by an error of this size, along one direction of the simplex.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    first = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    second = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    labels = torch.rand(n, generator=generator) < 0.5
    sign = torch.where(labels, 1.0, -1.0).double()[:, None]
    direction = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    return weights * first + (1 - weights) * second + error * sign * direction, labels


def test_only_a_head_with_large_weights_reads_a_small_error():
    probs, labels = planted(error=1e-4)
    free = least_loss_head(probs, labels)
    small = least_loss_head(probs, labels, penalty=1e-4)
    assert share_right(probs @ free >= 0, labels) == 1
    assert share_right(probs @ small >= 0, labels) < 0.65
    assert free.norm() > 1000 > 100 > small.norm()


def test_a_head_of_ordinary_size_reads_a_large_error():
    probs, labels = planted(error=0.03)
    small = least_loss_head(probs, labels, penalty=1e-4)
    assert share_right(probs @ small >= 0, labels) == 1
    assert small.norm() < 200


@pytest.mark.parametrize("penalty", [1e-1, 1e-3, 1e-5])
def test_the_penalised_head_is_where_another_method_finds_the_least_loss(penalty):
    generator = torch.Generator().manual_seed(3)
    probs = torch.rand(400, 5, generator=generator, dtype=torch.float64)
    probs = probs / probs.sum(1, keepdim=True)
    noise = 0.1 * torch.randn(400, generator=generator, dtype=torch.float64)
    labels = probs[:, 0] - probs[:, 1] + noise >= 0
    signs = np.where(labels, 1.0, -1.0)

    def loss(weights):
        losses = np.logaddexp(0, -signs * (probs.numpy() @ weights))
        return losses.mean() + penalty / 2 * weights @ weights

    expected = minimize(loss, np.zeros(5), method="BFGS", options=dict(gtol=1e-9)).x
    head = least_loss_head(probs, labels, penalty)
    np.testing.assert_allclose(head.numpy(), expected, rtol=2e-3, atol=2e-3)


def test_the_larger_the_penalty_the_smaller_the_head():
    probs, labels = planted(error=0.003, seed=1)
    heads = heads_on(probs, labels, seed=0)
    norms = [heads[name].norm().item() for name in PENALTIES]
    assert norms == sorted(norms, reverse=True)


def test_neighbours_and_a_small_network_read_what_no_line_can():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3000, 2, generator=generator, dtype=torch.float64)
    labels = logits[:, 0] * logits[:, 1] >= 0
    probs = torch.cat([logits, torch.zeros(3000, 1)], 1).softmax(1)
    train_labels, test_labels = labels.split([2000, 1000])
    train_probs, test_probs = probs.split([2000, 1000])
    head = least_loss_head(train_probs, train_labels)
    assert share_right(test_probs @ head >= 0, test_labels) < 0.7
    neighbours = nearest_neighbours(train_probs, train_labels, test_probs)
    assert share_right(neighbours, test_labels) > 0.95
    network = small_network(train_probs, train_labels, test_probs, 0)
    assert share_right(network, test_labels) > 0.95
