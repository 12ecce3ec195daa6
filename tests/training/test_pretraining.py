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


def test_documents_are_cut_into_whole_chunks_in_order_and_text_without_them_is_fresh():
    model = random_memory_hmm(2, 3, 5, 0)
    documents = model.sample(7, 29, generator(1)).tokens
    for length, whole in ((6, 4), (29, 1), (15, 1), (1, 29)):
        text = corpus(model, replace(DOCUMENTS, length=length), generator(1)).long()
        assert torch.equal(text, documents[:, : whole * length].reshape(7 * whole, length))
    text = corpus(model, SHORT, generator(1))
    assert torch.equal(text.long(), model.sample(6 * 8, 12, generator(1)).tokens)
    assert torch.equal(visits(48, SHORT, generator()), torch.arange(48).reshape(6, 8))


@pytest.mark.parametrize(("n_tokens", "dtype"), [(2, torch.uint8), (256, torch.uint8), (257, torch.int32)])
def test_text_is_bytes_where_they_suffice(n_tokens, dtype):
    for plan in (SHORT, replace(DOCUMENTS, documents=3, document_length=300)):
        text = corpus(cycle(n_tokens), plan, generator())
        tokens = text.long()
        assert text.dtype == dtype
        assert ((tokens[:, 1:] - tokens[:, :-1]) % n_tokens == 1).all()
    assert tokens.max() == n_tokens - 1


@pytest.mark.parametrize(("chunks", "steps", "batch"), [(28, 6, 8), (28, 14, 8), (5, 4, 8), (1, 3, 2), (48, 6, 8)])
def test_every_chunk_is_read_once_a_pass_in_another_order_each(chunks, steps, batch):
    order, other = (visits(chunks, replace(DOCUMENTS, steps=steps, batch=batch), generator(k)) for k in (0, 1))
    assert order.shape == (steps, batch)
    passes = [part.tolist() for part in order.flatten().split(chunks)]
    assert all(sorted(part) == list(range(chunks)) for part in passes[:-1])
    assert len(set(passes[-1])) == len(passes[-1])
    if len(passes) > 1 and chunks > 1:
        assert passes[0][: len(passes[1])] != passes[1]
    assert chunks < 10 or not torch.equal(order, other)


# What is hidden


@pytest.mark.parametrize("masking", ["always", "bert"])
def test_only_what_must_be_predicted_is_touched(masking):
    tokens = torch.randint(0, 7, (200, 40), generator=generator())
    before, plan = tokens.clone(), replace(PLAN, masking=masking)
    (shown, positions), again = (hide(tokens, plan, 7, generator(1)) for _ in range(2))
    assert torch.equal(tokens, before)
    masked, at = mask_some(tokens, 0.2, generator(1))
    assert torch.equal(positions, at)
    hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, positions, True)
    assert torch.equal(masked, torch.where(hidden, MASK, tokens))
    assert torch.equal(shown[~hidden], tokens[~hidden])
    assert torch.equal(shown, masked) == (masking == "always")
    assert torch.equal(shown, again[0])


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
    names = {id(parameter): name for name, parameter in network.named_parameters()}

    def held(optimiser):
        return sorted(names[id(p)] for group in optimiser.param_groups for p in group["params"])

    muon, adamw = optimisers(network, PLAN)
    assert held(muon) == sorted(n for n, p in network.named_parameters() if ".encoder." in n and p.ndim == 2)
    assert len(held(muon)) == 6
    assert sorted(held(muon) + held(adamw)) == sorted(names.values())
    assert (muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]) == (PLAN.muon_rate, PLAN.learning_rate)
    (alone,) = optimisers(network, replace(PLAN, muon_rate=0.0))
    assert type(alone) is torch.optim.AdamW
    assert held(alone) == sorted(names.values())
    assert {group["weight_decay"] for group in alone.param_groups} == {0.0}


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_in_batches_is_muon(decay):
    """The same weights, to the last bit, as torch's own, on wide, tall and square matrices, and the same state."""
    shapes, runs = [(16, 16), (16, 16), (64, 16), (16, 64), (16, 64), (5, 7)], []
    for kind in (Muon, torch.optim.Muon):
        draws = generator()
        matrices = [nn.Parameter(torch.randn(shape, generator=draws)) for shape in shapes]
        optimiser = kind(matrices, lr=0.02, weight_decay=decay)
        for _ in range(3):
            for matrix in matrices:
                matrix.grad = torch.randn(matrix.shape, generator=draws)
            optimiser.step()
        states = optimiser.state_dict()["state"]
        runs.append([matrices, [states[k]["momentum_buffer"] for k in states], [states[k].keys() for k in states]])
    assert runs[0][2] == runs[1][2]
    for ours, theirs in zip(*(matrices + momenta for matrices, momenta, _ in runs), strict=True):
        assert torch.equal(ours, theirs)


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
def test_the_gradient_is_clipped_as_a_whole_and_rates_follow_the_plan(muon_rate):
    plan = replace(SHORT, muon_rate=muon_rate)
    free, loose, tight = (stepped(replace(plan, clip=clip)) for clip in (0.0, 1e6, 0.05))
    assert min(norm for norm, _, _ in free) > 0.1
    assert [norm for norm, _, _ in free] == [norm for norm, _, _ in loose]
    np.testing.assert_allclose([norm for norm, _, _ in tight], 0.05, rtol=1e-4)
    np.testing.assert_allclose(tight[0][1], free[0][1], atol=1e-6)  # the first batch is the same
    peaks = [0.04, 0.01] if muon_rate else [0.01]
    expected = [[peak * rate_at(step, plan) for peak in peaks] for step in range(4)]
    np.testing.assert_allclose([rates for _, _, rates in free], expected)


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
def test_pretraining_follows_its_seed_moves_every_weight_and_leaves_the_global_generator_alone(change, dropout):
    model, plan = random_hmm(3, 5, 1), replace(SHORT, **change)
    fresh, *networks = (build(replace(SHAPE, dropout=dropout), 5, 0) for _ in range(4))
    networks[1].eval().requires_grad_(False)  # as tuning leaves a network: dropout is at work all the same
    losses = []
    for network, seed, before in zip(networks, (1, 1, 2), (5, 6, 7), strict=True):
        torch.manual_seed(before)
        expected = torch.rand(3)
        torch.manual_seed(before)
        losses.append(pretrain(network, model, plan, seed))
        assert torch.equal(torch.rand(3), expected)
    prints = [fingerprint(network) for network in networks]
    assert losses[0] == losses[1] != losses[2]
    assert prints[0] == prints[1] != prints[2]
    for (name, before), after in zip(fresh.named_parameters(), networks[0].parameters(), strict=True):
        assert not torch.equal(before, after), name
    torch.manual_seed(7)
    with pytest.raises(KeyboardInterrupt):
        pretrain(fresh, model, plan, 1, stop)
    assert torch.equal(torch.rand(3), expected)


def stop(step, loss):
    raise KeyboardInterrupt


@pytest.mark.parametrize("look", [1, 3, 100])
@pytest.mark.parametrize("bad", [0, 4])
def test_the_first_bad_step_is_named_however_seldom_it_is_looked_at(look, bad, monkeypatch):
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": look})
    compute, calls, reports = pretraining.Gradients.compute, [], []

    def spoil(self, *inputs):
        calls.append(0)
        return compute(self, *inputs) + (math.nan if len(calls) > bad else 0)

    monkeypatch.setattr(pretraining.Gradients, "compute", spoil)
    with pytest.raises(FloatingPointError, match=f"pretraining diverged: the loss at step {bad} is nan"):
        pretrain(build(SHAPE, 5, 0), random_hmm(3, 5, 1), SHORT, 1, lambda step, loss: reports.append(step))
    assert len(calls) == min(-(-(bad + 1) // look) * look, SHORT.steps)
    assert all(step < bad for step in reports)


@pytest.mark.parametrize(("look", "steps"), [(1, range(6)), (4, (3, 5)), (100, (5,))])
def test_reports_come_as_often_as_the_device_allows(look, steps, monkeypatch):
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": look})
    reports, model = [], random_hmm(3, 5, 1)
    losses = pretrain(build(SHAPE, 5, 0), model, SHORT, 1, lambda *report: reports.append(report))
    assert reports == [(step, losses[step]) for step in steps]
    assert losses == pretrain(build(SHAPE, 5, 0), model, SHORT, 1)
