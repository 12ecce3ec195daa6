"""The masked language model: masking, logits at chosen places, building, its losses; and the device it computes on."""

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from companion.evidence.enumeration import Enumeration, normalised

from hmmlib import backend
from hmmlib.models.appendix_e import random_hmm
from hmmlib.models.families import sparse_hmm
from hmmlib.training.bert import (
    Shape,
    build,
    fingerprint,
    hidden_at,
    logits_at,
    mask_some,
    run_layer,
    to_ids,
)
from hmmlib.training.readers import as_reader, masked_losses
from hmmlib.validation import MASK

pytestmark = pytest.mark.outside

SHAPE = Shape(layers=1, width=16, heads=2, max_length=12)
DROPOUT = replace(SHAPE, layers=2, dropout=0.3)


def lively(shape=SHAPE, n_tokens=5):
    """A network whose output hangs on its input; that of fresh weights, which are small, hardly does."""
    network = build(shape, n_tokens, 0)
    with torch.no_grad():
        for matrix in (p for p in network.parameters() if p.ndim == 2):
            matrix *= 20
    return network.eval()


def same(one, other):
    """Whether two networks hold the same numbers, bit by bit."""
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


@pytest.mark.parametrize(("share", "count"), [(0.15, 6), (0.5, 20), (1.0, 40), (0.001, 1), (0.19, 8)])
def test_as_many_positions_are_hidden_in_every_sequence(share, count):
    tokens = torch.randint(0, 7, (200, 40), generator=torch.Generator().manual_seed(0))
    before = tokens.clone()
    masked, positions = mask_some(tokens, share, torch.Generator().manual_seed(1))
    assert torch.equal(tokens, before)
    assert positions.shape == (200, count)
    assert all(len(set(row)) == count for row in positions.tolist())
    hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, positions, True)
    assert (masked[hidden] == MASK).all()
    assert torch.equal(masked[~hidden], tokens[~hidden])
    again = mask_some(tokens, share, torch.Generator().manual_seed(1))
    assert torch.equal(positions, again[1])
    frequency = hidden.double().mean(0)
    np.testing.assert_allclose(frequency, count / 40, atol=5 * math.sqrt(0.25 / 200))


def test_ids():
    network = build(SHAPE, 5, 0)
    assert to_ids(network, torch.tensor([[0, 4, MASK]])).tolist() == [[0, 4, 5]]
    with pytest.raises(ValueError, match="tokens must be 0 to 4, or MASK = -1; found 5"):
        to_ids(network, torch.tensor([[5]]))


@pytest.mark.parametrize("layers", [1, 3])
def test_logits_at_chosen_places_are_those_of_the_whole_network(layers):
    network = lively(replace(SHAPE, layers=layers))
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(-1, 5, (6, 12), generator=draw)
    positions = torch.randint(0, 12, (6, 2), generator=draw)
    with torch.no_grad():
        whole = network(input_ids=to_ids(network, tokens)).logits
        some = logits_at(network, network.get_input_embeddings()(to_ids(network, tokens)), positions)
        by_row = as_reader(network).logits(as_reader(network).embed(tokens), positions)
    assert whole.shape == (6, 12, 6)
    assert some.shape == (6, 2, 5)
    np.testing.assert_allclose(some, whole[torch.arange(6)[:, None], positions][..., :5], atol=1e-3, rtol=1e-4)
    assert torch.equal(some, by_row)
    assert (whole[:, :, :5] - whole.roll(1, 1)[:, :, :5]).abs().max() > 1  # places differ


def test_build_follows_its_seed_and_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    network, again, other = build(SHAPE, 5, 0), build(SHAPE, 5, 0), build(SHAPE, 5, 1)
    assert torch.equal(torch.rand(3), expected)
    assert same(network, again)
    assert not same(network, other)


def test_the_shape_of_the_network():
    config = build(Shape(layers=3, width=8, heads=4, max_length=9), 5, 0).config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (3, 8, 4)
    assert (config.max_position_embeddings, config.vocab_size, config.intermediate_size) == (9, 6, 32)


def words(network, tokens):
    """The word embeddings of tokens."""
    return network.get_input_embeddings()(to_ids(network, tokens))


def some_tokens(n=6, length=12, n_tokens=5):
    """Random tokens, some of them MASK."""
    return torch.randint(-1, n_tokens, (n, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("specials", [1, 2, 5])
def test_the_mask_is_the_last_id_and_is_never_predicted(specials):
    network = lively(replace(SHAPE, specials=specials))
    tokens = some_tokens()
    ids = to_ids(network, tokens)
    assert network.config.vocab_size == 5 + specials
    assert (ids[tokens == MASK] == 4 + specials).all()
    assert torch.equal(ids[tokens != MASK], tokens[tokens != MASK])
    with torch.no_grad():
        found = logits_at(network, words(network, tokens), None)
        whole = network(input_ids=ids).logits
    assert found.shape == (6, 12, 4 + specials)
    np.testing.assert_allclose(found, whole[..., :-1], atol=1e-3, rtol=1e-4)
    assert (found - whole[..., 1:]).abs().max() > 1


def test_dropout_is_as_in_transformers():
    network, tokens = lively(DROPOUT), some_tokens()

    def whole():
        return network(input_ids=to_ids(network, tokens)).logits[..., :5]

    def ours():
        return logits_at(network, words(network, tokens), None)

    def seeded(call, seed):
        torch.manual_seed(seed)
        with torch.no_grad():
            return call()

    network.train()
    np.testing.assert_allclose(seeded(ours, 1), seeded(whole, 1), atol=1e-3, rtol=1e-4)
    assert (seeded(ours, 1) - seeded(ours, 2)).abs().max() > 1
    network.eval()
    np.testing.assert_allclose(seeded(ours, 1), seeded(whole, 2), atol=1e-3, rtol=1e-4)
    assert torch.equal(seeded(ours, 1), seeded(ours, 2))
    plain = lively(replace(DROPOUT, dropout=0.0)).train()
    assert torch.equal(logits_at(plain, words(plain, tokens), None), logits_at(plain, words(plain, tokens), None))
    assert torch.equal(logits_at(plain, words(plain, tokens), None), seeded(ours, 1))


def test_dropout_at_chosen_places_has_the_spread_of_the_whole_layer():
    network = lively(DROPOUT).train()
    layer = network.bert.encoder.layer[0]
    hidden = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0)).expand(4000, -1, -1)
    at = torch.tensor([[7]]).expand(4000, -1)

    def moments(call):
        torch.manual_seed(0)
        with torch.no_grad():
            drawn = call()
        return drawn.mean(0), drawn.std(0)

    whole = moments(lambda: layer(hidden)[:, 7])
    chosen = moments(lambda: run_layer(layer, hidden, at)[:, 0])
    far = ((chosen[0] - whole[0]) / whole[1]).abs().max()
    assert far < 5 * math.sqrt(2 / 4000)
    np.testing.assert_allclose(chosen[1] / whole[1], 1, atol=0.1)
    layer.attention.self.dropout.p = 0.0  # dropout of the attention weights alone must show
    without = moments(lambda: run_layer(layer, hidden, at)[:, 0])
    assert (without[1] / whole[1]).min() < 0.8


def test_the_fingerprint_changes_with_any_one_weight():
    network = build(SHAPE, 5, 0)
    prints = {fingerprint(network)}
    assert prints == {fingerprint(build(SHAPE, 5, 0))}
    assert len(next(iter(prints))) == 16
    parameters = list(network.parameters())
    for parameter in parameters:
        entries = parameter.data.view(-1)
        old = entries[-1].item()
        entries[-1] = -old if old else 1e-30
        prints.add(fingerprint(network))
        entries[-1] = old
    assert len(prints) == len(parameters) + 1
    assert fingerprint(network) == fingerprint(build(SHAPE, 5, 0))
    assert fingerprint(network) != fingerprint(build(SHAPE, 5, 1))


def test_the_least_loss_is_that_of_the_exact_conditional():
    model, network, n, length = sparse_hmm(3, 4, 0), lively(n_tokens=4), 12, 5
    drawn, reported = torch.Generator().manual_seed(9), masked_losses(network, model, n, length, 0.4, 9)
    tokens = model.sample(n, length, drawn).tokens
    masked, positions = mask_some(tokens, 0.4, drawn)
    with torch.no_grad():
        logits = network(input_ids=to_ids(network, masked)).logits[..., :4].double().log_softmax(-1)
    best, found = [], []
    for k in range(n):
        paths = Enumeration(model.transition, model.emission, model.initial, model.embed(masked[k : k + 1])[0])
        for i in positions[k].tolist():
            best.append(-math.log(normalised(paths.masked_token(i + 1))[tokens[k, i]]))
            found.append(-logits[k, i, tokens[k, i]].item())
    assert reported[1] == pytest.approx(np.mean(best), rel=1e-12)
    assert reported[0] == pytest.approx(np.mean(found), rel=1e-5)


def test_losses_are_means_over_all_sequences_however_many():
    model, network = random_hmm(3, 4, 0), build(SHAPE, 4, 0)
    draw = torch.Generator().manual_seed(3)
    tokens = model.sample(1100, 8, draw).tokens
    masked, positions = mask_some(tokens, 0.25, draw)
    with torch.no_grad():
        logits = as_reader(network).logits(as_reader(network).embed(masked), positions).double()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.gather(1, positions).flatten()).item()
    assert masked_losses(network, model, 1100, 8, 0.25, 3)[0] == pytest.approx(expected, rel=1e-6)


def test_the_network_loses_nothing_to_dropout_when_it_is_judged():
    model, network = random_hmm(3, 5, 0), lively(DROPOUT).train()
    judged = [masked_losses(network, model, 50, 8, 0.25, 3) for _ in range(2)]
    assert judged[0] == judged[1] == masked_losses(lively(replace(DROPOUT, dropout=0.0)), model, 50, 8, 0.25, 3)


# Devices


@pytest.mark.parametrize("name", ["gpu", "", "CPU", "cuda:x", "auto:1", "cuda:-1", None, 0, torch.device("cpu")])
def test_unknown_devices(name):
    with pytest.raises(ValueError, match="device must be one of auto, cpu, cuda, mps, or cuda:N, not"):
        backend.pick(name)


def machine(monkeypatch, cuda=0, mps=False, bf16=True):
    """Pretend to a machine with that many GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16 or including_emulation)


@pytest.mark.parametrize(
    ("has", "present", "absent", "auto"),
    [
        (dict(), ["cpu"], ["cuda", "cuda:0", "cuda:7", "mps"], "cpu"),
        (dict(mps=True), ["cpu", "mps"], ["cuda", "cuda:0"], "mps"),
        (dict(cuda=1), ["cpu", "cuda", "cuda:0"], ["cuda:1", "mps"], "cuda"),
        (dict(cuda=2, mps=True), ["cpu", "cuda", "cuda:1", "mps"], ["cuda:2", "cuda:7"], "cuda"),
    ],
)
def test_devices_that_a_machine_has(has, present, absent, auto, monkeypatch):
    machine(monkeypatch, **has)
    assert backend.pick() == backend.pick("auto") == torch.device(auto)
    for name in present:
        assert backend.pick(name) == torch.device(name)
    kinds = ", ".join(dict.fromkeys(name.split(":")[0] for name in present))
    for name in absent:
        with pytest.raises(ValueError, match=f"device '{name}' is not on this machine, which has {kinds}$"):
            backend.pick(name)


@pytest.mark.parametrize(("bf16", "kind"), [(True, torch.bfloat16), (False, torch.float16)])
def test_sixteen_bits_are_those_the_gpu_computes_with(bf16, kind, monkeypatch):
    machine(monkeypatch, cuda=1, mps=True, bf16=bf16)
    cuda, other, cpu, mps = map(torch.device, ("cuda", "cuda:0", "cpu", "mps"))
    assert backend.sixteen_bits(cuda, "half") is backend.sixteen_bits(other, "half") is kind
    assert backend.sixteen_bits(cpu, "half") is backend.sixteen_bits(mps, "half") is None
    assert {backend.sixteen_bits(device, "float16") for device in (cuda, cpu, mps)} == {torch.float16}
    assert {backend.sixteen_bits(device, "single") for device in (cuda, cpu, mps)} == {None}


def test_names_of_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert [backend.name(torch.device(kind)) for kind in ("cpu", "mps", "cuda:1")] == ["cpu", "mps", "GPU 1"]


# Hidden states, and attention that is cut


def test_hidden_states_are_those_of_transformers():
    network = lively(replace(SHAPE, layers=3))
    with torch.no_grad():
        ids = to_ids(network, some_tokens(length=9))
        want = network(input_ids=ids, output_hidden_states=True).hidden_states
        embeddings = network.get_input_embeddings()(ids)
        found = hidden_at(network, embeddings, 4)
        assert len(found) == len(want) == 4
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one, other[:, 4], atol=1e-3, rtol=1e-4)
        behind = logits_at(network, embeddings, torch.full((6, 1), 4)).squeeze(1)
        np.testing.assert_allclose(network.cls(found[-1])[:, :-1], behind, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(("cut", "through"), [((1,), True), ((2,), True), ((1, 2), False), ((), True)])
def test_with_every_layer_cut_nothing_of_what_stands_before_comes_through(cut, through):
    network = lively(replace(SHAPE, layers=2))
    embeddings = network.get_input_embeddings()(to_ids(network, some_tokens(length=9))).detach().requires_grad_()
    (hidden_at(network, embeddings, 3, cut)[-1] @ torch.arange(16.0)).sum().backward()  # a plain sum never varies
    assert embeddings.grad[:, :3].any() == through
    assert embeddings.grad[:, 3:].any()


def test_a_cut_is_an_attention_mask():
    """In transformers' own layer: with its mask, the position and those behind it see nothing before it."""
    network = lively(replace(SHAPE, layers=2))
    embeddings = network.get_input_embeddings()(to_ids(network, some_tokens(length=9)))
    with torch.no_grad():
        found = hidden_at(network, embeddings, 3, [2])[-1]
        hidden = network.bert.embeddings(inputs_embeds=embeddings)
        first, second = network.bert.encoder.layer
        hidden = run_layer(first, hidden)
        mask = torch.zeros(1, 1, 9, 9)
        mask[..., 3:, :3] = -torch.inf
        want = second(hidden, attention_mask=mask)
        want = (want[0] if isinstance(want, tuple) else want)[:, 3]
        np.testing.assert_allclose(found, want, atol=1e-3, rtol=1e-4)
