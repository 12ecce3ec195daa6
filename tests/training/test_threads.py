"""Threads of one process take turns where they would otherwise change what another one computes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from tiny_networks import MASK_ID, TOKENS, model

from hmmlib import (
    MASK,
    FromTransformers,
    Pretraining,
    Shape,
    Tuning,
    pretrain,
    random_hmm,
    tune_prompt,
)
from hmmlib.device import own_settings
from hmmlib.training.bert import build, fingerprint

SHAPE = Shape(layers=1, width=16, heads=2, max_length=12, dropout=0.3)
PLAN = Pretraining(steps=5, batch=8, length=8, warmup=1)
MODEL = random_hmm(3, 5, 0)


def at_once(work: Callable, arguments: list) -> list:
    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(work, arguments))


def pretrained(seed: int) -> str:
    network = build(SHAPE, n_tokens=5, seed=seed)
    pretrain(network, MODEL, PLAN, seed)
    return fingerprint(network)


def test_networks_that_are_trained_in_threads_are_those_that_are_trained_alone():
    seeds = list(range(4))
    alone = [pretrained(seed) for seed in seeds]

    assert at_once(pretrained, seeds) == alone


def test_settings_are_as_before_when_threads_have_needed_others():
    def in_own_settings(_: int) -> torch.dtype:
        with own_settings():
            return torch.get_default_dtype()

    torch.set_default_dtype(torch.float64)
    try:
        meanwhile = at_once(in_own_settings, list(range(200)))
        afterwards = torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)

    assert set(meanwhile) == {torch.float32}
    assert afterwards == torch.float64


def test_each_thread_reads_behind_its_own_prompt():
    reader = FromTransformers(model("BertForMaskedLM"), TOKENS, mask=MASK_ID)
    text = torch.tensor([[MASK, 0, 1, 2]])
    prompts = [torch.full((2, reader.width), 0.1 * k) for k in range(8)]

    @torch.no_grad()
    def probs(prompt: torch.Tensor) -> torch.Tensor:
        return torch.stack([reader.probs(text, prompt=prompt) for _ in range(20)])

    alone = [probs(prompt) for prompt in prompts]
    together = at_once(probs, prompts)

    assert torch.equal(torch.stack(together), torch.stack(alone))


def test_two_prompts_can_be_tuned_at_once():
    network = build(SHAPE, n_tokens=5, seed=0)
    tokens = MODEL.sample(32, 8, 1).tokens
    tokens[:, 0] = MASK
    labels = torch.arange(32) % 2 == 0

    def tuned(seed: int) -> torch.Tensor:
        prompt, _ = tune_prompt(network, tokens, labels, 2, Tuning(epochs=2, batch=8), seed)
        return prompt

    alone = [tuned(seed) for seed in range(4)]
    together = at_once(tuned, list(range(4)))

    assert torch.equal(torch.stack(together), torch.stack(alone))
    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())
