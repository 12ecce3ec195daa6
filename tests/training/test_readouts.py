"""Fits of what is said to what is believed: each family finds what it can say, and cannot say what others can."""

import numpy as np
import pytest
import torch

from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.training.readouts import WORDS, Readout, fit_readout, free_readout, total_variation
from hmmlib.validation import MASK

MODEL = random_hmm(5, 4, 1, temperature=0.5)
TEXTS = MODEL.sample(600, 6, 2).tokens
BELIEFS = posterior(MODEL, TEXTS, at=0)
FRESH = posterior(MODEL, MODEL.sample(300, 6, 3).tokens, at=0)
DRAW = np.random.default_rng(0)


def a_table(n_rows, n_columns):
    return torch.as_tensor(DRAW.dirichlet(np.full(n_rows, 0.5), n_columns).T)


C, T, R = torch.tensor([1.0, 0.02, 0.5, 0.03, 0.2]).double(), a_table(4, 4), a_table(4, 5)
ONES = torch.ones(5, dtype=torch.float64)
TRUE = {
    ("emission", False): Readout(MODEL.emission, ONES),
    ("translated", False): Readout(T @ MODEL.emission, ONES),
    ("own", False): Readout(R, ONES),
    ("emission", True): Readout(MODEL.emission, C),
    ("translated", True): Readout(T @ MODEL.emission, C),
    ("own", True): Readout(R, C),
}
"""By words, and whether the belief is reweighted: something that the family can say."""


def distance(family, truth, **options):
    """Mean total variation on fresh beliefs between what a family's fit says and what is true."""
    words, reweighted = family
    found = fit_readout(BELIEFS, truth(BELIEFS), MODEL.emission, words, reweighted, **options)
    assert found.columns.sum(0).numpy() == pytest.approx(1)
    assert found.weights.max() == 1
    return total_variation(found(FRESH), truth(FRESH)).mean().item()


@pytest.mark.parametrize("family", TRUE, ids=str)
def test_a_family_finds_what_it_can_say(family):
    assert distance(family, TRUE[family]) < 8e-4


@pytest.mark.parametrize(
    ("family", "other"),
    [
        (("emission", True), ("own", False)),
        (("emission", True), ("translated", False)),
        (("translated", True), ("own", False)),
        (("own", False), ("own", True)),
        (("translated", False), ("emission", True)),
    ],
    ids=str,
)
def test_a_family_cannot_say_what_another_can(family, other):
    assert distance(family, TRUE[other]) > 0.001


def test_a_fake_token_is_a_reweighting_and_the_fit_finds_which():
    """Lemma C.2: behind a prompt u the exact model predicts W (c ⊙ p) / cᵀp, with c ∝ A (u ⊙ P[H_1]) / P[H_0]."""
    prompt = torch.as_tensor(np.random.default_rng(1).uniform(0.05, 1, 5))
    said = masked_token_probs(MODEL, torch.nn.functional.pad(TEXTS, (1, 0), value=MASK), prompt)[:, 1]
    found = fit_readout(BELIEFS, said, MODEL.emission, "emission", True)
    assert total_variation(found(BELIEFS), said).max() < 1e-6
    want = MODEL.transition @ (prompt * (MODEL.transition @ MODEL.initial)) / MODEL.initial
    assert found.weights.numpy() == pytest.approx((want / want.max()).numpy(), abs=1e-4)


def crossed(found, said):
    return -(said * found(BELIEFS).log()).sum(1).mean().item()


def test_columns_are_within_a_proven_distance_of_the_likeliest():
    """Guesses outside every family. Without c the loss is convex in the columns: this gradient bounds what is left."""
    said = TRUE["own", True](BELIEFS) ** 2
    said = said / said.sum(1, keepdim=True)

    def left(found):
        gain = (said / found(BELIEFS)).T @ BELIEFS / len(said)
        return (gain.amax(0).sum() - 1).item()

    found = fit_readout(BELIEFS, said, MODEL.emission, "own")
    assert left(found) < 1e-4
    assert left(Readout(0.99 * found.columns + 0.01 * R, ONES)) > 1e-3


@pytest.mark.parametrize("words", WORDS)
def test_no_fit_is_worse_than_without_weights(words):
    said = TRUE["own", True](BELIEFS)
    losses = [crossed(fit_readout(BELIEFS, said, MODEL.emission, words, way, starts=1), said) for way in (False, True)]
    assert losses[1] <= losses[0] + 1e-12


def test_total_variation_is_the_largest_difference_of_an_events_chance():
    one, two = a_table(4, 3).T, a_table(4, 3).T
    events = torch.as_tensor([[int(bit) for bit in f"{k:04b}"] for k in range(16)]).double()
    assert torch.allclose(total_variation(one, two), ((one - two) @ events.T).amax(1))


def test_a_fit_repeats():
    said = TRUE["own", True](BELIEFS)
    first, again = (fit_readout(BELIEFS, said, MODEL.emission, "own", True, seed=4, starts=2) for _ in range(2))
    assert all(map(torch.equal, first, again))


def test_states_that_nobody_believes_and_beliefs_that_weights_exclude():
    certain = torch.eye(5, dtype=torch.float64)
    found = fit_readout(certain[:3], R.T[:3], MODEL.emission, "own", True)
    assert found(certain[:3]).numpy() == pytest.approx(R.T[:3].numpy(), abs=1e-6)
    assert found.columns.sum(0).numpy() == pytest.approx(1)
    assert (Readout(R, torch.tensor([0.0, 1, 1, 1, 1]))(certain)[0] == 0).all()


def test_the_nearest_fit_is_nearer_than_the_likeliest_where_words_are_nearly_certain():
    """A guess off W by a tenth costs much likelihood where W is nearly zero, and little distance."""
    model = random_hmm(5, 4, 2, temperature=0.05)
    beliefs = posterior(model, model.sample(600, 6, 2).tokens, at=0)
    said = 0.8 * TRUE["own", True](beliefs) + 0.2 * beliefs @ model.emission.T
    for words, reweighted in (("emission", True), ("own", False), ("own", True)):
        likely, near = (
            total_variation(
                fit_readout(beliefs, said, model.emission, words, reweighted, starts=1, nearest=way)(beliefs), said
            ).mean()
            for way in (False, True)
        )
        assert near <= likely
    likely, near = (fit_readout(beliefs, said, model.emission, "emission", True, nearest=way) for way in (False, True))
    assert total_variation(near(beliefs), said).mean() < total_variation(likely(beliefs), said).mean() - 0.003


def test_a_free_function_finds_what_no_family_can_say():
    said = BELIEFS.square() @ R.T
    said = said / said.sum(1, keepdim=True)
    fresh = FRESH.square() @ R.T
    fresh = fresh / fresh.sum(1, keepdim=True)
    free = free_readout(BELIEFS, said, seed=1)
    family = fit_readout(BELIEFS, said, MODEL.emission, "own", True, nearest=True)
    apart = [total_variation(found(FRESH), fresh).mean().item() for found in (free, family)]
    assert apart[0] < 0.005
    assert apart[0] < apart[1]
    again = free_readout(BELIEFS, said, seed=1)
    assert torch.equal(again(FRESH), free(FRESH))
