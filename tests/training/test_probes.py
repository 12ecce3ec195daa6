"""Linear probes: against other ways to the same least squares, and where there is nothing to read."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from hmmlib.training.readouts import DECAY, explained, linear_probe, logistic_probe

DRAW = np.random.default_rng(0)
HIDDEN = torch.as_tensor(DRAW.normal(size=(400, 6)) * [1, 5, 0.1, 1, 1, 0] + 3)  # the last does not vary
MAP = torch.as_tensor(DRAW.normal(size=(6, 3)))
VALUES = HIDDEN @ MAP + torch.as_tensor(DRAW.normal(size=(400, 3)))


def standardised():
    spread = HIDDEN.std(0, correction=0)
    return (HIDDEN - HIDDEN.mean(0)) / torch.where(spread > 0, spread, 1)


def test_the_linear_probe_is_least_squares_with_rows_for_the_decay():
    inputs, rows = standardised(), (400 * DECAY) ** 0.5 * torch.eye(6, dtype=torch.float64)
    want, *_ = np.linalg.lstsq(
        torch.cat([inputs, rows]), torch.cat([VALUES - VALUES.mean(0), torch.zeros(6, 3)]), rcond=None
    )
    found = linear_probe(HIDDEN, VALUES)
    assert found(HIDDEN).numpy() == pytest.approx((inputs @ want + VALUES.mean(0)).numpy(), abs=1e-9)


def test_what_is_linear_is_found_and_what_is_not_is_not():
    train, test = slice(0, 300), slice(300, 400)
    exact = HIDDEN @ MAP
    found = linear_probe(HIDDEN[train], exact[train])
    assert explained(found(HIDDEN[test]), exact[test]) > 1 - 1e-6
    bent = (HIDDEN[:, :1] - 3).abs()
    assert explained(linear_probe(HIDDEN[train], bent[train])(HIDDEN[test]), bent[test]) < 0.2


def test_texts_that_are_all_alike_do_not_make_the_probe_read_rounding():
    """Two kinds of training texts, told apart by rounding only in most directions; a third kind is tested."""
    kinds = torch.as_tensor(DRAW.normal(size=(3, 20)))
    inputs = kinds[DRAW.integers(0, 2, 200)] + 1e-7 * torch.as_tensor(DRAW.normal(size=(200, 20)))
    values = torch.as_tensor(DRAW.random((200, 1)))
    assert linear_probe(inputs, values)(kinds[2:]).abs().max() < 100


def test_the_logistic_probe_is_where_another_minimiser_ends():
    labels = (HIDDEN[:, 0] + torch.as_tensor(DRAW.normal(size=400)) > 3.2).bool()
    found, inputs = logistic_probe(HIDDEN, labels), standardised().numpy()
    signs = np.where(labels, 1.0, -1.0)

    def loss(v):
        return np.logaddexp(0, -signs * (inputs @ v[:6] + v[6])).mean() + DECAY * (v[:6] ** 2).sum()

    want = minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-9})
    assert found(HIDDEN).squeeze(1).numpy() == pytest.approx(inputs @ want.x[:6] + want.x[6], abs=1e-3)


def test_separable_labels_have_an_end():
    labels = HIDDEN[:, 1] > 3
    found = logistic_probe(HIDDEN, labels)
    assert ((found(HIDDEN).squeeze(1) >= 0) == labels).double().mean() > 0.99
    assert found.weights.isfinite().all()


def test_the_share_that_is_explained():
    assert explained(VALUES, VALUES) == 1
    assert explained(VALUES.mean(0).expand_as(VALUES), VALUES) == pytest.approx(0)
    assert explained(-VALUES, VALUES) < 0
