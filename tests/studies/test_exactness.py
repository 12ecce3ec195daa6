"""When some prompt and head are right for every belief, and what gates can do beyond that."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from hmmbook.studies.certificates import (
    certificate,
    gated_readout,
    nearest_head,
    prompt_for_separating_head,
    refuting_belief,
    separating_head,
    signal_for,
)
from hmmlib import HMM, Impossible, LinearHead, lemma_c_2, random_hmm

fractions = np.vectorize(Fraction, otypes=[object])
TURN = HMM(np.eye(3)[[1, 2, 0]], np.eye(3), [0.25, 0.25, 0.5], columns=True)
"""A chain that turns its three states around, each with a token of its own."""


def task_of_both_signs(rng):
    mu = torch.as_tensor(rng.integers(-3, 4, 4).astype(float))
    if not mu.min() < 0 < mu.max():
        mu[:2] = torch.tensor([1.0, -1.0])
    return mu


@pytest.mark.parametrize("seed", range(40))
def test_a_refuting_belief_has_another_label_by_score_than_by_task(seed):
    """It is on a state or on an edge between two, and is checked in fractions."""
    rng = np.random.default_rng(seed)
    mu = task_of_both_signs(rng)
    model = random_hmm(4, 3, seed, temperature=1.0)
    head, made = nearest_head(model, mu)
    assert made.error > 1e-6
    near = mu + torch.as_tensor(rng.integers(-1, 2, 4))
    nearest = made.diagonal * (head.weights @ model.emission)
    for score in (nearest, near, -mu, torch.as_tensor(rng.standard_normal(4))):
        belief = refuting_belief(mu, score)
        if belief is None:
            assert np.linalg.matrix_rank(torch.stack([mu, score])) == 1
            continue
        exact = fractions(belief)
        assert min(exact) >= 0
        assert (fractions(mu) @ exact >= 0) != (fractions(score) @ exact >= 0)
        in_float32 = refuting_belief(mu.float(), score)
        assert in_float32.dtype == torch.float64
        assert torch.equal(in_float32, belief)


@pytest.mark.parametrize("scale", [0.25, 1, 8])
def test_nothing_refutes_a_multiple_of_the_task(scale):
    mu = torch.tensor([1.0, -3.0, 0.0, 2.0], dtype=torch.float64)
    assert refuting_belief(mu, scale * mu) is None
    nearly = scale * mu * torch.tensor([1.0, 1.0, 1.0, 1 + 1e-6])
    assert refuting_belief(mu, nearly) is not None


@pytest.mark.parametrize("score_of_unweighed_state", [0.0, 5.0])
def test_on_a_permutation_the_prompt_for_a_separating_head_leaves_no_error(score_of_unweighed_state):
    mu = [1.0, -1.0, 0.0]
    prompt, head = prompt_for_separating_head(TURN, mu, LinearHead([2.0, -3.0, score_of_unweighed_state]))
    assert prompt.min() >= 0
    assert prompt.max() == 1
    assert certificate(TURN, mu, head, lemma_c_2(TURN, prompt)).error < 1e-15


def test_a_separating_head_has_the_signs_of_the_task_and_not_its_sizes():
    scores = separating_head(TURN, [0.1, -5.0, 0.0]).weights @ TURN.emission
    assert scores[0] > 0 > scores[1]


def test_a_state_between_two_of_the_other_sign_cannot_be_separated():
    emission = [[1, 0, 0.5], [0, 1, 0.5]]
    uniform = np.full((3, 3), 1 / 3)
    between = HMM(uniform, emission, [0.25, 0.25, 0.5], columns=True)
    assert isinstance(separating_head(between, [1.0, 1.0, -1.0]), Impossible)
    assert isinstance(separating_head(between, [1.0, 1.0, 0.0]), LinearHead), "a state of no weight may lie anywhere"


def test_without_a_permutation_or_a_separating_head_there_is_no_prompt():
    to_state_0 = [[1.0, 1.0], [0.0, 0.0]]
    merge = HMM(to_state_0, np.eye(2), [0.5, 0.5], columns=True)
    with pytest.raises(ValueError, match=r"^model must have a permutation as transition: with another, not every"):
        prompt_for_separating_head(merge, [1.0, -1.0], LinearHead([2.0, -1.0]))
    with pytest.raises(ValueError, match=r"^head must score each state .* it does not: \[0, 1\]$"):
        prompt_for_separating_head(TURN, [-1.0, 1.0, 0.0], LinearHead([2.0, -1.0, 0.0]))


# Eighths are exact in floating point, so that nothing is left to rounding. States 0 and 1 look alike.
EMISSION = torch.tensor([[4, 4, 1], [4, 4, 7]]).double() / 8
EIGHTHS = [(a, b, 8 - a - b) for a, b in product(range(9), repeat=2) if a + b <= 8]
BELIEFS = torch.tensor(EIGHTHS).double() / 8


def test_without_a_signal_gates_stay_shut():
    shut = BELIEFS @ EMISSION.T
    assert torch.equal(gated_readout(EMISSION, BELIEFS), shut)
    assert torch.equal(gated_readout(EMISSION, BELIEFS, torch.zeros(2, 3)), shut)


@pytest.mark.parametrize("words", list(product(range(2), repeat=3)))
def test_every_relabelling_by_single_tokens_is_said_exactly(words):
    signal = signal_for(words, 2)
    relabelled = torch.eye(2, dtype=torch.float64)[list(words)]
    assert signal.dtype == torch.float64
    assert torch.equal(gated_readout(EMISSION, BELIEFS, signal), BELIEFS @ relabelled)
    assert gated_readout(EMISSION.float(), BELIEFS, signal).dtype == torch.float32
    signal[:, 2] = 0  # A state without a signal keeps its words.
    columns = torch.cat([relabelled[:2], EMISSION.T[2:]])
    assert torch.equal(gated_readout(EMISSION, torch.eye(3), signal), columns)


def test_half_a_signal_opens_no_gate_for_a_belief_that_is_open():
    even = torch.full((1, 3), 1 / 3)
    half = gated_readout(EMISSION, even, signal_for([0, 1, 1], 2) / 2)
    torch.testing.assert_close(half, gated_readout(EMISSION, even))
