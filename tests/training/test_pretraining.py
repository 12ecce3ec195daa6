"""Pretraining: the corpus, the order it is read in, what is hidden, the optimisers, and the loop."""

import math
from contextlib import nullcontext
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
    """On a model whose tokens come in turn, from a random start: a token tells which one precedes it."""
    cycle = HMM(np.roll(np.eye(n_tokens), 1, 0), np.eye(n_tokens), np.full(n_tokens, 1 / n_tokens), columns=True)
    text = corpus(cycle, replace(DOCUMENTS, documents=3, document_length=300), generator())
    assert text.dtype == corpus(cycle, SHORT, generator()).dtype == dtype
    assert ((text[:, 1:].long() - text[:, :-1].long()) % n_tokens == 1).all()
    assert text.max() == n_tokens - 1


@pytest.mark.parametrize(("chunks", "steps"), [(28, 14), (5, 4), (48, 6)])
def test_every_chunk_is_read_once_a_pass_in_another_order_each(chunks, steps):
    order = visits(chunks, replace(DOCUMENTS, steps=steps), generator())
    assert order.shape == (steps, 8)
    *whole, rest = (part.tolist() for part in order.flatten().split(chunks))
    assert all(sorted(part) == list(range(chunks)) for part in whole)
    assert len(set(rest)) == len(rest)
    assert all(part[: len(rest)] != rest for part in [list(range(chunks)), *whole])


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


@pytest.mark.parametrize(("masking", "specials"), [("always", 1), ("bert", 5)])
def test_a_batch_is_what_the_network_reads_and_must_predict(masking, specials):
    network, plan = build(replace(SHAPE, specials=specials), 5, 0), replace(DOCUMENTS, masking=masking)
    run = Run(network, random_hmm(4, 5, 0), plan, 3)
    for step in range(plan.steps):
        ids, positions, target = run.batch(step, generator(step))
        tokens = run.text[run.visits[step]].long()
        assert torch.equal(positions, mask_some(tokens, plan.masked, generator(step))[1])
        assert torch.equal(target, tokens.gather(1, positions))
        hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, positions, True)
        assert torch.equal(ids[~hidden], tokens[~hidden])
        assert (ids[hidden] == 4 + specials).all() == (masking == "always")


def test_every_parameter_has_one_optimiser():
    network = build(SHAPE, 5, 0)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    made = [*optimisers(network, PLAN), *optimisers(network, replace(PLAN, muon_rate=0.0))]
    assert [type(optimiser) for optimiser in made] == [Muon, torch.optim.AdamW, torch.optim.AdamW]
    groups = [group for optimiser in made for group in optimiser.param_groups]
    assert {group["weight_decay"] for group in groups} == {0.0}
    muon, adamw, alone = ([names[id(p)] for p in group["params"]] for group in groups)
    assert sorted(muon) == sorted(n for n, p in network.named_parameters() if ".encoder." in n and p.ndim == 2)
    assert sorted(muon + adamw) == sorted(alone) == sorted(names.values())


def test_muon_in_batches_is_muon():
    """The same weights, to the last bit, as torch's own, on wide, tall and square matrices, and the same state."""
    shapes, runs = [(16, 16), (16, 16), (64, 16), (16, 64), (16, 64), (5, 7)], []
    for kind in (Muon, torch.optim.Muon):
        draws = generator()
        matrices = [nn.Parameter(torch.randn(shape, generator=draws)) for shape in shapes]
        optimiser = kind(matrices, lr=0.02, weight_decay=0.1)
        for _ in range(3):
            for matrix in matrices:
                matrix.grad = torch.randn(matrix.shape, generator=draws)
            optimiser.step()
        runs.append([matrices, optimiser.state_dict()["state"]])
    torch.testing.assert_close(*runs, rtol=0, atol=0)


def test_the_rate_rises_then_falls_to_zero():
    for steps, warmup, rates in (
        (6, 2, [1 / 2, 1, 1, 3 / 4, 1 / 2, 1 / 4, 0]),
        (4, 0, [1, 3 / 4, 1 / 2, 1 / 4, 0]),
        (2, 2, [1 / 2, 1, 0]),
        (3, 8, [1 / 8, 2 / 8, 3 / 8]),
    ):
        plan = Pretraining(steps, 1, 1, 0.1, 1.0, 1.0, warmup)
        assert [rate_at(step, plan) for step in range(len(rates))] == rates


@pytest.mark.parametrize("peaks", [[0.01], [0.04, 0.01]])
def test_the_gradient_is_clipped_as_a_whole_and_rates_follow_the_plan(peaks):
    """As the step's last optimiser sees it, without a bound, with a loose one, and with a tight one."""
    plan, gradients = replace(SHORT, muon_rate=sum(peaks[:-1])), []
    for clip in (0.0, 1e6, 0.05):
        network = build(SHAPE, 5, 0)
        run = Run(network, random_hmm(3, 5, 1), replace(plan, clip=clip), 2)
        for step in range(4):
            run.step()
            gradients.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
            rates = [group["lr"] for optimiser in run.optimisers for group in optimiser.param_groups]
            np.testing.assert_allclose(rates, [peak * rate_at(step, plan) for peak in peaks])
    norms = [gradient.norm().item() for gradient in gradients]
    assert norms[:4] == norms[4:8]
    assert min(norms[:8]) > 0.1
    np.testing.assert_allclose(norms[8:], 0.05, rtol=1e-4)
    np.testing.assert_allclose(gradients[8] / norms[8], gradients[0] / norms[0], atol=1e-6)  # the same first batch


def test_pretraining_moves_the_loss_towards_the_least_there_is():
    model, network = random_hmm(3, 5, 1), build(SHAPE, 5, 0)
    fresh, best = masked_losses(network, model, 300, 12, 0.2, 5)
    reports = []
    losses = pretrain(network, model, PLAN, 2, lambda step, loss: reports.append((step, loss)))
    trained, _ = masked_losses(network, model, 300, 12, 0.2, 5)
    assert best - 0.1 < trained < best + 0.4 * (fresh - best)
    assert reports == list(enumerate(losses))
    assert len(losses) == PLAN.steps
    assert losses[0] == pytest.approx(math.log(5), abs=0.3)


@pytest.mark.parametrize("muon_rate", [0.0, 0.04])
def test_pretraining_moves_every_weight_and_leaves_the_global_generator_alone(muon_rate):
    """A network that tuning has frozen is trained like any other, with dropout."""
    model, plan = random_hmm(3, 5, 1), replace(SHORT, muon_rate=muon_rate)
    fresh, *networks = (build(replace(SHAPE, dropout=0.2), 5, 0) for _ in range(3))
    networks[1].eval().requires_grad_(False)
    for network, before in zip(networks, (5, 6), strict=True):
        torch.manual_seed(before)
        expected = torch.rand(3)
        torch.manual_seed(before)
        pretrain(network, model, plan, 1)
        assert torch.equal(torch.rand(3), expected)
    assert fingerprint(networks[0]) == fingerprint(networks[1])
    for (name, before), after in zip(fresh.named_parameters(), networks[0].parameters(), strict=True):
        assert not torch.equal(before, after), name


@pytest.mark.parametrize(
    ("look", "bad", "computed", "reported"),
    [(1, 9, 6, range(6)), (4, 9, 6, [3, 5]), (1, 4, 5, range(4)), (3, 4, 6, [2])],
)
def test_reports_come_as_often_as_the_device_allows_and_name_the_first_bad_step(
    look, bad, computed, reported, monkeypatch
):
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": look})
    compute, calls, reports = pretraining.Gradients.compute, [], []

    def spoil(self, *inputs):
        calls.append(0)
        return compute(self, *inputs) + (math.nan if len(calls) > bad else 0)

    monkeypatch.setattr(pretraining.Gradients, "compute", spoil)
    refused = pytest.raises(FloatingPointError, match=f"pretraining diverged: the loss at step {bad} is nan")
    with refused if bad < 6 else nullcontext():
        pretrain(build(SHAPE, 5, 0), random_hmm(3, 5, 1), SHORT, 1, lambda step, loss: reports.append(step))
    assert (len(calls), reports) == (computed, list(reported))
