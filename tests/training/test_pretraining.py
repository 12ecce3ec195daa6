"""Pretraining: the corpus, the order it is read in, what is hidden, the optimisers, and the loop."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.models.hmm import HMM
from hmmlib.training import pretraining
from hmmlib.training.bert import Shape, build, fingerprint, mask_some
from hmmlib.training.muon import Muon
from hmmlib.training.pretraining import Pretraining, Run, corpus, hide, optimisers, pretrain, rate_at, visits
from hmmlib.training.readers import masked_losses
from hmmlib.validation import MASK

pytestmark = pytest.mark.outside

SHAPE = Shape(layers=1, width=16, heads=2, max_length=12)
PLAN = Pretraining(steps=300, batch=32, length=12, masked=0.2, learning_rate=1e-2, muon_rate=0.04, warmup=5)
SHORT = replace(PLAN, steps=6, batch=8, warmup=2)
DOCUMENTS = replace(SHORT, documents=7, document_length=29, length=6)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def cycle(n):
    """Tokens 0 to n - 1 in turn, from a random start: a token tells which one precedes it."""
    return HMM(np.roll(np.eye(n), 1, 0), np.eye(n), np.full(n, 1 / n), columns=True)


# Text


@pytest.mark.parametrize(("length", "whole"), [(6, 4), (29, 1), (15, 1), (1, 29)])
def test_documents_are_cut_into_whole_chunks_in_order(length, whole):
    model, plan = random_hmm(4, 5, 0), replace(DOCUMENTS, length=length)
    text, documents = corpus(model, plan, generator(1)), model.sample(7, 29, generator(1)).tokens
    assert torch.equal(text.long(), documents[:, : whole * length].reshape(7 * whole, length))


def test_text_without_documents_is_fresh_for_each_step_and_read_in_order():
    model = random_memory_hmm(2, 3, 5, 0)
    text = corpus(model, SHORT, generator(1))
    assert torch.equal(text.long(), model.sample(6 * 8, 12, generator(1)).tokens)
    assert torch.equal(visits(48, SHORT, generator()), torch.arange(48).reshape(6, 8))


@pytest.mark.parametrize(("n_tokens", "dtype"), [(2, torch.uint8), (256, torch.uint8), (257, torch.int32)])
@pytest.mark.parametrize("plan", [SHORT, DOCUMENTS])
def test_text_is_bytes_where_they_suffice(n_tokens, dtype, plan):
    plan = replace(plan, document_length=300, documents=plan.documents and 3)
    text = corpus(cycle(n_tokens), plan, generator())
    assert text.dtype == dtype
    tokens = text.long()
    assert ((tokens[:, 1:] - tokens[:, :-1]) % n_tokens == 1).all()
    assert tokens.max() == n_tokens - 1 or not plan.documents


@pytest.mark.parametrize(("chunks", "steps", "batch"), [(28, 6, 8), (28, 14, 8), (5, 4, 8), (1, 3, 2), (48, 6, 8)])
def test_every_chunk_is_read_once_a_pass_in_another_order_each(chunks, steps, batch):
    order = visits(chunks, replace(DOCUMENTS, steps=steps, batch=batch), generator())
    assert order.shape == (steps, batch)
    passes = order.flatten().split(chunks)
    for part in passes[:-1]:
        assert sorted(part.tolist()) == list(range(chunks))
    assert len(set(passes[-1].tolist())) == len(passes[-1])
    if len(passes) > 1 and chunks > 1:
        assert passes[0].tolist() != passes[1].tolist()[: len(passes[1])]
    if chunks > 10:
        assert not torch.equal(order, visits(chunks, replace(DOCUMENTS, steps=steps, batch=batch), generator(1)))


# What is hidden


@pytest.mark.parametrize("masking", ["always", "bert"])
def test_only_what_must_be_predicted_is_touched(masking):
    tokens = torch.randint(0, 7, (200, 40), generator=generator())
    before, plan = tokens.clone(), replace(PLAN, masking=masking)
    shown, positions = hide(tokens, plan, 7, generator(1))
    assert torch.equal(tokens, before)
    assert torch.equal(positions, mask_some(tokens, 0.2, generator(1))[1])
    hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, positions, True)
    assert (hidden.sum(1) == 8).all()
    assert torch.equal(shown[~hidden], tokens[~hidden])
    assert (shown[hidden] == MASK).all() == (masking == "always")
    assert torch.equal(shown, hide(tokens, plan, 7, generator(1))[0])


def test_bert_shows_a_tenth_as_it_is_and_a_tenth_at_random():
    n_tokens, count = 5, 2000 * 12
    tokens = torch.randint(0, n_tokens, (2000, 60), generator=generator())
    shown, positions = hide(tokens, replace(PLAN, masking="bert"), n_tokens, generator(1))
    shown, own = shown.gather(1, positions).flatten(), tokens.gather(1, positions).flatten()
    shares = {MASK: 0.8, 0: 0.1 + 0.1 / n_tokens} | {step: 0.1 / n_tokens for step in range(1, n_tokens)}
    step = torch.where(shown == MASK, MASK, (shown - own) % n_tokens)
    for value, share in shares.items():
        assert (step == value).double().mean() == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / count))
    random = shown[step > 0]
    frequency = torch.bincount(random, minlength=n_tokens) / len(random)
    np.testing.assert_allclose(frequency, 1 / n_tokens, atol=5 * math.sqrt(0.16 / len(random)))
    place = torch.where(shown == MASK, 0, 1).reshape(2000, 12).double().mean(0)  # at every place alike
    np.testing.assert_allclose(place, 0.2, atol=5 * math.sqrt(0.16 / 2000))


@pytest.mark.parametrize("specials", [1, 5])
@pytest.mark.parametrize("masking", ["always", "bert"])
def test_a_batch_is_what_the_network_reads_and_must_predict(masking, specials):
    network, plan = build(replace(SHAPE, specials=specials), 5, 0), replace(DOCUMENTS, masking=masking)
    run = Run(network, random_hmm(4, 5, 0), plan, 3)
    for step in range(plan.steps):
        ids, positions, target = run.batch(step, generator(step))
        tokens = run.text[run.visits[step]].long()
        shown, at = hide(tokens, plan, 5, generator(step))
        assert torch.equal(positions, at)
        assert torch.equal(target, tokens.gather(1, at))
        assert torch.equal(ids, torch.where(shown == MASK, 4 + specials, shown))
        assert ids.max() == 4 + specials


# Optimisers


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
    (alone,) = optimisers(network, replace(PLAN, muon_rate=0.0))
    assert type(alone) is torch.optim.AdamW
    assert {id(p) for group in alone.param_groups for p in group["params"]} == {id(p) for p in network.parameters()}
    assert {group["weight_decay"] for group in alone.param_groups} == {0.0}


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_in_batches_is_muon(decay):
    """The same weights, to the last bit, as torch's own, on wide, tall and square matrices, and the same state."""
    draws = generator()
    shapes = [(16, 16), (16, 16), (64, 16), (16, 64), (16, 64), (5, 7)]
    start = [torch.randn(shape, generator=draws) for shape in shapes]
    runs = []
    for kind in (Muon, torch.optim.Muon):
        matrices = [nn.Parameter(matrix.clone()) for matrix in start]
        optimiser, gradients = kind(matrices, lr=0.02, weight_decay=decay), generator(1)
        for _ in range(3):
            for matrix in matrices:
                matrix.grad = torch.randn(matrix.shape, generator=gradients)
            optimiser.step()
        runs.append((matrices, optimiser.state_dict()["state"]))
    for one, other in zip(*(matrices for matrices, _ in runs), strict=True):
        assert torch.equal(one, other)
    for index, state in runs[1][1].items():
        assert state.keys() == runs[0][1][index].keys()
        assert torch.equal(state["momentum_buffer"], runs[0][1][index]["momentum_buffer"])


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


def stepped(plan, steps=4):
    """Norm and direction of the gradient that each step's optimisers see, and their rates."""
    network = build(SHAPE, 5, 0)
    run, seen = Run(network, random_hmm(3, 5, 1), plan, 2), []

    def look(optimiser, *_):
        gradient = torch.cat([p.grad.flatten() for p in network.parameters()])
        rates = [group["lr"] for optimiser in run.optimisers for group in optimiser.param_groups]
        seen.append((gradient.norm().item(), gradient / gradient.norm(), rates))

    run.optimisers[-1].register_step_pre_hook(look)
    for _ in range(steps):
        run.step()
    return seen


@pytest.mark.parametrize("muon_rate", [0.0, 0.04])
def test_the_gradient_is_clipped_as_a_whole(muon_rate):
    plan = replace(SHORT, muon_rate=muon_rate)
    free, loose, tight = (stepped(replace(plan, clip=clip)) for clip in (0.0, 1e6, 0.05))
    assert min(norm for norm, _, _ in free) > 0.1
    assert [norm for norm, _, _ in free] == [norm for norm, _, _ in loose]
    np.testing.assert_allclose([norm for norm, _, _ in tight], 0.05, rtol=1e-4)
    np.testing.assert_allclose(tight[0][1], free[0][1], atol=1e-6)  # the first batch is the same


def test_both_rates_follow_the_plan():
    rates = [rates for _, _, rates in stepped(SHORT)]
    np.testing.assert_allclose(rates, [[0.04 * rate_at(k, SHORT), 0.01 * rate_at(k, SHORT)] for k in range(4)])


# The loop


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


@pytest.mark.parametrize("change", [dict(), dict(muon_rate=0.0), dict(masking="bert", documents=7, document_length=29)])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_pretraining_follows_its_seed(change, dropout):
    model, plan = random_hmm(3, 5, 1), replace(SHORT, **change)
    networks = [build(replace(SHAPE, dropout=dropout), 5, 0) for _ in range(4)]
    torch.manual_seed(5)
    losses = [pretrain(networks[0], model, plan, 1)]
    torch.manual_seed(6)  # nothing hangs on the global generator
    losses += [pretrain(network, model, plan, seed) for network, seed in zip(networks[1:], (1, 2), strict=False)]
    prints = [fingerprint(network) for network in networks]
    assert losses[0] == losses[1] != losses[2]
    assert prints[0] == prints[1] != prints[2]
    before, after = networks[3].state_dict(), networks[0].state_dict()
    unmoved = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert {name for name in unmoved if before[name].is_floating_point()} == set()


def test_dropout_is_at_work_in_training():
    model = random_hmm(3, 5, 1)
    losses = [pretrain(build(replace(SHAPE, dropout=share), 5, 0), model, SHORT, 1)[0] for share in (0.0, 0.2)]
    assert losses[0] != losses[1]
    quiet = build(replace(SHAPE, dropout=0.2), 5, 0).eval().requires_grad_(False)  # as tuning leaves a network
    assert pretrain(quiet, model, SHORT, 1)[0] == losses[1]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_global_generator_is_left_alone(dropout):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    pretrain(build(replace(SHAPE, dropout=dropout), 5, 0), random_hmm(3, 5, 1), SHORT, 1)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(7)
    with pytest.raises(KeyboardInterrupt):
        pretrain(build(replace(SHAPE, dropout=dropout), 5, 0), random_hmm(3, 5, 1), SHORT, 1, stop)
    assert torch.equal(torch.rand(3), expected)


def stop(step, loss):
    raise KeyboardInterrupt


def test_pretraining_that_diverges_says_so():
    plan = Pretraining(30, 4, 12, 0.2, 1e30, 1e30, 0)
    with pytest.raises(FloatingPointError, match="pretraining diverged: the loss at step"):
        pretrain(build(SHAPE, 2, 0), HMM([[1]], [[0.5], [0.5]], [1]), plan, 0)


@pytest.mark.parametrize("look", [1, 3, 100])
@pytest.mark.parametrize("bad", [0, 4])
def test_the_first_bad_step_is_named_however_seldom_it_is_looked_at(look, bad, monkeypatch):
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": look})
    compute, calls, reports = pretraining.Gradients.compute, [], []

    def spoil(self, *inputs):
        calls.append(0)
        return compute(self, *inputs) + (math.nan if len(calls) > bad else 0)

    monkeypatch.setattr(pretraining.Gradients, "compute", spoil)
    with pytest.raises(FloatingPointError, match=f"the loss at step {bad} is nan"):
        pretrain(build(SHAPE, 5, 0), random_hmm(3, 5, 1), SHORT, 1, lambda step, loss: reports.append(step))
    assert len(calls) == min(-(-(bad + 1) // look) * look, SHORT.steps)
    assert all(step < bad for step in reports)


@pytest.mark.parametrize(("look", "steps"), [(1, range(6)), (4, (3, 5)), (100, (5,))])
def test_reports_come_as_often_as_the_device_allows(look, steps, monkeypatch):
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": look})
    network, reports = build(SHAPE, 5, 0), []
    losses = pretrain(network, random_hmm(3, 5, 1), SHORT, 1, lambda step, loss: reports.append((step, loss)))
    assert reports == [(step, losses[step]) for step in steps]
    assert losses == pretrain(build(SHAPE, 5, 0), random_hmm(3, 5, 1), SHORT, 1)
