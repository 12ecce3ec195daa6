"""Which devices a machine has, and the 16 bits that it computes with. The machines are pretended."""

import contextlib

import pytest
import torch

from hmmlib import device as devices

pytestmark = pytest.mark.outside


def pretend(monkeypatch, cuda=0, mps=False, bfloat16=True):
    """Pretend to a machine with that many GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16 or including_emulation
    )


@pytest.mark.parametrize(
    ("machine", "present", "absent"),
    [
        ({}, ["cpu"], ["cuda", "cuda:0", "cuda:7", "mps"]),
        ({"mps": True}, ["mps", "cpu"], ["cuda", "cuda:0", "mps:1"]),
        ({"cuda": 2, "mps": True}, ["cuda", "mps", "cpu", "cuda:1"], ["cuda:2", "cuda:7", "cpu:1"]),
    ],
)
def test_the_devices_of_a_machine_and_the_best_of_them(machine, present, absent, monkeypatch):
    pretend(monkeypatch, **machine)
    assert devices.pick() == devices.pick("auto") == torch.device(present[0])
    for name in present:
        assert devices.pick(name) == torch.device(name)
    kinds = ", ".join(present).removesuffix(", cuda:1")
    for name in absent:
        with pytest.raises(ValueError, match=f"device '{name}' is not on this machine, which has {kinds}$"):
            devices.pick(name)


@pytest.mark.parametrize("name", ["gpu", "CPU", "cuda:x", "auto:1", "cuda:-1", None, torch.device("cpu")])
def test_what_no_machine_has_is_refused(name):
    with pytest.raises(ValueError, match="device must be one of auto, cpu, cuda, mps, or cuda:N, not"):
        devices.pick(name)


@pytest.mark.parametrize(("has_bfloat16", "half"), [(True, torch.bfloat16), (False, torch.float16)])
def test_sixteen_bits_are_those_the_gpu_computes_with(has_bfloat16, half, monkeypatch):
    pretend(monkeypatch, cuda=1, bfloat16=has_bfloat16)
    cuda = torch.device("cuda:0")
    assert devices.name(cuda) == "GPU 0"
    assert devices.sixteen_bits(cuda, "half") is half
    for other in (torch.device("cpu"), torch.device("mps")):
        assert devices.name(other) == other.type
        assert devices.sixteen_bits(other, "half") is None
    for device in (cuda, torch.device("cpu"), torch.device("mps")):
        assert devices.sixteen_bits(device, "float16") is torch.float16
        assert devices.sixteen_bits(device, "single") is None
