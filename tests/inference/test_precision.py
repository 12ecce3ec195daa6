"""Sixteen bits, and CUDA where there is any: gradients near those of float32, and a resumed run that ends the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hmmlib.models.appendix_e import random_hmm
from hmmlib.training.bert import Shape, build, fingerprint
from hmmlib.training.pretraining import Gradients, Pretraining, Run, pretrain

SHAPE = Shape(layers=2, width=32, heads=2, max_length=16)
PLAN = Pretraining(
    steps=12,
    batch=16,
    length=16,
    masked=0.2,
    learning_rate=1e-3,
    muon_rate=0.02,
    warmup=3,
    clip=1.0,
    documents=8,
    document_length=64,
)
MODEL = random_hmm(4, 6, seed=0)
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def gradient(network):
    parts = [parameter.grad.flatten() for parameter in network.parameters()]
    return torch.cat(parts).double().cpu()


def batch_for(network, step=0, draws=0):
    """A batch of PLAN on the network's device. The draws decide what is hidden in it."""
    generator = torch.Generator(network.device).manual_seed(draws)
    return Run(network, MODEL, PLAN, 1).batch(step, generator)


def gradient_in(half, draws=0):
    """The gradient of a batch in a format of 16 bits, or in float32."""
    network = build(SHAPE, 6, 0)
    gradients = Gradients(network, half)
    scales = half == torch.float16
    gradients.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled=scales)
    gradients(*batch_for(network, draws=draws))
    return gradient(network) / gradients.scaler.get_scale()


@pytest.mark.parametrize(("half", "bound"), [(torch.bfloat16, 3e-2), (torch.float16, 1e-2)])
def test_gradients_in_sixteen_bits_are_near_those_in_thirty_two(half, bound):
    """The bound is a few rounding units of the format; another batch's gradient, the control, is nowhere near."""
    full = gradient_in(None)
    error = gradient_in(half) - full
    difference = gradient_in(None, draws=9) - full
    assert 0 < error.norm() < bound * full.norm()
    assert difference.norm() > 10 * bound * full.norm()


def run_in_float16(scale):
    """A run whose loss is multiplied by a scale."""
    run = Run(build(SHAPE, 6, 0), MODEL, PLAN, 1)
    run.gradients = Gradients(run.network, torch.float16)
    run.gradients.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return run


def test_a_loss_scaled_out_of_range_is_skipped_and_scaled_back():
    run = run_in_float16(2.0**40)
    before = fingerprint(run.network)
    run.step()
    assert fingerprint(run.network) == before, "a step with infinite gradients must not move the weights"
    assert run.gradients.scaler.get_scale() < 2.0**40
    run.gradients.scaler.update(2.0**10)
    run.step()
    assert fingerprint(run.network) != before


def test_the_scale_is_part_of_a_checkpoint(tmp_path):
    saved = run_in_float16(2.0**7)
    resumed = run_in_float16(2.0**8)
    for _ in range(4):
        saved.step()
    saved.save(tmp_path / "c.pt")
    resumed.resume(tmp_path / "c.pt")
    assert resumed.gradients.scaler.state_dict() == saved.gradients.scaler.state_dict()
    saved.step()
    resumed.step()
    assert fingerprint(resumed.network) == fingerprint(saved.network)


@cuda
@pytest.mark.parametrize("half", [None, torch.bfloat16, torch.float16])
def test_a_replayed_graph_gives_the_gradients_of_the_plain_step(half):
    network = build(SHAPE, 6, 0).to("cuda")
    plain = Gradients(network, half)
    graph = Gradients(network, half)
    batches = [batch_for(network), batch_for(network, step=1, draws=5)]
    expected = []
    for batch in batches:
        plain(*batch)
        expected.append(gradient(network))
    graph.capture(*batches[0])
    for k in (1, 0):
        graph(*batches[k])
        largest = expected[k].abs().max().item()
        np.testing.assert_allclose(gradient(network), expected[k], rtol=1e-4, atol=1e-5 * largest)
    assert not torch.equal(expected[0], expected[1])


@cuda
@pytest.mark.parametrize("muon_rate", [0.0, 0.02])
@pytest.mark.parametrize("precision", ["single", "half"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_on_cuda_a_run_broken_off_after_a_hundred_steps_and_resumed_ends_as_one_that_was_not(
    dropout, precision, muon_rate, tmp_path
):
    def stop(step, loss):
        if step == 99:
            raise InterruptedError

    plan = replace(PLAN, steps=230, precision=precision, muon_rate=muon_rate)
    shape = replace(SHAPE, dropout=dropout)
    undisturbed = build(shape, 6, 0).to("cuda")
    broken = build(shape, 6, 0).to("cuda")
    resumed = build(shape, 6, 0).to("cuda")
    path = tmp_path / "c.pt"
    pretrain(undisturbed, MODEL, plan, 3)
    with pytest.raises(InterruptedError):
        pretrain(broken, MODEL, plan, 3, stop, path)
    pretrain(resumed, MODEL, plan, 3, checkpoint=path)
    assert fingerprint(resumed) == fingerprint(undisturbed)
    assert fingerprint(resumed) != fingerprint(broken)


def losses_in(precision):
    plan = replace(PLAN, steps=40, precision=precision)
    return pretrain(build(SHAPE, 6, 0), MODEL, plan, 3)


def test_on_a_cpu_float16_rounds_and_half_is_single():
    single = losses_in("single")
    assert losses_in("half") == single, "a CPU has no 16 bits of its own"
    errors = np.subtract(losses_in("float16"), single)
    assert 0 < abs(errors).max() < 2e-3


@cuda
def test_on_cuda_training_ends_as_on_the_cpu_but_for_rounding():
    plan = replace(PLAN, steps=300, batch=32, documents=0, learning_rate=5e-3)
    last = {}
    for device in ("cpu", "cuda"):
        network = build(SHAPE, 6, 0).to(device)
        last[device] = np.mean(pretrain(network, MODEL, plan, 3)[-50:])
    assert abs(last["cpu"] - last["cuda"]) < 0.1
