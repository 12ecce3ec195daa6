"""Networks read at a place, whoever made them, and what peft tunes in them: the same numbers as the library's own call
gives, and clear refusals."""

import itertools
import sys
import warnings

import peft
import pytest
import torch
from tiny_networks import CLS, MASK_ID, MODELS, SEP, TOKENS, inputs, lively, model
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from hmmlib.training import bert
from hmmlib.training.adapters import TUNERS, peft_config, tune, tune_with_peft
from hmmlib.training.readers import PAD, FromTransformers, as_reader
from hmmlib.training.tuning import Tuning, all_hidden_at_mask, all_probs, all_probs_at_mask, tune_prompt
from hmmlib.validation import MASK

TEXTS = torch.tensor([[MASK, 0, 1, 2, 3, 0], [2, MASK, 1, 1, PAD, PAD], [3, 2, MASK, PAD, PAD, PAD]])
IDS = [[CLS, MASK_ID, 7, 31, 12, 9, 7, SEP], [CLS, 12, MASK_ID, 31, 31, SEP, 0, 0], [CLS, 9, 12, MASK_ID, SEP, 0, 0, 0]]
"""The same texts written out with TOKENS; 0 is that of PAD."""
CAUSAL = ["GPT2LMHeadModel", "LlamaForCausalLM"]
CLOSE = dict(rtol=1e-4, atol=1e-5)
PLAN, DRAWN = Tuning(2, 20, 0.3, 0.05), inputs(120)
LABELS = (DRAWN[:, 1] + DRAWN[:, 2]) % 2 == 0
NO_PREFIX = ["MPNetForMaskedLM", "DistilBertForMaskedLM", "AlbertForMaskedLM", "ModernBertForMaskedLM"]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_what_is_read_is_what_the_models_own_call_gives_with_and_without_padding(name):
    """RoBERTa's positions begin at pad_token_id + 1: with more an index would be out of range, and no error of ours."""
    network = model(name)
    reader = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP], pad=0)
    assert reader.causal is (name in CAUSAL)
    ids = torch.tensor(IDS)
    whole = network(input_ids=ids, attention_mask=(ids > 0).long(), output_hidden_states=True)
    logits = whole.logits[..., TOKENS]
    expected = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1) if reader.causal else logits
    for at in range(6):
        rows = [k for k, text in enumerate(TEXTS) if text[at] != PAD]
        torch.testing.assert_close(reader.probs(TEXTS, at)[rows], expected[rows, 1 + at].softmax(-1), **CLOSE)
    torch.testing.assert_close(all_probs(reader, TEXTS)[:, 2], expected[:, 3].softmax(-1), **CLOSE)
    found = reader.hidden(reader.embed(TEXTS), 3)
    torch.testing.assert_close(found, torch.stack(whole.hidden_states)[:, :, 2 if reader.causal else 3], **CLOSE)

    alone, shown = reader.probs(TEXTS[1:2, :4], 3), TEXTS[1:2, :4].clone()
    padded = torch.nn.functional.pad(TEXTS, (0, 5), value=PAD)
    torch.testing.assert_close(reader.probs(padded, 3)[1:2], alone, **CLOSE)
    shown[0, 1] = 0
    assert not torch.allclose(reader.probs(shown, 3), alone, atol=1e-5)

    longest = 24 - {"RobertaForMaskedLM": 1, "MPNetForMaskedLM": 2}.get(name, 0)
    for tokens, prompt in ((longest - 2, 0), (longest - 6, 4)):
        prompt = torch.zeros(prompt, reader.width)
        assert reader.probs(torch.zeros(1, tokens, dtype=torch.long), 1, prompt).isfinite().all()
        with pytest.raises(ValueError, match=rf"tokens need {longest + 1} positions.*, but the network has {longest}"):
            reader.probs(torch.zeros(1, tokens + 1, dtype=torch.long), 1, prompt)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_at_the_first_place_sees_no_text_and_that_is_said(name):
    """Where nothing stands before the mask there is no hidden state: not that of the last token, which has seen all."""
    texts, network = torch.tensor([[MASK, 0, 1, 2], [MASK, 3, 3, 3]]), model(name)
    with pytest.raises(ValueError, match="a causal model has no hidden state for the first place"):
        all_hidden_at_mask(FromTransformers(network, TOKENS, MASK_ID), texts)
    with pytest.warns(UserWarning, match="a causal model does not see the text behind the first token"):
        found = all_hidden_at_mask(FromTransformers(network, TOKENS, MASK_ID, before=[CLS]), texts)
    assert torch.equal(found[:, 0], found[:, 1])
    assert not FromTransformers(network, TOKENS, MASK_ID, causal=False).causal
    blind, sees = (
        FromTransformers(network, TOKENS, MASK_ID, before=[CLS], mask_behind=behind) for behind in (False, True)
    )
    once = DRAWN[:4], LABELS[:4], 1, Tuning(1, 4, 0.3, 0.05), 0
    for read in (lambda reader: all_probs_at_mask(reader, texts), lambda reader: tune_prompt(reader, *once)):
        with pytest.warns(UserWarning, match="^a causal model does not see the text behind the first token"):
            read(blind)
        with warnings.catch_warnings(action="error"):
            _ = read(sees), read(lively()), all_probs(blind, texts)


def test_a_network_of_build_gives_the_same_through_either_reader_also_behind_a_prompt():
    network, tokens = lively(), inputs(520)  # more than are computed at once
    own, through = as_reader(network), FromTransformers(network, range(4), mask=4)
    assert as_reader(through) is through
    prompt = torch.randn(2, own.width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens[::2, 3] = MASK
    for read, *more in ((all_probs,), *itertools.product((all_probs_at_mask, all_hidden_at_mask), (None, prompt))):
        found = read(own, tokens, *more)
        torch.testing.assert_close(found, read(through, tokens, *more), rtol=1e-3, atol=1e-4)
        assert not found.requires_grad
    framed = FromTransformers(network, range(4), mask=4, before=[1])
    assert framed.embed(TEXTS[1:2], prompt).first == 3
    assert framed.embed(TEXTS[1:2], prompt).attended.tolist() == [[True] * 7 + [False] * 2]


@torch.no_grad()
def test_ids_are_those_of_a_tokenizer():
    words = {word: k for k, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "cow", "field", "moos"])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    special = dict(unk_token="[UNK]", mask_token="[MASK]", pad_token="[PAD]")
    network, tokenizer = model("BertForMaskedLM"), PreTrainedTokenizerFast(tokenizer_object=made, **special)
    reader = FromTransformers.with_tokenizer(network, tokenizer, ["cow", "moos", "field"])
    asked = tokenizer("[MASK] moos field", return_tensors="pt")
    logits = network(**{k: asked[k] for k in ("input_ids", "attention_mask")}).logits[:, 1, [5, 7, 6]]
    torch.testing.assert_close(reader.probs(torch.tensor([[MASK, 1, 2]])), logits.softmax(-1), **CLOSE)
    with pytest.raises(ValueError, match="words must be of the tokenizer's vocabulary, as 'horse' is not"):
        FromTransformers.with_tokenizer(network, tokenizer, ["cow", "horse"])


def test_other_networks_are_refused_with_what_to_do():
    linear, changed = torch.nn.Linear(2, 2), lively()
    lora = peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=["query"])
    for network, words in (
        (model("BertForMaskedLM"), r"not BertForMaskedLM with another vocabulary: hmmlib\.FromTransformers"),
        (peft.get_peft_model(changed, lora), "with what peft adds"),
        (changed, "with what peft adds"),
    ):
        with pytest.raises(TypeError, match=words):
            all_probs_at_mask(network, inputs())
    with pytest.raises(TypeError, match="module must be a language model of transformers, not Linear"):
        FromTransformers(linear, TOKENS, MASK_ID)


def test_ids_tokens_and_prompts_that_the_network_cannot_take_are_named():
    network = model("BertForMaskedLM")
    for given, words in (
        (dict(tokens=[1, 1]), "tokens must name at least one index, and none twice"),
        (dict(tokens=[40]), "each of tokens must be an integer from 0 to 39"),
        (dict(mask=None), "mask must be the id that stands for MASK"),
        (dict(mask=40), "mask must be an integer from 0 to 39"),
        (dict(mask=12), "mask must be an id that is none of tokens, not 12"),
        (dict(before=[99]), "each of before must be an integer from 0 to 39"),
    ):
        with pytest.raises(ValueError, match=words):
            FromTransformers(**{"module": network, "tokens": TOKENS, "mask": MASK_ID, **given})
    reader = FromTransformers(network, TOKENS, MASK_ID)
    for tokens, width, words in (
        ([[0, PAD, 1]], 16, "PAD at the end of a text only"),
        ([[PAD, PAD]], 16, "not in all of it"),
        ([[0, 4]], 16, "tokens must be 0 to 3"),
        ([[0]], 7, r"prompt must have shape \(any, 16\), not \(2, 7\)"),
    ):
        with pytest.raises(ValueError, match=words):
            reader.probs(torch.tensor(tokens), 0, torch.zeros(2, width))
    with pytest.raises(ValueError, match="cut must be empty"):
        reader.hidden(reader.embed(TEXTS), 0, [1])


def test_a_prompt_of_pefts_is_a_soft_prompt_in_its_order():
    network = lively()
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    tuned = tune_with_peft(network, DRAWN, LABELS, config, PLAN, 0)
    vectors, probs = tuned.network.module.prompt_encoder["default"].embedding.weight.detach(), tuned.probs(DRAWN)
    torch.testing.assert_close(all_probs_at_mask(network, DRAWN, vectors), probs, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(all_probs_at_mask(network, DRAWN, vectors.flip(0)), probs, atol=1e-3)


@pytest.mark.parametrize("tuner", TUNERS)
def test_a_tuner_by_name_repeats_and_its_seed_matters(tuner):
    found = []
    for state, seed in enumerate((1, 1, 2)):
        torch.manual_seed(state)  # of the global generator, which does not matter
        found.append(tune(tuner, lively(), DRAWN, LABELS, PLAN, seed, length=3, rank=2).probs(DRAWN))
    assert [torch.equal(found[0], other) for other in found[1:]] == [True, False]


@pytest.mark.filterwarnings("ignore:a causal model:UserWarning")
@pytest.mark.parametrize("tuner", TUNERS)
@pytest.mark.parametrize("name", MODELS)
def test_every_tuner_works_on_other_networks_or_says_which_do(name, tuner):
    """What is read is what the module's own call on ids gives, with what was added, RoBERTa's positions too."""
    network = model(name)
    next(network.parameters()).requires_grad_(False)
    weights = bert.fingerprint(network)
    reader = FromTransformers(network, TOKENS, MASK_ID, before=[CLS], behind=[SEP])
    arguments = tuner, reader, DRAWN, LABELS, PLAN, 0, 3
    if tuner == "prefix" and name in NO_PREFIX:
        with pytest.raises(ValueError, match=f"must be prompt or lora for {name}, which takes no keys and values"):
            tune(*arguments)
        return
    tuned, before = tune(*arguments), all_probs_at_mask(reader, DRAWN)
    trained, *others = network.parameters()
    assert (trained.requires_grad, *{weight.requires_grad for weight in others}) == (False, True)
    assert all(weight.grad is None for weight in network.parameters())
    assert bert.fingerprint(network) == weights
    assert reader.causal or not torch.allclose(tuned.probs(DRAWN), before, atol=1e-3)
    if tuner == "prompt":
        assert tuned.network is reader
        return
    ids, attended = reader.input_ids(DRAWN)
    with torch.no_grad():
        logits = tuned.network.module(input_ids=ids, attention_mask=attended.long()).logits[:, 1 - reader.causal]
    torch.testing.assert_close(tuned.probs(DRAWN), logits[:, TOKENS].softmax(-1), rtol=1e-4, atol=1e-6)
    assert tuned.network.longest == reader.longest - 3 * (tuner == "prefix")
    assert FromTransformers(tuned.network.module, TOKENS, MASK_ID).causal is reader.causal


def test_errors_name_what_is_accepted(monkeypatch):
    network, other = lively(), torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"^tuner must be one of prompt, prefix, lora"):
        tune("adapter", network, DRAWN, LABELS, PLAN, 0)
    with pytest.raises(ValueError, match=r"^tuner must be prompt for Linear, not lora: it has none of query"):
        peft_config("lora", other)
    with pytest.raises(TypeError, match=r"^config must be of type PeftConfig, not str"):
        tune_with_peft(network, DRAWN, LABELS, "lora", PLAN, 0)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hmmlib\[adapters\]'"):
        peft_config("lora", network, 3, 2)
