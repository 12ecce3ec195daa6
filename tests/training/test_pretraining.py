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
from hmmlib.training.gradients import Gradients
from hmmlib.training.muon import Muon
from hmmlib.training.pretraining import Pretraining, Run, corpus, hide, optimisers, pretrain, rate_at, visits
from hmmlib.training.readers import masked_losses
from hmmlib.validation import MASK

pytestmark = pytest.mark.outside

SHAPE = Shape(layers=1, width=16, heads=2, max_length=12)
PLAN = Pretraining(steps=300, batch=32, length=12, masked=0.2, learning_rate=1e-2, muon_rate=0.04, warmup=5)
SHORT = replace(PLAN, steps=6, batch=8, warmup=2)
DOCUMENTS = replace(SHORT, documents=7, document_length=29, length=6)
MODEL = random_hmm(3, 5, 1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# Text and masks


@pytest.mark.parametrize("length", [1, 6, 15, 29])
def test_documents_are_cut_into_whole_sequences_in_order(length):
    model = random_memory_hmm(2, 3, 5, 0)
    documents = model.sample(7, 29, generator(1)).tokens
    n_read = length * (29 // length)
    text = corpus(model, replace(DOCUMENTS, length=length), generator(1))
    assert torch.equal(text.long(), documents[:, :n_read].reshape(-1, length))


def test_text_without_documents_is_fresh_and_read_in_its_order():
    text = corpus(MODEL, SHORT, generator(1))
    expected = MODEL.sample(6 * 8, 12, generator(1)).tokens
    assert torch.equal(text.long(), expected)
    order = visits(48, SHORT, generator())
    assert order.flatten().tolist() == list(range(48))
    assert order.shape == (6, 8)


@pytest.mark.parametrize(("n_tokens", "dtype"), [(2, torch.uint8), (256, torch.uint8), (257, torch.int32)])
def test_text_is_bytes_where_they_suffice(n_tokens, dtype):
    """The tokens of this model come in turn, from a random start, so each one tells which precedes it."""
    identity = np.eye(n_tokens)
    cycle = HMM(np.roll(identity, 1, 0), identity, identity.mean(0), columns=True)
    text = corpus(cycle, replace(DOCUMENTS, documents=3, document_length=300), generator())
    assert text.dtype == corpus(cycle, SHORT, generator()).dtype == dtype
    steps = text.long().diff(dim=1)
    assert (steps % n_tokens == 1).all()
    assert text.max() == n_tokens - 1


@pytest.mark.parametrize(("steps", "sequences"), [(14, 28), (4, 5), (6, 48)])
def test_every_sequence_is_read_once_a_pass_in_another_order_each(sequences, steps):
    order = visits(sequences, replace(DOCUMENTS, steps=steps), generator())
    assert order.shape == (steps, 8)
    in_order = torch.arange(sequences)
    *passes, last = order.flatten().split(sequences)
    for complete_pass in passes:
        assert torch.equal(complete_pass.sort().values, in_order)
    assert len(last.unique()) == len(last)
    for another in (in_order, *passes):
        assert not torch.equal(another[: len(last)], last)


def test_bert_shows_a_tenth_as_it_is_and_a_tenth_at_random():
    n_tokens = 5
    tokens = torch.randint(0, n_tokens, (2000, 60), generator=generator())
    seen, positions = hide(tokens, replace(PLAN, masking="bert"), n_tokens, generator(1))
    shown = seen.gather(1, positions).flatten()
    true = tokens.gather(1, positions).flatten()
    count = len(shown)
    assert count == 2000 * 12

    def expect(share, happens):
        deviation = math.sqrt(share * (1 - share) / count)
        assert happens.double().mean() == pytest.approx(share, abs=5 * deviation)

    expect(0.8, shown == MASK)
    expect(0.1 + 0.1 / n_tokens, shown == true)
    for step in range(1, n_tokens):
        expect(0.1 / n_tokens, (shown != MASK) & ((shown - true) % n_tokens == step))
    random = shown[(shown != MASK) & (shown != true)]
    frequencies = torch.bincount(random, minlength=n_tokens) / len(random)
    deviation = math.sqrt(0.16 / len(random))
    np.testing.assert_allclose(frequencies, 1 / n_tokens, atol=5 * deviation)


@pytest.mark.parametrize(("masking", "specials"), [("always", 1), ("bert", 5)])
def test_a_batch_is_what_the_network_reads_and_must_predict(masking, specials):
    network = build(replace(SHAPE, specials=specials), 5, 0)
    plan = replace(DOCUMENTS, masking=masking)
    run = Run(network, random_hmm(4, 5, 0), plan, 3)
    for step in range(plan.steps):
        ids, positions, target = run.batch(step, generator(step))
        tokens = run.text[run.visits[step]].long()
        assert torch.equal(positions, mask_some(tokens, plan.masked, generator(step))[1])
        assert torch.equal(target, tokens.gather(1, positions))
        hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, positions, True)
        assert torch.equal(ids[~hidden], tokens[~hidden])
        all_masked = bool((ids[hidden] == 4 + specials).all())
        assert all_masked == (masking == "always")


# Optimisers


def test_every_parameter_has_one_optimiser():
    network = build(SHAPE, 5, 0)
    muon, adamw = optimisers(network, PLAN)
    (alone,) = optimisers(network, replace(PLAN, muon_rate=0.0))
    assert type(muon) is Muon
    assert type(adamw) is type(alone) is torch.optim.AdamW
    for optimiser in (muon, adamw, alone):
        (group,) = optimiser.param_groups
        assert group["weight_decay"] == 0.0

    def moved_by(optimiser, parameter):
        return any(parameter is moved for moved in optimiser.param_groups[0]["params"])

    for name, parameter in network.named_parameters():
        is_matrix = ".encoder." in name and parameter.ndim == 2
        assert moved_by(muon, parameter) == is_matrix
        assert moved_by(adamw, parameter) != is_matrix
        assert moved_by(alone, parameter)


def test_muon_in_batches_is_muon():
    """The same weights, to the last bit, as torch's own, on wide, tall and square matrices, and the same state."""
    square = (16, 16)
    wide = (16, 64)
    shapes = [square, square, (64, 16), wide, wide, (5, 7)]
    results = []
    for kind in (Muon, torch.optim.Muon):
        draws = generator()
        matrices = [nn.Parameter(torch.randn(shape, generator=draws)) for shape in shapes]
        optimiser = kind(matrices, lr=0.02, weight_decay=0.1)
        for _ in range(3):
            for matrix in matrices:
                matrix.grad = torch.randn(matrix.shape, generator=draws)
            optimiser.step()
        results.append([matrices, optimiser.state_dict()["state"]])
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("steps", "warmup", "rates"),
    [
        (6, 2, [1 / 2, 1, 1, 3 / 4, 1 / 2, 1 / 4, 0]),
        (4, 0, [1, 3 / 4, 1 / 2, 1 / 4, 0]),
        (2, 2, [1 / 2, 1, 0]),
        (3, 8, [1 / 8, 2 / 8, 3 / 8]),
    ],
)
def test_the_rate_rises_then_falls_to_zero(steps, warmup, rates):
    plan = Pretraining(steps, warmup=warmup)
    assert [rate_at(step, plan) for step in range(len(rates))] == rates


def gradients_of_four_steps(plan):
    """The gradients that the last optimiser of each step sees. The rates follow the plan."""
    network = build(SHAPE, 5, 0)
    run = Run(network, MODEL, plan, 2)
    gradients = []
    for step in range(4):
        run.step()
        parts = [parameter.grad.flatten() for parameter in network.parameters()]
        gradients.append(torch.cat(parts))
        for optimiser in run.optimisers:
            peak = plan.muon_rate if type(optimiser) is Muon else plan.learning_rate
            assert optimiser.param_groups[0]["lr"] == pytest.approx(peak * rate_at(step, plan))
    return torch.stack(gradients)


@pytest.mark.parametrize("muon_rate", [0.0, 0.04])
def test_the_gradient_is_clipped_as_a_whole_and_rates_follow_the_plan(muon_rate):
    plan = replace(SHORT, muon_rate=muon_rate)
    unbounded = gradients_of_four_steps(plan)
    loose = gradients_of_four_steps(replace(plan, clip=1e6))
    tight = gradients_of_four_steps(replace(plan, clip=0.05))
    assert torch.equal(unbounded, loose)
    assert unbounded.norm(dim=1).min() > 0.1
    np.testing.assert_allclose(tight.norm(dim=1), 0.05, rtol=1e-4)
    direction = unbounded[0] / unbounded[0].norm()
    np.testing.assert_allclose(tight[0] / tight[0].norm(), direction, atol=1e-6)


# The loop


def test_pretraining_moves_the_loss_towards_the_least_there_is():
    network = build(SHAPE, 5, 0)
    fresh, least = masked_losses(network, MODEL, 300, 12, 0.2, 5)
    reports = []
    losses = pretrain(network, MODEL, PLAN, 2, lambda *report: reports.append(report))
    trained, _ = masked_losses(network, MODEL, 300, 12, 0.2, 5)
    assert least - 0.1 < trained < least + 0.4 * (fresh - least)
    assert reports == list(enumerate(losses))
    assert len(losses) == PLAN.steps
    assert losses[0] == pytest.approx(math.log(5), abs=0.3)


@pytest.mark.parametrize("muon_rate", [0.0, 0.04])
def test_pretraining_moves_every_weight_of_a_frozen_network_too(muon_rate):
    fresh = build(SHAPE, 5, 0)
    network = build(SHAPE, 5, 0).eval().requires_grad_(False)
    pretrain(network, MODEL, replace(SHORT, muon_rate=muon_rate), 1)
    trained = dict(network.named_parameters())
    for name, before in fresh.named_parameters():
        assert not torch.equal(before, trained[name]), name


def test_pretraining_with_dropout_neither_reads_nor_moves_the_global_generator():
    prints = set()
    for seed in (5, 6):
        torch.manual_seed(seed)
        expected = torch.rand(3)
        torch.manual_seed(seed)
        network = build(replace(SHAPE, dropout=0.2), 5, 0)
        pretrain(network, MODEL, SHORT, 1)
        assert torch.equal(torch.rand(3), expected)
        prints.add(fingerprint(network))
    assert len(prints) == 1


@pytest.mark.parametrize(("steps_per_report", "reported"), [(2, [1, 3, 5]), (4, [3, 5])])
def test_reports_come_as_often_as_the_device_allows(steps_per_report, reported, monkeypatch):
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": steps_per_report})
    steps = []
    network = build(SHAPE, 5, 0)
    pretrain(network, MODEL, SHORT, 1, lambda step, loss: steps.append(step))
    assert steps == reported


@pytest.mark.parametrize(("steps_per_report", "n_computed"), [(1, 5), (3, 6)])
def test_a_loss_that_is_no_number_ends_the_training_and_its_first_step_is_named(
    steps_per_report, n_computed, monkeypatch
):
    losses = []

    def nan_from_step_4(self, *batch):
        loss = compute(self, *batch)
        losses.append(loss if len(losses) < 4 else math.nan * loss)
        return losses[-1]

    compute = Gradients.compute
    monkeypatch.setattr(Gradients, "compute", nan_from_step_4)
    monkeypatch.setattr(pretraining, "STEPS_PER_REPORT", {"cpu": steps_per_report})
    with pytest.raises(FloatingPointError, match="pretraining diverged: the loss at step 4 is nan"):
        pretrain(build(SHAPE, 5, 0), MODEL, SHORT, 1)
    assert len(losses) == n_computed
