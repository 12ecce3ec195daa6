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


@torch.no_grad()
def test_outputs_are_those_of_transformers_own_call(network):
    tokens = inputs(600)
    tokens[::2, 3] = MASK
    whole = network(input_ids=to_ids(network, tokens)).logits[..., :4].softmax(-1)
    found, bare = all_probs(network, tokens), all_probs_at_mask(network, tokens)
    assert found.shape == (600, 6, 4)
    np.testing.assert_allclose(found, whole, atol=1e-6)
    np.testing.assert_allclose(bare, whole[:, 0], atol=1e-6)
    assert torch.equal(bare, all_probs_at_mask(network, tokens, initial_prompt(network, 0, 0)))


@torch.no_grad()
def test_a_prompt_comes_before_the_sequence(network):
    words = network.get_input_embeddings().weight
    prompted = all_probs_at_mask(network, TOKENS, words[[2, 0]])
    longer = torch.cat([torch.tensor([[2, 0]]).expand(40, -1), to_ids(network, TOKENS)], 1)
    np.testing.assert_allclose(prompted, network(input_ids=longer).logits[:, 2, :4].softmax(-1), atol=1e-5)
    assert torch.equal(all_probs_at_mask(network, TOKENS, words[[2, 0]].double()), prompted)
    assert (all_probs_at_mask(network, TOKENS, words[[0, 2]]) - prompted).abs().max() > 0.01


@pytest.mark.outside
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_prompts_are_those_of_peft(network):
    """Its model for feature extraction, the one of its prompt tuning that returns what the network itself returns."""
    peft = pytest.importorskip("peft")
    prompt = initial_prompt(network, 3, 1)
    ours = all_probs_at_mask(network, TOKENS, prompt).log()
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    theirs = peft.get_peft_model(network, config).eval()
    found = []
    with torch.no_grad():
        for vectors in (prompt, prompt.flip(0)):
            theirs.prompt_encoder["default"].embedding.weight.copy_(vectors)
            found.append(theirs(input_ids=to_ids(network, TOKENS)).logits[:, 3, :4].log_softmax(-1))
    np.testing.assert_allclose(ours, found[0], atol=1e-5)
    assert (ours - found[1]).abs().max() > 0.1


def test_outputs_do_not_depend_on_the_batch(network):
    tokens, prompt = inputs(1100), initial_prompt(network, 3, 1)
    order = torch.randperm(1100, generator=torch.Generator().manual_seed(0))
    whole = all_probs_at_mask(network, tokens, prompt)
    assert whole.shape == (1100, 4)
    assert not whole.requires_grad
    np.testing.assert_allclose(all_probs_at_mask(network, tokens[order], prompt), whole[order], atol=1e-6)
    np.testing.assert_allclose(all_probs_at_mask(network, tokens[-1:], prompt), whole[-1:], atol=1e-6)


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
def test_prompt_tuning_begins_at_its_start_and_without_a_prompt_is_head_tuning(network, start):
    prompt, _ = tune_prompt(network, TOKENS, LABELS, 3, Tuning(1, 40, 0.1, 1e-12), 5, start)
    np.testing.assert_allclose(prompt, initial_prompt(network, 3, 5, start), atol=1e-10)
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
        tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5, tick=tick)
    assert all(parameter.requires_grad for parameter in network.parameters())
    ticked = tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5, tick=lambda: ticks.append(0))
    assert len(ticks) == 5 + 3 * 3  # 3 passes over 40 examples, 16 a batch
    assert torch.equal(ticked[0], tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5)[0])


def test_prompt_tuning_lowers_the_loss(network):
    tokens, losses = inputs(200), []
    labels = tokens[:, 1] >= 2
    for rate in (1e-9, 0.05):
        prompt, head = tune_prompt(network, tokens, labels, 3, Tuning(20, 20, 0.5, rate), 0)
        scores = head(all_probs_at_mask(network, tokens, prompt))
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.float()).item())
    assert losses[1] < 0.7 * losses[0]


# Linear heads


def test_head_tuning_learns_what_is_separable():
    draw = torch.Generator().manual_seed(0)
    probs = torch.softmax(2 * torch.randn(600, 5, generator=draw), 1)
    scores = probs @ torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0])
    probs, labels = probs[scores.abs() > 0.05], (scores >= 0)[scores.abs() > 0.05]
    head = tune_head(probs, labels, Tuning(30, 16, 0.5, 1.0), 0)
    assert accuracy(head, probs, labels) > 0.98
    assert not torch.equal(head.weights, tune_head(probs, labels, Tuning(30, 16, 0.5, 1.0), 1).weights)


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


def test_attention_heads_start_with_all_positions_alike():
    probs, labels = random_probs().float(), torch.arange(50) % 2 == 0
    head = tune_attention(probs, labels, Tuning(1, 50, 1e-12, 1.0), 3, cells=2)
    assert head.key.abs().max() < 1e-9
    assert head.positions.abs().max() < 1e-9
    np.testing.assert_allclose(head(probs), (probs.mean(1) @ head.value).sum(1), atol=1e-6)
    assert 0 < head.value.abs().max() < 1
    assert not torch.equal(head.value[:, 0], head.value[:, 1])


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


def test_without_positions_order_counts_for_nothing():
    probs, labels = random_probs(), random_probs()[:, 2, 0] > 0.2
    head, placed = (tune_attention(probs, labels, PLAN, 0, 2, positions) for positions in (False, True))
    assert (head.positions == 0).all()
    mixed = probs[:, torch.randperm(7, generator=torch.Generator().manual_seed(0))]
    np.testing.assert_allclose(head(mixed), head(probs), atol=1e-12)
    assert (placed(mixed) - placed(probs)).abs().max() > 1e-3


def test_positions_are_needed_where_one_place_decides_the_label():
    """The distributions at the other places look alike, and do not depend on the label."""
    tokens = torch.randint(0, 2, (1600, 6), generator=torch.Generator().manual_seed(0))
    probs, labels = 0.8 * torch.nn.functional.one_hot(tokens, 4).float() + 0.05, tokens[:, 3] == 1
    train, test, found = slice(0, 1200), slice(1200, None), {}
    for positions in (True, False):
        head = tune_attention(probs[train], labels[train], LONG, 0, 1, positions)
        found[positions] = accuracy(head, probs[test], labels[test])
        assert not positions or head.positions.argmax() == 3
    assert found[True] > 0.99
    assert found[False] < 0.75
    assert accuracy(tune_head(probs[train, 0], labels[train], LONG, 0), probs[test, 0], labels[test]) < 0.6


def test_attention_finds_the_position_by_its_distribution():
    draws = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 8, (2000, 6), generator=draws)  # these mean nothing; one of 0 to 3 is somewhere
    decisive = torch.randint(0, 4, (2000,), generator=draws)
    tokens.scatter_(1, torch.randint(0, 6, (2000, 1), generator=draws), decisive[:, None])
    probs, labels = torch.nn.functional.one_hot(tokens, 8).float(), decisive % 2 == 0
    shuffled = labels[torch.randperm(2000, generator=draws)]
    for truth, low, high in ((labels, 0.99, 1), (shuffled, 0, 0.6)):
        head = tune_attention(probs[:1500], truth[:1500], LONG, 0, positions=False)
        assert low <= accuracy(head, probs[1500:], truth[1500:]) <= high


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
