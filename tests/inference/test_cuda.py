"""Models on a GPU, where there is one: a seed will do wherever a model is, and numbers are those of the CPU."""

import numpy as np
import pytest
import torch
from runs import TINY

import hmmbook.studies  # noqa: F401, makes their measurements known
from hmmbook import TrialSpec, draw_task, run_trial
from hmmbook.studies.certificates import alternate, certificate, nearest_head, nearest_prompt, refuting_belief
from hmmlib import (
    HMM,
    Pretraining,
    Shape,
    Tuning,
    accuracy,
    fit_or_refute,
    lemma_c_2,
    masked_token_probs,
    non_degenerate_hmm,
    posterior,
    pretrain,
    theorem_3_3,
    tune_exact_prompt,
    tune_head,
)
from hmmlib.training.bert import build
from hmmlib.training.readers import masked_losses

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

MU = [1.0, -1.0, 0.5]
SIZES = (40, 20, 20)


def models() -> tuple[HMM, HMM]:
    """The same model on the CPU and on the GPU, where its tables require gradients."""
    model = non_degenerate_hmm(3, 4, 0, zeros=0.0)
    tables = [table.cuda().requires_grad_() for table in (model.transition, model.emission, model.initial)]
    return model, HMM(*tables, columns=True)


def test_a_seed_and_a_generator_of_the_cpu_draw_on_the_device_of_the_model():
    _, model = models()
    tokens = model.sample(5, 6, 0).tokens
    assert tokens.is_cuda
    assert torch.equal(model.sample(5, 6, 0).tokens, tokens)
    first = model.sample(5, 6, torch.Generator().manual_seed(1)).tokens
    again = model.sample(5, 6, torch.Generator().manual_seed(1)).tokens
    assert torch.equal(first, again)
    assert not torch.equal(first, tokens)


def test_exact_probabilities_and_heads_are_those_of_the_cpu():
    plain, model = models()
    tokens = plain.sample(10, 6, 0).tokens
    exact = masked_token_probs(plain, tokens)
    on_gpu = masked_token_probs(model, tokens.cuda())
    np.testing.assert_allclose(on_gpu.detach().cpu(), exact, rtol=1e-12)
    labels = theorem_3_3(plain, MU).label(exact[:, 0])
    assert torch.equal(theorem_3_3(model, MU).label(on_gpu[:, 0]).cpu(), labels)
    assert type(fit_or_refute(on_gpu[:, 0], labels)) is type(fit_or_refute(exact[:, 0], labels))


def test_a_task_is_drawn_and_a_prompt_tuned_for_it():
    _, model = models()
    task = draw_task(model, 6, SIZES, seed=1)
    assert task.tokens.shape == (80, 6)
    beliefs = posterior(model, task.tokens, at=1)
    prompt, head = tune_exact_prompt(model, beliefs, task.labels, Tuning(epochs=1), seed=0)
    assert prompt.is_cuda
    assert head.weights.is_cuda
    probs = masked_token_probs(model, task.tokens)[:, 0]
    tuned = tune_head(probs, task.labels, Tuning(epochs=1), seed=0)
    assert 0 <= accuracy(tuned, probs, task.labels) <= 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_network_learns_from_a_model_on_a_gpu(device):
    _, model = models()
    network = build(Shape(layers=1, width=16, heads=2, max_length=8), 4, 0).to(device)
    losses = pretrain(network, model, Pretraining(steps=4, batch=8, length=8, warmup=1), seed=0)
    assert np.isfinite(losses).all()
    loss, least = masked_losses(network, model, 20, 8, 0.2, seed=1)
    assert loss > least > 0


def test_certificates_are_those_of_the_cpu():
    plain, model = models()
    prompt = torch.ones(3, device="cuda")
    head, made = nearest_head(model, MU)
    _, expected = nearest_head(plain, MU)
    assert made.error == pytest.approx(expected.error, abs=1e-8)
    assert certificate(model, MU, head).spread == pytest.approx(made.spread)
    nearest, _ = nearest_prompt(model, MU, head)
    assert nearest.is_cuda
    _, _, best = alternate(model, MU, prompt, rounds=2)
    assert best.error >= 0
    belief = refuting_belief(torch.tensor(MU, device="cuda"), lemma_c_2(model, prompt).detach())
    assert belief.is_cuda


def test_a_trial_on_a_gpu_makes_the_measurements_of_the_studies_that_compute_with_its_network():
    also = ["prompt_changes", "constant_vectors", "probes", "label_follows", "prompt_cuts", "certified"]
    result = run_trial(TrialSpec("smoke", **TINY), device="cuda", also=also)
    for name in also:
        assert result.added[name]
