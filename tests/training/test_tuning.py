"""Heads, prompts and attention heads on a frozen network: what is read of it, what is trained, and what is learned."""

from math import inf, nan

import numpy as np
import pytest
import torch
from record import tried
from tiny_networks import inputs, lively

from hmmlib.experiments.labels import draw_task
from hmmlib.inference.messages import masked_token_probs
from hmmlib.models.appendix_e import random_hmm, random_memory_hmm
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.training.bert import Shape, build, fingerprint, to_ids
from hmmlib.training.pretraining import Pretraining, pretrain
from hmmlib.training.tuning import (
    TunedAttention,
    Tuning,
    accuracy,
    all_probs,
    all_probs_at_mask,
    initial_prompt,
    tune_attention,
    tune_exact_prompt,
    tune_head,
    tune_prompt,
)
from hmmlib.validation import MASK

PLAN = Tuning(epochs=3, batch=16, head_rate=0.1, prompt_rate=0.05)
LONG = Tuning(epochs=15, batch=32, head_rate=0.3, prompt_rate=0.1)
TOKENS = inputs()
LABELS = TOKENS[:, 1] >= 2


@pytest.fixture
def network():
    return lively()


# Outputs


def test_outputs_are_those_of_transformers_own_call_and_a_prompt_comes_before_the_sequence(network):
    tokens, words = inputs(1100), network.get_input_embeddings().weight.detach()  # more than are computed at once
    tokens[::2, 3] = MASK
    ids = to_ids(network, tokens)
    with torch.no_grad():
        whole = network(input_ids=ids).logits[..., :4].softmax(-1)
        longer = torch.cat([torch.tensor([[2, 0]]).expand(1100, -1), ids], 1)
        behind = network(input_ids=longer).logits[:, 2, :4].softmax(-1)
    found, bare = all_probs(network, tokens), all_probs_at_mask(network, tokens)
    prompted = all_probs_at_mask(network, tokens, words[[2, 0]])
    for ours, theirs in ((found, whole), (bare, whole[:, 0]), (prompted, behind)):
        assert ours.shape == theirs.shape
        assert not ours.requires_grad
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert torch.equal(bare, all_probs_at_mask(network, tokens, initial_prompt(network, 0, 0)))
    assert torch.equal(prompted, all_probs_at_mask(network, tokens, words[[2, 0]].double()))
    assert (all_probs_at_mask(network, tokens, words[[0, 2]]) - prompted).abs().max() > 0.01


def test_dropout_is_off(network):
    drops = lively(dropout=0.5)
    assert fingerprint(drops) == fingerprint(network)
    for call in (
        lambda net: all_probs_at_mask(net, TOKENS),
        lambda net: all_probs(net, TOKENS),
        lambda net: tune_prompt(net, TOKENS, LABELS, 2, PLAN, 5)[0],
    ):
        assert torch.equal(call(drops.train()), call(network))


# Prompts


def test_a_prompt_of_words_takes_each_as_often(network):
    words = network.get_input_embeddings().weight.detach()
    for length in (1, 3, 5, 7, 12):
        prompt = initial_prompt(network, length, 3, "vocabulary")
        which = [next(k for k, word in enumerate(words) if torch.equal(word, row)) for row in prompt]
        counts = np.bincount(which, minlength=5)  # 4 tokens and [MASK]
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == length
    firsts = {tuple(initial_prompt(network, 1, seed, "vocabulary")[0].tolist()) for seed in range(60)}
    assert len(firsts) == 5
    before = fingerprint(network)
    prompt += 1  # a copy, not the network's own rows
    assert fingerprint(network) == before


@pytest.mark.parametrize("start", ["uniform", "vocabulary"])
def test_prompt_tuning_without_a_prompt_is_head_tuning(network, start):
    prompt, head = tune_prompt(network, TOKENS, LABELS, 0, PLAN, 5, start)
    assert prompt.shape == (0, 16)
    assert torch.equal(head.weights, tune_head(all_probs_at_mask(network, TOKENS), LABELS, PLAN, 5).weights)
    assert not torch.equal(head.weights, tune_prompt(network, TOKENS, LABELS, 1, PLAN, 5, start)[1].weights)


def test_prompt_tuning_trains_the_prompt_and_the_head_and_nothing_else(network):
    before = fingerprint(network)
    network.bert.embeddings.requires_grad_(False)
    trained = [parameter.requires_grad for parameter in network.parameters()]
    prompt, head = tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5)
    assert fingerprint(network) == before
    assert all(parameter.grad is None for parameter in network.parameters())
    assert [parameter.requires_grad for parameter in network.parameters()] == trained
    assert not prompt.requires_grad
    assert not head.weights.requires_grad
    assert ((prompt - initial_prompt(network, 3, 5)).abs().amax(1) > 1e-3).all()
    again = tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5)
    assert torch.equal(prompt, again[0])
    assert torch.equal(head.weights, again[1].weights)
    assert not torch.equal(prompt, tune_prompt(network, TOKENS, LABELS, 3, PLAN, 6)[0])


def test_a_tick_comes_before_each_batch_and_may_end_the_tuning(network):
    ticks = []

    def tick():
        ticks.append(0)
        if len(ticks) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5, before_step=tick)
    assert all(parameter.requires_grad for parameter in network.parameters())
    ticked = tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5, before_step=lambda: ticks.append(0))
    assert len(ticks) == 5 + 3 * 3  # 3 passes over 40 examples, 16 a batch
    assert torch.equal(ticked[0], tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5)[0])


# Linear heads


def test_accuracy():
    head = LinearHead(torch.tensor([1.0, -1.0]))
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5], [0.6, 0.4]])
    assert accuracy(head, probs, torch.tensor([True, False, True, False])) == 0.75
    assert accuracy(head, probs, torch.tensor([False, True, False, False])) == 0.0


# Attention heads


def random_probs(n=50, length=7, n_tokens=5, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(n, length, n_tokens, generator=draws, dtype=torch.float64), -1)


def random_attention(cells, length=7, n_tokens=5, seed=1):
    draws = torch.Generator().manual_seed(seed)
    sizes = (n_tokens, cells), (n_tokens, cells), (length, cells)
    return TunedAttention(*(torch.randn(size, generator=draws, dtype=torch.float64) for size in sizes))


def as_soft_head(head, cell, probs, sharpness=1.0):
    """One cell of a trained head as the paper's AttentionHead, relaxed: embeddings of ones, one state, one value."""
    nothing = torch.zeros(1, dtype=probs.dtype)
    paper = AttentionHead(
        query=torch.tensor([1.0, 0.0], dtype=probs.dtype),
        key=torch.stack([head.key[:, cell], nothing.expand(len(head.key))]),
        value=head.value[:, cell][None],
        output=nothing + 1,
        positions=torch.stack([head.positions[:, cell], nothing.expand(len(head.positions))], 1),
    )
    return paper.soft(probs, torch.ones(*probs.shape[:2], 1, dtype=probs.dtype), sharpness)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cells", [1, 3])
def test_all_parts_of_an_attention_head_are_trained_in_the_precision_of_the_inputs(cells, dtype):
    probs, labels = random_probs().to(dtype), random_probs(seed=5)[:, 2, 0] > 0.2
    head = tune_attention(probs, labels, PLAN, 0, cells)
    assert [tuple(part.shape) for part in head] == [(5, cells), (5, cells), (7, cells)]
    assert all(part.dtype == dtype and not part.requires_grad for part in head)
    assert all((part.abs().amax(0) > 1e-3).all() for part in head)
    assert all(map(torch.equal, head, tune_attention(probs, labels, PLAN, 0, cells)))
    assert not torch.equal(head.value, tune_attention(probs, labels, PLAN, 1, cells).value)
    one_cell = tune_attention(probs, labels, PLAN, 0, cells=1, positions=True)
    assert all(map(torch.equal, tune_attention(probs, labels, PLAN, 0), one_cell))


def test_attention_on_the_exact_model_reads_the_memory():
    """A linear head on the distribution at the mask does not see what the rest of the text shows of the memory."""
    gains = []
    for seed in range(3):
        model = random_memory_hmm(3, 4, 10, seed)
        task = draw_task(model, 17, (800, 0, 400), seed)
        probs = masked_token_probs(model, task.tokens).float()
        (train, _, test), (labels, _, truth) = task.split(probs), task.split(task.labels)
        attention = accuracy(tune_attention(train, labels, LONG, seed), test, truth)
        gains.append(attention - accuracy(tune_head(train[:, 0], labels, LONG, seed), test[:, 0], truth))
        assert attention > 0.9
    assert np.mean(gains) > 0.03


# Arguments that a user may get wrong

PROBS, TWO = torch.full((2, 4), 0.25), torch.tensor([True, False])
NETWORK, HMM_3_4 = lively(), random_hmm(3, 4, 0)
TRAIN = dict(steps=2, batch=2, length=6, masked=0.2, learning_rate=1e-3, muon_rate=0.0, warmup=1)
PROMPT = dict(network=NETWORK, tokens=TOKENS[:2], labels=TWO, prompt_length=2, plan=PLAN, seed=0)
RUN = dict(network=build(Shape(1, 8, 2, 8), 4, 0), model=HMM_3_4, plan=Pretraining(**TRAIN), seed=0)
HEAD = dict(probs=PROBS, labels=TWO, plan=PLAN, seed=0)
ATTENTION = dict(HEAD, probs=PROBS[:, None])
EXACT = dict(model=HMM_3_4, posteriors=torch.full((2, 3), 1 / 3), labels=TWO, plan=PLAN, seed=0)
WRONG = [
    (Tuning, dict(epochs=1, batch=4, head_rate=0.1, prompt_rate=0.1), "epochs", 0, "an integer of 1 or more, not 0"),
    (Pretraining, TRAIN, "masked", 1.5, "from 0 to 1, not 1.5"),
    (Pretraining, TRAIN, "masking", "never", "always, bert, not 'never'"),
    (Pretraining, TRAIN, "precision", "double", "single, half, float16, not 'double'"),
    (pretrain, RUN, "network", torch.nn.Linear(2, 2), "type BertForMaskedLM, as build makes it, not Linear"),
    (pretrain, RUN, "model", random_hmm(3, 5, 0), "at most 4 tokens, as the network has words, not 5"),
    (pretrain, RUN, "plan", Pretraining(**TRAIN | dict(length=9)), "at most 8, as the network is, not 9"),
    (pretrain, RUN, "checkpoint", "run.pt", r"a file *.safetensors in a folder, not run.pt"),
    (tune_prompt, PROMPT, "network", None, "type BertForMaskedLM, as build makes it, not NoneType"),
    (tune_prompt, PROMPT, "tokens", [[0, 4]], "0 to 3, or MASK = -1; found 4"),
    (tune_prompt, PROMPT, "tokens", [[0.5]], "integers, not torch.float64"),
    (tune_prompt, PROMPT, "labels", torch.tensor([True]), "shape (2,), not (1,)"),
    (tune_prompt, PROMPT, "prompt_length", -1, "an integer of 0 or more, not -1"),
    (tune_prompt, PROMPT, "prompt", 5, "tokens need 11 positions, 5 of them for a prompt, but the network has 10"),
    (tune_prompt, PROMPT, "start", "other", "uniform, vocabulary, not 'other'"),
    (tune_head, HEAD, "seed", -1, "from 0 to 2**63 - 1 or a torch.Generator, not -1"),
    (tune_head, HEAD, "labels", torch.tensor([0, 2]), "bool, or 0 and 1, not 2"),
    (tune_head, HEAD, "probs", PROBS[None], "2 dimensions, not shape (1, 2, 4)"),
    (tune_head, HEAD, "probs", PROBS * nan, "finite, but holds NaN or infinity"),
    (tune_attention, ATTENTION, "probs", PROBS, "3 dimensions, not shape (2, 4)"),
    (tune_attention, ATTENTION, "cells", 0, "an integer of 1 or more, not 0"),
    (tune_exact_prompt, EXACT, "posteriors", [[inf] * 3] * 2, "finite, but holds NaN or infinity"),
    (random_attention(1), {}, "probs", PROBS, "shape (any, 7, 5), not (2, 4)"),
    (accuracy, dict(head=LinearHead([1.0] * 4), probs=PROBS, labels=TWO), "labels", [True], "shape (2,), not (1,)"),
    (accuracy, dict(probs=PROBS, labels=TWO), "head", max, "type LinearHead or TunedAttention, not builtin_function"),
]


@tried("arguments of functions")
@pytest.mark.parametrize(("call", "good", "name", "bad", "message"), WRONG)
def test_a_bad_argument_is_named_with_what_was_found_and_what_is_accepted(call, good, name, bad, message):
    changed = {"prompt_length": bad} if name == "prompt" else {name: bad}
    with pytest.raises((TypeError, ValueError)) as caught:
        call(**good | changed)
    assert name in str(caught.value)
    assert message in str(caught.value)
