"""What a process has set before, and contexts of torch around a call, change no number, and stay as they were."""

import os
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch
from runs import TINY, numbers
from torch.nn.attention import SDPBackend, sdpa_kernel

from hmmbook import TrialSpec, run_trial
from hmmlib import (
    HMM,
    MASK,
    AttentionHead,
    Pretraining,
    Shape,
    Tuning,
    essential_twins,
    fit_or_refute,
    masked_token_probs,
    posterior,
    pretrain,
    random_hmm,
    shrinking_support,
    tune_attention,
    tune_exact_prompt,
    tune_head,
    tune_prompt,
)
from hmmlib.device import SETTINGS
from hmmlib.training import checkpoints
from hmmlib.training.bert import build, digest, fingerprint
from hmmlib.training.readers import masked_losses
from hmmlib.training.tuning import all_probs

SHAPE = Shape(layers=1, width=16, heads=2, max_length=12, dropout=0.1)
PLAN = Pretraining(steps=3, batch=8, length=8, warmup=1, clip=1.0, masking="bert")
HALF_PLAN = Pretraining(steps=3, batch=8, length=8, warmup=1, precision="float16")
TUNING = Tuning(epochs=1, batch=8)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def flushed_denormals() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def without_onednn() -> Iterator[None]:
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = True


CONTEXTS: list[AbstractContextManager] = [
    default_dtype(torch.float64),
    default_dtype(torch.bfloat16),
    default_device("meta"),
    torch.device("meta"),
    matmul_precision("medium"),
    deterministic(),
    flushed_denormals(),
    without_onednn(),
    torch.autocast("cpu", torch.bfloat16),
    torch.inference_mode(),
    torch.no_grad(),
    sdpa_kernel(SDPBackend.MATH),
    np.errstate(all="raise"),
    np.printoptions(precision=2),
]


def drawn_and_trained() -> dict:
    """Numbers of every kind that is drawn, trained or computed."""
    model = random_hmm(4, 6, seed=1)
    texts = model.sample(24, 7, seed=2).tokens
    beliefs = posterior(model, texts)
    labels = beliefs[:, 0] >= 0.25
    results = {
        "twins": essential_twins(3).transition.tolist(),
        "support": shrinking_support(3)[0].transition.tolist(),
        "exact": masked_token_probs(model, texts).tolist(),
        "single exact": masked_token_probs(model.to(dtype=torch.float32), texts).tolist(),
        "refuted": fit_or_refute(beliefs, labels).weights.tolist(),
    }
    network = build(SHAPE, 6, 0)
    results["losses"] = pretrain(network, model, PLAN, 3)
    results["network"] = fingerprint(network)
    results["losses in 16 bits"] = pretrain(build(SHAPE, 6, 0), model, HALF_PLAN, 3)
    results["measured"] = masked_losses(network, model, 10, 8, 0.2, 4)
    texts[:, 0] = MASK
    probs = all_probs(network, texts)
    results["probs"] = probs.tolist()
    head = tune_head(probs[:, 0], labels, TUNING, 5)
    results["head"] = [head.weights.tolist(), head(probs[:, 0]).tolist()]
    attention = tune_attention(probs, labels, TUNING, 5)
    results["attention"] = [attention.value.tolist(), attention(probs).tolist()]
    embeddings = model.embed(texts).float()
    query = np.ones(5, np.float32)
    key = np.full((5, 6), 1 / 7, np.float32)
    one_cell = AttentionHead(query, key, value=key[:4], output=head.weights[:4])
    results["attention head"] = [one_cell.scores(probs).tolist(), one_cell(probs, embeddings).tolist()]
    prompt, head = tune_prompt(network, texts, labels, 2, TUNING, 5)
    results["prompt"] = [*prompt.tolist(), head.weights.tolist()]
    prompt, head = tune_exact_prompt(model, beliefs, labels, TUNING, 5)
    results["exact prompt"] = prompt.tolist() + head.weights.tolist()
    return results


@pytest.fixture(scope="module")
def expected() -> dict:
    return drawn_and_trained()


def settings() -> list:
    """What a process has set."""
    values = [setting.read() for setting in SETTINGS]
    contexts = [torch.get_default_device(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    return [*values, *contexts, torch.is_autocast_enabled("cpu"), np.geterr(), dict(os.environ)]


@pytest.mark.parametrize("context", CONTEXTS, ids=range(len(CONTEXTS)))
def test_no_setting_of_the_process_changes_a_number_and_all_stay_as_they_were(context, expected):
    with context:
        before = settings()
        result = drawn_and_trained()
        assert settings() == before
    assert result == expected


def test_without_settings_of_its_own_another_network_would_be_built():
    build_in_settings_of_the_process = build.__wrapped__
    with default_dtype(torch.float64):
        other = build_in_settings_of_the_process(SHAPE, 6, 0)
    assert other.dtype == torch.float64
    assert fingerprint(other.float()) != fingerprint(build(SHAPE, 6, 0))


def states_of_generators() -> list:
    return [torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()]  # noqa: NPY002


def test_generators_of_the_process_are_neither_used_nor_moved(expected):
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    random.seed(7)
    before = states_of_generators()
    assert drawn_and_trained() == expected
    assert states_of_generators() == before


def test_a_trial_has_the_same_numbers_and_a_network_of_the_same_name_has_the_same_weights(tmp_path):
    spec = TrialSpec("smoke", **TINY)
    expected = numbers(run_trial(spec, device="cpu", networks=tmp_path / "first"))
    with default_dtype(torch.float64), torch.inference_mode():
        result = run_trial(spec, device="cpu", networks=tmp_path / "second")
    assert numbers(result) == expected
    (first,) = (tmp_path / "first").iterdir()
    (second,) = (tmp_path / "second").iterdir()
    assert first.name == second.name
    assert digest(checkpoints.load(first)) == digest(checkpoints.load(second))


def test_a_model_whose_tables_require_gradients_draws_and_trains(expected):
    plain = random_hmm(4, 6, seed=1)
    tables = [table.clone().requires_grad_() for table in (plain.transition, plain.emission, plain.initial)]
    model = HMM(*tables, columns=True)
    assert torch.equal(model.sample(5, 8, 0).tokens, plain.sample(5, 8, 0).tokens)
    network = build(SHAPE, 6, 0)
    assert pretrain(network, model, PLAN, 3) == expected["losses"]
    assert masked_losses(network, model, 10, 8, 0.2, 4) == expected["measured"]
