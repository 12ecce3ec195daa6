"""Downstream tasks: the weights μ, texts and labels of every law, against sums over all paths."""

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised

from hmmlib.experiments import labels
from hmmlib.experiments.labels import REDRAWS, draw_mu, draw_task
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.families import sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM
from hmmlib.validation import MASK


@pytest.fixture
def drawn(monkeypatch):
    """The normal numbers of each draw."""
    values, randn = [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, **k: values.append(randn(*a, **k)) or values[-1])
    return values


@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 30])
def test_weights_are_the_difference_of_two_rows_with_six_normal_entries_at_distinct_places(n_states, drawn):
    used, together, entries = torch.zeros(n_states), [], 2 * n_states
    count = min(6, entries)
    for seed in range(300):
        mu = draw_mu(n_states, torch.Generator().manual_seed(seed))
        assert mu.shape == (n_states,)
        assert len(drawn[-1]) == count
        used += mu != 0
        if n_states == 1:
            assert mu.abs().item() == (drawn[-1][0] - drawn[-1][1]).abs().item()
        together.append(sorted(drawn[-1].abs().tolist()) == sorted(mu[mu != 0].abs().tolist()))
    # An entry of μ is zero where neither of its two entries in the 2 × S matrix was drawn.
    absent = (entries - count) * (entries - count - 1) / (entries * (entries - 1))
    np.testing.assert_allclose(used / 300, 1 - absent, atol=5 * np.sqrt(0.25 / 300))
    assert n_states < 30 or np.mean(together) > 0.6  # mostly in six columns, unchanged but for the sign
    assert abs(torch.cat(drawn).mean()) < 0.1
    assert torch.cat(drawn).std() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_places_drawn_with_replacement_may_be_fewer(n, drawn):
    for seed in range(600):
        mu = draw_mu(n, torch.Generator().manual_seed(seed), "repeated")
        assert (mu != 0).sum() <= len(drawn[-1])
    counts = [len(values) for values in drawn]
    assert set(counts) <= set(range(1, min(6, 2 * n) + 1))
    absent = (1 - 1 / (2 * n)) ** 6  # the chance that an entry is not drawn
    assert np.mean(counts) == pytest.approx(2 * n * (1 - absent), abs=0.2)
    assert min(counts) < 6


def by_enumeration(model, tokens, law):
    """The posterior that a law weighs, for one row of a task, by summing over all paths."""
    seen = tokens if law == "masked" else tokens[1:]
    parts = model.transition, model.emission, model.initial, model.embed(seen[None])[0]
    if hasattr(model, "memory"):
        return normalised(Enumeration(*parts, model.memory).of("m0"))
    paths = Enumeration(*parts)
    if law == "stepped":
        return normalised(paths.state(1)) @ model.transition.numpy()
    return normalised(paths.state(1 if law == "masked" else 0))


@pytest.mark.parametrize("law", ["masked", "before", "stepped"])
@pytest.mark.parametrize(
    "make", [lambda seed: sparse_hmm(3, 4, seed, 0.3), lambda seed: sparse_memory_hmm(3, 2, 4, seed)]
)
def test_labels_are_those_of_the_posterior_by_enumeration(law, make):
    for seed in range(12):
        model = make(seed)
        task = draw_task(model, 5, (10, 4, 6), seed, law)
        assert (task.tokens == MASK).sum(0).tolist() == [20, 0, 0, 0, 0]
        expected = np.stack([by_enumeration(model, row, law) for row in task.tokens])
        np.testing.assert_allclose(task.posteriors, expected, atol=1e-12)
        scores = expected @ task.mu.numpy()
        clear = abs(scores) > 1e-12
        np.testing.assert_array_equal(task.labels.numpy()[clear], scores[clear] > 0)
        assert task.redraws == REDRAWS or 0 < task.labels[:10].sum() < 10
        parts = task.train, task.validation, task.test
        assert [part.sizes for part in parts] == [(10, 0, 0), (0, 4, 0), (0, 0, 6)]
        for name in ("tokens", "labels", "posteriors"):
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(task, name))


@pytest.mark.parametrize("model", [random_hmm(4, 6, 2), random_memory_hmm(3, 4, 6, 2)])
def test_texts_and_weights_follow_the_seed_and_the_law(model):
    plain, full = (draw_task(model, 6, (40, 5, 5), 1, *how) for how in ((), ("masked", "distinct")))
    assert torch.equal(plain.tokens, full.tokens)
    assert torch.equal(plain.mu, full.mu)
    laws = {"masked": model.sample(50, 6, 1).tokens[:, 1:]}
    laws["before"] = laws["stepped"] = model.sample(50, 5, 1).tokens
    for law, text in laws.items():
        one, other = (draw_task(model, 6, (40, 5, 5), seed, law) for seed in (1, 2))
        assert torch.equal(one.tokens[:, 1:], text)
        assert not torch.equal(other.mu, one.mu)


def test_weights_are_drawn_again_while_all_labels_of_training_agree(monkeypatch):
    task = draw_task(HMM([[1.0]], [[0.5], [0.5]], [1.0]), 2, (10, 2, 2), 0)
    assert task.redraws == REDRAWS == 20
    redraws = [draw_task(random_hmm(2, 4, seed), 6, (30, 2, 2), seed).redraws for seed in range(60)]
    assert {0, 1} < set(redraws)
    tasks = [draw_task(random_hmm(4, 5, 1), 3, (2, 0, 2), seed) for seed in range(10)]
    assert {task.labels[:2].sum().item() for task in tasks if task.redraws < REDRAWS} == {1}
    monkeypatch.setattr(labels, "draw_mu", lambda n, generator, places: torch.zeros(n, dtype=torch.float64))
    assert draw_task(random_hmm(3, 4, 1).to(dtype=torch.float32), 3, (4, 0, 2), 0).labels.all(), "0 is labelled 1"
