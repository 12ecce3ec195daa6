"""Heads, prompts and attention heads on a frozen network: what is trained, and what is learned.

Tuning is held against a second way: AdamW and its schedule written out, on scores that are computed otherwise.
"""

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from good_calls import GOOD, call
from record import tried
from tiny_networks import inputs, lively

from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.hmm import HMM
from hmmlib.theory.heads import LinearHead
from hmmlib.training import tuning
from hmmlib.training.bert import fingerprint
from hmmlib.training.tuning import (
    TunedAttention,
    Tuning,
    all_probs_at_mask,
    initial_prompt,
    probs_behind_prompt,
    tune_attention,
    tune_exact_prompt,
    tune_head,
    tune_prompt,
)
from hmmlib.validation import MASK

ROUNDED_WARMUP = Tuning(epochs=3, batch=20, head_rate=0.2, prompt_rate=0.02, warmup=0.5)
"""Of three steps two are warm-up, because 1.5 is rounded."""
PLAN = Tuning(epochs=2, batch=8, head_rate=0.1, prompt_rate=0.03)
PLANS = [
    PLAN,  # 6 steps, and the first of them is warm-up
    ROUNDED_WARMUP,
    Tuning(epochs=1, batch=1, head_rate=0.1, prompt_rate=0.05, warmup=0.0),
    Tuning(epochs=2, batch=19, head_rate=0.1, prompt_rate=0.05, warmup=1.0),  # the last of 20 examples alone
]
TOKENS = inputs(20)
LABELS = TOKENS[:, 1] >= 2
MODEL = random_hmm(3, 5, 1, temperature=0.5)
TEXTS = MODEL.sample(20, 4, 2).tokens
POSTERIORS = posterior(MODEL, TEXTS)
BEHIND_A_MASK = torch.nn.functional.pad(TEXTS, (1, 0), value=MASK)


def by_hand(score, start, rates, examples, labels, plan, seed):
    """What is trained, after Kingma and Ba's steps, with a linear rise and fall of the rate and shuffled batches."""
    trained = [part.clone() for part in start]
    mean = [torch.zeros_like(part) for part in start]
    square = [torch.zeros_like(part) for part in start]
    generator = torch.Generator().manual_seed(seed)
    steps = plan.epochs * math.ceil(len(examples) / plan.batch)
    rising = max(1, round(plan.warmup * steps))
    step = 0
    for _ in range(plan.epochs):
        order = torch.randperm(len(examples), generator=generator)
        for batch in order.split(plan.batch):
            leaves = [part.clone().requires_grad_() for part in trained]
            scores = score(examples[batch], *leaves)
            margin = torch.where(labels[batch], scores, -scores)
            loss = -torch.nn.functional.logsigmoid(margin).mean()
            gradients = torch.autograd.grad(loss, leaves)
            rise = (step + 1) / rising
            fall = (steps - step) / max(1, steps - rising)
            step += 1
            for k, gradient in enumerate(gradients):
                mean[k] = 0.9 * mean[k] + 0.1 * gradient
                square[k] = 0.999 * square[k] + 0.001 * gradient**2
                direction = mean[k] / (1 - 0.9**step)
                size = (square[k] / (1 - 0.999**step)).sqrt() + 1e-8
                trained[k] = trained[k] - rates[k] * min(rise, fall) * direction / size
    return trained


def random_examples(*shape):
    """Random distributions and labels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64)
    labels = torch.rand(shape[0], generator=generator) < 0.5
    return torch.softmax(2 * logits, -1), labels


# Heads


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"warmup {plan.warmup}")
def test_a_tuned_head_is_that_of_steps_by_hand(plan):
    probs, labels = random_examples(20, 5)

    def score(batch, weights):
        return (batch * weights).sum(1)

    zeros = torch.zeros(5).double()
    (expected,) = by_hand(score, [zeros], [plan.head_rate], probs, labels, plan, 3)
    head = tune_head(probs, labels, plan, 3)
    np.testing.assert_allclose(head.weights, expected, rtol=1e-6)
    assert (head.weights != 0).all()


def score_of_soft_heads(probs, key, value, positions):
    """The sum over cells of the paper's attention head, with a softmax in place of its arg-max."""
    total = torch.zeros(len(probs)).double()
    for cell in range(key.shape[1]):
        scores = probs @ key[:, cell] + positions[:, cell]
        values = probs @ value[:, cell]
        total = total + (scores.softmax(1) * values).sum(1)
    return total


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("cells", [1, 3])
def test_a_tuned_attention_head_is_that_of_steps_by_hand_on_the_soft_head_of_the_paper(cells, positions):
    probs, labels = random_examples(20, 4, 5)
    zeros = torch.zeros(4, cells).double()
    values = torch.randn(5, cells, generator=torch.Generator().manual_seed(2)) / 5
    start = [torch.zeros(5, cells).double(), values.double()]
    if positions:
        start.append(zeros)

    def score(batch, key, value, trained_positions=zeros):
        return score_of_soft_heads(batch, key, value, trained_positions)

    expected = by_hand(score, start, [PLAN.head_rate] * 3, probs, labels, PLAN, 2)
    head = tune_attention(probs, labels, PLAN, 2, cells, positions)
    for tensor, expected_tensor in zip(head, [*expected, zeros], strict=False):
        np.testing.assert_allclose(tensor, expected_tensor, rtol=1e-5, atol=1e-9)
        assert tensor.dtype == torch.float64
        assert not tensor.requires_grad
    np.testing.assert_allclose(head(probs), score(probs, *expected), rtol=1e-4, atol=1e-8)


def test_an_attention_head_has_one_cell_and_positions_unless_told_otherwise():
    probs, labels = random_examples(20, 4, 5)
    plain = tune_attention(probs, labels, PLAN, 2)
    in_full = tune_attention(probs, labels, PLAN, 2, 1, True)
    for tensor, other in zip(plain, in_full, strict=True):
        assert torch.equal(tensor, other)


def test_an_attention_head_on_float32_is_float32_and_reads_only_its_own_shape():
    probs, labels = random_examples(20, 4, 5)
    head = tune_attention(probs.float(), labels, PLAN, 2, cells=3)
    for tensor in (*head, head(probs)):
        assert tensor.dtype == torch.float32
    with pytest.raises(ValueError, match=r"probs must have shape \(any, 4, 5\), not \(20, 3, 5\)"):
        head(probs[:, 1:])


def test_tuning_that_diverges_is_an_error():
    probs, labels = random_examples(20, 5)
    with pytest.raises(FloatingPointError, match=r"tuning diverged .*\. Lower its rates, which were 1e\+308$"):
        tune_head(probs, labels, Tuning(3, 8, 1e308, 0.1), 0)


def test_accuracy_and_a_score_of_zero_is_label_1():
    of_token_0 = torch.tensor([0.9, 0.1, 0.5, 0.6])
    probs = torch.stack([of_token_0, 1 - of_token_0], 1)
    weights = torch.tensor([1.0, -1.0])
    linear = LinearHead(weights)
    attention = TunedAttention(torch.zeros(2, 1), weights[:, None], torch.zeros(1, 1))
    for head, read in ((linear, probs), (attention, probs[:, None])):
        labels = head.label(read)
        assert labels.tolist() == [True, False, True, True]
        assert tuning.accuracy(head, read, [True, False, True, False]) == 0.75
        assert tuning.accuracy(head, read, ~labels) == 0.0


# Prompts


@pytest.mark.parametrize("start", ["uniform", "vocabulary"])
def test_a_tuned_prompt_is_that_of_steps_by_hand_without_dropout(start):
    network = lively()

    def score(batch, weights, prompt):
        ids = torch.where(batch == MASK, 4, batch)
        text = network.get_input_embeddings()(ids)
        prompts = prompt.expand(len(batch), -1, -1)
        embeddings = torch.cat([prompts, text], 1)
        return network(inputs_embeds=embeddings).logits[:, 3, :4].softmax(-1) @ weights

    prompt_start = initial_prompt(network, 3, 5, start)
    starts = [torch.zeros(4), prompt_start]
    rates = [PLAN.head_rate, PLAN.prompt_rate]
    weights, expected = by_hand(score, starts, rates, TOKENS, LABELS, PLAN, 5)
    with_dropout = lively(dropout=0.5).train()
    prompt, head = tune_prompt(with_dropout, TOKENS, LABELS, 3, PLAN, 5, start)
    np.testing.assert_allclose(head.weights, weights, atol=1e-4)
    np.testing.assert_allclose(prompt, expected, atol=1e-3)
    assert ((prompt - prompt_start).abs().amax(1) > 0.01).all()
    assert not prompt.requires_grad
    assert not head.weights.requires_grad


def test_a_prompt_starts_as_the_generator_draws_it():
    expected = torch.rand(7, 16, generator=torch.Generator().manual_seed(3)) - 0.5
    assert torch.equal(initial_prompt(lively(), 7, 3), expected)


@pytest.mark.parametrize("length", [0, 1, 4, 5, 7, 12])
def test_a_prompt_of_words_takes_each_as_often_and_is_a_copy(length):
    network = lively()
    before = fingerprint(network)
    draws = torch.Generator().manual_seed(3)
    permutations = [torch.randperm(5, generator=draws) for _ in range(3)]  # 4 tokens and [MASK]
    order = torch.cat(permutations)
    prompt = initial_prompt(network, length, 3, "vocabulary")
    assert torch.equal(prompt, network.get_input_embeddings().weight[order[:length]])
    prompt += 1
    assert fingerprint(network) == before


def test_prompt_tuning_without_a_prompt_is_head_tuning():
    network = lively(dropout=0.5).train()
    prompt, head = tune_prompt(network, TOKENS, LABELS, 0, PLAN, 5)
    assert prompt.shape == (0, 16)
    probs = all_probs_at_mask(lively(), TOKENS)
    assert torch.equal(head.weights, tune_head(probs, LABELS, PLAN, 5).weights)


def test_what_is_raised_before_a_step_ends_the_tuning_and_leaves_a_network_that_can_be_trained():
    network = lively()
    steps = []

    def stop_at_the_third_step():
        steps.append(len(steps))
        if len(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_prompt(network, TOKENS, LABELS, 3, PLAN, 5, before_step=stop_at_the_third_step)
    assert steps == [0, 1, 2]
    for parameter in network.parameters():
        assert parameter.requires_grad


# Prompts on the exact model


@pytest.mark.parametrize("plan", PLANS[:2], ids=lambda plan: f"warmup {plan.warmup}")
def test_a_tuned_exact_prompt_is_that_of_steps_by_hand(plan):
    labels = TEXTS[:, 0] >= 2

    def score(batch, weights, raw):
        return masked_token_probs(MODEL, batch, raw.sigmoid())[:, 1] @ weights

    generator = torch.Generator().manual_seed(4)
    raw_start = torch.randn(3, generator=generator, dtype=torch.float64)
    starts = [torch.zeros(5).double(), raw_start]
    rates = [plan.head_rate, plan.prompt_rate]
    weights, raw = by_hand(score, starts, rates, BEHIND_A_MASK, labels, plan, 4)
    prompt, head = tune_exact_prompt(MODEL, POSTERIORS, labels, plan, 4)
    np.testing.assert_allclose(head.weights, weights, rtol=1e-6)
    np.testing.assert_allclose(prompt, raw.sigmoid(), rtol=1e-6)
    assert prompt.dtype == torch.float64
    assert not prompt.requires_grad
    assert not head.weights.requires_grad


def test_an_exact_prompt_of_a_float32_model_is_float32():
    single = MODEL.to(dtype=torch.float32)
    prompt, _ = tune_exact_prompt(single, POSTERIORS, LABELS, PLAN, 4)
    assert prompt.dtype == probs_behind_prompt(single, POSTERIORS, prompt).dtype == torch.float32


def test_an_exact_prompt_of_a_model_that_reads_alike_both_ways_gives_no_warning():
    even = np.full((2, 2), 0.5)
    either_way = HMM(even, [[0.9, 0.1], [0.1, 0.9]], even[0], columns=True)
    with warnings.catch_warnings(action="error"):
        tune_exact_prompt(either_way, POSTERIORS[:, :2], LABELS, PLAN, 4)


@pytest.mark.parametrize("weights", [(1, 0, 0.5), (0, 0, 1), (0, 0, 0)], ids=str)
def test_outputs_behind_an_exact_prompt_are_those_of_messages(weights):
    prompt = torch.tensor(weights, dtype=torch.float64)
    expected = masked_token_probs(MODEL, BEHIND_A_MASK, prompt)[:, 1]
    np.testing.assert_allclose(probs_behind_prompt(MODEL, POSTERIORS, prompt), expected, atol=1e-13)


# Arguments

PROBS = torch.full((2, 4), 0.25)
BAD_ARGUMENTS = [
    ("Tuning", "warmup", 1.5, "from 0 to 1, not 1.5"),
    ("Pretraining", "masked", 1.5, "from 0 to 1, not 1.5"),
    ("Pretraining", "masking", "never", "always, bert, not 'never'"),
    ("Pretraining", "precision", "double", "single, half, float16, not 'double'"),
    ("pretrain", "model", random_hmm(3, 5, 0), "at most 4 tokens, as many as the network, not 5"),
    ("pretrain", "plan", replace(GOOD["pretrain"]["plan"], length=9), "at most 8, the network's, not 9"),
    ("tune_prompt", "prompt_length", 6, "need 9 positions, 6 of them for a prompt, but the network has 8"),
    ("tune_prompt", "start", "other", "uniform, vocabulary, not 'other'"),
    ("tune_head", "probs", PROBS[None], "2 dimensions, not shape (1, 2, 4)"),
    ("tune_attention", "probs", PROBS, "3 dimensions, not shape (2, 4)"),
    ("tune_exact_prompt", "posteriors", PROBS, "shape (any, 3), not (2, 4)"),
    ("accuracy", "labels", [True], "shape (2,), not (1,)"),
    ("accuracy", "head", max, "type LinearHead or TunedAttention, not builtin_function"),
]


@tried("arguments of functions")
@pytest.mark.parametrize(("function", "name", "bad", "message"), BAD_ARGUMENTS)
def test_a_bad_argument_is_named_with_what_was_found_and_what_is_accepted(function, name, bad, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(function, **{name: bad})
    assert re.search(rf"\b{name.removesuffix('_length')}\b", str(caught.value))
    assert message in str(caught.value)
