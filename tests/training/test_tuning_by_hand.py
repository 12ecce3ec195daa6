"""Tuning against a second way: AdamW and its schedule written out, on scores that are computed otherwise."""

import numpy as np
import pytest
import torch
from tiny_networks import inputs, lively

from hmmlib.inference.messages import masked_token_probs, posterior
from hmmlib.models.appendix_e import random_hmm
from hmmlib.training.tuning import (
    TunedAttention,
    Tuning,
    initial_prompt,
    probs_behind_prompt,
    tune_attention,
    tune_exact_prompt,
    tune_head,
    tune_prompt,
)
from hmmlib.validation import MASK

PLANS = [
    Tuning(epochs=2, batch=8, head_rate=0.1, prompt_rate=0.03),  # 6 steps, the first of them warm-up
    Tuning(epochs=3, batch=20, head_rate=0.2, prompt_rate=0.02, warmup=0.5),  # 3 steps, 2 of them (1.5 is rounded)
    Tuning(epochs=1, batch=6, head_rate=0.1, prompt_rate=0.05, warmup=0.0),
    Tuning(epochs=2, batch=7, head_rate=0.1, prompt_rate=0.05, warmup=1.0),
]


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


def examples(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
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
def test_a_tuned_attention_head_is_that_of_steps_by_hand(cells, positions):
    probs, labels = examples(20, 4, 5)
    plan = PLANS[0]

    def score(p, key, value, place=None):
        total = 0
        for cell in range(cells):
            rises = [p[:, i] @ key[:, cell] + (0 if place is None else place[i, cell]) for i in range(4)]
            powers = [rise.exp() for rise in rises]
            total = total + sum(power * (p[:, i] @ value[:, cell]) for i, power in enumerate(powers)) / sum(powers)
        return total

    start = torch.randn(5, cells, generator=torch.Generator().manual_seed(2)) / 5
    parts = [torch.zeros(5, cells).double(), start.double(), torch.zeros(4, cells).double()]
    parts = parts if positions else parts[:2]
    want = by_hand(score, parts, [plan.head_rate] * 3, probs, labels, plan, 2)
    found = tune_attention(probs, labels, plan, 2, cells, positions)
    for name, part in zip(("key", "value", "positions"), want, strict=False):
        np.testing.assert_allclose(getattr(found, name), part, rtol=1e-5, atol=1e-9)
    assert positions or not found.positions.any()
    assert not any(part.requires_grad for part in found)
    np.testing.assert_allclose(found(probs), score(probs, *want), rtol=1e-4, atol=1e-8)


def test_an_attention_score_of_zero_is_label_1():
    head = TunedAttention(torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]]), torch.zeros(1, 1))
    probs = torch.tensor([[[0.5, 0.5]], [[0.4, 0.6]], [[0.6, 0.4]]])
    assert head.label(probs).tolist() == [True, False, True]


@pytest.mark.parametrize("start", ["uniform", "vocabulary"])
def test_a_tuned_prompt_is_that_of_steps_by_hand(start):
    network, tokens, plan = lively(), inputs(20), PLANS[0]
    labels = tokens[:, 1] >= 2

    def score(batch, weights, prompt):
        words = network.get_input_embeddings()(torch.where(batch == MASK, 4, batch))
        rows = torch.cat([prompt.expand(len(batch), -1, -1), words], 1)
        return network(inputs_embeds=rows).logits[:, 3, :4].softmax(-1) @ weights

    parts = [torch.zeros(4), initial_prompt(network, 3, 5, start)]
    weights, prompt = by_hand(score, parts, [plan.head_rate, plan.prompt_rate], tokens, labels, plan, 5)
    found, head = tune_prompt(network, tokens, labels, 3, plan, 5, start)
    np.testing.assert_allclose(head.weights, weights, atol=1e-4)
    np.testing.assert_allclose(found, prompt, atol=1e-3)
    assert (found - parts[1]).abs().max() > 0.02


def test_the_prompt_at_the_start_is_what_the_generator_draws():
    network = lively()
    drawn = torch.rand(7, 16, generator=torch.Generator().manual_seed(3)) - 0.5
    assert torch.equal(initial_prompt(network, 7, 3), drawn)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(3))
    words = network.get_input_embeddings().weight
    assert torch.equal(initial_prompt(network, 4, 3, "vocabulary"), words[order[:4]])
    assert initial_prompt(network, 0, 3, "vocabulary").shape == (0, 16)


def exact_task():
    model = random_hmm(3, 5, 1, temperature=0.5)
    tokens = model.sample(20, 4, 2).tokens
    return model, tokens, posterior(model, tokens), tokens[:, 0] >= 2


def gap(tokens):
    return torch.cat([torch.full_like(tokens[:, :1], MASK), tokens], 1)


def test_outputs_behind_a_prompt_are_those_of_messages():
    model, tokens, before, _ = exact_task()
    for prompt in ([1.0, 0.0, 0.5], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]):
        prompt = torch.tensor(prompt, dtype=torch.float64)
        want = masked_token_probs(model, gap(tokens), prompt)[:, 1]
        np.testing.assert_allclose(probs_behind_prompt(model, before, prompt), want, atol=1e-13)


@pytest.mark.parametrize("plan", PLANS[:2], ids=lambda plan: f"warmup {plan.warmup}")
def test_a_tuned_exact_prompt_is_that_of_steps_by_hand(plan):
    model, tokens, before, labels = exact_task()

    def score(batch, weights, raw):
        return masked_token_probs(model, gap(batch), raw.sigmoid())[:, 1] @ weights

    start = torch.randn(3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    parts, rates = [torch.zeros(5).double(), start], [plan.head_rate, plan.prompt_rate]
    weights, raw = by_hand(score, parts, rates, tokens, labels, plan, 4)
    prompt, head = tune_exact_prompt(model, before, labels, plan, 4)
    np.testing.assert_allclose(head.weights, weights, rtol=1e-6)
    np.testing.assert_allclose(prompt, raw.sigmoid(), rtol=1e-6)
    assert not prompt.requires_grad
    assert not head.weights.requires_grad


def test_an_exact_prompt_starts_as_it_was_drawn_in_the_precision_of_the_model():
    still = Tuning(epochs=1, batch=4, head_rate=0.1, prompt_rate=1e-12)
    for dtype in (torch.float64, torch.float32):
        model = random_hmm(3, 4, 1).to(dtype=dtype)
        posteriors = torch.full((4, 3), 1 / 3, dtype=torch.float64)
        prompt, _ = tune_exact_prompt(model, posteriors, torch.tensor([True, False] * 2), still, 5)
        start = torch.randn(3, generator=torch.Generator().manual_seed(5), dtype=dtype)
        assert prompt.dtype == dtype
        np.testing.assert_allclose(prompt, start.sigmoid(), rtol=1e-6)


def test_one_example_is_enough_to_tune_a_head():
    head = tune_head(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([True]), PLANS[0], 0)
    assert (head.weights > 0).all()
