"""Downstream tasks: the weights μ, texts and labels of every rule, against sums over all paths."""

import numpy as np
import pytest
import torch

from hmmbook.evidence.enumeration import Enumeration, normalised
from hmmbook.experiments import labels
from hmmbook.experiments.labels import LABEL_RULES, REDRAWS, draw_mu, draw_task
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import non_degenerate_hmm, sparse_hmm, sparse_memory_hmm
from hmmlib.models.hmm import HMM
from hmmlib.validation import MASK


@pytest.fixture
def normal_draws(monkeypatch):
    """The normal numbers of each draw of μ."""
    draws = []
    randn = torch.randn

    def remember(*arguments, **options):
        draws.append(randn(*arguments, **options))
        return draws[-1]

    monkeypatch.setattr(torch, "randn", remember)
    return draws


@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 30])
def test_weights_are_the_difference_of_two_rows_with_six_normal_entries_at_distinct_places(n_states, normal_draws):
    places = 2 * n_states
    count = min(6, places)
    times_nonzero = torch.zeros(n_states)
    for seed in range(300):
        mu = draw_mu(n_states, torch.Generator().manual_seed(seed))
        assert mu.shape == (n_states,)
        assert len(normal_draws[-1]) == count
        times_nonzero += mu != 0
    # An entry of μ is zero where neither of its two entries in the 2 × S matrix was drawn.
    chance_of_zero = (places - count) * (places - count - 1) / (places * (places - 1))
    largest_error = 5 * np.sqrt(0.25 / 300)
    np.testing.assert_allclose(times_nonzero / 300, 1 - chance_of_zero, atol=largest_error)
    assert abs(torch.cat(normal_draws).mean()) < 0.1
    assert torch.cat(normal_draws).std() == pytest.approx(1, abs=0.1)


def test_with_one_state_the_weight_is_the_difference_of_the_two_entries(normal_draws):
    mu = draw_mu(1, 0)
    first, second = normal_draws[0]
    assert mu.abs().item() == (first - second).abs().item()


def test_with_many_states_the_entries_mostly_stand_alone_unchanged_but_for_their_sign(normal_draws):
    unchanged = 0
    for seed in range(300):
        sizes = draw_mu(30, seed).abs()
        drawn = normal_draws[-1].abs().sort().values
        unchanged += torch.equal(sizes[sizes > 0].sort().values, drawn.double())
    assert unchanged > 180


@pytest.mark.parametrize("n", [1, 2, 30])
def test_places_drawn_with_replacement_may_be_fewer(n, normal_draws):
    for seed in range(600):
        mu = draw_mu(n, torch.Generator().manual_seed(seed), "repeated")
        assert (mu != 0).sum() <= len(normal_draws[-1])
    counts = list(map(len, normal_draws))
    assert set(counts) <= set(range(1, min(6, 2 * n) + 1))
    chance_of_absence = (1 - 1 / (2 * n)) ** 6
    expected = 2 * n * (1 - chance_of_absence)
    assert np.mean(counts) == pytest.approx(expected, abs=0.2)
    assert min(counts) < 6


def posterior_by_enumeration(model, tokens, rule):
    """The posterior that a rule weighs, for one text of a task, by summing over all paths."""
    observed = tokens if rule == "masked" else tokens[1:]
    evidence = model.embed(observed[None])[0]
    if hasattr(model, "memory"):
        paths = Enumeration(model.transition, model.emission, model.initial, evidence, model.memory)
        return normalised(paths.of("m0"))
    paths = Enumeration(model.transition, model.emission, model.initial, evidence)
    if rule == "masked":
        return normalised(paths.state(1))
    if rule == "before":
        return normalised(paths.state(0))
    return normalised(paths.state(1)) @ model.transition.numpy()


def vanilla(seed):
    return sparse_hmm(3, 4, seed, 0.3)


def with_memory(seed):
    return sparse_memory_hmm(3, 2, 4, seed)


@pytest.mark.parametrize("rule", ["masked", "before", "stepped"])
@pytest.mark.parametrize("make_model", [vanilla, with_memory])
def test_labels_are_those_of_the_posterior_by_enumeration(rule, make_model):
    for seed in range(12):
        model = make_model(seed)
        task = draw_task(model, 5, (10, 4, 6), seed, rule)
        assert (task.tokens[:, 0] == MASK).all()
        assert (task.tokens[:, 1:] != MASK).all()
        expected = np.stack([posterior_by_enumeration(model, tokens, rule) for tokens in task.tokens])
        np.testing.assert_allclose(task.posteriors, expected, atol=1e-12)
        scores = expected @ task.mu.numpy()
        clear = abs(scores) > 1e-12
        np.testing.assert_array_equal(task.labels.numpy()[clear], scores[clear] > 0)
        assert task.redraws == REDRAWS or 0 < task.labels[:10].sum() < 10


RULES_WITH_DIAGONAL = [name for name, rule in LABEL_RULES.items() if rule.diagonal]


@pytest.mark.parametrize("name", RULES_WITH_DIAGONAL)
def test_the_diagonal_of_a_rule_gives_the_prediction_and_its_head_the_labels(name):
    rule = LABEL_RULES[name]
    for seed in range(12):
        model = non_degenerate_hmm(3, 5, seed, zeros=0.2)
        task = draw_task(model, 6, (60, 2, 2), seed, name)
        predictions = masked_token_probs(model, task.tokens)[:, 0]
        beliefs = task.posteriors * rule.diagonal(model)
        mixtures = beliefs @ model.emission.T / beliefs.sum(1, keepdim=True)
        torch.testing.assert_close(mixtures, predictions)
        head = rule.head(model, task.mu)
        assert torch.equal(head.label(predictions).bool(), task.labels.bool())


def test_the_head_of_another_rule_does_not_give_the_labels():
    wrong_head = LABEL_RULES["before"].head
    agreeing = 0
    for seed in range(12):
        model = non_degenerate_hmm(3, 5, seed, zeros=0.2)
        task = draw_task(model, 6, (60, 2, 2), seed, "masked")
        predictions = masked_token_probs(model, task.tokens)[:, 0]
        labels = wrong_head(model, task.mu).label(predictions)
        agreeing += torch.equal(labels.bool(), task.labels.bool())
    assert agreeing < 6


def test_the_parts_of_a_task_are_its_texts_in_their_order():
    task = draw_task(random_hmm(3, 4, 0), 5, (10, 4, 6), 0)
    parts = [task.train, task.validation, task.test]
    assert task.train.sizes == (10, 0, 0)
    assert task.validation.sizes == (0, 4, 0)
    assert task.test.sizes == (0, 0, 6)
    for name in ("tokens", "labels", "posteriors"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(joined, getattr(task, name))


@pytest.mark.parametrize("make_model", [vanilla, with_memory])
def test_texts_and_weights_follow_the_seed_and_the_rule(make_model):
    model = make_model(2)
    sizes = (40, 5, 5)
    for rule in ("masked", "before", "stepped"):
        n_hidden = 1 if rule == "masked" else 0
        expected = model.sample(50, 5 + n_hidden, 1).tokens[:, n_hidden:]
        task = draw_task(model, 6, sizes, 1, rule)
        assert torch.equal(task.tokens[:, 1:], expected)
        assert not torch.equal(task.mu, draw_task(model, 6, sizes, 2, rule).mu)
    plain = draw_task(model, 6, sizes, 1)
    in_full = draw_task(model, 6, sizes, 1, "masked", "distinct")
    assert torch.equal(plain.tokens, in_full.tokens)
    assert torch.equal(plain.mu, in_full.mu)


def test_weights_are_drawn_again_while_all_labels_of_training_agree():
    one_state = HMM([[1.0]], [[0.5], [0.5]], [1.0])
    assert draw_task(one_state, 2, (10, 2, 2), 0).redraws == REDRAWS == 20
    redraws = set()
    for seed in range(60):
        model = random_hmm(2, 4, seed)
        redraws.add(draw_task(model, 6, (30, 2, 2), seed).redraws)
    assert {0, 1} < redraws
    for seed in range(10):
        task = draw_task(random_hmm(4, 5, 1), 3, (2, 0, 2), seed)
        assert task.redraws == REDRAWS or task.labels[:2].sum() == 1


def test_a_score_of_zero_is_labelled_1(monkeypatch):
    zeros = torch.zeros(3, dtype=torch.float64)
    monkeypatch.setattr(labels, "draw_mu", lambda *arguments: zeros)
    model = random_hmm(3, 4, 1).to(dtype=torch.float32)
    assert draw_task(model, 3, (4, 0, 2), 0).labels.all()
