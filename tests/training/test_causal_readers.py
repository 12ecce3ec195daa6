"""A causal network reads what follows a mask if the mask is moved behind the text."""

import warnings

import pytest
import torch
from tiny_networks import CLS, MASK_ID, TOKENS, inputs, lively, model

import hmmlib
from hmmlib import FromTransformers, Tuning, random_hmm, tune_prompt
from hmmlib.training import readers
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


def test_losses_are_those_of_the_text_wherever_the_mask_is_read(network, reader):
    plain = FromTransformers(network, TOKENS, before=[CLS])
    arguments = (random_hmm(3, 4, 0), 9, 7, 0.3, 0)
    assert readers.masked_losses(reader, *arguments) == readers.masked_losses(plain, *arguments)


def test_a_padded_text_is_refused_where_the_mask_is_moved(texts, reader):
    texts[0, -1] = PAD
    with pytest.raises(ValueError, match="tokens may have no PAD where MASK is moved"):
        reader.probs(texts)


@pytest.mark.parametrize("place", [-1, 6])
def test_a_place_outside_the_text_is_refused(place):
    with pytest.raises(ValueError, match=f"at must be an integer from 0 to 5, not {place}"):
        readers.Reader(lively()).probs(inputs(), place)


def test_a_network_without_a_head_over_its_vocabulary_is_refused():
    headless = model("BertForMaskedLM").bert
    with pytest.raises(TypeError, match="module must have a head over its vocabulary, as BertModel has not"):
        FromTransformers(headless, TOKENS, MASK_ID)


def test_another_network_is_not_pretrained(network):
    other = FromTransformers(network, TOKENS)
    with pytest.raises(TypeError, match="reads others, which are trained with tools of their own"):
        hmmlib.pretrain(other, random_hmm(3, 4, 0), hmmlib.Pretraining(), 0)
