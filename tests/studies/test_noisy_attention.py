"""Noise in predictions: none leaves the head right, and much makes it err."""

import pytest
import torch

from hmmbook.evidence.random_models.memory_instances import memory_instance
from hmmbook.studies.noisy_attention import accuracy_with_noise, add_noise


@pytest.fixture(scope="module")
def case() -> tuple:
    """A model, the theorem's head, all texts in R, and their labels."""
    drawn = memory_instance(5)
    texts = drawn.inputs[torch.as_tensor(drawn.in_r)]
    labels = torch.as_tensor(drawn.target[drawn.in_r] >= 0)
    return drawn.model, drawn.head, texts, labels


def accuracy(case: tuple, size: float, seed: int = 0, draws: int = 10) -> float:
    return accuracy_with_noise(*case, size, torch.Generator().manual_seed(seed), draws)


def test_without_noise_the_head_is_right_on_every_text(case):
    assert len(case[2]) > 10
    assert accuracy(case, 0.0) == 1


def test_much_noise_makes_it_wrong(case):
    assert accuracy(case, 1.0) < 0.95


def test_the_same_generator_gives_the_same_accuracy_and_another_one_another(case):
    assert accuracy(case, 0.3) == accuracy(case, 0.3)
    assert accuracy(case, 0.3) != accuracy(case, 0.3, seed=1)


def test_noise_has_its_size_and_no_entry_is_negative():
    probs = torch.full((100, 20, 5), 0.2, dtype=torch.float64)

    noisy = add_noise(probs, 0.01, torch.Generator().manual_seed(0))

    assert (noisy - probs).std().item() == pytest.approx(0.01, rel=0.05)
    assert add_noise(probs, 1.0, torch.Generator().manual_seed(0)).min() == 0
