"""The masked language model: masking, logits and hidden states at chosen places, and its losses."""

import math

import numpy as np
import pytest
import torch
from tiny_networks import lively

from hmmbook.evidence.enumeration import Enumeration, normalised
from hmmlib.models.families import sparse_hmm
from hmmlib.training.bert import Shape, build, digest, fingerprint, hidden_at, logits_at, mask_some, to_ids
from hmmlib.training.readers import as_reader, masked_losses
from hmmlib.validation import MASK

pytestmark = pytest.mark.outside

N_TOKENS = 5
LENGTH = 12


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-4)


def network_of_five_tokens(**sizes):
    return lively(n_tokens=N_TOKENS, max_length=LENGTH, **sizes)


def random_ids(network, n=6, length=LENGTH):
    """The ids of random tokens, some of them MASK."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(MASK, N_TOKENS, (n, length), generator=generator)
    return to_ids(network, tokens)


@pytest.mark.parametrize(("share", "count"), [(0.15, 6), (1.0, 40), (0.001, 1), (0.19, 8)])
def test_as_many_positions_are_hidden_in_every_sequence_and_each_as_often(share, count):
    tokens = torch.zeros(200, 40, dtype=torch.long)
    masked, _ = mask_some(tokens, share, torch.Generator().manual_seed(1))
    hidden = (masked == MASK).double()
    assert (hidden.sum(1) == count).all()
    largest_error = 5 * math.sqrt(0.25 / 200)
    np.testing.assert_allclose(hidden.mean(0), count / 40, atol=largest_error)


def test_build_follows_its_shape():
    shape = Shape(layers=3, width=8, heads=4, max_length=9)
    config = build(shape, 5, 0).config
    assert config.num_hidden_layers == 3
    assert config.hidden_size == 8
    assert config.intermediate_size == 32
    assert config.num_attention_heads == 4
    assert config.max_position_embeddings == 9
    assert config.vocab_size == 6


def test_mask_is_the_last_id_also_behind_special_ones():
    network = network_of_five_tokens(specials=2)
    ids = to_ids(network, torch.tensor([[0, 4, MASK]]))
    assert ids[0].tolist() == [0, 4, 6]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("chosen", [False, True])
@torch.no_grad()
def test_logits_are_those_of_transformers_with_and_without_dropout(training, chosen):
    places = torch.arange(LENGTH).expand(6, -1) if chosen else None
    network = network_of_five_tokens(dropout=0.3, layers=3, specials=2).train(training)
    ids = random_ids(network)
    torch.manual_seed(1)
    logits = logits_at(network, network.get_input_embeddings()(ids), places)
    torch.manual_seed(1)
    close(logits, network(input_ids=ids).logits[..., :6])


@torch.no_grad()
def test_logits_at_chosen_places_are_those_of_all_places():
    network = network_of_five_tokens(layers=3)
    embeddings = network.get_input_embeddings()(random_ids(network))
    first = [0, 3, 7, 1, 10, 8]
    second = [11, 3, 2, 4, 5, 6]
    logits = logits_at(network, embeddings, torch.tensor([first, second]).T)
    all_logits = logits_at(network, embeddings, None)
    close(logits[:, 0], all_logits[range(6), first])
    close(logits[:, 1], all_logits[range(6), second])


def test_the_fingerprint_changes_with_any_one_weight_and_is_that_of_the_reader():
    network = network_of_five_tokens()
    assert fingerprint(network) == fingerprint(as_reader(network))
    prints = {fingerprint(network)}
    parameters = list(network.parameters())
    for parameter in parameters:
        parameter.data.view(-1)[-1] += 1e-3
        prints.add(fingerprint(network))
    assert len(prints) == len(parameters) + 1


def test_the_digest_is_that_which_stored_results_hold():
    tensors = {"a": torch.arange(3.0), "b": torch.eye(2, dtype=torch.uint8)}
    assert digest(tensors) == "a1c6dcab620c8b3c"


def test_the_losses_are_means_without_dropout_and_the_least_is_that_of_the_exact_conditional():
    """Over more sequences than are computed at once. The exact loss is summed over all paths."""
    model = sparse_hmm(3, 4, 0)
    network = lively()
    loss, least = masked_losses(network, model, 140, 5, 0.4, 9)
    with_dropout = lively(dropout=0.3).train()
    assert masked_losses(with_dropout, model, 140, 5, 0.4, 9) == (loss, least)

    generator = torch.Generator().manual_seed(9)
    tokens = model.sample(140, 5, generator).tokens
    masked, positions = mask_some(tokens, 0.4, generator)
    hidden = masked == MASK
    with torch.no_grad():
        logits = network(input_ids=to_ids(network, masked)).logits[..., :4].double()
    log_probs = logits.log_softmax(-1)[hidden, tokens[hidden]]
    assert loss == pytest.approx(-log_probs.mean().item(), rel=1e-5)

    exact_losses = []
    for text, shown, places in zip(tokens, masked, positions.tolist(), strict=True):
        evidence = model.embed(shown[None])[0]
        paths = Enumeration(model.transition, model.emission, model.initial, evidence)
        for place in places:
            probs = normalised(paths.masked_token(place + 1))
            exact_losses.append(-math.log(probs[text[place]]))
    assert least == pytest.approx(np.mean(exact_losses), rel=1e-12)


@pytest.mark.parametrize("cut", [[], [1], [2], [1, 2]], ids=str)
def test_hidden_states_are_those_of_transformers_and_a_cut_is_an_attention_mask(cut):
    """With it position 3 and those behind it see nothing before. If all layers have it, nothing comes through."""
    network = network_of_five_tokens(layers=2)
    embeddings = network.get_input_embeddings()(random_ids(network, length=9)).detach().requires_grad_()
    mask = torch.zeros(1, 1, 9, 9)
    mask[..., 3:, :3] = -torch.inf
    expected = [network.bert.embeddings(inputs_embeds=embeddings)]
    for number, layer in enumerate(network.bert.encoder.layer, 1):
        output = layer(expected[-1], attention_mask=mask if number in cut else None)
        expected.append(output[0] if isinstance(output, tuple) else output)

    states = hidden_at(network, embeddings, 3, cut)

    close(states, torch.stack(expected)[:, :, 3])
    (states[-1] @ torch.arange(16.0)).sum().backward()  # A plain sum never varies.
    sees_what_is_before = bool(embeddings.grad[:, :3].any())
    assert sees_what_is_before == (len(cut) < 2)
    assert embeddings.grad[:, 3:].any()
