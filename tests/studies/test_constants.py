"""A constant vector at the mask: where it is added, and that it is tuned."""

import pytest
import torch
from tiny_networks import inputs, lively

from hmmbook.experiments.labels import Task
from hmmbook.studies.mechanism import constants
from hmmbook.studies.mechanism.gate import BOTH, PromptedNetwork
from hmmlib.training import tuning


@pytest.fixture(scope="module")
def network():
    return lively(layers=2, max_length=12)


def task_of(tokens, labels):
    n = len(labels)
    sizes = (n // 2, n // 4, n // 4)
    mu = torch.zeros(2).double()
    posteriors = torch.zeros(n, 2).double()
    return Task(tokens, labels, mu, 0, sizes, posteriors)


def test_a_vector_of_zeros_changes_nothing_and_another_does(network):
    tokens = inputs(n=20)
    task = task_of(tokens, torch.ones(20, dtype=torch.bool))
    places = constants.without_prompt(network, task)
    plain = tuning.all_probs_at_mask(network, tokens)
    texts = torch.arange(20)
    for place in places.values():
        with torch.no_grad():
            unchanged = place.probs(texts, torch.zeros(place.width))
            changed = place.probs(texts, torch.ones(place.width).cumsum(0))
        torch.testing.assert_close(unchanged, plain, rtol=0, atol=1e-5)
        assert (changed - plain).abs().max() > 0.01


def test_behind_a_frozen_prompt_zeros_give_the_frozen_prediction(network):
    tokens = inputs(n=20)
    prompt = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        prompted = PromptedNetwork(network, tokens, prompt)
        probs = constants.behind_attention(prompted, BOTH)(torch.arange(20), torch.zeros(16))
        torch.testing.assert_close(probs, prompted.changed(BOTH))


def test_tuning_finds_a_vector_with_which_a_head_is_right_more_often_than_the_more_frequent_label(network):
    tokens = inputs(n=400)
    labels = tokens[:, 1] < 2
    task = task_of(tokens, labels)
    place = constants.without_prompt(network, task)[constants.BEHIND]
    plan = tuning.Tuning(epochs=20, batch=50)
    with tuning.frozen(network):
        probs = constants.tune_vector(place, task, plan, 0, lambda: None)
    validation, accuracy = constants.fitted_accuracies(task, probs, 4)
    share = labels.double().mean().item()
    assert min(validation, accuracy) > max(share, 1 - share) + 0.1
