"""The masked language model: masking, logits and hidden states at chosen places, its losses; and devices."""

import contextlib
import math

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised
from tiny_networks import lively

from hmmlib import backend
from hmmlib.models.families import sparse_hmm
from hmmlib.training.bert import Shape, build, fingerprint, hidden_at, logits_at, mask_some, to_ids
from hmmlib.training.readers import as_reader, masked_losses
from hmmlib.validation import MASK

pytestmark = pytest.mark.outside

SIZES = dict(n_tokens=5, max_length=12)
CLOSE = dict(atol=1e-3, rtol=1e-4)


def embedded(network, n=6, length=12):
    """Random tokens, some of them MASK, as ids and as word embeddings."""
    tokens = torch.randint(-1, 5, (n, length), generator=torch.Generator().manual_seed(0))
    ids = to_ids(network, tokens)
    return ids, network.get_input_embeddings()(ids)


def test_as_many_positions_are_hidden_in_every_sequence_and_each_as_often():
    for share, count in ((0.15, 6), (1.0, 40), (0.001, 1), (0.19, 8)):
        masked, _ = mask_some(torch.zeros(200, 40, dtype=torch.long), share, torch.Generator().manual_seed(1))
        hidden = (masked == MASK).double()
        assert (hidden.sum(1) == count).all()
        np.testing.assert_allclose(hidden.mean(0), count / 40, atol=5 * math.sqrt(0.25 / 200))


def test_build_follows_its_shape_and_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    config = build(Shape(layers=3, width=8, heads=4, max_length=9), 5, 0).config
    assert torch.equal(torch.rand(3), expected)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (3, 8, 4)
    assert (config.max_position_embeddings, config.vocab_size, config.intermediate_size) == (9, 6, 32)


@torch.no_grad()
def test_logits_are_those_of_transformers_with_and_without_dropout_and_the_mask_is_the_last_id():
    network = lively(dropout=0.3, layers=3, specials=2, **SIZES)
    assert to_ids(network, torch.tensor([[0, 4, MASK]])).tolist() == [[0, 4, 6]]
    (ids, words), drawn = embedded(network), []
    for training, seed in ((True, 1), (True, 2), (False, 3)):
        network.train(training)
        for places in (None, torch.arange(12).expand(6, -1)):
            torch.manual_seed(seed)
            found = logits_at(network, words, places)
            torch.manual_seed(seed)
            np.testing.assert_allclose(found, network(input_ids=ids).logits[..., :6], **CLOSE)
        drawn.append(found)
    assert (drawn[0] - drawn[1]).abs().max() > 1
    some = torch.tensor([[0, 11], [3, 3], [7, 2], [1, 4], [10, 5], [8, 6]])
    np.testing.assert_allclose(logits_at(network, words, some), found[torch.arange(6)[:, None], some], **CLOSE)


def test_the_fingerprint_changes_with_any_one_weight():
    network = build(Shape(layers=1, width=16, heads=2, max_length=12), 5, 0)
    prints, parameters = [fingerprint(network), fingerprint(as_reader(network))], list(network.parameters())
    for parameter in parameters:
        parameter.data.view(-1)[-1] += 1e-3
        prints.append(fingerprint(network))
    assert len(set(prints)) == len(parameters) + 1


def test_the_losses_are_means_without_dropout_and_the_least_is_that_of_the_exact_conditional():
    """Over more sequences than are computed at once; the exact loss is summed over all paths."""
    model, network = sparse_hmm(3, 4, 0), lively()
    drawn, reported = torch.Generator().manual_seed(9), masked_losses(network, model, 140, 5, 0.4, 9)
    assert masked_losses(lively(dropout=0.3).train(), model, 140, 5, 0.4, 9) == reported
    tokens = model.sample(140, 5, drawn).tokens
    masked, positions = mask_some(tokens, 0.4, drawn)
    with torch.no_grad():
        logs = network(input_ids=to_ids(network, masked)).logits[..., :4].double().log_softmax(-1)
    hidden, best = masked == MASK, []
    assert reported[0] == pytest.approx(-logs[hidden, tokens[hidden]].mean().item(), rel=1e-5)
    for text, shown, places in zip(tokens, masked, positions.tolist(), strict=True):
        paths = Enumeration(model.transition, model.emission, model.initial, model.embed(shown[None])[0])
        best += [-math.log(normalised(paths.masked_token(i + 1))[text[i]]) for i in places]
    assert reported[1] == pytest.approx(np.mean(best), rel=1e-12)


@pytest.mark.parametrize("cut", [(), (1,), (2,), (1, 2)])
def test_hidden_states_are_those_of_transformers_and_a_cut_is_an_attention_mask(cut):
    """With it a position and those behind it see nothing before; if all layers have it, nothing comes through."""
    network = lively(layers=2, **SIZES)
    words = embedded(network, length=9)[1].detach().requires_grad_()
    mask = torch.zeros(1, 1, 9, 9)
    mask[..., 3:, :3] = -torch.inf
    want = [network.bert.embeddings(inputs_embeds=words)]
    for number, layer in enumerate(network.bert.encoder.layer, 1):
        found = layer(want[-1], attention_mask=mask if number in cut else None)
        want.append(found[0] if isinstance(found, tuple) else found)
    found = hidden_at(network, words, 3, cut)
    np.testing.assert_allclose(found.detach(), torch.stack(want)[:, :, 3].detach(), **CLOSE)
    (found[-1] @ torch.arange(16.0)).sum().backward()  # a plain sum never varies
    assert words.grad[:, :3].any() == (len(cut) < 2)
    assert words.grad[:, 3:].any()


def machine(monkeypatch, cuda=0, mps=False, bf16=True):
    """Pretend to a machine with that many GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16 or including_emulation)


@pytest.mark.parametrize(
    ("has", "present", "absent"),
    [
        (dict(), ["cpu"], ["cuda", "cuda:0", "cuda:7", "mps"]),
        (dict(mps=True), ["mps", "cpu"], ["cuda", "cuda:0"]),
        (dict(cuda=2, mps=True), ["cuda", "cpu", "cuda:1", "mps"], ["cuda:2", "cuda:7"]),
    ],
)
def test_devices_that_a_machine_has_and_the_best_of_them(has, present, absent, monkeypatch):
    machine(monkeypatch, **has)
    assert backend.pick() == backend.pick("auto") == torch.device(present[0])
    assert [backend.pick(name) for name in present] == list(map(torch.device, present))
    kinds = ", ".join(kind for kind in ("cpu", "cuda", "mps") if kind in present)
    for name in absent:
        with pytest.raises(ValueError, match=f"device '{name}' is not on this machine, which has {kinds}$"):
            backend.pick(name)
    for name in ("gpu", "CPU", "cuda:x", "auto:1", "cuda:-1", None, torch.device("cpu")):
        with pytest.raises(ValueError, match="device must be one of auto, cpu, cuda, mps, or cuda:N, not"):
            backend.pick(name)


@pytest.mark.parametrize(("bf16", "kind"), [(True, torch.bfloat16), (False, torch.float16)])
def test_sixteen_bits_are_those_the_gpu_computes_with(bf16, kind, monkeypatch):
    machine(monkeypatch, cuda=1, mps=True, bf16=bf16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    cuda, other, cpu, mps = map(torch.device, ("cuda", "cuda:0", "cpu", "mps"))
    assert backend.sixteen_bits(cuda, "half") is backend.sixteen_bits(other, "half") is kind
    assert backend.sixteen_bits(cpu, "half") is backend.sixteen_bits(mps, "half") is None
    assert {backend.sixteen_bits(device, "float16") for device in (cuda, cpu, mps)} == {torch.float16}
    assert {backend.sixteen_bits(device, "single") for device in (cuda, cpu, mps)} == {None}
    assert [backend.name(device) for device in (cpu, mps, other)] == ["cpu", "mps", "GPU 0"]
