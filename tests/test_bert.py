"""The masked language model: masking, logits at chosen places, building, pretraining, its losses."""

import math

import numpy as np
import pytest
import torch

from hmmlib.bert import (
    Pretraining,
    Shape,
    build,
    logits_at,
    mask_some,
    masked_logits,
    masked_losses,
    optimisers,
    pretrain,
    rate_at,
    to_ids,
)
from hmmlib.exact import Enumeration, normalised
from hmmlib.generate import random_hmm, sparse_hmm
from hmmlib.hmm import HMM, MASK

SHAPE = Shape(layers=1, width=16, heads=2, max_length=12)
PLAN = Pretraining(steps=300, batch=32, length=12, masked=0.2, learning_rate=1e-2, muon_rate=0.04, warmup=5)


def same(one, other):
    """Whether two networks hold the same numbers, bit by bit."""
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


@pytest.mark.parametrize(("share", "count"), [(0.15, 6), (0.5, 20), (1.0, 40), (0.001, 1), (0.19, 8)])
def test_as_many_positions_are_hidden_in_every_sequence(share, count):
    tokens = torch.randint(0, 7, (200, 40), generator=torch.Generator().manual_seed(0))
    before = tokens.clone()
    masked, positions = mask_some(tokens, share, torch.Generator().manual_seed(1))
    assert torch.equal(tokens, before)
    assert positions.shape == (200, count)
    assert all(len(set(row)) == count for row in positions.tolist())
    hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, positions, True)
    assert (masked[hidden] == MASK).all()
    assert torch.equal(masked[~hidden], tokens[~hidden])
    again = mask_some(tokens, share, torch.Generator().manual_seed(1))
    assert torch.equal(positions, again[1])
    frequency = hidden.double().mean(0)
    np.testing.assert_allclose(frequency, count / 40, atol=5 * math.sqrt(0.25 / 200))


def test_ids():
    network = build(SHAPE, 5, 0)
    assert to_ids(network, torch.tensor([[0, 4, MASK]])).tolist() == [[0, 4, 5]]
    with pytest.raises(ValueError, match="tokens must be 0 to 4, or MASK = -1; found 5"):
        to_ids(network, torch.tensor([[5]]))


def test_logits_at_chosen_places_are_those_of_the_whole_network():
    network = build(SHAPE, 5, 0).eval()
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(-1, 5, (6, 12), generator=draw)
    positions = torch.randint(0, 12, (6, 2), generator=draw)
    with torch.no_grad():
        whole = network(input_ids=to_ids(network, tokens)).logits
        some = logits_at(network, network.get_input_embeddings()(to_ids(network, tokens)), positions)
        by_row = masked_logits(network, tokens, positions)
    assert whole.shape == (6, 12, 6)
    assert some.shape == (6, 2, 5)
    np.testing.assert_allclose(some, whole[torch.arange(6)[:, None], positions][..., :5], atol=1e-6)
    assert torch.equal(some, by_row)


def test_build_follows_its_seed_and_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    network, again, other = build(SHAPE, 5, 0), build(SHAPE, 5, 0), build(SHAPE, 5, 1)
    assert torch.equal(torch.rand(3), expected)
    assert same(network, again)
    assert not same(network, other)


def test_the_shape_of_the_network():
    config = build(Shape(layers=3, width=8, heads=4, max_length=9), 5, 0).config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (3, 8, 4)
    assert (config.max_position_embeddings, config.vocab_size, config.intermediate_size) == (9, 6, 32)
    network = build(SHAPE, 5, 0).train()
    ids = torch.zeros(2, 12, dtype=torch.int64)
    assert torch.equal(network(input_ids=ids).logits, network(input_ids=ids).logits)  # no dropout


def test_every_parameter_has_one_optimiser():
    network = build(SHAPE, 5, 0)
    muon, adamw = optimisers(network, PLAN)
    held = [[id(p) for group in o.param_groups for p in group["params"]] for o in (muon, adamw)]
    assert sorted(held[0] + held[1]) == sorted(id(p) for p in network.parameters())
    matrices = {n for n, p in network.named_parameters() if id(p) in held[0]}
    assert matrices == {n for n, p in network.named_parameters() if ".encoder." in n and p.ndim == 2}
    assert len(matrices) == 6
    assert muon.param_groups[0]["lr"] == PLAN.muon_rate
    assert adamw.param_groups[0]["lr"] == PLAN.learning_rate


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (7, 0), (5, 5), (1, 1), (3, 8)])
def test_the_rate_rises_then_falls_to_zero(steps, warmup):
    plan = Pretraining(steps, 1, 1, 0.1, 1.0, 1.0, warmup)
    rates = [rate_at(step, plan) for step in range(steps + 1)]
    assert rates[-1] == 0 or warmup > steps
    assert all(0 < rate <= 1 for rate in rates[:-1])
    for step in range(min(warmup, steps)):
        assert rates[step] == pytest.approx((step + 1) / warmup)
    for step in range(warmup, steps):
        assert rates[step] == pytest.approx(min(1, (steps - step) / (steps - warmup)))


def test_the_least_loss_is_that_of_the_exact_conditional():
    model, network, n, length = sparse_hmm(3, 4, 0), build(SHAPE, 4, 0), 12, 5
    drawn, reported = torch.Generator().manual_seed(9), masked_losses(network, model, n, length, 0.4, 9)
    tokens = model.sample(n, length, drawn).tokens
    masked, positions = mask_some(tokens, 0.4, drawn)
    with torch.no_grad():
        logits = network(input_ids=to_ids(network, masked)).logits[..., :4].double().log_softmax(-1)
    best, found = [], []
    for k in range(n):
        paths = Enumeration(model.transition, model.emission, model.initial, model.embed(masked[k : k + 1])[0])
        for i in positions[k].tolist():
            best.append(-math.log(normalised(paths.masked_token(i + 1))[tokens[k, i]]))
            found.append(-logits[k, i, tokens[k, i]].item())
    assert reported[1] == pytest.approx(np.mean(best), rel=1e-12)
    assert reported[0] == pytest.approx(np.mean(found), rel=1e-5)


def test_losses_are_means_over_all_sequences_however_many():
    model, network = random_hmm(3, 4, 0), build(SHAPE, 4, 0)
    draw = torch.Generator().manual_seed(3)
    tokens = model.sample(1100, 8, draw).tokens
    masked, positions = mask_some(tokens, 0.25, draw)
    with torch.no_grad():
        logits = masked_logits(network, masked, positions).double()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.gather(1, positions).flatten()).item()
    assert masked_losses(network, model, 1100, 8, 0.25, 3)[0] == pytest.approx(expected, rel=1e-6)


def test_pretraining_moves_the_loss_towards_the_least_there_is():
    model, network = random_hmm(3, 5, 1), build(SHAPE, 5, 0)
    fresh, best = masked_losses(network, model, 300, 12, 0.2, 5)
    reports = []
    losses = pretrain(network, model, PLAN, 2, lambda step, loss: reports.append((step, loss)))
    trained, still = masked_losses(network, model, 300, 12, 0.2, 5)
    assert still == best
    assert best - 0.1 < trained < best + 0.4 * (fresh - best)
    assert reports == list(enumerate(losses))
    assert len(losses) == PLAN.steps
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:3])
    assert losses[0] == pytest.approx(math.log(5), abs=0.3)


def test_pretraining_follows_its_seed():
    model, plan = random_hmm(3, 5, 1), Pretraining(4, 8, 12, 0.2, 1e-2, 0.04, 2)
    networks = [build(SHAPE, 5, 0) for _ in range(4)]
    losses = [pretrain(network, model, plan, seed) for network, seed in zip(networks, (1, 1, 2), strict=False)]
    assert losses[0] == losses[1] != losses[2]
    assert same(networks[0], networks[1])
    before, after = networks[3].state_dict(), networks[0].state_dict()
    unmoved = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert {name for name in unmoved if before[name].is_floating_point()} == set()


def test_pretraining_that_diverges_says_so():
    plan = Pretraining(30, 4, 12, 0.2, 1e30, 1e30, 0)
    with pytest.raises(FloatingPointError, match="pretraining diverged: the loss at step"):
        pretrain(build(SHAPE, 2, 0), HMM([[1]], [[0.5], [0.5]], [1]), plan, 0)
