"""Sixteen bits, and CUDA where there is any: gradients near those of float32, and a resumed run that ends the same."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from hmmlib.models.appendix_e import random_hmm
from hmmlib.training.bert import Shape, build, fingerprint
from hmmlib.training.pretraining import Gradients, Pretraining, Run, pretrain

SHAPE = Shape(layers=2, width=32, heads=2, max_length=16)
PLAN = Pretraining(12, 16, 16, 0.2, 1e-3, 0.02, 3, clip=1.0, documents=8, document_length=64)
MODEL = random_hmm(4, 6, seed=0)
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def gradient(network):
    return torch.cat([p.grad.flatten() for p in network.parameters()]).double().cpu()


def one_batch(device, draws=0):
    network = build(SHAPE, 6, 0).to(device)
    return network, Run(network, MODEL, PLAN, 1).batch(0, torch.Generator(device).manual_seed(draws))


@pytest.mark.parametrize(("kind", "bound"), [(torch.bfloat16, 3e-2), (torch.float16, 1e-2)])
def test_gradients_in_sixteen_bits_are_near_those_in_thirty_two(kind, bound):
    """The bound is a few rounding units of the format; another batch's gradient, the control, is nowhere near."""
    found = {}
    for name, half, draws in (("full", None, 0), ("half", kind, 0), ("other", None, 9)):
        network, batch = one_batch("cpu", draws)
        gradients = Gradients(network, half)
        gradients.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled=half == torch.float16)
        gradients(*batch)
        found[name] = gradient(network) / gradients.scaler.get_scale()
    assert 0 < (found["half"] - found["full"]).norm() / found["full"].norm() < bound
    assert (found["other"] - found["full"]).norm() / found["full"].norm() > 10 * bound


def test_a_loss_scaled_out_of_range_is_skipped_and_scaled_back():
    run = Run(network := build(SHAPE, 6, 0), MODEL, PLAN, 1)
    run.gradients = Gradients(network, torch.float16)
    run.gradients.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    before = fingerprint(network)
    run.step()
    assert fingerprint(network) == before, "a step with infinite gradients must not move the weights"
    assert run.gradients.scaler.get_scale() < 2.0**40
    run.gradients.scaler.update(2.0**10)
    run.step()
    assert fingerprint(network) != before


def test_the_scale_is_part_of_a_checkpoint(tmp_path):
    first, second = runs = [Run(build(SHAPE, 6, 0), MODEL, PLAN, 1) for _ in range(2)]
    for run in runs:
        run.gradients = Gradients(run.network, torch.float16)
    first.gradients.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(4):
        first.step()
    first.save(tmp_path / "c.pt")
    second.resume(tmp_path / "c.pt")
    assert second.gradients.scaler.state_dict() == first.gradients.scaler.state_dict()
    for run in runs:
        run.step()
    assert fingerprint(first.network) == fingerprint(second.network)


@cuda
@pytest.mark.parametrize("half", [None, torch.bfloat16, torch.float16])
def test_a_replayed_graph_gives_the_gradients_of_the_plain_step(half):
    network, batch = one_batch("cuda")
    plain, graph = Gradients(network, half), Gradients(network, half)
    other = Run(network, MODEL, PLAN, 1).batch(1, torch.Generator("cuda").manual_seed(5))
    expected = []
    for inputs in (batch, other):
        plain(*inputs)
        expected.append(gradient(network))
    graph.capture(*batch)
    for inputs, wanted in zip((other, batch), reversed(expected), strict=True):
        graph(*inputs)
        np.testing.assert_allclose(gradient(network), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))
    assert not torch.equal(expected[0], expected[1])


@cuda
@pytest.mark.parametrize(
    ("dropout", "precision", "muon"), list(itertools.product([0.0, 0.1], ["single", "half"], [0.0, 0.02]))
)
def test_on_cuda_a_run_broken_off_after_a_hundred_steps_and_resumed_ends_as_one_that_was_not(
    dropout, precision, muon, tmp_path
):
    def stop(step, loss):
        if step == 99:
            raise InterruptedError

    plan, path = replace(PLAN, steps=230, precision=precision, muon_rate=muon), tmp_path / "c.pt"
    whole, broken, resumed = (build(replace(SHAPE, dropout=dropout), 6, 0).to("cuda") for _ in range(3))
    pretrain(whole, MODEL, plan, 3)
    with pytest.raises(InterruptedError):
        pretrain(broken, MODEL, plan, 3, stop, path)
    pretrain(resumed, MODEL, plan, 3, checkpoint=path)
    assert fingerprint(resumed) == fingerprint(whole)
    assert fingerprint(resumed) != fingerprint(broken)


def test_on_a_cpu_float16_rounds_and_half_is_single():
    losses = {}
    for precision in ("single", "half", "float16"):
        losses[precision] = pretrain(build(SHAPE, 6, 0), MODEL, replace(PLAN, steps=40, precision=precision), 3)
    assert losses["half"] == losses["single"], "a CPU has no 16 bits of its own"
    assert 0 < np.abs(np.subtract(losses["float16"], losses["single"])).max() < 2e-3


@cuda
def test_on_cuda_training_ends_as_on_the_cpu_but_for_rounding():
    plan = replace(PLAN, steps=300, batch=32, documents=0, learning_rate=5e-3)
    last = {}
    for device in ("cpu", "cuda"):
        network = build(SHAPE, 6, 0).to(device)
        last[device] = np.mean(pretrain(network, MODEL, plan, 3)[-50:])
    assert abs(last["cpu"] - last["cuda"]) < 0.1
