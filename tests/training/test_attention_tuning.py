"""Attention heads on distributions at all positions: the relaxation that is trained, and what it learns."""

import numpy as np
import pytest
import torch
from tiny_networks import inputs, lively

from hmmlib.experiments.labels import draw_task
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_memory_hmm
from hmmlib.theory.heads import AttentionHead
from hmmlib.training.bert import fingerprint, to_ids
from hmmlib.training.tuning import (
    TunedAttention,
    Tuning,
    accuracy,
    all_probs,
    all_probs_at_mask,
    tune_attention,
    tune_head,
    tune_prompt,
)
from hmmlib.validation import MASK

PLAN = Tuning(epochs=3, batch=16, head_rate=0.1, prompt_rate=0.05)
LONG = Tuning(epochs=15, batch=32, head_rate=0.3, prompt_rate=0.1)


@pytest.fixture
def network():
    return lively()


def random_probs(n=50, length=7, n_tokens=5, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(n, length, n_tokens, generator=draws, dtype=torch.float64), -1)


def random_attention(cells, length=7, n_tokens=5, seed=1):
    draws = torch.Generator().manual_seed(seed)
    sizes = (n_tokens, cells), (n_tokens, cells), (length, cells)
    return TunedAttention(*(torch.randn(size, generator=draws, dtype=torch.float64) for size in sizes))


def as_soft_head(head, cell, probs, sharpness=1.0):
    """One cell of a trained head as an AttentionHead of the paper, relaxed: embeddings of ones, one state, one value."""
    nothing = torch.zeros(1, dtype=probs.dtype)
    paper = AttentionHead(
        query=torch.tensor([1.0, 0.0], dtype=probs.dtype),
        key=torch.stack([head.key[:, cell], nothing.expand(len(head.key))]),
        value=head.value[:, cell][None],
        output=nothing + 1,
        positions=torch.stack([head.positions[:, cell], nothing.expand(len(head.positions))], 1),
    )
    return paper.soft(probs, torch.ones(*probs.shape[:2], 1, dtype=probs.dtype), sharpness)


def test_a_trained_head_reads_distributions_in_its_own_precision():
    probs, head = random_probs(), TunedAttention(*(part.float() for part in random_attention(2)))
    assert head(probs).dtype == torch.float32
    assert torch.equal(head(probs), head(probs.float()))


@pytest.mark.parametrize("cells", [1, 2, 4])
def test_the_head_that_is_trained_is_the_soft_head_of_the_paper_with_ones_for_embeddings(cells):
    probs, head = random_probs(), random_attention(cells)
    head = head._replace(value=head.value - head(probs).median() / cells)  # so that both labels occur
    found = head(probs)
    np.testing.assert_allclose(found, sum(as_soft_head(head, cell, probs) for cell in range(cells)), atol=1e-12)
    sharper = sum(as_soft_head(head, cell, probs, 2.0) for cell in range(cells))
    assert (sharper - found).abs().max() > 0.1
    assert torch.equal(head.label(probs), found >= 0)
    assert 0 < head.label(probs).sum() < 50


def test_attention_heads_start_with_all_positions_alike():
    probs, labels = random_probs().float(), torch.arange(50) % 2 == 0
    still = Tuning(epochs=1, batch=50, head_rate=1e-12, prompt_rate=1.0)
    head = tune_attention(probs, labels, still, 3, cells=2)
    assert head.key.abs().max() < 1e-9
    assert head.positions.abs().max() < 1e-9
    np.testing.assert_allclose(head(probs), (probs.mean(1) @ head.value).sum(1), atol=1e-6)
    assert 0 < head.value.abs().max() < 1
    assert not torch.equal(head.value[:, 0], head.value[:, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cells", [1, 3])
def test_what_is_trained(cells, dtype):
    probs, labels = random_probs().to(dtype), random_probs(seed=5)[:, 2, 0] > 0.2
    head = tune_attention(probs, labels, PLAN, 0, cells)
    assert [tuple(part.shape) for part in head] == [(5, cells), (5, cells), (7, cells)]
    assert all(part.dtype == dtype and not part.requires_grad for part in head)
    assert all((part.abs().amax(0) > 1e-3).all() for part in head)
    assert all(map(torch.equal, head, tune_attention(probs, labels, PLAN, 0, cells)))
    assert not torch.equal(head.value, tune_attention(probs, labels, PLAN, 1, cells).value)


def test_without_positions_they_stay_zero_and_order_counts_for_nothing():
    probs, labels = random_probs(), random_probs()[:, 2, 0] > 0.2
    head, placed = (tune_attention(probs, labels, PLAN, 0, 2, positions) for positions in (False, True))
    assert (head.positions == 0).all()
    assert (head.key != 0).all()
    mixed = probs[:, torch.randperm(7, generator=torch.Generator().manual_seed(0))]
    np.testing.assert_allclose(head(mixed), head(probs), atol=1e-12)
    assert (placed(mixed) - placed(probs)).abs().max() > 1e-3


def told_at(position, n=1600, length=6):
    """Distributions of which one position alone tells the label; the others look alike and mean nothing."""
    draws = torch.Generator().manual_seed(0)
    said = torch.randint(0, 2, (n, length), generator=draws)
    probs = 0.8 * torch.nn.functional.one_hot(said, 4).float() + 0.05
    return probs, said[:, position] == 1


def test_positions_are_needed_where_one_place_tells_the_label():
    probs, labels = told_at(3)
    seen, kept = slice(0, 1200), slice(1200, None)
    found = {}
    for positions in (True, False):
        head = tune_attention(probs[seen], labels[seen], LONG, 0, 1, positions)
        found[positions] = accuracy(head, probs[kept], labels[kept])
        if positions:
            assert head.positions.argmax() == 3
    assert found[True] > 0.99
    assert found[False] < 0.75
    assert accuracy(tune_head(probs[seen, 0], labels[seen], LONG, 0), probs[kept, 0], labels[kept]) < 0.6


def test_attention_finds_the_position_by_what_it_says():
    draws = torch.Generator().manual_seed(0)
    said = torch.randint(4, 8, (2000, 6), generator=draws)  # tokens 4 to 7 mean nothing; one of 0 to 3 is somewhere
    told = torch.randint(0, 4, (2000,), generator=draws)
    said.scatter_(1, torch.randint(0, 6, (2000, 1), generator=draws), told[:, None])
    probs, labels = torch.nn.functional.one_hot(said, 8).float(), told % 2 == 0
    head = tune_attention(probs[:1500], labels[:1500], LONG, 0, positions=False)
    assert accuracy(head, probs[1500:], labels[1500:]) > 0.99
    shuffled = labels[torch.randperm(2000, generator=draws)]
    head = tune_attention(probs[:1500], shuffled[:1500], LONG, 0, positions=False)
    assert accuracy(head, probs[1500:], shuffled[1500:]) < 0.6


def test_attention_on_the_exact_model_reads_the_memory():
    """A linear head on the distribution at the mask does not see what the rest of the text says of the memory."""
    gains = []
    for seed in range(3):
        model = random_memory_hmm(3, 4, 10, seed)
        task = draw_task(model, 17, (800, 0, 400), seed)
        probs = masked_token_probs(model, task.tokens).float()
        (train, _, test), (told, _, truth) = task.split(probs), task.split(task.labels)
        attention = accuracy(tune_attention(train, told, LONG, seed), test, truth)
        gains.append(attention - accuracy(tune_head(train[:, 0], told, LONG, seed), test[:, 0], truth))
        assert attention > 0.9
    assert np.mean(gains) > 0.03


def test_no_kind_of_tuning_moves_the_network(network):
    tokens, before = inputs(), fingerprint(network)
    labels = tokens[:, 1] >= 2
    tune_head(all_probs_at_mask(network, tokens), labels, PLAN, 0)
    assert fingerprint(network) == before
    for start in ("uniform", "vocabulary"):
        for length in (1, 4):
            tune_prompt(network, tokens, labels, length, PLAN, 0, start)
            assert fingerprint(network) == before
    for positions in (True, False):
        tune_attention(all_probs(network, tokens), labels, PLAN, 0, 2, positions)
        assert fingerprint(network) == before
    with torch.no_grad():
        network.bert.encoder.layer[0].output.dense.weight[3, 5] *= -1
    assert fingerprint(network) != before


def test_distributions_at_all_positions(network):
    tokens = inputs(600)
    tokens[::2, 3] = MASK
    found = all_probs(network, tokens)
    with torch.no_grad():
        whole = network(input_ids=to_ids(network, tokens)).logits[..., :4].softmax(-1)
    assert found.shape == (600, 6, 4)
    np.testing.assert_allclose(found, whole, atol=1e-6)
    np.testing.assert_allclose(found[:, 0], all_probs_at_mask(network, tokens), atol=1e-6)
