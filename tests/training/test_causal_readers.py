"""A causal network reads what follows a mask if the mask is moved behind the text."""

import warnings

import pytest
import torch
from tiny_networks import CLS, TOKENS, inputs, lively, model

import hmmlib
from hmmlib import MASK, FromTransformers, Tuning, random_hmm, tune_prompt
from hmmlib.training import bert, readers
from hmmlib.training.from_transformers import PAD
from hmmlib.training.tuning import all_hidden_at_mask, all_probs, all_probs_at_mask


@pytest.fixture
def network():
    return model("GPT2LMHeadModel")


@pytest.fixture
def texts():
    return inputs(30, 7)


@pytest.fixture
def reader(network):
    return FromTransformers(network, TOKENS, before=[CLS], mask_behind=True)


def test_the_mask_is_predicted_behind_the_text(network, texts, reader):
    ids = torch.tensor(TOKENS)
    begin = torch.full((30, 1), CLS)
    text_ids = torch.cat([begin, ids[texts[:, 1:]]], 1)
    output = network(text_ids, output_hidden_states=True)
    probs = output.logits[..., ids].softmax(-1)
    with warnings.catch_warnings(action="error"):
        torch.testing.assert_close(all_probs_at_mask(reader, texts), probs[:, -1])
        torch.testing.assert_close(all_probs(reader, texts), probs.roll(1, 1))
    hidden = torch.stack(output.hidden_states)
    torch.testing.assert_close(all_hidden_at_mask(reader, texts), hidden[:, :, -1])


def test_a_prompt_is_tuned_before_such_a_text(texts, reader):
    plan = Tuning(epochs=1, batch=10, head_rate=0.1, prompt_rate=0.1)
    labels = texts[:, -1] > 1
    prompt, _ = tune_prompt(reader, texts, labels, 2, plan, 0)
    difference = reader.probs(texts, prompt=prompt) - all_probs_at_mask(reader, texts)
    assert difference.abs().max() > 1e-3


def test_a_text_is_read_alike_whatever_stands_beside_it(texts, reader, monkeypatch):
    texts[::2, 0] = 1  # Every other text does not begin with MASK.
    together = all_probs(reader, texts)
    for k in range(len(texts)):
        torch.testing.assert_close(all_probs(reader, texts[k : k + 1]), together[k : k + 1])
    model = random_hmm(3, 4, 0)
    together = readers.masked_losses(reader, model, 9, 7, 0.3, 0)
    monkeypatch.setattr(readers, "SEQUENCES_AT_ONCE", 1)
    assert readers.masked_losses(reader, model, 9, 7, 0.3, 0) == pytest.approx(together)


def test_losses_are_those_of_the_models_own_predictions(network, reader):
    chain = random_hmm(3, 4, 0)
    loss, _ = readers.masked_losses(reader, chain, 9, 7, 0.3, 0)
    generator = torch.Generator().manual_seed(0)
    tokens = chain.sample(9, 7, generator).tokens
    masked, positions = bert.mask_some(tokens, 0.3, generator)
    assert (masked[:, 0] == MASK).any()
    assert not (masked[:, 0] == MASK).all()

    total = 0
    for text, hidden_places, true in zip(masked.tolist(), positions.tolist(), tokens.tolist(), strict=True):
        ids = [TOKENS[0] if token == MASK else TOKENS[token] for token in text]
        moved = text[0] == MASK
        read = [CLS, *ids[1:], ids[0]] if moved else [CLS, *ids]
        with torch.no_grad():
            logits = network(torch.tensor([read])).logits[0, :, TOKENS].log_softmax(-1)
        for place in hidden_places:
            predicted_from = (place - 1) % 7 if moved else place
            total -= logits[predicted_from, true[place]].item()
    assert loss == pytest.approx(total / positions.numel(), rel=1e-5)


def test_hidden_states_are_read_where_all_first_tokens_stand_alike(texts, reader):
    texts[0, 0] = 1
    with pytest.raises(ValueError, match="tokens must all begin with MASK, or none of them, because mask_behind"):
        all_hidden_at_mask(reader, texts)


def test_a_padded_text_is_refused_where_the_mask_is_moved(texts, reader):
    texts[0, -1] = PAD
    with pytest.raises(ValueError, match="tokens may have no PAD where MASK is moved"):
        reader.probs(texts)


@pytest.mark.parametrize("place", [-1, 6])
def test_a_place_outside_the_text_is_refused(place):
    with pytest.raises(ValueError, match=f"at must be an integer from 0 to 5, not {place}"):
        readers.Reader(lively()).probs(inputs(), place)


def test_another_network_is_not_pretrained(network):
    other = FromTransformers(network, TOKENS)
    with pytest.raises(TypeError, match="reads other models, but hmmlib cannot pretrain them"):
        hmmlib.pretrain(other, random_hmm(3, 4, 0), hmmlib.Pretraining(), 0)
