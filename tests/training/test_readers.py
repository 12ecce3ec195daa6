"""Networks read at a place, whoever made them, and what peft tunes in them.

The numbers are those that the library's own call gives, and what cannot be read is refused.
"""

import sys
import warnings

import peft
import pytest
import torch
from tiny_networks import CAUSAL, CLS, MASK_ID, MODELS, SEP, TOKENS, inputs, lively, model

from hmmlib.training import bert
from hmmlib.training.adapters import TUNERS, peft_config, tune, tune_with_peft
from hmmlib.training.from_transformers import PAD, FromTransformers
from hmmlib.training.readers import as_reader
from hmmlib.training.tuning import Tuning, all_hidden_at_mask, all_probs, all_probs_at_mask, tune_prompt
from hmmlib.validation import MASK

TEXTS = torch.tensor(
    [
        [MASK, 0, 1, 2, 3, 0],
        [2, MASK, 1, 1, PAD, PAD],
        [3, 2, MASK, PAD, PAD, PAD],
    ]
)
IDS = torch.tensor(
    [
        [CLS, MASK_ID, 7, 31, 12, 9, 7, SEP],
        [CLS, 12, MASK_ID, 31, 31, SEP, 0, 0],
        [CLS, 9, 12, MASK_ID, SEP, 0, 0, 0],
    ]
)
"""The same texts written out with TOKENS. The id of PAD is 0."""
PLAN = Tuning(2, 20, 0.3, 0.05)
TASK_TEXTS = inputs(120)
LABELS = (TASK_TEXTS[:, 1] + TASK_TEXTS[:, 2]) % 2 == 0
TAKES_NO_PREFIX = ["MPNetForMaskedLM", "DistilBertForMaskedLM", "AlbertForMaskedLM", "ModernBertForMaskedLM"]
UNUSED_POSITIONS = {"RobertaForMaskedLM": 1, "MPNetForMaskedLM": 2}
"""Their positions begin behind the padding index."""


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def framed(network):
    return FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP], pad=0)


# Reading


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_what_is_read_is_what_the_models_own_call_gives(name):
    network = model(name)
    reader = framed(network)
    assert reader.causal is (name in CAUSAL)
    attended = (IDS > 0).long()
    output = network(input_ids=IDS, attention_mask=attended, output_hidden_states=True)
    before = 1 if reader.causal else 0  # A causal model predicts a token at the place before it.
    probs = output.logits[..., TOKENS].softmax(-1)
    for at in range(6):
        exists = TEXTS[:, at] != PAD
        read = reader.probs(TEXTS, at)
        close(read[exists], probs[exists, 1 + at - before])
    close(all_probs(reader, TEXTS)[:, 2], probs[:, 3 - before])
    hidden = torch.stack(output.hidden_states)
    close(reader.hidden(reader.embed(TEXTS), 3), hidden[:, :, 3 - before])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_padding_changes_nothing_and_what_stands_before_does(name):
    reader = framed(model(name))
    text = TEXTS[1:2, :4]
    alone = reader.probs(text, 3)
    padded = torch.nn.functional.pad(TEXTS, (0, 5), value=PAD)
    close(reader.probs(padded, 3)[1:2], alone)
    changed = text.clone()
    changed[0, 1] = 0
    assert not torch.allclose(reader.probs(changed, 3), alone, atol=1e-5)


@pytest.mark.parametrize("prompt_length", [0, 4])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_longest_text_is_read_and_a_longer_one_is_an_error_of_ours(name, prompt_length):
    reader = framed(model(name))
    positions = 24 - UNUSED_POSITIONS.get(name, 0)
    prompt = torch.zeros(prompt_length, reader.width)
    longest = torch.zeros(1, positions - 2 - prompt_length, dtype=torch.long)
    assert reader.probs(longest, 1, prompt).isfinite().all()
    longer = torch.zeros(1, positions - 1 - prompt_length, dtype=torch.long)
    with pytest.raises(ValueError, match=rf"tokens need {positions + 1} positions.*, but the network has {positions}"):
        reader.probs(longer, 1, prompt)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_at_the_first_place_sees_no_text_and_that_is_said(name):
    texts = TASK_TEXTS[:2]
    network = model(name)
    with pytest.raises(ValueError, match="a causal model has no hidden state for the first place"):
        all_hidden_at_mask(FromTransformers(network, TOKENS, MASK_ID), texts)
    blind = FromTransformers(network, TOKENS, MASK_ID, before=[CLS])
    message = r"^a causal model does not see the text behind the first token.*\(…, mask_behind=True\)$"
    with pytest.warns(UserWarning, match=message):
        states = all_hidden_at_mask(blind, texts)
    assert torch.equal(states[:, 0], states[:, 1])
    with pytest.warns(UserWarning, match=message):
        all_probs_at_mask(blind, texts)
    with pytest.warns(UserWarning, match=message):
        tune_prompt(blind, texts, LABELS[:2], 1, Tuning(epochs=1), 0)

    sees = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], mask_behind=True)
    with warnings.catch_warnings(action="error"):
        probs = all_probs_at_mask(sees, texts)
        all_probs(blind, texts)
        all_probs_at_mask(lively(), texts)
    assert not torch.allclose(probs[0], probs[1], atol=1e-3)


def test_a_network_of_build_gives_the_same_through_either_reader_also_behind_a_prompt():
    network = lively()
    tokens = inputs(520)  # More than are computed at once.
    tokens[::2, 3] = MASK
    plain = as_reader(network)
    through_transformers = FromTransformers(network, range(4), mask=4)
    assert as_reader(through_transformers) is through_transformers
    prompt = torch.linspace(-2, 2, 2 * plain.width, dtype=torch.float64).view(2, -1)
    for read, *options in (
        (all_probs,),
        (all_probs_at_mask,),
        (all_probs_at_mask, prompt),
        (all_hidden_at_mask,),
        (all_hidden_at_mask, prompt),
    ):
        values = read(plain, tokens, *options)
        expected = read(through_transformers, tokens, *options)
        torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-4)
        assert not values.requires_grad


def test_ids_before_a_text_stand_behind_the_prompt_and_padding_is_not_attended_to():
    reader = FromTransformers(lively(), range(4), mask=4, before=[1])
    embedded = reader.embed(TEXTS[1:2], torch.zeros(2, reader.width))
    assert embedded.first == 3
    assert embedded.attended.tolist() == [[True] * 7 + [False] * 2]


# What cannot be read


def test_other_networks_are_refused_with_what_to_do():
    changed_in_place = lively()
    lora = peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=["query"])
    with_lora = peft.get_peft_model(changed_in_place, lora)
    for network, reason in [
        (model("BertForMaskedLM"), r"not BertForMaskedLM with another vocabulary\. hmmlib\.FromTransformers"),
        (with_lora, "with what peft adds"),
        (changed_in_place, "with what peft adds"),
    ]:
        with pytest.raises(TypeError, match=reason):
            all_probs_at_mask(network, inputs())
    with pytest.raises(TypeError, match="module must be a language model of transformers, not Linear"):
        FromTransformers(torch.nn.Linear(2, 2), TOKENS, MASK_ID)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": [1, 1]}, "tokens must name at least one index, and none twice"),
        ({"tokens": [40]}, "each of tokens must be an integer from 0 to 39"),
        ({"mask": None}, "mask must be the id that stands for MASK"),
        ({"mask": 40}, "mask must be an integer from 0 to 39"),
        ({"mask": 12}, "mask must be an id that is none of tokens, not 12"),
        ({"before": [99]}, "each of before must be an integer from 0 to 39"),
        ({"behind": [99]}, "each of behind must be an integer from 0 to 39"),
        ({"pad": 99}, "pad must be an integer from 0 to 39"),
    ],
)
def test_ids_that_the_network_cannot_take_are_named(changed, message):
    arguments = {"tokens": TOKENS, "mask": MASK_ID} | changed
    with pytest.raises(ValueError, match=message):
        FromTransformers(model("BertForMaskedLM"), **arguments)


@pytest.mark.parametrize(
    ("tokens", "width", "message"),
    [
        ([[0, PAD, 1]], 16, "PAD at the end of a text only"),
        ([[PAD, PAD]], 16, "not in all of it"),
        ([[0, 4]], 16, "tokens must be 0 to 3"),
        ([[0]], 7, r"prompt must have shape \(any, 16\), not \(2, 7\)"),
    ],
)
def test_tokens_and_prompts_that_the_network_cannot_take_are_named(tokens, width, message):
    reader = FromTransformers(model("BertForMaskedLM"), TOKENS, MASK_ID)
    with pytest.raises(ValueError, match=message):
        reader.probs(torch.tensor(tokens), 0, torch.zeros(2, width))


def test_attention_is_cut_in_the_librarys_own_networks_only():
    reader = FromTransformers(model("BertForMaskedLM"), TOKENS, MASK_ID)
    with pytest.raises(ValueError, match="cut must be empty"):
        reader.hidden(reader.embed(TEXTS), 0, [1])


# What is tuned in them


def test_a_prompt_of_pefts_is_a_soft_prompt_in_its_order():
    network = lively()
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    tuned = tune_with_peft(network, TASK_TEXTS, LABELS, config, PLAN, 0)
    vectors = tuned.network.module.prompt_encoder["default"].embedding.weight.detach()
    probs = tuned.probs(TASK_TEXTS)
    behind_vectors = all_probs_at_mask(network, TASK_TEXTS, vectors)
    torch.testing.assert_close(behind_vectors, probs, rtol=1e-4, atol=1e-6)
    in_another_order = all_probs_at_mask(network, TASK_TEXTS, vectors.flip(0))
    assert not torch.allclose(in_another_order, probs, atol=1e-3)


@pytest.mark.parametrize("tuner", TUNERS)
def test_a_tuner_by_name_repeats_and_its_seed_matters(tuner):
    def tuned_probs(seed, global_seed):
        torch.manual_seed(global_seed)  # It does not matter.
        tuned = tune(tuner, lively(), TASK_TEXTS, LABELS, PLAN, seed, length=3, rank=2)
        return tuned.probs(TASK_TEXTS)

    first = tuned_probs(1, 0)
    assert torch.equal(tuned_probs(1, 1), first)
    assert not torch.equal(tuned_probs(2, 2), first)


@pytest.mark.filterwarnings("ignore:a causal model:UserWarning")
@pytest.mark.parametrize("tuner", TUNERS)
@pytest.mark.parametrize("name", MODELS)
def test_every_tuner_works_on_other_networks_or_says_which_do(name, tuner):
    network = model(name)
    next(network.parameters()).requires_grad_(False)
    weights = bert.fingerprint(network)
    reader = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP])
    if tuner == "prefix" and name in TAKES_NO_PREFIX:
        with pytest.raises(ValueError, match=f"must be prompt or lora, not prefix, for {name}, which takes no keys"):
            tune(tuner, reader, TASK_TEXTS, LABELS, PLAN, 0, 3)
        return

    tuned = tune(tuner, reader, TASK_TEXTS, LABELS, PLAN, 0, 3)

    # The network is as it was.
    assert bert.fingerprint(network) == weights
    for k, parameter in enumerate(network.parameters()):
        assert parameter.requires_grad == (k > 0)
        assert parameter.grad is None
    # What was tuned makes a difference, unless the model is blind to it.
    probs = tuned.probs(TASK_TEXTS)
    unchanged = torch.allclose(probs, all_probs_at_mask(reader, TASK_TEXTS), atol=1e-3)
    assert reader.causal or not unchanged
    if tuner == "prompt":
        assert tuned.network is reader
        return
    # What is read is what the module's own call gives, with what was added.
    ids, attended = reader.input_ids(TASK_TEXTS)
    place = 0 if reader.causal else 1
    with torch.no_grad():
        output = tuned.network.module(input_ids=ids, attention_mask=attended.long())
    expected = output.logits[:, place, TOKENS].softmax(-1)
    torch.testing.assert_close(probs, expected, rtol=1e-4, atol=1e-6)
    prefix_length = 3 if tuner == "prefix" else 0
    assert tuned.network.longest == reader.longest - prefix_length
    assert FromTransformers(tuned.network.module, TOKENS, MASK_ID).causal is reader.causal


def test_what_cannot_be_tuned_is_said_with_what_can():
    with pytest.raises(ValueError, match=r"^tuner must be one of prompt, prefix, lora"):
        tune("adapter", lively(), TASK_TEXTS, LABELS, PLAN, 0)
    with pytest.raises(ValueError, match=r"^tuner must be prompt for Linear, not lora, .* names: query and value;"):
        peft_config("lora", torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"^config must be of type PeftConfig, not str"):
        tune_with_peft(lively(), TASK_TEXTS, LABELS, "lora", PLAN, 0)


def test_without_peft_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hmmlib\[adapters\]'"):
        peft_config("lora", lively(), 3, 2)
