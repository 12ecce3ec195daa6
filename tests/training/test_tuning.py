"""Heads, prompts and attention heads on a frozen network: what is trained, and what is learned.

Tuning is held against a second way: AdamW and its schedule written out, on scores that are computed otherwise.
"""

import re
import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from good_calls import GOOD, call
from record import tried
from tiny_networks import inputs, lively

from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.training import tuning
from hmmlib.training.bert import fingerprint
from hmmlib.training.tuning import Tuning, all_probs_at_mask, initial_prompt, tune_exact_prompt, tune_head, tune_prompt
from hmmlib.validation import MASK

PLAN = Tuning(epochs=3, batch=16, head_rate=0.1, prompt_rate=0.05)
PLANS = [
    Tuning(epochs=2, batch=8, head_rate=0.1, prompt_rate=0.03),  # 6 steps, the first of them warm-up
    Tuning(epochs=3, batch=20, head_rate=0.2, prompt_rate=0.02, warmup=0.5),  # 3 steps, 2 of them (1.5 is rounded)
    Tuning(epochs=1, batch=6, head_rate=0.1, prompt_rate=0.05, warmup=0.0),
    Tuning(epochs=2, batch=19, head_rate=0.1, prompt_rate=0.05, warmup=1.0),  # the last of 20 examples alone
]
TOKENS = inputs()
LABELS = TOKENS[:, 1] >= 2
MODEL = random_hmm(3, 5, 1, temperature=0.5)
TEXTS = MODEL.sample(20, 4, 2).tokens
BELIEFS, BEHIND_A_MASK = posterior(MODEL, TEXTS), torch.nn.functional.pad(TEXTS, (1, 0), value=MASK)
PROBS = torch.full((2, 4), 0.25)
WRONG = [
    ("Tuning", "warmup", 1.5, "from 0 to 1, not 1.5"),
    ("Pretraining", "masked", 1.5, "from 0 to 1, not 1.5"),
    ("Pretraining", "masking", "never", "always, bert, not 'never'"),
    ("Pretraining", "precision", "double", "single, half, float16, not 'double'"),
    ("pretrain", "model", random_hmm(3, 5, 0), "at most 4 tokens, as the network has words, not 5"),
    ("pretrain", "plan", replace(GOOD["pretrain"]["plan"], length=9), "at most 8, as the network is, not 9"),
    ("tune_prompt", "prompt_length", 6, "need 9 positions, 6 of them for a prompt, but the network has 8"),
    ("tune_prompt", "start", "other", "uniform, vocabulary, not 'other'"),
    ("tune_head", "probs", PROBS[None], "2 dimensions, not shape (1, 2, 4)"),
    ("tune_attention", "probs", PROBS, "3 dimensions, not shape (2, 4)"),
    ("tune_exact_prompt", "posteriors", PROBS, "shape (any, 3), not (2, 4)"),
    ("accuracy", "labels", [True], "shape (2,), not (1,)"),
    ("accuracy", "head", max, "type LinearHead or TunedAttention, not builtin_function"),
]


@pytest.fixture
def network():
    return lively()


def by_hand(score, parts, rates, examples, labels, plan, seed):
    """The parts after training: Kingma and Ba's steps, a linear rise and fall of the rate, shuffled batches."""
    parts, shuffle = [part.clone() for part in parts], torch.Generator().manual_seed(seed)
    mean, square = [torch.zeros_like(part) for part in parts], [torch.zeros_like(part) for part in parts]
    steps = plan.epochs * -(-len(examples) // plan.batch)
    rising, step = max(1, round(plan.warmup * steps)), 0
    for _ in range(plan.epochs):
        order = torch.randperm(len(examples), generator=shuffle)
        for begin in range(0, len(order), plan.batch):
            which = order[begin : begin + plan.batch]
            trained = [part.clone().requires_grad_() for part in parts]
            margin = torch.where(labels[which], 1.0, -1.0) * score(examples[which], *trained)
            loss = -torch.nn.functional.logsigmoid(margin).mean()
            gradients = torch.autograd.grad(loss, trained)
            share, step = min((step + 1) / rising, (steps - step) / max(1, steps - rising)), step + 1
            for k, gradient in enumerate(gradients):
                mean[k] = 0.9 * mean[k] + 0.1 * gradient
                square[k] = 0.999 * square[k] + 0.001 * gradient**2
                size = (square[k] / (1 - 0.999**step)).sqrt() + 1e-8
                parts[k] = parts[k] - rates[k] * share * mean[k] / (1 - 0.9**step) / size
    return parts


def examples(*shape):
    draw = torch.Generator().manual_seed(0)
    probs = torch.softmax(2 * torch.randn(*shape, generator=draw, dtype=torch.float64), -1)
    return probs, torch.rand(len(probs), generator=draw) < 0.5


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"warmup {plan.warmup}")
def test_a_tuned_head_is_that_of_steps_by_hand(plan):
    probs, labels = examples(20, 5)
    found = tune_head(probs, labels, plan, 3).weights
    (want,) = by_hand(lambda p, w: (p * w).sum(1), [torch.zeros(5).double()], [plan.head_rate], probs, labels, plan, 3)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert (found != 0).all()


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("cells", [1, 3])
def test_a_tuned_attention_head_is_that_of_steps_by_hand_on_the_soft_head_of_the_paper(cells, positions):
    probs, labels = examples(20, 4, 5)
    plan = PLANS[0]

    def score(p, key, value, place=None):
        """Each cell is the paper's head, relaxed: embeddings of ones, two coordinates, of which the query sees one."""
        query, ones = torch.tensor([1.0, 0.0]).double(), torch.ones(*p.shape[:2], 1).double()
        total, place = 0, torch.zeros(4, cells).double() if place is None else place
        for k, v, b in zip(key.T, value.T, place.T, strict=True):
            head = AttentionHead(query, torch.stack([k, 0 * k]), v[None], ones[0, 0], torch.stack([b, 0 * b], 1))
            total = total + head.soft(p, ones, 1)
        return total

    start = torch.randn(5, cells, generator=torch.Generator().manual_seed(2)) / 5
    parts = [torch.zeros(5, cells).double(), start.double(), torch.zeros(4, cells).double()]
    parts = parts if positions else parts[:2]
    want = by_hand(score, parts, [plan.head_rate] * 3, probs, labels, plan, 2)
    found = tuning.tune_attention(probs, labels, plan, 2, cells, positions)
    for name, part in zip(("key", "value", "positions"), want, strict=False):
        np.testing.assert_allclose(getattr(found, name), part, rtol=1e-5, atol=1e-9)
    assert positions or not found.positions.any()
    assert {(part.dtype, part.requires_grad) for part in found} == {(torch.float64, False)}
    np.testing.assert_allclose(found(probs), score(probs, *want), rtol=1e-4, atol=1e-8)
    with pytest.raises(ValueError, match=r"probs must have shape \(any, 4, 5\), not \(20, 3, 5\)"):
        found(probs[:, 1:])
    single = tuning.tune_attention(probs.float(), labels, plan, 2, cells, positions)
    assert {part.dtype for part in (*single, single(probs))} == {torch.float32}
    if cells == 1 and positions:
        assert all(map(torch.equal, found, tuning.tune_attention(probs, labels, plan, 2)))


@pytest.mark.parametrize("start", ["uniform", "vocabulary"])
def test_a_tuned_prompt_is_that_of_steps_by_hand_without_dropout(network, start):
    tokens, plan = inputs(20), PLANS[0]
    labels = tokens[:, 1] >= 2

    def score(batch, weights, prompt):
        words = network.get_input_embeddings()(torch.where(batch == MASK, 4, batch))
        rows = torch.cat([prompt.expand(len(batch), -1, -1), words], 1)
        return network(inputs_embeds=rows).logits[:, 3, :4].softmax(-1) @ weights

    parts = [torch.zeros(4), initial_prompt(network, 3, 5, start)]
    weights, prompt = by_hand(score, parts, [plan.head_rate, plan.prompt_rate], tokens, labels, plan, 5)
    found, head = tune_prompt(lively(dropout=0.5).train(), tokens, labels, 3, plan, 5, start)
    np.testing.assert_allclose(head.weights, weights, atol=1e-4)
    np.testing.assert_allclose(found, prompt, atol=1e-3)
    assert ((found - parts[1]).abs().amax(1) > 0.01).all()
    assert (found.requires_grad, head.weights.requires_grad) == (False, False)


@pytest.mark.parametrize("plan", PLANS[:2], ids=lambda plan: f"warmup {plan.warmup}")
def test_a_tuned_exact_prompt_is_that_of_steps_by_hand(plan):
    labels = TEXTS[:, 0] >= 2

    def score(batch, weights, raw):
        return masked_token_probs(MODEL, batch, raw.sigmoid())[:, 1] @ weights

    start = torch.randn(3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    parts, rates = [torch.zeros(5).double(), start], [plan.head_rate, plan.prompt_rate]
    weights, raw = by_hand(score, parts, rates, BEHIND_A_MASK, labels, plan, 4)
    prompt, head = tune_exact_prompt(MODEL, BELIEFS, labels, plan, 4)
    np.testing.assert_allclose(head.weights, weights, rtol=1e-6)
    np.testing.assert_allclose(prompt, raw.sigmoid(), rtol=1e-6)
    assert (prompt.dtype, prompt.requires_grad, head.weights.requires_grad) == (torch.float64, False, False)
    single = MODEL.to(dtype=torch.float32)
    prompt, _ = tune_exact_prompt(single, BELIEFS, labels, plan, 4)
    assert prompt.dtype == tuning.probs_behind_prompt(single, BELIEFS, prompt).dtype == torch.float32
    either_way = HMM([[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.1, 0.9]], [0.5, 0.5], columns=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune_exact_prompt(either_way, BELIEFS[:, :2], labels, plan, 4)


def test_outputs_behind_an_exact_prompt_are_those_of_messages():
    for prompt in torch.tensor([[1.0, 0.0, 0.5], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]).double():
        want = masked_token_probs(MODEL, BEHIND_A_MASK, prompt)[:, 1]
        np.testing.assert_allclose(tuning.probs_behind_prompt(MODEL, BELIEFS, prompt), want, atol=1e-13)


def test_a_prompt_starts_as_the_generator_draws_it_and_one_of_words_takes_each_as_often(network):
    drawn = torch.rand(7, 16, generator=torch.Generator().manual_seed(3)) - 0.5
    assert torch.equal(initial_prompt(network, 7, 3), drawn)
    before, words, draws = fingerprint(network), network.get_input_embeddings().weight, torch.Generator().manual_seed(3)
    order = torch.cat([torch.randperm(5, generator=draws) for _ in range(3)])  # 4 tokens and [MASK]
    for length in (0, 1, 4, 5, 7, 12):
        prompt = initial_prompt(network, length, 3, "vocabulary")
        assert torch.equal(prompt, words[order[:length]])
        prompt += 1  # a copy, not the network's own rows
    assert fingerprint(network) == before


def test_prompt_tuning_without_a_prompt_is_head_tuning(network):
    prompt, head = tune_prompt(network, TOKENS, LABELS, 0, PLAN, 5)
    assert prompt.shape == (0, 16)
    probs = all_probs_at_mask(lively(dropout=0.5).train(), TOKENS)
    assert torch.equal(head.weights, tune_head(probs, LABELS, PLAN, 5).weights)


def test_what_a_tick_raises_ends_the_tuning_and_leaves_a_network_that_can_be_trained(network):
    with pytest.raises(KeyboardInterrupt):
        tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5, before_step=mock.Mock(side_effect=[0, 0, KeyboardInterrupt]))
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_tuning_that_diverges_is_an_error():
    probs, labels = examples(20, 5)
    with pytest.raises(FloatingPointError, match=r"tuning diverged, at rates of 1e\+308: what was trained is no"):
        tune_head(probs, labels, Tuning(3, 8, 1e308, 0.1), 0)


def test_accuracy_and_a_score_of_zero_is_label_1():
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5], [0.6, 0.4]])
    attention = tuning.TunedAttention(torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]]), torch.zeros(1, 1))
    for head, given in ((LinearHead([1.0, -1.0]), probs), (attention, probs[:, None])):
        assert head.label(given).tolist() == [True, False, True, True]
        assert tuning.accuracy(head, given, torch.tensor([True, False, True, False])) == 0.75
        assert tuning.accuracy(head, given, torch.tensor([False, True, False, False])) == 0.0


@tried("arguments of functions")
@pytest.mark.parametrize(("function", "name", "bad", "message"), WRONG)
def test_a_bad_argument_is_named_with_what_was_found_and_what_is_accepted(function, name, bad, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(function, **{name: bad})
    assert re.search(rf"\b{name.removesuffix('_length')}\b", str(caught.value))
    assert message in str(caught.value)
